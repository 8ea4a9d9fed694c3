"""The interrupt is one synchronous sweep, sinks first; it drops the agent's, spares the caller's, and says what it did."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Awaitable

import pytest

from voiceflow import (
    Heard,
    InterruptFrame,
    Interruption,
    Pipeline,
    Processor,
    SayFrame,
    SentenceFrame,
    Session,
    SessionError,
    SessionOptions,
    StartFrame,
    TranscriptFrame,
)
from voiceflow.testing import Collector, Latency, RecordingSink, ScriptedTTS, no_leaks


class Listener(Processor):
    """Writes down when it is told."""

    def __init__(self, name: str, told: list[str]) -> None:
        self.name = name
        self.told = told

    def process(self, frame: SayFrame) -> SayFrame:
        return frame

    def on_interrupt(self, interrupt: Interruption) -> Awaitable[None] | None:
        self.told.append(self.name)
        return None


class Slow(Processor):
    async def process(self, frame: SayFrame | TranscriptFrame) -> AsyncIterator[SayFrame | TranscriptFrame]:
        await asyncio.sleep(1.0)
        yield frame


def collected(collector: Collector) -> list[str]:
    return [frame.text for frame in collector.frames if isinstance(frame, SayFrame | TranscriptFrame)]


async def test_sinks_are_told_first_and_all_before_it_returns() -> None:
    """Against the arrows, branches included; no turn of the loop passes."""
    told: list[str] = []
    a, b, c, d, e = (Listener(name, told) for name in "abcde")
    loop = asyncio.get_running_loop()
    async with Session(a >> [b >> c, d] >> e >> Collector(), inputs=[SayFrame]) as session:
        turns: list[None] = []
        loop.call_soon(turns.append, None)
        session.interrupt()
        assert turns == []
        places = {name: told.index(name) for name in told}
        assert len(places) == 5
        assert all(places[later] < places[earlier] for earlier, later in ("ab", "bc", "ce", "ad", "de"))


async def test_a_sink_is_silent_before_any_work_upstream_is_cancelled() -> None:
    """Silence waits for nobody's cleanup."""
    order: list[str] = []

    class Voice(Processor):
        async def process(self, frame: SayFrame) -> None:
            try:
                await asyncio.sleep(10)
            finally:
                order.append("work cancelled")

    class Speaker(Processor):
        def process(self, frame: StartFrame) -> None: ...

        def on_interrupt(self, interrupt: Interruption) -> None:
            order.append("silent")

    async with Session(Voice() >> Speaker(), inputs=[SayFrame]) as session:
        session.send_nowait(SayFrame(""))
        await asyncio.sleep(0.1)
        session.interrupt()
        assert order == ["silent"]
        await asyncio.sleep(0)
        assert order == ["silent", "work cancelled"]


async def test_it_drops_the_agents_lane_and_nothing_else() -> None:
    """In every inbox, in order, whether for the node or only passing by."""

    class Narrow(Processor):
        async def process(self, frame: SentenceFrame) -> SentenceFrame:
            await asyncio.sleep(1.0)
            return frame

    sink = Collector()
    async with Session(Narrow() >> Slow() >> sink, inputs=[SayFrame, SentenceFrame, TranscriptFrame]) as session:
        session.send_nowait(SentenceFrame("busy"))
        for number in range(3):
            session.send_nowait(SayFrame(f"passing {number}"))
            session.send_nowait(TranscriptFrame(f"caller {number}"))
        await asyncio.sleep(0.1)
        assert session.interrupt().dropped == 4
        assert all(state.frames == 0 for state in session.inboxes() if state.lane == "AGENT")
        session.send_nowait(SayFrame("after"))
    assert sorted(collected(sink)) == ["after", "caller 0", "caller 1", "caller 2"]


async def test_it_says_what_it_did() -> None:
    """Reason, number, time, what was heard, what was dropped, how long it took; the session keeps the record."""
    voice, sink = ScriptedTTS(Latency(0.05, 0.005)), RecordingSink()
    async with Session(voice >> sink, inputs=[SentenceFrame]) as session:
        session.send_nowait(SentenceFrame("one two three four five six seven eight nine ten", utterance=7))
        await asyncio.sleep(0.05 + 0.46)
        record = session.interrupt("barge-in")
        assert (record.reason, record.epoch, record.at) == ("barge-in", 1, session.time())
        assert record.heard == [Heard(7, "one two three four five", complete=False)]
        assert record.dropped >= 1
        assert 0 < record.sweep_s < 1
        assert record.acknowledged == {}
        assert session.interruptions == (record,)
        assert session.epoch == 1


async def test_before_anything_was_said_it_does_nothing_audible_and_loses_nothing() -> None:
    """Not for the caller's frames under way, not for what comes after."""
    sink = Collector()
    async with Session(Slow() >> sink, inputs=[SayFrame, TranscriptFrame]) as session:
        session.send_nowait(TranscriptFrame("caller"))
        await asyncio.sleep(0.1)
        record = session.interrupt()
        session.send_nowait(SayFrame("after"))
        assert (record.dropped, record.heard) == (0, [])
        await record.settled()
    assert sorted(collected(sink)) == ["after", "caller"]
    assert session.refused == 0


async def test_twice_is_as_good_as_once() -> None:
    """Each counts, the second finds nothing more to do; nothing piles up."""
    sink = Collector()
    async with Session(Slow() >> sink, inputs=[SayFrame, TranscriptFrame]) as session:
        session.send_nowait(SayFrame("gone"))
        await asyncio.sleep(0.1)
        first, second = session.interrupt("a"), session.interrupt("b")
        assert (first.dropped, second.dropped) == (1, 0)
        assert (first.epoch, second.epoch) == (1, 2)
        for _ in range(200):
            session.interrupt()
        session.send_nowait(SayFrame("after"))
    assert collected(sink) == ["after"]
    assert session.epoch == 202
    assert len(session.interruptions) == 64
    assert session.interruptions[-1].epoch == 202


async def test_an_interrupt_during_an_interrupt_is_the_same_one() -> None:
    """A node that interrupts in on_interrupt() gets the record of the one under way; every node is told once."""
    told: list[str] = []
    records: list[Interruption] = []

    class Again(Listener):
        def on_interrupt(self, interrupt: Interruption) -> None:
            super().on_interrupt(interrupt)
            records.append(self.session.interrupt("again"))

    a, b = Listener("a", told), Again("b", told)
    async with Session(a >> b >> Collector(), inputs=[SayFrame]) as session:
        record = session.interrupt("first")
    assert records == [record]
    assert records[0] is record
    assert told == ["b", "a"]
    assert session.epoch == 1


async def test_a_raise_in_on_interrupt_stops_nobody_from_being_told(caplog: pytest.LogCaptureFixture) -> None:
    """It is the node's failure, by name; the sweep goes on."""
    told: list[str] = []

    class Broken(Listener):
        def on_interrupt(self, interrupt: Interruption) -> None:
            raise ValueError("broken")

    a, b, c = Listener("a", told), Broken("b", told), Listener("c", told)
    async with Session(a >> b >> c >> Collector(), inputs=[SayFrame]) as session:
        session.interrupt()
    assert told == ["c", "a"]
    [record] = [r for r in caplog.records if r.levelno >= logging.ERROR]
    assert record.getMessage() == "b failed on InterruptFrame: ValueError: broken"


async def test_an_acknowledgement_of_an_instant_node_is_named_and_not_left_waiting(caplog: pytest.LogCaptureFixture) -> None:
    """There is no inbox that could be held back; the coroutine is closed, not forgotten."""

    class Instant(Processor):
        def process(self, frame: SayFrame) -> SayFrame:
            return frame

        def on_interrupt(self, interrupt: Interruption) -> Awaitable[None]:
            return asyncio.sleep(1)

    async with Session(Instant() >> Collector(), inputs=[SayFrame]) as session:
        assert session.interrupt().acknowledged == {}
    assert (
        "Instant: on_interrupt() gave an awaitable, but an instant node has no inbox to hold frames back; "
        "make process() `async def`, or acknowledge nothing"
    ) in caplog.text


async def test_what_is_sent_in_on_interrupt_belongs_to_the_present() -> None:
    """A node may answer an interrupt with a word at once."""
    sink = Collector()

    class Polite(Processor):
        def process(self, frame: SayFrame) -> SayFrame:
            return frame

        def on_interrupt(self, interrupt: Interruption) -> None:
            self.session.send_nowait(SayFrame("sorry"))

    async with Session(Polite() >> sink, inputs=[SayFrame]) as session:
        session.interrupt()
    assert collected(sink) == ["sorry"]


async def test_a_frame_with_the_reason_is_an_interrupt() -> None:
    """From a node, from run(), from the application; without a reason it says who asked."""

    class Vad(Processor):
        def process(self, frame: TranscriptFrame) -> InterruptFrame:
            return InterruptFrame(reason=frame.text)

        async def run(self) -> AsyncIterator[InterruptFrame]:
            await asyncio.sleep(1)
            yield InterruptFrame(reason="timer")

    async with Session(Pipeline(Vad()), inputs=[TranscriptFrame]) as session:
        session.send_nowait(TranscriptFrame("speech"))
        session.send_nowait(TranscriptFrame(""))
        await session.send(InterruptFrame(reason="button"))
        await asyncio.sleep(2)
        assert [i.reason for i in session.interruptions] == ["speech", "Vad asked for it", "button", "timer"]


async def test_from_another_thread_it_is_refused_with_the_cure() -> None:
    """The sweep is not safe there; the loop's own way in is named, and works."""
    caught: list[Exception] = []
    async with Session(Slow() >> Collector(), inputs=[SayFrame, TranscriptFrame]) as session:
        loop = asyncio.get_running_loop()

        def elsewhere() -> None:
            for act in (session.interrupt, session.end, session.cancel, lambda: session.send_nowait(SayFrame(""))):
                try:
                    act()
                except SessionError as error:
                    caught.append(error)
            loop.call_soon_threadsafe(session.interrupt, "from outside")

        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        await asyncio.sleep(0)
        assert [i.reason for i in session.interruptions] == ["from outside"]
    assert [str(error) for error in caught] == [
        f"{method}() was called from another thread; use loop.call_soon_threadsafe(session.{method}, ...)"
        for method in ("interrupt", "end", "cancel", "send")
    ]


async def test_there_is_nothing_to_interrupt_before_and_after() -> None:
    """A session that does not run says so."""
    session = Session(Slow() >> Collector(), inputs=[SayFrame, TranscriptFrame])
    with pytest.raises(SessionError, match="the session is new: there is nothing to interrupt"):
        session.interrupt()
    async with session:
        session.interrupt()
    with pytest.raises(SessionError, match="the session is ended: there is nothing to interrupt"):
        session.interrupt()


async def test_an_interrupt_while_it_ends_is_heeded() -> None:
    """What is being said to its end can still be cut."""
    sink = Collector()
    session = Session(Slow() >> sink, inputs=[SayFrame, TranscriptFrame])
    async with session:
        for number in range(5):
            session.send_nowait(SayFrame(str(number)))
        asyncio.get_running_loop().call_later(2.5, session.interrupt)
    assert collected(sink) == ["0", "1"]
    assert asyncio.get_running_loop().time() == pytest.approx(2.5)


async def test_an_interrupt_while_it_starts_makes_the_greeting_stale() -> None:
    """What a node yielded on StartFrame and is kept until all have started does not slip past the interrupt."""

    class Greeter(Processor):
        def process(self, frame: StartFrame) -> SayFrame:
            return SayFrame("hello")

    class Late(Processor):
        async def process(self, frame: StartFrame) -> None:
            await asyncio.sleep(1)

    for inline in (True, False):
        sink = Collector()
        voice = Listener("voice", []) if inline else Slow()
        session = Session(Greeter() >> Late() >> voice >> sink, inputs=[SayFrame])
        running = asyncio.ensure_future(session.run())
        await asyncio.sleep(0.5)
        assert session.state == "starting"
        session.interrupt()
        await session.started()
        session.send_nowait(SayFrame("after"))
        session.end()
        await running
        assert collected(sink) == ["after"]
        assert session.refused == 1


async def test_the_sweep_lets_go_whoever_waits_for_room() -> None:
    """A sender held up by a full inbox goes on: the inbox is empty now."""
    async with Session(Slow() >> Collector(), inputs=[SayFrame, TranscriptFrame], options=SessionOptions(inbox_frames=1)) as session:
        await session.send(SayFrame("a"))
        sending = asyncio.ensure_future(session.send(SayFrame("b")))
        await asyncio.sleep(0.1)
        assert not sending.done()
        session.interrupt()
        await asyncio.sleep(0)
        assert sending.done()


async def test_hold_and_resume_reach_every_node_that_takes_them() -> None:
    """And are refused in a session that does not run."""
    voice, sink = ScriptedTTS(Latency(0.0, 0.0)), RecordingSink(lead_s=1.0)
    session = Session(voice >> sink, inputs=[SentenceFrame])
    with pytest.raises(SessionError, match="the session is new: nothing is being said"):
        session.hold()
    async with session, no_leaks(threads=False):
        session.send_nowait(SentenceFrame("one two three four", utterance=1))
        await asyncio.sleep(0.22)
        session.hold("maybe")
        await asyncio.sleep(1.0)
        assert sink.words() == ["one", "two"]
        session.resume()
        await asyncio.sleep(1.0)
        assert sink.words() == ["one", "two", "three", "four"]
