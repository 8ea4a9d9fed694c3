"""The body of ``POST /chat/completions``: OpenAI's, which vLLM, llama.cpp, Ollama and many more take as well.

The one rule: what a server may not know is not sent unless it was asked for.
https://platform.openai.com/docs/api-reference/chat/create
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from voiceflow.messages import AudioClip, Image, Message, ToolSpec
from voiceflow.processors.services.written_calls import reply_schema, with_written_calls

__all__ = ["ChatOptions", "chat_body"]


@dataclass(frozen=True, slots=True)
class ChatOptions:
    """What a model is asked for."""

    model: str
    system: str = ""
    """Put before a conversation that has no system message."""
    examples: tuple[Message, ...] = ()
    """Exchanges shown to the model as if they had come before the conversation. They teach a small model more than words do."""
    max_tokens: int | None = None
    max_tokens_name: Literal["max_tokens", "max_completion_tokens"] | None = None
    """What the server calls it. None: the latter at OpenAI itself, whose new models refuse the former; else the former, which all others know."""
    temperature: float | None = None
    tool_choice: Literal["auto", "none", "required"] | None = None
    parallel_calls: bool | None = None
    """Whether the model may call several tools in one reply. None: as the server has it."""
    tool_calls: Literal["native", "constrained"] = "native"
    """``constrained``: the server holds the model to a JSON schema of words or a call (``response_format``), for models that
    call no tools by themselves. Words are streamed all the same."""
    sees: bool = True
    """False: images are put to the model as the text of their ``alt``."""
    usage: bool = True
    """Ask for the tokens used (``stream_options``)."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """More fields of the request: ``{"seed": 1}``, ``{"chat_template_kwargs": {...}}``, ``{"reasoning_effort": "low"}``."""

    def __post_init__(self) -> None:
        if not self.model:
            raise ValueError("ChatOptions: model is empty; name one that the server has, like gpt-4.1-mini")
        if self.max_tokens is not None and self.max_tokens < 1:
            raise ValueError(f"ChatOptions: max_tokens is {self.max_tokens}; it must be 1 or more, or None for the server's own limit")
        if self.tool_calls not in ("native", "constrained"):
            raise ValueError(f"ChatOptions: tool_calls is {self.tool_calls!r}; it must be 'native' or 'constrained'")
        if taken := sorted({"messages", "model", "stream", "tools", "n"} & set(self.extra)):
            raise ValueError(f"ChatOptions: extra has {', '.join(taken)}, which the node sets itself")


def chat_body(options: ChatOptions, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> dict[str, Any]:
    """The request as it is encoded to JSON."""
    is_written = options.tool_calls == "constrained" and bool(tools)
    shown = _with_examples(options, messages)
    if is_written:
        shown = with_written_calls(shown, tools)
    body: dict[str, Any] = {"model": options.model, "messages": [_message(message, options) for message in shown], "stream": True}
    if options.usage:
        body["stream_options"] = {"include_usage": True}
    if options.max_tokens is not None:
        body[options.max_tokens_name or "max_tokens"] = options.max_tokens
    if options.temperature is not None:
        body["temperature"] = options.temperature
    if is_written:
        schema = {"name": "reply", "strict": True, "schema": reply_schema(tools)}
        body["response_format"] = {"type": "json_schema", "json_schema": schema}
    elif tools:
        body["tools"] = [_tool(spec) for spec in tools]
        if options.tool_choice is not None:
            body["tool_choice"] = options.tool_choice
        if options.parallel_calls is not None:
            body["parallel_tool_calls"] = options.parallel_calls
    return {**body, **options.extra}


def _with_examples(options: ChatOptions, messages: Sequence[Message]) -> list[Message]:
    """One system message at the most, and in front: some chat templates take no other."""
    system = "\n".join(message.text for message in messages if message.role == "system") or options.system
    rest = [message for message in messages if message.role != "system"]
    return [*([Message("system", system)] if system else []), *options.examples, *rest]


def _tool(spec: ToolSpec) -> dict[str, Any]:
    function = {"name": spec.name, "description": spec.description, "parameters": json.loads(spec.parameters)}
    return {"type": "function", "function": function}


def _message(message: Message, options: ChatOptions) -> dict[str, Any]:
    if message.role == "tool":
        return {"role": "tool", "tool_call_id": message.call_id, "content": message.text}
    if message.calls:
        calls = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}} for call in message.calls
        ]
        return {"role": "assistant", "content": message.text or None, "tool_calls": calls}
    if not message.media:
        return {"role": message.role, "content": message.text}
    parts = [_part(item, options) for item in message.media]
    if message.text:
        parts.insert(0, _text(message.text))
    if all(part["type"] == "text" for part in parts):  # a plain text is understood by all
        return {"role": message.role, "content": "\n".join(part["text"] for part in parts)}
    return {"role": message.role, "content": parts}


def _part(item: Image | AudioClip, options: ChatOptions) -> dict[str, Any]:
    if isinstance(item, Image):
        if options.sees:
            return {"type": "image_url", "image_url": {"url": item.url}}
        return _text(f"[an image: {item.alt}]" if item.alt else "[an image]")
    sound = re.fullmatch(r"data:audio/(?:x-)?(wav|mp3|mpeg);base64,(.+)", item.url, re.DOTALL)
    if sound is None:  # a reference, which a server cannot follow
        return _text(f"[a sound of {item.seconds:.0f} s]")
    return {"type": "input_audio", "input_audio": {"data": sound[2], "format": "wav" if sound[1] == "wav" else "mp3"}}


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}
