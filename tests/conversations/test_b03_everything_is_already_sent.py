"""Case B03: an interruption when everything has been sent already: the far end still plays."""

from __future__ import annotations

import asyncio

import pytest

from voiceflow import Message
from voiceflow.errors import SessionError
from voiceflow.processors.splitter import SplitterOptions
from voiceflow.processors.text import Sentences
from voiceflow.processors.turns import TurnOptions
from voiceflow.testing import Latency

from .rig import Call, Voice, final
from .twilio_peer import STEP, TwilioLine, TwilioPeer

STORY = " ".join(f"word{n}" for n in range(80)) + "."
NEXT = "This is the next answer."


def reply(messages: tuple[Message, ...]) -> str:
    return NEXT if "next" in messages[-1].text else STORY


class InOnePiece(Sentences):
    """A reply is spoken in one piece, so that it has one label."""

    def __init__(self) -> None:
        super().__init__(SplitterOptions(clause_chars=(1000,), first_words=0, limit_chars=1000))


def call(peer: TwilioPeer, *, turns: TurnOptions | None = None, ahead_s: float = 10.0, timed: bool = True) -> Call:
    """Eight seconds of sound that are all on the wire half a second after the question, at the latest."""
    voice = Voice(Latency(0.1, 0.0), timed=timed, step=STEP)
    line = TwilioLine(peer, ahead_s=ahead_s)
    return Call(reply, voice=voice, thinks=Latency(0.0, 0.001), turns=turns, speaker=line, sentences=InOnePiece())


async def all_sent(this: Call, peer: TwilioPeer) -> None:
    """Ask, and see that model, voice and line have nothing more to do."""
    this.asks("a story")
    await this.until(0.5)
    assert peer.sent_s()[-1][1] == pytest.approx(8.0 if this.voice.timed else 8.4, abs=0.05)
    assert all(state.frames == 0 for state in this.session.inboxes())


def check_told(this: Call, heard_s: float) -> None:
    """R7: the context holds what the far end played, to one word."""
    told = this.said()
    assert told == STORY.split()[: len(told)]
    assert abs(len(told) - (heard_s + 0.05) // 0.1) <= 1


@pytest.mark.parametrize("network_s", [0.0, 0.04])
@pytest.mark.parametrize("timed", [True, False])
@pytest.mark.parametrize("at", [0.513, 0.75, 1.0, 1.234, 2.0, 3.3, 5.0, 7.9])
async def test_b03_an_interrupt_clears_what_the_far_end_has(at: float, timed: bool, network_s: float) -> None:
    """At any time after all was sent: a clear leaves at once, the sound stops with it, and the next reply is heard whole."""
    peer = TwilioPeer(network_s=network_s)
    this = call(peer, timed=timed)
    async with this:
        await all_sent(this, peer)
        await this.until(at)
        this.session.interrupt("the caller speaks")
        sent = len(peer.events("media"))
        assert [(when, message["streamSid"]) for when, message in peer.events("clear")] == [(at, peer.told[0][1]["streamSid"])]
        await asyncio.sleep(0.3)
        assert len(peer.events("media")) == sent
        _, _, until = peer.heard()[-1]
        assert until <= at + network_s + 0.001
        if timed:
            check_told(this, peer.seconds(1))
        this.asks("the next one")
        await asyncio.sleep(3.0)
        assert peer.seconds(2) == pytest.approx(sum(this.voice.length_s(n) for n in range(81, 86)), abs=0.02)
        assert this.stopped()[-1].text == NEXT
    assert [m.text for m in this.messages if m.role == "assistant"][-1].endswith(NEXT)
    assert peer.faults == []


@pytest.mark.parametrize("gap_s", [0.0, 0.001, 0.04, 0.2])
async def test_b03_two_interrupts_are_one_clear(gap_s: float) -> None:
    """The second finds nothing that could still be heard: it raises nothing and clears nothing."""
    peer = TwilioPeer()
    this = call(peer)
    async with this:
        await all_sent(this, peer)
        await this.until(2.0)
        this.session.interrupt("first")
        await asyncio.sleep(gap_s)
        this.session.interrupt("second")
        assert len(peer.events("clear")) == 1
        check_told(this, peer.seconds(1))
        this.asks("the next one")
        await asyncio.sleep(2.0)
        assert peer.seconds(2) == pytest.approx(0.5, abs=0.02)
    assert sum(m.role == "assistant" for m in this.messages) == 2
    assert peer.faults == []


async def test_b03_an_interrupt_before_anything_was_sent_tells_the_far_end_nothing() -> None:
    """There is nothing to clear, and nothing is raised; the first reply is heard whole."""
    peer = TwilioPeer()
    this = call(peer)
    async with this:
        this.session.interrupt("at the very start")
        await this.until(0.3)
        this.session.interrupt("and once more")
        assert peer.told == []
        this.asks("the next one")
        await asyncio.sleep(2.0)
        assert peer.seconds(1) == pytest.approx(0.5, abs=0.02)
    assert peer.faults == []


async def test_b03_an_interrupt_after_all_was_heard_tells_the_far_end_nothing() -> None:
    """The marks are back: a clear would be for nothing."""
    peer = TwilioPeer()
    this = call(peer)
    async with this:
        this.asks("the next one")
        await this.until(2.0)
        assert [heard.complete for heard in this.stopped()] == [True]
        this.session.interrupt("much later")
        assert peer.events("clear") == []
    assert peer.faults == []


@pytest.mark.parametrize("after_s", [0.0, 0.01, 1.0])
async def test_b03_after_the_stop_nothing_is_sent(after_s: float) -> None:
    """The caller hangs up while the far end plays; an interrupt right after it, and the end of the session, send nothing."""
    peer = TwilioPeer()
    this = call(peer)
    running = asyncio.ensure_future(this.session.run())
    await asyncio.sleep(0)
    await this.session.started()
    await all_sent(this, peer)
    await this.until(2.0)
    sent = len(peer.told)
    peer.hang_up()
    this.session.cancel()
    await asyncio.sleep(after_s)
    try:
        this.session.interrupt("too late")
    except SessionError as error:
        assert str(error) == "the session is ended: there is nothing to interrupt"  # noqa: PT017 - it may or may not be over yet
    await running
    await asyncio.sleep(2.0)
    assert len(peer.told) == sent
    assert peer.faults == []
    check_told(this, peer.seconds(1))


@pytest.mark.parametrize("network_s", [0.0, 0.04])
@pytest.mark.parametrize("words", ["wait a moment, the next one please", "the next one"])
async def test_b03_the_callers_own_voice_silences_the_far_end(words: str, network_s: float) -> None:
    """Heard as speech at 2.0 s, told at 2.1: silence at the far end by 2.15 s and the way there, and it is an interrupt."""
    peer = TwilioPeer(network_s=network_s)
    this = call(peer, turns=TurnOptions())
    async with this:
        await all_sent(this, peer)
        await this.until(2.1)
        this.begins()
        await this.until(3.0)
        this.send(final(words))
        this.stops()
        await asyncio.sleep(3.0)
        assert all(until <= 2.15 + network_s for label, _, until in peer.heard() if label == 1)
        assert peer.events("clear")[0][0] == pytest.approx(2.1, abs=0.05)
        assert peer.seconds(2) == pytest.approx(0.5, abs=0.02)
    assert [m.text for m in this.messages if m.role == "user"] == ["a story", words]
    check = [m for m in this.messages if m.role == "assistant"]
    assert [m.interrupted for m in check] == [True, False]
    assert len(check[0].text.split()) == pytest.approx((peer.seconds(1) + 0.05) // 0.1, abs=1)
    assert peer.faults == []


@pytest.mark.parametrize("network_s", [0.0, 0.04])
async def test_b03_a_cough_takes_back_what_the_far_end_has_and_sends_it_again(network_s: float) -> None:
    """Silence at once, and when it was nothing the rest is sent again from the start of the cut word: the story is heard whole."""
    peer = TwilioPeer(network_s=network_s)
    this = call(peer, turns=TurnOptions())
    async with this:
        await all_sent(this, peer)
        await this.until(2.1)
        this.begins()
        await this.until(2.4)
        silent_from = max(until for _, _, until in peer.heard(2.4))
        assert silent_from <= 2.15 + network_s
        this.stops()
        await asyncio.sleep(0.1)
        this.send(final(""))
        await asyncio.sleep(9.0)
        assert 8.0 - 0.02 <= peer.seconds(1) <= 8.0 + 0.12 + network_s  # the cut word is said again, and no other
        assert this.stopped()[-1].complete
    assert this.said() == STORY.split()
    assert len([m for m in this.messages if m.role == "assistant"]) == 1
    assert peer.faults == []


@pytest.mark.parametrize("ahead_s", [0.0, 0.1, 0.5, 2.0, 10.0])
@pytest.mark.parametrize("at", [0.35, 1.111, 2.0, 6.0])
async def test_b03_however_far_ahead_the_sound_may_leave(at: float, ahead_s: float) -> None:
    """No more than that is ever out, and after the interrupt nothing of it is heard."""
    peer = TwilioPeer()
    this = call(peer, ahead_s=ahead_s)
    async with this:
        this.asks("a story")
        await this.until(at)
        sent = peer.sent_s()
        assert all(out <= when - sent[0][0] + max(ahead_s, 0.02) + 0.001 for when, out in sent)
        this.session.interrupt("the caller speaks")
        told = len(peer.told)
        await asyncio.sleep(0.2)
        assert len(peer.told) == told
        assert max(until for _, _, until in peer.heard()) <= at + 0.001
        check_told(this, peer.seconds(1))
        this.asks("the next one")
        await asyncio.sleep(2.0)
        assert peer.seconds(2) == pytest.approx(0.5, abs=0.02)
    assert peer.faults == []


async def test_b03_a_far_end_that_loses_its_marks_is_told_to_clear_all_the_same() -> None:
    """Without marks the place of the ear is an estimate, and says so; the clear goes out."""
    peer = TwilioPeer(returns_marks=False)
    this = call(peer)
    async with this:
        await all_sent(this, peer)
        await this.until(4.0)
        interruption = this.session.interrupt("the caller speaks")
        assert len(peer.events("clear")) == 1
        assert [heard.estimated for heard in interruption.heard] == [True]
        assert max(until for _, _, until in peer.heard()) <= 4.001
        check_told(this, peer.seconds(1))
    assert peer.faults == []
