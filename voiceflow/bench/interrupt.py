"""``voiceflow bench interrupt``: how long an interrupt takes, and whether anything said before it is still there after it.

Two graphs. For the time: ten idle nodes, five instant and five that wait, each with an ``on_interrupt``, against a bare loop
over the same ten methods. For the promise: a graph that talks all the time, on the real event loop, interrupted at random
points, half of them between two steps of the loop and half inside a node, in the middle of a delivery. Nodes that know
nothing of epochs check by the labels the scripted services gave to text and sound.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from time import perf_counter_ns

from voiceflow.bench.figures import median, percentile
from voiceflow.bench.nodes import chain
from voiceflow.frames import ContextFrame, LLMEnded, LLMStarted, LLMTextFrame, OutputAudioFrame, SentenceFrame, TextFrame, UtteranceEnded
from voiceflow.interruption import Interruption
from voiceflow.messages import Message
from voiceflow.processor import Processor
from voiceflow.session import Session
from voiceflow.testing import Latency, ScriptedLLM, ScriptedTTS, labels

__all__ = ["measure"]

REPLY = "One two three four. Five six seven. Eight nine ten eleven. Twelve."
LONGEST_S = 0.020
"""The latest an interrupt comes after its question: the whole reply takes about this long."""


def measure(*, idle: int = 3000, interrupts: int = 600, seed: int = 1) -> dict[str, float]:
    """``us_median`` and ``us_p99`` over ``idle`` interrupts of ten idle nodes; ``stale_frames`` over ``interrupts`` of a talking graph.

    Beside them ``us_raw_calls``, the bare loop; ``checked_frames``, those the checks saw; and ``interrupts_in_work``, the
    interrupts that found something under way.
    """
    return {**asyncio.run(_time_idle(idle)), **asyncio.run(_Talk(random.Random(seed), interrupts).run())}


# ------------------------------------------------------------------------------------------------ ten idle nodes


class _Instant(Processor):
    """Keeps something that an interrupt makes it forget."""

    def __init__(self) -> None:
        self.kept: list[str] = []

    def process(self, frame: TextFrame) -> TextFrame:
        """Hand it on."""
        return frame

    def on_interrupt(self, interrupt: Interruption) -> None:
        """Forget."""
        self.kept.clear()


class _Waiting(Processor):
    """The same, with a task and inboxes of its own."""

    def __init__(self) -> None:
        self.kept: list[str] = []

    async def process(self, frame: TextFrame) -> TextFrame:
        """Hand it on."""
        return frame

    def on_interrupt(self, interrupt: Interruption) -> None:
        """Forget."""
        self.kept.clear()


class _End(Processor):
    """Takes the text."""

    def process(self, frame: TextFrame) -> None:
        """Drop it."""


async def _time_idle(count: int) -> dict[str, float]:
    nodes: list[Processor] = [_Waiting() if number % 2 else _Instant() for number in range(10)]
    ours, raw = [], []
    async with Session(chain([*nodes, _End()]), inputs=[SentenceFrame]) as session:
        calls = [node.on_interrupt for node in reversed(nodes)]
        for _ in range(count):
            await asyncio.sleep(0)
            started = perf_counter_ns()
            record = session.interrupt("bench")
            ours.append((perf_counter_ns() - started) / 1000)
            started = perf_counter_ns()
            for call in calls:
                call(record)
            raw.append((perf_counter_ns() - started) / 1000)
    return {"us_median": round(median(ours), 2), "us_p99": round(percentile(ours, 99), 2), "us_raw_calls": round(median(raw), 2)}


# ------------------------------------------------------------------------------------------------ a graph that talks


class _Floor:
    """The last utterance that has been cut; what belongs to it or to one before it is stale."""

    def __init__(self) -> None:
        self.utterance = 0
        self.stale = 0
        self.checked = 0
        self.in_delivery: Callable[[], None] | None = None
        """What the next check does first: the interrupts that come inside a node."""

    def check(self, utterance: int) -> None:
        """Count a frame of this utterance that has reached a node."""
        self.checked += 1
        self.stale += utterance <= self.utterance
        act, self.in_delivery = self.in_delivery, None
        if act is not None:
            act()


Spoken = LLMStarted | LLMTextFrame | LLMEnded | SentenceFrame | OutputAudioFrame | UtteranceEnded


class _Check(Processor):
    """Looks at everything that passes. It may stand more than once in a graph."""

    def __init__(self, floor: _Floor) -> None:
        self.floor = floor

    def process(self, frame: Spoken) -> Spoken:
        """Check the label, hand it on."""
        self.floor.check(frame.utterance)
        return frame


class _Ear(Processor):
    """Stands behind one voice and knows from the sound itself which sentence, so which utterance, it belongs to."""

    def __init__(self, floor: _Floor, voice: ScriptedTTS) -> None:
        self.floor = floor
        self.voice = voice

    def process(self, frame: OutputAudioFrame) -> OutputAudioFrame:
        """Check every label in the samples, hand it on."""
        for label in labels(frame.pcm):
            self.floor.check(self.voice.utterances[label - 1])
        return frame


class _SlowCheck(Processor):
    """The same in a task of its own, with an inbox in which stale frames could lie."""

    def __init__(self, floor: _Floor) -> None:
        self.floor = floor

    async def process(self, frame: Spoken) -> Spoken:
        """Check, take a moment, check again."""
        self.floor.check(frame.utterance)
        await asyncio.sleep(0)
        self.floor.check(frame.utterance)
        return frame


class _Sink(Processor):
    """The last door."""

    def __init__(self, floor: _Floor) -> None:
        self.floor = floor

    async def process(self, frame: Spoken) -> None:
        """Check, and be a little slower than the voices, so that frames wait here too."""
        self.floor.check(frame.utterance)
        await asyncio.sleep(0.0002)
        self.floor.check(frame.utterance)


class _Sentences(Processor):
    """Whole sentences out of the reply's pieces."""

    def __init__(self) -> None:
        self.text = ""

    def process(self, frame: LLMTextFrame | LLMEnded) -> list[SentenceFrame] | LLMEnded:
        """A sentence at each full stop."""
        if isinstance(frame, LLMEnded):
            return frame
        *whole, self.text = (self.text + frame.text).split(".")
        return [SentenceFrame(f"{text.strip()}.", utterance=frame.utterance) for text in whole]

    def on_interrupt(self, interrupt: Interruption) -> None:
        """Forget the half sentence."""
        self.text = ""


class _Talk:
    """Asks, interrupts at a random point, asks at once again."""

    def __init__(self, chance: random.Random, interrupts: int) -> None:
        self.chance = chance
        self.interrupts = interrupts
        self.floor = _Floor()
        self.asked = 0
        self.done = 0
        self.in_work = 0

    async def run(self) -> dict[str, float]:
        floor = self.floor
        voices = [ScriptedTTS(Latency(0.001, 0.0003)), ScriptedTTS(Latency(0.001, 0.0003), stubborn=True)]
        spoken = [voice >> _Ear(floor, voice) for voice in voices]
        pipeline = ScriptedLLM(_reply, Latency(0.001, 0.0005)) >> _Check(floor) >> _Sentences() >> _Check(floor)
        pipeline = pipeline >> spoken >> _Check(floor) >> _SlowCheck(floor) >> _Check(floor) >> _Sink(floor)
        async with Session(pipeline, inputs=[ContextFrame]) as session:
            while self.done < self.interrupts:
                await self._ask_and_interrupt(session)
            await asyncio.sleep(2 * LONGEST_S)  # for whoever still means to say something
            if not floor.checked or not self.in_work:
                raise RuntimeError(f"the graph did not talk ({floor.checked} frames, {self.in_work} interrupts in work)")
        return {
            "interrupts": self.done,
            "stale_frames": floor.stale,
            "checked_frames": floor.checked,
            "interrupts_in_work": self.in_work,
        }

    async def _ask_and_interrupt(self, session: Session) -> None:
        loop = asyncio.get_running_loop()
        self.asked += 1
        await session.send(ContextFrame(messages=(Message("user", "Go on."),), utterance=self.asked))
        await asyncio.sleep(self.chance.uniform(0, LONGEST_S))
        cut = loop.create_future()

        def interrupt() -> None:
            record = session.interrupt("bench")
            self.floor.utterance = self.asked
            self.done += 1
            self.in_work += record.dropped > 0
            cut.set_result(None)

        if self.chance.random() < 0.5:
            self.floor.in_delivery = interrupt
            await asyncio.wait([cut], timeout=LONGEST_S / 4)
        if not cut.done():  # nothing was delivered any more, or it is to come between two steps
            self.floor.in_delivery = None
            interrupt()
        if self.chance.random() < 0.5:
            await asyncio.sleep(self.chance.uniform(0, 0.003))


def _reply(messages: tuple[Message, ...]) -> str:
    return REPLY
