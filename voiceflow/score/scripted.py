"""The agent of ``voiceflow score --virtual`` when no other is named: scripted services around the real conversation nodes."""

from __future__ import annotations

from voiceflow.messages import Message
from voiceflow.pipeline import Pipeline
from voiceflow.processor import Processor
from voiceflow.processors.context import Context
from voiceflow.processors.idle import Idle
from voiceflow.processors.text import Sentences
from voiceflow.processors.turns import Turns
from voiceflow.score.caller import CallerLine
from voiceflow.score.presets import read_turns
from voiceflow.testing import Latency, ScriptedLLM, ScriptedSTT, ScriptedTTS, ScriptedTurnEnd, ScriptedVAD

__all__ = ["TURNS", "agent", "reply"]

STT = Latency(0.25)
LLM = Latency(0.35, 0.02)
TTS = Latency(0.15, 0.02)
"""As measured on good cloud services and small local models: a final after 250 ms, a first token after 350, first sound after 150."""


TURNS = read_turns("selective")
"""The choices of an agent that is talked to by one person in a noisy place."""


def reply(messages: tuple[Message, ...]) -> str:
    """An answer of two sentences, another for each turn of the call."""
    turn = sum(message.role == "user" for message in messages)
    return f"This is answer number {turn}, and it is a short one. Is there anything else you would like to know today?"


def agent(source: Processor, sink: Processor) -> Pipeline:
    """From the caller's labels to the agent's numbers."""
    texts, levels, late = ([], {}, {}) if not isinstance(source, CallerLine) else (source.texts, source.levels, source.late)
    stt = ScriptedSTT(texts, STT, late=late)
    hearing = source >> ScriptedVAD(levels=levels) >> [stt, ScriptedTurnEnd(texts)] >> Turns(TURNS) >> Idle()
    return (
        hearing
        >> Context("You answer the phone.")
        >> ScriptedLLM(reply, LLM)
        >> Sentences()
        >> ScriptedTTS(TTS, numbered=True, word_s=0.3)
        >> sink
    )
