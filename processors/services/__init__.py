"""Nodes that talk to a vendor's service, one vendor a file: a codec without I/O, and a thin node around it.

=======================  ==========================================  ========================================
what                     node                                        stands on (pure unless named)
=======================  ==========================================  ========================================
OpenAI chat completions  ``openai_llm.OpenAILLM``                    ``chat_request``, ``chat_stream``,
and what speaks them                                                 ``tool_deltas``, ``written_calls``
Anthropic Messages       ``anthropic_llm.AnthropicLLM``              ``anthropic_request``, ``anthropic_stream``
Deepgram                 ``deepgram_stt.DeepgramSTT``,               ``deepgram_wire``, ``deepgram_options``,
                         ``deepgram_flux.DeepgramFlux``,             ``deepgram_sound``, ``deepgram_ears``;
                         ``deepgram_tts.DeepgramTTS``                ``deepgram_line`` (a connection kept)
PlayHT (closed)          ``playht_tts.PlayHTTTS``                    ``playht_wire``
ElevenLabs voices        ``elevenlabs_tts.ElevenLabsTTS``            ``elevenlabs_options``, ``elevenlabs_wire``,
                                                                     ``elevenlabs_sockets``, ``elevenlabs_http``
what voices share        ``speech_stream``                           ``voice_service``, ``utterances``,
                         ``compressed_sound`` (av)                   ``spoken_text``, ``decoders``
what models share        ``streamed_llm``                            ``reply``, ``sse``
what all share           ``http`` (aiohttp): pool, deadlines;        ``retry``, ``address``, ``key``
                         ``socket`` (websockets)
=======================  ==========================================  ========================================
"""

from __future__ import annotations

__all__: list[str] = []
