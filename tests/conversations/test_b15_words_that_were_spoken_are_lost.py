"""Case B15: the context loses words that were spoken, because reports of them are still under way when an interrupt comes."""

from __future__ import annotations

import asyncio

import pytest

from voiceflow import Message, SayFrame
from voiceflow.testing import Latency

from .rig import PONG, Call, SlowReports, Voice

GREETING = "Hello, this is the bakery on the corner."
STORY = "We bake bread every night so that it is still warm when you come in at seven."
LATE_S = 0.15


def call(*, timed: bool = True, late_s: float = LATE_S) -> Call:
    """Reports of playback take 150 ms each on their way to the context."""
    reply = lambda messages: STORY if "story" in messages[-1].text else PONG  # noqa: E731
    return Call(reply, voice=Voice(Latency(0.05, 0.005), timed=timed), turns=None, below=(SlowReports(late_s),))


async def next_request(this: Call, settle_s: float = 4.0) -> tuple[Message, ...]:
    """What the model is given for the caller's next turn, after all that is late has come."""
    await asyncio.sleep(settle_s)
    this.asks("and then")
    await asyncio.sleep(0.01)
    return this.model.requests[-1]


@pytest.mark.parametrize("say", [False, True])
@pytest.mark.parametrize("timed", [True, False])
@pytest.mark.parametrize("ms", [*range(23, 1600, 150), 860])
async def test_b15_interrupted_while_reports_are_under_way(ms: int, timed: bool, say: bool) -> None:
    """The next request has the words that were heard, once; reports that come late make no second message. Same for a greeting."""
    this = call(timed=timed)
    text = GREETING if say else STORY
    async with this:
        if say:
            this.send(SayFrame(GREETING))
        else:
            this.asks("a story")
        await this.until(await this.first_sound() + min(ms / 1000, 0.65 if say else 9.0))
        this.session.interrupt("the caller speaks")
        heard = this.heard()
        request = await next_request(this)
        told = [m for m in request if m.role == "assistant"]
        if timed:
            assert [m.text.split() for m in told] == ([heard] if heard else [])
        else:
            assert len(told) <= 1
            assert abs(sum(len(m.text.split()) for m in told) - len(heard)) <= 1
        assert all(m.interrupted and text.startswith(m.text) for m in told)
        assert [m.text for m in request if m.role == "user"][-1].endswith("and then")


@pytest.mark.parametrize("hold_s", [0.1, 1.0])
@pytest.mark.parametrize("say", [False, True])
@pytest.mark.parametrize("timed", [True, False])
@pytest.mark.parametrize("ms", [63, 217, 463, 780])
async def test_b15_held_for_a_second_and_then_interrupted(ms: int, timed: bool, say: bool, hold_s: float) -> None:
    """What was heard before the output was paused is what the next request holds."""
    this = call(timed=timed)
    async with this:
        if say:
            this.send(SayFrame(GREETING))
        else:
            this.asks("a story")
        await this.until(await this.first_sound() + ms / 1000)
        this.session.hold("perhaps")
        await asyncio.sleep(hold_s)
        this.session.interrupt("the caller meant it")
        heard = this.heard()
        request = await next_request(this)
        told = [m.text for m in request if m.role == "assistant"]
        assert len(told) <= 1
        words = " ".join(told).split()
        assert abs(len(words) - len(heard)) <= (0 if timed else 1)
        assert heard[: len(words)] == words[: len(heard)]


@pytest.mark.parametrize("late_s", [0.0, 0.15, 0.6])
@pytest.mark.parametrize("ms", [*range(3, 860, 170), 870, 930, *range(1023, 2400, 165)])
async def test_b15_a_greeting_and_a_reply_are_kept_in_the_order_in_which_they_were_heard(ms: int, late_s: float) -> None:
    """A greeting of 0.8 s, a turn at 0.95, its reply, and at any moment the caller cuts in: in the end it is all there, as heard."""
    this = call(late_s=late_s)
    async with this:
        this.send(SayFrame(GREETING))
        if ms < 950:
            await this.until(0.05 + ms / 1000)
        else:
            await this.until(0.95)
            this.asks("a story")
            await this.until(0.05 + ms / 1000)
        this.session.interrupt("the caller speaks")
        heard = this.heard()
        await asyncio.sleep(0.1)
        this.asks("and then")
        await asyncio.sleep(3.0)
        greeting, story = heard[: len(GREETING.split())], heard[len(GREETING.split()) :]
        expected = [("assistant", " ".join(greeting)), ("user", "a story"), ("assistant", " ".join(story)), ("user", "and then")]
        if ms < 950:
            expected = [expected[0], expected[-1]]
        elif not story:
            expected = [expected[0], ("user", "a story and then")]
        expected = [entry for entry in expected if entry[1]]
        if late_s == 0.0:
            assert [(m.role, m.text) for m in this.model.requests[-1]] == expected
    assert [(m.role, m.text) for m in this.messages] == [*expected, ("assistant", PONG)]  # when the last report has come


async def test_b15_the_words_that_were_still_queued_are_there() -> None:
    """The case itself: eight words heard, the reports of the last four not yet through; eight words in the next request."""
    this = call()
    async with this:
        this.asks("a story")
        await this.until(await this.first_sound() + 0.76)
        this.session.interrupt("the caller speaks")
        request = await next_request(this)
    assert [(m.role, m.text, m.interrupted) for m in request] == [
        ("user", "a story", False),
        ("assistant", " ".join(STORY.split()[:8]), True),
        ("user", "and then", False),
    ]


@pytest.mark.parametrize("greetings", [2, 3])
async def test_b15_greetings_heard_out_with_late_reports_are_there_once_each(greetings: int) -> None:
    """Several things said without the model, one behind the other, whose reports are late when the caller cuts the last."""
    this = call()
    async with this:
        for number in range(greetings):
            this.send(SayFrame(f"Good morning number {number}."))
        await this.until(await this.first_sound() + 0.4 * greetings - 0.2 + 0.03)
        this.session.interrupt("the caller speaks")
        heard = this.heard()
        request = await next_request(this)
        assert [word for m in request if m.role == "assistant" for word in m.text.split()] == heard
    assert len(heard) == 4 * greetings - 2
