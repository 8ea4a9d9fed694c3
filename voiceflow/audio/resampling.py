"""Sample rates: a stream converted piece by piece as it happens, or a whole recording at once.

Its one rule: converting a stream in pieces gives what converting it whole would give, to the last sample, and never
holds back more sound than ``holds_ms`` says.

There are two ways to do it. The named qualities of soxr (``QQ`` to ``VHQ``) are the best there is for a recording,
but in a live stream they work in blocks and hold back 20 to 170 ms. Only ``QQ`` never does, and it has no filter: what
lies above half the target rate comes back as an alias at full strength. ``LIVE``, the default, is a short filter of our
own that holds back 6 ms at worst between the usual rates. All were measured; the table is in ``docs/audio.md``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt
import soxr  # type: ignore[import-untyped]  # 1.1 ships no py.typed; every use of it stands in this module

from voiceflow.audio.pcm import as_bytes, as_int16, as_samples

__all__ = ["Quality", "StreamResampler", "holds_ms", "resample"]

Quality = Literal["LIVE", "QQ", "LQ", "MQ", "HQ", "VHQ"]
Floats = npt.NDArray[np.float32]

_SOXR_QUALITIES = ("QQ", "LQ", "MQ", "HQ", "VHQ")


class StreamResampler:
    """Changes the sample rate of one stream of PCM, which comes in pieces of any length.

    ``source_rate`` and ``target_rate`` in Hz; PCM is s16le with ``channels`` interleaved. One object is one stream: its
    state is the sound still inside the filter. Output is aligned with input (no shift), as long as the input to
    within a sample, and late by at most ``holds_ms``. Equal rates give back the very bytes that came in.

    Raises:
        ValueError: a rate, quality or number of channels that makes no sense, or two rates so odd that the filter
            would need more than 8 MB (their greatest common divisor is too small): one of soxr's qualities serves those.
    """

    def __init__(self, source_rate: int, target_rate: int, channels: int = 1, quality: Quality = "LIVE") -> None:
        _check(source_rate, target_rate, quality)
        if channels < 1:
            raise ValueError(f"StreamResampler for {channels} channels: there must be at least 1")
        self.source_rate = source_rate
        self.target_rate = target_rate
        self.channels = channels
        self.quality: Quality = quality
        self._engine = _engine(source_rate, target_rate, channels, quality)

    @property
    def holds_ms(self) -> float:
        """The most sound, in ms, that has gone in and not come out, after any ``process``."""
        return holds_ms(self.source_rate, self.target_rate, self.quality)

    def process(self, pcm: bytes) -> bytes:
        """The next piece in, as much as is ready out, perhaps nothing.

        Raises:
            ValueError: ``pcm`` is not whole samples of all channels.
        """
        samples = as_samples(pcm, self.channels)
        if self._engine is None:
            return pcm
        return as_bytes(as_int16(self._engine.push(samples.astype(np.float32))))

    def flush(self) -> bytes:
        """End the stream: give what is held back. The next ``process`` begins a new stream."""
        return b"" if self._engine is None else as_bytes(as_int16(self._engine.finish()))

    def reset(self) -> None:
        """Forget what is held back. The next ``process`` begins a new stream."""
        if self._engine is not None:
            self._engine.clear()


def resample(pcm: bytes, source_rate: int, target_rate: int, channels: int = 1, quality: Quality = "HQ") -> bytes:
    """A whole recording at another sample rate: s16le PCM in and out, rates in Hz, ``channels`` interleaved.

    Raises:
        ValueError: as ``StreamResampler``.
    """
    stream = StreamResampler(source_rate, target_rate, channels, quality)
    return stream.process(pcm) + stream.flush()


def holds_ms(source_rate: int, target_rate: int, quality: Quality = "LIVE") -> float:
    """The most sound, in ms, that a ``StreamResampler`` between these rates (in Hz) has taken in and not yet given out.

    Exact for ``LIVE``. For soxr's qualities it is measured once, with half a second of sound in pieces of 1 ms, because
    their blocks depend on the build of soxr; that takes some milliseconds the first time.

    Raises:
        ValueError: as ``StreamResampler``.
    """
    _check(source_rate, target_rate, quality)
    if source_rate == target_rate:
        return 0.0
    return _live_filter(source_rate, target_rate).holds_ms if quality == "LIVE" else _measured_hold_ms(source_rate, target_rate, quality)


def _check(source_rate: int, target_rate: int, quality: str) -> None:
    if source_rate < 1 or target_rate < 1:
        raise ValueError(f"resampling {source_rate} Hz to {target_rate} Hz: a sample rate is a positive number of Hz")
    if quality != "LIVE" and quality not in _SOXR_QUALITIES:
        raise ValueError(f"resampling quality {quality!r} is unknown; choose LIVE or one of soxr's {', '.join(_SOXR_QUALITIES)}")


# ------------------------------------------------------------------------------------------------------ engines


class _Engine(Protocol):
    """Numbers on the scale of int16, shape (samples, channels), in and out."""

    def push(self, samples: Floats) -> Floats: ...

    def finish(self) -> Floats:
        """The tail; ready for another stream."""

    def clear(self) -> None: ...


def _engine(source_rate: int, target_rate: int, channels: int, quality: Quality) -> _Engine | None:
    if source_rate == target_rate:
        return None
    if quality == "LIVE":
        return _Live(_live_filter(source_rate, target_rate), channels)
    return _Soxr(source_rate, target_rate, channels, quality)


class _Soxr:
    """soxr in float32: its int16 output is dithered, so that no two runs would agree."""

    def __init__(self, source_rate: int, target_rate: int, channels: int, quality: str) -> None:
        self._stream: Any = soxr.ResampleStream(source_rate, target_rate, channels, "float32", quality)
        self._nothing = np.zeros((0, channels), np.float32)

    def push(self, samples: Floats) -> Floats:
        given: Floats = self._stream.resample_chunk(samples)
        return given

    def finish(self) -> Floats:
        given: Floats = self._stream.resample_chunk(self._nothing, last=True)
        self._stream.clear()
        return given

    def clear(self) -> None:
        self._stream.clear()


@lru_cache(maxsize=64)
def _measured_hold_ms(source_rate: int, target_rate: int, quality: str) -> float:
    stream = _Soxr(source_rate, target_rate, 1, quality)
    piece = np.zeros((max(1, source_rate // 1000), 1), np.float32)
    taken = given = 0
    held = 0.0
    for _ in range(500):
        taken += len(piece)
        given += len(stream.push(piece))
        held = max(held, taken / source_rate - given / target_rate)
    return held * 1000


# ------------------------------------------------------------------------------------------------- LIVE's filter

ZERO_CROSSINGS = 40
"""Length of the filter to either side, in samples of the lower of the two rates: 5 ms at 8 kHz, 2.5 ms at 16 kHz."""
STOPBAND_DB = 80.0
"""What would alias or mirror is this much weaker. Companded telephone sound has 38 dB of its own noise."""
GROUP = 8
"""Outputs made at once. More is quicker and later: 8 are at most 1 ms."""
_MOST_WEIGHTS = 2_000_000
_SLICE = 16_384  # samples worked on at once: the windows of a whole recording would fill the memory


@dataclass(frozen=True, slots=True)
class _LiveFilter:
    """A windowed sinc for one pair of rates, laid out so that ``GROUP`` outputs are one row times one matrix.

    The rates are as ``up`` to ``down`` in lowest terms: output k lies at input ``k * down / up``. Group q needs the
    ``width`` inputs from ``q * GROUP * down // up - reach`` on, and matrix ``q % len(weights)``.
    """

    up: int
    down: int
    reach: int
    weights: Floats
    """Shape (matrices, width, GROUP)."""
    holds_ms: float

    @property
    def width(self) -> int:
        return int(self.weights.shape[1])


@lru_cache(maxsize=32)
def _live_filter(source_rate: int, target_rate: int) -> _LiveFilter:
    """Design by the Kaiser window (A. V. Oppenheim, R. W. Schafer: Discrete-Time Signal Processing, ch. 7.6).

    The stopband begins at half the lower rate, so nothing aliases; the passband ends 6.3 % of that rate before it.
    """
    common = math.gcd(source_rate, target_rate)
    up, down = target_rate // common, source_rate // common
    half = ZERO_CROSSINGS * source_rate / min(source_rate, target_rate)  # in input samples
    after = math.ceil(half)
    matrices = math.lcm(up, GROUP) // GROUP
    outputs = np.arange(matrices * GROUP).reshape(matrices, GROUP)
    bases = outputs * down // up  # the input at or just before each output
    begins = bases[:, 0]
    width = int((bases[:, -1] - begins).max()) + 2 * after
    if matrices * width * GROUP > _MOST_WEIGHTS:
        raise ValueError(
            f"resampling {source_rate} Hz to {target_rate} Hz live: these rates are in the ratio {up}:{down}, which takes a filter "
            f"of {matrices * width * GROUP * 4 / 1e6:.0f} MB; use quality='HQ', or make sound at a usual rate"
        )

    transition = (STOPBAND_DB - 7.95) / (14.36 * 2 * ZERO_CROSSINGS)  # of the lower rate
    cutoff = (0.5 - transition / 2) * ZERO_CROSSINGS / half  # cycles an input sample
    beta = 0.1102 * (STOPBAND_DB - 8.7)
    # Row p: the weights of the inputs from ``after - 1`` before the base to ``after`` behind it, for an output p / up behind it.
    away = np.arange(up)[:, None] / up + (after - 1 - np.arange(2 * after))[None, :]
    window = np.i0(beta * np.sqrt(np.maximum(1 - np.square(away / half), 0))) * (np.abs(away) < half)
    phases = np.sinc(2 * cutoff * away) * window
    phases /= phases.sum(axis=1, keepdims=True)  # a constant stays that constant, whatever the phase

    weights = np.zeros((matrices, width, GROUP), np.float32)
    matrix, tap = np.arange(matrices)[:, None], np.arange(2 * after)[None, :]
    for column in range(GROUP):
        shift = (bases[:, column] - begins)[:, None]
        weights[matrix, shift + tap, column] = phases[outputs[:, column] * down % up]
    weights.setflags(write=False)

    reach = after - 1
    short = begins - reach + width - 1  # inputs taken in when group q lacks one more, over the groups of one cycle
    held = (short / source_rate - np.arange(matrices) * GROUP / target_rate).max()
    return _LiveFilter(up, down, reach, weights, float(held) * 1000)


class _Live:
    """One stream through a ``_LiveFilter``."""

    def __init__(self, design: _LiveFilter, channels: int) -> None:
        self._design = design
        self._channels = channels
        self.clear()

    def clear(self) -> None:
        # The sound before the first sample is silence, as far as the filter reaches back.
        self._inputs: Floats = np.zeros((self._channels, self._design.reach), np.float32)
        self._first = -self._design.reach  # which input self._inputs begins with
        self._taken = 0
        self._groups = 0

    def push(self, samples: Floats) -> Floats:
        if len(samples) > _SLICE:
            return np.concatenate([self.push(samples[i : i + _SLICE]) for i in range(0, len(samples), _SLICE)])
        self._taken += len(samples)
        self._inputs = np.concatenate((self._inputs, samples.T), axis=1)
        return self._ready()

    def finish(self) -> Floats:
        design = self._design
        due = -(-self._taken * design.up // design.down) - self._groups * GROUP
        if due > 0:
            last = self._groups + (due - 1) // GROUP
            silence = self._begin(last) + design.width - self._first - self._inputs.shape[1]
            self._inputs = np.pad(self._inputs, ((0, 0), (0, max(silence, 0))))
        tail = self._ready()[: max(due, 0)]
        self.clear()
        return tail

    def _begin(self, group: int) -> int:
        """The first input that a group needs."""
        return group * GROUP * self._design.down // self._design.up - self._design.reach

    def _ready(self) -> Floats:
        """All groups whose inputs are there."""
        design = self._design
        latest = self._first + self._inputs.shape[1] - design.width + design.reach  # where the last such group may lie
        ready = ((latest + 1) * design.up - 1) // (GROUP * design.down) + 1 - self._groups
        if ready < 1:
            return np.zeros((0, self._channels), np.float32)
        groups = np.arange(self._groups, self._groups + ready)
        begins = groups * (GROUP * design.down) // design.up - (design.reach + self._first)
        windows = np.lib.stride_tricks.sliding_window_view(self._inputs, design.width, axis=1)[:, begins]
        if len(design.weights) == 1:
            made = windows @ design.weights[0]
        else:
            made = (windows[:, :, None, :] @ design.weights[groups % len(design.weights)])[:, :, 0, :]
        self._groups += ready
        spent = self._begin(self._groups) - self._first
        self._inputs = self._inputs[:, spent:]
        self._first += spent
        result: Floats = made.reshape(self._channels, -1).T
        return result
