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
from time import perf_counter
from typing import TYPE_CHECKING, Any

from voiceflow.errors import NodeError
from voiceflow.flow import SLOW_STEP_S, Flow
from voiceflow.frames import UNSTAMPED, Frame, Lane
from voiceflow.inbox import Inbox
from voiceflow.routes import Hop, Ways

if TYPE_CHECKING:
    from voiceflow.session import Session

__all__ = ["Work", "Worker", "drive_run"]

log = logging.getLogger("voiceflow")


class Work:
    """One call of ``process`` under way. ``epoch`` is that of the work, written into all it yields."""

    __slots__ = ("began", "cancelled", "epoch", "frame")

    def __init__(self, frame: Frame, epoch: int, began: float) -> None:
        self.frame = frame
        self.epoch = epoch
        self.began = began
        self.cancelled = False


class Worker:
    """Takes frames from an inbox, one at a time, and emits what the node makes of them."""

    __slots__ = ("_flow", "_idle", "_overdue", "_session", "gate", "hop", "inbox", "lane", "task", "work")

    def __init__(self, session: Session, flow: Flow, hop: Hop, lane: Lane, inbox: Inbox) -> None:
        self.hop = hop
        self.lane = lane
        self.inbox = inbox
        self.task: asyncio.Task[None] | None = None
        self.work: Work | None = None
        self.gate: asyncio.Task[None] | None = None
        """An acknowledgement that must come before the next agent-lane frame is taken."""
        self._flow = flow
        self._session = session
        self._idle: list[asyncio.Future[None]] = []
        self._overdue: asyncio.TimerHandle | None = None

    # ------------------------------------------------------------------------------- called by the flow

    def put(self, frame: Frame) -> None:
        """Queue a frame for the node."""
        if self.inbox.put(frame):
            self._flow.pressed.append(self.inbox)

    def put_passing(self, frame: Frame, ways: Ways) -> None:
        """Queue a frame that the node does not take, so that it stays behind the node's own output."""
        if self.inbox.put(frame, ways):
            self._flow.pressed.append(self.inbox)

    # ---------------------------------------------------------------------------- called by the session

    @property
    def is_idle(self) -> bool:
        """Nothing queued, nothing in work."""
        return self.work is None and not self.inbox

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
        if work is not None and not work.cancelled and self.task is not None:
            work.cancelled = True
            dropped += 1
            self.task.cancel()
            timeout_s = self._session.options.cancel_timeout_s
            self._overdue = asyncio.get_running_loop().call_later(timeout_s, self._replace_stuck, work, timeout_s)
        return dropped

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
        try:
            await self._process(frame, work)
            if self.hop.failures:
                self.hop.failures = 0
        except asyncio.CancelledError:
            if not work.cancelled:
                raise
        except Exception as error:  # noqa: BLE001 - any bug of an author's is reported with the node's name
            self._session._node_failed(self.hop, frame, error)
        finally:
            if self.work is work:
                self.work = None
                if self._overdue is not None:
                    self._overdue.cancel()
                    self._overdue = None
        if work.cancelled:
            # The work may have ended, or swallowed the cancel, before it struck: let it strike here, not on later work.
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0)
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
                    break

    async def _emit(self, item: object, frame: Frame, work: Work) -> None:
        if not isinstance(item, Frame):
            self._flow._wrong_yield(self.hop, frame, item)
            return
        self._flow.emit(self.hop, item, work.epoch)
        await self._relief()

    def _pass_on(self, frame: Frame, ways: Ways) -> None:
        for way in ways:
            if self._flow.admits(frame):
                self._flow.deliver(way, frame)

    async def _relief(self) -> None:
        pressed = self._flow.pressed
        if pressed:
            await relief(self._flow, self.lane)

    def _wake_idle(self) -> None:
        waiters, self._idle = self._idle, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def _replace_stuck(self, work: Work, timeout_s: float) -> None:
        if self.work is not work:
            return
        log.error(
            "%s: process(%s) did not end within %g s of its cancellation; it goes on alone, all it yields is refused, and a new task takes the next "
            "frame. Let asyncio.CancelledError through, or do the cleanup faster.",
            self.hop.name, type(work.frame).__name__, timeout_s,
        )  # fmt: skip
        self.begin()

    def _blame(self, elapsed_s: float) -> None:
        frame = type(self.work.frame).__name__ if self.work is not None else "a frame"
        self._flow.report_slow(self.hop, elapsed_s, f"process({frame}) or an instant node behind it")


async def relief(flow: Flow, lane: Lane) -> None:
    """Wait for the inboxes found full, of this lane only: lanes never block one another."""
    pressed, flow.pressed = flow.pressed, []
    for inbox in pressed:
        if inbox.lane is lane:
            await inbox.relief()


async def drive_run(session: Session, flow: Flow, hop: Hop) -> None:
    """Emit what ``run()`` yields. Raises NodeError: a node whose ``run`` fails ends the session."""
    await timed(_drive_run(session, flow, hop), flow, lambda elapsed: flow.report_slow(hop, elapsed, "run() or an instant node behind it"))


async def _drive_run(session: Session, flow: Flow, hop: Hop) -> None:
    frames = hop.node.run()
    try:
        async for frame in frames:
            if not isinstance(frame, Frame):
                flow._wrong_yield(hop, None, frame)
                continue
            if frame.lane is Lane.AGENT and frame.epoch == UNSTAMPED:
                what = f"run() yielded {type(frame).__name__}, which is the agent's, without the epoch it answers"
                cure = "keep the epoch of the frame that asked for it (frame.epoch in process()) and yield replace(frame, epoch=that)"
                session._node_failed(hop, None, NodeError(hop.name, f"{what}; it was refused. {cure}"))
                continue
            flow.emit(hop, frame, flow.epoch)
            if flow.pressed:
                await relief(flow, frame.lane)
    except Exception as error:
        raise NodeError(hop.name, f"run() raised {type(error).__name__}: {error}") from error
    finally:
        if isinstance(frames, AsyncGenerator):
            await frames.aclose()


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
