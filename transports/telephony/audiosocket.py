"""Asterisk's AudioSocket: calls over plain TCP, from the dialplan's ``AudioSocket(uuid,host:port)`` or a channel of that name.

The one rule: the stream is cut by what its headers say, wherever TCP cut it. Asterisk plays what comes as it comes and keeps no
buffer that could be cleared, so sound leaves when it is due, and what was heard is an estimate.

Source: https://docs.asterisk.org/Configuration/Channel-Drivers/AudioSocket/ and Asterisk's ``res_audiosocket.h``. A frame is its kind, one
byte, the length of its payload, two bytes, big-endian, and the payload.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Self

from voiceflow.frames import AudioFormat, Frame, InputAudioFrame
from voiceflow.phone import KEYS, DigitReceived
from voiceflow.transports.calls import Calls
from voiceflow.transports.connection import LineOptions
from voiceflow.transports.line import answer
from voiceflow.transports.wire import CallEnded, CallStarted, Message, Received, WireError

__all__ = ["KINDS", "AudioSocketOptions", "AudioSocketServer", "AudioSocketWire", "TcpSocket"]

log = logging.getLogger("voiceflow")

HANG_UP, UUID, DTMF, ERROR = 0x00, 0x01, 0x03, 0xFF
KINDS: Mapping[int, int] = MappingProxyType(
    {
        0x10: 8000, 0x11: 12000, 0x12: 16000, 0x13: 24000, 0x14: 32000, 0x15: 44100, 0x16: 48000, 0x17: 96000, 0x18: 192000,
    }
)  # fmt: skip
"""Kind of a frame of sound -> Hz, in the versions of Asterisk that know more than 8 kHz."""

ERRORS = {0x01: "the channel was hung up", 0x02: "a frame could not be forwarded", 0x04: "it has no memory left"}
HEADER = 3
READ = 4096


@dataclass(frozen=True, slots=True)
class AudioSocketOptions:
    """Where the server listens, and what sound is agreed on with Asterisk.

    ``sample_rate``: 8000 for the dialplan application, which knows no other; the rate of ``c(slin16)`` and the like for the channel; None:
    the first sound says it, and the call begins with that. ``kinds``: where an Asterisk has others. ``quiet_s``: a connection on which
    nothing comes for so long is taken for lost; Asterisk sends sound all the time.
    """

    host: str = "127.0.0.1"
    port: int = 9092
    sample_rate: int | None = 8000
    kinds: Mapping[int, int] = field(default_factory=lambda: KINDS)
    quiet_s: float = 60.0
    line: LineOptions = field(default_factory=LineOptions)

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise ValueError(f"AudioSocketOptions: port is {self.port}, it must be 0 (any that is free) to 65535")
        if not self.quiet_s > 0:
            raise ValueError(f"AudioSocketOptions: quiet_s is {self.quiet_s}, it must be more than 0")
        if self.sample_rate is not None and self.sample_rate not in self.kinds.values():
            rates = ", ".join(map(str, sorted(self.kinds.values())))
            raise ValueError(f"AudioSocketOptions: sample_rate is {self.sample_rate}; AudioSocket has {rates}")


class AudioSocketWire:
    """One call. Messages are pieces of the stream, cut anywhere; the call's number is the UUID of the dialplan."""

    name = "audiosocket"
    block_ms = 20.0
    ahead_s = 0.0
    clears = False
    proof = ""
    tells: tuple[type[Frame], ...] = ()

    def __init__(self, sample_rate: int | None = 8000, kinds: Mapping[int, int] = KINDS) -> None:
        self.hears = self.speaks = AudioFormat(sample_rate or 8000)
        self.faults = 0
        self._kinds = kinds
        self._has_rate = sample_rate is not None
        self._call = ""
        self._started = False
        self._rest = bytearray()

    def receive(self, message: Message) -> list[Received]:
        """See Wire."""
        if isinstance(message, str):
            raise WireError("AudioSocket is a stream of bytes")
        self._rest += message
        received: list[Received] = []
        while len(self._rest) >= HEADER:
            size = HEADER + int.from_bytes(self._rest[1:HEADER], "big")
            if len(self._rest) < size:
                break
            kind, payload = self._rest[0], bytes(self._rest[HEADER:size])
            del self._rest[:size]
            received += self._frame(kind, payload)
        return received

    def _frame(self, kind: int, payload: bytes) -> list[Received]:
        if not self._call and kind not in (UUID, HANG_UP, ERROR):
            raise WireError(f"the first frame is of kind 0x{kind:02x}; AudioSocket begins with the call's UUID (0x01)")
        if kind == UUID and len(payload) == 16 and not self._call:
            self._call = str(uuid.UUID(bytes=payload))
            return self._begin() if self._has_rate else []
        if kind == HANG_UP:
            return [CallEnded("asterisk hung up")]
        if kind == ERROR:
            return [CallEnded(f"asterisk reports an error: {ERRORS.get(payload[0] if payload else 0, 'it does not say which')}")]
        if kind == DTMF and len(payload) == 1 and (key := payload.decode("latin-1").upper()) in KEYS:
            return [DigitReceived(digit=key)] if self._started else []
        return self._sound(kind, payload)

    def _sound(self, kind: int, payload: bytes) -> list[Received]:
        rate = self._kinds.get(kind)
        if rate is None or not payload or len(payload) % 2:
            self.faults += 1
            return []
        begun: list[Received] = []
        if not self._started:
            self.hears = self.speaks = AudioFormat(rate)
            begun = self._begin()
        if rate != self.hears.sample_rate:
            self.faults += 1
            return begun
        return [*begun, InputAudioFrame(pcm=payload, sample_rate=rate)]

    def _begin(self) -> list[Received]:
        self._started = True
        return [CallStarted(self._call)]

    def answers(self) -> list[Message]:
        """There are none."""
        return []

    def audio(self, pcm: bytes) -> list[Message]:
        """See Wire."""
        kind = next(kind for kind, rate in self._kinds.items() if rate == self.speaks.sample_rate)
        return [bytes([kind]) + len(pcm).to_bytes(2, "big") + pcm] if pcm else []  # sound of no length ends the call on old versions

    def clear(self) -> list[Message]:
        """There is nothing to clear."""
        return []

    def mark(self, name: str) -> list[Message]:
        """There are no marks."""
        return []

    def tell(self, frame: Frame) -> list[Message]:
        """Asterisk takes sound only; keys are to be played as tones."""
        return []

    def end(self, reason: str) -> list[Message]:
        """Hang up."""
        return [bytes([HANG_UP, 0, 0])]


class TcpSocket:
    """The ``Socket`` of a line, on a TCP connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, quiet_s: float) -> None:
        self._reader, self._writer, self._quiet_s = reader, writer, quiet_s
        self.lost = False

    async def receive(self) -> Message | None:
        """See Socket. None too where nothing came for too long: TCP itself says nothing of a far end that is gone."""
        try:
            async with asyncio.timeout(self._quiet_s):
                return await self._reader.read(READ) or None
        except TimeoutError:
            log.warning("nothing came from asterisk for %g s: it is taken for lost", self._quiet_s)
            self.lost = True
            return None
        except OSError:
            return None

    async def send(self, message: Message) -> None:
        """See Socket."""
        if self._writer.is_closing():
            raise ConnectionError("the connection is closed")
        self._writer.write(message if isinstance(message, bytes) else message.encode())
        try:
            await self._writer.drain()
        except OSError as error:
            raise ConnectionError(f"the connection is lost: {error}") from error

    async def close(self, code: int, reason: str) -> None:
        """See Socket; TCP has no word for the reason."""
        self._writer.close()
        try:
            with contextlib.suppress(OSError):
                await self._writer.wait_closed()
        except asyncio.CancelledError:
            self._writer.transport.abort()
            raise


class AudioSocketServer:
    """Answers Asterisk's calls on one port. ``async with AudioSocketServer(calls, options) as server:``; ``server.options`` has the real port.

    Anybody who reaches the port can call: keep it on an address that only Asterisk reaches.
    """

    def __init__(self, calls: Calls, options: AudioSocketOptions | None = None) -> None:
        self.calls = calls
        self.options = options or AudioSocketOptions()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        """Listen. Raises OSError if the port cannot be had."""
        options = self.options
        self._server = await asyncio.start_server(self._connected, options.host, options.port, limit=READ)
        self.options = replace(options, port=self._server.sockets[0].getsockname()[1])
        return self

    async def __aexit__(self, *_: object) -> None:
        """Take no new call, and hang up on those there are: ``Calls.drain`` first lets them end their way."""
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._server is None or not self._server.is_serving():  # it was accepted while the server was being left
            writer.transport.abort()
            return
        task = asyncio.get_running_loop().create_task(self._answer(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: writer.transport.abort())  # also of one that was cancelled before its first step

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        socket, options = TcpSocket(reader, writer, self.options.quiet_s), self.options
        writer.transport.set_write_buffer_limits(high=READ)
        await answer(AudioSocketWire(options.sample_rate, options.kinds), socket, self.calls, options.line)
