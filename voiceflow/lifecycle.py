"""How a session begins and ends. The one rule: the deadlines are here, not in the nodes, so no node can hang a call.

Begin: every node's ``start()``, side by side; then ``StartFrame`` to each node that takes it; then the first frame.
End: node by node, sources first, what is in hand is finished and ``EndFrame`` asks for the tail. Close (always): tasks
cancelled, ``stop()`` called once for each node whose ``start()`` was entered, threads joined.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter
from typing import TYPE_CHECKING, Any

from voiceflow.errors import NodeError
from voiceflow.flow import Flow
from voiceflow.frames import EndFrame, Frame, StartFrame
from voiceflow.routes import Hop
from voiceflow.worker import drive_run

if TYPE_CHECKING:
    from voiceflow.session import Session

__all__ = ["Lifecycle"]

POLL_S = 0.005


class Lifecycle:
    """Starts, drains and closes the nodes of one session; ``errors`` is what ``run()`` will raise."""

    def __init__(self, session: Session, flow: Flow) -> None:
        self.errors: list[Exception] = []
        self.pool: ThreadPoolExecutor | None = None
        self._session = session
        self._flow = flow
        self._entered: list[Hop] = []
        self._runs: dict[Hop, asyncio.Task[Any]] = {}

    # ------------------------------------------------------------------------------------------------- begin

    async def start(self, hops: list[Hop]) -> None:
        """Call every ``start()``, side by side. Raises ExceptionGroup of NodeErrors."""
        results = await asyncio.gather(*map(self._start_one, hops), return_exceptions=True)
        failures = [result for result in results if isinstance(result, Exception)]
        if failures:
            raise ExceptionGroup("nodes did not start", failures)

    async def _start_one(self, hop: Hop) -> None:
        timeout_s = self._session.options.start_timeout_s
        self._entered.append(hop)
        try:
            async with asyncio.timeout(timeout_s):
                await hop.node.start()
        except TimeoutError as error:
            raise NodeError(hop.name, f"start() did not end within {timeout_s:g} s") from error
        except Exception as error:
            raise NodeError(hop.name, f"start() raised {type(error).__name__}: {error}") from error

    async def open(self, hops: list[Hop]) -> None:
        """Let started nodes work: StartFrame first, and whatever it makes them yield only when all have had it."""
        flow = self._flow
        for hop in hops:
            for worker in hop.workers.values():
                worker.begin()
        flow.hold_back()
        for hop in hops:
            self.give(hop, StartFrame())
        for hop in hops:
            await settle(hop)
        flow.let_go()
        for hop in hops:
            if hop.node.contract.runs:
                self._runs[hop] = task = self._session._tasks.spawn(drive_run(self._session, flow, hop), f"{hop.name}/run")
                task.add_done_callback(self._run_is_over)

    def give(self, hop: Hop, frame: Frame) -> None:
        """Hand a frame of the session's own to a node that takes it."""
        if hop.node.contract.takes(type(frame)):
            self._flow.give(hop, frame)

    def _run_is_over(self, task: asyncio.Task[Any]) -> None:
        """When the last source has nothing more to give, the call is over."""
        sources = [hop for hop in self._flow.router.hops.values() if not self._flow.router.plan.up[hop.node]]
        if not self._flow.router.plan.inputs and all(hop in self._runs and self._runs[hop].done() for hop in sources):
            self._session.end()

    # --------------------------------------------------------------------------------------------------- end

    async def drain(self) -> None:
        """Let the end follow everything that is already in every lane, node by node, sources first."""
        timeout_s = self._session.options.end_timeout_s
        at: Hop | None = None
        try:
            async with asyncio.timeout(timeout_s):
                for at in list(self._flow.router.hops.values()):
                    if not at.node.contract.accepts:
                        await self._end_run(at)
                    await settle(at)
                    self.give(at, EndFrame())
                    await settle(at)
                    await self._end_run(at)
        except TimeoutError:
            assert at is not None
            works = [f"{type(w.work.frame).__name__} in its {w.lane.name.lower()} lane" for w in at.workers.values() if w.work is not None]
            self.errors.append(
                NodeError(at.name, f"did not finish within {timeout_s:g} s of the end: still at work on {' and '.join(works) or 'run()'}")
            )

    async def _end_run(self, hop: Hop) -> None:
        task = self._runs.get(hop)
        if task is not None and not task.done():
            task.cancel()
            await asyncio.wait([task], timeout=self._session.options.stop_timeout_s)

    async def retire(self, hop: Hop) -> None:
        """Take one node out of a running session."""
        await self._end_run(hop)
        self._runs.pop(hop, None)
        for worker in hop.workers.values():
            await worker.settled()
            task, worker.task = worker.task, None
            if task is not None:
                task.cancel()
                await asyncio.wait([task], timeout=self._session.options.cancel_timeout_s)
        await self.stop(hop)

    async def close(self) -> None:
        """Stop everything that was started, each with its deadline. Whatever does not end is named in ``errors``."""
        tasks, options = self._session._tasks, self._session.options
        self._flow.epoch += 1  # whatever still comes is stale
        # Work and run() end first, so that stop() finds its node at rest; the second round is for what stop() began.
        stuck = await tasks.cancel(options.stop_timeout_s)
        for hop in list(self._entered):
            await self.stop(hop)
        stuck += await tasks.cancel(options.stop_timeout_s)
        for name in stuck:
            self.errors.append(
                NodeError(name.partition("/")[0], f"its task {name!r} did not end within {options.stop_timeout_s:g} s of being cancelled")
            )
        if self.pool is not None:
            await self._join_threads(self.pool)

    async def stop(self, hop: Hop) -> None:
        """Call ``stop()`` once, if ``start()`` was entered."""
        if hop not in self._entered:
            return
        self._entered.remove(hop)
        options = self._session.options
        task = asyncio.get_running_loop().create_task(hop.node.stop(), name=f"{hop.name}/stop")
        await asyncio.wait([task], timeout=options.stop_timeout_s)
        if not task.done():
            task.cancel()
            await asyncio.wait([task], timeout=options.cancel_timeout_s)
            self.errors.append(NodeError(hop.name, f"stop() did not end within {options.stop_timeout_s:g} s"))
        elif not task.cancelled() and (error := task.exception()) is not None:
            failure = NodeError(hop.name, f"stop() raised {type(error).__name__}: {error}")
            failure.__cause__ = error
            self.errors.append(failure)

    async def _join_threads(self, pool: ThreadPoolExecutor) -> None:
        """Threads cannot be cancelled: wait for those of run_blocking, and name what they still do after the deadline."""
        pool.shutdown(wait=False, cancel_futures=True)
        timeout_s = self._session.options.stop_timeout_s
        deadline = perf_counter() + timeout_s  # threads live in real time, whatever clock the loop has
        while alive := sum(thread.is_alive() for thread in pool._threads):
            if perf_counter() > deadline:
                self.errors.append(
                    NodeError("run_blocking", f"{alive} threads were still at work {timeout_s:g} s after the end of the session")
                )
                return
            await asyncio.sleep(POLL_S)


async def settle(hop: Hop) -> None:
    """Wait until a node has nothing queued and nothing in work, in any lane."""
    while busy := [worker for worker in hop.workers.values() if not worker.is_idle]:
        for worker in busy:
            await worker.settled()
