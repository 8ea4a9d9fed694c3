"""A node of a language model in a session of its own, and all that comes out of it."""

from __future__ import annotations

import asyncio
from typing import Any, Self

from tests.conformance.servers.openai_server import KEY, OpenAIServer
from voiceflow import (
    ContextFrame,
    ErrorFrame,
    Frame,
    LLMEnded,
    LLMTextFrame,
    LLMUsage,
    Message,
    Pipeline,
    Processor,
    Session,
    ToolCallFrame,
)
from voiceflow.frames import LLMStarted
from voiceflow.messages import ToolSpec
from voiceflow.processors.services.chat_request import ChatOptions
from voiceflow.processors.services.openai_llm import OpenAIOptions
from voiceflow.processors.services.streamed_llm import StreamedLLM


def options(server: OpenAIServer | str, **more: Any) -> OpenAIOptions:
    """For that server, with its key."""
    chat = more.pop("chat", None) or ChatOptions("test")
    url = server if isinstance(server, str) else server.url
    return OpenAIOptions(chat, base_url=url, api_key=KEY, **more)


class Reports(Processor):
    """Stands above the node: what goes up."""

    def __init__(self) -> None:
        self.errors: list[tuple[float, str]] = []
        self.usage: list[LLMUsage] = []

    def process(self, frame: ErrorFrame | LLMUsage) -> None:
        if isinstance(frame, ErrorFrame):
            self.errors.append((self.session.time(), frame.error))
        else:
            self.usage.append(frame)


class Sink(Processor):
    """Keeps what comes down, and when."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self.times: list[float] = []
        self.news = asyncio.Event()

    def process(self, frame: LLMStarted | LLMTextFrame | ToolCallFrame | LLMEnded) -> None:
        self.frames.append(frame)
        self.times.append(self.session.time())
        self.news.set()


class LLMCall:
    """``async with LLMCall(OpenAILLM(...)) as call: await call.ask("hello")``."""

    def __init__(self, node: StreamedLLM, tools: tuple[ToolSpec, ...] = ()) -> None:
        self.node = node
        self.tools = tools
        self.reports, self.sink = Reports(), Sink()
        self.session = Session(Pipeline(self.reports) >> node >> self.sink, inputs=[ContextFrame])
        self.utterance = 0

    async def __aenter__(self) -> Self:
        await self.session.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.session.__aexit__(*error)

    def begin(self, *messages: Message | str) -> int:
        """Ask, and do not wait; the number of the reply."""
        self.utterance += 1
        said = tuple(Message("user", m) if isinstance(m, str) else m for m in messages)
        self.session.send_nowait(ContextFrame(messages=said, utterance=self.utterance, tools=self.tools))
        return self.utterance

    async def ask(self, *messages: Message | str) -> str:
        """Ask, and wait for the end of the reply; its text."""
        number = self.begin(*messages)
        while not self.ended(number):
            await self.news()
        return self.text(number)

    async def news(self) -> None:
        """Wait for the next frame."""
        self.sink.news.clear()
        await self.sink.news.wait()

    async def first_text(self, number: int) -> str:
        """Wait for the first text of a reply."""
        while not self.text(number):
            await self.news()
        return self.text(number)

    def of(self, number: int) -> list[Frame]:
        """The frames of one reply."""
        return [frame for frame in self.sink.frames if getattr(frame, "utterance", 0) == number]

    def text(self, number: int | None = None) -> str:
        """What a reply says."""
        return "".join(frame.text for frame in self.of(number or self.utterance) if isinstance(frame, LLMTextFrame))

    def ended(self, number: int | None = None) -> int:
        """How often its end was told."""
        return sum(isinstance(frame, LLMEnded) for frame in self.of(number or self.utterance))

    def calls(self, number: int | None = None) -> list[tuple[str, str]]:
        """The tools that it calls."""
        return [(frame.call.name, frame.call.arguments) for frame in self.of(number or self.utterance) if isinstance(frame, ToolCallFrame)]
