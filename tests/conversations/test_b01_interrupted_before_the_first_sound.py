"""Case B01: a barge-in before the first sound, and then the wrong answer is spoken."""

from __future__ import annotations

import pytest

from voiceflow import Message, SayFrame
from voiceflow.testing import Latency

from .rig import PONG, Call, Voice, final

FIRST = "Trains are long and heavy and they run on rails of steel."
SECOND = "That makes eight altogether."
THIRD = "Anything else for today?"
AT_ONCE = Latency(0.0, 0.0)
TOLD_MS = [*range(0, 320, 10), *range(320, 1600, 40)]


def reply(messages: tuple[Message, ...]) -> str:
    last = messages[-1].text
    return THIRD if "third" in last else SECOND if "plus" in last else FIRST


def call(*, timed: bool = True, turns: bool = False, each_s: float = 0.0) -> Call:
    """A voice of 300 ms to the first sound that goes on delivering whatever it is told."""
    voice = Voice(Latency(0.3, each_s), timed=timed)
    return Call(reply, voice=voice, thinks=AT_ONCE) if turns else Call(reply, voice=voice, thinks=AT_ONCE, turns=None)


async def cut_and_go_on(this: Call, after_s: float, *, say: bool = False) -> None:
    """Interrupt the first utterance so long after its voice was asked for; then a second and a third turn."""
    first_words, second_words = FIRST.split(), SECOND.split()
    async with this:
        if say:
            this.send(SayFrame(FIRST))
        else:
            this.asks("tell me about trains")
        await this.until(after_s)
        interruption = this.session.interrupt("the caller speaks")
        before = len(this.ear.blocks)
        heard = this.heard(before=interruption.at)
        await this.until(after_s + 0.25)
        assert this.ear.is_silent_since(before)  # not one sample more
        this.asks("what is two plus six")
        await this.until(after_s + 2.0)
        assert this.heard() == heard + second_words
        this.asks("and a third thing")
        await this.until(after_s + 4.0)
        assert this.heard() == heard + second_words + THIRD.split()
        await this.alive()
    assert heard == first_words[: len(heard)]
    if after_s <= 0.3:
        assert heard == []
    answers = [m for m in this.messages if m.role == "assistant"]
    assert [m.text for m in answers[:-3]] == ([" ".join(heard)] if heard else [])
    assert all(m.interrupted for m in answers[:-3]) or len(heard) == len(first_words)
    assert [(m.text, m.interrupted) for m in answers[-3:]] == [(SECOND, False), (THIRD, False), (PONG, False)]
    asked = [m.text for m in this.messages if m.role == "user"]
    assert sum("trains" in text for text in asked) == (0 if say else 1)


@pytest.mark.parametrize("ms", TOLD_MS)
async def test_b01_interrupted_at_any_moment_the_next_turns_are_answered_by_their_own_answers(ms: int) -> None:
    """Ten milliseconds after the voice was asked, or 1,600: of the first answer nothing more is heard, and no turn is shifted."""
    await cut_and_go_on(call(), ms / 1000)


@pytest.mark.parametrize("each_s", [0.02, 0.09])
@pytest.mark.parametrize("ms", [10, 150, 290, 300, 310, 347, 707])
async def test_b01_a_voice_that_still_delivers_the_old_answer_delays_and_shifts_nothing(ms: int, each_s: float) -> None:
    """The words of the first answer come in between the other turns, one by one, and none of them is heard."""
    await cut_and_go_on(call(each_s=each_s), ms / 1000)


@pytest.mark.parametrize("ms", [10, 150, 290, 310, 500])
async def test_b01_without_word_timings(ms: int) -> None:
    """The answer in one frame, which the interrupt finds on its way, in the queue, or begun."""
    this = call(timed=False)
    async with this:
        this.asks("tell me about trains")
        await this.until(ms / 1000)
        interruption = this.session.interrupt("the caller speaks")
        heard = this.heard(before=interruption.at)
        before = len(this.ear.blocks)
        await this.until(ms / 1000 + 0.25)
        assert this.ear.is_silent_since(before)
        this.asks("what is two plus six")
        await this.until(ms / 1000 + 2.0)
        assert this.heard() == heard + SECOND.split()
    told = [m.text.split() for m in this.messages if m.role == "assistant" and m.interrupted]
    assert bool(told) <= (ms > 300)
    assert all(words == FIRST.split()[: len(words)] and len(words) >= len(heard) - 1 for words in told)


@pytest.mark.parametrize("ms", [*range(10, 300, 40), 310, 450])
async def test_b01_a_greeting_is_cut_like_an_answer(ms: int) -> None:
    """What is said without the model is interrupted before its first sound as well."""
    await cut_and_go_on(call(), ms / 1000, say=True)


@pytest.mark.parametrize("ms", range(10, 1000, 30))
async def test_b01_a_caller_who_goes_on_before_the_first_sound(ms: int) -> None:
    """By the caller's own voice: the second question is answered once and whole, with the first one in its request or answered before."""
    this = call(turns=True)
    async with this:
        this.asks("tell me about trains")
        await this.until(0.1 + ms / 1000)
        this.begins()
        await this.until(0.9 + ms / 1000)
        this.send(final("what is two plus six"))
        this.stops()
        await this.until(4.0 + ms / 1000)
        heard = this.heard()
        cut = heard[: len(heard) - len(SECOND.split())]
        assert heard[len(cut) :] == SECOND.split()
        assert cut == FIRST.split()[: len(cut)]
        assert len(this.model.requests) == 2
        last = [(m.role, m.text) for m in this.model.requests[-1]]
        if cut:
            assert last == [("user", "tell me about trains"), ("assistant", " ".join(cut)), ("user", "what is two plus six")]
        else:
            assert last == [("user", "tell me about trains what is two plus six")]
        await this.alive()


async def test_b01_ten_questions_each_before_the_answer_to_the_last() -> None:
    """Ten turns 200 ms apart, no answer of which is ever heard: the eleventh is answered by its own answer."""
    this = call()
    async with this:
        for number in range(10):
            await this.until(0.2 * number)
            this.asks(f"tell me about trains, number {number}")
        await this.until(2.0)
        assert this.ear.runs() == []
        this.asks("what is two plus six")
        await this.until(4.0)
        assert this.heard() == SECOND.split()
        await this.alive()
    assert len(this.voice.words) > 100  # the voice delivered them all
