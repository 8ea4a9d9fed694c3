"""The way in for WebRTC: a page's offer comes by HTTP, and its answer goes back.

Its one rule: it reads HTTP and writes HTTP. What an offer says is for whoever answers it. POST brings an offer, PATCH more
addresses for one that was made, as the small WebRTC transports of the field have it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from aiohttp import web

from voiceflow.errors import VoiceflowError

__all__ = ["Answerer", "offer_routes"]

MOST_BYTES = 2**17


class Answerer(Protocol):
    """Who answers offers: ``webrtc.WebRTC``. What it raises has a ``status`` for HTTP."""

    async def answer(self, offer: Mapping[str, str], who: str = "") -> dict[str, str]:
        """The answer to an offer."""

    async def add_candidates(self, pc_id: str, candidates: Sequence[Mapping[str, Any]]) -> None:
        """More addresses of the far end."""


def offer_routes(path: str, answerer: Answerer) -> list[web.RouteDef]:
    """POST and PATCH at this path. What cannot be read is answered with 400 and why, too much with 413."""

    async def offered(request: web.Request) -> web.Response:
        offer = await _read(request)
        return await _answered(answerer.answer(offer, request.remote or ""))

    async def added(request: web.Request) -> web.Response:
        said = await _read(request)
        candidates, pc_id = said.get("candidates"), said.get("pc_id")
        if not isinstance(pc_id, str) or not isinstance(candidates, list) or not all(isinstance(c, dict) for c in candidates):
            raise web.HTTPBadRequest(text='this says {"pc_id": "...", "candidates": [{...}]}')
        return await _answered(answerer.add_candidates(pc_id, candidates))

    return [web.post(path, offered), web.patch(path, added)]


async def _answered(answering: Any) -> web.Response:
    try:
        answer = await answering
    except VoiceflowError as error:
        return web.Response(status=getattr(error, "status", 400), text=str(error))
    return web.json_response(answer if answer is not None else {})


async def _read(request: web.Request) -> dict[str, Any]:
    body = await request.content.read(MOST_BYTES + 1)
    while len(body) <= MOST_BYTES and (more := await request.content.read(MOST_BYTES + 1 - len(body))):
        body += more
    if len(body) > MOST_BYTES:
        raise web.HTTPRequestEntityTooLarge(MOST_BYTES, len(body))
    try:
        said = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise web.HTTPBadRequest(text=f"this is no JSON: {error}") from error
    if not isinstance(said, dict):
        raise web.HTTPBadRequest(text=f"a JSON object is wanted, not {type(said).__name__}")
    return said
