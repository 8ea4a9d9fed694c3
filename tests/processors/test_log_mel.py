"""Tests of the log-mel features."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from voiceflow.processors.log_mel import HOP, SAMPLE_RATE, log_mel, mel_filters


def noise(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 0.1, count).astype(np.float32)


def slaney_mel(hz: float) -> float:
    return hz * 3 / 200 if hz < 1000 else 15 + 27 * np.log(hz / 1000) / np.log(6.4)


def test_one_column_equals_the_definition_worked_out_by_hand():
    """A column is the log of triangular sums over a Hann-windowed DFT, taken here from the definitions in float64."""
    samples = noise(4000)
    column = 10
    piece = samples.astype(np.float64)[column * HOP - 200 : column * HOP + 200]
    n = np.arange(400)
    windowed = piece * (0.5 - 0.5 * np.cos(2 * np.pi * n / 400))
    power = [abs(np.sum(windowed * np.exp(-2j * np.pi * k * n / 400))) ** 2 for k in range(201)]
    edges_mel = np.linspace(0, slaney_mel(8000), 82)
    table = np.linspace(0, 8000, 800_001)
    edges = np.interp(edges_mel, [slaney_mel(hz) for hz in table], table)
    bands = np.zeros(80)
    for band in range(80):
        low, centre, high = edges[band : band + 3]
        for k in range(201):
            hz = k * 40.0
            weight = max(0.0, min((hz - low) / (centre - low), (high - hz) / (high - centre)))
            bands[band] += weight * 2 / (high - low) * power[k]

    assert log_mel(samples)[:, column] == pytest.approx((np.log10(bands) + 4) / 4, abs=1e-4)


def test_there_is_a_column_for_each_whole_hop():
    """The result has 80 rows and one column for each 10 ms."""
    assert [log_mel(noise(n)).shape for n in (1600, 1601, 1759, 1760)] == [(80, 10), (80, 10), (80, 10), (80, 11)]


@pytest.mark.parametrize("hz", [150, 440, 1000, 3000, 7000])
def test_a_tone_is_loudest_in_the_band_around_it(hz: int):
    """The band whose centre is nearest to a tone has the most of it."""
    tone = np.sin(2 * np.pi * hz * np.arange(SAMPLE_RATE) / SAMPLE_RATE).astype(np.float32)
    centres = np.linspace(0, slaney_mel(8000), 82)[1:-1]
    nearest = int(np.abs(centres - slaney_mel(hz)).argmin())

    assert abs(int(log_mel(tone)[:, 50].argmax()) - nearest) <= 1


def test_what_lies_eight_decades_below_the_loudest_is_raised_to_there():
    """The values span 2, which is 8 decades, however quiet the rest is."""
    samples = np.zeros(16000, np.float32)
    samples[:4000] = noise(4000)

    values = log_mel(samples)

    assert values.max() - values.min() == pytest.approx(2.0, abs=1e-5)


def test_silence_gives_finite_numbers():
    """Digital silence is the floor of the scale everywhere."""
    assert log_mel(np.zeros(16000, np.float32)) == pytest.approx(np.full((80, 100), -1.5))


@settings(max_examples=25, deadline=None)
@given(hops=st.integers(1, 20), seed=st.integers(0, 1000))
def test_sound_that_comes_later_gives_the_same_columns_later(hops: int, seed: int):
    """Moving the sound by whole hops moves the columns, away from the edges."""
    samples = noise(8000, seed)

    moved = log_mel(np.concatenate((noise(hops * HOP, seed + 1), samples)))

    assert moved[:, hops + 2 : -2] == pytest.approx(log_mel(samples)[:, 2:-2], abs=1e-4)


@settings(max_examples=25, deadline=None)
@given(gain=st.floats(0.01, 10))
def test_louder_sound_is_the_same_picture_brighter(gain: float):
    """Gain adds a constant, since the range below the loudest is fixed."""
    samples = noise(4800)

    assert log_mel(samples * np.float32(gain)) - log_mel(samples) == pytest.approx(np.log10(gain) / 2, abs=1e-3)


def test_filters_are_shared_and_cannot_be_spoiled():
    """The cached filter bank is read-only."""
    with pytest.raises(ValueError, match="read-only"):
        mel_filters()[0, 0] = 1.0


@pytest.mark.parametrize("samples", [np.zeros(200, np.float32), np.zeros((2, 1600), np.float32)])
def test_too_little_sound_and_stereo_are_refused(samples: np.ndarray):
    """What cannot be mirrored at its edges is refused with its shape."""
    with pytest.raises(ValueError, match="pad it"):
        log_mel(samples)
