"""The answer of ``POST /chat/completions`` with ``stream: true``, of OpenAI and of servers that mean to speak the same.

The one rule: bytes in, what they say out, once each: text as it comes, calls and usage when the reply is complete.
https://platform.openai.com/docs/api-reference/chat-streaming
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from voiceflow.messages import ToolCall
from voiceflow.processors.services.reply import Reasoning, ReplyCall, ReplyEnd, ReplyEvent, ReplyText, ReplyUsage, why_broken
from voiceflow.processors.services.retry import ServiceError, Verdict, named
from voiceflow.processors.services.sse import EventStream, ServerEvent
from voiceflow.processors.services.tool_deltas import ToolDeltas, mended_arguments
from voiceflow.processors.services.written_calls import LooseCalls, ReplyObject

__all__ = ["ChatStream"]

log = logging.getLogger("voiceflow")


_EMPTY = {
    "length": "all its tokens went into reasoning, or max_tokens is too small",
    "content_filter": "the server's filter took it away",
}


class ChatStream:
    """One answer. ``known``: the names of the tools that were offered. ``written``: calls are written as text by a schema.

    ``fresh_id`` gives an id for a call that has none of its own.
    """

    def __init__(self, known: Collection[str], fresh_id: Callable[[], str], *, written: bool = False) -> None:
        self.finish: str | None = None
        """Why the model stopped, once it has."""
        self.told = 0
        """So many deltas had something in them: grows as long as the model writes."""
        self.is_done = False
        """The server has said that nothing follows."""
        self._known = known
        self._fresh_id = fresh_id
        self._events = EventStream()
        self._deltas = ToolDeltas()
        self._text = ReplyObject() if written else LooseCalls(known)
        self._usage: ReplyUsage | None = None
        self._is_understood = False
        self._has_text = False

    def feed(self, chunk: bytes) -> list[ReplyEvent]:
        """What these bytes say. Raises ServiceError if they tell of an error."""
        return [said for event in self._events.feed(chunk) for said in self._event(event)]

    def close(self) -> list[ReplyEvent]:
        """The answer is over: its calls, unless it was cut off, its usage, its end."""
        found = [said for event in self._events.close() for said in self._event(event)]
        left, written = self._text.close()
        found += self._said(left)
        error = why_broken(
            has_come=self._events.has_come,
            is_understood=self._is_understood,
            has_ended=self.finish is not None or self.is_done,
            piece="chunk of a chat completion",
        )
        if error is None:
            calls = [*self._deltas.calls(self._known, self._fresh_id)]
            calls += [ToolCall(self._fresh_id(), name, mended_arguments([arguments])) for name, arguments in written]
            found += [ReplyCall(call) for call in calls]
            if not calls and not self._has_text and (why := _EMPTY.get(self.finish or "")):
                error = ServiceError(f"the model's reply is empty: {why}")
        if self._usage is not None:
            found.append(self._usage)
        return [*found, ReplyEnd(self.finish or "", error)]

    def _said(self, text: str) -> list[ReplyText]:
        self._has_text = self._has_text or bool(text.strip())
        return [ReplyText(text)] if text else []

    def _event(self, event: ServerEvent) -> Iterator[ReplyEvent]:
        if self.is_done:
            return
        for value in _values(event):
            if value is None:
                self.is_done = True
                return
            yield from self._chunk(value)

    def _chunk(self, chunk: Mapping[str, Any]) -> Iterator[ReplyEvent]:
        if error := chunk.get("error"):
            raise _told_error(error)
        self._is_understood = True
        self._read_usage(chunk)
        choices = chunk.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            if isinstance(choice, Mapping) and not choice.get("index"):  # of several answers the first
                yield from self._choice(choice)

    def _choice(self, choice: Mapping[str, Any]) -> Iterator[ReplyEvent]:
        delta = choice.get("delta") or choice.get("message")  # the latter of a server that does not stream
        if isinstance(delta, Mapping):
            self.told += any(value for key, value in delta.items() if key != "role")
            for key in ("reasoning_content", "reasoning"):
                if isinstance(text := delta.get(key), str) and text:
                    yield Reasoning(text)
                    break
            for text, is_reasoning in _texts(delta.get("content")):
                if is_reasoning:
                    yield Reasoning(text)
                else:
                    yield from self._said(self._text.feed(text))
            if isinstance(refusal := delta.get("refusal"), str) and refusal:
                yield from self._said(refusal)
            if delta.get("tool_calls"):
                self._deltas.take(delta["tool_calls"])
            if isinstance(old := delta.get("function_call"), Mapping):  # before there were several calls in a reply
                self._deltas.piece("function_call", None, old.get("name"), old.get("arguments"))
        if isinstance(reason := choice.get("finish_reason"), str) and reason:
            self.finish = reason

    def _read_usage(self, chunk: Mapping[str, Any]) -> None:
        """The last that is told counts: some servers tell it in each chunk, growing."""
        for holder in (chunk, chunk.get("x_groq")):
            usage = holder.get("usage") if isinstance(holder, Mapping) else None
            if isinstance(usage, Mapping):
                counts = [usage.get(key) for key in ("prompt_tokens", "completion_tokens")]
                self._usage = ReplyUsage(*(count if isinstance(count, int) and count >= 0 else 0 for count in counts))


def _values(event: ServerEvent) -> Iterator[Mapping[str, Any] | None]:
    """The chunks in an event, which should be one; None for the end of the stream. Broken ones are passed over."""
    lines = [event.data] if _json(event.data) is not None else event.data.split("\n")
    for line in lines:
        if line.strip() == "[DONE]":
            yield None
            continue
        value = _json(line)
        if isinstance(value, Mapping):
            yield {"error": value.get("error", value)} if event.name == "error" else value
        elif event.name == "error":
            yield {"error": line}
        elif line.strip():
            log.warning("a broken chunk of %d characters in a language model's answer was passed over", len(line))


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _texts(content: object) -> Iterator[tuple[str, bool]]:
    """The texts of a content, a string or a list of parts, and whether each is reasoning."""
    for part in content if isinstance(content, list) else [content]:
        if isinstance(part, str) and part:
            yield part, False
        elif isinstance(part, Mapping):
            text = part.get("text") or part.get("thinking")
            for inner, _ in _texts(text):
                yield inner, part.get("type") not in ("text", "output_text")


def _told_error(error: object) -> ServiceError:
    """An error in the middle of a stream. Its own words may quote anything, and are not told."""
    told = [str(error.get(key)) for key in ("code", "type") if error.get(key)] if isinstance(error, Mapping) else []
    return ServiceError(f"the server reported an error in the middle of the reply{named(told)}", verdict=Verdict.LATER)
