from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from voiceflow import (
    FloorReleased,
    FloorTaken,
    Frame,
    Heard,
    HoldFrame,
    InterruptFrame,
    Message,
    PlaybackStarted,
    PlaybackStopped,
    Processor,
    ResumeFrame,
    SayFrame,
    Session,
    SpeechStarted,
    SpeechStopped,
    ToolCall,
    ToolResultFrame,
    ToolStarted,
    TranscriptFrame,
    TurnEnded,
    TurnScored,
    TurnStarted,
    WordsHeard,
    replace,
)
from voiceflow.processors.context import Context
from voiceflow.processors.text import Sentences
from voiceflow.processors.turn_policies import (
    AdaptiveSilence,
    AllOf,
    AnyOf,
    Earliest,
    Echo,
    Endpoint,
    External,
    FirstDecides,
    Latest,
    Level,
    Never,
    Phrases,
    Score,
    Silence,
    Voice,
    WakePhrase,
    Words,
)
from voiceflow.processors.turns import State, TurnMachine, TurnOptions, TurnPolicyFrame, Turns
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
CALL = ToolCall("c1", "look_up")
HEARD_WORDS = "we open at"


def signal(what: str, now: float) -> Any:
    """S speech begins, E it has ended, `i words` partial, `f words` final (`F` with endpoint), `p 0.8` score, > and < playback, <! cut short.

    `say>` and `say<`: of what was said without being asked for; `w words` the ear gets them; T and R the floor is taken and
    given back; tool, result; `never`: a policy for once.
    """
    kind, _, rest = what.partition(" ")
    match kind:
        case "F":
            return TranscriptFrame(rest, endpoint=True)
        case "say>":
            return PlaybackStarted(utterance=0, at=now)
        case "say<":
            return PlaybackStopped(heard=Heard(0, "one moment", complete=True), at=now)
        case "w":
            return WordsHeard(text=rest, utterance=1, at=now)
        case "T":
            return FloorTaken()
        case "R":
            return FloorReleased()
        case "tool":
            return ToolStarted(call=CALL, utterance=1)
        case "result":
            return ToolResultFrame(call=CALL, text="42", utterance=1)
        case "never":
            return TurnPolicyFrame(barge_in=Never(), once=True)
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
        self.what_was_heard = (Heard(1, HEARD_WORDS, complete=False),) if heard else ()
        self.log: list[tuple[float, Frame]] = []

    def run(self, script: list[tuple[float, str]], until: float = 20.0) -> Play:
        for at, what in [*script, (until, "")]:
            self.pass_time(at)
            if what == "interrupt":
                self.machine.interrupted(at, self.what_was_heard)
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
                self.machine.interrupted(now, self.what_was_heard)

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
        ["1.10 turn", "4.20 ''", "9.10 turn", "10.00 'for two'"],
    ),
    "final never, nothing partial": ([(1.1, "S"), (2.2, "E")], ["1.10 turn", "4.20 ''"]),
    "final empty": ([(1.1, "S"), (2.2, "E"), (2.4, "f ")], ["1.10 turn", "2.50 ''"]),
    "final of noise": ([(1.1, "S"), (2.2, "E"), (2.4, "f [BLANK_AUDIO]"), (2.5, "f (music) *sighs*")], ["1.10 turn", "2.50 ''"]),
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
        ["1.10 turn", "3.50 ''", "9.10 turn", "9.90 'hello there'"],
    ),
    "the end of the call": ([(1.1, "S"), (2.2, "E"), (2.3, "f goodbye then"), (2.35, "end")], ["1.10 turn", "2.35 'goodbye then'"]),
    "the end of the call while speaking": ([(1.1, "S"), (1.5, "i good"), (1.6, "end")], ["1.10 turn", "1.60 'good'"]),
}


@pytest.mark.parametrize("name", ORDERS)
def test_a_turn_ends_exactly_once_in_every_order_of_events(name: str) -> None:
    """Whatever order detector, recogniser and score speak in, a turn ends once, with each word once, or says that nothing was said."""
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
    assert played.whys()[-1] == "silence, 1.00 s after speech (ceiling_s 1; the floor was not given back, score 0.30 not > 0.5)"
    played = Play().run([(1.1, "S"), (1.5, "i yes"), (2.2, "E")])
    assert played.whys()[-1] == (
        "no final transcript 2.00 s after the end of speech was told (final_timeout_s 2): the partial one 'yes' counts"
    )
    played = Play().run([(0.5, ">"), (1.1, "S")])
    assert played.whys()[:2] == ["speech since 0.10 s while the agent speaks", "speech for 2.20 s (min_ms 2200)"]
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
        pytest.param([(1.1, "S")], ["1.10 hold", "3.40 interrupt", "3.40 turn"], id="long speech"),
        pytest.param([(1.1, "S"), (1.3, "i yeah")], ["1.10 hold", "3.40 interrupt", "3.40 turn"], id="a long yeah"),
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
            ["1.10 hold", "3.80 interrupt", "3.80 turn"],
            id="short pieces add up",
        ),
        pytest.param(
            [(1.1, "S"), (1.5, "E"), (1.6, "f "), (4.1, "S"), (4.3, "i no")],
            ["1.10 hold", "1.60 resume", "4.10 hold", "4.30 interrupt", "4.30 turn"],
            id="a cough, later a word",
        ),
        pytest.param(
            [(1.1, "S"), (1.5, "E"), (1.6, "f "), (1.9, "S"), (2.3, "E"), (2.4, "f "), (3.1, "S"), (3.5, "i wait")],
            ["1.10 hold", "1.60 resume", "3.50 interrupt", "3.50 turn"],
            id="a voice each time that the agent goes on",
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
    patient = TurnOptions(barge_in=Voice(60_000), judge_timeout_s=60.0)
    assert play((0.5, ">"), *noises, options=patient) == ["1.10 hold", "4.10 resume"]


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
    assert play((1.1, "S"), (1.3, ">"), (1.5, "E"), (1.6, "f ")) == ["1.10 turn", "1.30 hold", "1.60 resume", "1.80 ''"]
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
    assert play(*QUESTION, (1.6, "S"), (4.8, "E"), (4.9, "f ")) == [
        *ASKED,
        "1.60 hold",
        "3.90 interrupt",
        "3.90 turn",
        "5.10 'what time do you open'",
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


# --------------------------------------------------------------------------------------------------- policies


def interrupts(*script: tuple[float, str], barge_in: Any) -> list[str]:
    return play((0.5, ">"), *script, options=TurnOptions(barge_in=barge_in))


def test_any_voice_interrupts_at_once() -> None:
    """Voice(0) is what some peers do: a cough is an interruption, and its turn is empty."""
    cough = [(1.1, "S"), (1.5, "E"), (1.6, "f ")]
    assert interrupts(*cough, barge_in=Voice(0)) == ["1.10 interrupt", "1.10 turn", "1.80 ''"]


def test_a_minimum_of_words_lets_the_agent_speak_until_they_are_there() -> None:
    """Words(2) neither holds for a voice nor stops for one word; with hold it is silent meanwhile."""
    long = [(1.1, "S"), (2.0, "i no"), (2.6, "i no wait")]
    assert interrupts(*long, barge_in=Words(2)) == ["2.60 interrupt", "2.60 turn"]
    assert interrupts(*long, barge_in=Words(2, hold=True)) == ["1.10 hold", "2.60 interrupt", "2.60 turn"]
    assert interrupts((1.1, "S"), (1.5, "E"), (1.6, "f stop"), barge_in=Words(2)) == []


def test_a_notice_is_heard_out_and_what_was_said_over_it_is_the_next_turn() -> None:
    """Never: no hold and no interruption; the words wait for the end of the notice, and for no longer."""
    words = [(1.1, "S"), (3.0, "E"), (3.1, "f stop please"), (4.1, "S"), (4.5, "E"), (4.6, "f yes")]
    assert interrupts(*words, (9.0, "<"), barge_in=Never()) == ["9.00 turn", "9.00 'stop please yes'"]
    assert interrupts(*words, (7.0, "interrupt"), barge_in=Never()) == ["7.00 turn", "7.00 'stop please yes'"]
    assert interrupts(*words, (7.0, "end"), barge_in=Never()) == ["7.00 turn", "7.00 'stop please yes'"]
    still = [(1.1, "S"), (3.0, "<"), (3.5, "E"), (3.6, "f stop please")]
    assert interrupts(*still, barge_in=Never()) == ["3.00 turn", "3.80 'stop please'"]
    late = [(1.1, "S"), (1.3, "i stop"), (2.0, "E"), (6.0, "f stop please"), (9.0, "<")]
    assert interrupts(*late, barge_in=Never()) == ["9.00 turn", "9.00 'stop please'"]


def test_a_policy_for_once_covers_one_utterance() -> None:
    """After the notice the agent can be interrupted as before."""
    words = [(1.1, "i wait"), (1.1, "S"), (1.3, "i wait")]
    script = [(0.3, "never"), (0.5, ">"), *words, (1.6, "E"), (1.7, "f wait"), (2.0, "<"), (5.0, ">"), (6.1, "S"), (6.3, "i wait")]
    assert play(*script) == ["2.00 turn", "2.00 'wait'", "6.10 hold", "6.30 interrupt", "6.30 turn"]


PUSH = TurnOptions(start=External(), barge_in=External(), end=External())


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        pytest.param(
            [(1.0, "T"), (1.2, "S"), (2.2, "E"), (2.3, "f open when"), (9.0, "R")], ["1.00 turn", "9.00 'open when'"], id="held long"
        ),
        pytest.param(
            [(1.0, "T"), (1.2, "S"), (2.1, "R"), (2.2, "E"), (2.4, "f open when")], ["1.00 turn", "2.40 'open when'"], id="words after it"
        ),
        pytest.param([(1.0, "T"), (1.5, "i open"), (2.0, "f open when"), (2.1, "R")], ["1.00 turn", "2.10 'open when'"], id="no detector"),
        pytest.param([(1.0, "T"), (2.0, "R"), (2.5, "f open when")], ["1.00 turn", "2.50 'open when'"], id="no detector, words after it"),
        pytest.param([(1.0, "T"), (2.0, "R")], ["1.00 turn", "4.00 ''"], id="nothing said"),
        pytest.param([(1.0, "T"), (1.2, "S"), (2.1, "R"), (2.2, "E")], ["1.00 turn", "4.20 ''"], id="no transcript"),
        pytest.param(
            [(1.0, "T"), (1.2, "S"), (1.9, "i open"), (2.1, "R"), (2.2, "E"), (7.0, "f open when")],
            ["1.00 turn", "4.20 'open'", "7.00 interrupt", "7.00 turn", "7.00 'open when'"],
            id="transcript much too late",
        ),
        pytest.param([(1.2, "S"), (2.2, "E"), (2.3, "f to somebody else")], [], id="without the button"),
        pytest.param([(0.5, ">"), (1.0, "T"), (1.2, "f stop"), (1.3, "R")], ["1.00 interrupt", "1.00 turn", "1.30 'stop'"], id="barge-in"),
        pytest.param([(0.5, ">"), (1.2, "S"), (2.2, "E"), (2.3, "f to somebody else")], [], id="over the agent, without the button"),
        pytest.param([(1.0, "T"), (1.1, "T"), (1.2, "f yes"), (1.3, "R"), (1.4, "R")], ["1.00 turn", "1.30 'yes'"], id="all twice"),
    ],
)
def test_push_to_talk(script: list[tuple[float, str]], expected: list[str]) -> None:
    """The button begins the turn and ends it, and speech without it is nobody's turn; so with a recogniser that takes turns."""
    assert play(*script, options=PUSH) == expected


def test_the_floor_counts_with_the_usual_policies_too() -> None:
    """While it is the caller's, no silence ends their turn; given back, it ends at once."""
    script = [(1.0, "T"), (1.2, "S"), (2.2, "E"), (2.3, "f a table"), (8.1, "S"), (9.2, "E"), (9.3, "f for two"), (9.4, "R")]
    assert play(*script) == ["1.00 turn", "9.40 'a table for two'"]


def test_a_wake_phrase_begins_the_talk_and_the_agent_stays_awake_for_a_while() -> None:
    """Asleep it does not listen; after an exchange no phrase is needed."""
    options = TurnOptions(start=WakePhrase(("hey ava",), awake_s=5.0))
    asleep = [(1.1, "S"), (2.2, "E"), (2.3, "f what time is it")]
    woken = [(11.1, "S"), (11.5, "i hey ava"), (12.2, "E"), (12.3, "f hey Ava what time is it")]
    answered = [(12.8, ">"), (15.0, "<")]
    awake = [(19.1, "S"), (20.2, "E"), (20.3, "f and tomorrow"), (21.0, ">"), (22.0, "<")]
    asleep_again = [(33.1, "S"), (34.2, "E"), (34.3, "f never mind")]
    assert play(*asleep, *woken, *answered, *awake, *asleep_again, options=options, until=50.0) == [
        "11.50 turn",
        "12.50 'hey Ava what time is it'",
        "19.10 turn",
        "20.50 'and tomorrow'",
    ]


def test_backchannels_into_silence_can_be_no_turn() -> None:
    """With Phrases as the start policy a turn begins with words that are more than that."""
    options = TurnOptions(start=Phrases())
    assert play((1.1, "S"), (1.4, "E"), (1.5, "f mhm"), options=options) == []
    assert play((1.1, "S"), (1.4, "i mhm"), (1.9, "i mhm so when"), (2.4, "E"), (2.5, "f mhm so when"), options=options) == [
        "1.90 turn",
        "2.70 'mhm so when'",
    ]


ECHO = [(0.5, ">"), (0.6, "w we"), (0.8, "w open"), (1.0, "w at")]


def test_the_agents_own_voice_is_no_interruption_and_does_not_stop_it_again() -> None:
    """An echo is held for once; then the agent speaks on through its echo, and only other words stop it."""
    first = [*ECHO, (1.1, "S"), (1.35, "E"), (1.5, "f at")]
    assert play(*first) == ["1.10 hold", "1.50 resume"]
    cut_word_again = [(1.75, "S"), (1.95, "E"), (2.1, "f at")]
    assert play(*first, *cut_word_again) == ["1.10 hold", "1.50 resume"]
    again = [*first, (1.7, "w nine"), (1.85, "S"), (2.0, "w in"), (2.2, "i nine in"), (4.5, "E"), (4.6, "f nine")]
    assert play(*again) == ["1.10 hold", "1.50 resume"]
    assert play(*again[:-2], (2.9, "i nine in no tomorrow")) == ["1.10 hold", "1.50 resume", "2.90 interrupt", "2.90 turn"]


def test_an_echo_without_words_stops_holding_the_agent() -> None:
    """What recognisers make nothing of holds an utterance twice, not for ever; the next one is held for again."""
    noises = [step for at in (1.1, 3.1, 5.1, 7.1) for step in ((at, "S"), (at + 0.3, "E"), (at + 0.4, "f "))]
    assert play(*ECHO, *noises) == ["1.10 hold", "1.50 resume", "3.10 hold", "3.50 resume"]
    assert play(*ECHO, *noises, (8.0, "<"), (8.5, ">"), (9.1, "S"), (9.4, "E"), (9.5, "f "))[-2:] == ["9.10 hold", "9.50 resume"]


def test_a_caller_who_repeats_the_agents_words_is_heard() -> None:
    """The same words later are an answer; and so they are when the agent has finished."""
    assert play(*ECHO, (2.1, "S"), (2.4, "i we open")) == ["2.10 hold", "2.40 interrupt", "2.40 turn"]
    assert play(*ECHO, (1.2, "<"), (2.1, "S"), (2.6, "E"), (2.7, "f at")) == ["2.10 turn", "2.90 'at'"]


def test_an_echo_of_the_last_word_is_not_answered() -> None:
    """A voice opens the turn as the agent ends; its word shows whose it was, and the turn is empty."""
    assert play(*ECHO, (1.1, "S"), (1.15, "<"), (1.4, "E"), (1.5, "f at")) == ["1.10 hold", "1.15 resume", "1.15 turn", "1.70 ''"]


def loud(kind: str, now: float, level_db: float) -> Any:
    return replace(signal(kind, now), level_db=level_db)


def test_a_bystander_is_quieter_than_the_caller() -> None:
    """Once the caller's level is known, much quieter speech neither interrupts nor begins a turn."""
    quiet = FirstDecides((Level(12), Phrases(), Voice(600)))
    machine = TurnMachine(TurnOptions(start=FirstDecides((Level(12), Voice(0))), barge_in=quiet))
    out: list[Any] = []
    out += machine.step(loud("S", 1.1, -25), 1.1) + machine.step(loud("E", 2.2, -26), 2.2)
    out += machine.step(signal("f what time do you open", 2.3), 2.3) + machine.tick(3.0)
    out += machine.step(signal(">", 3.5), 3.5)
    assert [type(d) for d in out] == [TurnStarted, TurnEnded]
    assert machine.step(loud("S", 4.1, -45), 4.1) == []
    assert machine.step(signal("i no not you", 4.5), 4.5) == []
    assert machine.step(loud("E", 5.2, -44), 5.2) + machine.step(signal("f no not you", 5.3), 5.3) == []
    assert [type(d) for d in machine.step(loud("S", 6.1, -28), 6.1)] == [HoldFrame]


def test_a_patient_caller_is_given_more_time() -> None:
    """The silence that ends a turn is learned from the pauses this caller makes within turns, also those that cut them short."""
    options = TurnOptions(end=AdaptiveSilence(start_s=0.7))
    now, script = 0.0, []
    for _ in range(4):  # "a table", 0.4 s, "for two", 0.4 s, "please"
        script += [(now + 1.1, "S"), (now + 1.7, "E"), (now + 1.75, "f a table")]
        script += [(now + 2.0, "S"), (now + 2.6, "E"), (now + 2.65, "f for two")]
        script += [(now + 2.9, "S"), (now + 3.4, "E"), (now + 3.5, "f please"), (now + 5.0, ">"), (now + 7.0, "<")]
        now += 8.0
    ends = [float(line.split()[0]) for line in play(*script, options=options, until=40.0) if "table" in line]
    assert ends[0] - 3.2 == pytest.approx(0.7)
    assert ends[-1] - (24 + 3.2) == pytest.approx(0.4 * 1.3)


def test_the_recognisers_endpoint_ends_the_turn() -> None:
    """With Endpoint it decides, and silence alone only at the ceiling."""
    options = TurnOptions(end=Earliest((Endpoint(),), ceiling_s=3.0))
    assert play((1.1, "S"), (2.2, "E"), (2.3, "f a table"), (2.4, "F for two"), options=options)[-1] == "2.40 'a table for two'"
    assert play((1.1, "S"), (2.2, "E"), (2.3, "f a table"), options=options)[-1] == "5.00 'a table'"
    assert play((1.1, "S"), (2.2, "E"), (2.3, "f a table"), options=TurnOptions(end=Endpoint()))[-1] == "12.00 'a table'"


def test_a_filler_is_not_the_answer() -> None:
    """What is said while the reply is thought of leaves the question open, and the agent thinking."""
    filler = [*QUESTION, (1.5, "say>"), (2.5, "say<")]
    assert play(*filler, (3.1, "S"), (3.4, "E"), (3.5, "f mhm")) == [*ASKED, "3.10 hold", "3.50 resume"]
    added = Play().run([*filler, (3.1, "S"), (3.7, "E"), (3.8, "f on sunday")])
    last = added.log[-1][1]
    assert isinstance(last, TurnEnded)
    assert (last.text, last.continues) == ("what time do you open on sunday", True)
    over_it = play(*QUESTION, (1.5, "say>"), (1.8, "S"), (2.0, "i on"), (2.4, "E"), (2.5, "f on sunday"), heard=False)
    assert over_it[-1] == "2.70 'what time do you open on sunday'"


def test_the_agent_thinks_while_its_tool_runs() -> None:
    """However long that takes, a backchannel is no turn; after its result the reply is awaited."""
    working = [*QUESTION, (1.5, ">"), (1.6, "tool"), (2.5, "<")]
    assert play(*working, (30.1, "S"), (30.4, "E"), (30.5, "f mhm"), (40.0, "result"), until=80.0)[2:] == ["30.10 hold", "30.50 resume"]
    assert play(*working, (3.0, "result"), (4.1, "S"), (4.4, "E"), (4.5, "f mhm"))[2:] == ["4.10 hold", "4.50 resume"]
    assert play(*working, (3.0, "result"), (24.1, "S"), (24.4, "E"), (24.5, "f mhm"), until=30.0)[2:] == ["24.10 turn", "24.70 'mhm'"]


def test_a_turn_says_whether_it_continues_the_one_before() -> None:
    """Only a text that takes the place of another, which was not answered, does."""

    def told(*script: tuple[float, str], heard: bool = False) -> list[tuple[str, bool]]:
        return [(d.text, d.continues) for _, d in Play(heard=heard).run(list(script)).log if isinstance(d, TurnEnded)]

    more = [(1.6, "S"), (2.2, "E"), (2.3, "f on sunday")]
    assert told(*QUESTION, *more) == [("what time do you open", False), ("what time do you open on sunday", True)]
    assert told(*QUESTION, (1.4, ">"), *more, heard=True) == [("what time do you open", False), ("on sunday", False)]
    assert told((1.1, "S"), (2.0, "i what time do"), (2.2, "E"), (5.0, "f what time do you open"))[-1] == ("what time do you open", True)
    assert told((1.1, "S"), (2.2, "E"), (3.1, "S"), (4.2, "E"), (4.3, "f hello")) == [("hello", False)]


def test_a_change_of_policy_acts_on_speech_under_way() -> None:
    """A notice that begins while somebody speaks over the agent releases the hold."""
    assert play((0.5, ">"), (1.1, "S"), (1.2, "never"), (2.1, "E"), (2.2, "f hello"), (3.0, "<"), (4.0, ">"), (5.0, "<")) == [
        "1.10 hold",
        "1.20 resume",
        "3.00 turn",
        "3.00 'hello'",
    ]


# ----------------------------------------------------------------------------------------------- properties

events = st.sampled_from(
    "S E S E|i wait|i mhm|i |f |f mhm|f one|f two|F three|f [noise]|p 0.9|p 0.1|>|<|<!|say>|say<|w we|w open|i we open|T|R|tool|result|never|interrupt".replace(
        "S E S E", "S|E|S|E"
    ).split("|")
)
steps = st.lists(st.tuples(st.floats(0.0, 1.5), events), max_size=40)

STARTS = [
    TurnOptions().start,
    TurnOptions().barge_in,
    Voice(0),
    Voice(300, hold=False),
    Words(2),
    Phrases(accept=("wait",)),
    FirstDecides((WakePhrase(("open",), awake_s=2.0), Voice(0))),
    External(),
    Never(),
    AllOf((Echo(), Level(), AnyOf((Words(1), Voice(400))))),
]
ENDS = [
    TurnOptions().end,
    Silence(0.8),
    AdaptiveSilence(),
    Endpoint(),
    External(),
    Earliest((Endpoint(), Score(0.5, without=Silence(0.4))), floor_s=0.2, ceiling_s=2.0),
    Latest((Endpoint(), Silence(0.3)), ceiling_s=3.0),
]


@given(steps=steps, heard=st.booleans(), start=st.sampled_from(STARTS), barge_in=st.sampled_from(STARTS), end=st.sampled_from(ENDS))
@settings(deadline=None, max_examples=800)
def test_any_input_keeps_the_invariants(steps: list[tuple[float, str]], heard: bool, start: Any, barge_in: Any, end: Any) -> None:
    """Whatever the policies: each turn that begins ends once, holds end in bounded time, all says why, and silence brings all to rest."""
    now, script = 1.0, []
    for gap, what in steps:
        now += gap
        script.append((now, what))
    script += [(now, "E"), (now, "R")]  # the caller does not speak for ever
    options = TurnOptions(start=start, barge_in=barge_in, end=end)
    played = Play(options, heard=heard).run(script, until=now + 40.0)
    is_open, held_at = False, None
    for at, decision in with_interrupts(played, script):
        match decision:
            case TurnStarted():
                assert not is_open, "a turn began twice"
                is_open = True
            case TurnEnded():
                assert is_open, "a turn ended that had not begun"
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
    assert not is_open, "a turn that never ended"
    assert played.machine.deadline is None
    assert played.machine.state is State.IDLE
    assert all(played.whys())


def with_interrupts(played: Play, script: list[tuple[float, str]]) -> Iterator[tuple[float, Frame]]:
    """The decisions, and the interrupts that came from elsewhere in their place."""
    outside = [(at, InterruptFrame()) for at, what in script if what == "interrupt"]
    return iter(sorted([*played.log, *outside], key=lambda entry: entry[0]))


def questions(played: Play) -> list[str]:
    """What was asked, each text in the place of the one that it continues."""
    asked: list[str] = []
    for _, decision in played.log:
        if isinstance(decision, TurnEnded) and decision.text:
            if decision.continues:
                asked.pop()
            asked.append(decision.text)
    return asked


@given(
    steps=st.lists(
        st.tuples(st.floats(0.0, 1.5), st.sampled_from(["S", "E", "i", "f", "f", ">", "<", "say>", "say<", "interrupt", "never"])),
        max_size=40,
    ),
    barge_in=st.sampled_from([Never(), Voice(0), AnyOf((Voice(200), Words(1)))]),
)
@settings(deadline=None, max_examples=500)
def test_no_word_is_lost(steps: list[tuple[float, str]], barge_in: Any) -> None:
    """Where no policy throws words away, each final word is in exactly one question, whenever it came and whatever the agent did."""
    now, said, script = 1.0, [], []
    for gap, what in steps:
        now += gap
        word = f"{'word' if what == 'f' else 'guess'}{len(script)}"
        if what == "f":
            said.append(word)
        script.append((now, f"{what} {word}" if what in "if" else what))
    script += [(now, "E"), (now + 4.0, "<"), (now + 4.0, "say<")]
    played = Play(TurnOptions(barge_in=barge_in)).run(script, until=now + 60.0)
    asked = [word for text in questions(played) for word in text.split()]
    assert [word for word in asked if word in said] == said


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
    assert questions(played) == [" ".join(f"{word} {number}" for number, word in enumerate(words))]


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

    def __init__(self, script: list[Said], *, reply: str, until: float, think_s: float = 0.2, options: TurnOptions | None = None) -> None:
        caller = ScriptedCaller(script, until=until)
        self.vad, self.turns, self.context = ScriptedVAD(), Turns(options), Context("Be brief.")
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

    def run_with(self, steps: list[tuple[float, Any]]) -> Call:
        """The same, while the application sends frames, or calls functions, at their times."""

        async def main() -> None:
            session = Session(self.pipeline, inputs=[SayFrame, FloorTaken, FloorReleased, TurnPolicyFrame])
            session.tap(lambda frame, source, target: self.log.append((session.time(), frame)))
            async with session:
                for at, step in steps:
                    await asyncio.sleep(at - session.time())
                    if isinstance(step, Frame):
                        await session.send(step)
                    else:
                        step()
                await asyncio.sleep(8.0 - session.time())
                self.interrupted_at = [interruption.at for interruption in session.interruptions]
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


NOTICE = "This call is recorded for training and you can object to that at any time."


def test_a_legal_notice_is_heard_out_and_then_what_was_said_over_it_is_answered() -> None:
    """A frame makes one utterance proof against interruption; the words said meanwhile are asked when it has been heard."""
    call = Call([Said(1.0, 1.0, "stop it"), Said(3.5, 0.6, "never mind")], reply=REPLY, until=8.0)
    call.run_with([(0.3, TurnPolicyFrame(barge_in=Never(), once=True)), (0.31, SayFrame(NOTICE))])
    began, ended = call.heard[0][0], call.heard[len(NOTICE.split()) - 1][1]
    assert ended - began == pytest.approx(len(NOTICE.split()) * 0.1, abs=0.03)
    assert call.questions()[0] == "stop it"
    assert call.times(TurnEnded)[0] == pytest.approx(max(ended, 2.5), abs=0.1)
    assert call.interrupted_at == [pytest.approx(4.0, abs=0.3)]
    assert [m.text for m in call.llm.requests[0]][1:] == [NOTICE, "stop it"]


def test_push_to_talk_in_a_call() -> None:
    """The application sends the button's frames; what is said without it is not the agent's business."""
    options = TurnOptions(start=External(), barge_in=External(), end=External())
    call = Call(
        [Said(0.5, 0.8, "dear please"), Said(3.0, 0.8, "what time"), Said(4.0, 0.8, "do you open")], reply=REPLY, until=8.0, options=options
    )
    call.run_with([(2.9, FloorTaken(why="button")), (4.9, FloorReleased(why="button"))])
    assert call.questions() == ["what time do you open"]
    assert call.times(TurnEnded) == [pytest.approx(5.1, abs=0.05)]


def test_the_policy_can_be_changed_from_code() -> None:
    """`use` on the node does what the frame does, from the next signal on."""
    call = Call([QUESTION_SAID, Said(3.0, 0.3)], reply=REPLY, until=8.0)
    call.run_with([(2.8, lambda: call.turns.use(barge_in=Voice(0)))])
    assert call.times(HoldFrame) == []
    assert call.interrupted_at == [pytest.approx(3.1, abs=0.03)]


@pytest.mark.parametrize(("later_s", "is_echo"), [(0.0, True), (0.2, True), (1.0, False)])
def test_an_echo_in_a_call(later_s: float, is_echo: bool) -> None:
    """The words that the sink reports as heard, heard again at that time, are no interruption; a while later they are one."""
    began = Call([QUESTION_SAID], reply=REPLY, until=6.0).run().heard[0][0]
    at = began + 0.42 + later_s
    call = Call([QUESTION_SAID, Said(at, 0.25, " ".join(REPLY.split()[4:6]))], reply=REPLY, until=8.0).run()
    assert len(call.times(HoldFrame)) == 1
    assert len(call.questions()) == (1 if is_echo else 2)
    assert (call.context.conversation.messages[1] == Message("assistant", REPLY)) is is_echo


def test_b54_speech_without_any_words_gives_an_event_and_no_request() -> None:
    """What was noticed as speech and is none ends its turn in bounded time, says so, and asks nothing."""
    call = Call([Said(0.5, 0.5)], reply=REPLY, until=6.0).run()
    ended = [frame for _, frame in call.log if isinstance(frame, TurnEnded)]
    assert [frame.text for frame in ended] == [""]
    assert "nothing was said" in ended[0].why
    assert call.times(TurnEnded)[0] <= 1.0 + 2.5
    assert call.questions() == []


def test_the_edges_of_speech_go_on_behind_turns() -> None:
    """Nodes behind it see when the caller's voice begins and ends, once each."""
    call = Call([QUESTION_SAID], reply=REPLY, until=6.0)

    class Edges(Processor):
        def __init__(self) -> None:
            self.seen: list[str] = []

        def process(self, frame: SpeechStarted | SpeechStopped) -> None:
            self.seen.append(type(frame).__name__)

    edges = Edges()
    call.pipeline.link(call.turns, edges)
    call.run()
    assert edges.seen == ["SpeechStarted", "SpeechStopped"]


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

    result = interrupt_everywhere(scenario, every=10)
    result.check()
    assert result.tried > 40


def test_turns_pass_the_conformance_kit() -> None:
    """Strangers pass, interrupts leave nothing behind, slow and failing neighbours change nothing."""
    feed = [SpeechStarted(at=0.0), SpeechStopped(at=0.5, silence=0.2), TranscriptFrame("hello there")]
    check_processor(Turns, feed, pause_s=20.0)
