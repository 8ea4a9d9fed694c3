"""Putting sounds together as a microphone hears them: levels, noise at a stated ratio, a room, the agent's own echo.

The one rule: a level is the level of what is active. Silence in a clip makes it no quieter.
Pure: 16 kHz mono, floats on the scale of 1.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from voiceflow.score.noises import RATE

__all__ = ["EchoPath", "active_level_db", "active_span", "at_level", "in_room", "with_noise"]

Floats = npt.NDArray[np.float64]

_WINDOW = RATE // 50
_MARGIN_DB = 15.9
_HANGOVER = 10
_PEAK_DB = 45.0
_ROUNDS = 20
_SILENT = 1e-10


def active_level_db(samples: Floats) -> float:
    """The level of the sound where it is active, in dB below full scale (a square wave of 1.0 has 0). Silence: ``-inf``.

    After ITU-T P.56, method B: the level L is the mean power of the active stretches, and active is what is not more
    than 15.9 dB below L, with 200 ms of hangover. Here in windows of 20 ms; L is found by going round until the set of
    active windows stays as it is.
    """
    power = _powers(samples)
    if not power.size or power.max() < _SILENT:
        return -math.inf
    threshold, before = power.max() * 10 ** (-_PEAK_DB / 10), np.zeros(0, bool)
    level = float(power.max())
    for _ in range(_ROUNDS):
        active = _hung_over(power >= threshold)
        level = float(power[active].mean())
        if np.array_equal(active, before):
            break
        before, threshold = active, level * 10 ** (-_MARGIN_DB / 10)
    return 10 * math.log10(level)


def active_span(samples: Floats, below_db: float = 35.0) -> tuple[int, int]:
    """First and one past the last sample that is at most ``below_db`` under the loudest 20 ms: to 5 ms. Silence: (0, 0)."""
    step = RATE // 200
    padded = np.pad(samples, (0, -len(samples) % step)).reshape(-1, step)
    power = np.square(padded).mean(axis=1)
    loudest = _powers(samples).max(initial=0.0)
    loud = np.flatnonzero(power > max(loudest * 10 ** (-below_db / 10), _SILENT))
    return (0, 0) if not loud.size else (int(loud[0]) * step, min(len(samples), int(loud[-1] + 1) * step))


def at_level(samples: Floats, level_db: float) -> Floats:
    """The same sound at an active level in dB of full scale. What would not fit is rounded off softly, not cut. Silence stays."""
    level = active_level_db(samples)
    return samples if level == -math.inf else _rounded(samples * 10 ** ((level_db - level) / 20))


def with_noise(samples: Floats, noise: Floats, snr_db: float) -> Floats:
    """``noise`` (as long) under a sound: the active level of the sound is ``snr_db`` above the RMS of the noise."""
    power = float(np.mean(np.square(noise))) if noise.size else 0.0
    level = active_level_db(samples)
    if not power or level == -math.inf:
        return samples
    return _rounded(samples + noise * 10 ** ((level - snr_db) / 20) / np.sqrt(power))


def in_room(samples: Floats, *, reverb_s: float = 0.4, direct_db: float = -3.0, seed: int = 0) -> Floats:
    """The sound from across a room: the direct sound ``direct_db`` against what the walls give back (RMS to RMS), which
    falls by 60 dB in ``reverb_s``. As long as the sound and its reverberation, at the same active level."""
    rng = np.random.Generator(np.random.PCG64(seed))
    seconds = np.arange(round(reverb_s * RATE)) / RATE
    walls = rng.standard_normal(len(seconds)) * 10 ** (-3 * seconds / reverb_s)
    walls[: round(0.004 * RATE)] = 0
    walls /= np.sqrt(np.sum(walls**2))
    walls[0] = 10 ** (direct_db / 20)
    size = len(samples) + len(walls) - 1
    heard = np.fft.irfft(np.fft.rfft(samples, size) * np.fft.rfft(walls, size), size)
    return at_level(heard, active_level_db(samples))


class EchoPath:
    """From the agent's loudspeaker into the caller's microphone: a delay, a loss, a small room. One stream at 16 kHz.

    Fed without gaps: where nothing is played, silence is pushed. What comes out is as long as what went in, and
    ``gain_db`` is the level of the echo against the sound that made it (a linear path: what an echo canceller leaves over
    in a good loudspeaker phone is 25 to 45 dB down, with none it is 5 to 20).
    """

    def __init__(self, gain_db: float, *, delay_ms: float = 60.0, reverb_s: float = 0.15, seed: int = 0) -> None:
        if delay_ms < 0 or reverb_s < 0:
            raise ValueError(f"EchoPath with delay_ms {delay_ms:g} and reverb_s {reverb_s:g}: neither can be negative")
        rng = np.random.Generator(np.random.PCG64(seed))
        seconds = np.arange(max(1, round(reverb_s * RATE))) / RATE
        response = 0.3 * rng.standard_normal(len(seconds)) * 10 ** (-3 * seconds / max(reverb_s, 1e-3))
        response[0] = 1.0
        response *= 10 ** (gain_db / 20) / np.sqrt(np.sum(response**2))
        self._response = np.concatenate([np.zeros(round(delay_ms * RATE / 1000)), response])
        self._tail = np.zeros(len(self._response) - 1)

    def push(self, samples: Floats) -> Floats:
        """The next stretch of what is played; the echo that is heard in the same time."""
        if not len(samples):
            return samples
        size = len(samples) + len(self._response) - 1
        whole = np.fft.irfft(np.fft.rfft(samples, size) * np.fft.rfft(self._response, size), size)
        whole[: len(self._tail)] += self._tail
        self._tail = whole[len(samples) :]
        return whole[: len(samples)]


def _powers(samples: Floats) -> Floats:
    """Mean power of each 20 ms."""
    padded = np.pad(samples, (0, -len(samples) % _WINDOW)).reshape(-1, _WINDOW)
    return np.asarray(np.square(padded).mean(axis=1))


def _hung_over(active: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """What is active stays so for 200 ms."""
    last = np.maximum.accumulate(np.where(active, np.arange(len(active)), -_HANGOVER - 1))
    return np.arange(len(active)) - last <= _HANGOVER


def _rounded(samples: Floats) -> Floats:
    """Linear up to 0.7, then bent so that nothing passes 1."""
    loud = np.abs(samples) > 0.7
    bent = np.sign(samples) * (0.7 + 0.3 * np.tanh((np.abs(samples) - 0.7) / 0.3))
    return np.where(loud, bent, samples)
