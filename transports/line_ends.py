"""The two nodes of a line: the caller at a far end, and the agent's voice there.

The one rule: they never touch a socket. What comes is handed to ``LineIn`` and what leaves is taken from the outbox, by ``line``.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace as with_options

from voiceflow.frames import (
    AudioFormat,
    EndFrame,
    FloorReleased,
    FloorTaken,
    Frame,
    InputAudioFrame,
    InterruptFrame,
    OutputAudioFrame,
    PlaybackStarted,
    PlaybackStopped,
    TranscriptFrame,
    Travels,
    UtteranceEnded,
    WordsHeard,
    replace,
)
from voiceflow.interruption import Interruption
from voiceflow.phone import AnsweredBy, DigitReceived, DigitsFrame
from voiceflow.pipeline import Pipeline
from voiceflow.playout.ear import DelayClock, EarClock, MarkClock, ReportClock
from voiceflow.processor import Processor
from voiceflow.session import Session
from voiceflow.transports.outbox import Outbox
from voiceflow.transports.speaker import Report, Speaker, SpeakerOptions, Spoken
from voiceflow.transports.wire import AppMessage, CallStarted, TellFrame, Wire

__all__ = ["ConnectionClock", "LineIn", "LineOut", "Said"]

Said = InputAudioFrame | TranscriptFrame | DigitReceived | AnsweredBy | FloorTaken | FloorReleased | AppMessage | InterruptFrame | EndFrame

HERE = (PlaybackStarted, WordsHeard, PlaybackStopped, UtteranceEnded, InterruptFrame, EndFrame, DigitsFrame, TellFrame)
"""What happens at this end, or comes to it: not looked for on the edges."""

TRUST_S = 0.25
"""Two reports that did not come."""

PATIENCE_S = 20.0
"""A far end whose reports are overdue by more than this has just stopped reporting: one that is gone is found out sooner, by two pings."""

RECENT = 16
"""Frames that are known to have been told: a frame may pass several edges."""


class LineIn(Processor):
    """The caller. ``call``: what the far end said when it began. ``live_s``: sound it holds for a pipeline that is not there yet or
    that falls behind; of more the oldest is dropped, and counted. ``limit``: other frames it holds.
    """

    def __init__(self, format: AudioFormat, call: CallStarted, *, live_s: float = 2.0, limit: int = 256) -> None:
        self.makes = format
        self.call = call
        self.live_s = live_s
        self.limit = limit
        self.dropped = 0
        """Frames of sound that were lost because nobody took them in time."""
        self._room = round(live_s * format.sample_rate) * 2 * format.channels
        self._frames: deque[Frame] = deque()
        self._bytes = 0
        self._others = 0
        self._filled = asyncio.Event()

    def deliver(self, frame: Frame, now: float) -> bool:
        """Take a frame of the caller's. An InterruptFrame is acted on at once, before all that waits. False: there is no room."""
        if isinstance(frame, InterruptFrame):
            if self._session is not None and self._session.state in ("starting", "running", "ending"):
                self._session.interrupt(frame.reason or "the caller asked for it")
            return True
        if frame.pts is None:
            frame = replace(frame, pts=now - frame.duration if isinstance(frame, InputAudioFrame) else now)
        if isinstance(frame, InputAudioFrame):
            if not frame.pcm:
                return True
            self._bytes += len(frame.pcm)
            while self._bytes > self._room and self._drop_oldest_sound():
                self.dropped += 1
        elif self._others >= self.limit:
            return False
        else:
            self._others += 1
        self._frames.append(frame)
        self._filled.set()
        return True

    def clear(self, now: float) -> None:
        """The far end takes back the sound that waits here."""
        self._frames = deque(frame for frame in self._frames if not isinstance(frame, InputAudioFrame))
        self._bytes = 0

    def start_again(self, wire: Wire) -> None:
        """Another connection carries the call."""

    async def run(self) -> AsyncIterator[Said]:
        """Yield what was delivered, in order, until the session ends."""
        while True:
            for frame in self.waiting():
                yield frame
            self._filled.clear()
            await self._filled.wait()

    def waiting(self) -> Iterator[Said]:
        """Take what waits, in order."""
        while self._frames:
            frame = self._frames.popleft()
            if isinstance(frame, InputAudioFrame):
                self._bytes -= len(frame.pcm)
            else:
                self._others -= 1
            yield frame  # type: ignore[misc]  # the engine checks it against the annotation

    def _drop_oldest_sound(self) -> bool:
        oldest = next((i for i, frame in enumerate(self._frames) if isinstance(frame, InputAudioFrame)), None)
        if oldest is None:
            return False
        dropped = self._frames[oldest]
        assert isinstance(dropped, InputAudioFrame)
        self._bytes -= len(dropped.pcm)
        del self._frames[oldest]
        return True


class LineOut(Speaker):
    """The agent's voice, paced; what the wire has words for is told, in the order in which it happens.

    It takes the frames that the wire ``tells``, so that they come this far, and sees them on the edges of the pipeline (``watch``)
    where they end sooner. ``DigitsFrame`` waits until all that was said before it has left.
    """

    def __init__(self, wire: Wire, outbox: Outbox, options: SpeakerOptions) -> None:
        self.wire = wire
        self.outbox = outbox
        self._ended: UtteranceEnded | None = None
        """The utterance being said has been made to its end, and the far end does not know yet that it has it all."""
        self._end_told: UtteranceEnded | None = None
        self._told: deque[Frame] = deque(maxlen=RECENT)
        self._left = asyncio.Event()
        self._lost = False
        """Held for want of a connection."""
        options = with_options(options, block_ms=wire.block_ms, ahead_s=wire.ahead_s if wire.clears else 0.0)
        super().__init__(
            self._send_sound,
            wire.speaks,
            options,
            clock=_clock(wire, options, lambda: self.position - outbox.waiting),
            clear=self._send_clear if wire.clears else None,
            mark=self._send_mark if wire.proof == "marks" else None,
        )
        downward = {told for told in wire.tells if told.travels is Travels.DOWN and not issubclass(told, HERE)}
        self.contract = with_options(self.contract, accepts=self.contract.accepts | downward)  # type: ignore[misc]  # this line's own

    async def process(self, frame: Spoken | DigitsFrame | TellFrame) -> None:
        """As Speaker; the rest is told."""
        if isinstance(frame, DigitsFrame):
            while self.playout.queued_s > 0:
                self._left.clear()
                await self._left.wait()
            self.tell(frame)
        elif isinstance(frame, TellFrame):
            self.tell(frame)
        elif isinstance(frame, Spoken):
            await super().process(frame)
            self._note_end(frame)

    def on_interrupt(self, interrupt: Interruption) -> None:
        """Silence: the sound that waits here is thrown away, and the far end is told before anything else."""
        before = len(interrupt.heard)
        super().on_interrupt(interrupt)
        self.outbox.throw_away_sound()
        self._ended = self._end_told = None
        self.tell(InterruptFrame(reason=interrupt.reason))
        for heard in interrupt.heard[before:]:
            self.tell(PlaybackStopped(heard=heard, at=interrupt.at))

    def lose(self, now: float) -> None:
        """The connection is lost: be silent until it is back, or there is another. Again: as long as it is lost."""
        self._lost = self._lost or not self.playout.held
        self._hold(now, lost=True)

    def find(self, now: float) -> None:
        """It is back: go on from the word that was cut, unless the agent holds its speech itself."""
        if self._lost:
            self.playout.resume(now)
            self._stirred.set()
        self._lost = False

    def find_again(self, wire: Wire, now: float) -> None:
        """There is another: what it says first goes first, and then the word that was cut."""
        self.wire = wire
        self.lose(now)  # it may have gone on meanwhile
        self.outbox.start_again(self.position)
        self.outbox.put_first(wire.answers(), now)
        self.find(now)

    def watch(self, session: Session, pipeline: Pipeline, sink: Processor) -> None:
        """See the frames that the wire tells where they end, if that is before here."""
        if self.wire.tells:
            session.tap(self._see)

    def tell(self, frame: Frame) -> None:
        """Tell the far end, if its wire has a word for it."""
        self.outbox.put(self.wire.tell(frame), self._now())

    def _see(self, frame: Frame, source: str, target: str) -> None:
        if not isinstance(frame, self.wire.tells) or isinstance(frame, HERE):
            return
        if not self._goes_on(frame, target) and not any(frame is told for told in self._told):
            self._told.append(frame)
            self.tell(frame)

    def _news(self) -> list[Report]:
        reports = super()._news()
        for report in reports:
            self.tell(report)
        return reports

    def _goes_on(self, frame: Frame, target: str) -> bool:
        """The node may hand it on, changed: what leaves the last such node is what counts."""
        told = tuple(told for told in self.wire.tells if isinstance(frame, told))
        node = next((node for node in self.session.pipeline.nodes if node.name == target), self)
        return node is not self and any(issubclass(made, told) for made in node.contract.yields)

    def _note_end(self, frame: Spoken) -> None:
        if isinstance(frame, UtteranceEnded):
            self._ended = frame
            self._tell_end()
        elif isinstance(frame, OutputAudioFrame):
            self._ended = self._end_told = None

    def _tell_end(self) -> None:
        """With the last of its sound: what is taken back and sent again ends again."""
        if self._ended is not None and not self.playout.queued_s and not self.playout.held:
            self.outbox.put_sound(self.wire.tell(self._ended), 0, self._now())
            self._ended, self._end_told = None, self._ended

    def _send_sound(self, pcm: bytes) -> None:
        self.outbox.put_sound(self.wire.audio(pcm), len(pcm) // (2 * self.format.channels), self._now())
        self._left.set()
        self._tell_end()

    def _send_mark(self, name: str) -> None:
        self.outbox.put_sound(self.wire.mark(name), 0, self._now())

    def _send_clear(self) -> None:
        self.outbox.throw_away_sound()
        self.outbox.put_first(self.wire.clear(), self._now())
        self._ended = self._ended or self._end_told

    def _now(self) -> float:
        return asyncio.get_running_loop().time()


class ConnectionClock(ReportClock):
    """A far end that has ever reported is believed to play on without word of it for ``TRUST_S`` only: then the connection may be gone,
    and what was not reported has to be said again. After ``PATIENCE_S`` more it has just stopped reporting. ``sent``: how far into the
    stream sound has really left; what waits here for a slow network was not heard."""

    def __init__(self, sample_rate: int, latency_s: float, sent: Callable[[], int]) -> None:
        super().__init__(sample_rate, latency_s)
        self.stood: Callable[[], float] = lambda: -math.inf
        """When the connection was last known to stand: from then on, too, the far end is believed for ``TRUST_S``."""
        self._sent = sent
        self._proof: int | None = None

    def report(self, position: int, now: float) -> bool:
        """See ReportClock."""
        proves = super().report(position, now)
        if proves:
            self._proof = position
        return proves

    def ear(self, now: float) -> float:
        """No further than what has left, and than what a far end is believed."""
        ear = min(super().ear(now), self._sent())
        if self._proof is None:
            return ear
        proof = max(self._proof, self._timetable.position(self.stood() - self.latency_s))
        limit = round(proof + TRUST_S * self.sample_rate)
        overdue_s = now - self._timetable.due(limit) - self.latency_s
        return min(ear, limit) if overdue_s <= PATIENCE_S else ear

    def cleared(self, position: int, now: float) -> None:
        """See ReportClock. What was thrown away counts as played."""
        super().cleared(position, now)
        if self._proof is not None:
            self._proof = position


def _clock(wire: Wire, options: SpeakerOptions, sent: Callable[[], int]) -> EarClock:
    rate = wire.speaks.sample_rate
    if wire.proof == "marks":
        return MarkClock(rate, options.latency_s)
    if wire.proof == "reports":
        return ConnectionClock(rate, options.latency_s, sent)
    return DelayClock(rate, options.latency_s, exact=options.latency_known)
