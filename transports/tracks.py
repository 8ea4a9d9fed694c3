"""One track of a recording: where each piece of sound stands in time.

Its one rule: a sample stands where its time says, to within half of its block; what was never there is silence. Pure: places
are samples from the beginning of the recording, and whoever takes the track out says up to where.

Times are not what they seem. A block may come late and be dated by its coming, so a stretch of blocks without a gap begins no
later than the earliest date that any of them allows: when a block turns out to be too early for its place, the whole stretch
slides back, into the silence that was put before it. A clock that runs fast or slow against the recording's is set right by
leaving out or by a pause of half a block, each time that it is that much off.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["Track"]

Samples = npt.NDArray[np.int16]
"""Shape (samples,)."""


@dataclass(slots=True)
class _Piece:
    start: int
    samples: Samples
    source: int
    """Place of the first sample in the stream that it is from."""

    @property
    def end(self) -> int:
        return self.start + len(self.samples)


class Track:
    """Pieces of sound that were not taken out yet. ``limit``: samples it holds; of more the oldest become silence.

    ``exact``: the dates of this sound are exact; otherwise a difference of half a block is none.
    """

    def __init__(self, limit: int, *, exact: bool = False) -> None:
        self.taken = 0
        """Everything before this place has been taken out."""
        self.lost = 0
        """Samples that had no place: they came too late, or faster than time."""
        self.dropped = 0
        """Samples over the limit."""
        self.held = 0
        """Samples that wait to be taken out."""
        self._limit = limit
        self._exact = exact
        self._pieces: deque[_Piece] = deque()
        self._stretch = 0
        """How many pieces at the end follow one another without a gap, and may slide together."""
        self._end = 0
        """Where the last sound put in has its end."""

    def put(self, at: int, samples: Samples, source: int = 0) -> None:
        """Sound whose first sample is dated ``at``. ``source``: where that sample is in the stream that ``cut`` counts in."""
        if not len(samples):
            return
        slack = 1 if self._exact else max(len(samples) // 2, 1)
        ahead = self._end - at
        if ahead > slack:
            ahead -= self._slide(ahead)
        if abs(ahead) <= slack:
            at = self._end
        elif ahead > 0:
            samples, at, source = self._without(samples, ahead), self._end, source + ahead
        else:
            self._stretch = 0
        late = self.taken - at
        if late > 0:
            samples, at, source = self._without(samples, late), self.taken, source + late
        self._end = max(self._end, at)
        if len(samples):
            self._add(_Piece(at, samples, source))

    def _without(self, samples: Samples, count: int) -> Samples:
        self.lost += min(count, len(samples))
        return samples[count:]

    def _add(self, piece: _Piece) -> None:
        self._pieces.append(piece)
        self._stretch += 1
        self._end = piece.end
        self.held += len(piece.samples)
        while self.held > self._limit:
            gone = self._pieces.popleft()
            self.held -= len(gone.samples)
            self.dropped += len(gone.samples)
            self._stretch = min(self._stretch, len(self._pieces))

    def _slide(self, wanted: int) -> int:
        """Move the last stretch back by as much of that as there is silence before it. Returns by how much."""
        first = len(self._pieces) - self._stretch
        if not self._stretch:
            return 0
        before = max(self._pieces[first - 1].end if first else 0, self.taken)
        room = min(self._pieces[first].start - before, wanted)
        if room <= 0:
            return 0
        for index in range(first, len(self._pieces)):
            self._pieces[index].start -= room
        self._end -= room
        return room

    def cut(self, source: int) -> None:
        """What is from this place of its stream on was never heard."""
        while self._pieces and self._pieces[-1].source + len(self._pieces[-1].samples) > source:
            last = self._pieces.pop()
            self.held -= len(last.samples)
            self._stretch = max(self._stretch - 1, 0)
            self._end = self._pieces[-1].end if self._pieces else self.taken
            if last.source < source:
                rest = last.samples[: source - last.source]
                self._pieces.append(_Piece(last.start, rest, last.source))
                self.held += len(rest)
                self._stretch += 1
                self._end = last.start + len(rest)

    def take(self, until: int) -> Samples:
        """Everything before ``until`` that was not taken yet, silence included."""
        out = np.zeros(max(until - self.taken, 0), np.int16)
        while self._pieces and self._pieces[0].start < until:
            piece = self._pieces.popleft()
            part = piece.samples[: until - piece.start]
            out[piece.start - self.taken : piece.start - self.taken + len(part)] = part
            self.held -= len(part)
            if len(part) < len(piece.samples):
                self._pieces.appendleft(_Piece(until, piece.samples[len(part) :], piece.source + len(part)))
                break
        self._stretch = min(self._stretch, len(self._pieces))
        self.taken = max(self.taken, until)
        return out
