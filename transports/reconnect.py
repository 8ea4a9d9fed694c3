"""When to try a lost connection again.

The one rule: a connection counts as made when it has done something, not when it was accepted. Pure: chance is passed in.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Reconnect", "ReconnectOptions"]


@dataclass(frozen=True, slots=True)
class ReconnectOptions:
    """``first_s``: the longest wait before the second try, doubled for each further one up to ``longest_s``; ``tries``: in a row."""

    first_s: float = 0.25
    longest_s: float = 5.0
    tries: int = 8

    def __post_init__(self) -> None:
        if self.tries < 1 or self.first_s < 0 or self.longest_s < self.first_s:
            raise ValueError(
                f"ReconnectOptions: tries {self.tries} must be 1 or more, first_s {self.first_s} not negative and longest_s {self.longest_s} not less"
            )


class Reconnect:
    """Exponential waits with full jitter. ``chance`` gives numbers from 0 to 1."""

    def __init__(self, options: ReconnectOptions, chance: Callable[[], float]) -> None:
        self.options = options
        self.failures = 0
        """In a row."""
        self._chance = chance

    def worked(self) -> None:
        """The connection is of use: the next failure is the first again."""
        self.failures = 0

    def failed(self) -> float | None:
        """Seconds until the next try; None: it is given up."""
        self.failures += 1
        if self.failures >= self.options.tries:
            return None
        return self._chance() * min(self.options.first_s * 2.0 ** min(self.failures - 1, 60), self.options.longest_s)
