"""The demo's call: the caller of :mod:`script` talks to an agent made of real local models, in real time.

The one rule: the agent is a plain pipeline, as anybody would write it; what is measured is seen by taps on its edges.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

from voiceflow.demo.agent import agent
from voiceflow.demo.journal import Journal
from voiceflow.demo.script import RATE, Caller
from voiceflow.frames import AudioFormat, Frame, InputAudioFrame, PlaybackStarted, PlaybackStopped
from voiceflow.interruption import Interruption
from voiceflow.messages import Message
from voiceflow.processor import Processor
from voiceflow.processors.context import Context
from voiceflow.score.caller import spoken
from voiceflow.score.recording import Recording
from voiceflow.session import Session
from voiceflow.transports.speaker import Speaker

__all__ = ["Call", "hold_call"]

VOICE_RATE = 22050


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

    def __init__(self, caller: Caller, recording: Recording) -> None:
        self.caller = caller
        self.recording = recording

    async def run(self) -> AsyncIterator[InputAudioFrame]:
        """The play, to its end."""
        async with contextlib.aclosing(spoken(self.caller.frame, self.recording.caller)) as frames:
            async for frame in frames:
                yield frame


async def hold_call(caller: Caller, journal: Journal) -> Call:
    """Run the call to its end. Raises ExceptionGroup, naming the node, if a part of the agent fails."""
    loop = asyncio.get_running_loop()
    recording = Recording(RATE, VOICE_RATE, loop.time)
    pipeline = agent(_CallerLine(caller, recording), Speaker(recording.play, AudioFormat(VOICE_RATE)))
    context = next(node for node in pipeline.nodes if isinstance(node, Context))
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
