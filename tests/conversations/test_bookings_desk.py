"""A desk that looks up and books, interrupted at every point: booked at most once, told exactly once, the history always valid."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from voiceflow import Message, Session, SessionOptions, ToolCall, TurnEnded
from voiceflow.processors.context import Context
from voiceflow.processors.text import Sentences
from voiceflow.processors.tool import tool
from voiceflow.processors.tools import Calls, Tools
from voiceflow.testing import Latency, Probe, RecordingSink, ScriptedTTS, interrupt_everywhere

from .rig import PONG, StrictLLM, history_fault

PING_AT = 4.0
END = 5.5


def reply(messages: tuple[Message, ...]) -> str | tuple[str | ToolCall, ...]:
    if messages[-1].role != "tool":
        return (ToolCall("a", "look_up"), ToolCall("m", "menu"))
    if any(call.name == "book" for call in next(m for m in reversed(messages) if m.calls).calls):
        return "Your table is booked."
    return ("I book it now.", ToolCall("b", "book", '{"people": 4}'))


def desk(options: SessionOptions) -> Callable[[Probe], Coroutine[Any, Any, None]]:
    """A request that takes three replies and three calls; then "ping", which must be answered."""

    async def scenario(probe: Probe) -> None:
        bookings: list[int] = []

        @tool()
        async def look_up() -> str:
            await asyncio.sleep(0.05)
            return "free"

        @tool(filler="One moment.", filler_after_ms=100)
        async def menu() -> str:
            await asyncio.sleep(0.4)
            return "fish"

        @tool(effect="once")
        async def book(people: int) -> str:
            bookings.append(people)
            await asyncio.sleep(0.3)
            return "done"

        tools, context, sink = Tools([look_up, menu, book]), Context(), RecordingSink()
        model = StrictLLM(reply, Latency(0.05, 0.005))
        pipeline = context >> model >> tools >> Sentences() >> ScriptedTTS() >> sink
        session = Session(pipeline, inputs=[TurnEnded], options=options)
        probe.watch(session, sink)
        async with session:
            await session.send(TurnEnded(text="a table for four please"))
            await asyncio.sleep(PING_AT)
            await session.send(TurnEnded(text="ping"))
            await asyncio.sleep(END - PING_AT)
            probe.finish()
        messages = context.conversation.messages
        made = {call.id for message in messages for call in message.calls if call.name == "book"}
        told = [message.text for message in messages if message.call_id in made]
        if len(bookings) > 1 or told != ["done"] * len(bookings):
            probe.problems.append(f"booked {bookings}, told {told}")
        if fault := history_fault(messages):
            probe.problems.append(fault)
        if model.refused:
            probe.problems.append(f"refused: {model.refused}")
        interrupted_at = probe.interruption.at if probe.interruption else 0.0
        if interrupted_at < PING_AT and sink.words()[-len(PONG.split()) :] != PONG.split():
            probe.problems.append(f"the next question was not answered: {sink.words()}")
        if probe.interruption is None and (len(bookings), len(model.requests)) != (1, 4):
            probe.problems.append(f"{len(bookings)} bookings and {len(model.requests)} requests without an interrupt")

    return scenario


@pytest.mark.parametrize("bound", [1, 256])
def test_interrupted_at_every_await_it_books_at_most_once_and_says_so_once(bound: int) -> None:
    """Whatever the inboxes hold: one booking at most, its result once, a valid history, the next question answered."""
    found = interrupt_everywhere(desk(SessionOptions(inbox_frames=bound, cancel_timeout_s=0.3)))
    found.check()
    assert found.tried == found.points > 150


def test_interrupted_at_every_delivery_it_books_at_most_once() -> None:
    """The interrupt may come from within a node, in the middle of a chain."""
    interrupt_everywhere(desk(SessionOptions(cancel_timeout_s=0.3)), at_deliveries=True).check()


def test_a_desk_whose_calls_begin_at_once_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The proof can fail: a call that must be done once, cancelled like any other, is booked and never told."""
    real = Calls.interrupted

    def careless(calls: Calls) -> list[Any]:
        real(calls)
        gone, calls.entries = calls.entries, []
        return gone

    monkeypatch.setattr(Calls, "interrupted", careless)
    found = interrupt_everywhere(desk(SessionOptions(cancel_timeout_s=0.3)), stop_after_problems=1)
    with pytest.raises(AssertionError):
        found.check()
