"""Percentiles, and how busy the machine was with other things meanwhile.

Owns the arithmetic of the benches. One rule: no figure is left out for being bad; at most it is repeated, and the rule for that is here.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter

__all__ = ["Contention", "median", "percentile"]


def percentile(values: Sequence[float], percent: float) -> float:
    """The nearest-rank percentile (0 to 100) of any number of values. Raises ValueError for none."""
    if not values:
        raise ValueError("no values: nothing was measured")
    ordered = sorted(values)
    return ordered[round(percent / 100 * (len(ordered) - 1))]


def median(values: Sequence[float]) -> float:
    """The value in the middle; of an even number, the lower of the two there are."""
    return percentile(values, 50)


class Contention:
    """How much of one core others used since this was made, in percent; 0 where the system does not tell (it does on Linux)."""

    def __init__(self) -> None:
        self._started = perf_counter()
        self._all_s = _machine_busy_s()
        self._own_s = _own_s()

    def percent(self) -> float:
        """From the making of this object until now."""
        wall_s = perf_counter() - self._started
        others_s = (_machine_busy_s() - self._all_s) - (_own_s() - self._own_s)
        return max(0.0, 100 * others_s / wall_s) if wall_s > 0 else 0.0


def _machine_busy_s() -> float:
    """Seconds of CPU the whole machine has used, see proc(5) on /proc/stat: user, nice, system, irq, softirq, steal."""
    try:
        first = Path("/proc/stat").read_text(encoding="ascii").partition("\n")[0]
    except OSError:
        return 0.0
    user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, first.split()[1:9])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def _own_s() -> float:
    mine, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return mine.ru_utime + mine.ru_stime + children.ru_utime + children.ru_stime
