"""Requests by REST: tried again only when no answer came, and nothing secret shown."""

from __future__ import annotations

import asyncio
import logging
import socket

import pytest

pytest.importorskip("aiohttp", reason="pip install aiohttp")

from voiceflow.transports.telephony.rest import Rest
from voiceflow.transports.telephony.twilio_account import TwilioAccount
from voiceflow.transports.telephony.webhook import RestRequest

from .requests_of_carriers import NOW, TOKEN
from .rest_server import RestServer


def send(request: RestRequest | None, timeout_s: float = 5.0) -> bool:
    """On a real loop."""
    assert request is not None

    async def run() -> bool:
        async with Rest(timeout_s) as rest:
            return await rest.send(request, "twilio: hanging up the call 'CA1'")

    return asyncio.run(run())


def hang_up(url: str, timeout_s: float = 5.0, call: str = "CA1") -> bool:
    return send(TwilioAccount(TOKEN, "AC1", api_url=url).hang_up(call, NOW), timeout_s)


@pytest.mark.parametrize(("answers", "agreed", "requests"), [
    ([None, (200, {})], True, 2),
    ([None, None, (200, {})], False, 2),
    ([(500, {}), (200, {})], False, 1),
    ([(401, {"message": "secret detail"})], False, 1),
    ([(404, {"code": 20404})], True, 1),
    ([(404, {"code": 1})], False, 1),
    ([(302, {})], False, 1),
])  # fmt: skip
def test_it_is_tried_again_only_if_no_answer_came(answers, agreed, requests, caplog) -> None:
    """A cut connection once more; a refusal never; a call that is over already is a success. The log holds no secret."""
    caplog.set_level(logging.DEBUG)
    with RestServer(answers) as server:
        assert hang_up(server.url) == agreed
        assert len(server.asked) == requests
    log = caplog.text
    assert ("hanging up" in log) == (not agreed or requests > 1)
    for secret in (TOKEN, "secret detail", "Basic", "AC1"):
        assert secret not in log


def test_a_carrier_that_cannot_be_reached_is_given_up() -> None:
    """Two tries, no exception."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        assert not hang_up(f"http://127.0.0.1:{unused.getsockname()[1]}")


def test_a_carrier_that_says_nothing_is_given_up_in_time(caplog) -> None:
    """It accepts and stays silent: each try has its deadline."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        assert not hang_up(f"http://127.0.0.1:{silent.getsockname()[1]}", timeout_s=0.05)
    assert [record.getMessage().split("(")[1] for record in caplog.records if "no answer" in record.getMessage()] == [
        "TimeoutError), once more", "TimeoutError), given up",
    ]  # fmt: skip


def test_without_credentials_there_is_nothing_to_send() -> None:
    """The call ends with its socket."""
    assert TwilioAccount(TOKEN).hang_up("CA1", NOW) is None


def test_a_numbers_id_cannot_leave_its_place_in_the_url() -> None:
    """What a socket says is the call's number is quoted."""
    request = TwilioAccount(TOKEN, "AC1").hang_up("../Messages?x=1#", NOW)
    assert isinstance(request, RestRequest)
    assert request.url == "https://api.twilio.com/2010-04-01/Accounts/AC1/Calls/..%2FMessages%3Fx%3D1%23.json"
    with RestServer() as server:
        hang_up(server.url, call="../x?y")
        assert server.asked[0].path == "/2010-04-01/Accounts/AC1/Calls/..%2Fx%3Fy.json"


def test_a_deadline_must_be_more_than_nothing() -> None:
    """In seconds."""
    with pytest.raises(ValueError, match="timeout_s"):
        Rest(0)
