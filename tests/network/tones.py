"""A voice each of whose words can be told from any other by its tone: for sound that goes through a coder or a resampler, which leave no number whole."""

from __future__ import annotations

from collections.abc import AsyncIterator

import numpy as np

from voiceflow.frames import AudioFormat, LLMEnded, OutputAudioFrame, SentenceFrame, UtteranceEnded, Word
from voiceflow.processor import Processor
from voiceflow.testing.scripts import WORD_S

__all__ = ["Singer", "nearest", "sung"]


def hz_of(utterance: int, word: int) -> int:
    """The tone of a word: those next to one another are 90 Hz apart, those of another reply 1000."""
    return 400 + 1000 * utterance + 90 * (word % 10)


class Singer(Processor):
    """A voice that sings each word's own tone for 100 ms, at this rate in Hz."""

    def __init__(self, rate: int) -> None:
        self.makes = AudioFormat(rate)

    async def process(self, frame: SentenceFrame | LLMEnded) -> AsyncIterator[OutputAudioFrame | UtteranceEnded]:
        if isinstance(frame, LLMEnded):
            yield UtteranceEnded(utterance=frame.utterance)
            return
        rate = self.makes.sample_rate
        times = np.arange(round(WORD_S * rate)) / rate
        for number, word in enumerate(frame.text.split()):
            pcm = (8000 * np.sin(2 * np.pi * hz_of(frame.utterance, number) * times)).astype("<i2").tobytes()
            yield OutputAudioFrame(pcm, rate, words=(Word(word, 0.0, WORD_S),), utterance=frame.utterance)


def sung(sound: np.ndarray, rate: int) -> tuple[int, int] | None:
    """(utterance, word modulo 10) of some 20 ms; None for silence, and for what is of no one word."""
    if np.sqrt(np.mean(sound.astype(float) ** 2)) < 1000:
        return None
    power = np.abs(np.fft.rfft(sound * np.hanning(len(sound)), rate // 10)) ** 2
    peak = int(np.argmax(power))
    if np.sum(power[max(peak - 20, 0) : peak + 20]) < 0.7 * np.sum(power):
        return None  # a crack, where packets are missing
    hz = 10 * peak - 400
    utterance, word = hz // 1000, round(hz % 1000 / 90)
    return (utterance, word) if 1 <= utterance <= 3 and word < 10 else None


def nearest(word: int, before: int) -> int:
    """The number of a word that is known modulo 10, given the one before it; on a border it may be that one again."""
    return before + (word - before + 4) % 10 - 4
