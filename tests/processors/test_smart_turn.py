"""Tests of the turn-end model: which sound it is given, what it says of recorded speech, the node in a session."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from voiceflow.frames import Frame, InputAudioFrame, SpeechStarted, SpeechStopped, TurnScored
from voiceflow.session import Session
from voiceflow.testing import Collector, Feeder, check_processor, no_leaks, run_virtual

turn = pytest.importorskip("voiceflow.processors.smart_turn", reason="pip install onnxruntime", exc_type=ImportError)
onnx = pytest.importorskip("voiceflow.processors.onnx", reason="pip install onnxruntime", exc_type=ImportError)
vad = pytest.importorskip("voiceflow.processors.vad", reason="pip install onnxruntime", exc_type=ImportError)

SmartTurn, TurnWindow = turn.SmartTurn, turn.TurnWindow

RATE = 16000


class Desk:
    """A window that is fed 20 ms at a time; every sample is the number of its frame, one higher."""

    def __init__(self) -> None:
        self.window = TurnWindow()
        self.heard = 0

    def hear(self, until_s: float) -> None:
        while self.heard * 0.02 < until_s - 1e-9:
            self.window.hear(InputAudioFrame(np.full(320, self.heard + 1, "<i2").tobytes(), RATE, pts=self.heard * 0.02), 0.0)
            self.heard += 1

    def speak(self, begin: float, end: float) -> tuple[float, float]:
        """Where the sound to be judged begins and ends, after speech that a detector tells 0.1 s and 0.2 s late."""
        self.hear(begin + 0.1)
        self.window.start(begin)
        self.hear(end + 0.2)
        self.window.stop(end)
        samples = self.window.sound()
        assert len(samples)
        numbers = np.rint(samples * 32768).astype(int) - 1
        assert len(numbers) % 320 == 0
        assert (np.diff(numbers) >= 0).all()
        return round(numbers[0] * 0.02, 2), round((numbers[-1] + 1) * 0.02, 2)


# ------------------------------------------------------------------------------------------------- which sound


def test_a_turn_is_judged_from_before_its_first_word_to_now():
    """The sound is from 0.3 s before the onset up to the moment the silence was noticed."""
    assert Desk().speak(1.0, 3.0) == (0.7, 3.2)


def test_speech_after_a_short_pause_is_judged_with_what_came_before():
    """If the turn was not thought complete, more speech within a second belongs to it."""
    desk = Desk()
    desk.speak(1.0, 3.0)
    desk.window.scored(0.2)

    assert desk.speak(3.9, 4.5) == (0.7, 4.7)


def test_speech_after_a_long_pause_is_another_turn():
    """More than a second of silence, and the turn begins anew."""
    desk = Desk()
    desk.speak(1.0, 3.0)
    desk.window.scored(0.2)

    assert desk.speak(4.1, 5.0) == (3.8, 5.2)


def test_speech_after_a_complete_turn_is_another_turn():
    """Once the turn was thought complete, what follows is judged by itself."""
    desk = Desk()
    desk.speak(1.0, 3.0)
    desk.window.scored(0.9)

    assert desk.speak(3.5, 4.5) == (3.2, 4.7)


def test_of_a_long_turn_the_last_eight_seconds_count():
    """The model's window is 8 s."""
    assert Desk().speak(1.0, 15.0) == (7.2, 15.2)


def test_at_the_start_of_the_call_there_is_no_sound_before_the_first():
    """A turn within the first 100 ms is judged from the first sample on."""
    assert Desk().speak(0.06, 1.0) == (0.0, 1.2)


def test_edges_without_sound_are_not_judged():
    """A stop without a start, or with no sound at all, gives nothing to judge."""
    window = TurnWindow()
    window.stop(1.0)
    assert not len(window.sound())
    window.start(1.0)
    window.stop(2.0)
    assert not len(window.sound())


def test_a_hush_after_the_voice_is_noticed_before_the_detector_can_be_sure():
    """From 120 ms of quiet on the verdict can be made; the position judged then covers the end of speech."""
    window = TurnWindow()
    loud, quiet = np.full(320, 8000, "<i2").tobytes(), np.full(320, 40, "<i2").tobytes()
    noticed = []
    for number in range(100):
        if number == 10:
            window.start(0.2)
        if window.hear(InputAudioFrame(loud if 10 <= number < 60 else quiet, RATE, pts=number * 0.02), 0.0):
            noticed.append(number)

    assert noticed == [65]
    assert window.position >= window.stop(1.2)
    assert not window.hear(InputAudioFrame(quiet, RATE, pts=2.0), 0.0)


# ---------------------------------------------------------------------------------------------------- the model


@pytest.fixture(scope="module")
def smart_turn(model: Callable[[str], Path]) -> object:
    return onnx.open_onnx(model("smart-turn"))


def floats(samples: np.ndarray) -> np.ndarray:
    return np.concatenate((samples.astype(np.float32) / 32768, np.zeros(3200, np.float32)))


def test_a_finished_phrase_and_a_broken_one_are_told_apart(smart_turn: object, recording: Callable[[str], np.ndarray]):
    """A card that is named is complete; a sentence broken off after "he might even" is not."""
    assert turn.turn_probability(smart_turn, floats(recording("seven_of_clubs"))) > 0.9
    assert turn.turn_probability(smart_turn, floats(recording("amiable_himself")[:19000])) < 0.1


def test_loudness_does_not_matter(smart_turn: object, recording: Callable[[str], np.ndarray]):
    """The sound is brought to unit variance: a tenth of the level scores the same."""
    sound = floats(recording("seven_of_clubs"))

    assert turn.turn_probability(smart_turn, sound / 10) == pytest.approx(turn.turn_probability(smart_turn, sound), abs=0.01)


def test_only_the_last_eight_seconds_count(smart_turn: object, recording: Callable[[str], np.ndarray]):
    """What lies further back changes nothing."""
    recent = np.concatenate((np.zeros(8 * RATE, np.float32), floats(recording("seven_of_clubs"))))[-8 * RATE :]
    before = np.random.default_rng(0).normal(0, 0.3, RATE).astype(np.float32)

    assert turn.turn_probability(smart_turn, np.concatenate((before, recent))) == turn.turn_probability(smart_turn, recent)


# ----------------------------------------------------------------------------------------------------- the node


def converse(sent: list[Frame], before: list[object]) -> list[TurnScored | SpeechStopped]:
    collector = Collector()

    async def main() -> None:
        async with no_leaks():
            pipeline = Feeder(sent, rest_s=0.02)
            for node in before:
                pipeline = pipeline >> node
            pipeline = pipeline >> SmartTurn() >> collector
            pipeline.link(before[-1], collector)
            await Session(pipeline).run()

    run_virtual(main())
    return [f for f in collector.frames if isinstance(f, TurnScored | SpeechStopped)]


@pytest.mark.parametrize("rate", [16000, 48000])
def test_each_stop_gets_its_score(
    smart_turn: object, model: Callable[[str], Path], recording: Callable[[str], np.ndarray], frames: Callable[..., list[Frame]], rate: int
):
    """Behind a real detector every stop is scored once, with the stop's own `at`."""
    model("silero-vad")
    pause = np.zeros(24000, "<i2")
    sound = np.concatenate((pause, recording("seven_of_clubs"), pause, recording("amiable_himself")[:19000], pause))
    sound = np.repeat(sound, rate // 16000)

    got = converse(frames(sound, rate), [vad.SileroVAD()])

    scores = [f for f in got if isinstance(f, TurnScored)]
    assert [f.at for f in scores] == [f.at for f in got if isinstance(f, SpeechStopped)]
    assert len(scores) == 2
    assert scores[0].probability > 0.9
    assert scores[1].probability < 0.5


def test_it_passes_the_conformance_kit(smart_turn: object):
    """Strangers pass, interrupts change nothing, and slow or failing neighbours do no harm."""
    feed = [InputAudioFrame(bytes(16000), RATE, pts=0.0), SpeechStarted(at=0.1), SpeechStopped(at=0.4)]

    check_processor(SmartTurn, feed, every=10)
