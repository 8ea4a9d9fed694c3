"""How a session begins and ends. The one rule: the deadlines are here, not in the nodes, so no node can hang a call.

Begin: every node's ``start()``, side by side; then ``StartFrame`` to each node that takes it; then the first frame.
End: node by node, sources first, what is in hand is finished and ``EndFrame`` asks for the tail. Close (always): tasks
cancelled, ``stop()`` called once for each node whose ``start()`` was entered, threads joined.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from voiceflow.errors import NodeError
from voiceflow.flow import Flow
from voiceflow.frames import EndFrame, Frame, Lane, StartFrame
from voiceflow.routes import Hop
from voiceflow.tasks import RESOLUTION_S
from voiceflow.threads import Threads
from voiceflow.worker import Worker, drive_run

if TYPE_CHECKING:
    from voiceflow.session import Session

__all__ = ["Lifecycle"]


class Lifecycle:
    """Starts, drains and closes the nodes of one session; ``errors`` is what ``run()`` will raise."""

    def __init__(self, session: Session, flow: Flow) -> None:
        self.errors: list[Exception] = []
        self.threads = Threads(session.options.threads)
        self.is_closed = False
        self._session = session
        self._flow = flow
        self._entered: list[Hop] = []
        self._runs: dict[Hop, asyncio.Task[Any]] = {}

    # ------------------------------------------------------------------------------------------------- begin

    async def start(self, hops: list[Hop]) -> None:
        """Call every ``start()``, side by side. Raises ExceptionGroup of NodeErrors; then the others need not go on."""
        timeout_s = self._session.options.start_timeout_s
        waiting = {self._session._tasks.spawn(self._start_one(hop), f"{hop.name}/start"): hop for hop in hops}
        deadline = self._session.time() + timeout_s
        failures: list[NodeError] = []
        try:
            while waiting and not failures and (left_s := deadline - self._session.time()) > RESOLUTION_S:
                done, _ = await asyncio.wait(waiting, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
                for task in [task for task in waiting if task in done]:
                    hop = waiting.pop(task)
                    failure = NodeError(hop.name, "start() was cancelled") if task.cancelled() else task.result()
                    failures += [failure] if failure is not None else []
            failures = failures or [NodeError(hop.name, f"start() did not end within {timeout_s:g} s") for hop in waiting.values()]
        finally:
            for task in waiting:
                task.cancel()
            if waiting:
                await asyncio.wait(waiting, timeout=self._session.options.cancel_timeout_s)
        if failures:
            raise ExceptionGroup("nodes did not start", failures)

    async def _start_one(self, hop: Hop) -> NodeError | None:
        self._entered.append(hop)
        try:
            await hop.node.start()
        except Exception as error:  # noqa: BLE001 - returned with the node's name
            return _failed(hop, "start", error)
        return None

    async def open(self, hops: list[Hop]) -> None:
        """Let started nodes work: StartFrame first, and whatever it makes them yield only when all have had it. Raises NodeError."""
        flow, timeout_s = self._flow, self._session.options.start_timeout_s
        for hop in hops:
            for worker in hop.workers.values():
                worker.begin()
        flow.hold_back()
        try:
            async with asyncio.timeout(timeout_s):
                for hop in hops:
                    self.give(hop, StartFrame())
                for hop in hops:
                    await _settle(hop)
        except TimeoutError as error:
            raise NodeError(hop.name, f"was not done with its StartFrame within {timeout_s:g} s") from error
        finally:
            flow.let_go()
        for hop in hops:
            if hop.node.contract.runs and not self.is_closed:
                self._runs[hop] = task = self._session._tasks.spawn(drive_run(self._session, flow, hop), f"{hop.name}/run")
                task.add_done_callback(self._run_is_over)

    def give(self, hop: Hop, frame: Frame) -> None:
        """Hand a frame of the session's own to a node that takes it."""
        if hop.node.contract.takes(type(frame)):
            self._flow.give(hop, frame)

    def _run_is_over(self, task: asyncio.Task[Any]) -> None:
        """When the last source has nothing more to give, the call is over."""
        plan, hops = self._flow.router.plan, self._flow.router.hops
        speaking = [node for node in plan.nodes if node.contract.runs]
        sources = [hops[node] for node in speaking if not any(other.contract.runs for other in plan.before(node))]
        if not plan.inputs and sources and all(hop in self._runs and self._runs[hop].done() for hop in sources):
            self._session.end()

    # --------------------------------------------------------------------------------------------------- end

    async def drain(self) -> None:
        """Let the end follow everything that is already in every lane, node by node, sources first."""
        timeout_s = self._session.options.end_timeout_s
        at: Hop | None = None
        ended: dict[Hop, int] = {}
        try:
            async with asyncio.timeout(timeout_s):
                for at in list(self._flow.router.hops.values()):
                    if not at.node.contract.accepts:
                        await self._end_run(at)
                    await self._end_through(at, ended)
                    if any(made.lane is Lane.USER for made in at.node.contract.run_yields):
                        await self._end_run(at)  # what it hears or notices by itself comes too late now
                for at in list(self._flow.router.hops.values()):
                    await self._end_run(at)
        except TimeoutError:
            assert at is not None
            busy = [_in_hand(worker) for worker in at.workers.values() if not worker.is_idle]
            self.errors.append(
                NodeError(at.name, f"did not finish within {timeout_s:g} s of the end: {' and '.join(busy) or 'still in run()'}")
            )

    async def _end_through(self, at: Hop, ended: dict[Hop, int]) -> None:
        """Let the end come behind all that came for each node up to this one, and wait until nothing is in hand there.

        What a node reports at its end may make those before it work again: a tool whose words have been heard, and the reply to its
        result. What comes of that comes through here as well, and needs an end of its own. ``ended``: what had come by the last.
        """
        hops = list(self._flow.router.hops.values())
        up_to = hops[: hops.index(at) + 1]
        while True:
            tasks, busy = list(self._session._tasks.in_hand), [hop for hop in up_to if not _is_settled(hop)]
            if tasks and not busy:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for hop in busy:
                await _settle(hop)
            if tasks or busy:
                continue
            late = next((hop for hop in up_to if ended.get(hop) != _received(hop)), None)
            if late is None:
                return
            self.give(late, EndFrame())
            ended[late] = _received(late)

    async def _end_run(self, hop: Hop) -> None:
        task = self._runs.get(hop)
        if task is not None and not task.done():
            task.cancel()
            await asyncio.wait([task], timeout=self._session.options.stop_timeout_s)

    async def retire(self, hop: Hop) -> None:
        """Take one node out of a running session."""
        options = self._session.options
        await self._end_run(hop)
        self._runs.pop(hop, None)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(options.stop_timeout_s):
                await _settle(hop)
        tasks = [task for worker in hop.workers.values() if (task := worker.let_go()) is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=options.cancel_timeout_s)
        await self.stop(hop)

    async def close(self) -> None:
        """Stop everything that was started, each with its deadline. Whatever does not end is named in ``errors``."""
        tasks, options = self._session._tasks, self._session.options
        self.is_closed = True
        self._flow.shut()
        for hop in self._flow.router.hops.values():
            for worker in hop.workers.values():
                worker.let_go()
        # Work and run() end first, so that stop() finds its node at rest; the second round is for what stop() began.
        stuck = await tasks.cancel(options.stop_timeout_s)
        for hop in list(self._entered):
            await self.stop(hop)
        stuck += await tasks.cancel(options.stop_timeout_s)
        for name in stuck:
            self.errors.append(
                NodeError(
                    name.rpartition("/")[0] or name, f"its task {name!r} did not end within {options.stop_timeout_s:g} s of being cancelled"
                )
            )
        self.errors += await self.threads.close(options.stop_timeout_s)

    async def stop(self, hop: Hop) -> None:
        """Call ``stop()`` once, if ``start()`` was entered."""
        if hop not in self._entered:
            return
        self._entered.remove(hop)
        options = self._session.options
        task = asyncio.get_running_loop().create_task(self._stop_one(hop), name=f"{hop.name}/stop")
        await asyncio.wait([task], timeout=options.stop_timeout_s)
        if task.done():
            failure = NodeError(hop.name, "stop() was cancelled") if task.cancelled() else task.result()
        else:
            task.cancel()
            await asyncio.wait([task], timeout=options.cancel_timeout_s)
            failure = NodeError(hop.name, f"stop() did not end within {options.stop_timeout_s:g} s")
        self.errors += [failure] if failure is not None else []

    async def _stop_one(self, hop: Hop) -> NodeError | None:
        try:
            await hop.node.stop()
        except Exception as error:  # noqa: BLE001 - returned with the node's name
            return _failed(hop, "stop", error)
        return None


def _received(hop: Hop) -> int:
    """How many frames came for a node that takes time."""
    return sum(worker.received for worker in hop.workers.values())


def _is_settled(hop: Hop) -> bool:
    """Nothing queued and nothing in work, in any lane."""
    return all(worker.is_idle for worker in hop.workers.values())


async def _settle(hop: Hop) -> None:
    """Wait until a node has nothing queued and nothing in work, in any lane."""
    while not _is_settled(hop):
        for worker in hop.workers.values():
            await worker.settled()


def _failed(hop: Hop, method: str, error: Exception) -> NodeError:
    """A raise in one of a node's methods, with the node's name."""
    failure = NodeError(hop.name, f"{method}() raised {type(error).__name__}: {error}")
    failure.__cause__ = error
    return failure


def _in_hand(worker: Worker) -> str:
    """What a worker that is not done has in hand."""
    lane, waiting = worker.lane.name.lower(), len(worker.inbox)
    if worker.work is not None:
        return f"still at work on {type(worker.work.frame).__name__} in its {lane} lane"
    return f"{waiting} frame{'s' if waiting > 1 else ''} waiting in its {lane} lane"
