"""One running pipeline: one call, one conversation.

The one rule: everything a session started is gone when ``run()`` returns, or named in what it raises.

How frames move is in ``flow``, what takes time in ``worker``, the interrupt in ``interruption``, begin and end in
``lifecycle``; this is the door to all of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Self, TypeVar

from msgspec.structs import force_setattr

from voiceflow.errors import NodeError, SessionError
from voiceflow.flow import Flow, stamp
from voiceflow.frames import (
    UNSTAMPED,
    EndFrame,
    ErrorFrame,
    Frame,
    HoldFrame,
    InterruptFrame,
    Lane,
    ResumeFrame,
    StartFrame,
)
from voiceflow.inbox import Inbox
from voiceflow.interruption import Interruption, Sweep
from voiceflow.lifecycle import Lifecycle
from voiceflow.options import SessionOptions
from voiceflow.pipeline import Pipeline
from voiceflow.processor import Processor
from voiceflow.routes import Hop, Route, Tap
from voiceflow.tasks import Tasks, unless, whatever_happens
from voiceflow.wiring import with_converters
from voiceflow.worker import NodeState, Worker, relief

__all__ = ["NodeState", "Session", "SessionOptions"]

log = logging.getLogger("voiceflow")

T = TypeVar("T")

TIMED_SENDS = 15
"""Of the application's deliveries one in so many (a mask: all bits set) is timed, to find a handler that holds the loop."""


class Session:
    """Runs a pipeline once. ``inputs``: the types that the application gives to :meth:`send`.

    ``await session.run()`` lasts as long as the call, and raises an ExceptionGroup of NodeErrors if a node ended it.
    ``async with Session(...) as session:`` runs it in the background, and ends it (drained) at the block's end.
    ``settings``: the application's own values, for its nodes to read. ``pipeline``: as it is now, with what replaced a node.
    """

    def __init__(
        self,
        pipeline: Pipeline | Processor,
        *,
        inputs: Sequence[type[Frame]] = (),
        options: SessionOptions | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self.options = options or SessionOptions()
        self.settings: Mapping[str, Any] = dict(settings or {})
        self.pipeline = pipeline if isinstance(pipeline, Pipeline) else Pipeline(pipeline)
        if not isinstance(inputs, Sequence) or not all(isinstance(t, type) and issubclass(t, Frame) for t in inputs):
            raise SessionError(f"inputs is a list of frame types, such as inputs=[TextFrame]; it was {inputs!r}")
        self._inputs = tuple(inputs)
        plan, self._converters = with_converters(self.pipeline.plan(self._inputs), {})
        for node in plan.nodes:
            if node._session is not None:
                raise SessionError(
                    f"{node.name} has already been in a session: a node belongs to one call; make the pipeline in a function, anew for each call"
                )
        self._state = "new"
        self._thread = 0
        self._sent = 0
        self._early = ""
        self._running: asyncio.Task[None] | None = None
        self._replacing = asyncio.Lock()
        self._tasks = Tasks(self._task_failed)
        self._flow = Flow(plan, self)
        self._ways_in = self._flow.router.application
        self._flow.router.hops = {node: self._adopt(node) for node in plan.nodes}
        self._sweep = Sweep(self, self._flow)
        self._sweep.rebuild()
        self._life = Lifecycle(self, self._flow)

    # ---------------------------------------------------------------------------------------------- reading

    @property
    def epoch(self) -> int:
        """The number of interrupts so far."""
        return self._flow.epoch

    @property
    def interruptions(self) -> tuple[Interruption, ...]:
        """What the last 64 interrupts did, oldest first."""
        return tuple(self._sweep.records)

    @property
    def refused(self) -> int:
        """Stale frames turned away at a door so far."""
        return self._flow.refused

    @property
    def state(self) -> str:
        """``new``, ``starting``, ``running``, ``ending`` or ``ended``."""
        return self._state

    def time(self) -> float:
        """Seconds on the session's clock: the event loop's."""
        return asyncio.get_running_loop().time()

    def inboxes(self) -> list[NodeState]:
        """The state of each worker."""
        return [worker.state() for hop in self._flow.router.hops.values() for worker in hop.workers.values()]

    def depths(self) -> dict[str, str]:
        """Node -> its inboxes in words, for the pictures of the pipeline."""
        words: dict[str, list[str]] = {}
        for state in self.inboxes():
            words.setdefault(state.name, []).append(f"{state.lane.lower()} {state.frames} ({state.seconds * 1000:.0f} ms)")
        return {name: ", ".join(parts) for name, parts in words.items()}

    def tap(self, tap: Tap, *, source: str | None = None, target: str | None = None) -> Callable[[], None]:
        """Show each frame on matching edges to ``tap(frame, source, target)``; the returned function takes it off.

        Without a tap an edge costs nothing for it. A tap that raises is logged.
        """
        return self._flow.router.add_tap(tap, source, target)

    # ------------------------------------------------------------------------------------------------ acting

    async def send(self, frame: Frame) -> None:
        """Give the pipeline a frame of one of the ``inputs`` types. Waits while the nodes of its lane are full.

        Raises SessionError when the session is not running. Cancelling is safe: the frame is already in.
        """
        self._flow.pressed = []
        self.send_nowait(frame)
        if self._flow.pressed:
            await relief(self._flow, frame.lane)

    def send_nowait(self, frame: Frame) -> None:
        """The same without waiting: for callbacks, and for live sound, which never waits."""
        route = self._ways_in.get(frame.__class__)
        if route is None:
            route = self._way_in(frame)
        flow = self._flow
        if frame.epoch == UNSTAMPED:
            if frame.live:
                force_setattr(frame, "epoch", flow.epoch)  # as stamp() would, without the call: this is the one hot line
            else:
                frame = stamp(frame, flow.epoch)
        elif not flow.admits(frame):
            return
        self._sent = sent = self._sent + 1
        if sent & TIMED_SENDS:
            flow.deliver(route, frame)
        else:
            flow.deliver_timed(route, frame)

    def _way_in(self, frame: Frame) -> Route:
        """The way of a frame from the application, compiled when its type is first sent while the session runs."""
        if self._state != "running":
            raise SessionError(f"the session is {self._state}: send frames after started() and before end()")
        self._check_thread("send")
        flow, frame_type = self._flow, type(frame)
        if not isinstance(frame, Frame):
            raise SessionError(f"the application sent {frame!r}, which is not a frame")
        if issubclass(frame_type, InterruptFrame):
            return flow.router.to_session(lambda frame: self.interrupt(frame.reason))
        if issubclass(frame_type, EndFrame):
            return flow.router.to_session(lambda frame: self.end())
        if issubclass(frame_type, StartFrame):
            raise SessionError("StartFrame is the session's alone: every node has had it already")
        if not issubclass(frame_type, self._inputs):
            named = ", ".join(t.__name__ for t in self._inputs) or "nothing"
            raise SessionError(
                f"the application sent {frame_type.__name__}, but this session was made for {named}: Session(..., inputs=[{frame_type.__name__}])"
            )
        return flow.router.from_application(frame_type)

    def hold(self, why: str = "") -> None:
        """Hold the playout, with a fade, until :meth:`resume` or an interrupt."""
        self._tell_sinks(HoldFrame(why=why))

    def resume(self, why: str = "") -> None:
        """Go on from the start of the word that a hold cut."""
        self._tell_sinks(ResumeFrame(why=why))

    def interrupt(self, reason: str = "") -> Interruption:
        """Stop all that the agent is doing, now. Synchronous; call it on the loop's own thread.

        When it returns nothing said before it can reach an ear, and the result says what had been heard. A second
        interrupt during the first is the first. With nothing being said it does nothing audible.
        """
        if self._state in ("new", "ended"):
            raise SessionError(f"the session is {self._state}: there is nothing to interrupt")
        self._check_thread("interrupt")
        return self._sweep(reason)

    def end(self) -> None:
        """Finish gracefully: everything in hand is said and heard, each node gives its tail, then ``run()`` returns."""
        if self._state == "new":
            self._early = "end"  # run() will see it
        elif self._state in ("starting", "running"):
            self._check_thread("end")
            self._finish(drain=True)

    def cancel(self) -> None:
        """Stop at once, even an end under way: nothing more is said."""
        if self._state == "new":
            self._early = "cancel"
        elif self._state in ("starting", "running", "ending"):
            self._check_thread("cancel")
            self._abort()

    def _finish(self, *, drain: bool) -> None:
        if not self._finished.done():
            self._finished.set_result(drain)

    def _abort(self) -> None:
        self._finish(drain=False)
        if not self._aborted.done():
            self._aborted.set_result(None)

    def spawn(self, coroutine: Coroutine[Any, Any, T], name: str, *, in_hand: bool = False) -> asyncio.Task[T]:
        """Run a coroutine as a task of this session: cancelled at its end, and a raise in it ends the session.

        ``in_hand``: it is part of what the session is doing: an end waits for it, as for a frame in work.
        """
        if self._state in ("new", "ended"):
            coroutine.close()
            raise SessionError(f"the session is {self._state}: it can own no task now")
        return self._tasks.spawn(coroutine, name, in_hand=in_hand)

    async def replace(self, old: Processor, new: Processor, *, timeout_s: float = 30.0) -> None:
        """Exchange a node in a live call, between utterances: when the agent has nothing in hand.

        The graph is checked, and ``new`` started, before anything changes. What the old node still has in hand of the
        caller's it finishes, and its output goes on from the new node's place. Raises PipelineError or NodeError and
        leaves all as it was; SessionError if the agent does not come to rest within ``timeout_s``, or the call ends.
        """
        if new._session is not None:
            raise SessionError(f"{new.name} has already been in a session; give replace() a new node")
        async with self._replacing:
            self._check_replacing(old)
            pipeline = self.pipeline.substitute(old, new)
            plan, converters = with_converters(pipeline.plan(self._inputs), self._converters)
            before = dict(self._flow.router.hops)
            fresh = [self._adopt(node) for node in plan.nodes if node not in before]
            try:
                await self._life.start(fresh)
                async with asyncio.timeout(timeout_s):
                    await self._at_rest()
                self._check_replacing(old)
            except BaseException as error:
                for hop in fresh:
                    await self._life.stop(hop)
                if isinstance(error, TimeoutError):
                    raise SessionError(f"{old.name} was not replaced: the agent was still at work after {timeout_s:g} s") from None
                if isinstance(error, ExceptionGroup):
                    raise error.exceptions[0] from error.exceptions[0].__cause__
                raise
            hops = before | {hop.node: hop for hop in fresh}
            plan.down[old], plan.up[old] = plan.down[new], plan.up[new]
            self.pipeline, self._converters = pipeline, converters
            self._flow.router.rebuild(plan, {node: hops[node] for node in plan.nodes})
            self._sweep.rebuild()
            try:
                await self._life.open(fresh)
            finally:
                for node, hop in before.items():
                    if node not in self._flow.router.hops:
                        await self._life.retire(hop)

    def _check_replacing(self, old: Processor) -> None:
        if self._state != "running":
            raise SessionError(f"the session is {self._state}: {old.name} is replaced in a running one only")

    # ------------------------------------------------------------------------------------------------- life

    async def run(self) -> None:
        """Run the call from start to end.

        Returns after :meth:`end`, :meth:`cancel`, an EndFrame from a node, or when every source's ``run`` is over.
        Raises ExceptionGroup (its members name their node) if a node could not start, died or would not end.
        Cancelling it is :meth:`cancel`.
        """
        if self._state != "new":
            raise SessionError(f"the session is {self._state}: it runs once; make a new one for the next call")
        self._state = "starting"
        self._thread = threading.get_ident()
        loop = asyncio.get_running_loop()
        self._finished: asyncio.Future[bool] = loop.create_future()
        self._aborted: asyncio.Future[None] = loop.create_future()
        self._started = asyncio.Event()
        if self._early == "cancel":
            self._abort()
        elif self._early == "end":
            self._finish(drain=True)
        try:
            await self._live()
        finally:
            self._leave_running()
            await whatever_happens(self._life.close())
            self._state = "ended"
            self._started.set()
        if self._life.errors:
            raise ExceptionGroup("the session ended with errors", self._life.errors)

    async def _live(self) -> None:
        await unless(self._aborted, self._begin(), "begin")
        if self._state == "running" and await self._finished:
            self._leave_running()
            await unless(self._aborted, self._life.drain(), "drain")

    def _leave_running(self) -> None:
        self._state = "ending"
        self._ways_in.clear()  # and none is compiled any more

    async def _begin(self) -> None:
        hops = list(self._flow.router.hops.values())
        try:
            await self._life.start(hops)
            await self._life.open(hops)
        except ExceptionGroup as group:
            self._life.errors += group.exceptions
        except NodeError as error:
            self._life.errors.append(error)
        else:
            self._state = "running"
            self._started.set()

    async def started(self) -> None:
        """Wait until every node has started and had its StartFrame."""
        if self._state == "new":
            raise SessionError("the session is not being run: await session.run(), or use `async with`")
        await self._started.wait()

    async def __aenter__(self) -> Self:
        if self._state != "new":
            raise SessionError(f"the session is {self._state}: it runs once; make a new one for the next call")
        self._running = asyncio.get_running_loop().create_task(self.run(), name="session")
        try:
            await asyncio.sleep(0)
            await self._started.wait()
        except asyncio.CancelledError:
            self._running.cancel()
            await asyncio.wait([self._running])
            raise
        if self._state == "ended":
            await self._running
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        assert self._running is not None
        if error is None:
            self.end()
            await self._running
        else:
            self.cancel()
            with contextlib.suppress(ExceptionGroup):  # the block's own error is the one to see; the rest is in the log
                await self._running

    # ------------------------------------------------------------------------------------------------ nodes

    def _adopt(self, node: Processor) -> Hop:
        node._session = self
        hop = Hop(node)
        if node.contract.waits:
            options = self.options
            for lane in sorted(_lanes(node.contract.accepts) | {Lane.AGENT}):
                box = Inbox(lane, options.inbox_frames, options.inbox_audio_s, options.live_audio_s)
                hop.workers[lane] = Worker(self, self._flow, hop, lane, box)
        return hop

    def _tell_sinks(self, frame: Frame) -> None:
        """Send a frame the way the application's go, whether or not it is one of the inputs: each sink gets it once."""
        if self._state not in ("running", "ending"):
            raise SessionError(f"the session is {self._state}: nothing is being said")
        for way in self._flow.router.ways(None, "application", type(frame)):
            self._flow.deliver(way, stamp(frame, self._flow.epoch))

    async def _at_rest(self) -> None:
        """Wait until nobody has anything of the agent's in hand: nothing in its lane, no reply under way."""
        while busy := [
            worker
            for hop in self._flow.router.hops.values()
            for worker in hop.workers.values()
            if (worker.lane is Lane.AGENT or hop.node.contract.replies) and not worker.is_idle
        ]:
            for worker in busy:
                await worker.settled()

    def _check_thread(self, method: str) -> None:
        if threading.get_ident() != self._thread:
            raise SessionError(f"{method}() was called from another thread; use loop.call_soon_threadsafe(session.{method}, ...)")

    def _node_failed(self, hop: Hop, frame: Frame | None, error: BaseException, in_a_row: int | None = None) -> None:
        """Report a failure up the pipeline; end the session when one node fails too often in a row."""
        what = type(frame).__name__ if frame is not None else "a frame"
        log.error(
            "%s failed on %s: %s: %s", hop.name, what, type(error).__name__, error, exc_info=None if isinstance(error, NodeError) else error
        )
        count = in_a_row if in_a_row is not None else self._flow.count_failure(hop)
        if count == self.options.max_failures:
            self._fatal(NodeError(hop.name, f"failed {count} times in a row, last on {what}: {type(error).__name__}: {error}"), error)
        elif count < self.options.max_failures and not isinstance(frame, ErrorFrame):
            self._flow.report(hop, ErrorFrame(node=hop.name, frame=what, error=f"{type(error).__name__}: {error}"))

    def _task_failed(self, name: str, error: BaseException) -> None:
        if isinstance(error, NodeError):
            self._fatal(error, error.__cause__)
        else:
            self._fatal(NodeError(name.rpartition("/")[0] or name, f"its task {name!r} raised {type(error).__name__}: {error}"), error)

    def _fatal(self, failure: NodeError, cause: BaseException | None) -> None:
        failure.__cause__ = cause
        log.error("the session ends: %s", failure)
        self._life.errors.append(failure)
        self._abort()

    async def _run_blocking(self, name: str, function: Callable[..., T], arguments: tuple[Any, ...]) -> T:
        return await self._life.threads.run(name, function, arguments)


def _lanes(types: Iterable[type[Frame]]) -> set[Lane]:
    """The lanes in which frames of these types, or of types made of them, come."""
    return {lane for frame_type in types for lane in {frame_type.lane} | _lanes(frame_type.__subclasses__())}
