"""Sound as Whisper's models see it: 80 mel bands, 100 columns a second, logarithmic.

Its one rule: numbers in, numbers out; it keeps nothing and knows no model.

The recipe is that of Radford et al., "Robust Speech Recognition via Large-Scale Weak Supervision" (2022), section 2.2:
16 kHz, 25 ms Hann windows every 10 ms, a mel filter bank, and values within 8 decades of the loudest, brought to about
-1..1. The mel scale is Slaney's ("Auditory Toolbox", 1998): linear below 1 kHz, logarithmic above.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["HOP", "SAMPLE_RATE", "log_mel", "mel_filters"]

SAMPLE_RATE = 16_000
"""Hz; what `log_mel` takes."""
HOP = 160
"""Samples from one column to the next."""

_WINDOW = 400
_BANDS = 80
_DECADES = 8.0
_FLOOR = 1e-10

_LINEAR_HZ_PER_MEL = 200 / 3
_BREAK_HZ = 1000.0
_BREAK_MEL = _BREAK_HZ / _LINEAR_HZ_PER_MEL
_LOG_STEP = np.log(6.4) / 27

Floats = npt.NDArray[np.float32]


def log_mel(samples: npt.NDArray[np.floating[Any]]) -> Floats:
    """The log-mel spectrogram, shape (80, samples // 160), of mono sound at 16 kHz in [-1, 1], shape (samples,).

    Raises:
        ValueError: fewer samples than half a window (200), which cannot be mirrored at the edges.
    """
    if samples.ndim != 1 or len(samples) <= _WINDOW // 2:
        raise ValueError(
            f"log_mel of an array of shape {samples.shape}: it needs one dimension and more than {_WINDOW // 2} samples; pad it with zeros"
        )
    padded = np.pad(samples.astype(np.float32, copy=False), _WINDOW // 2, mode="reflect")
    columns = np.lib.stride_tricks.sliding_window_view(padded, _WINDOW)[::HOP][: len(samples) // HOP]
    power = np.abs(np.fft.rfft(columns * _hann(), axis=1)).astype(np.float32) ** 2
    logs = np.log10(np.maximum(mel_filters() @ power.T, _FLOOR))
    scaled: Floats = ((np.maximum(logs, logs.max() - _DECADES) + 4.0) / 4.0).astype(np.float32)
    return scaled


@cache
def mel_filters() -> Floats:
    """Weights, shape (80, 201), that sum a power spectrum of 201 bins (0..8 kHz) into mel bands of equal area."""
    bins = np.linspace(0, SAMPLE_RATE / 2, _WINDOW // 2 + 1)
    edges = _to_hz(np.linspace(0.0, _to_mel(SAMPLE_RATE / 2), _BANDS + 2))
    rising = (bins - edges[:-2, None]) / np.diff(edges)[:-1, None]
    falling = (edges[2:, None] - bins) / np.diff(edges)[1:, None]
    area = 2.0 / (edges[2:] - edges[:-2])
    filters = (np.maximum(0.0, np.minimum(rising, falling)) * area[:, None]).astype(np.float32)
    filters.flags.writeable = False
    return filters


@cache
def _hann() -> Floats:
    """A periodic Hann window: the first 400 points of one that is 401 long."""
    return np.hanning(_WINDOW + 1)[:-1].astype(np.float32)


def _to_mel(hz: float) -> float:
    return hz / _LINEAR_HZ_PER_MEL if hz < _BREAK_HZ else _BREAK_MEL + float(np.log(hz / _BREAK_HZ)) / _LOG_STEP


def _to_hz(mel: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return np.where(mel < _BREAK_MEL, mel * _LINEAR_HZ_PER_MEL, _BREAK_HZ * np.exp((mel - _BREAK_MEL) * _LOG_STEP))
