"""The demo's call: the caller of :mod:`script` talks to an agent made of real local models, in real time.

The one rule: the agent is a plain pipeline, as anybody would write it; what is measured is seen by taps on its edges.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

from voiceflow.demo.journal import Journal
from voiceflow.demo.recording import Recording
from voiceflow.demo.script import RATE, Caller
from voiceflow.frames import AudioFormat, Frame, InputAudioFrame, Message, PlaybackStarted, PlaybackStopped
from voiceflow.interruption import Interruption
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
from voiceflow.session import Session
from voiceflow.transports.speaker import Speaker

__all__ = ["Call", "hold_call"]

SYSTEM = "You are Ava, a friendly voice assistant on the phone. Answer in one or two short sentences."
VOICE_RATE = 22050
FRAME_S = 0.02


@dataclass(frozen=True, slots=True)
class Call:
    """All that is left of a call."""

    journal: Journal
    caller: Caller
    recording: Recording
    interruptions: tuple[Interruption, ...]
    messages: tuple[Message, ...]
    picture: str


class _CallerLine(Processor):
    """The caller's end: their sound, on the clock, from the script."""

    makes = AudioFormat(RATE)

    def __init__(self, caller: Caller) -> None:
        self.caller = caller
        self.recording: Recording | None = None

    async def run(self) -> AsyncIterator[InputAudioFrame]:
        """Each frame is yielded when its last sample has been spoken; frame n is due n frames after the first."""
        assert self.recording is not None
        loop, samples = asyncio.get_running_loop(), round(FRAME_S * RATE)
        origin, number = loop.time(), 0
        while (sound := self.caller.frame(origin + number * FRAME_S, samples)) is not None:
            at = origin + number * FRAME_S
            number += 1
            await asyncio.sleep(origin + number * FRAME_S - loop.time())
            self.recording.caller.add(sound.tobytes(), at)
            yield InputAudioFrame(sound.tobytes(), RATE, pts=at)


async def hold_call(caller: Caller, journal: Journal) -> Call:
    """Run the call to its end. Raises ExceptionGroup, naming the node, if a part of the agent fails."""
    loop = asyncio.get_running_loop()
    recording = Recording(RATE, VOICE_RATE, loop.time)
    line, vad, turns, context = _CallerLine(caller), SileroVAD(), Turns(), Context(SYSTEM)
    line.recording = recording
    llm = LlamaLLM(options=LlamaOptions(system=SYSTEM))
    speaker = Speaker(recording.play, AudioFormat(VOICE_RATE))
    pipeline: Pipeline = line >> vad >> [WhisperSTT(), SmartTurn()] >> turns >> context >> llm >> Sentences() >> PiperTTS() >> speaker
    pipeline.link(vad, turns)  # turns hear of speech at once, not behind the recogniser's work
    session = Session(pipeline)

    def see(frame: Frame, source: str, target: str) -> None:
        if isinstance(frame, PlaybackStarted):
            caller.agent_began(frame.at)
        elif isinstance(frame, PlaybackStopped):
            caller.agent_stopped(frame.at)
        journal.see(frame, loop.time())

    session.tap(see)
    await session.run()
    for interruption in session.interruptions:
        journal.cut(interruption)
    return Call(journal, caller, recording, session.interruptions, context.conversation.messages, str(pipeline))
