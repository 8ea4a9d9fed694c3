"""The web server of ``voiceflow serve``: the page, whether the server is well, and the doors by which calls come in.

Its one rule: it holds no call. Whoever does gives it routes, and it says who may walk through them.

The page is plain files in ``page/``, read when the server is made: what it serves cannot change under a running call.
"""

from __future__ import annotations

import hashlib
import mimetypes
import re
import ssl
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from aiohttp import hdrs, web

from voiceflow.transports.access import bearer, origin_allowed, same

__all__ = ["PAGE", "ServerOptions", "WebServer"]

PAGE = Path(__file__).parent / "page"

GRACE_S = 2.0
"""What still runs of a request when the server closes may go on for so long."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_HOST = re.compile(r"[A-Za-z0-9.:\[\]_-]{1,255}")

_SECURITY = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "microphone=(self), camera=(), geolocation=()",
}


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """Where it listens, and who may call.

    ``token``: whoever calls has to show it, in ``Authorization: Bearer`` or as ``?token=``, which is what a browser can do
    on a websocket. Without one only pages of this server itself may call from a browser. ``shared``: other processes
    listen on the same port (SO_REUSEPORT). ``tls``: for HTTPS.

    Raises:
        ValueError: a port that is none.
    """

    host: str = "127.0.0.1"
    port: int = 8080
    token: str = field(default="", repr=False)
    shared: bool = False
    tls: ssl.SSLContext | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise ValueError(f"ServerOptions: port is {self.port}, it must be 0 (any that is free) to 65535")

    @property
    def address(self) -> str:
        """Where a browser on this machine finds the page: ``localhost``, where it may use the microphone without HTTPS, if it can."""
        host = "localhost" if self.host in ("", "0.0.0.0", "::", "127.0.0.1", "::1") else self.host
        return f"{'https' if self.tls else 'http'}://{f'[{host}]' if ':' in host else host}:{self.port}/"


class WebServer:
    """``doors``: routes by which calls come in, guarded by token and origin. ``routes``: others, which see to that themselves.

    ``about``: what the page is told of the agent (``/page.json``). ``health``: what ``/health`` says; where its ``ready`` is
    false the answer is a 503, so that a balancer sends nobody here any more; ``full``: no call more fits in. Both are made
    anew for each request. ``/may-call`` answers as a door would, since a browser hides from the page why a socket was
    refused: 204, or 401, 403, 429 (full), 503 (not ready).
    """

    def __init__(
        self,
        options: ServerOptions,
        *,
        about: Callable[[], Mapping[str, Any]],
        health: Callable[[], Mapping[str, Any]],
        doors: Iterable[web.RouteDef] = (),
        routes: Iterable[web.RouteDef] = (),
    ) -> None:
        self.options = options
        """With the port it really listens on, once it does."""
        self._about = about
        self._health = health
        self.application = web.Application(middlewares=[_with_headers])
        add = self.application.router
        for path in sorted(PAGE.iterdir()):
            add.add_get(f"/{path.name}", _StaticFile(path).serve)
        add.add_get("/", _StaticFile(PAGE / "index.html").serve)
        add.add_get("/page.json", self._say_about)
        add.add_get("/health", self._say_health)
        self.application.add_routes([self._guarded(door) for door in [web.get("/may-call", self._say_may_call), *doors]])
        self.application.add_routes(list(routes))
        self._runner = web.AppRunner(self.application, access_log=None, shutdown_timeout=GRACE_S)  # an address may hold a token
        self._site: web.TCPSite | None = None

    async def start(self) -> None:
        """Listen. Raises OSError if the port cannot be had."""
        await self._runner.setup()
        options = self.options
        self._site = web.TCPSite(
            self._runner, options.host or None, options.port, ssl_context=options.tls, reuse_port=options.shared or None
        )
        try:
            await self._site.start()
        except BaseException:
            await self._runner.cleanup()
            raise
        self.options = replace(options, port=self._runner.addresses[0][1])

    async def shut_doors(self) -> None:
        """Take no new connection; those there are stay."""
        if self._site is not None:
            await self._site.stop()
            self._site = None

    async def close(self) -> None:
        """Close every connection, and wait until its handler has ended, up to a few seconds."""
        await self._runner.cleanup()
        self._site = None

    # ------------------------------------------------------------------------------------------- who may come in

    def _guarded(self, door: web.RouteDef) -> web.RouteDef:
        handler = door.handler

        async def guarded(request: web.Request) -> web.StreamResponse:
            self._check(request)
            response: web.StreamResponse = await handler(request)
            return response

        return web.RouteDef(door.method, door.path, guarded, door.kwargs)

    def _check(self, request: web.Request) -> None:
        token, origin = self.options.token, request.headers.get(hdrs.ORIGIN, "")
        if not origin_allowed(origin, request.host, (), has_token=bool(token)):
            raise web.HTTPForbidden(text=f"a page of {origin[:200]!r} may not call this server: start it with a token")
        given = bearer(request.headers.get(hdrs.AUTHORIZATION, ""))
        if token and not same(request.query.get("token", "") if given is None else given, token):
            raise web.HTTPUnauthorized(
                text="this server wants its token: Authorization: Bearer TOKEN, or ?token=TOKEN", headers={"WWW-Authenticate": "Bearer"}
            )

    # ------------------------------------------------------------------------------------------------- what it says

    async def _say_about(self, request: web.Request) -> web.Response:
        return web.json_response(dict(self._about()), headers={"Cache-Control": "no-store"})

    async def _say_health(self, request: web.Request) -> web.Response:
        said = dict(self._health())
        return web.json_response(said, status=200 if said.get("ready") else 503, headers={"Cache-Control": "no-store"})

    async def _say_may_call(self, request: web.Request) -> web.Response:
        said = self._health()
        status = 503 if not said.get("ready") else 429 if said.get("full") else 204
        return web.Response(status=status, headers={"Cache-Control": "no-store"})


class _StaticFile:
    """One file of the page, read once. The browser asks each time whether it changed, and is told so by its hash."""

    def __init__(self, path: Path) -> None:
        self.body = path.read_bytes()
        self.tag = hashlib.sha256(self.body).hexdigest()[:32]
        kind = {".js": "text/javascript"}.get(path.suffix) or mimetypes.types_map.get(path.suffix, "application/octet-stream")
        text = kind.startswith("text/") or kind == "image/svg+xml"
        self.headers = {"Content-Type": f"{kind}; charset=utf-8" if text else kind, "Cache-Control": "no-cache", "ETag": f'"{self.tag}"'}

    async def serve(self, request: web.Request) -> web.Response:
        """The file, or that it is as it was."""
        known = {etag.value for etag in request.if_none_match or ()}
        if known & {self.tag, "*"}:
            return web.Response(status=304, headers=self.headers)
        return web.Response(body=self.body, headers=self.headers)


@web.middleware
async def _with_headers(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        response = await handler(request)
    except web.HTTPException as refusal:
        _add_headers(request, refusal.headers)
        raise
    if not response.prepared:
        _add_headers(request, response.headers)
    return response


def _add_headers(request: web.Request, headers: Any) -> None:
    for name, value in _SECURITY.items():
        headers.setdefault(name, value)
    # Not every browser takes 'self' to cover websockets, so they are named.
    host = request.host if _HOST.fullmatch(request.host) else ""
    sockets = f" ws://{host} wss://{host}" if host else ""
    headers.setdefault(
        "Content-Security-Policy",
        f"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'{sockets}; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    )
