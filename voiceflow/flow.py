"""How a frame gets from node to node. A hop through an instant node is a look-up and a call.

The one rule: nothing stale passes a door. ``Flow.epoch`` counts the interrupts; an agent-lane frame of an earlier
epoch is refused wherever it shows up, and counted.

The hot path is here, with what watches it; who gets a frame next is in :mod:`voiceflow.routes`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterator
from time import perf_counter
from types import GeneratorType
from typing import TYPE_CHECKING, Any, Protocol, cast

from msgspec.structs import force_setattr

from voiceflow.errors import NodeError
from voiceflow.frames import UNSTAMPED, EndFrame, ErrorFrame, Frame, InterruptFrame, Lane, describe
from voiceflow.plan import Plan
from voiceflow.routes import Hop, Route, Router

if TYPE_CHECKING:
    from voiceflow.inbox import Inbox

__all__ = ["Flow", "Steward"]

log = logging.getLogger("voiceflow")

SLOW_STEP_S = 0.020
"""A handler that holds the loop longer than this is named in the log."""

WATCHED_DELIVERIES = 256
"""How many deliveries are timed hop by hop, at first and after each slow step."""


class Steward(Protocol):
    """What the flow needs of the session."""

    def interrupt(self, reason: str = "") -> object:
        """An InterruptFrame was yielded."""

    def end(self) -> None:
        """An EndFrame was yielded."""

    def _node_failed(self, hop: Hop, frame: Frame | None, error: BaseException) -> None: ...


class Flow:
    """The running graph, without its tasks."""

    def __init__(self, plan: Plan, steward: Steward) -> None:
        self.epoch = 0
        self.refused = 0
        """Stale frames turned away."""
        self.pressed: list[Inbox] = []
        """Inboxes found full since a driver last looked; the driver waits for those of its own lane."""
        self.inline_s = 0.0
        """Time that instant nodes have taken while watched, so that it is not blamed on the worker driving them."""
        self.router = Router(self, plan)
        self._steward = steward
        self._watched = 0
        self._kept: list[tuple[Route, Frame]] = []
        self.deliver: Callable[[Route, Frame], None] = self._deliver
        self.watch()

    # ----------------------------------------------------------------------------------------- the hot path

    def _deliver(self, route: Route, frame: Frame) -> None:
        """Take `frame` along `route` and on through every instant node behind it, as far as it goes."""
        epoch = self.epoch
        process, routes, hop = route
        cls = frame.__class__
        while True:
            try:
                out = process(frame)
            except Exception as error:  # noqa: BLE001 - any bug of an author's is reported with the node's name
                self._steward._node_failed(hop, frame, error)
                return
            if out is frame:
                if self.epoch != epoch:
                    if frame.lane is Lane.AGENT:
                        self.refused += 1
                        return
                    epoch = self.epoch
            elif out is None:
                return
            elif isinstance(out, Frame):
                if not self.stamp(out, frame.epoch if frame.lane is Lane.AGENT else self.epoch):
                    return
                frame = out
                cls = frame.__class__
                epoch = self.epoch
            else:
                self._spread(hop, frame, out)
                return
            try:
                process, routes, hop = routes[cls]
            except KeyError:
                process, routes, hop = self._compile(hop, cls)

    def _deliver_watched(self, route: Route, frame: Frame) -> None:
        """The same, with a clock on each handler."""
        self._watched -= 1
        if self._watched == 0:
            self.deliver = self._deliver
        process, _, hop = route
        started = perf_counter()
        try:
            out = process(frame)
        except Exception as error:  # noqa: BLE001 - as above
            self._steward._node_failed(hop, frame, error)
            return
        finally:
            if route is hop.entry:
                self._clock(hop, frame, started)
        if isinstance(out, Frame):
            self.emit(hop, out, frame.epoch if frame.lane is Lane.AGENT else self.epoch)
        elif out is not None:
            self._spread(hop, frame, out)

    def _clock(self, hop: Hop, frame: Frame, started: float) -> None:
        elapsed = perf_counter() - started
        self.inline_s += elapsed
        if elapsed > SLOW_STEP_S:
            self.report_slow(hop, elapsed, f"process({frame.__class__.__name__})")

    def emit(self, hop: Hop, frame: Frame, epoch: int) -> None:
        """Send a frame that `hop` yielded in work of that epoch on its way."""
        if self.stamp(frame, epoch):
            cls = frame.__class__
            route = hop.routes.get(cls)
            if route is None:
                route = self._compile(hop, cls)
            self.deliver(route, frame)

    def stamp(self, frame: Frame, epoch: int) -> bool:
        """Write the epoch of the work into a new frame; False if that makes it stale."""
        if frame.epoch == UNSTAMPED:
            force_setattr(frame, "epoch", epoch)
        return self.admits(frame)

    def admits(self, frame: Frame) -> bool:
        """A door: False, and counted, for a stale frame."""
        if frame.epoch != self.epoch and frame.lane is Lane.AGENT:
            self.refused += 1
            return False
        return True

    def _spread(self, hop: Hop, frame: Frame, out: object) -> None:
        """Emit what an instant node returned when that is not one frame: a list, a tuple or a generator."""
        is_agent = frame.lane is Lane.AGENT
        if isinstance(out, list | tuple):
            for item in out:
                if is_agent and frame.epoch != self.epoch:
                    return
                self._emit_checked(hop, frame, item)
        elif isinstance(out, GeneratorType):
            for item in self._resumed(hop, frame, out):
                self._emit_checked(hop, frame, item)
                if is_agent and frame.epoch != self.epoch:
                    out.close()
                    return
        else:
            if hasattr(out, "close"):
                out.close()  # a coroutine, never awaited
            self._wrong_yield(hop, frame, out)

    def _resumed(self, hop: Hop, frame: Frame, generator: Generator[object, None, None]) -> Iterator[object]:
        while True:
            started = perf_counter() if self._watched > 0 else 0.0
            try:
                item = next(generator)
            except StopIteration:
                if hop.failures:
                    hop.failures = 0
                return
            except Exception as error:  # noqa: BLE001 - as above
                self._steward._node_failed(hop, frame, error)
                return
            finally:
                if started:
                    self._clock(hop, frame, started)
            yield item

    def _emit_checked(self, hop: Hop, frame: Frame, item: object) -> None:
        if isinstance(item, Frame):
            self.emit(hop, item, frame.epoch if frame.lane is Lane.AGENT else self.epoch)
        else:
            self._wrong_yield(hop, frame, item)

    # ------------------------------------------------------------------------------------- start and failure

    def give(self, hop: Hop, frame: Frame) -> None:
        """Hand a frame of the session's own to one node."""
        self.stamp(frame, self.epoch)
        self._watched += 1
        self._deliver_watched(self.router.entry(hop, type(frame)), frame)

    def hold_back(self) -> None:
        """Keep what nodes yield until `let_go`: nothing may overtake the StartFrame."""
        kept = self._kept
        self.deliver = lambda route, frame: kept.append((route, frame))

    def let_go(self) -> None:
        """Send on what was kept, in order."""
        kept, self._kept = self._kept, []
        self.watch()
        for route, frame in kept:
            self.deliver(route, frame)

    def count_failure(self, hop: Hop) -> None:
        """Count failures in a row. Only a node that has failed pays for noticing that it succeeds again."""
        hop.failures += 1
        if hop.failures > 1 or hop.entry is None:
            return
        healthy = hop.entry
        process, routes, _ = healthy

        def watched(frame: Any) -> Any:
            out = process(frame)
            if not isinstance(out, GeneratorType):  # a generator succeeds when it ends
                hop.failures = 0
                hop.entry = healthy
                self.router.forget()
            return out

        hop.entry = watched, routes, hop
        self.router.forget()

    # ------------------------------------------------------------------------------------------------ slow steps

    def watch(self) -> None:
        """Time every handler for a while: at the start of a session, and when a step was slow."""
        self._watched = WATCHED_DELIVERIES
        self.deliver = self._deliver_watched

    def report_slow(self, hop: Hop, elapsed_s: float, what: str) -> None:
        """Say who held the loop."""
        hop.slow_steps += 1
        cure = "put the work into self.run_blocking()"
        if not hop.node.contract.waits:
            cure = f"make process() `async def` and {cure}"
        log.warning("%s: %s held the event loop for %.0f ms, and every other frame with it; %s", hop.name, what, elapsed_s * 1000, cure)

    # ------------------------------------------------------------------------------------------------ routes

    def _compile(self, hop: Hop, cls: type[Any]) -> Route:
        """Find out, once, where frames of this type go from this node."""
        if not issubclass(cls, tuple(hop.node.contract.yields)):
            return (lambda frame: self._wrong_yield(hop, None, frame)), {}, hop  # not kept: reported each time
        router, steward = self.router, self._steward
        if issubclass(cls, InterruptFrame):
            route = router.to_session(lambda frame: steward.interrupt(frame.reason or f"{hop.name} asked for it"))
        elif issubclass(cls, EndFrame):
            route = router.to_session(lambda frame: steward.end())
        else:
            route = router.join(router.ways(hop.node, hop.name, cast("type[Frame]", cls)), hop)
        hop.routes[cls] = route
        return route

    def report(self, hop: Hop, error: ErrorFrame) -> None:
        """Send an error up from a node. Any node may have one, so no annotation is asked."""
        self.stamp(error, self.epoch)
        for way in self.router.ways(hop.node, hop.name, ErrorFrame):
            self.deliver(way, error)

    def _wrong_yield(self, hop: Hop, frame: Frame | None, out: object) -> None:
        declared = describe(hop.node.contract.yields)
        given = "a coroutine" if hasattr(out, "__await__") else type(out).__name__
        what = f"process({type(frame).__name__})" if frame is not None else "the node"
        error = NodeError(
            hop.name, f"{what} gave {given}, but its annotation says {declared}; correct the return annotation or what is yielded"
        )
        self._steward._node_failed(hop, frame, error)
