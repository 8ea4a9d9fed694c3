"""Where the ear is: one small protocol, and a clock for each kind of transport.

Its one rule: an estimate says that it is one. Pure: time is passed in, by the transport and by the ledger that asks.
"""

from __future__ import annotations

import math
from typing import Protocol

__all__ = ["DelayClock", "EarClock", "InstantClock", "ReportClock"]


class EarClock(Protocol):
    """Where the ear is in the stream. Positions are samples of the stream, per channel; times are seconds."""

    @property
    def exact(self) -> bool:
        """False while the answer is an estimate."""

    def pulled(self, position: int, now: float) -> None:
        """A block leaves now whose first sample has this position."""

    def ear(self, now: float) -> float:
        """How many samples of the stream the ear has had. The ledger holds it between what was heard before and what left."""

    def cleared(self, position: int, now: float) -> None:
        """All before ``position`` that is not heard yet has been thrown away and never will be."""


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
        self._position = 0
        self._at = 0.0

    def pulled(self, position: int, now: float) -> None:
        """The position is known exactly at every pull."""
        self._position = position
        self._at = now

    def ear(self, now: float) -> float:
        """The time since the last pull, less the latency, at the sample rate."""
        return self._position + (now - self._at - self.latency_s) * self.sample_rate

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
    """The far end says where it is: a browser's playback position, or a mark the carrier sends back.

    Between reports the position is carried on at the sample rate; without one for ``fresh_s``, and before the first,
    the answer stands on ``latency_s`` and says that it is an estimate. A mark that comes back after a clear is no
    proof that anything was played, so a report of a position before the last clear is ignored.
    """

    def __init__(self, sample_rate: int, latency_s: float = 0.2, fresh_s: float = 1.0) -> None:
        self._guess = DelayClock(sample_rate, latency_s, exact=False)
        self.sample_rate = sample_rate
        self.fresh_s = fresh_s
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
        return True

    def pulled(self, position: int, now: float) -> None:
        """What the estimate stands on."""
        self._guess.pulled(position, now)

    def ear(self, now: float) -> float:
        """From the last report, or by estimate."""
        self._fresh = self._report is not None and now - self._report[1] <= self.fresh_s
        if self._report is None:
            return self._guess.ear(now)
        position, at = self._report
        carried_on = position + min(now - at, self.fresh_s) * self.sample_rate
        return carried_on if self._fresh else max(carried_on, self._guess.ear(now))

    def cleared(self, position: int, now: float) -> None:
        """Forget the reports: the far end threw its queue away."""
        self._cleared = position
        self._report = None
