"""What the cases share: a strict model, a voice with a line of its own, an ear that trusts samples only, and a call made of them.

Every word the agent says is sound of its own: all samples of the n-th word asked for (counted through the session, from 1)
are ``n``. So what was heard is read from the sound itself, and never from the books of the code under test.
"""

from __future__ import annotations

import asyncio
import itertools
import re
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from voiceflow import (
    AudioFormat,
    ContextFrame,
    EndFrame,
    ErrorFrame,
    Frame,
    Heard,
    LLMEnded,
    LLMStarted,
    LLMTextFrame,
    Message,
    OutputAudioFrame,
    Pipeline,
    PlaybackStarted,
    PlaybackStopped,
    Processor,
    SayFrame,
    SentenceFrame,
    Session,
    SessionOptions,
    SpeechStarted,
    SpeechStopped,
    TranscriptFrame,
    TurnEnded,
    TurnScored,
    UtteranceEnded,
    Word,
    WordsHeard,
)
from voiceflow.frames import ToolCallFrame
from voiceflow.messages import ToolCall
from voiceflow.playout.refill import PlayoutOptions
from voiceflow.processors.context import Context
from voiceflow.processors.conversation import Conversation
from voiceflow.processors.text import Sentences
from voiceflow.processors.turns import TurnOptions, Turns
from voiceflow.testing import Latency
from voiceflow.transports.speaker import Speaker, SpeakerOptions

RATE = 24000
WORD_S = 0.1
UNEVEN_S = (0.06, 0.1, 0.18, 0.08)
"""Lengths of words, in turn, of a voice that tells no timings."""
HEARD_S = 0.05
"""R7: of a word this much must have been heard."""
PONG = "pong it is indeed."
SHARP = SpeakerOptions(playout=PlayoutOptions(fade_ms=0, declick_ms=0))
"""No fades: each sample that left is a label."""

Part = str | ToolCall
Reply = Part | tuple[Part, ...]


def history_fault(messages: Sequence[Message]) -> str:
    """Why a strict provider would answer 400 to this history (R6), or "" if it would not."""
    open_calls: list[str] = []
    for index, message in enumerate(messages):
        where = f"messages[{index}] ({message.role})"
        if message.role == "tool":
            if message.call_id not in open_calls:
                return f"{where} is the result of {message.call_id!r}, which was not called right before or has one already"
            open_calls.remove(message.call_id)
            continue
        if open_calls:
            return f"{where} comes before the results of {open_calls}"
        if message.role not in ("system", "user", "assistant") or (message.role == "system" and index):
            return f"{where} has no place here"
        if not (message.text.strip() or message.calls or message.media):
            return f"{where} is empty"
        open_calls = [call.id for call in message.calls]
    return f"the calls {open_calls} have no result" if open_calls else ""


class StrictLLM(Processor):
    """Replies by a function of the messages, word by word; a history that is not valid is refused, as by a provider's 400."""

    def __init__(self, reply: Callable[[tuple[Message, ...]], Reply], latency: Latency | None = None) -> None:
        self.reply = reply
        self.latency = latency or Latency(0.0, 0.0025)
        self.requests: list[tuple[Message, ...]] = []
        self.asked_at: list[float] = []
        self.refused: list[str] = []

    async def process(self, frame: ContextFrame) -> AsyncIterator[LLMStarted | LLMTextFrame | ToolCallFrame | LLMEnded]:
        self.requests.append(frame.messages)
        self.asked_at.append(self.session.time())
        if fault := history_fault(frame.messages):
            self.refused.append(fault)
            raise ValueError(f"400: {fault}")
        yield LLMStarted(utterance=frame.utterance)
        await asyncio.sleep(self.latency.first_s)
        reply = PONG if "ping" in frame.messages[-1].text else self.reply(frame.messages)
        for part in (reply,) if isinstance(reply, Part) else reply:
            if isinstance(part, ToolCall):
                yield ToolCallFrame(call=part, utterance=frame.utterance)
                continue
            for word in re.findall(r"\S+\s*", part):
                yield LLMTextFrame(word, utterance=frame.utterance)
                await asyncio.sleep(self.latency.each_s)
        yield LLMEnded(utterance=frame.utterance)


@dataclass(frozen=True, slots=True)
class _Order:
    """A text to be spoken, or without one the end of an utterance."""

    text: str
    utterance: int
    epoch: int
    due: float


class Voice(Processor):
    """Speech from a service on one connection that cannot be told to stop: what was asked for comes, in order, whoever was interrupted.

    The first sound of a text comes ``latency.first_s`` after it was asked for, each word ``latency.each_s`` after the one
    before. ``timed``: words of 100 ms with their times; else of uneven length, a sentence to a frame, its words placed in
    proportion to their letters and marked so. ``step``: if given, all samples of the n-th text asked for are ``n * step``
    (R1), which survives a resampler and mu-law; else a word's samples are its own number.
    """

    makes = AudioFormat(RATE)

    def __init__(self, latency: Latency | None = None, *, timed: bool = True, step: int = 0) -> None:
        self.latency = latency or Latency(0.05, 0.005)
        self.timed = timed
        self.step = step
        self.words: list[str] = []
        """The word with the label n is ``words[n - 1]``."""
        self.utterances: list[int] = []
        """And this is the utterance it is of."""
        self.sentences: list[int] = []
        """And this the number of the text it came in."""
        self._texts = 0
        self._orders: deque[_Order] = deque()
        self._asked = asyncio.Event()
        self._delivered = asyncio.Event()

    async def process(self, frame: SentenceFrame | LLMEnded | EndFrame) -> None:
        """Send the request; with EndFrame wait for all that was asked for."""
        await self._take(frame)

    async def _take(self, frame: SentenceFrame | LLMTextFrame | LLMEnded | EndFrame) -> None:
        if isinstance(frame, EndFrame):
            while self._orders:
                self._delivered.clear()
                await self._delivered.wait()
            return
        text = "" if isinstance(frame, LLMEnded) else frame.text
        wait_s = self.latency.first_s if text else 0.0
        self._orders.append(_Order(text, frame.utterance, frame.epoch, self.session.time() + wait_s))
        self._asked.set()

    async def run(self) -> AsyncIterator[OutputAudioFrame | UtteranceEnded]:
        """The receiving end of the connection."""
        while True:
            while self._orders:
                order = self._orders[0]
                await asyncio.sleep(order.due - self.session.time())
                if not order.text:
                    yield UtteranceEnded(utterance=order.utterance, epoch=order.epoch)
                async for frame in self._sound(order):
                    yield frame
                self._orders.popleft()
                self._delivered.set()
            self._asked.clear()
            await self._asked.wait()

    async def _sound(self, order: _Order) -> AsyncIterator[OutputAudioFrame]:
        texts = order.text.split()
        first = len(self.words) + 1
        self._texts += bool(texts)
        self.words += texts
        self.utterances += [order.utterance] * len(texts)
        self.sentences += [self._texts] * len(texts)
        label = self._texts * self.step
        pcm = [np.full(round(self.length_s(n) * RATE), label or n, "<i2").tobytes() for n in range(first, first + len(texts))]
        if self.timed:
            for index, word in enumerate(texts):
                await asyncio.sleep(self.latency.each_s if index else 0.0)
                timing = (Word(word, 0.0, WORD_S),)
                yield OutputAudioFrame(pcm[index], RATE, words=timing, utterance=order.utterance, epoch=order.epoch)
        elif texts:
            sound = b"".join(pcm)
            yield OutputAudioFrame(
                sound, RATE, words=_in_proportion(texts, len(sound) / (2 * RATE)), utterance=order.utterance, epoch=order.epoch
            )

    def length_s(self, label: int) -> float:
        """How long the word with this number is."""
        return WORD_S if self.timed else UNEVEN_S[label % len(UNEVEN_S)]


class TokenVoice(Voice):
    """The same for a service that takes the model's tokens as they come."""

    async def process(self, frame: LLMTextFrame | LLMEnded | EndFrame) -> None:
        """Send the token on."""
        await self._take(frame)


def _in_proportion(texts: Sequence[str], seconds: float) -> tuple[Word, ...]:
    letters = [len(text) + 1 for text in texts]
    ends = np.cumsum(letters) / sum(letters) * seconds
    starts = [0.0, *ends[:-1]]
    return tuple(Word(text, float(a), float(b), estimated=True) for text, a, b in zip(texts, starts, ends, strict=True))


@dataclass(frozen=True, slots=True)
class Run:
    """A stretch of equal samples: the word with this label was heard from ``at`` to ``until``."""

    label: int
    at: float
    until: float


class Ear:
    """Hears what a speaker plays, from the moment at which each block leaves."""

    def __init__(self, rate: int = RATE) -> None:
        self.rate = rate
        self.blocks: list[tuple[float, np.ndarray[tuple[int], np.dtype[np.int16]]]] = []
        self.cuts: Callable[[], Sequence[float]] = tuple
        """When an interrupt silenced what was left of the block that was being played."""

    def __call__(self, pcm: bytes) -> None:
        self.blocks.append((asyncio.get_running_loop().time(), np.frombuffer(pcm, "<i2")))

    def is_silent_since(self, block: int) -> bool:
        """Nothing but silence came from the block of this number on."""
        return not any(samples.any() for _, samples in self.blocks[block:])

    def runs(self, before: float = float("inf")) -> list[Run]:
        """All that was heard before this time, in order."""
        runs: list[Run] = []
        cuts = self.cuts()
        for at, samples in self.blocks:
            limit = min([before, *(cut for cut in cuts if cut > at)])
            for start, end in _equal(samples):
                label, begin, until = int(samples[start]), at + start / self.rate, min(at + end / self.rate, limit)
                if not label or begin >= limit:
                    continue
                if runs and runs[-1].label == label and abs(runs[-1].until - begin) < 1e-6:
                    runs[-1] = Run(label, runs[-1].at, until)
                else:
                    runs.append(Run(label, begin, until))
        return runs

    def labels(self, before: float = float("inf")) -> list[int]:
        """The words of which at least 50 ms were heard in one go before this time; one said again after a hold counts once."""
        heard: list[int] = []
        for run in self.runs(before):
            if run.until - run.at >= HEARD_S - 1e-6 and run.label not in heard:
                heard.append(run.label)
        return heard


def _equal(samples: np.ndarray[tuple[int], np.dtype[np.int16]]) -> list[tuple[int, int]]:
    edges = [0, *(np.flatnonzero(np.diff(samples)) + 1).tolist(), len(samples)]
    return [(a, b) for a, b in itertools.pairwise(edges) if b > a]


class Reports(Processor):
    """Stands at the top and keeps what comes up to it: playback and errors."""

    def __init__(self) -> None:
        self.playback: list[PlaybackStarted | PlaybackStopped] = []
        self.errors: list[ErrorFrame] = []

    def process(self, frame: PlaybackStarted | PlaybackStopped | ErrorFrame) -> None:
        """Keep it."""
        if isinstance(frame, ErrorFrame):
            self.errors.append(frame)
        else:
            self.playback.append(frame)


class Slow(Processor):
    """Takes its time over each transcript."""

    def __init__(self, each_s: float) -> None:
        self.each_s = each_s

    async def process(self, frame: TranscriptFrame) -> AsyncIterator[TranscriptFrame]:
        """Hand it on, late."""
        await asyncio.sleep(self.each_s)
        yield frame


class SlowReports(Processor):
    """Takes its time over each report of playback, on its way up."""

    def __init__(self, each_s: float) -> None:
        self.each_s = each_s

    async def process(
        self, frame: PlaybackStarted | WordsHeard | PlaybackStopped
    ) -> AsyncIterator[PlaybackStarted | WordsHeard | PlaybackStopped]:
        """Hand it on, late."""
        await asyncio.sleep(self.each_s)
        yield frame


def final(text: str) -> TranscriptFrame:
    """A final transcript."""
    return TranscriptFrame(text)


def partial(text: str) -> TranscriptFrame:
    """One that may still change."""
    return TranscriptFrame(text, final=False)


class Call:
    """A standard graph (caller's events > turns > context > model > sentences > voice > speaker) and what came out of it.

    ``turns``: None leaves turn taking out; then a ``TurnEnded`` is the caller's turn. ``head``: nodes before the turns;
    ``below``: nodes between the context and the model; ``behind``: nodes after the model, like tools; ``ahead``: nodes before the speaker. Used as ``async with``:
    the call ends, drained, with the block, and no history may have been refused and no error reported by then.
    """

    def __init__(
        self,
        reply: Callable[[tuple[Message, ...]], Reply] | str = PONG,
        *,
        voice: Voice | None = None,
        thinks: Latency | None = None,
        turns: TurnOptions | None = TurnOptions(),  # noqa: B008 - frozen
        head: Sequence[Processor] = (),
        after_turns: Sequence[Processor] = (),
        below: Sequence[Processor] = (),
        behind: Sequence[Processor] = (),
        ahead: Sequence[Processor] = (),
        speaker: Speaker | None = None,
        sentences: Sentences | None = None,
        session: SessionOptions | None = None,
        inputs: Sequence[type[Frame]] = (),
    ) -> None:
        self.context = Context()
        self.model = StrictLLM(reply if callable(reply) else lambda messages: reply, thinks)
        self.voice = voice or Voice()
        self.ear = Ear()
        self.speaker = speaker or Speaker(self.ear, AudioFormat(RATE), SHARP)
        self.reports = Reports()
        self.turns = Turns(turns) if turns is not None else None
        self.turn_log: list[Frame] = []
        text = () if isinstance(self.voice, TokenVoice) else (sentences or Sentences(),)
        taking = (self.turns,) if self.turns is not None else ()
        nodes = [self.reports, *head, *taking, *after_turns, self.context, *below, self.model, *behind, *text, self.voice]
        nodes += [*ahead, self.speaker]
        pipeline = Pipeline(nodes[0])
        for node in nodes[1:]:
            pipeline = pipeline >> node
        spoken = () if isinstance(self.voice, TokenVoice) else (SayFrame,)
        heard = (SpeechStarted, SpeechStopped, TranscriptFrame, TurnScored) if self.turns is not None else (TurnEnded,)
        self.session = Session(pipeline, inputs=[*heard, *spoken, *inputs], options=session)
        self.ear.cuts = lambda: [interruption.at for interruption in self.session.interruptions]
        if self.turns is not None:
            self.session.tap(lambda frame, source, target: self.turn_log.append(frame), source=self.turns.name)

    async def __aenter__(self) -> Self:
        await self.session.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.session.__aexit__(*error)
        if error[0] is None:
            assert self.model.refused == []
            assert self.reports.errors == []

    # ------------------------------------------------------------------------------------------- the caller

    async def until(self, at: float) -> None:
        """Let the clock come to ``at``."""
        await asyncio.sleep(at - asyncio.get_running_loop().time())

    async def first_sound(self) -> float:
        """Wait until something can be heard; when that began."""
        before = len(self.ear.runs())
        while len(self.ear.runs()) == before:
            await asyncio.sleep(0.001)
        return self.ear.runs()[before].at

    def send(self, *frames: Frame) -> None:
        """The caller's events, all at this moment."""
        for frame in frames:
            self.session.send_nowait(frame)

    def begins(self) -> None:
        """The detector says that the caller's voice began 0.1 s ago."""
        self.send(SpeechStarted(at=self.session.time() - 0.1))

    def stops(self) -> None:
        """The detector says that the caller's voice stopped 0.2 s ago."""
        self.send(SpeechStopped(at=self.session.time() - 0.2, silence=0.2))

    def asks(self, text: str) -> None:
        """A whole turn at this moment, without sound."""
        if self.turns is None:
            self.send(TurnEnded(text=text))
        else:
            self.send(final(text), TurnScored(probability=1.0))

    # ------------------------------------------------------------------------------------- what came of it

    def heard(self, utterance: int | None = None, *, before: float = float("inf")) -> list[str]:
        """The words that reached the ear, of one utterance or of all."""
        labels = self.ear.labels(before)
        return [self.voice.words[n - 1] for n in labels if utterance in (None, self.voice.utterances[n - 1])]

    @property
    def messages(self) -> tuple[Message, ...]:
        """The conversation as the context keeps it, saved and loaded once."""
        conversation = self.context.conversation
        assert Conversation.from_json(conversation.to_json()) == conversation
        return conversation.messages

    def said(self, role: str = "assistant") -> list[str]:
        """The words that the context holds of one side."""
        return [word for message in self.messages if message.role == role for word in message.text.split()]

    def stopped(self) -> list[Heard]:
        """The reports that an utterance was over, in order."""
        return [frame.heard for frame in self.reports.playback if isinstance(frame, PlaybackStopped)]

    async def alive(self) -> None:
        """R8: an ordinary turn is answered, in full and in time."""
        known = len(self.voice.words)
        self.asks("ping")
        await asyncio.sleep(self.model.latency.first_s + self.voice.latency.first_s + 1.5 + 4 * max(UNEVEN_S))
        assert [self.voice.words[n - 1] for n in self.ear.labels() if n > known] == PONG.split()
