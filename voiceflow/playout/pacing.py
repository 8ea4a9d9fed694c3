"""When each block leaves.

Its one rule: at any time no more has left than real time has passed since the stretch began, plus the block that sounds
now or ``ahead_s``, whichever is longer. Pure: time is passed in.
"""

from __future__ import annotations

__all__ = ["Pacer"]


class Pacer:
    """The n-th block of a stretch is due n block lengths after the first, however late one of them was.

    ``ahead_s``: how long before it has to sound the end of a block may leave. Less than a block is none.
    """

    def __init__(self, sample_rate: int, block_s: float, ahead_s: float = 0.0) -> None:
        self.sample_rate = sample_rate
        self.block_s = block_s
        self.early_s = max(ahead_s - block_s, 0.0)
        """How long before it is due a block may leave."""
        self.free_at = 0.0
        """When the last block that left is over."""
        self._start = 0.0
        self._block = 0

    def begin(self, now: float) -> None:
        """A stretch begins: at once, or behind what left before."""
        self._start = max(now, self.free_at)
        self._block = 0

    def leaves_now(self, now: float) -> None:
        """The next block leaves: the first of a stretch, to a far end that has nothing else to play, sounds at once even if it was due later."""
        if not self._block and now < self.due:
            self.begin(now)

    def cleared(self, now: float) -> None:
        """The far end has thrown away what left: what comes next is due at once."""
        self.free_at = now
        self.begin(now)

    @property
    def due(self) -> float:
        """When the next block is to sound."""
        return self._start + self._block * self.block_s

    def leaves_at(self, *, ready: bool) -> float:
        """When the next block leaves. ``ready``: it is all sound; silence is not sent before its time."""
        return self.due - self.early_s if ready else self.due

    @property
    def samples(self) -> int:
        """Length of the next block. Where a block is no whole number of samples, some are one longer."""
        rate = self.sample_rate
        return round((self._block + 1) * self.block_s * rate) - round(self._block * self.block_s * rate)

    def leave(self) -> None:
        """The next block leaves."""
        self._block += 1
        self.free_at = self.due
