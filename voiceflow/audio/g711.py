"""G.711, the telephone network's 8-bit samples: mu-law (Americas, Japan) and A-law (elsewhere).

Its one rule: each direction is a table look-up, and the tables are built from the segments of ITU-T Recommendation
G.711 (11/88), tables 1 and 2, scaled from its 14 and 13 bits to 16.

A byte is a sign, a segment of 3 bits and a step of 4 bits; steps double in width from segment to segment. For the
line, mu-law inverts all bits and A-law every second one.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt

from voiceflow.audio.pcm import S16LE, as_samples

__all__ = ["alaw_decode", "alaw_encode", "mulaw_decode", "mulaw_encode"]

_MULAW_BIAS = 132
"""Added to a magnitude so that segments begin at powers of two: 33 on the 14-bit scale."""
_MULAW_CLIP = 32767 - _MULAW_BIAS
_ALAW_FLIP = 0x55
_U16LE: np.dtype[np.uint16] = np.dtype("<u2")


def mulaw_encode(pcm: bytes) -> bytes:
    """s16le PCM as mu-law, one byte a sample, each the nearest there is. Magnitudes above 32635 are clipped; 0 is 0xFF.

    Encoders that first drop the lowest two bits (``audioop``) round some negative values one step further from zero.

    Raises:
        ValueError: an odd number of bytes.
    """
    return _encode(pcm, _mulaw_encoder())


def mulaw_decode(data: bytes) -> bytes:
    """mu-law as s16le PCM, two bytes a sample, within +-32124."""
    return _mulaw_decoder()[np.frombuffer(data, np.uint8)].tobytes()


def alaw_encode(pcm: bytes) -> bytes:
    """s16le PCM as A-law, one byte a sample; 0 is 0xD5.

    Raises:
        ValueError: an odd number of bytes.
    """
    return _encode(pcm, _alaw_encoder())


def alaw_decode(data: bytes) -> bytes:
    """A-law as s16le PCM, two bytes a sample, within +-32256; A-law has no zero, the nearest is +-8."""
    return _alaw_decoder()[np.frombuffer(data, np.uint8)].tobytes()


def _encode(pcm: bytes, table: npt.NDArray[np.uint8]) -> bytes:
    return table[as_samples(pcm).reshape(-1).view(_U16LE)].tobytes()


def _all_values() -> npt.NDArray[np.int32]:
    """Every int16, in the order of its unsigned bit pattern, which is what the encoders' tables are indexed by."""
    return np.arange(65536, dtype=np.uint16).view(np.int16).astype(np.int32)


def _segment(magnitude: npt.NDArray[np.int32], first: int) -> npt.NDArray[np.int32]:
    """Number of the segment, where segment 0 ends below ``2 ** (first + 1)`` and each next one is twice as long."""
    exponent: npt.NDArray[np.int32] = np.frexp(magnitude)[1]
    return np.maximum(exponent - 1 - first, 0)


@cache
def _mulaw_encoder() -> npt.NDArray[np.uint8]:
    value = _all_values()
    magnitude = np.minimum(np.abs(value), _MULAW_CLIP) + _MULAW_BIAS
    segment = _segment(magnitude, 7)
    step = (magnitude >> (segment + 3)) & 0x0F
    sign = np.where(value < 0, 0x80, 0)
    table: npt.NDArray[np.uint8] = (~(sign | segment << 4 | step) & 0xFF).astype(np.uint8)
    return table


@cache
def _mulaw_decoder() -> npt.NDArray[np.int16]:
    code = ~np.arange(256) & 0xFF
    segment, step = code >> 4 & 0x07, code & 0x0F
    magnitude = ((step * 2 + 33) << (segment + 2)) - _MULAW_BIAS
    return np.where(code & 0x80, -magnitude, magnitude).astype(S16LE)


@cache
def _alaw_encoder() -> npt.NDArray[np.uint8]:
    value = _all_values()
    # The first step below zero is -16..-1, the mirror image of 0..15 by one's complement.
    magnitude = np.where(value < 0, ~value, value)
    segment = _segment(magnitude, 7)
    step = (magnitude >> (np.maximum(segment, 1) + 3)) & 0x0F
    sign = np.where(value < 0, 0, 0x80)
    table: npt.NDArray[np.uint8] = ((sign | segment << 4 | step) ^ _ALAW_FLIP).astype(np.uint8)
    return table


@cache
def _alaw_decoder() -> npt.NDArray[np.int16]:
    code = np.arange(256) ^ _ALAW_FLIP
    segment, step = code >> 4 & 0x07, code & 0x0F
    # The middle of the step; from segment 1 on the leading one is implied.
    magnitude = np.where(segment == 0, (step * 2 + 1) << 3, (step * 2 + 33) << (np.maximum(segment, 1) + 2))
    return np.where(code & 0x80, magnitude, -magnitude).astype(S16LE)
