"""Speech to text with Whisper, on CTranslate2 and nothing else.

Owns the import of ctranslate2, the decoding of Whisper's tokens, and the tricks that make a model of half-minute
windows answer in a tenth of a second. Its one rule: a short window is only a guess at what the long one would say, so
a result that looks like the short window's failure is made again with the long one.

Whisper always looks at 30 s. Encoding only 15 s makes a short turn about four times quicker, at the same word error
rate (3 % on people reading, with tiny.en); shorter still makes it repeat itself ("ten of clubs ten of clubs").

Loudness matters to it, as its features are absolute: of 78 answers of one word at -35 dB of full scale in noise 10 dB below them
it called 8 nobody's and got 61 right; brought to -14 dB first, none and 69. Noise alone stays nothing at that level.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import ctranslate2  # type: ignore[import-untyped]  # its one use is in Whisper._generate and __init__
import numpy as np
import numpy.typing as npt

from voiceflow import models
from voiceflow.errors import ModelError, SessionError
from voiceflow.processors.dictation import DictationOptions, Job, SpeechToText, Transcription
from voiceflow.processors.log_mel import SAMPLE_RATE, log_mel
from voiceflow.processors.once import once_per_process
from voiceflow.processors.segments import quietest

__all__ = ["Whisper", "WhisperOptions", "WhisperSTT", "at_level", "decode_tokens", "find_loop", "is_nothing", "open_whisper", "sureness"]

Floats = npt.NDArray[np.float32]

_FULL_WINDOW = 30 * SAMPLE_RATE
_LONGEST = 29 * SAMPLE_RATE
_FRAME = 320
"""Samples of one encoder position: windows are whole numbers of these."""
_WORDS_A_SECOND = 8
"""More tokens than this, and 16, nobody speaks: the model is in a loop."""
_MOST_TOKENS = 440
_BLOCK = SAMPLE_RATE // 100
_MOST_GAIN = 100.0

_LOOP = re.compile(r"\b(\w[^.!?]{0,60}?)(?:\W+\1\b){2,}", re.IGNORECASE)
_NO_SPEECH = 0.6
_UNSURE = math.exp(-1.0)
_FEW = 3
_FEW_SURE = 0.2
_FEW_NO_SPEECH = 0.4


@dataclass(frozen=True, slots=True)
class WhisperOptions:
    """What to run, and how."""

    model: str | os.PathLike[str] = "whisper-tiny.en"
    """A name that ``voiceflow.models`` knows, or the path of a CTranslate2 folder."""
    language: str = "en"
    """For a model that knows several."""
    threads: int = 1
    """More do not help a model of this size."""
    compute_type: str = "int8"
    window_s: float = 15.0
    """Sound encoded, at least; less than 30."""
    tail_s: float = 2.0
    """Silence encoded after the speech, at least."""
    level_db: float | None = -14.0
    """Bring speech to this active level first: the model takes a faint voice in noise for nobody's. None: as it is."""

    def __post_init__(self) -> None:
        if self.level_db is not None and not -60 <= self.level_db <= 0:
            raise ValueError(f"WhisperOptions.level_db is {self.level_db!r}; give -60 to 0 dB of full scale, or None")


class Whisper:
    """A model in memory. Thread-safe, shared by all nodes of the process: see ``open_whisper``.

    ``folder`` is what CTranslate2's converter makes: model.bin, config.json, vocabulary.

    Raises:
        ModelError: the folder is not such a model, or the language is not one of its own.
    """

    def __init__(self, folder: Path, options: WhisperOptions) -> None:
        try:
            self._model: Any = ctranslate2.models.Whisper(
                str(folder), device="cpu", compute_type=options.compute_type, intra_threads=options.threads, inter_threads=1
            )
            config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        except (RuntimeError, ValueError, OSError) as error:
            raise ModelError(
                f"{folder} cannot be opened as a Whisper model of CTranslate2 ({error}); give the folder its converter made"
            ) from error
        task = [f"<|{options.language}|>", "<|transcribe|>"] if self._model.is_multilingual else []
        if task and task[0] not in _vocabulary(folder):
            raise ModelError(
                f"the Whisper model in {folder} does not know the language {options.language!r}; give a code like 'en' or 'de'"
            )
        self._prompt = ["<|startoftranscript|>", *task, "<|notimestamps|>"]
        self._suppress: list[int] = config.get("suppress_ids") or [-1]
        self._window = round(options.window_s * SAMPLE_RATE)
        self._tail = round(options.tail_s * SAMPLE_RATE)
        self._level_db = options.level_db
        self.retries = 0
        """How many results were made again with the long window."""

    def transcribe(self, samples: Floats) -> Transcription:
        """Text of mono sound at 16 kHz in [-1, 1], shape (n,), of any length. Blocks, about 100 ms with tiny.en.

        The confidence is the geometric mean of the tokens' probabilities. More than 29 s are cut where it is quietest.
        """
        if len(samples) > _LONGEST:
            cut = quietest(samples[:_LONGEST], SAMPLE_RATE)
            return _joined(self.transcribe(samples[:cut]), self.transcribe(samples[cut:]), cut / len(samples))
        if self._level_db is not None:
            samples = at_level(samples, self._level_db)
        window = min(_FULL_WINDOW, max(len(samples) + self._tail, self._window))
        result, is_cut = self._generate(samples, window)
        if window < _FULL_WINDOW and (is_cut or find_loop(result.text) is not None):
            self.retries += 1
            result, is_cut = self._generate(samples, _FULL_WINDOW)
        if is_cut and (loop := find_loop(result.text)) is not None:
            return Transcription(loop, result.confidence, result.no_speech)
        return result

    def _generate(self, samples: Floats, window: int) -> tuple[Transcription, bool]:
        """The text with a window of so many samples, and whether it was cut off instead of coming to an end."""
        window = -(-window // _FRAME) * _FRAME
        features = log_mel(np.pad(samples, (0, window - len(samples))))
        limit = min(_MOST_TOKENS, 16 + len(samples) * _WORDS_A_SECOND // SAMPLE_RATE)
        result = self._model.generate(
            ctranslate2.StorageView.from_array(np.ascontiguousarray(features[None])),
            [self._prompt],
            beam_size=1,
            max_length=limit + len(self._prompt),
            suppress_blank=True,
            suppress_tokens=self._suppress,
            return_scores=True,
            return_no_speech_prob=True,
        )[0]
        tokens = result.sequences[0]
        return Transcription(decode_tokens(tokens), math.exp(result.scores[0]), result.no_speech_prob), len(tokens) >= limit - 1


class WhisperSTT(SpeechToText):
    """Speech to text with a Whisper model, as described at ``SpeechToText``.

    One decode takes about as long whether of one second or of ten, so partials are whole decodes, and a final is ready
    about 100 ms after the end of speech is known (with tiny.en on one core), or at once if a partial had it all.
    """

    def __init__(self, options: WhisperOptions | None = None, dictation: DictationOptions | None = None) -> None:
        super().__init__(dictation)
        self.options = options or WhisperOptions()
        self._whisper: Whisper | None = None

    async def start(self) -> None:
        """Open the model, once for all sessions of the process, and warm it. Raises ModelError."""
        self._whisper = await self.run_blocking(_open, self.options)

    def decode(self, job: Job) -> Transcription:
        """See ``SpeechToText``. What is more likely noise than words gives no text.

        The confidence is that anybody spoke, times that it was these words: a cough is written as words that the model is
        fairly sure of ("Bye bye."), while it doubts that there was speech.
        """
        if self._whisper is None:
            raise SessionError(
                f"{self.name or type(self).__name__} was to decode before start(); run it in a Session, which starts its nodes"
            )
        result = self._whisper.transcribe(job.segment.samples)
        if is_nothing(result):
            return Transcription("", None, result.no_speech)
        return Transcription(result.text, sureness(result), result.no_speech)


def at_level(samples: Floats, level_db: float) -> Floats:
    """Mono sound, shape (n,), made louder or fainter so that its active level is ``level_db`` of full scale.

    Active is what lies within 20 dB of the loudest 10 ms. Nothing is made louder by more than 40 dB. Not clipped: peaks may pass 1.
    """
    blocks = samples[: len(samples) - len(samples) % _BLOCK].reshape(-1, _BLOCK)
    powers = np.square(blocks).mean(axis=1)
    loudest = float(powers.max(initial=0.0))
    if loudest == 0.0:
        return samples
    active = float(powers[powers >= loudest * 0.01].mean())
    gain = min(10 ** (level_db / 20) / math.sqrt(active), _MOST_GAIN)
    return (samples * np.float32(gain)).astype(np.float32, copy=False)


def sureness(result: Transcription) -> float | None:
    """How probable it is that these words were said: that anybody spoke, times that it was these words. None if that is not known."""
    return None if result.confidence is None else result.confidence * (1 - (result.no_speech or 0.0))


def is_nothing(result: Transcription) -> bool:
    """Whether the text was made up over silence or noise: nobody spoke, says the model, and it is unsure of its words.

    The two thresholds are those of the Whisper paper's section 4.5: no-speech above 0.6 and mean log probability below -1.
    Of a few words less doubt is enough, as a cough or a sneeze gives no others: of 93 sounds without words those that came out
    as such had a ``sureness`` of at most 0.18 (one laugh 0.24), coughs with no-speech above 0.4. Of real answers of one to
    three words a lone digit is the least sure, down to 0.17, but with no-speech below 0.35; 107 others had 0.25 or more.
    """
    if not any(character.isalnum() for character in result.text):
        return True
    if (result.no_speech or 0.0) > _NO_SPEECH and (result.confidence or 0.0) < _UNSURE:
        return True
    sure = sureness(result)
    return sure is not None and sure < _FEW_SURE and (result.no_speech or 0.0) > _FEW_NO_SPEECH and len(result.text.split()) <= _FEW


def find_loop(text: str) -> str | None:
    """The text with a phrase that stands in it three times or more running put once; None if there is none."""
    once, count = _LOOP.subn(r"\1", text)
    return once if count else None


def decode_tokens(tokens: Iterable[str]) -> str:
    """Text of byte-pair tokens as GPT-2's vocabulary writes them, one character a byte; special tokens are left out.

    Bytes that are not UTF-8, as when a token limit cuts a character, become U+FFFD.
    """
    characters = (character for token in tokens if not token.startswith("<|") for character in token)
    return bytes(map(_byte_of().__getitem__, characters)).decode("utf-8", "replace").strip()


@cache
def _byte_of() -> dict[str, int]:
    """GPT-2's alphabet: printable Latin-1 stands for itself, the other bytes for the characters from 256 on, in order."""
    itself = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in itself]
    return {chr(byte): byte for byte in itself} | {chr(256 + i): byte for i, byte in enumerate(others)}


def _vocabulary(folder: Path) -> str:
    """The file that lists the tokens, as it is: .json or, made by older converters, .txt."""
    return "".join(path.read_text(encoding="utf-8") for path in sorted(folder.glob("vocabulary.*")))


def _joined(first: Transcription, second: Transcription, share: float) -> Transcription:
    """Two transcriptions of one sound; ``share`` of it is the first's."""
    confidence = None
    if first.confidence is not None and second.confidence is not None:
        confidence = first.confidence**share * second.confidence ** (1 - share)
    no_speech = min((r.no_speech for r in (first, second) if r.no_speech is not None), default=None)
    return Transcription(f"{first.text} {second.text}".strip(), confidence, no_speech)


def _open(options: WhisperOptions) -> Whisper:
    return open_whisper(models.resolve(options.model), options)


@once_per_process
def open_whisper(folder: Path, options: WhisperOptions) -> Whisper:
    """Open a model once for the same arguments, and decode a second of silence: its first decode is slow. Blocks."""
    whisper = Whisper(folder, options)
    whisper.transcribe(np.zeros(SAMPLE_RATE, np.float32))
    return whisper
