"""16-bit PCM: to and from floats, channels, level, fades, and cutting a byte stream into whole chunks.

Its one rule: a value that does not fit is clipped, never wrapped, and what is not PCM is refused by name.
"""

from __future__ import annotations

import math
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

__all__ = ["Chunker", "as_bytes", "as_int16", "as_samples", "fade_in", "fade_out", "level_dbfs", "mix", "to_float", "to_pcm"]

Samples = npt.NDArray[np.int16]
Floats = npt.NDArray[np.float32]
Pcm = TypeVar("Pcm", bytes, Samples)

S16LE: np.dtype[np.int16] = np.dtype("<i2")

FULL_SCALE = 32768.0
"""What 1.0 stands for, so that -1.0 is -32768 and a round trip through floats changes nothing."""


def as_samples(pcm: bytes | Samples, channels: int = 1) -> Samples:
    """PCM as an int16 array of shape (samples, channels); a view where it can be.

    An array of one dimension is mono; of two, its second dimension is the channels, and ``channels`` is not looked at.

    Raises:
        ValueError: bytes that do not divide into whole samples, an array of another shape, no channels.
        TypeError: an array that is not int16.
    """
    if channels < 1:
        raise ValueError(f"{channels} channels of PCM: there must be at least 1")
    if isinstance(pcm, np.ndarray):
        if pcm.dtype != np.int16:
            raise TypeError(f"an array of {pcm.dtype} is not 16-bit PCM; turn floats into PCM with voiceflow.audio.to_pcm")
        if pcm.ndim not in (1, 2):
            raise ValueError(f"an array of shape {pcm.shape} is not PCM; it must be (samples,) or (samples, channels)")
        return pcm.reshape(-1, 1) if pcm.ndim == 1 else pcm
    if len(pcm) % (2 * channels):
        raise ValueError(
            f"{len(pcm)} bytes of PCM do not divide into {channels}-channel 16-bit samples; "
            "collect the stream with voiceflow.audio.Chunker, which never splits a sample"
        )
    return np.frombuffer(pcm, S16LE).reshape(-1, channels)


def as_int16(samples: npt.NDArray[Any]) -> Samples:
    """Numbers on the scale of int16, rounded to the nearest and clipped to what fits."""
    fitting: npt.NDArray[np.floating[Any]] = np.clip(np.rint(samples), -32768, 32767)
    return fitting.astype(S16LE)


def as_bytes(samples: Samples) -> bytes:
    """An int16 array as little-endian bytes, channels interleaved."""
    return samples.astype(S16LE, copy=False).tobytes()


def _like(samples: Samples, pcm: Pcm) -> Pcm:
    """``samples`` in the form that ``pcm`` came in."""
    if isinstance(pcm, bytes):
        return as_bytes(samples)
    return samples.reshape(-1) if pcm.ndim == 1 and samples.shape[1] == 1 else samples


def to_float(pcm: bytes | Samples) -> Floats:
    """PCM as float32 in [-1, 1). Bytes give shape (samples * channels,), an array keeps its shape."""
    shape = pcm.shape if isinstance(pcm, np.ndarray) else (-1,)
    return (as_samples(pcm).astype(np.float32) / np.float32(FULL_SCALE)).reshape(shape)


def to_pcm(samples: npt.NDArray[np.floating[Any]]) -> bytes:
    """Floats in [-1, 1] as s16le bytes; shape (samples,) or (samples, channels), which are interleaved.

    What lies outside is clipped: +1.0 and 1.2 give 32767, -1.0 and -7 give -32768.

    Raises:
        ValueError: there is a NaN among them: the sound is broken further up, and any number in its place would hide it.
    """
    if np.isnan(samples).any():
        where = int(np.flatnonzero(np.isnan(samples))[0])
        raise ValueError(f"value {where} of {samples.size} is NaN, which is no sound; look for the division or the model that made it")
    return as_bytes(as_int16(samples * FULL_SCALE))


def mix(pcm: Pcm, channels: int, target_channels: int) -> Pcm:
    """PCM with another number of channels: to mono by the mean, from mono by repeating it.

    Bytes give bytes; an array gives an array of shape (samples, target_channels). Equal numbers give back ``pcm`` itself.

    Raises:
        ValueError: neither side is mono (which channel should go where is not known), or ``pcm`` is not whole samples.
    """
    samples = as_samples(pcm, channels)
    have = samples.shape[1]
    if have == target_channels:
        return pcm
    if target_channels == 1:
        return _like(as_int16(samples.mean(axis=1, keepdims=True)), pcm)
    if have == 1 and target_channels > 1:
        return _like(np.repeat(samples, target_channels, axis=1), pcm)
    raise ValueError(f"cannot mix {have} channels to {target_channels}; one of the two must be 1")


def level_dbfs(pcm: bytes | Samples) -> float:
    """Level of the sound: its RMS in dB below full scale (32768), over all channels.

    A full-scale sine is -3.01, a full-scale square wave 0. Silence, and no sound at all, is ``-math.inf``.
    """
    samples = to_float(pcm)
    power = float(np.mean(np.square(samples, dtype=np.float64))) if samples.size else 0.0
    return 10 * math.log10(power) if power else -math.inf


def fade_in(pcm: Pcm, sample_rate: int, ms: float, channels: int = 1) -> Pcm:
    """Raise the first ``ms`` of the sound from silence along a raised cosine (all of it if it is shorter).

    The result has the form and shape of ``pcm``. A fade of 0 ms, or of nothing, gives back ``pcm`` itself.
    """
    return _fade(pcm, sample_rate, ms, channels, from_silence=True)


def fade_out(pcm: Pcm, sample_rate: int, ms: float, channels: int = 1) -> Pcm:
    """Lower the last ``ms`` of the sound to silence along a raised cosine; otherwise as ``fade_in``."""
    return _fade(pcm, sample_rate, ms, channels, from_silence=False)


def _fade(pcm: Pcm, sample_rate: int, ms: float, channels: int, *, from_silence: bool) -> Pcm:
    if ms < 0 or sample_rate < 1:
        raise ValueError(f"a fade of {ms} ms at {sample_rate} Hz: the length must be 0 or more and the rate positive")
    samples = as_samples(pcm, channels)
    length = min(round(sample_rate * ms / 1000), len(samples))
    if not length:
        return pcm
    # Taken at the middle of each sample, so that a fade out and a fade in of the same stretch add up to 1.
    gain = (0.5 - 0.5 * np.cos(np.pi * (np.arange(length) + 0.5) / length))[:, None]
    faded = samples.copy()
    if from_silence:
        faded[:length] = as_int16(samples[:length] * gain)
    else:
        faded[-length:] = as_int16(samples[-length:] * gain[::-1])
    return _like(faded, pcm)


class Chunker:
    """Cuts a stream of PCM bytes, which may arrive cut anywhere (inside a sample too), into chunks of one length.

    Three ways to come to an end, as streams end in three ways:

    * ``drain()``: the stream pauses. What is there in whole samples comes out; half a sample waits for its rest.
    * ``flush()``: the stream is over. The same, but half a sample is dropped and counted in ``dropped_bytes``.
    * ``reset()``: forget everything, as after an interrupt.

    After ``flush`` and ``reset`` the next byte is the first of a sample.

    Raises:
        ValueError: ``chunk_ms`` is not a whole number of samples at that rate, or a figure is not positive.
    """

    def __init__(self, sample_rate: int, channels: int = 1, chunk_ms: float = 20.0) -> None:
        if sample_rate < 1 or channels < 1 or chunk_ms <= 0:
            raise ValueError(f"Chunker({sample_rate} Hz, {channels} channels, {chunk_ms} ms): all three must be positive")
        samples = sample_rate * chunk_ms / 1000
        if abs(samples - round(samples)) > 1e-6 or round(samples) < 1:
            raise ValueError(f"{chunk_ms} ms at {sample_rate} Hz are {samples:g} samples; choose a length that is a whole number of them")
        self.chunk_bytes = round(samples) * channels * 2
        """Length of every chunk that ``push`` gives."""
        self.dropped_bytes = 0
        """Bytes dropped by ``flush`` so far because their sample never became whole."""
        self._sample_bytes = channels * 2
        self._pending = bytearray()

    @property
    def pending_bytes(self) -> int:
        """Bytes taken in and not yet given out."""
        return len(self._pending)

    def push(self, data: bytes) -> list[bytes]:
        """Take ``data`` in; give the chunks that became full, each of ``chunk_bytes``, oldest first."""
        self._pending += data
        size = self.chunk_bytes
        whole = len(self._pending) - len(self._pending) % size
        if not whole:
            return []
        chunks = [bytes(self._pending[i : i + size]) for i in range(0, whole, size)]
        del self._pending[:whole]
        return chunks

    def drain(self) -> bytes:
        """Give all whole samples there are, fewer than a chunk, perhaps none; half a sample waits for its rest."""
        whole = len(self._pending) - len(self._pending) % self._sample_bytes
        rest = bytes(self._pending[:whole])
        del self._pending[:whole]
        return rest

    def flush(self) -> bytes:
        """End the stream: give all whole samples there are; half a sample is dropped and counted in ``dropped_bytes``."""
        rest = self.drain()
        self.dropped_bytes += len(self._pending)
        self._pending.clear()
        return rest

    def reset(self) -> None:
        """Forget what is pending. It is not counted as dropped: it was not wanted."""
        self._pending.clear()
