"""A server of OpenAI's chat completions, as the vendor describes them, that follows a script.

It is strict: what the vendor would refuse it answers with 400, and the vendor's own client package reads what it says.
https://platform.openai.com/docs/api-reference/chat
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from aiohttp import web

KEY = "sk-test-1234567890abcdefghij"


@dataclass(frozen=True, slots=True)
class Pause:
    """Nothing is sent for so long."""

    seconds: float


class Cut:
    """The connection breaks here."""


class Silence:
    """Nothing more is ever sent."""


Step = dict[str, Any] | bytes | Pause | Cut | Silence


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer. ``steps``: chunks (``data:`` lines are made of them), raw bytes, and what happens between them."""

    steps: Sequence[Step] = ()
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Mapping[str, Any] | None = None
    """Of an answer that does not stream."""
    chunk_bytes: int | None = None
    """Send in pieces of this size instead of one piece a step."""
    done: bool = True


@dataclass(slots=True)
class Asked:
    """A request, and what became of it."""

    at: float
    body: dict[str, Any]
    headers: Mapping[str, str]
    peer: object
    sent: int = 0
    """Steps that were sent."""
    left_at: float | None = None
    """When the client closed the connection before the end."""


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


class OpenAIServer:
    """``async with OpenAIServer(script) as server: ... server.url``. ``script``: gives the n-th request's reply."""

    def __init__(self, script: Callable[[dict[str, Any]], Reply] | Iterable[Reply], *, key: str | None = KEY) -> None:
        replies = script if callable(script) else iter(script)
        self._reply: Callable[[dict[str, Any]], Reply] = replies if callable(replies) else lambda body: next(replies)
        self._key = key
        self.asked: list[Asked] = []
        self.url = ""
        self.before_headers_s = 0.0
        """An answer's headers come so long after its request."""
        self._runner: web.AppRunner | None = None

    @property
    def connections(self) -> int:
        """From so many connections requests have come."""
        return len({asked.peer for asked in self.asked})

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_post("/v1/chat/completions", self._complete)
        self._runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        port = self._runner.addresses[0][1]
        self.url = f"http://127.0.0.1:{port}/v1"
        return self

    async def __aexit__(self, *error: object) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        assert request.transport is not None
        peer = request.transport.get_extra_info("peername")
        asked = Asked(asyncio.get_running_loop().time(), body, request.headers.copy(), peer)
        self.asked.append(asked)
        if self._key is not None and request.headers.get("Authorization") != f"Bearer {self._key}":
            given = request.headers.get("Authorization", "")
            return _refused(401, f"Incorrect API key provided: {given}", "invalid_request_error", "invalid_api_key")
        if fault := request_fault(body):
            return _refused(400, fault, "invalid_request_error", None)
        reply = self._reply(body)
        if reply.status != 200 or reply.body is not None:
            return web.json_response(reply.body or {}, status=reply.status, headers=reply.headers)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8", **reply.headers})
        try:
            await asyncio.sleep(self.before_headers_s)
            await response.prepare(request)
            await _send(request, response, reply, asked)
        except (asyncio.CancelledError, ConnectionError):
            asked.left_at = asyncio.get_running_loop().time()
            raise
        return response


async def _send(request: web.Request, response: web.StreamResponse, reply: Reply, asked: Asked) -> None:
    steps: list[Step] = [*reply.steps, *([b"data: [DONE]\n\n"] if reply.done else [])]
    if reply.chunk_bytes is not None:
        whole = b"".join(_bytes(step) for step in steps if isinstance(step, dict | bytes))
        steps = [whole[at : at + reply.chunk_bytes] for at in range(0, len(whole), reply.chunk_bytes)]
    for step in steps:
        if isinstance(step, Pause):
            await asyncio.sleep(step.seconds)
        elif isinstance(step, Cut):
            assert request.transport is not None
            request.transport.abort()
            return
        elif isinstance(step, Silence):
            await asyncio.Event().wait()
        else:
            await response.write(_bytes(step))
            asked.sent += 1
            await asyncio.sleep(0)


def _bytes(step: dict[str, Any] | bytes) -> bytes:
    return step if isinstance(step, bytes) else f"data: {json.dumps(step)}\n\n".encode()


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
