"""Sound that was heard is found again in sound that was made, and what was cut, held, repeated or lost is seen in it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from voiceflow import OutputAudioFrame, Word
from voiceflow.score.recording import Track
from voiceflow.score.trace import Made, covered, heard_words, trace

RATE = 24000
BLOCK = RATE // 50
WORD = RATE * 3 // 10


def voice(words: int, seed: int = 1) -> np.ndarray:
    """Sound like speech: noise in words of 300 ms, the last 40 ms of each silent."""
    sound = np.random.default_rng(seed).integers(-9000, 9000, words * WORD).astype(np.int16).reshape(words, WORD)
    sound[:, -RATE // 25 :] = 0
    return sound.reshape(-1)


def make(sound: np.ndarray, *, utterance: int = 1, made: Made | None = None, at: float = 0.0) -> Made:
    made = made or Made(RATE)
    for number, begin in enumerate(range(0, len(sound), WORD)):
        word = Word(f"w{number}", 0.0, 0.3)
        made.add(OutputAudioFrame(sound[begin : begin + WORD].tobytes(), RATE, words=(word,), utterance=utterance, epoch=0), at)
    return made


def play(track: Track, sound: np.ndarray, at: float) -> None:
    """As a playout gives it: in blocks of 20 ms, the last filled up with silence."""
    padded = np.concatenate([sound, np.zeros(-len(sound) % BLOCK, np.int16)])
    for number in range(len(padded) // BLOCK):
        track.add(padded[number * BLOCK : (number + 1) * BLOCK].tobytes(), at + number * 0.02)


def fall(sound: np.ndarray) -> np.ndarray:
    return (sound * np.linspace(1, 0, len(sound))).astype(np.int16)


def test_an_utterance_heard_whole_is_one_stretch() -> None:
    """From the first to the last sample, silences in it included; all its words were heard."""
    sound, track = voice(5), Track(RATE, 10.0)
    made = make(sound)
    play(track, sound, 10.5)
    traced = trace(track, made)
    (stretch,) = traced.stretches
    assert (stretch.position, stretch.count) == (0, len(sound))
    assert (stretch.begin, stretch.end) == (pytest.approx(10.5, abs=0.001), pytest.approx(11.96, abs=0.001))
    assert [w.text for w in heard_words(made, 0, covered(made, traced.stretches, track))] == ["w0", "w1", "w2", "w3", "w4"]


@given(cut=st.integers(BLOCK, 5 * WORD), fade=st.sampled_from([0, 120, 480]))
def test_a_cut_is_found_wherever_it_is(cut: int, fade: int) -> None:
    """The words heard are those of which 50 ms came before the cut; a fade behind it is no word."""
    sound, track = voice(5), Track(RATE, 0.0)
    made = make(sound)
    heard = np.concatenate([sound[:cut], fall(sound[cut : cut + fade])])
    track.add(heard.tobytes(), 0.5)
    traced = trace(track, made)
    assert traced.unknown == []
    words = heard_words(made, 0, covered(made, traced.stretches, track))
    expected = [n for n in range(5) if cut >= n * WORD + RATE // 20]
    assert [w.text for w in words] in (
        [f"w{n}" for n in expected],
        [f"w{n}" for n in range(len(expected) + (cut % WORD >= RATE // 20 - fade))],
    )


def test_what_was_on_its_way_at_a_stop_does_not_count() -> None:
    """The block that left 10 ms before the stop is heard for 10 ms; its rest is after the stop."""
    sound, track = voice(2), Track(RATE, 0.0)
    made = make(sound)
    play(track, sound[: WORD + 3 * BLOCK], 0.0)  # 60 ms of the second word
    stretches = trace(track, made).stretches
    assert len(heard_words(made, 0, covered(made, stretches, track))) == 2
    assert len(heard_words(made, 0, covered(made, stretches, track, stops=[0.345]))) == 1
    assert len(heard_words(made, 0, covered(made, stretches, track, stops=[0.345], late_s=[0.006]))) == 2
    assert len(heard_words(made, 0, covered(made, stretches, track, stops=[0.352], late_s=[-0.006]))) == 1


def test_a_hold_shows_as_two_stretches_with_the_cut_word_in_both() -> None:
    """Faded out in the third word, silent for half a second, faded in again from the word's start."""
    sound, track = voice(5), Track(RATE, 0.0)
    made = make(sound)
    cut = 2 * WORD + 4 * BLOCK
    play(track, np.concatenate([sound[:cut], fall(sound[cut : cut + 240])]), 0.0)
    rest = sound[2 * WORD :].copy()
    rest[:240] = fall(rest[:240][::-1])[::-1]
    play(track, rest, 1.5)
    first, second = trace(track, made).stretches
    assert (first.position, first.count) == (0, pytest.approx(cut, abs=2))
    assert first.end == pytest.approx((cut + 240) / RATE, abs=0.003)
    assert second.begin == pytest.approx(1.5, abs=0.003)
    assert second.position == pytest.approx(2 * WORD, abs=24)
    assert second.position + second.count == len(sound)


def test_sound_that_nobody_made_is_told() -> None:
    """A tone between two utterances is unknown, and the second utterance is found behind it."""
    one, two, track = voice(2, 1), voice(2, 2), Track(RATE, 0.0)
    made = make(two, utterance=2, made=make(one))
    play(track, one, 0.0)
    play(track, np.full(RATE // 10, 3000, np.int16), 1.0)
    play(track, two, 2.0)
    traced = trace(track, made)
    assert [s.utterance for s in traced.stretches] == [0, 1]
    ((begin, end),) = traced.unknown
    assert (begin, end) == (pytest.approx(1.0), pytest.approx(1.1))


def test_the_same_sound_on_a_second_edge_is_made_once() -> None:
    """A node that hands a frame on makes nothing; and sound of another rate is on its way to a converter."""
    made, frame = Made(RATE), OutputAudioFrame(voice(1).tobytes(), RATE, utterance=1, epoch=0)
    made.add(frame, 0.0)
    made.add(frame, 0.1)
    made.add(OutputAudioFrame(voice(1).tobytes(), 22050, utterance=1, epoch=0), 0.2)
    assert len(made.samples()) == WORD


def test_repeated_sentences_are_told_apart_by_their_order() -> None:
    """A voice that says the same twice makes the same samples; the second time heard is the second time made."""
    sound, track = voice(3), Track(RATE, 0.0)
    made = make(sound.copy(), utterance=2, made=make(sound))
    play(track, sound, 0.0)
    play(track, sound, 2.0)
    assert [(s.utterance, s.position) for s in trace(track, made).stretches] == [(0, 0), (1, len(sound))]
