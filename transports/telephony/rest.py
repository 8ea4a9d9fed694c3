"""Requests to carriers' REST interfaces: a call is answered by command, and hung up.

The one rule: what was asked is asked again only if no answer came, and no credential or body is ever shown.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Self

import aiohttp

from voiceflow.transports.telephony.webhook import RestRequest

__all__ = ["Rest"]

log = logging.getLogger("voiceflow")

BODY_BYTES = 65536


class Rest:
    """Sends requests. Use it as ``async with``, or ``close()`` it. ``timeout_s``: for one try."""

    def __init__(self, timeout_s: float = 5.0) -> None:
        if timeout_s <= 0:
            raise ValueError(f"Rest: timeout_s is {timeout_s}, it must be more than 0 seconds")
        self.timeout_s = timeout_s
        self._http: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections. The next request opens new ones."""
        http, self._http = self._http, None
        if http is not None:
            await http.close()

    async def send(self, request: RestRequest, what: str) -> bool:
        """True if the carrier agreed, or has ended the call already. No answer: one more try. Failures are logged as ``what``."""
        for attempt in (1, 2):
            try:
                async with asyncio.timeout(self.timeout_s):
                    status, body = await self._once(request)
            except (aiohttp.ClientError, OSError, TimeoutError) as error:
                # The error's own text may hold the URL, and that the account's number.
                log.warning("%s: no answer (%s)%s", what, type(error).__name__, ", once more" if attempt == 1 else ", given up")
                continue
            if status < 300 or any(status == refusal and text in body for refusal, text in request.over):
                return True
            log.error("%s: the carrier answered %d", what, status)
            return False
        return False

    async def _once(self, request: RestRequest) -> tuple[int, str]:
        if self._http is None:
            self._http = aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar())
        async with self._http.request(
            request.method, request.url, headers=request.headers, data=request.body or None, allow_redirects=False
        ) as response:
            body = b""
            async for chunk in response.content.iter_chunked(8192):
                body += chunk
                if len(body) > BODY_BYTES:
                    break
            return response.status, body.decode("utf-8", "replace")
