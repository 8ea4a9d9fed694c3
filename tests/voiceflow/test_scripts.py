"""The scripted caller and services: labelled sound says which word it is, and what is told of it is told in time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import numpy as np
import pytest

from voiceflow import (
    InputAudioFrame,
    OutputAudioFrame,
    Processor,
    SentenceFrame,
    Session,
    SpeechStarted,
    SpeechStopped,
    TranscriptFrame,
    TurnScored,
)
from voiceflow.testing import (
    BACKGROUND,
    CALLER_STEP,
    NOISE,
    Latency,
    RecordingSink,
    Said,
    ScriptedCaller,
    ScriptedSTT,
    ScriptedTTS,
    ScriptedTurnEnd,
    ScriptedVAD,
    labelled_speech,
)

RATE = 16000


class Line(Processor):
    """Plays samples in frames of 20 ms."""

    def __init__(self, samples: np.ndarray) -> None:
        self.samples = samples

    async def run(self) -> AsyncIterator[InputAudioFrame]:
        loop = asyncio.get_running_loop()
        for number in range(len(self.samples) // 320):
            await asyncio.sleep((number + 1) * 0.02 - loop.time())
            yield InputAudioFrame(self.samples[number * 320 : (number + 1) * 320].astype("<i2").tobytes(), RATE, pts=number * 0.02)


def silence(seconds: float) -> np.ndarray:
    return np.zeros(round(seconds * RATE), np.int16)


class Listener(Processor):
    """Notes transcripts: (when, what, whether final)."""

    def __init__(self) -> None:
        self.told: list[tuple[float, str, bool]] = []

    def process(self, frame: TranscriptFrame) -> None:
        self.told.append((round(self.session.time(), 2), frame.text, frame.final))


async def heard(samples: np.ndarray, stt: ScriptedSTT) -> list[tuple[float, str, bool]]:
    listener = Listener()
    await Session(Line(samples) >> ScriptedVAD() >> stt >> listener).run()
    return listener.told


def test_each_sample_says_which_quarter_of_which_word_it_is() -> None:
    """Utterance 3 of two words: eight values in order, all under its label."""
    sound = labelled_speech(3, "hello you", 0.8)
    assert list(dict.fromkeys(sound.tolist())) == [3 * CALLER_STEP + 1 + n for n in range(8)]
    assert len(sound) == round(0.8 * RATE)
    assert set(labelled_speech(2, "word " * 25, 1.0).tolist()) == {2 * CALLER_STEP}


async def test_partials_grow_word_by_word_and_the_final_comes_when_it_is_due() -> None:
    """Words of 400 ms; the detector tells 0.2 s after the end, the final comes 0.1 s later."""
    sound = np.concatenate([silence(0.2), labelled_speech(1, "one two three", 1.2), silence(1.0)])
    told = await heard(sound, ScriptedSTT(["one two three"], Latency(0.1)))
    partials = [text for _, text, final in told if not final]
    assert partials == sorted(partials, key=len)
    assert partials[-1] == "one two three"
    assert [(at, text) for at, text, final in told if final] == [(1.7, "one two three")]


async def test_a_final_may_be_late_for_one_utterance() -> None:
    """By as much as is said, and the next is not before it."""
    sound = np.concatenate([labelled_speech(1, "one", 0.4), silence(0.4), labelled_speech(2, "two", 0.4), silence(2.0)])
    told = await heard(sound, ScriptedSTT(["one", "two"], Latency(0.1), late={1: 1.5}))
    assert [(at, text) for at, text, final in told if final] == [(2.2, "one"), (2.2, "two")]


async def test_a_recogniser_without_pre_roll_loses_the_first_word() -> None:
    """The detector needs 100 ms; with 200 ms of pre-roll nothing is lost."""
    sound = np.concatenate([silence(0.4), labelled_speech(1, "one two", 0.6), silence(1.0)])
    clipped = await heard(sound, ScriptedSTT(["one two"], pre_roll_s=0.0))
    assert clipped[-1][1:] == ("two", True)


async def test_a_recogniser_with_pre_roll_loses_none() -> None:
    """As above."""
    sound = np.concatenate([silence(0.4), labelled_speech(1, "one two", 0.6), silence(1.0)])
    whole = await heard(sound, ScriptedSTT(["one two"], pre_roll_s=0.2))
    assert whole[-1][1:] == ("one two", True)


async def test_a_call_that_ends_gives_the_finals_it_owes() -> None:
    """The final is due after the line is dead; it comes with the end."""
    sound = np.concatenate([labelled_speech(1, "one", 0.4), silence(0.4)])
    assert (await heard(sound, ScriptedSTT(["one"], Latency(5.0))))[-1][1:] == ("one", True)


@pytest.mark.parametrize(
    ("value", "levels", "hears"),
    [
        (NOISE, {}, True),
        (BACKGROUND, {}, False),
        (CALLER_STEP, {}, True),
        (CALLER_STEP, {1: -70.0}, False),
        (CALLER_STEP, {1: -46.0}, True),
    ],
)
def test_a_detector_hears_what_could_be_a_voice(value: int, levels: dict[int, float], hears: bool) -> None:
    """Noise trips it, background does not, nor does a voice below its threshold; a level is told with the edge."""
    vad = ScriptedVAD(levels=levels)
    frames = [InputAudioFrame(np.full(320, value, "<i2").tobytes(), RATE, pts=n * 0.02) for n in range(10)]
    edges = [out for frame in frames for out in vad.process(frame) if isinstance(out, SpeechStarted)]
    assert bool(edges) is hears
    assert all(edge.level_db == levels.get(1) for edge in edges)


@pytest.mark.parametrize(("text", "probability"), [("I would like, um...", 0.1), ("Well,", 0.1), ("What is it?", 0.9)])
def test_a_turn_end_is_scored_by_how_the_text_ends(text: str, probability: float) -> None:
    """A comma or dots are no end; and where nothing was said there is no score."""
    scorer = ScriptedTurnEnd([text])
    assert scorer.process(SpeechStopped(at=1.0)) is None
    assert scorer.process(InputAudioFrame(labelled_speech(1, text, 0.02).tobytes(), RATE)) is None
    assert scorer.process(SpeechStopped(at=2.0)) == TurnScored(probability=probability, at=2.0)


async def test_a_numbered_voice_never_says_the_same_samples_twice() -> None:
    """Each 10 ms have a number of their own, through all sentences."""
    sound: list[OutputAudioFrame] = []
    session = Session(ScriptedTTS(Latency(), numbered=True, word_s=0.2) >> RecordingSink(), inputs=[SentenceFrame])
    session.tap(lambda frame, source, target: sound.append(frame) if isinstance(frame, OutputAudioFrame) else None)
    async with session:
        for _ in range(2):
            await session.send(SentenceFrame("one two", utterance=1))
    numbers = np.concatenate([np.frombuffer(frame.pcm, "<i2").reshape(-1, 240) for frame in sound])
    assert (numbers == numbers[:, :1]).all()
    assert numbers[:, 0].tolist() == list(range(1000, 1080))


async def test_a_caller_speaks_in_labels() -> None:
    """The script's second text has label 2; what has no text is noise."""
    caller = ScriptedCaller([Said(0.0, 0.1, "a"), Said(0.2, 0.1, "b"), Said(0.4, 0.1)], until=0.6)
    values = caller._sound()
    assert {int(v) // CALLER_STEP for v in values} == {0, 1, 2, -1}
