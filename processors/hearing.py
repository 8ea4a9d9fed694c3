"""The caller's sound as a model wants it: mono floats at one rate, each with its place on the session's clock.

Its one rule: a sample is known by its position, a whole number that only grows; the clock says when a position was.
The frames themselves are not touched: this is a side branch beside the sound that goes on.
"""

from __future__ import annotations

import math
from collections import deque

import numpy as np
import numpy.typing as npt

from voiceflow.audio import StreamResampler, to_float
from voiceflow.frames import InputAudioFrame

__all__ = ["Downmix", "MonoBranch", "SampleClock"]

Floats = npt.NDArray[np.float32]

SLACK_S = 0.03
"""A frame's pts may be this far from where the samples before it end, and still be taken to follow them: what a timer
or a network does to time stamps is not a hole in the sound."""

_ANCHORS = 64

_FAINTEST = 16
"""A channel that was never louder than this (-66 dB of full scale) is not connected: what a companded silence decodes to is below."""
_MEMORY_S = 0.1
_CANCELLED, _ADDS_UP = 0.01, 0.1
"""Of the loudest channel's power: a mean below the first has been cancelled, one above the second has not."""


class SampleClock:
    """Which position was when: a straight line from the last place where the time was given afresh."""

    def __init__(self, sample_rate: int) -> None:
        self.sample_rate = sample_rate
        self._anchors: deque[tuple[int, float]] = deque(maxlen=_ANCHORS)

    @property
    def is_set(self) -> bool:
        """Whether any time is known yet."""
        return bool(self._anchors)

    def anchor(self, position: int, time: float) -> None:
        """From ``position`` on, time counts from ``time`` (seconds)."""
        while self._anchors and self._anchors[-1][0] >= position:
            self._anchors.pop()
        self._anchors.append((position, time))

    def time_at(self, position: float) -> float:
        """Seconds on the session's clock; between two samples too.

        Raises:
            LookupError: no time was given yet.
        """
        known = next((a for a in reversed(self._anchors) if a[0] <= position), None) or self._oldest()
        return known[1] + (position - known[0]) / self.sample_rate

    def position_at(self, time: float) -> int:
        """The position nearest to ``time``; a time inside a hole gives the first position after it.

        Raises:
            LookupError: no time was given yet.
        """
        end: int | None = None
        for position, begin in reversed(self._anchors):
            if begin <= time + 1e-9:
                there = position + round((time - begin) * self.sample_rate)
                return there if end is None else min(there, end)
            end = position
        position, begin = self._oldest()
        return position + round((time - begin) * self.sample_rate)

    def _oldest(self) -> tuple[int, float]:
        if not self._anchors:
            raise LookupError("no sound has come in yet, so no time is known for any sample")
        return self._anchors[0]


class Downmix:
    """Channels of one stream in, one channel out, for models that hear with one ear.

    It is the mean of the channels that have carried sound so far: a voice on the left is not halved by a right that is
    not connected. Where the mean cancels, as with one of two microphones wired the wrong way round, it is the loudest
    channel alone.
    """

    def __init__(self, channels: int, sample_rate: int) -> None:
        self.channels = channels
        self._memory = _MEMORY_S * sample_rate
        self._is_heard = np.zeros(channels, bool)
        self._energies = np.zeros(channels)  # of the last tenth of a second
        self._mean_energy = 0.0
        self._is_cancelled = False

    def push(self, pcm: bytes) -> bytes:
        """The next samples, signed 16 bit, interleaved; as many come out."""
        if self.channels == 1 or not pcm:
            return pcm
        samples = np.frombuffer(pcm, "<i2").reshape(-1, self.channels).astype(np.float32)
        if not self._is_heard.all():
            self._is_heard |= np.abs(samples).max(axis=0) > _FAINTEST
        chosen = self._is_heard if self._is_heard.any() else np.ones(self.channels, bool)
        mean = samples @ (chosen / chosen.sum()).astype(np.float32)
        loudest = self._weigh(samples, mean)
        return np.rint(samples[:, loudest] if self._is_cancelled else mean).astype("<i2").tobytes()

    def _weigh(self, samples: Floats, mean: Floats) -> int:
        """Find out whether the mean is cancelled; the loudest channel."""
        kept = math.exp(-len(samples) / self._memory)
        self._energies = self._energies * kept + np.einsum("ij,ij->j", samples, samples)
        self._mean_energy = self._mean_energy * kept + float(mean @ mean)
        loudest = int(self._energies.argmax())
        share = _ADDS_UP if self._is_cancelled else _CANCELLED
        self._is_cancelled = bool(self._mean_energy < share * self._energies[loudest])
        return loudest


class MonoBranch:
    """Turns frames of any rate, channels and length into one stream of mono float32 samples at ``sample_rate``.

    Channels are mixed by ``Downmix``. The branch is late by at most what ``StreamResampler`` holds back (6 ms).
    """

    def __init__(self, sample_rate: int) -> None:
        self.sample_rate = sample_rate
        self.clock = SampleClock(sample_rate)
        self.position = 0
        """Of the next sample that ``push`` will give."""
        self.gap_s = 0.0
        """By how much the last frame came later than the sound before it ended; 0 if it followed it."""
        self._downmix = Downmix(1, sample_rate)
        self._resampler: StreamResampler | None = None
        self._origin = 0  # the position at which the present input rate began
        self._taken = 0  # input samples since

    def push(self, frame: InputAudioFrame, now: float) -> Floats:
        """The samples that are ready, perhaps none, shape (n,).

        A frame without ``pts`` follows the one before it; the first is placed at ``now`` (seconds).
        """
        resampler = self._resampler
        if resampler is None or resampler.source_rate != frame.sample_rate:
            resampler = self._begin(frame.sample_rate)
        position = self._origin + self._taken * self.sample_rate / resampler.source_rate
        expected = self.clock.time_at(position) if self.clock.is_set else None
        at = frame.pts if frame.pts is not None else expected
        self.gap_s = 0.0
        if expected is None or at is None:
            self.clock.anchor(round(position), now if at is None else at)
        elif abs(at - expected) > SLACK_S:
            self.clock.anchor(round(position), at)
            self.gap_s = at - expected
        self._taken += len(frame.pcm) // (2 * frame.channels)
        if self._downmix.channels != frame.channels:
            self._downmix = Downmix(frame.channels, frame.sample_rate)
        samples = to_float(resampler.process(self._downmix.push(frame.pcm)))
        self.position += len(samples)
        return samples

    def _begin(self, source_rate: int) -> StreamResampler:
        """Another input rate: what is left in the old filter, some milliseconds, is dropped."""
        if self._resampler is not None:
            expected = self.clock.time_at(self._origin + self._taken * self.sample_rate / self._resampler.source_rate)
            self.clock.anchor(self.position, expected)
        self._origin, self._taken = self.position, 0
        self._resampler = StreamResampler(source_rate, self.sample_rate)
        return self._resampler
