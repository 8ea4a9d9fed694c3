"""Calls over real websockets on this machine, by both servers: who may call, pages and programs, lost networks, slow clients, leaks."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import json
import logging
import random
import socket as sockets
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from aiohttp import web
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from tests.network.link import Link, Network, tcp_link
from voiceflow import Frame, InputAudioFrame, Pipeline, PlaybackStopped, Processor, Session, TranscriptFrame
from voiceflow.backoff import BackoffOptions
from voiceflow.testing import Latency, ScriptedTTS, labels, no_leaks
from voiceflow.transports.calls import Calls
from voiceflow.transports.line import LineOptions
from voiceflow.transports.web.socket import call_handler
from voiceflow.transports.web.view import show
from voiceflow.transports.websocket import WebsocketOptions, WebsocketServer
from voiceflow.transports.websocket_client import CallOptions, call
from voiceflow.transports.wire_frames import FramesOptions

from .line_rig import Ears, Parrot, parrot

PATIENCE_S = 90.0

TEN = "one two three four five six seven eight nine ten"


def in_real_time(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Run on a real loop, in asyncio's debug mode, with a deadline; nothing may be left behind."""

    @functools.wraps(test)
    def run(*arguments: Any, **named: Any) -> None:
        async def guarded() -> None:
            async with no_leaks(), asyncio.timeout(PATIENCE_S):
                await test(*arguments, **named)

        asyncio.run(guarded(), debug=True)

    return run


@dataclass
class Served:
    """A server that listens."""

    calls: Calls
    url: str
    port: int
    ears: list[Ears]
    sessions: list[Session]


@contextlib.asynccontextmanager
async def serving(
    kind: str = "websockets", *, limit: int = 50, token: str = "", line: LineOptions | None = None, resume_s: float = 15.0, **options: Any
) -> AsyncIterator[Served]:
    """One of the two servers, with the agent that says what it is told."""
    ears: list[Ears] = []
    sessions: list[Session] = []

    def agent(source: Processor, sink: Processor) -> Pipeline:
        ears.append(Ears())
        return source >> ears[-1] >> Parrot() >> ScriptedTTS(Latency(), step=1000) >> sink

    served = Served(Calls(agent, limit=limit, watch=lambda session, _, __: sessions.append(session)), "", 0, ears, sessions)
    frames = FramesOptions(resume_s=resume_s)
    if kind == "websockets":
        server = WebsocketServer(served.calls, WebsocketOptions(port=0, token=token, **options), line=line, frames=frames)
        async with server:
            served.url, served.port = server.options.url, server.options.port
            yield served
            await served.calls.drain(0)
    else:
        application = web.Application()
        handler = call_handler(served.calls, line=line, frames=FramesOptions(resume_s=resume_s, token=token))
        application.router.add_get("/call", handler)
        runner = web.AppRunner(application, access_log=None)
        await runner.setup()
        try:
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            served.port = runner.addresses[0][1]
            served.url = f"ws://127.0.0.1:{served.port}/call"
            yield served
            await served.calls.drain(0)
        finally:
            await runner.cleanup()


both = pytest.mark.parametrize("kind", ["websockets", "aiohttp"])


class Client:
    """A page: JSON and raw sound. What comes it plays in real time, as far as its reports tell."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection
        self.told: list[dict[str, Any]] = []
        self.pcm = b""

    async def say(self, **message: Any) -> None:
        await self.connection.send(json.dumps(message))

    async def hears(self, kind: str, count: int = 1) -> dict[str, Any]:
        """Read until the count-th message of a type."""
        while sum(message["type"] == kind for message in self.told) < count:
            await self.read()
        return [message for message in self.told if message["type"] == kind][count - 1]

    async def read(self) -> None:
        message = await self.connection.recv()
        if isinstance(message, bytes):
            self.pcm += message
        else:
            self.told.append(json.loads(message))

    async def play(self) -> None:
        """Report every 50 ms, for ever."""
        loop, played = asyncio.get_running_loop(), 0
        with contextlib.suppress(ConnectionClosed):
            while True:
                since, come = loop.time(), len(self.pcm) // 2
                await asyncio.sleep(0.05)
                if come > played:
                    played = min(come, played + round((loop.time() - since) * 24000))
                    await self.say(type="played", samples=played)

    async def closed(self) -> tuple[int | None, str | None]:
        """Read to the end; the close code and reason."""
        with contextlib.suppress(ConnectionClosed):
            while True:
                await self.read()
        return self.connection.close_code, self.connection.close_reason


@contextlib.asynccontextmanager
async def page(url: str, headers: dict[str, str] | None = None, **start: Any) -> AsyncIterator[Client]:
    async with connect(url, additional_headers=headers, proxy=None) as connection:
        client = Client(connection)
        with contextlib.suppress(ConnectionClosed):  # it may be refused already
            await client.say(type="start", **start)
        playing = asyncio.create_task(client.play(), name="the page's loudspeaker")
        try:
            yield client
        finally:
            playing.cancel()
            await asyncio.wait([playing])


# ----------------------------------------------------------------------------------------------- a page's call


@both
@in_real_time
async def test_a_page_speaks_with_an_agent(kind: str) -> None:
    """Typed words are answered in sound, its sound is heard, and the goodbye closes the socket with the reason."""
    async with serving(kind) as served, page(served.url, sample_rate=8000) as client:
        assert (await client.hears("started"))["hears"] == {"sample_rate": 8000}
        await client.connection.send(b"\7\0" * 160)
        await client.say(type="text", text="hello there")
        stopped = await client.hears("playback_stopped")
        assert (stopped["text"], stopped["complete"]) == ("hello there", True)
        assert np.count_nonzero(np.frombuffer(client.pcm, "<i2") == 1000) == 4800
        assert served.ears[0].sound[0].pcm == b"\7\0" * 160
        await client.say(type="text", text="bye")
        assert await client.closed() == (1000, "the agent ended it")
        assert client.told[-1] == {"type": "ended", "reason": "the agent ended it"}


@both
@in_real_time
async def test_an_interrupt_is_answered_by_a_clear_and_what_was_heard(kind: str) -> None:
    """The client is told to throw away what it has, and which words it had reported."""
    async with serving(kind) as served, page(served.url) as client:
        await client.say(type="text", text=TEN)
        await client.hears("words_heard", 2)
        await client.say(type="interrupt")
        await client.hears("clear")
        heard = len(client.pcm)
        stopped = await client.hears("playback_stopped")
        assert stopped["complete"] is False
        assert TEN.startswith(stopped["text"])
        assert 2 <= len(stopped["text"].split()) <= heard / 4800 + 0.5
        assert len(client.pcm) == heard
        await client.say(type="end")
        assert (await client.closed())[0] == 1000


@both
@in_real_time
async def test_one_call_more_than_there_are_lines_is_told_to_try_again_later(kind: str) -> None:
    """The close code is 1013, and the call under way goes on."""
    async with serving(kind, limit=1) as served, page(served.url) as client:
        await client.hears("started")
        async with page(served.url) as other:
            assert await other.closed() == (1013, "all 1 lines are busy; try again later")
        await client.say(type="text", text="bye")
        assert (await client.closed())[0] == 1000


@both
@in_real_time
async def test_a_shutdown_says_so_to_every_caller(kind: str) -> None:
    """They are told ``ended``, and the close code is 1001."""
    async with serving(kind) as served, page(served.url) as client, page(served.url) as other:
        await client.hears("started")
        await other.hears("started")
        await served.calls.drain(0)
        for one in (client, other):
            assert await one.closed() == (1001, "this server is being shut down")
            assert one.told[-1]["type"] == "ended"


@in_real_time
async def test_a_page_is_shown_the_pipeline_and_how_long_each_answer_took() -> None:
    """The example of the documentation: what watches a call tells it, in words of its own."""
    async with WebsocketServer(Calls(parrot, limit=1, watch=show), WebsocketOptions(port=0)) as server, page(server.options.url) as client:
        assert (await client.hears("pipeline"))["nodes"]
        await client.say(type="text", text="hello there")
        latency = await client.hears("latency")
        assert (latency["utterance"], set(latency["stages"])) == (1, {"stt", "llm", "tts", "playout"})
        await client.say(type="text", text="bye")
        assert (await client.closed())[0] == 1000


# ------------------------------------------------------------------------------------------------- who may call


@both
@in_real_time
async def test_a_token_lets_in_by_the_first_message(kind: str) -> None:
    """Without the right one the socket is closed with 1008."""
    async with serving(kind, token="CANARY-1") as served:
        for wrong in ({}, {"token": "CANARY-2"}):
            async with page(served.url, **wrong) as client:
                code, why = await client.closed()
                assert code == 1008
                assert "token" in str(why)
        async with page(served.url, token="CANARY-1") as client:
            await client.hears("started")
            await client.say(type="end")
            await client.closed()
        assert served.calls.answered == 1


@in_real_time
async def test_a_token_lets_in_by_a_header() -> None:
    """A wrong one is refused before there is a websocket."""
    async with serving(token="CANARY-1") as served:
        async with page(served.url, {"Authorization": "Bearer CANARY-1"}) as client:
            await client.hears("started")
            await client.say(type="end")
            await client.closed()
        for wrong in (["Bearer CANARY-2"], ["Basic CANARY-1"], ["CANARY-1"], ["Bearer"], ["Bearer \xff"], ["Bearer CANARY-1"] * 2):
            with pytest.raises(InvalidStatus) as raised:
                await connect(served.url, additional_headers=[("Authorization", one) for one in wrong], proxy=None)
            assert raised.value.response.status_code == 401


@pytest.mark.parametrize(
    ("origin", "token", "origins", "allowed"),
    [
        ("", "", (), True),
        ("http://HOST", "", (), True),
        ("https://evil.example", "", (), False),
        ("null", "", (), False),
        ("http://[", "", (), False),
        ("http://\xff", "", (), False),
        ("http://[", "CANARY", (), True),
        ("https://evil.example", "CANARY", (), True),
        ("https://good.example", "", ("https://good.example",), True),
        ("https://evil.example", "CANARY", ("https://good.example",), False),
        ("http://good.example", "", ("https://good.example",), False),
    ],
)
@in_real_time
async def test_a_page_of_another_origin_may_not_call(origin: str, token: str, origins: tuple[str, ...], allowed: bool) -> None:
    """Without a token only pages of this host, with one those that show it, and with a list those on it."""
    async with serving(token=token, origins=origins) as served:
        headers = {"Origin": origin.replace("HOST", f"127.0.0.1:{served.port}")} if origin else {}
        if not allowed:
            with pytest.raises(InvalidStatus) as raised:
                await connect(served.url, additional_headers=headers, proxy=None)
            assert raised.value.response.status_code == 403
            return
        async with page(served.url, headers, token=token) as client:
            await client.hears("started")
            await client.say(type="end")
            await client.closed()


@in_real_time
async def test_another_path_is_not_found() -> None:
    """Calls are taken at one address; what is asked for may be no address at all."""
    async with serving() as served:
        with pytest.raises(InvalidStatus) as raised:
            await connect(served.url.replace("/call", "/other"), proxy=None)
        assert raised.value.response.status_code == 404
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        writer.write(b"GET //[ HTTP/1.1\r\nHost: here\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n")
        writer.write(b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
        assert (await reader.readline()).split()[1] == b"404"
        writer.close()
        await writer.wait_closed()


def test_no_secret_stands_in_a_log(caplog: pytest.LogCaptureFixture) -> None:
    """With every logger at its most talkative, neither the token nor a resume token is in a record, or in the options' words."""
    caplog.set_level(logging.DEBUG)
    resume = ""

    @in_real_time
    async def talk() -> None:
        nonlocal resume
        async with serving(token="CANARY-1") as served:
            async with page(served.url, {"Authorization": "Bearer CANARY-1"}) as client:
                resume = (await client.hears("started"))["resume"]
            async with page(served.url, token="CANARY-2") as client:
                await client.closed()
            async with page(served.url, token="CANARY-1", resume="CANARY-3") as client:
                await client.closed()
            options = CallOptions(token="CANARY-1", hears=24000)
            await call(served.url, lambda source, sink: Pipeline(source) >> Hangs() >> sink, options)
            await call(served.url, lambda source, sink: Pipeline(source) >> Hangs() >> sink, CallOptions(token="CANARY-4"))
            assert "CANARY" not in repr((options, WebsocketOptions(token="CANARY-1"), FramesOptions(token="CANARY-1")))

    # The library on the test's own side logs what it sends, as a client's library may.
    logging.getLogger("websockets.client").setLevel(logging.INFO)
    try:
        talk()
    finally:
        logging.getLogger("websockets.client").setLevel(logging.NOTSET)
    assert "CANARY" not in caplog.text
    assert resume
    assert resume not in caplog.text


class Hangs(Processor):
    """A caller who hangs up."""

    async def run(self) -> AsyncIterator[TranscriptFrame]:
        yield TranscriptFrame("bye")
        await asyncio.Event().wait()

    def process(self, frame: InputAudioFrame) -> None:
        """Nothing."""


# ------------------------------------------------------------------------------------------- what clients do wrong


@both
@in_real_time
async def test_a_message_that_is_too_long_closes_its_call_alone(kind: str) -> None:
    """1009; the server answers the next."""
    async with serving(kind) as served:
        async with page(served.url) as client:
            await client.hears("started")
            with contextlib.suppress(ConnectionClosed):
                await client.connection.send(bytes(200_000))
            assert (await client.closed())[0] == 1009
        async with page(served.url) as client:
            await client.say(type="text", text="bye")
            assert (await client.closed())[0] == 1000
    assert served.calls.running == 0


@both
@in_real_time
async def test_no_client_can_break_the_server(kind: str) -> None:
    """Random messages in mid-call, sockets cut in any state and bytes that are no websocket: the next call is answered."""
    chance = random.Random(7)
    async with serving(kind, limit=100) as served:
        for number in range(30):
            async with connect(served.url, proxy=None) as connection:
                with contextlib.suppress(ConnectionClosed):
                    if number % 5:
                        await connection.send('{"type":"start"}')
                    for _ in range(chance.randrange(12)):
                        noise = chance.randbytes(chance.randrange(60))
                        await connection.send(noise if chance.random() < 0.5 else noise.decode("latin-1"))
                if number % 3:
                    connection.transport.abort()
        for noise in (b"", b"GET / HTTP/1.1\r\n\r\n", chance.randbytes(500)):
            _, writer = await asyncio.open_connection("127.0.0.1", served.port)
            writer.write(noise)
            await writer.drain()
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()
        async with page(served.url) as client:
            await client.say(type="text", text="bye")
            assert (await client.closed())[0] == 1000


@both
@in_real_time
async def test_a_client_that_does_not_read_is_hung_up_on_and_others_hear_all(kind: str) -> None:
    """It is let go after the limit although it sends on; the sound it did not take is not kept."""
    async with serving(kind, line=LineOptions(stall_s=1.0)) as served:
        raw = await slow_client(served.port)
        try:
            async with page(served.url) as good:
                await good.hears("started")
                await raw.say(type="text", text=" ".join([TEN] * 20))
                await good.say(type="text", text=" ".join([TEN] * 4))
                stopped = await good.hears("playback_stopped")
                assert stopped["complete"] is True
                assert np.count_nonzero(np.frombuffer(good.pcm, "<i2") == 1000) == 4 * 24000
                while served.calls.running > 1:
                    await asyncio.sleep(0.05)
                await good.say(type="end")
                await good.closed()
        finally:
            raw.close()


@both
@in_real_time
async def test_an_interrupt_gets_through_to_a_client_that_was_not_reading(kind: str) -> None:
    """When it reads again, little of the old sound comes, and then the clear: most was never sent."""
    async with serving(kind, line=LineOptions(stall_s=30)) as served:
        raw = await slow_client(served.port)
        try:
            await raw.say(type="text", text=" ".join([TEN] * 20))
            while not served.sessions:
                await asyncio.sleep(0.02)
            await asyncio.sleep(3)  # real time has to pass: 150 kB are due by then
            await raw.say(type="interrupt")
            while not served.sessions[0].interruptions:
                await asyncio.sleep(0.02)
            sound = await raw.sound_until_clear()
            assert sound < 100_000  # measured: 40,000; without all this it would be all that were due
            await raw.say(type="end")
        finally:
            raw.close()


class RawClient:
    """A client with a small window that reads only when it is told to."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def say(self, **message: Any) -> None:
        data = json.dumps(message).encode()
        head = bytes([0x81, 0x80 | 126]) + len(data).to_bytes(2, "big") + b"\0\0\0\0"
        self.writer.write(head + data)
        await self.writer.drain()

    async def sound_until_clear(self) -> int:
        """Bytes of sound before the clear."""
        total = 0
        while True:
            kind, size = await self.reader.readexactly(2)
            if size == 126:
                size = int.from_bytes(await self.reader.readexactly(2), "big")
            data = await self.reader.readexactly(size)
            if kind == 0x82:
                total += size
            elif b'"clear"' in data:
                return total

    def close(self) -> None:
        self.writer.transport.abort()


async def slow_client(port: int) -> RawClient:
    raw = sockets.socket()
    raw.setsockopt(sockets.SOL_SOCKET, sockets.SO_RCVBUF, 8192)
    raw.setblocking(False)
    await asyncio.get_running_loop().sock_connect(raw, ("127.0.0.1", port))
    reader, writer = await asyncio.open_connection(sock=raw, limit=4096)
    writer.write(
        f"GET /call HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
    )
    await reader.readuntil(b"\r\n\r\n")
    client = RawClient(reader, writer)
    await client.say(type="start")
    return client


# ------------------------------------------------------------------------------------------------ programs as callers


class Caller(Processor):
    """Says its lines one after the other: the next when the far agent was heard to say the one before. Keeps what it heard."""

    def __init__(self, *lines: str) -> None:
        self.lines = list(lines)
        self.pcm = b""
        self.told: list[Frame] = []
        self._next = asyncio.Event()

    def tell(self, frame: Frame) -> None:
        self.told.append(frame)
        if isinstance(frame, PlaybackStopped):
            self._next.set()

    async def run(self) -> AsyncIterator[TranscriptFrame]:
        for line in self.lines:
            yield TranscriptFrame(line)
            await self._next.wait()
            self._next.clear()
        await asyncio.Event().wait()

    def process(self, frame: InputAudioFrame) -> None:
        self.pcm += frame.pcm

    def agent(self, source: Processor, sink: Processor) -> Pipeline:
        return Pipeline(source) >> self >> sink

    def heard(self) -> list[str]:
        return [frame.heard.text for frame in self.told if isinstance(frame, PlaybackStopped) and frame.heard.complete]

    def seconds(self, label: int) -> float:
        return float(np.count_nonzero(np.abs(np.frombuffer(self.pcm, "<i2") - 1000 * label) < 5)) / 24000


def options(caller: Caller, **more: Any) -> CallOptions:
    return CallOptions(told=caller.tell, hears=24000, **more)


@both
@in_real_time
async def test_a_program_calls_a_server_and_hears_every_sample(kind: str) -> None:
    """Our own client, in frames: what it typed is answered, and its ear had the answers, whole."""
    caller = Caller("hello there", "bye")
    async with serving(kind) as served:
        record = await call(served.url, caller.agent, options(caller))
    assert record.why == "the agent ended it"
    assert caller.heard() == ["hello there", "bye"]
    assert (caller.seconds(1), caller.seconds(2)) == (0.2, 0.1)
    assert TranscriptFrame("hello there") in caller.told


@in_real_time
async def test_a_caller_agents_voice_is_heard_by_the_server_without_gaps() -> None:
    """Its sound goes there as a caller's, silence between, in its own rate."""

    class Voice(Processor):
        async def run(self) -> AsyncIterator[TranscriptFrame]:
            yield TranscriptFrame("one two three")
            await asyncio.Event().wait()

    def agent(source: Processor, sink: Processor) -> Pipeline:
        return [source, Voice()] >> Ears() >> Parrot() >> ScriptedTTS(Latency(), step=1000) >> sink

    async with serving() as served:
        calling = asyncio.create_task(call(served.url, agent, CallOptions()))
        while not (served.ears and sum(frame.duration for frame in served.ears[0].sound) > 0.6):
            await asyncio.sleep(0.02)
        await served.calls.drain(0)
        record = await calling
    assert "shut down" in record.why
    pcm = b"".join(frame.pcm for frame in served.ears[0].sound)
    assert labels(pcm, 1000) == [1]
    assert np.count_nonzero(np.frombuffer(pcm, "<i2") == 1000) == pytest.approx(7200, abs=10)


@both
@in_real_time
async def test_a_call_survives_a_network_that_was_cut_in_mid_sentence(kind: str) -> None:
    """The client comes back by itself, the agent goes on from the cut word, and all of it was heard."""
    caller = Caller(f"{TEN} {TEN}", "bye")
    async with serving(kind) as served:
        cut, port = await cutting_proxy(served.port)
        async with cut:
            calling = asyncio.create_task(call(f"ws://127.0.0.1:{port}/call", caller.agent, options(caller)))
            for share in (0.6, 1.2):
                while caller.seconds(1) < share:
                    await asyncio.sleep(0.01)
                cut.all()
            record = await calling
    assert record.why == "the agent ended it"
    assert caller.heard() == [f"{TEN} {TEN}", "bye"]
    assert 2.0 - 2 * 0.25 <= caller.seconds(1) <= 2.0 + 2 * 0.35  # what an ear is believed to have had without word of it; the cut words
    assert served.calls.answered == 1
    assert cut.connections == 3


class CuttingProxy:
    """Connections that can be cut, as by a network that is gone: no goodbye goes through."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.connections = 0
        self.refuses = False
        self._open: list[asyncio.StreamWriter] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self.server: asyncio.Server | None = None

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        if self.refuses:
            writer.transport.abort()
            return
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.port)
        self._open += [writer, far_writer]
        for a, b in ((reader, far_writer), (far_reader, writer)):
            task = asyncio.create_task(self.pump(a, b))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(4096):
                writer.write(data)
                await writer.drain()
            writer.close()

    def all(self) -> None:
        for writer in self._open:
            writer.transport.abort()
        self._open.clear()

    async def __aenter__(self) -> CuttingProxy:
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self.server is not None
        self.server.close()
        self.all()
        while self._tasks:
            await asyncio.wait(self._tasks)
        await asyncio.sleep(0.01)


async def cutting_proxy(port: int) -> tuple[CuttingProxy, int]:
    proxy = CuttingProxy(port)
    proxy.server = await asyncio.start_server(proxy.connected, "127.0.0.1", 0)
    return proxy, int(proxy.server.sockets[0].getsockname()[1])


@both
@in_real_time
async def test_a_client_that_cannot_come_back_ends_its_call_with_the_reason(kind: str) -> None:
    """On both sides the call is over when the time to come back is."""
    caller = Caller(f"{TEN} {TEN}")
    async with serving(kind, resume_s=1.0) as served:
        cut, port = await cutting_proxy(served.port)
        async with cut:
            calling = asyncio.create_task(call(f"ws://127.0.0.1:{port}/call", caller.agent, options(caller)))
            while caller.seconds(1) < 0.3:
                await asyncio.sleep(0.01)
            cut.refuses = True
            cut.all()
            record = await calling
            assert record.why == "the connection was lost, and did not come back"
            while served.calls.running:
                await asyncio.sleep(0.01)


@in_real_time
async def test_a_half_open_connection_is_noticed_and_resumed() -> None:
    """A network that swallows everything without a word is found out by the pings of both sides, and the call goes on by another."""
    caller = Caller(" ".join([TEN] * 4), "bye")
    network = Network(Link())
    async with serving(ping_s=0.5) as served, tcp_link(served.port, network) as port:
        calling = asyncio.create_task(call(f"ws://127.0.0.1:{port}/call", caller.agent, options(caller, ping_s=0.5)))
        while caller.seconds(1) < 0.5:
            await asyncio.sleep(0.01)
        network.half_open = True
        await asyncio.sleep(1.5)
        network.half_open = False
        record = await calling
    assert record.why == "the agent ended it"
    assert caller.heard() == [" ".join([TEN] * 4), "bye"]
    assert caller.seconds(1) >= 4.0 - 0.25  # so long an ear is believed to go on without word of it


@in_real_time
async def test_a_bad_network_is_bridged() -> None:
    """With delay, jitter and losses every sample arrives, once and in order."""
    caller = Caller(TEN, "bye")
    link = Link(delay_s=0.04, jitter_s=0.03, loss=0.03)
    async with serving() as served, tcp_link(served.port, Network(link)) as port:
        record = await call(f"ws://127.0.0.1:{port}/call", caller.agent, options(caller))
    assert record.why == "the agent ended it"
    assert caller.heard() == [TEN, "bye"]
    assert (caller.seconds(1), caller.seconds(2)) == (1.0, 0.1)


@in_real_time
async def test_a_server_that_is_not_there_is_tried_a_few_times() -> None:
    """Then the record says that it could not be reached."""
    with sockets.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        quick = CallOptions(reconnect=BackoffOptions(first_wait_s=0.01, longest_wait_s=0.02, tries=3))
        record = await call(f"ws://127.0.0.1:{port}/call", parrot, quick)
    assert record.outcome == "refused"
    assert "could not be reached in 3 tries" in record.why


@pytest.mark.parametrize(("path", "token", "says"), [("/call", "wrong", "HTTP 401"), ("/other", "right", "HTTP 404")])
@in_real_time
async def test_a_server_that_refuses_is_not_tried_again(path: str, token: str, says: str) -> None:
    """A wrong token or address does not get better."""
    async with serving(token="right") as served:
        record = await call(served.url.replace("/call", path), parrot, CallOptions(token=token))
    assert record.outcome == "refused"
    assert says in record.why


@in_real_time
async def test_a_busy_server_is_tried_again() -> None:
    """When a line is free the call is answered."""
    caller = Caller("bye")
    async with serving(limit=1) as served:
        async with page(served.url) as first:
            await first.hears("started")
            again = BackoffOptions(first_wait_s=0.1, longest_wait_s=0.2, tries=100)
            calling = asyncio.create_task(call(served.url, caller.agent, options(caller, reconnect=again)))
            while served.calls.refused < 2:
                await asyncio.sleep(0.01)
            await first.say(type="end")
            await first.closed()
        assert (await calling).why == "the agent ended it"


@pytest.mark.parametrize("url", ["http://127.0.0.1/call", "127.0.0.1:80", "ws://", ""])
@in_real_time
async def test_an_address_that_is_none_is_an_error(url: str) -> None:
    """It is said at once."""
    with pytest.raises(ValueError, match="ws://"):
        await call(url, parrot)


@in_real_time
async def test_cancelling_a_call_hangs_up() -> None:
    """The server is told, and does not wait for the caller to come back."""
    caller = Caller(TEN)
    async with serving() as served:
        calling = asyncio.create_task(call(served.url, caller.agent, options(caller)))
        while caller.seconds(1) < 0.2:
            await asyncio.sleep(0.01)
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        while served.calls.running:
            await asyncio.sleep(0.01)


# ------------------------------------------------------------------------------------------------------- many calls


@both
def test_calls_that_are_cut_off_leave_nothing_behind(
    kind: str, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """Each is cut off at a moment of its own, in the handshake or in mid-speech: no task, socket or thread stays, and one line is logged each."""
    caplog.set_level(logging.INFO)
    chance, count = random.Random(11), 100

    async def one(served: Served) -> None:
        cut_after_s, closes = chance.random() * 0.5, chance.random() < 0.3
        async with connect(served.url, proxy=None) as connection:
            client = Client(connection)
            with contextlib.suppress(TimeoutError, ConnectionClosed):
                async with asyncio.timeout(cut_after_s):
                    await client.say(type="start")
                    await client.say(type="text", text=TEN)
                    await client.hears("ended")
            if closes:
                await connection.close()
            else:
                connection.transport.abort()

    @in_real_time
    async def storm() -> None:
        async with serving(kind, resume_s=0.2, limit=count) as served:
            for _ in range(count // 25):
                await asyncio.gather(*(one(served) for _ in range(25)))
            while served.calls.running:
                await asyncio.sleep(0.01)
            async with page(served.url) as client:
                await client.say(type="text", text="bye")
                assert (await client.closed())[0] == 1000

    storm()
    gc.collect()
    ours = [record.getMessage() for record in caplog.records if record.name.startswith("voiceflow")]
    ours = [line for line in ours if "held the event loop" not in line]  # a busy machine
    assert [line for line in ours if not line.startswith("call of websocket")] == []
    assert count <= len(ours) <= count + 1
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []
    captured = capfd.readouterr()
    assert (captured.out, captured.err) == ("", "")


@pytest.mark.parametrize("wrong", [{"port": 70000}, {"max_bytes": 10}, {"ping_s": -1}, {"handshake_s": 0}])
def test_server_options_that_make_no_sense_are_errors(wrong: dict[str, Any]) -> None:
    """The error names the option."""
    with pytest.raises(ValueError, match=next(iter(wrong))):
        WebsocketOptions(**wrong)
