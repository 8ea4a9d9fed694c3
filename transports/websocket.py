"""Calls over websockets: a server of their own port, and the socket of a line on the ``websockets`` library.

The one rule: who calls is checked before anything is read from them: path, origin, token. After that each call is ``line.answer``'s.
What is spoken stands in ``docs/websocket.md``; behind an aiohttp server the same is ``voiceflow.transports.web.socket``.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import Self
from urllib.parse import urlsplit

from websockets.asyncio.connection import Connection
from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response
from websockets.protocol import State

from voiceflow.transports.access import bearer, origin_allowed, same
from voiceflow.transports.calls import Calls
from voiceflow.transports.connection import UNSENT, keep_little_unsent
from voiceflow.transports.line import LineOptions, Lines, answer
from voiceflow.transports.wire import Message, Wire
from voiceflow.transports.wire_frames import FramesOptions, FramesWire

__all__ = ["SILENT", "WebsocketOptions", "WebsocketServer", "WebsocketSocket"]

SILENT = logging.Logger("voiceflow.websocket")
"""The library's own log shows headers and addresses, and with them tokens; what is worth saying is in the line of each call."""
SILENT.disabled = True


@dataclass(frozen=True, slots=True)
class WebsocketOptions:
    """Where the server listens, and who may call.

    ``token``: whoever calls has to show it, in ``Authorization: Bearer`` or in its first message. ``origins``: pages that may call from a
    browser, as ``https://example.org``; without any, all may that show the token, and without a token only pages of this host.
    ``max_bytes``: of a message. ``ping_s``: a client that answers no ping for so long is lost; 0 for no pings. ``shared``: other processes
    listen on the same port (SO_REUSEPORT).

    Raises:
        ValueError: a port or a size that is none.
    """

    host: str = "127.0.0.1"
    port: int = 8765
    path: str = "/call"
    token: str = field(default="", repr=False)
    origins: tuple[str, ...] = ()
    max_bytes: int = 1 << 17
    ping_s: float = 5.0
    handshake_s: float = 10.0
    shared: bool = False
    tls: ssl.SSLContext | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise ValueError(f"WebsocketOptions: port is {self.port}, it must be 0 (any that is free) to 65535")
        if self.max_bytes < 1024:
            raise ValueError(f"WebsocketOptions: max_bytes is {self.max_bytes}, it must be 1024 or more")
        if self.ping_s < 0 or self.handshake_s <= 0:
            raise ValueError("WebsocketOptions: ping_s must not be negative, and handshake_s must be more than 0")

    @property
    def url(self) -> str:
        """Where a client on this machine finds it."""
        host = "127.0.0.1" if self.host in ("", "0.0.0.0", "::") else self.host
        return f"{'wss' if self.tls else 'ws'}://{f'[{host}]' if ':' in host else host}:{self.port}{self.path}"


class WebsocketSocket:
    """The ``Socket`` of a line, on a connection of ``websockets``, either side's."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._closing = False
        self.lost = False
        self.closed_with: tuple[int, str] | None = None
        """The far end's close code and reason, once it has said them."""
        keep_little_unsent(connection.transport.get_extra_info("socket"))

    async def receive(self) -> Message | None:
        """See Socket."""
        try:
            return await self._connection.recv()
        except ConnectionClosed as closed:
            self._note(closed)
            return None

    async def send(self, message: Message) -> None:
        """See Socket."""
        try:
            await self._connection.send(message)
        except (ConnectionClosed, AttributeError) as closed:
            self._note(self._is_closed(closed))
            raise ConnectionError("the websocket is closed") from None

    async def close(self, code: int, reason: str) -> None:
        """See Socket."""
        self._closing = True
        try:
            await self._connection.close(code, reason)
        except AttributeError as error:
            self._is_closed(error)
        except asyncio.CancelledError:
            self._connection.transport.abort()
            raise

    def _is_closed(self, error: ConnectionClosed | AttributeError) -> ConnectionClosed:
        """Before Python 3.12 a transport that closed with bytes unsent cannot be aborted, as the library does: AttributeError. Raises others."""
        if isinstance(error, ConnectionClosed):
            return error
        if self._connection.state is not State.CLOSED:
            raise error
        return self._connection.protocol.close_exc

    def _note(self, closed: ConnectionClosed) -> None:
        if closed.rcvd is not None:
            self.closed_with = closed.rcvd.code, closed.rcvd.reason
        # 1011 is what the library says, to nobody, when a ping was not answered; any other code of ours answers a fault of the far end.
        self.lost = not self._closing and closed.rcvd is None and (closed.sent is None or closed.sent.code == 1011)


class WebsocketServer:
    """Answers calls on one port. ``async with WebsocketServer(calls, options) as server:`` listens; ``server.options`` has the real port.

    ``frames``: of our own protocol. ``wire``: makes the wire of each connection in its place, for another far end's protocol; it is
    given whether the token was shown.
    """

    def __init__(
        self,
        calls: Calls,
        options: WebsocketOptions | None = None,
        *,
        line: LineOptions | None = None,
        frames: FramesOptions | None = None,
        wire: Callable[[bool], Wire] | None = None,
    ) -> None:
        self.options = options or WebsocketOptions()
        """With the port it really listens on, once it does."""
        self.calls = calls
        self.lines = Lines()
        self._line = line or LineOptions(handshake_s=self.options.handshake_s)
        frames = replace(frames or FramesOptions(), token=self.options.token)
        self._wire = wire or (lambda shown: FramesWire(frames, shown=shown))
        self._server: Server | None = None

    async def start(self) -> None:
        """Listen. Raises OSError if the port cannot be had."""
        options = self.options
        self._server = await serve(
            self._answer, options.host or None, options.port, process_request=self._check, open_timeout=options.handshake_s,
            max_size=options.max_bytes, max_queue=64, write_limit=UNSENT, compression=None, logger=SILENT, server_header=None,
            ping_interval=options.ping_s or None, ping_timeout=options.ping_s or None, close_timeout=self._line.close_s,
            ssl=options.tls, reuse_port=options.shared or None,
        )  # fmt: skip
        self.options = replace(options, port=self._server.sockets[0].getsockname()[1])

    async def shut_doors(self) -> None:
        """Take no new connection; those there are stay."""
        if self._server is not None:
            self._server.server.close()

    async def close(self) -> None:
        """Take no new connection, and hang up on those there are: ``Calls.drain`` first lets calls end their way."""
        if self._server is not None:
            server, self._server = self._server, None
            server.close()
            await server.wait_closed()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _check(self, connection: ServerConnection, request: Request) -> Response | None:
        options = self.options
        if _path(request) != options.path:
            return connection.respond(HTTPStatus.NOT_FOUND, f"calls are taken at {options.path}\n")
        if not origin_allowed(_header(request, "Origin"), _header(request, "Host"), options.origins, has_token=bool(options.token)):
            return connection.respond(HTTPStatus.FORBIDDEN, "a page of that origin may not call this server\n")
        if options.token and _header(request, "Authorization") and not self._is_shown_token(request):
            return connection.respond(HTTPStatus.UNAUTHORIZED, "that is not this server's token\n")
        return None

    def _is_shown_token(self, request: Request) -> bool:
        given = bearer(_header(request, "Authorization"))
        return given is not None and same(given, self.options.token)

    async def _answer(self, connection: ServerConnection) -> None:
        request = connection.request
        shown = request is not None and self._is_shown_token(request)
        host, port = connection.remote_address[:2]
        await answer(self._wire(shown), WebsocketSocket(connection), self.calls, self._line, who=f"{host}:{port}", lines=self.lines)


def _path(request: Request) -> str:
    """Without the query; "" where what is asked for is no address."""
    try:
        return urlsplit(request.path).path
    except ValueError:  # //[
        return ""


def _header(request: Request, name: str) -> str:
    """Of this name, "" if there is none. One that came twice is one list, as HTTP has it, and then neither token nor origin."""
    return ", ".join(request.headers.get_all(name))
