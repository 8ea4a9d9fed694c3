"""Tests of the whole ear on real sound: answers of half a second, faint, in noise, at any rate and on any channels."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import numpy as np
import pytest

from voiceflow.audio import resample
from voiceflow.frames import InputAudioFrame, SpeechStarted, SpeechStopped, TranscriptFrame, TurnScored
from voiceflow.processor import Processor
from voiceflow.processors.dictation import DictationOptions, Job, Transcription
from voiceflow.processors.segments import SegmentOptions
from voiceflow.session import Session
from voiceflow.testing import Collector, Feeder, no_leaks, run_virtual

whisper = pytest.importorskip("voiceflow.processors.stt_whisper", reason="pip install ctranslate2", exc_type=ImportError)
vad = pytest.importorskip("voiceflow.processors.vad", reason="pip install onnxruntime", exc_type=ImportError)
smart_turn = pytest.importorskip("voiceflow.processors.smart_turn", reason="pip install onnxruntime", exc_type=ImportError)
piper = pytest.importorskip("voiceflow.processors.tts_piper", reason="pip install 'voiceflow[local]'", exc_type=ImportError)

RATE = 16000
BEFORE_S = 1.0
WINDOW_S = 0.032
SPELLED = {"ok": "okay", "6": "six", "7": "seven", "3": "three", "4": "four"}

Samples = np.ndarray
Told = list[SpeechStarted | SpeechStopped | TranscriptFrame | TurnScored]


@pytest.fixture(scope="module")
def say(model: Callable[[str], Path]) -> Callable[[str], Samples]:
    """One word, as Piper says it after a sentence: alone, its first and last sounds are another's. Floats at 16 kHz, level 0 dB."""
    voice = piper.Piper(model("piper-joe"))
    model("silero-vad")
    model("whisper-tiny.en")
    model("smart-turn")

    def speak(word: str) -> Samples:
        # Without variation: each run of the test hears the same.
        speech = voice.synthesize(f"Let me think about it. {word.capitalize()}.", piper.PiperOptions(noise=0, rhythm_noise=0))
        sound = np.frombuffer(resample(speech.pcm, speech.sample_rate, RATE), "<i2").astype(float)
        onset = round(speech.words[-1].start * RATE)
        first = max(onset - 5600, 0)
        pause = np.convolve(sound[first : onset + 800] ** 2, np.ones(320), "valid")
        sound = sound[first + int(pause.argmin()) + 160 :]
        return sound / active(sound)

    return speak


def active(sound: Samples) -> float:
    """The RMS of what lies within 20 dB of the loudest 10 ms."""
    powers = np.square(sound[: len(sound) // 160 * 160].reshape(-1, 160)).mean(axis=1)
    return float(np.sqrt(powers[powers > powers.max() / 100].mean()))


def room(word: Samples, level_db: float, snr_db: float | None = None) -> Samples:
    """The word after a second of silence, at a level; noise that falls by 3 dB an octave so far below it, or hardly any."""
    sound = np.concatenate((np.zeros(round(BEFORE_S * RATE)), word, np.zeros(RATE))) * 32768 * 10 ** (level_db / 20)
    rng = np.random.default_rng(7)
    spectrum = np.fft.rfft(rng.normal(size=len(sound)))
    noise = np.fft.irfft(spectrum / np.sqrt(np.maximum(np.arange(len(spectrum)), 20)), len(sound))
    if snr_db is not None:
        sound += noise / noise.std() * 32768 * 10 ** ((level_db - snr_db) / 20)
    return np.rint(sound + rng.normal(0, 2, len(sound))).astype("<i2")


def listen(sent: list[InputAudioFrame]) -> Told:
    """What the ear tells of these frames: detector, then recogniser and turn model side by side."""
    collector = Collector()

    async def main() -> None:
        async with no_leaks():
            await Session(Feeder(sent, rest_s=0.02) >> vad.SileroVAD() >> [whisper.WhisperSTT(), smart_turn.SmartTurn()] >> collector).run()

    run_virtual(main())
    return [f for f in collector.frames if isinstance(f, SpeechStarted | SpeechStopped | TranscriptFrame | TurnScored)]


def words(text: str) -> str:
    """Lower case, without punctuation, numbers in words."""
    bare = re.sub(r"[^a-z0-9 ]", "", text.lower()).strip()
    return SPELLED.get(bare, bare)


def only(told: Told, kind: type) -> object:
    (frame,) = [f for f in told if isinstance(f, kind) and getattr(f, "final", True)]
    return frame


ANSWERS = ["yes", "no", "okay", "stop"]
SOFT = ["hello", "hey", "seven", "six", "thanks", "three", "four", "fine"]


@pytest.mark.parametrize(("level_db", "snr_db"), [(-20, None), (-35, None), (-20, 20), (-20, 10), (-35, 20), (-35, 10)])
@pytest.mark.parametrize("word", ANSWERS)
def test_an_answer_of_one_word_is_heard(
    say: Callable[[str], Samples], frames: Callable[..., list[InputAudioFrame]], word: str, level_db: float, snr_db: float | None
):
    """Loud or faint, clean or in noise, "yes" is one stretch of speech with its text, its level and its score."""
    sound = say(word)
    told = listen(frames(room(sound, level_db, snr_db)))

    assert words(only(told, TranscriptFrame).text) == word
    started, stopped = only(told, SpeechStarted), only(told, SpeechStopped)
    assert started.at <= BEFORE_S + 0.3  # the pre-roll: nothing is clipped
    assert BEFORE_S < stopped.at <= BEFORE_S + len(sound) / RATE + 0.1
    assert stopped.level_db == pytest.approx(level_db, abs=3.5)
    assert only(told, TurnScored).at == stopped.at


@pytest.mark.parametrize("level_db", [-20, -35])
@pytest.mark.parametrize("word", SOFT)
def test_a_soft_first_sound_is_not_clipped(
    say: Callable[[str], Samples], frames: Callable[..., list[InputAudioFrame]], word: str, level_db: float
):
    """Words that begin with h, s, th or f are heard whole, with noise 20 dB down to hide their first sound in."""
    told = listen(frames(room(say(word), level_db, 20)))

    assert only(told, SpeechStarted).at <= BEFORE_S + 0.3
    assert words(only(told, TranscriptFrame).text) == word


# ------------------------------------------------------------------------------------------------- rates and channels


@pytest.mark.parametrize("rate", [8000, 16000, 24000, 48000])
@pytest.mark.parametrize("right", ["none", "the same", "silent", "opposite"])
@pytest.mark.parametrize("word", ["yes", "stop"])
def test_an_answer_is_heard_at_any_rate_and_on_any_channels(
    say: Callable[[str], Samples], frames: Callable[..., list[InputAudioFrame]], word: str, rate: int, right: str
):
    """At 8 to 48 kHz, mono and stereo, a word has the edges of mono at 16 kHz within a window, its level and its text.

    A sound "s" lies above 4 kHz, so at 8 kHz "yes" loses its end and "stop" its beginning: the edges are those of 8 kHz, and what
    the detector is late is within the pre-roll.
    """
    sound = room(say(word), -30, 20)
    left = np.frombuffer(resample(sound.tobytes(), RATE, rate), "<i2")
    whole = InputAudioFrame(left.tobytes(), rate) if rate == 8000 else InputAudioFrame(sound.tobytes(), RATE)
    reference = [edge.at for edge in vad.SpeechFinder(vad.open_onnx(vad.models.resolve("silero-vad"))).push(whole)]
    sent = frames(left, rate)
    if right != "none":
        other = {"the same": 1, "silent": 0, "opposite": -1}[right]
        sent = [InputAudioFrame((f.samples * np.array([1, other], "<i2")).tobytes(), rate, 2, pts=f.pts) for f in sent]
    told = listen(sent)

    started, stopped = only(told, SpeechStarted), only(told, SpeechStopped)
    assert [started.at, stopped.at] == pytest.approx(reference, abs=WINDOW_S + 1e-6)
    assert started.at <= BEFORE_S + 0.3
    assert stopped.level_db == pytest.approx(-30, abs=3.5)
    assert words(only(told, TranscriptFrame).text) in ({"yes", "yeah"} if (rate, word) == (8000, "yes") else {word})


# ------------------------------------------------------------------------------------------------- sound that stops


class Muted(Processor):
    """Sends frames as they are spoken, but none after `until_s`: the line stays open for 5 s."""

    def __init__(self, sent: list[InputAudioFrame], until_s: float) -> None:
        self.sent, self.until_s = sent, until_s

    async def run(self) -> AsyncIterator[InputAudioFrame]:
        began = self.session.time()
        for number, frame in enumerate(self.sent):
            if number * 0.02 >= self.until_s:
                break
            await asyncio.sleep(began + number * 0.02 + 0.02 - self.session.time())
            yield InputAudioFrame(frame.pcm, frame.sample_rate, pts=began + number * 0.02)
        await asyncio.sleep(5)


@pytest.mark.parametrize("stop_silence_ms", [200, 800])
def test_sound_that_stops_in_mid_speech_gets_its_final(
    say: Callable[[str], Samples],
    recording: Callable[[str], Samples],
    frames: Callable[..., list[InputAudioFrame]],
    stop_silence_ms: float,
):
    """A caller who is muted in mid-sentence has stopped within a second, and what they had said is decoded then."""
    times: list[tuple[str, float]] = []

    class Watch(Processor):
        def process(self, frame: SpeechStopped | TranscriptFrame) -> None:
            if isinstance(frame, SpeechStopped) or frame.final:
                times.append((type(frame).__name__ + getattr(frame, "text", ""), self.session.time()))

    class Engine(whisper.WhisperSTT):
        def decode(self, job: Job) -> Transcription:
            return Transcription(f" {len(job.segment.samples) / RATE:.1f} s")

    sound = np.concatenate((np.zeros(RATE, "<i2"), recording("amiable_himself")))
    options = DictationOptions(reuse_partials=False, segments=SegmentOptions())
    node = Muted(frames(sound), 2.5) >> vad.SileroVAD(vad.VadOptions(stop_silence_ms=stop_silence_ms)) >> Engine(None, options) >> Watch()

    async def main() -> None:
        async with no_leaks():
            await Session(node).run()

    run_virtual(main())

    (stopped, at), (final, finished) = times
    assert stopped == "SpeechStopped"
    assert at == pytest.approx(3.5, abs=0.05)
    assert final.startswith("TranscriptFrame")
    assert 1.0 < float(final.split()[1]) < 2.0
    assert finished - at < 0.5
