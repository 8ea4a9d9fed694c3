"""The speaking end of an agent: a playout, paced by the loop's clock, in front of whatever takes the sound.

Its one rule: the n-th block of a stretch of speech is due n block lengths after the first, however late one of them was.

A node that has a clock of its own (a sound device) subclasses ``Speaker`` and pulls the playout itself. A far end that
has a buffer of its own (a phone carrier, a browser) gives ``clear``, and may be sent sound ahead of its time.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import ClassVar

from voiceflow.frames import (
    AudioFormat,
    EndFrame,
    HoldFrame,
    OutputAudioFrame,
    PlaybackStarted,
    PlaybackStopped,
    ResumeFrame,
    UtteranceEnded,
    WordsHeard,
)
from voiceflow.interruption import Interruption
from voiceflow.playout import Playout
from voiceflow.playout.ear import DelayClock, EarClock, InstantClock, MarkClock, ReportClock
from voiceflow.playout.pacing import Pacer
from voiceflow.playout.refill import PlayoutOptions
from voiceflow.processor import Processor

__all__ = ["Speaker", "SpeakerOptions"]

log = logging.getLogger("voiceflow")

UNDERRUN_RATIO_LOGGED = 0.001

PIECE_S = 0.02
"""The first piece of a voice has at least so much sound."""

RESOLUTION_S = 1e-6
"""Closer than this is now: the loop's timers are no finer."""

Report = PlaybackStarted | WordsHeard | PlaybackStopped

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
    ahead_s: float = 0.0
    """Sound may leave this long before its time, for a far end that buffers it and can be told to clear. It bridges a
    late network or a stall here. 0: each block leaves when it is due. At least one block is always out."""
    mark_every_s: float = 0.2
    """How much sound there is between two marks, where the far end returns marks."""
    continuous: bool = False
    """Silence leaves too, from start to end: for a phone line, or a recording on the clock. False: nothing leaves
    while nothing is said."""
    paced: bool = True
    """False: sound leaves as fast as it is made and counts as heard; holds have nothing to act on. For a file."""
    playout: PlayoutOptions = field(default_factory=PlayoutOptions)

    def __post_init__(self) -> None:
        if self.block_ms <= 0:
            raise ValueError(f"SpeakerOptions: block_ms is {self.block_ms}, it must be more than 0")
        for name in ("ahead_s", "mark_every_s"):
            if getattr(self, name) < 0:
                raise ValueError(f"SpeakerOptions: {name} is {getattr(self, name)}, it must not be negative")
        if self.ahead_s and not self.paced:
            raise ValueError(f"SpeakerOptions: ahead_s {self.ahead_s} has no meaning with paced=False, where all leaves at once")
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

    ``clear()`` tells a far end with a buffer of its own to throw it away, without waiting. With it an interrupt and a hold
    call it when anything that left may not have been heard, and a resume sends again, from the start of the cut word,
    what was thrown away; nothing fades then, the far end cuts. ``mark(name)`` sets a mark behind what was sent: its way
    back goes into ``mark_returned``. A subclass may override both instead.

    Raises:
        ValueError: ``ahead_s`` without a ``clear``; marks without a MarkClock, or the reverse.
    """

    blocks_on_time: ClassVar[bool] = True
    """Each block is due to the sample when it is said to be. False: a device's own clock wanders about the loop's."""

    def __init__(
        self,
        play: Callable[[bytes], object],
        format: AudioFormat | None = None,
        options: SpeakerOptions | None = None,
        *,
        clock: EarClock | None = None,
        clear: Callable[[], object] | None = None,
        mark: Callable[[str], object] | None = None,
    ) -> None:
        self.options = options or SpeakerOptions()
        self.format = format or AudioFormat(24000)
        self.takes = (self.format,)
        self.holds_ms = self.options.latency_s * 1000
        self._play = play
        self._clear = clear
        self._mark = mark
        recalls = self.options.paced and (clear is not None or type(self).clear is not Speaker.clear)
        if self.options.ahead_s and not recalls:
            raise ValueError(
                f"{type(self).__name__}: ahead_s is {self.options.ahead_s}, but the far end cannot be told to clear, so an interrupt "
                "would not be silent; give clear= or leave ahead_s at 0"
            )
        marks = mark is not None or type(self).mark is not Speaker.mark
        if clock is None:
            clock = self._own_clock(marks)
        if marks is not isinstance(clock, MarkClock):
            raise ValueError(f"{type(self).__name__}: marks need both, a mark= that sets them and a MarkClock that knows them")
        self._marks = clock if isinstance(clock, MarkClock) else None
        self._reports = clock if isinstance(clock, ReportClock) else None
        self.playout = Playout(self.format, self.options.playout, clock, recalls=recalls)
        self._pacer = Pacer(self.format.sample_rate, self.options.block_ms / 1000, self.options.ahead_s)
        self._lock = threading.Lock()
        """Around each call to the playout, for subclasses that pull in another thread. Never held across a wait."""
        self._stirred = asyncio.Event()
        """Something was done to the playout since the pacing loop last looked."""
        self._room = asyncio.Event()
        self._quiet = asyncio.Event()
        """All has been heard, and all of that reported."""
        self._underruns_logged = 0

    def _own_clock(self, marks: bool) -> EarClock:
        options, rate = self.options, self.format.sample_rate
        if not options.paced:
            return InstantClock()
        return MarkClock(rate, options.latency_s) if marks else DelayClock(rate, options.latency_s, exact=options.latency_known)

    # ------------------------------------------------------------------------------- the far end

    def clear(self) -> None:
        """Tell the far end to throw away what it has, without waiting. Called in the interrupt itself."""
        if self._clear is not None:
            self._clear()

    def mark(self, name: str) -> None:
        """Set a mark behind what was sent so far, without waiting."""
        if self._mark is not None:
            self._mark(name)

    @property
    def position(self) -> int:
        """Samples that have left, silence included: where the stream is that ``played_to`` counts in."""
        return self.playout.ledger.left

    def mark_returned(self, name: str) -> bool:
        """The far end sent this mark back. False if that proves nothing: it was cleared, or never set. Raises ValueError without marks."""
        if self._marks is None:
            raise ValueError(f"{self.name or type(self).__name__} sets no marks, so none can come back: it has no MarkClock")
        return self._prove(self._marks.returned(name, self.session.time()))

    def played_to(self, position: int) -> bool:
        """The far end reports what it has played up to. False if that was cleared. Raises ValueError without a ReportClock."""
        if self._reports is None:
            raise ValueError(f"{self.name or type(self).__name__} follows no reports: it has no ReportClock")
        return self._prove(self._reports.report(position, self.session.time()))

    def _prove(self, proves: bool) -> bool:
        if proves:
            self._stirred.set()
        return proves

    def _throw_away(self, now: float) -> None:
        """The far end throws away what it has, and what comes next is due at once."""
        self._pacer.cleared(now)
        self.clear()

    # ------------------------------------------------------------------------------- what comes in

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
                self._hold(self.session.time())
        elif isinstance(frame, ResumeFrame):
            with self._lock:
                self.playout.resume(self.session.time())
        else:
            await self._finish()
        self._stirred.set()

    def _hold(self, now: float, *, lost: bool = False) -> None:
        with self._lock:
            taken_back = self.playout.hold(now, lost=lost)
        if taken_back and self.playout.recalls:
            self._throw_away(now)

    async def _finish(self) -> None:
        with self._lock:
            self.playout.end()
            self.playout.resume(self.session.time())
        self._quiet.clear()
        self._stirred.set()
        await self._quiet.wait()

    def on_interrupt(self, interrupt: Interruption) -> None:
        """Silence, here and at the far end, and what was heard of each utterance in hand."""
        with self._lock:
            unheard = self.playout.recalls and self.playout.unheard(interrupt.at)
            interrupt.heard.extend(self.playout.clear(interrupt.at))
        self._stirred.set()
        if unheard:
            self._throw_away(interrupt.at)
        self._log_underruns()

    # ------------------------------------------------------------------------------- what leaves

    async def run(self) -> AsyncIterator[PlaybackStarted | WordsHeard | PlaybackStopped]:
        """Pace the blocks and report what the ear comes past."""
        stretch = self._stretch if self.options.paced else self._as_it_comes
        while True:
            async with contextlib.aclosing(stretch()) as events:
                async for event in events:
                    yield event
            if self.playout.needs_look:
                await self._rest(self._look_at())
                for event in self._look():
                    yield event
            else:
                if self.playout.idle:
                    self._quiet.set()
                await self._stirred.wait()
                self._stirred.clear()

    async def _stretch(self) -> AsyncGenerator[Report]:
        """Blocks one behind the other until there is nothing left to pull for."""
        loop, pacer = asyncio.get_running_loop(), self._pacer
        # Of a block longer than a voice's first piece the rest would be silence: where it may leave early, it waits for that.
        pacer.begin(loop.time() + min(pacer.early_s, max(pacer.block_s - PIECE_S, 0.0)))
        while self.playout.has_sound or self.options.continuous:
            at = pacer.leaves_at(ready=pacer.early_s > 0 and self.playout.ready(pacer.samples))
            wait_s = at - loop.time()
            if wait_s > RESOLUTION_S and self.playout.recalls:
                await self._rest(at)  # more sound may let it leave earlier, and a clear at once
                continue
            if wait_s > 0:
                await asyncio.sleep(wait_s)
            pacer.leaves_now(loop.time())
            due, samples = pacer.due, pacer.samples
            pacer.leave()
            self._pull(samples, min(due, loop.time()), due)
            for event in self._news():
                yield event
            if self.playout.idle:
                self._quiet.set()

    async def _as_it_comes(self) -> AsyncGenerator[Report]:
        """All there is, at once."""
        now = asyncio.get_running_loop().time()
        self._pull(self.playout.available, now, now)
        for event in self._news():
            yield event

    async def _rest(self, until: float) -> None:
        """Wait until then, or until something is done to the playout; not at all if something was since it was looked at."""
        timer = asyncio.get_running_loop().call_at(until, self._stirred.set)
        try:
            await self._stirred.wait()
        finally:
            timer.cancel()
        self._stirred.clear()

    def _look_at(self) -> float:
        """When the ear may have come further, all having left: at the end of the last block, then a block later and so on."""
        now = asyncio.get_running_loop().time()
        return self._pacer.free_at if self._pacer.free_at > now + RESOLUTION_S else now + self._pacer.block_s

    def _look(self) -> list[Report]:
        with self._lock:
            self.playout.look(asyncio.get_running_loop().time())
        return self._news()

    def _pull(self, samples: int, now: float, due: float) -> None:
        with self._lock:
            pcm = self.playout.pull(samples, now, self.session.epoch, due)
        if pcm:
            self._play(pcm)
            self._set_mark()
        if self.playout.queued_s < self.options.lead_s:
            self._room.set()

    def _set_mark(self) -> None:
        """Behind every so much speech, and behind what may be its end."""
        if self._marks is None:
            return
        ledger = self.playout.ledger
        since = ledger.left - self._marks.marked
        if ledger.spoken_to > self._marks.marked and (
            not self.playout.queued_s or since >= self.options.mark_every_s * self.format.sample_rate
        ):
            self.mark(self._marks.mark(ledger.left))

    def _news(self) -> list[Report]:
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
