"""Case B40: the first word is clipped, because the detector needs time to be sure (pre-roll)."""

from __future__ import annotations

import asyncio
import itertools
import wave
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest

from voiceflow import InputAudioFrame, Processor, Session
from voiceflow.models import ModelStore
from voiceflow.processors.vad import SileroVAD, VadOptions
from voiceflow.testing import Collector

from .hearing_rig import FRAME_S, RATE, Microphone, ScriptedSilero, Segments, Spans, Streaming, live

RECORDING = Path(__file__).resolve().parents[1] / "data" / "amiable_himself.wav"


async def segments(spans: Spans, until: float, *, delay_s: float, pre_roll_s: float = 0.3, stop_s: float = 0.064) -> Segments:
    """What a recogniser is given of these stretches of speech."""
    node = Segments(pre_roll_s=pre_roll_s)
    vad = ScriptedSilero(spans, VadOptions(min_speech_ms=delay_s * 1000, stop_silence_ms=stop_s * 1000, lift_db=0.0))
    await Session(Microphone(live(until)) >> vad >> node >> Collector()).run()
    for job in node.jobs:
        assert job.segment.end - job.segment.first == len(job.segment.samples)
    return node


def first_frame(seconds: float) -> int:
    return max(round(seconds / FRAME_S), 0)


@pytest.mark.parametrize("delay_s", [0.064, 0.2, 0.4, 0.6, 0.9])
@pytest.mark.parametrize("onset", [1.0, 1.01, 1.05, 1.3, 1.77])
async def test_b40_a_segment_begins_before_the_onset_however_late_the_detector_is_sure(onset: float, delay_s: float) -> None:
    """0.3 s before it, to one frame and the detector's window, whether it is sure after 0.06 s or 0.9 s."""
    node = await segments([(onset, onset + 1.0)], onset + 2.0, delay_s=delay_s)
    assert len(node.finals) == 1
    found = node.finals[0]
    assert -1 <= first_frame(onset - 0.3) - found[0] <= (1 if onset == 1.0 else 2)
    assert abs(found[-1] - first_frame(onset + 1.0)) <= 2
    assert found == list(range(found[0], found[-1] + 1))


@pytest.mark.parametrize("pre_roll_s", [0.0, 0.1, 0.3, 0.5, 0.8])
async def test_b40_the_pre_roll_is_an_option(pre_roll_s: float) -> None:
    """As much sound before the onset as was asked for."""
    node = await segments([(1.0, 2.0)], 3.0, delay_s=0.2, pre_roll_s=pre_roll_s)
    assert abs(node.finals[0][0] - first_frame(1.0 - pre_roll_s)) <= 1


@pytest.mark.parametrize("delay_s", [0.064, 0.2, 0.6])
@pytest.mark.parametrize("gap_s", [0.15, 0.2, 0.3, 0.5, 1.0])
async def test_b40_no_frame_is_in_two_segments(gap_s: float, delay_s: float) -> None:
    """A second utterance right after the first has the silence between them as pre-roll, and not a frame of the first."""
    node = await segments([(1.0, 2.0), (2.0 + gap_s, 3.0 + gap_s)], 4.5 + gap_s, delay_s=delay_s)
    first, second = node.finals
    one, other = [job.segment for job in node.jobs if job.final]
    assert one.end <= other.first
    assert -1 <= max(first[-1], first_frame(2.0 + gap_s - 0.3)) - second[0] <= 2
    assert first_frame(2.0 + gap_s) in second


@pytest.mark.parametrize("delay_s", [0.064, 0.2, 0.6])
@pytest.mark.parametrize("onset", [0.0, 0.02, 0.06, 0.1, 0.28])
async def test_b40_at_the_start_of_the_call_a_segment_begins_with_the_first_frame(onset: float, delay_s: float) -> None:
    """Where there is less sound than the pre-roll, all there is."""
    node = await segments([(onset, onset + 1.0)], 2.5, delay_s=delay_s)
    assert node.finals[0][0] == 0
    assert len(node.jobs[0].segment.samples) > 0


async def test_b40_many_utterances_lose_and_double_nothing() -> None:
    """Twenty utterances with pauses of all lengths: every frame of speech is in exactly one segment."""
    spans, at = [], 0.5
    for number in range(20):
        spans.append((at, at + 0.4 + 0.05 * (number % 3)))
        at = spans[-1][1] + 0.15 + 0.07 * (number % 5)
    node = await segments(spans, at + 1.0, delay_s=0.2)
    assert len(node.finals) == len(spans)
    finals = [job.segment for job in node.jobs if job.final]
    assert all(a.end <= b.first for a, b in itertools.pairwise(finals))
    spoken = {number for begin, end in spans for number in range(first_frame(begin), first_frame(end))}
    assert spoken <= {number for found in node.finals for number in found}


@pytest.mark.parametrize("delay_s", [0.2, 0.6])
async def test_b40_a_streaming_recogniser_gets_every_frame_once(delay_s: float) -> None:
    """Whatever the detector says, and when the agent is interrupted: each frame, in order."""
    node = Streaming()
    vad = ScriptedSilero([(1.0, 2.0), (2.15, 3.0)], VadOptions(min_speech_ms=delay_s * 1000, lift_db=0.0))
    session = Session(Microphone(live(4.0)) >> vad >> node)
    loop = asyncio.get_running_loop()
    for at in (0.5, 1.011, 1.3, 2.2):
        loop.call_at(at, session.interrupt)
    await session.run()
    assert node.got == list(range(200))


class Recorded(Processor):
    """Yields this sound in real time."""

    def __init__(self, sound: np.ndarray[tuple[int], np.dtype[np.int16]]) -> None:
        self.sound = sound

    async def run(self) -> AsyncIterator[InputAudioFrame]:
        for begin in range(0, len(self.sound) - 319, 320):
            await asyncio.sleep(0.02)
            yield InputAudioFrame(self.sound[begin : begin + 320].tobytes(), RATE)


@pytest.mark.skipif(ModelStore().find("silero-vad") is None, reason="the model is not here; run: voiceflow models get silero-vad")
@pytest.mark.parametrize("lead_s", [0.0, 0.05, 1.0])
async def test_b40_a_real_voice_is_not_clipped(lead_s: float) -> None:
    """A person's recording through the real detector: the segment holds all of the voice, from before its first loud 10 ms on."""
    with wave.open(str(RECORDING)) as file:
        voice = np.frombuffer(file.readframes(file.getnframes()), "<i2")
    levels = np.sqrt(np.square(voice[: len(voice) // 160 * 160].astype(float).reshape(-1, 160)).mean(axis=1))
    loud = np.flatnonzero(levels > levels.max() / 8)
    onset, end = loud[0] * 160, (loud[-1] + 1) * 160
    lead = round(lead_s * RATE)
    sound = np.concatenate((np.zeros(lead, np.int16), voice, np.zeros(RATE, np.int16)))
    node = Segments()

    await Session(Recorded(sound) >> SileroVAD() >> node >> Collector()).run()
    finals = [job.segment for job in node.jobs if job.final]
    assert finals[0].first <= lead + onset
    assert finals[-1].end >= lead + end
    assert all(a.end <= b.first for a, b in itertools.pairwise(finals))
