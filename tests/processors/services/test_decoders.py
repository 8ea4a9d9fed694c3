"""Sound of services made into PCM while it comes."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from voiceflow.audio import alaw_decode, alaw_encode, mulaw_decode, mulaw_encode
from voiceflow.processors.services.decoders import PcmDecoder, alaw, mulaw, not_pcm
from voiceflow.processors.services.retry import ServiceError

RAMP = (np.arange(4800) % 20001 - 10000).astype("<i2").tobytes()


@given(st.lists(st.integers(0, len(RAMP)), max_size=20))
def test_pcm_cut_anywhere_is_the_same(cuts: list[int]) -> None:
    """B32: within a sample too; each piece gives whole samples."""
    places, decoder = [0, *sorted(cuts), len(RAMP)], PcmDecoder(24000)
    pieces = [decoder.push(RAMP[a:b]) for a, b in pairwise(places)]
    assert all(len(piece) % 2 == 0 for piece in pieces)
    assert b"".join(pieces) + decoder.end() == RAMP


def test_half_a_sample_at_the_end_is_dropped() -> None:
    """And the next stretch is not shifted: it has a decoder of its own."""
    decoder = PcmDecoder(24000)
    assert decoder.push(RAMP + b"\x01") + decoder.end() == RAMP


@pytest.mark.parametrize(("decoder", "encode", "decode"), [(mulaw, mulaw_encode, mulaw_decode), (alaw, alaw_encode, alaw_decode)])
def test_telephone_sound_is_decoded(decoder, encode, decode) -> None:  # type: ignore[no-untyped-def]
    """Byte by byte as all at once."""
    coded, one = encode(RAMP), decoder()
    assert b"".join(one.push(coded[at : at + 1]) for at in range(len(coded))) + one.push(b"") + one.end() == decode(coded)


MP3 = bytes.fromhex("fffb9064") + bytes(413) + bytes.fromhex("fffb9064") + bytes(413)


@pytest.mark.parametrize(
    ("head", "what"),
    [
        (b"ID3\x04", "MP3"),
        (MP3, "MP3"),
        (b"OggS\x00", "Ogg"),
        (b'{"detail": 1}', "JSON"),
        (b"RIFF....WAVE", "WAV"),
        (b"<!DOCTYPE html>", "HTML"),
    ],
)
def test_what_is_no_pcm_is_an_error_and_no_noise(head: bytes, what: str) -> None:
    """B34: whether it comes at once or in pieces."""
    for size in (len(head), 3):
        pieces = [head[at : at + size] for at in range(0, len(head), size)]
        with pytest.raises(ServiceError, match=f"{what} where PCM"):
            list(map(PcmDecoder(24000).push, pieces))


@given(st.integers(-3000, 3000), st.integers(-3000, 3000))
def test_a_sound_that_merely_looks_like_it_is_let_through(first: int, second: int) -> None:
    """One header is not enough: speech may begin with any samples."""
    assert not_pcm(np.array([first, second] * 400, "<i2").tobytes()) == ""
