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
from voiceflow.flow import Flow
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
                    self._tell(hop, record)
        finally:
            self._current = None
        self.records.append(record)
        record.sweep_s = perf_counter() - started
        return record

    def _tell(self, hop: Hop, record: Interruption) -> None:
        try:
            answer = hop.node.on_interrupt(record)
        except Exception as error:  # noqa: BLE001 - the sweep reaches every node, whatever one of them does
            self._session._node_failed(hop, InterruptFrame(reason=record.reason), error)
            return
        if answer is None:
            return
        worker = hop.workers.get(Lane.AGENT)
        if worker is None:
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
        worker.gate = self._session._tasks.spawn(self._acknowledge(hop, record, answer), f"{hop.name}/acknowledge")
        record.acknowledgements.append(worker.gate)

    async def _acknowledge(self, hop: Hop, record: Interruption, answer: Awaitable[object]) -> None:
        timeout_s = self._session.options.ack_timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                await answer
            record.acknowledged[hop.name] = self._session.time() - record.at
        except TimeoutError:
            log.error("%s: its cancel was not acknowledged within %g s; it goes on without", hop.name, timeout_s)
        except Exception as error:  # noqa: BLE001 - reported with the node's name
            self._session._node_failed(hop, None, error)
