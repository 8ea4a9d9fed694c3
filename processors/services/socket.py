"""WebSockets to services: the one module here that imports websockets.

The one rule: a connection is over when its ``async with`` is. Left by an error or a cancellation it is cut at once;
left in peace it says goodbye, but not for long.

``dial`` opens one connection; a ``Dialer`` opens it again, after pauses that grow while it fails:

    while True:
        async with await dialer.dial() as socket:   # raises ServiceError when it is given up
            try:
                await socket.send(...); await socket.receive(5.0)
                dialer.worked()                     # it is of use: failures are counted from the beginning
            except ServiceError as error:
                dialer.lost(error)                  # raises it when it is given up; else the next dial() waits
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus
from websockets.protocol import State

from voiceflow.backoff import Backoff
from voiceflow.processors.services.address import origin_of
from voiceflow.processors.services.retry import ServiceError, Verdict, failure_of_status, wait_after

__all__ = ["Dialer", "RefusedError", "Socket", "SocketClosedError", "SocketOptions", "WarmSocket", "dial"]

log = logging.getLogger("voiceflow")

_SILENT = logging.Logger("voiceflow.socket", logging.CRITICAL + 1)  # the library would log headers, and with them the key
NORMAL, GOING_AWAY = 1000, 1001
ERROR_BYTES = 16 * 1024
SETTLED_S = 10.0
"""A connection that has lasted so long was of use, even if nothing was said on it."""


@dataclass(frozen=True, slots=True)
class SocketOptions:
    """Of one connection."""

    open_s: float = 5.0
    """To be connected and accepted."""
    send_s: float = 3.0
    """For a message to find room. A server that does not read holds it up."""
    close_s: float = 0.5
    """For the server's goodbye."""
    ping_s: float | None = 20.0
    """Between pings. They find a connection that is dead although nobody said so. None: no pings."""
    pong_s: float = 20.0
    """For their answers. What was sent before has to be read first."""
    longest_bytes: int = 16 * 1024 * 1024
    """Of one message."""

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"SocketOptions: {name} is {value}; it must be more than 0")


class SocketClosedError(ServiceError):
    """The connection is over. ``code``, ``reason``: what the server said (1006, "": nothing). The reason may quote anything: show it to nobody."""

    def __init__(self, message: str, code: int, reason: str, *, verdict: Verdict = Verdict.LATER) -> None:
        super().__init__(message, verdict=verdict)
        self.code = code
        self.reason = reason


class RefusedError(ServiceError):
    """The server answered the opening with an HTTP status. ``body``: what it said, which may quote anything: show it to nobody."""

    def __init__(self, error: ServiceError, body: bytes) -> None:
        super().__init__(str(error), status=error.status, verdict=error.verdict, retry_after_s=error.retry_after_s)
        self.body = body


class Socket:
    """One open connection. ``async with``."""

    def __init__(self, connection: ClientConnection, where: str, options: SocketOptions) -> None:
        self.where = where
        self.opened_at = self.sent_at = asyncio.get_running_loop().time()
        """When it was opened, and when something was sent last, on the loop's clock."""
        self._connection = connection
        self._options = options
        self._cut = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if kind is not None:
            self.abort()
        await self.close()

    @property
    def is_open(self) -> bool:
        """As far as is known here."""
        return not self._cut and self._connection.close_code is None and self._connection.state is State.OPEN

    async def send(self, message: str | bytes) -> None:
        """Send text or bytes. Raises SocketClosedError, or ServiceError if the server takes nothing for ``send_s``."""
        try:
            async with asyncio.timeout(self._options.send_s):
                await self._connection.send(message)
        except TimeoutError:
            self.abort()
            raise ServiceError(f"{self.where} took nothing for {self._options.send_s:g} s", verdict=Verdict.LATER) from None
        except ConnectionClosed as error:
            raise self._closed(error) from None
        self.sent_at = asyncio.get_running_loop().time()

    async def receive(self, within_s: float | None, late: str = "nothing came") -> str | bytes:
        """The next message. Raises SocketClosedError, or ServiceError that says ``late`` if it takes longer. One task at a time."""
        try:
            async with asyncio.timeout(within_s):
                return await self._connection.recv()
        except TimeoutError:
            raise ServiceError(f"{self.where}: {late} within {within_s:g} s", verdict=Verdict.LATER) from None
        except ConnectionClosed as error:
            raise self._closed(error) from None

    async def keep_alive(self, every_s: float, message: Callable[[], str | bytes | None]) -> None:
        """Send what ``message()`` gives (None: nothing) whenever nothing was sent for ``every_s``. Returns when the connection is over.

        To be run as a task of the session's, or in a task group.
        """
        loop = asyncio.get_running_loop()
        checked_at = self.sent_at
        while self.is_open:
            due = max(self.sent_at, checked_at) + every_s
            if loop.time() < due:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout_at(due):
                        await self._connection.wait_closed()
                continue
            checked_at = loop.time()
            with contextlib.suppress(ServiceError):  # whoever receives hears of it
                if (said := message()) is not None:
                    await self.send(said)

    async def over(self) -> SocketClosedError:
        """Wait until the connection is over, without reading."""
        await self._connection.wait_closed()
        return self._closed(None)

    def abort(self) -> None:
        """Cut the connection, without a goodbye and without waiting."""
        self._cut = True
        self._connection.transport.abort()

    async def close(self) -> None:
        """Say goodbye, for ``close_s`` at most. Cancelled, or when the time is over, it is cut."""
        try:
            async with asyncio.timeout(self._options.close_s):
                await self._connection.close()
        except TimeoutError:
            pass
        finally:
            self.abort()
        await self._connection.wait_closed()

    def _closed(self, error: ConnectionClosed | None) -> SocketClosedError:
        code = self._connection.close_code if error is None or error.rcvd is None else error.rcvd.code
        reason = self._connection.close_reason if error is None or error.rcvd is None else error.rcvd.reason
        code = code or 1006
        how = "closed the connection" if code != 1006 else "broke the connection off"
        verdict = Verdict.AT_ONCE if code in (NORMAL, GOING_AWAY, 1006) else Verdict.LATER
        return SocketClosedError(f"{self.where} {how} ({code})", code, reason or "", verdict=verdict)


class _Connect(connect):
    """Goes nowhere else: a redirect would take the key along."""

    def process_redirect(self, exc: Exception) -> Exception | str:
        return exc


async def dial(url: str, headers: Mapping[str, str], options: SocketOptions | None = None) -> Socket:
    """Open a connection. Raises RefusedError with the HTTP status, or ServiceError if nobody listens or answers in time."""
    options, where = options or SocketOptions(), origin_of(url)
    opening = _Connect(
        url, additional_headers=dict(headers), compression=None, proxy=None, logger=_SILENT, open_timeout=options.open_s,
        ping_interval=options.ping_s, ping_timeout=options.pong_s, close_timeout=options.close_s, max_size=options.longest_bytes,
    )  # fmt: skip
    try:
        return Socket(await opening, where, options)
    except InvalidStatus as error:
        answer = error.response
        failure = failure_of_status(answer.status_code, {k.lower(): v for k, v in answer.headers.raw_items()}, where)
        raise RefusedError(failure, bytes(answer.body or b"")[:ERROR_BYTES]) from None
    except TimeoutError:
        raise ServiceError(f"{where} did not open a connection within {options.open_s:g} s", verdict=Verdict.LATER) from None
    except (InvalidHandshake, EOFError) as error:
        raise ServiceError(
            f"{where} does not speak WebSocket ({type(error).__name__}); is base_url right?", verdict=Verdict.LATER
        ) from None
    except (OSError, UnicodeError) as error:
        raise ServiceError(
            f"{where} cannot be reached ({type(error).__name__}); is it running, and is base_url right?", verdict=Verdict.LATER
        ) from error


class Dialer:
    """Opens a connection again and again, as its ``backoff`` allows. ``names``: what the vendor's refusals mean.

    ``url``: or what asks for it, each time, where a service gives an address for one connection.
    """

    def __init__(
        self,
        url: str | Callable[[], Awaitable[str]],
        headers: Mapping[str, str],
        backoff: Backoff,
        options: SocketOptions | None = None,
        names: Callable[[ServiceError], ServiceError] = lambda error: error,
    ) -> None:
        self._url = url
        self._headers = headers
        self._backoff = backoff
        self._options = options
        self._names = names
        self._not_before = float("-inf")
        self.dialled = 0
        """How often a connection was asked for."""

    async def dial(self) -> Socket:
        """A fresh connection, after what is left of the pause; tried again until it is there or given up. Raises ServiceError then."""
        while True:
            await asyncio.sleep(max(0.0, self._not_before - asyncio.get_running_loop().time()))
            self.dialled += 1
            try:
                url = self._url if isinstance(self._url, str) else await self._url()
                return await dial(url, self._headers, self._options)
            except ServiceError as error:
                self.lost(error)

    def worked(self) -> None:
        """The connection has proved to be of use."""
        self._backoff.worked()

    def lost(self, error: ServiceError) -> None:
        """The connection, or the try to make one, has failed. Raises the error, as the vendor would call it, if it is given up."""
        error = self._names(error)
        wait_s = wait_after(error, self._backoff)
        if wait_s is None:
            raise error
        self._not_before = asyncio.get_running_loop().time() + wait_s


class WarmSocket:
    """One connection that is open before it is needed, and made again when it is lost or taken away.

    ``keep`` is its one task, which the node spawns. ``borrow`` gives the connection to use and leaves it here; whoever finds
    it bad cuts it with ``abort``. ``take`` gives it away for good, and the next one is opened at once.
    """

    def __init__(self, dialer: Dialer) -> None:
        self.dialer = dialer
        self._socket: Socket | None = None
        self._failure: ServiceError | None = None
        self._news = asyncio.Event()
        """For those who wait for a connection."""
        self._wish = asyncio.Event()
        """For the task: a connection is wanted, or was taken."""

    async def keep(self) -> None:
        """Open, watch, open again; until cancelled. Then the connection says goodbye."""
        while True:
            try:
                self._socket = await self.dialer.dial()
                self._tell(None)
                await self._watch(self._socket)
            except ServiceError as error:
                log.warning("%s; the connection is tried again when it is needed", error)
                self._tell(error)
                self._wish.clear()
                await self._wish.wait()  # it was given up: tried again when somebody needs it

    async def _watch(self, socket: Socket) -> None:
        """Until it is taken away, or over. Raises ServiceError if it is given up."""
        over = asyncio.create_task(socket.over(), name="until the connection is over")
        try:
            while self._socket is socket and not over.done():
                self._wish.clear()
                wish = asyncio.create_task(self._wish.wait(), name="until the connection is wanted")
                try:
                    await asyncio.wait([over, wish], return_when=asyncio.FIRST_COMPLETED)
                finally:
                    await _ended(wish)
        finally:
            is_taken = self._socket is not socket
            if not is_taken:  # the connection is over, or the call
                self._socket = None
                await socket.close()
            await _ended(over)
        if not is_taken and not over.cancelled():
            if asyncio.get_running_loop().time() - socket.opened_at >= SETTLED_S:
                self.dialer.worked()
            self.dialer.lost(over.result())

    def _tell(self, error: ServiceError | None) -> None:
        self._failure = error
        self._news.set()

    async def borrow(self) -> Socket:
        """The connection, once it is open. Raises ServiceError if it was given up."""
        while self._socket is None or not self._socket.is_open:
            self._failure = None
            self._news.clear()
            self._wish.set()
            await self._news.wait()
            if self._failure is not None:
                raise self._failure
        return self._socket

    async def take(self) -> Socket:
        """The connection, once it is open; it is the caller's from now on. Raises ServiceError if it was given up."""
        socket = await self.borrow()
        self._socket = None
        self._wish.set()
        return socket


async def _ended(task: asyncio.Task[Any]) -> None:
    task.cancel()
    await asyncio.wait([task])
