"""The text of one utterance on its way through a service, and the sound that comes back: which words of it are in which sound.

The one rule: a word leaves once, with the sound in which it begins, and never without its end if the service tells
where that is. So wherever a connection breaks, it is known with which word to go on.

A service gets the text in pieces, in one stretch or in several (a context, a socket, a request each). ``SpokenText``
knows its words and how far they have been sent and given out; ``WordedSound`` cuts one stretch of sound into frames.
Pure: no clock, no I/O. Times are seconds from the first sample of the stretch.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from voiceflow.frames import Word
from voiceflow.processors.marks import CLOSERS, ENDS, is_spoken

__all__ = ["Pace", "SpokenText", "Timing", "WordedSound", "ends_sentence"]

TOLERANCE_S = 0.1
"""A word may end so much later than the sound that there is: times are rounded, and a decoder lags behind."""
UNTIMED_S = 0.5
"""After so much sound without a time in it, words are placed by the pace."""
CARRIER_S = 0.01
"""So much silence is made for words that have to go where there is no sound left to carry them."""
_WORD = re.compile(r"\S+")


def ends_sentence(text: str) -> bool:
    """Whether a sentence ends with this piece."""
    bare = text.rstrip().rstrip("".join(CLOSERS))
    return bool(bare) and bare[-1] in ENDS


@dataclass(frozen=True, slots=True)
class Timing:
    """When the characters of the text are spoken: of each of ``chars`` (one or more characters) its start and its end, in seconds.

    ``since``: from the beginning of the ``sound`` that it came with, or of the whole ``stretch``; ``either``: the service
    does not say, and it is told from the times.
    """

    chars: Sequence[str]
    starts_s: Sequence[float]
    ends_s: Sequence[float]
    since: Literal["sound", "stretch", "either"] = "sound"

    def origin_s(self, position_s: float) -> float:
        """What has to be added to the times of a sound that begins at ``position_s`` of its stretch."""
        if self.since == "either" and self.starts_s:
            return 0.0 if self.starts_s[0] >= position_s / 2 else position_s
        return position_s if self.since == "sound" else 0.0


@dataclass(slots=True)
class _Word:
    text: str
    at: int
    """Its place in the text."""
    first: int
    """How many characters, blanks not counted, come before it in the text."""
    start: float | None = None
    end: float = 0.0
    is_timed: bool = False
    """To its last character."""


@dataclass(slots=True)
class Pace:
    """How long a character takes, learned from what was said: for services that give no times. Kept by the node."""

    seconds: float = 0.06
    _said: int = field(default=0, repr=False)

    def learn(self, characters: int, duration_s: float) -> None:
        """So many characters, blanks not counted, took so long."""
        if characters and duration_s > 0:
            self._said += characters
            weight = max(0.1, min(1.0, characters / self._said))
            self.seconds += weight * (duration_s / characters - self.seconds)


class SpokenText:
    """What there is to say, in pieces as they come."""

    def __init__(self) -> None:
        self.text = ""
        self.words: list[_Word] = []
        self.done = 0
        """Words given out."""
        self.sent = 0
        """Characters sent to the service in this stretch or before."""
        self._ends: list[int] = []
        self._aligned = 0
        self._timing = 0  # the word whose characters are being timed

    def add(self, piece: str) -> None:
        """One more piece. Blanks between pieces are the caller's business."""
        start, half = len(self.text), None
        if len(self.words) > self.done and not self.text[-1].isspace() and not piece[:1].isspace():
            half = self.words.pop()  # a word that goes on in this piece
            start = half.at
        self.text += piece
        for match in _WORD.finditer(self.text, start):
            last = self.words[-1] if self.words else None
            self.words.append(_Word(match[0], match.start(), last.first + len(last.text) if last else 0))
            if half is not None:
                self.words[-1].start, self.words[-1].end, half = half.start, half.end, None
                self._timing = min(self._timing, len(self.words) - 1)
        self._ends.append(len(self.text))

    @property
    def is_unsent(self) -> bool:
        """There is something that can be spoken and was not sent."""
        return is_spoken(self.text[self.sent :])

    def begin(self) -> None:
        """Another stretch: it begins with the first word that was not given out."""
        self.sent = self.words[self.done].at if self.done < len(self.words) else len(self.text)
        self._timing = self.done
        self._aligned = self.words[self.done].first if self.done < len(self.words) else 0
        for word in self.words[self.done :]:
            word.start, word.is_timed = None, False

    def next_piece(self) -> str:
        """The next piece to send, or what is left of it; it counts as sent. "" if there is none."""
        number = bisect.bisect_right(self._ends, self.sent)
        if number == len(self._ends):
            return ""
        piece, self.sent = self.text[self.sent : self._ends[number]], self._ends[number]
        return piece

    def sent_words(self) -> int:
        """How many words were sent."""
        return bisect.bisect_left(self.words, self.sent, key=lambda word: word.at)

    def align(self, timing: Timing, origin_s: float) -> None:
        """The next characters have these times. Told by their number, blanks not counted: what stands there may be written another way."""
        for characters, start, end in zip(timing.chars, timing.starts_s, timing.ends_s, strict=False):
            for _ in "".join(characters.split()):
                self._take_character(origin_s + start, origin_s + max(start, end))

    def _take_character(self, start: float, end: float) -> None:
        if self._timing >= len(self.words):
            return  # more than there is: nothing to be told by it
        word = self.words[self._timing]
        if self._aligned == word.first:
            word.start = start
        word.end = end
        self._aligned += 1
        if self._aligned == word.first + len(word.text):
            word.is_timed = True
            self._timing += 1


class WordedSound:
    """One stretch of sound, mono s16le, as it comes; frames of at most ``frame_ms`` with their words as they go.

    ``is_timed``: the service tells when its words are spoken. Where it does not, they are placed by the pace, and marked as
    estimates.
    """

    def __init__(self, text: SpokenText, sample_rate: int, pace: Pace, *, is_timed: bool, frame_ms: float = 40.0) -> None:
        text.begin()
        self._text = text
        self._rate = sample_rate
        self._frame = max(1, round(frame_ms * sample_rate / 1000))
        self._pace = pace
        self._is_timed = is_timed
        self._has_times = False
        self._first_word = text.done
        self._pcm = bytearray()
        self._out = 0  # samples given out

    @property
    def total(self) -> int:
        """Samples that have come."""
        return self._out + len(self._pcm) // 2

    @property
    def position_s(self) -> float:
        """Where the next sound begins."""
        return self.total / self._rate

    @property
    def is_holding(self) -> bool:
        """Sound is held back, for the rest of its word."""
        return bool(self._pcm)

    def push(self, pcm: bytes, timing: Timing | None = None) -> list[tuple[bytes, tuple[Word, ...]]]:
        """More sound, in whole samples, with the times of what is said from there on."""
        if timing is not None and timing.chars:
            self._has_times = True
            self._text.align(timing, timing.origin_s(self.position_s))
        self._pcm += pcm
        return self._give(self._limit())

    def unheard_s(self, asked: int) -> float:
        """How long the words up to this number are going to be, about, as far as they were not given out."""
        return self._pace.seconds * sum(len(word.text) for word in self._text.words[self._text.done : asked])

    @property
    def _by_pace(self) -> bool:
        return not self._is_timed or (not self._has_times and self.position_s >= UNTIMED_S)

    def catch_up(self) -> list[tuple[bytes, tuple[Word, ...]]]:
        """All that was sent has been spoken, says the service; the stretch goes on."""
        return self._give(self.total, last=True)

    def release(self, *, half_words: bool) -> list[tuple[bytes, tuple[Word, ...]]]:
        """Nothing comes for the moment: give out what is held back. Without ``half_words`` only words of which all times are here."""
        half = next((word.start for word in self._text.words[self._text.done :] if word.start is not None and not word.is_timed), None)
        if half_words or half is None or self._by_pace:
            return self._give(self.total)
        return self._give(min(self.total, max(self._out, round(half * self._rate))))

    def end(self) -> list[tuple[bytes, tuple[Word, ...]]]:
        """The stretch is complete, and with it every word that was sent."""
        text, words = self._text, self._text.words
        self._pace.learn(sum(len(word.text) for word in words[self._first_word : text.sent_words()]), self.position_s)
        frames = self._give(self.total, last=True)
        rest = words[text.done : text.sent_words()]
        if rest:  # only if there was no sound to carry them
            text.done += len(rest)
            silence = bytes(2 * max(1, round(CARRIER_S * self._rate)))
            frames.append((silence, tuple(Word(word.text, 0.0, CARRIER_S, True) for word in rest)))
        return frames

    def _limit(self) -> int:
        """The sample up to which sound may go: to the end of a word, as far as that is known."""
        total = self.total
        if self._by_pace:
            return max(self._out, total - self._frame)  # the last frame has to be there for the words that are left at the end
        have_s = total / self._rate
        for word in self._text.words[self._text.done :]:
            if word.start is None or round(word.start * self._rate) >= total:
                break
            if not word.is_timed or word.end > have_s + TOLERANCE_S:
                return max(self._out, round(word.start * self._rate))
        return total

    def _give(self, limit: int, *, last: bool = False) -> list[tuple[bytes, tuple[Word, ...]]]:
        frames = []
        while self._out < limit:
            until = min(limit, self._out + self._frame)
            words = self._words_before(until, everything=last and until == limit)
            size = 2 * (until - self._out)
            frames.append((bytes(self._pcm[:size]), words))
            del self._pcm[:size]
            self._out = until
        return frames

    def _words_before(self, until: int, *, everything: bool) -> tuple[Word, ...]:
        """The words that begin in the frame from ``_out`` to ``until``."""
        text, found = self._text, []
        begin_s, until_s = self._out / self._rate, until / self._rate
        sent = text.sent_words()
        while text.done < sent:
            word = text.words[text.done]
            start, end, estimated = self._place(word)
            if start is None or round(start * self._rate) >= until:
                if not everything:
                    break
                start, end, estimated = until_s, until_s, True
            text.done += 1
            found.append(Word(word.text, max(0.0, start - begin_s), max(0.0, end - begin_s), estimated))
        return tuple(found)

    def _place(self, word: _Word) -> tuple[float | None, float, bool]:
        if not self._by_pace:
            return word.start, word.end, not word.is_timed
        start = (word.first - self._text.words[self._first_word].first) * self._pace.seconds
        return start, start + len(word.text) * self._pace.seconds, True
