"""Case B56: the goodbye is cut off by the hang-up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest

from voiceflow import EndFrame, LLMEnded, Message, Processor, SayFrame, SessionOptions
from voiceflow.frames import ToolCallFrame
from voiceflow.messages import ToolCall
from voiceflow.processors.splitter import SplitterOptions
from voiceflow.processors.text import Sentences
from voiceflow.processors.tool import Effect, ToolRun, tool
from voiceflow.processors.tools import Tools
from voiceflow.testing import Latency

from .rig import Call, Reply, Voice
from .twilio_peer import STEP, TwilioLine, TwilioPeer

GOODBYE = "Thank you very much for your call and have a nice day, we look forward to seeing you on Monday morning."
WORDS = GOODBYE.split()
TEXT = "Then we are done."
HANG_UP = ToolCall("call-1", "hang_up")
FIRST_S = 0.3
SPOKEN_S = 0.1 * len(WORDS)


class HangUp(Processor):
    """A tool in its smallest form: when the reply that called it is complete it says goodbye and ends the call, in one go."""

    def __init__(self) -> None:
        self.called = False

    def process(self, frame: ToolCallFrame | LLMEnded) -> Iterator[LLMEnded | SayFrame | EndFrame]:
        if isinstance(frame, ToolCallFrame):
            self.called = True
            return
        yield frame
        if self.called:
            yield SayFrame(GOODBYE)
            yield EndFrame()


class HangUpByHand(Processor):
    """The same by the session's own doors."""

    def __init__(self) -> None:
        self.called = False

    def process(self, frame: ToolCallFrame | LLMEnded) -> Iterator[LLMEnded]:
        if isinstance(frame, ToolCallFrame):
            self.called = True
            return
        yield frame
        if self.called:
            self.session.send_nowait(SayFrame(GOODBYE))
            self.session.end()


def real_tools(effect: Effect) -> Callable[[], Processor]:
    """The real node, with a tool that may run before the reply is heard, or only after."""

    def make() -> Processor:
        @tool(effect=effect)
        async def hang_up(run: ToolRun) -> str:
            await run.session.send(SayFrame(GOODBYE))
            run.hang_up()
            return "done"

        return Tools([hang_up])

    return make


TOOLS: dict[str, Callable[[], Processor]] = {
    "frames": HangUp,
    "by hand": HangUpByHand,
    "pure": real_tools("pure"),
    "idempotent": real_tools("idempotent"),
    "once": real_tools("once"),
}


class InOnePiece(Sentences):
    """One text, one label."""

    def __init__(self) -> None:
        super().__init__(SplitterOptions(clause_chars=(1000,), first_words=0, limit_chars=1000))


def call(
    *parts: str | ToolCall,
    tool: Processor | None = None,
    line: TwilioLine | None = None,
    voice: Voice | None = None,
    session: SessionOptions | None = None,
) -> Call:
    """A call whose every reply is these parts; ``tool`` stands right behind the model."""

    def reply(messages: tuple[Message, ...]) -> Reply:
        return () if messages[-1].role == "tool" else parts

    return Call(
        reply,
        voice=voice or Voice(Latency(FIRST_S, 0.005), step=STEP if line else 0),
        thinks=Latency(0.0, 0.0),
        turns=None,
        behind=(tool or HangUp(),),
        speaker=line,
        sentences=InOnePiece() if line else None,
        session=session,
    )


async def hang_up(this: Call) -> float:
    """Ask, and wait until the call is over; when that was."""
    running = asyncio.ensure_future(this.session.run())
    await asyncio.sleep(0)
    await this.session.started()
    this.asks("goodbye")
    await running
    return asyncio.get_running_loop().time()


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("text", ["", TEXT])
async def test_b56_all_of_the_goodbye_is_heard_before_the_call_ends(text: str, tool: str) -> None:
    """Said by a tool that ends the call at once, with or without text in the same reply: every word is heard, then it ends."""
    this = call(*([text] if text else []), HANG_UP, tool=TOOLS[tool]())
    over = await hang_up(this)
    expected = [*text.split(), *WORDS]
    assert this.heard() == expected
    assert this.ear.runs()[-1].until <= over + 1e-6
    assert over <= (2 if text else 1) * FIRST_S + 0.1 * len(expected) + 1.0
    assert this.said() == expected
    assert this.stopped()[-1].complete


@pytest.mark.parametrize("first_s", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("each_s", [0.0, 0.05, 0.15])
async def test_b56_however_slow_the_voice(each_s: float, first_s: float) -> None:
    """A voice that begins late, or is slower than speech: the end waits for its last word."""
    this = call(HANG_UP, voice=Voice(Latency(first_s, each_s)))
    over = await hang_up(this)
    assert this.heard() == WORDS
    pieces = max(this.voice.sentences)
    assert over <= pieces * first_s + len(WORDS) * max(0.1, each_s) + 1.0


async def test_b56_a_goodbye_said_by_the_application() -> None:
    """Without a tool: ``SayFrame`` and ``end()`` one behind the other."""
    this = call("nothing")
    running = asyncio.ensure_future(this.session.run())
    await asyncio.sleep(0)
    await this.session.started()
    this.send(SayFrame(GOODBYE))
    this.session.end()
    await running
    assert this.heard() == WORDS
    assert asyncio.get_running_loop().time() <= FIRST_S + SPOKEN_S + 1.0


@pytest.mark.parametrize("ahead_s", [0.0, 1.5, 10.0])
@pytest.mark.parametrize("buffer_s", [0.0, 0.5, 1.5, 2.5])
@pytest.mark.parametrize("network_s", [0.0, 0.05])
async def test_b56_a_far_end_with_a_buffer_of_its_own_has_played_all(network_s: float, buffer_s: float, ahead_s: float) -> None:
    """The call ends when the last mark is back, not when the last sound was sent."""
    peer = TwilioPeer(network_s=network_s, buffer_s=buffer_s)
    this = call(HANG_UP, line=TwilioLine(peer, ahead_s=ahead_s))
    over = await hang_up(this)
    assert peer.seconds(1, before=over) == pytest.approx(SPOKEN_S, abs=0.02)
    assert peer.heard()[-1][2] <= over + 1e-6
    assert over <= FIRST_S + buffer_s + 2 * network_s + SPOKEN_S + 1.0
    assert this.said() == WORDS
    assert peer.faults == []


@pytest.mark.parametrize("patience_s", [1.0, 3.0, 10.0])
async def test_b56_marks_that_never_come_back_hold_the_call_no_longer_than_the_cap(patience_s: float) -> None:
    """The cap is the clock's patience; what was sent has been played by then."""
    peer = TwilioPeer(returns_marks=False)
    this = call(HANG_UP, line=TwilioLine(peer, patience_s=patience_s))
    over = await hang_up(this)
    assert peer.seconds(1, before=over) == pytest.approx(SPOKEN_S, abs=0.02)
    assert over <= FIRST_S + SPOKEN_S + patience_s + 1.0
    assert this.said() == WORDS


@pytest.mark.parametrize("after_s", [0.1, 0.35, 1.03, 2.0])
@pytest.mark.parametrize("phone", [False, True])
async def test_b56_a_goodbye_that_is_interrupted_ends_the_call(after_s: float, phone: bool) -> None:
    """An interrupt while the end waits for the goodbye: silence at once, the call ends within a second, what was heard is kept."""
    peer = TwilioPeer()
    this = call(HANG_UP, line=TwilioLine(peer, ahead_s=1.5) if phone else None)
    asyncio.get_running_loop().call_later(after_s, lambda: this.session.interrupt("no, wait"))
    over = await hang_up(this)
    assert over <= after_s + 1.0
    heard_s = peer.seconds(1) if phone else 0.1 * len(this.heard())
    assert heard_s <= max(after_s - FIRST_S, 0.0) + 0.101
    assert abs(len(this.said()) - heard_s / 0.1) <= 1
    assert this.said() == WORDS[: len(this.said())]


@pytest.mark.parametrize("tool", ["frames", "by hand"])
async def test_b56_a_voice_that_never_answers_ends_within_the_cap(tool: str) -> None:
    """The session's own deadline ends the call, and names the node that kept it waiting."""
    this = call(HANG_UP, tool=TOOLS[tool](), voice=Voice(Latency(1e6, 0.0)), session=SessionOptions(end_timeout_s=4.0))
    with pytest.raises(ExceptionGroup) as caught:
        await hang_up(this)
    assert asyncio.get_running_loop().time() <= 4.0 + 1.0
    assert [str(error) for error in caught.value.exceptions] == [
        "Voice: did not finish within 4 s of the end: still at work on EndFrame in its control lane"
    ]
    assert this.heard() == []
