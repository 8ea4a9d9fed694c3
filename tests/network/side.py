"""The agent's side of a trial: who answers, what it said and believes, and what is seen of its calls from there."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from voiceflow.frames import (
    InputAudioFrame,
    InterruptFrame,
    LLMEnded,
    LLMStarted,
    OutputAudioFrame,
    PlaybackStopped,
    SentenceFrame,
    UtteranceEnded,
)
from voiceflow.interruption import Interruption
from voiceflow.pipeline import Pipeline
from voiceflow.processor import Processor
from voiceflow.session import Session
from voiceflow.transports.calls import CallRecord, Calls, Watch
from voiceflow.transports.line_ends import LineOut

__all__ = ["PIECE", "Agent", "Side", "Word"]

REPLIES = (40, 30, 10)
"""Words of the agent's replies: the first two are cut short by the caller, where nothing else happens."""
PIECE = 240
"""Samples of a number in the voice of the websocket's trials."""

Word = tuple[int, int]
"""Which word of which utterance."""


class Answerer(Processor):
    """Answers each stretch of sound that is followed by 200 ms of silence; a voice of 100 ms cuts what is being said."""

    def __init__(self) -> None:
        self.replies = 0
        self._loud_s = self._quiet_s = 0.0
        self._speaking = False
        self.heard: dict[int, tuple[str, bool]] = {}
        """What the agent believes was heard of each reply, and whether that is all of it."""

    def process(self, frame: InputAudioFrame | PlaybackStopped) -> list[InterruptFrame | LLMStarted | SentenceFrame | LLMEnded]:
        if isinstance(frame, PlaybackStopped):
            self.heard[frame.heard.utterance] = frame.heard.text, frame.heard.complete
            self._speaking = False
            return []
        if np.max(np.abs(frame.samples.astype(int)), initial=0) > 300:
            self._loud_s, self._quiet_s = self._loud_s + frame.duration, 0.0
            if self._speaking and self._loud_s >= 0.1:
                self._speaking = False
                return [InterruptFrame(reason="barge-in")]
            return []
        self._quiet_s += frame.duration
        if self._quiet_s < 0.2 or self._loud_s < 0.1 or self.replies == len(REPLIES):
            return []
        self._loud_s, self._speaking = 0.0, True
        words = " ".join(f"word{number}" for number in range(REPLIES[self.replies]))
        self.replies += 1
        return [LLMStarted(utterance=self.replies), SentenceFrame(words, utterance=self.replies), LLMEnded(utterance=self.replies)]


class Notes(Processor):
    """Notes what the voice made; ``position``: of the loudspeaker's end, at each interrupt."""

    def __init__(self, position: Callable[[], int]) -> None:
        self.words: dict[int, Word] = {}
        """The first sample of each 10 ms -> whose they are, where a sample says it."""
        self.spoken: Counter[int] = Counter()
        """Words of each utterance that were made, so far."""
        self.cut: list[tuple[Interruption, int, int]] = []
        """For each interrupt: the last number that was made before it, and how far the stream was."""
        self.begun: dict[int, int] = {}
        """How far the stream was when the first of each utterance was made."""
        self._position = position
        self._last = 0

    def process(self, frame: OutputAudioFrame | UtteranceEnded) -> OutputAudioFrame | UtteranceEnded:
        if isinstance(frame, OutputAudioFrame):
            self.begun.setdefault(frame.utterance, self._position())
            word = frame.utterance, self.spoken[frame.utterance]
            self.spoken[frame.utterance] += 1
            for number in np.frombuffer(frame.pcm, "<i2")[::PIECE].tolist():
                self.words[number] = word
                self._last = number
        return frame

    def on_interrupt(self, interrupt: Interruption) -> None:
        self.cut.append((interrupt, self._last, self._position()))


@dataclass
class Agent:
    """One call's nodes, and the session they are in."""

    notes: Notes
    answerer: Answerer = field(default_factory=Answerer)
    session: Session | None = None

    @property
    def cuts(self) -> list[tuple[Interruption, int, int]]:
        """As in its notes: of what was being heard."""
        return [cut for cut in self.notes.cut if cut[0].heard]

    def believed(self) -> dict[int, tuple[str, bool]]:
        """What the agent's context has of each utterance."""
        heard = dict(self.answerer.heard)
        for interruption in self.session.interruptions if self.session else ():
            heard |= {one.utterance: (one.text, one.complete) for one in interruption.heard}
        return heard


class Side:
    """Takes one call at a time; an agent for each, ``voice`` making its sound at a rate in Hz. ``watch``: shown each call too."""

    def __init__(self, voice: Callable[[int], Processor], watch: Watch | None = None) -> None:
        self.agents: list[Agent] = []
        self.ends: list[LineOut] = []
        self.records: list[tuple[float, CallRecord]] = []
        """When each call was over, and why."""
        self.most_waiting = 0
        self.longest_waiting_s = 0.0
        """Messages in an outbox, and how long the oldest waited."""
        self._voice = voice
        self._show = watch
        self.calls = _Kept(self)

    def answer(self, source: Processor, sink: Processor) -> Pipeline:
        assert isinstance(sink, LineOut)
        agent = Agent(Notes(lambda: sink.position))
        self.agents.append(agent)
        self.ends.append(sink)
        return source >> agent.answerer >> self._voice(sink.format.sample_rate) >> agent.notes >> sink

    def watch(self, session: Session, pipeline: Pipeline, sink: Processor) -> None:
        self.agents[-1].session = session
        if self._show is not None:
            self._show(session, pipeline, sink)

    def look(self) -> None:
        """At what waits for the caller. To be called now and again."""
        for end in self.ends[len(self.records) :]:
            self.most_waiting = max(self.most_waiting, len(end.outbox))
            self.longest_waiting_s = max(self.longest_waiting_s, end.outbox.waiting_s(asyncio.get_running_loop().time()))


class _Kept(Calls):
    """Keeps the records of calls that began."""

    def __init__(self, side: Side) -> None:
        super().__init__(side.answer, limit=1, watch=side.watch)
        self._side = side

    def _over(self, record: CallRecord, error: BaseException | None) -> CallRecord:
        if record.outcome != "refused":
            self._side.records.append((asyncio.get_running_loop().time(), record))
        return super()._over(record, error)
