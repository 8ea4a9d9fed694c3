"""Who gets a frame next: compiled once per (node, type of frame), forgotten when the graph or its taps change.

A route is ``(straight, hops)``: what to call one after the other as long as each hands the frame on unchanged, and
whose each is. It is made of the ``process`` of instant nodes, and ends with the last of them that takes the frame, or
with a function that queues it, fans it out, shows it to a tap or hands it to the session, and returns None.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from voiceflow.errors import SessionError
from voiceflow.frames import EndFrame, Frame, InterruptFrame, Lane, StartFrame
from voiceflow.plan import Plan, Target

if TYPE_CHECKING:
    from voiceflow.flow import Flow
    from voiceflow.processor import Processor
    from voiceflow.worker import Worker

__all__ = ["Hop", "Route", "Router", "Tap", "Ways"]

log = logging.getLogger("voiceflow")

_FOR_THE_SESSION = (InterruptFrame, EndFrame, StartFrame)

Route = tuple[tuple[Callable[[Any], Any], ...], tuple["Hop", ...]]
"""What to call with the frame, one after the other while it stays the same, and whose each is."""

Ways = tuple[Route, ...]
"""Where a frame goes on that waits in a node's inbox only to keep its place."""

Tap = Callable[[Frame, str, str], None]
"""Called with each frame on an edge, the name of the node it leaves and of the one it reaches."""


class Hop:
    """One node, running: its compiled routes and its workers (one for each lane, if it takes time)."""

    __slots__ = ("entry", "failures", "healthy", "name", "node", "promised", "routes", "slow_steps", "workers")

    def __init__(self, node: Processor) -> None:
        self.node = node
        self.name = node.name
        self.routes: dict[type, Route] = {}
        self.workers: dict[Lane, Worker] = {}
        self.failures = 0
        self.slow_steps = 0
        self.promised = tuple(node.contract.yields)
        # An instant node's own entry; a waiting node is entered through a worker's inbox.
        # The function of a @processor is shared by all its nodes; in a route each must be itself.
        self.entry: Route | None = None
        if node.contract.accepts and not node.contract.waits:
            process = node.process if getattr(node.process, "__self__", None) is node else partial(node.process)
            self.entry = (process,), (self,)
        self.healthy = self.entry
        """The entry while the node does not fail."""

    def __repr__(self) -> str:
        return f"<hop {self.name}>"

    def keeps_promise(self, out: object) -> bool:
        """Whether what the node gave, at once, is nothing or frames of the types its annotation says."""
        return all(isinstance(item, self.promised) for item in (out if isinstance(out, list | tuple) else () if out is None else (out,)))


class Router:
    """Knows the plan, its running nodes and the taps on its edges."""

    def __init__(self, flow: Flow, plan: Plan) -> None:
        self.plan = plan
        self.hops: dict[Processor, Hop] = {}
        self.application: dict[type, Route] = {}
        """Ways of what the application sends."""
        self._flow = flow
        self._taps: list[tuple[Tap, str | None, str | None]] = []

    def rebuild(self, plan: Plan, hops: dict[Processor, Hop]) -> None:
        """Take another plan."""
        self.forget()
        self.plan, self.hops = plan, hops
        self.forget()

    def forget(self) -> None:
        """Compile each route anew when it is next used."""
        self.application.clear()
        for hop in self.hops.values():
            hop.routes.clear()

    def add_tap(self, tap: Tap, source: str | None, target: str | None) -> Callable[[], None]:
        """Call `tap` with each frame on matching edges; the returned function takes it off."""
        entry = (tap, source, target)
        self._taps.append(entry)
        self.forget()

        def remove() -> None:
            if entry in self._taps:
                self._taps.remove(entry)
                self.forget()

        return remove

    def entry(self, hop: Hop, frame_type: type[Frame]) -> Route:
        """The way into a node for a type it takes."""
        if hop.entry is not None:
            return hop.entry
        return (hop.workers[frame_type.lane].put,), (hop,)

    def from_application(self, frame_type: type[Frame]) -> Route:
        """The way of a frame that the application sends."""
        ways = self.ways(None, "application", frame_type)
        if not ways:
            raise SessionError(f"no node of this pipeline takes {frame_type.__name__}")
        route = self.application[frame_type] = self.join(ways, ways[0][1][0])
        return route

    def to_session(self, act: Callable[[Any], object], hop: Hop | None = None) -> Route:
        """A way that ends at the session itself, from a node (None: from the application)."""

        def take(frame: Frame) -> None:
            act(frame)

        return (take,), (hop or next(iter(self.hops.values())),)

    def join(self, ways: Sequence[Route], hop: Hop) -> Route:
        """One route for several."""
        if len(ways) == 1:
            return ways[0]

        def fan_out(frame: Frame) -> None:
            for way in ways:
                if self._flow.admits(frame):
                    self._flow.deliver(way, frame)

        return (fan_out,), (hop,)

    def ways(self, source: Processor | None, name: str, frame_type: type[Frame]) -> list[Route]:
        """One route for each next receiver (or for each inbox that must be passed first)."""
        ways = []
        for through, group in _by_first_inbox(self.plan.targets(source, frame_type)):
            way = self._straight(self.hops[group[0].receiver], frame_type) if through is None else self._past(through, group, frame_type)
            ways.append(self._tapped(way, name, [target.receiver.name for target in group]))
        return ways

    def _straight(self, hop: Hop, frame_type: type[Frame]) -> Route:
        """The way into a node and, if it may hand the frame on, through all instant nodes behind it."""
        entry = self.entry(hop, frame_type)
        if hop.entry is None or not issubclass(frame_type, hop.promised) or issubclass(frame_type, _FOR_THE_SESSION):
            return entry
        further = hop.routes.get(frame_type) or self._flow.compile(hop, frame_type)
        return entry[0] + further[0], entry[1] + further[1]

    def _past(self, through: Processor, group: Sequence[Target], frame_type: type[Frame]) -> Route:
        """The way through the agent-lane inbox of a waiting node that does not take the frame: in order behind its output."""
        beyond: list[Route] = []
        for second, inner in _by_first_inbox([Target(t.receiver, t.through[1:], t.last) for t in group]):
            hop = self.hops[inner[0].receiver]
            beyond.append(self._straight(hop, frame_type) if second is None else self._past(second, inner, frame_type))
        ways, worker = tuple(beyond), self.hops[through].workers[Lane.AGENT]
        return (lambda frame: worker.put_passing(frame, ways),), (self.hops[through],)

    def _tapped(self, way: Route, source: str, targets: Sequence[str]) -> Route:
        matching = [(tap, target) for target in targets for tap, a, b in self._taps if a in (None, source) and b in (None, target)]
        if not matching:
            return way

        def tapped(frame: Frame) -> None:
            for tap, target in matching:
                try:
                    tap(frame, source, target)
                except Exception:
                    log.exception("the tap on %s -> %s raised; the frame goes on", source, target)
            if self._flow.admits(frame):
                self._flow.deliver(way, frame)

        return (tapped,), way[1][:1]


def _by_first_inbox(targets: Sequence[Target]) -> list[tuple[Processor | None, list[Target]]]:
    """Targets that share the first inbox on their way go together: one queued item serves them all."""
    groups: list[tuple[Processor | None, list[Target]]] = []
    for target in targets:
        first = target.through[0] if target.through else None
        group = next((g for node, g in groups if first is not None and node is first), None)
        if group is None:
            groups.append((first, [target]))
        else:
            group.append(target)
    return groups
