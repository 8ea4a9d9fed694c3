"""A scripted agent on the phone: it recognises a caller by how loud each of her sentences is, answers, and remembers the keys."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from voiceflow import (
    InputAudioFrame,
    Message,
    Pipeline,
    PlaybackStopped,
    Processor,
    SpeechStarted,
    SpeechStopped,
    TranscriptFrame,
    TurnScored,
    WordsHeard,
)
from voiceflow.phone import DigitReceived
from voiceflow.processors.context import Context
from voiceflow.processors.splitter import SplitterOptions
from voiceflow.processors.text import Sentences
from voiceflow.processors.turns import Turns
from voiceflow.testing import Latency, ScriptedLLM, ScriptedTTS, ScriptedVAD

STEP = 1000
"""Between two sentences' levels: far enough for G.711, and for a resampler's ringing."""
WORD_S = 0.1
STORY = " ".join(f"word{n}" for n in range(40)) + "."
ANSWER = "this is the next answer."


def caller_says(number: int, rate: int, seconds: float = 0.5) -> bytes:
    """The caller's sentence of that number."""
    return np.full(round(rate * seconds), number * STEP, "<i2").tobytes()


class LevelSTT(Processor):
    """Knows ``texts[n - 1]`` by its level, and tells it when the voice stops."""

    def __init__(self, texts: Sequence[str]) -> None:
        self.texts = texts
        self.sound_s = 0.0
        self._levels: list[int] = []

    def process(
        self, frame: InputAudioFrame | SpeechStarted | SpeechStopped
    ) -> Iterator[SpeechStarted | SpeechStopped | TranscriptFrame | TurnScored]:
        if isinstance(frame, InputAudioFrame):
            self.sound_s += frame.duration
            samples = frame.samples
            self._levels += np.round(samples[samples > STEP // 2] / STEP).astype(int).tolist()
            return
        yield frame
        if isinstance(frame, SpeechStopped):
            said = self.texts[int(np.median(self._levels)) - 1] if self._levels else ""
            self._levels.clear()
            yield TranscriptFrame(said, final=True)
            yield TurnScored(probability=1.0)


class Keys(Processor):
    """Keeps the keys that were pressed."""

    def __init__(self) -> None:
        self.pressed = ""

    def process(self, frame: DigitReceived) -> None:
        self.pressed += frame.digit


class Reports(Processor):
    """What was reported as heard."""

    def __init__(self) -> None:
        self.stopped: list[PlaybackStopped] = []
        self.words: list[str] = []

    def process(self, frame: WordsHeard | PlaybackStopped) -> None:
        if isinstance(frame, WordsHeard):
            self.words += frame.text.split()
        else:
            self.stopped.append(frame)


class Agent:
    """The nodes between a line's two ends. It tells a story, and answers anything else shortly."""

    def __init__(
        self, texts: Sequence[str] = ("a story", "what is next"), reply: Callable[[tuple[Message, ...]], str] | None = None
    ) -> None:
        self.context = Context()
        self.keys = Keys()
        self.stt = LevelSTT(texts)
        self.reports = Reports()
        self.voice = ScriptedTTS(Latency(0.05, 0.0), step=STEP)
        self._reply = reply or (lambda messages: STORY if "story" in messages[-1].text else ANSWER)

    def between(self, source: Processor, sink: Processor) -> Pipeline:
        """The whole graph."""
        model = ScriptedLLM(self._reply, Latency(0.05, 0.0), piece=1000)
        whole = Sentences(SplitterOptions(clause_chars=(1000,), first_words=0, limit_chars=1000))
        talk = source >> self.reports >> ScriptedVAD() >> self.stt >> Turns() >> self.context >> model >> whole >> self.voice >> sink
        talk.link(source, self.keys)
        return talk

    def said(self, role: str = "assistant") -> list[str]:
        """What the context holds of one side, word by word."""
        return [word for m in self.context.conversation.messages if m.role == role for word in m.text.split()]


async def until(condition: Callable[[], object], deadline_s: float = 20.0) -> None:
    """Wait for it, on whatever clock."""
    async with asyncio.timeout(deadline_s):
        while not condition():
            await asyncio.sleep(0.02)
