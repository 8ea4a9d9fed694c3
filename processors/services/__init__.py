"""Nodes that talk to a vendor's service, one vendor a file: a codec without I/O, and a thin node around it.

=======================  ==========================================  ========================================
what                     node                                        stands on (pure unless named)
=======================  ==========================================  ========================================
OpenAI chat completions  ``openai_llm.OpenAILLM``                    ``chat_request``, ``chat_stream``,
and what speaks them                                                 ``tool_deltas``, ``written_calls``
what they share          ``http`` (aiohttp): pool, deadlines;        ``sse``, ``retry``
=======================  ==========================================  ========================================
"""

from __future__ import annotations

__all__: list[str] = []
