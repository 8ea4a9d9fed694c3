"""Calls of tools that a model writes as text: because it was told to (constrained output), or because its server does not know them as calls.

The one rule: JSON is never spoken. A reply that begins like a written call is held back until it is whole; text in a
constrained reply is handed on as its characters come.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from voiceflow.messages import Message, ToolSpec

__all__ = ["LooseCalls", "ReplyObject", "reply_schema", "with_written_calls"]

_MARK = re.compile(r"<tool_call>|</tool_call>|\[TOOL_CALLS\]|<\|python_tag\|>|```(?:json|tool_call|tool_code)?|[;,\[\]]")
_OPENINGS = ("{", "<tool_call>", "[TOOL_CALLS]", "<|python_tag|>", "```", "[{")
_NAMES, _ARGUMENTS = ("call", "name", "function", "tool"), ("arguments", "parameters", "args")

Call = tuple[str, str]
"""Name and arguments, a JSON object."""


class LooseCalls:
    """A reply that may turn out to be nothing but calls, as JSON: bare, fenced, or in the marks of a chat template.

    ``known``: only an object that names one of these is a call; any other text is handed on, at the end at the latest.
    """

    def __init__(self, known: Collection[str]) -> None:
        self._known = known
        self._held = ""
        self._is_text = not known

    def feed(self, text: str) -> str:
        """What of the reply can be spoken now."""
        if self._is_text:
            return text
        self._held += text
        begun = self._held.lstrip()
        if any(begun.startswith(opening) or opening.startswith(begun) for opening in _OPENINGS):
            return ""
        self._is_text, held, self._held = True, self._held, ""
        return held

    def close(self) -> tuple[str, list[Call]]:
        """What is left to speak, and the calls."""
        held, self._held = self._held, ""
        calls = _written(held, self._known)
        return ("", calls) if calls else (held, [])


def _written(text: str, known: Collection[str]) -> list[Call]:
    """The calls in a text of nothing else, or none."""
    decoder, at = json.JSONDecoder(), 0
    calls: list[Call] = []
    while at < len(text):
        if text[at].isspace():
            at += 1
        elif mark := _MARK.match(text, at):
            at = mark.end()
        else:
            try:
                value, at = decoder.raw_decode(text, at)
            except (ValueError, RecursionError):
                return []
            call = _call(value)
            if call is None or call[0] not in known:
                return []
            calls.append(call)
    return calls


def _call(value: Any) -> Call | None:
    if not isinstance(value, dict):
        return None
    inner = value.get("function")
    if isinstance(inner, dict):
        value = inner
    name = next((value[key] for key in _NAMES if isinstance(value.get(key), str)), None)
    arguments: Any = next((value[key] for key in _ARGUMENTS if key in value), {})
    if name is None:
        return None
    return name, arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)


# ------------------------------------------------------------------------------------------- constrained output


def reply_schema(tools: Sequence[ToolSpec]) -> dict[str, Any]:
    """The JSON schema of a reply: ``{"say": ...}``, or ``{"call": <a tool>, "arguments": <what it takes>}``."""
    shapes = [_closed({"say": {"type": "string"}})]
    definitions: dict[str, Any] = {}
    for spec in tools:
        # References count from the top of a schema, so the definitions go there, each under its tool's name.
        taken = json.loads(spec.parameters.replace('"#/$defs/', f'"#/$defs/{spec.name}.'))
        definitions |= {f"{spec.name}.{name}": inner for name, inner in taken.pop("$defs", {}).items()}
        shapes.append(_closed({"call": {"const": spec.name}, "arguments": taken}))
    return {"anyOf": shapes} | ({"$defs": definitions} if definitions else {})


def _closed(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def with_written_calls(messages: Sequence[Message], tools: Sequence[ToolSpec]) -> list[Message]:
    """A conversation for a model that writes its calls: told how, and shown its own earlier replies in that form."""
    told = 'Answer with a JSON object: {"say": "your words"}.'
    if tools:
        told += ' To use a tool answer {"call": "its name", "arguments": {...}} instead. Tools:'
        told += "".join(f"\n{spec.name}: {spec.description} {spec.parameters}" for spec in tools)
    names = {call.id: call.name for message in messages for call in message.calls}
    written: list[Message] = []
    for message in messages:
        if message.role == "assistant":
            parts = [json.dumps({"say": message.text}, ensure_ascii=False)] if message.text else []
            parts += [f'{{"call": {json.dumps(call.name)}, "arguments": {call.arguments}}}' for call in message.calls]
            written.append(Message("assistant", "\n".join(parts)))
            continue
        is_result = message.role == "tool"
        text = f"{names.get(message.call_id, 'The tool')} says: {message.text}" if is_result else message.text
        if is_result and written and written[-1].role == "user":
            written[-1] = Message("user", f"{written[-1].text}\n{text}")
        else:
            written.append(Message("user" if is_result else message.role, text, media=message.media))
    if written and written[0].role == "system":
        return [Message("system", f"{written[0].text}\n{told}"), *written[1:]]
    return [Message("system", told), *written]


class ReplyObject:
    """A reply of that schema as it comes. Its words are there as they are written, its calls at the end."""

    _SAYS = re.compile(r'\s*\{\s*"say"\s*:\s*"')
    _WHOLE = re.compile(r'(?:[^"\\]|\\u[0-9a-fA-F]{4}|\\[^u])*')

    def __init__(self) -> None:
        self._text = ""
        self._at: int | None = None  # in the words
        self._said = False

    def feed(self, text: str) -> str:
        """What of the reply can be spoken now."""
        self._text += text
        if self._said:
            return ""
        if self._at is None:
            begun = self._SAYS.match(self._text)
            if begun is None:
                return ""
            self._at = begun.end()
        found = self._WHOLE.match(self._text, self._at)
        end = found.end() if found else self._at
        self._said = self._text[end : end + 1] == '"'
        piece = self._text[self._at : end]
        if not self._said and (half := re.search(r"\\u[dD][89abAB][0-9a-fA-F]{2}$", piece)):  # the other half is to come
            end -= len(half[0])
            piece = piece[: half.start()]
        self._at = end
        return self._decoded(piece)

    @staticmethod
    def _decoded(piece: str) -> str:
        try:
            said: str = json.loads(f'"{piece}"', strict=False)
        except ValueError:  # an escape that JSON does not have
            said = piece
        return said.encode("utf-16", "surrogatepass").decode("utf-16", "replace")

    def close(self) -> tuple[str, list[Call]]:
        """What is left to speak, and the calls. A reply that is no such object is spoken as it is."""
        calls = list(self._calls())
        is_object = self._text.lstrip().startswith("{")  # spoken already, or cut off, or of another shape
        return ("" if calls or is_object else self._text), calls

    def _calls(self) -> Iterator[Call]:
        decoder, at = json.JSONDecoder(), 0
        while at < len(self._text):
            if self._text[at].isspace():
                at += 1
                continue
            try:
                value, at = decoder.raw_decode(self._text, at)
            except (ValueError, RecursionError):
                return
            if call := _call(value):
                yield call
