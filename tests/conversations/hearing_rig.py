"""What the cases about hearing share: sound that says which frame it is, the real detector node around a scripted model, and a
recogniser that keeps what it was given."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from voiceflow import InputAudioFrame, Processor
from voiceflow.processors.dictation import DictationOptions, Job, SpeechToText, Transcription
from voiceflow.processors.segments import SegmentOptions
from voiceflow.processors.vad import SileroVAD, SpeechFinder, VadOptions

RATE = 16000
FRAME_S = 0.02
SIZE = round(RATE * FRAME_S)

Spans = Sequence[tuple[float, float]]


def frame(number: int, *, pts: float | None = None) -> InputAudioFrame:
    """The 20 ms from ``number * 20`` ms on: every sample is the number, one higher, since 0 is silence."""
    return InputAudioFrame(np.full(SIZE, number + 1, "<i2").tobytes(), RATE, pts=pts)


def numbers(samples: npt.NDArray[np.float32]) -> list[int]:
    """Which frames these samples are of."""
    return np.unique(np.rint(samples * 32768).astype(int) - 1).tolist()


class Spoken:
    """A detector's model that is sure: there is speech in a window if one of its frames lies in these spans (seconds of the sound)."""

    def __init__(self, spans: Spans) -> None:
        self.spans = list(spans)

    def run(self, output_names: Sequence[str] | None, inputs: Mapping[str, npt.NDArray[Any]]) -> list[npt.NDArray[np.float32]]:
        """Its probability, and the state as it was."""
        window = inputs["input"][0, -512:]
        times = [(number + 0.5) * FRAME_S for number in numbers(window) if number >= 0]
        probability = float(any(begin <= at < end for at in times for begin, end in self.spans))
        return [np.array([[probability]], np.float32), inputs["state"]]


class ScriptedSilero(SileroVAD):
    """The real node, with ``Spoken`` instead of the model's file."""

    def __init__(self, spans: Spans, options: VadOptions) -> None:
        super().__init__(options)
        self.spans = spans

    async def start(self) -> None:
        """Nothing to load."""
        self._finder = SpeechFinder(Spoken(self.spans), self.options)


class Segments(SpeechToText):
    """Works on segments, keeps them, and says which frames of speech they hold: ``heard 50 to 99``; or finds no word in any."""

    def __init__(self, *, pre_roll_s: float = 0.3, post_roll_s: float = 0.0, finds_words: bool = True) -> None:
        self.finds_words = finds_words
        super().__init__(DictationOptions(reuse_partials=False, segments=SegmentOptions(pre_roll_s=pre_roll_s, post_roll_s=post_roll_s)))
        self.jobs: list[Job] = []

    def decode(self, job: Job) -> Transcription:
        """Keep it."""
        self.jobs.append(job)
        found = numbers(job.segment.samples)
        return Transcription("" if not self.finds_words else f"heard {found[0]} to {found[-1]}")

    @property
    def finals(self) -> list[list[int]]:
        """The frames in each segment."""
        return [numbers(job.segment.samples) for job in self.jobs if job.final]


class Streaming(Processor):
    """Takes every frame of sound as it comes, and keeps its number."""

    def __init__(self) -> None:
        self.got: list[int] = []

    async def process(self, frame: InputAudioFrame) -> None:
        """Keep it."""
        await asyncio.sleep(0.005)
        self.got += numbers(frame.samples[:1, 0].astype(np.float32) / 32768)


class Microphone(Processor):
    """Yields frames of sound, each at the moment given for it: (seconds, number)."""

    def __init__(self, schedule: Iterable[tuple[float, int]], *, stamped: bool = False) -> None:
        self.schedule = list(schedule)
        self.stamped = stamped

    async def run(self) -> AsyncIterator[InputAudioFrame]:
        """See the class. ``stamped``: each with the time at which it was spoken."""
        began = asyncio.get_running_loop().time()
        for at, number in self.schedule:
            await asyncio.sleep(began + at - asyncio.get_running_loop().time())
            yield frame(number, pts=began + number * FRAME_S if self.stamped else None)


def live(until: float, *, start: float = 0.0) -> list[tuple[float, int]]:
    """Frames in real time: each comes when its last sample has been spoken."""
    return [((number + 1) * FRAME_S, number) for number in range(round(start / FRAME_S), round(until / FRAME_S))]
