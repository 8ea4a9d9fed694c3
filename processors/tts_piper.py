"""Piper voices, run by onnxruntime from English phonemes made without espeak.

Owns the form of a Piper voice: a VITS model in ONNX with its ``.onnx.json`` beside it (https://github.com/rhasspy/piper).
The one rule: a clip and its words leave together, and where the voice can say how long each sound lasts, that is what
the words' times are made of.

A voice has one output, the sound. The length of each phoneme is inside, behind the one operator that rounds lengths up
to whole steps (Ceil); ``onnx_graph`` brings it out. Times are then exact to a step (12 ms at 22,050 Hz) and not marked
as estimates. A voice in which that operator is not found is spoken all the same, its words placed in proportion.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from voiceflow import models
from voiceflow.errors import ModelError
from voiceflow.frames import AudioFormat, LLMEnded, OutputAudioFrame, SentenceFrame, UtteranceEnded
from voiceflow.processor import Processor
from voiceflow.processors import phonemes
from voiceflow.processors.lexicon import Lexicon
from voiceflow.processors.once import once_per_process
from voiceflow.processors.onnx_graph import open_with_inner
from voiceflow.processors.phonemes import SpokenWord
from voiceflow.processors.speech import Pauses, Speech, Spoken, frames, joined, split_words, timed_clip
from voiceflow.processors.spoken import PAUSES

__all__ = ["Piper", "PiperOptions", "PiperTTS", "read_config"]

DEFAULT_VOICE = "piper-joe"
DEFAULT_SAMPLE_RATE = 22050
LONGEST_CLIP = 400
"""Phonemes spoken at once, about 20 s; a longer clause is split between words."""


@dataclass(frozen=True, slots=True)
class PiperOptions:
    """How a voice speaks. None: as its own file says."""

    threads: int = 1
    """Of one inference. Two take about 40 % off the time of a clause; with several calls in a process one is better."""
    speed: float = 1.0
    noise: float | None = None
    """Variation of tone; 0 makes a clause sound the same each time."""
    rhythm_noise: float | None = None
    """Variation of the sounds' lengths."""
    speaker: int = 0
    """Of a voice with several."""
    pauses: Pauses = field(default_factory=Pauses)
    frame_ms: float = 40.0
    lexicon: Lexicon | None = None
    """Words that are said in another way than the voice would."""


class _Audio(msgspec.Struct):
    sample_rate: int


class _Inference(msgspec.Struct):
    noise_scale: float = 0.667
    length_scale: float = 1.0
    noise_w: float = 0.8


class _Espeak(msgspec.Struct):
    voice: str = ""


class _Config(msgspec.Struct):
    """What is read of a voice's ``.onnx.json``."""

    audio: _Audio
    phoneme_id_map: dict[str, list[int]]
    inference: _Inference = msgspec.field(default_factory=_Inference)
    espeak: _Espeak = msgspec.field(default_factory=_Espeak)
    phoneme_type: str = "espeak"
    num_speakers: int = 1


class Piper:
    """One voice, opened once in a process by ``Piper.shared`` and usable from any thread. Knows no frames.

    ``path`` is the ``.onnx`` file, its ``.onnx.json`` beside it. Raises ModelError if they are not an English Piper voice.
    """

    def __init__(self, path: Path, threads: int = 1) -> None:
        self._config = read_config(path)
        self._speaks_for = f"the voice {path}"
        self._model = open_with_inner(path, threads, "Ceil")
        phonemes.load()

    @property
    def sample_rate(self) -> int:
        """Of what it makes, in Hz."""
        return self._config.audio.sample_rate

    @staticmethod
    @once_per_process
    def shared(path: Path, threads: int = 1) -> Piper:
        """The voice of that file, opened at the first call. Blocks (0.7 s)."""
        return Piper(path, threads)

    def synthesize(self, text: str, options: PiperOptions | None = None) -> Speech:
        """Speak ``text``: one clip, with all its written words. Nothing to say (no letter, no digit) gives an empty Speech.

        Blocks for less than a tenth of the clip's duration. Raises ModelError if the model does not run.
        """
        options = options or PiperOptions()
        return joined(
            [self._speak(part, options) for part in split_words(phonemes.phonemes(text, options.lexicon), LONGEST_CLIP)], self.sample_rate
        )

    def _speak(self, words: Sequence[SpokenWord], options: PiperOptions) -> Speech:
        ids, spans = self._ids(words)
        samples, lengths = self._infer(ids, options)
        return timed_clip(Spoken(samples, self.sample_rate, spans, lengths), words, options.pauses)

    def _ids(self, words: Sequence[SpokenWord]) -> tuple[list[int], list[tuple[int, int]]]:
        """The model's input, a pad after each symbol, and for each word the ids from its first to one past its last sound."""
        table = self._config.phoneme_id_map
        pad = table["_"]
        ids = [*table["^"], *pad]
        begin = len(ids)
        spans: list[tuple[int, int]] = []
        for word in words:
            if word.ipa and len(ids) > begin:
                ids += [*table.get(" ", []), *pad]
            start = end = len(ids)
            for symbol in word.ipa:
                if symbol in table:
                    ids += [*table[symbol], *pad]
                    end = end if symbol in PAUSES else len(ids)
            spans.append((start, end))
        return [*ids, *table["$"]], spans

    def _infer(self, ids: list[int], options: PiperOptions) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32] | None]:
        own = self._config.inference
        noise = own.noise_scale if options.noise is None else options.noise
        rhythm = own.noise_w if options.rhythm_noise is None else options.rhythm_noise
        inputs: dict[str, npt.NDArray[Any]] = {
            "input": np.array([ids], np.int64),
            "input_lengths": np.array([len(ids)], np.int64),
            "scales": np.array([noise, own.length_scale / options.speed, rhythm], np.float32),
        }
        if self._config.num_speakers > 1:
            inputs["sid"] = np.array([options.speaker], np.int64)
        try:
            sound, *more = self._model.run(None, inputs)
        except Exception as error:  # onnxruntime's exceptions share no base class but Exception
            raise ModelError(
                f"{self._speaks_for} cannot speak ({error}); is it a Piper voice, and speaker {options.speaker} one of its?"
            ) from error
        return sound.reshape(-1), more[0].reshape(-1) if more else None


class PiperTTS(Processor):
    """Speaks each clause as it comes, and says when an utterance is complete.

    ``voice`` is a model's name or the path of an ``.onnx`` file. Made for ``SentenceFrame``s, one clause each; ``LLMEnded``
    comes after the last one and becomes ``UtteranceEnded``. A clause without a letter or digit makes no sound.
    When cancelled, a clause being synthesised is dropped when its thread has done it.
    """

    def __init__(self, voice: str | Path = DEFAULT_VOICE, options: PiperOptions | None = None) -> None:
        self.options = options or PiperOptions()
        self._voice = voice
        self._piper: Piper | None = None
        self.makes = _format_before_start(voice)

    async def start(self) -> None:
        """Open the voice and speak a word to nobody, which makes the first clause as quick as the rest."""
        self._piper = await self.run_blocking(self._open)

    async def process(self, frame: SentenceFrame | LLMEnded) -> AsyncIterator[OutputAudioFrame | UtteranceEnded]:
        """One clause becomes frames of sound with their words."""
        if isinstance(frame, LLMEnded):
            yield UtteranceEnded(utterance=frame.utterance)
            return
        assert self._piper is not None, "the session calls start() before it gives a frame"
        speech = await self.run_blocking(self._piper.synthesize, frame.text, self.options)
        for piece in frames(speech, frame.utterance, self.options.frame_ms):
            yield piece

    def _open(self) -> Piper:
        piper = Piper.shared(models.resolve(self._voice), self.options.threads)
        if self.makes is not None and self.makes.sample_rate != piper.sample_rate:
            raise ModelError(
                f"the voice {self._voice} makes {piper.sample_rate} Hz, not {self.makes.sample_rate} as the pipeline was told; fetch it first"
            )
        self.makes = AudioFormat(piper.sample_rate)
        piper.synthesize("Ready.", self.options)
        return piper


def read_config(path: Path) -> _Config:
    """A voice's ``.onnx.json``. Raises ModelError: missing, not of that form, not English."""
    beside = path.with_name(path.name + ".json")
    try:
        config = msgspec.json.decode(beside.read_bytes(), type=_Config)
    except OSError as error:
        raise ModelError(f"a Piper voice needs {beside} beside it ({error}); download both files of the voice") from error
    except msgspec.DecodeError as error:
        raise ModelError(f"{beside} does not describe a Piper voice: {error}") from error
    if config.phoneme_type != "espeak" or not config.espeak.voice.startswith("en"):
        raise ModelError(
            f"{beside}: a voice for {config.espeak.voice or config.phoneme_type!r}; only English voices with espeak phonemes can be spoken"
        )
    if missing := {"^", "_", "$"} - config.phoneme_id_map.keys():
        raise ModelError(f"{beside}: the phonemes {sorted(missing)} are missing, so it is not a Piper voice")
    return config


def _format_before_start(voice: str | Path) -> AudioFormat | None:
    """What the voice makes, if that is known without fetching it."""
    if voice == DEFAULT_VOICE:
        return AudioFormat(DEFAULT_SAMPLE_RATE)
    if isinstance(voice, str) and voice in models.MANIFEST:
        return None
    return AudioFormat(read_config(models.resolve(voice)).audio.sample_rate)
