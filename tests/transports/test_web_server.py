"""The web server of ``voiceflow serve``: its files, its headers, its doors and who may walk through them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from tests.conformance.servers.sockets import over_sockets
from voiceflow.transports.web.server import PAGE, ServerOptions, WebServer

TOKEN = "correct-horse"


async def knock(request: web.Request) -> web.Response:
    return web.Response(text="come in")


async def open_socket(request: web.Request) -> web.WebSocketResponse:
    socket = web.WebSocketResponse()
    await socket.prepare(request)
    async for message in socket:
        await socket.send_str(message.data)
    return socket


@asynccontextmanager
async def serving(token: str = "", health: Mapping[str, Any] | None = None) -> AsyncIterator[tuple[WebServer, aiohttp.ClientSession]]:
    server = WebServer(
        ServerOptions(port=0, token=token),
        about=lambda: {"app": "an agent"},
        health=lambda: health or {"ready": True, "calls": 2},
        doors=[web.post("/door", knock), web.get("/socket", open_socket)],
        routes=[web.post("/own", knock)],
    )
    await server.start()
    try:
        async with aiohttp.ClientSession(f"http://127.0.0.1:{server.options.port}") as client:
            yield server, client
    finally:
        await server.close()


async def status_of(server: WebServer, header: bytes) -> int:
    """What a client gets at the door that writes a header as no library would."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.options.port)
    writer.write(b"POST /door HTTP/1.1\r\nHost: here\r\nContent-Length: 0\r\nConnection: close\r\n" + header + b"\r\n\r\n")
    status = int((await reader.readline()).split()[1])
    await reader.read()
    writer.close()
    await writer.wait_closed()
    return status


class TestPage:
    @over_sockets
    async def test_every_file_of_the_page_is_served_as_what_it_is(self) -> None:
        """HTML, style sheets, scripts and pictures come whole, with their types, and are never kept without asking."""
        kinds = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
        async with serving() as (_, client):
            for path in [*PAGE.iterdir(), Path("/")]:
                async with client.get(f"/{path.name}") as response:
                    assert response.status == 200, path
                    assert response.content_type == kinds[path.suffix or ".html"]
                    assert response.charset == "utf-8"
                    assert response.headers["Cache-Control"] == "no-cache"
                    assert await response.read() == (path if path.suffix else PAGE / "index.html").read_bytes()

    @over_sockets
    async def test_an_unchanged_file_is_not_sent_again(self) -> None:
        """A browser that shows the tag it was given gets 304 and no body; another tag gets the file."""
        async with serving() as (_, client):
            async with client.get("/app.js") as response:
                tag = response.headers["ETag"]
            async with client.get("/app.js", headers={"If-None-Match": f'"other", {tag}'}) as response:
                assert (response.status, await response.read()) == (304, b"")
            async with client.get("/app.js", headers={"If-None-Match": '"other"'}) as response:
                assert response.status == 200

    @over_sockets
    async def test_the_page_may_load_nothing_from_anywhere_else(self) -> None:
        """Everything that is answered, refusals too, carries the policy; sockets are allowed to this very host only."""
        async with serving(token=TOKEN) as (server, client):
            for method, path, status in [("GET", "/", 200), ("GET", "/nothing", 404), ("POST", "/door", 401), ("GET", "/health", 200)]:
                async with client.request(method, path) as response:
                    assert response.status == status
                    policy = response.headers["Content-Security-Policy"]
                    assert "default-src 'none'" in policy
                    assert f"connect-src 'self' ws://127.0.0.1:{server.options.port} wss://127.0.0.1:{server.options.port};" in policy
                    assert "unsafe" not in policy
                    assert response.headers["X-Content-Type-Options"] == "nosniff"
                    assert "microphone=(self)" in response.headers["Permissions-Policy"]

    @over_sockets
    async def test_a_host_that_is_none_does_not_get_into_the_policy(self) -> None:
        """What the caller calls this host goes into a header only if it looks like a host."""
        async with serving() as (_, client), client.get("/", headers={"Host": "a; script-src *"}) as response:
            assert "script-src *" not in response.headers["Content-Security-Policy"]

    @pytest.mark.parametrize("path", ["/../server.py", "/%2e%2e/server.py", "/page/../../server.py", "/__init__.py"])
    @over_sockets
    async def test_nothing_but_the_page_is_served(self, path: str) -> None:
        """No way leads out of the folder."""
        async with serving() as (_, client), client.get(path) as response:
            assert response.status == 404

    def test_the_page_asks_for_nothing_that_is_not_there(self) -> None:
        """Each file that a file of the page names is in the folder, and none has script or style within the HTML."""
        html = (PAGE / "index.html").read_text(encoding="utf-8")
        named = set(re.findall(r'(?:src|href)="([^"]+)"', html))
        for script in PAGE.glob("*.js"):
            text = script.read_text(encoding="utf-8")
            named |= set(re.findall(r'from "\./([^"]+)"', text))
            assert "http://" not in text.replace("http://localhost", "").replace("http://www.w3.org/2000/svg", "")
        assert named - {path.name for path in PAGE.iterdir()} == set()
        assert not re.search(r"<style|style=|<script(?![^>]*src=)|\son\w+=", html)


class TestDoors:
    @over_sockets
    async def test_with_a_token_only_who_shows_it_comes_in(self) -> None:
        """In the header or in the address; anything else is refused with what is wanted, and without what is right."""
        async with serving(token=TOKEN) as (server, client):
            for headers, query, status in [
                ({"Authorization": f"Bearer {TOKEN}"}, {}, 200),
                ({"Authorization": f"bearer {TOKEN}"}, {}, 200),
                ({}, {"token": TOKEN}, 200),
                ({}, {}, 401),
                ({}, {"token": ""}, 401),
                ({}, {"token": TOKEN + "x"}, 401),
                ({"Authorization": f"Basic {TOKEN}"}, {}, 401),
                ({"Authorization": "Bearer wröng"}, {"token": TOKEN}, 401),
            ]:
                async with client.post("/door", headers=headers, params=query) as response:
                    assert response.status == status, (headers, query)
                    said = await response.text()
                    assert ("come in" in said) is (status == 200)
                    assert TOKEN not in said
            assert await status_of(server, b"Authorization: Bearer \xff") == 401

    @over_sockets
    async def test_without_a_token_pages_of_other_servers_may_not_call(self) -> None:
        """A browser says whose page calls; a program says nothing, and may."""
        async with serving() as (server, client):
            here = f"http://127.0.0.1:{server.options.port}"
            for origin, status in [
                (here, 200),
                (None, 200),
                ("http://evil.example", 403),
                ("null", 403),
                (here + "1", 403),
                ("x" * 999, 403),
                ("http://[", 403),
            ]:
                async with client.post("/door", headers={"Origin": origin} if origin else {}) as response:
                    assert response.status == status, origin
            assert await status_of(server, b"Origin: http://\xff") == 403

    @over_sockets
    async def test_with_a_token_the_page_may_be_anywhere(self) -> None:
        """Who knows the token is asked nothing else."""
        elsewhere = {"Origin": "http://elsewhere.example"}
        async with serving(token=TOKEN) as (_, client), client.post("/door", params={"token": TOKEN}, headers=elsewhere) as response:
            assert response.status == 200

    @over_sockets
    async def test_routes_that_see_to_it_themselves_are_not_guarded(self) -> None:
        """A telephone carrier signs what it sends; it knows no token."""
        async with serving(token=TOKEN) as (_, client), client.post("/own") as response:
            assert response.status == 200

    @over_sockets
    async def test_a_websocket_goes_through_a_door(self) -> None:
        """The guard is in front of sockets too, and does not touch what is said on them."""
        async with serving(token=TOKEN) as (_, client):
            async with client.ws_connect("/socket", params={"token": TOKEN}) as socket:
                await socket.send_str("hello")
                assert (await socket.receive_str()) == "hello"
            with pytest.raises(aiohttp.WSServerHandshakeError, match="401"):
                await client.ws_connect("/socket")

    @over_sockets
    async def test_shut_doors_let_nobody_in_and_leave_who_is_there(self) -> None:
        """A connection made before goes on; the next is refused by the system."""
        async with serving() as (server, client), client.ws_connect("/socket") as socket:
            await server.shut_doors()
            await socket.send_str("still here")
            assert (await socket.receive_str()) == "still here"
            with pytest.raises(aiohttp.ClientConnectorError):
                await client.post("/door", headers={"Connection": "close"})


class TestHealth:
    @over_sockets
    async def test_a_server_that_is_not_ready_says_so_with_a_503(self) -> None:
        """The body says the rest; nobody keeps the answer."""
        for health, status in [({"ready": True, "calls": 3}, 200), ({"ready": False, "calls": 1}, 503), ({"calls": 1}, 503)]:
            async with serving(health=health) as (_, client), client.get("/health") as response:
                assert (response.status, await response.json()) == (status, health)
                assert response.headers["Cache-Control"] == "no-store"

    @over_sockets
    async def test_the_page_is_told_what_it_calls(self) -> None:
        """The agent's name, which needs no token."""
        async with serving(token=TOKEN) as (_, client), client.get("/page.json") as response:
            assert (response.status, await response.json()) == (200, {"app": "an agent"})

    @over_sockets
    async def test_the_page_can_ask_why_it_was_refused(self) -> None:
        """A browser tells a page nothing of a socket that did not open; this answers as the door would."""
        for token, health, status in [
            (TOKEN, {"ready": True}, 204),
            (TOKEN, {"ready": True, "full": True}, 429),
            (TOKEN, {"ready": False, "full": True}, 503),
            ("wrong", {"ready": True}, 401),
        ]:
            shown = {"Authorization": f"Bearer {token}"}
            async with serving(token=TOKEN, health=health) as (_, client), client.get("/may-call", headers=shown) as response:
                assert response.status == status


class TestOptions:
    @pytest.mark.parametrize("port", [-1, 65536])
    def test_a_port_that_is_none_is_refused(self, port: int) -> None:
        """The error says what a port may be."""
        with pytest.raises(ValueError, match=f"port is {port}, it must be 0"):
            ServerOptions(port=port)

    def test_the_token_is_not_shown(self) -> None:
        """Options end up in logs and tracebacks."""
        assert TOKEN not in repr(ServerOptions(token=TOKEN))

    @over_sockets
    async def test_a_port_that_is_taken_is_an_os_error(self) -> None:
        """And nothing is left half open."""
        async with serving() as (server, _):
            other = WebServer(ServerOptions(port=server.options.port), about=dict, health=dict)
            with pytest.raises(OSError, match="address already in use"):
                await other.start()

    @pytest.mark.parametrize(
        ("host", "address"),
        [
            ("0.0.0.0", "http://localhost:8080/"),
            ("::1", "http://localhost:8080/"),
            ("fe80::1", "http://[fe80::1]:8080/"),
            ("agent.example", "http://agent.example:8080/"),
        ],
    )
    def test_the_address_is_one_that_a_browser_can_open(self, host: str, address: str) -> None:
        """On this machine that is localhost, where browsers give a microphone without HTTPS."""
        assert ServerOptions(host=host).address == address
