"""Case B07: the caller's words are flushed by the interruption that they cause; and the order of what was said."""

from __future__ import annotations

import asyncio

import pytest

from voiceflow import InterruptFrame, Message, Processor, TranscriptFrame, TurnEnded
from voiceflow.processors.start_policies import Words
from voiceflow.processors.turns import TurnOptions
from voiceflow.testing import Latency

from .rig import Call, Slow, Voice, final, partial

QUESTION = "when can I come"
STORY = "You can come on Monday at nine or on Wednesday."
DONE = "Tuesday it is, then."
FOUR_WORDS_S = 3 * 0.1 + 0.06
"""After the first sound: four of its words have been heard."""


def reply(messages: tuple[Message, ...]) -> str:
    return DONE if "Tuesday" in messages[-1].text else STORY


POLICIES = {
    "default": TurnOptions(),
    "two words": TurnOptions(barge_in=Words(2)),
    "two final words": TurnOptions(barge_in=Words(2, partial=False)),
}


def call(*head: Processor, timed: bool = True, policy: str = "default") -> Call:
    return Call(reply, voice=Voice(Latency(0.05, 0.0), timed=timed), head=head, turns=POLICIES[policy])


async def barge_in(this: Call, after_s: float, *texts: TranscriptFrame) -> float:
    """Ask, and push all of it in one go so long after the first sound. When that was."""
    this.asks(QUESTION)
    first = await this.first_sound()
    await this.until(first + after_s)
    this.send(*texts)
    return this.session.time()


def expected(this: Call) -> list[tuple[str, str]]:
    heard = this.heard(1)
    return [("user", QUESTION), *([("assistant", " ".join(heard))] if heard else [])]


@pytest.mark.parametrize("repetition", range(100))
async def test_b07_both_finals_are_in_the_next_request_in_order_and_once(repetition: int) -> None:
    """A hundred times, 1 ms apart: what was heard of the answer, then both texts, though the second was still queued at the interrupt."""
    this = call(Slow(0.02), policy=list(POLICIES)[repetition % 3])
    async with this:
        after_s = FOUR_WORDS_S - 0.04 + (repetition + 0.5) / 1000  # one or two frames come through the slow node before the interrupt
        await barge_in(this, after_s, partial("wait"), final("wait a moment"), final("I meant Tuesday"))
        await asyncio.sleep(3.0)
        assert len(this.model.requests) == 2
        assert [(m.role, m.text) for m in this.model.requests[1]] == [*expected(this), ("user", "wait a moment I meant Tuesday")]
        assert this.heard(2) == DONE.split()
        await this.alive()
    assert len(this.heard(1)) in (3, 4, 5)
    assert this.messages[1].interrupted


@pytest.mark.parametrize(("policy", "each_s"), [("default", 0.0), ("default", 0.02), ("two words", 0.02), ("two final words", 0.15)])
@pytest.mark.parametrize("timed", [True, False])
@pytest.mark.parametrize("ms", range(3, 900, 110))
async def test_b07_at_any_place_of_the_answer(ms: int, timed: bool, each_s: float, policy: str) -> None:
    """Whatever was heard of the answer comes before the words that cut it, and these are all there."""
    this = call(Slow(each_s), timed=timed, policy=policy)
    async with this:
        await barge_in(this, ms / 1000, partial("wait"), final("wait a moment"), final("I meant Tuesday"))
        await asyncio.sleep(3.0)
        last = [(m.role, m.text) for m in this.model.requests[-1]]
        users = " ".join(text for role, text in last if role == "user")
        assert users == f"{QUESTION} wait a moment I meant Tuesday"
        assert [role for role, _ in last] == (["user", "assistant", "user"] if len(last) == 3 else ["user"])
        told = [word for role, text in last if role == "assistant" for word in text.split()]
        assert told == STORY.split()[: len(told)]
        assert abs(len(told) - len(this.heard(1))) <= (0 if timed else 1)
        assert this.heard()[-4:] == DONE.split()


@pytest.mark.parametrize("count", [1, 2, 3, 6])
@pytest.mark.parametrize("gap_s", [0.0, 0.01, 0.1, 0.3])
async def test_b07_any_number_of_finals_in_a_burst_or_close_together(count: int, gap_s: float) -> None:
    """Each text is in the next request once, in order, whether it comes before, at or after the interrupt."""
    this = call(Slow(0.02))
    texts = [f"no wait number {n}" for n in range(count)]
    async with this:
        await barge_in(this, 0.4, final(texts[0]))
        for text in texts[1:]:
            await asyncio.sleep(gap_s)
            this.send(final(text))
        await asyncio.sleep(4.0)
        last = [(m.role, m.text) for m in this.model.requests[-1]]
        assert last == [*expected(this), ("user", " ".join(texts))]


class TwoWords(Processor):
    """Interrupts when a final transcript of two words or more comes, and ends the turn with all that came within 100 ms."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    async def process(self, frame: TranscriptFrame) -> TurnEnded | None:
        if not frame.final or not frame.text:
            return None
        self.texts.append(frame.text)
        if len(self.texts) > 1:
            texts, self.texts = self.texts, []
            return TurnEnded(text=" ".join(texts))
        if len(frame.text.split()) >= 2:
            self.session.interrupt("two words")
        return None


class TwoWordsYielded(TwoWords):
    """The same, by the frame."""

    async def process(self, frame: TranscriptFrame) -> list[TurnEnded | InterruptFrame]:
        self.texts.append(frame.text)
        if not frame.final:
            self.texts.pop()
            return []
        if len(self.texts) > 1:
            texts, self.texts = self.texts, []
            return [TurnEnded(text=" ".join(texts))]
        return [InterruptFrame(reason="two words")] if len(frame.text.split()) >= 2 else []


@pytest.mark.parametrize("node", [TwoWords, TwoWordsYielded])
@pytest.mark.parametrize("each_s", [0.0, 0.02])
async def test_b07_by_a_node_of_ones_own(node: type[TwoWords], each_s: float) -> None:
    """A node that interrupts by itself, and takes its time itself, loses none of the texts that wait at its door."""
    this = Call(reply, turns=None, head=(Slow(each_s),), after_turns=(node(),), inputs=(TranscriptFrame,))
    async with this:
        this.asks(QUESTION)
        first = await this.first_sound()
        await this.until(first + FOUR_WORDS_S)
        this.send(partial("wait"), final("wait a moment"), final("I meant Tuesday"))
        await asyncio.sleep(3.0)
        assert [(m.role, m.text) for m in this.model.requests[1]] == [*expected(this), ("user", "wait a moment I meant Tuesday")]
        assert len(this.heard(1)) == 4
        assert this.heard(2) == DONE.split()
