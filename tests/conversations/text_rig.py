"""What the cases about text share: a model that streams given tokens, a voice that is strict, and a call made of them."""

from __future__ import annotations

import asyncio
import itertools
import random
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from voiceflow import (
    ContextFrame,
    EndFrame,
    ErrorFrame,
    LLMEnded,
    LLMStarted,
    LLMTextFrame,
    OutputAudioFrame,
    Processor,
    SayFrame,
    SentenceFrame,
    Session,
    TurnEnded,
    UtteranceEnded,
)
from voiceflow.processors.context import Context
from voiceflow.processors.filters import FilterMaker
from voiceflow.processors.text import FILTERS, Sentences, SplitterOptions
from voiceflow.testing import RecordingSink, ScriptedTTS


def by_marks(text: str) -> list[str]:
    """Each mark and each space its own token."""
    return re.findall(r"\w+|\W", text)


def by_chance(text: str) -> list[str]:
    """Pieces of 1 to 7 characters, the same each time."""
    chance, cuts = random.Random(text), [0]
    while cuts[-1] < len(text):
        cuts.append(min(len(text), cuts[-1] + chance.randint(1, 7)))
    return [text[a:b] for a, b in itertools.pairwise(cuts)]


CHUNKINGS: dict[str, Callable[[str], list[str]]] = {
    "characters": list,
    "marks": by_marks,
    "chance": by_chance,
    "whole": lambda text: [text],
}


class Broken(str):
    """A token after which the model's stream fails: no LLMEnded comes."""


class TokenLLM(Processor):
    """Streams the tokens given for the caller's last words, ``each_s`` apart."""

    def __init__(self, replies: Mapping[str, Sequence[str]], each_s: float = 0.0) -> None:
        self.replies = replies
        self.each_s = each_s
        self.ended: dict[int, float] = {}

    async def process(self, frame: ContextFrame) -> AsyncIterator[LLMStarted | LLMTextFrame | LLMEnded]:
        """One reply."""
        yield LLMStarted(utterance=frame.utterance)
        asked = max((key for key in self.replies if frame.messages[-1].text.endswith(key)), key=len)
        for token in self.replies[asked]:
            await asyncio.sleep(self.each_s)
            yield LLMTextFrame(str(token), utterance=frame.utterance)
            if isinstance(token, Broken):
                raise RuntimeError("the stream broke off")
        self.ended[frame.utterance] = self.session.time()
        yield LLMEnded(utterance=frame.utterance)


@dataclass(frozen=True, slots=True)
class Request:
    """What the voice was asked to speak, and when."""

    text: str
    utterance: int
    at: float


class StrictTTS(ScriptedTTS):
    """Answers 400 to a text without a letter or digit, as several services do, and to one that is too long. ``silent``: without sound."""

    longest = 1000

    def __init__(self, *, silent: bool = False) -> None:
        super().__init__()
        self.silent = silent
        self.requests: list[Request] = []
        self.ended: dict[int, float] = {}

    async def process(self, frame: SentenceFrame | LLMEnded) -> AsyncIterator[OutputAudioFrame | UtteranceEnded]:
        """One request, or the end of an utterance."""
        if isinstance(frame, LLMEnded):
            self.ended[frame.utterance] = self.session.time()
        else:
            self.requests.append(Request(frame.text, frame.utterance, self.session.time()))
            if not any(c.isalnum() for c in frame.text) or len(frame.text) > self.longest:
                raise ValueError(f"400: {frame.text!r} cannot be spoken")
        if not self.silent or isinstance(frame, LLMEnded):
            async for made in super().process(frame):
                yield made


class Errors(Processor):
    """Stands at the top and keeps the errors that come up to it."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def process(self, frame: ErrorFrame) -> None:
        """Keep it."""
        self.seen.append(frame.error)


class TextCall:
    """Context > model > sentences > voice > sink. Leaving the block ends the call, drained."""

    def __init__(
        self,
        replies: Mapping[str, Sequence[str]],
        options: SplitterOptions | None = None,
        filters: Sequence[FilterMaker] = FILTERS,
        *,
        each_s: float = 0.0,
        silent: bool = False,
    ) -> None:
        self.errors, self.context, self.model = Errors(), Context(), TokenLLM(replies, each_s)
        self.voice, self.sink = StrictTTS(silent=silent), RecordingSink()
        pipeline = self.errors >> self.context >> self.model >> Sentences(options, filters) >> self.voice >> self.sink
        self.session = Session(pipeline, inputs=[TurnEnded, SayFrame, EndFrame])

    async def __aenter__(self) -> Self:
        await self.session.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.session.__aexit__(*error)

    async def ask(self, text: str, wait_s: float = 5.0) -> None:
        """The caller's turn, and so long until whatever comes next."""
        self.session.send_nowait(TurnEnded(text=text))
        await asyncio.sleep(wait_s)

    @property
    def texts(self) -> list[str]:
        """What the voice was asked for."""
        return [request.text for request in self.voice.requests]

    @property
    def remembered(self) -> list[str]:
        """The agent's messages in the conversation."""
        return [message.text for message in self.context.conversation.messages if message.role == "assistant"]


async def spoken(
    parts: Sequence[str], options: SplitterOptions | None = None, filters: Sequence[FilterMaker] = FILTERS
) -> tuple[list[str], list[str]]:
    """One reply in these tokens, then an ordinary turn, which must be answered: what the voice was asked for, and what is remembered."""
    async with TextCall({"go on": parts, "ping": ["pong it is."]}, options, filters) as call:
        await call.ask("go on", 30.0)
        await call.ask("ping")
    assert call.texts[-1] == "pong it is."
    assert call.sink.words()[-3:] == ["pong", "it", "is."]
    assert call.errors.seen == []
    assert call.remembered[-1].endswith("pong it is.")
    return call.texts[:-1], call.remembered
