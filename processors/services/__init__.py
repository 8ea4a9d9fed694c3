"""Nodes that talk to a vendor's service, one vendor a file: a codec without I/O, and a thin node around it.

=======================  ==========================================  ========================================
what                     node                                        stands on (pure unless named)
=======================  ==========================================  ========================================
OpenAI chat completions  ``openai_llm.OpenAILLM``                    ``chat_request``, ``chat_stream``,
and what speaks them                                                 ``tool_deltas``, ``written_calls``
Anthropic Messages       ``anthropic_llm.AnthropicLLM``              ``anthropic_request``, ``anthropic_stream``
what models share        ``streamed_llm``                            ``reply``, ``sse``
what all share           ``http`` (aiohttp): pool, deadlines;        ``retry``, ``address``
                         ``key``
=======================  ==========================================  ========================================
"""

from __future__ import annotations

__all__: list[str] = []
