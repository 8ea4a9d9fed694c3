"""A far end with a buffer of its own, on the loop's clock: what a phone carrier or a browser is to a speaker.

Its rule: it plays in real time from arrival, and is believed in nothing. What it played is kept sample by sample.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import numpy as np

from voiceflow.transports.speaker import Speaker

__all__ = ["FarEnd"]


@dataclass
class FarEnd:
    """``way_s``: how long a message takes there, and a mark back. ``own_s``: what it collects before it begins to play."""

    rate: int
    way_s: float = 0.0
    own_s: float = 0.0
    loses_marks: bool = False
    speaker: Speaker | None = None
    sent: list[tuple[float, np.ndarray]] = field(default_factory=list)
    """(when it left, samples), for each message."""
    clears: list[float] = field(default_factory=list)
    marks: list[str] = field(default_factory=list)
    returned: list[tuple[str, bool]] = field(default_factory=list)
    """(name, whether the speaker took it for a proof), in order."""
    _played: list[tuple[float, np.ndarray]] = field(default_factory=list)
    _free_at: float = 0.0
    _due: dict[str, asyncio.TimerHandle] = field(default_factory=dict)

    @property
    def now(self) -> float:
        return asyncio.get_running_loop().time()

    def play(self, pcm: bytes) -> None:
        samples = np.frombuffer(pcm, "<i2")
        self.sent.append((self.now, samples))
        arrives = self.now + self.way_s
        start = self._free_at if self._free_at > arrives + 1e-9 else arrives + self.own_s
        self._played.append((start, samples))
        self._free_at = start + len(samples) / self.rate

    def clear(self) -> None:
        """What it has not played when this arrives is gone, and all its marks come back at once."""
        self.clears.append(self.now)
        arrives = self.now + self.way_s
        kept = [(start, samples[: max(round((arrives - start) * self.rate), 0)]) for start, samples in self._played]
        self._played = [(start, samples) for start, samples in kept if len(samples)]
        self._free_at = min(self._free_at, arrives)
        for name, handle in list(self._due.items()):
            if handle.when() > arrives + self.way_s:
                handle.cancel()
                self._come_back(name, arrives + self.way_s)

    def mark(self, name: str) -> None:
        self.marks.append(name)
        if not self.loses_marks:
            self._come_back(name, max(self._free_at, self.now + self.way_s) + self.way_s)

    def _come_back(self, name: str, at: float) -> None:
        self._due[name] = asyncio.get_running_loop().call_at(at, self._give_back, name)

    def _give_back(self, name: str) -> None:
        del self._due[name]
        assert self.speaker is not None
        self.returned.append((name, self.speaker.mark_returned(name)))

    def heard(self, until: float | None = None) -> np.ndarray:
        """All that the ear has had by then (None: in the end), pauses in which nothing came left out."""
        parts = [s if until is None else s[: max(round((until - start) * self.rate), 0)] for start, s in self._played]
        return np.concatenate([np.zeros(0, "<i2"), *parts])

    def heard_at(self) -> list[tuple[float, int]]:
        """(when, sample) of each sample that is not silence."""
        return [(start + i / self.rate, int(v)) for start, samples in self._played for i, v in enumerate(samples) if v]
