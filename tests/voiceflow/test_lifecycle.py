"""A session begins and ends in order, within its own deadlines, whatever its nodes do; and whoever misbehaves is named."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any

import pytest

from voiceflow import (
    EndFrame,
    ErrorFrame,
    Frame,
    NodeError,
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
from voiceflow.testing import Collector, Feeder

OPTIONS = SessionOptions(start_timeout_s=3.0, end_timeout_s=4.0, stop_timeout_s=1.0, cancel_timeout_s=0.5, max_failures=3)


class Sink(Processor):
    def __init__(self) -> None:
        self.texts: list[str] = []

    def process(self, frame: TextFrame) -> None:
        self.texts.append(frame.text)


class Diary(Processor):
    """Writes down all that happens to it."""

    def __init__(self, name: str, diary: list[str], start_s: float = 0.0) -> None:
        self.name = name
        self.diary = diary
        self.start_s = start_s

    async def start(self) -> None:
        await asyncio.sleep(self.start_s)
        self.diary.append(f"{self.name} start")

    async def process(self, frame: StartFrame | EndFrame | TextFrame) -> TextFrame | None:
        self.diary.append(f"{self.name} {type(frame).__name__}")
        return frame if isinstance(frame, TextFrame) else None

    async def stop(self) -> None:
        self.diary.append(f"{self.name} stop")


async def until_forever() -> None:
    await asyncio.Event().wait()


async def stubbornly(release: asyncio.Event) -> None:
    while not release.is_set():
        with contextlib.suppress(asyncio.CancelledError):
            await release.wait()


async def failures(session: Session) -> list[str]:
    """What run() raises."""
    with pytest.raises(ExceptionGroup) as caught:
        await session.run()
    assert all(isinstance(error, NodeError) for error in caught.value.exceptions)
    return [str(error) for error in caught.value.exceptions]


# ------------------------------------------------------------------------------------------------- beginning


async def test_every_node_starts_then_hears_of_it_then_works_and_stops_last() -> None:
    """All start() before the first StartFrame, all StartFrames before the first frame, EndFrame after the last, then stop()."""
    diary: list[str] = []
    a, b = Diary("a", diary, start_s=1.0), Diary("b", diary, start_s=0.5)
    await Session(Feeder([TextFrame("x")]) >> a >> b >> Sink()).run()
    assert diary == [
        "b start",
        "a start",
        "a StartFrame",
        "b StartFrame",
        "a TextFrame",
        "b TextFrame",
        "a EndFrame",
        "b EndFrame",
        "a stop",
        "b stop",
    ]
    assert asyncio.get_running_loop().time() == pytest.approx(1.0)


async def test_start_is_called_side_by_side() -> None:
    """Ten nodes of a second are one second."""
    nodes: list[Processor] = [Diary(f"n{i}", [], start_s=1.0) for i in range(10)]
    pipeline = Feeder([]) >> nodes[0]
    for node in nodes[1:]:
        pipeline = pipeline >> node
    await Session(pipeline >> Sink()).run()
    assert asyncio.get_running_loop().time() == pytest.approx(1.0)


class Greeter(Processor):
    """Says something as soon as it may, before it takes anything."""

    def process(self, frame: StartFrame | TextFrame) -> list[TextFrame]:
        return [TextFrame("hello"), TextFrame("there")] if isinstance(frame, StartFrame) else [frame]


@pytest.mark.parametrize("blocking", [False, True])
async def test_nothing_overtakes_the_start(blocking: bool) -> None:
    """Frames yielded on StartFrame wait until every node has had its own, however long one of them takes over it, and how."""

    class Late(Processor):
        """Takes its time over the start; even by holding the loop."""

        async def process(self, frame: StartFrame) -> None:
            if blocking:
                time.sleep(0.03)
            await asyncio.sleep(2.0)

    sink, late = Collector(), Late()
    session = Session(Feeder([TextFrame("from run()")]) >> Greeter() >> late >> Greeter() >> sink)
    began: list[float] = []
    session.tap(lambda frame, a, b: began.append(session.time()))
    await session.run()
    assert isinstance(sink.frames[0], StartFrame)
    assert [f.text for f in sink.frames if isinstance(f, TextFrame)] == ["hello", "there", "hello", "there", "from run()"]
    assert sum(isinstance(f, StartFrame) for f in sink.frames) == 1
    assert min(began) >= 2.0


async def test_a_source_does_not_speak_before_all_have_started() -> None:
    """run() begins when the last node is ready."""

    class Source(Processor):
        async def run(self) -> AsyncIterator[TextFrame]:
            yield TextFrame(f"{self.session.time():.1f}")

    sink = Sink()
    await Session(Source() >> Diary("d", [], start_s=1.5) >> sink).run()
    assert sink.texts == ["1.5"]


@pytest.mark.parametrize("swallows", [False, True])
async def test_a_start_that_never_ends_is_named(swallows: bool) -> None:
    """run() returns at its deadline; what had started is stopped."""
    diary: list[str] = []
    release = asyncio.Event()

    class Never(Processor):
        def process(self, frame: TextFrame) -> TextFrame:
            return frame

        async def start(self) -> None:
            await (stubbornly(release) if swallows else until_forever())

        async def stop(self) -> None:
            diary.append("never stop")

    session = Session(Feeder([]) >> Diary("d", diary) >> Never() >> Sink(), options=OPTIONS)
    named = await failures(session)
    assert named[0] == "Never: start() did not end within 3 s"
    assert named[1:] == (["Never: its task 'Never/start' did not end within 1 s of being cancelled"] if swallows else [])
    assert diary == ["d start", "d stop", "never stop"]
    assert asyncio.get_running_loop().time() == pytest.approx(3.0 + (0.5 + 1.0 if swallows else 0.0))
    release.set()
    await asyncio.sleep(0.1)


async def test_a_raise_in_start_ends_the_session_at_once() -> None:
    """All that failed are named with their causes; whoever still starts is not waited for, and is stopped."""
    diary: list[str] = []

    class Bad(Processor):
        def process(self, frame: TextFrame) -> TextFrame:
            return frame

        async def start(self) -> None:
            raise ConnectionError("no route")

    session = Session(Feeder([]) >> Bad() >> Bad() >> Diary("d", diary, start_s=2.0) >> Sink(), options=OPTIONS)
    with pytest.raises(ExceptionGroup) as caught:
        await session.run()
    assert [str(e) for e in caught.value.exceptions] == [f"{name}: start() raised ConnectionError: no route" for name in ("Bad", "Bad#2")]
    assert all(isinstance(e.__cause__, ConnectionError) for e in caught.value.exceptions)
    assert asyncio.get_running_loop().time() == 0.0
    assert diary == ["d stop"]
    assert session.state == "ended"


async def test_a_start_that_gives_itself_up_is_a_failure() -> None:
    """A CancelledError that nobody asked for is not a success."""

    class Gives(Processor):
        def process(self, frame: TextFrame) -> None: ...

        async def start(self) -> None:
            raise asyncio.CancelledError

    assert await failures(Session(Feeder([]) >> Gives())) == ["Gives: start() was cancelled"]


async def test_a_node_that_is_never_done_with_its_start_frame_is_named() -> None:
    """The session does not wait for it for ever."""

    class Never(Processor):
        async def process(self, frame: StartFrame) -> None:
            await until_forever()

    named = await failures(Session(Feeder([TextFrame("a")]) >> Never() >> Sink(), options=OPTIONS))
    assert named == ["Never: was not done with its StartFrame within 3 s"]


# ---------------------------------------------------------------------------------------------------- ending


class Tail(Processor):
    """Keeps everything back by one, and gives the last at the end."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.kept: TextFrame | None = None

    def process(self, frame: TextFrame | EndFrame) -> TextFrame | None:
        kept, self.kept = self.kept, frame if isinstance(frame, TextFrame) else None
        return TextFrame(kept.text + self.name) if kept is not None else None


class SlowTail(Tail):
    async def process(self, frame: TextFrame | EndFrame) -> AsyncIterator[TextFrame]:  # type: ignore[override]
        await asyncio.sleep(0.2)
        out = Tail.process(self, frame)
        if out is not None:
            yield out


@pytest.mark.parametrize("kinds", [(Tail, Tail, Tail), (SlowTail, SlowTail, SlowTail), (Tail, SlowTail, Tail), (SlowTail, Tail, SlowTail)])
async def test_the_end_follows_all_that_is_on_its_way_and_each_tail(kinds: tuple[type[Tail], ...]) -> None:
    """Three nodes that each hold one frame back: all of them come out, in order, before run() returns."""
    sink = Sink()
    a, b, c = (kind(name) for kind, name in zip(kinds, "abc", strict=True))
    await Session(Feeder([TextFrame(t) for t in "1234"]) >> a >> b >> c >> sink).run()
    assert sink.texts == [f"{t}abc" for t in "1234"]


async def test_the_end_follows_every_lane_of_a_busy_node() -> None:
    """Whatever lane it waits in."""
    seen: list[str] = []

    class Slow(Processor):
        async def process(self, frame: SayFrame | TranscriptFrame | TextFrame | EndFrame) -> None:
            await asyncio.sleep(0.3)
            seen.append(type(frame).__name__)

    async with Session(Pipeline(Slow()), inputs=[SayFrame, TranscriptFrame, TextFrame]) as session:
        for _ in range(2):
            for frame in (SayFrame(""), TranscriptFrame(""), TextFrame("")):
                session.send_nowait(frame)
    assert sorted(seen[:-1]) == ["SayFrame"] * 2 + ["TextFrame"] * 2 + ["TranscriptFrame"] * 2
    assert seen[-1] == "EndFrame"


async def test_the_end_goes_down_every_branch_before_the_join() -> None:
    """A node that two branches feed gets its EndFrame after the slower one's tail."""
    sink = Collector()
    await Session(Feeder([TextFrame("1"), TextFrame("2")]) >> [Tail("quick"), SlowTail("slow")] >> sink).run()
    assert sorted(f.text for f in sink.frames if isinstance(f, TextFrame)) == ["1quick", "1slow", "2quick", "2slow"]
    assert isinstance(sink.frames[-1], EndFrame)
    assert sum(isinstance(f, EndFrame) for f in sink.frames) == 1


async def test_what_the_last_nodes_report_at_the_end_reaches_the_first() -> None:
    """A slow node upstream finishes with the last report before it is stopped."""
    heard: list[str] = []

    class Context(Processor):
        async def process(self, frame: TextFrame | PlaybackStarted) -> TextFrame | None:
            await asyncio.sleep(0.5)
            if isinstance(frame, TextFrame):
                return frame
            heard.append(f"heard {frame.utterance}")
            return None

    class Speaker(Processor):
        async def process(self, frame: TextFrame | EndFrame) -> list[PlaybackStarted]:
            return [PlaybackStarted(utterance=n) for n in range(3)] if isinstance(frame, EndFrame) else []

    await Session(Feeder([TextFrame("a")]) >> Context() >> Speaker()).run()
    assert heard == ["heard 0", "heard 1", "heard 2"]


async def test_when_every_source_is_done_the_call_is_over() -> None:
    """The last one decides; a node that only answers the start is no source."""
    sink = Sink()
    quick, slow = Feeder([TextFrame("q")]), Feeder([TextFrame("s")] * 3, rest_s=1.0)

    class Welcome(Processor):
        def process(self, frame: StartFrame) -> TextFrame:
            return TextFrame("welcome")

    await Session([quick, slow, Welcome()] >> sink).run()
    assert sink.texts == ["welcome", "q", "s", "s", "s"]
    assert asyncio.get_running_loop().time() == pytest.approx(3.0)


async def test_a_source_may_stand_behind_what_listens_to_its_errors() -> None:
    """What makes a source is that it speaks by itself and nothing that does stands before it; a speaker that reports is none."""

    class Errors(Processor):
        def process(self, frame: ErrorFrame) -> None: ...

    class Speaker(Processor):
        def __init__(self) -> None:
            self.texts: list[str] = []

        def process(self, frame: TextFrame) -> None:
            self.texts.append(frame.text)

        async def run(self) -> AsyncIterator[ErrorFrame]:
            await until_forever()
            yield ErrorFrame()

    speaker = Speaker()
    await Session(Errors() >> Feeder([TextFrame("a")], rest_s=1.0) >> speaker).run()
    assert speaker.texts == ["a"]


async def test_with_inputs_the_application_says_when_it_is_over() -> None:
    """A source that is done does not end a call to which the application still speaks."""
    sink = Sink()
    async with Session(Feeder([TextFrame("s")]) >> sink, inputs=[TextFrame]) as session:
        await asyncio.sleep(100)
        session.send_nowait(TextFrame("late"))
    assert sink.texts == ["s", "late"]


async def test_a_source_in_mid_sentence_is_closed_by_the_end() -> None:
    """Its finally runs; what it had yielded is worked off."""
    closed: list[str] = []

    class Source(Processor):
        async def run(self) -> AsyncIterator[TextFrame]:
            try:
                for number in range(100):
                    yield TextFrame(str(number))
                    await asyncio.sleep(1.0)
            finally:
                await asyncio.sleep(0.1)
                closed.append("closed")

    sink = Sink()
    session = Session(Source() >> SlowTail("t") >> sink)
    asyncio.get_running_loop().call_later(2.5, session.end)
    await session.run()
    assert sink.texts == ["0t", "1t", "2t"]
    assert closed == ["closed"]


async def test_the_end_asked_for_many_times_is_one_end() -> None:
    """By whom and how often does not matter."""
    sink = Collector()
    async with Session(Pipeline(sink), inputs=[TextFrame]) as session:
        session.end()
        session.end()
    session.end()
    assert sum(isinstance(f, EndFrame) for f in sink.frames) == 1


@pytest.mark.parametrize("swallows", [False, True])
async def test_work_that_never_ends_is_named_and_run_returns(swallows: bool) -> None:
    """At the session's own deadline, with the frame and the lane."""
    release = asyncio.Event()

    class Never(Processor):
        async def process(self, frame: TextFrame) -> None:
            await (stubbornly(release) if swallows else until_forever())

    named = await failures(Session(Feeder([TextFrame("a")]) >> Never(), options=OPTIONS))
    assert named[0] == "Never: did not finish within 4 s of the end: still at work on TextFrame in its control lane"
    assert named[1:] == (["Never: its task 'Never/control' did not end within 1 s of being cancelled"] if swallows else [])
    assert asyncio.get_running_loop().time() == pytest.approx(4.0 + (1.0 if swallows else 0.0))
    release.set()
    await asyncio.sleep(0.1)


async def test_a_node_that_eats_the_end_is_named() -> None:
    """EndFrame is worked on like any frame, and no longer than the session allows."""

    class Eats(Processor):
        async def process(self, frame: TextFrame | EndFrame) -> None:
            if isinstance(frame, EndFrame):
                await until_forever()

    named = await failures(Session(Feeder([]) >> Eats(), options=OPTIONS))
    assert named == ["Eats: did not finish within 4 s of the end: still at work on EndFrame in its control lane"]


async def test_a_run_that_never_ends_is_named() -> None:
    """One that will not be cancelled, even while it sits in front of others that end properly."""
    release = asyncio.Event()

    class Never(Processor):
        async def run(self) -> AsyncIterator[TextFrame]:
            yield TextFrame("a")
            await stubbornly(release)

    sink = Sink()
    session = Session(Never() >> sink, options=OPTIONS)
    asyncio.get_running_loop().call_later(1.0, session.end)
    assert await failures(session) == ["Never: its task 'Never/run' did not end within 1 s of being cancelled"]
    assert sink.texts == ["a"]
    release.set()
    await asyncio.sleep(0.1)


@pytest.mark.parametrize("swallows", [False, True])
async def test_a_stop_that_never_ends_is_named(swallows: bool) -> None:
    """The other nodes are stopped all the same."""
    diary: list[str] = []
    release = asyncio.Event()

    class Never(Processor):
        def process(self, frame: TextFrame) -> TextFrame:
            return frame

        async def stop(self) -> None:
            await (stubbornly(release) if swallows else until_forever())

    named = await failures(Session(Feeder([]) >> Never() >> Diary("d", diary) >> Sink(), options=OPTIONS))
    assert named == ["Never: stop() did not end within 1 s"]
    assert diary[-1] == "d stop"
    release.set()
    await asyncio.sleep(0.1)


async def test_a_raise_in_stop_is_named_and_the_rest_are_stopped() -> None:
    """With its cause."""
    diary: list[str] = []

    class Bad(Processor):
        def process(self, frame: TextFrame) -> TextFrame:
            return frame

        async def stop(self) -> None:
            raise OSError("socket")

    session = Session(Feeder([]) >> Bad() >> Diary("d", diary) >> Sink())
    with pytest.raises(ExceptionGroup) as caught:
        await session.run()
    [error] = caught.value.exceptions
    assert str(error) == "Bad: stop() raised OSError: socket"
    assert isinstance(error.__cause__, OSError)
    assert diary[-1] == "d stop"


async def test_a_raise_in_run_ends_the_session_by_name() -> None:
    """Without its source a call cannot go on; what was under way is cancelled, everything is stopped."""
    diary: list[str] = []

    class Mic(Processor):
        async def run(self) -> AsyncIterator[TextFrame]:
            yield TextFrame("a")
            await asyncio.sleep(1.0)
            raise OSError("unplugged")

    session = Session(Mic() >> Diary("d", diary) >> Sink(), options=OPTIONS)
    with pytest.raises(ExceptionGroup) as caught:
        await session.run()
    [error] = caught.value.exceptions
    assert str(error) == "Mic: run() raised OSError: unplugged"
    assert isinstance(error.__cause__, OSError)
    assert diary == ["d start", "d StartFrame", "d TextFrame", "d stop"]


async def test_a_raise_in_a_cleanup_is_named() -> None:
    """An error on the way out is not lost."""

    class Bad(Processor):
        async def run(self) -> AsyncIterator[TextFrame]:
            try:
                await until_forever()
                yield TextFrame("")
            finally:
                raise OSError("on the way out")

    session = Session(Bad() >> Sink())
    asyncio.get_running_loop().call_later(1.0, session.end)
    assert await failures(session) == ["Bad: run() raised OSError: on the way out"]


async def test_a_raise_in_the_answer_to_the_end_is_reported_and_the_rest_ends() -> None:
    """It is a failure like any other, and not the last word."""

    class Bad(Processor):
        def process(self, frame: TextFrame | EndFrame) -> TextFrame:
            if isinstance(frame, EndFrame):
                raise ValueError("no tail")
            return frame

    errors = Collector()

    class Errors(Processor):
        def process(self, frame: ErrorFrame) -> None:
            errors.frames.append(frame)

    sink = Sink()
    await Session(Feeder([TextFrame("1")]) >> Errors() >> Bad() >> Tail("t") >> sink).run()
    assert sink.texts == ["1t"]
    assert [(f.node, f.frame) for f in errors.frames if isinstance(f, ErrorFrame)] == [("Bad", "EndFrame")]


# ------------------------------------------------------------------------------------------------- cancelling


class Talker(Processor):
    """Talks for ten seconds for each frame, and for a while of its tail."""

    def __init__(self) -> None:
        self.closed = 0

    async def process(self, frame: TextFrame | EndFrame) -> AsyncIterator[SentenceFrame]:
        try:
            for number in range(100):
                await asyncio.sleep(0.1)
                yield SentenceFrame(str(number))
        finally:
            self.closed += 1


async def test_cancel_stops_at_once() -> None:
    """Work is cancelled, its cleanup runs, no EndFrame and no tail; run() returns without an error."""
    talker, sink = Talker(), Sink()
    session = Session(Feeder([TextFrame("a")] * 3, pause_s=100) >> talker >> Tail("t") >> sink)
    asyncio.get_running_loop().call_later(1.05, session.cancel)
    await session.run()
    assert asyncio.get_running_loop().time() == pytest.approx(1.05)
    assert sink.texts == [f"{n}t" for n in range(9)]
    assert talker.closed == 1
    assert session.state == "ended"


async def test_cancel_stops_an_end_under_way() -> None:
    """Whoever changed their mind does not wait for the tail."""
    talker, sink = Talker(), Sink()
    session = Session(Feeder([TextFrame("a")]) >> talker >> sink)
    loop = asyncio.get_running_loop()
    loop.call_later(0.5, session.end)
    loop.call_later(1.05, session.cancel)
    loop.call_later(1.05, session.cancel)
    await session.run()
    assert loop.time() == pytest.approx(1.05)
    assert talker.closed == 1


@pytest.mark.parametrize("stage", ["start()", "StartFrame"])
async def test_cancel_stops_a_start_under_way(stage: str) -> None:
    """A node that takes a minute to connect does not keep a caller who has hung up."""

    class Slow(Processor):
        async def start(self) -> None:
            if stage == "start()":
                await asyncio.sleep(50)

        async def process(self, frame: StartFrame) -> None:
            await asyncio.sleep(50)

    diary: list[str] = []
    session = Session(Feeder([]) >> Slow() >> Diary("d", diary) >> Sink())
    loop = asyncio.get_running_loop()
    loop.call_later(1.0, session.cancel)
    await session.run()
    assert loop.time() == pytest.approx(1.0)
    assert diary[-1] == "d stop"


async def test_an_end_during_the_start_comes_after_it() -> None:
    """The session starts, drains, and returns."""
    diary: list[str] = []
    session = Session(Feeder([], pause_s=100) >> Diary("d", diary, start_s=2.0) >> Sink())
    asyncio.get_running_loop().call_later(1.0, session.end)
    await session.run()
    assert diary == ["d start", "d StartFrame", "d EndFrame", "d stop"]


@pytest.mark.parametrize("at", [0.5, 1.5, 2.5])
async def test_run_cancelled_from_outside_is_cancel(at: float) -> None:
    """While it starts, while it runs, while it drains: everything is closed, then the cancellation goes on."""

    class Slow(Talker):
        async def start(self) -> None:
            await asyncio.sleep(1.0)

        async def stop(self) -> None:
            await asyncio.sleep(0.1)
            self.closed = -1

    talker = Slow()
    session = Session(Feeder([TextFrame("a")], pause_s=100) >> talker >> Sink())
    loop = asyncio.get_running_loop()
    loop.call_later(2.0, session.end)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(session.run(), timeout=at)
    assert loop.time() == pytest.approx(at + 0.1)
    assert talker.closed == -1
    assert session.state == "ended"


async def test_run_cancelled_twice_still_closes_everything() -> None:
    """An impatient application leaves nothing behind either."""

    class Slow(Talker):
        async def stop(self) -> None:
            await asyncio.sleep(0.5)
            self.closed = -1

    talker = Slow()
    running = asyncio.ensure_future(Session(Feeder([TextFrame("a")], pause_s=100) >> talker >> Sink()).run())
    await asyncio.sleep(1.0)
    for _ in range(3):
        running.cancel()
        await asyncio.sleep(0.1)
    await asyncio.wait([running])
    assert running.cancelled()
    assert talker.closed == -1


async def test_nothing_is_heard_after_cancel() -> None:
    """What a cleanup or a stuck work still yields reaches nobody."""
    release = asyncio.Event()

    class Stuck(Processor):
        async def process(self, frame: TextFrame) -> AsyncIterator[TextFrame]:
            await stubbornly(release)
            yield TextFrame("too late")

    sink = Sink()
    session = Session(Feeder([TextFrame("a")], pause_s=100) >> Stuck() >> sink, options=OPTIONS)
    asyncio.get_running_loop().call_later(1.0, session.cancel)
    await failures(session)
    release.set()
    await asyncio.sleep(1.0)
    assert sink.texts == []


# ------------------------------------------------------------------------------------------------ everything


METHODS: dict[str, str] = {
    "start": "start() raised ValueError: x",
    "process": "failed 3 times in a row, last on TextFrame: ValueError: x",
    "run": "run() raised ValueError: x",
    "stop": "stop() raised ValueError: x",
    "spawn": "its task 'Node/helper' raised ValueError: x",
}


@pytest.mark.parametrize("method", METHODS)
async def test_whichever_method_raises_the_node_is_named_with_the_cause(method: str) -> None:
    """One error, one name, one cause, and nothing left behind."""

    def fail(here: str) -> None:
        if here == method:
            raise ValueError("x")

    class Node(Processor):
        async def start(self) -> None:
            fail("start")
            self.session.spawn(self.helper(), f"{self.name}/helper")

        async def helper(self) -> None:
            await asyncio.sleep(1)
            fail("spawn")

        async def process(self, frame: TextFrame) -> None:
            fail("process")

        async def run(self) -> AsyncIterator[SayFrame]:
            await asyncio.sleep(0.5)
            fail("run")
            if False:
                yield

        async def stop(self) -> None:
            fail("stop")

    session = Session(Feeder([TextFrame("a")] * 5, rest_s=1) >> Node() >> Sink(), options=OPTIONS)
    with pytest.raises(ExceptionGroup, match=r"the session ended with errors") as caught:
        await session.run()
    [error] = caught.value.exceptions
    assert isinstance(error, NodeError)
    assert (error.node, str(error)) == ("Node", f"Node: {METHODS[method]}")
    assert isinstance(error.__cause__, ValueError)


async def test_errors_of_several_nodes_are_all_there() -> None:
    """One that failed in its run, another in its stop."""

    class Mic(Processor):
        async def run(self) -> AsyncIterator[TextFrame]:
            yield TextFrame("a")
            raise ValueError("mic")

    class Bad(Processor):
        def process(self, frame: TextFrame) -> None: ...

        async def stop(self) -> None:
            raise ValueError("bad")

    assert await failures(Session(Mic() >> Bad())) == ["Mic: run() raised ValueError: mic", "Bad: stop() raised ValueError: bad"]


def shapes() -> Iterator[Callable[[], Coroutine[Any, Any, None]]]:
    """Fifty calls of every kind."""

    class Model(Processor):
        async def start(self) -> None:
            self.session.spawn(until_forever(), f"{self.name}/socket")

        async def process(self, frame: TextFrame) -> AsyncIterator[SayFrame]:
            yield SayFrame(await self.run_blocking(str.upper, frame.text))
            await asyncio.sleep(1)

    def make() -> Session:
        frames: list[Frame] = [TextFrame("a"), TextFrame("b")]
        return Session(Feeder(frames, rest_s=0.4, rounds=1) >> Model() >> Collector(each_s=0.1))

    async def plain() -> None:
        await make().run()

    async def cancelled() -> None:
        session = make()
        asyncio.get_running_loop().call_later(0.5, session.cancel)
        await session.run()

    async def interrupted() -> None:
        session = make()
        asyncio.get_running_loop().call_later(0.6, session.interrupt)
        await session.run()

    async def cut() -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(make().run(), 0.5)

    async def block() -> None:
        with contextlib.suppress(ZeroDivisionError):
            async with make():
                await asyncio.sleep(0.5)
                raise ZeroDivisionError

    for number in range(50):
        yield (plain, cancelled, interrupted, cut, block)[number % 5]


async def test_fifty_calls_leave_nothing_behind() -> None:
    """No task, no thread, no descriptor (which every test here checks), and none in between either."""
    tasks: set[int] = set()
    for call in shapes():
        await call()
        await asyncio.sleep(0)
        tasks.add(len(asyncio.all_tasks()))
    assert tasks == {1}
