"""Case B53: the idle timer fires while somebody speaks, or never again."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from voiceflow import CallerIdle, Message, Processor, SayFrame
from voiceflow.messages import ToolCall
from voiceflow.processors.idle import Idle, IdleOptions
from voiceflow.processors.start_policies import Words
from voiceflow.processors.tool import tool
from voiceflow.processors.tools import Tools
from voiceflow.processors.turns import TurnOptions
from voiceflow.testing import Latency

from .rig import Call, Reply, Voice, final, partial
from .twilio_peer import STEP, TwilioLine, TwilioPeer

IDLE_S = 2.0
LONG = " ".join(f"word{n}" for n in range(60)) + "."
SHORT = "That is all there is."
LOOK_IT_UP = ToolCall("call-1", "look_it_up")


class IdleLog(Processor):
    """Keeps when the caller was said to be idle."""

    def __init__(self) -> None:
        self.events: list[tuple[float, CallerIdle]] = []

    def process(self, frame: CallerIdle) -> None:
        self.events.append((self.session.time(), frame))

    @property
    def times(self) -> list[float]:
        return [at for at, _ in self.events]


@tool()
async def look_it_up() -> str:
    """Look it up."""
    await asyncio.sleep(4.0)
    return "found"


def reply(messages: tuple[Message, ...]) -> Reply:
    last = messages[-1].text
    if "look" in last:
        return ("One moment.", LOOK_IT_UP)
    return LONG if "long" in last else SHORT


class IdleCall(Call):
    """A call that is idle after two seconds."""

    def __init__(
        self,
        *,
        voice: Voice | None = None,
        line: TwilioLine | None = None,
        options: IdleOptions | None = None,
        behind: Sequence[Processor] = (),
        thinks: Latency | None = None,
        turns: TurnOptions | None = None,
    ) -> None:
        self.log = IdleLog()
        super().__init__(
            reply,
            voice=voice or Voice(Latency(0.05, 0.0)),
            thinks=thinks or Latency(0.1, 0.0),
            turns=turns or TurnOptions(),
            after_turns=(Idle(options or IdleOptions(idle_s=IDLE_S)), self.log),
            behind=behind,
            speaker=line,
        )

    def silent_from(self) -> float:
        """When the last sound was over."""
        return self.ear.runs()[-1].until


def check_once(this: IdleCall, silent_from: float, *, slack_s: float = 0.2) -> None:
    """Exactly one event, two seconds after."""
    assert this.log.times == [pytest.approx(silent_from + IDLE_S, abs=slack_s)]
    assert [event.count for _, event in this.log.events] == [1]


@pytest.mark.parametrize("timed", [True, False])
async def test_b53a_the_agent_speaks_for_long(timed: bool) -> None:
    """Six seconds of sound that were made at once, in many frames or in one a sentence: nothing before 2 s after its end."""
    this = IdleCall(voice=Voice(Latency(0.05, 0.0), timed=timed))
    async with this:
        this.asks("a long one")
        await this.until(12.0)
        assert this.silent_from() > 5.9
        check_once(this, this.silent_from())


@pytest.mark.parametrize("buffer_s", [0.0, 1.5])
async def test_b53b_the_far_end_plays_what_was_sent_long_ago(buffer_s: float) -> None:
    """All is sent within 0.3 s and played for six: the silence begins when the far end has played it."""
    peer = TwilioPeer(buffer_s=buffer_s)
    this = IdleCall(voice=Voice(Latency(0.05, 0.0), step=STEP), line=TwilioLine(peer, ahead_s=10.0))
    async with this:
        this.asks("a long one")
        await this.until(13.0)
        assert peer.sent_s()[-1][0] <= 0.5
        check_once(this, peer.heard()[-1][2])


@pytest.mark.parametrize("seconds", [3.0, 5.0, 12.0])
@pytest.mark.parametrize("turns", [TurnOptions(), TurnOptions(start=Words(2))], ids=["by voice", "by words"])
@pytest.mark.parametrize("partials", [True, False])
async def test_b53c_the_caller_speaks_for_long(seconds: float, partials: bool, turns: TurnOptions) -> None:
    """Without a pause and for longer than the limit: nothing before 2 s after the end of the answer."""
    this = IdleCall(turns=turns)
    async with this:
        await this.until(1.0)
        this.begins()
        await this.until(1.5)
        if partials:
            this.send(partial("all this"))
        await this.until(1.0 + seconds)
        this.send(final("all this and that"))
        this.stops()
        await this.until(1.0 + seconds + 5.0)
        assert this.heard() == SHORT.split()
        check_once(this, this.silent_from())


async def test_b53d_a_tool_runs() -> None:
    """Four seconds of a tool: nothing while it runs, nor before 2 s after the end of the answer to its result."""
    this = IdleCall(behind=(Tools([look_it_up]),))
    async with this:
        this.asks("look it up")
        await this.until(10.0)
        assert len(this.model.requests) == 2
        assert this.model.asked_at[1] >= 4.0
        assert this.heard() == ["One", "moment.", *SHORT.split()]
        check_once(this, this.silent_from())


async def test_b53d_the_model_thinks_for_long() -> None:
    """Five seconds to the first token: nothing before 2 s after the end of the answer."""
    this = IdleCall(thinks=Latency(5.0, 0.0))
    async with this:
        this.asks("a short one")
        await this.until(9.5)
        check_once(this, this.silent_from())


@pytest.mark.parametrize("told", [None, "", "[noise]"])
@pytest.mark.parametrize("at", [1.2, 1.9])
async def test_b53e_a_noise_does_not_stop_it_for_ever(at: float, told: str | None) -> None:
    """A noise that is taken for speech, and no words: an event within 4 s of its end."""
    this = IdleCall()
    async with this:
        await this.until(at)
        this.begins()
        await this.until(at + 0.5)
        this.stops()
        if told is not None:
            await asyncio.sleep(0.4)
            this.send(final(told))
        await this.until(8.0)
        assert this.model.requests == []
        assert len(this.log.times) == 1
        assert at < this.log.times[0] <= at + 0.5 + 4.0


@pytest.mark.parametrize("told", [None, ""])
async def test_b53e_noise_after_noise_does_not_stop_it_for_ever(told: str | None) -> None:
    """A noise every 1.5 s, for a minute: there is an event all the same, soon after what a noise may last (10 s here)."""
    this = IdleCall(options=IdleOptions(idle_s=IDLE_S, noise_s=10.0))
    async with this:
        for number in range(40):
            await this.until(1.0 + 1.5 * number)
            this.begins()
            await asyncio.sleep(0.5)
            this.stops()
            if told is not None:
                this.send(final(told))
        await this.until(66.0)
        assert this.log.times
        assert this.log.times[0] <= 10.0 + 3 * IDLE_S
        assert this.model.requests == []


@pytest.mark.parametrize("greeting", [True, False])
async def test_b53f_true_silence(greeting: bool) -> None:
    """After a greeting, or from the start of the call: one event at 2.0 s, and no second one however long it lasts."""
    this = IdleCall()
    async with this:
        if greeting:
            this.send(SayFrame("Hello, who is there?"))
        await this.until(30.0)
        check_once(this, this.silent_from() if greeting else 0.0)


async def test_b53f_each_answer_is_followed_by_a_silence_of_its_own() -> None:
    """Three turns with silence after each: three events, each 2 s after an answer's end."""
    this = IdleCall()
    ends: list[float] = []
    async with this:
        for number in range(3):
            await this.until(0.5 + 6.0 * number)
            this.asks("a short one")
            await asyncio.sleep(2.0)
            ends.append(this.silent_from())
        await this.until(18.0)
        assert this.log.times == [pytest.approx(end + IDLE_S, abs=0.2) for end in ends]
        assert [event.count for _, event in this.log.events] == [1, 1, 1]


@pytest.mark.parametrize("after_s", [0.5, 1.9])
async def test_b53f_a_caller_who_speaks_in_time_is_not_idle(after_s: float) -> None:
    """They speak so long after each answer: no event, but after the last."""
    this = IdleCall()
    async with this:
        at = 0.0
        for _ in range(4):
            await this.until(at)
            this.asks("a short one")
            await asyncio.sleep(1.0)
            at = this.silent_from() + after_s
        await this.until(at + 5.0)
        check_once(this, this.silent_from())


@pytest.mark.parametrize("at", [0.5, 1.0, 3.0])
async def test_b53_on_hold_the_agent_is_not_silent(at: float) -> None:
    """A cough holds the speech for a while: nothing before 2 s after the true end."""
    this = IdleCall()
    async with this:
        this.asks("a long one")
        await this.until(at)
        this.begins()
        await asyncio.sleep(0.4)
        this.stops()
        await this.until(15.0)
        assert this.heard() == LONG.split()
        check_once(this, this.silent_from())


@pytest.mark.parametrize("at", [0.05, 0.5, 3.0])
async def test_b53_after_an_interrupt_silence_counts(at: float) -> None:
    """The agent is silenced by the application, before its first sound or in mid-speech: one event 2 s later."""
    this = IdleCall()
    async with this:
        this.asks("a long one")
        await this.until(at)
        this.session.interrupt("stop")
        await this.until(at + 6.0)
        check_once(this, at)


@pytest.mark.parametrize("armed_s", [0.0, 0.5, 1.999])
async def test_b53g_cancelled_while_armed(armed_s: float) -> None:
    """No event comes, and no task is left (which the test's own loop sees to)."""
    this = IdleCall()
    running = asyncio.ensure_future(this.session.run())
    await asyncio.sleep(0)
    await this.session.started()
    await asyncio.sleep(armed_s)
    this.session.cancel()
    await running
    await asyncio.sleep(10.0)
    assert this.log.times == []


async def test_b53_prompts_and_a_goodbye_that_is_heard_out() -> None:
    """Two prompts, each after 2 s of silence, then the goodbye, all of which is heard before the call ends."""
    options = IdleOptions(
        idle_s=IDLE_S, prompts=("Are you still there?", "Hello, can you hear me?"), goodbye="Then I will hang up now, goodbye."
    )
    this = IdleCall(options=options)
    await this.session.run()
    over = asyncio.get_running_loop().time()
    said = " ".join([*options.prompts, options.goodbye]).split()
    assert this.heard() == said
    assert this.said() == said
    assert [event.count for _, event in this.log.events] == [1, 2, 3]
    assert this.silent_from() <= over + 1e-6
    assert over <= this.silent_from() + 1.0
    first, second, third = this.log.times
    assert first == pytest.approx(IDLE_S, abs=0.1)
    assert second == pytest.approx(first + 0.05 + 0.4 + IDLE_S, abs=0.2)
    assert third == pytest.approx(second + 0.05 + 0.5 + IDLE_S, abs=0.2)


async def test_b53_a_caller_who_comes_back_is_answered_and_counted_afresh() -> None:
    """After a prompt they speak: the next silence is the first again."""
    this = IdleCall(options=IdleOptions(idle_s=IDLE_S, prompts=("Are you still there?",), goodbye="Goodbye then."))
    async with this:
        await this.until(3.0)
        this.asks("a short one")
        await this.until(6.0)
        assert [event.count for _, event in this.log.events] == [1, 1]
        await this.until(6.2)
        await this.alive()
    assert "Goodbye" not in " ".join(this.heard())
