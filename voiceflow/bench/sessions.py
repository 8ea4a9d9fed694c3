"""``voiceflow bench sessions``: how many sessions of ten nodes one core carries in real time.

The greatest number with 99 of 100 frames through within 20 ms of when they were due, and none lost: searched with trials in
processes of their own, upwards until one fails, then between. Then the same search for ten bare calls in place of a session.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import monotonic
from typing import Any

from voiceflow.bench.children import first_line

__all__ = ["Search", "measure", "run_child"]

LIMIT_MS = 20.0
FULL_PERCENT = 88.0
"""How much of a core the first guess allows."""

Trial = Mapping[str, Any]


@dataclass(slots=True)
class Search:
    """The greatest count whose trial passes, to within ``precision``.

    A trial that fails is repeated once. If others used over ``noisy_percent`` of a core meanwhile, the failure does not count
    and the trial is repeated up to twice more. At ``deadline`` (of ``clock``) the best so far stands.
    """

    trial: Callable[[int], Trial]
    deadline: float
    clock: Callable[[], float] = monotonic
    precision: float = 0.05
    noisy_percent: float = 60.0

    def run(self, start: int) -> Trial | None:
        """The best trial that passed, or None if not even one session was carried in time."""
        best: Trial | None = None
        low, high = 0, 0  # the greatest that passed; the least that did not, 0 while none has
        count = start
        while count > low and (not low or self.clock() < self.deadline):
            passed = self._try(count)
            if passed is not None:
                low, best = count, passed
            else:
                high = count
            if high and high - low <= max(1, int(low * self.precision)):
                break
            count = (low + high) // 2 if high else self._further(count, passed)
        return best

    def _further(self, count: int, passed: Trial | None) -> int:
        """The next count while nothing has failed: what the CPU time lets expect, between a tenth more and four times as many."""
        assert passed is not None
        expected = count * FULL_PERCENT / max(passed["cpu_percent"], 0.1)
        return int(min(max(expected, count * 1.1 + 1), count * 4))

    def _try(self, count: int) -> Trial | None:
        failures = noisy = 0
        while True:
            result = self.trial(count)
            if result["kept_up"] and result["p99_ms"] < LIMIT_MS:
                return result
            if result["others_cpu_percent"] > self.noisy_percent and noisy < 2:
                noisy += 1
            else:
                failures += 1
            if failures == 2 or self.clock() > self.deadline:
                return None


def measure(*, seconds: float = 3.0, budget_s: float = 170.0, start: int = 2000) -> dict[str, float]:
    """``sessions_per_core`` with its ``p99_ms`` and ``cpu_percent``, and ``raw_sessions_per_core`` for ten bare calls.

    ``seconds`` of each trial; ``budget_s`` for everything, after which the best so far stands (``ended_early``: 1).
    """
    began = monotonic()
    ours = Search(lambda count: run_child(count, seconds), began + budget_s * 0.65)
    best = ours.run(start)
    early = monotonic() > ours.deadline
    bare = Search(lambda count: run_child(count, seconds, bare=True), began + budget_s * 0.95)
    raw = bare.run(2 * int(best["sessions"]) if best else start)
    early = early or monotonic() > bare.deadline
    return {
        "sessions_per_core": best["sessions"] if best else 0,
        "p99_ms": best["p99_ms"] if best else 0.0,
        "cpu_percent": best["cpu_percent"] if best else 0.0,
        "raw_sessions_per_core": raw["sessions"] if raw else 0,
        "ended_early": int(early),
    }


def run_child(sessions: int, seconds: float, *, bare: bool = False) -> Trial:
    """One trial in an interpreter of its own. Raises RuntimeError if it failed."""
    command = ["-m", "voiceflow", "bench", "sessions", "--k", str(sessions), "--seconds", str(seconds), "--json"]
    result: Trial = json.loads(first_line(*command, *(["--bare"] if bare else [])))
    return result
