"""WebSockets to services, against a real server."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from socket import create_server

import pytest

pytest.importorskip("aiohttp", reason="pip install aiohttp")
pytest.importorskip("websockets", reason="pip install websockets")

from aiohttp import WSMsgType, web

from tests.conformance.servers.sockets import over_sockets
from voiceflow.backoff import Backoff, BackoffOptions
from voiceflow.processors.services.retry import ServiceError, Verdict
from voiceflow.processors.services.socket import Dialer, RefusedError, Socket, SocketClosedError, SocketOptions, WarmSocket, dial

SECRET = "key-0123456789"
Handler = Callable[[web.WebSocketResponse], Awaitable[None]]


class Server:
    """``serve``: what is done on each connection. ``seen``: when they were asked for; ``codes``: how they ended."""

    def __init__(self, serve: Handler, refuse: int = 0) -> None:
        self.serve, self.refuse = serve, refuse
        self.seen: list[float] = []
        self.codes: list[int | None] = []
        self.headers: list[str] = []
        self.port = 0

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.seen.append(asyncio.get_running_loop().time())
        self.headers.append(request.headers.get("x-key", ""))
        if self.refuse == 302:
            raise web.HTTPFound(f"http://localhost:{self.port}/elsewhere")
        if self.refuse:
            return web.json_response({"detail": {"status": "voice_not_found"}}, status=self.refuse, headers={"retry-after": "2"})
        socket = web.WebSocketResponse(timeout=0.2, autoping=False)
        await socket.prepare(request)
        await self.serve(socket)
        self.codes.append(socket.close_code)
        return socket

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}/x"


@contextlib.asynccontextmanager
async def serving(serve: Handler, refuse: int = 0) -> AsyncIterator[Server]:
    server = Server(serve, refuse)
    app = web.Application()
    app.router.add_get("/{any}", server.answer)
    runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    server.port = runner.addresses[0][1]
    try:
        yield server
    finally:
        await runner.cleanup()


async def echo(socket: web.WebSocketResponse) -> None:
    async for message in socket:
        if message.type is WSMsgType.TEXT:
            await socket.send_str(message.data)
        elif message.type is WSMsgType.BINARY:
            await socket.send_bytes(message.data)
        elif message.type is WSMsgType.PING:
            await socket.pong(message.data)


async def deaf(socket: web.WebSocketResponse) -> None:
    await asyncio.Event().wait()


def closing(code: int, reason: str = "") -> Handler:
    async def serve(socket: web.WebSocketResponse) -> None:
        await socket.close(code=code, message=reason.encode())

    return serve


async def cut(socket: web.WebSocketResponse) -> None:
    transport = socket._req.transport if socket._req is not None else None
    assert transport is not None
    transport.abort()


@over_sockets
async def test_text_and_bytes_go_both_ways() -> None:
    """And a goodbye in peace is a normal close."""
    async with serving(echo) as server:
        async with await dial(server.url, {"x-key": SECRET}) as socket:
            for message in ("Grüße 👋", b"\x00\xff", "x" * 3_000_000):
                await socket.send(message)
                assert await socket.receive(5.0) == message
            assert socket.is_open
        assert not socket.is_open
        await asyncio.sleep(0.1)
        assert (server.codes, server.headers) == ([1000], [SECRET])


@pytest.mark.parametrize("how", ["error", "cancelled"])
@over_sockets
async def test_left_otherwise_it_is_cut_at_once(how: str) -> None:
    """A server that does not say goodbye holds nobody up."""
    async with serving(deaf) as server:

        async def use() -> None:
            async with await dial(server.url, {}) as socket:
                if how == "error":
                    raise ValueError
                await socket.receive(None)

        task = asyncio.create_task(use())
        await asyncio.sleep(0.1)
        task.cancel()
        began = asyncio.get_running_loop().time()
        with contextlib.suppress(ValueError, asyncio.CancelledError):
            await task
        assert asyncio.get_running_loop().time() - began < 0.01


@over_sockets
async def test_a_server_that_does_not_say_goodbye_is_not_waited_for_long() -> None:
    """As long as the options say."""
    async with serving(deaf) as server:
        socket = await dial(server.url, {}, SocketOptions(close_s=0.3))
        began = asyncio.get_running_loop().time()
        await socket.close()
        assert asyncio.get_running_loop().time() - began == pytest.approx(0.3, abs=0.01)


@over_sockets
async def test_every_wait_has_a_deadline() -> None:
    """For a message that does not come, one that is not taken, and an opening that is not answered."""
    async with serving(deaf) as server, await dial(server.url, {}, SocketOptions(send_s=2.0, ping_s=None)) as socket:
        with pytest.raises(ServiceError, match="no word within 1 s") as raised:
            await socket.receive(1.0, "no word")
        assert raised.value.verdict is Verdict.LATER

        async def flood() -> None:
            for _ in range(20):
                await socket.send(bytes(4_000_000))

        with pytest.raises(ServiceError, match="took nothing for 2 s"):
            await flood()
        assert not socket.is_open

    with create_server(("127.0.0.1", 0)) as silent, pytest.raises(ServiceError, match="did not open a connection within 3 s"):
        await dial(f"ws://127.0.0.1:{silent.getsockname()[1]}", {}, SocketOptions(open_s=3.0))


@over_sockets
async def test_a_dead_connection_is_found_by_pings() -> None:
    """Although nobody says anything."""
    async with serving(deaf) as server, await dial(server.url, {}, SocketOptions(ping_s=5.0, pong_s=4.0)) as socket:
        with pytest.raises(SocketClosedError):
            await socket.receive(60.0)
        assert asyncio.get_running_loop().time() < 12


@pytest.mark.parametrize(
    ("serve", "code", "verdict"),
    [
        (closing(1000), 1000, Verdict.AT_ONCE),
        (closing(1001), 1001, Verdict.AT_ONCE),
        (closing(1008, f"the key {SECRET}"), 1008, Verdict.LATER),
        (closing(1011), 1011, Verdict.LATER),
        (cut, 1006, Verdict.AT_ONCE),
    ],
)
@over_sockets
async def test_a_close_says_how(serve: Handler, code: int, verdict: Verdict) -> None:
    """Its code, and whether it is worth another try; its reason is kept, and in no text."""
    async with serving(serve) as server, await dial(server.url, {}) as socket:
        with pytest.raises(SocketClosedError) as raised:
            await socket.receive(5.0)
        assert (raised.value.code, raised.value.verdict) == (code, verdict)
        assert raised.value.reason == (f"the key {SECRET}" if code == 1008 else "")
        assert SECRET not in str(raised.value) + repr(raised.value)
        with pytest.raises(SocketClosedError):
            await socket.send("x")


@pytest.mark.parametrize(("status", "verdict"), [(401, Verdict.NEVER), (404, Verdict.NEVER), (429, Verdict.LATER), (503, Verdict.LATER)])
@over_sockets
async def test_a_refusal_has_its_status_and_body(status: int, verdict: Verdict) -> None:
    """And the pause that the service asks for."""
    async with serving(echo, status) as server:
        with pytest.raises(RefusedError) as raised:
            await dial(server.url, {})
        assert (raised.value.status, raised.value.verdict) == (status, verdict)
        assert b"voice_not_found" in raised.value.body
        assert raised.value.retry_after_s == (2.0 if verdict is Verdict.LATER else None)


@over_sockets
async def test_a_key_does_not_follow_a_redirect() -> None:
    """It was meant for this host."""
    async with serving(echo, 302) as server:
        with pytest.raises(RefusedError, match="has moved"):
            await dial(server.url, {"x-key": SECRET})
        assert len(server.seen) == 1


@over_sockets
async def test_the_key_is_in_no_log(caplog: pytest.LogCaptureFixture) -> None:
    """The library would write down the headers."""
    with caplog.at_level(logging.DEBUG):
        async with serving(echo) as server, await dial(server.url, {"x-key": SECRET}) as socket:
            await socket.send("x")
            assert SECRET not in repr(socket)
    assert SECRET not in caplog.text


@over_sockets
async def test_nobody_listens() -> None:
    """The address and a question that helps."""
    async with serving(echo) as server:
        url = server.url
    with pytest.raises(ServiceError, match="is it running"):
        await dial(url, {})


@over_sockets
async def test_keep_alive_speaks_only_where_nobody_else_does() -> None:
    """Counted from the last message; and it ends with the connection."""
    said: list[tuple[float, str]] = []

    async def serve(socket: web.WebSocketResponse) -> None:
        async for message in socket:
            if message.type is WSMsgType.TEXT:
                said.append((asyncio.get_running_loop().time(), message.data))

    async with serving(serve) as server:
        async with await dial(server.url, {}, SocketOptions(ping_s=None)) as socket:
            keeping = asyncio.create_task(socket.keep_alive(5.0, lambda: "alive"))
            await asyncio.sleep(3.0)
            await socket.send("word")
            await asyncio.sleep(11.0)
        await asyncio.wait([keeping], timeout=1.0)
        assert keeping.done()
        assert [(round(at), what) for at, what in said] == [(3, "word"), (8, "alive"), (13, "alive")]


# ------------------------------------------------------------------------------------------- again and again


def dialer(server: Server, **more: float) -> Dialer:
    options = BackoffOptions(**{"first_wait_s": 1.0, "longest_wait_s": 4.0, "tries": 5, **more})  # type: ignore[arg-type]
    return Dialer(server.url, {}, Backoff(options, lambda: 1.0), SocketOptions(ping_s=None))


@over_sockets
async def test_it_is_dialled_again_after_growing_pauses_until_it_is_given_up() -> None:
    """B50: a server that refuses is not stormed."""
    async with serving(echo, 503) as server:
        dialling = dialer(server)
        with pytest.raises(ServiceError, match="503"):
            await dialling.dial()
        pauses = [round(b - a, 1) for a, b in zip(server.seen, server.seen[1:], strict=False)]
        assert pauses == [2.0, 2.0, 4.0, 4.0]  # what it asks for, where that is more


@over_sockets
async def test_a_connection_that_is_accepted_and_closed_counts_as_a_failure() -> None:
    """Until it has been of use."""
    async with serving(closing(1011)) as server:
        dialling = dialer(server)

        async def listen() -> None:
            while True:
                async with await dialling.dial() as socket:
                    try:
                        await socket.receive(5.0)
                    except ServiceError as error:
                        dialling.lost(error)

        with pytest.raises(ServiceError, match="1011"):
            await listen()
        assert len(server.seen) == 5
        server.serve = echo
        for _ in range(8):
            async with await dialling.dial() as socket:
                await socket.send("x")
                await socket.receive(1.0)
                dialling.worked()
                dialling.lost(ServiceError("dropped", verdict=Verdict.LATER))


@contextlib.asynccontextmanager
async def kept_warm(server: Server, **more: float) -> AsyncIterator[WarmSocket]:
    warm = WarmSocket(dialer(server, **more))
    task = asyncio.create_task(warm.keep())
    await asyncio.sleep(0.1)
    try:
        yield warm
    finally:
        task.cancel()
        await asyncio.wait([task])


@over_sockets
async def test_a_warm_connection_is_there_before_it_is_asked_for() -> None:
    """Borrowed it is the same one; taken, the next is opened at once; at the end it says goodbye."""
    async with serving(echo) as server:
        async with kept_warm(server) as warm:
            assert len(server.seen) == 1
            began = asyncio.get_running_loop().time()
            borrowed = await warm.borrow()
            taken = await warm.take()
            assert borrowed is taken
            assert asyncio.get_running_loop().time() == began
            await asyncio.sleep(0.1)
            assert len(server.seen) == 2
            assert await warm.borrow() is not taken
            await taken.close()
        await asyncio.sleep(0.1)
        assert server.codes == [1000, 1000]


@over_sockets
async def test_a_warm_connection_that_is_lost_is_made_again_unasked() -> None:
    """After a while of use it may happen as often as it likes."""

    async def idle(socket: web.WebSocketResponse) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(20):
                await echo(socket)
        await socket.close(code=1008)

    async with serving(idle) as server, kept_warm(server, tries=3) as warm:
        await asyncio.sleep(400)
        assert len(server.seen) > 15
        socket = await warm.borrow()
        socket.abort()
        assert await warm.borrow() is not socket


@over_sockets
async def test_what_is_given_up_is_tried_again_when_it_is_needed() -> None:
    """Once for each time; nobody waits for ever, and it works when the server does."""
    async with serving(echo, 401) as server, kept_warm(server) as warm:
        await asyncio.sleep(60)
        assert len(server.seen) == 1
        for number in range(3):
            with pytest.raises(ServiceError, match="401"):
                await warm.borrow()
            assert len(server.seen) == number + 2
        server.refuse = 0
        assert isinstance(await warm.take(), Socket)
    await asyncio.sleep(0)


@pytest.mark.parametrize("name", ["open_s", "send_s", "close_s", "ping_s", "pong_s", "longest_bytes"])
def test_a_limit_is_more_than_nothing(name: str) -> None:
    """It is named."""
    with pytest.raises(ValueError, match=name):
        SocketOptions(**{name: 0})
