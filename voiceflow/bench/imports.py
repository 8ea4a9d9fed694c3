"""``voiceflow bench import``: what ``import voiceflow`` costs in time and memory over an interpreter that imports nothing.

Fresh interpreters, alternately with and without. Both find compiled bytecode, as on every start but the first: it is kept in a
folder of the bench's own, so the figures do not depend on how Python is set up on this machine.
"""

from __future__ import annotations

import tempfile
from time import perf_counter

from voiceflow.bench.children import python
from voiceflow.bench.figures import median

__all__ = ["measure"]

BARE = "pass"
OURS = "import voiceflow"
RESIDENT = "import os; print(int(open('/proc/self/statm').read().split()[1]) * os.sysconf('SC_PAGE_SIZE') / 1e6)"
MEMORY_RUNS = 5


def measure(*, runs: int = 21) -> dict[str, float]:
    """``ms_over_bare``: median over ``runs`` pairs; ``rss_mb_over_bare``: resident memory (10**6 bytes) when the import is done.

    Beside them ``ms_bare``, the bare interpreter from start to end. Raises RuntimeError if voiceflow cannot be imported.
    """
    with tempfile.TemporaryDirectory(prefix="voiceflow-bench-") as folder:
        cached = {"PYTHONPYCACHEPREFIX": folder, "PYTHONDONTWRITEBYTECODE": ""}
        for code in (BARE, f"{OURS}; {RESIDENT}"):
            python("-c", code, environment=cached)  # writes the bytecode
        pairs = [(_time_ms(BARE, cached), _time_ms(OURS, cached)) for _ in range(runs)]
        memory = [
            float(python("-c", f"{OURS}; {RESIDENT}", environment=cached)) - float(python("-c", f"{BARE}; {RESIDENT}", environment=cached))
            for _ in range(MEMORY_RUNS)
        ]
    return {
        "ms_over_bare": round(median([ours - bare for bare, ours in pairs]), 1),
        "rss_mb_over_bare": round(median(memory), 1),
        "ms_bare": round(median([bare for bare, _ in pairs]), 1),
    }


def _time_ms(code: str, environment: dict[str, str]) -> float:
    started = perf_counter()
    python("-c", code, environment=environment)
    return (perf_counter() - started) * 1000
