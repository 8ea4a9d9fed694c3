"""One agent hands the call to another inside one session: instructions, tools and voice change, the context as chosen."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from voiceflow import ContextFrame, Message, Pipeline, Session, ToolCall, TurnEnded
from voiceflow.frames import Frame
from voiceflow.processors.agents import Agent, Carry, HandOver, OnlyVoice
from voiceflow.processors.context import Context
from voiceflow.processors.conversation import Conversation
from voiceflow.processors.steps import Flow, Step
from voiceflow.processors.text import Sentences
from voiceflow.processors.tool import ToolError, tool
from voiceflow.processors.tools import Tools
from voiceflow.testing import Latency, RecordingSink, ScriptedTTS

from .rig import StrictLLM, history_fault


@tool()
async def check_bill() -> str:
    """Look at the bill."""
    return "ten euros too much"


def reception(to: Agent, carry: Carry, note: str = "") -> Agent:
    @tool(effect="once")
    async def transfer() -> HandOver:
        """To the billing desk."""
        return HandOver(to, carry, note)

    return Agent("reception", "You are the reception.", (transfer,), voice="ava")


def billing(greeting: str = "") -> Agent:
    return Agent("billing", "You are the billing desk.", (check_bill,), greeting, "bob")


def reply(messages: tuple[Message, ...]) -> str | tuple[str | ToolCall, ...]:
    if messages[0].text.startswith("You are the reception"):
        return ("I connect you.", ToolCall("t", "transfer"))
    if messages[-1].text == "ten euros too much":
        return "You are right."
    return ("Let me see.", ToolCall("c", "check_bill")) if messages[-1].role == "tool" else "Billing here."


class Desk:
    """The first agent answers; two voices, one for each."""

    def __init__(self, first: Agent) -> None:
        self.context, self.model, self.sink = Context(first), StrictLLM(reply, Latency(0.05, 0.005)), RecordingSink()
        self.ava, self.bob = ScriptedTTS(), ScriptedTTS()
        self.tools = Tools(first.tools)
        thinking: Pipeline = self.context >> self.model >> self.tools >> Sentences()
        voices = [OnlyVoice("ava", first=True) >> self.ava, OnlyVoice("bob") >> self.bob]
        self.session = Session(thinking >> voices >> self.sink, inputs=[TurnEnded])
        self.offered: list[list[str]] = []
        self.session.tap(self._see)

    def _see(self, frame: Frame, source: str, target: str) -> None:
        if isinstance(frame, ContextFrame) and target == self.model.name:
            self.offered.append([spec.name for spec in frame.tools])

    async def call(self, *texts: str) -> None:
        async with self.session:
            for text in texts:
                await self.session.send(TurnEnded(text=text))
                await asyncio.sleep(4.0)
        assert self.model.refused == []
        assert not history_fault(self.context.conversation.messages)


async def test_the_other_agent_answers_in_its_own_voice_with_its_own_tools() -> None:
    """After the words before it were heard; the whole conversation goes along."""
    desk = Desk(reception(billing(), "all", "The caller is in a hurry."))
    await desk.call("my bill is wrong")
    assert desk.offered == [["transfer"], ["check_bill"], ["check_bill"]]
    assert desk.model.requests[1][0].text == "You are the billing desk.\nThe caller is in a hurry."
    assert [m.role for m in desk.model.requests[1]] == ["system", "user", "assistant", "tool"]
    assert (desk.ava.sentences, desk.bob.sentences) == (["I connect you."], ["Let me see.", "You are right."])
    assert desk.sink.words() == ["I", "connect", "you.", "Let", "me", "see.", "You", "are", "right."]


async def test_a_greeting_is_said_in_the_new_voice_and_the_caller_has_the_turn() -> None:
    """No reply is asked for until they speak, and of the old conversation only what was chosen is left."""
    desk = Desk(reception(billing("Billing, hello."), "nothing"))
    await desk.call("my bill is wrong", "it is ten euros too much")
    assert desk.sink.words() == ["I", "connect", "you.", "Billing,", "hello.", "Billing", "here."]
    assert " ".join(desk.bob.sentences) == "Billing, hello. Billing here."
    assert desk.ava.sentences == ["I connect you."]
    assert [m.text for m in desk.model.requests[1][1:]] == ["Billing, hello.", "it is ten euros too much"]


async def test_the_callers_last_words_alone_may_go_along() -> None:
    """The new agent answers them."""
    desk = Desk(reception(billing(), "last"))
    await desk.call("my bill is wrong")
    assert [(m.role, m.text) for m in desk.model.requests[1][1:]] == [("user", "my bill is wrong")]
    assert desk.sink.words() == ["I", "connect", "you.", "Billing", "here."]


async def test_what_goes_along_may_be_made_by_a_function() -> None:
    """A summary, say."""
    desk = Desk(reception(billing(), lambda conversation: Conversation().with_user(f"{len(conversation.messages)} messages so far")))
    await desk.call("my bill is wrong")
    assert [m.text for m in desk.model.requests[1][1:]] == ["3 messages so far"]


@pytest.mark.parametrize("at_s", [0.0, 0.03, 0.06, 0.2, 0.3])
async def test_a_hand_over_of_an_interrupted_reply_does_not_happen(at_s: float) -> None:
    """The caller who cuts in still speaks with the first agent."""
    desk = Desk(reception(billing(), "all"))
    async with desk.session:
        await desk.session.send(TurnEnded(text="my bill is wrong"))
        await asyncio.sleep(at_s)
        desk.session.interrupt("wait")
        await asyncio.sleep(3.0)
        assert desk.context.system == "You are the reception."
        assert desk.bob.sentences == []


def test_a_wrong_hand_over_is_named() -> None:
    """Where it is written."""
    with pytest.raises(ToolError, match="HandOver to billing: carry is 'some'"):
        HandOver(billing(), "some")  # type: ignore[arg-type]
    with pytest.raises(ToolError, match="with carry 'nothing' there is nothing to answer"):
        HandOver(billing(), "nothing")
    with pytest.raises(ToolError, match="agent a: two tools are named check_bill"):
        Agent("a", "", (check_bill, check_bill))


class Size(msgspec.Struct):
    people: int


class Sure(msgspec.Struct):
    yes: bool


async def test_a_flow_leads_through_its_steps_in_a_call() -> None:
    """Collect, confirm, and who goes on after it; a result that does not fit is asked for again."""

    def answers(messages: tuple[Message, ...]) -> str | tuple[str | ToolCall, ...]:
        system, last = messages[0].text, messages[-1]
        if "how many" in system:
            if last.role == "user" and "four" in last.text:
                return (ToolCall("s", "finish_size", '{"people": "many"}'),)
            if "do not fit" in last.text:
                return (ToolCall("s", "finish_size", '{"people": 4}'),)
            return "How many are you?"
        if "right" in system:
            return (ToolCall("y", "finish_sure", '{"yes": true}'),) if last.role == "user" else "Four people, right?"
        return "I connect you with a person."

    flow = Flow(
        [Step("size", "Ask how many they are.", Size, next=("sure",)), Step("sure", "Ask whether it is right.", Sure)],
        after=Agent("human", "You are a person."),
    )
    context, model, sink = Context(flow.agent), StrictLLM(answers, Latency(0.05, 0.005)), RecordingSink()
    pipeline = context >> model >> Tools(flow.agent.tools) >> Sentences() >> ScriptedTTS() >> sink
    async with Session(pipeline, inputs=[TurnEnded]) as session:
        for text in ("a table please", "we are four", "yes"):
            await session.send(TurnEnded(text=text))
            await asyncio.sleep(4.0)
    assert sink.words() == ["How", "many", "are", "you?", "Four", "people,", "right?", "I", "connect", "you", "with", "a", "person."]
    assert flow.results == {"size": Size(4), "sure": Sure(yes=True)}
    assert flow.done
    assert model.refused == []
