"""The queue in front of a node that takes time: one for each lane, bounded in seconds for sound and in count for the rest.

The one rule: an inbox never refuses a frame. Over its high-water mark it says so (``is_pressed``), and whoever
filled it waits for ``relief()``; live sound is not made to wait, its oldest is dropped and counted.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from voiceflow.frames import AudioFrame, Frame, Lane, Travels

if TYPE_CHECKING:
    from voiceflow.routes import Ways

__all__ = ["Inbox"]

HARD_LIMIT = 10_000
"""Frames after which even those that may not wait (reports, crossings from another lane) push out the oldest."""

SLACK_S = 1e-9
"""Fifty frames of 20 ms are a second, whatever their sum in floating point is."""


class Inbox:
    """Frames waiting for one lane of one node, each with the ways it goes on if it is only passing (None: it is for the node)."""

    __slots__ = (
        "_consumer",
        "_count",
        "_items",
        "_live_s",
        "_paced_s",
        "_relief",
        "dropped",
        "lane",
        "limit_frames",
        "limit_live_s",
        "limit_s",
    )

    def __init__(self, lane: Lane, limit_frames: int, limit_s: float, limit_live_s: float) -> None:
        self.lane = lane
        self.limit_frames = limit_frames
        self.limit_s = limit_s
        self.limit_live_s = limit_live_s
        self.dropped = 0
        self._items: deque[tuple[Frame, Ways | None]] = deque()
        self._count = 0  # frames that are not sound
        self._paced_s = 0.0  # sound that can wait
        self._live_s = 0.0  # sound that cannot
        self._consumer: asyncio.Future[None] | None = None
        self._relief: list[asyncio.Future[None]] = []

    def __len__(self) -> int:
        return len(self._items)

    @property
    def seconds(self) -> float:
        """Sound waiting, in seconds."""
        return self._paced_s + self._live_s

    @property
    def is_pressed(self) -> bool:
        """At the high-water mark."""
        return self._count >= self.limit_frames or self._paced_s >= self.limit_s - SLACK_S

    def put(self, frame: Frame, passing_to: Ways | None = None) -> bool:
        """Queue a frame; True if whoever brought it should wait."""
        self._items.append((frame, passing_to))
        self._weigh(frame, 1)
        if frame.live and self._live_s > self.limit_live_s + SLACK_S:
            self._drop_live()
        elif len(self._items) > HARD_LIMIT:
            self._drop(0)
        if self._consumer is not None:
            if not self._consumer.done():
                self._consumer.set_result(None)
            self._consumer = None
        # Whoever reports does not wait: the one it reports to may be waiting for it.
        return self.is_pressed and not frame.live and frame.travels is Travels.DOWN

    def pop(self) -> tuple[Frame, Ways | None] | None:
        """The oldest item, or None."""
        if not self._items:
            return None
        item = self._items.popleft()
        self._weigh(item[0], -1)
        if self._relief and self._count <= self.limit_frames // 2 and self._paced_s <= self.limit_s / 2 + SLACK_S:
            self._relieve()
        return item

    def clear(self) -> int:
        """Drop everything and let go whoever waits; the number of frames dropped."""
        count = len(self._items)
        self._items.clear()
        self._count, self._paced_s, self._live_s = 0, 0.0, 0.0
        self._relieve()
        return count

    async def filled(self) -> None:
        """Wait until there is something. One consumer at a time; cancelling is safe."""
        if not self._items:
            self._consumer = asyncio.get_running_loop().create_future()
            await self._consumer

    async def relief(self) -> None:
        """Wait until the inbox is below its low-water mark (half the high one). Cancelling is safe."""
        if self.is_pressed:
            waiter = asyncio.get_running_loop().create_future()
            self._relief.append(waiter)
            try:
                await waiter
            finally:
                if waiter in self._relief:  # cancelled
                    self._relief.remove(waiter)

    def _weigh(self, frame: Frame, sign: int) -> None:
        if not self._items:
            self._count, self._paced_s, self._live_s = 0, 0.0, 0.0  # no rounding is left behind
        elif not isinstance(frame, AudioFrame):
            self._count += sign
        elif frame.live:
            self._live_s += sign * frame.duration
        else:
            self._paced_s += sign * frame.duration

    def _relieve(self) -> None:
        waiters, self._relief = self._relief, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def _drop_live(self) -> None:
        """Drop the oldest live sound down to the bound, but never the newest: one long frame is better than none."""
        while self._live_s > self.limit_live_s + SLACK_S:
            index = next(i for i, (waiting, _) in enumerate(self._items) if waiting.live)
            if index == len(self._items) - 1:
                return
            self._drop(index)

    def _drop(self, index: int) -> None:
        frame = self._items[index][0]
        del self._items[index]
        self._weigh(frame, -1)
        self.dropped += 1
