"""Pipecat's frames on a websocket: the five messages of its ``frames.proto``, in protobuf's binary encoding.

The one rule: what is not known is passed over, as protobuf has it; what cannot be read at all raises WireError. Pure.

Source: the ``pipecat`` package of protobuf's language, ``Frame{oneof: text 1, audio 2, transcription 3, message 4, interruption 5}``, and
protobuf's description of its encoding. A field is a key (number and wire type in one varint) and a value: a varint, 8 or 4
bytes, or a length and as many bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from voiceflow.transports.wire import WireError

__all__ = ["Interruption", "Packet", "RawAudio", "RawMessage", "RawText", "decode", "encode"]

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5
LONGEST_VARINT = 10


@dataclass(frozen=True, slots=True)
class RawAudio:
    """Sound: signed 16-bit little-endian, interleaved."""

    pcm: bytes
    sample_rate: int
    channels: int = 1


@dataclass(frozen=True, slots=True)
class RawMessage:
    """An application's message, as JSON text."""

    data: str


@dataclass(frozen=True, slots=True)
class RawText:
    """Text; ``user`` for what a person said, None for any other."""

    text: str
    user: str | None = None


@dataclass(frozen=True, slots=True)
class Interruption:
    """Throw away what has not been played."""


Packet = RawAudio | RawMessage | RawText | Interruption


def encode(packet: Packet) -> bytes:
    """A ``Frame`` that holds it."""
    if isinstance(packet, RawAudio):
        return _bytes(2, _bytes(3, packet.pcm) + _number(4, packet.sample_rate) + _number(5, packet.channels))
    if isinstance(packet, RawMessage):
        return _bytes(4, _bytes(1, packet.data.encode()))
    if isinstance(packet, RawText):
        if packet.user is None:
            return _bytes(1, _bytes(3, packet.text.encode()))
        return _bytes(3, _bytes(3, packet.text.encode()) + _bytes(4, packet.user.encode()))
    return _bytes(5, b"")


def decode(data: bytes) -> Packet | None:
    """What a ``Frame`` holds; None for something that is not known here. Raises WireError for what is no protobuf."""
    found: Packet | None = None
    for number, value in _fields(data):  # of a oneof the last one counts
        if not isinstance(value, bytes):
            continue
        if number == 2:
            found = _audio(value)
        elif number == 4:
            found = RawMessage(_text(dict(_fields(value)).get(1, b"")))
        elif number in (1, 3):
            fields = dict(_fields(value))
            found = RawText(_text(fields.get(3, b"")), _text(fields.get(4, b"")) if number == 3 else None)
        elif number == 5:
            found = Interruption()
    return found


def _audio(data: bytes) -> RawAudio:
    fields = dict(_fields(data))
    pcm, rate, channels = fields.get(3, b""), fields.get(4, 0), fields.get(5, 1)
    if not isinstance(pcm, bytes) or not isinstance(rate, int) or not isinstance(channels, int):
        raise WireError("an audio frame has fields of other types than frames.proto says", 1007)
    return RawAudio(pcm, rate, channels)


def _text(value: bytes | int) -> str:
    if not isinstance(value, bytes):
        raise WireError("a text field of a frame is a number", 1007)
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise WireError("a text field of a frame is not UTF-8", 1007) from error


def _fields(data: bytes) -> Iterator[tuple[int, bytes | int]]:
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        kind, value = key & 7, 0
        if kind == VARINT:
            value, at = _varint(data, at)
            yield key >> 3, value
            continue
        if kind == LENGTH:
            length, at = _varint(data, at)
        elif kind in (FIXED64, FIXED32):
            length = 8 if kind == FIXED64 else 4
        else:
            raise WireError(f"a binary message is not a protobuf frame: wire type {kind}", 1007)
        if at + length > len(data):
            raise WireError("a binary message is not a protobuf frame: it ends in the middle of a field", 1007)
        yield key >> 3, data[at : at + length]
        at += length


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for i in range(LONGEST_VARINT):
        if at + i >= len(data):
            break
        value |= (data[at + i] & 0x7F) << (7 * i)
        if data[at + i] < 0x80:
            return value, at + i + 1
    raise WireError("a binary message is not a protobuf frame: a number does not end", 1007)


def _number(field: int, value: int) -> bytes:
    return _key(field, VARINT) + _as_varint(value)


def _bytes(field: int, value: bytes) -> bytes:
    return _key(field, LENGTH) + _as_varint(len(value)) + value


def _key(field: int, kind: int) -> bytes:
    return _as_varint(field << 3 | kind)


def _as_varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
