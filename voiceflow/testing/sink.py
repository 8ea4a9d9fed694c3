"""A loudspeaker that remembers: what a listener heard, and when.

It models a peer that plays in real time from arrival, without a jitter buffer and without guards of its own: whatever
stale sound the engine lets through is heard here.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from itertools import takewhile

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
    Word,
    WordsHeard,
)
from voiceflow.interruption import Interruption
from voiceflow.processor import Processor
from voiceflow.testing.scripts import VOICE_RATE, labels

__all__ = ["Played", "RecordingSink"]

BEGUN_S = 0.05
"""A word counts as heard when its sound began at least this long ago."""

EPSILON_S = 1e-9
"""Sums of floats that should be equal differ by less."""


@dataclass(frozen=True, slots=True)
class Played:
    """A stretch of sound: from ``at`` to ``until`` on the session's clock; ``frame`` is where it came from."""

    frame: OutputAudioFrame
    at: float
    until: float
    said: int = 0
    """How many of its words are said again after a hold, and had been heard before it."""

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
        self._held: list[tuple[OutputAudioFrame, int]] | None = None
        self._ended: set[int] = set()
        self._over = 0
        """How many of the stretches played belong to utterances that are over."""
        self._open: int | None = None
        self._told = 0
        """Words of the open utterance that were reported."""
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
            interrupt.heard.append(Heard(self._open, " ".join(self._open_words()), complete=False))
        self._played = [replace(p, until=min(p.until, now)) for p in self._played if p.at < now]
        self._held, self._open = None, None
        self._over = len(self._played)
        self._ended.clear()
        self._changed.set()

    async def run(self) -> AsyncIterator[PlaybackStarted | WordsHeard | PlaybackStopped]:
        """Report the first and the last sound of each utterance, and its words, when they are heard."""
        while True:
            self._changed.clear()
            report = self._next_report()
            if report is not None and report[0] <= self.session.time() + EPSILON_S:
                at, utterance, what = report
                if what is WordsHeard:
                    words = self._open_words()[self._told :]
                    self._told += len(words)
                    yield WordsHeard(text=" ".join(words), utterance=utterance, at=at)
                elif what is PlaybackStarted:
                    self._open, self._told = utterance, 0
                    yield PlaybackStarted(utterance=utterance, at=at)
                else:
                    heard = Heard(utterance, " ".join(self._open_words()), complete=True)
                    self._over += len(self._open_stretches())
                    self._open = None
                    self._ended.discard(utterance)
                    yield PlaybackStopped(heard=heard, at=at)
                continue
            if report is None:
                self._settled.set()
            try:
                async with asyncio.timeout(None if report is None else report[0] - self.session.time()):
                    await self._changed.wait()
            except TimeoutError:
                pass

    def _next_report(self) -> tuple[float, int, type[PlaybackStarted | WordsHeard | PlaybackStopped]] | None:
        """(when, of which utterance, what) the next thing to report is, or None."""
        if self._open is None:
            if len(self._played) == self._over:
                # One that ended without a sound is over at once.
                return (self.session.time(), min(self._ended), PlaybackStopped) if self._ended else None
            first = self._played[self._over]
            return first.at, first.frame.utterance, PlaybackStarted
        stretches = self._open_stretches()
        begun = [at for p in stretches for at in _words_at(p)]
        if len(begun) > self._told:
            return begun[self._told], self._open, WordsHeard
        if self._held is not None or self._open not in self._ended:
            return None
        return stretches[-1].until, self._open, PlaybackStopped

    def _open_stretches(self) -> list[Played]:
        """What the utterance being said has played so far, or will."""
        return list(takewhile(lambda p: p.frame.utterance == self._open, self._played[self._over :]))

    def _open_words(self) -> list[str]:
        return [word for p in self._open_stretches() for word in self._words_begun(p)]

    async def _queue(self, frame: OutputAudioFrame) -> None:
        if self._held is not None:
            self._held.append((frame, 0))
        else:
            self._play(frame)
        self._changed.set()
        await self._until(self.lead_s)

    def _play(self, frame: OutputAudioFrame, said: int = 0) -> None:
        at = max(self.session.time(), self._played[-1].until if self._played else 0.0)
        self._played.append(Played(frame, at, at + frame.duration, said))

    async def _until(self, lead_s: float) -> None:
        """Wait until no more than this much is left to play."""
        while self._held is not None or (self._played and self._played[-1].until - self.session.time() > lead_s + EPSILON_S):
            wait_s = 0.02 if self._held is not None else self._played[-1].until - self.session.time() - lead_s
            await asyncio.sleep(wait_s)

    def _hold(self) -> None:
        if self._held is not None:
            return
        now = self.session.time()
        self._held = []
        for played in [p for p in self._played if p.until > now]:
            cut_s = max((w.start for w in played.frame.words if played.at + w.start <= now), default=0.0) if played.at < now else 0.0
            rest = _from(played.frame, cut_s)
            begun = sum(played.at + cut_s + w.start <= now - BEGUN_S + EPSILON_S for w in rest.words)
            self._held.append((rest, max(begun, played.said - (len(played.frame.words) - len(rest.words)))))
        self._played = [replace(p, until=min(p.until, now)) for p in self._played if p.at < now]

    def _resume(self) -> None:
        held, self._held = self._held, None
        for frame, said in held or []:
            self._play(frame, said)

    def _words_begun(self, played: Played) -> list[str]:
        heard = sum(at <= self.session.time() + EPSILON_S for at in _words_at(played))
        return [word.text for word in played.frame.words[played.said : played.said + heard]]


def _words_at(played: Played) -> list[float]:
    """When each word of it is heard that is, and was not before."""
    times = [played.at + word.start + BEGUN_S for word in played.frame.words[played.said :]]
    return [at for at in times if at <= played.until + EPSILON_S]


def _from(frame: OutputAudioFrame, second: float) -> OutputAudioFrame:
    """The rest of a frame, from the start of the word that begins at `second`."""
    if second <= 0:
        return frame
    samples = np.frombuffer(frame.pcm, "<i2")[round(second * frame.sample_rate) * frame.channels :]
    words = tuple(Word(w.text, w.start - second, w.end - second, w.estimated) for w in frame.words if w.start >= second)
    return OutputAudioFrame(samples.tobytes(), frame.sample_rate, frame.channels, words=words, utterance=frame.utterance, epoch=frame.epoch)
