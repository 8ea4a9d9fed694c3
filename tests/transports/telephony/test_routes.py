"""Carriers over real sockets: a signed webhook, the stream it names, the whole call, and the end of it by REST."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import logging
import socket
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import pytest

pytest.importorskip("aiohttp", reason="pip install aiohttp")
pytest.importorskip("jwt", reason="pip install 'PyJWT[crypto]'")

import aiohttp
import yarl
from aiohttp import web
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.conformance.servers.sockets import over_sockets
from voiceflow import Pipeline, Processor
from voiceflow.transports.calls import Calls
from voiceflow.transports.line import LineOptions
from voiceflow.transports.telephony.plivo_account import PlivoAccount
from voiceflow.transports.telephony.routes import TelephonyOptions, routes
from voiceflow.transports.telephony.telnyx_account import TelnyxAccount
from voiceflow.transports.telephony.twilio_account import TwilioAccount
from voiceflow.transports.telephony.vonage_account import VonageAccount
from voiceflow.transports.telephony.webhook import Account, Request

from . import requests_of_carriers as carriers
from .agent import ANSWER, STORY, Agent, caller_says, until
from .carriers import DIALECTS, Player, chunks
from .requests_of_carriers import ACCOUNTS, NOW, PUBLIC_KEY, SECRET, TOKEN

PUBLIC = "https://agent.example"
KEY = rsa.generate_private_key(65537, 2048)
PEM = KEY.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()).decode()
HANG_UPS = {
    "twilio": "POST /2010-04-01/Accounts/AC1/Calls/CA0123456789.json",
    "telnyx": "POST /v2/calls/CA0123456789/actions/hangup",
    "plivo": "DELETE /v1/Account/MA1/Call/CA0123456789/",
    "vonage": "PUT /v1/calls/CA0123456789",
}
each = pytest.mark.parametrize("name", ACCOUNTS)


def account(name: str, api_url: str) -> Account:
    """With credentials for the fake REST interface."""
    with_rest: dict[str, Account] = {
        "twilio": TwilioAccount(TOKEN, "AC1", api_url=api_url),
        "telnyx": TelnyxAccount(PUBLIC_KEY, "KEYsecret", api_url=api_url),
        "plivo": PlivoAccount(TOKEN, "MA1", api_url=api_url),
        "vonage": VonageAccount(SECRET, "app-1", PEM, api_url=api_url),
    }
    return with_rest.get(name, ACCOUNTS[name])


class Phone:
    """A server with the routes of one carrier, the carrier's REST interface beside it, and the carrier itself as a client."""

    def __init__(
        self, name: str, *, limit: int = 4, rest_status: int = 200, line: LineOptions | None = None, quiet_s: float = 60.0
    ) -> None:
        self.name = name
        self.agents: list[Agent] = []
        self.calls = Calls(self._answer, limit=limit)
        self.rest: list[str] = []
        self.rest_bodies: list[bytes] = []
        self.now = NOW
        self._rest_status = rest_status
        self._line = line or LineOptions()
        self._quiet_s = quiet_s

    def _answer(self, source: Processor, sink: Processor) -> Pipeline:
        self.agents.append(Agent())
        return self.agents[-1].between(source, sink)

    @property
    def agent(self) -> Agent:
        """Of the last call."""
        return self.agents[-1]

    @contextlib.asynccontextmanager
    async def on(self) -> AsyncIterator[None]:
        application = web.Application()
        self.runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.5)
        application.router.add_route("*", "/api/{rest:.*}", self._serve_rest)
        port = _free_port()
        api = f"http://127.0.0.1:{port}/api"
        options = TelephonyOptions(PUBLIC, [account(self.name, api)], line=self._line, quiet_s=self._quiet_s, unix_time=lambda: self.now)
        application.add_routes(routes(self.calls, options))
        await self.runner.setup()
        await web.TCPSite(self.runner, "127.0.0.1", port).start()
        self.url = f"http://127.0.0.1:{port}"
        async with aiohttp.ClientSession() as self.http:
            try:
                yield
            finally:
                await self.runner.cleanup()

    async def _serve_rest(self, request: web.Request) -> web.Response:
        self.rest.append(f"{request.method} {request.raw_path.removeprefix('/api')}")
        self.rest_bodies.append(await request.read())
        return web.json_response({"code": 20404}, status=self._rest_status)

    async def ask(self, request: Request) -> tuple[int, str]:
        """The carrier's webhook."""
        url = request.url.replace(PUBLIC, self.url)
        async with self.http.request(request.method, url, data=request.body or None, headers=request.headers) as response:
            return response.status, await response.text()

    async def rings(self) -> str:
        """A call comes in: where the answer wants the stream."""
        status, text = await self.ask(carriers.incoming(self.name, f"{PUBLIC}/telephony/{self.name}"))
        assert status == 200
        return self.stream_of(text)

    def stream_of(self, text: str) -> str:
        if self.name == "vonage":
            stream = json.loads(text)[0]["endpoint"][0]["uri"]
        elif self.name == "exotel":
            stream = json.loads(text)["url"]
        else:
            element = next(ElementTree.fromstring(text).iter("Stream"))
            stream = element.get("url") or element.text or ""
        assert stream.startswith("wss://agent.example/telephony/")
        return str(stream).replace("wss://agent.example", self.url)

    @contextlib.asynccontextmanager
    async def stream(self, url: str) -> AsyncIterator[Leg]:
        """The carrier opens the stream and its caller's line is never quiet."""
        async with self.http.ws_connect(url) as websocket:
            leg = Leg(self.name, websocket)
            for message in leg.dialect.begin():
                await leg.send(message)
            tasks = [asyncio.create_task(leg.listen()), asyncio.create_task(leg.talk())]
            try:
                yield leg
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                leg.player.close()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Leg:
    """The carrier's side of one stream."""

    def __init__(self, name: str, websocket: aiohttp.ClientWebSocketResponse) -> None:
        self.dialect = DIALECTS[name](rate=16000 if name == "vonage" else 8000, caller="1555", called="1666")
        self.socket = websocket
        self.player = Player(self.dialect, self._give)
        self.to_say: list[bytes] = []
        self.closed: asyncio.Event = asyncio.Event()
        self._back: asyncio.Queue[str | bytes] = asyncio.Queue(1000)
        self._chunk = 0

    def _give(self, message: str | bytes) -> None:
        self._back.put_nowait(message)

    async def send(self, message: str | bytes) -> None:
        with contextlib.suppress(ConnectionError):
            await (self.socket.send_str(message) if isinstance(message, str) else self.socket.send_bytes(message))

    async def listen(self) -> None:
        async for message in self.socket:
            self.player.receive(message.data)
        self.closed.set()

    async def talk(self) -> None:
        rate, loop = self.dialect.rate, asyncio.get_running_loop()
        start = loop.time()
        while True:
            self._chunk += 1
            await asyncio.sleep(start + self._chunk * 0.02 - loop.time())
            await self.send(self.dialect.media(self._chunk, self.to_say.pop(0) if self.to_say else b"\0\0" * (rate // 50)))
            while not self._back.empty():
                await self.send(self._back.get_nowait())

    def says(self, number: int, seconds: float = 0.5) -> None:
        self.to_say += chunks(caller_says(number, self.dialect.rate, seconds), self.dialect.rate)


@each
@over_sockets
async def test_a_whole_call(name: str) -> None:
    """Webhook, stream, a question, a long answer cut by the caller, a key, the last answer heard whole, and one hang-up by REST."""
    phone = Phone(name)
    async with phone.on(), phone.stream(await phone.rings()) as leg:
        leg.says(1)
        await until(leg.player.sounding)
        await asyncio.sleep(1.0)
        leg.says(2, seconds=1.0)
        await leg.send(leg.dialect.key("5"))
        await until(lambda: len(phone.agent.context.conversation.messages) >= 4)
        assert len(leg.player.events("clear")) >= 1
        assert phone.agent.keys.pressed == "5"
        phone.calls.sessions[0].end()
        await asyncio.wait_for(leg.closed.wait(), 20)
        await until(lambda: not phone.calls.running)
        cut, whole = (m for m in phone.agent.context.conversation.messages if m.role == "assistant")
        assert cut.text.split() == STORY.split()[: len(cut.text.split())]
        assert 8 <= len(cut.text.split()) <= 16
        assert (whole.text, whole.interrupted) == (ANSWER, False)
        assert leg.dialect.faults == []
        assert leg.socket.close_code == 1000
        await until(lambda: phone.rest or name == "exotel")
        assert phone.rest == ([HANG_UPS[name]] if name in HANG_UPS else [])


@pytest.mark.parametrize("name", ["twilio", "telnyx", "exotel"])
@over_sockets
async def test_a_call_that_the_carrier_ended_is_not_hung_up(name: str) -> None:
    """After its stop there is nothing to do, and the socket is closed."""
    phone = Phone(name)
    async with phone.on(), phone.stream(await phone.rings()) as leg:
        leg.says(1)
        await until(leg.player.sounding)
        for message in leg.dialect.stop():
            await leg.send(message)
        await asyncio.wait_for(leg.closed.wait(), 20)
        await until(lambda: not phone.calls.running)
        await asyncio.sleep(1)
        assert phone.rest == []


@pytest.mark.parametrize("name", ["twilio", "telnyx", "plivo", "vonage"])
@over_sockets
async def test_a_socket_that_closes_without_a_stop_is_hung_up_once(name: str, caplog: pytest.LogCaptureFixture) -> None:
    """The stream may be gone and the call not; a call that is over already is no error."""
    phone = Phone(name, rest_status=404)
    async with phone.on():
        async with phone.stream(await phone.rings()) as leg:
            leg.says(1)
            await until(leg.player.sounding)
            await leg.socket.close()
        await until(lambda: not phone.calls.running)
        await until(lambda: phone.rest)
        await asyncio.sleep(1)
        assert phone.rest == [HANG_UPS[name]]
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


@over_sockets
async def test_both_sides_hanging_up_at_once_is_one_request() -> None:
    """The agent ends and the carrier closes in the same moment."""
    phone = Phone("plivo", rest_status=404)
    async with phone.on():
        async with phone.stream(await phone.rings()) as leg:
            leg.says(2)
            await until(leg.player.sounding)
            phone.calls.sessions[0].end()
            await leg.socket.close()
        await until(lambda: phone.rest)
        await asyncio.sleep(1)
        assert phone.rest == [HANG_UPS["plivo"]]


@over_sockets
async def test_a_server_that_shuts_down_hangs_up() -> None:
    """Its calls are cancelled; the caller is not left in a silent call."""
    phone = Phone("telnyx")
    async with phone.on(), phone.stream(await phone.rings()) as leg:
        leg.says(1)
        await until(leg.player.sounding)
        phone.calls.cancel()
        await asyncio.wait_for(leg.closed.wait(), 20)
        await until(lambda: phone.rest)
        assert phone.rest == [HANG_UPS["telnyx"]]


@each
@over_sockets
async def test_a_stranger_opens_no_stream(name: str, caplog: pytest.LogCaptureFixture) -> None:
    """No ticket, another's, a used one, one too old: 403, before the socket is open. No ticket stands in the log."""
    phone = Phone(name)
    async with phone.on():
        good = await phone.rings()
        base = good.partition("?")[0].rpartition("/")[0]
        for url in (f"{base}/x", f"{base}/{'A' * 48}", f"{good.partition('?')[0][:-1]}"):
            with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                await phone.http.ws_connect(url)
            assert refused.value.status == 403
        async with phone.http.get(good) as plain:
            assert plain.status == 400
        async with phone.stream(good):
            await until(lambda: phone.calls.running)
            with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                await phone.http.ws_connect(good)
            assert refused.value.status == 403
        late = await phone.rings()
        phone.now += 61
        with pytest.raises(aiohttp.WSServerHandshakeError):
            await phone.http.ws_connect(late)
        await until(lambda: not phone.calls.running)
    assert good.partition("?")[0].rpartition("/")[2] not in caplog.text


@each
@over_sockets
async def test_a_webhook_that_is_not_signed_gets_no_answer(name: str, caplog: pytest.LogCaptureFixture) -> None:
    """403 and an empty body; why, only the log says."""
    phone = Phone(name)
    async with phone.on():
        good = carriers.incoming(name, f"{PUBLIC}/telephony/{name}")
        headers = {header: value for header, value in good.headers.items() if header.lower() == "content-type"}
        assert await phone.ask(replace(good, headers=headers)) == (403, "")
        assert f"{name}: a webhook was refused: " in caplog.text
        for secret in (TOKEN, SECRET, "a password"):
            assert secret not in caplog.text
        async with phone.http.post(f"{phone.url}/telephony/{name}", data=io.BytesIO(b"x" * 2_000_000)) as response:
            assert response.status == 413


@pytest.mark.parametrize(
    ("name", "busy"),
    [
        ("twilio", 'Reject reason="busy"'),
        ("telnyx", 'Reject reason="busy"'),
        ("plivo", 'Hangup reason="busy"'),
        ("vonage", "[]"),
        ("exotel", ""),
    ],
)
@over_sockets
async def test_a_caller_for_whom_there_is_no_line_hears_that_it_is_busy(name: str, busy: str) -> None:
    """The carrier is told so in its own words."""
    phone = Phone(name, limit=1)
    async with phone.on(), phone.stream(await phone.rings()):
        await until(lambda: phone.calls.running)
        status, text = await phone.ask(carriers.incoming(name, f"{PUBLIC}/telephony/{name}"))
        assert status == (503 if name == "exotel" else 200)
        assert busy in text
        assert "stream/" not in text
        assert phone.calls.running == 1


@over_sockets
async def test_call_control_is_taken_by_a_command() -> None:
    """The event is answered by REST, and the stream that the command names is let in."""
    phone = Phone("telnyx")
    payload = {"call_control_id": "CA0123456789", "from": "+1555", "to": "+1666", "direction": "incoming"}
    event = json.dumps({"data": {"event_type": "call.initiated", "payload": payload}}).encode()
    async with phone.on():
        status, text = await phone.ask(carriers.telnyx(f"{PUBLIC}/telephony/telnyx", event, "application/json"))
        assert (status, text) == (200, "")
        assert phone.rest == ["POST /v2/calls/CA0123456789/actions/answer"]
        url = json.loads(phone.rest_bodies[0])["stream_url"].replace("wss://agent.example", phone.url)
        async with phone.stream(url) as leg:
            leg.says(2)
            await until(lambda: phone.agents and phone.agent.reports.stopped)
            assert phone.agent.reports.stopped[0].heard.text == ANSWER
    failing = Phone("telnyx", rest_status=500)
    async with failing.on():
        status, _ = await failing.ask(carriers.telnyx(f"{PUBLIC}/telephony/telnyx", event, "application/json"))
        assert status == 502


@over_sockets
async def test_a_stream_that_never_starts_is_closed() -> None:
    """With a reason, after the time for a handshake; there is no call to hang up."""
    phone = Phone("twilio", line=LineOptions(handshake_s=3))
    async with phone.on(), phone.http.ws_connect(await phone.rings()) as websocket:
        await websocket.send_str('{"event":"connected","protocol":"Call","version":"1.0.0"}')
        message = await websocket.receive()
        assert (message.type, message.data) == (aiohttp.WSMsgType.CLOSE, 1008)
        assert "did not begin" in str(message.extra)
        await asyncio.sleep(1)
        assert phone.rest == []


@over_sockets
async def test_broken_messages_on_a_real_socket_leave_the_call_alive() -> None:
    """B47, R8: nonsense, a megabyte, binary for text; and then an ordinary question is answered."""
    phone = Phone("twilio")
    async with phone.on(), phone.stream(await phone.rings()) as leg:
        await until(lambda: phone.calls.running)
        for message in ("not json", "[]", '{"event":"media"}', "x" * 1_000_000, b"\0\1\2" * 100):
            await leg.send(message)
        leg.says(2)
        await until(lambda: phone.agents and phone.agent.reports.stopped)
        assert phone.agent.reports.stopped[0].heard.text == ANSWER


@over_sockets
async def test_a_socket_that_falls_silent_is_a_lost_one() -> None:
    """A carrier sends sound all the time, so after a while of nothing the call is over, and is hung up."""
    phone = Phone("telnyx", quiet_s=5.0)
    async with phone.on(), phone.http.ws_connect(await phone.rings()) as websocket:
        for message in DIALECTS["telnyx"]().begin():
            await websocket.send_str(str(message))
        await until(lambda: phone.calls.running)
        await asyncio.sleep(4.5)
        assert phone.calls.running == 1
        await until(lambda: phone.rest, 3)
        assert phone.rest == [HANG_UPS["telnyx"]]


@over_sockets
async def test_a_signature_covers_the_url_letter_by_letter() -> None:
    """However the query is quoted."""
    phone = Phone("twilio")
    async with phone.on():
        good = carriers.incoming("twilio", f"{PUBLIC}/telephony/twilio?x=%7e&y=a%2fb%20+")
        url = yarl.URL(good.url.replace(PUBLIC, phone.url), encoded=True)
        async with phone.http.post(url, data=good.body, headers=good.headers) as response:
            assert response.status == 200


@over_sockets
async def test_two_callers_at_once_hear_their_own_agents() -> None:
    """Each stream is a call of its own."""
    phone = Phone("twilio")
    async with phone.on(), phone.stream(await phone.rings()) as one, phone.stream(await phone.rings()) as other:
        await until(lambda: phone.calls.running == 2)
        one.says(2)
        await until(one.player.sounding)
        await asyncio.sleep(0.5)
        assert not other.player.sounding()


def _options(**more: Any) -> TelephonyOptions:
    return TelephonyOptions(**({"public_url": PUBLIC, "accounts": [ACCOUNTS["twilio"]]} | more))


@pytest.mark.parametrize(
    "bad",
    [
        {"public_url": "agent.example"},
        {"public_url": "wss://agent.example"},
        {"public_url": "HTTPS://agent.example"},
        {"public_url": "https://agent.example/"},
        {"path": "telephony"},
        {"path": "/telephony/"},
        {"accounts": []},
        {"accounts": [ACCOUNTS["twilio"], TwilioAccount("another")]},
        {"quiet_s": 0},
        {"rest_timeout_s": 0},
    ],
)
def test_options_that_cannot_work_are_refused(bad: dict[str, Any]) -> None:
    """With what they must be."""
    with pytest.raises(ValueError, match=r"TelephonyOptions: .* must"):
        _options(**bad)
    with pytest.raises(ValueError, match="16"):
        routes(Calls(Agent().between, limit=1), _options(secret=b"short"))
    assert b"0123456789abcdef".decode() not in repr(_options(secret=b"0123456789abcdef"))
