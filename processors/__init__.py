"""The nodes that hear, decide and speak. Import each from its own module: its library is loaded only then.

=====================  ==================================================  =====================================
what                   node                                                stands on (pure unless named)
=====================  ==================================================  =====================================
voice activity         ``vad.SileroVAD``                                   ``hearing``, ``onnx`` (onnxruntime)
speech to text         ``stt_whisper.WhisperSTT`` (ctranslate2),           ``dictation``, ``segments``,
                       ``stt_pocketsphinx.PocketSphinxSTT``                ``hearing``, ``log_mel``
end of turn            ``smart_turn.SmartTurn``                            ``log_mel``, ``onnx``
turn taking            ``turns.Turns``                                     ``turn_machine``, ``turn_knowledge``,
                                                                           ``turn_words``, ``turn_options``
its policies           all in ``turn_policies``                            ``start_policies``, ``end_policies``,
                                                                           ``turn_evidence``, ``echo``
a silent caller        ``idle.Idle``
context                ``context.Context``                                 ``conversation``, ``commits``, ``tokens``,
                                                                           ``summary``
tools                  ``tools.Tools``                                     ``tool``, ``mcp_tools`` (mcp)
agents, flows          ``agents.OnlyVoice``                                ``agents``, ``steps``
working ahead          ``speculation.Speculation``                         ``guesses``
language model         ``llm_xllamacpp.LlamaLLM`` (xllamacpp)
services               one vendor a file in ``services``
telephone keys         ``dtmf.DTMFIn``, ``DTMFOut``, ``Keypad``            ``tones``
who picked up          ``answering.Answering``, ``Voicemail``             ``beeps``
telephone menus        ``ivr.Navigator``                                  ``tool``, ``agents``
two for one place      ``fallback.Fallback``                               ``take_over``
ready openings         ``phrases.Phrases``                                 ``take_over``
text for the voice     ``text.Sentences``                                  ``splitter``, ``boundaries``, ``marks``,
                                                                           ``filters``, ``markdown``
figures in words       ``spoken_forms.SpokenForms``                        ``spoken``, ``readings``,
                                                                           ``numerals`` (unicode_rbnf), ``lexicon``
text to speech         ``tts_piper.PiperTTS``, ``tts_kokoro.KokoroTTS``    ``speech``, ``phonemes``, ``lexicon``,
                                                                           ``spoken``, ``onnx_graph``
=====================  ==================================================  =====================================

``once`` loads a model once per process, however many sessions ask for it.
"""

from __future__ import annotations

__all__: list[str] = []
