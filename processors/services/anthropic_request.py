"""The body of ``POST /v1/messages``, Anthropic's Messages API.

The one rule: what is sent is what the strictest version of the API takes: the caller first, the sides in turn, each call of a tool
answered at the head of the very next message, no empty text.
https://docs.anthropic.com/en/api/messages
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from voiceflow.messages import AudioClip, Image, Message, ToolCall, ToolSpec

__all__ = ["MessagesOptions", "messages_body"]

Block = dict[str, Any]


@dataclass(frozen=True, slots=True)
class MessagesOptions:
    """What a model is asked for."""

    model: str
    max_tokens: int = 1024
    """Of one reply; the API wants a limit."""
    system: str = ""
    """Used for a conversation that has no system message."""
    temperature: float | None = None
    tool_choice: Literal["auto", "any", "none"] | None = None
    parallel_calls: bool | None = None
    """False: one tool at a time. None: as the service has it."""
    opening: str = "(The call has begun.)"
    """Stands for the caller where the agent spoke first."""
    going_on: str = "(Go on.)"
    """Stands for the caller where the agent is asked to speak again."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """More fields of the request: ``{"thinking": {...}}``, ``{"metadata": {...}}``, ``{"stop_sequences": [...]}``."""

    def __post_init__(self) -> None:
        if not self.model:
            raise ValueError("MessagesOptions: model is empty; name one that the service has")
        if self.max_tokens < 1:
            raise ValueError(f"MessagesOptions: max_tokens is {self.max_tokens}; it must be 1 or more")
        if not self.opening.strip() or not self.going_on.strip():
            raise ValueError("MessagesOptions: opening and going_on stand for a caller's words, so they cannot be empty")
        if taken := sorted({"messages", "model", "stream", "tools", "system"} & set(self.extra)):
            raise ValueError(f"MessagesOptions: extra has {', '.join(taken)}, which the node sets itself")


def messages_body(options: MessagesOptions, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> dict[str, Any]:
    """The request as it is encoded to JSON."""
    body: dict[str, Any] = {"model": options.model, "max_tokens": options.max_tokens, "stream": True}
    if system := "\n".join(message.text for message in messages if message.role == "system") or options.system:
        body["system"] = system
    body["messages"] = _turns(options, [message for message in messages if message.role != "system"])
    if options.temperature is not None:
        body["temperature"] = options.temperature
    if tools:
        body["tools"] = [
            {"name": spec.name, "description": spec.description, "input_schema": json.loads(spec.parameters)} for spec in tools
        ]
        choice: dict[str, Any] = {"type": options.tool_choice or "auto"}
        if options.parallel_calls is not None and choice["type"] != "none":
            choice["disable_parallel_tool_use"] = not options.parallel_calls
        if options.tool_choice is not None or options.parallel_calls is not None:
            body["tool_choice"] = choice
    return {**body, **options.extra}


def _turns(options: MessagesOptions, messages: Sequence[Message]) -> list[dict[str, Any]]:
    """The sides in turn, each with its blocks."""
    turns: list[dict[str, Any]] = []
    for message in messages:
        role = "assistant" if message.role == "assistant" else "user"
        blocks = _blocks(message)
        if not blocks:
            continue
        if not turns and role == "assistant":
            turns.append({"role": "user", "content": [_text(options.opening)]})
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"] += blocks
        else:
            turns.append({"role": role, "content": blocks})
    if not turns:
        turns.append({"role": "user", "content": [_text(options.opening)]})
    elif turns[-1]["role"] == "assistant":
        turns.append({"role": "user", "content": [_text(options.going_on)]})
    for turn in turns:  # what the agent said before a call stands before it, and the results of calls before what the caller says
        turn["content"].sort(
            key=lambda block: block["type"] == "tool_use" if turn["role"] == "assistant" else block["type"] != "tool_result"
        )
    return turns


def _blocks(message: Message) -> list[Block]:
    if message.role == "tool":
        return [{"type": "tool_result", "tool_use_id": _id(message.call_id), "content": message.text or "(nothing)"}]
    blocks = [_text(message.text)] if message.text.strip() else []
    blocks += [_media(item) for item in message.media]
    return blocks + [_call(call) for call in message.calls]


def _call(call: ToolCall) -> Block:
    try:
        arguments = json.loads(call.arguments)
    except (ValueError, RecursionError):
        arguments = None
    # A call whose arguments are no object had a result that says so; the API takes an object only.
    given = arguments if isinstance(arguments, dict) else {"not_an_object": call.arguments}
    return {"type": "tool_use", "id": _id(call.id), "name": call.name, "input": given}


def _id(text: str) -> str:
    """Letters, digits, - and _ are all that the API takes; other services' ids may hold more."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", text) or "_"


def _media(item: Image | AudioClip) -> Block:
    if isinstance(item, AudioClip):
        return _text(f"[a sound of {item.seconds:.0f} s]")
    if data := re.fullmatch(r"data:(image/[\w.+-]+);base64,(.+)", item.url, re.DOTALL):
        return {"type": "image", "source": {"type": "base64", "media_type": data[1], "data": data[2]}}
    if item.url.startswith("https://"):
        return {"type": "image", "source": {"type": "url", "url": item.url}}
    return _text(f"[an image: {item.alt}]" if item.alt else "[an image]")


def _text(text: str) -> Block:
    return {"type": "text", "text": text.rstrip()}
