"""What one of two nodes was given and what came of it, so that the other can go on from there.

The one rule: what has been given out is not taken back, and only that counts as said. Pure, but for the call of a node's ``process``.
"""

from __future__ import annotations

import contextlib
import inspect
from collections import deque
from collections.abc import AsyncGenerator, Iterable
from dataclasses import dataclass, field
from typing import Any, cast

from voiceflow.frames import (
    AudioFrame,
    ContextFrame,
    Frame,
    LLMEnded,
    LLMStarted,
    LLMTextFrame,
    OutputAudioFrame,
    SayFrame,
    SentenceFrame,
    UtteranceEnded,
    replace,
)
from voiceflow.processor import Processor

__all__ = ["HELD", "Child", "Stretch", "keep", "without"]

TEXT = (SentenceFrame, LLMTextFrame, SayFrame)
HELD = (LLMStarted, LLMEnded, UtteranceEnded)
TOLERANCE_S = 0.005
"""A word is all there if no more of it than this is missing."""


class Child:
    """One of the two."""

    def __init__(self, node: Processor) -> None:
        self.node = node
        self.runs = False
        """It has been started."""
        self.failures = 0
        """In a row."""
        self.closed_until = float("-inf")
        self.error: Exception | None = None
        """What ended its ``run``, until somebody was told."""

    async def start(self, owner: Processor, name: str = "") -> None:
        """Start it in the session of the node that it is in. Raises what its own start raises."""
        node = self.node
        node.name = name or node.name or type(node).__name__
        node._session = owner.session
        await node.start()
        self.runs = True

    async def frames(self, frame: Frame) -> AsyncGenerator[Frame, None]:
        """What its ``process`` makes of a frame, in whatever way it is written."""
        made: Any = self.node.process(frame)
        if inspect.isasyncgen(made):
            stream = cast(AsyncGenerator[Frame, None], made)
            async with contextlib.aclosing(stream):
                async for one in stream:
                    yield one
            return
        if inspect.isawaitable(made):
            made = await made
        several: Iterable[Frame] = [made] if isinstance(made, Frame) else made or ()
        for given in several:
            yield given

    def failed(self, now: float, again_s: float, longest_s: float) -> None:
        """It is left alone for a while."""
        self.closed_until = now + min(again_s * 2**self.failures, longest_s)
        self.failures += 1


@dataclass(eq=False, slots=True)
class Stretch:
    """What one of the two is at: a reply, or listening to what the caller says until its final transcript."""

    child: Child
    key: tuple[int, int] | None = None
    """Number and epoch of a reply; None: it listens."""
    given: deque[Frame] = field(default_factory=deque)
    tried: list[Child] = field(default_factory=list)
    begun: bool = False
    """Something has come of it that cannot be taken back."""
    told: set[type[Frame]] = field(default_factory=set)
    held: list[Frame] = field(default_factory=list)
    """Beginnings and ends, which count only when it went well."""
    sound_s: float = 0.0
    words: list[tuple[str, float]] = field(default_factory=list)
    """Words given out, and when each ends."""

    def take(self, frame: Frame) -> list[Frame]:
        """What of it goes on now."""
        if isinstance(frame, HELD):
            if type(frame) not in self.told and all(type(one) is not type(frame) for one in self.held):
                self.held.append(frame)
            return []
        if isinstance(frame, OutputAudioFrame):
            self.words += [(word.text, self.sound_s + word.end) for word in frame.words]
            self.sound_s += frame.duration
        self.begun = True
        return [*self.release(LLMStarted), frame]

    def release(self, *types: type[Frame]) -> list[Frame]:
        """Held frames of these types, once."""
        free = [frame for frame in self.held if isinstance(frame, types)]
        self.held = [frame for frame in self.held if not isinstance(frame, types)]
        self.told.update(type(frame) for frame in free)
        return free

    def closing(self, frame: Frame) -> list[Frame]:
        """The end that the last frame of a reply is owed, if neither of the two came to it."""
        if isinstance(frame, ContextFrame) and LLMEnded not in self.told:
            return [*([] if LLMStarted in self.told else [LLMStarted(utterance=frame.utterance)]), LLMEnded(utterance=frame.utterance)]
        if isinstance(frame, LLMEnded) and UtteranceEnded not in self.told:
            return [UtteranceEnded(utterance=frame.utterance)]
        return []

    def rest(self) -> list[Frame] | None:
        """What the other one is to be given; None if it cannot go on from here."""
        if not self.begun:
            return list(self.given)
        if not any(isinstance(frame, TEXT) for frame in self.given):
            return None if self.sound_s or not any(isinstance(frame, AudioFrame) for frame in self.given) else list(self.given)
        said = sum(len("".join(text.split())) for text, end in self.words if end <= self.sound_s + TOLERANCE_S)
        # The rest of a word that was begun is lost with the one that began it: it is said again.
        self.words = self.words[: sum(end <= self.sound_s + TOLERANCE_S for _, end in self.words)]
        left: list[Frame] = []
        for frame in self.given:
            if isinstance(frame, TEXT):
                text, said = without(frame.text, said)
                if text.strip():
                    left.append(replace(frame, text=text))
            else:
                left.append(frame)
        return left


def keep(given: deque[Frame], seconds: float) -> None:
    """So much sound at the most; the oldest goes first."""
    held = sum(frame.duration for frame in given if isinstance(frame, AudioFrame))
    while held > seconds:
        frame = given.popleft()
        held -= frame.duration if isinstance(frame, AudioFrame) else 0.0


def without(text: str, characters: int) -> tuple[str, int]:
    """The text behind so many characters that are no blanks, and how many of those it did not have."""
    for at, character in enumerate(text):
        if not characters:
            return text[at:].lstrip(), 0
        characters -= not character.isspace()
    return "", characters
