"""The end of a call lets what is in hand be finished: a tool that runs, and the answer that comes of it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from voiceflow import Message, ToolCall
from voiceflow.processors.tool import Effect, ToolRun, tool
from voiceflow.processors.tools import Tools
from voiceflow.testing import Latency, run_virtual

from .rig import Call

ROUNDS = 3


def reply(messages: tuple[Message, ...]) -> Any:
    """So many calls one behind the other, and then the answer, which is longer than any speaker queues."""
    if sum(message.role == "tool" for message in messages) < ROUNDS:
        return (ToolCall(f"c{len(messages)}", "look"),)
    return "It is done: one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen."


@pytest.mark.parametrize("effect", ["pure", "idempotent", "once"])
@pytest.mark.parametrize("after_s", [0.0, 0.35, 0.5, 0.9, 1.2, 2.0])
def test_a_call_that_ends_in_a_round_of_tools_is_finished(effect: Effect, after_s: float) -> None:
    """Whenever the end comes: each tool runs to its end, the answer is heard to its last word, and the context holds all of it."""
    ran: list[float] = []

    @tool(effect=effect)
    async def look() -> str:
        """Look it up."""
        await asyncio.sleep(0.4)
        ran.append(asyncio.get_running_loop().time())
        return "found"

    async def main() -> None:
        call = Call(reply, behind=[Tools([look])], thinks=Latency(0.3, 0.005))
        async with call:
            call.asks("look it up")
            await asyncio.sleep(after_s)
        assert len(ran) == ROUNDS
        assert [message.role for message in call.messages] == ["user", *["assistant", "tool"] * ROUNDS, "assistant"]
        assert call.heard()[-1] == "fifteen."
        assert call.messages[-1].text.endswith("fifteen.")
        assert call.session.state == "ended"

    run_virtual(main())


def test_a_tool_that_hangs_up_has_the_last_word() -> None:
    """The goodbye before it is heard, the result is kept, and the model is not asked for another."""

    @tool(effect="once")
    async def hang_up(run: ToolRun) -> str:
        """Hang up."""
        run.hang_up()
        return "the call is over"

    async def main() -> None:
        call = Call(lambda messages: ("Goodbye then.", ToolCall("c1", "hang_up")), behind=[Tools([hang_up])])
        async with call:
            call.asks("that is all")
            await asyncio.sleep(5.0)
            assert call.session.state == "ended"
        assert call.heard() == ["Goodbye", "then."]
        assert len(call.model.requests) == 1
        assert call.messages[-1].text == "the call is over"

    run_virtual(main())
