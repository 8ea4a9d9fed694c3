"""Tools that an MCP server offers (https://modelcontextprotocol.io), through the official client.

The one rule: the server is a stranger. Whether it dies, hangs or sends nonsense, a call gets a result that says so, and
the conversation goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import mcp
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

from voiceflow.messages import ToolSpec
from voiceflow.processors.tool import Effect, Tool, ToolError, ToolRun, by_name

__all__ = ["McpOptions", "McpServer"]

log = logging.getLogger("voiceflow")


@dataclass(frozen=True, slots=True)
class McpOptions:
    """How a server is used."""

    connect_timeout_s: float = 10.0
    """From its start to its list of tools."""
    call_timeout_s: float = 15.0
    effects: Mapping[str, Effect] = field(default_factory=dict)
    """By tool: what you know of it. Else the server's own hints are believed only where they are careful: a tool that is
    said to read only is ``pure``, one said to be idempotent is, and any other must be done once."""
    fillers: Mapping[str, str] = field(default_factory=dict)
    """By tool: what is said while it takes long."""


class McpServer:
    """``async with McpServer(["python", "server.py"]) as server: ... Tools(server.tools)``; or a URL of streamable HTTP.

    One connection serves all sessions that use its tools. It is made anew, once, by the first call after it was lost.
    Entering raises ToolError if the server cannot be reached, or does not list usable tools.
    """

    def __init__(self, server: str | Sequence[str], options: McpOptions | None = None) -> None:
        self.server = server
        self.options = options or McpOptions()
        self.tools: list[Tool] = []
        self._client: mcp.Client | None = None
        self._owner: asyncio.Task[None] | None = None
        self._lost = asyncio.Event()
        self._connecting = asyncio.Lock()

    @property
    def name(self) -> str:
        """How errors name it."""
        return self.server.partition("?")[0] if isinstance(self.server, str) else " ".join(self.server)

    async def __aenter__(self) -> Self:
        client = await self._connected()
        try:
            async with asyncio.timeout(self.options.connect_timeout_s):
                listed = await self._listed(client)
            self.tools = [self._tool(offer) for offer in listed]
            names = by_name(self.tools, f"MCP server {self.name}: ")
            if strangers := self.options.effects.keys() - names.keys():
                raise ToolError(
                    f"MCP server {self.name}: effects names {', '.join(sorted(strangers))}, it offers {', '.join(names) or 'none'}"
                )
        except TimeoutError as error:
            await self._close()
            raise ToolError(f"MCP server {self.name}: it did not list its tools within {self.options.connect_timeout_s:g} s") from error
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self._close()

    async def _listed(self, client: mcp.Client) -> list[mcp.Tool]:
        offers, cursor = [], None
        while True:
            page = await client.list_tools(cursor=cursor)
            offers += page.tools
            if page.next_cursor is None or page.next_cursor == cursor:
                return offers
            cursor = page.next_cursor

    def _tool(self, offer: mcp.Tool) -> Tool:
        if offer.input_schema.get("type") != "object":
            raise ToolError(
                f"MCP server {self.name}: the schema of {offer.name} is not of an object: {json.dumps(offer.input_schema)[:200]}"
            )
        hints = offer.annotations
        careful: Effect = "once"
        if hints is not None:
            careful = "pure" if hints.read_only_hint else "idempotent" if hints.idempotent_hint else "once"
        return Tool(
            spec=ToolSpec(offer.name, offer.description or offer.title or "", json.dumps(offer.input_schema)),
            run=self._call,
            effect=self.options.effects.get(offer.name, careful),
            timeout_s=self.options.call_timeout_s,
            filler=self.options.fillers.get(offer.name, ""),
        )

    async def _call(self, this: ToolRun) -> str:
        call = this.call
        try:
            arguments = json.loads(call.arguments.strip() or "{}")
        except ValueError as error:
            raise ToolError(f"the arguments of {call.name} are not JSON: {error}") from error
        if not isinstance(arguments, dict):
            raise ToolError(f"the arguments of {call.name} are not an object")

        async def report(progress: float, total: float | None, message: str | None) -> None:
            this.progress(message or (f"{progress:g} of {total:g}" if total else f"{progress:g}"))

        client = await self._connected()
        try:
            async with asyncio.timeout(self.options.call_timeout_s):
                result = await client.call_tool(call.name, arguments, progress_callback=report)
        except TimeoutError as error:
            raise ToolError(f"MCP server {self.name} gave no result for {call.name} within {self.options.call_timeout_s:g} s") from error
        except mcp.MCPError as error:
            if error.code == mcp.types.CONNECTION_CLOSED:
                self._lost.set()
            raise ToolError(f"MCP server {self.name} refused {call.name}: {error}") from error
        except Exception as error:
            self._lost.set()
            raise ToolError(f"MCP server {self.name} failed on {call.name}: {type(error).__name__}: {error}") from error
        text = "\n".join(part.text for part in result.content if isinstance(part, mcp.types.TextContent))
        if result.is_error:
            raise ToolError(text or f"{call.name} failed and did not say why")
        return text or json.dumps(result.structured_content or {})

    async def _connected(self) -> mcp.Client:
        """The connection, made anew if it was lost."""
        async with self._connecting:
            if self._client is not None and not self._lost.is_set():
                return self._client
            await self._close()
            loop = asyncio.get_running_loop()
            ready: asyncio.Future[mcp.Client] = loop.create_future()
            self._lost.clear()
            self._owner = loop.create_task(self._own(ready), name=f"mcp {self.name}")
            try:
                async with asyncio.timeout(self.options.connect_timeout_s):
                    self._client = await asyncio.shield(ready)
            except Exception as error:
                await self._close()
                why = f"no answer within {self.options.connect_timeout_s:g} s" if isinstance(error, TimeoutError) else _told(error)
                raise ToolError(f"MCP server {self.name} cannot be reached: {why}") from error
            return self._client

    async def _own(self, ready: asyncio.Future[mcp.Client]) -> None:
        """Hold the connection: the client wants to be left by the task that entered it."""
        if isinstance(self.server, str):
            transport: Any = streamable_http_client(self.server)
        else:
            transport = stdio_client(StdioServerParameters(command=self.server[0], args=list(self.server[1:])))
        try:
            async with mcp.Client(transport) as client:
                if not ready.done():
                    ready.set_result(client)
                await self._lost.wait()
        except Exception as error:  # noqa: BLE001 - whoever waits for the connection, or called last, is told
            if ready.done():
                log.warning("MCP server %s: the connection ended badly: %s", self.name, _told(error))
            else:
                ready.set_exception(error)
        finally:
            self._client = None

    async def _close(self) -> None:
        owner, self._owner, self._client = self._owner, None, None
        if owner is None:
            return
        self._lost.set()
        await asyncio.wait([owner], timeout=self.options.connect_timeout_s / 2)
        owner.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await owner


def _told(error: BaseException) -> str:
    """The first plain error within groups."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"
