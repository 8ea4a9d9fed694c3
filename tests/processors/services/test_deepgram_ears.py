"""What is made of listen v1's messages: each word is final once, whoever says that the utterance is over."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from voiceflow.frames import InputAudioFrame, SpeechStarted, SpeechStopped
from voiceflow.processors.services.deepgram_ears import ListenEars, TimedTranscript
from voiceflow.processors.services.deepgram_options import DeepgramOptions
from voiceflow.processors.services.deepgram_sound import KeptSound
from voiceflow.processors.services.retry import ServiceError

RATE = 16000


class Scene:
    """Ears, ten seconds of sound that were sent, and short names for what the service says."""

    def __init__(self, **options: Any) -> None:
        self.sound = KeptSound(RATE, 30.0)
        self.ears = ListenEars(DeepgramOptions(**options), self.sound)
        self.sound.hear(InputAudioFrame(np.zeros(10 * RATE, "<i2").tobytes(), RATE, pts=100.0), 110.0)
        self.send()

    def send(self) -> None:
        while self.sound.take() is not None:
            pass

    def results(self, text: str, start: float, end: float, **flags: bool) -> list[Any]:
        words = [{"word": word, "start": start, "end": end} for word in text.split()]
        alternative = {"transcript": text, "confidence": 0.5, "words": words}
        message = {"type": "Results", "start": start, "duration": end - start, "channel": {"alternatives": [alternative]}, **flags}
        return list(self.ears.read(json.dumps(message), 110.0))

    def say(self, kind: str, **more: Any) -> list[Any]:
        return list(self.ears.read(json.dumps({"type": kind, **more}), 110.0))

    def stop(self) -> None:
        self.ears.stopped()
        self.send()
        self.ears.asked(110.0)


def texts(frames: list[Any]) -> list[tuple[str, bool]]:
    return [(frame.text, frame.final) for frame in frames if isinstance(frame, TimedTranscript)]


def test_segments_are_joined_until_the_service_answers_the_end_of_speech() -> None:
    """Its own ends of utterances do not count while a detector is at work; stable is what is final."""
    scene = Scene()
    scene.ears.started(101.0, 101.0)
    assert texts(scene.results("one", 0, 1)) == [("one", False)]
    (partial,) = scene.results("one two", 0, 2, is_final=True, speech_final=True)
    assert (partial.text, partial.final, partial.stable, partial.pts) == ("one two", False, 2, 101.0)
    (partial,) = scene.results("three", 2, 3)
    assert (partial.text, partial.stable) == ("one two three", 2)
    scene.stop()
    assert texts(scene.results("three", 2, 3, is_final=True, from_finalize=True)) == [("one two three", True)]
    assert scene.ears.deadline is None
    assert scene.sound.settled_to == 3 * RATE


def test_an_answer_without_words_is_a_final_without_words() -> None:
    """Whoever waits for it can go on."""
    scene = Scene()
    scene.ears.started(101.0, 101.0)
    scene.stop()
    assert texts(scene.results("", 0, 1, is_final=True, from_finalize=True)) == [("", True)]


def test_speech_that_no_detector_told_of_ends_when_the_service_says_so() -> None:
    """By silence, or by words; an utterance that is over has its words first."""
    scene = Scene()
    assert texts(scene.results("one", 0, 1, is_final=True, speech_final=True)) == [("one", True)]
    assert scene.results("", 1, 2, is_final=True, speech_final=True) == []
    scene.results("two", 2, 3, is_final=True)
    assert texts(scene.say("UtteranceEnd", last_word_end=3.0)) == [("two", True)]
    scene.results("three", 3, 4)
    assert scene.say("UtteranceEnd", last_word_end=4.0) == []
    assert texts(scene.results("three", 3, 4, is_final=True)) == [("three", True)]


def test_edges_are_told_where_there_is_no_detector() -> None:
    """Once each, the end before its final, at the times of the words."""
    scene = Scene(edges=True)
    (began,) = scene.say("SpeechStarted", timestamp=1.0)
    assert began == SpeechStarted(at=pytest.approx(101.0))
    assert scene.say("SpeechStarted", timestamp=1.5) == []
    ended, final = scene.results("one", 1, 2, is_final=True, speech_final=True)
    assert isinstance(ended, SpeechStopped)
    assert ended.at == pytest.approx(102.0)
    assert (final.text, final.endpoint) == ("one", True)
    began, partial = scene.results("two", 3, 4)
    assert isinstance(began, SpeechStarted)
    assert began.at == pytest.approx(103.0)
    assert partial.text == "two"


def test_an_unanswered_end_of_speech() -> None:
    """With nothing owed, what is final counts; with a word owed, or nobody there, the connection is given up."""
    scene = Scene()
    scene.ears.started(101.0, 101.0)
    scene.results("one", 0, 1, is_final=True)
    scene.stop()
    assert scene.ears.deadline == 111.0
    assert texts(list(scene.ears.tick(111.0))) == [("one", True)]
    assert scene.ears.deadline is None
    scene.ears.started(109.0, 109.0)
    scene.results("two", 1, 2)
    scene.stop()
    with pytest.raises(ServiceError, match="gave no answer"):
        scene.ears.tick(111.0)
    assert scene.sound.marks == 1
    scene.ears.connected(112.0, 0)
    assert texts(scene.results("two", 1, 2, is_final=True, from_finalize=True)) == [("two", True)]


def test_a_service_that_says_nothing_while_somebody_speaks_is_gone() -> None:
    """Its silence while nobody does means nothing."""
    scene = Scene()
    assert scene.ears.deadline is None
    scene.ears.started(110.0, 110.0)
    assert scene.ears.deadline == 114.0
    assert list(scene.ears.tick(113.0)) == []
    with pytest.raises(ServiceError, match="said nothing"):
        scene.ears.tick(114.0)


def test_two_ends_of_speech_at_once_have_two_answers() -> None:
    """In their order, each with its own beginning."""
    scene = Scene()
    for at in (101.0, 105.0):
        scene.ears.started(at, at)
        scene.stop()
    (first,) = scene.results("one", 0, 3, is_final=True, from_finalize=True)
    (second,) = scene.results("two", 3, 8, is_final=True, from_finalize=True)
    assert [(frame.text, frame.pts) for frame in (first, second)] == [("one", 101.0), ("two", 105.0)]


@pytest.mark.parametrize("is_heard_again", [False, True])
def test_a_partial_of_a_lost_connection_counts_once_at_most(is_heard_again: bool) -> None:
    """What was not final is heard again; if the call ends before that, what is known must do. Finals stand."""
    scene = Scene()
    scene.ears.started(101.0, 101.0)
    scene.results("one", 0, 1, is_final=True)
    scene.results("too", 1, 2)
    assert list(scene.ears.connected(111.0, 0)) == []
    if is_heard_again:
        scene.results("two", 1, 2)
    assert texts(list(scene.ears.tail())) == [("one two" if is_heard_again else "one too", True)]
    assert list(scene.ears.tail()) == []
