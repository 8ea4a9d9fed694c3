"""Turn taking as a node: ``TurnMachine`` decides, this asks it at the right times and hands on what it says.

The one rule: decisions are given out in the order in which they were made, whoever woke the machine.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING

from voiceflow.frames import (
    EndFrame,
    FloorReleased,
    FloorTaken,
    HoldFrame,
    InterruptFrame,
    PlaybackStarted,
    PlaybackStopped,
    ResumeFrame,
    SpeechStarted,
    SpeechStopped,
    ToolResultFrame,
    ToolStarted,
    TranscriptFrame,
    TurnEnded,
    TurnScored,
    TurnStarted,
    WordsHeard,
)
from voiceflow.processor import Processor
from voiceflow.processors.end_policies import EndPolicy
from voiceflow.processors.guesses import Guesses
from voiceflow.processors.speculation import Speculating, TurnProbable, TurnResumed
from voiceflow.processors.start_policies import StartPolicy
from voiceflow.processors.turn_machine import Decision, Signal, State, TurnMachine
from voiceflow.processors.turn_options import TurnOptions, TurnPolicyFrame
from voiceflow.tasks import woken

if TYPE_CHECKING:
    from voiceflow.interruption import Interruption

__all__ = ["State", "TurnMachine", "TurnOptions", "TurnPolicyFrame", "Turns"]

_EDGES = (SpeechStarted, SpeechStopped)
_REPORTS = (PlaybackStarted, PlaybackStopped, WordsHeard, ToolStarted, ToolResultFrame)


class Turns(Processor):
    """Turn taking, between the recogniser and the context. Instant; it works on the caller's lane, so no interrupt drops it.

    By its options, speech over the agent yields ``HoldFrame`` at once and then ``InterruptFrame`` with ``TurnStarted``, or
    ``ResumeFrame``. An interrupt from elsewhere is taken as the agent's silence. Each ``TurnStarted`` is followed by one
    ``TurnEnded``, with empty text if nothing was said. ``EndFrame`` ends an open turn with the words that are known.
    Reports go on upstream, and the edges of speech downstream, behind what they led to.

    ``FloorTaken`` and ``FloorReleased`` (push to talk) and ``TurnPolicyFrame`` come from any node before this one, or
    from the application: ``Session(pipeline, inputs=[FloorTaken, FloorReleased, TurnPolicyFrame])``.

    With a ``Speculation`` in the graph it yields ``TurnProbable`` besides, when a pause is probably the end of the turn, and
    ``TurnResumed`` if it was not. ``TurnStarted`` and ``TurnEnded`` come as they would without it.

    A node that answers with ``SayFrame`` instead of a model numbers it (``utterance=1`` and so on): number 0 is what is said
    without being asked for, and leaves a question that is being thought of unanswered.
    """

    def __init__(self, options: TurnOptions | None = None) -> None:
        self.machine = TurnMachine(options)
        self._decided: deque[Decision] = deque()
        self._wake = asyncio.Event()
        self._guesses: Guesses | None = None

    def process(
        self,
        frame: SpeechStarted
        | SpeechStopped
        | TranscriptFrame
        | TurnScored
        | FloorTaken
        | FloorReleased
        | TurnPolicyFrame
        | PlaybackStarted
        | PlaybackStopped
        | WordsHeard
        | ToolStarted
        | ToolResultFrame
        | Speculating
        | EndFrame,
    ) -> Iterator[
        TurnStarted
        | TurnEnded
        | TurnProbable
        | TurnResumed
        | HoldFrame
        | ResumeFrame
        | InterruptFrame
        | SpeechStarted
        | SpeechStopped
        | PlaybackStarted
        | PlaybackStopped
        | WordsHeard
        | ToolStarted
        | ToolResultFrame
    ]:
        """See the class."""
        was_speaking = self.machine.caller.speaking
        if isinstance(frame, EndFrame):
            self._decided += self.machine.finish(self.session.time())
        elif isinstance(frame, Speculating):
            self._guesses = Guesses(frame.eager)
        else:
            self._take(frame)
        yield from self._decisions()
        # An edge may come by two ways, from the detector itself and past the recogniser; it goes on once.
        if isinstance(frame, _REPORTS) or (isinstance(frame, _EDGES) and self.machine.caller.speaking is not was_speaking):
            yield frame

    async def run(self) -> AsyncIterator[TurnStarted | TurnEnded | TurnProbable | TurnResumed | HoldFrame | ResumeFrame | InterruptFrame]:
        """Decide what time alone decides."""
        while True:
            await woken(self._wake, self._deadline())
            self._decided += self.machine.tick(self.session.time())
            for decision in self._decisions():
                yield decision

    def use(
        self, *, start: StartPolicy | None = None, barge_in: StartPolicy | None = None, end: EndPolicy | None = None, once: bool = False
    ) -> None:
        """The same as a ``TurnPolicyFrame``, from code that has the node at hand. At work from the next signal on."""
        self._take(TurnPolicyFrame(start=start, barge_in=barge_in, end=end, once=once))

    def _take(self, signal: Signal) -> None:
        self._decided += self.machine.step(signal, self.session.time())
        self._wake.set()

    def _deadline(self) -> float | None:
        """The machine's, or that of a guess before it."""
        guess_at = self._guesses.deadline(self.machine, self.session.time()) if self._guesses is not None else None
        return min((at for at in (self.machine.deadline, guess_at) if at is not None), default=None)

    def _decisions(self) -> Iterator[Decision | TurnProbable | TurnResumed]:
        # One queue for process() and run(): whichever is awake gives out in the order of deciding.
        while self._decided:
            yield self._decided.popleft()
        # Behind the decisions: an interrupt among them has been carried out by now, and the machine knows what was heard.
        if self._guesses is not None:
            yield from self._guesses.look(self.machine, self.session.time())

    def on_interrupt(self, interrupt: Interruption) -> None:
        """The agent is silent now, whoever wanted it."""
        self.machine.interrupted(interrupt.at, interrupt.heard)
        self._wake.set()
