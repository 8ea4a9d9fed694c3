"""A caller and a listener in this process: an agent inside a program, and two agents that talk to each other.

The one rule: nothing grows without bound. An inlet makes its sender wait; a listener drops its oldest sound and counts it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass
from dataclasses import replace as with_options
from typing import NamedTuple, Self

from voiceflow.errors import SessionError
from voiceflow.frames import AudioFormat, InputAudioFrame, TranscriptFrame, replace
from voiceflow.processor import Processor
from voiceflow.transports.speaker import Speaker, SpeakerOptions

__all__ = ["Block", "End", "MemoryIn", "MemoryOut", "pair"]

Said = InputAudioFrame | TranscriptFrame


class MemoryIn(Processor):
    """The caller: yields what is sent to it, from any task of the same loop, until it is closed.

    ``format``: that of its sound, where it is known before; sound in another is then refused. ``limit``: frames it holds.
    A frame without ``pts`` gets the time at which it is sent, less its length if it is sound.
    """

    def __init__(self, format: AudioFormat | None = None, *, limit: int = 250) -> None:
        if limit < 1:
            raise ValueError(f"MemoryIn: limit is {limit}, it must hold at least 1 frame")
        self.makes = format
        self.limit = limit
        self.dropped = 0
        """Frames lost by ``offer``."""
        self.closed = False
        self._frames: deque[Said] = deque()
        self._filled = asyncio.Event()
        self._room = asyncio.Event()

    async def send(self, frame: Said) -> None:
        """Hand over what the caller says; waits while the inlet is full. Cancelled while it waits, it has not sent.

        Raises SessionError once the inlet is closed, TypeError for another type and ValueError for another format.
        """
        frame = self._checked(frame)
        while len(self._frames) >= self.limit and not self.closed:
            self._room.clear()
            await self._room.wait()
        if self.closed:
            raise SessionError(f"{self.name or 'MemoryIn'} is closed: nothing more can be sent")
        self._put(frame)

    def offer(self, frame: Said) -> None:
        """The same for live sound, which never waits: a full inlet drops its oldest frame, a closed one this, and counts it."""
        frame = self._checked(frame)
        if self.closed:
            self.dropped += 1
            return
        if len(self._frames) >= self.limit:
            self._frames.popleft()
            self.dropped += 1
        self._put(frame)

    def close(self) -> None:
        """Nothing more comes: what was sent is still yielded, and with no other source the session ends behind it."""
        self.closed = True
        self._filled.set()
        self._room.set()

    async def run(self) -> AsyncIterator[InputAudioFrame | TranscriptFrame]:
        """Yield what was sent, in order."""
        while self._frames or not self.closed:
            while self._frames:
                frame = self._frames.popleft()
                self._room.set()
                yield frame
            if not self.closed:
                self._filled.clear()
                await self._filled.wait()

    async def stop(self) -> None:
        """Close it: nobody listens any more."""
        self.close()

    def _checked(self, frame: Said) -> Said:
        if not isinstance(frame, InputAudioFrame | TranscriptFrame):
            raise TypeError(f"MemoryIn takes what a caller says, InputAudioFrame or TranscriptFrame, and was given {type(frame).__name__}")
        now = asyncio.get_running_loop().time()
        if isinstance(frame, TranscriptFrame):
            return frame if frame.pts is not None else replace(frame, pts=now)
        own = AudioFormat(frame.sample_rate, frame.channels)
        if self.makes is not None and own != self.makes:
            raise ValueError(f"MemoryIn was made for {self.makes} and was given sound of {own}")
        return frame if frame.pts is not None else replace(frame, pts=now - frame.duration)

    def _put(self, frame: Said) -> None:
        self._frames.append(frame)
        self._filled.set()


@dataclass(frozen=True, slots=True)
class Block:
    """Sound that left ``at`` this time of the loop."""

    at: float
    pcm: bytes


class MemoryOut(Speaker):
    """The listener: keeps the agent's sound as it leaves, for ``blocks`` to look at and ``async for`` to take.

    At most ``keep_s`` of it; older blocks are dropped and counted. ``to``: an inlet that gets the sound instead, as a
    caller's, and is closed at the end of the session.
    """

    def __init__(
        self,
        format: AudioFormat | None = None,
        options: SpeakerOptions | None = None,
        *,
        keep_s: float = 600.0,
        to: MemoryIn | None = None,
    ) -> None:
        super().__init__(self._keep, format, options)
        if keep_s <= 0:
            raise ValueError(f"MemoryOut: keep_s is {keep_s}, it must be more than 0")
        self.keep_s = keep_s
        self.dropped = 0
        """Blocks that were dropped because nobody took them."""
        self._to = to
        self._blocks: deque[Block] = deque()
        self._bytes = 0
        self._over = False
        self._came = asyncio.Event()

    @property
    def blocks(self) -> list[Block]:
        """The blocks not taken yet, oldest first."""
        return list(self._blocks)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Block:
        """Take the oldest block; waits for one. Ends with the session. Cancelling loses none."""
        while not self._blocks:
            if self._over:
                raise StopAsyncIteration
            self._came.clear()
            await self._came.wait()
        block = self._blocks.popleft()
        self._bytes -= len(block.pcm)
        return block

    async def stop(self) -> None:
        """End the iteration, and close the inlet at the other end."""
        self._over = True
        self._came.set()
        if self._to is not None:
            self._to.close()

    def _keep(self, pcm: bytes) -> None:
        now = asyncio.get_running_loop().time()
        rate, channels = self.format.sample_rate, self.format.channels
        if self._to is not None:
            self._to.offer(InputAudioFrame(pcm=pcm, sample_rate=rate, channels=channels, pts=now))
            return
        self._blocks.append(Block(now, pcm))
        self._bytes += len(pcm)
        while self._bytes > self.keep_s * rate * channels * 2 and len(self._blocks) > 1:
            self._bytes -= len(self._blocks.popleft().pcm)
            self.dropped += 1
        self._came.set()


class End(NamedTuple):
    """One agent's side of a call: where its caller's sound comes from, and where its own goes."""

    source: MemoryIn
    sink: MemoryOut


def pair(format: AudioFormat | None = None, options: SpeakerOptions | None = None) -> tuple[End, End]:
    """Two ends of one line, for two sessions in the same loop, on a real or a virtual clock.

    What one agent says is what the other hears: block by block as it is due, silence included, so that a VAD hears the
    pauses. When one session ends, the other's caller has hung up. ``options``: their ``paced`` and ``continuous`` are set.
    """
    form = format or AudioFormat(24000)
    live = with_options(options or SpeakerOptions(), paced=True, continuous=True)
    first, second = MemoryIn(form), MemoryIn(form)
    return End(first, MemoryOut(form, live, to=second)), End(second, MemoryOut(form, live, to=first))
