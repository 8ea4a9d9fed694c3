"""A worker survives whatever its node does: cancelled, swallowed, stuck, or interrupted from within its own step."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
from collections.abc import AsyncIterator, Awaitable, Iterator
from typing import Any

import pytest

from voiceflow import (
    ContextFrame,
    ControlFrame,
    EndFrame,
    ErrorFrame,
    Frame,
    HoldFrame,
    InterruptFrame,
    Interruption,
    Pipeline,
    PlaybackStarted,
    Processor,
    SayFrame,
    SentenceFrame,
    Session,
    SessionOptions,
    StartFrame,
    TextFrame,
    TranscriptFrame,
)

OPTIONS = SessionOptions(cancel_timeout_s=0.5, ack_timeout_s=2.0)


class Voice(Processor):
    """Ten pieces, a tenth of a second apart; remembers how each of its works ended."""

    def __init__(self) -> None:
        self.ends: list[str] = []

    async def process(self, frame: SayFrame) -> AsyncIterator[SentenceFrame]:
        end = "cancelled"
        try:
            for number in range(10):
                await asyncio.sleep(0.1)
                yield SentenceFrame(f"{frame.text}{number}")
            end = "whole"
        finally:
            self.ends.append(f"{frame.text} {end}")


class Sink(Processor):
    def __init__(self) -> None:
        self.texts: list[str] = []

    def process(self, frame: SentenceFrame | TranscriptFrame) -> None:
        self.texts.append(frame.text)


def talking(node: Processor, *behind: Processor, sink: Sink | None = None, **options: Any) -> Session:
    pipeline = Pipeline(node)
    for following in (*behind, sink or Sink()):
        pipeline = pipeline >> following
    return Session(pipeline, inputs=list(node.contract.accepts), options=SessionOptions(cancel_timeout_s=0.5, **options))


# ------------------------------------------------------------------------------------------------- cancelling


async def test_an_interrupt_cancels_the_work_and_empties_the_inbox() -> None:
    """What was being said ends at its await, what waited is gone, what comes after is said whole."""
    voice, sink = Voice(), Sink()
    async with talking(voice, sink=sink) as session:
        for text in "abc":
            session.send_nowait(SayFrame(text))
        await asyncio.sleep(0.35)
        result = session.interrupt("test")
        assert result.dropped == 3
        session.send_nowait(SayFrame("d"))
        await asyncio.sleep(0.05)
        assert voice.ends == ["a cancelled"]
    assert sink.texts == ["a0", "a1", "a2"] + [f"d{n}" for n in range(10)]
    assert voice.ends == ["a cancelled", "d whole"]


async def test_a_cleanup_runs_to_its_end_before_the_next_work() -> None:
    """`finally` with awaits in it is not cut by a second interrupt, nor by the next frame."""

    class Careful(Processor):
        def __init__(self) -> None:
            self.steps: list[str] = []

        async def process(self, frame: SayFrame) -> None:
            self.steps.append(f"open {frame.text}")
            try:
                await asyncio.sleep(10)
            finally:
                await asyncio.sleep(0.2)
                self.steps.append(f"closed {frame.text}")

    node = Careful()
    async with Session(Pipeline(node), inputs=[SayFrame], options=OPTIONS) as session:
        session.send_nowait(SayFrame("a"))
        await asyncio.sleep(0.1)
        session.interrupt()
        session.send_nowait(SayFrame("b"))
        await asyncio.sleep(0.1)
        session.interrupt()
        session.send_nowait(SayFrame("c"))
        await asyncio.sleep(0.5)
        session.interrupt()
    assert node.steps == ["open a", "closed a", "open c", "closed c"]


async def test_the_callers_work_survives_an_interrupt() -> None:
    """A node at work on the caller's frames is not cancelled, its inbox is not emptied, its output not stale."""

    class Stt(Processor):
        async def process(self, frame: TranscriptFrame | SayFrame) -> TranscriptFrame | None:
            await asyncio.sleep(0.2)
            return TranscriptFrame(frame.text.upper()) if isinstance(frame, TranscriptFrame) else None

    sink = Sink()
    async with Session(Stt() >> sink, inputs=[TranscriptFrame, SayFrame]) as session:
        for text in "ab":
            session.send_nowait(TranscriptFrame(text))
            session.send_nowait(SayFrame(text))
        await asyncio.sleep(0.1)
        assert session.interrupt().dropped == 2
    assert sink.texts == ["A", "B"]


async def test_a_reply_is_cancelled_whatever_frame_began_it() -> None:
    """A node all of whose output is the agent's is silenced even when the caller's frame made it speak."""

    class Llm(Processor):
        async def process(self, frame: TranscriptFrame) -> AsyncIterator[SentenceFrame]:
            for number in range(10):
                await asyncio.sleep(0.1)
                yield SentenceFrame(f"{frame.text}{number}")

    sink = Sink()
    async with talking(Llm(), sink=sink) as session:
        session.send_nowait(TranscriptFrame("a"))
        await asyncio.sleep(0.25)
        session.interrupt()
    assert sink.texts == ["a0", "a1"]


async def test_swallowing_the_cancellation_makes_no_sound() -> None:
    """A client library that catches everything goes on, but all it yields is stale, and the node works on."""

    class Stubborn(Processor):
        async def process(self, frame: SayFrame) -> AsyncIterator[SentenceFrame]:
            for number in range(3):
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.sleep(0.1)
                yield SentenceFrame(f"{frame.text}{number}")

    sink = Sink()
    async with talking(Stubborn(), sink=sink) as session:
        session.send_nowait(SayFrame("a"))
        await asyncio.sleep(0.15)
        session.interrupt()
        session.send_nowait(SayFrame("b"))
    assert sink.texts == ["a0", "b0", "b1", "b2"]
    assert session.refused == 1


async def test_cancelled_work_sends_on_nothing_but_reports() -> None:
    """A tool call of a discarded reply does not run; what upstream must know still goes there."""

    class Call(ControlFrame, frozen=True):
        pass

    class Llm(Processor):
        """Cleans up by yielding, which no cancelled work should."""

        async def process(self, frame: SayFrame) -> AsyncIterator[Call | PlaybackStarted]:
            try:
                await asyncio.sleep(10)
            except asyncio.CancelledError:
                yield Call() if frame.text == "call" else PlaybackStarted()

    class Reports(Processor):
        def process(self, frame: PlaybackStarted) -> None: ...

    class Tool(Processor):
        def process(self, frame: Call) -> None: ...

    seen: list[str] = []
    session = Session(Reports() >> Llm() >> Tool(), inputs=[SayFrame])
    session.tap(lambda frame, a, b: seen.append(f"{type(frame).__name__} {a} {b}"), source="Llm")
    async with session:
        for text in ("call", "report"):
            session.send_nowait(SayFrame(text))
            await asyncio.sleep(0.1)
            session.interrupt()
            await asyncio.sleep(0.1)
    assert seen == ["PlaybackStarted Llm Reports"]
    assert session.refused == 1


@pytest.mark.parametrize("turns", range(12))
async def test_a_cancel_that_strikes_as_the_work_ends_never_hits_the_next(turns: int) -> None:
    """Interrupted at each turn of the loop around the end of a work, the next frame is always worked on whole."""

    class Quick(Processor):
        def __init__(self) -> None:
            self.done: list[str] = []

        async def process(self, frame: SayFrame) -> None:
            for _ in range(3):
                await asyncio.sleep(0)
            self.done.append(frame.text)

    node = Quick()
    async with Session(Pipeline(node), inputs=[SayFrame], options=OPTIONS) as session:
        session.send_nowait(SayFrame("a"))
        for _ in range(turns):
            await asyncio.sleep(0)
        session.interrupt()
        session.send_nowait(SayFrame("b"))
        await asyncio.sleep(0.1)
        assert node.done[-1] == "b"
        session.interrupt()
        session.send_nowait(SayFrame("c"))
    assert node.done[-2:] == ["b", "c"]


async def test_getting_ready_is_no_reply() -> None:
    """A voice that connects on StartFrame goes on connecting, whoever interrupts; what it says of itself meanwhile is stale."""
    steps: list[str] = []

    class Connects(Processor):
        async def process(self, frame: StartFrame | SayFrame) -> AsyncIterator[SentenceFrame]:
            if isinstance(frame, StartFrame):
                await asyncio.sleep(1.0)
                steps.append("connected")
                yield SentenceFrame("hello")
            else:
                yield SentenceFrame(frame.text)

    sink = Sink()
    session = Session(Connects() >> sink, inputs=[SayFrame])
    asyncio.get_running_loop().call_later(0.5, session.interrupt)
    async with session:
        session.send_nowait(SayFrame("a"))
    assert steps == ["connected"]
    assert sink.texts == ["a"]
    assert session.refused == 1


async def test_a_client_that_raises_when_cancelled_may_be_interrupted_any_number_of_times(caplog: pytest.LogCaptureFixture) -> None:
    """It is named, but an interrupted work is no failure: twenty in a row do not end the call, and nothing goes up as an error."""

    class Client(Processor):
        async def process(self, frame: SayFrame) -> SentenceFrame:
            try:
                await asyncio.sleep(1)
            except asyncio.CancelledError:
                raise ConnectionError("request aborted") from None
            return SentenceFrame(frame.text)

    errors: list[ErrorFrame] = []

    class Errors(Processor):
        def process(self, frame: ErrorFrame) -> None:
            errors.append(frame)

    sink = Sink()
    async with Session(Errors() >> Client() >> sink, inputs=[SayFrame]) as session:
        for _ in range(20):
            session.send_nowait(SayFrame("a"))
            await asyncio.sleep(0.5)
            session.interrupt()
        session.send_nowait(SayFrame("b"))
    assert sink.texts == ["b"]
    assert errors == []
    assert caplog.text.count("Client: process(SayFrame) was interrupted and raised ConnectionError: request aborted") == 20


@pytest.mark.parametrize("form", ["async", "async generator", "def", "generator"])
async def test_waiting_for_something_that_was_cancelled_is_a_failure_not_the_end(form: str) -> None:
    """A CancelledError that nobody sent to this work is a bug like any other: it is named, and the next frame is worked on."""
    gone: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    gone.cancel()

    class Waits(Processor):
        async def process(self, frame: SayFrame) -> SentenceFrame:
            return SentenceFrame(await gone if frame.text == "gone" else frame.text)

    class Streams(Processor):
        async def process(self, frame: SayFrame) -> AsyncIterator[SentenceFrame]:
            yield SentenceFrame(await gone if frame.text == "gone" else frame.text)

    class Plain(Processor):
        def process(self, frame: SayFrame) -> SentenceFrame:
            return SentenceFrame(gone.result() if frame.text == "gone" else frame.text)

    class Generates(Processor):
        def process(self, frame: SayFrame) -> Iterator[SentenceFrame]:
            yield SentenceFrame(gone.result() if frame.text == "gone" else frame.text)

    node = {"async": Waits, "async generator": Streams, "def": Plain, "generator": Generates}[form]()
    errors: list[str] = []

    class Errors(Processor):
        def process(self, frame: ErrorFrame) -> None:
            errors.append(f"{frame.node}: {frame.error}")

    sink = Sink()
    async with Session(Errors() >> node >> sink, inputs=[SayFrame]) as session:
        for text in ("a", "gone", "b"):
            await session.send(SayFrame(text))
    assert sink.texts == ["a", "b"]
    assert errors == [f"{type(node).__name__}: CancelledError: "]


async def test_a_run_that_waited_for_something_cancelled_is_named() -> None:
    """A source that dies so is not a source that is done."""

    class Source(Processor):
        async def run(self) -> AsyncIterator[TextFrame]:
            gone: asyncio.Future[str] = asyncio.get_running_loop().create_future()
            gone.cancel()
            yield TextFrame(await gone)

    class Texts(Processor):
        def process(self, frame: TextFrame) -> None: ...

    with pytest.raises(ExceptionGroup) as caught:
        await Session(Source() >> Texts()).run()
    assert [str(e) for e in caught.value.exceptions] == ["Source: run() waited for something that was cancelled"]


async def test_deadlines_inside_a_work_are_right_after_an_interrupt() -> None:
    """The next work's own timeouts and task groups are not confused by the cancellation of the one before."""

    class Impatient(Processor):
        async def process(self, frame: SayFrame) -> SentenceFrame:
            try:
                async with asyncio.timeout(1):
                    await asyncio.sleep(10)
            except TimeoutError:
                pass
            async with asyncio.TaskGroup() as group:
                group.create_task(asyncio.sleep(0.1))
            return SentenceFrame(f"{frame.text} {self.session.time():.1f}")

    sink = Sink()
    async with talking(Impatient(), sink=sink) as session:
        for text in "abc":
            session.send_nowait(SayFrame(text))
            await asyncio.sleep(0.5)
            session.interrupt()
        session.send_nowait(SayFrame("d"))
    assert sink.texts == ["d 2.6"]


# ------------------------------------------------------------------------------------- interrupted from within


class Interrupter(Processor):
    """Behind a worker: interrupts at a given text, in the worker's own step."""

    def __init__(self, at: str, *, by_call: bool) -> None:
        self.at = at
        self.by_call = by_call

    def process(self, frame: SentenceFrame) -> SentenceFrame | InterruptFrame:
        if frame.text != self.at:
            return frame
        if not self.by_call:
            return InterruptFrame(reason="guardrail")
        self.session.interrupt("guardrail")
        return frame


@pytest.mark.parametrize("by_call", [False, True])
async def test_an_instant_node_may_interrupt_the_worker_that_drives_it(by_call: bool) -> None:
    """The work ends there, its cleanup is not hit by its own cancellation, the next frame is worked on."""

    class Client(Processor):
        def __init__(self) -> None:
            self.steps: list[str] = []

        async def process(self, frame: SayFrame) -> AsyncIterator[SentenceFrame]:
            try:
                for number in range(3):
                    yield SentenceFrame(f"{frame.text}{number}")
                    await asyncio.sleep(0.1)
            finally:
                await asyncio.sleep(0.1)
                self.steps.append(f"closed {frame.text}")

    client, sink = Client(), Sink()
    async with talking(client, Interrupter("a1", by_call=by_call), sink=sink) as session:
        session.send_nowait(SayFrame("a"))
        await asyncio.sleep(1)
        session.send_nowait(SayFrame("b"))
    assert sink.texts == ["a0", "b0", "b1", "b2"]
    assert client.steps == ["closed a", "closed b"]
    assert [i.reason for i in session.interruptions] == ["guardrail"]


async def test_a_list_is_cut_where_an_interrupt_comes_out_of_it() -> None:
    """Of what an `async def` returned, nothing of the agent's is sent on after the interrupt it caused."""

    class All(Processor):
        async def process(self, frame: SayFrame) -> list[SentenceFrame]:
            return [SentenceFrame(f"{frame.text}{n}") for n in range(4)]

    sink = Sink()
    async with talking(All(), Interrupter("a1", by_call=False), sink=sink) as session:
        session.send_nowait(SayFrame("a"))
        await asyncio.sleep(0.1)
        session.send_nowait(SayFrame("b"))
    assert sink.texts == ["a0", "b0", "b1", "b2", "b3"]


@pytest.mark.parametrize("form", ["list", "async list", "generator", "async generator"])
async def test_what_a_turn_yields_after_its_own_interrupt_is_fresh(form: str) -> None:
    """The caller's frame interrupts and asks for the next reply in one go; the reply is to the present, not to the past."""

    def answer(text: str) -> list[Any]:
        return [InterruptFrame(reason="barge-in"), SentenceFrame(text)]

    class Plain(Processor):
        def process(self, frame: TranscriptFrame) -> list[InterruptFrame | SentenceFrame]:
            return answer(frame.text)

    class Generates(Processor):
        def process(self, frame: TranscriptFrame) -> list[InterruptFrame | SentenceFrame]:
            yield from answer(frame.text)  # type: ignore[misc]

    class Waits(Processor):
        async def process(self, frame: TranscriptFrame) -> list[InterruptFrame | SentenceFrame]:
            return answer(frame.text)

    class Streams(Processor):
        async def process(self, frame: TranscriptFrame) -> AsyncIterator[InterruptFrame | SentenceFrame]:
            for item in answer(frame.text):
                yield item
                await asyncio.sleep(0.01)

    node = {"list": Plain, "async list": Waits, "generator": Generates, "async generator": Streams}[form]()
    sink = Sink()
    async with Session(node >> sink, inputs=[TranscriptFrame]) as session:
        for text in "ab":
            session.send_nowait(TranscriptFrame(text))
            await asyncio.sleep(0.1)
    assert sink.texts == ["a", "b"]
    assert session.epoch >= 2


async def test_a_guardrail_behind_a_node_of_many_outputs_silences_it() -> None:
    """An interrupt by a node behind it makes the rest of a reply stale even where the work itself is not cancelled."""

    class Agent(Processor):
        async def process(self, frame: TranscriptFrame) -> AsyncIterator[SentenceFrame | TranscriptFrame]:
            for number in range(4):
                yield SentenceFrame(f"{frame.text}{number}")
                await asyncio.sleep(0.1)

    sink = Sink()
    async with Session(Agent() >> Interrupter("a1", by_call=False) >> sink, inputs=[TranscriptFrame]) as session:
        session.send_nowait(TranscriptFrame("a"))
        await asyncio.sleep(1)
        session.send_nowait(TranscriptFrame("b"))
    assert sink.texts == ["a0", "b0", "b1", "b2", "b3"]
    assert session.refused == 2


# ------------------------------------------------------------------------------------------------------ stuck


class Stuck(Processor):
    """Will not end when cancelled, until it is let go."""

    def __init__(self) -> None:
        self.release = asyncio.Event()

    async def process(self, frame: SayFrame) -> AsyncIterator[SentenceFrame]:
        if frame.text == "stuck":
            while not self.release.is_set():
                with contextlib.suppress(asyncio.CancelledError):
                    await self.release.wait()
        yield SentenceFrame(frame.text)


async def test_work_that_will_not_end_is_named_and_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    """After the deadline a fresh task takes the next frame; what the old one yields later is refused."""
    stuck, sink = Stuck(), Sink()
    async with talking(stuck, sink=sink) as session:
        session.send_nowait(SayFrame("stuck"))
        await asyncio.sleep(0.1)
        session.interrupt()
        session.send_nowait(SayFrame("next"))
        await asyncio.sleep(0.4)
        assert sink.texts == []
        await asyncio.sleep(0.2)
        assert sink.texts == ["next"]
        [message] = [r.getMessage() for r in caplog.records if r.levelno >= logging.ERROR]
        assert message.startswith("Stuck: process(SayFrame) did not end within 0.5 s of its cancellation; it goes on alone")
        stuck.release.set()
        await asyncio.sleep(0.1)
        session.send_nowait(SayFrame("after"))
    assert sink.texts == ["next", "after"]
    assert session.refused == 1


async def test_a_node_may_be_stuck_more_than_once(caplog: pytest.LogCaptureFixture) -> None:
    """Each time it is named, each time there is a fresh task, and in the end all of them are gone."""
    stuck, sink = Stuck(), Sink()
    async with talking(stuck, sink=sink) as session:
        for _ in range(3):
            session.send_nowait(SayFrame("stuck"))
            await asyncio.sleep(0.1)
            session.interrupt()
            await asyncio.sleep(0.6)
        session.send_nowait(SayFrame("next"))
        await asyncio.sleep(0.1)
        assert sink.texts == ["next"]
        stuck.release.set()
    assert caplog.text.count("did not end within 0.5 s") == 3


async def test_stuck_work_at_the_end_is_named_and_the_deadline_holds() -> None:
    """run() returns although the node never does, and no fresh task is begun in a session that is over."""
    stuck = Stuck()
    session = talking(stuck, stop_timeout_s=0.2)
    began = asyncio.get_running_loop().time()
    with pytest.raises(ExceptionGroup) as caught:  # noqa: PT012 - the block is the call
        async with session:
            session.send_nowait(SayFrame("stuck"))
            await asyncio.sleep(0.1)
            session.interrupt()
            session.cancel()
    assert [str(e) for e in caught.value.exceptions] == ["Stuck: its task 'Stuck/agent' did not end within 0.2 s of being cancelled"]
    assert asyncio.get_running_loop().time() - began < 1.0
    await asyncio.sleep(5)
    stuck.release.set()
    await asyncio.sleep(1)


# --------------------------------------------------------------------------------------------- acknowledgement


class Remote(Processor):
    """A far side that must acknowledge a cancel, after ``ack_s``, before the next request."""

    def __init__(self, ack_s: float) -> None:
        self.ack_s = ack_s
        self.log: list[str] = []
        self.acks = 0

    async def process(self, frame: SayFrame) -> SentenceFrame:
        self.log.append(f"{self.session.time():.2f} request {frame.text}")
        await asyncio.sleep(0.5)
        return SentenceFrame(frame.text)

    def on_interrupt(self, interrupt: Interruption) -> Awaitable[None]:
        return self.acknowledged()

    async def acknowledged(self) -> None:
        self.acks += 1
        number = self.acks
        await asyncio.sleep(self.ack_s)
        self.log.append(f"{self.session.time():.2f} ack {number}")


async def test_no_frame_is_taken_before_the_cancel_is_acknowledged() -> None:
    """The next request waits in the inbox; the interrupt's record says when the far side answered."""
    remote, sink = Remote(0.3), Sink()
    async with talking(remote, sink=sink) as session:
        session.send_nowait(SayFrame("a"))
        await asyncio.sleep(0.1)
        record = session.interrupt()
        session.send_nowait(SayFrame("b"))
        assert record.acknowledged == {"Remote": None}
        await record.settled()
        assert record.acknowledged == {"Remote": pytest.approx(0.3)}
    assert remote.log == ["0.00 request a", "0.40 ack 1", "0.40 request b"]
    assert sink.texts == ["b"]


async def test_a_second_interrupt_during_the_wait_makes_the_gate_wait_for_both() -> None:
    """Each cancel has its acknowledgement; no request slips in between."""
    remote, sink = Remote(0.3), Sink()
    async with talking(remote, sink=sink) as session:
        session.send_nowait(SayFrame("a"))
        await asyncio.sleep(0.1)
        first = session.interrupt()
        session.send_nowait(SayFrame("b"))
        await asyncio.sleep(0.2)
        second = session.interrupt()
        session.send_nowait(SayFrame("c"))
        await second.settled()
    assert remote.log == ["0.00 request a", "0.40 ack 1", "0.60 ack 2", "0.60 request c"]
    assert sink.texts == ["c"]
    assert first.acknowledged == {"Remote": pytest.approx(0.3)}


async def test_agent_frames_that_only_pass_wait_behind_the_gate_and_the_caller_does_not() -> None:
    """Order in the agent's lane is kept; the caller is heard meanwhile."""
    seen: list[str] = []

    class Watch(Processor):
        def process(self, frame: ContextFrame | TranscriptFrame | SentenceFrame) -> None:
            seen.append(f"{self.session.time():.2f} {type(frame).__name__}")

    remote = Remote(0.3)
    async with Session(remote >> Watch(), inputs=[SayFrame, ContextFrame, TranscriptFrame]) as session:
        session.interrupt()
        session.send_nowait(ContextFrame())
        session.send_nowait(TranscriptFrame("hello"))
    assert seen == ["0.00 TranscriptFrame", "0.30 ContextFrame"]


async def test_a_reply_to_the_caller_waits_for_the_acknowledgement_too() -> None:
    """A node that answers the caller's frames with the agent's asks its far side no sooner than one in the agent's lane."""

    class Llm(Remote):
        async def process(self, frame: TranscriptFrame) -> SentenceFrame:  # type: ignore[override]
            self.log.append(f"{self.session.time():.2f} request {frame.text}")
            await asyncio.sleep(0.5)
            return SentenceFrame(frame.text)

    llm, sink = Llm(0.3), Sink()
    async with talking(llm, sink=sink) as session:
        session.send_nowait(TranscriptFrame("a"))
        await asyncio.sleep(0.1)
        session.interrupt()
        session.send_nowait(TranscriptFrame("b"))
    assert llm.log == ["0.00 request a", "0.40 ack 1", "0.40 request b"]


@pytest.mark.parametrize("swallows", [False, True])
async def test_an_acknowledgement_that_never_comes_has_a_deadline(swallows: bool, caplog: pytest.LogCaptureFixture) -> None:
    """The node is named, and goes on without; even when the wait for it cannot be cancelled."""
    release = asyncio.Event()

    class Silent(Remote):
        async def acknowledged(self) -> None:
            while not release.is_set():
                with contextlib.suppress(asyncio.CancelledError) if swallows else contextlib.nullcontext():
                    await release.wait()

    remote, sink = Silent(0), Sink()
    async with talking(remote, sink=sink) as session:
        record = session.interrupt()
        session.send_nowait(SayFrame("b"))
        await record.settled()
        assert session.time() == pytest.approx(2.0)
        await asyncio.sleep(0.6)
        assert sink.texts == ["b"]
        release.set()
        await asyncio.sleep(0.1)
        assert record.acknowledged == {"Silent": None}
    assert "Silent: its cancel was not acknowledged within 2 s; it goes on without" in caplog.text


async def test_an_acknowledgement_that_fails_is_the_nodes_failure(caplog: pytest.LogCaptureFixture) -> None:
    """It is named, and opens the gate."""

    class Broken(Remote):
        async def acknowledged(self) -> None:
            raise ConnectionError("gone")

    sink = Sink()
    async with talking(Broken(0), sink=sink) as session:
        session.interrupt()
        session.send_nowait(SayFrame("b"))
    assert sink.texts == ["b"]
    assert "Broken failed on a frame: ConnectionError: gone" in caplog.text


async def test_an_async_on_interrupt_is_an_acknowledgement() -> None:
    """`async def on_interrupt` on a waiting node is the short way to write one."""

    class Remote2(Processor):
        async def process(self, frame: SayFrame) -> SentenceFrame:
            return SentenceFrame(f"{self.session.time():.1f}")

        async def on_interrupt(self, interrupt: Interruption) -> None:  # type: ignore[override]
            await asyncio.sleep(0.4)

    sink = Sink()
    async with talking(Remote2(), sink=sink) as session:
        session.interrupt()
        session.send_nowait(SayFrame("b"))
    assert sink.texts == ["0.4"]


@pytest.mark.parametrize("turns", range(8))
async def test_an_acknowledgement_that_is_not_even_begun_is_closed(turns: int) -> None:
    """Interrupted at any turn of its being cancelled, a call forgets no coroutine (which would be a warning, an error here)."""
    async with talking(Remote(0.3)) as session:
        session.cancel()
        for _ in range(turns):
            await asyncio.sleep(0)
        if session.state != "ended":
            session.interrupt()
    gc.collect()


async def test_a_session_ends_while_an_acknowledgement_is_out() -> None:
    """Draining waits for the gate, cancelling does not; nothing is left behind either way."""
    for drain in (True, False):
        remote = Remote(0.3)
        async with talking(remote) as session:
            session.interrupt()
            session.send_nowait(SayFrame("b"))
            if not drain:
                session.cancel()
        assert len(remote.log) == (2 if drain else 0)


# ------------------------------------------------------------------------------------------------------- state


async def test_the_state_of_a_worker_can_be_read() -> None:
    """What it works on, since when, and what waits, per lane."""

    class Slow(Processor):
        async def process(self, frame: SayFrame | TranscriptFrame) -> None:
            await asyncio.sleep(1.0)

    async with Session(Pipeline(Slow()), inputs=[SayFrame, TranscriptFrame]) as session:
        await asyncio.sleep(0.5)
        session.send_nowait(SayFrame("a"))
        session.send_nowait(SayFrame("b"))
        await asyncio.sleep(0.1)
        states = {state.lane: state for state in session.inboxes()}
        agent, user = states["AGENT"], states["USER"]
        assert (agent.name, agent.frames, agent.working_on, agent.working_since) == ("Slow", 1, "SayFrame", 0.5)
        assert (user.frames, user.working_on, user.working_since) == (0, None, None)


async def test_lanes_do_not_block_one_another() -> None:
    """The caller is heard while the agent talks, by the same node."""
    seen: list[str] = []

    class Both(Processor):
        async def process(self, frame: SayFrame | TranscriptFrame | HoldFrame) -> None:
            if isinstance(frame, SayFrame):
                await asyncio.sleep(5)
            seen.append(type(frame).__name__)

    async with Session(Pipeline(Both()), inputs=[Frame]) as session:
        session.send_nowait(SayFrame("a"))
        await asyncio.sleep(0)
        session.send_nowait(TranscriptFrame("b"))
        session.send_nowait(HoldFrame())
    assert seen == ["TranscriptFrame", "HoldFrame", "SayFrame"]


async def test_a_stale_hold_is_not_carried_out() -> None:
    """A hold that waits behind slow work is meaningless once an interrupt has come."""
    seen: list[str] = []

    class Speaker(Processor):
        async def process(self, frame: HoldFrame | TextFrame | EndFrame) -> None:
            seen.append(type(frame).__name__)
            await asyncio.sleep(1)

    async with Session(Pipeline(Speaker()), inputs=[HoldFrame, TextFrame]) as session:
        session.send_nowait(TextFrame("busy"))
        await asyncio.sleep(0.1)
        session.hold()
        session.interrupt()
        session.send_nowait(TextFrame("next"))
    assert seen == ["TextFrame", "TextFrame", "EndFrame"]
