"""Tests of speech to text with Whisper: the pure parts, the engine on recorded speech, the node behind a real detector."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from voiceflow.audio import resample
from voiceflow.errors import ModelError
from voiceflow.frames import InputAudioFrame, SpeechStarted, SpeechStopped, TranscriptFrame, TurnEnded, TurnStarted
from voiceflow.processors.dictation import Transcription
from voiceflow.processors.turns import Turns
from voiceflow.session import Session
from voiceflow.testing import Collector, Feeder, check_processor, no_leaks, run_virtual

whisper = pytest.importorskip("voiceflow.processors.stt_whisper", reason="pip install ctranslate2", exc_type=ImportError)
vad = pytest.importorskip("voiceflow.processors.vad", reason="pip install onnxruntime", exc_type=ImportError)

SmartTurn = pytest.importorskip("voiceflow.processors.smart_turn", reason="pip install onnxruntime", exc_type=ImportError).SmartTurn
WhisperOptions, WhisperSTT = whisper.WhisperOptions, whisper.WhisperSTT


# ---------------------------------------------------------------------------------------------------- pure parts


def test_tokens_are_bytes_in_gpt2s_alphabet():
    """A space is Ġ, an accent two bytes; special tokens and outer spaces are left out."""
    assert whisper.decode_tokens(["<|startoftranscript|>", "ĠCaf", "Ã©", "ĠÐ¿", "ÑĢÐ¸", "<|endoftext|>"]) == "Café при"


def test_a_character_that_a_token_limit_cut_is_marked():
    """Half a character becomes U+FFFD instead of an error."""
    assert whisper.decode_tokens(["ĠCaf", "Ã"]) == "Caf\ufffd"


@given(st.text())
def test_any_text_survives_the_alphabet(text: str):
    """Bytes written in GPT-2's alphabet, cut into tokens anywhere, come back as the text without outer spaces."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    extra = iter(range(256, 512))
    alphabet = {byte: chr(byte) if byte in printable else chr(next(extra)) for byte in range(256)}
    letters = [alphabet[byte] for byte in text.encode()]

    tokens = ["".join(letters[i : i + 3]) for i in range(0, len(letters), 3)]

    assert whisper.decode_tokens(letters if "<|" in text else tokens) == text.strip()


def test_a_phrase_three_times_running_is_a_loop():
    """Repetition beyond what people do is found, and reduced to one."""
    assert whisper.find_loop("Ten of clubs, ten of clubs, ten of clubs, ten of clubs") == "Ten of clubs"
    assert whisper.find_loop("I'm not. I'm not. I'm not.") == "I'm not."
    assert whisper.find_loop("No, no, I said five five") is None
    assert whisper.find_loop("He might even have been made amiable himself.") is None


@pytest.mark.parametrize(
    ("result", "nothing"),
    [
        (Transcription("", 0.9, 0.0), True),
        (Transcription(" . . .", 0.9, 0.0), True),
        (Transcription("You", 0.03, 0.92), True),
        (Transcription("Yes.", 0.8, 0.7), False),
        (Transcription("five five", 0.3, 0.3), False),
        (Transcription("Bye bye.", 0.35, 0.55), True),  # a cough
        (Transcription("Okay", 0.28, 0.09), False),  # an answer in noise
        (Transcription("4", 0.25, 0.32), False),  # a lone digit
        (Transcription("and that is what I would like to know", 0.3, 0.5), False),  # a sentence in noise
    ],
)
def test_text_made_up_over_silence_is_nothing(result: Transcription, nothing: bool):
    """No letters are no text; unsure words are none where the model says that nobody spoke; of a few words it must be surer than of many."""
    assert whisper.is_nothing(result) is nothing


# ------------------------------------------------------------------------------------------- the engine, on speech


@pytest.fixture(scope="module")
def engine(model: Callable[[str], Path]) -> object:
    return whisper.open_whisper(model("whisper-tiny.en"), WhisperOptions())


def floats(samples: np.ndarray) -> np.ndarray:
    return samples.astype(np.float32) / 32768


def test_recorded_speech_is_understood(engine: object, recording: Callable[[str], np.ndarray]):
    """A sentence read by a person comes out word for word, with high confidence."""
    result = engine.transcribe(floats(recording("amiable_himself")))

    assert result.text == "He might even have been made amiable himself."
    assert result.confidence > 0.8
    assert result.no_speech < 0.2
    assert not whisper.is_nothing(result)


def test_a_short_command_is_understood(engine: object, recording: Callable[[str], np.ndarray]):
    """Three words of a second and a half are enough."""
    assert engine.transcribe(floats(recording("seven_of_clubs"))).text.lower() == "7 of clubs"


@pytest.mark.parametrize("level_db", [-55, -35, -14, 0])
def test_sound_is_brought_to_one_level(level_db: float):
    """Whatever the level of the voice and the silence around it, its active level becomes -14 dB; its shape stays."""
    voice = np.sin(np.arange(8000) * 0.3).astype(np.float32) * np.float32(np.sqrt(2) * 10 ** (level_db / 20))
    sound = np.concatenate((np.zeros(3200, np.float32), voice, np.zeros(1600, np.float32)))
    levelled = whisper.at_level(sound, -14.0)

    wanted = min(-14.0, level_db + 40)
    assert 10 * np.log10(np.mean(levelled[3200:11200] ** 2)) == pytest.approx(wanted, abs=0.1)
    assert levelled.dtype == np.float32
    assert levelled / max(abs(levelled)) == pytest.approx(sound / max(abs(sound)), abs=1e-5)


@pytest.mark.parametrize("count", [0, 1, 159, 1000])
def test_silence_and_scraps_have_no_level(count: int):
    """Nothing, less than a hundredth of a second, and digital silence stay as they are."""
    assert whisper.at_level(np.zeros(count, np.float32), -14.0).tolist() == [0.0] * count


def test_a_level_that_makes_no_sense_is_refused():
    """The error names the option."""
    with pytest.raises(ValueError, match=r"WhisperOptions\.level_db is 3"):
        WhisperOptions(level_db=3.0)


@pytest.mark.parametrize("gain", [1.0, 0.1, 0.01])
def test_a_faint_voice_is_understood_as_a_loud_one(engine: object, recording: Callable[[str], np.ndarray], gain: float):
    """A sentence 40 dB down has the same words."""
    assert engine.transcribe(floats(recording("amiable_himself")) * gain).text == "He might even have been made amiable himself."


@pytest.mark.parametrize("level", [0.0, 0.001, 0.01, 0.1])
def test_noise_and_silence_are_nothing(engine: object, level: float):
    """Two seconds without speech give words that are known to be made up."""
    noise = np.random.default_rng(1).normal(0, level, 32000).astype(np.float32)

    assert whisper.is_nothing(engine.transcribe(noise))


def test_speech_longer_than_the_models_window_is_cut_where_it_is_quiet(engine: object, recording: Callable[[str], np.ndarray]):
    """36 seconds of a sentence again and again are heard to the end: it is there as often as it was said."""
    sentence = floats(recording("amiable_himself"))
    pause = np.zeros(16000 * 6, np.float32)

    text = engine.transcribe(np.concatenate([sentence, pause] * 4)).text.lower()

    assert text.count("amiable") == 4


def test_a_loop_is_decoded_again_with_the_long_window(model: Callable[[str], Path], recording: Callable[[str], np.ndarray]):
    """A window without room after the speech makes this model repeat itself; the retry at 30 s does not."""
    cramped = whisper.Whisper(model("whisper-tiny.en"), WhisperOptions(window_s=1.0, tail_s=0.0))

    assert cramped.transcribe(floats(recording("seven_of_clubs"))).text == "7 of clubs."
    assert cramped.retries == 1


def test_one_model_serves_every_call_of_the_process(model: Callable[[str], Path], engine: object):
    """The same options give the same model; others another."""
    folder = model("whisper-tiny.en")

    assert whisper.open_whisper(folder, WhisperOptions()) is engine
    assert whisper.open_whisper(folder, WhisperOptions(window_s=20.0)) is not engine


def test_a_folder_that_is_no_model_is_named(tmp_path: Path):
    """The error says which folder, and what it should be."""
    with pytest.raises(ModelError, match=rf"{tmp_path.name} cannot be opened as a Whisper model"):
        whisper.Whisper(tmp_path, WhisperOptions())


# ----------------------------------------------------------------------------------------- the node, behind the detector


@pytest.fixture(scope="module")
def call(recording: Callable[[str], np.ndarray]) -> np.ndarray:
    """Two utterances a second apart, with faint noise."""
    quiet = [np.zeros(n) for n in (8000, 16000, 16000)]
    sound = np.concatenate((quiet[0], recording("amiable_himself"), quiet[1], recording("seven_of_clubs"), quiet[2]))
    return np.rint(sound + np.random.default_rng(0).normal(0, 3, len(sound))).astype("<i2")


def converse(sent: list[InputAudioFrame]) -> list[TranscriptFrame | SpeechStarted | SpeechStopped]:
    collector = Collector()

    async def main() -> None:
        async with no_leaks():
            await Session(Feeder(sent, rest_s=0.02) >> vad.SileroVAD() >> WhisperSTT() >> collector).run()

    run_virtual(main())
    return [f for f in collector.frames if isinstance(f, TranscriptFrame | SpeechStarted | SpeechStopped)]


@pytest.mark.parametrize(("rate", "channels"), [(16000, 1), (48000, 2), (8000, 1)])
def test_a_call_is_transcribed(
    engine: object, model: Callable[[str], Path], call: np.ndarray, frames: Callable[..., list[InputAudioFrame]], rate: int, channels: int
):
    """Each utterance gets partials and one final with its words, at any rate; the finals follow their stops."""
    model("silero-vad")
    mono = np.frombuffer(resample(call.tobytes(), 16000, rate), "<i2")
    sent = frames(mono, rate)
    if channels == 2:
        sent = [InputAudioFrame(np.repeat(f.samples, 2, axis=1).tobytes(), rate, 2, pts=f.pts) for f in sent]

    got = converse(sent)

    finals = [f for f in got if isinstance(f, TranscriptFrame) and f.final]
    first, second = (f.text.lower().strip(".") for f in finals)
    assert first == "he might even have been made amiable himself"
    assert second.endswith("of clubs")
    edges = [type(f).__name__ for f in got if not isinstance(f, TranscriptFrame) or f.final]
    assert edges == ["SpeechStarted", "SpeechStopped", "TranscriptFrame"] * 2
    partials = [f for f in got if isinstance(f, TranscriptFrame) and not f.final and f.pts == finals[0].pts]
    assert len(partials) >= 4
    assert [f.stable for f in partials] == sorted(f.stable for f in partials)
    assert first.startswith(" ".join(partials[-1].text.lower().strip(".").split()[: partials[-1].stable]))


def test_with_the_turn_model_beside_it_each_turn_ends_once_with_its_words(
    engine: object, model: Callable[[str], Path], call: np.ndarray, frames: Callable[..., list[InputAudioFrame]]
):
    """In ``vad >> [stt, smart_turn] >> turns`` edges arrive once, by way of the recogniser, and turns end with what was said."""
    model("silero-vad")
    model("smart-turn")
    collector = Collector()
    pipeline = Feeder(frames(call), rest_s=0.02) >> vad.SileroVAD() >> [WhisperSTT(), SmartTurn()] >> Turns() >> collector
    run_virtual(Session(pipeline).run())

    told = [f for f in collector.frames if isinstance(f, TurnStarted | TurnEnded)]
    assert [type(f).__name__ for f in told] == ["TurnStarted", "TurnEnded"] * 2
    first, second = (f.text.lower().strip(".") for f in told if isinstance(f, TurnEnded))
    assert first == "he might even have been made amiable himself"
    assert second.endswith("7 of clubs")  # nobody answered the first, so the second may hold its words too


def test_a_noise_that_passes_the_detector_gives_an_empty_final(engine: object, model: Callable[[str], Path]):
    """When the detector heard a voice and there was none, the final says so with no text."""
    noise = np.rint(np.random.default_rng(1).normal(0, 300, 32000)).astype("<i2")
    sent: list[InputAudioFrame | SpeechStarted | SpeechStopped] = [
        InputAudioFrame(noise[i : i + 320].tobytes(), 16000, pts=i / 16000) for i in range(0, len(noise), 320)
    ]
    sent[60:60] = [SpeechStarted(at=1.0)]
    sent[90:90] = [SpeechStopped(at=1.6)]
    collector = Collector()
    run_virtual(Session(Feeder(sent, rest_s=0.02) >> WhisperSTT() >> collector).run())

    told = [f for f in collector.frames if isinstance(f, TranscriptFrame)]
    assert [(f.text, f.final, f.confidence) for f in told] == [("", True, None)]


def test_it_passes_the_conformance_kit(engine: object, recording: Callable[[str], np.ndarray]):
    """Strangers pass, interrupts change nothing, and slow or failing neighbours do no harm."""
    sound = recording("seven_of_clubs")
    pieces = [InputAudioFrame(sound[i : i + 8000].tobytes(), 16000) for i in range(0, len(sound), 8000)]

    check_processor(WhisperSTT, [pieces[0], SpeechStarted(at=0.1), *pieces[1:], SpeechStopped(at=1.4)], every=40)


def test_neither_engine_nor_node_needs_a_big_framework(model: Callable[[str], Path]):
    """Importing the node brings in ctranslate2 and no torch, transformers or audio library."""
    code = "import sys, voiceflow.processors.stt_whisper; print(sorted({'torch', 'transformers', 'av', 'onnxruntime'} & set(sys.modules)))"
    path = [p for p in sys.path if p]
    result = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:0] = {path!r}; {code}"], capture_output=True, text=True, check=True, timeout=60
    )

    assert result.stdout.strip() == "[]"


def test_a_language_that_the_model_does_not_know_is_refused(model: Callable[[str], Path]):
    """A model of several languages is asked only for one of them."""
    with pytest.raises(ModelError, match="does not know the language 'xx'"):
        whisper.Whisper(model("whisper-base"), WhisperOptions(language="xx"))
