"""A voice in a session of its own, and all that comes out of it."""

from __future__ import annotations

import asyncio
from typing import Any, Self

from tests.conformance.servers.elevenlabs_server import KEY, VOICE, ElevenLabsServer, heard
from voiceflow import ErrorFrame, LLMEnded, OutputAudioFrame, Pipeline, Processor, SentenceFrame, Session, UtteranceEnded, Word
from voiceflow.frames import AudioFormat
from voiceflow.processors.services.elevenlabs_tts import ElevenLabsOptions

RATE = 24000


def options(server: ElevenLabsServer | str, **more: Any) -> ElevenLabsOptions:
    """For that server, with its key."""
    url = server if isinstance(server, str) else server.url
    return ElevenLabsOptions(**{"voice": VOICE, "base_url": url, "api_key": KEY, **more})


class Reports(Processor):
    """Stands above the node: what goes up."""

    def __init__(self) -> None:
        self.errors: list[tuple[float, str]] = []

    def process(self, frame: ErrorFrame) -> None:
        self.errors.append((self.session.time(), frame.error))


class Sink(Processor):
    """Keeps what comes down, and when."""

    def __init__(self, rate: int = RATE) -> None:
        self.takes = (AudioFormat(rate),)
        self.frames: list[OutputAudioFrame | UtteranceEnded] = []
        self.times: list[float] = []
        self.news = asyncio.Event()

    def process(self, frame: OutputAudioFrame | UtteranceEnded) -> None:
        self.frames.append(frame)
        self.times.append(self.session.time())
        self.news.set()


class VoiceCall:
    """``async with VoiceCall(ElevenLabsTTS(...)) as call: await call.speak("Hello there.", "How are you?")``."""

    def __init__(self, node: Processor) -> None:
        assert node.makes is not None
        self.node = node
        self.rate = node.makes.sample_rate
        self.reports, self.sink = Reports(), Sink(self.rate)
        self.session = Session(Pipeline(self.reports) >> node >> self.sink, inputs=[SentenceFrame, LLMEnded])
        self.utterance = 0

    async def __aenter__(self) -> Self:
        await self.session.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.session.__aexit__(*error)

    def begin(self) -> int:
        """The number of the next utterance."""
        self.utterance += 1
        return self.utterance

    def say(self, *pieces: str) -> None:
        """More text of the utterance."""
        for piece in pieces:
            self.session.send_nowait(SentenceFrame(piece, utterance=self.utterance))

    def end(self) -> None:
        """No more text."""
        self.session.send_nowait(LLMEnded(utterance=self.utterance))

    async def speak(self, *pieces: str) -> str:
        """A whole utterance; what was heard of it."""
        number = self.begin()
        self.say(*pieces)
        self.end()
        await self.ended(number)
        return self.text(number)

    async def news(self) -> None:
        """Wait for the next frame."""
        self.sink.news.clear()
        await self.sink.news.wait()

    async def ended(self, number: int | None = None) -> None:
        """Wait for the end of an utterance."""
        while not self.ends(number):
            await self.news()

    async def sound(self, number: int | None = None) -> None:
        """Wait for its first sound."""
        while not self.frames(number):
            await self.news()

    def frames(self, number: int | None = None) -> list[OutputAudioFrame]:
        """The sound of an utterance."""
        number = number or self.utterance
        return [frame for frame in self.sink.frames if isinstance(frame, OutputAudioFrame) and frame.utterance == number]

    def ends(self, number: int | None = None) -> int:
        """How often its end was told."""
        number = number or self.utterance
        return sum(isinstance(frame, UtteranceEnded) and frame.utterance == number for frame in self.sink.frames)

    def pcm(self, number: int | None = None) -> bytes:
        """Its sound."""
        return b"".join(frame.pcm for frame in self.frames(number))

    def text(self, number: int | None = None) -> str:
        """What can be heard in its sound."""
        return heard(self.pcm(number), self.rate).strip()

    def words(self, number: int | None = None) -> list[Word]:
        """Its words, at their places in the utterance."""
        found, at = [], 0.0
        for frame in self.frames(number):
            found += [Word(word.text, at + word.start, at + word.end, word.estimated) for word in frame.words]
            at += frame.duration
        return found
