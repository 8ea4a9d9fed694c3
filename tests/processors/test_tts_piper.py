"""The Piper voice, real."""

from __future__ import annotations

import asyncio
import itertools
import json
import math
import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

pytest.importorskip("onnxruntime", reason="pip install onnxruntime")
pytest.importorskip("gruut_lang_en", reason="pip install gruut-lang-en")
pytest.importorskip("pycrfsuite", reason="pip install python-crfsuite")

from voiceflow.errors import ModelError
from voiceflow.frames import AudioFormat, Frame, InterruptFrame, LLMEnded, OutputAudioFrame, SentenceFrame, UtteranceEnded
from voiceflow.pipeline import Pipeline
from voiceflow.processor import Processor
from voiceflow.processors import onnx_graph
from voiceflow.processors.lexicon import Lexicon
from voiceflow.processors.speech import Speech
from voiceflow.processors.tts_piper import Piper, PiperOptions, PiperTTS
from voiceflow.session import Session
from voiceflow.testing import Collector, check_processor, no_leaks, run_virtual

STEADY = PiperOptions(noise=0.0, rhythm_noise=0.0)
"""Makes the voice say the same text the same way each time."""


@pytest.fixture(scope="module")
def voice(model: Callable[[str], Path]) -> Path:
    return model("piper-joe")


@pytest.fixture(scope="module")
def piper(voice: Path) -> Piper:
    return Piper.shared(voice)


@pytest.fixture(scope="module")
def clips(piper: Piper) -> Callable[[str], Speech]:
    made: dict[str, Speech] = {}
    return lambda text: made[text] if text in made else made.setdefault(text, piper.synthesize(text, STEADY))


def levels(speech: Speech, start: float, end: float) -> npt.NDArray[np.float64]:
    """Levels of 5 ms windows from `start` to `end`, in dB below the loudest window of the clip."""
    samples = np.frombuffer(speech.pcm, "<i2").astype(float)
    window = speech.sample_rate // 200
    power = np.square(samples[: len(samples) // window * window].reshape(-1, window)).mean(axis=1) + 1e-3
    decibels = 10 * np.log10(power / power.max())
    return decibels[math.floor(start * 200) : max(math.ceil(end * 200), math.floor(start * 200) + 1)]


SENTENCES = [
    "Sure,",
    "The capital of Australia is Canberra.",
    "Your order number four two seven will arrive tomorrow, before ten in the morning.",
    "That is $12.50, at 3:45 pm 😊 okay?",
    '— Well… no; "never" say so!',
]


@pytest.mark.parametrize("text", SENTENCES)
def test_every_written_word_has_its_place(text: str, clips: Callable[[str], Speech]) -> None:
    """The words are those of the text as written, in order, inside the sound, and by the voice's own timing."""
    speech = clips(text)
    assert [word.text for word in speech.words] == text.split()
    assert all(0 <= word.start <= word.end <= speech.duration for word in speech.words)
    assert all(one.end <= other.start + 1e-6 for one, other in itertools.pairwise(speech.words))
    assert not any(word.estimated for word in speech.words)
    assert speech.sample_rate == 22050


@pytest.mark.parametrize("text", SENTENCES)
def test_the_voice_begins_at_once_and_does_not_trail(text: str, clips: Callable[[str], Speech]) -> None:
    """No more than 20 ms of silence stand before the voice, and no more than the mark's pause after it."""
    speech = clips(text)
    loud = np.flatnonzero(levels(speech, 0, speech.duration) > -45)
    assert loud[0] * 5 <= 20
    tail_ms = speech.duration * 1000 - (loud[-1] + 1) * 5
    assert tail_ms <= (60 if text.endswith(",") else 120) + 10


def test_words_lie_where_they_sound(clips: Callable[[str], Speech]) -> None:
    """It is quiet between two words with a pause between them, and loud inside each."""
    speech = clips("One, two, three, four, five, six, seven, eight, nine, ten.")
    pauses = [(one.end, other.start) for one, other in itertools.pairwise(speech.words) if other.start - one.end > 0.1]
    assert len(pauses) >= 5
    for end, start in pauses:
        assert levels(speech, (end + start) / 2 - 0.02, (end + start) / 2 + 0.02).max() < -40
    for word in speech.words:
        assert levels(speech, word.start, word.end).max() > -15


def test_longer_text_takes_longer(clips: Callable[[str], Speech]) -> None:
    """A long sentence is more seconds than a short one, at a speaking rate of people."""
    words = clips(SENTENCES[2]).words
    assert 1.5 < len(words) / clips(SENTENCES[2]).duration < 6
    assert clips(SENTENCES[2]).duration > clips(SENTENCES[1]).duration > clips(SENTENCES[0]).duration


def test_speed_is_obeyed(piper: Piper) -> None:
    """Twice the speed is about half the time."""
    slow, fast = (piper.synthesize(SENTENCES[1], PiperOptions(noise=0.0, rhythm_noise=0.0, speed=speed)).duration for speed in (1.0, 2.0))
    assert 0.4 < fast / slow < 0.7


@pytest.mark.parametrize("text", ["", "...", "—", "😊", "?!", "中文", " \n "])
def test_what_cannot_be_said_makes_no_sound(text: str, piper: Piper) -> None:
    """Text without a Latin letter or a digit gives an empty clip."""
    assert piper.synthesize(text) == Speech(b"", 22050)


def test_a_word_is_said_as_the_lexicon_has_it(piper: Piper) -> None:
    """The sound is that of the other spelling; the word in the times is as written."""
    own = PiperOptions(noise=0.0, rhythm_noise=0.0, lexicon=Lexicon({"nguyen": "win"}))
    speech, other = piper.synthesize("We met Nguyen.", own), piper.synthesize("We met win.", STEADY)
    assert speech.pcm == other.pcm
    assert [word.text for word in speech.words] == ["We", "met", "Nguyen."]


def test_a_long_clause_is_spoken_whole(piper: Piper) -> None:
    """Text beyond what the voice is given at once is split between words and joined again."""
    text = "we went to the river and then we came home again " * 12
    speech = piper.synthesize(text, STEADY)
    assert [word.text for word in speech.words] == text.split()
    assert all(one.end <= other.start + 1e-6 for one, other in itertools.pairwise(speech.words))
    assert len(text.split()) / 6 < speech.duration < len(text.split()) / 1.5


def test_a_voice_without_lengths_places_words_by_estimate(
    voice: Path, clips: Callable[[str], Speech], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the inner lengths cannot be found the words are placed in proportion, say so, and are not far off."""
    monkeypatch.setattr(onnx_graph, "outputs_of", lambda path, operator: [])
    speech = Piper(voice).synthesize(SENTENCES[1], STEADY)
    assert all(word.estimated for word in speech.words)
    assert speech.pcm == clips(SENTENCES[1]).pcm
    for estimate, known in zip(speech.words, clips(SENTENCES[1]).words, strict=True):
        assert estimate.text == known.text
        assert estimate.start == pytest.approx(known.start, abs=0.25)


def with_config(voice: Path, folder: Path, change: Callable[[dict[str, object]], object]) -> Path:
    config = json.loads((voice.parent / (voice.name + ".json")).read_text())
    change(config)
    path = folder / "voice.onnx"
    path.touch()
    (folder / "voice.onnx.json").write_text(json.dumps(config))
    return path


def test_a_voice_of_another_language_is_refused(voice: Path, tmp_path: Path) -> None:
    """A voice that English phonemes do not fit is an error before any sound is made."""
    path = with_config(voice, tmp_path, lambda config: config.update(espeak={"voice": "de"}))
    with pytest.raises(ModelError, match=r"voice\.onnx\.json: a voice for 'de'; only English"):
        PiperTTS(path)


def test_a_voice_without_its_description_is_refused(tmp_path: Path) -> None:
    """Both files of a voice are needed, and the missing one is named."""
    (tmp_path / "voice.onnx").touch()
    with pytest.raises(ModelError, match=r"voice\.onnx\.json"):
        PiperTTS(tmp_path / "voice.onnx")


def test_a_description_of_something_else_is_refused(tmp_path: Path) -> None:
    """A JSON file that is not a Piper voice's says what it lacks."""
    (tmp_path / "voice.onnx").touch()
    (tmp_path / "voice.onnx.json").write_text('{"audio": {}}')
    with pytest.raises(ModelError, match="does not describe a Piper voice"):
        PiperTTS(tmp_path / "voice.onnx")


def test_the_format_is_known_before_the_voice_is_opened(voice: Path, tmp_path: Path) -> None:
    """The pipeline learns the sample rate from the constructor: of the default voice, and of a file's description."""
    assert PiperTTS().makes == AudioFormat(22050)
    path = with_config(voice, tmp_path, lambda config: config.update(audio={"sample_rate": 16000}))
    assert PiperTTS(path).makes == AudioFormat(16000)


# ------------------------------------------------------------------------------------------------ in a session


class Script(Processor):
    """Yields the frames, each with the present epoch, and goes on after an interrupt when told to."""

    def __init__(self, *rounds: list[Frame]) -> None:
        self.rounds = rounds
        self.next_round = asyncio.Event()

    async def run(self) -> AsyncIterator[SentenceFrame | LLMEnded]:
        for number, frames in enumerate(self.rounds):
            if number:
                await self.next_round.wait()
            for frame in frames:
                yield type(frame)(
                    **{field: getattr(frame, field) for field in frame.__struct_fields__ if field != "epoch"}, epoch=self.session.epoch
                )


def run(script: Script, *between: Processor, sink: Collector | None = None) -> list[Frame]:
    collector = sink or Collector()

    async def main() -> None:
        async with no_leaks(descriptors=False):
            pipeline = Pipeline(script) >> PiperTTS(options=STEADY)
            for node in between:
                pipeline = pipeline >> node
            await Session(pipeline >> collector).run()

    run_virtual(main())
    return [frame for frame in collector.frames if isinstance(frame, OutputAudioFrame | UtteranceEnded)]


def test_clauses_become_sound_and_the_utterance_ends(piper: Piper, clips: Callable[[str], Speech]) -> None:
    """Each clause comes in frames of 20 to 40 ms with its words, and UtteranceEnded follows the last of them."""
    frames = run(
        Script([SentenceFrame(text=SENTENCES[0], utterance=3), SentenceFrame(text=SENTENCES[1], utterance=3), LLMEnded(utterance=3)])
    )
    sound = [frame for frame in frames if isinstance(frame, OutputAudioFrame)]
    assert frames[-1] == UtteranceEnded(utterance=3, epoch=0)
    assert len(sound) == len(frames) - 1
    assert b"".join(frame.pcm for frame in sound) == clips(SENTENCES[0]).pcm + clips(SENTENCES[1]).pcm
    assert all(frame.utterance == 3 and 0.019 < frame.duration <= 0.04 for frame in sound)
    assert [word.text for frame in sound for word in frame.words] == f"{SENTENCES[0]} {SENTENCES[1]}".split()


@pytest.mark.parametrize("text", ["...", "😊"])
def test_a_reply_that_cannot_be_said_still_ends(text: str, piper: Piper) -> None:
    """An utterance without a letter makes no sound, and is over all the same."""
    assert run(Script([SentenceFrame(text=text, utterance=1), LLMEnded(utterance=1)])) == [UtteranceEnded(utterance=1, epoch=0)]


class Interrupter(Processor):
    """Interrupts at the first sound and lets the script go on."""

    def __init__(self, script: Script) -> None:
        self.script = script

    def process(self, frame: OutputAudioFrame) -> Iterator[OutputAudioFrame | InterruptFrame]:
        if not self.script.next_round.is_set():
            self.script.next_round.set()
            yield InterruptFrame(reason="test")
        else:
            yield frame


def test_an_interrupted_utterance_leaves_nothing_behind(piper: Piper) -> None:
    """After an interrupt not a frame of the old utterance comes, and the next utterance is spoken whole."""
    script = Script(
        [SentenceFrame(text=SENTENCES[2], utterance=1), SentenceFrame(text=SENTENCES[1], utterance=1), LLMEnded(utterance=1)],
        [SentenceFrame(text=SENTENCES[1], utterance=2), LLMEnded(utterance=2)],
    )
    frames = run(script, Interrupter(script))
    assert {frame.utterance for frame in frames} == {2}
    assert [word.text for frame in frames if isinstance(frame, OutputAudioFrame) for word in frame.words] == SENTENCES[1].split()
    assert isinstance(frames[-1], UtteranceEnded)


def test_a_clause_in_the_making_is_dropped(piper: Piper, monkeypatch: pytest.MonkeyPatch) -> None:
    """A clause that was interrupted while its thread was at work is never heard, though the thread comes to its end."""
    made: list[str] = []
    script = Script([SentenceFrame(text="Old words.", utterance=1)], [SentenceFrame(text="New words.", utterance=2), LLMEnded(utterance=2)])
    original = Piper.synthesize

    def watched(self: Piper, text: str, options: PiperOptions | None = None) -> Speech:
        if text == "Old words.":
            loop.call_soon_threadsafe(interrupt)
        made.append(text)
        return original(self, text, options)

    def interrupt() -> None:
        script.session.interrupt("test")
        script.next_round.set()

    monkeypatch.setattr(Piper, "synthesize", watched)
    collector = Collector()

    async def main() -> None:
        nonlocal loop
        loop = asyncio.get_running_loop()
        async with no_leaks(descriptors=False):
            await Session(Pipeline(script) >> PiperTTS(options=STEADY) >> collector).run()

    loop: asyncio.AbstractEventLoop
    run_virtual(main())
    assert made == ["Ready.", "Old words.", "New words."]
    assert {frame.utterance for frame in collector.frames if isinstance(frame, OutputAudioFrame)} == {2}


def test_it_passes_the_conformance_kit(piper: Piper) -> None:
    """Strangers pass, order is kept, and an interrupt at any point leaves nothing behind."""
    check_processor(lambda: PiperTTS(options=STEADY), [SentenceFrame(text="Yes.", utterance=1), LLMEnded(utterance=1)], every=2)


def test_an_unreadable_voice_ends_the_session_at_its_start(voice: Path, tmp_path: Path) -> None:
    """A voice whose model is broken is named when the session starts."""
    (tmp_path / "voice.onnx").write_bytes(b"junk")
    shutil.copy(voice.parent / (voice.name + ".json"), tmp_path / "voice.onnx.json")

    async def main() -> None:
        await Session(Pipeline(Script([])) >> PiperTTS(tmp_path / "voice.onnx") >> Collector()).run()

    with pytest.raises(ExceptionGroup) as failure:
        run_virtual(main())
    assert failure.group_contains(Exception, match=r"voice\.onnx cannot be read")
