"""A call whose model is a server: real HTTP, the real decoder, real tools; the server follows a script and refuses what a vendor would."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Self

from tests.conformance.openai_call import options
from tests.conformance.servers.openai_server import OpenAIServer, Reply
from tests.conversations.rig import history_fault
from voiceflow import ErrorFrame, LLMEnded, LLMTextFrame, Pipeline, Processor, SayFrame, Session, TurnEnded
from voiceflow.processors.context import Context
from voiceflow.processors.services.openai_llm import OpenAILLM, OpenAIOptions
from voiceflow.processors.text import Sentences
from voiceflow.processors.tool import Tool
from voiceflow.processors.tools import Tools
from voiceflow.testing import RecordingSink, ScriptedTTS

__all__ = ["ServedCall"]


class _Reports(Processor):
    """Stands at the top: errors, and what an application may make of them."""

    def __init__(self, fallback: str) -> None:
        self.fallback = fallback
        self.errors: list[tuple[float, str]] = []

    def process(self, frame: ErrorFrame) -> SayFrame | None:
        """Keep it, and say something."""
        self.errors.append((self.session.time(), frame.error))
        return SayFrame(self.fallback) if self.fallback else None


class _Seen(Processor):
    """Stands behind the model."""

    def __init__(self) -> None:
        self.text: list[str] = []
        self.ended = 0

    def process(self, frame: LLMTextFrame | LLMEnded) -> LLMTextFrame | LLMEnded:
        """Keep it, pass it on."""
        if isinstance(frame, LLMEnded):
            self.ended += 1
        else:
            self.text.append(frame.text)
        return frame


class ServedCall:
    """Context > OpenAILLM > tools > sentences > voice > sink. Used as ``async with``; no history may have been refused by then."""

    def __init__(
        self,
        script: Callable[[dict[str, Any]], Reply] | Iterable[Reply],
        tools: Sequence[Tool] = (),
        *,
        fallback: str = "",
        **more: Any,
    ) -> None:
        self.server = OpenAIServer(script)
        self.more = more
        self.context = Context(tools=[known.spec for known in tools])
        self.tools, self.reports, self.seen, self.sink = Tools(tools), _Reports(fallback), _Seen(), RecordingSink()

    async def __aenter__(self) -> Self:
        await self.server.__aenter__()
        made: OpenAIOptions = options(self.server, **self.more)
        nodes = [self.reports, self.context, OpenAILLM(made), self.seen, self.tools, Sentences(), ScriptedTTS(), self.sink]
        pipeline = Pipeline(nodes[0])
        for node in nodes[1:]:
            pipeline = pipeline >> node
        self.session = Session(pipeline, inputs=[TurnEnded])
        await self.session.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.session.__aexit__(*error)
        await self.server.__aexit__(*error)
        if error[0] is None:
            assert history_fault(self.context.conversation.messages) == ""

    def asks(self, text: str) -> None:
        """A turn of the caller, now."""
        self.session.send_nowait(TurnEnded(text=text))

    async def says(self, text: str, within_s: float = 5.0) -> list[str]:
        """A turn of the caller, and what is heard in the seconds after it."""
        before = len(self.sink.words())
        self.asks(text)
        await asyncio.sleep(within_s)
        return self.sink.words()[before:]

    @property
    def asked_at(self) -> list[float]:
        """When the server was asked."""
        return [asked.at for asked in self.server.asked]
