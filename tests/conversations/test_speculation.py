"""Replies begun on a guess: the same conversations as without, sooner; and of a wrong guess nothing is left.

Over the shipped scenes, in virtual time, with scripted services (a final transcript 250 ms after the detector, a first
token after 350 ms, first sound after 150 ms), from the end of the caller's words to the first sound of the answer:

    ========================  ======  ======  ======
    speculation                median    mean     p95
    ========================  ======  ======  ======
    none                      1020 ms 1046 ms 1310 ms
    the model works ahead      770 ms  846 ms 1200 ms
    the voice does as well     770 ms  843 ms 1050 ms
    ========================  ======  ======  ======

with 19 wrong guesses in 61 answers. The scripted recogniser's last partial transcript often lacks the last word.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from statistics import mean
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from voiceflow import ContextFrame, Frame, Message, Pipeline, Processor, SayFrame, Session, SessionOptions, ToolCall, TurnEnded
from voiceflow.frames import ToolResultFrame, ToolsDone, ToolStarted
from voiceflow.processors.context import Context
from voiceflow.processors.end_policies import Silence
from voiceflow.processors.idle import Idle
from voiceflow.processors.speculation import ReplyDecided, Speculation, TurnProbable, TurnResumed
from voiceflow.processors.text import Sentences
from voiceflow.processors.tool import tool
from voiceflow.processors.tools import Tools
from voiceflow.processors.turns import TurnOptions, Turns
from voiceflow.score.call import Call as ScoredCall
from voiceflow.score.call import hold_call, voice_format
from voiceflow.score.caller import CallerLine
from voiceflow.score.card import percentile
from voiceflow.score.labelled import LabelledAir
from voiceflow.score.measures import measure
from voiceflow.score.scenes import default_scenes
from voiceflow.score.scripted import LLM, STT, TTS, TURNS, reply
from voiceflow.testing import (
    Latency,
    Probe,
    RecordingSink,
    Said,
    ScriptedCaller,
    ScriptedLLM,
    ScriptedSTT,
    ScriptedTTS,
    ScriptedTurnEnd,
    ScriptedVAD,
    interrupt_everywhere,
    run_virtual,
)

from .rig import PONG, Call, SlowReports, StrictLLM, final, history_fault, partial

# ------------------------------------------------------------------------------------------ the shipped scenes


def scored(ahead: str) -> Callable[[Processor, Processor], Pipeline]:
    """The scored agent, with the gate before the voice, behind it, or nowhere."""

    def agent(source: Processor, sink: Processor) -> Pipeline:
        texts, levels, late = ([], {}, {}) if not isinstance(source, CallerLine) else (source.texts, source.levels, source.late)
        hearing = source >> ScriptedVAD(levels=levels) >> [ScriptedSTT(texts, STT, late=late), ScriptedTurnEnd(texts)]
        pipeline = hearing >> Turns(TURNS) >> Idle() >> Context("You answer the phone.") >> ScriptedLLM(reply, LLM) >> Sentences()
        if ahead == "model":
            pipeline = pipeline >> Speculation()
        pipeline = pipeline >> ScriptedTTS(TTS, numbered=True, word_s=0.3)
        if ahead == "voice":
            pipeline = pipeline >> Speculation()
        return pipeline >> sink

    return agent


@dataclass
class Scored:
    """What came of all scenes."""

    messages: dict[str, tuple[Message, ...] | None] = field(default_factory=dict)
    problems: dict[str, list[str]] = field(default_factory=dict)
    response_ms: list[int] = field(default_factory=list)


def all_scenes(ahead: str) -> Scored:
    scored_all, agent = Scored(), scored(ahead)
    for scene in default_scenes():
        call: ScoredCall = run_virtual(hold_call(agent, scene, LabelledAir, voice_format(agent)))
        figures = measure(call)
        scored_all.messages[scene.name] = call.messages
        scored_all.problems[scene.name] = list(figures.problems)
        scored_all.response_ms += figures.response_ms
    return scored_all


FASTER_THAN_THE_SCENE = "more is said while it thinks"
"""The caller adds something a second after they stopped, to an agent that does not speak yet: with speculation it does."""


def test_over_the_shipped_scenes_the_conversations_are_the_same_and_the_answers_sooner() -> None:
    """What the context holds is the same to the letter; the median answer is at least 200 ms sooner, and none of the scenes goes wrong."""
    off = all_scenes("none")
    for ahead in ("model", "voice"):
        on = all_scenes(ahead)
        assert on.messages == off.messages
        assert {name for name, problems in on.problems.items() if problems != off.problems[name]} <= {FASTER_THAN_THE_SCENE}
        assert len(on.response_ms) == len(off.response_ms) > 50
        assert (percentile(on.response_ms, 50) or 0) <= (percentile(off.response_ms, 50) or 0) - 200
        assert mean(on.response_ms) <= mean(off.response_ms) - 150


# ------------------------------------------------------------------------------------ turns that are guessed

PATIENT = TurnOptions(end=Silence(0.8))
THINKS = Latency(0.3, 0.0025)


async def says(call: Call, at: float, text: str) -> None:
    """Half a second of voice with a partial transcript in time, and a final one 0.1 s after the detector told of the end."""
    await call.until(at)
    call.begins()
    await call.until(at + 0.4)
    call.send(partial(text))
    await call.until(at + 0.6)
    call.stops()
    await call.until(at + 0.7)
    call.send(final(text))


def gated(*nodes: Processor, ahead: bool = True, **options: Any) -> Call:
    return Call(behind=[*nodes, *([Speculation()] if ahead else [])], thinks=THINKS, **options)


def test_a_right_guess_is_heard_sooner() -> None:
    """The model is asked when the voice stops; the answer comes when the turn has ended, 0.3 s sooner, and there is one."""

    async def main(*, ahead: bool) -> tuple[list[float], float, tuple[Message, ...]]:
        async with gated(ahead=ahead, turns=PATIENT) as call:
            await says(call, 1.0, "When do you open?")
            heard_at = await call.first_sound()
            await call.until(4.0)
            assert call.heard() == PONG.split()
            await call.alive()
            return call.model.asked_at[:1], heard_at, call.messages

    (off_asked, off_heard, off), (on_asked, on_heard, on) = run_virtual(main(ahead=False)), run_virtual(main(ahead=True))
    assert off == on
    assert (off_asked, on_asked) == ([pytest.approx(2.2)], [pytest.approx(1.6)])
    assert on_heard == pytest.approx(off_heard - 0.3, abs=0.02)
    assert on_heard >= 2.2, "not before the turn has ended"


def test_a_caller_who_goes_on_hears_nothing_of_a_guess() -> None:
    """The pause was none: one answer, to all of it, and the context knows of no other."""

    async def main() -> None:
        async with gated(turns=PATIENT) as call:
            await says(call, 1.0, "I would like")
            await says(call, 2.0, "a table for four")
            await call.until(5.0)
            assert call.said("user") == ["I", "would", "like", "a", "table", "for", "four"]
            assert [request[-1].text for request in call.model.requests] == ["I would like", "I would like a table for four"]
            assert call.heard() == call.said() == PONG.split()
            assert [stop.at for stop in call.session.interruptions] == [pytest.approx(2.0)], "the model is stopped as soon as they go on"
            assert [frame.text for frame in call.turn_log if isinstance(frame, TurnEnded)] == ["I would like a table for four"]
            await call.alive()

    run_virtual(main())


def test_other_words_in_the_end_are_another_request() -> None:
    """The recogniser thought better of it: the reply is to what was said in truth."""

    async def main() -> None:
        async with gated(turns=PATIENT) as call:
            await call.until(1.0)
            call.begins()
            await call.until(1.4)
            call.send(partial("cancel it"))
            await call.until(1.6)
            call.stops()
            await call.until(2.5)
            call.send(final("Don't cancel it."))
            await call.until(5.0)
            assert [request[-1].text for request in call.model.requests] == ["cancel it", "Don't cancel it."]
            assert call.heard() == call.said() == PONG.split()
            await call.alive()

    run_virtual(main())


def test_nothing_is_guessed_while_the_agent_can_be_heard() -> None:
    """What is being said is not cut by a guess that comes to nothing."""

    async def main() -> None:
        async with Call(behind=[Speculation()], turns=None, inputs=[TurnProbable, TurnResumed]) as call:
            await call.until(0.1)
            call.send(SayFrame("one two three four five six seven eight."))
            await call.until(0.4)
            call.send(TurnProbable(text="stop"))
            await call.until(0.5)
            call.send(TurnResumed())
            await call.until(3.0)
            assert call.model.requests == []
            assert len(call.heard()) == 8
            await call.alive()

    run_virtual(main())


def test_what_was_sent_meanwhile_is_in_the_request() -> None:
    """The same words, but the conversation is another one by now: the reply is begun anew."""

    async def main() -> None:
        async with Call(behind=[Speculation()], turns=None, inputs=[TurnProbable, TurnResumed]) as call:
            await call.until(0.1)
            call.send(TurnProbable(text="when is it due"))
            await call.until(0.2)
            call.context.add_user("order 7")
            call.send(TurnEnded(text="when is it due"))
            await call.until(3.0)
            assert [request[-1].text for request in call.model.requests] == ["when is it due", "order 7 when is it due"]
            assert call.heard() == call.said() == PONG.split()
            await call.alive()

    run_virtual(main())


def test_nothing_is_guessed_while_the_agent_thinks() -> None:
    """A reply that is asked for is not cut by a guess that comes to nothing."""

    async def main() -> None:
        async with gated(turns=None, inputs=[TurnProbable, TurnResumed]) as call:
            await call.until(0.1)
            call.send(TurnEnded(text="when"))
            await call.until(0.2)
            call.send(TurnProbable(text="when please", continues=True))
            await call.until(0.25)
            call.send(TurnResumed())
            await call.until(3.0)
            assert call.heard() == call.said() == PONG.split()
            assert len(call.model.requests) == 1
            await call.alive()

    run_virtual(main())


def test_late_reports_find_their_place_across_a_dropped_guess() -> None:
    """What was heard before an interrupt, and is told after a guess was dropped as well, stands before what the interrupt cut."""

    async def main() -> None:
        slow = SlowReports(0.3)
        async with Call(behind=[Speculation()], ahead=[slow], turns=None, inputs=[TurnProbable, TurnResumed]) as call:
            await call.until(0.1)
            call.send(SayFrame("one two."), SayFrame("three four five six seven."))
            await call.until(0.57)
            call.session.interrupt("from elsewhere")
            await call.until(0.58)
            call.send(TurnProbable(text="when"))
            await call.until(0.59)
            call.send(TurnResumed())
            await call.until(6.0)
            assert len(call.model.requests) == 1
            assert len(call.session.interruptions) == 2
            assert call.said() == call.heard() == ["one", "two.", "three", "four"]

    run_virtual(main())


@pytest.mark.parametrize("right", [True, False])
def test_what_begins_to_be_heard_beside_a_guess_is_heard_out(right: bool) -> None:
    """A notice on its way when the guess was made is not cut, whatever comes of the guess; and the turn is answered once."""

    async def main() -> None:
        async with Call(behind=[Speculation()], turns=None, inputs=[TurnProbable, TurnResumed]) as call:
            await call.until(0.1)
            call.send(SayFrame("one two three four five six seven eight."), TurnProbable(text="when"))
            await call.until(0.5)
            assert len(call.heard()) >= 2
            assert len(call.model.requests) == 1
            call.send(TurnEnded(text="When?" if right else "when do you open"))
            await call.until(4.0)
            assert call.heard()[:8] == ["one", "two", "three", "four", "five", "six", "seven", "eight."]
            assert call.heard()[8:] == PONG.split()
            assert call.heard() == call.said()
            assert call.session.interruptions == ()
            await call.alive()

    run_virtual(main())


def test_a_call_that_ends_beside_a_guess_ends_at_once() -> None:
    """Nobody waits for a guess that nothing will come of, and what was said before is heard out."""

    async def main() -> float:
        async with Call(behind=[Speculation()], turns=None, inputs=[TurnProbable, TurnResumed]) as call:
            await call.until(0.1)
            call.send(SayFrame("one two three."), TurnProbable(text="when"))
            await call.until(0.15)
            assert len(call.model.requests) == 1
        assert call.heard() == ["one", "two", "three."]
        assert call.messages == (Message("assistant", "one two three."),)
        return asyncio.get_running_loop().time()

    assert run_virtual(main()) < 2.0


# ------------------------------------------------------------------------------------------------- tools


def booking(messages: tuple[Message, ...]) -> str | tuple[str | ToolCall, ...]:
    last = messages[-1]
    if last.role == "tool":
        return "It is done."
    return (ToolCall("a", "look_up"), ToolCall("b", "note"), "I book it.", ToolCall("c", "book"))


class Desk:
    """A pure look-up with a filler, something done again at will, and a booking; what ran, and when."""

    def __init__(self) -> None:
        self.ran: list[tuple[str, float]] = []
        self.tools = Tools([self._tool("look_up", "pure", 0.5), self._tool("note", "idempotent", 0.05), self._tool("book", "once", 0.05)])

    def _tool(self, name: str, effect: Any, seconds: float) -> Any:
        async def run() -> str:
            """Do it."""
            self.ran.append((name, asyncio.get_running_loop().time()))
            await asyncio.sleep(seconds)
            return f"{name} done"

        return tool(effect=effect, name=name, filler="One moment." if effect == "pure" else "", filler_after_ms=200)(run)

    def times(self, name: str) -> list[float]:
        return [at for ran, at in self.ran if ran == name]


def test_of_a_guess_only_pure_tools_run_and_of_a_wrong_one_nobody_hears() -> None:
    """A wrong guess leaves no call, no result and no filler; what has an effect runs once, when the turn has ended."""

    async def main() -> None:
        desk, reports = Desk(), []
        call = Call(
            booking, behind=[desk.tools, Speculation()], turns=None, inputs=[TurnProbable, TurnResumed], thinks=Latency(0.05, 0.0025)
        )
        call.session.tap(lambda frame, *_: reports.append(frame), source=desk.tools.name, target=call.context.name)
        async with call:
            await call.until(0.1)
            call.send(TurnProbable(text="a table for"))
            await call.until(1.0)
            assert [name for name, _ in desk.ran] == ["look_up"]
            call.send(TurnResumed())
            await call.until(2.0)
            assert not [r for r in reports if isinstance(r, ToolStarted | ToolResultFrame | ToolsDone)]
            assert call.messages == ()
            assert call.heard() == []
            call.send(TurnProbable(text="a table for four"))
            await call.until(3.0)
            assert len(desk.ran) == 2
            call.send(TurnEnded(text="A table for four."))
            await call.until(6.0)
            assert (len(desk.times("look_up")), len(desk.times("note")), len(desk.times("book"))) == (2, 1, 1)
            assert desk.times("note") >= [3.0]
            assert call.heard() == call.said() == ["I", "book", "it.", "It", "is", "done."], "the look-up was done: no filler"
            assert [m.text for m in call.messages if m.role == "tool"] == ["look_up done", "note done", "book done"]
            assert not history_fault(call.messages)
            await call.alive()

    run_virtual(main())


Turn = tuple[str, tuple[tuple[float, str], ...], float]
TURNS_OF_A_CALL = st.lists(
    st.tuples(
        st.sampled_from(["book it", "a table for four", "when"]),
        st.lists(st.tuples(st.floats(0.0, 0.7), st.sampled_from(["book it", "a table", "a table for four", "when", ""])), max_size=3).map(
            tuple
        ),
        st.floats(0.0, 0.7),
    ),
    min_size=1,
    max_size=3,
)


def held(turns: list[Turn], *, ahead: bool) -> tuple[tuple[Message, ...], list[str]]:
    """A call with these turns, each with its guesses ("" takes the last one back); its context, and what was done with effect."""

    async def main() -> tuple[tuple[Message, ...], list[str]]:
        desk = Desk()
        behind = [desk.tools, Speculation()] if ahead else [desk.tools]
        async with Call(booking, behind=behind, turns=None, inputs=[TurnProbable, TurnResumed], thinks=Latency(0.05, 0.0025)) as call:
            for text, guesses, last_s in turns:
                for after_s, guess in guesses:
                    await asyncio.sleep(after_s)
                    call.send(TurnProbable(text=guess) if guess else TurnResumed())
                await asyncio.sleep(last_s)
                call.send(TurnEnded(text=text))
                await asyncio.sleep(4.0)
            spoken = [word for word in call.heard() if word not in ("One", "moment.")]
            assert spoken == ["I", "book", "it.", "It", "is", "done."] * len(turns)
            filler = [word for word in call.said() if word in ("One", "moment.")]
            assert len(filler) == len(call.heard()) - len(spoken)
            # Whether a filler was due depends on how soon it is done; all else must be the same.
            messages = tuple(message for message in call.messages if message.text != "One moment.")
            return messages, [name for name, _ in desk.ran if name != "look_up"]

    return run_virtual(main())


@settings(max_examples=40, deadline=None)
@given(TURNS_OF_A_CALL)
@example([("when", ((0.0, "when"), (0.3, "when")), 0.0), ("when", ((0.1, "when"), (0.1, ""), (0.0, "when")), 0.5)])
def test_with_and_without_speculation_the_same_is_said_and_done(turns: list[Turn]) -> None:
    """Whatever was guessed and taken back: the context and the effects are those of a call without."""
    assert held(turns, ahead=True) == held(turns, ahead=False)


# ---------------------------------------------------------------------------------------- in any order

WORDS = ("when do you open", "book it", "no")
STEPS = st.lists(
    st.tuples(
        st.integers(0, 600).map(lambda ms: ms / 1000 + 0.00037),  # never at the very edge of what counts as heard of a word
        st.one_of(
            st.sampled_from(WORDS).map(lambda text: TurnProbable(text=text)),
            st.sampled_from(WORDS).map(lambda text: TurnEnded(text=text)),
            st.just(TurnResumed()),
            st.just(SayFrame("by the way.")),
            st.none(),
        ),
    ),
    max_size=12,
)


@pytest.mark.parametrize("place", ["behind", "ahead"])
def test_in_any_order_only_what_counts_is_heard_and_kept(place: str) -> None:
    """Guesses, ends of turns, resumed speech, notices and interrupts in any order and at any time.

    What was heard is what the context holds, and is of replies that count; each turn has one such reply, to its own words.
    """

    @settings(max_examples=100, deadline=None)
    @given(STEPS)
    def check(steps: list[tuple[float, Frame | None]]) -> None:
        run_virtual(main(steps))

    async def main(steps: list[tuple[float, Frame | None]]) -> None:
        decided: list[ReplyDecided] = []
        asked: dict[int, str] = {}

        def see(frame: Frame, source: str, target: str) -> None:
            if isinstance(frame, ReplyDecided) and source == call.context.name:
                decided.append(frame)
            elif isinstance(frame, ContextFrame):
                assert frame.utterance not in asked
                asked[frame.utterance] = frame.messages[-1].text

        call = Call(
            lambda messages: f"to {messages[-1].text.split()[-1]} I say so.",
            **{place: [Speculation()]},  # type: ignore[arg-type]
            turns=None,
            inputs=[TurnProbable, TurnResumed],
            thinks=Latency(0.1, 0.0025),
        )
        call.session.tap(see)
        turns = []
        async with call:
            for after_s, step in steps:
                await asyncio.sleep(after_s)
                if step is None:
                    call.session.interrupt("from elsewhere")
                else:
                    call.send(step)
                if isinstance(step, TurnEnded):
                    turns.append(step.text)
            await asyncio.sleep(3.0)
            assert call.said() == call.heard()
            right = [frame.utterance for frame in decided if frame.counts and frame.utterance]
            assert len(right) == len(set(right)) == len(turns)
            assert right == sorted(right)
            for utterance, text in zip(right, turns, strict=True):
                assert asked[utterance].endswith(text)
            assert {call.voice.utterances[run.label - 1] for run in call.ear.runs()} <= {0, *right}
            assert place == "ahead" or set(call.voice.utterances) <= {0, *right}, "nor does the voice work for nothing"
            assert call.said("user") == " ".join(turns).split()
            if steps and isinstance(steps[-1][1], TurnEnded):
                assert call.heard(right[-1]) == f"to {turns[-1].split()[-1]} I say so.".split()
            await call.alive()

    check()


# ------------------------------------------------------------------------------------ interrupted everywhere


def bookings_desk(options: SessionOptions) -> Callable[[Probe], Coroutine[Any, Any, None]]:
    """A wrong guess, a right one, its booking, and a last question that is guessed as well."""

    async def scenario(probe: Probe) -> None:
        desk, context, sink = Desk(), Context(), RecordingSink()
        model = StrictLLM(booking, Latency(0.05, 0.005))
        pipeline = context >> model >> desk.tools >> Sentences() >> ScriptedTTS() >> Speculation() >> sink
        session = Session(pipeline, inputs=[TurnEnded, TurnProbable, TurnResumed], options=options)
        probe.watch(session, sink)
        script: list[tuple[float, Frame]] = [
            (0.1, TurnProbable(text="a table")),
            (0.5, TurnResumed()),
            (0.6, TurnProbable(text="a table for four please")),
            (1.0, TurnEnded(text="A table for four, please.")),
            (5.0, TurnProbable(text="ping")),
            (5.2, TurnEnded(text="ping")),
        ]
        async with session:
            for at, frame in script:
                await asyncio.sleep(at - session.time())
                if frame == script[3][1] and sink.words() and probe.interruption is None:
                    probe.problems.append(f"heard before the turn had ended: {sink.words()}")
                await session.send(frame)
            await asyncio.sleep(1.5)
            probe.finish()
        messages = context.conversation.messages
        made = {call.id: call.name for message in messages for call in message.calls}
        told = [made[m.call_id] for m in messages if m.role == "tool" and m.text.endswith(" done")]
        if len(desk.times("book")) > 1 or told.count("book") != len(desk.times("book")):
            probe.problems.append(f"booked {desk.times('book')}, told {told}")
        if any(at < 1.0 for name, at in desk.ran if name != "look_up"):
            probe.problems.append(f"done before the turn had ended: {desk.ran}")
        if fault := history_fault(messages) or "".join(model.refused):
            probe.problems.append(fault)
        if [m.text.casefold() for m in messages if m.role == "user"] not in (
            ["a table for four, please.", "ping"], ["a table for four, please. ping"],
        ):  # fmt: skip
            probe.problems.append(f"the caller's side is {messages}")
        at = probe.interruption.at if probe.interruption else 0.0
        if at < 5.2 and sink.words()[-len(PONG.split()) :] != PONG.split():
            probe.problems.append(f"the last question was not answered: {sink.words()}")
        if probe.interruption is None and told != ["look_up", "note", "book"]:
            probe.problems.append(f"without an interrupt it told {told}")

    return scenario


@pytest.mark.parametrize("bound", [1, 256])
def test_interrupted_at_every_await_a_guess_leaves_nothing_behind(bound: int) -> None:
    """Whatever the inboxes hold: nothing done or heard early, one booking at most, its result once, each turn once in a valid history."""
    found = interrupt_everywhere(bookings_desk(SessionOptions(inbox_frames=bound, cancel_timeout_s=0.3)))
    found.check()
    assert found.tried == found.points > 150


def test_interrupted_at_every_delivery_a_guess_leaves_nothing_behind() -> None:
    """The interrupt may come from within a node, in the middle of a chain."""
    interrupt_everywhere(bookings_desk(SessionOptions(cancel_timeout_s=0.3)), at_deliveries=True).check()


def hearing(probe: Probe) -> Coroutine[Any, Any, None]:
    """The whole chain from the caller's sound: a question with a pause that is guessed to be its end, then "ping"."""

    async def scenario() -> None:
        caller = ScriptedCaller([Said(0.5, 0.8, "a table for four"), Said(1.8, 0.6, "on friday please"), Said(5.0, 0.3, "ping")], until=7.5)
        turns, context, sink = Turns(TurnOptions(end=Silence(0.9))), Context(), RecordingSink()
        model = StrictLLM(lambda messages: "It is done.", Latency(0.1, 0.005))
        ears = caller >> ScriptedVAD() >> ScriptedSTT(caller.texts, Latency(0.1)) >> turns
        session = Session(ears >> context >> model >> Sentences() >> ScriptedTTS() >> Speculation() >> sink)
        guesses: list[Frame] = []
        session.tap(lambda frame, *_: guesses.append(frame) if isinstance(frame, TurnProbable | TurnResumed) else None, source=turns.name)
        probe.watch(session, sink)
        async with session:
            await asyncio.sleep(7.2)
            probe.finish()
        words = [word for m in context.conversation.messages if m.role == "user" for word in m.text.split()]
        if words != ["a", "table", "for", "four", "on", "friday", "please", "ping"]:
            probe.problems.append(f"the caller's side is {words}")
        if fault := history_fault(context.conversation.messages) or "".join(model.refused):
            probe.problems.append(fault)
        at = probe.interruption.at if probe.interruption else 0.0
        if at < 6.2 and sink.words()[-len(PONG.split()) :] != PONG.split():
            probe.problems.append(f"the last question was not answered: {sink.words()}")
        if probe.interruption is None and [type(frame).__name__ for frame in guesses][:3] != [
            "TurnProbable",
            "TurnResumed",
            "TurnProbable",
        ]:
            probe.problems.append(f"guessed {guesses}")

    return scenario()


def test_interrupted_anywhere_in_the_whole_chain_each_word_of_the_caller_counts_once() -> None:
    """Turns that are guessed from sound, interrupted at every fifth point: nothing stale, no word lost or doubled, the last question answered."""
    found = interrupt_everywhere(hearing, every=5)
    found.check()
    assert found.tried > 50


def test_a_gate_that_is_open_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The proof can fail: without the gate a guess is heard, and its tools run."""
    monkeypatch.setattr("voiceflow.processors.speculation.Verdicts.of", lambda self, utterance: True)
    with pytest.raises(AssertionError, match="without any interrupt"):
        interrupt_everywhere(bookings_desk(SessionOptions(cancel_timeout_s=0.3)), stop_after_problems=1).check()
