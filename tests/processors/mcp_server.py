"""A real MCP server, over stdio or (with a port) streamable HTTP: some tools behave and some do not."""

from __future__ import annotations

import asyncio
import os
import sys

from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import ToolAnnotations

server = MCPServer("test")


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def opening_hours(day: str) -> str:
    """When the shop is open."""
    return f"{day}: nine to five"


@server.tool(annotations=ToolAnnotations(idempotent_hint=True))
def set_alarm(hour: int) -> dict[str, int]:
    """Set the alarm."""
    return {"hour": hour}


@server.tool()
async def order(item: str, ctx: Context) -> str:
    """Order an item."""
    await ctx.report_progress(1, 2, "half way")
    return f"one {item} ordered"


@server.tool()
def fails() -> str:
    """Raise."""
    raise ToolError("out of paper")


@server.tool()
def dies() -> str:
    """End the server's process."""
    os._exit(3)


@server.tool()
async def hangs() -> str:
    """Never answer."""
    await asyncio.Event().wait()
    return ""


if __name__ == "__main__":
    if len(sys.argv) > 1:
        server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[1]))
    else:
        server.run("stdio")
