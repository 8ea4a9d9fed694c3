"""B19: what a reply would have done is not done when the reply is thrown away."""

from __future__ import annotations

import asyncio

import pytest

from voiceflow import Message, ToolCall
from voiceflow.processors.tool import Tool, ToolRun, tool
from voiceflow.processors.tools import Tools

from .rig import Call

HANG_UP = ToolCall("c1", "hang_up")


def reply(messages: tuple[Message, ...]) -> tuple[str | ToolCall, ...]:
    if messages[-1].role == "tool":
        return ()
    return ("Goodbye!", HANG_UP) if "thanks" in messages[-1].text and "question" not in messages[-1].text else ("Of course, ask me.",)


def hang_up_tool(log: list[float]) -> Tool:
    @tool(effect="once")
    async def hang_up(run: ToolRun) -> str:
        log.append(run.session.time())
        run.hang_up()
        return "hung up"

    return hang_up


@pytest.mark.parametrize("at_s", [0.0, 0.002, 0.004, 0.01, 0.05, 0.1, 0.14])
async def test_a_hang_up_of_an_interrupted_reply_does_not_run(at_s: float) -> None:
    """In the middle of the arguments, before the handler, with the goodbye queued or half heard: the call is up and goes on."""
    log: list[float] = []
    async with Call(reply, turns=None, behind=[Tools([hang_up_tool(log)])]) as call:
        call.asks("alright then thanks")
        await asyncio.sleep(at_s)
        call.session.interrupt("but one more question")
        call.asks("thanks but one more question")
        await asyncio.sleep(5.0)
        assert log == []
        assert call.session.state == "running"
        assert call.heard()[-4:] == ["Of", "course,", "ask", "me."]


async def test_without_an_interruption_it_runs_once_when_the_goodbye_was_heard() -> None:
    """The control run."""
    log: list[float] = []
    async with Call(reply, turns=None, behind=[Tools([hang_up_tool(log)])]) as call:
        call.asks("alright then thanks")
        await asyncio.sleep(5.0)
        assert call.session.state == "ended"
    assert call.heard() == ["Goodbye!"]
    assert len(log) == 1
    assert log[0] >= call.ear.runs()[-1].until - 1e-6
