"""The beep of an answering machine, heard in any other sound. Pure, and a thin node.

The one rule: a beep is told when it is over, as the machine records from then on; a voice is none.

A beep is one tone that keeps its pitch, between 350 and 2500 Hz, for about 0.2 to 2 s. A tone that lasts longer is a dialling tone.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from voiceflow.audio import mix
from voiceflow.frames import ControlFrame, InputAudioFrame, Lane
from voiceflow.processor import Processor

__all__ = ["BeepDetector", "BeepHeard", "Beeps"]

BLOCK_S = 0.04
"""Bins of 25 Hz: the harmonics of a voice, 80 Hz apart or more, do not fall into one peak."""
LOWEST_HZ, HIGHEST_HZ = 350.0, 2500.0
PURE = 0.85
"""So much of a block's power lies within two bins of its peak."""
EVEN = 0.4
"""The least part of the power of a block's loudest quarter that its faintest has: two tones close together beat."""
STEADY_HZ = 10.0
LEVEL = 10 ** (-40 / 10)
"""The least power, of full scale."""
QUIET = 0.1
"""What follows a beep has less of its power than this."""
SHORTEST, LONGEST = 4, 50
"""Blocks."""
APART = 3
"""Blocks: tones that follow one another so closely are a melody or an announcement's jingle."""


class BeepHeard(ControlFrame, frozen=True):
    """A beep was heard, and is over."""

    lane = Lane.USER
    pitch: float = 0.0
    """Hz."""
    seconds: float = 0.0


class BeepDetector:
    """Sound in, beeps out: (pitch in Hz, seconds), each up to 160 ms after its end.

    Raises ValueError if the rate cannot carry the pitches.
    """

    def __init__(self, sample_rate: int, channels: int = 1) -> None:
        if sample_rate < 2 * HIGHEST_HZ * 1.1:
            raise ValueError(f"BeepDetector: sample_rate is {sample_rate}; beeps up to {HIGHEST_HZ:g} Hz need 5500 Hz or more")
        self.sample_rate, self.channels = sample_rate, channels
        self._size = round(BLOCK_S * sample_rate)
        self._window = np.hanning(self._size + 1)[:-1]
        self._scale = 2 / (self._size * float(np.sum(self._window**2)))
        self._rest = np.empty(0)
        self._pitches: list[float] = []
        self._blocks = 0
        """That the tone has lasted; the pitches of one that is too long are not kept."""
        self._power = 0.0
        self._since = APART
        """Blocks since the last tone ended."""
        self._follows = False
        """The tone that sounds came close behind another."""
        self._over: tuple[float, float] | None = None
        """A beep, if it is quiet behind it."""

    def feed(self, pcm: bytes) -> list[tuple[float, float]]:
        """The beeps that ended in this sound."""
        samples = np.frombuffer(mix(pcm, self.channels, 1), "<i2") / 32768
        self._rest = np.concatenate([self._rest, samples])
        found = []
        while len(self._rest) >= self._size:
            block, self._rest = self._rest[: self._size], self._rest[self._size :]
            if (beep := self._take(*self._measured(block))) is not None:
                found.append(beep)
        return found

    def _take(self, power: float, pitch: float | None) -> tuple[float, float] | None:
        """One block later."""
        if pitch is not None:
            if not self._blocks:
                self._follows, self._over = self._since < APART, None
            self._blocks, self._power = self._blocks + 1, power
            if self._blocks <= LONGEST:
                self._pitches.append(pitch)
            return None
        if self._blocks:
            self._tone_ended()
        self._since += 1
        if self._since != APART:
            return None
        over, self._over = self._over, None
        return over if power < QUIET * self._power else None

    def _tone_ended(self) -> None:
        pitches, blocks = self._pitches, self._blocks
        is_steady = max(pitches) - min(pitches) <= STEADY_HZ
        if SHORTEST <= blocks <= LONGEST and is_steady and not self._follows:
            self._over = float(np.median(pitches)), blocks * BLOCK_S
        self._pitches, self._blocks, self._since = [], 0, 0

    def _measured(self, block: npt.NDArray[np.float64]) -> tuple[float, float | None]:
        """Its power, and the pitch in Hz if it is one tone throughout."""
        spectrum = np.abs(np.fft.rfft(block * self._window)) ** 2 * self._scale
        spectrum[0] = 0.0
        power, peak = float(spectrum.sum()), 1 + int(np.argmax(spectrum[1:-1]))
        if power < LEVEL or spectrum[max(peak - 2, 0) : peak + 3].sum() < PURE * power:
            return power, None
        quarters = [float(np.mean(quarter * quarter)) for quarter in np.array_split(block, 4)]
        if min(quarters) < EVEN * max(quarters):
            return power, None
        left, middle, right = np.sqrt(spectrum[peak - 1 : peak + 2])
        # The Hann window's own interpolation between bins, from the amplitudes beside the peak.
        side, sign = (right, 1.0) if right > left else (left, -1.0)
        shift = sign * (2 * side - middle) / (middle + side)
        pitch = (peak + shift) * self.sample_rate / self._size
        return power, float(pitch) if LOWEST_HZ <= pitch <= HIGHEST_HZ else None


class Beeps(Processor):
    """Hears beeps in the caller's sound, for ``Answering``. Instant; hands the sound on. Stands before the recogniser."""

    def __init__(self) -> None:
        self._detector: BeepDetector | None = None

    def process(self, frame: InputAudioFrame) -> Iterator[InputAudioFrame | BeepHeard]:
        """See the class."""
        detector = self._detector
        if detector is None or (detector.sample_rate, detector.channels) != (frame.sample_rate, frame.channels):
            detector = self._detector = BeepDetector(frame.sample_rate, frame.channels)
        yield frame
        for pitch, seconds in detector.feed(frame.pcm):
            yield BeepHeard(pitch=pitch, seconds=seconds, pts=frame.pts)
