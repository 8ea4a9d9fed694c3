"""The caller's sound on its way to a recogniser, kept until its words are known for good.

The one rule: every sample is either settled (a final transcript covers it), or here, to be sent again on another connection;
what had to be dropped for want of room is counted as lost. Pure: no clock, no I/O. Positions are samples since the call began.
"""

from __future__ import annotations

from collections import deque
from enum import Enum

from voiceflow.audio import to_pcm
from voiceflow.frames import InputAudioFrame
from voiceflow.processors.hearing import MonoBranch

__all__ = ["KeptSound", "Mark"]


class Mark(Enum):
    """What is in the sound besides sound."""

    END_OF_SPEECH = "end of speech"


class KeptSound:
    """The caller's sound in, mono s16le PCM for the connection out, ``chunk`` samples at a time unless a mark comes before."""

    def __init__(self, sample_rate: int, kept_s: float, chunk: int = 1) -> None:
        self.sample_rate = sample_rate
        self.settled_to = 0
        self.lost = 0
        """Samples that no recogniser can hear any more."""
        self._branch = MonoBranch(sample_rate)
        self._limit = round(kept_s * sample_rate)
        self._chunk = chunk
        self._data = bytearray()
        self._begin = 0
        self._next = 0
        self._origin = 0
        self._marks: deque[int] = deque()
        self._sent_marks = 0

    @property
    def end(self) -> int:
        """The position behind the last sample."""
        return self._begin + len(self._data) // 2

    @property
    def marks(self) -> int:
        """Ends of speech that were not answered yet."""
        return len(self._marks)

    def hear(self, frame: InputAudioFrame, now: float) -> None:
        """More sound, of any rate and channels. ``now`` places a first frame that has no ``pts``."""
        self.push(to_pcm(self._branch.push(frame, now)))

    def time_at(self, seconds: float) -> float:
        """When, on the session's clock, a time of the connection was; 0 before there was any sound."""
        clock = self._branch.clock
        return clock.time_at(max(0, self.at(seconds))) if clock.is_set else 0.0

    def push(self, pcm: bytes) -> None:
        """More sound. The oldest is dropped if there is no room."""
        self._data += pcm
        over = len(self._data) // 2 - self._limit
        if over > 0:
            self._drop(self._begin + over)
            unsent = self._begin - self._next
            if unsent > 0:  # a connection that takes nothing: what comes next on it is later than it thinks
                self._next, self._origin = self._begin, self._origin + unsent

    def mark(self) -> None:
        """Speech has ended here."""
        self._marks.append(self.end)

    def take(self, *, everything: bool = False) -> bytes | Mark | None:
        """What is to be sent next; None: there is nothing, or (unless ``everything``) not enough."""
        mark = self._marks[self._sent_marks] if self._sent_marks < len(self._marks) else None
        if mark is not None and mark <= self._next:
            self._sent_marks += 1
            return Mark.END_OF_SPEECH
        until = self.end if mark is None else mark
        waiting = until - self._next
        if waiting <= 0 or (waiting < self._chunk and mark is None and not everything):
            return None
        if waiting > self._chunk > 1:
            until = self._next + self._chunk
        elif waiting > self.sample_rate:
            until = self._next + self.sample_rate
        piece = bytes(self._data[2 * (self._next - self._begin) : 2 * (until - self._begin)])
        self._next = until
        return piece

    def padded(self, samples: int) -> None:
        """So many samples of silence were sent that are not of the call."""
        self._origin -= samples

    def at(self, seconds: float) -> int:
        """The position of a time of the connection."""
        return self._origin + round(seconds * self.sample_rate)

    def settle(self, position: int) -> None:
        """All words before this position are known for good."""
        self.settled_to = max(self.settled_to, min(position, self._next))
        self._drop(self.settled_to)

    def answered(self) -> bool:
        """The oldest end of speech was answered. False: there was none."""
        if not self._marks:
            return False
        self._marks.popleft()
        self._sent_marks = max(0, self._sent_marks - 1)
        return True

    def rewind(self) -> int:
        """Another connection: everything that is here is to be sent again. How many ends of speech lie before it all."""
        self.lost += max(0, self._begin - self.settled_to)
        self.settled_to = max(self.settled_to, self._begin)
        self._next = self._origin = self._begin
        self._sent_marks = 0
        past = 0
        while self._marks and self._marks[0] <= self._begin:
            self._marks.popleft()
            past += 1
        return past

    def _drop(self, until: int) -> None:
        count = min(max(0, until - self._begin), len(self._data) // 2)
        del self._data[: 2 * count]
        self._begin += count
