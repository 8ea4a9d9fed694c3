"""The calls of one process: how many, how each ends and what it leaves in the log, and how all of them end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable

import pytest

from voiceflow import Pipeline, Processor, Session, TranscriptFrame
from voiceflow.testing import Latency, ScriptedTTS
from voiceflow.transports.calls import CallRecord, Calls
from voiceflow.transports.memory import MemoryIn, MemoryOut

from .line_rig import Ears, Parrot, parrot


class Caller:
    """The two ends of a call in memory, and the call."""

    def __init__(self, calls: Calls, who: str = "somebody") -> None:
        self.source, self.sink = MemoryIn(), MemoryOut()
        self.gone: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.call = asyncio.create_task(calls.answer(self.source, self.sink, who, gone=self.gone))

    async def says(self, text: str) -> None:
        await self.source.send(TranscriptFrame(text))

    @property
    def heard_s(self) -> float:
        return sum(len(block.pcm) for block in self.sink.blocks) / 48000


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.01)


async def test_a_call_that_the_agent_ends_is_answered_to_its_last_word() -> None:
    """An EndFrame lets all be heard; the record says who ended it, and how long it was."""
    calls = Calls(parrot, limit=1)
    caller = Caller(calls)
    await caller.says("bye")
    record = await caller.call
    assert (record.outcome, record.who) == ("ended", "somebody")
    assert caller.heard_s == pytest.approx(0.1, abs=0.02)
    assert record.seconds == pytest.approx(0.1, abs=0.05)
    assert calls.running == 0


async def test_a_far_end_that_is_gone_ends_its_call_at_once() -> None:
    """With ``gone`` nothing more is said, and its result is why the call ended."""
    caller = Caller(Calls(parrot, limit=1))
    await caller.says("one two three four five six seven eight nine ten")
    await until(lambda: caller.heard_s > 0.2)
    caller.gone.set_result("the line went dead")
    record = await caller.call
    assert (record.outcome, record.why) == ("hung up", "the line went dead")
    assert caller.heard_s < 0.3


async def test_a_far_end_that_is_gone_before_the_call_begins_has_no_call() -> None:
    """A call whose far end is gone already ends before anything is said."""
    calls = Calls(parrot, limit=1)
    caller = Caller(calls)
    caller.gone.set_result("too late")
    assert (await caller.call).outcome == "hung up"
    assert caller.sink.blocks == []


async def test_more_calls_than_the_limit_are_refused_and_the_others_go_on() -> None:
    """The one too many is told so, in its record, and one that comes when a line is free again is answered."""
    calls = Calls(parrot, limit=2)
    first, second = Caller(calls), Caller(calls)
    await until(lambda: len(calls.sessions) == 2)
    assert "busy" in calls.refusal()
    third = await Caller(calls).call
    assert third.outcome == "refused"
    assert "all 2 lines are busy" in third.why
    await first.says("bye")
    assert (await first.call).outcome == "ended"
    assert calls.refusal() == ""
    await second.says("bye")
    assert (await second.call).outcome == "ended"
    assert (calls.answered, calls.refused, calls.failed) == (2, 1, 0)


async def test_who_is_being_connected_has_a_line() -> None:
    """For everybody but that caller it is taken, until they are under way or will not come."""
    calls = Calls(parrot, limit=2)
    calls.coming.update(("one", "two"))
    assert (await Caller(calls).call).why == calls.refusal() == "all 2 lines are busy; try again later"
    assert calls.refusal("one") == ""
    calls.coming.remove("one")
    caller = Caller(calls)
    await until(lambda: len(calls.sessions) == 1)
    assert "busy" in calls.refusal()
    assert calls.refusal("two") == ""
    await caller.says("bye")
    await caller.call
    calls.coming.remove("two")
    assert calls.refusal() == ""
    assert calls.refusal("two") == ""


async def test_a_call_is_refused_for_the_reason_that_is_given() -> None:
    """``admits`` is asked before each call."""
    reasons = ["", "the machine is too busy"]
    calls = Calls(parrot, limit=5, admits=lambda: reasons.pop(0))
    caller = Caller(calls)
    await caller.says("bye")
    assert (await caller.call).outcome == "ended"
    assert (await Caller(calls).call).why == "the machine is too busy"


def broken(source: Processor, sink: Processor) -> Pipeline:
    raise RuntimeError("no model today")


def unlinked(source: Processor, sink: Processor) -> Pipeline:
    return Pipeline(source) >> Parrot()


class DoesNotStart(Processor):
    async def start(self) -> None:
        raise RuntimeError("no model today")

    async def process(self, frame: TranscriptFrame) -> None:
        """Nothing."""


def not_starting(source: Processor, sink: Processor) -> Pipeline:
    return source >> [Parrotted(), DoesNotStart()] >> sink


class Parrotted(ScriptedTTS):
    """A voice that nobody asks for anything."""


@pytest.mark.parametrize(("agent", "says"), [(broken, "no model today"), (unlinked, "nobody feeds Parrot"), (not_starting, "")])
async def test_what_fails_in_a_call_stays_in_it(agent: Callable[[Processor, Processor], Pipeline], says: str) -> None:
    """An agent that raises, a graph that cannot be and a node that does not start end their call alone; nothing is raised."""
    agents = iter([parrot, agent, parrot])

    def next_agent(source: Processor, sink: Processor) -> Pipeline:
        return next(agents)(source, sink)

    calls = Calls(next_agent, limit=5)
    good = Caller(calls)
    await until(lambda: len(calls.sessions) == 1)
    record = await Caller(calls).call
    assert record.outcome == "failed"
    assert says in record.why
    after = Caller(calls)
    for caller in (good, after):
        await caller.says("bye")
        assert (await caller.call).outcome == "ended"
    assert (calls.running, calls.failed) == (0, 1)


async def test_each_call_leaves_one_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """Who, how long and why: once for each call, however it ended."""
    caplog.set_level(logging.INFO)
    calls = Calls(parrot, limit=3)
    ended, gone, stopped = Caller(calls, "ended"), Caller(calls, "gone"), Caller(calls, "stopped")
    await until(lambda: len(calls.sessions) == 3)
    await Caller(calls, "refused").call
    await ended.says("bye")
    gone.gone.set_result("hung up by a test")
    await asyncio.wait([ended.call, gone.call])
    stopped.call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stopped.call
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 4
    for who, why in (("refused", "busy"), ("ended", "agent"), ("gone", "hung up by a test"), ("stopped", "cancelled")):
        assert sum(f"call of {who}:" in line and why in line for line in lines) == 1


async def test_a_shutdown_waits_for_the_calls_under_way_and_takes_no_other() -> None:
    """``drain`` returns when the last call has ended by itself."""
    calls = Calls(parrot, limit=5)
    caller = Caller(calls)
    await caller.says("one two three bye")
    await until(lambda: caller.heard_s > 0.1)
    drained = asyncio.create_task(calls.drain(10))
    await asyncio.sleep(1)
    assert "shut down" in (await Caller(calls).call).why
    assert not drained.done()
    await caller.says("bye")
    await drained
    assert (await caller.call).outcome == "ended"


async def test_a_shutdown_that_has_waited_long_enough_ends_the_calls() -> None:
    """After the time there is, what is being said is said, and then the calls are cancelled."""
    calls = Calls(parrot, limit=5)
    short, long = Caller(calls), Caller(calls)
    await until(lambda: len(calls.sessions) == 2)
    drained = asyncio.create_task(calls.drain(5, say_s=2))
    await asyncio.sleep(4.5)
    await short.says(" ".join(["word"] * 20))
    await long.says(" ".join(["word"] * 60))
    await drained
    records: list[CallRecord] = [await short.call, await long.call]
    assert [record.outcome for record in records] == ["stopped", "stopped"]
    assert short.heard_s == pytest.approx(2.0, abs=0.05)
    assert long.heard_s == pytest.approx(2.5, abs=0.1)


async def test_a_shutdown_is_over_when_the_last_call_has_said_what_it_was_saying() -> None:
    """Calls that are ended need not use the time they have."""
    calls = Calls(parrot, limit=5)
    caller = Caller(calls)
    await until(lambda: len(calls.sessions) == 1)
    await caller.says(" ".join(["word"] * 20))
    async with asyncio.timeout(2.5):
        await calls.drain(1, say_s=30)
    assert (await caller.call).outcome == "stopped"
    assert caller.heard_s == pytest.approx(2.0, abs=0.05)


async def test_a_shutdown_without_calls_is_over_at_once() -> None:
    """Nothing is waited for."""
    calls = Calls(parrot, limit=1)
    async with asyncio.timeout(0.001):
        await calls.drain(60)
    assert calls.refusal()


async def test_what_watches_a_call_sees_it_run_and_cannot_end_it(caplog: pytest.LogCaptureFixture) -> None:
    """``watch`` is shown the running session, its pipeline and its end; where it raises, the call goes on."""
    seen: list[tuple[str, bool]] = []

    def watch(session: Session, pipeline: Pipeline, sink: Processor) -> None:
        seen.append((session.state, sink in pipeline.nodes))
        raise RuntimeError("broken watch")

    caller = Caller(Calls(parrot, limit=1, watch=watch))
    await caller.says("bye")
    assert (await caller.call).outcome == "ended"
    assert seen == [("running", True)]
    assert "the call goes on" in caplog.text


class Deaf(Processor):
    """Will not be cancelled for a while."""

    async def run(self) -> AsyncIterator[TranscriptFrame]:
        yield TranscriptFrame("one two three")
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            await asyncio.sleep(0.2)


async def test_cancelling_an_answer_waits_for_the_end_of_its_session() -> None:
    """The caller of ``answer`` is told of the cancellation when nothing of the call is left."""

    def agent(source: Processor, sink: Processor) -> Pipeline:
        return [source, Deaf()] >> (Ears() >> Parrot()) >> ScriptedTTS(Latency()) >> sink

    calls = Calls(agent, limit=1)
    caller = Caller(calls)
    await until(lambda: len(calls.sessions) == 1)
    session = calls.sessions[0]
    await session.started()
    caller.call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller.call
    assert session.state == "ended"
    assert calls.running == 0


def test_a_limit_that_lets_nobody_in_is_an_error() -> None:
    """The error names the value."""
    with pytest.raises(ValueError, match="limit is 0"):
        Calls(parrot, limit=0)
