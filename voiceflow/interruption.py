"""The interrupt: one synchronous sweep, from the sinks upstream to the sources.

The one rule: no ``await`` between the call and its return. Silence comes first, since sinks come first; cleanups and
acknowledgements then run side by side, each with a deadline.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Coroutine
from dataclasses import dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING

from voiceflow.errors import NodeError
from voiceflow.flow import SLOW_STEP_S, Flow
from voiceflow.frames import Heard, InterruptFrame, Lane
from voiceflow.processor import Processor
from voiceflow.routes import Hop
from voiceflow.worker import Worker

if TYPE_CHECKING:
    from voiceflow.session import Session

__all__ = ["Interruption", "Sweep"]

log = logging.getLogger("voiceflow")

KEPT = 64
"""Records kept of past interrupts."""


@dataclass(slots=True)
class Interruption:
    """What an interrupt did."""

    reason: str
    epoch: int
    """The number of interrupts so far, this one included."""
    at: float
    """When, on the session's clock."""
    heard: list[Heard] = field(default_factory=list)
    """What had reached the ear of each utterance that was cut; filled by the sinks, which come first."""
    dropped: int = 0
    """Frames dropped and pieces of work cancelled."""
    sweep_s: float = 0.0
    """Real time from the call until everything was silent and every node knew."""
    acknowledged: dict[str, float | None] = field(default_factory=dict)
    """Node -> seconds (session's clock) until its far side acknowledged; None while it has not, or did not in time."""
    acknowledgements: list[asyncio.Task[None]] = field(default_factory=list, repr=False)

    async def settled(self) -> None:
        """Wait until every acknowledgement has come, or its deadline has passed."""
        if self.acknowledgements:
            await asyncio.wait(self.acknowledgements)


class Sweep:
    """Carries out the interrupts of one session. ``records``: the last of them, oldest first."""

    def __init__(self, session: Session, flow: Flow) -> None:
        self.records: deque[Interruption] = deque(maxlen=KEPT)
        self._session = session
        self._flow = flow
        self._current: Interruption | None = None
        self._stops: list[tuple[Hop, tuple[Worker, ...], bool]] = []

    def rebuild(self) -> None:
        """Take the flow's present nodes: those with work to cancel or an ``on_interrupt`` to call, sinks first."""
        self._stops = []
        for hop in reversed(list(self._flow.router.hops.values())):
            workers = tuple(worker for lane, worker in hop.workers.items() if lane is Lane.AGENT or hop.node.contract.replies)
            listens = type(hop.node).on_interrupt is not Processor.on_interrupt
            if workers or listens:
                self._stops.append((hop, workers, listens))

    def __call__(self, reason: str) -> Interruption:
        """Interrupt. A second call during the first gives the first's record."""
        if self._current is not None:
            return self._current
        started = perf_counter()
        self._flow.epoch += 1
        self._current = record = Interruption(reason, self._flow.epoch, asyncio.get_running_loop().time())
        try:
            for hop, workers, listens in self._stops:
                for worker in workers:
                    record.dropped += worker.interrupt()
                if listens:
                    self._tell(hop, workers, record)
        finally:
            self._current = None
        self.records.append(record)
        record.sweep_s = perf_counter() - started
        return record

    def _tell(self, hop: Hop, workers: tuple[Worker, ...], record: Interruption) -> None:
        started = perf_counter()
        try:
            answer = hop.node.on_interrupt(record)
        except Exception as error:  # noqa: BLE001 - the sweep reaches every node, whatever one of them does
            self._session._node_failed(hop, InterruptFrame(reason=record.reason), error)
            return
        finally:
            elapsed = perf_counter() - started
            if elapsed > SLOW_STEP_S:
                self._flow.report_slow(hop, elapsed, "on_interrupt()")
        if answer is None:
            return
        if not workers:
            if isinstance(answer, Coroutine):
                answer.close()
            cure = "make process() `async def`, or acknowledge nothing"
            self._session._node_failed(
                hop,
                None,
                NodeError(hop.name, f"on_interrupt() gave an awaitable, but an instant node has no inbox to hold frames back; {cure}"),
            )
            return
        record.acknowledged[hop.name] = None
        spawn = self._session._tasks.spawn
        acknowledgement = spawn(self._acknowledge(hop, record, answer), f"{hop.name}/acknowledgement")
        if isinstance(answer, Coroutine):
            acknowledgement.add_done_callback(lambda _: answer.close())  # it is not begun if the session ends at once
        gate = spawn(self._deadline(hop, acknowledgement), f"{hop.name}/acknowledge")
        record.acknowledgements.append(gate)
        for worker in workers:
            worker.gate = gate

    async def _acknowledge(self, hop: Hop, record: Interruption, answer: Awaitable[object]) -> None:
        try:
            await answer
        except Exception as error:  # noqa: BLE001 - reported with the node's name
            self._session._node_failed(hop, None, error)
            return
        after_s = self._session.time() - record.at
        if after_s <= self._session.options.ack_timeout_s:
            record.acknowledged[hop.name] = after_s

    async def _deadline(self, hop: Hop, acknowledgement: asyncio.Task[None]) -> None:
        """Wait for an acknowledgement, but not for ever, even if it will not be cancelled."""
        timeout_s = self._session.options.ack_timeout_s
        await asyncio.wait([acknowledgement], timeout=timeout_s)
        if not acknowledgement.done():
            log.error("%s: its cancel was not acknowledged within %g s; it goes on without", hop.name, timeout_s)
            acknowledgement.cancel()
