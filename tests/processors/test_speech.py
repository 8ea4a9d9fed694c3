"""Clips of speech: trimming, frames, places of words. Pure, on made-up sound."""

from __future__ import annotations

import itertools

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("gruut_lang_en", reason="pip install gruut-lang-en")
pytest.importorskip("pycrfsuite", reason="pip install python-crfsuite")

from voiceflow.frames import Word
from voiceflow.processors.phonemes import SpokenWord
from voiceflow.processors.speech import Pauses, Speech, Spoken, clip, frames, joined, place_words, split_words, timed_clip, voiced

RATE = 22050


def sound(before_s: float, voice_s: float, after_s: float) -> npt.NDArray[np.float32]:
    """A tone between two silences (with the faint hiss that voices have there)."""
    start, length = round(before_s * RATE), round(voice_s * RATE)
    hiss = np.random.default_rng(1).normal(0, 1e-5, start + length + round(after_s * RATE))
    hiss[start : start + length] += 0.5 * np.sin(2 * np.pi * 220 * np.arange(length) / RATE)
    return hiss.astype(np.float32)


@given(st.floats(0, 0.5), st.floats(0.05, 1), st.floats(0, 0.5), st.sampled_from([20.0, 60.0, 120.0]))
def test_silence_is_trimmed_and_the_voice_is_not(before_s: float, voice_s: float, after_s: float, tail_ms: float) -> None:
    """At most 20 ms come before the voice, at most the tail (and a step) after it, and none of the voice is lost."""
    speech = clip(sound(before_s, voice_s, after_s), RATE, [Word("word", before_s, before_s + voice_s)], tail_ms)
    (word,) = speech.words
    assert 0 <= word.start <= 0.020
    assert speech.duration <= word.end + tail_ms / 1000 + 0.006
    assert speech.duration >= word.end - 0.001
    assert word.end - word.start == pytest.approx(voice_s, abs=0.001)
    energy = np.square(np.frombuffer(speech.pcm, "<i2") / 32768).sum()
    assert energy == pytest.approx(0.125 * voice_s * RATE, rel=0.03)


def test_cuts_do_not_click() -> None:
    """Where sound is cut off it fades, so that the first and last samples are next to nothing."""
    loud = np.ones(RATE, np.float32) * 0.001
    loud[RATE // 4 : RATE // 2] = 0.9
    samples = np.frombuffer(clip(loud, RATE, [], 20).pcm, "<i2")
    assert len(samples) < RATE // 2
    assert abs(samples[0]) <= 1
    assert abs(samples[-1]) <= 1


def test_silence_alone_stays_as_it_is() -> None:
    """A clip without a voice is not cut to nothing, and neither is an empty one."""
    assert clip(np.zeros(RATE, np.float32), RATE, [], 20).duration == pytest.approx(1.0)
    assert clip(np.zeros(0, np.float32), RATE, [], 20) == Speech(b"", RATE)
    assert voiced(np.zeros(0, np.float32), RATE) == (0, 0)


@pytest.mark.parametrize(
    ("ipa", "pause_ms"), [("a.", 120), ("a?", 120), ("a!", 120), ("a,", 60), ("a;", 60), ("a:", 60), ("a", 20), ("", 20)]
)
def test_the_pause_fits_the_mark(ipa: str, pause_ms: float) -> None:
    """A sentence is followed by a longer pause than a clause, and a clause by a longer one than a cut."""
    assert Pauses().after(ipa) == pause_ms


@given(st.integers(0, RATE), st.lists(st.floats(0, 1.2), max_size=12), st.sampled_from([20.0, 40.0]))
def test_frames_are_the_clip_and_carry_each_word_once(length: int, starts: list[float], frame_ms: float) -> None:
    """Frames joined are the clip; none is longer than asked; each word stands, in order, in the frame in which it begins."""
    duration = length / RATE
    words = tuple(Word(str(i), min(start, duration), min(start + 0.1, duration)) for i, start in enumerate(sorted(starts)))
    pcm = np.arange(length, dtype="<i2").tobytes()
    pieces = list(frames(Speech(pcm, RATE, words), utterance=7, frame_ms=frame_ms))
    assert b"".join(piece.pcm for piece in pieces) == pcm
    assert all(piece.utterance == 7 and piece.duration <= frame_ms / 1000 + 1e-9 for piece in pieces)
    assert all(piece.duration >= frame_ms / 2000 - 1 / RATE for piece in pieces) or len(pieces) == 1
    assert [word.text for piece in pieces for word in piece.words] == ([word.text for word in words] if pieces else [])
    at = 0.0
    for piece in pieces:
        for word in piece.words:
            original = words[int(word.text)]
            assert at + word.start == pytest.approx(original.start)
            assert at + word.end == pytest.approx(original.end)
            assert word.start < piece.duration or piece is pieces[-1]
        at += piece.duration


spoken = st.lists(st.builds(SpokenWord, st.just("w"), st.sampled_from(["", "ɐ", "dˈɑːɡz,", "fˈɪfti sˈɛnts", "ɡˌoʊ."])), max_size=10)


@given(spoken, st.floats(0, 3), st.floats(0.1, 5))
def test_words_without_timing_fill_the_voice_in_order(words: list[SpokenWord], start: float, length: float) -> None:
    """They are marked as estimates, follow one another, and begin and end with the voice; silent ones take no time."""
    placed = place_words(words, start, start + length)
    assert len(placed) == len(words)
    assert all(word.estimated for word in placed)
    assert all(start - 1e-6 <= word.start <= word.end <= start + length + 1e-6 for word in placed)
    assert all(one.end <= other.start + 1e-6 for one, other in itertools.pairwise(placed))
    said = [word for word, source in zip(placed, words, strict=True) if source.ipa]
    if said:
        assert said[0].start == pytest.approx(start)
        assert said[-1].end == pytest.approx(start + length)
    assert all(word.start == word.end for word, source in zip(placed, words, strict=True) if not source.ipa)


def test_longer_words_take_longer() -> None:
    """Time goes by the number of sounds, and a pause mark inside the clip takes its share."""
    short, pause, long = place_words([SpokenWord("a", "ɐ"), SpokenWord("b,", "bˈiː,"), SpokenWord("c", "kˈæpɪɾəl")], 0.0, 2.0)
    assert short.end - short.start < pause.end - pause.start < long.end - long.start
    assert long.start - pause.end > pause.start - short.end


@given(spoken, st.integers(1, 30))
def test_long_text_is_split_between_words(words: list[SpokenWord], longest: int) -> None:
    """The parts joined are the words; each has something to say and is short enough, or is one word that is not."""
    parts = split_words(words, longest)
    if any(word.ipa for word in words):
        assert [word for part in parts for word in part] == words
    else:
        assert parts == []
    for part in parts:
        said = [word.ipa for word in part if word.ipa]
        assert said
        assert len(said) == 1 or sum(map(len, said)) <= longest


def test_clips_are_joined_with_their_words() -> None:
    """Words of a later clip move by what comes before it, and no clips are an empty one."""
    one = Speech(bytes(2 * RATE), RATE, (Word("a", 0.1, 0.4),))
    assert joined([one, one], RATE) == Speech(bytes(4 * RATE), RATE, (Word("a", 0.1, 0.4), Word("a", 1.1, 1.4)))
    assert joined([], RATE) == Speech(b"", RATE)


WORDS = [SpokenWord("—", ""), SpokenWord("go,", "ɡoʊ,"), SpokenWord("😊", ""), SpokenWord("on", "ɔn")]
SPANS = [(1, 1), (1, 3), (4, 4), (5, 6)]


def test_words_lie_where_the_model_says() -> None:
    """Times come from the symbols' lengths; a word that is not said stands after the one before it, the first at the onset."""
    lengths = np.array([1, 2, 2, 1, 2, 1, 1], np.float32)  # tenths of a second
    speech = timed_clip(Spoken(sound(0.1, 0.8, 0.1), RATE, SPANS, lengths), WORDS, Pauses())
    lead = 0.01
    expected = [("—", 0.0, 0.0), ("go,", 0.0, 0.4), ("😊", 0.4, 0.4), ("on", 0.7, 0.8)]
    for word, (text, start, end) in zip(speech.words, expected, strict=True):
        assert (word.text, word.estimated) == (text, False)
        assert word.start == pytest.approx(lead + start, abs=0.006)
        assert word.end == pytest.approx(lead + end, abs=0.006)


@pytest.mark.parametrize("lengths", [None, np.zeros(7, np.float32), np.ones(3, np.float32)])
def test_lengths_that_are_none_give_way_to_estimates(lengths: npt.NDArray[np.float32] | None) -> None:
    """Without lengths, or with ones that are not those of the symbols, the words are placed by estimate."""
    speech = timed_clip(Spoken(sound(0.1, 0.8, 0.1), RATE, SPANS, lengths), WORDS, Pauses())
    assert [word.text for word in speech.words] == [word.text for word in WORDS]
    assert all(word.estimated for word in speech.words)
