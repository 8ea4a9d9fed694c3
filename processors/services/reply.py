"""What a language model's answer says, whichever service it comes from.

The one rule: text comes as it is written; calls, usage and the end once, when the answer is complete.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from voiceflow.messages import ToolCall
from voiceflow.processors.services.retry import ServiceError, Verdict

__all__ = ["Reasoning", "ReplyCall", "ReplyEnd", "ReplyEvent", "ReplyStream", "ReplyText", "ReplyUsage", "why_broken"]


@dataclass(frozen=True, slots=True)
class ReplyText:
    """To be said."""

    text: str


@dataclass(frozen=True, slots=True)
class Reasoning:
    """Not to be said, and not part of the conversation."""

    text: str


@dataclass(frozen=True, slots=True)
class ReplyCall:
    """A whole call of a tool."""

    call: ToolCall


@dataclass(frozen=True, slots=True)
class ReplyUsage:
    """Tokens of the whole request."""

    prompt_tokens: int
    completion_tokens: int


@dataclass(frozen=True, slots=True)
class ReplyEnd:
    """Nothing follows. ``reason``: ``stop``, ``length``, ``tool_calls``, ``content_filter``, or as the server says it; "" if it does not."""

    reason: str
    error: ServiceError | None = None
    """The reply is not what it should be: it was cut off, or there is none."""


ReplyEvent = ReplyText | Reasoning | ReplyCall | ReplyUsage | ReplyEnd


class ReplyStream(Protocol):
    """One answer: bytes in, what they say out. Pure."""

    finish: str | None
    """Why the model stopped, once it has."""
    told: int
    """So many pieces had something in them: grows as long as the model writes."""
    is_done: bool
    """The service has said that nothing follows."""

    def feed(self, chunk: bytes) -> list[ReplyEvent]:
        """What these bytes say. Raises ServiceError if they tell of an error."""

    def close(self) -> list[ReplyEvent]:
        """The answer is over: its calls, unless it was cut off, its usage, its end."""


def why_broken(*, has_come: bool, is_understood: bool, has_ended: bool, piece: str) -> ServiceError | None:
    """What is wrong with an answer that is over: there is none, it holds not one ``piece`` of what was expected, or its end is missing."""
    if not has_come:
        return ServiceError("the service's answer is empty", verdict=Verdict.LATER)
    if not is_understood:
        return ServiceError(f"the service's answer has no {piece} in it; look at base_url")
    if not has_ended:
        what = "the service broke off in the middle of the reply; its calls of tools, if any, do not run"
        return ServiceError(what, verdict=Verdict.LATER)
    return None
