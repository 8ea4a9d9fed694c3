"""The agent of ``voiceflow demo`` and of ``voiceflow talk`` without an application: every part runs on this machine."""

from __future__ import annotations

from voiceflow.messages import Message
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

__all__ = ["EXAMPLES", "SYSTEM", "agent"]

SYSTEM = "You are Ava, a friendly voice assistant. Reply with one short sentence."

EXAMPLES = (
    Message("user", "Who are you?"),
    Message("assistant", "I'm Ava, and I'm happy to talk with you."),
    Message("user", "What is the capital of Spain?"),
    Message("assistant", "The capital of Spain is Madrid."),
    Message("user", "How many hours are in a day?"),
    Message("assistant", "There are twenty-four hours in a day."),
    Message("user", "What do cows eat?"),
    Message("assistant", "Cows eat grass."),
    Message("user", "Goodbye."),
    Message("assistant", "Goodbye! Have a lovely day."),
)
"""What good answers look like: a model of 135 million parameters needs to be shown."""


def agent(source: Processor, sink: Processor) -> Pipeline:
    """From the caller's sound to the agent's."""
    options = LlamaOptions(system=SYSTEM, examples=EXAMPLES, frequency_penalty=0.2)
    hearing = source >> SileroVAD() >> [WhisperSTT(), SmartTurn()] >> Turns()
    return hearing >> Context(SYSTEM) >> LlamaLLM(options=options) >> Sentences() >> PiperTTS() >> sink
