"""Summaries of a long call: which part is summarised, and what was.

The one rule: beside the talk. The newest exchanges stay word for word, and nothing waits for a summary.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from voiceflow.messages import Message
from voiceflow.processors.conversation import Conversation

__all__ = ["Summarise", "Summary", "part_to_summarise"]

Summarise = Callable[[Conversation], Awaitable[str]]
"""``await summarise(part)``: the part of a conversation in a few sentences. A summary of what came before it stands in front
of it, as a message of the ``system``, and is to be included."""


@dataclass(frozen=True, slots=True)
class Summary:
    """``text`` stands for ``messages``, word for word as they were."""

    text: str
    messages: tuple[Message, ...]


def part_to_summarise(conversation: Conversation, keep_exchanges: int) -> int:
    """How many messages from the front: all but the newest exchanges, and nothing from an open call on. 0: none."""
    messages = conversation.messages
    starts = [index for index, message in enumerate(messages) if message.role == "user"]
    if len(starts) <= keep_exchanges:
        return 0
    open_ids = {call.id for call in conversation.open_calls}
    first_open = next((i for i, message in enumerate(messages) if any(call.id in open_ids for call in message.calls)), len(messages))
    end = max((start for start in starts[: len(starts) - keep_exchanges + 1] if start <= first_open), default=0)
    return end if end > bool(conversation.summary) else 0
