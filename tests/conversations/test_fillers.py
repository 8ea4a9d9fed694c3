"""A slow tool: the caller is told that it takes a while, and how far it is, and never two things at once."""

from __future__ import annotations

import asyncio

import pytest

from voiceflow import Message, Processor, ToolCall, ToolProgress
from voiceflow.processors.tool import Tool, ToolRun, tool
from voiceflow.processors.tools import Tools

from .rig import Call

FILLER = "Let me look that up."
ANSWER = "There are two rooms."


def search(seconds: float, *, filler_after_ms: float = 600.0, blocking: bool = False) -> Tool:
    @tool(filler=FILLER, filler_after_ms=filler_after_ms)
    async def find(run: ToolRun) -> str:
        """Find rooms."""
        for share in (1, 2):
            await asyncio.sleep(seconds / 2)
            run.progress(f"{share} of 2")
        return "two rooms"

    return find


def reply(before: str = ""):  # type: ignore[no-untyped-def]  # as the rig's reply
    call = ToolCall("c", "find")
    return lambda messages: ANSWER if messages[-1].role == "tool" else ((before, call) if before else (call,))


async def test_a_slow_tool_is_bridged_and_its_answer_follows_the_filler() -> None:
    """600 ms of silence, the filler, then the answer; each word once, and both are in the context."""
    async with Call(reply(), turns=None, behind=[Tools([search(2.0)])]) as call:
        call.asks("any rooms")
        await asyncio.sleep(5.0)
        assert call.heard() == [*FILLER.split(), *ANSWER.split()]
        assert call.ear.runs()[0].at == pytest.approx(0.65, abs=0.05)
        assert [m.role for m in call.context.conversation.messages] == ["user", "assistant", "tool", "assistant"]
        said = " ".join(m.text for m in call.context.conversation.messages if m.role == "assistant").split()
        assert said == [*FILLER.split(), *ANSWER.split()]


async def test_a_fast_tool_needs_no_filler() -> None:
    """What comes before the time is up is the answer."""
    async with Call(reply(), turns=None, behind=[Tools([search(0.4)])]) as call:
        call.asks("any rooms")
        await asyncio.sleep(3.0)
        assert call.heard() == ANSWER.split()


async def test_the_filler_waits_until_the_agent_has_finished_what_it_says() -> None:
    """The silence counts, not the time: who is being spoken to needs no filler yet."""
    async with Call(reply("I will have a look at all of our rooms for you."), turns=None, behind=[Tools([search(3.0)])]) as call:
        call.asks("any rooms")
        await asyncio.sleep(6.0)
        words = call.heard()
        assert words == [
            *["I", "will", "have", "a", "look", "at", "all", "of", "our", "rooms", "for", "you."],
            *FILLER.split(),
            *ANSWER.split(),
        ]
        runs = call.ear.runs()
        assert runs[12].at - runs[11].until >= 0.6


async def test_an_answer_that_comes_while_the_filler_is_said_follows_it() -> None:
    """No overlap and nothing cut off."""
    async with Call(reply(), turns=None, behind=[Tools([search(0.8)])]) as call:
        call.asks("any rooms")
        await asyncio.sleep(4.0)
        assert call.heard() == [*FILLER.split(), *ANSWER.split()]


async def test_an_interrupted_tool_has_no_filler_left() -> None:
    """Nor is the one that is being said heard on."""
    for at_s in (0.3, 0.59, 0.605, 0.7):
        async with Call(reply(), turns=None, behind=[Tools([search(3.0)])]) as call:
            call.asks("any rooms")
            await asyncio.sleep(at_s)
            call.session.interrupt("never mind")
            said = call.heard()
            await asyncio.sleep(5.0)
            assert call.heard() == said


class Watcher(Processor):
    """Keeps what it is told of progress."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str]] = []

    def process(self, frame: ToolProgress) -> None:
        """Keep it."""
        self.told.append((frame.call.id, frame.text))


async def test_progress_is_reported() -> None:
    """Upstream, in order, with its call."""
    watcher = Watcher()
    async with Call(reply(), turns=None, head=[watcher], behind=[Tools([search(0.4)])]) as call:
        call.asks("any rooms")
        await asyncio.sleep(2.0)
    assert watcher.told == [("c", "1 of 2"), ("c", "2 of 2")]


async def test_a_plain_function_runs_in_a_thread_of_the_session() -> None:
    """It may block: nothing waits for it but its own result."""

    @tool()
    def find() -> list[str]:
        """Find rooms."""
        return ["red", "blue"]

    async with Call(reply(), turns=None, behind=[Tools([find])]) as call:
        call.asks("any rooms")
        await asyncio.sleep(2.0)
        assert [m.text for m in call.context.conversation.messages if isinstance(m, Message) and m.role == "tool"] == ['["red","blue"]']
        assert call.heard() == ANSWER.split()
