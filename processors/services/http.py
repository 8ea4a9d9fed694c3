"""HTTP for services: the one module that imports aiohttp.

The one rule: a request is over when its ``async with`` is. Left early it closes its connection, which is how a server
learns that nobody listens any more; read to its end, the connection goes back to the pool.

All nodes of a session that talk to one host share one pool of connections.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

import aiohttp

from voiceflow.processors.services.address import origin_of
from voiceflow.processors.services.retry import ServiceError, Verdict, failure_of_status, problem_in
from voiceflow.session import Session

__all__ = ["Answer", "Deadlines", "HttpClient"]

KEPT_S = 60.0
"""An idle connection is kept so long: a caller may think for a while."""
LEFTOVER_S = 0.05
"""A stream that has said all it has to say is given so long to end, so that its connection can be used again."""
ERROR_BYTES = 16 * 1024


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Of one request."""

    connect_s: float = 3.0
    first_s: float = 5.0
    """From the request to the first token; what merely keeps the connection alive is none. For a model that thinks without showing it: more."""
    idle_s: float = 3.0
    """Between two tokens."""

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if not getattr(self, name) > 0:
                raise ValueError(f"Deadlines: {name} is {getattr(self, name)}; it must be more than 0 seconds")


class Answer:
    """A response whose body is being read."""

    def __init__(self, response: aiohttp.ClientResponse, where: str, deadlines: Deadlines) -> None:
        self._response = response
        self._where = where
        self._deadlines = deadlines

    @property
    def is_json(self) -> bool:
        """Of a server that does not stream."""
        return self._response.content_type == "application/json"

    async def read(self, within_s: float, late: str) -> bytes:
        """What has come, or comes next; nothing at the end. Raises ServiceError that says ``late`` if it takes longer, or if the answer breaks off."""
        try:
            async with asyncio.timeout(within_s):
                return await self._response.content.readany()
        except TimeoutError as error:
            raise ServiceError(f"{self._where}: {late}; the request was given up") from error
        except (aiohttp.ClientError, OSError) as error:
            what = f"{self._where} broke off in the middle of its answer ({type(error).__name__})"
            raise ServiceError(what, verdict=Verdict.LATER) from error

    async def drain(self) -> None:
        """Read what is left, if it comes at once."""
        with contextlib.suppress(TimeoutError, aiohttp.ClientError, OSError):
            async with asyncio.timeout(LEFTOVER_S):
                while await self._response.content.readany():
                    pass

    async def problem(self) -> tuple[str, str]:
        """``code`` and ``type`` in the body of an error, as far as there are."""
        with contextlib.suppress(TimeoutError, aiohttp.ClientError, OSError, ValueError, RecursionError):
            async with asyncio.timeout(self._deadlines.idle_s):
                body = json.loads(await self._response.content.read(ERROR_BYTES))
            if isinstance(body, dict):
                return problem_in(body)
        return "", ""


class HttpClient:
    """Posts JSON to one host. ``async with``; all clients of a session for that host share its connections."""

    _pools: ClassVar[WeakKeyDictionary[Session, dict[str, tuple[aiohttp.ClientSession, list[HttpClient]]]]] = WeakKeyDictionary()

    def __init__(self, session: Session, url: str, deadlines: Deadlines) -> None:
        self._owner = session
        self._origin = origin_of(url)
        self._deadlines = deadlines
        self._http: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> HttpClient:
        pools = self._pools.setdefault(self._owner, {})
        if self._origin not in pools:
            pools[self._origin] = (_client(), [])
        self._http, users = pools[self._origin]
        users.append(self)
        return self

    async def __aexit__(self, *error: object) -> None:
        pools = self._pools.get(self._owner, {})
        http, users = pools.get(self._origin, (None, []))
        if self in users:
            users.remove(self)
        if http is not None and not users:
            del pools[self._origin]
            await http.close()
        self._http = None

    async def warm(self) -> None:
        """Open a connection before it is needed, by a request that asks for nothing; what comes of it does not matter."""
        assert self._http is not None, "a node enters its client in start()"
        with contextlib.suppress(TimeoutError, aiohttp.ClientError, OSError):
            async with asyncio.timeout(self._deadlines.connect_s), self._http.head(self._origin, allow_redirects=False):
                pass

    @contextlib.asynccontextmanager
    async def post(
        self, url: str, body: Mapping[str, Any], headers: Mapping[str, str], until: float, hints: Mapping[int | str, str] | None = None
    ) -> AsyncIterator[Answer]:
        """The answer, by ``until`` on the loop's clock. Raises ServiceError if there is none, or its status says that it is refused.

        Leaving it early, by a cancellation too, closes the connection at once.
        """
        assert self._http is not None, "a node enters its client in start()"
        where = origin_of(url)
        response = await self._begin(self._http, url, body, headers, until)
        try:
            answer = Answer(response, where, self._deadlines)
            if response.status not in (200, 201):
                raise failure_of_status(response.status, response.headers, where, *await answer.problem(), hints=hints)
            yield answer
            await answer.drain()
        finally:
            if not response.content.at_eof():
                response.close()

    async def _begin(
        self, http: aiohttp.ClientSession, url: str, body: Mapping[str, Any], headers: Mapping[str, str], until: float
    ) -> aiohttp.ClientResponse:
        where = origin_of(url)
        timeout = aiohttp.ClientTimeout(total=None, connect=None, sock_connect=self._deadlines.connect_s)
        try:
            async with asyncio.timeout_at(until):
                return await http.post(url, json=body, headers=headers, allow_redirects=False, timeout=timeout)
        except aiohttp.ConnectionTimeoutError as error:
            raise ServiceError(f"{where} cannot be reached within {self._deadlines.connect_s:g} s", verdict=Verdict.LATER) from error
        except TimeoutError as error:
            raise ServiceError(f"{where}: no answer within {self._deadlines.first_s:g} s; the request was given up") from error
        except aiohttp.ServerDisconnectedError as error:
            raise ServiceError(f"{where} closed the connection without an answer", verdict=Verdict.AT_ONCE) from error
        except (aiohttp.ClientError, OSError) as error:
            raise ServiceError(
                f"{where} cannot be reached ({type(error).__name__}); is it running, and is base_url right?", verdict=Verdict.LATER
            ) from error


def _client() -> aiohttp.ClientSession:
    """Without cookies, redirects or a deadline for the whole; ``limit`` is of one session's requests to one host."""
    connector = aiohttp.TCPConnector(limit=16, keepalive_timeout=KEPT_S)
    headers = {"Accept": "text/event-stream", "Accept-Encoding": "identity"}  # compression makes some servers hold pieces back
    return aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar(), headers=headers)
