"""PCM: floats, channels, level, fades, and byte streams cut anywhere."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import voiceflow.audio
from voiceflow.audio import Chunker, fade_in, fade_out, level_dbfs, mix, to_float, to_pcm

EVERY_VALUE = np.arange(-32768, 32768).astype("<i2")


def pcm(*values: int) -> bytes:
    return np.array(values, "<i2").tobytes()


def values(data: bytes) -> list[int]:
    return np.frombuffer(data, "<i2").tolist()


def test_every_public_name_is_there() -> None:
    """All that the package lists can be imported from it."""
    for name in voiceflow.audio.__all__:
        assert hasattr(voiceflow.audio, name)


# ------------------------------------------------------------------------------------------------------- floats


def test_floats_beyond_full_scale_are_clipped() -> None:
    """+1.0 and 1.2 become the largest sample and never wrap to the smallest."""
    given = np.array([1.0, 1.2, np.inf, -1.0, -1.2, -np.inf, 0.0, 0.5], np.float32)
    assert values(to_pcm(given)) == [32767, 32767, 32767, -32768, -32768, -32768, 0, 16384]


def test_a_nan_is_refused_with_its_place() -> None:
    """A NaN is no sound, and the error says where it stood."""
    with pytest.raises(ValueError, match=r"value 2 of 3 is NaN"):
        to_pcm(np.array([0.0, 0.1, np.nan], np.float32))


def test_pcm_survives_floats_unchanged() -> None:
    """Each of the 65,536 values comes back from float32 as it was."""
    floats = to_float(EVERY_VALUE.tobytes())
    assert floats.dtype == np.float32
    assert floats.min() == -1.0
    assert floats.max() < 1.0
    assert to_pcm(floats) == EVERY_VALUE.tobytes()


def test_floats_of_an_array_keep_its_shape() -> None:
    """An int16 array of (samples, channels) gives floats of that shape, and they go back interleaved."""
    samples = np.array([[1, -1], [2, -2], [3, -3]], np.int16)
    floats = to_float(samples)
    assert floats.shape == (3, 2)
    assert values(to_pcm(floats)) == [1, -1, 2, -2, 3, -3]


def test_half_a_sample_is_no_pcm() -> None:
    """An odd number of bytes is refused, and the error names the cure."""
    with pytest.raises(ValueError, match=r"3 bytes .*Chunker"):
        to_float(b"\0\0\0")


def test_an_array_of_floats_is_no_pcm() -> None:
    """Floats where PCM is due are refused instead of being cut to integers."""
    with pytest.raises(TypeError, match="float64 is not 16-bit PCM"):
        level_dbfs(np.zeros(4))  # type: ignore[arg-type]


# ----------------------------------------------------------------------------------------------------- channels


def test_stereo_becomes_mono_by_the_mean() -> None:
    """Two channels are averaged, at full scale too, without overflow."""
    assert values(mix(pcm(32767, 32767, -32768, -32768, 100, 300, 32767, -32768), 2, 1)) == [32767, -32768, 200, 0]


def test_mono_becomes_stereo_by_repeating() -> None:
    """Both channels get the same samples, interleaved."""
    assert values(mix(pcm(1, -2, 3), 1, 2)) == [1, 1, -2, -2, 3, 3]


def test_arrays_are_mixed_as_bytes_are() -> None:
    """An array gives an array of shape (samples, channels)."""
    stereo = mix(np.array([5, -6], np.int16), 1, 2)
    assert stereo.tolist() == [[5, 5], [-6, -6]]
    assert mix(stereo, 2, 1).tolist() == [[5], [-6]]


def test_equal_channels_cost_nothing() -> None:
    """Nothing to mix gives back the same object."""
    data = pcm(1, 2)
    assert mix(data, 2, 2) is data


@pytest.mark.parametrize(("channels", "target"), [(3, 2), (2, 6), (1, 0)])
def test_channels_without_a_known_place_are_refused(channels: int, target: int) -> None:
    """Which of three channels is left is not known, so they are not mixed to two."""
    with pytest.raises(ValueError, match=f"cannot mix {channels} channels to {target}"):
        mix(bytes(12), channels, target)


# -------------------------------------------------------------------------------------------------------- level


def test_level_of_known_sounds() -> None:
    """A full-scale square wave is 0 dBFS, a sine 3.01 dB below it, half of it 6.02 dB less."""
    sine = np.sin(2 * np.pi * np.arange(16000) / 16)
    assert level_dbfs(pcm(*[-32768] * 100)) == 0.0
    assert level_dbfs(to_pcm(sine)) == pytest.approx(-3.01, abs=0.01)
    assert level_dbfs(to_pcm(sine / 2)) == pytest.approx(-9.03, abs=0.01)


@pytest.mark.parametrize("silence", [b"", bytes(640)])
def test_silence_has_no_level(silence: bytes) -> None:
    """Silence, and no sound at all, are minus infinity, which compares as quieter than anything."""
    assert level_dbfs(silence) == -math.inf


# -------------------------------------------------------------------------------------------------------- fades


def test_a_fade_in_rises_from_silence_and_leaves_the_rest() -> None:
    """The first 5 ms rise without a step; what follows is untouched, and so is what was given."""
    given = np.full((160, 1), 20000, np.int16)
    faded = fade_in(given, 16000, 5.0)
    assert faded[0, 0] < 20
    assert np.all(np.diff(faded[:80, 0]) >= 0)
    assert faded[79, 0] > 19980
    assert np.all(faded[80:] == 20000)
    assert np.all(given == 20000)


def test_a_fade_out_is_a_fade_in_backwards() -> None:
    """Played backwards, the one is the other."""
    given = np.random.default_rng(1).integers(-30000, 30000, 400).astype(np.int16)
    assert np.array_equal(fade_out(given, 16000, 10.0), fade_in(given[::-1], 16000, 10.0)[::-1])


def test_a_cross_fade_keeps_the_level() -> None:
    """Fading out and in over the same stretch adds up to the sound itself."""
    given = np.full(160, 12345, np.int16)
    both = fade_out(given, 16000, 10.0).astype(int) + fade_in(given, 16000, 10.0)
    assert np.abs(both - 12345).max() <= 1


def test_channels_fade_together() -> None:
    """Interleaved channels get the same gain at the same time."""
    faded = np.frombuffer(fade_out(pcm(*[10000, -10000] * 160), 16000, 10.0, channels=2), np.int16).reshape(-1, 2)
    assert np.array_equal(faded[:, 0], -faded[:, 1])
    assert abs(int(faded[-1, 0])) < 10


def test_sound_shorter_than_the_fade_fades_whole() -> None:
    """A sound of 2 ms with a fade of 10 ms rises over its 2 ms."""
    faded = values(fade_in(pcm(*[8000] * 32), 16000, 10.0))
    assert faded[0] < 10
    assert faded[-1] > 7980
    assert len(faded) == 32


@pytest.mark.parametrize("fade", [fade_in, fade_out])
def test_fading_over_nothing_gives_back_the_same(fade: object) -> None:
    """A fade of 0 ms, and a fade of no sound, change nothing."""
    data = pcm(1, 2, 3)
    assert fade(data, 16000, 0.0) is data  # type: ignore[operator]
    assert fade(b"", 16000, 5.0) == b""  # type: ignore[operator]


def test_a_fade_of_negative_length_is_refused() -> None:
    """Time does not run backwards."""
    with pytest.raises(ValueError, match="-1"):
        fade_in(pcm(1), 16000, -1)


# ------------------------------------------------------------------------------------------------------- chunks

RAMP = (np.arange(2 * 24000) % 20001 - 10000).astype("<i2").tobytes()


def cut(data: bytes, sizes: list[int]) -> list[bytes]:
    """``data`` in pieces of these sizes, over and over."""
    pieces, at, turn = [], 0, 0
    while at < len(data):
        size = sizes[turn % len(sizes)]
        pieces.append(data[at : at + size])
        at, turn = at + size, turn + 1
    return pieces


def test_a_stream_cut_anywhere_comes_out_whole() -> None:
    """Pieces of odd lengths, empty ones among them, give chunks of 20 ms, and every byte once, in order."""
    rng = random.Random(32)
    sizes = [1, 3, 0, 4063, 1697, 2, *(rng.choice([0, 1, 2, 5, 959, 961, 4096]) for _ in range(50)), 7]
    chunker = Chunker(24000)
    chunks = [chunk for piece in cut(RAMP, sizes) for chunk in chunker.push(piece)]
    assert {len(chunk) for chunk in chunks} == {960}
    assert b"".join(chunks) + chunker.flush() == RAMP
    assert chunker.dropped_bytes == 0


@given(
    data=st.binary(max_size=4000),
    sizes=st.lists(st.integers(0, 700), min_size=1, max_size=8).filter(any),
    channels=st.integers(1, 3),
    chunk_ms=st.sampled_from([1, 10, 20]),
)
def test_no_cut_ever_splits_a_sample(data: bytes, sizes: list[int], channels: int, chunk_ms: int) -> None:
    """Whatever the cuts, all that comes out is whole samples, and only half a sample at the very end can be missing."""
    chunker = Chunker(8000, channels, chunk_ms)
    chunks = [chunk for piece in cut(data, sizes) for chunk in chunker.push(piece)]
    rest = chunker.flush()
    assert all(len(chunk) == 16 * channels * chunk_ms for chunk in chunks)
    assert len(rest) % (2 * channels) == 0
    assert len(rest) < chunker.chunk_bytes
    whole = len(data) - len(data) % (2 * channels)
    assert b"".join(chunks) + rest == data[:whole]
    assert chunker.dropped_bytes == len(data) - whole


def test_a_stray_byte_at_the_end_is_dropped_and_counted() -> None:
    """After flush the next stream begins at its first byte: nothing is shifted."""
    chunker = Chunker(8000, chunk_ms=1)
    assert chunker.push(pcm(1, 2, 3) + b"\x7f") == []
    assert chunker.flush() == pcm(1, 2, 3)
    assert chunker.dropped_bytes == 1
    assert chunker.push(pcm(*range(8))) == [pcm(*range(8))]


def test_a_pause_inside_a_sample_loses_nothing() -> None:
    """drain gives the whole samples there are; the half one waits for its other half."""
    chunker = Chunker(8000, chunk_ms=1)
    chunker.push(pcm(1, 2, 777)[:5])
    assert chunker.drain() == pcm(1, 2)
    assert chunker.pending_bytes == 1
    chunker.push(pcm(1, 2, 777)[5:])
    assert chunker.flush() == pcm(777)
    assert chunker.dropped_bytes == 0


def test_reset_forgets_half_a_sample() -> None:
    """After an interrupt the next utterance is not shifted by a byte of the last."""
    chunker = Chunker(8000, chunk_ms=1)
    chunker.push(pcm(1, 2) + b"\x01")
    chunker.reset()
    assert chunker.flush() == b""
    assert chunker.push(pcm(*range(8))) == [pcm(*range(8))]


def test_chunks_are_whole_samples_long() -> None:
    """10 ms at 22,050 Hz are 220.5 samples, which no chunk can have; 20 ms are 441."""
    with pytest.raises(ValueError, match=r"220\.5 samples"):
        Chunker(22050, chunk_ms=10)
    assert Chunker(22050, chunk_ms=20).chunk_bytes == 882


@pytest.mark.parametrize("arguments", [(0, 1, 20), (8000, 0, 20), (8000, 1, 0), (8000, 1, -5)])
def test_a_chunker_of_nothing_is_refused(arguments: tuple[int, int, float]) -> None:
    """Rate, channels and length are positive."""
    with pytest.raises(ValueError, match="must be positive"):
        Chunker(*arguments)
