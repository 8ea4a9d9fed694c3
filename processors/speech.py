"""A clip of synthesised speech: where its words lie, where its silence is cut, and the frames it goes out in.

The one rule: a word is never cut and never loses its place; what is trimmed from the sound is taken off the words' times.
Pure: arrays and numbers in, frames out. Every voice that makes a clip at a time (Piper, Kokoro) uses it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
import numpy.typing as npt

from voiceflow.audio import fade_in, fade_out, to_pcm
from voiceflow.frames import OutputAudioFrame, Word
from voiceflow.processors.phonemes import SpokenWord
from voiceflow.processors.spoken import PAUSES

__all__ = ["Pauses", "Speech", "Spoken", "clip", "frames", "joined", "place_words", "split_words", "timed_clip", "voiced"]

Floats = npt.NDArray[np.float32]

LEAD_MS = 10
"""Silence kept before the voice: the first sound must not wait, and a soft onset must not be cut."""
FADE_MS = 4
"""Fade at a cut, so that it does not click."""
FLOOR_DB = 45
"""Sound this far below the loudest stretch of the clip is silence."""
WINDOW_MS = 5


@dataclass(frozen=True, slots=True)
class Pauses:
    """Longest silence kept after a clip, by the mark that ends it. Shorter silence stays as the voice made it."""

    sentence_ms: float = 120
    """After ``. ! ?``"""
    clause_ms: float = 60
    """After ``, ; :``"""
    cut_ms: float = 20
    """After no mark: the sentence goes on in the next clip."""

    def after(self, ipa: str) -> float:
        """The pause for a clip whose last phonemes are ``ipa``, in ms."""
        if ipa.endswith((".", "!", "?")):
            return self.sentence_ms
        return self.clause_ms if ipa.endswith((",", ";", ":")) else self.cut_ms


@dataclass(frozen=True, slots=True)
class Speech:
    """Mono s16le sound and its words, whose times are seconds from the first sample."""

    pcm: bytes
    sample_rate: int
    words: tuple[Word, ...] = ()

    @property
    def duration(self) -> float:
        """Length in seconds."""
        return len(self.pcm) / (2 * self.sample_rate)


@dataclass(frozen=True, slots=True, eq=False)
class Spoken:
    """What a model made of words.

    ``samples``: floats in [-1, 1], shape (n,). ``spans``: for each word, the model's input symbols from its first to one
    past its last sound. ``lengths``: of each symbol, in any unit, or None if the model does not tell.
    """

    samples: Floats
    sample_rate: int
    spans: Sequence[tuple[int, int]]
    lengths: Floats | None


def timed_clip(spoken: Spoken, words: Sequence[SpokenWord], pauses: Pauses) -> Speech:
    """Make a clip of what a model spoke, its words where the model says, or else by estimate."""
    rate, lengths = spoken.sample_rate, spoken.lengths
    first, last = (sample / rate for sample in voiced(spoken.samples, rate))
    if lengths is None or lengths.size <= max(end for _, end in spoken.spans) or lengths.sum() <= 0:
        placed = place_words(words, first, last)
    else:
        placed = _timed(words, spoken.spans, np.cumsum(lengths, dtype=np.float64) * (len(spoken.samples) / rate / lengths.sum()), first)
    ending = next((word.ipa for word in reversed(words) if word.ipa), "")
    return clip(spoken.samples, rate, placed, pauses.after(ending))


def clip(samples: Floats, sample_rate: int, words: Sequence[Word], tail_ms: float) -> Speech:
    """Make a clip of ``samples`` (floats in [-1, 1], shape (n,)): silence at the ends trimmed, cuts faded.

    At most LEAD_MS of silence stays before the voice and ``tail_ms`` after it. ``words`` are in seconds of ``samples``.
    """
    first, last = voiced(samples, sample_rate)
    start = max(0, first - round(LEAD_MS * sample_rate / 1000))
    end = min(len(samples), last + round(tail_ms * sample_rate / 1000))
    pcm = to_pcm(samples[start:end])
    if start:
        pcm = fade_in(pcm, sample_rate, FADE_MS)
    if end < len(samples):
        pcm = fade_out(pcm, sample_rate, FADE_MS)
    offset, duration = start / sample_rate, (end - start) / sample_rate
    return Speech(pcm, sample_rate, tuple(_shifted(word, offset, duration) for word in words))


def voiced(samples: Floats, sample_rate: int) -> tuple[int, int]:
    """First and one past the last sample that is not silence, to WINDOW_MS. A clip of silence is all of it."""
    window = max(1, round(WINDOW_MS * sample_rate / 1000))
    padded = np.pad(samples, (0, -len(samples) % window)).reshape(-1, window)
    power = np.square(padded, dtype=np.float64).mean(axis=1)
    peak = power.max(initial=0.0)
    loud = np.flatnonzero(power > peak * 10 ** (-FLOOR_DB / 10)) if peak else np.empty(0, np.intp)
    if not loud.size:
        return 0, len(samples)
    return int(loud[0]) * window, min(len(samples), int(loud[-1] + 1) * window)


def split_words(words: Sequence[SpokenWord], longest: int) -> list[list[SpokenWord]]:
    """Clips of at most ``longest`` phonemes, each with something to say; silent words go with the word before them."""
    clips: list[list[SpokenWord]] = []
    room = 0
    for word in words:
        if not clips or (word.ipa and len(word.ipa) > room):
            if clips and not any(w.ipa for w in clips[-1]):
                clips[-1].append(word)
            else:
                clips.append([word])
            room = longest
        else:
            clips[-1].append(word)
        room -= len(word.ipa)
    return [part for part in clips if any(word.ipa for word in part)]


def joined(parts: Sequence[Speech], sample_rate: int) -> Speech:
    """Clips one after the other as one."""
    starts = itertools.accumulate((part.duration for part in parts), initial=0.0)
    words = (
        msgspec.structs.replace(w, start=w.start + at, end=w.end + at) for at, part in zip(starts, parts, strict=False) for w in part.words
    )
    return Speech(b"".join(part.pcm for part in parts), sample_rate, tuple(words))


def frames(speech: Speech, utterance: int, frame_ms: float = 40.0) -> Iterator[OutputAudioFrame]:
    """``speech`` in frames of equal length, at most ``frame_ms``. A word stands in the frame in which it begins."""
    total = len(speech.pcm) // 2
    count = math.ceil(total * 1000 / (frame_ms * speech.sample_rate))
    edges = [total * i // count for i in range(count + 1)] if count else []
    waiting = list(speech.words)
    for start, end in itertools.pairwise(edges):
        offset, limit = start / speech.sample_rate, end / speech.sample_rate
        number = len(waiting) if end == total else next((i for i, word in enumerate(waiting) if word.start >= limit), len(waiting))
        here, waiting = waiting[:number], waiting[number:]
        words = tuple(msgspec.structs.replace(word, start=max(0.0, word.start - offset), end=word.end - offset) for word in here)
        yield OutputAudioFrame(pcm=speech.pcm[2 * start : 2 * end], sample_rate=speech.sample_rate, words=words, utterance=utterance)


def place_words(words: Sequence[SpokenWord], start: float, end: float) -> tuple[Word, ...]:
    """Place ``words`` between ``start`` and ``end`` (seconds: where the voice begins and ends) in proportion to their sounds.

    For voices that give no timing, hence ``estimated``. A phoneme, a stress mark and a blank count one, a pause mark
    inside the clip five: measured over thirty utterances of a voice that does give its timing, each of the former
    lasts 50 ms, and a pause 250.
    """
    spans: list[tuple[float, float]] = []
    position = end_of_last = 0.0
    for word in words:
        body = word.ipa.rstrip(PAUSES)
        if body:
            end_of_last = position + _weight(body)
            spans.append((position, end_of_last))
            position = end_of_last + _weight(word.ipa[len(body) :]) + 1
        else:
            spans.append((end_of_last, end_of_last))  # a word that is not said stands after the one before it
    scale = (end - start) / end_of_last if end_of_last else 0.0
    return tuple(Word(word.text, start + a * scale, start + b * scale, True) for word, (a, b) in zip(words, spans, strict=True))


def _weight(ipa: str) -> float:
    return float(sum(5 if symbol in PAUSES else 1 for symbol in ipa))


def _shifted(word: Word, offset: float, duration: float) -> Word:
    start = min(max(0.0, word.start - offset), duration)
    return msgspec.structs.replace(word, start=start, end=min(max(start, word.end - offset), duration))


def _timed(words: Sequence[SpokenWord], spans: Sequence[tuple[int, int]], ends: npt.NDArray[np.float64], onset: float) -> tuple[Word, ...]:
    """The words by the seconds at which their symbols end. A word that is not said stands, without length, after the one before.

    ``onset``: where the voice is first heard. A model lets a soft first sound begin in the padding before it.
    """
    times = np.concatenate(([0.0], ends))
    placed: list[Word] = []
    begun = False
    for word, (first, last) in zip(words, spans, strict=True):
        if first == last:
            start = end = placed[-1].end if placed else onset
        else:
            start, end = float(times[first]), float(times[last])
            start, begun = (start if begun else min(start, onset)), True
        placed.append(Word(word.text, start, end))
    return tuple(placed)
