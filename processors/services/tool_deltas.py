"""Calls of tools out of the pieces in which chat-completion servers send them.

The one rule: what a server does wrong in cutting a call up is put right; what cannot be is handed on as it came, and the
model is told by the tool's result. Shapes met in the wild: pieces split anywhere; calls interleaved by index; several
calls all with index 0, or none; ids and names in the first piece only, in every piece, or missing; arguments as an
object, as a placeholder before the true ones, as all that came so far each time, encoded twice, or left out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from voiceflow.messages import ToolCall

__all__ = ["ToolDeltas", "mended_arguments"]


@dataclass(slots=True)
class _Pieces:
    index: object
    id: str = ""
    names: list[str] = field(default_factory=list)
    arguments: list[str] = field(default_factory=list)


class ToolDeltas:
    """Takes the deltas of one reply; ``calls`` gives what they amount to when it is complete."""

    def __init__(self) -> None:
        self._calls: list[_Pieces] = []
        self._at: dict[object, _Pieces] = {}  # by index: the one that a piece without an id goes on with
        self._last: _Pieces | None = None

    def take(self, deltas: object) -> None:
        """``delta.tool_calls`` of one chunk: a list, or what a server sends in its place."""
        for delta in deltas if isinstance(deltas, list) else [deltas]:
            if isinstance(delta, Mapping):
                function = delta.get("function")
                function = function if isinstance(function, Mapping) else delta
                self.piece(delta.get("index"), delta.get("id"), function.get("name"), function.get("arguments"))

    def piece(self, index: object, call_id: object, name: object, arguments: object) -> None:
        """One piece of one call."""
        call_id = str(call_id) if isinstance(call_id, str | int) else ""
        name = name if isinstance(name, str) else ""
        text = arguments if isinstance(arguments, str) else "" if arguments is None else json.dumps(arguments)
        if not (call_id or name or text or index is not None):
            return
        call = self._call(index if isinstance(index, int | str) else None, call_id, name)
        call.id = call.id or call_id
        if name:
            call.names.append(name)
        if text:
            call.arguments.append(text)

    def _call(self, index: object, call_id: str, name: str) -> _Pieces:
        """The call that a piece belongs to, which may begin with it."""
        call = self._going_on(index, call_id, name)
        if call is None:
            call = _Pieces(index)
            self._calls.append(call)
        self._last = call
        if index is not None:
            self._at[index] = call
        return call

    def _going_on(self, index: object, call_id: str, name: str) -> _Pieces | None:
        call = self._last if index is None else self._at.get(index)
        if call_id:
            known = next((c for c in self._calls if c.id == call_id and (index is None or c.index == index)), None)
            if known is not None:
                return known
        if call is None or not name or not call.names:
            return call
        if call_id and call.id:
            return None
        given = _object("".join(call.arguments))
        is_another = given is not None if name not in call.names else index is None and bool(given)
        return None if is_another else call

    def calls(self, known: Collection[str], fresh_id: Callable[[], str]) -> Iterator[ToolCall]:
        """The calls, in the order in which they began. ``known``: the tools there are; ``fresh_id``: for calls without an id of their own."""
        ids: set[str] = set()
        for pieces in self._calls:
            call_id = pieces.id if pieces.id and pieces.id not in ids else fresh_id()
            ids.add(call_id)
            yield ToolCall(call_id, _name(pieces.names, known), mended_arguments(pieces.arguments))

    def __bool__(self) -> bool:
        return bool(self._calls)


def _name(pieces: list[str], known: Collection[str]) -> str:
    """A name comes whole, in pieces, or whole in every piece: the tools there are decide."""
    candidates = ["".join(pieces), *reversed(pieces)]
    if len(set(pieces)) == 1:
        candidates = [pieces[0], "".join(pieces)]
    return next((name for name in candidates if name in known), candidates[0])


def mended_arguments(pieces: list[str]) -> str:
    """The text of one JSON object out of its pieces, or what there is if it is none."""
    whole = "".join(pieces)
    if not whole.strip() or whole.strip() == "null":
        return "{}"
    if _object(whole) is not None:
        return whole
    values = list(_values(whole))
    if values and isinstance(values[-1], str) and len(values) == 1:  # encoded twice
        return mended_arguments([values[0]]) if _object(values[0]) is not None else whole
    *before, last = [text for text in pieces if text.strip()]
    if _object(last) and before and all(last.startswith(text) for text in before):  # all that came so far, each time
        return last
    given = [value for value in values if value not in (None, {})]
    if all(isinstance(value, dict) and value == given[0] for value in given):  # after a placeholder, or told again
        return json.dumps(given[0] if given else {}, ensure_ascii=False) if values else whole
    return whole


def _object(text: str) -> dict[str, Any] | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _values(text: str) -> Iterator[Any]:
    """The JSON values that stand one behind the other in a text, if there is nothing else in it."""
    decoder, at, found = json.JSONDecoder(), 0, []
    try:
        while at < len(text):
            if text[at].isspace():
                at += 1
                continue
            value, at = decoder.raw_decode(text, at)
            found.append(value)
    except (ValueError, RecursionError):
        return
    yield from found
