"""The door to a running pipeline: what the application may do when, and what it is told otherwise."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from voiceflow import (
    AudioFormat,
    EndFrame,
    Frame,
    HoldFrame,
    InputAudioFrame,
    Interruption,
    NodeError,
    OutputAudioFrame,
    Pipeline,
    PipelineError,
    Processor,
    ResumeFrame,
    SayFrame,
    SentenceFrame,
    Session,
    SessionError,
    SessionOptions,
    StartFrame,
    TextFrame,
    TranscriptFrame,
)
from voiceflow.testing import Collector, no_leaks


class Step(Processor):
    def __init__(self, mark: str = "") -> None:
        self.mark = mark
        self.calls: list[str] = []

    async def start(self) -> None:
        self.calls.append("start")

    def process(self, frame: TextFrame | StartFrame) -> TextFrame | None:
        if isinstance(frame, StartFrame):
            self.calls.append("StartFrame")
            return None
        return TextFrame(frame.text + self.mark)

    def on_interrupt(self, interrupt: Interruption) -> None:
        self.calls.append("interrupt")

    async def stop(self) -> None:
        self.calls.append("stop")


class SlowStep(Step):
    async def process(self, frame: TextFrame | StartFrame) -> TextFrame | None:  # type: ignore[override]
        await asyncio.sleep(0.5)
        return super().process(frame)


class Sink(Processor):
    def __init__(self) -> None:
        self.texts: list[str] = []

    def process(self, frame: TextFrame) -> None:
        self.texts.append(frame.text)


# -------------------------------------------------------------------------------------------------- sending


async def test_frames_are_sent_while_it_runs_and_only_then() -> None:
    """Before, after, while it starts and while it ends, the error says which, and when to send."""
    step, sink = SlowStep(), Sink()
    session = Session(step >> sink, inputs=[TextFrame])

    def refused(state: str) -> None:
        with pytest.raises(SessionError, match=rf"the session is {state}: send frames after started\(\) and before end\(\)"):
            session.send_nowait(TextFrame("no"))

    refused("new")
    running = asyncio.ensure_future(session.run())
    await asyncio.sleep(0.1)
    refused("starting")
    await session.started()
    await session.send(TextFrame("yes"))
    session.end()
    await asyncio.sleep(0.1)
    refused("ending")
    await running
    refused("ended")
    with pytest.raises(SessionError, match="the session is ended"):
        await session.send(TextFrame("no"))
    assert sink.texts == ["yes"]


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (TextFrame(""), "the application sent TextFrame, but this session was made for SayFrame: Session(..., inputs=[TextFrame])"),
        (StartFrame(), "StartFrame is the session's alone: every node has had it already"),
        ("text", "the application sent 'text', which is not a frame"),
        (SayFrame, "the application sent <class 'voiceflow.frames.SayFrame'>, which is not a frame"),
        (None, "the application sent None, which is not a frame"),
    ],
)
async def test_what_was_not_declared_is_not_sent(frame: Any, message: str) -> None:
    """The error says what the session was made for, and how to make it for more."""
    async with Session(Pipeline(Sink()), inputs=[SayFrame]) as session:
        for _ in range(2):
            with pytest.raises(SessionError) as caught:
                session.send_nowait(frame)
            assert str(caught.value) == message


async def test_a_kind_of_a_declared_type_may_be_sent() -> None:
    """inputs=[TextFrame] is for all text; of a base type, a kind that nobody takes is an error when it comes."""
    sink = Sink()
    async with Session(Pipeline(sink), inputs=[Frame]) as session:
        session.send_nowait(SayFrame("a"))
        session.send_nowait(TranscriptFrame("b"))
        with pytest.raises(SessionError, match="no node of this pipeline takes InputAudioFrame"):
            session.send_nowait(InputAudioFrame(b"", 16000))
    assert sink.texts == ["a", "b"]


async def test_an_end_frame_is_the_end() -> None:
    """Sending it is session.end()."""
    sink = Sink()
    session = Session(SlowStep("!") >> sink, inputs=[TextFrame])
    running = asyncio.ensure_future(session.run())
    await asyncio.sleep(0)
    await session.started()
    session.send_nowait(TextFrame("a"))
    session.send_nowait(EndFrame())
    await running
    assert sink.texts == ["a!"]


async def test_a_sender_that_waits_is_let_go_when_the_call_is_cancelled() -> None:
    """Nobody waits for room in a session that is over."""

    class Never(Processor):
        async def process(self, frame: TextFrame) -> None:
            await asyncio.Event().wait()

    session = Session(Pipeline(Never()), inputs=[TextFrame], options=SessionOptions(inbox_frames=1))
    async with session:
        await session.send(TextFrame("a"))
        sending = asyncio.ensure_future(session.send(TextFrame("b")))
        await asyncio.sleep(1)
        assert not sending.done()
        session.cancel()
    await asyncio.wait_for(sending, timeout=1)


async def test_live_sound_never_waits_and_its_oldest_is_dropped() -> None:
    """A slow node hears the newest; what was lost is counted; the sender is never held up."""

    class Slow(Processor):
        def __init__(self) -> None:
            self.heard: list[float] = []

        async def process(self, frame: InputAudioFrame) -> None:
            self.heard.append(frame.pts or 0.0)
            await asyncio.sleep(1)

    slow = Slow()
    async with Session(Pipeline(slow), inputs=[InputAudioFrame], options=SessionOptions(live_audio_s=1.0)) as session:
        began = session.time()
        for number in range(100):
            await session.send(InputAudioFrame(bytes(640), 16000, pts=float(number)))
        assert session.time() == began
        await asyncio.sleep(0)
        state = next(s for s in session.inboxes() if s.lane == "USER")
        assert (state.frames, state.dropped) == (49, 50)
        assert state.seconds == pytest.approx(49 * 0.02)
        session.cancel()
    assert slow.heard == [50.0]


# --------------------------------------------------------------------------------------------------- running


async def test_it_runs_once() -> None:
    """A second run() of the same session, during or after, is an error that says what to do."""
    session = Session(Pipeline(Sink()), inputs=[TextFrame])
    async with session:
        with pytest.raises(SessionError, match="the session is running: it runs once; make a new one for the next call"):
            await session.run()
        with pytest.raises(SessionError, match="the session is running: it runs once"):
            async with session:
                pass
    with pytest.raises(SessionError, match="the session is ended: it runs once"):
        await session.run()


async def test_started_waits_for_the_start_and_says_if_nobody_runs_it() -> None:
    """Waiting for a session that nobody runs would be for ever."""
    session = Session(Pipeline(Sink()), inputs=[TextFrame])
    with pytest.raises(SessionError, match=r"the session is not being run: await session\.run\(\), or use `async with`"):
        await session.started()
    async with session:
        await session.started()


async def test_an_end_or_cancel_asked_for_before_it_runs_is_remembered() -> None:
    """A task that has not had its first turn yet does not lose it."""
    for act in (Session.end, Session.cancel):
        step = Step()
        session = Session(step >> Sink(), inputs=[TextFrame])
        running = asyncio.ensure_future(session.run())
        act(session)
        await asyncio.wait_for(running, timeout=1)
        assert session.state == "ended"
        assert step.calls in (["start", "StartFrame", "stop"], ["start", "stop"], [])
        act(session)


async def test_a_block_ends_it_drained() -> None:
    """`async with` is started() on entry and end() at the end."""
    sink = Sink()
    async with Session(SlowStep("!") >> sink, inputs=[TextFrame]) as session:
        assert session.state == "running"
        session.send_nowait(TextFrame("a"))
    assert sink.texts == ["a!"]
    assert session.state == "ended"


async def test_a_raise_in_the_block_cancels_it_and_is_the_error_one_sees() -> None:
    """Nothing is drained, everything is closed."""
    step, sink = SlowStep(), Sink()
    with pytest.raises(ZeroDivisionError):  # noqa: PT012 - the block is the call
        async with Session(step >> sink, inputs=[TextFrame]) as session:
            session.send_nowait(TextFrame("a"))
            raise ZeroDivisionError
    assert sink.texts == []
    assert step.calls[-1] == "stop"


async def test_a_block_whose_session_cannot_start_is_not_entered() -> None:
    """The error of the start comes out of `async with` itself."""

    class Bad(Step):
        async def start(self) -> None:
            raise OSError("no device")

    entered = False
    with pytest.raises(ExceptionGroup) as caught:
        async with Session(Bad() >> Sink(), inputs=[TextFrame]):
            entered = True
    assert [str(e) for e in caught.value.exceptions] == ["Bad: start() raised OSError: no device"]
    assert not entered


async def test_a_block_given_up_while_it_starts_leaves_nothing() -> None:
    """The timeout of an application around `async with` closes what had been begun."""

    class Slow(Step):
        async def start(self) -> None:
            await asyncio.sleep(50)

    step = Slow()
    with pytest.raises(TimeoutError):  # noqa: PT012 - the block is the call
        async with asyncio.timeout(1):
            async with Session(step >> Sink(), inputs=[TextFrame]):
                pass
    assert step.calls == ["stop"]
    assert asyncio.get_running_loop().time() == 1.0


async def test_a_node_that_ends_the_session_is_seen_at_the_end_of_the_block() -> None:
    """What killed it comes out of `async with`."""

    class Bad(Processor):
        def process(self, frame: TextFrame) -> None:
            raise ValueError(frame.text)

    with pytest.raises(ExceptionGroup) as caught:  # noqa: PT012 - the block is the call
        async with Session(Pipeline(Bad()), inputs=[TextFrame], options=SessionOptions(max_failures=1)) as session:
            session.send_nowait(TextFrame("x"))
            await asyncio.sleep(1)
    assert [str(e) for e in caught.value.exceptions] == ["Bad: failed 1 times in a row, last on TextFrame: ValueError: x"]


async def test_a_single_node_is_a_pipeline() -> None:
    """Session(node) and Session(list) work as Session(pipeline)."""
    sink = Sink()
    async with Session(sink, inputs=[TextFrame]) as session:
        session.send_nowait(TextFrame("a"))
    assert sink.texts == ["a"]


async def test_settings_are_the_applications_own() -> None:
    """Nodes read them; changing the original later changes nothing."""
    settings = {"language": "en"}
    session = Session(Pipeline(Sink()), inputs=[TextFrame], settings=settings)
    settings["language"] = "de"
    assert session.settings == {"language": "en"}


@pytest.mark.parametrize("name", ["inbox_frames", "max_failures", "threads"])
def test_counts_are_at_least_one(name: str) -> None:
    """An inbox that holds nothing would hold up everybody."""
    options: Callable[..., SessionOptions] = SessionOptions
    with pytest.raises(ValueError, match=f"SessionOptions: {name} is 0; it must be 1 or more"):
        options(**{name: 0})


@pytest.mark.parametrize("name", ["inbox_audio_s", "live_audio_s", "end_timeout_s", "ack_timeout_s"])
@pytest.mark.parametrize("seconds", [0.0, -1.0, math.nan])
def test_times_are_more_than_nothing(name: str, seconds: float) -> None:
    """A deadline in the past is a mistake."""
    options: Callable[..., SessionOptions] = SessionOptions
    with pytest.raises(ValueError, match=f"SessionOptions: {name} is .*; it must be more than 0 seconds"):
        options(**{name: seconds})


# ----------------------------------------------------------------------------------------------------- spawn


async def test_a_spawned_task_is_the_sessions() -> None:
    """Named, given back, and cancelled with it."""
    async with Session(Pipeline(Sink()), inputs=[TextFrame]) as session:
        quick = session.spawn(asyncio.sleep(0.1, "done"), "quick")
        forever = session.spawn(asyncio.Event().wait(), "forever")
        assert await quick == "done"
        assert forever.get_name() == "forever"
    assert forever.cancelled()


async def test_a_spawned_task_that_raises_ends_the_session() -> None:
    """By its name."""

    async def fail() -> None:
        raise OSError("connection lost")

    session = Session(Pipeline(Sink()), inputs=[TextFrame])
    with pytest.raises(ExceptionGroup) as caught:  # noqa: PT012 - the block is the call
        async with session:
            session.spawn(fail(), "Socket/reader")
            await asyncio.sleep(1)
            assert session.state == "ended"
    [error] = caught.value.exceptions
    assert isinstance(error, NodeError)
    assert (error.node, str(error)) == ("Socket", "Socket: its task 'Socket/reader' raised OSError: connection lost")


async def test_a_session_that_does_not_run_owns_no_task() -> None:
    """The coroutine is closed, so that nothing warns about it later."""
    session = Session(Pipeline(Sink()), inputs=[TextFrame])
    with pytest.raises(SessionError, match="the session is new: it can own no task now"):
        session.spawn(asyncio.sleep(1), "early")


# --------------------------------------------------------------------------------------------------- replace


async def test_a_node_is_exchanged_in_a_live_call() -> None:
    """The new one is started, has its StartFrame first, and gets every frame from there on; the old one is stopped."""
    old, new, sink = Step("old"), Step("new"), Sink()
    async with Session(Step() >> old >> sink, inputs=[TextFrame]) as session:
        session.send_nowait(TextFrame("1"))
        await session.replace(old, new)
        session.send_nowait(TextFrame("2"))
        session.interrupt()
        assert old.calls == ["start", "StartFrame", "stop"]
        assert new.calls == ["start", "StartFrame", "interrupt"]
    assert sink.texts == ["1old", "2new"]
    assert new.calls == ["start", "StartFrame", "interrupt", "stop"]


async def test_it_waits_until_the_agent_has_nothing_in_hand() -> None:
    """Between utterances: what is being said is said with the old voice, however it was asked for."""

    class Voice(Processor):
        def __init__(self, mark: str) -> None:
            self.mark = mark

        async def process(self, frame: SayFrame | TranscriptFrame) -> AsyncIterator[SentenceFrame]:
            for number in range(3):
                await asyncio.sleep(1)
                yield SentenceFrame(f"{self.mark}{number}")

    for frame in (SayFrame(""), TranscriptFrame("")):
        old, new, sink = Voice("old"), Voice("new"), Sink()
        async with Session(old >> sink, inputs=[SayFrame, TranscriptFrame]) as session:
            session.send_nowait(frame)
            await asyncio.sleep(0.5)
            await session.replace(old, new)
            session.send_nowait(frame)
        assert sink.texts == ["old0", "old1", "old2", "new0", "new1", "new2"]


async def test_an_agent_that_does_not_come_to_rest_keeps_its_node() -> None:
    """The new one is stopped again, and the error says why."""

    class Voice(Processor):
        async def process(self, frame: SayFrame) -> AsyncIterator[SentenceFrame]:
            while True:
                await asyncio.sleep(1)
                yield SentenceFrame("a")

    class Other(Voice):
        stopped = False

        async def stop(self) -> None:
            self.stopped = True

    old, new, sink = Voice(), Other(), Sink()
    async with Session(old >> sink, inputs=[SayFrame]) as session:
        session.send_nowait(SayFrame(""))
        with pytest.raises(SessionError, match=r"Voice was not replaced: the agent was still at work after 2\.5 s"):
            await session.replace(old, new, timeout_s=2.5)
        assert new.stopped
        assert len(sink.texts) == 2
        await asyncio.sleep(2)
        assert len(sink.texts) == 4
        session.interrupt()


async def test_what_the_old_node_still_has_of_the_callers_is_not_lost() -> None:
    """A recogniser in mid-word finishes it, and the word goes where the new one's go; new sound goes to the new one."""

    class Stt(Processor):
        def __init__(self, mark: str) -> None:
            self.mark = mark

        async def process(self, frame: InputAudioFrame) -> TranscriptFrame:
            await asyncio.sleep(1)
            return TranscriptFrame(f"{self.mark} {frame.pts:g}")

    old, new, sink = Stt("old"), Stt("new"), Sink()
    async with Session(Step() >> old >> sink, inputs=[InputAudioFrame, TextFrame]) as session:
        for pts in (1, 2):
            session.send_nowait(InputAudioFrame(b"", 16000, pts=pts))
        await asyncio.sleep(0.5)
        replacing = asyncio.ensure_future(session.replace(old, new))
        await asyncio.sleep(0.1)
        session.send_nowait(InputAudioFrame(b"", 16000, pts=3))
        await replacing
    assert sorted(sink.texts) == ["new 3", "old 1", "old 2"]
    assert sink.texts.index("old 1") < sink.texts.index("old 2")


@pytest.mark.parametrize("problem", ["start", "types", "elsewhere", "used", "same", "class"])
async def test_an_exchange_that_cannot_be_leaves_all_as_it_was(problem: str) -> None:
    """A failing start, types that do not fit, a node that is not there, or is there already: an error, and the call goes on."""

    class Failing(Step):
        async def start(self) -> None:
            raise OSError("no key")

    class Unfit(Processor):
        def process(self, frame: InputAudioFrame) -> OutputAudioFrame: ...

    first, old, sink = Step(), Step("old"), Sink()
    used = Step()
    Session(used >> Sink(), inputs=[TextFrame])
    new: Any = {"start": Failing(), "types": Unfit(), "elsewhere": Step(), "used": used, "same": first, "class": Step}[problem]
    at = Step() if problem == "elsewhere" else old
    expected: dict[str, tuple[type[Exception], str]] = {
        "start": (NodeError, r"^Failing: start\(\) raised OSError: no key$"),
        "types": (PipelineError, "nobody feeds Unfit: it takes InputAudioFrame"),
        "elsewhere": (PipelineError, "<Step> is not in this pipeline; it holds <Step>, <Step#2>, <Sink>"),
        "used": (SessionError, "Step has already been in a session; give replace\\(\\) a new node"),
        "same": (SessionError, "Step has already been in a session; give replace\\(\\) a new node"),
        "class": (PipelineError, r"Step is a processor class, not a node: write Step\(\)"),
    }
    async with Session(first >> old >> sink, inputs=[TextFrame]) as session:
        with pytest.raises(expected[problem][0], match=expected[problem][1]) as caught:
            await session.replace(at, new)
        if problem == "start":
            assert isinstance(caught.value.__cause__, OSError)
            assert new.calls == ["stop"]
        session.send_nowait(TextFrame("1"))
    assert sink.texts == ["1old"]
    assert old.calls == ["start", "StartFrame", "stop"]


@pytest.mark.parametrize("state", ["new", "ended"])
async def test_only_a_running_session_exchanges(state: str) -> None:
    """Before it, build another pipeline; after it, there is nothing to exchange."""
    old = Step()
    session = Session(old >> Sink(), inputs=[TextFrame])
    if state == "ended":
        async with session:
            pass
    with pytest.raises(SessionError, match=f"the session is {state}: Step is replaced in a running one only"):
        await session.replace(old, Step())


async def test_a_call_that_ends_meanwhile_is_not_changed() -> None:
    """The exchange gives up, and leaves no task behind."""

    class SlowStart(Step):
        async def start(self) -> None:
            await super().start()
            await asyncio.sleep(2)

    old, new = Step(), SlowStart()
    async with Session(old >> Sink(), inputs=[TextFrame]) as session:
        replacing = asyncio.ensure_future(session.replace(old, new))
        await asyncio.sleep(0.5)
    with pytest.raises((SessionError, NodeError)):
        await replacing
    assert new.calls == ["start", "stop"]
    assert old.calls == ["start", "StartFrame", "stop"]


async def test_an_exchange_given_up_is_undone() -> None:
    """Cancelled while the new node starts: that is cancelled and stopped, in this order, and the old one works on."""

    class SlowStart(Step):
        async def start(self) -> None:
            try:
                await asyncio.sleep(50)
            finally:
                self.calls.append("start cancelled")

    old, new, sink = Step("old"), SlowStart("new"), Sink()
    async with Session(old >> sink, inputs=[TextFrame]) as session:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(session.replace(old, new), timeout=1)
        assert new.calls == ["start cancelled", "stop"]
        session.send_nowait(TextFrame("x"))
    assert sink.texts == ["xold"]


async def test_two_exchanges_at_once_come_one_after_the_other() -> None:
    """Both are made."""
    a, b, sink = Step("a"), Step("b"), Sink()
    async with Session(a >> b >> sink, inputs=[TextFrame]) as session:
        await asyncio.gather(session.replace(a, Step("A")), session.replace(b, Step("B")))
        session.send_nowait(TextFrame("x"))
    assert sink.texts == ["xAB"]


async def test_a_source_is_exchanged_too() -> None:
    """The old one's run() is closed, the new one's begins; the call does not end in between."""

    class Mic(Processor):
        def __init__(self, mark: str, count: int) -> None:
            self.mark = mark
            self.count = count

        async def run(self) -> AsyncIterator[TextFrame]:
            for number in range(self.count):
                yield TextFrame(f"{self.mark}{number}")
                await asyncio.sleep(1)

    old, new, sink = Mic("a", 100), Mic("b", 2), Sink()
    session = Session(old >> sink)
    running = asyncio.ensure_future(session.run())
    await asyncio.sleep(1.5)
    await session.replace(old, new)
    await running
    assert sink.texts == ["a0", "a1", "b0", "b1"]


async def test_formats_are_solved_anew_and_other_converters_stay() -> None:
    """A new node with another format gets a converter; one elsewhere keeps the sound it holds, to the sample."""

    class Ear(Collector):
        takes = (AudioFormat(16000),)

    class Wide(Ear):
        takes = (AudioFormat(48000),)

    left, right, new = Ear(), Ear(), Wide()
    async with Session(Pipeline([left, right]), inputs=[InputAudioFrame]) as session:
        for number in range(10):
            if number == 5:
                await session.replace(right, new)
            session.send_nowait(InputAudioFrame(bytes(320), 8000))

    def heard(node: Collector) -> tuple[set[int], float]:
        sound = [f for f in node.frames if isinstance(f, InputAudioFrame)]
        return {f.sample_rate for f in sound}, sum(f.duration for f in sound)

    assert heard(left) == ({16000}, pytest.approx(0.2))
    assert heard(right)[0] == {16000}
    assert heard(new)[0] == {48000}
    assert heard(right)[1] + heard(new)[1] == pytest.approx(0.2, abs=0.01)


async def test_a_replaced_node_is_let_go_after_its_deadline() -> None:
    """One that never finishes what it has of the caller's is cancelled, and the call goes on."""

    class Never(Processor):
        async def process(self, frame: TextFrame) -> TextFrame:
            await asyncio.Event().wait()
            return frame

    old, new, sink = Never(), Step("new"), Sink()
    async with no_leaks(), Session(Step() >> old >> sink, inputs=[TextFrame], options=SessionOptions(stop_timeout_s=1)) as session:
        session.send_nowait(TextFrame("1"))
        await session.replace(old, new)
        session.send_nowait(TextFrame("2"))
    assert sink.texts == ["2new"]


async def test_replacing_many_times_grows_nothing() -> None:
    """A call of a day with a new voice every minute."""
    node, sink = SlowStep("0"), Sink()
    async with Session(Step() >> node >> sink, inputs=[TextFrame]) as session:
        tasks, inboxes = len(asyncio.all_tasks()), len(session.inboxes())
        for number in range(1, 60):
            following = SlowStep(str(number))
            await session.replace(node, following)
            node = following
        assert (len(asyncio.all_tasks()), len(session.inboxes())) == (tasks, inboxes)
        session.send_nowait(TextFrame("x"))
    assert sink.texts == ["x59"]


async def test_a_hold_reaches_each_sink_once_whatever_stands_before_it() -> None:
    """Also through a node that takes and hands on everything, and past nodes that take none of it."""

    class Everything(Processor):
        def process(self, frame: Frame) -> Frame:
            return frame

    class Mouth(Processor):
        def __init__(self) -> None:
            self.got: list[str] = []

        async def process(self, frame: TextFrame | HoldFrame | ResumeFrame) -> None:
            self.got.append(type(frame).__name__)

    near, far = Mouth(), Mouth()
    async with Session(Pipeline([Everything() >> near, far]), inputs=[TextFrame]) as session:
        session.hold("wait")
        session.resume()
    assert near.got == far.got == ["HoldFrame", "ResumeFrame"]
