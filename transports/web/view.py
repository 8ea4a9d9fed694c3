"""What a page shows of a call beside the conversation: the pipeline's picture, how full its inboxes are, and how long each answer took.

Its one rule: it only looks. It asks the session and taps its edges; it changes nothing and holds nothing up.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Sequence
from typing import Any

from voiceflow.budget import Budget, Latencies, TurnLatency
from voiceflow.pipeline import Pipeline
from voiceflow.processor import Processor
from voiceflow.session import NodeState, Session
from voiceflow.transports.line_ends import LineOut
from voiceflow.transports.wire import TellFrame

__all__ = ["View", "depths", "show"]

LOOK_S = 0.25
"""The depths are looked at so often, and told when they changed."""

AGAIN = 8
"""Everything is told again after so many looks: the data channel of a WebRTC call opens when the call has begun."""


class View:
    """Tells the page ``pipeline``, ``depths`` and ``latency``, each as a ``TellFrame`` of that kind.

    It is made for a session that runs, and ends with it. ``tell`` must not wait.
    """

    def __init__(self, session: Session, tell: Callable[[TellFrame], object], budget: Budget | None = None) -> None:
        self._session = session
        self._tell = tell
        budget = budget or Budget()
        self._limits = budget.limits
        Latencies(budget, self._answered).watch(session)
        session.spawn(self._look(), "view")

    def _answered(self, turn: TurnLatency, over: tuple[str, ...]) -> None:
        stages = {name: round(ms, 1) for name, ms in turn.stages.items()}
        self._tell(TellFrame(kind="latency", data={"utterance": turn.utterance, "stages": stages, "budget": self._limits}))

    async def _look(self) -> None:
        told: dict[str, Any] = {}
        drawn = None
        for look in itertools.count():
            again = look % AGAIN == 0
            if again:
                if drawn is not self._session.pipeline:  # drawing takes a millisecond of everybody's loop
                    drawn = self._session.pipeline
                    picture = TellFrame(kind="pipeline", data=drawn.data())
                self._tell(picture)
            now = depths(self._session.inboxes())
            if again or now != told:
                self._tell(TellFrame(kind="depths", data={"nodes": now}))
                told = now
            await asyncio.sleep(LOOK_S)


def show(session: Session, pipeline: Pipeline, sink: Processor) -> None:
    """For ``Calls(watch=...)``: watch a call for the page it is held with, if there is one that has a word for ``TellFrame``."""
    if isinstance(sink, LineOut) and TellFrame in sink.wire.tells:
        View(session, sink.tell)


def depths(states: Sequence[NodeState]) -> dict[str, dict[str, Any]]:
    """Node -> frames and milliseconds that wait for it, frames it lost, and whether it is at work; all lanes together."""
    found: dict[str, dict[str, Any]] = {}
    for state in states:
        node = found.setdefault(state.name, {"frames": 0, "ms": 0, "dropped": 0, "busy": False})
        node["frames"] += state.frames
        node["ms"] += round(state.seconds * 1000)
        node["dropped"] += state.dropped
        node["busy"] = node["busy"] or state.working_on is not None
    return found
