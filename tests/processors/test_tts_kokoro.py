"""The Kokoro voice. Speaking needs the model and a voice file, which no Python package holds."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnxruntime", reason="pip install onnxruntime")
pytest.importorskip("gruut_lang_en", reason="pip install gruut-lang-en")
pytest.importorskip("pycrfsuite", reason="pip install python-crfsuite")

from voiceflow.errors import ModelError
from voiceflow.frames import AudioFormat, LLMEnded, OutputAudioFrame, SentenceFrame, UtteranceEnded
from voiceflow.pipeline import Pipeline
from voiceflow.processors.phonemes import SpokenWord, phonemes
from voiceflow.processors.speech import Speech
from voiceflow.processors.tts_kokoro import Kokoro, KokoroTTS, read_voice, symbols
from voiceflow.session import Session
from voiceflow.testing import Collector, Feeder, run_virtual

VOICE = os.environ.get("VOICEFLOW_KOKORO_VOICE", "")


@pytest.fixture(scope="module")
def voice() -> Path:
    if not VOICE:
        pytest.skip("set VOICEFLOW_KOKORO_VOICE to a Kokoro voice's .bin file (the npm package kokoro-js has them in voices/)")
    return Path(VOICE)


@pytest.fixture(scope="module")
def kokoro(model: Callable[[str], Path], voice: Path) -> Kokoro:
    return Kokoro(model("kokoro"), voice)


def test_phonemes_are_written_in_kokoros_table() -> None:
    """Every symbol has its number, diphthongs are one, and each word's span holds its sounds without its pause mark."""
    ids, spans = symbols([SpokenWord("I", "aɪ"), SpokenWord("😊", ""), SpokenWord("say,", "sˈeɪ,")])
    assert ids == [0, 25, 16, 61, 156, 24, 3, 0]
    assert spans == [(1, 2), (2, 2), (3, 6)]


@pytest.mark.parametrize(
    "text", ["Hello there, how are you?", "It costs $12.50!", "Her eyes; the order of choice joy measure think button."]
)
def test_no_sound_is_lost_in_writing(text: str) -> None:
    """Each phoneme of English comes out as a symbol that the model knows."""
    words = phonemes(text)
    ids, spans = symbols(words)
    letters = sum(sum(c.isalpha() and c not in "ːˈˌ" for c in word.ipa) for word in words)
    assert sum(end - start for start, end in spans) >= 0.75 * letters
    assert len(ids) > letters / 2
    assert all(start < end for start, end in spans)


def test_a_voice_file_is_read_in_rows(tmp_path: Path) -> None:
    """A voice is rows of 256 numbers."""
    np.arange(512, dtype="<f4").tofile(tmp_path / "v.bin")
    assert read_voice(tmp_path / "v.bin").shape == (2, 256)


@pytest.mark.parametrize("content", [b"", b"not a voice", b"\x00\x00\xc0\x7f" * 256])
def test_a_file_that_is_no_voice_is_refused(content: bytes, tmp_path: Path) -> None:
    """An empty file, other bytes, and numbers that are none give an error with the file's name."""
    (tmp_path / "v.bin").write_bytes(content)
    with pytest.raises(ModelError, match=r"v\.bin is not a Kokoro voice"):
        read_voice(tmp_path / "v.bin")


def test_a_missing_voice_is_named(tmp_path: Path) -> None:
    """A path without a file says what is wanted there."""
    with pytest.raises(ModelError, match=r"none\.bin cannot be read"):
        read_voice(tmp_path / "none.bin")


@pytest.mark.parametrize("text", ["Sure,", "That is $12.50, at 3:45 pm 😊 okay?"])
def test_every_written_word_has_its_place(text: str, kokoro: Kokoro) -> None:
    """The words are those of the text as written, in order, inside the sound, and by the model's own timing."""
    speech = kokoro.synthesize(text)
    assert [word.text for word in speech.words] == text.split()
    assert all(0 <= word.start <= word.end <= speech.duration for word in speech.words)
    assert all(one.end <= other.start + 1e-6 for one, other in itertools.pairwise(speech.words))
    assert not any(word.estimated for word in speech.words)


def test_what_cannot_be_said_makes_no_sound(kokoro: Kokoro) -> None:
    """Text without a letter or a digit gives an empty clip."""
    assert kokoro.synthesize("... 😊") == Speech(b"", 24000)


def test_a_session_speaks_with_it(kokoro: Kokoro, voice: Path) -> None:
    """A clause becomes frames with its words, and the utterance ends."""
    collector = Collector()
    feeder = Feeder([SentenceFrame(text="Hello there.", utterance=2), LLMEnded(utterance=2)])
    assert KokoroTTS.makes == AudioFormat(24000)
    run_virtual(Session(Pipeline(feeder) >> KokoroTTS(voice) >> collector).run())
    sound = [frame for frame in collector.frames if isinstance(frame, OutputAudioFrame)]
    assert [word.text for frame in sound for word in frame.words] == ["Hello", "there."]
    assert any(isinstance(frame, UtteranceEnded) and frame.utterance == 2 for frame in collector.frames)
