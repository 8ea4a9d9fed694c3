"""The calls that one process answers: how many at once, each from its first frame to its last, and all of them at a shutdown.

The one rule: what goes wrong inside a call stays in that call. It is written into its record and into the one line that the call
leaves in the log; nothing else notices.

This knows no socket: whatever brings a caller (a websocket, a phone carrier, WebRTC) makes the two ends and gives them here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from voiceflow.frames import Frame
from voiceflow.pipeline import Pipeline
from voiceflow.processor import Processor
from voiceflow.session import Session, SessionOptions
from voiceflow.tasks import whatever_happens

__all__ = ["Agent", "CallRecord", "Calls", "Watch"]

log = logging.getLogger("voiceflow")

Agent = Callable[[Processor, Processor], Pipeline]
"""Builds the pipeline of one call, between the caller's end and the loudspeaker's. Called anew for each call."""

Watch = Callable[[Session, Pipeline, Processor], object]
"""Is shown a call: its session, its pipeline, and the loudspeaker's end of it, which on a line has ``tell``."""


SHUT_DOWN = "this server is being shut down; call again"


@dataclass(frozen=True, slots=True)
class CallRecord:
    """A call that is over."""

    who: str
    """As the transport named the caller: an address, a number, a call's id."""
    seconds: float
    why: str
    """Why it ended, in words."""
    outcome: str = "ended"
    """``ended``: by the agent, or by the end of what the caller sends. ``hung up``: by the far end. ``stopped``: by a shutdown
    or a cancel. ``failed``: by a fault on this side. ``refused``: it never began."""


class Calls:
    """Answers calls with an agent, at most ``limit`` at once; more are refused.

    ``options``: of each session. ``inputs``: types the application itself will send, as for Session. ``watch``: shown each call
    once it runs; where it raises, that is logged and the call goes on. ``admits``: asked for a reason to refuse a call that comes now
    ("" to take it): a measured load, a time of day. It is asked by ``/health`` too, where there is one.

    Raises:
        ValueError: a limit below 1.
    """

    def __init__(
        self,
        agent: Agent,
        *,
        limit: int,
        options: SessionOptions | None = None,
        inputs: Sequence[type[Frame]] = (),
        watch: Watch | None = None,
        admits: Callable[[], str] | None = None,
    ) -> None:
        if limit < 1:
            raise ValueError(f"Calls: limit is {limit}, it must be 1 or more")
        self.limit = limit
        self.answered = 0
        """Calls that began, so far."""
        self.refused = 0
        self.failed = 0
        self.coming: set[object] = set()
        """Callers who have a line, and are still being connected: for whoever connects them to put in and take out."""
        self._agent = agent
        self._options = options
        self._inputs = inputs
        self._watch = watch
        self._admits = admits
        self._running: dict[asyncio.Task[object], Session | None] = {}
        """The task in which each call is answered -> its session, once there is one."""
        self._told: set[Session] = set()
        """Sessions that were ended or cancelled here."""
        self._closing = ""
        self._empty = asyncio.Event()
        self._empty.set()

    @property
    def running(self) -> int:
        """Calls under way."""
        return len(self._running)

    @property
    def sessions(self) -> list[Session]:
        """The sessions of the calls under way."""
        return [session for session in self._running.values() if session is not None]

    def refusal(self, caller: object = None) -> str:
        """Why a call that came now would be refused, for the caller to read; "" if it would be answered.

        ``caller``: one of those who are coming, whose own line is not in their way.
        """
        if self._closing:
            return self._closing
        if len(self._running) + len(self.coming - {caller}) >= self.limit:
            return f"all {self.limit} lines are busy; try again later"
        return self._admits() if self._admits is not None else ""

    async def answer(
        self,
        source: Processor,
        sink: Processor,
        who: str,
        *,
        gone: asyncio.Future[str] | None = None,
        watch: Watch | None = None,
    ) -> CallRecord:
        """Answer one call and return when it is over, with nothing of it left behind. At most one call in a task at a time.

        ``gone``: to be given a result, why, when the far end is no longer there: the session is then cancelled at once. ``watch``:
        shown this call before its first frame. Raises nothing for what fails inside the call: see the record. Cancelling it cancels the session,
        waits for its end and raises CancelledError.
        """
        now = asyncio.get_running_loop().time
        if reason := self.refusal():
            return self.refuse(who, 0.0, reason)
        task, since = asyncio.current_task(), now()
        assert task is not None
        assert task not in self._running, "one call in a task at a time"
        self._running[task] = None
        self._empty.clear()
        self.answered += 1
        error: BaseException | None = None
        outcome, why = "stopped", "it was cancelled"
        try:
            outcome, why, error = await self._run(task, source, sink, gone, watch)
        finally:
            del self._running[task]
            if not self._running:
                self._empty.set()
            self.failed += outcome == "failed"
            record = self._over(CallRecord(who, now() - since, why, outcome), error)
        return record

    def refuse(self, who: str, seconds: float, why: str) -> CallRecord:
        """Note a call that never began."""
        self.refused += 1
        return self._over(CallRecord(who, seconds, why, "refused"), None)

    def close(self, reason: str = SHUT_DOWN) -> None:
        """Take no new call from now on."""
        self._closing = reason

    async def drain(self, timeout_s: float, *, say_s: float = 0.0) -> None:
        """Take no new call, and wait until those under way have ended.

        After ``timeout_s`` they are ended, each saying for up to ``say_s`` what it is saying, and then cancelled. Cancelling it
        leaves them running.
        """
        self.close()
        if await self._are_over(timeout_s):
            return
        if say_s > 0:
            for session in self.sessions:
                self._told.add(session)
                session.end()
            if await self._are_over(say_s):
                return
        self.cancel()
        await self._empty.wait()

    def cancel(self) -> None:
        """Take no new call and cancel those under way."""
        self.close()
        for session in self.sessions:
            self._told.add(session)
            session.cancel()

    async def _are_over(self, timeout_s: float) -> bool:
        try:
            async with asyncio.timeout(timeout_s):
                await self._empty.wait()
        except TimeoutError:
            return False
        return True

    # ---------------------------------------------------------------------------------------------- one call

    async def _run(
        self, task: asyncio.Task[object], source: Processor, sink: Processor, gone: asyncio.Future[str] | None, watch: Watch | None
    ) -> tuple[str, str, BaseException | None]:
        try:
            pipeline = self._agent(source, sink)
            session = Session(pipeline, inputs=self._inputs, options=self._options)
            if watch is not None:
                watch(session, pipeline, sink)
        except Exception as error:  # noqa: BLE001 - the application's own code: this call fails, and says so
            return "failed", f"it could not be answered: {type(error).__name__}: {error}", error
        self._running[task] = session

        def hang_up(_: object) -> None:
            if session.state != "ended":
                session.cancel()

        if gone is not None:
            gone.add_done_callback(hang_up)
        shown = asyncio.get_running_loop().create_task(self._show(session, pipeline, sink), name=f"call of {task.get_name()}/watch")
        try:
            await session.run()
        except ExceptionGroup as group:
            first = group.exceptions[0]
            return "failed", str(first), None  # the session has logged it, with its traceback
        finally:
            await whatever_happens(asyncio.wait([shown]))  # it ends with the session
            told = session in self._told
            self._told.discard(session)
            if gone is not None:
                gone.remove_done_callback(hang_up)
        if gone is not None and gone.done() and not gone.cancelled():
            return "hung up", gone.result(), None
        if told:
            return "stopped", self._closing.partition(";")[0], None
        return "ended", "the agent ended it", None

    async def _show(self, session: Session, pipeline: Pipeline, sink: Processor) -> None:
        await session.started()
        if self._watch is not None and session.state == "running":
            try:
                self._watch(session, pipeline, sink)
            except Exception:
                log.exception("what watches the calls raised; the call goes on")

    def _over(self, record: CallRecord, error: BaseException | None) -> CallRecord:
        bad = record.outcome in ("failed", "refused")
        log.log(
            logging.WARNING if bad else logging.INFO,
            "call of %s: %s after %.1f s: %s",
            record.who, record.outcome, record.seconds, record.why, exc_info=error,
        )  # fmt: skip
        return record
