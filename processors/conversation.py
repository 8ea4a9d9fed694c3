"""What was said and done in a call, in order, for any language model to read.

The one rule: whatever is done to a conversation, the strictest model takes it. Each call of a tool has one result, right
behind it and beside those of its siblings; no message is empty; what one side says in pieces is one message.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from voiceflow.errors import what_and_where
from voiceflow.messages import AudioClip, Image, Message, ToolCall

__all__ = ["STILL_RUNNING", "Conversation", "Media", "is_object"]

FORMAT = 1

STILL_RUNNING = "still running; the result will follow"
"""Stands as the result of a call until the true one takes its place."""

_MAY_HAVE = {
    "system": {"text"},
    "user": {"text", "media"},
    "assistant": {"text", "calls", "interrupted"},
    "tool": {"text", "call_id", "pending"},
}
_FIELDS = tuple(name for name in Message.__struct_fields__ if name != "role")

Media = Image | AudioClip


class _Version(msgspec.Struct, frozen=True):
    version: int


class _Saved(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    version: int
    messages: tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class Conversation:
    """Messages of the user, the assistant and tools. Immutable: each method returns another conversation.

    A summary of what was said before may stand in front, as a message of the ``system``.

    A call whose result is not there yet has ``STILL_RUNNING`` in its place, so that the history is whole at any moment and
    the model neither repeats the call nor takes it for done. Raises ValueError, naming the message and field, if
    ``messages`` are no such history.
    """

    messages: tuple[Message, ...] = ()

    def __post_init__(self) -> None:
        for place, what in _faults(self.messages):
            raise ValueError(f"$.messages{place}: {what}")

    # ---------------------------------------------------------------------------------------------- reading

    @property
    def open_calls(self) -> tuple[ToolCall, ...]:
        """The calls that have no result yet, in order."""
        pending = {message.call_id for message in self.messages if message.pending}
        return tuple(call for message in self.messages for call in message.calls if call.id in pending) if pending else ()

    @property
    def summary(self) -> str:
        """What stands in front for the part that was summarised."""
        return self.messages[0].text if self.messages and self.messages[0].role == "system" else ""

    def find_call(self, call_id: str) -> ToolCall | None:
        """The call with that id."""
        at = self._place_of(call_id)
        return None if at is None else next(call for call in self.messages[at].calls if call.id == call_id)

    # ------------------------------------------------------------------------------------------- going on

    def with_user(self, text: str = "", media: Sequence[Media] = (), *, continues: bool = False) -> Conversation:
        """The caller said this, or sent it. Blank text without media changes nothing.

        It is one message with what they said before, if nothing was said or done since. ``continues``: then ``text``
        takes the place of what they said before (media stay).
        """
        text = text.strip()
        last = self.messages[-1] if self.messages else None
        if not text and not media:
            return self
        if last is None or last.role != "user":
            return self._with(Message("user", text, media=tuple(media)))
        said = (text or last.text) if continues else _joined(last.text, text)
        return self._replaced(-1, Message("user", said, media=(*last.media, *media)))

    def with_assistant_heard(self, text: str, *, interrupted: bool = False, before: str = "", ahead_of: str = "") -> Conversation:
        """The agent said this and it was heard; ``interrupted``: it would have said more. Blank text changes nothing.

        ``before``: the id of a call; the text belongs to the same reply, and stands before the call. ``ahead_of``: what the
        agent's message ends with and was heard after this.
        """
        text = text.strip()
        if not text:
            return self
        at = self._call_at(before) if before else len(self.messages) - 1
        message = self.messages[at] if at >= 0 else None
        if message is None or message.role != "assistant":
            return self._with(Message("assistant", text, interrupted))
        if ahead_of and message.text.endswith(ahead_of):
            rest = _joined(message.text.removesuffix(ahead_of).rstrip(), text)
            return self._replaced(at, msgspec.structs.replace(message, text=_joined(rest, ahead_of)))
        return self._replaced(at, msgspec.structs.replace(message, text=_joined(message.text, text), interrupted=interrupted))

    def with_tool_calls(self, *calls: ToolCall, beside: str = "") -> Conversation:
        """The agent calls tools. ``beside``: the id of a call of the same reply.

        They belong to what it has just said, if nothing came between. Raises ValueError for an id that is empty or was
        there before, a call without a name, and arguments that are not a JSON object (none at all become ``{}``).
        """
        calls = tuple(call if call.arguments.strip() else msgspec.structs.replace(call, arguments="{}") for call in calls)
        known = {call.id for message in self.messages for call in message.calls}
        for index, call in enumerate(calls):
            for place, what in _faults_of(call, known):
                raise ValueError(f"calls[{index}]{place}: {what}")
            known.add(call.id)
        if not calls:
            return self
        results = [Message("tool", STILL_RUNNING, call_id=call.id, pending=True) for call in calls]
        at = self._call_at(beside) if beside else len(self.messages) - 1
        message = self.messages[at] if at >= 0 else None
        if message is None or message.role != "assistant":
            return self._with(Message("assistant", calls=calls), *results)
        behind = at + 1 + len(message.calls)
        whole = self._replaced(at, msgspec.structs.replace(message, calls=(*message.calls, *calls))).messages
        return _made((*whole[:behind], *results, *whole[behind:]))

    def with_tool_result(self, call_id: str, text: str) -> Conversation:
        """The result of an open call. Raises ValueError if there is no such call, or it has its result."""
        at = next((i for i, message in enumerate(self.messages) if message.call_id == call_id and message.role == "tool"), None)
        if at is None or not self.messages[at].pending:
            raise ValueError(f"{call_id!r} is no open call: it {'was not made' if at is None else 'has its result'}")
        return self._replaced(at, Message("tool", text, call_id=call_id))

    def _with(self, *messages: Message) -> Conversation:
        return _made((*self.messages, *messages))

    def _replaced(self, at: int, message: Message) -> Conversation:
        at %= len(self.messages)
        return _made((*self.messages[:at], message, *self.messages[at + 1 :]))

    def _place_of(self, call_id: str) -> int | None:
        messages = self.messages
        return next((i for i in reversed(range(len(messages))) if any(call.id == call_id for call in messages[i].calls)), None)

    def _call_at(self, call_id: str) -> int:
        at = self._place_of(call_id)
        if at is None:
            raise ValueError(f"there is no call {call_id!r}")
        return at

    def summarised(self, count: int, text: str) -> Conversation:
        """``text`` takes the place of the first ``count`` messages. Raises ValueError if a message of the caller does not come next."""
        if not 0 < count < len(self.messages) or self.messages[count].role != "user":
            raise ValueError(f"the first {count} of {len(self.messages)} messages cannot be summarised: one of the user must come next")
        return _made((Message("system", text.strip()), *self.messages[count:])) if text.strip() else _made(self.messages[count:])

    # --------------------------------------------------------------------------------------------- keeping

    def to_json(self) -> str:
        """The conversation as JSON, for :meth:`from_json`, open calls included."""
        return msgspec.json.encode(_Saved(FORMAT, self.messages)).decode()

    @classmethod
    def from_json(cls, text: str | bytes) -> Conversation:
        """A saved conversation. Raises ValueError that names the field that is wrong."""
        try:
            version = msgspec.json.decode(text, type=_Version).version
            if version != FORMAT:
                raise ValueError(f"$.version: {version}; this voiceflow reads {FORMAT}")
            return cls(msgspec.json.decode(text, type=_Saved).messages)
        except ValueError as error:  # msgspec's own errors are ValueErrors
            raise ValueError(f"not a saved conversation: {_place_first(error)}") from error


def _made(messages: tuple[Message, ...]) -> Conversation:
    """Without the check: for histories made by the methods above, which may be long."""
    conversation = object.__new__(Conversation)
    object.__setattr__(conversation, "messages", messages)
    return conversation


def _joined(before: str, text: str) -> str:
    return f"{before} {text}".strip()


def _place_first(error: ValueError) -> str:
    what, place = what_and_where(error)
    return what if what.startswith("$") else f"{place or '$'}: {what}"


# ----------------------------------------------------------------------------------------------- what is valid


def _faults(messages: Sequence[Message]) -> Iterator[tuple[str, str]]:
    """(place, what is wrong there) of each fault."""
    known: set[str] = set()
    due: list[str] = []  # ids of the calls whose results come next
    before = ""
    for index, message in enumerate(messages):
        place, role = f"[{index}]", message.role
        yield from ((f"{place}{inner}", what) for inner, what in _faults_alone(message))
        if due and (role != "tool" or message.call_id != due[0]):
            yield place, f"the result of call {due[0]!r} must stand here, right behind the call and in the order of the calls"
        elif not due and role == "tool":
            yield f"{place}.call_id", f"{message.call_id!r} is the result of no call before it"
        elif role == "system" and index:
            yield f"{place}.role", "a summary, 'system', can only stand in front"
        elif role == before != "tool":
            yield place, f"two messages of the {role} in a row; they must be one"
        due = due[1:] if role == "tool" else [call.id for call in message.calls]
        for number, call in enumerate(message.calls):
            yield from ((f"{place}.calls[{number}]{inner}", what) for inner, what in _faults_of(call, known))
            known.add(call.id)
        before = role
    if due:
        yield "", f"call {due[0]!r} has no result"


def _faults_alone(message: Message) -> Iterator[tuple[str, str]]:
    role = message.role
    allowed = _MAY_HAVE.get(role)
    if allowed is None:
        yield ".role", f"{role!r}; it must be one of {', '.join(_MAY_HAVE)}"
        return
    for name in _FIELDS:
        if name not in allowed and getattr(message, name):
            yield f".{name}", f"a message of the {role} has none"
    if role != "tool" and not (message.text.strip() or message.media or message.calls):
        yield ".text", "empty; leave the message out"


def _faults_of(call: ToolCall, known: set[str]) -> Iterator[tuple[str, str]]:
    if not call.id or call.id in known:
        yield ".id", f"call {call.id!r} is there already" if call.id else "empty"
    if not call.name:
        yield ".name", "empty"
    if not is_object(call.arguments):
        yield ".arguments", "not a JSON object"


def is_object(text: str) -> bool:
    """Whether this is the text of a JSON object."""
    try:
        value: Any = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return False
    return isinstance(value, dict)
