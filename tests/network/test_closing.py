"""A socket that is closed by the library while a slow far end has not taken all: lost, and no fault of ours."""

from __future__ import annotations

import asyncio
import base64
import hashlib

from websockets.asyncio.client import connect

from tests.network.link import serving
from voiceflow.transports.websocket import SILENT, WebsocketSocket

GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
"""Of RFC 6455, section 1.3."""


def test_a_send_that_waits_while_a_slow_connection_is_closed_finds_it_lost() -> None:
    """It raises ConnectionError, as for any other, and the call may be taken up again."""

    async def main() -> None:
        reads = asyncio.Event()

        async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            head = await reader.readuntil(b"\r\n\r\n")
            key = next(line.split(b": ")[1] for line in head.split(b"\r\n") if line.lower().startswith(b"sec-websocket-key"))
            accept = base64.b64encode(hashlib.sha1(key + GUID).digest())
            upgrade = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: "
            writer.write(upgrade + accept + b"\r\n\r\n")
            await reads.wait()
            while await reader.read(1 << 16):
                pass

        async with serving(slow) as port:
            connection = await connect(f"ws://127.0.0.1:{port}", ping_interval=None, logger=SILENT, proxy=None, write_limit=8192)
            socket = WebsocketSocket(connection)
            first = asyncio.create_task(socket.send(bytes(20_000_000)))
            while not connection.transport.get_write_buffer_size():
                await asyncio.sleep(0)
            connection.protocol.fail(1011, "no pong")  # what the library does when a ping is not answered
            connection.send_data()
            second = asyncio.create_task(socket.send(b"more"))
            await asyncio.sleep(0)
            connection.transport.close()
            reads.set()
            _, ended = await asyncio.gather(first, second, return_exceptions=True)
            assert isinstance(ended, ConnectionError)
            assert socket.lost
            await socket.close(1000, "")

    asyncio.run(main())
