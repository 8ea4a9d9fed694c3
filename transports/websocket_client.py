"""An agent of ours as the caller: it calls a server of ours over a websocket, and comes back when the connection is lost.

The one rule: it hears as an ear does. What the far agent says is queued and taken at the pace of the clock, silence between, and how
far that has come is what the far agent is told it was heard.
"""

from __future__ import annotations

import asyncio
import random
import ssl
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from websockets.asyncio.client import connect
from websockets.exceptions import InvalidHandshake, InvalidStatus, InvalidURI

from voiceflow.backoff import Backoff, BackoffOptions
from voiceflow.frames import AudioFormat, Frame, InputAudioFrame
from voiceflow.session import SessionOptions
from voiceflow.transports.calls import Agent, CallRecord, Calls
from voiceflow.transports.connection import UNSENT, LineOptions, close_socket
from voiceflow.transports.line import Line, handshake
from voiceflow.transports.line_ends import LineIn, Said
from voiceflow.transports.outbox import Outbox
from voiceflow.transports.speaker import SpeakerOptions
from voiceflow.transports.websocket import SILENT, WebsocketSocket
from voiceflow.transports.wire import BUSY, GOING_AWAY, POLICY, RESTARTS, CallStarted, Message, Received, Wire, WireError
from voiceflow.transports.wire_frames_client import FramesClientWire

__all__ = ["CallOptions", "call"]

TRY_AGAIN = (GOING_AWAY, RESTARTS, BUSY)
"""Close codes that mean: later."""

BLOCK_S = 0.02

REPORT_EVERY_S = 0.1


@dataclass(frozen=True, slots=True)
class CallOptions:
    """How to call. ``hears`` and ``speaks``: rates in Hz, of the far agent's sound and of our own. ``who``: the name to give.

    ``told``: given, as frames, what the server tells of the call: what it understood, what its agent was heard to say, what it does
    (``TellFrame(kind="state")``). It must not wait. ``queue_s``: sound that waits to be heard; of more the oldest is dropped.
    """

    token: str = field(default="", repr=False)
    who: str = ""
    hears: int = 16000
    speaks: int = 24000
    told: Callable[[Frame], object] | None = None
    queue_s: float = 30.0
    connect_s: float = 10.0
    ping_s: float = 5.0
    max_bytes: int = 1 << 20
    reconnect: BackoffOptions = field(default_factory=lambda: BackoffOptions(longest_wait_s=5.0, tries=8))
    line: LineOptions = field(
        default_factory=lambda: LineOptions(speaker=SpeakerOptions(continuous=True, latency_s=0.1, latency_known=False))
    )
    session: SessionOptions = field(default_factory=SessionOptions)
    tls: ssl.SSLContext | None = field(default=None, repr=False)


async def call(url: str, agent: Agent, options: CallOptions | None = None) -> CallRecord:
    """Call ``ws://`` or ``wss://``, and be the caller with a session of ``agent`` until either side hangs up.

    The agent is given the far agent's sound as a caller's, and what its own voice says goes there. A connection that cannot be made
    is tried again, as ``options.reconnect`` says; one that is lost is made again, and the call goes on, for as long as the server keeps
    it. What goes wrong is in the record. Cancelling it hangs up.

    Raises:
        ValueError: for an address that is none.
    """
    options = options or CallOptions()
    if urlsplit(url).scheme not in ("ws", "wss") or not urlsplit(url).hostname:
        raise ValueError("the address of a call begins with ws:// or wss:// and names a host")
    dialer = _Dialer(url, options)
    calls = Calls(agent, limit=1, options=options.session)
    name = f"websocket to {urlsplit(url).hostname}"
    try:
        wire, socket, begun, rest = await dialer.dial(None)
    except WireError as error:
        return calls.refuse(name, 0.0, str(error))
    assert isinstance(begun, CallStarted)
    line = Line(wire, socket, begun, options.line, source=lambda outbox: _Ear(wire, begun, outbox, options), again=dialer.again)
    line.take(rest)
    return await line.run(calls, name)


class _Dialer:
    """Makes the connections of one call."""

    def __init__(self, url: str, options: CallOptions) -> None:
        self._url = url
        self._options = options
        self._wire: FramesClientWire | None = None
        self._reconnect = Backoff(options.reconnect, random.random)

    async def again(self) -> tuple[Wire, WebsocketSocket] | None:
        """The next connection of the call; None if the server does not keep it any longer."""
        wire = self._wire
        if wire is None or not wire.resume_token:
            return None
        try:
            async with asyncio.timeout(wire.resume_s):
                following, socket, _, _ = await self.dial(wire)
        except (TimeoutError, WireError):
            return None
        return following, socket

    async def dial(self, before: FramesClientWire | None) -> tuple[FramesClientWire, WebsocketSocket, object, list[Received]]:
        """Try until there is a connection on which the call has begun. Raises WireError when it is given up."""
        while True:
            try:
                made = await self._try(before)
            except OSError as error:
                wait_s = self._reconnect.failed()
                if wait_s is None:
                    raise WireError(f"it could not be reached in {self._reconnect.failures} tries, last: {error}") from None
                await asyncio.sleep(wait_s)
            else:
                self._reconnect.worked()
                return made

    async def _try(self, before: FramesClientWire | None) -> tuple[FramesClientWire, WebsocketSocket, object, list[Received]]:
        options = self._options
        resume = before.resume_token if before is not None else ""
        hears, speaks = AudioFormat(options.hears), AudioFormat(options.speaks)
        wire = FramesClientWire(hears, speaks, token=options.token, who=options.who, resume=resume, told=options.told)
        socket = await self._open()
        try:
            await socket.send(wire.hello())
            async with asyncio.timeout(options.line.handshake_s):
                begun, rest = await handshake(wire, socket, options.line)
        except BaseException as error:
            await close_socket(socket, 1000, "", options.line.close_s)
            if isinstance(error, TimeoutError):
                raise OSError("the server did not say started in time") from None
            if isinstance(error, ConnectionError) and socket.closed_with is not None and socket.closed_with[0] not in TRY_AGAIN:
                code, reason = socket.closed_with
                raise WireError(f"the server refused: {reason or code}", code) from None
            if isinstance(error, ConnectionError) and socket.closed_with is not None:
                raise OSError(f"the server is not ready: {socket.closed_with[1] or socket.closed_with[0]}") from None
            raise
        self._wire = wire
        return wire, socket, begun, rest

    async def _open(self) -> WebsocketSocket:
        options = self._options
        headers = {"Authorization": f"Bearer {options.token}"} if options.token else {}
        tls: dict[str, Any] = {"ssl": options.tls} if options.tls is not None else {}
        try:
            async with asyncio.timeout(options.connect_s):
                connection = await connect(
                    self._url, additional_headers=headers, max_size=options.max_bytes, max_queue=256, write_limit=UNSENT,
                    ping_interval=options.ping_s or None, ping_timeout=options.ping_s or None, close_timeout=options.line.close_s,
                    compression=None, logger=SILENT, user_agent_header="voiceflow", **tls,
                )  # fmt: skip
        except InvalidStatus as error:
            status = error.response.status_code
            if status >= 500 or status == 429:
                raise OSError(f"the server answered {status}") from None
            raise WireError(
                f"the server refused: HTTP {status} {error.response.body.decode(errors='replace').strip()[:100]}", POLICY
            ) from None
        except InvalidHandshake as error:
            raise WireError(f"that is no websocket server: {type(error).__name__}") from None
        except InvalidURI:
            raise WireError("the address is not one of a websocket") from None
        except TimeoutError:
            raise OSError(f"no connection within {options.connect_s:g} s") from None
        return WebsocketSocket(connection)


class _Ear(LineIn):
    """Hears the far agent: 20 ms at a time, on the clock, silence where there is nothing. Reports how far it has come."""

    def __init__(self, wire: FramesClientWire, call: CallStarted, outbox: Outbox, options: CallOptions) -> None:
        super().__init__(wire.hears, call, live_s=options.queue_s)
        self._wire = wire
        self._outbox = outbox
        self._queue = bytearray()
        self._heard = self._reported = 0

    def deliver(self, frame: Frame, now: float) -> bool:
        """See LineIn."""
        if not isinstance(frame, InputAudioFrame):
            return super().deliver(frame, now)
        self._queue += frame.pcm
        over = len(self._queue) - 2 * round(self.live_s * frame.sample_rate)
        if over > 0:
            self._skip(over)
            self.dropped += 1
        return True

    def clear(self, now: float) -> None:
        """The far agent takes back what it said too early."""
        self._skip(len(self._queue))

    def start_again(self, wire: Wire) -> None:
        """See LineIn."""
        assert isinstance(wire, FramesClientWire)
        self._wire = wire
        self._queue.clear()
        self._heard = self._reported = 0

    async def run(self) -> AsyncIterator[Said]:
        """The sound, and between its blocks what else came."""
        assert self.makes is not None
        loop, rate = asyncio.get_running_loop(), self.makes.sample_rate
        size, ends = 2 * round(BLOCK_S * rate), loop.time()
        while True:
            ends = max(ends + BLOCK_S, loop.time())
            await asyncio.sleep(ends - loop.time())
            for frame in self.waiting():
                yield frame
            pcm = bytes(self._queue[:size])
            self._skip(len(pcm))
            self._report(rate)
            yield InputAudioFrame(pcm=pcm.ljust(size, b"\0"), sample_rate=rate, pts=ends - BLOCK_S)

    def _skip(self, count: int) -> None:
        del self._queue[:count]
        self._heard += count // 2

    def _report(self, rate: int) -> None:
        news = self._heard - self._reported
        if news and (not self._queue or news >= REPORT_EVERY_S * rate):
            self._reported = self._heard
            messages: list[Message] = self._wire.played(self._heard)
            self._outbox.put_first(messages, asyncio.get_running_loop().time())  # on a narrow line not behind seconds of our own sound
