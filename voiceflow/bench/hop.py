"""``voiceflow bench hop``: what it costs to take a frame from one node to the next.

Frames of caller's sound are sent through a session of ten instant nodes and a sink, eleven hops, and through a bare loop
over the same eleven ``process`` methods, alternately. Sending is part of the session's time; making the frames is not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import perf_counter_ns

from voiceflow.bench.figures import median
from voiceflow.bench.nodes import PCM, RATE, Bare, Counter, Pass, chain
from voiceflow.frames import InputAudioFrame
from voiceflow.session import Session

__all__ = ["measure"]

NODES = 10
WARM_UP = 500
"""Frames sent before: a session times its first deliveries hop by hop."""


def measure(*, frames: int = 4000, repeats: int = 51) -> dict[str, float]:
    """Medians over ``repeats`` of ``frames`` each: ``ns_per_hop``, ``ns_raw_call`` (one call of the bare loop) and their ``ratio``."""
    return asyncio.run(_measure(frames, repeats))


async def _measure(frames: int, repeats: int) -> dict[str, float]:
    sink = Counter()
    nodes = [*(Pass() for _ in range(NODES)), sink]
    bare = Bare(nodes)
    ours, raw = [], []
    async with Session(chain(nodes), inputs=[InputAudioFrame]) as session:
        for send in (session.send_nowait, bare.send_nowait):
            _time(send, WARM_UP)
        for _ in range(repeats):
            ours.append(_time(session.send_nowait, frames) / len(nodes))
            raw.append(_time(bare.send_nowait, frames) / len(nodes))
            await asyncio.sleep(0)
    expected = 2 * (WARM_UP + frames * repeats)
    if sink.count != expected:
        raise RuntimeError(f"{sink.count} of {expected} frames arrived; the figures would be wrong")
    return {
        "ns_per_hop": round(median(ours), 1),
        "ns_raw_call": round(median(raw), 1),
        "ratio": round(median([a / b for a, b in zip(ours, raw, strict=True)]), 2),
    }


def _time(send: Callable[[InputAudioFrame], None], count: int) -> float:
    """Nanoseconds a frame, of frames nobody has seen before."""
    batch = [InputAudioFrame(PCM, RATE) for _ in range(count)]
    started = perf_counter_ns()
    for frame in batch:
        send(frame)
    return (perf_counter_ns() - started) / count
