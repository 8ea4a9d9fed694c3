"""A level meter in one line of a terminal. Pure: sound and time go in, text comes out.

The one rule: a line is never wider than the terminal, and is written over the one before, never after a wipe, so nothing flickers.
"""

from __future__ import annotations

import math
from collections import deque

import numpy as np

__all__ = ["Level", "StatusLine"]

FLOOR_DB = -60.0
"""The quietest that a bar shows."""

HOLD_S = 1.0
"""How long a peak stays."""

BARS = " ▏▎▍▌▋▊▉█"
"""A place of the bar in eighths."""

GREEN, YELLOW, RED, OFF = "\x1b[32m", "\x1b[33m", "\x1b[31m", "\x1b[0m"
TO_END = "\x1b[K"

LOUD_DB, CLIPPED_DB = -6.0, -0.5


class Level:
    """The level of one side: RMS and peak, in dB of full scale. Sound may come in from another thread."""

    def __init__(self) -> None:
        self._parts: deque[tuple[float, int, float]] = deque(maxlen=256)
        self._peak_db = -math.inf
        self._peak_at = -math.inf

    def add(self, pcm: bytes) -> None:
        """16-bit samples."""
        samples = np.frombuffer(pcm, "<i2").astype(np.float32) / 32768
        if samples.size:
            self._parts.append((float(np.dot(samples, samples)), samples.size, float(np.abs(samples).max())))

    def look(self, now: float) -> tuple[float, float]:
        """(RMS since the last look, the highest peak of the last second)."""
        power, count, peak = 0.0, 0, 0.0
        while self._parts:
            part = self._parts.popleft()
            power, count, peak = power + part[0], count + part[1], max(peak, part[2])
        peak_db = 20 * math.log10(peak) if peak else -math.inf
        if peak_db >= self._peak_db or now - self._peak_at > HOLD_S:
            self._peak_db, self._peak_at = peak_db, now
        return 10 * math.log10(power / count) if power else -math.inf, self._peak_db


class StatusLine:
    """The bottom line of a terminal: levels of the named sides, and what is being said. ``add`` gives it sound."""

    def __init__(self, *sides: str, colour: bool) -> None:
        self.levels = {side: Level() for side in sides}
        self.partial = ""
        """What is being said, shown behind the levels as far as there is room."""
        self._colour = colour

    def add(self, side: str, pcm: bytes) -> None:
        """Sound of that side."""
        self.levels[side].add(pcm)

    def draw(self, now: float, width: int) -> str:
        """The line over the last one, for a terminal of so many columns; the cursor stays in it."""
        # The last column stays free: many terminals go to the next line when it is filled.
        room = width - 1
        readings = {side: level.look(now) for side, level in self.levels.items()}
        name = max(map(len, readings))
        bar = min((room + 1) // len(readings) - name - len("  -60/-60 dB ") - 1, 24)
        if bar >= 4:
            parts = [f"{side} {_bar(rms, bar)} {_db(rms)}/{_db(peak)} dB" for side, (rms, peak) in readings.items()]
        elif room >= sum(len(side) + len(" -60") for side in readings) + 2 * (len(readings) - 1):
            parts = [f"{side} {_db(rms)}" for side, (rms, _) in readings.items()]
        else:
            parts = [_db(rms) for rms, _ in readings.values()]
        while parts and len("  ".join(parts)) > room:
            parts.pop()
        left = room - len("  ".join(parts)) - 3
        text = "  ".join(self._coloured(part, peak) for part, (_, peak) in zip(parts, readings.values(), strict=False))
        if self.partial and left >= 8:
            text += "   " + (self.partial if len(self.partial) <= left else "…" + self.partial[-(left - 1) :])
        return f"\r{text}{TO_END}"

    def _coloured(self, part: str, peak: float) -> str:
        if not self._colour:
            return part
        return (RED if peak >= CLIPPED_DB else YELLOW if peak >= LOUD_DB else GREEN) + part + OFF

    @staticmethod
    def over(text: str) -> str:
        """A line of text in the place of the status, which then stands below it."""
        return f"\r{text}{TO_END}\n"


def _db(level: float) -> str:
    return f"{max(level, -99.0):3.0f}"


def _bar(level: float, width: int) -> str:
    eighths = round(min(max(1 - level / FLOOR_DB, 0.0), 1.0) * width * 8) if level > FLOOR_DB else 0
    full, rest = divmod(eighths, 8)
    return (BARS[8] * full + (BARS[rest] if full < width else "")).ljust(width)
