"""What every speech-to-text node has in common: which sound to decode next, and what its text means.

Owns ``Dictation`` (no waiting, no clock) and ``SpeechToText``, the node around it; an engine's own node adds one
method, ``decode``. The one rule: listening never waits for decoding. Sound and edges are taken in at once, one decode
at a time runs in a thread, and each stretch of speech gets exactly one final transcript, in order.

Partial transcripts are those of the whole segment so far, decoded again as it grows. A word is stable when two in a
row agree on it and on all before it: LocalAgreement-2 of Liu, Spanakis and Niehues, "Low-Latency Sequence-to-Sequence
Speech Recognition and Translation by Partial Hypothesis Selection" (2020).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from voiceflow.frames import EndFrame, ErrorFrame, InputAudioFrame, SpeechStarted, SpeechStopped, TranscriptFrame
from voiceflow.processor import Processor
from voiceflow.processors.hearing import MonoBranch
from voiceflow.processors.segments import Hush, Segment, Segmenter, SegmentOptions

__all__ = ["Agreement", "Dictation", "DictationOptions", "Job", "SpeechToText", "Transcription"]

log = logging.getLogger("voiceflow")

SAMPLE_RATE = 16_000


@dataclass(frozen=True, slots=True)
class Transcription:
    """What an engine made of some sound. ``confidence`` and ``no_speech`` (that nobody spoke) are 0 to 1, or None if not known."""

    text: str
    confidence: float | None = None
    no_speech: float | None = None


@dataclass(frozen=True, slots=True)
class DictationOptions:
    """When to decode, and over what."""

    first_partial_s: float = 0.25
    """Speech before the first partial transcript."""
    partial_every_s: float = 0.4
    """New sound before the next one. A hush calls for one at once: it may turn out to be the final."""
    reuse_partials: bool = True
    """A partial over all of the speech serves as the final. False for an engine that must be told the end."""
    tell_stable: bool = True
    """Tell which words of a partial will not change. False for an engine that makes the same mistake twice running."""
    segments: SegmentOptions = field(default_factory=SegmentOptions)

    def __post_init__(self) -> None:
        if self.first_partial_s < 0 or self.partial_every_s <= 0:
            raise ValueError(
                f"first_partial_s {self.first_partial_s} may not be negative, and partial_every_s {self.partial_every_s} must be positive"
            )


@dataclass(slots=True, eq=False)
class Job:
    """Sound to decode. ``number`` is that of its segment; ``spoken_at`` is when the speech began, in seconds."""

    number: int
    segment: Segment
    spoken_at: float
    final: bool


class Agreement:
    """Which leading words of the partial transcripts of one segment will not change any more."""

    def __init__(self) -> None:
        self._stable: list[str] = []
        self._previous: list[str] = []

    def update(self, text: str) -> tuple[str, int]:
        """The next hypothesis; its text, with stable words as they were first told, and how many of them there are."""
        words = text.split()
        agreed = 0
        for now, before in zip(words, self._previous, strict=False):
            if _bare(now) != _bare(before):
                break
            agreed += 1
        self._previous = words
        self._stable += words[len(self._stable) : agreed]
        return " ".join(self._stable + words[len(self._stable) :]), len(self._stable)


def _bare(word: str) -> str:
    """A word as far as agreement goes: punctuation and capitals come and go with what follows."""
    return word.strip(".,;:?!-\"'").lower()


class Dictation:
    """Takes sound and edges; says what to decode next; makes transcripts of what comes back."""

    def __init__(self, options: DictationOptions | None = None) -> None:
        self.options = options or DictationOptions()
        self._branch = MonoBranch(SAMPLE_RATE)
        self._segmenter = Segmenter(SAMPLE_RATE, self.options.segments)
        self._queue: deque[Job | TranscriptFrame] = deque()  # finals to decode, and those known without
        self._running: Job | None = None
        self._number = 0  # of the open or next segment
        self._begin_anew(0.0, 0)

    def _begin_anew(self, spoken_at: float, position: int) -> None:
        self._number += 1
        self._spoken_at = spoken_at
        self._agreement = Agreement()
        self._told = ("", 0)
        self._decoded_to = position + round((self.options.first_partial_s - self.options.partial_every_s) * SAMPLE_RATE)
        self._result: Transcription | None = None
        self._hush = Hush(SAMPLE_RATE)
        self._is_hushed = False

    # ------------------------------------------------------------------------------------------- what happens

    def hear(self, frame: InputAudioFrame, now: float) -> None:
        """The next sound. ``now`` places a first frame that has no ``pts``."""
        samples = self._branch.push(frame, now)
        piece = self._segmenter.push(samples)
        if piece is not None:
            self._queue.append(Job(self._number, piece, self._spoken_at, final=True))
            self._begin_anew(self._branch.clock.time_at(piece.end), piece.end)
        if self._segmenter.is_open and self._hush.push(samples):
            self._is_hushed = True

    def start(self, at: float) -> None:
        """The voice began at ``at`` seconds. Nothing happens if it was speaking already, or no sound has come yet."""
        if self._segmenter.is_open or not self._branch.clock.is_set:
            return
        position = self._branch.clock.position_at(at)
        begin = self._segmenter.start(position)
        self._begin_anew(at, max(position, begin))
        self._is_hushed = self._hush.push(self._segmenter.so_far().samples)

    def stop(self, at: float) -> None:
        """The voice ended at ``at`` seconds: its final transcript is due."""
        if self._segmenter.is_open:
            self._close(self._branch.clock.position_at(at))

    def finish(self) -> None:
        """No more sound will come."""
        if self._segmenter.is_open:
            self._close(self._segmenter.position)

    def _close(self, position: int) -> None:
        known, running = self._covering(position)
        segment = self._segmenter.stop(position, self._decoded_to if known else running.segment.end if running else 0)
        assert segment is not None
        if running:
            running.final = True
        elif known:
            self._queue.append(_final(known, self._spoken_at))
        elif not len(segment.samples):
            self._queue.append(_final(Transcription(""), self._spoken_at))
        else:
            self._queue.append(Job(self._number, segment, self._spoken_at, final=True))
        self._number += 1

    def _covering(self, position: int) -> tuple[Transcription | None, Job | None]:
        """A partial that covers all speech up to ``position``: its result, or its job if that is still under way."""
        if not self.options.reuse_partials:
            return None, None
        if self._result is not None and self._decoded_to >= position:
            return self._result, None
        running = self._running
        return None, running if running and running.number == self._number and running.segment.end >= position else None

    # ------------------------------------------------------------------------------------------- what to do

    @property
    def has_work(self) -> bool:
        """Whether ``next`` would give something, once the job under way is done."""
        return bool(self._queue) or self._partial_is_due

    @property
    def _partial_is_due(self) -> bool:
        if not self._segmenter.is_open:
            return False
        is_time = self._segmenter.position - self._decoded_to >= self.options.partial_every_s * SAMPLE_RATE
        return is_time or (self._is_hushed and self.options.reuse_partials)

    def next(self) -> Job | TranscriptFrame | None:
        """A job to decode and give to ``done`` before the next call, or a transcript to tell, or None."""
        if self._queue:
            item = self._queue.popleft()
            if isinstance(item, Job):
                self._running = item
            return item
        if not self._partial_is_due:
            return None
        self._is_hushed = False
        self._running = Job(self._number, self._segmenter.so_far(), self._spoken_at, final=False)
        return self._running

    def done(self, job: Job, transcription: Transcription) -> TranscriptFrame | None:
        """What to tell of a job's result. None: nothing new, or nobody waits for it any more."""
        self._running = None
        if job.final:
            return _final(transcription, job.spoken_at)
        if job.number != self._number:
            return None
        self._decoded_to, self._result = job.segment.end, transcription
        if not transcription.text:
            return None
        told = self._agreement.update(transcription.text) if self.options.tell_stable else (transcription.text, 0)
        if told == self._told:
            return None
        self._told = told
        return TranscriptFrame(text=told[0], final=False, confidence=transcription.confidence, stable=told[1], pts=job.spoken_at)


def _final(transcription: Transcription, spoken_at: float) -> TranscriptFrame:
    text = transcription.text
    return TranscriptFrame(text=text, confidence=transcription.confidence, stable=len(text.split()), pts=spoken_at)


class SpeechToText(Processor):
    """Turns the caller's speech into transcripts; a subclass says how, in ``decode``.

    Takes sound of any rate and channels, and the edges of a detector before it, which it passes on. While the caller
    speaks it yields partial transcripts; when they stop, one final, whose text is "" if nothing was said: whoever
    waits for it can go on. ``pts`` of a transcript is when its speech began.

    The final stands in place of all partials of its ``pts``, and no partial follows it: it may be shorter than they were,
    empty, or correct words called stable, as it is decoded over the whole segment. No final comes twice; speech longer than
    ``SegmentOptions.longest_s`` has several, each of words of its own with a later ``pts``. ``endpoint`` stays False: these
    engines do not judge whether the caller has finished.

    Nothing it yields is the agent's, so an interrupt leaves it alone. ``EndFrame`` waits for the last final. A decode
    that raises is reported as an ErrorFrame and, if it was a final's, told as "".
    """

    def __init__(self, options: DictationOptions | None = None) -> None:
        self._dictation = Dictation(options)
        self._work = asyncio.Event()
        self._idle = asyncio.Event()

    def decode(self, job: Job) -> Transcription:
        """Text of ``job.segment.samples``: mono float32 at 16 kHz, shape (n,). Runs in a thread, one job at a time, in order."""
        raise NotImplementedError(f"{type(self).__name__} needs a decode()")

    async def process(
        self, frame: InputAudioFrame | SpeechStarted | SpeechStopped | EndFrame
    ) -> AsyncIterator[SpeechStarted | SpeechStopped]:
        """Take it in and pass edges on; transcripts come from ``run``."""
        dictation = self._dictation
        if isinstance(frame, InputAudioFrame):
            dictation.hear(frame, self.session.time())
        elif isinstance(frame, SpeechStarted):
            dictation.start(frame.at)
        elif isinstance(frame, SpeechStopped):
            dictation.stop(frame.at)
        else:
            dictation.finish()
            self._idle.clear()
            self._work.set()
            await self._idle.wait()
            return
        if dictation.has_work:
            self._work.set()
        if not isinstance(frame, InputAudioFrame):
            yield frame

    async def run(self) -> AsyncIterator[TranscriptFrame | ErrorFrame]:
        """Decode what is due, one at a time."""
        while True:
            item = self._dictation.next()
            if item is None:
                self._work.clear()
                self._idle.set()
                await self._work.wait()
            elif isinstance(item, TranscriptFrame):
                yield item
            else:
                try:
                    transcription = await self.run_blocking(self.decode, item)
                except Exception as error:  # whatever an engine raises is reported, and the call goes on
                    log.exception("%s could not decode %.1f s of speech", self.name, len(item.segment.samples) / SAMPLE_RATE)
                    transcription = Transcription("")
                    yield ErrorFrame(node=self.name, frame="InputAudioFrame", error=f"{type(error).__name__}: {error}")
                transcript = self._dictation.done(item, transcription)
                if transcript is not None:
                    yield transcript
