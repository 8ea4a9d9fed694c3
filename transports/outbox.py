"""What is on its way to a far end: a queue in which sound can be taken back, and in which nothing waits behind taken-back sound.

The one rule: what was thrown away never leaves, and the word of it leaves before all else. Nothing here waits, and time is passed in.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from voiceflow.transports.wire import Message

__all__ = ["Outbox", "Positions"]

KEPT = 256
"""Places that are remembered at which sound was left out."""


@dataclass(slots=True)
class _Item:
    message: Message
    samples: int
    is_sound: bool
    at: float


class Outbox:
    """Messages in order. ``limit``: so many may wait; what comes then is dropped, and ``overflowed`` is True from then on.

    Sound is bounded by time, which whoever empties it looks at: ``waiting_s``.
    """

    def __init__(self, limit: int = 4096) -> None:
        self.limit = limit
        self.overflowed = False
        self.waiting = 0
        """Samples that have not left."""
        self.positions = Positions()
        self.filled = asyncio.Event()
        """Set when something was put."""
        self._items: deque[_Item] = deque()
        self._first: deque[_Item] = deque()
        self._unsent = 0
        """Samples for which there was no message yet."""

    def __len__(self) -> int:
        return len(self._first) + len(self._items)

    def put(self, messages: Sequence[Message], now: float) -> None:
        """Words: they are never thrown away."""
        self._put(self._items, messages, now, is_sound=False)

    def put_first(self, messages: Sequence[Message], now: float) -> None:
        """They overtake all but others like them."""
        self._put(self._first, messages, now, is_sound=False)

    def put_sound(self, messages: Sequence[Message], samples: int, now: float) -> None:
        """Sound, or a mark in it (0 samples). No messages yet for the samples: they leave with the next."""
        self._unsent += samples
        self.waiting += samples
        if messages:
            self._put(self._items, messages, now, is_sound=True, samples=self._unsent)
            self._unsent = 0

    def throw_away_sound(self) -> None:
        """Sound that has not left never will, and its marks."""
        self._items = deque(item for item in self._items if not item.is_sound)
        if self.waiting:
            self.positions.left_out(self.waiting)
        self._unsent = self.waiting = 0

    def start_again(self, position: int) -> None:
        """Another connection: sound that has not left never will, old word of that is of no use, and the far end counts from here."""
        self.throw_away_sound()
        self._first.clear()
        self.positions.restart(position)

    def take(self) -> Message | None:
        """The next to leave."""
        queue = self._first or self._items
        if not queue:
            return None
        item = queue.popleft()
        self.waiting -= item.samples
        self.positions.sent(item.samples)
        return item.message

    def waiting_s(self, now: float) -> float:
        """How long the oldest has been waiting."""
        oldest = [queue[0].at for queue in (self._first, self._items) if queue]
        return now - min(oldest) if oldest else 0.0

    def _put(self, queue: deque[_Item], messages: Sequence[Message], now: float, *, is_sound: bool, samples: int = 0) -> None:
        for i, message in enumerate(messages):
            if len(self) >= self.limit:
                self.overflowed = True
                return
            self.filled.set()
            queue.append(_Item(message, samples if i == len(messages) - 1 else 0, is_sound, now))


class Positions:
    """Where in the agent's stream the far end is, which counts the samples that came to it: some were left out on the way. Pure."""

    def __init__(self) -> None:
        self._sent = 0
        self._places: deque[tuple[int, int]] = deque([(0, 0)])
        """(samples sent before it, how much further the stream is from there on)."""

    def sent(self, samples: int) -> None:
        """So many more have left."""
        self._sent += samples

    def left_out(self, samples: int) -> None:
        """So many will not leave, which stood behind those that have."""
        place, further = self._places[-1]
        if place == self._sent:
            self._places.pop()
        self._places.append((self._sent, further + samples))
        if len(self._places) > KEPT:
            self._places.popleft()

    def restart(self, position: int) -> None:
        """The far end counts from 0 again, and what comes next stands at this position of the stream."""
        self._sent = 0
        self._places = deque([(0, position)])

    def of(self, count: int) -> int:
        """The position in the stream behind the ``count``-th sample that was sent. No further than what was sent."""
        count = min(count, self._sent)
        return next((count + further for place, further in reversed(self._places) if place < count), self._places[0][1] + count)
