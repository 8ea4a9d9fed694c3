"""Both sides of a call on one clock: the caller left, the agent right."""

from __future__ import annotations

import wave
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from voiceflow.audio import resample

__all__ = ["Recording", "Track"]

Samples = npt.NDArray[np.int16]


class Track:
    """Mono sound as it happened. ``rate`` in Hz; ``origin`` is the clock's time of sample 0."""

    def __init__(self, rate: int, origin: float) -> None:
        self.rate = rate
        self.origin = origin
        self._pieces: list[tuple[int, Samples]] = []

    def add(self, pcm: bytes, at: float) -> None:
        """Sound that began at `at`. A piece that follows the last within 5 ms is put right behind it."""
        begin = round((at - self.origin) * self.rate)
        if self._pieces:
            last, sound = self._pieces[-1]
            if abs(begin - last - len(sound)) < 0.005 * self.rate or begin < last + len(sound):
                begin = last + len(sound)
        self._pieces.append((begin, np.frombuffer(pcm, "<i2")))

    def samples(self, begin: float | None = None, end: float | None = None) -> Samples:
        """The track, or what lies between two times of the clock."""
        length = max((at + len(sound) for at, sound in self._pieces), default=0)
        whole = np.zeros(length, np.int16)
        for at, sound in self._pieces:
            whole[at : at + len(sound)] = sound
        first = 0 if begin is None else max(0, round((begin - self.origin) * self.rate))
        return whole[first : None if end is None else max(0, round((end - self.origin) * self.rate))]

    def last_sound(self, begin: float, end: float, threshold: int = 32) -> float | None:
        """When, between two times, the last audible sample was; None if there is none."""
        loud = np.flatnonzero(np.abs(self.samples(begin, end).astype(np.int32)) > threshold)
        return None if not loud.size else begin + (loud[-1] + 1) / self.rate


class Recording:
    """The two tracks. ``clock``: the session's."""

    def __init__(self, caller_rate: int, agent_rate: int, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.origin = clock()
        self.caller = Track(caller_rate, self.origin)
        self.agent = Track(agent_rate, self.origin)

    def play(self, pcm: bytes) -> None:
        """The agent's loudspeaker: sound that is heard from now on."""
        self.agent.add(pcm, self._clock())

    def save(self, path: Path) -> None:
        """Write a stereo WAV at the agent's rate."""
        left = np.frombuffer(resample(self.caller.samples().tobytes(), self.caller.rate, self.agent.rate), "<i2")
        right = self.agent.samples()
        both = np.zeros((max(len(left), len(right)), 2), "<i2")
        both[: len(left), 0], both[: len(right), 1] = left, right
        with wave.open(str(path), "wb") as file:
            file.setnchannels(2)
            file.setsampwidth(2)
            file.setframerate(self.agent.rate)
            file.writeframes(both.tobytes())
