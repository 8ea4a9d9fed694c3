from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from voiceflow import (
    CallerIdle,
    ContextFrame,
    Frame,
    Heard,
    LLMEnded,
    LLMStarted,
    LLMTextFrame,
    PlaybackStarted,
    PlaybackStopped,
    Processor,
    SayFrame,
    Session,
    SpeechStarted,
    SpeechStopped,
    ToolCall,
    ToolResultFrame,
    ToolStarted,
    TurnEnded,
    TurnStarted,
)
from voiceflow.processors.context import Context
from voiceflow.processors.idle import Idle, IdleOptions, IdleTimer
from voiceflow.processors.text import Sentences
from voiceflow.processors.turns import Turns
from voiceflow.testing import (
    Latency,
    RecordingSink,
    Said,
    ScriptedCaller,
    ScriptedLLM,
    ScriptedSTT,
    ScriptedTTS,
    ScriptedVAD,
    check_processor,
    run_virtual,
)

CALL = ToolCall("c1", "look_up")


def signal(what: str, now: float) -> Any:
    """S and E speech, T a turn begins, `t words` it ends, > and < the agent is heard (with say: unasked), tool, result."""
    kind, _, rest = what.partition(" ")
    match kind:
        case "S":
            return SpeechStarted(at=now)
        case "E":
            return SpeechStopped(at=now)
        case "T":
            return TurnStarted()
        case "t":
            return TurnEnded(text=rest)
        case ">":
            return PlaybackStarted(utterance=1, at=now)
        case "<":
            return PlaybackStopped(heard=Heard(1, "hello", complete=True), at=now)
        case "say>":
            return PlaybackStarted(utterance=0, at=now)
        case "say<":
            return PlaybackStopped(heard=Heard(0, "hello", complete=True), at=now)
        case "tool":
            return ToolStarted(call=CALL, utterance=1)
        case "result":
            return ToolResultFrame(call=CALL, text="42", utterance=1)
    raise AssertionError(what)


def idle_at(*script: tuple[float, str], until: float = 30.0, options: IdleOptions | None = None) -> list[tuple[float, int]]:
    """When the timer fires, and with which count."""
    timer = IdleTimer(options or IdleOptions(idle_s=2.0))
    timer.start(0.0)
    fired = []
    for at, what in [*script, (until, "")]:
        for _ in range(200):
            due = timer.deadline
            if due is None or due > at:
                break
            if (event := timer.tick(due)) is not None:
                fired.append((round(due, 3), event.count))
        else:
            raise AssertionError("the timer asks again and again")
        if what == "interrupt":
            timer.interrupted(at)
        elif what == "prompt":
            timer.prompted(at)
        elif what:
            timer.step(signal(what, at), at)
    return fired


B53: dict[str, tuple[list[tuple[float, str]], list[tuple[float, int]]]] = {
    "a, b: the agent is heard for 6 s, however fast its sound was made": ([(0.1, ">"), (6.1, "<")], [(8.1, 1)]),
    "c: the caller speaks for 5 s": ([(0.5, "S"), (0.5, "T"), (5.5, "E"), (6.0, "t so long"), (7.0, ">"), (8.0, "<")], [(10.0, 1)]),
    "c: and nobody takes it for a turn": ([(0.5, "S"), (5.5, "E")], [(7.0, 1)]),
    "d: a tool runs for 4 s": ([(0.5, ">"), (0.6, "tool"), (1.0, "<"), (4.6, "result"), (5.0, ">"), (6.0, "<")], [(8.0, 1)]),
    "e: a noise": ([(0.1, ">"), (1.0, "<"), (1.5, "S"), (1.5, "T"), (1.9, "E"), (3.6, "t ")], [(3.6, 1)]),
    "e: a noise early enough": ([(0.1, ">"), (1.0, "<"), (1.1, "S"), (1.1, "T"), (1.3, "E"), (1.6, "t ")], [(3.2, 1)]),
    "e: noise again and again": (
        [step for n in range(8) for step in ((1.0 + n, "S"), (1.0 + n, "T"), (1.5 + n, "E"), (1.7 + n, "t "))],
        [(3.0, 1)],
    ),
    "e: a noise that never ends": ([(1.0, "S")], [(32.0, 1)]),
    "f: silence after the agent": ([(0.1, ">"), (1.0, "<")], [(3.0, 1)]),
    "f: silence from the beginning": ([], [(2.0, 1)]),
    "a reply is thought of": ([(0.5, "T"), (1.0, "t hello"), (9.0, ">"), (10.0, "<")], [(12.0, 1)]),
    "a reply that never comes": ([(0.5, "T"), (1.0, "t hello")], [(18.0, 1)]),
    "a filler while it is thought of": ([(0.5, "T"), (1.0, "t hi"), (2.0, "say>"), (3.0, "say<"), (9.0, ">"), (9.5, "<")], [(11.5, 1)]),
    "the agent is interrupted": ([(0.5, ">"), (1.0, "interrupt")], [(3.0, 1)]),
    "prompted, and silent again": ([(2.5, "prompt"), (3.0, "say>"), (4.0, "say<")], [(2.0, 1), (6.0, 2)]),
    "prompted, but the voice fails": ([(2.5, "prompt")], [(2.0, 1), (19.5, 2)]),
    "a caller who spoke is new": (
        [(2.5, "prompt"), (3.0, "say>"), (4.0, "say<"), (5.0, "T"), (5.5, "t here"), (6.0, ">"), (7.0, "<")],
        [(2.0, 1), (9.0, 1)],
    ),
    "a turn under way, held open from outside": ([(0.5, "T"), (9.0, "t ")], [(9.0, 1)]),
}


@pytest.mark.parametrize("name", B53)
def test_only_silence_counts(name: str) -> None:
    """The timer stands while anybody is at work, fires once in each silence, and no noise stops it for ever."""
    script, expected = B53[name]
    assert idle_at(*script, until=60.0) == expected


@given(
    steps=st.lists(
        st.tuples(
            st.floats(0.0, 2.5),
            st.sampled_from(["S", "E", "T", "t ", "t hello", ">", "<", "say>", "say<", "tool", "result", "interrupt", "prompt"]),
        ),
        max_size=30,
    )
)
@settings(deadline=None, max_examples=300)
def test_any_order_of_signals_ends_in_one_event(steps: list[tuple[float, str]]) -> None:
    """Never sooner than idle_s after the last sign of anybody, and always in the end."""
    now, script = 0.0, []
    for gap, what in steps:
        now += gap
        script.append((now, what))
    close = [(now, "E"), (now, "t "), (now, "result"), (now, "<"), (now, "say<")]
    fired = idle_at(*script, *close, until=now + 60.0)
    assert fired
    assert all(later - sooner >= 2.0 - 1e-6 for (sooner, _), (later, _) in pairwise(fired))
    last_heard = max(
        [at for at, what in script + close if what in ("<", "say<", ">", "say>", "result", "interrupt", "prompt")], default=0.0
    )
    assert fired[-1][0] >= last_heard + 2.0 - 1e-3


@pytest.mark.parametrize(
    ("change", "field"),
    [({"idle_s": 0.0}, "idle_s"), ({"prompts": ("hello", " ")}, r"prompts\[1\]"), ({"reply_timeout_s": -1.0}, "reply_timeout_s")],
)
def test_options_out_of_range_name_the_field(change: dict[str, Any], field: str) -> None:
    """A wrong option is refused by name."""
    with pytest.raises(ValueError, match=field):
        IdleOptions(**change)


# --------------------------------------------------------------------------------------------------- the node


class Call:
    """A conversation on the virtual clock, with Idle behind Turns."""

    def __init__(self, script: list[Said], options: IdleOptions, *, until: float, llm: Processor | None = None) -> None:
        caller = ScriptedCaller(script, until=until)
        self.vad, self.sink, self.idle = ScriptedVAD(), RecordingSink(), Idle(options)
        stt = ScriptedSTT(caller.texts, Latency(0.1))
        thinker = llm or ScriptedLLM(lambda messages: "We open at nine.", Latency(0.2, 0.01))
        self.pipeline = (
            caller >> self.vad >> stt >> Turns() >> self.idle >> Context() >> thinker >> Sentences() >> ScriptedTTS() >> self.sink
        )
        self.pipeline.link(self.vad, self.pipeline.nodes[3])
        self.events: list[tuple[float, CallerIdle]] = []
        self.said: list[tuple[float, str]] = []

    def run(self) -> Call:
        async def main() -> None:
            session = Session(self.pipeline)
            session.tap(self.note, source=self.idle.name)
            self.time = session.time
            await session.run()
            self.ended_at = session.time()
            self.heard = [(played.at, played.until) for played in self.sink.heard()]

        run_virtual(main())
        return self

    def note(self, frame: Frame, source: str, target: str) -> None:
        if isinstance(frame, SayFrame):
            self.said.append((self.time(), frame.text))


class Watch(Processor):
    """Keeps the events, behind Idle."""

    def __init__(self) -> None:
        self.events: list[tuple[float, CallerIdle]] = []

    def process(self, frame: CallerIdle) -> None:
        self.events.append((self.session.time(), frame))


def test_a_silent_caller_is_asked_and_then_told_goodbye() -> None:
    """Prompts come in their turn, each after a whole silence; the goodbye is heard to its end, and the call ends by itself."""
    options = IdleOptions(idle_s=2.0, prompts=("Are you there?", "Can you hear me?"), goodbye="I will hang up now. Goodbye.")
    call = Call([Said(0.5, 1.0, "what time do you open")], options, until=60.0).run()
    assert [text for _, text in call.said] == ["Are you there?", "Can you hear me?", "I will hang up now. Goodbye."]
    silences = [later - sooner for (_, sooner), (later, _) in pairwise(call.heard) if later - sooner > 0.5]
    assert silences == [pytest.approx(2.1, abs=0.15)] * 3
    assert call.heard[-1][1] == pytest.approx(call.ended_at, abs=0.5)
    assert call.ended_at < 20.0


def test_the_event_reaches_the_nodes_behind() -> None:
    """CallerIdle goes down the pipeline with its count; without prompts it comes once in a silence."""
    call, watch = Call([Said(0.5, 1.0, "hello there")], IdleOptions(idle_s=2.0), until=20.0), Watch()
    call.pipeline.link(call.idle, watch)
    call.run()
    assert [event.count for _, event in watch.events] == [1]
    assert watch.events[0][1].idle_s == pytest.approx(2.0, abs=0.01)
    assert watch.events[0][0] == pytest.approx(call.heard[-1][1] + 2.0, abs=0.1)


def test_a_cancelled_call_leaves_no_event() -> None:
    """Armed or not, nothing comes after the end."""
    call, watch = Call([], IdleOptions(idle_s=2.0, prompts=("Hello?",)), until=60.0), Watch()
    call.pipeline.link(call.idle, watch)

    async def main() -> None:
        async with Session(call.pipeline) as session:
            session.cancel()

    run_virtual(main())
    assert watch.events == []


class SlowTool(Processor):
    """A model whose one tool takes 4 s."""

    async def process(self, frame: ContextFrame) -> AsyncIterator[LLMStarted | LLMTextFrame | LLMEnded | ToolStarted | ToolResultFrame]:
        """One reply: a tool, then its text."""
        yield ToolStarted(call=CALL, utterance=frame.utterance)
        await asyncio.sleep(4.0)
        yield ToolResultFrame(call=CALL, text="42", utterance=frame.utterance)
        yield LLMStarted(utterance=frame.utterance)
        yield LLMTextFrame("It is forty two.", utterance=frame.utterance)
        yield LLMEnded(utterance=frame.utterance)


def test_a_running_tool_is_no_silence() -> None:
    """B53 (d): no event before 2 s after the answer was heard."""
    call, watch = Call([Said(0.5, 1.0, "what is it")], IdleOptions(idle_s=2.0), until=20.0, llm=SlowTool()), Watch()
    call.pipeline.link(call.idle, watch)
    call.run()
    assert [at for at, _ in watch.events] == [pytest.approx(call.heard[-1][1] + 2.0, abs=0.1)]


def test_idle_passes_the_conformance_kit() -> None:
    """Strangers pass, interrupts leave nothing behind, slow and failing neighbours change nothing."""
    check_processor(
        lambda: Idle(IdleOptions(idle_s=3600.0)), [SpeechStarted(at=0.0), SpeechStopped(at=0.5), TurnEnded(text="hello")], pause_s=20.0
    )
