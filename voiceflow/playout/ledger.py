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

from voiceflow.frames import Heard, PlaybackStarted, PlaybackStopped, Word, WordsHeard
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
        self.spoken_to = 0
        """Where in the stream the last sample of speech that left has its end."""
        self.cut_at = 0
        """Where in the stream the far end was last cut: it threw away what left from here on."""
        self.events: list[PlaybackStarted | WordsHeard | PlaybackStopped] = []
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
        self._sent = False
        """Something has left since the far end was last empty."""

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
    def unheard(self) -> bool:
        """Something that left may not have reached the ear yet: by what is known, or because it is only guessed that it has."""
        return self._sent and (bool(self._played) or self._guessed)

    @property
    def open(self) -> bool:
        """More sound of the newest utterance is to come."""
        newest = self._newest()
        return newest is not None and not newest.ended and not newest.refused

    def begins_at(self, source: int) -> bool:
        """An utterance in hand has its first sample here."""
        return any(u.start == source for u in self._utterances)

    # ------------------------------------------------------------------------------- what leaves

    def pulling(self, due: float) -> None:
        """A block leaves that is due then."""
        self.clock.pulled(self.left, due)

    def speech(self, source: int, count: int) -> None:
        """``count`` samples from ``source`` left, all of one utterance."""
        owner = next(u for u in self._utterances if source < u.end)
        last = self._played[-1] if self._played else None
        if last is not None and last.utterance is owner and last.source + last.count == source and last.stream + last.count == self.left:
            last.count += count
        else:
            self._played.append(_Played(owner, self.left, source, count))
        self.left += count
        self.spoken_to = self.left
        self._sent = True

    def silence(self, count: int) -> None:
        """``count`` samples left that belong to no utterance."""
        self.left += count

    # ------------------------------------------------------------------------------- what is heard

    def advance(self, now: float) -> None:
        """Bring the ear up to ``now``: what it passes is heard, and becomes events."""
        there = self.clock.ear(now)
        ear = math.floor(min(there, self.left))
        if ear > self._ear or (ear == self._ear and (ear < self.left or self.clock.exact)):
            # An estimate that ran ahead of a later report stays one until the reports have come up to it. What is known
            # while nothing is on its way does not become a guess by waiting.
            self._ear = ear
            if self._played or self.clock.exact:
                self._guessed = not self.clock.exact
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
            self._take_words(utterance, stretch, now)
            if had < stretch.count:
                break
            self._played.popleft()
            self._settle(now)

    def _time_of(self, stream: int, now: float) -> float:
        """When the ear was at ``stream``; an estimate is given no date in the past."""
        return now - (self._clock_ear - stream) / self.sample_rate if self._clock_ear is not None else now

    def _take_words(self, utterance: _Utterance, stretch: _Played, now: float) -> None:
        """The words of which the ear has had enough with this stretch."""
        words: list[str] = []
        while utterance.words and self._heard - utterance.words[0].start >= self._word_heard:
            enough = utterance.words[0].start + self._word_heard
            self._take_word(utterance, words)
        if words:
            self._tell(utterance, words, self._time_of(stretch.stream + max(enough - stretch.source, 0), now))

    def _take_word(self, utterance: _Utterance, words: list[str]) -> None:
        word = utterance.words.popleft()
        utterance.guessed |= word.estimated
        if word.text:
            words.append(word.text)

    def _tell(self, utterance: _Utterance, words: list[str], at: float) -> None:
        """Report words, with those of the same utterance that nobody has fetched the report of yet."""
        utterance.text += words
        last = self.events[-1] if self.events else None
        if isinstance(last, WordsHeard) and last.utterance == utterance.number:
            words = [last.text, *words]
            self.events.pop()
        self.events.append(WordsHeard(text=" ".join(words), utterance=utterance.number, at=at))

    def _settle(self, now: float) -> None:
        """Report the utterances the ear is done with, in their order."""
        while self._utterances and not (first := self._utterances[0]).refused and first.ended and self._heard >= first.end:
            self._utterances.popleft()
            at = first.reached if first.started else now
            rest: list[str] = []
            while first.words:
                self._take_word(first, rest)
            if rest:
                self._tell(first, rest, at)
            self.events.append(PlaybackStopped(heard=self._report(first, complete=True), at=at))

    def _report(self, utterance: _Utterance, *, complete: bool) -> Heard:
        # The text of a whole utterance is certain wherever its words were placed.
        estimated = self._guessed or (utterance.guessed and not complete)
        return Heard(utterance.number, " ".join(utterance.text), complete, estimated)

    def cut(self, now: float) -> tuple[Heard, ...]:
        """Nothing more of what was pushed will be heard. Returns what was, one entry for each utterance in hand."""
        self.advance(now)
        heard = tuple(self._report(u, complete=False) for u in self._utterances)
        for utterance in self._utterances:
            self._close(utterance)  # an end that comes late is the end of this one
        self._utterances.clear()
        self._heard = self.made
        self.take_back(now)
        return heard

    def unheard_from(self, at: int) -> int:
        """The first source sample that left and has not reached the ear; ``at``, the next to leave, if all has."""
        if not self._played:
            return at
        first = self._played[0]
        return first.source + min(max(self._ear - first.stream, 0), first.count)

    def take_back(self, now: float) -> None:
        """What left and was not heard never will be: the far end throws it away."""
        self.cut_at = max(self._ear, 0) if self._played else self.left
        self._played.clear()
        self._sent = False
        self.clock.cleared(self.left, now)

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
