"""Frames go where their types say, each author's slip is named and harms nobody else, and whoever holds the loop is found."""

from __future__ import annotations

import asyncio
import logging
import re
import time
import types
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest

from voiceflow import (
    EndFrame,
    ErrorFrame,
    Frame,
    HoldFrame,
    InterruptFrame,
    NodeError,
    OutputAudioFrame,
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
    processor,
)
from voiceflow.testing import Collector, Feeder

SLOW_S = 0.03
"""Real time, spent on purpose: more than a handler may take."""


class Sink(Processor):
    def __init__(self) -> None:
        self.frames: list[Frame] = []

    def process(self, frame: TextFrame) -> None:
        self.frames.append(frame)

    @property
    def texts(self) -> list[str]:
        return [frame.text for frame in self.frames if isinstance(frame, TextFrame)]


class Errors(Processor):
    """Stands first, where errors go."""

    def __init__(self) -> None:
        self.seen: list[ErrorFrame] = []

    def process(self, frame: ErrorFrame) -> None:
        self.seen.append(frame)


def feed(*texts: str) -> Feeder:
    return Feeder([TextFrame(text) for text in texts])


def same(self: Processor, frame: Any) -> Any:
    return frame


def node_of(process: Callable[..., Any], takes: Any = TextFrame, yields: Any = TextFrame, name: str = "Node") -> Processor:
    process = types.FunctionType(process.__code__, process.__globals__, process.__name__, process.__defaults__, process.__closure__)
    process.__annotations__ = {"frame": takes, "return": yields}
    return type(name, (Processor,), {"process": process})()  # type: ignore[no-any-return]


# ------------------------------------------------------------------------------------------ forms of yielding


async def test_every_form_of_yielding_gives_the_same() -> None:
    """A list, a tuple, a generator, a coroutine of a list, an async generator."""

    def a_list(self: Processor, frame: TextFrame) -> Any:
        return [TextFrame(frame.text + end) for end in "xy"]

    def a_tuple(self: Processor, frame: TextFrame) -> Any:
        return tuple(TextFrame(frame.text + end) for end in "xy")

    def a_generator(self: Processor, frame: TextFrame) -> Any:
        for end in "xy":
            yield TextFrame(frame.text + end)

    async def a_coroutine(self: Processor, frame: TextFrame) -> Any:
        return [TextFrame(frame.text + end) for end in "xy"]

    async def a_stream(self: Processor, frame: TextFrame) -> Any:
        for end in "xy":
            yield TextFrame(frame.text + end)

    for process in (a_list, a_tuple, a_generator, a_coroutine, a_stream):
        sink = Sink()
        annotation: Any = AsyncIterator[TextFrame] if process is a_stream else list[TextFrame]
        await Session(feed("a", "b") >> node_of(process, yields=annotation) >> sink).run()
        assert sink.texts == ["ax", "ay", "bx", "by"]


async def test_what_a_node_hands_on_unchanged_is_the_same_object() -> None:
    """Passing copies nothing."""
    sink, seen = Sink(), []

    def process(self: Processor, frame: TextFrame) -> Any:
        seen.append(frame)
        return frame

    await Session(feed("a") >> node_of(process) >> node_of(process) >> sink).run()
    assert seen[0] is seen[1] is sink.frames[0]


async def test_one_function_may_stand_in_a_chain_many_times() -> None:
    """Each node of it is itself, although they all share the function: what the second changes is not given to it again."""
    calls: list[str] = []
    sink = Sink()

    @processor
    def third(frame: TextFrame) -> TextFrame:
        calls.append(frame.text)
        return TextFrame(frame.text + "!") if len(calls) == 3 else frame

    @processor
    def fails(frame: TextFrame) -> TextFrame:
        calls.append("fails")
        if len(calls) % 3 == 0:
            raise ValueError
        return frame

    async with Session(third() >> third() >> third() >> third() >> sink, inputs=[TextFrame]) as session:
        for _ in range(300):
            calls.clear()
            session.send_nowait(TextFrame("a"))
            assert calls == ["a", "a", "a", "a!"]
    assert sink.texts == ["a!"] * 300

    errors = Errors()
    async with Session(
        errors >> fails() >> fails() >> fails() >> Sink(), inputs=[TextFrame], options=SessionOptions(max_failures=999)
    ) as session:
        for _ in range(300):
            calls.clear()
            session.send_nowait(TextFrame("a"))
    assert {error.node for error in errors.seen} == {"fails#3"}
    assert len(errors.seen) == 300


async def test_a_chain_of_instant_nodes_does_what_each_of_them_does() -> None:
    """Passing, changing, dropping, doubling and failing at any place in a chain, for long enough that nobody watches any more."""

    class Acts(Processor):
        def __init__(self, act: str) -> None:
            self.act = act

        def process(self, frame: TextFrame) -> TextFrame | list[TextFrame] | None:
            if self.act not in frame.text:
                return frame
            rest = TextFrame(frame.text.replace(self.act, "", 1))
            if self.act == "drop":
                return None
            if self.act == "fail":
                raise ValueError
            return [rest, rest] if self.act == "twice" else rest

    chain = ["x", "twice", "drop", "x", "fail", "y", "twice"]
    errors, sink = Errors(), Sink()
    pipeline = Pipeline(errors)
    for act in chain:
        pipeline = pipeline >> Acts(act)
    expected = {
        "": 1,
        "x": 1,
        "xx": 1,
        "xxx": 1,
        "twice": 2,
        "twicetwice": 4,
        "drop": 0,
        "fail": 0,
        "twicefail": 0,
        "xyz": 1,
        "twicedrop": 0,
    }
    async with Session(pipeline >> sink, inputs=[TextFrame], options=SessionOptions(max_failures=999)) as session:
        for _ in range(100):
            for text, count in expected.items():
                sink.frames.clear()
                session.send_nowait(TextFrame(text))
                assert len(sink.frames) == count, text
    assert {error.node for error in errors.seen} == {"Acts#5"}
    assert len(errors.seen) == 300


async def test_a_constant_may_be_yielded_again_and_again() -> None:
    """A frame that an author keeps is not written to: it is as fresh after an interrupt, and in another call."""
    constant = SayFrame("one moment")

    def process(self: Processor, frame: TextFrame) -> Any:
        return constant

    for _ in range(2):
        sink = Sink()
        session = Session(Pipeline(node_of(process, yields=SayFrame)) >> sink, inputs=[TranscriptFrame])
        async with session:
            session.send_nowait(TranscriptFrame("a"))
            session.interrupt()
            session.send_nowait(TranscriptFrame("b"))
        assert sink.texts == ["one moment", "one moment"]
        assert [frame.epoch for frame in sink.frames] == [0, 1]
        assert session.refused == 0
    assert constant == SayFrame("one moment")


async def test_the_application_may_send_the_same_frame_again() -> None:
    """After an interrupt too: sending it is saying it now."""
    greeting, sink = SayFrame("hello"), Sink()
    async with Session(Pipeline(sink), inputs=[SayFrame]) as session:
        session.send_nowait(greeting)
        session.interrupt()
        await session.send(greeting)
    assert [frame.epoch for frame in sink.frames] == [0, 1]


# ----------------------------------------------------------------------------------------------- fan out


async def test_a_fan_out_reaches_each_branch_once_and_a_join_doubles() -> None:
    """Each branch that takes it gets it; whoever stands behind gets what each of them yields."""

    def mark(self: Processor, frame: TextFrame) -> Any:
        return TextFrame(frame.text + self.name)

    b, c, sink = node_of(mark, name="b"), node_of(mark, name="c"), Sink()
    await Session(feed("1", "2") >> [b, c] >> sink).run()
    assert sink.texts == ["1b", "1c", "2b", "2c"]


async def test_reports_go_up_to_each_that_takes_them() -> None:
    """Past the nodes that do not, and not beyond those that do."""

    class Reporter(Processor):
        def process(self, frame: TextFrame) -> PlaybackStarted:
            return PlaybackStarted(utterance=int(frame.text))

    heard: list[str] = []

    def listen(self: Processor, frame: Any) -> Any:
        if isinstance(frame, PlaybackStarted):
            heard.append(f"{self.name} {frame.utterance}")
            return frame if self.name == "near" else None
        return frame

    far = node_of(listen, takes=TextFrame | PlaybackStarted, name="far")
    near = node_of(listen, takes=TextFrame | PlaybackStarted, yields=TextFrame | PlaybackStarted, name="near")
    other = node_of(same, name="other")
    await Session(feed("1", "2") >> far >> near >> other >> Reporter()).run()
    assert heard == ["near 1", "far 1", "near 2", "far 2"]


async def test_a_type_nobody_takes_is_not_carried() -> None:
    """It ends where it was yielded, without a word."""

    class Chatty(Processor):
        def process(self, frame: TextFrame) -> list[TextFrame | HoldFrame | PlaybackStarted]:
            return [HoldFrame(), PlaybackStarted(), frame]

    sink = Sink()
    await Session(feed("a") >> Chatty() >> sink).run()
    assert sink.texts == ["a"]


# ------------------------------------------------------------------------------------------ wrong at run time


async def coroutine(self: Processor, frame: TextFrame) -> Any:
    return TextFrame("fine")


WRONG: dict[str, tuple[Callable[[Any, TextFrame], Any], str]] = {
    "a string": (lambda self, frame: "text", "process(TextFrame) gave str"),
    "a number in a list": (lambda self, frame: [TextFrame("fine"), 3], "process(TextFrame) gave int"),
    "a set": (lambda self, frame: {1}, "process(TextFrame) gave set"),
    "another frame": (lambda self, frame: HoldFrame(), "the node gave HoldFrame"),
    "a coroutine": (coroutine, "process(TextFrame) gave a coroutine"),
    "a class": (lambda self, frame: TextFrame, "process(TextFrame) gave the class TextFrame"),
}


def in_form(form: str, make: Callable[[Any, TextFrame], Any]) -> Processor:
    """A node that gives, in that form, the wrong thing for "wrong" and what it got for anything else."""

    def give(self: Processor, frame: TextFrame) -> Any:
        return make(self, frame) if frame.text == "wrong" else frame

    def each(self: Processor, frame: TextFrame) -> Iterator[Any]:
        yield make(self, frame) if frame.text == "wrong" else frame

    async def waits(self: Processor, frame: TextFrame) -> Any:
        return make(self, frame) if frame.text == "wrong" else frame

    async def streams(self: Processor, frame: TextFrame) -> AsyncIterator[Any]:
        yield make(self, frame) if frame.text == "wrong" else frame

    forms: dict[str, Callable[..., Any]] = {"def": give, "generator": each, "async": waits, "async generator": streams}
    return node_of(forms[form], yields=TextFrame)


@pytest.mark.parametrize("form", ["def", "generator", "async", "async generator"])
@pytest.mark.parametrize("wrong", WRONG)
async def test_what_the_annotation_does_not_say_is_named_and_dropped(form: str, wrong: str, caplog: pytest.LogCaptureFixture) -> None:
    """The log and an ErrorFrame name the node, what it gave and what it promised; the session goes on with the next frame."""
    make, gave = WRONG[wrong]
    errors, sink = Errors(), Sink()
    await Session(feed("before", "wrong", "after") >> errors >> in_form(form, make) >> sink).run()
    assert [text for text in sink.texts if text != "fine"] == ["before", "after"]
    assert len(errors.seen) == 1
    assert errors.seen[0].node == "Node"
    if wrong == "a number in a list" and "generator" in form:
        gave = "process(TextFrame) gave list"
    says = "but its annotation says TextFrame; correct the return annotation or what is yielded"
    assert errors.seen[0].error == f"NodeError: Node: {gave}, {says}"
    assert "Node failed on" in caplog.text


async def test_a_sink_that_yields_is_named(caplog: pytest.LogCaptureFixture) -> None:
    """`-> None` is a promise too."""
    await Session(feed("a") >> node_of(same, yields=None)).run()
    assert "the node gave TextFrame, but its annotation says nothing" in caplog.text


async def test_run_is_held_to_its_annotation(caplog: pytest.LogCaptureFixture) -> None:
    """A source that yields something else is named, and goes on."""

    class Source(Processor):
        async def run(self) -> AsyncIterator[TextFrame]:
            yield TextFrame("a")
            yield "b"  # type: ignore[misc]
            yield HoldFrame()  # type: ignore[misc]
            yield TextFrame("c")

    sink = Sink()
    await Session(Source() >> sink).run()
    assert sink.texts == ["a", "c"]
    assert "Source: run() gave str, but its annotation says TextFrame" in caplog.text
    assert "Source: run() gave HoldFrame, but its annotation says TextFrame" in caplog.text


# -------------------------------------------------------------------------------------------------- raises


@pytest.mark.parametrize("form", ["def", "generator", "async", "async generator"])
async def test_a_raise_is_reported_upstream_and_the_session_goes_on(form: str, caplog: pytest.LogCaptureFixture) -> None:
    """Node, frame and exception, in the log with its traceback and in an ErrorFrame; the next frame is worked on."""

    def boom(self: Processor, frame: TextFrame) -> Any:
        raise ValueError("boom")

    errors, sink = Errors(), Sink()
    await Session(feed("before", "wrong", "after") >> errors >> in_form(form, boom) >> sink).run()
    assert sink.texts == ["before", "after"]
    assert [(e.node, e.frame, e.error) for e in errors.seen] == [("Node", "TextFrame", "ValueError: boom")]
    [record] = [r for r in caplog.records if r.levelno >= logging.ERROR]
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], ValueError)


async def test_a_raise_in_a_neighbour_is_not_blamed_on_whoever_fed_it() -> None:
    """A failing instant node behind a worker fails by itself; the worker's work goes on."""

    class Words(Processor):
        async def process(self, frame: TextFrame) -> AsyncIterator[SentenceFrame]:
            for word in frame.text.split():
                yield SentenceFrame(word)

    def fail_on_b(self: Processor, frame: TextFrame) -> Any:
        if frame.text == "b":
            raise ValueError("b")
        return frame

    errors, sink = Errors(), Sink()
    middle = node_of(fail_on_b, takes=SentenceFrame, yields=SentenceFrame, name="Middle")
    await Session(Feeder([TranscriptFrame("a b c")]) >> errors >> Words() >> middle >> sink).run()
    assert sink.texts == ["a", "c"]
    assert [e.node for e in errors.seen] == ["Middle"]


async def test_a_raise_while_a_generator_is_closed_is_the_generators_own() -> None:
    """An instant generator is closed when its frame became stale; what its cleanup raises is named, not passed to the driver."""

    class Each(Processor):
        def process(self, frame: SayFrame) -> Iterator[SentenceFrame]:
            try:
                yield SentenceFrame("a")
                yield SentenceFrame("b")
            finally:
                raise ValueError("in the cleanup")

    class Interrupter(Processor):
        def process(self, frame: SentenceFrame) -> InterruptFrame:
            return InterruptFrame()

    errors = Errors()
    session = Session(Pipeline(errors) >> Each() >> Interrupter(), inputs=[SayFrame])
    async with session:
        session.send_nowait(SayFrame(""))
    assert [(e.node, e.error) for e in errors.seen] == [("Each", "ValueError: in the cleanup")]


async def test_an_error_handler_that_fails_does_not_report_to_itself(caplog: pytest.LogCaptureFixture) -> None:
    """No circle of errors about errors."""

    class Handler(Processor):
        def process(self, frame: ErrorFrame) -> None:
            raise RuntimeError("the handler failed")

    def boom(self: Processor, frame: TextFrame) -> Any:
        raise ValueError("boom")

    await Session(feed("a") >> Handler() >> node_of(boom) >> Sink()).run()
    assert [r.getMessage() for r in caplog.records if r.levelno >= logging.ERROR] == [
        "Node failed on TextFrame: ValueError: boom",
        "Handler failed on ErrorFrame: RuntimeError: the handler failed",
    ]


# --------------------------------------------------------------------------------------- too many in a row

FORMS = ["def", "list", "generator", "async", "async generator"]


def failing(form: str, wrong: bool) -> Processor:
    """Fails on "x": raises, or gives what it did not promise."""

    def bad() -> Any:
        if wrong:
            return 3
        raise ValueError("x")

    def plain(self: Processor, frame: TextFrame) -> Any:
        return bad() if frame.text == "x" else frame

    def listed(self: Processor, frame: TextFrame) -> Any:
        return [bad()] if frame.text == "x" else [frame]

    def generator(self: Processor, frame: TextFrame) -> Any:
        yield bad() if frame.text == "x" else frame

    async def waits(self: Processor, frame: TextFrame) -> Any:
        return bad() if frame.text == "x" else frame

    async def streams(self: Processor, frame: TextFrame) -> Any:
        yield bad() if frame.text == "x" else frame

    process = dict(zip(FORMS, (plain, listed, generator, waits, streams), strict=True))[form]
    return node_of(process, yields=list[TextFrame])


@pytest.mark.parametrize("wrong", [False, True])
@pytest.mark.parametrize("form", FORMS)
async def test_too_many_failures_in_a_row_end_the_session(form: str, wrong: bool) -> None:
    """The tenth is the last: the error names the node and what happened, once."""
    sink = Sink()
    session = Session(Pipeline(failing(form, wrong)) >> sink, inputs=[TextFrame])
    with pytest.raises(ExceptionGroup) as caught:  # noqa: PT012 - the block is the call
        async with session:
            for _ in range(25):
                await session.send(TextFrame("x"))
            await asyncio.sleep(1)
    [error] = caught.value.exceptions
    assert isinstance(error, NodeError)
    assert error.node == "Node"
    assert str(error).startswith("Node: failed 10 times in a row, last on TextFrame: ")
    assert isinstance(error.__cause__, NodeError if wrong else ValueError)


@pytest.mark.parametrize("wrong", [False, True])
@pytest.mark.parametrize("form", FORMS)
async def test_failures_with_successes_between_do_not_end_it(form: str, wrong: bool) -> None:
    """However many, and at no growing cost: the way to a node that has failed is as short as before."""
    sink = Sink()
    async with Session(Pipeline(failing(form, wrong)) >> sink, inputs=[TextFrame]) as session:
        for _ in range(1200):
            await session.send(TextFrame("x"))
            await session.send(TextFrame("o"))
        for _ in range(9):
            await session.send(TextFrame("x"))
        await session.send(TextFrame("end"))
    assert sink.texts == ["o"] * 1200 + ["end"]


async def test_a_source_that_slips_now_and_then_is_not_a_source_that_fails() -> None:
    """Good frames between the refused ones start the count anew; nothing but refused ones ends the session."""

    class Source(Processor):
        def __init__(self, good: bool) -> None:
            self.good = good

        async def run(self) -> AsyncIterator[SayFrame]:
            for _ in range(30):
                yield SayFrame("without an epoch")
                if self.good:
                    yield SayFrame("with one", epoch=self.session.epoch)

    sink = Sink()
    await Session(Source(good=True) >> sink).run()
    assert sink.texts == ["with one"] * 30
    with pytest.raises(ExceptionGroup) as caught:
        await Session(Source(good=False) >> Sink()).run()
    assert [str(e).partition(",")[0] for e in caught.value.exceptions] == ["Source: failed 10 times in a row"]


async def test_an_agents_frame_from_run_must_name_the_epoch_it_answers(caplog: pytest.LogCaptureFixture) -> None:
    """It is refused, and the log says what to write instead."""

    class Source(Processor):
        async def run(self) -> AsyncIterator[SayFrame]:
            yield SayFrame("late")

    sink = Sink()
    await Session(Source() >> sink).run()
    assert sink.texts == []
    assert (
        "Source: run() yielded SayFrame, which is the agent's, without the epoch it answers; it was refused. keep the epoch of the frame "
        "that asked for it (frame.epoch in process()) and yield replace(frame, epoch=that)"
    ) in caplog.text


async def test_an_agents_frame_of_an_old_epoch_is_refused_and_counted() -> None:
    """A socket that answers after the interrupt answers nobody."""

    class Socket(Processor):
        async def run(self) -> AsyncIterator[SayFrame]:
            epoch = self.session.epoch
            yield SayFrame("a", epoch=epoch)
            self.session.interrupt()
            yield SayFrame("b", epoch=epoch)
            yield SayFrame("c", epoch=self.session.epoch)

    sink = Sink()
    session = Session(Socket() >> sink)
    await session.run()
    assert sink.texts == ["a", "c"]
    assert session.refused == 1


# -------------------------------------------------------------------------------- what the session alone gives


async def test_a_node_that_hands_everything_on_does_not_repeat_the_sessions_frames() -> None:
    """StartFrame and EndFrame are given to each node once, whatever a `Frame -> Frame` node before it does with its own."""

    class Log(Processor):
        def process(self, frame: Frame) -> Frame:
            return frame

    class SlowLog(Processor):
        async def process(self, frame: Frame) -> Frame:
            return frame

    sink = Collector()
    await Session(feed("a") >> Log() >> SlowLog() >> sink).run()
    assert [type(frame) for frame in sink.frames] == [StartFrame, TextFrame, EndFrame]


async def test_an_end_from_any_node_ends_the_call() -> None:
    """Yielding EndFrame is asking for the end; what comes after it from a source is not waited for."""

    class Hangup(Processor):
        def process(self, frame: TextFrame) -> TextFrame | EndFrame:
            return EndFrame() if frame.text == "bye" else frame

    sink = Sink()
    await Session(Feeder([TextFrame("a"), TextFrame("bye"), TextFrame("b")], rest_s=1.0) >> Hangup() >> sink).run()
    assert sink.texts == ["a"]


# --------------------------------------------------------------------------------------------- slow handlers


def slow(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Who was named for holding the loop, and in what."""
    found = [re.match(r"(\S+): (.+) held the event loop for \d+ ms", r.getMessage()) for r in caplog.records]
    return [f"{m[1]}: {m[2]}" for m in found if m]


async def test_an_instant_node_that_holds_the_loop_is_named(caplog: pytest.LogCaptureFixture) -> None:
    """It, and what it was given; not its driver, not its neighbours."""

    def process(self: Processor, frame: TextFrame) -> Any:
        time.sleep(SLOW_S)
        return frame

    await Session(feed("a") >> node_of(same, name="Before") >> node_of(process, name="Slow") >> Sink()).run()
    assert slow(caplog) == ["Slow: process(TextFrame)"]
    assert "make process() `async def` and put the work into self.run_blocking()" in caplog.text


async def test_an_instant_generator_that_holds_the_loop_is_named(caplog: pytest.LogCaptureFixture) -> None:
    """Between two yields, which is where it works."""

    class Slow(Processor):
        def process(self, frame: TextFrame) -> Iterator[TextFrame]:
            yield frame
            time.sleep(SLOW_S)
            yield frame

    await Session(feed("a") >> Slow() >> Sink()).run()
    assert slow(caplog) == ["Slow: process(TextFrame)"]


async def test_a_worker_that_holds_the_loop_is_named(caplog: pytest.LogCaptureFixture) -> None:
    """A step of `async def process` without an await in it."""

    class Slow(Processor):
        async def process(self, frame: TextFrame) -> AsyncIterator[TextFrame]:
            await asyncio.sleep(0.1)
            time.sleep(SLOW_S)
            yield frame

    await Session(feed("a") >> Slow() >> Sink()).run()
    assert slow(caplog) == ["Slow: process(TextFrame) or an instant node behind it"]


async def test_a_run_that_holds_the_loop_is_named(caplog: pytest.LogCaptureFixture) -> None:
    """A source that reads a file on the loop."""

    class Slow(Processor):
        async def run(self) -> AsyncIterator[TextFrame]:
            time.sleep(SLOW_S)
            yield TextFrame("a")

    await Session(Slow() >> Sink()).run()
    assert slow(caplog) == ["Slow: run() or an instant node behind it"]


async def test_a_slow_instant_node_behind_a_worker_is_named_and_the_worker_is_not(caplog: pytest.LogCaptureFixture) -> None:
    """Whoever drives a stretch of the graph does not answer for it."""

    class Fast(Processor):
        async def process(self, frame: TextFrame) -> TextFrame:
            return frame

    def process(self: Processor, frame: TextFrame) -> Any:
        time.sleep(SLOW_S)

    await Session(feed("a") >> Fast() >> node_of(process, yields=None, name="Slow")).run()
    assert slow(caplog) == ["Slow: process(TextFrame)"]


async def test_a_handler_that_becomes_slow_after_an_hour_is_named_too(caplog: pytest.LogCaptureFixture) -> None:
    """However the frames come in, and however long the call has run without a slow step."""
    naps = 0

    def process(self: Processor, frame: TextFrame) -> Any:
        nonlocal naps
        if frame.text == "slow":
            naps += 1
            time.sleep(SLOW_S)

    async with Session(Pipeline(node_of(process, yields=None, name="Slow")), inputs=[TextFrame]) as session:
        for _ in range(2000):
            session.send_nowait(TextFrame(""))
        while not slow(caplog) and naps < 40:
            session.send_nowait(TextFrame("slow"))
    assert set(slow(caplog)) == {"Slow: process(TextFrame)"}


async def test_a_node_that_forgets_slowly_is_named(caplog: pytest.LogCaptureFixture) -> None:
    """on_interrupt() is a handler like any other."""

    class Slow(Processor):
        def process(self, frame: TextFrame) -> None: ...

        def on_interrupt(self, interrupt: object) -> None:
            time.sleep(SLOW_S)

    async with Session(Pipeline(Slow()), inputs=[TextFrame]) as session:
        session.interrupt()
    assert slow(caplog) == ["Slow: on_interrupt()"]


async def test_quick_handlers_are_not_named(caplog: pytest.LogCaptureFixture) -> None:
    """Waiting is not holding."""

    class Patient(Processor):
        async def process(self, frame: TextFrame) -> TextFrame:
            await asyncio.sleep(5)
            return frame

    await Session(feed("a", "b") >> Patient() >> Sink()).run()
    assert slow(caplog) == []


# ----------------------------------------------------------------------------------------------------- taps


async def test_a_tap_sees_each_frame_on_each_edge() -> None:
    """With the names of both ends; past nodes that do not take it, the edge is from yielder to taker."""
    seen: list[str] = []
    bystander = node_of(same, takes=StartFrame, yields=None, name="Bystander")
    session = Session(feed("a", "b") >> node_of(same, name="Echo") >> bystander >> Sink())
    session.tap(lambda frame, a, b: seen.append(f"{a} {b} {frame.text}" if isinstance(frame, TextFrame) else "?"))
    await session.run()
    assert seen == ["Feeder Echo a", "Echo Sink a", "Feeder Echo b", "Echo Sink b"]


async def test_a_tap_may_name_its_ends_and_be_taken_off() -> None:
    """In the middle of a call; twice is once."""
    seen: list[str] = []
    async with Session(node_of(same, name="Echo") >> Sink(), inputs=[TextFrame]) as session:
        session.send_nowait(TextFrame("a"))
        remove = session.tap(lambda frame, a, b: seen.append(f"{a} {b}"), source="Echo", target="Sink")
        also = session.tap(lambda frame, a, b: seen.append("application"), source="application")
        session.send_nowait(TextFrame("b"))
        remove()
        remove()
        session.send_nowait(TextFrame("c"))
        also()
        session.send_nowait(TextFrame("d"))
    assert seen == ["application", "Echo Sink", "application"]


async def test_each_receiver_behind_a_waiting_node_can_be_tapped() -> None:
    """Two nodes that get a passing frame through the same inbox are two edges."""
    seen: list[str] = []

    class Slow(Processor):
        async def process(self, frame: SentenceFrame) -> OutputAudioFrame: ...

    class Left(Collector):
        pass

    class Right(Collector):
        pass

    session = Session(Pipeline(Slow()) >> [Left(), Right()], inputs=[SayFrame, SentenceFrame])
    session.tap(lambda frame, a, b: seen.append(f"{a} {b}"), target="Left")
    session.tap(lambda frame, a, b: seen.append(f"{a} {b}"), target="Right")
    async with session:
        await session.send(SayFrame("passes"))
    assert sorted(seen) == ["application Left", "application Right"]


async def test_a_tap_that_raises_is_logged_and_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    """The frame goes on."""

    def tap(frame: Frame, source: str, target: str) -> None:
        raise ValueError("tap")

    sink = Sink()
    session = Session(feed("a") >> sink)
    session.tap(tap)
    await session.run()
    assert sink.texts == ["a"]
    assert "the tap on Feeder -> Sink raised; the frame goes on" in caplog.text


async def test_a_tap_may_interrupt() -> None:
    """What it was shown is stale then, and goes no further."""
    sink = Sink()
    session = Session(Pipeline(sink), inputs=[SayFrame])
    session.tap(lambda frame, a, b: session.interrupt() and None)
    async with session:
        session.send_nowait(SayFrame("a"))
    assert sink.texts == []
    assert session.refused == 1


# ---------------------------------------------------------------------------------------------- back-pressure


async def test_whoever_fills_an_inbox_waits() -> None:
    """A source in a hurry is never more than the bound ahead of a slow node, through instant nodes and a list."""

    class Burst(Processor):
        made = 0

        async def run(self) -> AsyncIterator[TextFrame]:
            for number in range(100):
                self.made = number + 1
                yield TextFrame(str(number))

    burst, slow_sink, ahead = Burst(), Collector(each_s=0.1), []

    class Watch(Processor):
        def process(self, frame: TextFrame) -> TextFrame:
            ahead.append(burst.made - sum(isinstance(f, TextFrame) for f in slow_sink.frames))
            return frame

    session = Session(burst >> Watch() >> slow_sink, options=SessionOptions(inbox_frames=4))
    await session.run()
    assert [f.text for f in slow_sink.frames if isinstance(f, TextFrame)] == [str(n) for n in range(100)]
    assert max(ahead) <= 4 + 2


async def test_what_the_application_sends_without_waiting_stops_nobody_for_ever() -> None:
    """A node whose own inbox was filled over the mark from outside does not wait for itself."""
    sink = Sink()

    class Slow(Processor):
        async def process(self, frame: TextFrame) -> TextFrame:
            await asyncio.sleep(0.01)
            return frame

    async with Session(Slow() >> sink, inputs=[TextFrame], options=SessionOptions(inbox_frames=2)) as session:
        for number in range(20):
            session.send_nowait(TextFrame(str(number)))
    assert sink.texts == [str(n) for n in range(20)]


async def test_reports_against_the_stream_do_not_lock_two_nodes() -> None:
    """A node that reports on every frame it gets, to the node that feeds it: neither waits for the other."""

    class Front(Processor):
        def __init__(self) -> None:
            self.reports = 0

        async def process(self, frame: TextFrame | PlaybackStarted) -> TextFrame | None:
            await asyncio.sleep(0.01)
            if isinstance(frame, PlaybackStarted):
                self.reports += 1
                return None
            return frame

    class Back(Processor):
        async def process(self, frame: TextFrame) -> list[PlaybackStarted]:
            await asyncio.sleep(0.001)
            return [PlaybackStarted() for _ in range(5)]

    front = Front()
    await Session(feed(*"abcdefgh") >> front >> Back(), options=SessionOptions(inbox_frames=1)).run()
    assert front.reports == 40


async def test_send_waits_while_the_nodes_of_its_lane_are_full() -> None:
    """And not for those of another lane."""

    class Slow(Processor):
        async def process(self, frame: SayFrame | TranscriptFrame) -> None:
            await asyncio.sleep(1.0)

    async with Session(Pipeline(Slow()), inputs=[SayFrame, TranscriptFrame], options=SessionOptions(inbox_frames=1)) as session:
        began = session.time()
        await session.send(SayFrame("1"))
        await session.send(SayFrame("2"))
        assert session.time() - began == pytest.approx(1.0)
        await session.send(TranscriptFrame("other lane"))
        assert session.time() - began == pytest.approx(1.0)


async def test_cancelling_a_send_loses_no_frame() -> None:
    """The frame is already in; only the wait is cut."""

    class Slow(Processor):
        def __init__(self) -> None:
            self.got: list[str] = []

        async def process(self, frame: SayFrame) -> None:
            await asyncio.sleep(1.0)
            self.got.append(frame.text)

    node = Slow()
    async with Session(Pipeline(node), inputs=[SayFrame], options=SessionOptions(inbox_frames=1)) as session:
        await session.send(SayFrame("1"))
        sending: Awaitable[None] = asyncio.ensure_future(session.send(SayFrame("2")))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(sending, timeout=0.1)
    assert node.got == ["1", "2"]
