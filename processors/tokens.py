"""How long a conversation is in a model's tokens, and what of it is kept when it is too long.

The one rule: an estimate is put right by what the model says it read. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

from voiceflow.messages import Image, Message, ToolSpec
from voiceflow.processors.conversation import Conversation

__all__ = ["Spent", "TokenMeter", "estimate_tokens", "newest_exchanges"]

BYTES_PER_TOKEN = 4
"""Of English text and of most scripts, in UTF-8: 3 to 5 with today's tokenizers."""
PER_MESSAGE = 4
"""For the marks that a chat format puts around a message."""
PER_IMAGE = 1000
"""A photo at usual size: hosted models count 250 to 1600."""
PER_SECOND = 25
"""Of sound: hosted models count 10 to 32."""

LEAST_SCALE, MOST_SCALE = 0.5, 4.0
"""What lies beyond is no error of the estimate: the model was shown something else."""
KEPT = 16
"""Requests remembered for the report of what they cost."""


def estimate_tokens(message: Message) -> int:
    """About how many tokens a message takes: a guess by length."""
    text, tokens = message.text, PER_MESSAGE
    for call in message.calls:
        text += call.id + call.name + call.arguments
    for item in message.media:
        tokens += PER_IMAGE if isinstance(item, Image) else round(item.seconds * PER_SECOND)
    return tokens + -(-len(text.encode("utf-8", "replace")) // BYTES_PER_TOKEN)


@dataclass(frozen=True, slots=True)
class Spent:
    """Tokens that a call has cost so far, over ``replies`` that said what they cost."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    replies: int = 0


class TokenMeter:
    """Counts with ``count``, scaled by what the last reply's prompt took in truth; ``spent`` adds up."""

    def __init__(self, count: Callable[[Message], int] = estimate_tokens) -> None:
        self.scale = 1.0
        self.spent = Spent()
        self._count = count
        self._asked: dict[int, tuple[Sequence[Message], Sequence[ToolSpec]]] = {}

    def tokens(self, messages: Iterable[Message], tools: Iterable[ToolSpec] = ()) -> int:
        """About how many tokens a request takes."""
        return round(self.scale * self._raw(messages, tools))

    def asked(self, utterance: int, messages: Sequence[Message], tools: Sequence[ToolSpec] = ()) -> None:
        """This was put to the model."""
        self._asked[utterance] = messages, tools
        for old in list(islice(self._asked, max(0, len(self._asked) - KEPT))):
            del self._asked[old]

    def used(self, utterance: int, prompt_tokens: int, completion_tokens: int) -> None:
        """A reply says what it cost."""
        spent = self.spent
        self.spent = Spent(spent.prompt_tokens + prompt_tokens, spent.completion_tokens + completion_tokens, spent.replies + 1)
        asked = self._asked.pop(utterance, None)
        raw = self._raw(*asked) if asked else 0
        if prompt_tokens > 0 and raw > 0:
            self.scale = min(max(prompt_tokens / raw, LEAST_SCALE), MOST_SCALE)

    def _raw(self, messages: Iterable[Message], tools: Iterable[ToolSpec]) -> int:
        told = sum(len(spec.name + spec.description + spec.parameters) for spec in tools)
        return sum(map(self._count, messages)) + told // BYTES_PER_TOKEN


def newest_exchanges(conversation: Conversation, max_tokens: int, count: Callable[[Conversation], int]) -> Conversation:
    """The newest whole exchanges that fit, the last one always: what the caller said and all that was said and done in answer.

    A summary stays in front.
    """
    messages = conversation.messages
    summary = messages[:1] if conversation.summary else ()
    starts = [index for index, message in enumerate(messages) if message.role == "user"] or [len(summary)]

    def fits(first: int) -> bool:
        return count(Conversation(summary + messages[starts[first] :])) <= max_tokens

    # From the end, in growing steps: of a long call only what is kept is counted.
    high, step = len(starts) - 1, 1
    while high and fits(max(0, high - step)):
        high, step = max(0, high - step), 2 * step
    low = max(0, high - step) + 1 if high else 0
    while low < high:
        middle = (low + high) // 2
        if fits(middle):
            high = middle
        else:
            low = middle + 1
    return Conversation(summary + messages[starts[low] :])
