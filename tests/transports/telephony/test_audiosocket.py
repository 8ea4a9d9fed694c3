"""Asterisk's AudioSocket: the stream however TCP cuts it, and whole calls with a peer that is written from the protocol's page."""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
import socket
import struct
import uuid
from collections.abc import AsyncIterator
from typing import Self

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.transports.line_rig import Parrot
from voiceflow import AudioFormat, Frame, InputAudioFrame, Pipeline, Processor, TurnEnded
from voiceflow.phone import DigitReceived
from voiceflow.testing import Latency, ScriptedTTS, no_leaks
from voiceflow.transports.calls import CallRecord, Calls
from voiceflow.transports.telephony.audiosocket import KINDS, AudioSocketOptions, AudioSocketServer, AudioSocketWire
from voiceflow.transports.wire import CallEnded, CallStarted, WireError

CALL = uuid.UUID("40325ec2-5efd-4bd3-805f-53576e581d13")
HELLO = b"\x01\x00\x10" + CALL.bytes
SILENCE = b"\x10\x01\x40" + bytes(320)

# ------------------------------------------------------------------------------------------------ the codec


def frames(*pieces: bytes, wire: AudioSocketWire | None = None) -> list[object]:
    wire = wire or AudioSocketWire()
    return [one for piece in pieces for one in wire.receive(piece)]


def test_a_call_as_asterisk_begins_it() -> None:
    """Its number, sound of 16 bits, keys, and the end."""
    sound = bytes(range(256)) + bytes(64)
    stream = HELLO + b"\x10\x01\x40" + sound + b"\x03\x00\x015" + b"\x03\x00\x01a" + b"\x00\x00\x00"
    assert frames(stream) == [
        CallStarted(str(CALL)),
        InputAudioFrame(pcm=sound, sample_rate=8000),
        DigitReceived(digit="5"),
        DigitReceived(digit="A"),
        CallEnded("asterisk hung up"),
    ]


@given(st.lists(st.integers(0, 400)), st.integers(0, 5))
def test_wherever_tcp_cuts_the_stream(cuts: list[int], sounds: int) -> None:
    """The same frames."""
    stream = HELLO + SILENCE * sounds + b"\x03\x00\x01#" + b"\xff\x00\x01\x02"
    edges = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    pieces = [stream[a:b] for a, b in itertools.pairwise(edges)]
    assert frames(*pieces) == frames(stream)
    assert frames(stream)[-1] == CallEnded("asterisk reports an error: a frame could not be forwarded")


@given(st.binary(max_size=200))
def test_no_bytes_do_harm(data: bytes) -> None:
    """Frames, faults or a WireError."""
    wire = AudioSocketWire()
    wire.receive(HELLO)
    for one in wire.receive(data):
        assert isinstance(one, Frame | CallStarted | CallEnded)


@pytest.mark.parametrize(
    "nonsense", [b"\x10\x00\x00", b"\x10\x00\x01x", b"\x77\x00\x02ab", b"\x12\x00\x02ab", b"\x03\x00\x01Z", b"\x03\x00\x0212", HELLO]
)
def test_what_makes_no_sense_is_passed_over_and_counted(nonsense: bytes) -> None:
    """Sound of no length or half a sample, of another rate, kinds and keys that do not exist, a second UUID."""
    wire = AudioSocketWire()
    assert frames(HELLO, nonsense, SILENCE, wire=wire)[1:] == [InputAudioFrame(pcm=bytes(320), sample_rate=8000)]
    assert wire.faults == 1


def test_a_stream_that_does_not_begin_with_a_call_is_none() -> None:
    """The error says what was expected."""
    with pytest.raises(WireError, match=r"0x47; AudioSocket begins with the call's UUID"):
        frames(b"GET / HTTP/1.1\r\n" + bytes(0x4554))
    with pytest.raises(WireError, match="stream of bytes"):
        AudioSocketWire().receive("text")


@pytest.mark.parametrize(("kind", "rate"), sorted(KINDS.items()))
def test_the_first_sound_may_say_the_rate(kind: int, rate: int) -> None:
    """The call begins with it, and is answered in kind."""
    wire = AudioSocketWire(None)
    assert frames(HELLO, wire=wire) == []
    begun, sound = frames(bytes([kind, 0, 4]) + b"abcd", wire=wire)
    assert begun == CallStarted(str(CALL))
    assert sound == InputAudioFrame(pcm=b"abcd", sample_rate=rate)
    assert wire.audio(b"efgh") == [bytes([kind, 0, 4]) + b"efgh"]
    assert wire.speaks == AudioFormat(rate)


def test_an_asterisk_with_other_kinds() -> None:
    """Versions differ in what 0x11 is."""
    options = AudioSocketOptions(sample_rate=16000, kinds={0x10: 8000, 0x11: 16000})
    assert AudioSocketWire(options.sample_rate, options.kinds).audio(b"ab") == [b"\x11\x00\x02ab"]
    for wrong in ({"sample_rate": 11025}, {"port": 70000}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            AudioSocketOptions(**wrong)  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------------ whole calls


class Keys(Processor):
    """Each key is a turn: ``1`` is answered, ``9`` says goodbye; keeps the sound."""

    heard = 0

    def process(self, frame: InputAudioFrame | DigitReceived) -> TurnEnded | None:
        if isinstance(frame, InputAudioFrame):
            self.heard += int(np.count_nonzero(frame.samples))
            return None
        return TurnEnded(text={"1": "one two three", "9": "bye"}.get(frame.digit, "what"))


def agent(source: Processor, sink: Processor) -> Pipeline:
    return source >> Keys() >> Parrot() >> ScriptedTTS(Latency(), step=1000) >> sink


class Asterisk:
    """The other side of one call, by the protocol's page: reads frames whole, and says what it is told."""

    def __init__(self, port: int) -> None:
        self.port = port

    async def __aenter__(self) -> Self:
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
        self.writer.write(struct.pack(">BH", 1, 16) + CALL.bytes)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.writer.close()
        await asyncio.wait([asyncio.ensure_future(self.writer.wait_closed())])

    def press(self, key: str) -> None:
        self.writer.write(struct.pack(">BH", 3, 1) + key.encode())

    def speak(self, samples: int) -> None:
        self.writer.write(struct.pack(">BH", 0x10, 2 * samples) + b"\x01\x00" * samples)

    async def frames(self) -> AsyncIterator[tuple[int, bytes]]:
        while True:
            try:
                kind, size = struct.unpack(">BH", await self.reader.readexactly(3))
                yield kind, await self.reader.readexactly(size)
            except (asyncio.IncompleteReadError, ConnectionError):
                return

    async def sound(self, of: int) -> bytes:
        """So many samples that are not silence."""
        heard = b""
        async for kind, payload in self.frames():
            assert kind == 0x10
            assert len(payload) == 320
            heard += payload
            if np.count_nonzero(np.frombuffer(heard, "<i2")) >= of:
                return heard
        raise AssertionError("the line was closed before all was heard")


async def over(calls: Calls) -> None:
    while calls.running:
        await asyncio.sleep(0.01)


def real(scene: object, **options: float) -> list[CallRecord]:
    async def main() -> list[CallRecord]:
        records: list[CallRecord] = []
        calls = Calls(agent, limit=100)
        keep = calls._over

        def note(record: CallRecord, error: BaseException | None) -> CallRecord:
            records.append(record)
            return keep(record, error)

        calls._over = note  # type: ignore[method-assign]
        async with no_leaks(), AudioSocketServer(calls, AudioSocketOptions(port=0, **options)) as server, asyncio.timeout(30):
            await scene(server, calls)  # type: ignore[operator]
            await over(calls)
        return records

    return asyncio.run(main())


def test_it_is_heard_and_answered_and_hung_up() -> None:
    """Two turns at real-time pace over TCP; at the agent's goodbye the line is hung up, and closed."""

    async def scene(server: AudioSocketServer, calls: Calls) -> None:
        async with Asterisk(server.options.port) as peer:
            peer.speak(160)
            peer.press("1")
            began = asyncio.get_running_loop().time()
            heard = await peer.sound(of=round(0.29 * 8000))
            assert asyncio.get_running_loop().time() - began > 0.2, "no faster than it is played: Asterisk does not re-time"
            assert {1000} <= set(np.unique(np.frombuffer(heard, "<i2")))
            peer.press("9")
            rest = [frame async for frame in peer.frames()]
            assert rest[-1] == (0, b"")

    (record,) = real(scene)
    assert (record.outcome, record.who) == ("ended", f"audiosocket {CALL}")


def test_a_far_end_that_hangs_up_ends_the_call() -> None:
    """By its word, by an error, or by closing the connection."""

    async def scene(server: AudioSocketServer, calls: Calls) -> None:
        for last in (b"\x00\x00\x00", b"\xff\x00\x01\x01", b""):
            async with Asterisk(server.options.port) as peer:
                peer.press("1")
                await peer.sound(of=10)
                peer.writer.write(last)
                if not last:
                    peer.writer.write_eof()
                async for _ in peer.frames():
                    pass

    records = real(scene)
    assert [record.outcome for record in records] == ["hung up"] * 3
    assert [record.why.partition(":")[0] for record in records][:2] == ["asterisk hung up", "asterisk reports an error"]


def test_an_asterisk_that_is_gone_without_a_word_is_given_up() -> None:
    """Nothing comes and nothing is closed: its line is free again."""

    async def scene(server: AudioSocketServer, calls: Calls) -> None:
        async with Asterisk(server.options.port):
            await over_once_begun(calls)

    async def over_once_begun(calls: Calls) -> None:
        while not calls.answered:
            await asyncio.sleep(0.01)
        await over(calls)

    (record,) = real(scene, quiet_s=0.3)
    assert (record.outcome, record.why) == ("hung up", "the connection was lost")


def test_who_is_not_asterisk_is_turned_away() -> None:
    """Such a connection is closed with a reason in the log; the server goes on."""

    async def scene(server: AudioSocketServer, calls: Calls) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.options.port)
        writer.write(b"GET / HTTP/1.1\r\n" + bytes(0x4554))
        assert await reader.read() == b""
        writer.close()
        await writer.wait_closed()
        async with Asterisk(server.options.port) as peer:
            peer.press("9")
            assert [frame async for frame in peer.frames()][-1] == (0, b"")

    assert [record.outcome for record in real(scene)] == ["refused", "ended"]


@pytest.mark.parametrize("turns", [0, 3, 4, 5, 6])  # after 1 or 2 it is Python 3.11 itself that loses the socket
def test_a_connection_that_comes_while_the_server_is_left_is_no_call(turns: int) -> None:
    """However many turns of the loop it came before: nothing is answered afterwards, and nothing is left."""

    async def main() -> None:
        async with no_leaks():
            calls = Calls(agent, limit=3)
            with socket.socket() as caller:
                async with AudioSocketServer(calls, AudioSocketOptions(port=0)) as server:
                    caller.connect(("127.0.0.1", server.options.port))
                    caller.sendall(HELLO)
                    for _ in range(turns):
                        await asyncio.sleep(0)
                for _ in range(10):
                    await asyncio.sleep(0)
                await asyncio.sleep(0.1)
                assert calls.running == 0

    asyncio.run(main())


def test_sixty_calls_cut_off_at_random_moments_leave_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """No task, socket or descriptor (which the leak check sees to), and one line a call."""
    caplog.set_level(logging.INFO, "voiceflow")
    chance = random.Random(7)

    async def one(port: int, after_s: float) -> None:
        async with Asterisk(port) as peer:
            peer.press("1")
            await asyncio.sleep(after_s)
            peer.writer.transport.abort()

    async def scene(server: AudioSocketServer, calls: Calls) -> None:
        await asyncio.gather(*(one(server.options.port, chance.random() * 0.6) for _ in range(60)))

    records = real(scene)
    assert len(records) == 60
    assert {record.outcome for record in records} == {"hung up"}
    assert len([line for line in caplog.messages if line.startswith("call of")]) == 60
