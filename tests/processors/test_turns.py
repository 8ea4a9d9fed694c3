from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace as with_option
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from voiceflow import (
    Frame,
    Heard,
    HoldFrame,
    InterruptFrame,
    Message,
    PlaybackStarted,
    PlaybackStopped,
    ResumeFrame,
    Session,
    SpeechStarted,
    SpeechStopped,
    TranscriptFrame,
    TurnEnded,
    TurnScored,
    TurnStarted,
)
from voiceflow.processors.context import Context
from voiceflow.processors.text import Sentences
from voiceflow.processors.turn_options import is_backchannel
from voiceflow.processors.turns import BACKCHANNELS, State, TurnMachine, TurnOptions, Turns
from voiceflow.testing import (
    Latency,
    Probe,
    RecordingSink,
    Said,
    ScriptedCaller,
    ScriptedLLM,
    ScriptedSTT,
    ScriptedTTS,
    ScriptedVAD,
    check_processor,
    interrupt_everywhere,
    run_virtual,
)

VAD_START_S = 0.1
VAD_STOP_S = 0.2

# One letter for each signal, so that an order of events is a line: see `signal`.
HEARD_WORDS = "we open at"


def signal(what: str, now: float) -> Any:
    """S speech begins, E it has ended, `i words` partial, `f words` final, `p 0.8` score, > and < playback, <! cut short."""
    kind, _, rest = what.partition(" ")
    match kind:
        case "S":
            return SpeechStarted(at=now - VAD_START_S)
        case "E":
            return SpeechStopped(at=now - VAD_STOP_S, silence=VAD_STOP_S)
        case "i" | "f":
            return TranscriptFrame(rest, final=kind == "f")
        case "p":
            return TurnScored(probability=float(rest))
        case ">":
            return PlaybackStarted(utterance=1, at=now)
        case "<":
            return PlaybackStopped(heard=Heard(1, HEARD_WORDS, complete=True), at=now)
        case "<!":
            return PlaybackStopped(heard=Heard(1, "", complete=False), at=now)
    raise AssertionError(what)


class Play:
    """Plays signals to a machine at their times, ticks it when it asks, and carries out its interrupts."""

    def __init__(self, options: TurnOptions | None = None, *, heard: bool = False) -> None:
        self.machine = TurnMachine(options)
        self.heard = heard
        self.log: list[tuple[float, Frame]] = []

    def run(self, script: list[tuple[float, str]], until: float = 20.0) -> Play:
        for at, what in [*script, (until, "")]:
            self.pass_time(at)
            if what == "interrupt":
                self.machine.interrupted(at, heard=self.heard)
            elif what == "end":
                self.note(at, self.machine.finish(at))
            elif what:
                self.note(at, self.machine.step(signal(what, at), at))
        return self

    def pass_time(self, until: float) -> None:
        for _ in range(50):
            due = self.machine.deadline
            if due is None or due > until:
                return
            now = max(due, self.log[-1][0] if self.log else 0.0)
            self.note(now, self.machine.tick(now))
        raise AssertionError(f"the machine asks again and again: {self.machine.state}, {self.machine.deadline}")

    def note(self, now: float, decisions: list[Any]) -> None:
        for decision in decisions:
            self.log.append((now, decision))
            if isinstance(decision, InterruptFrame):
                self.machine.interrupted(now, heard=self.heard)

    def shown(self) -> list[str]:
        """`turn`, `hold`, `resume`, `interrupt`, and the text of each ended turn in quotes; with the time."""
        names = {TurnStarted: "turn", HoldFrame: "hold", ResumeFrame: "resume", InterruptFrame: "interrupt"}
        return [f"{at:.2f} " + (repr(d.text) if isinstance(d, TurnEnded) else names[type(d)]) for at, d in self.log]

    def whys(self) -> list[str]:
        return [d.reason if isinstance(d, InterruptFrame) else d.why for _, d in self.log]  # type: ignore[attr-defined]


def play(*script: tuple[float, str], options: TurnOptions | None = None, heard: bool = False, until: float = 20.0) -> list[str]:
    return Play(options, heard=heard).run(list(script), until).shown()


# ------------------------------------------------------------------------------------------ the caller's turn

ORDERS: dict[str, tuple[list[tuple[float, str]], list[str]]] = {
    # speech from 1.0 to 2.0: noticed at 1.1, its end at 2.2
    "S F E": ([(1.1, "S"), (2.1, "f open when"), (2.2, "E")], ["1.10 turn", "2.50 'open when'"]),
    "S I F E": ([(1.1, "S"), (1.5, "i open"), (2.1, "f open when"), (2.2, "E")], ["1.10 turn", "2.50 'open when'"]),
    "S I E F": ([(1.1, "S"), (1.5, "i open"), (2.2, "E"), (2.4, "f open when")], ["1.10 turn", "2.50 'open when'"]),
    "S E F late": ([(1.1, "S"), (2.2, "E"), (3.5, "f open when")], ["1.10 turn", "3.50 'open when'"]),
    "S E F with a high score": ([(1.1, "S"), (2.2, "E"), (2.22, "p 0.9"), (2.3, "f yes")], ["1.10 turn", "2.30 'yes'"]),
    "score after the final": ([(1.1, "S"), (2.2, "E"), (2.25, "f yes"), (2.3, "p 0.9")], ["1.10 turn", "2.30 'yes'"]),
    "low score": ([(1.1, "S"), (2.2, "E"), (2.25, "f I would"), (2.3, "p 0.2")], ["1.10 turn", "3.00 'I would'"]),
    "low score, then more": (
        [(1.1, "S"), (2.2, "E"), (2.25, "f I would"), (2.3, "p 0.2"), (2.8, "S"), (3.5, "E"), (3.6, "f like tea"), (3.6, "p 0.8")],
        ["1.10 turn", "3.60 'I would like tea'"],
    ),
    "score of a pause that is over": (
        [(1.1, "S"), (2.2, "E"), (2.25, "f I would"), (2.3, "S"), (2.31, "p 0.9"), (3.2, "E"), (3.3, "f like tea")],
        ["1.10 turn", "3.50 'I would like tea'"],
    ),
    "a pause inside": (
        [(1.1, "S"), (2.2, "E"), (2.3, "f a table"), (2.4, "S"), (3.2, "E"), (3.3, "f for two")],
        ["1.10 turn", "3.50 'a table for two'"],
    ),
    "first final after the second onset": (
        [(1.1, "S"), (2.2, "E"), (2.4, "S"), (2.5, "f a table"), (3.2, "E"), (3.3, "f for two")],
        ["1.10 turn", "3.50 'a table for two'"],
    ),
    "one final for two stretches": (
        [(1.1, "S"), (2.2, "E"), (2.4, "S"), (3.2, "E"), (3.3, "f a table for two")],
        ["1.10 turn", "3.50 'a table for two'"],
    ),
    "final never": (
        [(1.1, "S"), (1.5, "i open"), (1.9, "i open when"), (2.2, "E")],
        ["1.10 turn", "4.20 'open when'"],
    ),
    "final never, the partial late": ([(1.1, "S"), (2.2, "E"), (3.0, "i open when")], ["1.10 turn", "4.20 'open when'"]),
    "early final behind a missing one": (
        [(1.1, "S"), (2.2, "E"), (2.6, "S"), (3.0, "f for two"), (3.2, "E")],
        ["1.10 turn", "4.00 'for two'"],
    ),
    "early final long behind a missing one": (
        [(1.1, "S"), (2.2, "E"), (9.1, "S"), (9.5, "f for two"), (9.7, "E")],
        ["1.10 turn", "9.10 turn", "10.00 'for two'"],
    ),
    "final never, nothing partial": ([(1.1, "S"), (2.2, "E")], ["1.10 turn"]),
    "final empty": ([(1.1, "S"), (2.2, "E"), (2.4, "f ")], ["1.10 turn"]),
    "final of noise": ([(1.1, "S"), (2.2, "E"), (2.4, "f [BLANK_AUDIO]"), (2.5, "f (music) *sighs*")], ["1.10 turn"]),
    "same final twice": ([(1.1, "S"), (2.2, "E"), (2.3, "f open when"), (2.4, "f open when")], ["1.10 turn", "2.50 'open when'"]),
    "same final twice, at the end": (
        [(1.1, "S"), (2.2, "E"), (2.3, "f open when"), (2.3, "p 0.9"), (2.9, "f Open when?")],
        ["1.10 turn", "2.30 'open when'"],
    ),
    "the same word said twice": (
        [(1.1, "S"), (2.2, "E"), (2.3, "f no"), (2.4, "S"), (2.9, "E"), (3.0, "f no")],
        ["1.10 turn", "3.20 'no no'"],
    ),
    "two finals in a turn": ([(1.1, "S"), (2.2, "E"), (2.3, "f a table"), (2.45, "f for two")], ["1.10 turn", "2.50 'a table for two'"]),
    "final without speech": ([(1.0, "f yes")], ["1.00 turn", "1.50 'yes'"]),
    "final without speech, then speech": (
        [(1.0, "f yes"), (1.3, "S"), (2.2, "E"), (2.3, "f and one more thing")],
        ["1.00 turn", "2.50 'yes and one more thing'"],
    ),
    "partials alone": ([(1.0, "i yes"), (1.2, "i yes please")], []),
    "partial and final without speech": ([(1.0, "i yes"), (1.2, "f yes please")], ["1.20 turn", "1.70 'yes please'"]),
    "partial in the pause": (
        [(1.1, "S"), (2.2, "E"), (2.3, "f a table"), (2.4, "i for"), (2.9, "f for two")],
        ["1.10 turn", "2.90 'a table for two'"],
    ),
    "late partial of known words": (
        [(1.1, "S"), (2.2, "E"), (2.3, "f a table"), (2.4, "i a table")],
        ["1.10 turn", "2.50 'a table'"],
    ),
    "onset twice": ([(1.1, "S"), (1.4, "S"), (2.2, "E"), (2.3, "f yes")], ["1.10 turn", "2.50 'yes'"]),
    "end twice": ([(1.1, "S"), (2.2, "E"), (2.3, "f yes"), (2.4, "E")], ["1.10 turn", "2.50 'yes'"]),
    "end alone": ([(1.1, "E"), (1.2, "p 0.9")], []),
    "half-second answer": ([(1.1, "S"), (1.4, "E"), (1.45, "p 0.95"), (1.5, "f no")], ["1.10 turn", "1.50 'no'"]),
    "a backchannel is an answer in silence": ([(1.1, "S"), (1.4, "E"), (1.5, "f yeah")], ["1.10 turn", "1.70 'yeah'"]),
    "noise, then a turn": (
        [(1.1, "S"), (1.5, "E"), (9.1, "S"), (9.5, "f hello there"), (9.6, "E")],
        ["1.10 turn", "9.10 turn", "9.90 'hello there'"],
    ),
    "the end of the call": ([(1.1, "S"), (2.2, "E"), (2.3, "f goodbye then"), (2.35, "end")], ["1.10 turn", "2.35 'goodbye then'"]),
    "the end of the call while speaking": ([(1.1, "S"), (1.5, "i good"), (1.6, "end")], ["1.10 turn", "1.60 'good'"]),
}


@pytest.mark.parametrize("name", ORDERS)
def test_a_turn_ends_exactly_once_in_every_order_of_events(name: str) -> None:
    """Whatever order detector, recogniser and score speak in, a turn with words ends once, with each word once."""
    script, expected = ORDERS[name]
    assert play(*script) == expected


def test_b54_a_second_final_after_the_turn_replaces_the_request() -> None:
    """Words that come when the reply is already being thought of stop it; the next request holds both."""
    script = [(1.1, "S"), (2.2, "E"), (2.25, "p 0.9"), (2.3, "f what time do you open"), (2.6, "f on sunday")]
    assert play(*script) == [
        "1.10 turn",
        "2.30 'what time do you open'",
        "2.60 interrupt",
        "2.60 turn",
        "3.10 'what time do you open on sunday'",
    ]


def test_a_late_final_takes_the_place_of_the_partial_that_stood_in_for_it() -> None:
    """A turn that ended with partial words is asked again with the final ones, and not at all when they are the same."""
    ended = [(1.1, "S"), (2.0, "i what time do"), (2.2, "E")]
    assert play(*ended, (5.0, "f What time do?")) == ["1.10 turn", "4.20 'what time do'"]
    assert play(*ended, (5.0, "f what time do you open")) == [
        "1.10 turn",
        "4.20 'what time do'",
        "5.00 interrupt",
        "5.00 turn",
        "5.00 'what time do you open'",
    ]


def test_every_decision_says_why() -> None:
    """Reasons name the signal, its value, the threshold and the time that has passed."""
    played = Play().run([(1.1, "S"), (2.2, "E"), (2.3, "p 0.83"), (2.3, "f yes")])
    assert played.whys() == ["speech since 0.10 s", "score 0.83 > 0.5, 0.30 s after speech"]
    played = Play().run([(1.1, "S"), (2.2, "E"), (2.3, "p 0.3"), (2.3, "f yes")])
    assert played.whys()[-1] == "silence, 1.00 s after speech (max_silence_s 1, score 0.30)"
    played = Play().run([(1.1, "S"), (1.5, "i yes"), (2.2, "E")])
    assert played.whys()[-1] == (
        "no final transcript 2.00 s after the end of speech was told (final_timeout_s 2): the partial one 'yes' counts"
    )
    played = Play().run([(0.5, ">"), (1.1, "S")])
    assert played.whys()[:2] == ["speech since 0.10 s while the agent speaks", "speech for 0.60 s (interrupt_after_ms 600)"]
    ended = Play().run([(1.1, "S"), (2.2, "E"), (2.3, "f yes")]).log[-1][1]
    assert isinstance(ended, TurnEnded)
    assert ended.speech_ended == pytest.approx(2.0)


# ------------------------------------------------------------------------------------- speech over the agent


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        pytest.param([(1.1, "S"), (1.5, "E"), (1.6, "f ")], ["1.10 hold", "1.60 resume"], id="cough, empty final"),
        pytest.param([(1.1, "S"), (1.5, "E"), (1.6, "f Mhm.")], ["1.10 hold", "1.60 resume"], id="mhm"),
        pytest.param([(1.1, "S"), (1.5, "E"), (1.6, "f uh-huh, I see")], ["1.10 hold", "1.60 resume"], id="two backchannels"),
        pytest.param([(1.1, "S"), (1.5, "E")], ["1.10 hold", "2.70 resume"], id="cough, no transcript ever"),
        pytest.param([(1.1, "S"), (1.3, "f mhm"), (1.5, "E")], ["1.10 hold", "1.50 resume"], id="mhm, early final"),
        pytest.param([(1.1, "S"), (1.3, "i wait")], ["1.10 hold", "1.30 interrupt", "1.30 turn"], id="a partial word"),
        pytest.param([(1.1, "S")], ["1.10 hold", "1.80 interrupt", "1.80 turn"], id="long speech"),
        pytest.param([(1.1, "S"), (1.3, "i yeah")], ["1.10 hold", "2.70 interrupt", "2.70 turn"], id="a long yeah"),
        pytest.param(
            [(1.1, "S"), (1.5, "E"), (1.7, "f stop")],
            ["1.10 hold", "1.70 interrupt", "1.70 turn", "1.80 'stop'"],
            id="a short word",
        ),
        pytest.param(
            [(1.1, "S"), (1.3, "i yeah"), (1.6, "i yeah but wait"), (2.0, "E"), (2.1, "f yeah but wait")],
            ["1.10 hold", "1.60 interrupt", "1.60 turn", "2.30 'yeah but wait'"],
            id="a yeah that becomes more",
        ),
        pytest.param(
            [(1.1, "S"), (1.4, "E"), (1.5, "S"), (1.8, "E"), (1.9, "S")],
            ["1.10 hold", "2.20 interrupt", "2.20 turn"],
            id="short pieces add up",
        ),
        pytest.param(
            [(1.1, "S"), (1.5, "E"), (1.6, "f "), (4.1, "S"), (4.3, "i no")],
            ["1.10 hold", "1.60 resume", "4.10 hold", "4.30 interrupt", "4.30 turn"],
            id="a cough, later a word",
        ),
        pytest.param([(1.0, "f wait a moment")], ["1.00 interrupt", "1.00 turn", "1.50 'wait a moment'"], id="words nobody detected"),
        pytest.param([(1.0, "f yeah"), (1.2, "f mhm")], [], id="backchannels nobody detected"),
        pytest.param([(1.1, "S"), (1.3, "<")], ["1.10 hold", "1.30 resume", "1.30 turn"], id="the agent had just finished"),
        pytest.param(
            [(1.1, "S"), (1.4, "E"), (1.45, "<"), (1.6, "f yeah")],
            ["1.10 hold", "1.45 resume", "1.45 turn", "1.70 'yeah'"],
            id="the agent finished, and yeah was the answer",
        ),
        pytest.param([(1.1, "S"), (1.2, "interrupt")], ["1.10 hold", "1.20 turn"], id="interrupted from elsewhere"),
        pytest.param([(1.1, "S"), (1.3, "end")], ["1.10 hold", "1.30 resume"], id="the call ends on hold"),
    ],
)
def test_speech_over_the_agent_holds_at_once_and_is_judged(script: list[tuple[float, str]], expected: list[str]) -> None:
    """A hold comes with the first notice of speech, and ends as an interruption if it was meant, else in a resume."""
    assert play((0.5, ">"), *script) == expected


def test_no_hold_outlasts_its_limit() -> None:
    """Endless little noises cannot keep the agent silent."""
    noises = [(1.1 + 0.1 * n, "S" if n % 2 == 0 else "E") for n in range(60)]
    quiet = TurnOptions(interrupt_after_ms=60_000, backchannel_max_s=60.0, judge_timeout_s=60.0)
    shown = play((0.5, ">"), *noises, options=quiet)
    assert shown[0] == "1.10 hold"
    assert float(shown[1].split()[0]) == pytest.approx(4.1)


def test_a_cough_shorter_than_the_limit_is_never_taken_for_long_speech() -> None:
    """The detector tells of the end late: speech that was over in time does not interrupt meanwhile."""
    # 0.55 s of sound; its end is told 0.2 s later, when 0.75 s have passed since its onset.
    assert play((0.5, ">"), (1.1, "S"), (1.75, "E"), (1.9, "f ")) == ["1.10 hold", "1.90 resume"]


def test_a_yeah_right_before_the_agent_ends_is_the_answer() -> None:
    """A backchannel is an answer when the agent turns out to have been at its end."""
    yeah = [(0.5, ">"), (1.1, "S"), (1.4, "E"), (1.5, "f yeah")]
    assert play(*yeah, (2.0, "<")) == ["1.10 hold", "1.50 resume", "2.00 turn", "2.00 'yeah'"]
    assert play(*yeah, (3.0, "<")) == ["1.10 hold", "1.50 resume"]


def test_the_agent_beginning_in_the_callers_turn_is_held() -> None:
    """Sound that starts while they speak waits: noise lets it through, words stop it."""
    assert play((1.1, "S"), (1.3, ">"), (1.5, "E"), (1.6, "f ")) == ["1.10 turn", "1.30 hold", "1.60 resume"]
    assert play((1.1, "S"), (1.2, "i hello"), (1.3, ">")) == ["1.10 turn", "1.30 interrupt"]
    assert play((1.0, "f hello"), (1.2, ">"), (1.4, "S"), (1.7, "E"), (1.8, "f mhm")) == [
        "1.00 turn",
        "1.40 hold",
        "1.80 resume",
        "2.00 'hello'",
    ]
    assert play((1.0, "f hello"), (1.2, ">"), (1.4, "S"), (1.6, "i one"), (2.0, "E"), (2.1, "f one more")) == [
        "1.00 turn",
        "1.40 hold",
        "1.60 interrupt",
        "2.30 'hello one more'",
    ]


QUESTION = [(0.1, "S"), (1.2, "E"), (1.25, "p 0.9"), (1.3, "f what time do you open")]
ASKED = ["0.10 turn", "1.30 'what time do you open'"]


def test_b06_a_cough_while_the_agent_thinks_does_not_lose_the_answer() -> None:
    """The reply waits for the judgement and then goes on; there is no second request."""
    assert play(*QUESTION, (1.6, "S"), (1.85, "E")) == [*ASKED, "1.60 hold", "3.05 resume"]
    assert play(*QUESTION, (1.6, "S"), (1.85, "E"), (1.95, "f ")) == [*ASKED, "1.60 hold", "1.95 resume"]


def test_b06_more_words_while_the_agent_thinks_join_the_question() -> None:
    """The first reply is stopped, and the next request holds both texts in their order."""
    assert play(*QUESTION, (1.6, "S"), (2.2, "E"), (2.3, "f on sunday")) == [
        *ASKED,
        "1.60 hold",
        "2.30 interrupt",
        "2.30 turn",
        "2.50 'what time do you open on sunday'",
    ]


def test_b06_a_long_noise_while_the_agent_thinks_puts_the_question_again() -> None:
    """If what stopped the reply turns out to be nothing, the question is not lost."""
    assert play(*QUESTION, (1.6, "S"), (3.2, "E"), (3.3, "f ")) == [
        *ASKED,
        "1.60 hold",
        "2.30 interrupt",
        "2.30 turn",
        "3.50 'what time do you open'",
    ]


def test_b01_a_reply_of_which_nothing_was_heard_leaves_the_question_open() -> None:
    """Stopped before its first word was heard, a reply has answered nothing; stopped later, it has."""
    barge_in = [*QUESTION, (1.5, ">"), (1.6, "S"), (1.7, "i no"), (2.2, "E"), (2.3, "f no")]
    assert play(*barge_in)[-1] == "2.50 'what time do you open no'"
    assert play(*barge_in, heard=True)[-1] == "2.50 'no'"
    assert play(*QUESTION, (1.5, ">"), (3.0, "<"), (4.1, "S"), (4.6, "E"), (4.7, "f thanks a lot"))[-1] == "4.90 'thanks a lot'"


def test_a_reply_that_never_comes_is_not_waited_for_for_ever() -> None:
    """After reply_timeout_s the agent does not count as thinking: a yeah is an answer, and speech a turn."""
    late = [*QUESTION, (18.1, "S"), (18.4, "E"), (18.5, "f yeah")]
    assert play(*late)[2:] == ["18.10 turn", "18.70 'what time do you open yeah'"]


@pytest.mark.parametrize(("text", "only"), [("", True), ("Uh-huh.", True), ("okay, got it", True), ("yeah no", False), ("see", False)])
def test_backchannels_are_words_and_phrases(text: str, only: bool) -> None:
    """A text is a backchannel if it is made of nothing else."""
    assert is_backchannel(text, BACKCHANNELS) is only


@pytest.mark.parametrize(
    ("change", "field"),
    [({"silence_s": -1.0}, "silence_s"), ({"score_threshold": 1.5}, "score_threshold"), ({"max_silence_s": 0.1}, "max_silence_s")],
)
def test_options_out_of_range_name_the_field(change: dict[str, Any], field: str) -> None:
    """A wrong option is refused by name."""
    with pytest.raises(ValueError, match=field):
        with_option(TurnOptions(), **change)


# ----------------------------------------------------------------------------------------------- properties

events = st.sampled_from(
    ["S", "E", "i wait", "i mhm", "i ", "f ", "f mhm", "f one", "f two", "f [noise]", "p 0.9", "p 0.1", ">", "<", "<!", "interrupt"]
)
steps = st.lists(st.tuples(st.floats(0.0, 1.5), events), max_size=40)


@given(steps=steps, heard=st.booleans())
@settings(deadline=None, max_examples=500)
def test_any_input_keeps_the_invariants(steps: list[tuple[float, str]], heard: bool) -> None:
    """Turns begin before they end, holds end in bounded time, nothing empty is asked, and silence brings all to rest."""
    now, script = 1.0, []
    for gap, what in steps:
        now += gap
        script.append((now, what))
    script.append((now, "E"))  # the caller does not speak for ever
    played = Play(heard=heard).run(script, until=now + 30.0)
    options = played.machine.options
    is_open, held_at = False, None
    for at, decision in with_interrupts(played, script):
        match decision:
            case TurnStarted():
                is_open = True  # the one before may have been empty, and then ended without a word
            case TurnEnded(text=text):
                assert is_open, "a turn ended that had not begun"
                assert text.strip()
                is_open = False
            case HoldFrame():
                assert held_at is None, "held twice"
                held_at = at
            case ResumeFrame():
                assert held_at is not None, "resumed without a hold"
                assert at - held_at <= options.hold_max_s + 1e-3
                held_at = None
            case InterruptFrame():
                if held_at is not None:
                    assert at - held_at <= options.hold_max_s + 1e-3
                held_at = None
    assert held_at is None, "held for ever"
    assert played.machine.deadline is None
    assert played.machine.state is State.IDLE
    assert all(played.whys())


def with_interrupts(played: Play, script: list[tuple[float, str]]) -> Iterator[tuple[float, Frame]]:
    """The decisions, and the interrupts that came from elsewhere in their place."""
    outside = [(at, InterruptFrame()) for at, what in script if what == "interrupt"]
    return iter(sorted([*played.log, *outside], key=lambda entry: entry[0]))


@given(
    words=st.lists(st.sampled_from(["one", "two", "three", "four"]), min_size=1, max_size=5),
    gaps=st.lists(st.floats(0.3, 3.0), min_size=5, max_size=5),
    late=st.lists(st.floats(0.01, 1.5), min_size=5, max_size=5),
)
@settings(deadline=None, max_examples=300)
def test_every_word_is_in_exactly_one_request(words: list[str], gaps: list[float], late: list[float]) -> None:
    """However long pauses and recognition take, all that was said ends up unanswered in the last request, once and in order."""
    now, script = 1.0, []
    for number, word in enumerate(words):
        script += [(now + 0.1, "S"), (now + 0.7, "E"), (now + 0.7 + late[number], f"f {word} {number}")]
        now += 0.7 + gaps[number] + late[number]
    played = Play().run(sorted(script), until=now + 30.0)
    ends = [decision.text for _, decision in played.log if isinstance(decision, TurnEnded)]
    assert ends[-1] == " ".join(f"{word} {number}" for number, word in enumerate(words))


@given(steps=steps)
@settings(deadline=None, max_examples=200)
def test_the_same_signals_give_the_same_decisions(steps: list[tuple[float, str]]) -> None:
    """Ticks that come too early or too often change nothing."""
    now, script = 1.0, []
    for gap, what in steps:
        now += gap
        script.append((now, what))

    class Impatient(Play):
        def pass_time(self, until: float) -> None:
            due = self.machine.deadline
            if due is not None:
                assert self.machine.tick(min(due, until) - 0.01) == [] or due <= min(due, until) - 0.01 + 1e-6
            super().pass_time(until)

    assert Impatient().run(script, now + 30).shown() == Play().run(script, now + 30).shown()


# -------------------------------------------------------------------------------------------------- the node


class Call:
    """A whole conversation on the virtual clock: scripted ears, model and voice around the real turn taking."""

    def __init__(self, script: list[Said], *, reply: str, until: float, think_s: float = 0.2) -> None:
        caller = ScriptedCaller(script, until=until)
        self.vad, self.turns, self.context = ScriptedVAD(), Turns(), Context("Be brief.")
        stt = ScriptedSTT(caller.texts, Latency(0.1))
        self.llm = ScriptedLLM(lambda messages: reply, Latency(think_s, 0.01))
        self.sink = RecordingSink()
        self.pipeline = caller >> self.vad >> stt >> self.turns >> self.context >> self.llm >> Sentences() >> ScriptedTTS() >> self.sink
        self.pipeline.link(self.vad, self.turns)
        self.log: list[tuple[float, Frame]] = []

    def run(self) -> Call:
        async def main() -> None:
            session = Session(self.pipeline)
            session.tap(lambda frame, source, target: self.log.append((session.time(), frame)))
            await session.run()
            self.heard = [(p.at, p.until) for p in self.sink.heard()]

        run_virtual(main())
        return self

    def times(self, *types: type[Frame]) -> list[float]:
        return [at for at, frame in self.log if isinstance(frame, types)]

    def questions(self) -> list[str]:
        return [messages[-1].text for messages in self.llm.requests]

    def silent_at(self, at: float) -> bool:
        return not any(begin < at < end for begin, end in self.heard)


REPLY = "We open at nine in the morning on every day of the week, and we close at six."
QUESTION_SAID = Said(0.5, 1.0, "what time do you open")


def test_a_question_is_answered_and_the_conversation_kept() -> None:
    """One question gives one request and one answer, and both are in the conversation as they were heard."""
    call = Call([QUESTION_SAID], reply=REPLY, until=6.0).run()
    assert call.questions() == ["what time do you open"]
    assert call.context.conversation.messages == (Message("user", "what time do you open"), Message("assistant", REPLY))
    assert call.times(TurnEnded) == [pytest.approx(2.0, abs=0.03)]


def test_barge_in_is_silence_within_a_quarter_of_a_second() -> None:
    """From the onset of the caller's voice to silence it takes the detector's time and nothing more."""
    call = Call([QUESTION_SAID, Said(3.0, 1.0, "no I meant tomorrow")], reply=REPLY, until=7.0).run()
    assert not call.silent_at(3.05)
    assert all(call.silent_at(3.25 + 0.05 * n) for n in range(20))
    assert call.questions() == ["what time do you open", "no I meant tomorrow"]
    messages = call.llm.requests[1]
    assert [m.role for m in messages] == ["system", "user", "assistant", "user"]
    heard = messages[2]
    assert heard.interrupted
    assert REPLY.startswith(heard.text)
    assert 0 < len(heard.text.split()) < len(REPLY.split())


def test_a_cough_lets_the_agent_go_on() -> None:
    """Noise over the agent costs a pause: the reply is heard whole, once, and nothing is asked."""
    call = Call([QUESTION_SAID, Said(3.0, 0.3)], reply=REPLY, until=7.0).run()
    assert [type(f) for _, f in call.log if isinstance(f, HoldFrame | ResumeFrame)] == [HoldFrame, ResumeFrame]
    assert call.silent_at(3.2)
    assert len(call.questions()) == 1
    assert call.context.conversation.messages[-1] == Message("assistant", REPLY)


@pytest.mark.parametrize("more", ["", "on sunday"])
def test_b06_speech_while_the_agent_thinks(more: str) -> None:
    """A cough before the first sound leaves the answer as it was; words give one answer to both texts."""
    call = Call([QUESTION_SAID, Said(2.3, 0.3, more)], reply=REPLY, until=9.0, think_s=0.8).run()
    if more:
        assert call.questions() == ["what time do you open", "what time do you open on sunday"]
        assert call.context.conversation.messages[0] == Message("user", "what time do you open on sunday")
    else:
        assert call.questions() == ["what time do you open"]
    assert [m.role for m in call.context.conversation.messages] == ["user", "assistant"]
    assert call.context.conversation.messages[-1].text == REPLY


def test_an_interrupt_from_the_application_counts_as_the_agents_silence() -> None:
    """After it, the caller's words are a turn like any other: no hold, no second interrupt."""
    call = Call([QUESTION_SAID, Said(4.0, 1.0, "and now")], reply=REPLY, until=8.0)

    async def main() -> None:
        session = Session(call.pipeline)
        session.tap(lambda frame, source, target: call.log.append((session.time(), frame)))
        async with session:
            session.spawn(stop(session), "stop")
            while session.time() < 7.9:
                await asyncio.sleep(0.5)
            assert session.epoch == 1

    async def stop(session: Session) -> None:
        await asyncio.sleep(3.0)
        session.interrupt("the operator")

    run_virtual(main())
    assert not call.times(HoldFrame)
    assert call.questions() == ["what time do you open", "and now"]


def test_the_last_words_before_the_end_are_answered() -> None:
    """A call whose sound ends right behind a question still gets its answer."""
    call = Call([QUESTION_SAID], reply=REPLY, until=1.9).run()
    assert call.context.conversation.messages == (Message("user", "what time do you open"), Message("assistant", REPLY))


def test_interrupted_anywhere_the_next_question_is_answered() -> None:
    """Wherever an interrupt strikes a call, nothing stale is heard, and what is asked afterwards is answered in full."""

    async def scenario(probe: Probe) -> None:
        call = Call([QUESTION_SAID, Said(3.0, 0.3), Said(4.0, 0.8, "and on sunday")], reply="We open at nine.", until=7.0)
        session = Session(call.pipeline)
        probe.watch(session, call.sink)
        await session.run()
        probe.finish()
        late = probe.interruption is not None and probe.interruption.at > 4.0
        if not late and call.questions()[-1].split()[-3:] != ["and", "on", "sunday"]:
            probe.problems.append(f"asked {call.questions()}")
        if not late and call.context.conversation.messages[-1].text != "We open at nine.":
            probe.problems.append(f"ended with {call.context.conversation.messages}")
        if [m.role for m in call.context.conversation.messages[::2]] != ["user"] * len(call.context.conversation.messages[::2]):
            probe.problems.append(f"roles {call.context.conversation.messages}")

    result = interrupt_everywhere(scenario, every=17)
    result.check()
    assert result.tried > 40


def test_turns_pass_the_conformance_kit() -> None:
    """Strangers pass, interrupts leave nothing behind, slow and failing neighbours change nothing."""
    feed = [SpeechStarted(at=0.0), SpeechStopped(at=0.5, silence=0.2), TranscriptFrame("hello there")]
    check_processor(Turns, feed, pause_s=20.0)
