"""The task of a node that takes time: one for each lane, and one that drives ``run()``.

The one rule: a worker survives everything but the end of its session. What it does not survive is the interrupt of
its work: that is cancelled, its generator closed, and whatever it still yields carries the epoch in which it began.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import types
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any

from voiceflow.errors import NodeError
from voiceflow.flow import SLOW_STEP_S, Flow, broken_promise
from voiceflow.frames import UNSTAMPED, Frame, InterruptFrame, Lane, StartFrame, Travels
from voiceflow.inbox import Inbox
from voiceflow.routes import Hop, Ways

if TYPE_CHECKING:
    from voiceflow.session import Session

__all__ = ["NodeState", "Work", "Worker", "drive_run", "relief", "timed"]

log = logging.getLogger("voiceflow")


@dataclass(frozen=True, slots=True)
class NodeState:
    """A node at this moment: per lane, frames and seconds waiting, frames dropped, and what is being worked on."""

    name: str
    lane: str
    frames: int
    seconds: float
    dropped: int
    working_on: str | None
    working_since: float | None


class Work:
    """One call of ``process`` under way. ``epoch`` is that of the work, written into all it yields."""

    __slots__ = ("began", "cancelled", "epoch", "frame", "overdue")

    def __init__(self, frame: Frame, epoch: int, began: float) -> None:
        self.frame = frame
        self.epoch = epoch
        self.began = began
        self.cancelled = False
        self.overdue: asyncio.TimerHandle | None = None
        """Names the node if the work does not end when cancelled."""


class Worker:
    """Takes frames from an inbox, one at a time, and emits what the node makes of them."""

    __slots__ = ("_doing", "_flow", "_idle", "_session", "gate", "hop", "inbox", "lane", "received", "task", "work")

    def __init__(self, session: Session, flow: Flow, hop: Hop, lane: Lane, inbox: Inbox) -> None:
        self.hop = hop
        self.lane = lane
        self.inbox = inbox
        self.task: asyncio.Task[None] | None = None
        self.work: Work | None = None
        self.gate: asyncio.Task[None] | None = None
        """An acknowledgement that must come before the next agent-lane frame is taken."""
        self.received = 0
        """Frames that came for it, so far."""
        self._flow = flow
        self._session = session
        self._idle: list[asyncio.Future[None]] = []
        self._doing = "nothing"

    # ------------------------------------------------------------------------------- called by the flow

    def put(self, frame: Frame) -> None:
        """Queue a frame for the node."""
        self.received += 1
        if self.inbox.put(frame):
            self._flow.pressed.append(self.inbox)

    def put_passing(self, frame: Frame, ways: Ways) -> None:
        """Queue a frame that the node does not take, so that it stays behind the node's own output."""
        self.received += 1
        if self.inbox.put(frame, ways):
            self._flow.pressed.append(self.inbox)

    # ---------------------------------------------------------------------------- called by the session

    @property
    def is_idle(self) -> bool:
        """Nothing queued, nothing in work."""
        return self.work is None and not self.inbox

    def state(self) -> NodeState:
        """For whoever looks in from outside."""
        work, box = self.work, self.inbox
        what, since = (type(work.frame).__name__, work.began) if work is not None else (None, None)
        return NodeState(self.hop.name, self.lane.name, len(box), box.seconds, box.dropped, what, since)

    async def settled(self) -> None:
        """Wait until nothing is queued or being worked on."""
        while not self.is_idle:
            waiter = asyncio.get_running_loop().create_future()
            self._idle.append(waiter)
            await waiter

    def begin(self) -> None:
        """Start the task, or a fresh one beside work that will not end."""
        self.work = None
        self.task = self._session._tasks.spawn(self._timed_loop(), f"{self.hop.name}/{self.lane.name.lower()}")

    def interrupt(self) -> int:
        """Drop what is queued and cancel what is under way. Synchronous; the number of frames dropped."""
        dropped = self.inbox.clear() if self.lane is Lane.AGENT else 0
        work = self.work
        # Getting ready is no reply, even in a node whose every word is the agent's.
        if work is not None and not work.cancelled and self.task is not None and not isinstance(work.frame, StartFrame):
            work.cancelled = True
            dropped += 1
            self.task.cancel()
            timeout_s = self._session.options.cancel_timeout_s
            work.overdue = asyncio.get_running_loop().call_later(timeout_s, self._replace_stuck, work, timeout_s)
        return dropped

    def let_go(self) -> asyncio.Task[None] | None:
        """Take no further frame; the task, for whoever waits for its end."""
        task, self.task = self.task, None
        self.inbox.clear()  # and nobody waits for room in it
        if self.work is not None and self.work.overdue is not None:
            self.work.overdue.cancel()
        return task

    # ------------------------------------------------------------------------------------------ the task

    async def _timed_loop(self) -> None:
        await timed(self._loop(), self._flow, self._blame)

    async def _loop(self) -> None:
        me = asyncio.current_task()
        assert me is not None
        while self.task is me:
            if self.gate is not None:
                gate = self.gate
                await asyncio.wait([gate])
                if self.gate is gate:
                    self.gate = None
                continue
            item = self.inbox.pop()
            if item is None:
                self._wake_idle()
                await self.inbox.filled()
                continue
            frame, ways = item
            if frame.perishable and frame.epoch != self._flow.epoch:
                self._flow.refused += 1
                continue
            if ways is not None:
                self._pass_on(frame, ways)
                await self._relief()
                continue
            await self._do(me, frame)

    async def _do(self, me: asyncio.Task[None], frame: Frame) -> None:
        epoch = frame.epoch if frame.lane is Lane.AGENT else self._flow.epoch
        work = self.work = Work(frame, epoch, self._session.time())
        self._doing, failures = f"process({type(frame).__name__})", self.hop.failures
        try:
            await self._process(frame, work)
            if failures and self.hop.failures == failures:
                self.hop.failures = 0
        except asyncio.CancelledError as error:
            if not work.cancelled:
                if me.cancelling():
                    raise
                self._session._node_failed(self.hop, frame, error)  # of something it waited for: nobody cancelled this task
        except Exception as error:  # noqa: BLE001 - any bug of an author's is reported with the node's name
            if work.cancelled:
                log.warning("%s: %s was interrupted and raised %s: %s", self.hop.name, self._doing, type(error).__name__, error)
            else:
                self._session._node_failed(self.hop, frame, error)
        finally:
            if self.work is work:
                self.work = None
            if work.overdue is not None:
                work.overdue.cancel()
        if work.cancelled:
            # The work may have ended, or swallowed the cancel, before it struck.
            await _let_it_strike()
            me.uncancel()

    async def _process(self, frame: Frame, work: Work) -> None:
        contract = self.hop.node.contract
        result = self.hop.node.process(frame)
        if not contract.streams:
            out = await result
            for item in out if isinstance(out, list | tuple) else () if out is None else (out,):
                await self._emit(item, frame, work)
            return
        async with contextlib.aclosing(result) as frames:
            async for item in frames:
                await self._emit(item, frame, work)
                if work.cancelled:
                    # By what it has just yielded, it may be: then the cancel is still to come, and must not hit the cleanup.
                    await _let_it_strike()
                    break

    async def _emit(self, item: object, frame: Frame, work: Work) -> None:
        if not isinstance(item, Frame):
            self._flow._wrong_yield(self.hop, frame, item)
            return
        if work.cancelled and item.lane is not Lane.AGENT and item.travels is Travels.DOWN:
            self._flow.refused += 1  # the agent's frames are refused by their epoch; but a tool call of it, say, has none to lose
            return
        self._flow.pressed = []
        self._flow.emit(self.hop, item, work.epoch)
        if isinstance(item, InterruptFrame) and not work.cancelled:
            work.epoch = self._flow.epoch  # what it yields from here on comes after the interrupt, which was its own
        await self._relief()

    def _pass_on(self, frame: Frame, ways: Ways) -> None:
        self._doing = f"{type(frame).__name__}, passing by,"
        self._flow.pressed = []
        for way in ways:
            if self._flow.admits(frame):
                self._flow.deliver(way, frame)

    async def _relief(self) -> None:
        if self._flow.pressed:
            await relief(self._flow, self.lane, self.inbox)

    def _wake_idle(self) -> None:
        waiters, self._idle = self._idle, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def _replace_stuck(self, work: Work, timeout_s: float) -> None:
        if self.work is not work or self.task is None:
            return
        log.error(
            "%s: process(%s) did not end within %g s of its cancellation; it goes on alone, all it yields is refused, and a new task takes the next "
            "frame. Let asyncio.CancelledError through, or do the cleanup faster.",
            self.hop.name, type(work.frame).__name__, timeout_s,
        )  # fmt: skip
        self.begin()

    def _blame(self, elapsed_s: float) -> None:
        self._flow.report_slow(self.hop, elapsed_s, f"{self._doing} or an instant node behind it")


async def _let_it_strike() -> None:
    """Give a cancel that was asked for in this step its moment: here, and not in whatever is awaited next."""
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.sleep(0)


async def relief(flow: Flow, lane: Lane, own: Inbox | None = None) -> None:
    """Wait for the inboxes found full, of this lane only: lanes never block one another. Nobody waits for its `own`."""
    pressed, flow.pressed = flow.pressed, []
    for inbox in pressed:
        if inbox.lane is lane and inbox is not own:
            await inbox.relief()


async def drive_run(session: Session, flow: Flow, hop: Hop) -> None:
    """Emit what ``run()`` yields. Raises NodeError: a node whose ``run`` fails ends the session."""
    await timed(_drive_run(session, flow, hop), flow, lambda elapsed: flow.report_slow(hop, elapsed, "run() or an instant node behind it"))


async def _drive_run(session: Session, flow: Flow, hop: Hop) -> None:
    frames = hop.node.run()
    slips = 0
    try:
        async for frame in frames:
            slip = _slip(hop, frame)
            if slip is not None:
                slips += 1
                session._node_failed(hop, None, slip, slips)
                continue
            slips = 0
            flow.pressed = []
            flow.emit(hop, frame, flow.epoch)
            if flow.pressed:
                await relief(flow, frame.lane)
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise NodeError(hop.name, "run() waited for something that was cancelled") from error
    except Exception as error:
        raise NodeError(hop.name, f"run() raised {type(error).__name__}: {error}") from error
    finally:
        if isinstance(frames, AsyncGenerator):
            await frames.aclose()


def _slip(hop: Hop, frame: object) -> NodeError | None:
    """What is wrong with a thing that ``run()`` yielded."""
    if not isinstance(frame, Frame) or not isinstance(frame, hop.promised):
        return broken_promise(hop, "run()", frame)
    if frame.lane is Lane.AGENT and frame.epoch == UNSTAMPED:
        what = f"run() yielded {type(frame).__name__}, which is the agent's, without the epoch it answers"
        cure = "keep the epoch of the frame that asked for it (frame.epoch in process()) and yield replace(frame, epoch=that)"
        return NodeError(hop.name, f"{what}; it was refused. {cure}")
    return None


@types.coroutine
def timed(coroutine: Coroutine[Any, Any, None], flow: Flow, blame: Callable[[float], None]) -> Generator[Any, Any, None]:
    """Run a coroutine, timing each of its steps on the loop. `blame` is told of slow ones that no instant node explains."""
    error: BaseException | None = None
    while True:
        started, inline_s = perf_counter(), flow.inline_s
        try:
            waits_for = coroutine.send(None) if error is None else coroutine.throw(error)
        except StopIteration:
            return
        finally:
            elapsed = perf_counter() - started
            if elapsed > SLOW_STEP_S:
                flow.watch()
                if flow.inline_s - inline_s < elapsed / 2:
                    blame(elapsed)
        error = None
        try:
            yield waits_for
        except BaseException as thrown:  # noqa: BLE001 - cancellation and the like are handed to the coroutine itself
            error = thrown
