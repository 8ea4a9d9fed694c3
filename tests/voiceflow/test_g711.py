"""G.711 against its edge values, against itself, and against the standard library where that still has it."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from voiceflow.audio import alaw_decode, alaw_encode, mulaw_decode, mulaw_encode

EVERY_VALUE = np.arange(-32768, 32768)
EVERY_PCM = EVERY_VALUE.astype("<i2").tobytes()
EVERY_BYTE = bytes(range(256))

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    try:
        import audioop
    except ModuleNotFoundError:
        audioop = None

needs_audioop = pytest.mark.skipif(audioop is None, reason="the reference, audioop, left Python in 3.13: install audioop-lts")


def decoded(decode: object, *codes: int) -> list[int]:
    return np.frombuffer(decode(bytes(codes)), "<i2").tolist()  # type: ignore[operator]


def encoded(encode: object, *samples: int) -> list[int]:
    return list(encode(np.array(samples, "<i2").tobytes()))  # type: ignore[operator]


def test_mulaw_decodes_its_edges() -> None:
    """The ends of the scale, the steps around zero and both zeros have the values of the standard."""
    assert decoded(mulaw_decode, 0x00, 0x80, 0x01, 0x7E, 0x7F, 0xFF, 0xFE) == [-32124, 32124, -31100, -8, 0, 0, 8]


def test_mulaw_encodes_its_edges() -> None:
    """What is too loud is clipped, never wrapped."""
    samples = (0, 1, 32635, 32636, 32767, -32635, -32767, -32768)
    assert encoded(mulaw_encode, *samples) == [0xFF, 0xFF, 0x80, 0x80, 0x80, 0x00, 0x00, 0x00]
    assert encoded(mulaw_encode, -1)[0] in (0x7E, 0x7F, 0xFF)


def test_mulaw_treats_both_signs_alike() -> None:
    """A value and its negative differ in the sign bit only."""
    up, down = encoded(mulaw_encode, *range(1, 32768)), encoded(mulaw_encode, *range(-1, -32768, -1))
    assert [a ^ 0x80 for a in up] == down


def test_alaw_decodes_its_edges() -> None:
    """A-law has no zero: the smallest values are 8 to either side, the largest 32256."""
    assert decoded(alaw_decode, 0xD5, 0x55, 0xD4, 0x54, 0xAA, 0x2A) == [8, -8, 24, -24, 32256, -32256]


def test_alaw_encodes_its_edges() -> None:
    """Each end of the scale, and each side of zero."""
    assert encoded(alaw_encode, 0, 15, 16, -1, -16, -17, 32767, -32768) == [0xD5, 0xD5, 0xD4, 0x55, 0x55, 0x54, 0xAA, 0x2A]


def test_every_byte_survives_a_round_trip() -> None:
    """Decoding and encoding gives the byte back; only mu-law's negative zero becomes the positive one."""
    assert mulaw_encode(mulaw_decode(EVERY_BYTE)) == EVERY_BYTE.replace(b"\x7f", b"\xff")
    assert alaw_encode(alaw_decode(EVERY_BYTE)) == EVERY_BYTE


def test_every_sample_comes_back_within_half_a_step_of_mulaw() -> None:
    """Over all 65,536 values the error is at most half the local step and 4; clipped values are at most 644 off."""
    back = np.frombuffer(mulaw_decode(mulaw_encode(EVERY_PCM)), "<i2").astype(int)
    error, magnitude = np.abs(back - EVERY_VALUE), np.abs(EVERY_VALUE)
    step = 2.0 ** (np.floor(np.log2(np.minimum(magnitude, 32635) + 132)) - 4)
    assert np.all(error <= np.where(magnitude > 32635, 644, step / 2 + 4))
    assert np.all(np.sign(back) * np.sign(EVERY_VALUE) >= 0)


def test_every_sample_comes_back_within_half_a_step_of_alaw() -> None:
    """Steps are 16 wide up to 512 and double with each doubling of the value."""
    back = np.frombuffer(alaw_decode(alaw_encode(EVERY_PCM)), "<i2").astype(int)
    step = 2.0 ** np.maximum(np.floor(np.log2(np.maximum(np.abs(EVERY_VALUE), 1))) - 4, 4)
    assert np.all(np.abs(back - EVERY_VALUE) <= step / 2)


@needs_audioop
def test_decoding_is_what_the_standard_library_does() -> None:
    """All 256 bytes of both laws."""
    assert mulaw_decode(EVERY_BYTE) == audioop.ulaw2lin(EVERY_BYTE, 2)
    assert alaw_decode(EVERY_BYTE) == audioop.alaw2lin(EVERY_BYTE, 2)


@needs_audioop
def test_alaw_encoding_is_what_the_standard_library_does() -> None:
    """All 65,536 values."""
    assert alaw_encode(EVERY_PCM) == audioop.lin2alaw(EVERY_PCM, 2)


@needs_audioop
def test_mulaw_encoding_is_at_least_as_near_as_the_standard_library() -> None:
    """Equal on all values of 14 bits; audioop drops the lowest two bits of the rest downwards, which is never nearer."""
    ours = np.frombuffer(mulaw_encode(EVERY_PCM), np.uint8)
    theirs = np.frombuffer(audioop.lin2ulaw(EVERY_PCM, 2), np.uint8)
    assert np.array_equal(ours[EVERY_VALUE % 4 == 0], theirs[EVERY_VALUE % 4 == 0])
    assert np.array_equal(ours[EVERY_VALUE >= 0], theirs[EVERY_VALUE >= 0])
    value_of = np.frombuffer(mulaw_decode(EVERY_BYTE), "<i2").astype(int)
    assert np.all(np.abs(value_of[ours] - EVERY_VALUE) <= np.abs(value_of[theirs] - EVERY_VALUE))


@pytest.mark.parametrize("encode", [mulaw_encode, alaw_encode])
def test_half_a_sample_cannot_be_encoded(encode: object) -> None:
    """An odd number of bytes is refused, and the error names the cure."""
    with pytest.raises(ValueError, match=r"5 bytes .*Chunker"):
        encode(bytes(5))  # type: ignore[operator]


@pytest.mark.parametrize("convert", [mulaw_encode, alaw_encode, mulaw_decode, alaw_decode])
def test_nothing_gives_nothing(convert: object) -> None:
    """Empty input is no error."""
    assert convert(b"") == b""  # type: ignore[operator]
