"""Speculation: a reply begun before it is sure that the caller is done.

The one rule: a reply passes the gate when it counts, and not before. What counts is said by one node, the context, in
``ReplyDecided``; until then the gate is closed, also for a reply of which it was told nothing.

Without a ``Speculation`` in the graph nobody guesses: it tells the nodes before it, by ``Speculating``, that they may.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator

from voiceflow.frames import (
    ControlFrame,
    Lane,
    LLMEnded,
    LLMTextFrame,
    OutputAudioFrame,
    SentenceFrame,
    ToolCallFrame,
    Travels,
    UtteranceEnded,
)
from voiceflow.processor import Processor
from voiceflow.processors.end_policies import EndPolicy, Score, Silence

__all__ = ["EAGER", "ReplyDecided", "Speculating", "Speculation", "TurnProbable", "TurnResumed", "Verdicts"]

EAGER: EndPolicy = Score(0.3, without=Silence(0.2))
"""As soon as the detector tells of the pause, unless a turn-end model holds that they will go on."""


class Speculating(ControlFrame, frozen=True):
    """There is a gate: replies may be begun early, at pauses that fit the end policy ``eager``."""

    travels = Travels.UP
    eager: EndPolicy = EAGER


class TurnProbable(ControlFrame, frozen=True):
    """The caller is probably done. ``text`` and ``continues`` are those of the ``TurnEnded`` that would come now."""

    lane = Lane.USER
    text: str = ""
    continues: bool = False
    why: str = ""


class TurnResumed(ControlFrame, frozen=True):
    """They were not: the caller goes on."""

    lane = Lane.USER
    why: str = ""


class ReplyDecided(ControlFrame, frozen=True):
    """Whether a reply counts. One that does not leaves no trace.

    It is not of the agent's lane: it overtakes what waits, and comes to the gate behind a model that still streams.
    """

    utterance: int = 0
    counts: bool = True


class Verdicts:
    """Which replies count: all, until a gate is known (``guard``); then those up to the newest of which it was said, but for wrong guesses."""

    def __init__(self) -> None:
        self._newest: int | None = None
        self._wrong: deque[int] = deque(maxlen=64)  # they are one behind the other: at most a few can still come up

    def guard(self) -> None:
        """From now on a reply counts when that was said."""
        self._newest = self._newest or 0

    def take(self, frame: ReplyDecided) -> None:
        """A reply was decided about."""
        if not frame.counts:
            self.drop(frame.utterance)
        elif self._newest is not None:
            self._newest = max(self._newest, frame.utterance)

    def drop(self, utterance: int) -> None:
        """This one does not count, and never will."""
        if utterance not in self._wrong:
            self._wrong.append(utterance)

    def of(self, utterance: int) -> bool | None:
        """Whether it counts; None: that is not known yet. What nobody asked for (0) is no guess."""
        if utterance in self._wrong:
            return False
        return True if self._newest is None or utterance <= self._newest else None


class Speculation(Processor):
    """The gate: lets a reply through when the caller's turn has ended as was guessed, and lets the rest pass at once.

    Its place says how far a guess gets: before the voice only the model works ahead (``sentences >> Speculation() >> tts``),
    behind it the voice does as well (``tts >> Speculation() >> speaker``). Whatever shows or does something with a reply
    belongs behind it, except ``Tools``, which keeps the rule by itself: of a reply that does not count yet, only pure tools run.

    ``eager``: the end policy whose pause is probably the end. Each wrong guess costs a request to the model. There is
    none while the agent speaks or thinks. What waits here waits in the node's inbox, so a voice that is ahead is held back
    by its bound; an interrupt drops it. What is said unasked (``SayFrame``) behind a guess waits for its end as well.
    """

    def __init__(self, eager: EndPolicy = EAGER) -> None:
        if not isinstance(eager, EndPolicy):
            raise ValueError(f"Speculation: eager is {eager!r}; it must be an end policy of voiceflow.processors.turn_policies")
        self.eager = eager
        self._verdicts = Verdicts()
        self._verdicts.guard()
        self._decided = asyncio.Event()

    async def run(self) -> AsyncIterator[Speculating]:
        """Tell those before it that there is a gate."""
        yield Speculating(eager=self.eager)

    async def process(
        self, frame: OutputAudioFrame | UtteranceEnded | SentenceFrame | LLMTextFrame | LLMEnded | ToolCallFrame | ReplyDecided
    ) -> AsyncIterator[OutputAudioFrame | UtteranceEnded | SentenceFrame | LLMTextFrame | LLMEnded | ToolCallFrame | ReplyDecided]:
        """See the class."""
        if isinstance(frame, ReplyDecided):
            self._verdicts.take(frame)
            self._decided.set()
            yield frame
            return
        while (counts := self._verdicts.of(frame.utterance)) is None:
            self._decided.clear()
            await self._decided.wait()
        if counts:
            yield frame
