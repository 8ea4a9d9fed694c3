"""Tests of the mono branch and its clock."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from voiceflow.audio import resample, to_float
from voiceflow.frames import InputAudioFrame
from voiceflow.processors.hearing import SLACK_S, Downmix, MonoBranch, SampleClock


def frame(samples: np.ndarray, rate: int = 16000, channels: int = 1, pts: float | None = None) -> InputAudioFrame:
    return InputAudioFrame(samples.astype("<i2").tobytes(), rate, channels, pts=pts)


def tone(rate: int, seconds: float) -> np.ndarray:
    return (8000 * np.sin(2 * np.pi * 440 * np.arange(round(rate * seconds)) / rate)).astype("<i2")


@pytest.mark.parametrize("rate", [8000, 16000, 22050, 44100, 48000])
@pytest.mark.parametrize("size", [7, 160, 441, 16000])
def test_any_rate_in_any_pieces_becomes_one_stream_in_place(rate: int, size: int):
    """The samples are those of the whole resampled at once, from the first on."""
    sound = tone(rate, 0.5)
    branch = MonoBranch(16000)

    got = np.concatenate([branch.push(frame(sound[i : i + size], rate), 0.0) for i in range(0, len(sound), size)])

    whole = to_float(resample(sound.tobytes(), rate, 16000, quality="LIVE"))
    assert got == pytest.approx(whole[: len(got)], abs=1e-4)
    assert len(whole) - len(got) <= 16000 * 0.006 + 1
    assert branch.position == len(got)


def stereo(left: np.ndarray, right: np.ndarray, *, rate: int = 16000, size: int = 320) -> np.ndarray:
    """What the branch makes of two channels that come in frames of `size`."""
    both = np.stack([left, right], axis=1)
    branch = MonoBranch(16000)
    return np.concatenate([branch.push(frame(both[i : i + size], rate, 2), 0.0) for i in range(0, len(both), size)])


def test_channels_are_mixed_by_the_mean():
    """Two channels with sound become the mean of them, of the same length."""
    left = tone(16000, 0.1)

    assert stereo(left, left // 2) == pytest.approx(to_float(left) * 0.75, abs=1e-4)


@pytest.mark.parametrize("rest", [0, 8, -8], ids=["zero", "companded", "companded, negative"])
@pytest.mark.parametrize("size", [1, 320, 1600])
def test_a_channel_that_is_not_connected_does_not_halve_the_level(rest: int, size: int):
    """A right that is silent, or what silence decodes to on a telephone line, leaves the left as loud as it was."""
    left = tone(16000, 0.1)

    assert stereo(left, np.full_like(left, rest), size=size) == pytest.approx(to_float(left), abs=2e-4)


@pytest.mark.parametrize("size", [7, 320, 16000])
def test_channels_that_cancel_are_not_mixed(size: int):
    """Of a voice with its opposite on the right, the louder channel is heard alone."""
    left = tone(16000, 1.0)
    got = stereo(left, np.rint(-0.9 * left).astype("<i2"), size=size)

    assert got[size:] == pytest.approx(to_float(left)[size:], abs=1e-4)


def test_after_channels_that_cancelled_the_mean_comes_back():
    """When the two channels agree again, both are heard."""
    left = tone(16000, 1.0)
    got = stereo(np.concatenate((left, left)), np.concatenate((-left, left // 2)))

    assert got[-8000:] == pytest.approx(0.75 * to_float(left)[-8000:], abs=1e-4)


@settings(deadline=None)
@given(channels=st.integers(1, 4), sizes=st.lists(st.integers(0, 700), max_size=8), seed=st.integers(0, 9), loudness=st.integers(0, 30000))
def test_a_mix_is_as_long_and_no_louder_than_its_channels(channels: int, sizes: list[int], seed: int, loudness: int):
    """Of any channels in any pieces, each sample lies between the channels' own, and none is lost."""
    rng = np.random.default_rng(seed)
    downmix = Downmix(channels, 16000)
    for size in sizes:
        samples = rng.integers(-loudness, loudness + 1, (size, channels)).astype("<i2")
        mono = np.frombuffer(downmix.push(samples.tobytes()), "<i2")
        assert len(mono) == size
        assert (mono >= samples.min(axis=1, initial=32767)).all()
        assert (mono <= samples.max(axis=1, initial=-32768)).all()


def test_an_empty_frame_changes_nothing():
    """A frame without samples is no sound and no gap."""
    branch = MonoBranch(16000)
    branch.push(frame(tone(16000, 0.02), pts=1.0), 0.0)

    assert len(branch.push(frame(np.zeros(0), pts=1.02), 0.0)) == 0
    assert (branch.position, branch.gap_s) == (320, 0.0)


def test_without_pts_time_counts_from_the_first_frame():
    """The first frame is now; those after it follow by their samples, however late they come."""
    branch = MonoBranch(16000)
    for now in (5.0, 9.0, 9.0):
        branch.push(frame(tone(16000, 0.02)), now)

    assert branch.clock.time_at(640) == pytest.approx(5.04)
    assert branch.clock.position_at(5.04) == 640


def test_a_hole_in_the_sound_moves_the_clock_from_there_on():
    """A frame 400 ms late places its own samples later and leaves the earlier ones where they were."""
    branch = MonoBranch(16000)
    for pts in (1.0, 1.02, 1.44, 1.46):
        branch.push(frame(tone(16000, 0.02), pts=pts), 0.0)
        gap = branch.gap_s
        assert gap == (pytest.approx(0.4) if pts == 1.44 else 0.0)

    assert [branch.clock.time_at(p) for p in (0, 639, 640, 1280)] == pytest.approx([1.0, 1.04 - 1 / 16000, 1.44, 1.48])
    assert [branch.clock.position_at(t) for t in (1.01, 1.3, 1.45)] == [160, 640, 800]


def test_jitter_of_time_stamps_is_no_hole():
    """Stamps that are off by less than the slack do not move the clock."""
    branch = MonoBranch(16000)
    for number, jitter in enumerate([0, 0.9, -0.9, 0.5, -0.5]):
        branch.push(frame(tone(16000, 0.02), pts=2.0 + number * 0.02 + jitter * SLACK_S), 0.0)

    assert branch.clock.time_at(1600) == pytest.approx(2.1)


def test_another_sample_rate_in_mid_stream_keeps_time():
    """When the input's rate changes, positions and times go on; at most the filter's few milliseconds are lost."""
    branch = MonoBranch(16000)
    branch.push(frame(tone(8000, 0.5), 8000, pts=3.0), 0.0)
    branch.push(frame(tone(48000, 0.5), 48000, pts=3.5), 0.0)

    assert branch.clock.time_at(branch.position) == pytest.approx(4.0, abs=0.007)
    assert branch.gap_s == 0.0
    assert branch.position == pytest.approx(16000, abs=250)


def test_a_clock_that_was_never_set_says_so():
    """Asking for a time before any is known is an error with words."""
    with pytest.raises(LookupError, match="no sound has come in"):
        SampleClock(16000).time_at(0)


@settings(deadline=None)
@given(
    jumps=st.lists(st.tuples(st.integers(1, 5000), st.floats(0.05, 3)), max_size=10),
    offset=st.floats(0, 1000),
    positions=st.lists(st.integers(0, 60000), min_size=1),
)
def test_positions_and_times_are_each_others_inverse(jumps: list[tuple[int, float]], offset: float, positions: list[int]):
    """With holes anywhere, the position of a position's time is that position."""
    clock = SampleClock(16000)
    clock.anchor(0, offset)
    at = 0
    for samples, hole in jumps:
        at += samples
        clock.anchor(at, clock.time_at(at) + hole)

    for position in positions:
        assert abs(clock.position_at(clock.time_at(position)) - position) <= 1
