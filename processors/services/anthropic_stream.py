"""The answer of ``POST /v1/messages`` with ``stream: true``.

The one rule: bytes in, what they say out, once each: text as it comes, calls and usage when the reply is complete. Thinking is kept
apart from what is said. https://docs.anthropic.com/en/api/messages-streaming
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from voiceflow.messages import ToolCall
from voiceflow.processors.services.reply import Reasoning, ReplyCall, ReplyEnd, ReplyEvent, ReplyText, ReplyUsage, why_broken
from voiceflow.processors.services.retry import ServiceError, Verdict, named
from voiceflow.processors.services.sse import EventStream, ServerEvent
from voiceflow.processors.services.tool_deltas import mended_arguments

__all__ = ["MessagesStream"]

log = logging.getLogger("voiceflow")

PASSING = {"overloaded_error", "api_error", "timeout_error", "rate_limit_error"}
"""Errors that may be gone a moment later."""


@dataclass(slots=True)
class _Call:
    id: str
    name: str
    given: str = ""
    """Arguments that came whole, with the block's start."""
    pieces: list[str] = field(default_factory=list)


class MessagesStream:
    """One answer. ``fresh_id`` gives an id for a call that has none of its own. See ReplyStream."""

    def __init__(self, fresh_id: Callable[[], str]) -> None:
        self.finish: str | None = None
        self.told = 0
        self.is_done = False
        self._fresh_id = fresh_id
        self._events = EventStream()
        self._calls: list[_Call] = []
        self._open: dict[object, _Call | None] = {}
        """By index: the call that is being written, or None for a block of text or thinking."""
        self._prompt: int | None = None
        self._completion = 0
        self._is_understood = False
        self._has_text = False

    def feed(self, chunk: bytes) -> list[ReplyEvent]:
        """See ReplyStream."""
        return [said for event in self._events.feed(chunk) for said in self._event(event)]

    def close(self) -> list[ReplyEvent]:
        """See ReplyStream."""
        found = [said for event in self._events.close() for said in self._event(event)]
        error = why_broken(
            has_come=self._events.has_come,
            is_understood=self._is_understood,
            has_ended=self.finish is not None or self.is_done,
            piece="event of a message",
        )
        if error is None:
            found += [ReplyCall(self._whole(call)) for call in self._calls]
            if not self._calls and not self._has_text and self.finish in ("max_tokens", "refusal"):
                why = "the model refused" if self.finish == "refusal" else "all its tokens went into thinking, or max_tokens is too small"
                error = ServiceError(f"the model's reply is empty: {why}")
        if self._prompt is not None:
            found.append(ReplyUsage(self._prompt, self._completion))
        return [*found, ReplyEnd(self.finish or "", error)]

    def _whole(self, call: _Call) -> ToolCall:
        return ToolCall(call.id or self._fresh_id(), call.name, mended_arguments(call.pieces) if any(call.pieces) else call.given or "{}")

    def _event(self, event: ServerEvent) -> Iterator[ReplyEvent]:
        if self.is_done or not event.data.strip():
            return
        try:
            data = json.loads(event.data)
        except (ValueError, RecursionError):
            log.warning("a broken event of %d characters in a language model's answer was passed over", len(event.data))
            return
        if not isinstance(data, Mapping):
            return
        kind = data.get("type", event.name)
        if kind == "error" or event.name == "error":
            raise _told_error(data.get("error", data))
        if kind in ("message_start", "message"):
            yield from self._message(data.get("message", data))
        elif kind == "content_block_start":
            yield from self._block(data.get("index"), data.get("content_block"))
        elif kind == "content_block_delta":
            yield from self._delta(data.get("index"), data.get("delta"))
        elif kind == "content_block_stop":
            self._open.pop(data.get("index"), None)
        elif kind == "message_delta":
            self._ends(data.get("delta"), data.get("usage"))
        elif kind == "message_stop":
            self.is_done = True
        else:
            return  # a ping, or what is not known yet
        self._is_understood = True

    def _message(self, message: object) -> Iterator[ReplyEvent]:
        if not isinstance(message, Mapping):
            return
        content = message.get("content")
        for index, block in enumerate(content if isinstance(content, list) else ()):  # of a service that does not stream
            yield from self._block(index, block)
            self._open.pop(index, None)
        self._ends(message, message.get("usage"))

    def _block(self, index: object, block: object) -> Iterator[ReplyEvent]:
        if not isinstance(block, Mapping):
            return
        kind = block.get("type")
        self._open[index] = None
        if kind == "tool_use":
            given = block.get("input")
            call = _Call(str(block.get("id") or ""), str(block.get("name") or ""), json.dumps(given) if given else "")
            self._calls.append(call)
            self._open[index] = call
            self.told += 1
        elif kind == "text":
            yield from self._said(block.get("text"))
        elif kind == "thinking":
            yield from self._thought(block.get("thinking"))

    def _delta(self, index: object, delta: object) -> Iterator[ReplyEvent]:
        if not isinstance(delta, Mapping):
            return
        kind = delta.get("type")
        if kind == "text_delta":
            yield from self._said(delta.get("text"))
        elif kind == "thinking_delta":
            yield from self._thought(delta.get("thinking"))
        elif kind == "input_json_delta" and isinstance(piece := delta.get("partial_json"), str):
            call = self._open.get(index)
            if call is None and len(writing := [one for one in self._open.values() if one is not None]) == 1:
                call = writing[0]  # an index that fits nothing: there is one call it can be of
            if call is not None:
                call.pieces.append(piece)
                self.told += bool(piece)

    def _said(self, text: object) -> Iterator[ReplyText]:
        if isinstance(text, str) and text:
            self.told += 1
            self._has_text = self._has_text or bool(text.strip())
            yield ReplyText(text)

    def _thought(self, text: object) -> Iterator[Reasoning]:
        if isinstance(text, str) and text:
            self.told += 1
            yield Reasoning(text)

    def _ends(self, delta: object, usage: object) -> None:
        if isinstance(delta, Mapping) and isinstance(reason := delta.get("stop_reason"), str):
            self.finish = reason
        if isinstance(usage, Mapping):  # counts overwrite, they do not add
            asked = [usage.get(name) for name in ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")]
            if isinstance(asked[0], int):
                self._prompt = sum(count for count in asked if isinstance(count, int))
            if isinstance(count := usage.get("output_tokens"), int):
                self._completion = count


def _told_error(error: object) -> ServiceError:
    kind = str(error.get("type") or "") if isinstance(error, Mapping) else ""
    verdict = Verdict.LATER if kind in PASSING else Verdict.NEVER
    return ServiceError(f"the service broke its answer off{named([kind])}", verdict=verdict)
