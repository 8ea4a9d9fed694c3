"""Protobuf's wire format, as far as it is read and written here: fields of numbers and of bytes, in a message.

The one rule: it knows no message. What a field's number means, whoever reads it knows; what was written after this was is passed over.

Source: https://protobuf.dev/programming-guides/encoding/. A field is a key (its number and wire type in one varint) and a value: a
varint, 8 or 4 bytes, or a length and as many bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

__all__ = ["bytes_field", "fields", "number_field"]

Octets = TypeVar("Octets", bytes, memoryview)

VARINT, BYTES = 0, 2
FIXED = {1: 8, 5: 4}
"""Wire types of numbers with a size of their own, in bytes."""

LONGEST_VARINT = 10


def fields(message: Octets) -> Iterator[tuple[int, int | Octets]]:
    """Number and value of each field, in order: an int, or what its bytes are, of the kind that was given (a memoryview is not copied).

    Raises ValueError where it is no protobuf, or cut off; what stood before that has been given.
    """
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        number, kind = key >> 3, key & 7
        if kind == VARINT:
            value, at = _varint(message, at)
            yield number, value
            continue
        if kind == BYTES:
            size, at = _varint(message, at)
        elif kind in FIXED:
            size = FIXED[kind]
        else:
            raise ValueError(f"{kind} is no wire type of protobuf")
        if at + size > len(message):
            raise ValueError(f"field {number} ends behind the end of its message")
        yield number, message[at : at + size]
        at += size


def number_field(number: int, value: int) -> bytes:
    """A field with a number of 0 or more."""
    return _as_varint(number << 3 | VARINT) + _as_varint(value)


def bytes_field(number: int, content: bytes) -> bytes:
    """A field with bytes: text in UTF-8, or another message."""
    return _as_varint(number << 3 | BYTES) + _as_varint(len(content)) + content


def _varint(message: bytes | memoryview, at: int) -> tuple[int, int]:
    """The number that stands there, and where it ends."""
    value = 0
    for i, byte in enumerate(message[at : at + LONGEST_VARINT]):
        value |= (byte & 0x7F) << (7 * i)
        if byte < 0x80:
            return value, at + i + 1
    raise ValueError("a number does not end")


def _as_varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
