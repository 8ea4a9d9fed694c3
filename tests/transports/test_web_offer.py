"""The way in for WebRTC: what comes by HTTP reaches whoever answers, and what cannot be read is said to be so."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from tests.conformance.servers.sockets import over_sockets
from voiceflow.errors import VoiceflowError
from voiceflow.transports.web.offer import offer_routes


class FullError(VoiceflowError):
    status = 503


class Answering:
    """Answers every offer, unless it says that it is full."""

    def __init__(self) -> None:
        self.added: list[tuple[str, Sequence[Mapping[str, Any]]]] = []

    async def answer(self, offer: Mapping[str, str], who: str = "") -> dict[str, str]:
        if offer["sdp"] == "full":
            raise FullError("all lines are taken")
        if offer["sdp"] == "odd":
            raise VoiceflowError("this is no offer")
        return {"sdp": f"answer to {offer['sdp']} of {who}", "type": "answer", "pc_id": "1"}

    async def add_candidates(self, pc_id: str, candidates: Sequence[Mapping[str, Any]]) -> None:
        self.added.append((pc_id, candidates))


@asynccontextmanager
async def offering(answering: Answering | None = None) -> AsyncIterator[aiohttp.ClientSession]:
    application = web.Application()
    application.add_routes(offer_routes("/offer", answering or Answering()))
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        async with aiohttp.ClientSession(f"http://127.0.0.1:{runner.addresses[0][1]}") as client:
            yield client
    finally:
        await runner.cleanup()


@over_sockets
async def test_an_offer_is_answered() -> None:
    """With what whoever answers gives, who is told where it came from."""
    async with offering() as client, client.post("/offer", json={"type": "offer", "sdp": "mine"}) as response:
        assert response.status == 200
        assert await response.json() == {"sdp": "answer to mine of 127.0.0.1", "type": "answer", "pc_id": "1"}


@over_sockets
async def test_what_is_refused_says_why_with_its_status() -> None:
    """The status of the error, or 400."""
    for sdp, status, text in [("full", 503, "all lines are taken"), ("odd", 400, "this is no offer")]:
        async with offering() as client, client.post("/offer", json={"type": "offer", "sdp": sdp}) as response:
            assert (response.status, await response.text()) == (status, text)


@over_sockets
async def test_more_addresses_are_added_to_their_call() -> None:
    """By PATCH, all at once."""
    answering = Answering()
    async with offering(answering) as client:
        async with client.patch("/offer", json={"pc_id": "1", "candidates": [{"candidate": "a"}, {"candidate": "b"}]}) as response:
            assert response.status == 200
        for wrong in [{"pc_id": 1, "candidates": []}, {"pc_id": "1"}, {"pc_id": "1", "candidates": ["a"]}]:
            async with client.patch("/offer", json=wrong) as response:
                assert response.status == 400
    assert answering.added == [("1", [{"candidate": "a"}, {"candidate": "b"}])]


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        (b"{", 400, "no JSON"),
        (b"\xff\xfe", 400, "no JSON"),
        (b"[]", 400, "not list"),
        (b'"' + b"x" * 2**18, 413, ""),
        (b"", 400, "no JSON"),
        (b"[" * 100_000, 400, "no JSON"),
    ],
    ids=["cut off", "no text", "a list", "too long", "nothing", "too deep"],
)
@over_sockets
async def test_what_cannot_be_read_is_refused(body: bytes, status: int, says: str) -> None:
    """With what was wrong; a body without end is not read to its end."""
    async with offering() as client, client.post("/offer", data=body) as response:
        assert response.status == status
        assert says in await response.text()
