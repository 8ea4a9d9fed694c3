"""When the caller's voice begins and ends, by Silero's detector.

Owns the hysteresis (``VadGate``: numbers in, edges out) and the node around the model. Its one rule: every frame of
sound passes on at once and untouched, and an edge comes after the frame that decided it, with its place on the clock
of the frames' ``pts``.

The model is Silero VAD 6.2 (https://github.com/snakers4/silero-vad, MIT). It takes windows of 32 ms, 512 samples at
16 kHz or 256 at 8 kHz, each with the last 64 or 32 samples of the one before in front of it, and carries a state
along. One window costs about 75 microseconds on one core, so it runs inline.
"""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from voiceflow import models
from voiceflow.errors import SessionError
from voiceflow.frames import EndFrame, InputAudioFrame, SpeechStarted, SpeechStopped
from voiceflow.processor import Processor
from voiceflow.processors.hearing import MonoBranch
from voiceflow.processors.onnx import OnnxModel, open_onnx

__all__ = ["Lift", "SileroDetector", "SileroVAD", "SpeechFinder", "VadGate", "VadOptions"]

Floats = npt.NDArray[np.float32]
Edge = SpeechStarted | SpeechStopped

WINDOW_S = 0.032
_EPSILON_S = 1e-6
_WANTED_POWER = 10 ** (-20 / 10)
_FORGET = 10 ** (-3.0 * WINDOW_S / 10)


@dataclass(frozen=True, slots=True)
class VadOptions:
    """Probabilities are the detector's, 0 to 1."""

    model: str | os.PathLike[str] = "silero-vad"
    """A name that ``voiceflow.models`` knows, or the path of the ONNX file."""
    start_threshold: float = 0.5
    """A window at or above it may begin speech, and always is speech."""
    stop_threshold: float = 0.35
    """A window below it is silence. In between, whatever was goes on."""
    min_speech_ms: float = 96.0
    """Speech shorter than this is not reported: a click, a breath. Only windows at the start threshold count."""
    stop_silence_ms: float = 200.0
    """Silence heard, after which speech has ended. A hole in the sound, as of a network that stalls, is not silence."""
    lift_db: float = 12.0
    """A faint voice is made louder for the detector by up to so much, which is less sure of faint ones. 0: heard as it is."""
    stall_ms: float = 1000.0
    """While the caller speaks: no sound for so long (muted, network gone) ends the speech."""

    def __post_init__(self) -> None:
        if not 0 <= self.stop_threshold <= self.start_threshold <= 1:
            raise ValueError(
                f"thresholds {self.stop_threshold} (stop) and {self.start_threshold} (start): it must be 0 <= stop <= start <= 1"
            )
        if not 0 <= self.lift_db <= 40:
            raise ValueError(f"lift_db {self.lift_db}: it must be 0 to 40")
        if self.min_speech_ms < 0 or self.stop_silence_ms < 0 or self.stall_ms <= 0:
            raise ValueError(
                f"min_speech_ms {self.min_speech_ms}, stop_silence_ms {self.stop_silence_ms}, stall_ms {self.stall_ms}: "
                "the first two may not be negative, the last must be positive"
            )


class VadGate:
    """Speech probabilities in, edges out: two thresholds and two durations, no sound and no clock.

    An edge is told when it is sure, and placed where it was: ``SpeechStarted.at`` is the start of the first window of
    the speech, ``SpeechStopped.at`` the end of its last one.

    Its ``level_db`` is the active level of the stretch, up to the edge's telling: the mean power of the windows at or
    above the start threshold, pauses and fades left out, in dB of full scale as ``voiceflow.audio.level_dbfs`` has it (a
    full-scale sine is -3.01). None if no power was given.
    """

    def __init__(self, options: VadOptions | None = None) -> None:
        self.options = options or VadOptions()
        self.is_speech = False
        """Whether speech has started and not stopped, as told by the edges."""
        self._onset: float | None = None  # start of speech not yet sure
        self._peak = 0.0
        self._speech_s = 0.0  # of it at or above the start threshold
        self._energy = 0.0  # of the same: mean square times seconds
        self._speech_end = 0.0
        self._silence_s = 0.0  # heard since; a hole in the sound is none
        self._in_silence = False

    def push(self, probability: float, start: float, end: float, power: float = 0.0) -> Edge | None:
        """The next window, from ``start`` to ``end`` seconds, of mean square ``power`` (full scale 1); the edge that it makes sure, if any."""
        told = self._speaking if self.is_speech else self._silent
        return told(probability, start, end, power)

    def stop(self, now: float) -> SpeechStopped | None:
        """No more sound will come for now: end speech that is under way."""
        self._onset = None
        if not self.is_speech:
            return None
        self.is_speech = False
        return SpeechStopped(at=self._speech_end, silence=max(now - self._speech_end, 0.0), level_db=self._level_db())

    def _level_db(self) -> float | None:
        return 10 * math.log10(self._energy / self._speech_s) if self._energy > 0 else None

    def _count(self, start: float, end: float, power: float) -> None:
        self._speech_s += end - start
        self._energy += power * (end - start)

    def _silent(self, probability: float, start: float, end: float, power: float) -> SpeechStarted | None:
        options = self.options
        if probability < (options.start_threshold if self._onset is None else options.stop_threshold):
            self._onset = None
            return None
        if self._onset is None:
            self._onset, self._peak, self._speech_s, self._energy = start, 0.0, 0.0, 0.0
        self._peak = max(self._peak, probability)
        if probability >= options.start_threshold:
            self._count(start, end, power)
        if self._speech_s < options.min_speech_ms / 1000 - _EPSILON_S:
            return None
        started = SpeechStarted(at=self._onset, probability=self._peak, level_db=self._level_db())
        self._onset = None
        self.is_speech, self._in_silence, self._silence_s, self._speech_end = True, False, 0.0, end
        return started

    def _speaking(self, probability: float, start: float, end: float, power: float) -> SpeechStopped | None:
        if probability < self.options.stop_threshold:
            self._in_silence = True
        elif probability >= self.options.start_threshold:
            self._in_silence = False
            self._count(start, end, power)
        if not self._in_silence:
            self._speech_end, self._silence_s = end, 0.0
            return None
        self._silence_s += end - start
        if self._silence_s < self.options.stop_silence_ms / 1000 - _EPSILON_S:
            return None
        return self.stop(end)


class SileroDetector:
    """The model with the state of one stream at one rate: 8000 or 16000 Hz."""

    def __init__(self, model: OnnxModel, sample_rate: int) -> None:
        if sample_rate not in (8000, 16000):
            raise ValueError(f"Silero's detector works at 8000 and 16000 Hz, not at {sample_rate}; resample first")
        self.window = round(sample_rate * WINDOW_S)
        """Samples in a window."""
        self._model = model
        self._rate = np.array(sample_rate, np.int64)
        self._state = np.zeros((2, 1, 128), np.float32)
        self._input = np.zeros((1, self.window // 8 + self.window), np.float32)

    def probability(self, samples: Floats) -> float:
        """That there is speech in the next ``window`` samples, in [-1, 1], which follow those given before."""
        context = self.window // 8
        self._input[0, :context] = self._input[0, -context:]
        self._input[0, context:] = samples
        output, self._state = self._model.run(None, {"input": self._input, "state": self._state, "sr": self._rate})
        return float(output[0, 0])


class Lift:
    """How much louder a faint stream is to be made: towards -20 dB of full scale, by what was loudest of late.

    A loud window counts at once and is forgotten at 3 dB a second, so a pause is not lifted to the level of speech.
    """

    def __init__(self, most_db: float) -> None:
        self._most = 10 ** (most_db / 20)
        self._loudest = 0.0

    def gain(self, power: float) -> float:
        """The factor, 1 or more, for the next window of 32 ms, whose mean square is ``power`` (full scale 1)."""
        self._loudest = max(power, self._loudest * _FORGET)
        return self._most if self._loudest == 0.0 else min(max(math.sqrt(_WANTED_POWER / self._loudest), 1.0), self._most)


class SpeechFinder:
    """Frames in, edges out: the model and the gate over one caller's stream. No clock: the time is passed in."""

    def __init__(self, model: OnnxModel, options: VadOptions | None = None) -> None:
        self.gate = VadGate(options)
        self._lift = Lift(self.gate.options.lift_db)
        self._model = model
        self._branch: MonoBranch | None = None
        self._detector: SileroDetector | None = None
        self._pending = np.zeros(0, np.float32)  # less than a window

    def push(self, frame: InputAudioFrame, now: float = 0.0) -> list[Edge]:
        """The edges that ``frame`` makes sure. ``now`` places a first frame that has no ``pts``."""
        edges: list[Edge | None] = []
        rate = 8000 if frame.sample_rate == 8000 else 16000
        if self._branch is None or self._branch.sample_rate != rate:
            self._branch = MonoBranch(rate)
            self._forget()
        samples = self._branch.push(frame, now)
        if self._branch.gap_s * 1000 >= self.gate.options.stall_ms:
            edges.append(self.gate.stop(self._branch.clock.time_at(self._branch.position)))
            self._forget()
        edges += self._judge(self._branch, np.concatenate((self._pending, samples)))
        return [edge for edge in edges if edge is not None]

    def _judge(self, branch: MonoBranch, samples: Floats) -> list[Edge | None]:
        if self._detector is None:
            self._detector = SileroDetector(self._model, branch.sample_rate)
        window = self._detector.window
        first = branch.position - len(samples)
        whole = len(samples) - len(samples) % window
        self._pending = samples[whole:]
        edges = []
        for i in range(0, whole, window):
            sound = samples[i : i + window]
            start = branch.clock.time_at(first + i)
            power = float(np.dot(sound, sound)) / window
            probability = self._detector.probability(sound * np.float32(self._lift.gain(power)))
            edges.append(self.gate.push(probability, start, start + WINDOW_S, power))
        return edges

    def _forget(self) -> None:
        """What comes now does not follow what came."""
        self._detector = None
        self._pending = np.zeros(0, np.float32)


class SileroVAD(Processor):
    """Passes the caller's sound on and yields ``SpeechStarted`` and ``SpeechStopped`` between it.

    Takes any sample rate, channels and frame length. Sound at 8 kHz is judged as it is; any other rate is brought to
    16 kHz beside the stream, which puts off an edge by at most 6 ms and its place not at all. Places count from the
    ``pts`` of the frames; without ``pts``, from the session's time at the first frame. ``EndFrame``, and sound that
    stops coming, end speech that is under way. An interrupt does not touch it: the caller goes on speaking.
    """

    def __init__(self, options: VadOptions | None = None) -> None:
        self.options = options or VadOptions()
        self._finder: SpeechFinder | None = None
        self._heard_at = 0.0
        self._speaks = asyncio.Event()

    async def start(self) -> None:
        """Open the model, once for all sessions of the process. Raises ModelError."""
        self._finder = SpeechFinder(await self.run_blocking(_open, self.options.model), self.options)

    def process(
        self, frame: InputAudioFrame | EndFrame
    ) -> InputAudioFrame | SpeechStopped | list[InputAudioFrame | SpeechStarted | SpeechStopped] | None:
        """See the class."""
        if isinstance(frame, EndFrame):
            return self._stop()
        finder = self._running()
        now = self._heard_at = self.session.time()
        edges = finder.push(frame, now)
        if not edges:
            return frame
        if finder.gate.is_speech:
            self._speaks.set()
        else:
            self._speaks.clear()
        return [frame, *edges]

    async def run(self) -> AsyncIterator[SpeechStopped]:
        """End speech in which no sound comes any more."""
        while True:
            await self._speaks.wait()
            left_s = self._heard_at + self.options.stall_ms / 1000 - self.session.time()
            if left_s > _EPSILON_S:
                await asyncio.sleep(left_s)
            elif (stopped := self._stop()) is not None:
                yield stopped

    def _stop(self) -> SpeechStopped | None:
        self._speaks.clear()
        return self._running().gate.stop(self.session.time())

    def _running(self) -> SpeechFinder:
        if self._finder is None:
            raise SessionError(
                f"{self.name or type(self).__name__} was given a frame before start(); run it in a Session, which starts its nodes"
            )
        return self._finder


def _open(model: str | os.PathLike[str]) -> OnnxModel:
    return open_onnx(models.resolve(model))
