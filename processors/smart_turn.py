"""Has the caller said all they wanted to say? Judged from the sound of it, by the Smart Turn model.

Owns which stretch of sound is judged (``TurnWindow``) and the node around the model. Its one rule: the model hears the
turn as it was, pauses included, from its beginning or its last 8 s, up to the moment the silence was noticed.

The model is Smart Turn v3.2 (https://github.com/pipecat-ai/smart-turn, BSD-2): log-mel features of 8 s at 16 kHz, the
sound at the end, brought to zero mean and unit variance, in; a probability out. About 30 ms on one core.

On less than a second of speech its word weighs little. Of 182 answers of one word by seven voices, half of them in noise, 17 score
0.5 or less, and of 72 phrases broken off within 1.6 s, 45 score more; another pre-roll, tail, or added noise moves both together.
There the words decide better than the sound.
"""

from __future__ import annotations

import asyncio
import logging
import os
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from voiceflow import models
from voiceflow.errors import SessionError
from voiceflow.frames import InputAudioFrame, SpeechStarted, SpeechStopped, TurnScored
from voiceflow.processor import Processor
from voiceflow.processors.hearing import MonoBranch
from voiceflow.processors.log_mel import SAMPLE_RATE, log_mel
from voiceflow.processors.onnx import OnnxModel, open_onnx
from voiceflow.processors.segments import Hush, Segmenter, SegmentOptions

__all__ = ["SmartTurn", "SmartTurnOptions", "TurnWindow", "turn_probability"]

log = logging.getLogger("voiceflow")

Floats = npt.NDArray[np.float32]

WINDOW_S = 8.0
_WINDOW = round(WINDOW_S * SAMPLE_RATE)


@dataclass(frozen=True, slots=True)
class SmartTurnOptions:
    """What to run, and when a turn begins."""

    model: str | os.PathLike[str] = "smart-turn"
    """A name that ``voiceflow.models`` knows, or the path of the ONNX file."""
    pre_roll_s: float = 0.3
    """Sound before the first word that is judged with it."""
    new_turn_after_s: float = 1.0
    """Speech after a longer silence is another turn."""
    complete_threshold: float = 0.5
    """Speech after a score above it is another turn too."""


class TurnWindow:
    """The sound of the caller's present turn, its last 8 s at most. No clock, no model."""

    def __init__(self, options: SmartTurnOptions | None = None) -> None:
        self.options = options or SmartTurnOptions()
        self._branch = MonoBranch(SAMPLE_RATE)
        self._sound = Segmenter(SAMPLE_RATE, SegmentOptions(pre_roll_s=0.0, history_s=WINDOW_S + 2.0))
        self._begin: int | None = None  # of the turn, in samples
        self._stopped_at: float | None = None  # when its voice last stopped
        self._is_complete = False
        self._hush: Hush | None = None  # while the voice is speaking

    def hear(self, frame: InputAudioFrame, now: float) -> bool:
        """The next sound; True if the voice may just have ended. ``now`` places a first frame that has no ``pts``."""
        samples = self._branch.push(frame, now)
        self._sound.push(samples)
        return self._hush is not None and self._hush.push(samples)

    def start(self, at: float) -> None:
        """The voice began at ``at`` seconds: a new turn, or the present one goes on."""
        if not self._branch.clock.is_set:
            return
        goes_on = self._stopped_at is not None and at - self._stopped_at <= self.options.new_turn_after_s and not self._is_complete
        if self._begin is None or not goes_on:
            self._begin = max(self._branch.clock.position_at(at) - round(self.options.pre_roll_s * SAMPLE_RATE), 0)
        self._is_complete = False
        self._hush = Hush(SAMPLE_RATE)

    @property
    def position(self) -> int:
        """Samples heard so far, at 16 kHz."""
        return self._sound.position

    def sound(self) -> Floats:
        """The sound of the turn up to now, at most 8 s; empty if none of it was heard."""
        return self._sound.last(min(self._sound.position - self._begin, _WINDOW)) if self._begin is not None else np.zeros(0, np.float32)

    def stop(self, at: float) -> int:
        """The voice stopped at ``at`` seconds; the position of its end."""
        self._stopped_at, self._hush = at, None
        return self._branch.clock.position_at(at) if self._branch.clock.is_set else 0

    def scored(self, probability: float) -> None:
        """What the model said of the sound last given."""
        self._is_complete = probability > self.options.complete_threshold


class SmartTurn(Processor):
    """At each ``SpeechStopped``, yields a ``TurnScored`` with the same ``at``.

    It stands on a branch of its own, beside speech to text, and consumes what it takes:
    ``vad >> [stt, smart_turn] >> turns``. Takes sound of any rate and channels. The model runs in a thread: as soon as the
    level says that the voice may have ended, a tenth of a second before the detector does, and again at its word if the
    voice went on meanwhile. An interrupt leaves it alone.
    """

    def __init__(self, options: SmartTurnOptions | None = None) -> None:
        self.options = options or SmartTurnOptions()
        self._window = TurnWindow(self.options)
        self._model: OnnxModel | None = None
        self._early: tuple[int, asyncio.Task[float | None]] | None = None  # the position judged, and the verdict to be

    async def start(self) -> None:
        """Open the model, once for all sessions of the process, and warm it. Raises ModelError."""
        self._model = await self.run_blocking(_open, self.options.model)

    async def process(self, frame: InputAudioFrame | SpeechStarted | SpeechStopped) -> TurnScored | None:
        """See the class."""
        if isinstance(frame, InputAudioFrame):
            if self._window.hear(frame, self.session.time()):
                self._early = self._window.position, self.session.spawn(self._judge_early(), f"{self.name}/early")
            return None
        if isinstance(frame, SpeechStarted):
            self._window.start(frame.at)
            return None
        end, early, self._early = self._window.stop(frame.at), self._early, None
        probability = await early[1] if early is not None and early[0] >= end else None
        if probability is None:
            samples = self._window.sound()
            if not len(samples):
                return None
            probability = await self._judge(samples)
        self._window.scored(probability)
        return TurnScored(probability=probability, at=frame.at)

    async def _judge(self, samples: Floats) -> float:
        if self._model is None:
            raise SessionError(
                f"{self.name or type(self).__name__} was given a frame before start(); run it in a Session, which starts its nodes"
            )
        return await self.run_blocking(turn_probability, self._model, samples)

    async def _judge_early(self) -> float | None:
        """None if the model fails: it will be asked again when it counts, and a raise there is reported."""
        try:
            return await self._judge(self._window.sound())
        except Exception:
            log.debug("%s: the early verdict failed", self.name, exc_info=True)
            return None


def turn_probability(model: OnnxModel, samples: Floats) -> float:
    """That the turn is complete: mono sound at 16 kHz in [-1, 1], shape (n,), of which the last 8 s count. Blocks."""
    samples = samples[-_WINDOW:]
    padded = np.pad(samples, (_WINDOW - len(samples), 0))
    level = (padded - padded.mean()) / np.sqrt(padded.var() + 1e-7)
    (output,) = model.run(None, {"input_features": log_mel(level)[None]})
    return float(output.reshape(-1)[0])


def _open(name: str | os.PathLike[str]) -> OnnxModel:
    model = open_onnx(models.resolve(name))
    turn_probability(model, np.zeros(SAMPLE_RATE, np.float32))
    return model
