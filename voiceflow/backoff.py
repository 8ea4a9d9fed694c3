"""When a connection that is kept for long, or a device, is tried again after it was lost.

The one rule: a connection counts as made when it has done something, not when it was accepted. Pure: chance is passed in.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Backoff", "BackoffOptions"]


@dataclass(frozen=True, slots=True)
class BackoffOptions:
    """How long and how often."""

    first_wait_s: float = 0.25
    """The longest wait before the second try; doubled for each further one."""
    longest_wait_s: float = 10.0
    tries: int = 5
    """So many failures in a row, and it is given up."""

    def __post_init__(self) -> None:
        if self.tries < 1 or self.first_wait_s < 0 or self.longest_wait_s < self.first_wait_s:
            raise ValueError(
                f"BackoffOptions: tries {self.tries} must be 1 or more, and longest_wait_s {self.longest_wait_s} not less than "
                f"first_wait_s {self.first_wait_s}, itself not negative"
            )


class Backoff:
    """Exponential waits with full jitter. ``chance`` gives numbers from 0 to 1."""

    def __init__(self, options: BackoffOptions, chance: Callable[[], float]) -> None:
        self.options = options
        self.failures = 0
        """In a row."""
        self._chance = chance

    def worked(self) -> None:
        """The connection is of use: the next failure is the first one again."""
        self.failures = 0

    def failed(self, *, at_once: bool = False, asked_s: float = 0.0) -> float | None:
        """So many seconds until the next try; None: it is given up. Also after that one may try again, once for each time it is called.

        ``at_once``: the first failure is no reason to wait. ``asked_s``: what the other side asks for, waited for up to ``longest_wait_s``.
        """
        self.failures += 1
        options = self.options
        if self.failures >= options.tries:
            return None
        if at_once and self.failures == 1:
            return 0.0
        wait_s = self._chance() * min(options.longest_wait_s, options.first_wait_s * 2.0 ** min(self.failures - 1, 60))
        return max(wait_s, asked_s) if asked_s <= options.longest_wait_s else None
