"""A telephone menu, on the virtual clock: its tones are really played and really heard, its words are heard over the line."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from voiceflow import ContextFrame, InputAudioFrame, InterruptFrame, LLMEnded, Message, PlaybackStopped, Processor, SentenceFrame, Session
from voiceflow.messages import ToolCall
from voiceflow.phone import DigitReceived
from voiceflow.playout.refill import PlayoutOptions
from voiceflow.processors.agents import Agent
from voiceflow.processors.context import Context
from voiceflow.processors.dtmf import DTMFIn, DTMFOut
from voiceflow.processors.ivr import Left, LoopGuard, MenuOptions, Navigator
from voiceflow.processors.text import Sentences
from voiceflow.processors.tools import Tools
from voiceflow.processors.turns import Turns
from voiceflow.tasks import woken
from voiceflow.testing import CALLER_STEP, Latency, ScriptedLLM, ScriptedSTT, ScriptedTTS, ScriptedVAD, check_processor, run_virtual
from voiceflow.transports.memory import pair
from voiceflow.transports.speaker import SpeakerOptions

SHARP = SpeakerOptions(playout=PlayoutOptions(fade_ms=0, declick_ms=0))
PAUSE_S = 1.0


@dataclass(frozen=True)
class Place:
    """A menu: what it says, with a pause between the parts, and where its keys and words lead."""

    says: tuple[str, ...]
    leads: dict[str, str] = field(default_factory=dict)


MAIN = Place(("Welcome to Acme.", "For sales press one.", "For billing and invoices press two."), {"1": "sales", "2": "billing"})
SALES = Place(("Our sales desk is closed.", "To go back press nine."), {"9": "main"})
BILLING = Place(("Please enter your customer number and the hash key.",), {"4711#": "jane"})
JANE = Place(("Billing, this is Jane, what is it about?",), {"it is about my invoice": "silence"})
HOUSE = {"main": MAIN, "sales": SALES, "billing": BILLING, "jane": JANE, "silence": Place(())}


class PhoneMenu(Processor):
    """Says where the caller is, goes where their keys or words lead, and says the same again after five seconds."""

    def __init__(self, places: dict[str, Place], words: Sequence[str]) -> None:
        self.places = places
        self.words = words
        """What the labels in the caller's sound stand for."""
        self.here = "main"
        self.keys = ""
        """All that were heard."""
        self.said: list[str] = []
        self.heard: list[str] = []
        self._entry = ""
        self._label = 0
        self._prefix = ""
        self._wake = asyncio.Event()
        self._spoken = asyncio.Event()

    def process(self, frame: InputAudioFrame | DigitReceived | PlaybackStopped) -> Iterator[InterruptFrame]:
        """A key or a word."""
        if isinstance(frame, PlaybackStopped):
            self._spoken.set()
            return
        if isinstance(frame, DigitReceived):
            self.keys += frame.digit
            self._entry += frame.digit
            if any(choice != self._entry and choice.startswith(self._entry) for choice in self.places[self.here].leads):
                return
            choice, self._entry = self._entry, ""
        elif not (choice := self._new_words(frame)):
            return
        yield InterruptFrame(reason="the caller chose")
        leads = self.places[self.here].leads
        self._prefix = "" if choice in leads else "That is not valid."
        self.here = leads.get(choice, self.here)
        self._wake.set()

    def _new_words(self, frame: InputAudioFrame) -> str:
        values = set(np.unique(np.frombuffer(frame.pcm, "<i2")).tolist()) - {0}
        if len(values) != 1 or (value := values.pop()) % CALLER_STEP or value // CALLER_STEP <= self._label:
            return ""
        self._label = value // CALLER_STEP
        self.heard.append(self.words[self._label - 1])
        return self.heard[-1].strip(".").lower()

    async def run(self) -> AsyncIterator[SentenceFrame | LLMEnded]:
        """Say it, and again."""
        number = 0
        while True:
            parts = [*filter(None, [self._prefix]), *self.places[self.here].says]
            self.said.append(" ".join(parts))
            for part in parts:
                number += 1
                self._spoken.clear()
                yield SentenceFrame(part, utterance=number, epoch=self.session.epoch)
                yield LLMEnded(utterance=number, epoch=self.session.epoch)
                await self._first_of(self._spoken, self._wake)
                if self._wake.is_set():
                    break
                await asyncio.sleep(PAUSE_S)
            await woken(self._wake, self.session.time() + 5.0)

    async def _first_of(self, *events: asyncio.Event) -> None:
        waits = [asyncio.ensure_future(event.wait()) for event in events]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()


Reply = str | tuple[str | ToolCall, ...]


def press(digits: str) -> tuple[ToolCall]:
    return (ToolCall("call", "press", json.dumps({"digits": digits})),)


@dataclass
class Outcome:
    """What became of a call."""

    left: Left | None
    menu: PhoneMenu
    requests: list[tuple[Message, ...]]
    """Of the model, before and after the hand-over."""
    spoken: list[str]
    seconds: float
    turns: Turns


def call(
    reply: Callable[[tuple[Message, ...]], Reply],
    places: dict[str, Place] = HOUSE,
    options: MenuOptions | None = None,
    *,
    limit_s: float = 180.0,
    thinks_s: float = 0.2,
) -> Outcome:
    """An agent calls the menu; ``reply`` is its model. Ends by itself, or after ``limit_s``."""

    async def main() -> Outcome:
        near, far = pair(options=SHARP)
        menu_voice, voice = ScriptedTTS(step=CALLER_STEP, word_s=0.3), ScriptedTTS(step=CALLER_STEP)
        menu = PhoneMenu(places, voice.sentences)
        there = Session(far.source >> DTMFIn() >> menu >> menu_voice >> far.sink)

        turns = Turns()
        navigator = Navigator("billing", Agent("ann", "You are Ann."), turns, options)
        llm = ScriptedLLM(reply, Latency(thinks_s, 0.01))
        hearing = near.source >> ScriptedVAD() >> ScriptedSTT(menu_voice.sentences) >> turns
        thinking = Context(navigator.agent) >> navigator >> llm >> Tools(navigator.agent.tools)
        here = Session(hearing >> thinking >> Sentences() >> voice >> DTMFOut() >> near.sink)

        async with there:
            began = here.time()
            task = asyncio.ensure_future(here.run())
            await asyncio.wait([task], timeout=limit_s)
            seconds = here.time() - began
            here.end()
            await task
        return Outcome(navigator.left, menu, llm.requests, voice.sentences, seconds, turns)

    return run_virtual(main())


def chooses(messages: tuple[Message, ...]) -> Reply:
    """A model that reads the menu."""
    said = messages[-1].text
    if "You are Ann" in messages[0].text:
        return "It is about my invoice."
    for text, choice in (("billing and invoices press two", press("2")), ("customer number", press("47 11-#"))):
        if text in said:
            return choice
    return (ToolCall("call", "arrived", "{}"),) if "Jane" in said else press("w")


def test_the_goal_is_reached_and_the_conversation_goes_on() -> None:
    """Two menus, each heard to its end, with keys that were really heard; then another agent answers the person, by ordinary turns."""
    made = call(chooses, limit_s=40.0)
    assert made.left == Left(reached=True, why="somebody answered")
    assert made.menu.keys == "24711#"
    assert made.menu.said[:3] == [" ".join(MAIN.says), *BILLING.says, *JANE.says]
    heard = [request[-1].text for request in made.requests]
    assert heard[:4] == [" ".join(MAIN.says), *BILLING.says, *JANE.says, *JANE.says]
    handed = made.requests[3]
    assert [message.role for message in handed] == ["system", "user"]
    assert "You are Ann" in handed[0].text
    assert "billing" in handed[0].text
    assert made.spoken == ["It is about my invoice."]
    assert made.menu.heard == made.spoken
    assert made.turns.machine.policies.end == made.turns.machine.options.end
    assert made.turns.machine.policies.barge_in == made.turns.machine.options.barge_in


def test_a_wrong_key_is_chosen_anew() -> None:
    """What the menu says to it is heard, and the model chooses again."""
    tried = iter([press("7"), press("1"), press("9")])

    def reply(messages: tuple[Message, ...]) -> Reply:
        return next(tried, None) or chooses(messages)

    made = call(reply, limit_s=60.0)
    assert made.left is not None
    assert made.left.reached
    assert made.menu.keys == "71924711#"
    assert made.menu.said[1].startswith("That is not valid. Welcome to Acme.")


def test_keys_that_are_none_are_told_to_the_model() -> None:
    """It is asked again, with the reason, before the menu has said anything."""
    tried = iter([press("two")])

    def reply(messages: tuple[Message, ...]) -> Reply:
        return next(tried, None) or (press("2") if messages[-1].role == "tool" else chooses(messages))

    made = call(reply, limit_s=40.0)
    assert made.requests[1][-1].role == "tool"
    assert "cannot be pressed" in made.requests[1][-1].text
    assert made.left is not None
    assert made.left.reached


def test_a_word_is_said_where_one_is_asked_for() -> None:
    """The words of the reply, over the line, heard to their end."""
    places = HOUSE | {"main": Place(("Say what you want.", "Sales or billing."), {"billing": "jane"})}
    made = call(lambda messages: "Billing." if "Say what" in messages[-1].text else chooses(messages), places, limit_s=40.0)
    assert made.menu.heard[0] == "Billing."
    assert made.left is not None
    assert made.left.reached


def test_a_menu_that_begins_again_does_not_cut_the_choice() -> None:
    """A slow model's word is said into the menu's repetition, to its end."""
    places = HOUSE | {"main": Place(("Say what you want.", "Sales or billing."), {"billing department please": "jane"})}
    made = call(
        lambda messages: "Billing department please." if "Say what" in messages[-1].text else chooses(messages),
        places,
        limit_s=40.0,
        thinks_s=4.3,
    )
    assert made.menu.heard[0] == "Billing department please."
    assert made.menu.said[:3] == ["Say what you want. Sales or billing."] * 2 + [*JANE.says]
    assert made.left is not None
    assert made.left.reached


CIRCLE = {"main": Place(MAIN.says, {"1": "main", "2": "main"})}


def test_a_menu_that_comes_again_and_again_is_left() -> None:
    """The model chooses three times, then 0 and a word are tried, then the call ends and says why."""
    made = call(chooses, CIRCLE)
    assert made.menu.keys == "2220"
    assert made.spoken == ["operator"]
    assert len(made.requests) == 3
    assert made.left is not None
    assert not made.left.reached
    assert "6 times" in made.left.why
    assert "Welcome to Acme" in made.left.why
    assert made.seconds < 150


def test_an_escape_may_lead_there() -> None:
    """0 is tried, and somebody answers."""
    made = call(chooses, HOUSE | {"main": Place(MAIN.says, {"2": "main", "0": "jane"})}, limit_s=90.0)
    assert made.menu.keys == "2220"
    assert made.left is not None
    assert made.left.reached


def test_a_menu_that_is_not_answered_is_heard_again() -> None:
    """The model waits; what it waits for is no endless row."""
    made = call(lambda messages: press("w"), CIRCLE, MenuOptions(escapes=()))
    assert made.menu.keys == ""
    assert made.left is not None
    assert "4 times" in made.left.why


def test_the_model_may_give_up() -> None:
    """Its reason is the call's."""
    give_up = (ToolCall("call", "give_up", '{"why": "only sales and support"}'),)
    made = call(lambda messages: give_up)
    assert made.left == Left(reached=False, why="only sales and support")
    assert len(made.requests) == 1
    assert made.seconds < 30


# ------------------------------------------------------------------------------------------------- pure parts


@given(
    st.lists(
        st.sampled_from(["for sales press one", "for billing press two", "the office is closed now", "please hold the line"]), max_size=40
    )
)
def test_no_menu_is_listened_to_for_ever(heard: list[str]) -> None:
    """The model chooses fewer times than a menu may come, each escape is tried once, and then it is over."""
    guard = LoopGuard(MenuOptions(repeats=3, most=30))
    for count in range(1, len(heard) + 1):
        times = heard[:count].count(heard[count - 1])
        move = guard.judge(heard[:count])
        if count > 30 or times > 4:
            assert isinstance(move, Left)
            assert not move.reached
        else:
            assert move == [None, None, "0", "operator"][times - 1]


def test_what_a_recogniser_hears_otherwise_is_the_same_menu() -> None:
    """A word more, a word less, other marks; but a menu of other options is another one."""
    guard = LoopGuard(MenuOptions(repeats=2))
    menu = "Welcome to Acme. For sales, press 1. For billing and invoices, press 2. To hear this again, press 9."
    assert guard.judge([menu, "Sorry. " + menu.replace("billing and", "building").lower()]) == "0"
    assert guard.judge([menu, "For repairs, press 4. For deliveries, press 5. For anything else, stay on the line."]) is None
    assert guard.judge([]) is None


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"silence_s": 0}, "silence_s"),
        ({"repeats": 1}, "repeats"),
        ({"most": 0}, "most"),
        ({"alike": 0}, "alike"),
        ({"escapes": ("0", " ")}, "escapes"),
    ],
)
def test_wrong_options_are_refused(wrong: dict[str, object], says: str) -> None:
    """The error names the field."""
    with pytest.raises(ValueError, match=says):
        MenuOptions(**wrong)  # type: ignore[arg-type]


def test_a_goal_is_needed() -> None:
    """Without words for it the model could not choose."""
    with pytest.raises(ValueError, match="goal is empty"):
        Navigator(" ", Agent("ann", "You are Ann."), Turns())


class _Alone(Navigator):
    """Without a Turns in the graph."""

    async def start(self) -> None:
        """Nothing to prepare."""


def test_the_node_conforms() -> None:
    """The conformance kit."""
    menu = ContextFrame(messages=(Message("user", "For sales press one."),), utterance=1)
    check_processor(lambda: _Alone("sales", Agent("ann", "You are Ann."), Turns()), [menu, menu])
