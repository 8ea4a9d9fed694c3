"""The same calls behind an aiohttp server: the socket of a line on a websocket of ``aiohttp``, and a handler that answers it.

The one rule: who may call is the server's to check before it comes here; what is spoken is ``wire_frames``'s, and stands in
``docs/websocket.md``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from aiohttp import WebSocketError, WSCloseCode, WSMsgType, web

from voiceflow.transports.calls import Calls
from voiceflow.transports.connection import UNSENT, keep_little_unsent
from voiceflow.transports.line import LineOptions, Lines, answer
from voiceflow.transports.wire import Message, Wire
from voiceflow.transports.wire_frames import FramesOptions, FramesWire

__all__ = ["AiohttpSocket", "call_handler"]

MAX_BYTES = 1 << 17
"""Of a message."""

PING_S = 5.0
"""A client that answers no ping within half of it is lost."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class AiohttpSocket:
    """The ``Socket`` of a line, on a request whose websocket has been prepared."""

    def __init__(self, websocket: web.WebSocketResponse, request: web.Request) -> None:
        self._websocket = websocket
        self._transport = request.transport
        self._closing = False
        self.lost = False
        if self._transport is not None:
            self._transport.set_write_buffer_limits(high=UNSENT)
            keep_little_unsent(self._transport.get_extra_info("socket"))

    async def receive(self) -> Message | None:
        """See Socket."""
        if not self._websocket.closed:
            message = await self._websocket.receive()
            if message.type in (WSMsgType.TEXT, WSMsgType.BINARY):
                data: Message = message.data
                return data
            if message.type is WSMsgType.CLOSED or (message.type is WSMsgType.ERROR and not isinstance(message.data, WebSocketError)):
                self._note_lost()
        elif self._websocket.close_code == WSCloseCode.ABNORMAL_CLOSURE:  # a ping was not answered
            self._note_lost()
        return None

    async def send(self, message: Message) -> None:
        """See Socket."""
        try:
            if isinstance(message, bytes):
                await self._websocket.send_bytes(message)
            else:
                await self._websocket.send_str(message)
        except ConnectionError:
            if self._websocket.close_code in (None, WSCloseCode.ABNORMAL_CLOSURE):
                self._note_lost()
            raise

    def _note_lost(self) -> None:
        self.lost = self.lost or not self._closing

    async def close(self, code: int, reason: str) -> None:
        """See Socket."""
        self._closing = True
        try:
            await self._websocket.close(code=code, message=reason.encode())
        except asyncio.CancelledError:
            if self._transport is not None:
                self._transport.abort()  # it would wait for a far end that takes nothing
            raise


def call_handler(
    calls: Calls, *, line: LineOptions | None = None, frames: FramesOptions | None = None, wire: Callable[[], Wire] | None = None
) -> Handler:
    """A handler for a route of an aiohttp server: each websocket that comes there is a call.

    ``frames``: of our own protocol; its token, if there is one, has to be in the client's first message, unless the server checked one
    before. ``wire``: makes the wire of each connection in its place, for another far end's protocol. When the server stops, the calls
    have to be drained first (``Calls.drain``): a handler lasts as long as its call.
    """
    options = line or LineOptions()
    make = wire or (lambda: FramesWire(frames))
    lines = Lines()

    async def handle(request: web.Request) -> web.StreamResponse:
        websocket = web.WebSocketResponse(
            heartbeat=PING_S, max_msg_size=MAX_BYTES, compress=False, timeout=options.close_s, writer_limit=UNSENT
        )
        await websocket.prepare(request)
        await answer(make(), AiohttpSocket(websocket, request), calls, options, who=request.remote or "", lines=lines)
        return websocket

    return handle
