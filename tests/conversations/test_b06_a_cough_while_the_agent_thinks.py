"""Case B06: a cough, or more words, while the agent is thinking: one answer, never none and never two."""

from __future__ import annotations

import asyncio

import pytest

from voiceflow import Message, SpeechStopped, TurnScored
from voiceflow.testing import Latency

from .rig import Call, Voice, final, partial

QUESTION = "what time do you open"
MORE = "on sunday"
WEEKDAY = "We open at nine every day of the week."
SUNDAY = "On Sunday we open at eleven and close at four."
JULY = (
    "In July we open at eight, and we close at noon on Fridays, since then everybody here is on the beach, or so the owner says every year."
)
VAD_START_S = 0.1
VAD_STOP_S = 0.2


def reply(messages: tuple[Message, ...]) -> str:
    if "july" in messages[-1].text:
        return JULY
    return SUNDAY if "sunday" in messages[-1].text else WEEKDAY


def call(*, timed: bool = True) -> Call:
    return Call(reply, voice=Voice(Latency(0.1, 0.005), timed=timed), thinks=Latency(0.8, 0.005))


async def question(this: Call, *, scored: bool, text: str = QUESTION) -> None:
    """The question ends at 0: by a turn-end model's score, or by silence."""
    this.begins()
    await this.until(1.0)
    this.send(final(text))
    this.stops()
    if scored:
        this.send(TurnScored(probability=0.9))


async def noise(this: Call, at: float, seconds: float, *, told: str | None) -> None:
    """Sound from ``at`` on, counted from the question's end, in which the recogniser finds ``told`` (None: it never answers)."""
    await this.until(1.0 + at + VAD_START_S)
    this.begins()
    await asyncio.sleep(seconds - VAD_START_S + VAD_STOP_S)
    this.send(SpeechStopped(at=this.session.time() - VAD_STOP_S, silence=VAD_STOP_S))
    if told is not None:
        await asyncio.sleep(0.1)
        this.send(final(told))


def whole_answers(this: Call) -> list[str]:
    """The answers that were heard to their end, in order."""
    return [" ".join(this.heard(heard.utterance)) for heard in this.stopped() if heard.complete]


@pytest.mark.parametrize("told", [None, "", "[cough]"])
@pytest.mark.parametrize(("seconds", "scored"), [(0.15, True), (0.4, False), (0.55, True), (0.55, False)])
@pytest.mark.parametrize("at", [0.0, 0.1, 0.3, 0.6, 0.7, 0.85, 0.95, 1.1, 1.4, 1.7])
async def test_b06_a_cough_loses_no_answer(at: float, seconds: float, told: str | None, scored: bool) -> None:
    """Before the first word or over it, with or without a transcript: the question is answered once and whole, within 3 s.

    The 3 s count from when the question's end was told, or the cough's if that came before the turn was over. A cough over
    the very first sound keeps it back until it is judged, 1.2 s after its end.
    """
    this = call()
    async with this:
        await question(this, scored=scored)
        await noise(this, at, seconds, told=told)
        await this.until(7.0)
        assert whole_answers(this) == [WEEKDAY]
        assert this.heard() == WEEKDAY.split()
        told_at = 1.0 if scored or at >= 0.3 else 1.0 + at + seconds + VAD_STOP_S
        judged_at = 1.0 + at + seconds + VAD_STOP_S + 1.2
        assert this.ear.runs()[0].at <= max(told_at + 3.0, judged_at) + 0.001
        await this.alive()
    assert [(m.role, m.text) for m in this.messages] == [
        ("user", QUESTION),
        ("assistant", WEEKDAY),
        ("user", "ping"),
        ("assistant", "pong it is indeed."),
    ]


@pytest.mark.parametrize(("seconds", "scored"), [(0.15, True), (0.4, False), (0.55, True)])
@pytest.mark.parametrize("at", [0.35, 0.6, 0.7, 0.85, 0.95, 1.1, 1.6, 2.0])
async def test_b06_a_mhm_loses_no_answer(at: float, seconds: float, scored: bool) -> None:
    """Said while the agent thinks, or over a long answer: it is no question, and the answer is heard once and whole."""
    this = call()
    async with this:
        await question(this, scored=scored, text=f"{QUESTION} in july")
        await noise(this, at, seconds, told="mhm")
        await this.until(9.0)
        assert whole_answers(this) == [JULY]
        assert this.heard() == JULY.split()
        assert len(this.model.requests) == 1
    assert [m.text for m in this.messages] == [f"{QUESTION} in july", JULY]


@pytest.mark.parametrize("seconds", [0.8, 1.5, 2.5, 4.0])
@pytest.mark.parametrize("at", [0.1, 0.3, 0.7])
@pytest.mark.parametrize("told", [None, ""])
async def test_b06_a_long_noise_loses_no_answer(at: float, seconds: float, told: str | None) -> None:
    """A noise that lasts so long that it is taken for a turn: the question stands, and is answered once within 3 s of its end."""
    this = call()
    async with this:
        await question(this, scored=True)
        await noise(this, at, seconds, told=told)
        ended = this.session.time()
        await this.until(12.0)
        assert whole_answers(this) == [WEEKDAY]
        assert this.heard() == WEEKDAY.split()
        assert this.ear.runs()[-1].until - 0.9 <= ended + 3.0
    assert [m.text for m in this.messages] == [QUESTION, WEEKDAY]


@pytest.mark.parametrize(("partials", "timed"), [(True, True), (False, True), (True, False)])
@pytest.mark.parametrize("at", [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0, 1.2, 1.5])
async def test_b06_more_words_make_one_question_and_one_answer(at: float, partials: bool, timed: bool) -> None:
    """The words join the question if nothing of its answer was heard; of the first answer nothing is heard once they are in."""
    this = call(timed=timed)
    async with this:
        await question(this, scored=True)
        await this.until(1.0 + at + VAD_START_S)
        this.begins()
        if partials:
            await asyncio.sleep(0.1)
            this.send(partial("on"))
        await this.until(1.0 + at + 0.35)
        this.stops()
        await this.until(1.0 + at + 0.5)
        text_in = this.session.time()
        this.send(final(MORE))
        await asyncio.sleep(0)
        late = [run for run in this.ear.runs() if run.until > text_in and this.voice.utterances[run.label - 1] == 1]
        await this.until(7.0)
        assert whole_answers(this) == [SUNDAY]
        assert late == []
        assert all(run.until <= text_in for run in this.ear.runs() if this.voice.utterances[run.label - 1] == 1)
        cut = this.said()[: -len(SUNDAY.split())]
        assert len(this.model.requests) == 2
        asked = [(m.role, m.text) for m in this.model.requests[-1]]
        if this.heard(1):
            assert asked == [("user", QUESTION), ("assistant", " ".join(cut)), ("user", MORE)]
        else:
            assert asked == [("user", f"{QUESTION} {MORE}")]
        if timed:
            assert cut == this.heard(1)
        await this.alive()


@pytest.mark.parametrize("count", [2, 3, 5])
async def test_b06_coughs_one_after_another_lose_no_answer(count: int) -> None:
    """Several coughs in a row, the next before the last is judged."""
    this = call()
    async with this:
        await question(this, scored=True)
        for number in range(count):
            await noise(this, 0.2 + 0.5 * number, 0.15, told=None)
        await this.until(10.0)
        assert whole_answers(this) == [WEEKDAY]
        assert this.heard() == WEEKDAY.split()
    assert [m.text for m in this.messages] == [QUESTION, WEEKDAY]
