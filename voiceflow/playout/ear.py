"""Where the ear is: one small protocol, and a clock for each kind of transport.

Its one rule: an estimate says that it is one. Pure: time is passed in, by the transport and by the ledger that asks.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Protocol

__all__ = ["DelayClock", "EarClock", "InstantClock", "MarkClock", "ReportClock"]

PENDING = 256
"""Marks that are waited for. Of more the oldest is given up: at five a second, that is one nearly a minute overdue."""


class EarClock(Protocol):
    """Where the ear is in the stream. Positions are samples of the stream, per channel; times are seconds."""

    @property
    def exact(self) -> bool:
        """False while the answer is an estimate."""

    def pulled(self, position: int, now: float) -> None:
        """A block whose first sample has this position is due to sound from ``now`` on, were there no way to the ear."""

    def ear(self, now: float) -> float:
        """How many samples of the stream the ear has had. The ledger holds it between what was heard before and what left."""

    def cleared(self, position: int, now: float) -> None:
        """All before ``position`` that is not heard yet has been thrown away and never will be."""


class _Timetable:
    """When each sample of the stream was due: straight lines at the sample rate, a new one where a pause was."""

    def __init__(self, sample_rate: int) -> None:
        self.sample_rate = sample_rate
        # A device's callbacks jitter, so that each may be a line of its own: these are some seconds of them.
        self._lines: deque[tuple[int, float]] = deque([(0, 0.0)], maxlen=256)
        self._empty = True

    def note(self, position: int, at: float) -> None:
        """The sample at ``position`` is due ``at``."""
        if self._empty:
            self._lines.clear()
            self._empty = False
        while self._lines and self._lines[-1][1] > at:
            self._lines.pop()  # what was due later was cleared, and its time is taken by this
        if self._lines and abs(self._lines[-1][0] + (at - self._lines[-1][1]) * self.sample_rate - position) < 1:
            return
        self._lines.append((position, at))

    def position(self, at: float) -> float:
        """The sample that was due ``at``."""
        limit = math.inf
        for position, since in reversed(self._lines):
            if since <= at:
                return min(position + (at - since) * self.sample_rate, limit)
            limit = position
        position, since = self._lines[0]
        return position + (at - since) * self.sample_rate

    def due(self, position: int) -> float:
        """When everything before ``position`` was to have sounded."""
        for start, since in reversed(self._lines):
            if start < position:
                return since + (position - start) / self.sample_rate
        start, since = self._lines[0]
        return since + (position - start) / self.sample_rate


class DelayClock:
    """The ear is a known time behind the pull: a sound device that states its latency, or none at all.

    ``latency_s`` may be set again at any time, as the device reports it. ``exact``: False where it is a guess.
    """

    def __init__(self, sample_rate: int, latency_s: float = 0.0, *, exact: bool = True) -> None:
        if latency_s < 0 or not math.isfinite(latency_s):
            raise ValueError(f"DelayClock: latency_s is {latency_s}, it must be 0 or more seconds")
        self.sample_rate = sample_rate
        self.latency_s = latency_s
        self.exact = exact
        self._timetable = _Timetable(sample_rate)

    def pulled(self, position: int, now: float) -> None:
        """The position is known exactly at every pull."""
        self._timetable.note(position, now)

    def ear(self, now: float) -> float:
        """What was due the latency ago."""
        return self._timetable.position(now - self.latency_s)

    def cleared(self, position: int, now: float) -> None:
        """Nothing to forget: the position follows from the pulls."""


class InstantClock:
    """All that left has been heard: a file that is written as fast as it comes."""

    exact = True

    def pulled(self, position: int, now: float) -> None:
        """Nothing to remember."""

    def ear(self, now: float) -> float:
        """As far as anything left."""
        return math.inf

    def cleared(self, position: int, now: float) -> None:
        """Nothing to forget."""


class ReportClock:
    """The far end says where it is: a browser's playback position.

    A report measures how far the ear is behind the pull, and that much behind it is believed to stay. The answer is
    exact for ``fresh_s`` after a report; before the first, and when they stay away, it says that it is an estimate.
    ``latency_s``: the estimate before there was any report. ``return_s``: how long a report takes to come here. What
    was thrown away by a clear proves nothing, so a report of a position before the last clear is ignored.
    """

    def __init__(self, sample_rate: int, latency_s: float = 0.2, fresh_s: float = 1.0, *, return_s: float = 0.0) -> None:
        for name, value in (("latency_s", latency_s), ("fresh_s", fresh_s), ("return_s", return_s)):
            if value < 0 or not math.isfinite(value):
                raise ValueError(f"{type(self).__name__}: {name} is {value}, it must be 0 or more seconds")
        self.sample_rate = sample_rate
        self.latency_s = latency_s
        """How far the ear is behind the pull: as given at first, then as measured."""
        self.fresh_s = fresh_s
        self.return_s = return_s
        self._timetable = _Timetable(sample_rate)
        self._report: tuple[int, float] | None = None
        self._cleared = 0
        self._fresh = False

    @property
    def exact(self) -> bool:
        """At the last look the last report was fresh."""
        return self._fresh

    def report(self, position: int, now: float) -> bool:
        """The far end has played up to this sample of the stream. False if that was cleared: no proof of anything."""
        if position <= self._cleared or (self._report is not None and position < self._report[0]):
            return False
        self._report = (position, now)
        self.latency_s = max(now - self.return_s - self._timetable.due(position), 0.0)
        return True

    def pulled(self, position: int, now: float) -> None:
        """What is carried on from a report, and what the estimate stands on."""
        self._timetable.note(position, now)

    def ear(self, now: float) -> float:
        """Carried on from the last report, or by estimate."""
        carried_on = self._timetable.position(now - self.latency_s)
        if self._report is None:
            self._fresh = False
            return carried_on
        position, at = self._report
        self._fresh = now - at <= self.fresh_s
        return max(carried_on, position)

    def cleared(self, position: int, now: float) -> None:
        """Forget the reports: the far end threw its queue away. How far it was behind is remembered."""
        self._cleared = position
        self._report = None


class MarkClock(ReportClock):
    """The far end sends a mark back when it has played what was sent before it: a phone carrier.

    A mark that is not back yet has not been played. When one is ``fresh_s`` overdue the answer is an estimate, until a
    mark comes back; but the end of what was sent is not taken for heard before its own mark is back, or the oldest is
    ``patience_s`` overdue: that is the cap on how long the end of a call waits for marks that never come. A clear makes
    the far end return all its marks at once: they are forgotten by then, and prove nothing. Marks that a far end which
    returns them has lost are no reason not to wait for the next: when a new one is set they are given up.
    """

    def __init__(
        self, sample_rate: int, latency_s: float = 0.2, fresh_s: float = 1.0, *, return_s: float = 0.0, patience_s: float = 3.0
    ) -> None:
        super().__init__(sample_rate, latency_s, fresh_s, return_s=return_s)
        if patience_s < fresh_s or not math.isfinite(patience_s):
            raise ValueError(f"MarkClock: patience_s is {patience_s}, it must be a number of seconds and not less than fresh_s {fresh_s}")
        self.patience_s = patience_s
        self.lost = 0
        """Marks that were given up, or passed over by one that came back."""
        self.marked = 0
        """Where the last mark was set."""
        self._pending: deque[int] = deque()
        self._returns = False
        """A mark has come back since marks were last given up."""

    def mark(self, position: int) -> str:
        """The name of the mark to be set now, behind all that was sent before ``position``."""
        self.marked = position
        self._pending.append(position)
        if len(self._pending) > PENDING:
            self._pending.popleft()
            self.lost += 1
        return str(position)

    def returned(self, name: str, now: float) -> bool:
        """A mark came back: all before it has been played. False if it was cleared, was never set or is back already."""
        position = int(name) if name.isascii() and name.isdigit() and len(name) < 20 else -1
        if position not in self._pending:
            return False
        while (first := self._pending.popleft()) != position:
            self.lost += 1 if first < position else 0
        self._returns = True
        return self.report(position, now)

    def ear(self, now: float) -> float:
        """As far as the last mark proves, and from there on up to the next."""
        ear = super().ear(now)
        self._give_up(now)
        if not self._pending:
            return ear
        overdue_s = self._overdue_s(self._pending[0], now)
        # One sample short: what ends at a mark has been heard when the mark is back.
        if overdue_s <= self.fresh_s:
            return min(ear, self._pending[0] - 1)
        self._fresh = False
        return min(ear, self._pending[-1] - 1) if overdue_s <= self.patience_s else ear

    def _overdue_s(self, position: int, now: float) -> float:
        return now - self._timetable.due(position) - self.latency_s - self.return_s

    def _give_up(self, now: float) -> None:
        """Of an utterance before, whose last marks were lost: this one's are waited for none the less."""
        if not self._returns or len(self._pending) < 2 or self._overdue_s(self._pending[0], now) <= self.patience_s:
            return
        before = [position for position in self._pending if self._overdue_s(position, now) > self.fresh_s]
        if len(before) < len(self._pending) and self._overdue_s(before[-1], now) > self.patience_s:
            self._returns = False
            self.lost += len(before)
            for _ in before:
                self._pending.popleft()

    def cleared(self, position: int, now: float) -> None:
        """Forget the marks too."""
        super().cleared(position, now)
        self._pending.clear()
