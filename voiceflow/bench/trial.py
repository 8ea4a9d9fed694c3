"""One trial of ``voiceflow bench sessions``: so many sessions in this process, each fed a frame of 20 ms every 20 ms.

Sessions stand on a wheel of 20 phases, one of which is fed each millisecond: the frames of a process do not come at once. A
frame's delay is from the moment it was due, not from when a late feeder got round to it, until the last node had it.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
from collections.abc import Callable, Sequence
from time import perf_counter, process_time
from typing import Protocol

from voiceflow.bench.figures import Contention, percentile
from voiceflow.bench.nodes import PCM, RATE, Bare, Clocked, Pass, chain
from voiceflow.frames import InputAudioFrame
from voiceflow.session import Session

__all__ = ["Figures", "run_trial"]

Figures = dict[str, float | bool]

PERIOD_S = 0.020
PHASES = 20
NODES = 10
LATE_S = 5.0
"""How far behind the feeder may fall before the trial is given up."""
WARM_UP_S = 0.8
PRIORITY = -10


class _Fed(Protocol):
    """A session, or the bare calls."""

    def send_nowait(self, frame: InputAudioFrame) -> None:
        """Take a frame."""


def run_trial(sessions: int, report: Callable[[Figures], None], *, seconds: float = 3.0, bare: bool = False) -> None:
    """Feed ``sessions`` for ``seconds``; ``bare``: ten calls each in place of a session.

    ``report`` gets the figures before the sessions are ended: delays in ms, the CPU time of this process and that of others in
    percent of one core, and whether every frame came. Runs at a higher priority where the system allows it (for root): what is
    asked is how much a core carries, not how it is shared with whatever else runs.
    """
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, PRIORITY)
    asyncio.run(_bare(sessions, seconds, report) if bare else _sessions(sessions, seconds, report))


async def _bare(count: int, seconds: float, report: Callable[[Figures], None]) -> None:
    delays_s: list[float] = []
    report(await _feed_all([Bare(_nodes(delays_s)) for _ in range(count)], delays_s, seconds))


async def _sessions(count: int, seconds: float, report: Callable[[Figures], None]) -> None:
    delays_s: list[float] = []
    sessions = [Session(chain(_nodes(delays_s)), inputs=[InputAudioFrame]) for _ in range(count)]
    calls = [asyncio.create_task(session.run()) for session in sessions]
    await asyncio.sleep(0)
    for session in sessions:
        await session.started()
    try:
        report(await _feed_all(sessions, delays_s, seconds))
    finally:
        for session in sessions:
            session.cancel()
        await asyncio.wait(calls)


def _nodes(delays_s: list[float]) -> list[Pass | Clocked]:
    return [*(Pass() for _ in range(NODES - 1)), Clocked(delays_s)]


async def _feed_all(targets: Sequence[_Fed], delays_s: list[float], seconds: float) -> Figures:
    wheel = [targets[phase::PHASES] for phase in range(PHASES)]
    await _feed(wheel, WARM_UP_S)
    # What is alive now stays alive: without this, a full collection walks through every object of every session. A server
    # does the same once it is up.
    gc.collect()
    gc.freeze()
    await asyncio.sleep(0.2)
    delays_s.clear()
    contention, cpu_s, started = Contention(), process_time(), perf_counter()
    kept_up = await _feed(wheel, seconds)
    cpu = 100 * (process_time() - cpu_s) / (perf_counter() - started)
    others = contention.percent()
    gc.unfreeze()
    delivered, expected = len(delays_s), int(seconds / PERIOD_S) * len(targets)
    return {
        "sessions": len(targets),
        "p50_ms": round(percentile(delays_s, 50) * 1000, 3),
        "p99_ms": round(percentile(delays_s, 99) * 1000, 3),
        "cpu_percent": round(cpu, 1),
        "others_cpu_percent": round(others, 1),
        "delivered": delivered,
        "expected": expected,
        "kept_up": kept_up and delivered == expected,
    }


async def _feed(wheel: Sequence[Sequence[_Fed]], seconds: float) -> bool:
    """Send every target its frames; False if this fell behind too far."""
    began = perf_counter() + 0.05
    for tick in range(int(seconds / PERIOD_S) * PHASES):
        due = began + tick * PERIOD_S / PHASES
        early_s = due - perf_counter()
        await asyncio.sleep(max(early_s, 0))
        if early_s < -LATE_S:
            return False
        due = min(due, perf_counter())  # timers of the loop may fire a little early
        for target in wheel[tick % PHASES]:
            target.send_nowait(InputAudioFrame(PCM, RATE, pts=due))
    return True
