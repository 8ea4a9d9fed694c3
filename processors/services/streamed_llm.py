"""What language models over HTTP share: the request, its deadlines, asking again, and the frames that come of an answer.

The one rule: a request is made again only while nothing of its answer has come; what the caller has heard is never said twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import Any

from voiceflow.frames import ContextFrame, LLMEnded, LLMStarted, LLMTextFrame, LLMUsage, ToolCallFrame
from voiceflow.processor import Processor
from voiceflow.processors.services.http import Answer, Deadlines, HttpClient
from voiceflow.processors.services.reply import ReplyCall, ReplyEnd, ReplyEvent, ReplyStream, ReplyText, ReplyUsage
from voiceflow.processors.services.retry import Retries, RetryOptions, ServiceError

__all__ = ["FreshIds", "StreamedLLM"]

log = logging.getLogger("voiceflow")

TAIL_S = 0.5
"""After the model has stopped, the usage and the end of the stream are waited for so long."""


class StreamedLLM(Processor):
    """A model behind one address. A service is a subclass that says how to ask and how to read.

    ``LLMEnded`` follows ``LLMStarted`` exactly once, also after a failure, unless the reply is cancelled. Calls of tools
    come when the reply is complete; reasoning is passed over. Cancelling closes the connection, so that the service stops writing.

    Raises ServiceError, which becomes an ErrorFrame: from start() if there is no key; from process() if the service cannot be
    reached, refuses, stalls or breaks off. It names the status and what to do, and never a key or a body.
    """

    def __init__(self, url: str, deadlines: Deadlines, retries: RetryOptions) -> None:
        self._url = url
        self._deadlines = deadlines
        self._retries = retries
        self._client: HttpClient | None = None
        self._headers: Mapping[str, str] = {}
        self._chance = random.Random()
        self._closed_until = float("-inf")

    def headers(self) -> Mapping[str, str]:
        """Of each request, the key among them. Raises ServiceError if there is none."""
        raise NotImplementedError

    def request(self, frame: ContextFrame) -> tuple[str, Mapping[str, Any]]:
        """Address and body of the request for a reply. Raises ServiceError for a conversation that the service cannot take."""
        raise NotImplementedError

    def stream(self, frame: ContextFrame) -> ReplyStream:
        """What will read its answer."""
        raise NotImplementedError

    async def start(self) -> None:
        """Find the key and begin to connect, so that the first reply does not wait for it."""
        self._headers = self.headers()
        self._client = await HttpClient(self.session, self._url, self._deadlines).__aenter__()
        self.session.spawn(self._client.warm(), f"{self.name}/warm")

    async def stop(self) -> None:
        """Close the connections, if nobody else in the session uses them."""
        if self._client is not None:
            await self._client.__aexit__()
            self._client = None

    async def process(self, frame: ContextFrame) -> AsyncIterator[LLMStarted | LLMTextFrame | ToolCallFrame | LLMUsage | LLMEnded]:
        """The reply to a conversation."""
        utterance, failure = frame.utterance, None
        yield LLMStarted(utterance=utterance)
        try:
            async with contextlib.aclosing(self._reply(frame)) as events:
                async for event in events:
                    if isinstance(event, ReplyText):
                        yield LLMTextFrame(event.text, utterance=utterance)
                    elif isinstance(event, ReplyCall):
                        yield ToolCallFrame(call=event.call, utterance=utterance)
                    elif isinstance(event, ReplyUsage):
                        yield LLMUsage(utterance=utterance, prompt_tokens=event.prompt_tokens, completion_tokens=event.completion_tokens)
                    elif isinstance(event, ReplyEnd):
                        # Also when it is broken: what was written so far is spoken, and the utterance closed.
                        yield LLMEnded(utterance=utterance)
                        failure = event.error
        except ServiceError as error:
            yield LLMEnded(utterance=utterance)
            failure = error
        if failure is not None:
            raise failure

    async def _reply(self, frame: ContextFrame) -> AsyncGenerator[ReplyEvent, None]:
        """The events of the answer, asked for again while nothing of it has come and there is hope."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        retries = Retries(self._retries, self._chance.random)
        await asyncio.sleep(self._closed_for_s(began))
        while True:
            has_begun = False
            try:
                async with contextlib.aclosing(self._ask(frame)) as events:
                    async for event in events:
                        if isinstance(event, ReplyEnd) and event.error is not None and not has_begun:
                            raise event.error
                        has_begun = True
                        yield event
                return
            except ServiceError as error:
                if error.retry_after_s is not None:
                    self._closed_until = loop.time() + error.retry_after_s
                wait_s = None if has_begun else retries.wait_s(error, loop.time() - began)
                if wait_s is None:
                    raise
                log.warning("%s: %s; asked again in %.2f s", self.name, error, wait_s)
            await asyncio.sleep(wait_s)

    def _closed_for_s(self, now: float) -> float:
        """What is left of the time for which the service does not want to be asked, by an earlier turn either."""
        left_s = max(0.0, self._closed_until - now)
        if left_s > self._retries.patience_s:
            raise ServiceError(f"{self._url} asked for a pause, of which {left_s:.0f} s are left; it was not asked")
        return left_s

    async def _ask(self, frame: ContextFrame) -> AsyncGenerator[ReplyEvent, None]:
        """One request, and what its answer says."""
        assert self._client is not None, "the session calls start() before it gives a frame"
        stream = self.stream(frame)
        until = asyncio.get_running_loop().time() + self._deadlines.first_s
        address, body = self.request(frame)
        async with (
            self._client.post(address, body, self._headers, until) as answer,
            contextlib.aclosing(self._read(answer, stream, until)) as events,
        ):
            async for event in events:
                yield event

    async def _read(self, answer: Answer, stream: ReplyStream, until: float) -> AsyncGenerator[ReplyEvent, None]:
        loop, deadlines = asyncio.get_running_loop(), self._deadlines
        left_s, late = until - loop.time(), f"no token came within {deadlines.first_s:g} s"
        prefix = b"data: " if answer.is_json else b""
        while not stream.is_done:
            asked_at, told = loop.time(), stream.told
            try:
                chunk = await answer.read(left_s, late)
            except ServiceError:
                if stream.finish is None:
                    raise
                break
            if not chunk:
                break
            # Only the waiting counts, not what is done with the pieces meanwhile.
            left_s -= loop.time() - asked_at
            for event in stream.feed(prefix + (chunk.replace(b"\n", b" ") if answer.is_json else chunk)):
                yield event
            prefix = b""
            if stream.told != told:
                left_s, late = deadlines.idle_s, f"no token came for {deadlines.idle_s:g} s"
            if stream.finish is not None:
                left_s = min(left_s, TAIL_S)
        for event in stream.close():
            yield event


class FreshIds:
    """Ids for calls without one: nine letters and digits, which the strictest server takes, none of them in the conversation."""

    def __init__(self, frame: ContextFrame) -> None:
        self._taken = {call.id for message in frame.messages for call in message.calls}
        self._number = frame.utterance * 100

    def __call__(self) -> str:
        """The next."""
        while (name := f"c{self._number:08d}"[-9:]) in self._taken:
            self._number += 1
        self._taken.add(name)
        return name
