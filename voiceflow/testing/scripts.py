"""A caller and services that follow a script, at exact times: the whole conversation without a model.

Sound is *labelled*: the caller's k-th utterance is sound whose every sample is ``k * CALLER_STEP``, noise is
``NOISE``; the agent's n-th sentence (counted through the session, from 1) is 100 ms a word of samples ``n * step``.
So any sample, wherever it shows up, says what it belongs to.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from voiceflow.frames import (
    AudioFormat,
    ContextFrame,
    InputAudioFrame,
    LLMEnded,
    LLMStarted,
    LLMTextFrame,
    OutputAudioFrame,
    SentenceFrame,
    SpeechStarted,
    SpeechStopped,
    TranscriptFrame,
    UtteranceEnded,
    Word,
)
from voiceflow.messages import Message
from voiceflow.processor import Processor

__all__ = [
    "CALLER_STEP",
    "NOISE",
    "Latency",
    "Said",
    "ScriptedCaller",
    "ScriptedLLM",
    "ScriptedSTT",
    "ScriptedTTS",
    "ScriptedVAD",
    "labels",
]

CALLER_STEP = 100
NOISE = -100
CALLER_RATE = 16000
VOICE_RATE = 24000
WORD_S = 0.1
"""How long the scripted voice takes for a word."""


@dataclass(frozen=True, slots=True)
class Said:
    """Something the caller does: ``text`` from ``at`` for ``seconds``. Without text it is noise: sound, but no speech."""

    at: float
    seconds: float
    text: str = ""


@dataclass(frozen=True, slots=True)
class Latency:
    """A service's delays: to its first result, and between results."""

    first_s: float = 0.0
    each_s: float = 0.0


def labels(pcm: bytes, step: int = 1) -> list[int]:
    """The distinct labels in labelled sound, in order: runs of equal samples, divided by ``step``; silence left out."""
    samples = np.frombuffer(pcm, "<i2").astype(int)
    if not samples.size:
        return []
    starts = np.flatnonzero(np.diff(samples, prepend=samples[0] - 1))
    return [int(samples[i]) // step for i in starts if samples[i]]


class ScriptedCaller(Processor):
    """A source: labelled sound in real (or virtual) time, 16 kHz mono, until ``until`` seconds have passed."""

    makes = AudioFormat(CALLER_RATE)

    def __init__(self, script: Sequence[Said], *, until: float, frame_s: float = 0.02) -> None:
        self.script = list(script)
        self.until = until
        self.frame_s = frame_s

    @property
    def texts(self) -> list[str]:
        """What the labels 1, 2, ... stand for."""
        return [said.text for said in self.script if said.text]

    async def run(self) -> AsyncIterator[InputAudioFrame]:
        """Yield each frame at the moment its last sample has been spoken."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        sound = self._sound()
        size = round(self.frame_s * CALLER_RATE)
        for number in range(len(sound) // size):
            await asyncio.sleep(began + (number + 1) * self.frame_s - loop.time())
            pcm = sound[number * size : (number + 1) * size].tobytes()
            yield InputAudioFrame(pcm, CALLER_RATE, pts=began + number * self.frame_s)

    def _sound(self) -> np.ndarray[tuple[int], np.dtype[np.int16]]:
        sound = np.zeros(round(self.until * CALLER_RATE), "<i2")
        spoken = 0
        for said in self.script:
            spoken += bool(said.text)
            begin = round(said.at * CALLER_RATE)
            sound[begin : begin + round(said.seconds * CALLER_RATE)] = spoken * CALLER_STEP if said.text else NOISE
        return sound


class ScriptedVAD(Processor):
    """Hears any sound that is not silence, after ``start_s`` of it, and its end after ``stop_s`` of silence."""

    def __init__(self, *, start_s: float = 0.1, stop_s: float = 0.2) -> None:
        self.start_s = start_s
        self.stop_s = stop_s
        self._speaking = False
        self._run_s = 0.0

    def process(self, frame: InputAudioFrame) -> Iterator[InputAudioFrame | SpeechStarted | SpeechStopped]:
        """Pass the sound on, and what was noticed in it after it."""
        yield frame
        ends_at = (frame.pts or 0.0) + frame.duration
        is_sound = bool(np.frombuffer(frame.pcm, "<i2").any())
        self._run_s = self._run_s + frame.duration if is_sound != self._speaking else 0.0
        if self._run_s + 1e-9 >= (self.stop_s if self._speaking else self.start_s):
            at = ends_at - self._run_s
            self._speaking = not self._speaking
            self._run_s = 0.0
            yield SpeechStarted(at=at) if self._speaking else SpeechStopped(at=at, silence=self.stop_s)


class ScriptedSTT(Processor):
    """Knows from the labels what was said: partials while it is being said, the final after ``latency.first_s``."""

    def __init__(self, texts: Sequence[str], latency: Latency | None = None, *, partial_every_s: float = 0.4) -> None:
        self.texts = list(texts)
        self.latency = latency or Latency(0.1)
        self.partial_every_s = partial_every_s
        self._heard: dict[int, float] = {}
        self._since_partial = 0.0
        self._speaking = False

    async def process(
        self, frame: InputAudioFrame | SpeechStarted | SpeechStopped
    ) -> AsyncIterator[TranscriptFrame | SpeechStarted | SpeechStopped]:
        """Partials, and one final for each stretch of speech (empty for noise). Passes the detector's edges on."""
        if isinstance(frame, SpeechStarted):
            self._speaking = True
            yield frame
        elif isinstance(frame, SpeechStopped):
            yield frame
            await asyncio.sleep(self.latency.first_s)
            self._speaking = False
            heard, self._heard = self._heard, {}
            yield TranscriptFrame(" ".join(self.texts[k - 1] for k in sorted(heard)), final=True)
        else:
            for label in labels(frame.pcm, CALLER_STEP):
                if label > 0:
                    self._heard[label] = self._heard.get(label, 0.0) + frame.duration
            self._since_partial += frame.duration
            if self._speaking and self._since_partial >= self.partial_every_s and self._heard:
                self._since_partial = 0.0
                label = max(self._heard)
                words = self.texts[label - 1].split()
                known = min(len(words), 1 + int(self._heard[label] / self.partial_every_s))
                yield TranscriptFrame(" ".join(words[:known]), final=False)


class _Service(Processor):
    """Counts the steps it takes for a reply after that was interrupted: a good engine leaves none."""

    late_steps = 0
    _stubborn = False

    async def _wait(self, seconds: float, epoch: int) -> None:
        if seconds > 0 or not self._stubborn:
            await asyncio.sleep(seconds)
        if epoch != self.session.epoch and not self._stubborn:
            self.late_steps += 1


class ScriptedLLM(_Service):
    """Streams ``reply(messages)`` in pieces: the first after ``latency.first_s``, the rest ``latency.each_s`` apart."""

    def __init__(self, reply: Callable[[tuple[Message, ...]], str], latency: Latency | None = None, *, piece: int = 8) -> None:
        self.reply = reply
        self.latency = latency or Latency(0.2, 0.01)
        self.piece = piece
        self.requests: list[tuple[Message, ...]] = []

    async def process(self, frame: ContextFrame) -> AsyncIterator[LLMStarted | LLMTextFrame | LLMEnded]:
        """One reply."""
        self.requests.append(frame.messages)
        yield LLMStarted(utterance=frame.utterance)
        text = self.reply(frame.messages)
        for begin in range(0, len(text), self.piece):
            await self._wait(self.latency.each_s if begin else self.latency.first_s, frame.epoch)
            yield LLMTextFrame(text[begin : begin + self.piece], utterance=frame.utterance)
        yield LLMEnded(utterance=frame.utterance)


class ScriptedTTS(_Service):
    """Speaks each sentence as labelled sound, in frames of one word.

    ``stubborn``: swallows its cancellation and speaks on, like a client library that catches everything.
    ``step``: the difference between two labels' samples (1000 survives resampling; 1 leaves room for 32,767 sentences).
    """

    makes = AudioFormat(VOICE_RATE)

    def __init__(self, latency: Latency | None = None, *, step: int = 1, stubborn: bool = False) -> None:
        self.latency = latency or Latency(0.05, 0.005)
        self.step = step
        self._stubborn = stubborn
        self.sentences: list[str] = []
        """What was asked for: the label n stands for ``sentences[n - 1]``."""
        self.utterances: list[int] = []
        """The utterance of each sentence."""

    async def process(self, frame: SentenceFrame | LLMEnded) -> AsyncIterator[OutputAudioFrame | UtteranceEnded]:
        """The sentence's sound; after the reply's last sentence, UtteranceEnded."""
        if isinstance(frame, LLMEnded):
            yield UtteranceEnded(utterance=frame.utterance)
            return
        self.sentences.append(frame.text)
        self.utterances.append(frame.utterance)
        label = len(self.sentences) * self.step
        pcm = np.full(round(WORD_S * VOICE_RATE), label, "<i2").tobytes()
        for number, word in enumerate(frame.text.split()):
            try:
                await self._wait(self.latency.each_s if number else self.latency.first_s, frame.epoch)
            except asyncio.CancelledError:
                if not self._stubborn:
                    raise
            yield OutputAudioFrame(pcm, VOICE_RATE, words=(Word(word, 0.0, WORD_S),), utterance=frame.utterance)
