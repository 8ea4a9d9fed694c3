"""A loudspeaker that remembers: what a listener heard, and when.

It models a peer that plays in real time from arrival, without a jitter buffer and without guards of its own: whatever
stale sound the engine lets through is heard here.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

import numpy as np

from voiceflow.frames import (
    AudioFormat,
    EndFrame,
    Heard,
    HoldFrame,
    OutputAudioFrame,
    PlaybackStarted,
    PlaybackStopped,
    ResumeFrame,
    UtteranceEnded,
)
from voiceflow.interruption import Interruption
from voiceflow.processor import Processor
from voiceflow.testing.scripts import VOICE_RATE, labels

__all__ = ["Played", "RecordingSink"]

BEGUN_S = 0.05
"""A word counts as heard when its sound began at least this long ago."""


@dataclass(frozen=True, slots=True)
class Played:
    """A stretch of sound: from ``at`` to ``until`` on the session's clock; ``frame`` is where it came from."""

    frame: OutputAudioFrame
    at: float
    until: float

    def label(self, step: int = 1) -> int:
        """Of labelled sound: which sentence this is (0: silence)."""
        return (labels(self.frame.pcm, step) or [0])[0]


class RecordingSink(Processor):
    """Plays each frame after the one before it, reports playback, and makes whoever is ``lead_s`` ahead wait."""

    takes = (AudioFormat(VOICE_RATE),)

    def __init__(self, *, lead_s: float = 0.2) -> None:
        self.lead_s = lead_s
        self.interruptions: list[Interruption] = []
        self._played: list[Played] = []
        self._held: list[OutputAudioFrame] | None = None
        self._ended: set[int] = set()
        self._reported: set[int] = set()
        self._open: int | None = None
        self._changed = asyncio.Event()
        self._settled = asyncio.Event()  # nothing is left to report

    def heard(self) -> list[Played]:
        """What has reached the ear so far."""
        now = self.session.time()
        return [replace(p, until=min(p.until, now)) for p in self._played if p.at < now]

    def words(self, utterance: int | None = None) -> list[str]:
        """The words heard so far, of one utterance or of all."""
        return [w for p in self._played if utterance in (None, p.frame.utterance) for w in self._words_begun(p)]

    async def process(self, frame: OutputAudioFrame | UtteranceEnded | HoldFrame | ResumeFrame | EndFrame) -> None:
        """Queue sound; with EndFrame, wait until all of it has been heard."""
        if isinstance(frame, OutputAudioFrame):
            await self._queue(frame)
        elif isinstance(frame, UtteranceEnded):
            self._ended.add(frame.utterance)
        elif isinstance(frame, HoldFrame):
            self._hold()
        elif isinstance(frame, ResumeFrame):
            self._resume()
        else:
            self._resume()
            await self._until(0.0)
            self._settled.clear()
            self._changed.set()
            await self._settled.wait()
        self._changed.set()

    def on_interrupt(self, interrupt: Interruption) -> None:
        """Fall silent at once and say what had been heard."""
        now = self.session.time()
        self.interruptions.append(interrupt)
        if self._open is not None:
            utterance = self._open
            text = " ".join(self.words(utterance))
            interrupt.heard.append(Heard(utterance, text, complete=False))
        self._played = [replace(p, until=min(p.until, now)) for p in self._played if p.at < now]
        self._held, self._open = None, None
        self._reported |= {p.frame.utterance for p in self._played}
        self._ended.clear()
        self._changed.set()

    async def run(self) -> AsyncIterator[PlaybackStarted | PlaybackStopped]:
        """Report the first and the last sound of each utterance when it is heard."""
        while True:
            self._changed.clear()
            report = self._next_report()
            if report is not None and report[0] <= self.session.time():
                at, utterance, is_start = report
                if is_start:
                    self._open = utterance
                    yield PlaybackStarted(utterance=utterance, at=at)
                else:
                    self._open = None
                    self._reported.add(utterance)
                    self._ended.discard(utterance)
                    yield PlaybackStopped(heard=Heard(utterance, " ".join(self.words(utterance)), complete=True), at=at)
                continue
            if report is None:
                self._settled.set()
            try:
                async with asyncio.timeout(None if report is None else report[0] - self.session.time()):
                    await self._changed.wait()
            except TimeoutError:
                pass

    def _next_report(self) -> tuple[float, int, bool] | None:
        """(when, which utterance, whether it is its start) of the next thing to report, or None."""
        if self._held is not None:
            return None
        if self._open is None:
            first = next((p for p in self._played if p.frame.utterance not in self._reported), None)
            return None if first is None else (first.at, first.frame.utterance, True)
        if self._open not in self._ended:
            return None
        return max(p.until for p in self._played if p.frame.utterance == self._open), self._open, False

    async def _queue(self, frame: OutputAudioFrame) -> None:
        if self._held is not None:
            self._held.append(frame)
        else:
            self._reported.discard(frame.utterance) if frame.utterance != self._open and frame.utterance in self._reported else None
            self._play(frame)
        self._changed.set()
        await self._until(self.lead_s)

    def _play(self, frame: OutputAudioFrame) -> None:
        at = max(self.session.time(), self._played[-1].until if self._played else 0.0)
        self._played.append(Played(frame, at, at + frame.duration))

    async def _until(self, lead_s: float) -> None:
        """Wait until no more than this much is left to play."""
        while self._held is not None or (self._played and self._played[-1].until - self.session.time() > lead_s + 1e-9):
            wait_s = 0.02 if self._held is not None else self._played[-1].until - self.session.time() - lead_s
            await asyncio.sleep(wait_s)

    def _hold(self) -> None:
        if self._held is not None:
            return
        now = self.session.time()
        self._held = []
        for played in [p for p in self._played if p.until > now]:
            cut_s = max((w.start for w in played.frame.words if played.at + w.start <= now), default=0.0) if played.at < now else 0.0
            self._held.append(_from(played.frame, cut_s))
        self._played = [replace(p, until=min(p.until, now)) for p in self._played if p.at < now]

    def _resume(self) -> None:
        held, self._held = self._held, None
        for frame in held or []:
            self._play(frame)

    def _words_begun(self, played: Played) -> list[str]:
        limit = min(self.session.time(), played.until) - BEGUN_S + 1e-9
        return [word.text for word in played.frame.words if played.at + word.start <= limit]


def _from(frame: OutputAudioFrame, second: float) -> OutputAudioFrame:
    """The rest of a frame, from the start of the word that begins at `second`."""
    if second <= 0:
        return frame
    samples = np.frombuffer(frame.pcm, "<i2")[round(second * frame.sample_rate) * frame.channels :]
    words = tuple(w for w in frame.words if w.start >= second)
    return OutputAudioFrame(samples.tobytes(), frame.sample_rate, frame.channels, words=words, utterance=frame.utterance, epoch=frame.epoch)
