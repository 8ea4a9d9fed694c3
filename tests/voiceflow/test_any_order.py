"""Whatever an application does, in whatever order: nothing stale is processed, run() returns, nothing is left behind."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from voiceflow import (
    ContextFrame,
    EndFrame,
    ErrorFrame,
    Frame,
    InputAudioFrame,
    InterruptFrame,
    Interruption,
    Lane,
    LLMTextFrame,
    NodeError,
    OutputAudioFrame,
    PlaybackStarted,
    Processor,
    SayFrame,
    SentenceFrame,
    Session,
    SessionError,
    SessionOptions,
    StartFrame,
    TranscriptFrame,
)
from voiceflow.testing import run_virtual


class Call:
    """What the nodes of one call share: what went wrong, and how many failures are still to come."""

    def __init__(self) -> None:
        self.wrong: list[str] = []
        self.to_fail = 0
        self.finals: list[str] = []

    def check(self, node: Processor, frame: Frame) -> None:
        if frame.lane is Lane.AGENT and frame.epoch != node.session.epoch:
            self.wrong.append(f"{node} was given a stale {frame}")
        if node.session.state == "ended":
            self.wrong.append(f"{node} was given {frame} after the end")
        if self.to_fail > 0 and not isinstance(frame, InputAudioFrame | StartFrame | EndFrame):
            self.to_fail -= 1
            raise ValueError("as asked")


class Node(Processor):
    def __init__(self, call: Call) -> None:
        self.call = call
        self.state = "new"

    async def start(self) -> None:
        assert self.state == "new"
        self.state = "starting"
        await asyncio.sleep(0.05)
        self.state = "started"

    async def stop(self) -> None:
        assert self.state in ("starting", "started")
        self.state = "stopped"
        await asyncio.sleep(0.01)


class Mic(Node):
    async def run(self) -> AsyncIterator[InputAudioFrame]:
        for number in range(60):
            await asyncio.sleep(0.02)
            yield InputAudioFrame(b"", 16000, pts=float(number))


class Errors(Node):
    def process(self, frame: ErrorFrame | PlaybackStarted) -> None: ...


class Stt(Node):
    async def process(self, frame: InputAudioFrame | EndFrame) -> TranscriptFrame | None:
        self.call.check(self, frame)
        await asyncio.sleep(0.005)
        if isinstance(frame, EndFrame) or not frame.pts or frame.pts % 20:
            return None
        return TranscriptFrame(f"{frame.pts:g}")


class Turns(Node):
    def process(self, frame: TranscriptFrame) -> list[InterruptFrame | ContextFrame]:
        self.call.finals.append(frame.text)
        self.call.check(self, frame)
        return [InterruptFrame(reason="turn"), ContextFrame()]


class Llm(Node):
    async def process(self, frame: ContextFrame) -> AsyncIterator[LLMTextFrame]:
        self.call.check(self, frame)
        for number in range(8):
            await asyncio.sleep(0.02)
            yield LLMTextFrame(f"{number}. ")

    async def on_interrupt(self, interrupt: Interruption) -> None:  # type: ignore[override]
        await asyncio.sleep(0.03)


class Sentences(Node):
    def __init__(self, call: Call) -> None:
        super().__init__(call)
        self.kept = ""

    def process(self, frame: LLMTextFrame | EndFrame) -> SentenceFrame | None:
        if isinstance(frame, EndFrame):
            return SentenceFrame(self.kept) if self.kept else None
        self.call.check(self, frame)
        self.kept, text = frame.text, self.kept
        return SentenceFrame(text) if text else None

    def on_interrupt(self, interrupt: Interruption) -> Awaitable[object] | None:
        self.kept = ""
        return None


class Tts(Node):
    stubborn = False

    async def process(self, frame: SentenceFrame | SayFrame) -> AsyncIterator[OutputAudioFrame]:
        self.call.check(self, frame)
        for _ in range(4):
            try:
                await asyncio.sleep(0.03)
            except asyncio.CancelledError:
                if not self.stubborn:
                    raise
            yield OutputAudioFrame(bytes(960), 24000)


class StubbornTts(Tts):
    stubborn = True


class Speaker(Node):
    async def process(self, frame: OutputAudioFrame) -> PlaybackStarted:
        self.call.check(self, frame)
        await asyncio.sleep(0.02)
        return PlaybackStarted()


ACTS = [
    "interrupt",
    "end",
    "cancel",
    "cancel run()",
    "say",
    "flood",
    "hold",
    "resume",
    "fail",
    "fail often",
    "new stt",
    "new llm",
    "new tts",
]


@settings(max_examples=120, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 400), st.sampled_from(ACTS)), max_size=8),
    st.sampled_from([1, 3, 256]),
)
def test_whatever_is_done_in_whatever_order(script: list[tuple[int, str]], bound: int) -> None:
    """Interrupts, ends, exchanges, floods and failures at any time, of a talking graph with one stubborn node."""
    call = Call()

    async def main() -> None:
        mic, stt, llm, tts = Mic(call), Stt(call), Llm(call), StubbornTts(call)
        pipeline = Errors(call) >> mic >> stt >> Turns(call) >> llm >> Sentences(call) >> tts >> Speaker(call)
        options = SessionOptions(inbox_frames=bound, inbox_audio_s=0.02 * bound, end_timeout_s=30, max_failures=8)
        session = Session(pipeline, inputs=[SayFrame], options=options)
        nodes: dict[str, Processor] = {"stt": stt, "llm": llm, "tts": tts}
        made: list[Node] = []
        exchanges: list[asyncio.Future[None]] = []
        running = asyncio.ensure_future(session.run())

        async def exchange(kind: str) -> None:
            new: Node = {"stt": Stt, "llm": Llm, "tts": Tts}[kind](call)
            made.append(new)
            with contextlib.suppress(SessionError, NodeError):
                old = nodes[kind]
                await session.replace(old, new, timeout_s=0.5)
                nodes[kind] = new

        def fail(count: int) -> None:
            call.to_fail = count

        acts: dict[str, Callable[[], object]] = {
            "interrupt": session.interrupt,
            "end": session.end,
            "cancel": session.cancel,
            "cancel run()": running.cancel,
            "say": lambda: session.send_nowait(SayFrame("hello")),
            "flood": lambda: [session.send_nowait(SayFrame(str(n))) for n in range(20)],
            "hold": session.hold,
            "resume": session.resume,
            "fail": lambda: fail(1),
            "fail often": lambda: fail(60),
        }
        for pause_ms, act in script:
            await asyncio.sleep(pause_ms / 1000)
            if act.startswith("new "):
                exchanges.append(asyncio.ensure_future(exchange(act.removeprefix("new "))))
            else:
                with contextlib.suppress(SessionError):
                    acts[act]()
        await asyncio.sleep(3)
        session.end()
        [outcome] = await asyncio.gather(running, return_exceptions=True)
        acted = {act for _, act in script}
        if isinstance(outcome, asyncio.CancelledError):
            assert "cancel run()" in acted
        elif isinstance(outcome, ExceptionGroup):
            assert all("failed 8 times in a row" in str(error) for error in outcome.exceptions), outcome.exceptions
            assert "fail often" in acted
        else:
            assert outcome is None
        await asyncio.gather(*exchanges, return_exceptions=True)
        assert {node.state for node in [mic, stt, llm, tts, *made]} <= {"new", "stopped"}
        await asyncio.sleep(10)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run_virtual(main())
    assert call.wrong == []
    assert call.finals == [f"{n}" for n in (20, 40)][: len(call.finals)]
    if not {act for _, act in script} & {"end", "cancel", "cancel run()", "fail often"}:
        assert call.finals == ["20", "40"]
