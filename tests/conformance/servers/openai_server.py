"""A server of OpenAI's chat completions, as the vendor describes them, that follows a script.

It is strict: what the vendor would refuse it answers with 400, and the vendor's own client package reads what it says.
https://platform.openai.com/docs/api-reference/chat
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from aiohttp import web

from tests.conformance.servers.stream_server import Cut, Pause, Reply, Silence, Step, StreamServer

__all__ = ["KEY", "Cut", "OpenAIServer", "Pause", "Reply", "Silence", "call", "calls", "chunk", "request_fault", "usage", "words"]

KEY = "sk-test-1234567890abcdefghij"


def chunk(delta: Mapping[str, Any] | None = None, *, finish: str | None = None, **more: Any) -> dict[str, Any]:
    """One chunk with one choice."""
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1_700_000_000,
        "model": "test",
        "choices": [{"index": 0, "delta": dict(delta or {}), "logprobs": None, "finish_reason": finish}],
        **more,
    }


def usage(prompt: int = 11, completion: int = 7) -> dict[str, Any]:
    """The chunk that tells the tokens."""
    counts = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
    return chunk(usage=counts) | {"choices": []}


def words(text: str, *, each_s: float = 0.0) -> Reply:
    """A reply of text, a word in each chunk."""
    parts = [word + " " for word in text.split(" ")]
    parts[-1] = parts[-1][:-1]
    steps: list[Step] = [chunk({"role": "assistant", "content": ""})]
    for part in parts:
        steps += [chunk({"content": part}), Pause(each_s)] if each_s else [chunk({"content": part})]
    return Reply([*steps, chunk(finish="stop"), usage()])


def call(index: int, *, id: str | None = None, name: str | None = None, arguments: str | None = None) -> dict[str, Any]:
    """The delta of one call of a tool."""
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    head = {"id": id, "type": "function"} if id is not None else {}
    return {"tool_calls": [{"index": index, **head, "function": function}]}


def calls(*deltas: Mapping[str, Any], finish: str = "tool_calls") -> Reply:
    """A reply of those deltas."""
    return Reply([chunk({"role": "assistant", "content": None}), *(chunk(delta) for delta in deltas), chunk(finish=finish), usage()])


class OpenAIServer(StreamServer):
    """``async with OpenAIServer(script) as server: ... server.url``."""

    path = "/v1/chat/completions"

    def __init__(self, script: Callable[[dict[str, Any]], Reply] | Iterable[Reply], *, key: str | None = KEY) -> None:
        super().__init__(script, key=key)

    @property
    def url(self) -> str:
        """Its base URL."""
        return f"{self.origin}/v1"

    def refusal(self, headers: Mapping[str, str], body: dict[str, Any]) -> web.Response | None:
        """See StreamServer."""
        if self.key is not None and headers.get("Authorization") != f"Bearer {self.key}":
            given = headers.get("Authorization", "")
            return _refused(401, f"Incorrect API key provided: {given}", "invalid_request_error", "invalid_api_key")
        if fault := request_fault(body):
            return _refused(400, fault, "invalid_request_error", None)
        return None

    def encode(self, step: dict[str, Any]) -> bytes:
        """See StreamServer."""
        return f"data: {json.dumps(step)}\n\n".encode()

    def last(self) -> bytes:
        """See StreamServer."""
        return b"data: [DONE]\n\n"


def _refused(status: int, message: str, kind: str, code: str | None) -> web.Response:
    return web.json_response({"error": {"message": message, "type": kind, "param": None, "code": code}}, status=status)


def request_fault(body: Mapping[str, Any]) -> str:
    """Why the vendor would refuse this request, or "". Written down from its description, not from the code under test."""
    if not isinstance(body.get("model"), str) or not isinstance(body.get("messages"), list) or not body["messages"]:
        return "you must provide a model and messages"
    allowed = {
        "model",
        "messages",
        "stream",
        "stream_options",
        "tools",
        "tool_choice",
        "parallel_tool_calls",
        "temperature",
        "top_p",
        "max_tokens",
    }
    allowed |= {"max_completion_tokens", "response_format", "seed", "stop"}
    if unknown := sorted(set(body) - allowed):
        return f"unrecognized request arguments: {unknown}"
    if not body.get("tools") and ("tool_choice" in body or "parallel_tool_calls" in body):
        return "tool_choice is only allowed when tools are specified"
    open_calls: list[str] = []
    for number, message in enumerate(body["messages"]):
        where = f"messages[{number}]"
        role, content = message.get("role"), message.get("content")
        if role == "tool":
            if message.get("tool_call_id") not in open_calls or not isinstance(content, str):
                return f"{where}: a tool message must answer a preceding tool call"
            open_calls.remove(message["tool_call_id"])
            continue
        if open_calls:
            return f"{where}: tool_call_ids without a response: {open_calls}"
        if role not in ("system", "user", "assistant"):
            return f"{where}: role {role!r}"
        open_calls = [made["id"] for made in message.get("tool_calls", [])]
        for made in message.get("tool_calls", []):
            if made.get("type") != "function" or not isinstance(json.loads(made["function"]["arguments"]), dict):
                return f"{where}: a tool call is not well formed"
        if content is None and not open_calls:
            return f"{where}: content is null"
        for part in content if isinstance(content, list) else ():
            if part.get("type") not in ("text", "image_url", "input_audio") or part["type"] not in part:
                return f"{where}: part {part}"
    return f"tool_call_ids without a response: {open_calls}" if open_calls else ""
