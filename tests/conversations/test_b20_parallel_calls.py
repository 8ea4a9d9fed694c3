"""B20: however many calls a reply makes, one answer follows, told of all their results."""

from __future__ import annotations

import asyncio

import pytest

from voiceflow import Message, ToolCall
from voiceflow.processors.tool import tool
from voiceflow.processors.tools import Tools

from .rig import Call

ANSWER = "Here is what I found."


@tool()
async def fast(city: str = "Rome") -> str:
    """Quick."""
    await asyncio.sleep(0.005)
    return f"sunny in {city}"


@tool()
async def slow() -> dict[str, int]:
    """Not quick."""
    await asyncio.sleep(0.8)
    return {"rooms": 2}


@tool()
async def raises() -> str:
    """Broken."""
    raise LookupError("no such table")


@tool()
def nothing() -> None:
    """Gives nothing."""


@tool(effect="idempotent")
async def late() -> str:
    """Begins when the reply is complete."""
    return "late"


@tool(timeout_s=0.5)
async def hangs() -> str:
    """Never."""
    await asyncio.Event().wait()
    return ""


def reply_with(*calls: ToolCall):  # type: ignore[no-untyped-def]  # as the rig's reply
    return lambda messages: ANSWER if messages[-1].role == "tool" else ("Let me see.", *calls)


CASES = {
    "fast and slow": ([ToolCall("a", "fast"), ToolCall("b", "slow")], ["sunny in Rome", '{"rooms":2}']),
    "slow and fast": ([ToolCall("b", "slow"), ToolCall("a", "fast")], ['{"rooms":2}', "sunny in Rome"]),
    "one raises": (
        [ToolCall("a", "fast"), ToolCall("b", "raises"), ToolCall("c", "slow")],
        ["sunny in Rome", '{"error":"raises failed: LookupError: no such table"}', '{"rooms":2}'],
    ),
    "the same twice": (
        [ToolCall("a", "fast", '{"city": "Oslo"}'), ToolCall("b", "fast", '{"city": "Bern"}')],
        ["sunny in Oslo", "sunny in Bern"],
    ),
    "a result of None": ([ToolCall("a", "nothing")], ["null"]),
    "an unknown function": (
        [ToolCall("a", "book_flight"), ToolCall("b", "fast")],
        ['{"error":"there is no tool \'book_flight\'; there are fast, hangs, late, nothing, raises, slow"}', "sunny in Rome"],
    ),
    "arguments that do not fit": (
        [ToolCall("a", "fast", '{"town": "Bern"}')],
        ['{"error":"the arguments of fast do not fit: Object contains unknown field `town`"}'],
    ),
    "arguments that are no JSON": (
        [ToolCall("a", "fast", '{"city": "Be')],
        ['{"error":"the arguments of fast do not fit: Input data was truncated"}'],
    ),
    "one that begins later": ([ToolCall("a", "fast"), ToolCall("b", "late")], ["sunny in Rome", "late"]),
    "one that hangs": ([ToolCall("a", "hangs"), ToolCall("b", "fast")], ['{"error":"no result within 0.5 s"}', "sunny in Rome"]),
}


@pytest.mark.parametrize("parallel", [True, False], ids=["side by side", "one by one"])
@pytest.mark.parametrize("case", CASES)
async def test_one_answer_follows_all_results(case: str, parallel: bool) -> None:
    """One more request, after the last result, with each result behind its call; one spoken answer."""
    calls, wanted = CASES[case]
    tools = Tools([fast, slow, raises, nothing, late, hangs], parallel=parallel)
    async with Call(reply_with(*calls), turns=None, behind=[tools]) as call:
        call.asks("what is there")
        await asyncio.sleep(4.0)
        assert len(call.model.requests) == 2
        results = {message.call_id: message.text for message in call.model.requests[1] if message.role == "tool"}
        assert [results[made.id] for made in calls] == wanted
        assert call.heard() == ["Let", "me", "see.", *ANSWER.split()]


async def test_the_same_ids_in_the_next_reply_are_other_calls() -> None:
    """Some models number each reply's calls anew."""
    calls = [ToolCall("call_0", "fast")]
    async with Call(reply_with(*calls), turns=None, behind=[Tools([fast])]) as call:
        for turn in range(1, 4):
            call.asks("and now")
            await asyncio.sleep(3.0)
            assert len(call.model.requests) == 2 * turn
        assert [m.text for m in call.context.conversation.messages if m.role == "tool"] == ["sunny in Rome"] * 3
        assert isinstance(call.context.conversation.messages[0], Message)
