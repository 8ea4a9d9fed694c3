"""How a frame gets from node to node. A hop through an instant node that hands the frame on is a call.

The one rule: nothing stale passes a door. ``Flow.epoch`` counts the interrupts; an agent-lane frame of an earlier
epoch is refused wherever it shows up, and counted.

The hot path is here, with what watches it; who gets a frame next is in :mod:`voiceflow.routes`.
"""

from __future__ import annotations

import logging
from asyncio import CancelledError
from collections.abc import Callable, Coroutine, Generator, Iterator
from time import perf_counter
from types import GeneratorType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from msgspec.structs import force_setattr

from voiceflow.errors import NodeError, type_names
from voiceflow.frames import UNSTAMPED, EndFrame, ErrorFrame, Frame, InterruptFrame, Lane, StartFrame
from voiceflow.plan import Plan
from voiceflow.routes import Hop, Route, Router

if TYPE_CHECKING:
    from voiceflow.inbox import Inbox

__all__ = ["Flow", "Steward", "broken_promise", "stamp"]

log = logging.getLogger("voiceflow")

FrameT = TypeVar("FrameT", bound=Frame)

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

    # With thousands of sessions a frame costs the memory it touches more than the steps it takes, so it has no dict.
    __slots__ = ("_is_open", "_kept", "_steward", "_watched", "deliver", "epoch", "inline_s", "pressed", "refused", "router")

    def __init__(self, plan: Plan, steward: Steward) -> None:
        self.epoch = 0
        self.refused = 0
        """Stale frames turned away."""
        self.pressed: list[Inbox] = []
        """Inboxes found full since a driver began its step; at its end it waits for those of its own lane."""
        self.inline_s = 0.0
        """Time that instant nodes have taken while watched, so that it is not blamed on the worker driving them."""
        self.router = Router(self, plan)
        self._steward = steward
        self._watched = 0
        self._is_open = True
        self._kept: list[tuple[Route, Frame]] = []
        self.deliver: Callable[[Route, Frame], None] = self._deliver
        self.watch()

    # ----------------------------------------------------------------------------------------- the hot path

    def _deliver(self, route: Route, frame: Frame) -> None:
        """Take `frame` along `route` and on through every instant node behind it, as far as it goes."""
        while True:
            straight = route[0]  # whose they are is only touched when it is asked
            epoch = self.epoch
            process, out = straight[0], None
            try:
                if frame.lane is Lane.AGENT:
                    for process in straight:
                        out = process(frame)
                        if out is not frame or self.epoch != epoch:
                            break
                else:
                    for process in straight:
                        out = process(frame)
                        if out is not frame:
                            break
            except (Exception, CancelledError) as error:  # noqa: BLE001 - any bug of an author's is reported with the node's name
                self._steward._node_failed(route[1][straight.index(process)], frame, error)
                return
            if out is None:
                return
            hop = route[1][straight.index(process)]
            if not isinstance(out, Frame):
                self._spread(hop, frame, out)
                return
            following = self.stamped(out, frame.epoch if frame.lane is Lane.AGENT else self.epoch)
            if following is None:
                return
            frame = following
            cls = frame.__class__
            route = hop.routes.get(cls) or self.compile(hop, cls)

    def _deliver_watched(self, route: Route, frame: Frame) -> None:
        """The same, with a clock on each handler."""
        self._watched -= 1
        if self._watched == 0 and self._is_open:
            self.deliver = self._deliver
        process, hop = route[0][0], route[1][0]
        started = perf_counter()
        try:
            out = process(frame)
        except (Exception, CancelledError) as error:  # noqa: BLE001 - as above
            self._steward._node_failed(hop, frame, error)
            return
        finally:
            if hop.entry is not None and process is hop.entry[0][0]:
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
        stamped = self.stamped(frame, epoch)
        if stamped is not None:
            cls = frame.__class__
            route = hop.routes.get(cls)
            if route is None:
                route = self.compile(hop, cls)
            self.deliver(route, stamped)

    def stamped(self, frame: Frame, epoch: int) -> Frame | None:
        """The frame with the epoch of the work that made it; None if that makes it stale."""
        if frame.epoch == UNSTAMPED:
            frame = stamp(frame, epoch)
        return frame if self.admits(frame) else None

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
                    self._close(hop, frame, out)
                    return
        else:
            self._wrong_yield(hop, frame, out)

    def _close(self, hop: Hop, frame: Frame, generator: Generator[object, None, None]) -> None:
        try:
            generator.close()
        except (Exception, CancelledError) as error:  # noqa: BLE001 - as above
            self._steward._node_failed(hop, frame, error)

    def _resumed(self, hop: Hop, frame: Frame, generator: Generator[object, None, None]) -> Iterator[object]:
        failures = hop.failures
        while True:
            started = perf_counter() if self._watched > 0 else 0.0
            try:
                item = next(generator)
            except StopIteration:
                if hop.failures and hop.failures == failures:
                    self._succeeded(hop)
                return
            except (Exception, CancelledError) as error:  # noqa: BLE001 - as above
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
        self._watched += 1
        self._deliver_watched(self.router.entry(hop, type(frame)), stamp(frame, self.epoch))

    def hold_back(self) -> None:
        """Keep what nodes yield until `let_go`: nothing may overtake the StartFrame."""
        self._is_open = False
        self.deliver = lambda route, frame: self._kept.append((route, frame))

    def let_go(self) -> None:
        """Send on what was kept, in order, less what an interrupt made stale meanwhile."""
        kept, self._kept = self._kept, []
        self._is_open = True
        self.watch()
        for route, frame in kept:
            if self.admits(frame):
                self.deliver(route, frame)

    def shut(self) -> None:
        """The session is over: whatever work that would not end still yields reaches nobody."""
        self._is_open = False
        self.deliver = lambda route, frame: None

    def count_failure(self, hop: Hop) -> int:
        """Count failures in a row. Only a node that has failed pays for noticing that it succeeds again."""
        hop.failures += 1
        if hop.entry is None or hop.entry is not hop.healthy:
            return hop.failures
        process = hop.healthy[0][0]

        def watched(frame: Any) -> Any:
            out = process(frame)
            if hop.keeps_promise(out):  # a generator succeeds when it ends
                self._succeeded(hop)
            return out

        hop.entry = (watched,), (hop,)
        self.router.forget()
        return hop.failures

    def _succeeded(self, hop: Hop) -> None:
        hop.failures = 0
        hop.entry = hop.healthy
        self.router.forget()

    # ------------------------------------------------------------------------------------------------ slow steps

    def watch(self) -> None:
        """Time every handler for a while: at the start of a session, and when a step was slow."""
        self._watched = WATCHED_DELIVERIES
        if self._is_open:
            self.deliver = self._deliver_watched

    def deliver_timed(self, route: Route, frame: Frame) -> None:
        """For a driver whose steps nobody times: watch the handlers if this takes too long."""
        started = perf_counter()
        self.deliver(route, frame)
        if perf_counter() - started > SLOW_STEP_S:
            self.watch()

    def report_slow(self, hop: Hop, elapsed_s: float, what: str) -> None:
        """Say who held the loop."""
        hop.slow_steps += 1
        cure = "put the work into self.run_blocking()"
        if not hop.node.contract.waits:
            cure = f"make process() `async def` and {cure}"
        log.warning("%s: %s held the event loop for %.0f ms, and every other frame with it; %s", hop.name, what, elapsed_s * 1000, cure)

    # ------------------------------------------------------------------------------------------------ routes

    def compile(self, hop: Hop, cls: type[Any]) -> Route:
        """Find out, once, where frames of this type go from this node."""
        if not issubclass(cls, hop.promised):
            return (lambda frame: self._wrong_yield(hop, None, frame),), (hop,)  # not kept: reported each time
        router, steward = self.router, self._steward
        if issubclass(cls, InterruptFrame):
            route = router.to_session(lambda frame: steward.interrupt(frame.reason or f"{hop.name} asked for it"), hop)
        elif issubclass(cls, EndFrame):
            route = router.to_session(lambda frame: steward.end(), hop)
        elif issubclass(cls, StartFrame):
            route = (lambda frame: None,), (hop,)  # each node is given its own: one that hands everything on repeats it
        else:
            route = router.join(router.ways(hop.node, hop.name, cls), hop)
        hop.routes[cls] = route
        return route

    def report(self, hop: Hop, error: ErrorFrame) -> None:
        """Send an error up from a node. Any node may have one, so no annotation is asked."""
        error = stamp(error, self.epoch)
        for way in self.router.ways(hop.node, hop.name, ErrorFrame):
            self.deliver(way, error)

    def _wrong_yield(self, hop: Hop, frame: Frame | None, out: object) -> None:
        what = f"process({type(frame).__name__})" if frame is not None else "the node"
        self._steward._node_failed(hop, frame, broken_promise(hop, what, out))


def stamp(frame: FrameT, epoch: int) -> FrameT:
    """The frame with that epoch.

    A copy of it, where the epoch decides anything: an author's constant may be yielded again, later and in another call.
    """
    if frame.lane is Lane.AGENT or frame.perishable:
        frame = frame.__copy__()  # type: ignore[attr-defined]  # every msgspec.Struct has it
    force_setattr(frame, "epoch", epoch)
    return frame


def broken_promise(hop: Hop, what: str, out: object) -> NodeError:
    """The error of a node that gave something else than its annotation says."""
    given = f"the class {out.__name__}" if isinstance(out, type) else type(out).__name__
    if isinstance(out, Coroutine):
        given = "a coroutine"
        out.close()  # it will never be awaited
    says = type_names(hop.node.contract.yields)
    return NodeError(hop.name, f"{what} gave {given}, but its annotation says {says}; correct the return annotation or what is yielded")
