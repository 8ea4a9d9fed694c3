"""Carriers on an HTTP server: for each account a webhook, and the websocket that its answer names.

The one rule: a stream is opened only with a ticket that a signed webhook was given, and each ticket opens one.

A call that the carrier did not end itself is hung up by REST when it is over, once, whoever let go of the socket.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from aiohttp import web

from voiceflow.tasks import whatever_happens
from voiceflow.transports.calls import Calls
from voiceflow.transports.connection import UNSENT
from voiceflow.transports.line import LineOptions, answer
from voiceflow.transports.telephony.carrier import Carrier
from voiceflow.transports.telephony.rest import Rest
from voiceflow.transports.telephony.tickets import Tickets
from voiceflow.transports.telephony.webhook import Account, RefusedError, Request, respond
from voiceflow.transports.web.socket import AiohttpSocket
from voiceflow.transports.wire import Message

__all__ = ["TelephonyOptions", "routes"]

log = logging.getLogger("voiceflow")


@dataclass(frozen=True, slots=True)
class TelephonyOptions:
    """``public_url``: where the carriers find this server, ``https://host``; what a proxy in front of it takes off the path too.

    ``accounts``: one or more, each with a name of its own. ``path``: below it stand ``/NAME`` (webhook) and
    ``/NAME/stream/TICKET`` (websocket). ``secret``: of the tickets, the same in all processes behind ``public_url``; None: of this
    process. ``ticket_s``: how long one is good. ``quiet_s``: a socket on which nothing comes for so long is taken for lost.
    """

    public_url: str
    accounts: Sequence[Account]
    path: str = "/telephony"
    secret: bytes | None = field(default=None, repr=False)
    ticket_s: float = 60.0
    quiet_s: float = 60.0
    rest_timeout_s: float = 5.0
    line: LineOptions = field(default_factory=LineOptions)
    unix_time: Callable[[], float] = time.time
    """For signatures, which carry a date."""

    def __post_init__(self) -> None:
        url = urlsplit(self.public_url)
        if not self.public_url.startswith(("http://", "https://")) or not url.netloc or url.query or url.fragment or url.path.endswith("/"):
            raise ValueError(
                f"TelephonyOptions: public_url is {self.public_url!r}, it must be like https://host or https://host/path, without a / behind"
            )
        if not self.path.startswith("/") or self.path.endswith("/"):
            raise ValueError(f"TelephonyOptions: path is {self.path!r}, it must begin with / and not end with it")
        names = [account.name for account in self.accounts]
        if not names or len(set(names)) < len(names):
            raise ValueError(f"TelephonyOptions: accounts are {names}; there must be one, and each must have a name of its own")
        for name in ("quiet_s", "rest_timeout_s"):
            if getattr(self, name) <= 0:
                raise ValueError(f"TelephonyOptions: {name} is {getattr(self, name)}, it must be more than 0 seconds")


def routes(calls: Calls, options: TelephonyOptions) -> list[web.RouteDef]:
    """Webhook and websocket of each account. They see to it themselves who may come in."""
    tickets = Tickets(options.secret, options.ticket_s)
    found: list[web.RouteDef] = []
    for account in options.accounts:
        door = _Door(account, calls, options, tickets)
        found += [
            web.post(f"{options.path}/{account.name}", door.webhook),
            web.get(f"{options.path}/{account.name}", door.webhook),
            web.get(f"{options.path}/{account.name}/stream/{{ticket}}", door.stream),
        ]
    return found


class _Door:
    """The two routes of one account."""

    def __init__(self, account: Account, calls: Calls, options: TelephonyOptions, tickets: Tickets) -> None:
        self.account = account
        self.calls = calls
        self.options = options
        self.tickets = tickets

    async def webhook(self, request: web.Request) -> web.Response:
        """An incoming call, or something else that the carrier has to say."""
        options, name = self.options, self.account.name
        now = options.unix_time()
        # As it came, not as it is quoted best: the carrier signed each letter.
        path = request.raw_path if request.raw_path.startswith("/") else request.rel_url.raw_path_qs
        told = Request(request.method, options.public_url + path, request.headers, await request.read(), now)
        busy = self.calls.refusal()
        stream_url = None if busy else self._stream_url(self.tickets.issue(name, now))
        try:
            answered = respond(self.account, told, stream_url)
        except RefusedError as refused:
            log.warning("%s: a webhook was refused: %s", name, refused)
            return web.Response(status=refused.status)
        if answered.then is not None:
            async with Rest(options.rest_timeout_s) as rest:
                if not await rest.send(answered.then, f"{name}: taking a call"):
                    return web.Response(status=502)
        return web.Response(text=answered.body, content_type=answered.content_type, charset="utf-8")

    def _stream_url(self, ticket: str) -> str:
        options = self.options
        return f"ws{options.public_url.removeprefix('http')}{options.path}/{self.account.name}/stream/{ticket}"

    async def stream(self, request: web.Request) -> web.StreamResponse:
        """The media of one call."""
        name = self.account.name
        socket = web.WebSocketResponse(compress=False, timeout=self.options.line.close_s, writer_limit=UNSENT)
        if not socket.can_prepare(request):
            raise web.HTTPBadRequest(text="this is the address of a websocket")
        if not self.tickets.take(request.match_info["ticket"], name, self.options.unix_time()):
            log.warning("%s: a stream was refused: its ticket is not ours, too old or used", name)
            raise web.HTTPForbidden
        await socket.prepare(request)
        wire = self.account.wire()
        try:
            await answer(wire, _CarrierSocket(socket, request, self.options.quiet_s), self.calls, self.options.line)
        finally:
            await whatever_happens(self._hang_up(wire))
        return socket

    async def _hang_up(self, wire: Carrier) -> None:
        if wire.stopped or not wire.call:
            return
        request = self.account.hang_up(wire.call, self.options.unix_time())
        if request is not None:
            async with Rest(self.options.rest_timeout_s) as rest:
                await rest.send(request, f"{wire.name}: hanging up the call {wire.call[:64]!r}")


class _CarrierSocket(AiohttpSocket):
    """A carrier sends sound all the time: where nothing comes for so long, nobody is there."""

    def __init__(self, websocket: web.WebSocketResponse, request: web.Request, quiet_s: float) -> None:
        super().__init__(websocket, request)
        self._quiet_s = quiet_s

    async def receive(self) -> Message | None:
        """The next message; None once it is closed, or was silent for too long."""
        try:
            async with asyncio.timeout(self._quiet_s):
                return await super().receive()
        except TimeoutError:
            log.warning("nothing came on a carrier's socket for %g s: it is taken for lost", self._quiet_s)
            self.lost = True
            return None
