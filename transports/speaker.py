"""The speaking end of an agent: a playout, paced by the loop's clock, in front of whatever takes the sound.

Its one rule: the n-th block of a stretch of speech is due n block lengths after the first, however late one of them was.

A node that has a clock of its own (a sound device) subclasses ``Speaker`` and pulls the playout itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from dataclasses import dataclass, field

from voiceflow.frames import (
    AudioFormat,
    EndFrame,
    HoldFrame,
    OutputAudioFrame,
    PlaybackStarted,
    PlaybackStopped,
    ResumeFrame,
    UtteranceEnded,
)
from voiceflow.interruption import Interruption
from voiceflow.playout import Playout
from voiceflow.playout.ear import DelayClock, EarClock, InstantClock
from voiceflow.playout.refill import PlayoutOptions
from voiceflow.processor import Processor

__all__ = ["Speaker", "SpeakerOptions"]

log = logging.getLogger("voiceflow")

UNDERRUN_RATIO_LOGGED = 0.001

Spoken = OutputAudioFrame | UtteranceEnded | HoldFrame | ResumeFrame | EndFrame


@dataclass(frozen=True, slots=True)
class SpeakerOptions:
    """How sound leaves."""

    block_ms: float = 20
    lead_s: float = 1.0
    """Sound queued before whoever makes it waits. The node's inbox holds as much again as the session allows (2 s): what
    is made ahead bridges a stall of the voice, and is thrown away by an interrupt."""
    latency_s: float = 0.0
    """From a block's leaving to the ear."""
    latency_known: bool = True
    """False: it is a guess, and what was heard is marked as an estimate."""
    continuous: bool = False
    """Silence leaves too, from start to end: for a phone line, or a recording on the clock. False: nothing leaves
    while nothing is said."""
    paced: bool = True
    """False: sound leaves as fast as it is made and counts as heard; holds have nothing to act on. For a file."""
    playout: PlayoutOptions = field(default_factory=PlayoutOptions)

    def __post_init__(self) -> None:
        if self.block_ms <= 0:
            raise ValueError(f"SpeakerOptions: block_ms is {self.block_ms}, it must be more than 0")
        if self.lead_s * 1000 < self.playout.max_ms:
            raise ValueError(
                f"SpeakerOptions: lead_s {self.lead_s} is less than the playout's max_ms {self.playout.max_ms}, so it could never fill its queue"
            )


class Speaker(Processor):
    """Gives ``play`` the agent's sound, block by block, when it is due; reports what was heard.

    ``play(pcm)`` gets interleaved signed 16-bit samples in ``format`` and must not wait; a raise in it ends the session.
    A hold fades out within the next block; a resume goes on from the start of the cut word. An interrupt is silent at
    once: no sample of the old sound is given to ``play`` after it. With EndFrame a hold ends, and all that is queued is heard.
    ``clock`` says where the ear is, if not at ``latency_s`` behind.
    """

    def __init__(
        self,
        play: Callable[[bytes], object],
        format: AudioFormat | None = None,
        options: SpeakerOptions | None = None,
        *,
        clock: EarClock | None = None,
    ) -> None:
        self.options = options or SpeakerOptions()
        self.format = format or AudioFormat(24000)
        self.takes = (self.format,)
        self.holds_ms = self.options.latency_s * 1000
        if clock is None:
            known = self.options.latency_known
            clock = DelayClock(self.format.sample_rate, self.options.latency_s, exact=known) if self.options.paced else InstantClock()
        self.playout = Playout(self.format, self.options.playout, clock)
        self._play = play
        self._lock = threading.Lock()
        """Around each call to the playout, for subclasses that pull in another thread. Never held across a wait."""
        self._stirred = asyncio.Event()
        """Something was done to the playout since the pacing loop last looked."""
        self._room = asyncio.Event()
        self._quiet = asyncio.Event()
        """All has been heard, and all of that reported."""
        self._free_at = 0.0
        """When the last block of the last stretch is over."""
        self._underruns_logged = 0

    async def process(self, frame: Spoken) -> None:
        """Queue sound, waiting while there is enough of it; hold and resume at once; with EndFrame wait for silence."""
        if isinstance(frame, OutputAudioFrame):
            while self.playout.queued_s >= self.options.lead_s:
                self._room.clear()
                await self._room.wait()
            with self._lock:
                self.playout.push(frame)
        elif isinstance(frame, UtteranceEnded):
            with self._lock:
                self.playout.end(frame.utterance)
        elif isinstance(frame, HoldFrame):
            if self.options.paced:
                with self._lock:
                    self.playout.hold(self.session.time())
        elif isinstance(frame, ResumeFrame):
            with self._lock:
                self.playout.resume(self.session.time())
        else:
            await self._finish()
        self._stirred.set()

    async def _finish(self) -> None:
        with self._lock:
            self.playout.end()
            self.playout.resume(self.session.time())
        self._quiet.clear()
        self._stirred.set()
        await self._quiet.wait()

    def on_interrupt(self, interrupt: Interruption) -> None:
        """Silence, and what was heard of each utterance in hand."""
        with self._lock:
            interrupt.heard.extend(self.playout.clear(interrupt.at))
        self._stirred.set()
        self._log_underruns()

    async def run(self) -> AsyncIterator[PlaybackStarted | PlaybackStopped]:
        """Pace the blocks and report what the ear comes past."""
        stretch = self._stretch if self.options.paced else self._as_it_comes
        while True:
            async with contextlib.aclosing(stretch()) as events:
                async for event in events:
                    yield event
            if self.playout.idle:
                self._quiet.set()
            await self._stirred.wait()
            self._stirred.clear()

    async def _stretch(self) -> AsyncGenerator[PlaybackStarted | PlaybackStopped]:
        """Blocks one behind the other until there is nothing left to pull for."""
        loop = asyncio.get_running_loop()
        block_s, rate = self.options.block_ms / 1000, self.format.sample_rate
        start = max(loop.time(), self._free_at)
        block = 0
        while self.playout.needs_pull or self.options.continuous:
            due = start + block * block_s
            wait_s = due - loop.time()
            if wait_s > 0:
                await asyncio.sleep(wait_s)
            samples = round((block + 1) * block_s * rate) - round(block * block_s * rate)
            block += 1
            self._free_at = start + block * block_s
            self._pull(samples, due)
            for event in self._news():
                yield event
            if self.playout.idle:
                self._quiet.set()

    async def _as_it_comes(self) -> AsyncGenerator[PlaybackStarted | PlaybackStopped]:
        """All there is, at once."""
        self._pull(self.playout.available, asyncio.get_running_loop().time())
        for event in self._news():
            yield event

    def _pull(self, samples: int, now: float) -> None:
        with self._lock:
            pcm = self.playout.pull(samples, now, self.session.epoch)
        if pcm:
            self._play(pcm)
        if self.playout.queued_s < self.options.lead_s:
            self._room.set()

    def _news(self) -> list[PlaybackStarted | PlaybackStopped]:
        with self._lock:
            events = self.playout.events()
        if any(isinstance(event, PlaybackStopped) for event in events):
            self._log_underruns()
        return events

    def _log_underruns(self) -> None:
        playout = self.playout
        if playout.underruns > self._underruns_logged and playout.underrun_ratio > UNDERRUN_RATIO_LOGGED:
            self._underruns_logged = playout.underruns
            log.warning(
                "%s: the voice came too late %d times, %.1f %% of speaking time was silence for want of sound; %.0f ms are now collected after a gap",
                self.name, playout.underruns, playout.underrun_ratio * 100, playout.target_ms,
            )  # fmt: skip
