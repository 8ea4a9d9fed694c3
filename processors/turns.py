"""Turn taking as a node: ``TurnMachine`` decides, this asks it at the right times and hands on what it says.

The one rule: decisions are given out in the order in which they were made, whoever woke the machine.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING

from voiceflow.frames import (
    EndFrame,
    HoldFrame,
    InterruptFrame,
    PlaybackStarted,
    PlaybackStopped,
    ResumeFrame,
    SpeechStarted,
    SpeechStopped,
    TranscriptFrame,
    TurnEnded,
    TurnScored,
    TurnStarted,
)
from voiceflow.processor import Processor
from voiceflow.processors.turn_machine import Decision, State, TurnMachine
from voiceflow.processors.turn_options import BACKCHANNELS, TurnOptions

if TYPE_CHECKING:
    from voiceflow.interruption import Interruption

__all__ = ["BACKCHANNELS", "State", "TurnMachine", "TurnOptions", "Turns"]


class Turns(Processor):
    """Turn taking, between the recogniser and the context. Instant; it works on the caller's lane, so no interrupt drops it.

    Speech over the agent yields ``HoldFrame`` at once and then ``InterruptFrame`` with ``TurnStarted``, or
    ``ResumeFrame``. An interrupt from elsewhere is taken as the agent's silence. ``EndFrame`` ends an open turn with
    the words that are known. Playback reports go on upstream.
    """

    def __init__(self, options: TurnOptions | None = None) -> None:
        self.machine = TurnMachine(options)
        self._decided: deque[Decision] = deque()
        self._wake = asyncio.Event()

    def process(
        self, frame: SpeechStarted | SpeechStopped | TranscriptFrame | TurnScored | PlaybackStarted | PlaybackStopped | EndFrame
    ) -> Iterator[TurnStarted | TurnEnded | HoldFrame | ResumeFrame | InterruptFrame | PlaybackStarted | PlaybackStopped]:
        """See the class."""
        now = self.session.time()
        self._decided += self.machine.finish(now) if isinstance(frame, EndFrame) else self.machine.step(frame, now)
        self._wake.set()
        yield from self._decisions()
        if isinstance(frame, PlaybackStarted | PlaybackStopped):
            yield frame

    async def run(self) -> AsyncIterator[TurnStarted | TurnEnded | HoldFrame | ResumeFrame | InterruptFrame]:
        """Decide what time alone decides."""
        while True:
            await self._sleep()
            self._decided += self.machine.tick(self.session.time())
            for decision in self._decisions():
                yield decision

    async def _sleep(self) -> None:
        """Until the machine's deadline, or a signal that may have moved it."""
        deadline = self.machine.deadline
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(deadline):
                await self._wake.wait()
        self._wake.clear()

    def _decisions(self) -> Iterator[Decision]:
        # One queue for process() and run(): whichever is awake gives out in the order of deciding.
        while self._decided:
            yield self._decided.popleft()

    def on_interrupt(self, interrupt: Interruption) -> None:
        """The agent is silent now, whoever wanted it."""
        self.machine.interrupted(interrupt.at, heard=any(heard.text for heard in interrupt.heard))
        self._wake.set()
