"""Both sides of a call on one clock: the caller left, the agent right."""

from __future__ import annotations

import wave
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from voiceflow.audio import resample

__all__ = ["AUDIBLE", "Piece", "Recording", "Track"]

Samples = npt.NDArray[np.int16]

AUDIBLE = 32
"""The amplitude above which a sample counts as heard: -60 dB of full scale."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Sound as it came in one go: from sample ``begin`` of the track, handed over ``at`` on the clock."""

    begin: int
    sound: Samples
    at: float

    @property
    def end(self) -> int:
        """One past its last sample."""
        return self.begin + len(self.sound)


class Track:
    """Mono sound as it happened. ``rate`` in Hz; ``origin`` is the clock's time of sample 0."""

    def __init__(self, rate: int, origin: float) -> None:
        self.rate = rate
        self.origin = origin
        self.pieces: list[Piece] = []

    def add(self, pcm: bytes, at: float) -> None:
        """Sound that began at `at`. A piece that follows the last within 5 ms is put right behind it."""
        begin = round((at - self.origin) * self.rate)
        if self.pieces:
            end = self.pieces[-1].end
            if abs(begin - end) < 0.005 * self.rate or begin < end:
                begin = end
        self.pieces.append(Piece(begin, np.frombuffer(pcm, "<i2"), at))

    def samples(self, begin: float | None = None, end: float | None = None) -> Samples:
        """The track, or what lies between two times of the clock."""
        length = self.pieces[-1].end if self.pieces else 0
        whole = np.zeros(length, np.int16)
        for piece in self.pieces:
            whole[piece.begin : piece.end] = piece.sound
        first = 0 if begin is None else max(0, round((begin - self.origin) * self.rate))
        return whole[first : None if end is None else max(0, round((end - self.origin) * self.rate))]

    def between(self, begin: int, end: int) -> Samples:
        """The samples from ``begin`` to ``end``, silence where there is nothing; quick if they are among the last."""
        out = np.zeros(max(0, end - begin), np.int16)
        for piece in reversed(self.pieces):
            if piece.end <= begin:
                break
            first, last = max(begin, piece.begin), min(end, piece.end)
            if first < last:
                out[first - begin : last - begin] = piece.sound[first - piece.begin : last - piece.begin]
        return out

    def time(self, sample: int) -> float:
        """When a sample was heard."""
        return self.origin + sample / self.rate

    def left_after(self, at: float) -> int:
        """The first sample that was handed over at `at` or later; the length of the track if none was."""
        return next((piece.begin for piece in self.pieces if piece.at >= at - 1e-9), self.pieces[-1].end if self.pieces else 0)

    def last_sound(self, begin: float, end: float, threshold: int = AUDIBLE) -> float | None:
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
