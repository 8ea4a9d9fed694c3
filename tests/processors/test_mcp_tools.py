"""Tools of a real MCP server in a process of its own, over stdio and over streamable HTTP."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp", reason="pip install mcp")

from voiceflow import ToolCall
from voiceflow.processors.mcp_tools import McpOptions, McpServer
from voiceflow.processors.tool import ToolError, ToolRun

STDIO = [sys.executable, str(Path(__file__).with_name("mcp_server.py"))]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """The server on a free port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen([*STDIO, str(port)], stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    for line in process.stderr:
        if "running on" in line:
            break
    yield f"http://127.0.0.1:{port}/mcp"
    process.kill()
    process.communicate()


def with_server(server: str | list[str], test: Callable[[McpServer], Awaitable[None]], options: McpOptions | None = None) -> None:
    async def main() -> None:
        async with McpServer(server, options) as connected:
            await test(connected)

    asyncio.run(main())


async def call(server: McpServer, name: str, progress: Callable[[str], None] = print, **arguments: Any) -> str:
    known = next(known for known in server.tools if known.name == name)
    result = await known.run(ToolRun(ToolCall("1", name, json.dumps(arguments)), None, progress, lambda: None))  # type: ignore[arg-type]
    assert isinstance(result, str)
    return result


@pytest.mark.parametrize("way", ["stdio", "http"])
def test_its_tools_are_listed_and_called(way: str, url: str) -> None:
    """Names, descriptions and schemas come from the server, results and progress as well."""

    async def test(server: McpServer) -> None:
        hours = next(known for known in server.tools if known.name == "opening_hours")
        assert hours.spec.description == "When the shop is open."
        assert json.loads(hours.spec.parameters)["properties"]["day"]["type"] == "string"
        assert {known.name: known.effect for known in server.tools}.items() >= {
            "opening_hours": "pure",
            "set_alarm": "idempotent",
            "order": "once",
        }.items()
        assert await call(server, "opening_hours", day="Monday") == "Monday: nine to five"
        assert json.loads(await call(server, "set_alarm", hour=7))["hour"] == 7
        told: list[str] = []
        assert await call(server, "order", told.append, item="lamp") == "one lamp ordered"
        assert told == ["half way"]

    with_server(STDIO if way == "stdio" else url, test)


def test_what_is_known_better_than_the_server_hints_counts() -> None:
    """Effects and fillers are set by name."""

    async def test(server: McpServer) -> None:
        order = next(known for known in server.tools if known.name == "order")
        assert (order.effect, order.filler) == ("idempotent", "One moment.")

    with_server(STDIO, test, McpOptions(effects={"order": "idempotent"}, fillers={"order": "One moment."}))


def test_a_tool_that_fails_says_so() -> None:
    """The server's words are in the error, as they are for arguments that do not fit."""

    async def test(server: McpServer) -> None:
        with pytest.raises(ToolError, match="out of paper"):
            await call(server, "fails")
        with pytest.raises(ToolError, match="day"):
            await call(server, "opening_hours", month="May")
        assert await call(server, "opening_hours", day="Sunday")

    with_server(STDIO, test)


def test_a_server_that_dies_is_started_again_by_the_next_call() -> None:
    """The call under way gets an error that names the server; the one after it is answered."""

    async def test(server: McpServer) -> None:
        for _ in range(2):
            with pytest.raises(ToolError, match=r"MCP server .*mcp_server.py .*dies"):
                await call(server, "dies")
            assert await call(server, "opening_hours", day="Friday") == "Friday: nine to five"

    with_server(STDIO, test)


def test_a_call_that_hangs_is_given_up_and_the_next_is_answered() -> None:
    """The limit is the option's, and the error says so."""

    async def test(server: McpServer) -> None:
        with pytest.raises(ToolError, match=r"gave no result for hangs within 0\.3 s"):
            await call(server, "hangs")
        assert await call(server, "opening_hours", day="Friday")

    with_server(STDIO, test, McpOptions(call_timeout_s=0.3))


@pytest.mark.parametrize(
    ("server", "message"),
    [
        ([sys.executable, "-c", "raise SystemExit(1)"], "cannot be reached"),
        (["/nowhere/at/all"], "/nowhere/at/all cannot be reached"),
        ([sys.executable, "-c", "import time; time.sleep(60)"], "cannot be reached"),
        ([sys.executable, "-c", "print('no protocol', flush=True); input(); input()"], "cannot be reached"),
        ("http://127.0.0.1:9/mcp?key=SECRET", "MCP server http://127.0.0.1:9/mcp cannot be reached"),
    ],
)
def test_a_server_that_cannot_be_reached_is_named(server: str | list[str], message: str) -> None:
    """One error, in time, with the server's name and without what a URL may keep secret."""

    async def test(server: McpServer) -> None:
        raise AssertionError("it was reached")

    with pytest.raises(ToolError, match=message) as caught:
        with_server(server, test, McpOptions(connect_timeout_s=2))
    assert "SECRET" not in str(caught.value)


def test_effects_of_tools_that_do_not_exist_are_named() -> None:
    """A misspelt name is an error, not a tool that runs twice."""

    async def test(server: McpServer) -> None:
        raise AssertionError("it was accepted")

    with pytest.raises(ToolError, match="effects names ordr, it offers opening_hours"):
        with_server(STDIO, test, McpOptions(effects={"ordr": "once"}))
