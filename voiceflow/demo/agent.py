"""The agent of ``voiceflow demo`` and of ``voiceflow talk`` without an application: every part runs on this machine."""

from __future__ import annotations

from voiceflow.pipeline import Pipeline
from voiceflow.processor import Processor
from voiceflow.processors.context import Context
from voiceflow.processors.llm_xllamacpp import LlamaLLM, LlamaOptions
from voiceflow.processors.smart_turn import SmartTurn
from voiceflow.processors.stt_whisper import WhisperSTT
from voiceflow.processors.text import Sentences
from voiceflow.processors.tts_piper import PiperTTS
from voiceflow.processors.turns import Turns
from voiceflow.processors.vad import SileroVAD

__all__ = ["SYSTEM", "agent"]

SYSTEM = "You are Ava, a friendly voice assistant on the phone. Answer in one or two short sentences."


def agent(source: Processor, sink: Processor) -> Pipeline:
    """From the caller's sound to the agent's."""
    hearing = source >> SileroVAD() >> [WhisperSTT(), SmartTurn()] >> Turns()
    return hearing >> Context(SYSTEM) >> LlamaLLM(options=LlamaOptions(system=SYSTEM)) >> Sentences() >> PiperTTS() >> sink
