"""A bad network between two real sockets: a proxy on this machine that delays, jitters, loses, narrows and cuts.

Used where the kernel's own emulation is not to be had (a container without netem). For TCP a loss is what the peers would see of it: everything
behind the lost segment waits for the retransmission. Datagrams are really lost, and really overtake one another.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, cast

SEGMENT = 1400
"""Bytes of a TCP segment."""
BUFFER = 64 * 1024
"""Bytes that are on the way in one direction before the sender is made to wait, as a socket's window does."""
RECEIVED = 8192
"""Bytes that the system is to hold here for a sender, beyond those."""


@dataclass(frozen=True)
class Link:
    """One direction: ``delay_s`` and up to ``jitter_s`` more; ``loss``: of segments or datagrams; ``rate``: bits a second.

    ``buffer``: bytes that are on the way over TCP, or wait before a narrow link, until a sender is made to wait or datagrams are lost.
    """

    delay_s: float = 0.0
    jitter_s: float = 0.0
    loss: float = 0.0
    rate: float | None = None
    buffer: int = BUFFER

    @property
    def retransmission_s(self) -> float:
        """How long TCP takes to notice a loss and send again: a round trip for the duplicate acknowledgements, at least 10 ms."""
        return max(2 * self.delay_s, 0.01)


class Network:
    """The way between the peers: in order, down (nothing passes, and is kept back), or half open (what is sent is lost for ever).

    ``link``: each direction's, from now on; ``up``: of the one to the server, over TCP, if that is another.
    """

    def __init__(self, link: Link, seed: int = 1, up: Link | None = None) -> None:
        self.link = link
        self.up = up
        self.chance = random.Random(seed)
        self.half_open = False
        self.lost = 0
        self._passes = asyncio.Event()
        self._passes.set()

    def cut(self) -> None:
        """An outage: nothing passes until it is mended."""
        self._passes.clear()

    def mend(self) -> None:
        """It is over."""
        self._passes.set()

    @property
    def is_up(self) -> bool:
        """Whether anything passes."""
        return self._passes.is_set()

    async def passes(self) -> None:
        """Wait for the end of an outage."""
        await self._passes.wait()


class _Pipe:
    """One direction of one TCP connection."""

    def __init__(self, network: Network, upward: bool, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.network, self.upward, self.reader, self.writer = network, upward, reader, writer
        self.free_at = 0.0
        self.due = 0.0
        self.queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(max(self.link.buffer // SEGMENT, 1))

    @property
    def link(self) -> Link:
        return (self.network.up if self.upward else None) or self.network.link

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self.take())
            group.create_task(self.give())

    async def take(self) -> None:
        """What the sender sends, segment by segment, with the time at which it is to arrive."""
        loop, network = asyncio.get_running_loop(), self.network
        while data := await self.reader.read(SEGMENT):
            now, link = loop.time(), self.link
            if link.rate:
                self.free_at = max(self.free_at, now) + len(data) * 8 / link.rate
                now = self.free_at
            arrives = now + link.delay_s + network.chance.random() * link.jitter_s
            while network.chance.random() < link.loss:
                network.lost += 1
                arrives += link.retransmission_s
            self.due = max(self.due, arrives)  # TCP delivers in order: what is behind a late segment waits for it
            await self.queue.put((self.due, data))
        await self.queue.put((self.due, b""))

    async def give(self) -> None:
        loop, network = asyncio.get_running_loop(), self.network
        while True:
            due, data = await self.queue.get()
            await asyncio.sleep(max(due - loop.time(), 0.0))
            await network.passes()
            if network.half_open:
                continue
            if not data:
                if self.writer.can_write_eof():
                    self.writer.write_eof()
                return
            self.writer.write(data)
            await self.writer.drain()


@contextlib.asynccontextmanager
async def tcp_link(port: int, network: Network) -> AsyncIterator[int]:
    """A port on this machine that leads to ``port`` by that network."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers = [writer]
        try:
            await network.passes()
            far = socket.socket()
            far.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVED)
            far.setblocking(False)
            try:
                await asyncio.get_running_loop().sock_connect(far, ("127.0.0.1", port))
            except BaseException:
                far.close()
                raise
            far_reader, far_writer = await asyncio.open_connection(sock=far, limit=SEGMENT)
            writers.append(far_writer)
            async with asyncio.TaskGroup() as group:
                group.create_task(_Pipe(network, True, reader, far_writer).run())
                group.create_task(_Pipe(network, False, far_reader, writer).run())
        finally:
            for one in writers:
                one.transport.abort()

    async with serving(connected) as near:
        yield near


@contextlib.asynccontextmanager
async def serving(connected: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]]) -> AsyncIterator[int]:
    """A TCP server on a port of this machine, whose connections are over when the block is."""
    tasks: list[asyncio.Task[None]] = []
    writers: list[asyncio.StreamWriter] = []

    def begin(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.append(asyncio.get_running_loop().create_task(connected(reader, writer)))
        writers.append(writer)

    listening = socket.create_server(("127.0.0.1", 0))
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVED)  # what it accepts inherits it
    server = await asyncio.start_server(begin, sock=listening, limit=SEGMENT)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        for writer in writers:
            writer.transport.abort()
        for _ in range(3):
            await asyncio.sleep(0)  # an aborted transport closes in the loop's next turns
        for ended in results:
            if isinstance(ended, ExceptionGroup) and ended.split(OSError)[1] is None:
                continue  # a peer that went away
            if isinstance(ended, Exception) and not isinstance(ended, OSError):
                raise ended


class _Relay(asyncio.DatagramProtocol):
    """Datagrams from a peer at one address to the far one, and back to whoever spoke last."""

    def __init__(self, network: Network, far: tuple[str, int]) -> None:
        self.network, self.far = network, far
        self.near: tuple[str, int] | None = None
        self.transport: asyncio.DatagramTransport
        self.free_at: dict[bool, float] = {}
        """For each direction, by whether it is from the far peer."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        if addr != self.far:
            self.near = addr
        target = self.near if addr == self.far else self.far
        network, link = self.network, self.network.link
        if target is None or not network.is_up or network.half_open:
            return
        if network.chance.random() < link.loss:
            network.lost += 1
            return
        loop = asyncio.get_running_loop()
        at = loop.time()
        if link.rate:
            free_at = max(self.free_at.get(addr == self.far, at), at)
            if (free_at - at) * link.rate > link.buffer * 8:
                network.lost += 1  # no room before the narrow place
                return
            at = self.free_at[addr == self.far] = free_at + len(data) * 8 / link.rate
        loop.call_at(at + link.delay_s + network.chance.random() * link.jitter_s, self._send, data, target)

    def _send(self, data: bytes, target: tuple[str, int]) -> None:
        if not self.transport.is_closing():
            self.transport.sendto(data, target)


@contextlib.asynccontextmanager
async def udp_link(port: int, network: Network, host: str = "127.0.0.1") -> AsyncIterator[int]:
    """The same for datagrams. ``host``: an address of this machine, which both peers use."""
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(lambda: _Relay(network, (host, port)), local_addr=(host, 0))
    try:
        yield transport.get_extra_info("sockname")[1]
    finally:
        transport.close()
