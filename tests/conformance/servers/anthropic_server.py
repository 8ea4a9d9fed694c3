"""A server of Anthropic's Messages API, as the vendor describes it, that follows a script.

It is strict: what the vendor would refuse it answers with 400, and the vendor's own client package reads what it says.
https://docs.anthropic.com/en/api/messages
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from aiohttp import web

from tests.conformance.servers.stream_server import Cut, Pause, Reply, Silence, Step, StreamServer

__all__ = [
    "KEY",
    "AnthropicServer",
    "Cut",
    "Pause",
    "Reply",
    "Silence",
    "begin",
    "call",
    "end",
    "reply",
    "request_fault",
    "text",
    "thought",
    "words",
]

KEY = "sk-ant-test-1234567890abcdefghij"


def begin(tokens: int = 11) -> dict[str, Any]:
    """The event that begins a message."""
    usage = {"input_tokens": tokens - 4, "cache_creation_input_tokens": 1, "cache_read_input_tokens": 3, "output_tokens": 1}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "test", "content": [], "stop_reason": None}
    return {"type": "message_start", "message": {**message, "stop_sequence": None, "usage": usage}}


def text(index: int, *pieces: str) -> list[dict[str, Any]]:
    """A block of text."""
    return _block(index, {"type": "text", "text": ""}, [{"type": "text_delta", "text": piece} for piece in pieces])


def thought(index: int, *pieces: str) -> list[dict[str, Any]]:
    """A block of thinking, with its signature."""
    deltas = [{"type": "thinking_delta", "thinking": piece} for piece in pieces]
    return _block(index, {"type": "thinking", "thinking": "", "signature": ""}, [*deltas, {"type": "signature_delta", "signature": "c2ln"}])


def call(index: int, id: str, name: str, *pieces: str, given: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
    """A block that calls a tool."""
    deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
    return _block(index, {"type": "tool_use", "id": id, "name": name, "input": dict(given or {})}, deltas)


def _block(index: int, block: Mapping[str, Any], deltas: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    events = [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
    return [
        {"type": "content_block_start", "index": index, "content_block": block},
        *events,
        {"type": "content_block_stop", "index": index},
    ]


def end(reason: str = "end_turn", tokens: int = 7) -> list[dict[str, Any]]:
    """The events that end a message."""
    delta = {"stop_reason": reason, "stop_sequence": None}
    return [{"type": "message_delta", "delta": delta, "usage": {"output_tokens": tokens}}, {"type": "message_stop"}]


def reply(*blocks: list[dict[str, Any]], reason: str = "end_turn") -> Reply:
    """A whole answer of those blocks."""
    return Reply([begin(), {"type": "ping"}, *(event for block in blocks for event in block), *end(reason)])


def words(said: str, *, each_s: float = 0.0) -> Reply:
    """A reply of text, a word in each event."""
    parts = [word + " " for word in said.split(" ")]
    parts[-1] = parts[-1][:-1]
    first, *deltas, last = text(0, *parts)
    steps: list[Step] = [begin(), first]
    for delta in deltas:
        steps += [delta, Pause(each_s)] if each_s else [delta]
    return Reply([*steps, last, *end()])


class AnthropicServer(StreamServer):
    """``async with AnthropicServer(script) as server: ... server.origin``. ``script``: gives the n-th request's reply."""

    path = "/v1/messages"

    def __init__(self, script: Callable[[dict[str, Any]], Reply] | Iterable[Reply], *, key: str | None = KEY) -> None:
        super().__init__(script, key=key)

    def refusal(self, headers: Mapping[str, str], body: dict[str, Any]) -> web.Response | None:
        """See StreamServer. Either generation of headers will do, but not a mixture of them."""
        version, old, new = headers.get("anthropic-version"), headers.get("x-api-key"), headers.get("Authorization")
        if version not in ("2023-06-01", "2026-10-21"):
            return _refused(400, f"anthropic-version: {version!r} is not a valid version", "invalid_request_error")
        if (old if version == "2023-06-01" else new) != (self.key if version == "2023-06-01" else f"Bearer {self.key}"):
            return _refused(401, f"invalid key {old} {new}", "authentication_error")
        if fault := request_fault(body):
            return _refused(400, fault, "invalid_request_error")
        return None

    def encode(self, step: dict[str, Any]) -> bytes:
        """See StreamServer."""
        return f"event: {step['type']}\ndata: {json.dumps(step)}\n\n".encode()


def _refused(status: int, message: str, kind: str) -> web.Response:
    return web.json_response({"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"}, status=status)


ALLOWED = {"model", "max_tokens", "messages", "system", "tools", "tool_choice", "stream", "temperature", "top_p", "top_k"}
ALLOWED |= {"stop_sequences", "metadata", "thinking", "service_tier", "output_config"}


def request_fault(body: Mapping[str, Any]) -> str:
    """Why the vendor would refuse this request, or "". Written down from its description, not from the code under test."""
    if not isinstance(body.get("model"), str) or not isinstance(body.get("max_tokens"), int) or body["max_tokens"] < 1:
        return "model and max_tokens are required"
    if unknown := sorted(set(body) - ALLOWED):
        return f"{unknown[0]}: Extra inputs are not permitted"
    if "tool_choice" in body and not body.get("tools"):
        return "tool_choice may only be specified while providing tools"
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        return "messages: at least one message is required"
    open_calls: list[str] = []
    for number, message in enumerate(messages):
        where, role = f"messages.{number}", message.get("role")
        if role != ("user" if number % 2 == 0 else "assistant"):
            return f"{where}: roles must alternate between user and assistant, beginning with user"
        content = message.get("content")
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        if not isinstance(blocks, list) or not blocks:
            return f"{where}: content must be non-empty"
        results = [block.get("tool_use_id") for block in blocks if block.get("type") == "tool_result"]
        if sorted(results) != sorted(open_calls):
            return f"{where}: tool_use ids {open_calls} need one tool_result each in the next message, and it has {results}"
        if [block["type"] == "tool_result" for block in blocks] != sorted((b["type"] == "tool_result" for b in blocks), reverse=True):
            return f"{where}: tool_result blocks must come first"
        for block in blocks:
            if fault := _block_fault(block, role):
                return f"{where}: {fault}"
        open_calls = [block["id"] for block in blocks if block["type"] == "tool_use"]
    if messages[-1]["role"] == "assistant":
        return "the conversation must end with a user message"
    return ""


def _block_fault(block: Mapping[str, Any], role: str) -> str:
    kind = block.get("type")
    if kind == "text":
        good = isinstance(block.get("text"), str) and bool(block["text"].strip())
    elif kind == "image":
        source = block.get("source", {})
        good = role == "user" and (
            source.get("type") == "url" or (source.get("type") == "base64" and {"media_type", "data"} <= set(source))
        )
    elif kind == "tool_use":
        good = role == "assistant" and isinstance(block.get("input"), dict) and bool(re.fullmatch(r"[A-Za-z0-9_-]+", block.get("id", "")))
    elif kind == "tool_result":
        good = role == "user" and isinstance(block.get("content"), str | list)
    else:
        good = False
    return "" if good else f"a block of type {kind} is not well formed: {block}"
