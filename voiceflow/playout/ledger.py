"""The ledger of playout: which sample belongs to which utterance and word, and how far the ear has come.

Its one rule: a word is heard when the ear has had 50 ms of it, and never because it was made, queued or sent.

Two counts of samples are kept apart. The *source* count numbers every sample ever pushed, in order. The *stream* count
numbers every sample that left the playout, silence included. A stretch of speech that left is a ``_Played``: it maps
one onto the other, so a word said again after a hold is still the same word. Pure: time is passed in.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from voiceflow.frames import Heard, PlaybackStarted, PlaybackStopped, Word
from voiceflow.playout.ear import EarClock

__all__ = ["Ledger", "PlacedWord"]

WORD_HEARD_S = 0.05
"""A word counts as heard once this much of it reached the ear: less is not understood as the word."""


@dataclass(slots=True)
class PlacedWord:
    """A word in the source count: samples, ``end`` is one past the last."""

    text: str
    start: int
    end: int
    estimated: bool


@dataclass(slots=True)
class _Utterance:
    number: int
    epoch: int
    start: int
    end: int
    ended: bool = False
    """All its sound was made."""
    started: bool = False
    refused: bool = False
    """Some of its sound was stale and thrown away."""
    reached: float = 0.0
    """When the ear last got something of it."""
    words: deque[PlacedWord] = field(default_factory=deque)
    """Not heard yet."""
    text: list[str] = field(default_factory=list)
    """Heard."""
    guessed: bool = False
    """A word among the heard ones was placed by estimate."""


@dataclass(slots=True)
class _Played:
    """A stretch that left: ``count`` samples from ``source``, the first of them at ``stream``."""

    utterance: _Utterance
    stream: int
    source: int
    count: int


class Ledger:
    """Follows every utterance from push to ear. Its owner, the playout, tells it what was pushed and what left."""

    def __init__(self, sample_rate: int, clock: EarClock) -> None:
        self.sample_rate = sample_rate
        self.clock = clock
        self.made = 0
        """Source samples pushed so far."""
        self.left = 0
        """Stream samples pulled so far."""
        self.events: list[PlaybackStarted | PlaybackStopped] = []
        self._utterances: deque[_Utterance] = deque()
        self._played: deque[_Played] = deque()
        self._ended_lately: deque[int] = deque(maxlen=8)
        self._ear = -(2**62)
        """Stream position the ear has reached; before the first block has come through, none."""
        self._guessed = False
        """That position stands on an estimate."""
        self._clock_ear: float | None = None
        """Where the clock saw the ear last, were there no end to the stream."""
        self._heard = 0
        """Source position the ear has reached."""
        self._word_heard = round(WORD_HEARD_S * sample_rate)

    # ------------------------------------------------------------------------------- what is made

    def add(self, utterance: int, epoch: int, count: int, words: Sequence[Word]) -> list[PlacedWord]:
        """``count`` samples of ``utterance`` were pushed, these words beginning in them. Returns the words, placed.

        Sound of another utterance ends the one before it. A number may come again: it is another utterance then.
        """
        current = self._newest()
        if current is None or current.ended or current.number != utterance or current.epoch != epoch:
            current = self._begin(utterance, epoch)
        rate = self.sample_rate
        placed = [
            PlacedWord(w.text.strip(), self.made + round(w.start * rate), self.made + round(w.end * rate), w.estimated) for w in words
        ]
        current.words.extend(placed)
        self.made += count
        current.end = self.made
        return placed

    def end(self, utterance: int | None) -> None:
        """All sound of ``utterance`` was made (None: of whichever is open). One without any sound is over when its time comes."""
        current = self._newest()
        if current is not None and not current.ended and utterance in (None, current.number):
            self._close(current)
        elif utterance is not None and utterance not in self._ended_lately:
            self._close(self._begin(utterance, current.epoch if current else 0))

    def _newest(self) -> _Utterance | None:
        return self._utterances[-1] if self._utterances else None

    def _begin(self, number: int, epoch: int) -> _Utterance:
        before = self._newest()
        if before is not None and not before.ended:
            self._close(before)
        self._drop_refused()
        if number in self._ended_lately:
            self._ended_lately.remove(number)
        utterance = _Utterance(number, epoch, self.made, self.made)
        self._utterances.append(utterance)
        return utterance

    def _close(self, utterance: _Utterance) -> None:
        utterance.ended = True
        self._ended_lately.append(utterance.number)

    @property
    def idle(self) -> bool:
        """Every utterance has been heard to its end."""
        return all(u.refused for u in self._utterances)

    @property
    def underway(self) -> bool:
        """Something that left has not reached the ear yet."""
        return bool(self._played)

    @property
    def open(self) -> bool:
        """More sound of the newest utterance is to come."""
        newest = self._newest()
        return newest is not None and not newest.ended and not newest.refused

    def begins_at(self, source: int) -> bool:
        """An utterance in hand has its first sample here."""
        return any(u.start == source for u in self._utterances)

    # ------------------------------------------------------------------------------- what leaves

    def pulling(self, now: float) -> None:
        """A block leaves now."""
        self.clock.pulled(self.left, now)

    def speech(self, source: int, count: int) -> None:
        """``count`` samples from ``source`` left, all of one utterance."""
        owner = next(u for u in self._utterances if source < u.end)
        last = self._played[-1] if self._played else None
        if last is not None and last.utterance is owner and last.source + last.count == source and last.stream + last.count == self.left:
            last.count += count
        else:
            self._played.append(_Played(owner, self.left, source, count))
        self.left += count

    def silence(self, count: int) -> None:
        """``count`` samples left that belong to no utterance."""
        self.left += count

    # ------------------------------------------------------------------------------- what is heard

    def advance(self, now: float) -> None:
        """Bring the ear up to ``now``: what it passes is heard, and becomes events."""
        there = self.clock.ear(now)
        ear = math.floor(min(there, self.left))
        if ear >= self._ear:
            # An estimate that ran ahead of a later report stays one until the reports have come up to it.
            self._ear, self._guessed = ear, not self.clock.exact
        # An ear that has had all that left goes on through silence: its speed tells when it was where.
        self._clock_ear = max(there, self._ear) if math.isfinite(there) and not self._guessed else None
        self._settle(now)
        while self._played and self._played[0].stream <= self._ear:
            stretch = self._played[0]
            utterance = stretch.utterance
            had = min(self._ear - stretch.stream, stretch.count)
            if not utterance.started:
                utterance.started = True
                self.events.append(PlaybackStarted(utterance=utterance.number, at=self._time_of(stretch.stream, now)))
            self._heard = max(self._heard, stretch.source + had)
            utterance.reached = self._time_of(stretch.stream + had, now)
            self._take_words(utterance)
            if had < stretch.count:
                break
            self._played.popleft()
            self._settle(now)

    def _time_of(self, stream: int, now: float) -> float:
        """When the ear was at ``stream``; an estimate is given no date in the past."""
        return now - (self._clock_ear - stream) / self.sample_rate if self._clock_ear is not None else now

    def _take_words(self, utterance: _Utterance, *, rest: bool = False) -> None:
        while utterance.words and (rest or self._heard - utterance.words[0].start >= self._word_heard):
            word = utterance.words.popleft()
            utterance.text.append(word.text)
            utterance.guessed |= word.estimated

    def _settle(self, now: float) -> None:
        """Report the utterances the ear is done with, in their order."""
        while self._utterances and not (first := self._utterances[0]).refused and first.ended and self._heard >= first.end:
            self._utterances.popleft()
            self._take_words(first, rest=True)
            self.events.append(PlaybackStopped(heard=self._report(first, complete=True), at=first.reached if first.started else now))

    def _report(self, utterance: _Utterance, *, complete: bool) -> Heard:
        # The text of a whole utterance is certain wherever its words were placed.
        estimated = self._guessed or (utterance.guessed and not complete)
        return Heard(utterance.number, " ".join(filter(None, utterance.text)), complete, estimated)

    def cut(self, now: float) -> tuple[Heard, ...]:
        """Nothing more of what was pushed will be heard. Returns what was, one entry for each utterance in hand."""
        self.advance(now)
        heard = tuple(self._report(u, complete=False) for u in self._utterances)
        for utterance in self._utterances:
            self._close(utterance)  # an end that comes late is the end of this one
        self._utterances.clear()
        self._played.clear()
        self._heard = self.made
        self.clock.cleared(self.left, now)
        return heard

    def refuse(self, source: int, before: int) -> None:
        """The samples from ``source`` up to ``before`` were stale and are gone.

        Their utterances stay in hand for the ``cut`` that is on its way: a device's thread may see the new epoch first.
        """
        for utterance in self._utterances:
            if utterance.start < before and source < utterance.end:
                utterance.refused = True

    def _drop_refused(self) -> None:
        """No cut came for them and new sound does: report those that were begun."""
        for utterance in [u for u in self._utterances if u.refused]:
            self._utterances.remove(utterance)
            self._played = deque(p for p in self._played if p.utterance is not utterance)
            if utterance.started:
                self.events.append(PlaybackStopped(heard=self._report(utterance, complete=False), at=utterance.reached))
            self._heard = max(self._heard, utterance.end)
