"""Pipecat's frames on a websocket: the five messages of its ``frames.proto``, in protobuf's binary encoding.

The one rule: what is not known is passed over, as protobuf has it; what cannot be read at all raises WireError. Pure.

Source: the ``pipecat`` package of protobuf's language, ``Frame{oneof: text 1, audio 2, transcription 3, message 4, interruption 5}``.
"""

from __future__ import annotations

from dataclasses import dataclass

from voiceflow.protobuf import bytes_field, fields, number_field
from voiceflow.transports.wire import WireError

__all__ = ["Interruption", "Packet", "RawAudio", "RawMessage", "RawText", "decode", "encode"]


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
        return bytes_field(2, bytes_field(3, packet.pcm) + number_field(4, packet.sample_rate) + number_field(5, packet.channels))
    if isinstance(packet, RawMessage):
        return bytes_field(4, bytes_field(1, packet.data.encode()))
    if isinstance(packet, RawText):
        if packet.user is None:
            return bytes_field(1, bytes_field(3, packet.text.encode()))
        return bytes_field(3, bytes_field(3, packet.text.encode()) + bytes_field(4, packet.user.encode()))
    return bytes_field(5, b"")


def decode(data: bytes) -> Packet | None:
    """What a ``Frame`` holds; None for something that is not known here. Raises WireError for what is no protobuf."""
    found: Packet | None = None
    try:
        for number, value in fields(data):  # of a oneof the last one counts
            if isinstance(value, bytes):
                found = _packet(number, value) or found
    except ValueError as error:
        raise WireError(f"a binary message is not a protobuf frame: {error}", 1007) from error
    return found


def _packet(number: int, data: bytes) -> Packet | None:
    inside = dict(fields(data)) if number in (1, 2, 3, 4) else {}
    match number:
        case 1:
            return RawText(_text(inside.get(3, b"")))
        case 2:
            return _audio(inside.get(3, b""), inside.get(4, 0), inside.get(5, 1))
        case 3:
            return RawText(_text(inside.get(3, b"")), _text(inside.get(4, b"")))
        case 4:
            return RawMessage(_text(inside.get(1, b"")))
        case 5:
            return Interruption()
    return None


def _audio(pcm: int | bytes, rate: int | bytes, channels: int | bytes) -> RawAudio:
    if not isinstance(pcm, bytes) or not isinstance(rate, int) or not isinstance(channels, int):
        raise ValueError("its sound has fields of other types than frames.proto says")
    return RawAudio(pcm, rate, channels)


def _text(value: int | bytes) -> str:
    if not isinstance(value, bytes):
        raise ValueError("a text in it is a number")
    return value.decode()
