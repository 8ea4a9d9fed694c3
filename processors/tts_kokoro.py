"""Kokoro-82M, run by onnxruntime from English phonemes made without espeak.

Owns Kokoro's input (https://huggingface.co/hexgrad/Kokoro-82M, Apache-2.0): its phoneme table, its voices, and how
espeak's notation is written in it. The one rule is that of ``tts_piper``: a clip and its words leave together, and the
words lie where the model itself says. (The lengths of its sounds come from its one Clip operator, at 25 ms a step.)

Clearer than Piper, and several times slower.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

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

__all__ = ["Kokoro", "KokoroOptions", "KokoroTTS", "read_voice", "symbols"]

SAMPLE_RATE = 24000
STYLE = 256
"""Numbers in one style of a voice; a voice file holds one style for each number of symbols."""
LONGEST_CLIP = 300
"""Phonemes spoken at once; the model takes 510 symbols."""

_SYMBOLS = {
    ";": 1, ":": 2, ",": 3, ".": 4, "!": 5, "?": 6, " ": 16, "A": 24, "I": 25, "O": 31, "T": 36, "W": 39, "Y": 41, "ᵊ": 42, "a": 43,
    "b": 44, "d": 46, "f": 48, "h": 50, "i": 51, "j": 52, "k": 53, "l": 54, "m": 55, "n": 56, "p": 58, "s": 61, "t": 62, "u": 63, "v": 64,
    "w": 65, "x": 66, "z": 68, "ɑ": 69, "æ": 72, "ɔ": 76, "ð": 81, "ʤ": 82, "ə": 83, "ɛ": 86, "ɜ": 87, "ɡ": 92, "ɪ": 102, "ŋ": 112,
    "θ": 119, "ɹ": 123, "ʃ": 131, "ʧ": 133, "ʊ": 135, "ʌ": 138, "ʒ": 147, "ʔ": 148, "ˈ": 156, "ˌ": 157, "ᵻ": 177,
}  # fmt: skip

# In this order: what stands for two letters first.
_NOTATION = (
    ("jˈɛh", "jˈɛə"), ("aʊ", "W"), ("aɪ", "I"), ("eɪ", "A"), ("oʊ", "O"), ("ɔɪ", "Y"), ("tʃ", "ʧ"), ("dʒ", "ʤ"), ("n̩", "ᵊn"), ("ɜːɹ", "ɜɹ"), ("ɜː", "ɜɹ"),
    ("ɚɹ", "əɹ"), ("ɚ", "əɹ"), ("ɐ", "ə"), ("ɾ", "T"), ("ː", ""), ("o", "ɔ"), ("r", "ɹ"), ("e", "A"), ("ɬ", "l"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class KokoroOptions:
    """How the voice speaks."""

    model: str | Path = "kokoro"
    """A model's name, or the path of Kokoro v1.0 as an ``.onnx`` file."""
    threads: int = 1
    """Of one inference. Two take a third off the time of a clause."""
    speed: float = 1.0
    pauses: Pauses = field(default_factory=Pauses)
    frame_ms: float = 40.0
    lexicon: Lexicon | None = None
    """Words that are said in another way than the voice would."""


class Kokoro:
    """The model with one voice, usable from any thread. Knows no frames.

    ``voice``: the path of a voice's ``.bin`` (float32, shape (n, 1, 256)). Raises ModelError if one of the two is not what it should be.
    """

    def __init__(self, model: Path, voice: Path, threads: int = 1) -> None:
        self._styles = read_voice(voice)
        self._model = open_shared(model, threads)
        phonemes.load()

    def synthesize(self, text: str, options: KokoroOptions | None = None) -> Speech:
        """Speak ``text``: one clip at 24 kHz, with all its written words. Nothing to say gives an empty Speech. Blocks."""
        options = options or KokoroOptions()
        return joined(
            [self._speak(part, options) for part in split_words(phonemes.phonemes(text, options.lexicon), LONGEST_CLIP)], SAMPLE_RATE
        )

    def _speak(self, words: Sequence[SpokenWord], options: KokoroOptions) -> Speech:
        ids, spans = symbols(words)
        inputs = {
            "tokens": np.array([ids], np.int64),
            "style": self._styles[min(len(ids) - 2, len(self._styles) - 1)][None],
            "speed": np.array([options.speed], np.float32),
        }
        try:
            sound, *more = self._model.run(None, inputs)
        except Exception as error:  # onnxruntime's exceptions share no base class but Exception
            raise ModelError(f"{options.model} cannot speak ({error}); is it Kokoro v1.0?") from error
        return timed_clip(Spoken(sound.reshape(-1), SAMPLE_RATE, spans, more[0].reshape(-1) if more else None), words, options.pauses)


class KokoroTTS(Processor):
    """Speaks each clause as it comes, and says when an utterance is complete; see PiperTTS.

    ``voice`` is the path of a voice's ``.bin`` file. When cancelled, a clause being synthesised is dropped when its
    thread has done it.
    """

    makes = AudioFormat(SAMPLE_RATE)

    def __init__(self, voice: str | Path, options: KokoroOptions | None = None) -> None:
        self.options = options or KokoroOptions()
        self._voice = Path(voice)
        self._kokoro: Kokoro | None = None

    async def start(self) -> None:
        """Open the model and the voice, and speak a word to nobody."""
        self._kokoro = await self.run_blocking(self._open)

    async def process(self, frame: SentenceFrame | LLMEnded) -> AsyncIterator[OutputAudioFrame | UtteranceEnded]:
        """One clause becomes frames of sound with their words."""
        if isinstance(frame, LLMEnded):
            yield UtteranceEnded(utterance=frame.utterance)
            return
        assert self._kokoro is not None, "the session calls start() before it gives a frame"
        speech = await self.run_blocking(self._kokoro.synthesize, frame.text, self.options)
        for piece in frames(speech, frame.utterance, self.options.frame_ms):
            yield piece

    def _open(self) -> Kokoro:
        kokoro = Kokoro(models.resolve(self.options.model), self._voice.expanduser(), self.options.threads)
        kokoro.synthesize("Ready.", self.options)
        return kokoro


open_shared = once_per_process(lambda path, threads: open_with_inner(path, threads, "Clip"))


def read_voice(path: Path) -> npt.NDArray[np.float32]:
    """The styles of a voice, shape (n, 256). Raises ModelError: missing, or not of that form."""
    try:
        numbers = np.fromfile(path, "<f4")
    except OSError as error:
        raise ModelError(f"the voice {path} cannot be read ({error}); give the path of a Kokoro voice's .bin file") from error
    if not numbers.size or numbers.size % STYLE or not np.isfinite(numbers).all():
        raise ModelError(f"{path} is not a Kokoro voice: {path.stat().st_size} bytes are not rows of {STYLE} floats")
    return numbers.reshape(-1, STYLE)


def symbols(words: Sequence[SpokenWord]) -> tuple[list[int], list[tuple[int, int]]]:
    """The model's input, and for each word its symbols from the first to one past its last sound."""
    ids = [0]
    spans: list[tuple[int, int]] = []
    for word in words:
        written = word.ipa
        for espeak, kokoro in _NOTATION:
            written = written.replace(espeak, kokoro)
        if written and len(ids) > 1:
            ids.append(_SYMBOLS[" "])
        start = end = len(ids)
        for symbol in written:
            if symbol in _SYMBOLS:
                ids.append(_SYMBOLS[symbol])
                end = end if symbol in PAUSES else len(ids)
        spans.append((start, end))
    return [*ids, 0], spans
