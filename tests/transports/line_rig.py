"""What the tests of networked lines share: an agent that answers typed words, and a socket in memory whose far end is the test."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator
from typing import Any, Self

import numpy as np

from voiceflow.frames import (
    EndFrame,
    InputAudioFrame,
    LLMEnded,
    LLMStarted,
    LLMTextFrame,
    PlaybackStarted,
    SentenceFrame,
    TranscriptFrame,
    TurnEnded,
)
from voiceflow.phone import DigitReceived
from voiceflow.pipeline import Pipeline
from voiceflow.processor import Processor
from voiceflow.testing import Latency, ScriptedTTS
from voiceflow.transports.wire import Message


class Ears(Processor):
    """Keeps what the caller sent; their typed words are a turn."""

    def __init__(self) -> None:
        self.sound: list[InputAudioFrame] = []
        self.keys = ""

    def process(self, frame: InputAudioFrame | DigitReceived | TranscriptFrame | PlaybackStarted) -> TurnEnded | None:
        if isinstance(frame, InputAudioFrame):
            self.sound.append(frame)
        elif isinstance(frame, DigitReceived):
            self.keys += frame.digit
        elif isinstance(frame, TranscriptFrame) and frame.final:
            return TurnEnded(text=frame.text)
        return None


class Parrot(Processor):
    """Says what it is told; ``bye`` ends the call, ``fail`` fails."""

    def __init__(self) -> None:
        self.replies = 0

    async def process(self, frame: TurnEnded) -> AsyncIterator[LLMStarted | LLMTextFrame | SentenceFrame | LLMEnded | EndFrame]:
        if frame.text == "fail":
            raise RuntimeError("told to fail")
        self.replies += 1
        yield LLMStarted(utterance=self.replies)
        yield LLMTextFrame(frame.text, utterance=self.replies)
        yield SentenceFrame(frame.text, utterance=self.replies)
        yield LLMEnded(utterance=self.replies)
        if frame.text == "bye":
            yield EndFrame()


def parrot(source: Processor, sink: Processor) -> Pipeline:
    """The agent: a word of typed text is 100 ms of sound."""
    return source >> Ears() >> Parrot() >> ScriptedTTS(Latency(), step=1000) >> sink


class MemorySocket:
    """A socket of ``line``, both ends in this process. ``reads``: clear it, and nothing that is sent gets away."""

    def __init__(self, *messages: Message) -> None:
        self.sent: list[tuple[float, Message]] = []
        self.closed: tuple[int, str] | None = None
        self.reads = asyncio.Event()
        self.reads.set()
        self.told = asyncio.Event()
        self.lost = False
        self.takes_s = 0.0
        """For each message that is sent."""
        self._incoming: deque[Message | None] = deque(messages)
        self._came = asyncio.Event()

    # ------------------------------------------------------------------------------------ the line's side

    async def receive(self) -> Message | None:
        while not self._incoming:
            if self.closed is not None:
                return None
            self._came.clear()
            await self._came.wait()
        if self._incoming[0] is None:
            return None
        return self._incoming.popleft()

    async def send(self, message: Message) -> None:
        if self.closed is not None or None in self._incoming:
            raise ConnectionError("closed")
        await self.reads.wait()
        await asyncio.sleep(self.takes_s)
        self.sent.append((asyncio.get_running_loop().time(), message))
        self.told.set()

    async def close(self, code: int, reason: str) -> None:
        self.closed = self.closed or (code, reason)
        self._came.set()

    # ------------------------------------------------------------------------------------- the far end's side

    def say(self, *messages: Message) -> None:
        self._incoming.extend(messages)
        self._came.set()

    def hang_up(self) -> None:
        """The far end closes it."""
        self._incoming.append(None)
        self._came.set()

    def lose(self) -> None:
        """The network is gone."""
        self.lost = True
        self._incoming.append(None)
        self._came.set()

    async def until(self, *parts: str) -> None:
        """Wait until one message holds all of these."""
        async with asyncio.timeout(30):
            while not any(all(part in str(message) for part in parts) for _, message in self.sent):
                self.told.clear()
                await self.told.wait()


class Page(MemorySocket):
    """A browser page, as docs/websocket.md has it: it plays what it is sent, from a queue, and reports what was played.

    ``way_s``: how long a message takes, either way. What its ear had is kept sample by sample, silence left out.
    """

    def __init__(self, *, rate: int = 24000, wants: int = 24000, reports: bool = True, way_s: float = 0.0, **start: Any) -> None:
        super().__init__(json.dumps({"type": "start", "sample_rate": rate, "wants": wants, **start}))
        self.rate = wants
        self.reports = reports
        self.way_s = way_s
        self.heard: list[tuple[float, int]] = []
        """(when, sample)."""
        self.events: list[tuple[float, dict[str, Any]]] = []
        self._queue = np.zeros(0, "<i2")
        self._played = 0
        self._player: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._player = asyncio.create_task(self._play(), name="the page's loudspeaker")
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._player is not None
        self._player.cancel()
        await asyncio.wait([self._player])

    async def send(self, message: Message) -> None:
        await super().send(message)
        if self.way_s:
            asyncio.get_running_loop().call_later(self.way_s, self._arrived, message)
        else:
            self._arrived(message)

    def tell(self, **message: Any) -> None:
        """Something the client says, as JSON."""
        if self.way_s:
            asyncio.get_running_loop().call_later(self.way_s, self.say, json.dumps(message))
        else:
            self.say(json.dumps(message))

    def told_of(self, kind: str) -> list[dict[str, Any]]:
        return [message for _, message in self.events if message["type"] == kind]

    async def hears_of(self, kind: str, count: int = 1) -> dict[str, Any]:
        """Wait for the count-th message of a type."""
        async with asyncio.timeout(120):
            while len(self.told_of(kind)) < count:
                await asyncio.sleep(0.01)
        return self.told_of(kind)[count - 1]

    @property
    def labels(self) -> list[int]:
        """Which sentences were heard, in order; what a resampler rings with left out."""
        found: list[int] = []
        for label in [round(sample / 1000) for _, sample in self.heard]:
            if label and (not found or found[-1] != label):
                found.append(label)
        return found

    def seconds(self, label: int) -> float:
        return sum(round(sample / 1000) == label for _, sample in self.heard) / self.rate

    def _arrived(self, message: Message) -> None:
        if isinstance(message, bytes):
            self._queue = np.concatenate([self._queue, np.frombuffer(message, "<i2")])
            return
        told = json.loads(message)
        self.events.append((asyncio.get_running_loop().time(), told))
        if told["type"] == "clear":
            self._played += len(self._queue)
            self._queue = self._queue[:0]

    async def _play(self) -> None:
        loop, size = asyncio.get_running_loop(), self.rate // 100
        at = loop.time()
        while True:
            at += 0.01
            await asyncio.sleep(at - loop.time())
            now, self._queue = self._queue[:size], self._queue[size:]
            self.heard += [(at - 0.01 + i / self.rate, int(sample)) for i, sample in enumerate(now) if sample]
            self._played += len(now)
            if len(now) and self.reports:
                self.tell(type="played", samples=self._played)
