"""B17: an interruption around a tool call leaves nothing "in progress", and loses no result that must be done once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from voiceflow import Message, ToolCall
from voiceflow.processors.tool import Effect, tool
from voiceflow.processors.tools import Tools

from .rig import Call, history_fault

LOOKUP = ToolCall("c1", "lookup_order", '{"number": 7}')
QUESTION = "where is my order"
ANNOUNCEMENT = "One moment, I will look that up."


def results(messages: Sequence[Message]) -> list[str]:
    return [message.text for message in messages if message.role == "tool"]


class Desk:
    """A tool of five seconds, and what became of it."""

    def __init__(self, effect: Effect, *, after_speech: bool | None = None) -> None:
        self.log: list[str] = []

        @tool(effect=effect, after_speech=after_speech)
        async def lookup_order(number: int) -> str:
            self.log.append("begun")
            try:
                await asyncio.sleep(5)
            except asyncio.CancelledError:
                self.log.append("cancelled")
                raise
            self.log.append("done")
            return f"order {number} comes today"

        self.tools = Tools([lookup_order])


def reply(*parts: str | ToolCall):  # type: ignore[no-untyped-def]  # as the rig's reply
    def give(messages: tuple[Message, ...]) -> str | tuple[str | ToolCall, ...]:
        return "It comes today." if messages[-1].role == "tool" else parts

    return give


@pytest.mark.parametrize("at_s", [0.0, 0.001, 0.005, 0.05, 0.3, 1.0, 3.0])
@pytest.mark.parametrize("parts", [(ANNOUNCEMENT, LOOKUP), (LOOKUP,)], ids=["announced", "silent"])
async def test_a_call_that_may_be_cancelled_ends_with_its_reply(parts: tuple[str | ToolCall, ...], at_s: float) -> None:
    """Within 100 ms nothing is pending, the history is valid, does not say that it still runs, and the next turn is answered."""
    desk = Desk("pure")
    async with Call(reply(*parts), turns=None, behind=[desk.tools]) as call:
        call.asks(QUESTION)
        await asyncio.sleep(at_s)
        call.session.interrupt("the caller speaks")
        await asyncio.sleep(0.1)
        assert desk.tools.calls.entries == []
        assert call.context.conversation.open_calls == ()
        call.asks("ping")
        await asyncio.sleep(1.5)
        assert not history_fault(call.model.requests[-1])
        assert not any("running" in text for text in results(call.model.requests[-1]))
        assert call.heard()[-4:] == ["pong", "it", "is", "indeed."]
    assert desk.log in ([], ["begun", "cancelled"])


@pytest.mark.parametrize("at_s", [0.3, 1.0, 4.9])
async def test_a_call_that_must_be_done_once_goes_on_and_its_result_is_kept(at_s: float) -> None:
    """It is not cancelled; the next request says that it runs, and the result takes that place, exactly once."""
    desk = Desk("once", after_speech=False)
    async with Call(reply(ANNOUNCEMENT, LOOKUP), turns=None, behind=[desk.tools]) as call:
        call.asks(QUESTION)
        await asyncio.sleep(at_s)
        call.session.interrupt("the caller speaks")
        call.asks("ping")
        await asyncio.sleep(6.0)
        assert desk.log == ["begun", "done"]
        assert results(call.context.conversation.messages) == ["order 7 comes today"]
        assert call.heard()[-4:] == ["pong", "it", "is", "indeed."]
        call.asks("and now")
        await asyncio.sleep(1.0)
        assert results(call.model.requests[-1]) == ["order 7 comes today"]


async def test_without_an_interruption_the_answer_follows_the_result() -> None:
    """The control run: announced, looked up, answered, once each."""
    desk = Desk("idempotent")
    async with Call(reply(ANNOUNCEMENT, LOOKUP), turns=None, behind=[desk.tools]) as call:
        call.asks(QUESTION)
        await asyncio.sleep(8.0)
        assert desk.log == ["begun", "done"]
        assert len(call.model.requests) == 2
        assert call.heard() == [*ANNOUNCEMENT.split(), *["It", "comes", "today."]]
        roles = [message.role for message in call.context.conversation.messages]
        assert roles == ["user", "assistant", "tool", "assistant"]


async def test_the_end_of_the_call_waits_for_what_must_be_done_once() -> None:
    """A caller who hangs up does not undo their booking halfway."""
    desk = Desk("once", after_speech=False)
    async with Call(reply(LOOKUP), turns=None, behind=[desk.tools]) as call:
        call.asks(QUESTION)
        await asyncio.sleep(0.5)
    assert desk.log == ["begun", "done"]
    assert results(call.context.conversation.messages) == ["order 7 comes today"]
