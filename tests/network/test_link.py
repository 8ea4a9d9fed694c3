"""The bad network is as bad as it says, and no worse: else the trials on it prove nothing."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from tests.network.link import Link, Network, serving, tcp_link, udp_link


@contextlib.asynccontextmanager
async def echo(link: Link) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter, Network]]:
    """A peer that sends back what it gets, at the far end of a link."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(4096):
            writer.write(data)
            await writer.drain()
        writer.close()

    network = Network(link)
    async with serving(answer) as far, tcp_link(far, network) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            yield reader, writer, network
        finally:
            writer.close()
            await writer.wait_closed()


async def round_trip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, data: bytes) -> float:
    """Seconds until it has come back, unchanged."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    writer.write(data)
    assert await asyncio.wait_for(reader.readexactly(len(data)), 30) == data
    return loop.time() - began


@pytest.mark.parametrize(
    ("link", "least_s"),
    [
        (Link(), 0.0),
        (Link(delay_s=0.1), 0.2),
        (Link(delay_s=0.02, jitter_s=0.05), 0.04),
        (Link(delay_s=0.02, loss=0.2), 0.04),
        (Link(rate=64000), 20000 * 8 / 64000),
    ],
)
def test_all_arrives_in_order_and_not_too_soon(link: Link, least_s: float) -> None:
    """Twenty thousand bytes come back as they were, no sooner than the link allows."""

    async def main() -> float:
        async with echo(link) as (reader, writer, _):
            return await round_trip(reader, writer, bytes(range(250)) * 80)

    assert asyncio.run(main()) >= least_s


def test_losses_happen() -> None:
    """As many as were asked for, more or less."""

    async def main() -> int:
        async with echo(Link(loss=0.2)) as (reader, writer, network):
            for _ in range(20):
                await round_trip(reader, writer, bytes(1400))
            return network.lost

    assert 3 <= asyncio.run(main()) <= 40


def test_an_outage_holds_everything_back_and_a_half_open_link_swallows_it() -> None:
    """After the one all comes, after the other nothing."""

    async def main() -> None:
        async with echo(Link()) as (reader, writer, network):
            await round_trip(reader, writer, b"before")
            network.cut()
            waiting = asyncio.create_task(round_trip(reader, writer, b"during"))
            done, _ = await asyncio.wait([waiting], timeout=0.1)
            assert not done
            network.mend()
            await waiting
            network.half_open = True
            writer.write(b"lost")
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(reader.read(1), 0.1)

    asyncio.run(main())


def test_datagrams_are_lost_and_overtake() -> None:
    """Some do not come, and the rest not in order; without loss and jitter all do, in order."""

    class Got(asyncio.DatagramProtocol):
        def __init__(self) -> None:
            self.numbers: list[int] = []
            self.last = asyncio.Event()

        def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
            self.numbers.append(int(data))
            if int(data) == 999:
                self.last.set()

    async def main(link: Link) -> list[int]:
        loop = asyncio.get_running_loop()
        far, got = await loop.create_datagram_endpoint(Got, local_addr=("127.0.0.1", 0))
        network = Network(link)
        async with udp_link(far.get_extra_info("sockname")[1], network) as port:
            near, _ = await loop.create_datagram_endpoint(asyncio.DatagramProtocol, remote_addr=("127.0.0.1", port))
            for number in range(200):
                near.sendto(b"%d" % number)
                await asyncio.sleep(0.0005)
            network.link = Link(delay_s=0.1)
            near.sendto(b"999")
            await asyncio.wait_for(got.last.wait(), 5)
            near.close()
        far.close()
        return got.numbers[:-1]

    assert asyncio.run(main(Link())) == list(range(200))
    bad = asyncio.run(main(Link(jitter_s=0.01, loss=0.2)))
    assert 120 <= len(bad) <= 190
    assert bad != sorted(bad)
