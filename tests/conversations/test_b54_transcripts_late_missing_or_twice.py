"""Case B54: transcripts that come late, not at all, or twice."""

from __future__ import annotations

import asyncio

import pytest

from voiceflow import Message, SayFrame, TurnEnded, TurnScored
from voiceflow.testing import Latency

from .rig import Call, Voice, final, partial

GREETING = "Hello, this is the bakery."
BEGINS = 2.0
LIMIT_S = 3.0
"""From the end of speech: by then a turn without words has been given up."""

Script = list[tuple[float, str]]


def reply(messages: tuple[Message, ...]) -> str:
    return f"You said number {sum(m.role == 'user' for m in messages)} to me just now."


async def play(this: Call, script: Script, *, scored: bool = False) -> None:
    """S speech begins, E it has ended, I words: partial, F words: final; at these times, counted from BEGINS."""
    for at, what in script:
        await this.until(BEGINS + at)
        kind, _, text = what.partition(" ")
        match kind:
            case "S":
                this.begins()
            case "E":
                this.stops()
                if scored:
                    this.send(TurnScored(probability=0.9))
            case "I":
                this.send(partial(text))
            case "F":
                this.send(final(text))


async def call(script: Script, *, scored: bool = False, thinks_s: float = 0.3) -> Call:
    """A call that opens with a greeting, and then these events."""
    this = Call(reply, voice=Voice(Latency(0.05, 0.005)), thinks=Latency(thinks_s, 0.005))
    async with this:
        this.send(SayFrame(GREETING))
        await play(this, script, scored=scored)
        await asyncio.sleep(6.0)
        check(this)
        await this.alive()
    return this


def check(this: Call) -> None:
    """What holds in each of them: no empty request, no request but for a turn with words, the greeting once."""
    assert all(request[-1].text.strip() for request in this.model.requests)
    assert len(this.model.requests) <= sum(isinstance(frame, TurnEnded) and bool(frame.text.strip()) for frame in this.turn_log)
    assistant = [m.text for m in this.messages if m.role == "assistant"]
    assert sum(GREETING in text for text in assistant) == 1
    assert this.messages[0].text.startswith(GREETING)
    assert this.said() == this.heard()


def empty_turns(this: Call) -> list[TurnEnded]:
    """The turns that ended without a word."""
    return [frame for frame in this.turn_log if isinstance(frame, TurnEnded) and not frame.text.strip()]


def users(this: Call) -> list[str]:
    """What the caller said in the end, the probe aside."""
    return [m.text for m in this.messages if m.role == "user" and m.text != "ping"]


ONE_ANSWER: dict[str, tuple[Script, str]] = {
    "1 partial, final, end": ([(0.1, "S"), (0.5, "I book a"), (0.9, "F book a table"), (1.1, "E")], "book a table"),
    "2 partial, end, final": ([(0.1, "S"), (0.5, "I book a"), (1.1, "E"), (1.5, "F book a table")], "book a table"),
    "3 end, two finals": ([(0.1, "S"), (1.1, "E"), (1.5, "F book a table"), (1.8, "F for two people")], "book a table for two people"),
    "4 final, end, final": ([(0.1, "S"), (0.9, "F book a table"), (1.1, "E"), (1.5, "F for two people")], "book a table for two people"),
    "6 no speech was detected": ([(0.5, "I book a"), (0.9, "F book a table")], "book a table"),
    "6 a final alone": ([(0.5, "F book a table")], "book a table"),
    "7 two stretches, one final": (
        [(0.1, "S"), (0.5, "I book a"), (0.8, "E"), (1.1, "S"), (1.5, "F book a table"), (1.7, "E")],
        "book a table",
    ),
    "7 and one for each": (
        [(0.1, "S"), (0.5, "I book a"), (0.8, "E"), (1.1, "S"), (1.2, "F book a table"), (1.7, "E"), (2.1, "F for two")],
        "book a table for two",
    ),
    "8 the same final twice": ([(0.1, "S"), (1.1, "E"), (1.5, "F book a table"), (1.55, "F book a table")], "book a table"),
    "8 twice, around the end": ([(0.1, "S"), (0.9, "F book a table"), (1.1, "E"), (1.3, "F book a table")], "book a table"),
    "the partial is wrong": ([(0.1, "S"), (0.5, "I look at able"), (1.1, "E"), (1.5, "F book a table")], "book a table"),
    "a blank final and then the true one": ([(0.1, "S"), (1.1, "E"), (1.2, "F  "), (1.5, "F book a table")], "book a table"),
}


@pytest.mark.parametrize("scored", [False, True])
@pytest.mark.parametrize("name", ONE_ANSWER)
async def test_b54_every_word_is_in_one_user_message_and_gets_one_answer(name: str, scored: bool) -> None:
    """In whatever order the events come: the words are there once, in order, partial ones never, and one answer is heard whole."""
    script, text = ONE_ANSWER[name]
    this = await call(script, scored=scored)
    assert users(this) == [text]
    whole = [heard for heard in this.stopped() if heard.complete and heard.utterance]
    assert len(whole) == 2  # and the probe's
    assert [m.text for m in this.messages if m.role == "assistant"][1:] == ["You said number 1 to me just now.", "pong it is indeed."]


@pytest.mark.parametrize("scored", [False, True])
@pytest.mark.parametrize("late_s", [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0, 1.5, 1.9])
@pytest.mark.parametrize("name", ["2", "3"])
async def test_b54_a_final_however_late_within_the_limit(name: str, late_s: float, scored: bool) -> None:
    """One final, or two of which the second is late: the words are there once, and one answer to all of them is heard whole."""
    first = [(0.1, "S"), (0.5, "I book a"), (1.1, "E")]
    if name == "2":
        script, text = [*first, (1.1 + late_s, "F book a table")], "book a table"
    else:
        script, text = [*first, (1.1, "F book a table"), (1.1 + late_s, "F for two people")], "book a table for two people"
    this = await call(script, scored=scored)
    said = users(this)
    assert " ".join(said) == text
    if len(said) == 2:  # words of the first answer had been heard by then
        assert late_s >= 0.3
        assert this.model.requests[1][-2].role == "assistant"
    assert not any("I book" in m.text for m in this.messages)
    assert this.stopped()[-2].complete


@pytest.mark.parametrize("script", [[(0.1, "S"), (1.1, "E")], [(0.1, "S"), (0.3, "E")], [(0.1, "S"), (1.1, "E"), (1.9, "S"), (2.5, "E")]])
@pytest.mark.parametrize("told", [None, "", "   ", "[noise]"])
async def test_b54_speech_without_words_asks_the_model_nothing_and_says_so(script: Script, told: str | None) -> None:
    """(5) and (9): no request, and a turn that ends empty within the limit, with its reason."""
    ended = script[-1][0]
    this = await call([*script, *([(ended + 0.4, f"F {told}")] if told is not None else [])])
    assert len(this.model.requests) == 1  # the probe's
    assert users(this) == []
    assert empty_turns(this)
    assert all(turn.why for turn in empty_turns(this))
    assert len(empty_turns(this)) <= sum(what == "E" for _, what in script)


async def test_b54_the_event_of_an_empty_turn_comes_within_the_limit() -> None:
    """Nobody who waits for the turn's end waits longer than 3 s."""
    this = Call(reply)
    at: list[float] = []
    this.session.tap(lambda frame, source, target: at.append(this.session.time()) if isinstance(frame, TurnEnded) else None, source="Turns")
    async with this:
        await play(this, [(0.1, "S"), (1.1, "E")])
        await asyncio.sleep(6.0)
        assert len(at) == 1
        assert at[0] <= BEGINS + 1.1 + LIMIT_S
        assert this.model.requests == []


@pytest.mark.parametrize("before", [[], [(0.1, "S"), (0.6, "F book a table"), (0.8, "E")]])
async def test_b54_noise_after_noise_keeps_no_turn_open_for_ever(before: Script) -> None:
    """Every 1.5 s something that the recogniser never tells of: the turn ends all the same, with the words that there were."""
    noises = [(1.2 + 1.5 * number + off, what) for number in range(16) for off, what in ((0.0, "S"), (0.5, "E"))]
    this = Call(reply)
    at: list[tuple[float, str]] = []
    this.session.tap(
        lambda frame, source, target: at.append((this.session.time(), frame.text)) if isinstance(frame, TurnEnded) else None, source="Turns"
    )
    async with this:
        await play(this, [*before, *noises])
        assert at
        assert at[0][0] <= BEGINS + 15.0
        assert at[0][1] == ("book a table" if before else "")


@pytest.mark.parametrize("after_s", [0.03, 0.2, 0.5, 0.8])
@pytest.mark.parametrize("text", ["for two people", "and a cake"])
async def test_b54_a_final_that_comes_when_the_answer_has_begun_is_not_lost(after_s: float, text: str) -> None:
    """(10): it interrupts, and is the caller's next text; the words that were heard of the first answer stand between."""
    this = Call(reply, voice=Voice(Latency(0.05, 0.005)), thinks=Latency(0.3, 0.005))
    async with this:
        this.send(SayFrame(GREETING))
        await play(this, [(0.1, "S"), (0.9, "F book a table"), (1.1, "E")], scored=True)
        first = await this.first_sound()
        await this.until(first + after_s)
        this.send(final(text))
        await asyncio.sleep(4.0)
        check(this)
        if after_s < 0.05:
            assert users(this) == [f"book a table {text}"]
        else:
            assert users(this) == ["book a table", text]
            roles = [m.role for m in this.model.requests[-1]]
            assert roles == ["assistant", "user", "assistant", "user"]
        assert this.stopped()[-1].complete
        await this.alive()


@pytest.mark.parametrize("late_s", [2.1, 2.5, 3.0, 3.3])
async def test_b54_a_final_after_its_partial_has_been_answered(late_s: float) -> None:
    """The final never came in time, so the partial stood in for it; when it comes at last its words are not lost."""
    this = await call([(0.1, "S"), (0.9, "I book a table"), (1.1, "E"), (1.1 + late_s, "F book a table for two")])
    assert users(this)[-1] == "book a table for two"
    assert this.stopped()[-2].complete


async def test_b54_a_final_that_says_what_its_partial_said_asks_nothing_again() -> None:
    """It came late, and there is nothing new in it: the answer goes on."""
    this = await call([(0.1, "S"), (0.9, "I book a table"), (1.1, "E"), (3.3, "F Book a table.")])
    assert len(this.model.requests) == 2  # and the probe's
    assert len(users(this)) == 1


@pytest.mark.parametrize("turns", [3, 6])
async def test_b54_turn_after_turn_with_everything_late(turns: int) -> None:
    """Each turn's final comes 400 ms after its end: each word is in exactly one message, in order, and each turn answered."""
    this = Call(reply, voice=Voice(Latency(0.05, 0.005)), thinks=Latency(0.3, 0.005))
    async with this:
        this.send(SayFrame(GREETING))
        for number in range(turns):
            at = 4.0 * number
            await play(
                this,
                [(at + 0.1, "S"), (at + 0.6, f"I turn number {number}"), (at + 1.0, "E"), (at + 1.4, f"F this is turn number {number}")],
            )
        await asyncio.sleep(4.0)
        check(this)
    assert users(this) == [f"this is turn number {number}" for number in range(turns)]
    assert len(this.model.requests) == turns
    assert [heard.complete for heard in this.stopped()] == [True] * (turns + 1)
