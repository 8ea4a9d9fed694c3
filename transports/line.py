"""A line: a wire and a socket joined to the two nodes of a call, and the whole of one call on them.

The one rule: one task reads and one writes, both are owned by the call, and neither waits for the other. So a far end that does not
read is heard all the same, and an interrupt never waits behind sound.

Every transport with messages stands on ``answer``: a server makes a wire and a socket for each caller, and awaits it. A call may
outlive its socket, where the wire is ``Resumable``: then the agent's speech is held until the far end has come back.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from voiceflow.frames import Frame
from voiceflow.tasks import whatever_happens
from voiceflow.transports.calls import CallRecord, Calls
from voiceflow.transports.connection import LineOptions, Rate, Socket, close_socket
from voiceflow.transports.line_ends import LineIn, LineOut
from voiceflow.transports.outbox import Outbox
from voiceflow.transports.wire import (
    BUSY,
    FAULT,
    GOING_AWAY,
    POLICY,
    CallEnded,
    CallResumed,
    CallStarted,
    Cleared,
    MarkReturned,
    Played,
    Received,
    Resumable,
    Wire,
    WireError,
)

__all__ = ["Line", "LineOptions", "Lines", "Socket", "answer", "handshake"]

log = logging.getLogger("voiceflow")

CODES = {"ended": 1000, "hung up": 1000, "stopped": GOING_AWAY, "failed": FAULT, "refused": BUSY}

LOST = "the connection was lost"


@dataclass(slots=True)
class _Leg:
    """A connection that carries a call for a while. ``over``: done when it does not any more."""

    wire: Wire
    socket: Socket
    over: asyncio.Future[None]

    def finish(self) -> None:
        """It does not carry the call any more."""
        if not self.over.done():  # it is cancelled with whoever waits for it
            self.over.set_result(None)


Again = Callable[[], Awaitable[tuple[Wire, Socket] | None]]
"""Waits for the next connection of a call whose connection was lost. None: there will be none."""


class Line:
    """One call. ``gone``: done, with the reason, once the far end is no longer there and will not come back."""

    def __init__(
        self,
        wire: Wire,
        socket: Socket,
        call: CallStarted,
        options: LineOptions,
        *,
        source: Callable[[Outbox], LineIn] | None = None,
        again: Again | None = None,
    ) -> None:
        loop = asyncio.get_running_loop()
        self.options = options
        self.outbox = Outbox()
        self.source = source(self.outbox) if source is not None else LineIn(wire.hears, call, live_s=options.live_s)
        self.sink = LineOut(wire, self.outbox, options.speaker)
        self.gone: asyncio.Future[str] = loop.create_future()
        self._leg = _Leg(wire, socket, loop.create_future())
        self._next: asyncio.Future[_Leg] = loop.create_future()
        self._again = again
        self._code = 1000
        self._over = False
        """Nothing more will be put into the outbox."""
        self._rate = Rate(options)

    @property
    def wire(self) -> Wire:
        """Of the connection there is now, or was last."""
        return self._leg.wire

    def take(self, received: list[Received]) -> None:
        """What came: to the node it is for. Raises WireError if there is more of it than can be kept."""
        now = asyncio.get_running_loop().time()
        for item in received:
            if isinstance(item, Frame):
                if not self.source.deliver(item, now):
                    raise WireError("more came than could be taken in", POLICY)
            elif isinstance(item, Played):
                if self.wire.proof == "reports":
                    self.sink.played_to(self.outbox.positions.of(item.samples))
            elif isinstance(item, MarkReturned):
                if self.wire.proof == "marks":
                    self.sink.mark_returned(item.name)
            elif isinstance(item, Cleared):
                self.source.clear(now)
            elif isinstance(item, CallEnded):
                self.hang_up(item.reason or "the far end hung up")
        self.outbox.put(self.wire.answers(), now)

    def hang_up(self, why: str, code: int = 1000) -> None:
        """The far end is gone, or will be: the call ends at once. The first reason counts."""
        if not self.gone.done():
            self._code = code
            self.gone.set_result(why)

    async def carry_on(self, wire: Wire, socket: Socket) -> None:
        """Another connection takes the call over, whether or not the one before is known to be lost. Returns when that is over too.

        Cancelling it loses the connection, and no more. Raises WireError if the call is over.
        """
        if self.gone.done() or self._over or self._next.done():
            raise WireError("there is no such call any more", POLICY)
        leg = _Leg(wire, socket, asyncio.get_running_loop().create_future())
        self._next.set_result(leg)
        await leg.over

    async def run(self, calls: Calls, who: str) -> CallRecord:
        """The call, from its first frame to the closed socket. Cancelling it ends the call; nothing is left behind."""
        carrier = asyncio.get_running_loop().create_task(self._carry(who), name=f"line of {who}")
        outcome, why = "stopped", "the call was cancelled here"
        try:
            record = await calls.answer(self.source, self.sink, who, gone=self.gone, watch=self.sink.watch)
            outcome, why = record.outcome, record.why
        finally:
            await whatever_happens(self._close(carrier, outcome, why))
        return record

    # ------------------------------------------------------------------------------------------------ connections

    async def _carry(self, who: str) -> None:
        """Carry the call, on one connection after the other, until it is over or the far end is gone."""
        loop = asyncio.get_running_loop()
        while True:
            tasks = [
                loop.create_task(self._guarded(self._read()), name=f"line of {who}/read"),
                loop.create_task(self._guarded(self._write()), name=f"line of {who}/write"),
            ]
            try:
                await asyncio.wait(_futures(*tasks, self._next), return_when=asyncio.FIRST_COMPLETED)
                if self._over and not self._next.done():
                    await asyncio.wait(tasks[1:])  # the last words
            finally:
                for task in tasks:
                    task.cancel()
                await whatever_happens(asyncio.wait(tasks))
            if self.gone.done() or self._over:
                return
            self.sink.lose(loop.time())
            await whatever_happens(close_socket(self._leg.socket, POLICY, LOST, self.options.close_s))
            self._leg.finish()
            following = self._next.result() if self._next.done() else await self._wait_for_the_next()
            if following is None:
                self.hang_up(f"{LOST}, and did not come back" if self._again is not None else LOST)
                return
            self._adopt(following)

    async def _wait_for_the_next(self) -> _Leg | None:
        if self._again is None:
            return None
        loop = asyncio.get_running_loop()
        found = loop.create_task(_awaited(self._again()), name="line/again")
        try:
            await asyncio.wait(_futures(found, self._next), return_when=asyncio.FIRST_COMPLETED)
        finally:
            found.cancel()
            await whatever_happens(asyncio.wait([found]))
        if self._next.done():
            return self._next.result()
        connection = found.result()
        return _Leg(*connection, loop.create_future()) if connection is not None else None

    def _adopt(self, leg: _Leg) -> None:
        self._leg = leg
        self._next = asyncio.get_running_loop().create_future()
        self._rate = Rate(self.options)
        self.source.start_again(leg.wire)
        self.sink.find_again(leg.wire, asyncio.get_running_loop().time())

    async def _guarded(self, work: Awaitable[None]) -> None:
        try:
            await work
        except WireError as error:
            self.hang_up(str(error), error.code)
        except ConnectionError:
            if not self._leg.socket.lost:
                self.hang_up("the connection was closed")
        except Exception as error:
            log.exception("%s: a fault of this side on the line", self.wire.name)
            self.hang_up(f"a fault on this side: {type(error).__name__}", FAULT)

    async def _read(self) -> None:
        now = asyncio.get_running_loop().time
        wire, socket = self._leg.wire, self._leg.socket
        while (message := await socket.receive()) is not None:
            self._rate.check(now())
            self.take(wire.receive(message))
            if self.gone.done():
                return
        raise ConnectionError

    async def _write(self) -> None:
        now = asyncio.get_running_loop().time
        outbox, socket = self.outbox, self._leg.socket
        while True:
            while outbox:
                if outbox.overflowed or outbox.waiting_s(now()) > self.options.stall_s:
                    raise self._stalled()
                message = outbox.take()
                assert message is not None
                try:
                    async with asyncio.timeout(self.options.stall_s):
                        await socket.send(message)
                except TimeoutError:
                    raise self._stalled() from None
            if self._over:
                return
            await outbox.filled.wait()
            outbox.filled.clear()

    def _stalled(self) -> WireError:
        return WireError(f"the far end took nothing for {self.options.stall_s:g} s", POLICY)

    async def _close(self, carrier: asyncio.Task[None], outcome: str, why: str) -> None:
        """Say that the call is over, if there is anybody to tell, and let go of everything."""
        if not self.gone.done() and not self._leg.over.done():
            self.outbox.throw_away_sound()
            self.outbox.put(self.wire.end(why), asyncio.get_running_loop().time())
            self._over = True
            self.outbox.filled.set()
            await asyncio.wait([carrier], timeout=self.options.close_s)
        self._over = True
        carrier.cancel()
        await asyncio.wait([carrier])
        code = self._code if outcome == "hung up" else CODES[outcome]
        for leg in [self._leg, *([self._next.result()] if self._next.done() else [])]:
            await close_socket(leg.socket, code, why, self.options.close_s)
            leg.finish()


class Lines:
    """Calls to which a far end can come back when its connection was lost: those of one server."""

    def __init__(self) -> None:
        self._lines: dict[str, tuple[Line, Resumable]] = {}

    def __len__(self) -> int:
        return len(self._lines)

    def find(self, token: str, wire: Resumable) -> Line:
        """The call that a far end goes on with. Raises WireError if there is none, or if what it speaks now does not fit."""
        if token not in self._lines:
            raise WireError("there is no such call any more", POLICY)
        line, before = self._lines[token]
        wire.go_on_from(before)
        del self._lines[token]
        self.keep(line, wire)
        return line

    def keep(self, line: Line, wire: Resumable) -> None:
        """From now on this wire's token leads to that call."""
        self._lines[wire.resume_token] = line, wire

    def forget(self, line: Line) -> None:
        """It is over."""
        self._lines = {token: (kept, wire) for token, (kept, wire) in self._lines.items() if kept is not line}


async def answer(
    wire: Wire, socket: Socket, calls: Calls, options: LineOptions | None = None, *, who: str = "", lines: Lines | None = None
) -> CallRecord | None:
    """The whole of one call: the handshake until CallStarted, the agent's session, ``wire.end``, the closed socket.

    ``who``: for the log; the wire's name is put before it. It ends by the agent's EndFrame, by a cancel, by ``calls`` shutting down or by
    the far end, always with the socket closed and nothing left behind. What goes wrong is in the record, and raises nothing.
    ``lines``: the server's, if calls may be taken up again; the result is None when this connection only carried on the call of another.
    """
    options = options or LineOptions()
    loop = asyncio.get_running_loop()
    began, name = loop.time(), f"{wire.name} {who}".strip()
    why, code = "the server stops", GOING_AWAY
    try:
        if not lines and (reason := calls.refusal()):  # otherwise it may be one who comes back, and has a place
            raise WireError(reason, BUSY)
        async with asyncio.timeout(options.handshake_s):
            call, rest = await handshake(wire, socket, options, calls.refusal)
        if isinstance(call, CallResumed):
            if lines is None or not isinstance(wire, Resumable):
                raise WireError("there is no such call any more", POLICY)
            await lines.find(call.token, wire).carry_on(wire, socket)
        why = ""
    except (WireError, ConnectionError) as error:
        why, code = str(error), error.code if isinstance(error, WireError) else 1000
        return calls.refuse(name, loop.time() - began, why)
    except TimeoutError:
        why, code = f"the far end did not begin a call within {options.handshake_s:g} s", POLICY
        return calls.refuse(name, loop.time() - began, why)
    finally:
        if why:
            await whatever_happens(close_socket(socket, code, why, options.close_s))
    if isinstance(call, CallResumed):
        return None
    line = _line(wire, socket, call, options, lines)
    try:
        line.take(rest)
    except WireError as error:
        line.hang_up(str(error), error.code)
    try:
        return await line.run(calls, name if who else f"{name} {call.caller or call.call}".strip())
    finally:
        if lines is not None:
            lines.forget(line)


def _line(wire: Wire, socket: Socket, call: CallStarted, options: LineOptions, lines: Lines | None) -> Line:
    if lines is None or not isinstance(wire, Resumable) or not wire.resume_token:
        return Line(wire, socket, call, options)
    resume_s = wire.resume_s

    async def again() -> tuple[Wire, Socket] | None:
        await asyncio.sleep(resume_s)
        return None

    line = Line(wire, socket, call, options, again=again)
    lines.keep(line, wire)
    return line


async def handshake(
    wire: Wire, socket: Socket, options: LineOptions, refusal: Callable[[], str] | None = None
) -> tuple[CallStarted | CallResumed, list[Received]]:
    """What the far end began with, and what it has said since. ``refusal``: why a new call cannot be taken, or "".

    Raises ConnectionError, WireError.
    """
    rate, now = Rate(options), asyncio.get_running_loop().time
    while (message := await socket.receive()) is not None:
        rate.check(now())
        received = wire.receive(message)
        if refusal is not None and any(isinstance(item, CallStarted) for item in received) and (reason := refusal()):
            raise WireError(reason, BUSY)
        for words in wire.answers():
            await socket.send(words)
        for i, item in enumerate(received):
            if isinstance(item, CallStarted | CallResumed):
                return item, received[:i] + received[i + 1 :]
            if isinstance(item, CallEnded):
                raise WireError(item.reason or "the far end hung up before the call began", 1000)
    raise ConnectionError(f"{LOST} before the call began")


def _futures(*futures: asyncio.Future[Any]) -> list[asyncio.Future[Any]]:
    return list(futures)


async def _awaited(connection: Awaitable[tuple[Wire, Socket] | None]) -> tuple[Wire, Socket] | None:
    return await connection
