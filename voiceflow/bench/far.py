"""A long line to a server on this machine: a TCP proxy that delays, and makes new connections pay for their handshakes.

The one rule: a byte comes out in order, and never before its time. Loss and bandwidth are no part of it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from voiceflow.testing.stand_ins import until

__all__ = ["HANDSHAKES", "far"]

HANDSHAKES = 2
"""Round trips before a new connection takes its first byte: TCP's, and that of TLS 1.3."""
PIECE = 64 * 1024
PIECES = 64
"""On the way in one direction, before the sender is made to wait."""


@contextlib.asynccontextmanager
async def far(port: int, round_trip_s: float) -> AsyncIterator[str]:
    """The origin of a server that leads to ``port`` of this machine by such a line."""
    calls: set[asyncio.Task[None]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        call = asyncio.current_task()
        assert call is not None
        calls.add(call)
        writers = [writer]
        try:
            await asyncio.sleep(HANDSHAKES * round_trip_s)
            there_reader, there_writer = await asyncio.open_connection("127.0.0.1", port)
            writers.append(there_writer)
            async with asyncio.TaskGroup() as group:
                group.create_task(_carry(reader, there_writer, round_trip_s / 2))
                group.create_task(_carry(there_reader, writer, round_trip_s / 2))
        except* (OSError, asyncio.CancelledError):
            pass  # a peer has gone away, or the line is taken down
        finally:
            calls.discard(call)
            for one in writers:
                one.transport.abort()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        pending = list(calls)
        for call in pending:
            call.cancel()
        await asyncio.gather(*pending, return_exceptions=True)


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay_s: float) -> None:
    """One direction, until its end."""
    loop = asyncio.get_running_loop()
    way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(PIECES)

    async def give() -> None:
        while True:
            due, data = await way.get()
            await until(due)
            if not data:
                writer.transport.close()
                return
            writer.write(data)
            await writer.drain()

    async with asyncio.TaskGroup() as group:
        group.create_task(give())
        while data := await reader.read(PIECE):
            await way.put((loop.time() + delay_s, data))
        await way.put((loop.time() + delay_s, b""))
