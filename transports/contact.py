"""Whether a caller whose sound comes all the time has fallen silent: the network is gone, for now or for good.

The one rule: one who never sent sound steadily, or stopped sending it, is not missed. Pure: times are passed in.
"""

from __future__ import annotations

from collections import deque

__all__ = ["Contact"]

STEADY = 10
"""Packets of sound within ``silent_s``."""


class Contact:
    """``silent_s``: nothing may come for so long, in seconds; longer than the pauses of a coder that sends less in silence (400 ms, Opus)."""

    def __init__(self, silent_s: float) -> None:
        self.silent_s = silent_s
        self.last = 0.0
        """When anything came last."""
        self._sounds: deque[float] = deque(maxlen=STEADY)

    def sound_came(self, now: float) -> None:
        """A packet of the caller's sound."""
        self._sounds.append(now)
        self.last = now

    def word_came(self, now: float) -> None:
        """Anything else that proves the caller to be there. If that is all that comes now, the sound has been turned off."""
        if self.is_lost(now):
            self._sounds.clear()
        self.last = now

    def is_lost(self, now: float) -> bool:
        """The sound came steadily, and nothing has come for too long."""
        sounds = self._sounds
        return len(sounds) == STEADY and sounds[-1] - sounds[0] <= self.silent_s <= now - self.last
