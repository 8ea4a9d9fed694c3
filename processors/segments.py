"""Cutting the caller's sound into segments of speech.

Its one rule: a segment begins a fixed time before the voice did, however late the detector was to say so, and no
sample is ever in two segments. Positions are sample numbers; nothing here knows a clock.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["Hush", "Segment", "SegmentOptions", "Segmenter", "quietest"]

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class SegmentOptions:
    """Lengths in seconds."""

    pre_roll_s: float = 0.3
    """Sound before the onset that belongs to the segment: detectors hear the onset late."""
    post_roll_s: float = 0.1
    """Sound after the end, if it is there already: a last consonant is fainter than what the detector wants."""
    history_s: float = 2.0
    """Sound kept while nobody speaks: pre-roll plus the longest time a detector may take to say that somebody does."""
    longest_s: float = 28.0
    """A longer segment is given out in pieces."""
    cut_where_quiet: bool = True
    """Cut it where it is quietest, else at its end: for an engine that cannot take back what it was given."""

    def __post_init__(self) -> None:
        if min(self.pre_roll_s, self.post_roll_s) < 0 or self.history_s < self.pre_roll_s or self.longest_s < 1:
            raise ValueError(f"{self}: no length may be negative, history_s must cover pre_roll_s, and longest_s be 1 or more")


@dataclass(frozen=True, slots=True, eq=False)
class Segment:
    """Sound from position ``first`` on, mono, shape (n,)."""

    first: int
    samples: Floats

    @property
    def end(self) -> int:
        """The position after the last sample."""
        return self.first + len(self.samples)


class Segmenter:
    """Takes samples, onsets and ends; gives segments."""

    def __init__(self, sample_rate: int, options: SegmentOptions | None = None) -> None:
        self.options = options or SegmentOptions()
        self.position = 0
        """Of the next sample to come: how many have been pushed."""
        self._rate = sample_rate
        self._pieces: deque[Floats] = deque()
        self._first = 0  # position of the oldest sample kept
        self._begin: int | None = None  # of the open segment
        self._given = 0  # samples before this position are in a segment already

    @property
    def is_open(self) -> bool:
        """Whether a segment is under way."""
        return self._begin is not None

    def push(self, samples: Floats) -> Segment | None:
        """Take the next samples; a piece of the open segment if that has become too long, else None."""
        if len(samples):
            self._pieces.append(samples)
            self.position += len(samples)
        begin = self._begin
        piece = None
        if begin is not None and self.position - begin >= self.options.longest_s * self._rate:
            length = self.position - begin
            end = begin + (quietest(self._read(begin, self.position), self._rate) if self.options.cut_where_quiet else length)
            piece = Segment(begin, self._read(begin, end))
            self._begin = self._given = end
        self._forget()
        return piece

    def start(self, position: int) -> int:
        """The voice began at ``position``; where the segment begins. Does nothing if one is under way."""
        if self._begin is None:
            wanted = position - round(self.options.pre_roll_s * self._rate)
            self._begin = min(max(wanted, self._given, self._first), self.position)
        return self._begin

    def stop(self, position: int, used: int = 0) -> Segment | None:
        """The voice ended at ``position``: the segment, which may be empty; None if none was under way.

        ``used``: samples before it have been read by ``so_far`` for good, so they belong to this segment and to no later one.
        """
        if self._begin is None:
            return None
        begin, self._begin = self._begin, None
        end = max(begin, min(position + round(self.options.post_roll_s * self._rate), self.position))
        segment = Segment(begin, self._read(begin, end))
        self._given = max(end, min(used, self.position))
        self._forget()
        return segment

    def so_far(self) -> Segment:
        """The open segment up to now; empty if there is none."""
        begin = self.position if self._begin is None else self._begin
        return Segment(begin, self._read(begin, self.position))

    def last(self, count: int) -> Floats:
        """The last ``count`` samples, or as many as are kept."""
        return self._read(max(self.position - count, self._first), self.position)

    def _read(self, begin: int, end: int) -> Floats:
        """A copy of the samples from ``begin`` to ``end``, all of which are kept."""
        parts = []
        at = self.position
        for piece in reversed(self._pieces):
            if at <= begin:
                break
            at -= len(piece)
            parts.append(piece[max(begin - at, 0) : max(end - at, 0)])
        return np.concatenate(parts[::-1]) if parts else np.zeros(0, np.float32)

    def _forget(self) -> None:
        keep = self.position - round(self.options.history_s * self._rate)
        if self._begin is not None:
            keep = min(keep, self._begin)
        while self._pieces and self._first + len(self._pieces[0]) <= keep:
            self._first += len(self._pieces.popleft())


class Hush:
    """Notices by level alone that the voice may have ended, a tenth of a second before a detector is sure of it.

    Quiet is what lies ``drop_db`` below the loudest 20 ms so far. On people reading, in noise up to 35 dB below the
    voice, 25 dB for 120 ms came after the end of speech and 0.18 s before the detector's word in three cases of four.
    """

    def __init__(self, sample_rate: int, drop_db: float = 25.0, after_s: float = 0.12) -> None:
        self._block = sample_rate // 50
        self._share = 10 ** (-drop_db / 10)
        self._wanted = round(after_s * 50)
        self._rest = np.zeros(0, np.float32)
        self._loudest = 0.0
        self._quiet = 0  # blocks

    def push(self, samples: Floats) -> bool:
        """The next samples; whether a hush became long enough in them."""
        self._rest = np.concatenate((self._rest, samples))
        whole = len(self._rest) - len(self._rest) % self._block
        if not whole:
            return False
        powers = np.square(self._rest[:whole].reshape(-1, self._block)).mean(axis=1)
        self._rest = self._rest[whole:]
        is_hush = False
        for power in powers.tolist():
            self._loudest = max(self._loudest, power)
            self._quiet = self._quiet + 1 if power < self._loudest * self._share else 0
            is_hush = is_hush or self._quiet == self._wanted
        return is_hush


def quietest(samples: Floats, sample_rate: int) -> int:
    """Where to cut long speech: the middle of the quietest 50 ms in its second half, its last second left out."""
    begin = len(samples) // 2
    candidates = samples[begin : max(len(samples) - sample_rate, begin + 1)].astype(np.float64)
    window = sample_rate // 20
    if len(candidates) < window:
        return begin + len(candidates) // 2
    return begin + window // 2 + int(np.convolve(candidates**2, np.ones(window), mode="valid").argmin())
