"""A scripted HTTP service that streams its answers: what the servers of language models share.

It notes each request and what became of it, and answers by a script: chunks, bytes, and what goes wrong between them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from aiohttp import web


@dataclass(frozen=True, slots=True)
class Pause:
    """Nothing is sent for so long."""

    seconds: float


class Cut:
    """The connection breaks here."""


class Silence:
    """Nothing more is ever sent."""


Step = dict[str, Any] | bytes | Pause | Cut | Silence


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer. ``steps``: chunks (events are made of them), raw bytes, and what happens between them."""

    steps: Sequence[Step] = ()
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Mapping[str, Any] | None = None
    """Of an answer that does not stream."""
    chunk_bytes: int | None = None
    """Send in pieces of this size instead of one piece a step."""
    done: bool = True


@dataclass(slots=True)
class Asked:
    """A request, and what became of it."""

    at: float
    body: dict[str, Any]
    headers: Mapping[str, str]
    peer: object
    sent: int = 0
    """Steps that were sent."""
    left_at: float | None = None
    """When the client closed the connection before the end."""


class StreamServer:
    """``async with``. ``script``: gives the n-th request's reply. A service is a subclass that says what it takes and how it writes."""

    path = ""

    def __init__(self, script: Callable[[dict[str, Any]], Reply] | Iterable[Reply], *, key: str | None) -> None:
        replies = script if callable(script) else iter(script)
        self._reply: Callable[[dict[str, Any]], Reply] = replies if callable(replies) else lambda body: next(replies)
        self.key = key
        self.asked: list[Asked] = []
        self.origin = ""
        self.before_headers_s = 0.0
        """An answer's headers come so long after its request."""
        self._runner: web.AppRunner | None = None

    def refusal(self, headers: Mapping[str, str], body: dict[str, Any]) -> web.Response | None:
        """What the vendor would refuse this request with."""
        raise NotImplementedError

    def encode(self, step: dict[str, Any]) -> bytes:
        """A chunk as it is sent."""
        raise NotImplementedError

    def last(self) -> bytes:
        """What ends a stream."""
        return b""

    @property
    def connections(self) -> int:
        """From so many connections requests have come."""
        return len({asked.peer for asked in self.asked})

    @property
    def open_connections(self) -> int:
        """So many are open, used or not."""
        assert self._runner is not None
        assert self._runner.server is not None
        return len(self._runner.server.connections)

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_post(self.path, self._answer)
        self._runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.origin = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *error: object) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        assert request.transport is not None
        peer = request.transport.get_extra_info("peername")
        asked = Asked(asyncio.get_running_loop().time(), body, request.headers.copy(), peer)
        self.asked.append(asked)
        if refused := self.refusal(request.headers, body):
            return refused
        reply = self._reply(body)
        if reply.status != 200 or reply.body is not None:
            return web.json_response(reply.body or {}, status=reply.status, headers=reply.headers)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8", **reply.headers})
        try:
            await asyncio.sleep(self.before_headers_s)
            await response.prepare(request)
            await self._send(request, response, reply, asked)
        except (asyncio.CancelledError, ConnectionError):
            asked.left_at = asyncio.get_running_loop().time()
            raise
        return response

    async def _send(self, request: web.Request, response: web.StreamResponse, reply: Reply, asked: Asked) -> None:
        steps: list[Step] = [*reply.steps, *([self.last()] if reply.done and self.last() else [])]
        if reply.chunk_bytes is not None:
            whole = b"".join(self._bytes(step) for step in steps if isinstance(step, dict | bytes))
            steps = [whole[at : at + reply.chunk_bytes] for at in range(0, len(whole), reply.chunk_bytes)]
        for step in steps:
            if isinstance(step, Pause):
                await asyncio.sleep(step.seconds)
            elif isinstance(step, Cut):
                assert request.transport is not None
                request.transport.abort()
                return
            elif isinstance(step, Silence):
                await asyncio.Event().wait()
            else:
                await response.write(self._bytes(step))
                asked.sent += 1
                await asyncio.sleep(0)

    def _bytes(self, step: dict[str, Any] | bytes) -> bytes:
        return step if isinstance(step, bytes) else self.encode(step)
