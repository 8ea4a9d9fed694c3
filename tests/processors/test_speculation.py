"""The gate, what it is told, and when a pause is taken for the probable end of a turn."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence

import pytest

from voiceflow import Frame, LLMEnded, LLMTextFrame, Session, SpeechStarted, SpeechStopped, TranscriptFrame, TurnEnded, TurnScored
from voiceflow.frames import FloorTaken, Heard, PlaybackStarted, PlaybackStopped
from voiceflow.processors.guesses import Guesses
from voiceflow.processors.speculation import EAGER, ReplyDecided, Speculation, TurnProbable, TurnResumed, Verdicts
from voiceflow.processors.turn_machine import TurnMachine
from voiceflow.processors.turn_policies import Endpoint, EndPolicy, Never, Score, Silence, Words
from voiceflow.processors.turns import TurnOptions, TurnPolicyFrame
from voiceflow.testing import Collector, check_processor, run_virtual

SLOW = TurnOptions(end=Silence(1.0))


class Watched:
    """A machine and its guesses, driven by signals at times; what was told, as "1.20 probable book a table"."""

    def __init__(self, options: TurnOptions = SLOW, eager: EndPolicy = EAGER) -> None:
        self.machine, self.guesses = TurnMachine(options), Guesses(eager)
        self.told: list[str] = []

    def play(self, until: float, *signals: tuple[float, Frame]) -> list[str]:
        for at, signal in signals:
            self._run_to(at)
            self._note(self.machine.step(signal, at), at)
        self._run_to(until)
        return self.told

    def _run_to(self, until: float) -> None:
        now = -1.0
        while True:
            at = min(self.machine.deadline or math.inf, self.guesses.deadline(self.machine, until) or math.inf)
            if at > until:
                return
            assert at > now, "the same moment twice: a node would spin"
            now = at
            self._note(self.machine.tick(at), at)

    def _note(self, decisions: Sequence[Frame], now: float) -> None:
        for frame in [*decisions, *self.guesses.look(self.machine, now)]:
            if isinstance(frame, TurnProbable):
                self.told.append(f"{now:.2f} probable {frame.text}")
            elif isinstance(frame, TurnResumed):
                self.told.append(f"{now:.2f} resumed")
            elif isinstance(frame, TurnEnded):
                self.told.append(f"{now:.2f} ended {frame.text}")


def partial(text: str) -> TranscriptFrame:
    return TranscriptFrame(text, final=False)


BEGINS = (1.0, SpeechStarted(at=0.9))
SAYS = (1.9, partial("book a table"))
STOPS = (2.2, SpeechStopped(at=2.0, silence=0.2))


def test_a_pause_with_words_is_probably_the_end() -> None:
    """The guess comes with the words so far, once, and the end of the turn after it."""
    told = Watched().play(4.0, BEGINS, SAYS, STOPS, (2.5, TranscriptFrame("Book a table.")))
    assert told == ["2.20 probable book a table", "3.00 ended Book a table."]


def test_a_guess_waits_for_its_policy() -> None:
    """With more patience the guess comes later, by the clock alone."""
    told = Watched(eager=Silence(0.6)).play(4.0, BEGINS, SAYS, STOPS, (2.5, TranscriptFrame("Book a table.")))
    assert told == ["2.60 probable Book a table.", "3.00 ended Book a table."]


def test_a_low_score_keeps_it_from_guessing() -> None:
    """A turn-end model that holds that they go on is believed, if it is asked before the guess."""
    told = Watched(eager=Score(0.3, without=Silence(0.4))).play(4.0, BEGINS, SAYS, STOPS, (2.25, TurnScored(probability=0.1, at=2.0)))
    assert [line for line in told if "probable" in line] == []


def test_other_words_are_another_guess_and_other_marks_are_not() -> None:
    """The final transcript says more than the partial one did."""
    told = Watched().play(2.9, BEGINS, SAYS, STOPS, (2.4, TranscriptFrame("Book a table for four.")))
    assert told == ["2.20 probable book a table", "2.40 probable Book a table for four."]


def test_speech_takes_a_guess_back() -> None:
    """They go on; the next pause is guessed anew with all the words."""
    told = Watched().play(
        5.5,
        BEGINS, SAYS, STOPS,
        (2.4, TranscriptFrame("book a table")), (2.7, SpeechStarted(at=2.6)),
        (3.5, SpeechStopped(at=3.3, silence=0.2)), (3.6, TranscriptFrame("for four")),
    )  # fmt: skip
    assert told == [
        "2.20 probable book a table", "2.70 resumed",
        "3.50 probable book a table", "3.60 probable book a table for four", "4.30 ended book a table for four",
    ]  # fmt: skip


def test_nothing_is_guessed_without_words_or_while_the_floor_is_the_callers() -> None:
    """A cough, and a button that is held."""
    assert [line for line in Watched().play(9.0, BEGINS, STOPS) if "probable" in line] == []
    assert Watched().play(9.0, (0.5, FloorTaken()), BEGINS, SAYS, STOPS) == []


def test_nothing_is_guessed_while_the_agent_thinks() -> None:
    """A turn that was reopened by a cough over the thinking agent is judged first; the question itself went out already."""
    told = Watched(TurnOptions(end=Silence(0.4))).play(
        3.5, BEGINS, SAYS, STOPS, (2.3, TranscriptFrame("book a table")), (2.9, SpeechStarted(at=2.8)), (3.2, SpeechStopped(at=3.0))
    )
    assert told == ["2.20 probable book a table", "2.40 ended book a table"]


def test_a_recogniser_that_takes_turns_itself_guesses_by_its_confidence() -> None:
    """The events of such a recogniser (eager end, resumed, eager end, end) are speech edges, scores and an endpoint."""
    eager_end = lambda at, text: [  # noqa: E731 - as a codec would give them
        (at, partial(text)), (at, SpeechStopped(at=at, silence=0.0)), (at, TurnScored(probability=0.4, at=at)),
    ]  # fmt: skip
    watched = Watched(TurnOptions(end=Endpoint()), eager=Score(0.3, without=Endpoint()))
    told = watched.play(
        6.0, (1.0, SpeechStarted(at=1.0)), *eager_end(2.0, "book a table"), (2.3, SpeechStarted(at=2.3)),
        *eager_end(3.0, "book a table for four"), (3.4, TranscriptFrame("Book a table for four.", endpoint=True)),
    )  # fmt: skip
    assert told == [
        "2.00 probable book a table", "2.30 resumed", "3.00 probable book a table for four", "3.40 ended Book a table for four.",
    ]  # fmt: skip


def test_a_dropped_guess_does_not_use_up_a_policy_for_the_next_utterance() -> None:
    """An interrupt while the agent is silent interrupts no utterance."""
    watched = Watched()
    watched.play(2.3, BEGINS, SAYS, STOPS, (2.25, TurnPolicyFrame(barge_in=Never(), once=True)))
    watched.machine.interrupted(2.3)
    assert watched.machine.policies.barge_in == Never()


def test_speech_that_is_still_judged_is_not_guessed_about() -> None:
    """Until it is their turn there is no end of it."""
    told = Watched(TurnOptions(start=Words(4), end=Silence(0.4))).play(3.0, BEGINS, SAYS, STOPS)
    assert told == []


def test_a_dropped_guess_is_no_exchange() -> None:
    """Since when nobody has said anything, which wakes or tires a wake phrase, is not moved by an interrupt of nothing."""
    watched = Watched()
    watched.play(4.0, BEGINS, SAYS, STOPS, (2.5, TranscriptFrame("Book a table.")), (3.5, PlaybackStarted(utterance=1, at=3.5)))
    watched.play(5.0, (4.5, PlaybackStopped(heard=Heard(1, "done", complete=True), at=4.5)))
    watched.machine.interrupted(9.0)
    assert watched.machine.agent.heard_at == 4.5


def test_until_a_gate_is_known_all_replies_count() -> None:
    """And from then on those of which it was said, in whatever order that comes."""
    verdicts = Verdicts()
    assert verdicts.of(7) is True
    verdicts.guard()
    assert [verdicts.of(n) for n in (0, 1)] == [True, None]
    verdicts.take(ReplyDecided(utterance=2))
    verdicts.take(ReplyDecided(utterance=3, counts=False))
    verdicts.take(ReplyDecided(utterance=4))
    assert [verdicts.of(n) for n in range(6)] == [True, True, True, False, True, None]
    verdicts.take(ReplyDecided(utterance=3))
    assert verdicts.of(3) is False, "a wrong guess never becomes right"


@pytest.mark.parametrize("eager", [0.2, "silence", None])
def test_the_eager_policy_must_be_one(eager: object) -> None:
    """A number is no policy; the error says what may stand there."""
    with pytest.raises(ValueError, match="end policy"):
        Speculation(eager)  # type: ignore[arg-type]


def test_the_gate_is_closed_until_it_is_told() -> None:
    """A reply waits, in order; a wrong one vanishes; what was not asked for passes; the end waits for no one."""

    async def main() -> list[str]:
        gate, passed = Speculation(), Collector()
        session = Session(gate >> passed, inputs=[LLMTextFrame, ReplyDecided])
        seen = []

        def so_far() -> str:
            return " ".join(frame.text for frame in passed.frames if isinstance(frame, LLMTextFrame))

        async with session:
            for text, utterance in [("hello", 0), ("a", 1), ("b", 1)]:
                await session.send(LLMTextFrame(text, utterance=utterance))
            await asyncio.sleep(1.0)
            seen.append(so_far())
            await session.send(ReplyDecided(utterance=1))
            await asyncio.sleep(0.1)
            seen.append(so_far())
            await session.send(LLMTextFrame("wrong", utterance=2))
            await session.send(ReplyDecided(utterance=2, counts=False))
            await session.send(LLMTextFrame("wrong too", utterance=2))
            await session.send(ReplyDecided(utterance=3))
            await session.send(LLMTextFrame("right", utterance=3))
        seen.append(so_far())
        return seen

    assert run_virtual(main()) == ["hello", "hello a b", "hello a b right"]


def test_it_passes_the_conformance_kit() -> None:
    """Strangers pass, interrupts leave nothing behind, slow and failing neighbours change nothing."""
    check_processor(Speculation, [ReplyDecided(utterance=1), LLMTextFrame("a", utterance=1), LLMEnded(utterance=1)])
