"""Cases from the field that the engine itself must get right: must-keep frames, the start, branches, teardown."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable

import pytest

from voiceflow import (
    ContextFrame,
    ControlFrame,
    EndFrame,
    Frame,
    HoldFrame,
    InputAudioFrame,
    InterruptFrame,
    LLMTextFrame,
    OutputAudioFrame,
    Pipeline,
    PlaybackStarted,
    Processor,
    SayFrame,
    SentenceFrame,
    Session,
    SessionError,
    SessionOptions,
    StartFrame,
    TextFrame,
    TranscriptFrame,
)
from voiceflow.testing import Collector, VirtualClockLoop, no_leaks, run_virtual


def names(frames: list[Frame]) -> list[str]:
    return [type(frame).__name__ for frame in frames]


# ------------------------------------------------------------------------------------------------------- B08


class KeepFrame(ControlFrame, frozen=True):
    """A context update: not the agent's doing, so no interrupt may lose it."""


class Front(Processor):
    def process(self, frame: ContextFrame | TextFrame | KeepFrame) -> ContextFrame | TextFrame | KeepFrame:
        return frame


class Model(Processor):
    """Its handler waits three seconds, and can be cancelled."""

    def __init__(self) -> None:
        self.cancelled_at: float | None = None

    async def process(self, frame: ContextFrame) -> AsyncIterator[SentenceFrame]:
        try:
            await asyncio.sleep(3)
        except asyncio.CancelledError:
            self.cancelled_at = self.session.time()
            raise
        yield SentenceFrame("answer")


class Talkative(Model):
    """Fills the inbox behind it, so that it is held up by back-pressure when the interrupt comes."""

    async def process(self, frame: ContextFrame) -> AsyncIterator[SentenceFrame]:
        try:
            for number in range(30):
                yield SentenceFrame(str(number))
        except (asyncio.CancelledError, GeneratorExit):
            self.cancelled_at = self.session.time()
            raise


class Back(Processor):
    """The sink; asks for an interrupt when the barge-in reaches it, if it is to come from there."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []

    async def process(self, frame: SentenceFrame | SayFrame | KeepFrame | TranscriptFrame | EndFrame) -> AsyncIterator[InterruptFrame]:
        self.frames.append(frame)
        if isinstance(frame, TranscriptFrame):
            yield InterruptFrame(reason="from the sink")
        if isinstance(frame, SentenceFrame):
            await asyncio.sleep(0.5)


@pytest.mark.parametrize("from_sink", [False, True])
@pytest.mark.parametrize("ends", [False, True])
@pytest.mark.parametrize("model", [Model, Talkative])
async def test_b08_an_interrupt_wipes_neither_the_end_nor_what_must_be_kept(model: type[Model], ends: bool, from_sink: bool) -> None:
    """B's work ends at once, the text behind it is gone, K comes through exactly once, and so does the end."""
    b, c = model(), Back()
    session = Session(
        Front() >> b >> c,
        inputs=[ContextFrame, SayFrame, KeepFrame, TranscriptFrame],
        options=SessionOptions(inbox_frames=8),
    )
    running = asyncio.ensure_future(session.run())
    await asyncio.sleep(0)
    await session.started()
    for frame in (ContextFrame(), SayFrame("x"), KeepFrame()):
        session.send_nowait(frame)
    await asyncio.sleep(0.2)
    if ends:
        session.end()
    else:
        asyncio.get_running_loop().call_later(5, session.end)
    if from_sink and not ends:
        session.send_nowait(TranscriptFrame("barge-in"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    else:
        session.interrupt("barge-in")
    await asyncio.sleep(0.05)
    assert b.cancelled_at == pytest.approx(0.2)
    if not ends:
        session.send_nowait(ContextFrame())  # without the end, the next request is answered
    await running
    assert [f for f in c.frames if isinstance(f, SayFrame) and f.text == "x"] == []
    assert sum(isinstance(f, KeepFrame) for f in c.frames) == 1
    assert sum(isinstance(f, EndFrame) for f in c.frames) == 1
    assert isinstance(c.frames[-1], EndFrame)
    if ends:
        assert asyncio.get_running_loop().time() <= 0.2 + 1.0
    else:
        assert any(isinstance(f, SentenceFrame) and f.epoch == 1 for f in c.frames)


# ------------------------------------------------------------------------------------------------------- B10


class First(Processor):
    """At the start it speaks at once, down and up, before anyone asked it."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def process(self, frame: StartFrame | TranscriptFrame) -> list[HoldFrame | PlaybackStarted | LLMTextFrame | TranscriptFrame]:
        self.seen.append(type(frame).__name__)
        return [HoldFrame(), PlaybackStarted(), LLMTextFrame("early"), LLMTextFrame("bird")] if isinstance(frame, StartFrame) else [frame]


class Branch(Processor):
    """Takes its time over the start, and says hello."""

    def __init__(self, start_s: float, hello: str) -> None:
        self.start_s = start_s
        self.hello = hello
        self.seen: list[str] = []

    async def process(self, frame: StartFrame | InputAudioFrame) -> AsyncIterator[LLMTextFrame | InputAudioFrame]:
        self.seen.append(type(frame).__name__)
        if isinstance(frame, StartFrame):
            await asyncio.sleep(self.start_s)
            yield LLMTextFrame(self.hello)
        else:
            yield frame


class Reports(Processor):
    def __init__(self) -> None:
        self.seen: list[str] = []

    def process(self, frame: StartFrame | PlaybackStarted) -> None:
        self.seen.append(type(frame).__name__)


class Microphone(Processor):
    """A transport: it hears from the first moment of its own start on, and hands it out when it may."""

    async def start(self) -> None:
        self.buffer = [InputAudioFrame(b"", 16000, pts=float(number)) for number in range(10)]

    async def run(self) -> AsyncIterator[InputAudioFrame]:
        for frame in self.buffer:
            yield frame


async def test_b10_no_frame_overtakes_the_start() -> None:
    """Each node sees StartFrame once and first; what was made before comes after it, in order; started() once all are ready."""
    reports, first, one, two, sink = Reports(), First(), Branch(0.0, "hello"), Branch(0.5, "there"), Collector()
    session = Session(reports >> first >> [one, two] >> sink, inputs=[TranscriptFrame, InputAudioFrame])
    refused: list[str] = []

    async def application() -> None:
        await asyncio.sleep(0.2)
        for frame in (StartFrame(), TranscriptFrame("message")):
            try:
                session.send_nowait(frame)
            except SessionError as error:
                refused.append(str(error))

    started: list[float] = []

    async def waits() -> None:
        await session.started()
        started.append(session.time())

    running = asyncio.ensure_future(session.run())
    await asyncio.sleep(0)
    await asyncio.gather(application(), waits())
    for number in range(10):
        session.send_nowait(InputAudioFrame(b"", 16000, pts=float(number)))
    with pytest.raises(SessionError, match="StartFrame is the session's alone"):
        session.send_nowait(StartFrame())
    session.end()
    await running
    assert started == [pytest.approx(0.5)]
    assert refused == ["the session is starting: send frames after started() and before end()"] * 2
    for seen in (reports.seen, first.seen, one.seen, two.seen, names(sink.frames)):
        assert seen[0] == "StartFrame"
        assert seen.count("StartFrame") == 1
    assert reports.seen == ["StartFrame", "PlaybackStarted"]
    said = [f.text for f in sink.frames if isinstance(f, TextFrame)]
    assert sorted(said) == ["bird", "early", "hello", "there"]
    assert said.index("early") < said.index("bird")
    assert names(sink.frames).count("InputAudioFrame") == 20  # two branches that take it, and one each


async def test_b10_a_source_that_hears_early_hands_it_out_after_the_start() -> None:
    """Ten frames heard while another node takes half a second to start: all ten arrive, after the start, in order."""
    two, sink = Branch(0.5, "there"), Collector()
    await Session(Microphone() >> two >> sink).run()
    assert names(sink.frames)[0] == "StartFrame"
    assert [f.pts for f in sink.frames if isinstance(f, InputAudioFrame)] == [float(n) for n in range(10)]


# ------------------------------------------------------------------------------------------------------- B11


class PassesAll(Processor):
    """Takes sound and text, and hands them on."""

    async def process(self, frame: InputAudioFrame | SayFrame) -> InputAudioFrame | SayFrame:
        return frame


class TakesOther(Processor):
    """A branch for which neither is meant: they pass by."""

    async def process(self, frame: HoldFrame) -> None: ...


class Hears(Processor):
    def __init__(self) -> None:
        self.frames: list[InputAudioFrame | SayFrame] = []
        self.interrupts = 0

    def process(self, frame: InputAudioFrame | SayFrame) -> None:
        self.frames.append(frame)

    def on_interrupt(self, interrupt: object) -> None:
        self.interrupts += 1


@pytest.mark.parametrize(("branch", "copies"), [(TakesOther, 1), (PassesAll, 3)])
async def test_b11_three_branches_double_nothing_and_hoard_nothing(branch: Callable[[], Processor], copies: int) -> None:
    """Past branches that do not take it a frame arrives once; through branches that do, once from each. No queue grows."""
    sink = Hears()
    depths: list[int] = []
    pipeline = [branch(), branch(), branch()] >> sink
    inputs = [InputAudioFrame, SayFrame, *({HoldFrame} & pipeline.nodes[0].contract.accepts)]
    async with Session(pipeline, inputs=inputs) as session:

        async def sound(count: int, first: int) -> None:
            for number in range(first, first + count):
                session.send_nowait(InputAudioFrame(number.to_bytes(4, "little"), 16000))
                await asyncio.sleep(0.02)
                depths.append(max(state.frames for state in session.inboxes()))

        await sound(500, 0)
        session.send_nowait(SayFrame("before"))
        await asyncio.sleep(0.1)
        session.interrupt()
        session.send_nowait(SayFrame("after"))
        await asyncio.sleep(0.01)
        await sound(1500, 500)
        await asyncio.sleep(1)
        assert all(state.frames == 0 for state in session.inboxes())
    heard = [int.from_bytes(f.pcm, "little") for f in sink.frames if isinstance(f, InputAudioFrame)]
    assert sorted(heard) == sorted(list(range(2000)) * copies)
    assert heard == sorted(heard)
    assert [f.text for f in sink.frames if isinstance(f, SayFrame)] == ["before"] * copies + ["after"] * copies
    where = [i for i, f in enumerate(sink.frames) if isinstance(f, SayFrame)]
    assert where == list(range(500 * copies, 502 * copies))  # between the 500th and the 501st frame of sound: no late burst
    assert sink.interrupts == 1
    assert max(depths) <= 50


# ---------------------------------------------------------------------------------------------------- B13 (a)


class Tool(Processor):
    """A tool of ten seconds."""

    def __init__(self, log: list[str]) -> None:
        self.log = log

    async def process(self, frame: TranscriptFrame) -> AsyncIterator[SayFrame]:
        try:
            await asyncio.sleep(10)
            yield SayFrame("result")
        finally:
            self.log.append("tool over")


class Filler(Processor):
    """Background sound for ever: a loop that must not outlive its socket."""

    def __init__(self) -> None:
        self.sent = 0

    async def run(self) -> AsyncIterator[OutputAudioFrame]:
        while True:
            await asyncio.sleep(0.02)
            self.sent += 1
            yield OutputAudioFrame(bytes(960), 24000, epoch=self.session.epoch)


class Reconnecting(Processor):
    """A voice whose connection is down: it waits, with backoff, for as long as it takes."""

    def __init__(self, log: list[str], *, stubborn: bool) -> None:
        self.log = log
        self.stubborn = stubborn
        self.tries = 0

    async def start(self) -> None:
        self.session.spawn(self.connect(), f"{self.name}/connect")

    async def connect(self) -> None:
        delay_s = 0.1
        while True:
            self.tries += 1
            try:
                await asyncio.sleep(delay_s)
                raise ConnectionError("refused")
            except ConnectionError:
                delay_s = min(2 * delay_s, 30.0)
            except asyncio.CancelledError:
                if not self.stubborn:
                    raise
                self.stubborn = False  # a library that retries once even when cancelled

    async def process(self, frame: SayFrame) -> AsyncIterator[OutputAudioFrame]:
        await asyncio.Event().wait()
        yield OutputAudioFrame(b"", 24000)

    async def stop(self) -> None:
        self.log.append("voice closed")


class Line(Processor):
    """The transport: counts what is sent, and what is sent after it was closed."""

    def __init__(self, log: list[str]) -> None:
        self.log = log
        self.closed = False
        self.sent = 0

    async def process(self, frame: OutputAudioFrame) -> None:
        if self.closed:
            self.log.append("sent after the close")
        self.sent += 1
        await asyncio.sleep(0.02)

    async def stop(self) -> None:
        self.closed = True
        self.log.append("line closed")


class Recorder(Processor):
    """Works in a thread."""

    async def process(self, frame: TextFrame) -> None:
        await self.run_blocking(len, frame.text)


@pytest.mark.parametrize("stubborn", [False, True])
def test_b13_a_cancel_in_mid_speech_leaves_nothing_running(stubborn: bool, caplog: pytest.LogCaptureFixture) -> None:
    """Fifty calls: run() returns within two seconds, nothing is sent after the close, nothing runs on, nothing is logged."""
    leftovers: list[tuple[int, int]] = []

    async def call() -> None:
        log: list[str] = []
        filler, voice, line = Filler(), Reconnecting(log, stubborn=stubborn), Line(log)
        pipeline = Pipeline([Tool(log) >> voice, filler]) >> line
        session = Session(Pipeline([pipeline, Recorder()]), inputs=[TranscriptFrame, SayFrame, TextFrame])
        running = asyncio.ensure_future(session.run())
        await asyncio.sleep(0)
        await session.started()
        for frame in (TranscriptFrame("look it up"), SayFrame("one moment"), TextFrame("record this")):
            session.send_nowait(frame)
        await asyncio.sleep(1.0)
        assert line.sent > 40
        assert voice.tries == 4
        began = session.time()
        session.cancel()
        await running
        assert session.time() - began <= 2.0
        assert sorted(log) == ["line closed", "tool over", "voice closed"]
        sent, tries = line.sent, voice.tries
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualClockLoop)
        steps = loop.steps
        await asyncio.sleep(60)
        assert (line.sent, voice.tries, filler.sent) == (sent, tries, filler.sent)
        leftovers.append((loop.steps - steps, len(asyncio.all_tasks())))

    async def main() -> None:
        async with no_leaks():
            for _ in range(50):
                await call()

    run_virtual(main())
    assert set(leftovers) == {leftovers[0]}
    steps, tasks = leftovers[0]
    assert steps <= 3  # the minute's own sleep: no loop spins on
    assert tasks == 1
    news = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    assert [text for text in news if "held the event loop" not in text] == []  # a busy machine may hold it


async def test_b13_a_node_that_will_not_be_torn_down_is_named_and_the_call_is_over() -> None:
    """Even a library that cannot be cancelled does not keep run() from returning, within the session's deadlines."""
    release = asyncio.Event()

    class Immortal(Reconnecting):
        async def connect(self) -> None:
            while not release.is_set():
                with contextlib.suppress(asyncio.CancelledError):
                    await release.wait()

    log: list[str] = []
    session = Session(Immortal(log, stubborn=True) >> Line(log), inputs=[SayFrame], options=SessionOptions(stop_timeout_s=1.0))
    asyncio.get_running_loop().call_later(1.0, session.cancel)
    with pytest.raises(ExceptionGroup) as caught:
        await session.run()
    assert [str(e) for e in caught.value.exceptions] == ["Immortal: its task 'Immortal/connect' did not end within 1 s of being cancelled"]
    assert asyncio.get_running_loop().time() == pytest.approx(2.0)
    release.set()
    await asyncio.sleep(0.1)
