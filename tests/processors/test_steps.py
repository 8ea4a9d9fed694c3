"""A flow decides what comes next, by results that fit their types; each step can be tried without a sound."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import msgspec
import pytest

from voiceflow import ToolCall
from voiceflow.processors.agents import Agent, HandOver
from voiceflow.processors.steps import Flow, FlowError, Step
from voiceflow.processors.tool import ToolError, ToolRun


class Address(msgspec.Struct):
    street: str
    number: int


class Confirmed(msgspec.Struct):
    is_right: bool


class Nothing(msgspec.Struct):
    pass


def steps() -> list[Step]:
    return [
        Step("address", "Ask where to deliver.", Address, next=("confirm",)),
        Step(
            "confirm",
            "Read the address back.",
            Confirmed,
            next=("transfer", "address"),
            choose=lambda result: "transfer" if result.is_right else "address",
            say="Let me read that back.",
        ),
        Step("transfer", "Say that you transfer the call.", Nothing),
    ]


def call(agent: Agent, **arguments: Any) -> HandOver | str:
    """What the model does when it knows the answer: call the tool that ends the step."""
    finish = agent.tools[-1]
    result = asyncio.run(finish.run(ToolRun(ToolCall("1", finish.name, json.dumps(arguments)), None, print, print)))  # type: ignore[arg-type]
    assert isinstance(result, HandOver | str)
    return result


def test_each_result_leads_to_the_next_step() -> None:
    """The agent of a step has its instructions, what is known so far, and the tool that ends it."""
    flow = Flow(steps(), persona="You take orders.", voice="ava")
    assert flow.agent.system == "You take orders. Ask where to deliver. When you know it, call finish_address."
    assert json.loads(flow.agent.tools[0].spec.parameters)["required"] == ["street", "number"]
    there = call(flow.agent, street="High Street", number="7")
    assert isinstance(there, HandOver)
    assert (there.to.name, there.to.greeting, there.to.voice) == ("confirm", "Let me read that back.", "ava")
    assert 'Known so far. address: {"street":"High Street","number":7}.' in there.to.system
    assert flow.results == {"address": Address("High Street", 7)}


def test_a_step_may_lead_back() -> None:
    """The second answer takes the place of the first."""
    flow = Flow(steps())
    call(flow.agent, street="Hye Street", number=7)
    call(flow.agent, is_right=False)
    assert flow.current == "address"
    call(flow.agent, street="High Street", number=7)
    call(flow.agent, is_right=True)
    assert (flow.current, flow.results["address"]) == ("transfer", Address("High Street", 7))


def test_after_the_last_step_the_next_agent_goes_on_or_the_same_one() -> None:
    """`after` takes over; without it the model is told that it was all."""
    human = Agent("human", "You are a person.")
    for after in (human, None):
        flow = Flow([Step("only", "Ask.", Nothing)], after=after)
        end = call(flow.agent)
        assert flow.done
        assert end == HandOver(human) if after else "That was all" in str(end)


def test_a_result_that_does_not_fit_does_not_end_the_step() -> None:
    """The model is told which field is wrong, and asks again."""
    flow = Flow(steps())
    with pytest.raises(ToolError, match=re.escape("the arguments of finish_address do not fit: Object missing required field `number`")):
        call(flow.agent, street="High Street")
    assert (flow.current, flow.results) == ("address", {})


def test_a_step_that_is_not_the_present_one_cannot_be_finished() -> None:
    """A model that calls an old tool does not jump."""
    flow = Flow(steps())
    first = flow.agent
    call(first, street="High Street", number=7)
    with pytest.raises(FlowError, match="step 'address' is not the present one \\('confirm'\\)"):
        call(first, street="Low Street", number=8)


def choosing(name: str) -> list[Step]:
    return [Step("a", "", Nothing, next=("b", "c"), choose=lambda _: name), Step("b", "", Nothing), Step("c", "", Nothing)]


def test_a_choice_that_is_no_next_step_is_named() -> None:
    """The mistake is the flow's author's, and says where."""
    with pytest.raises(FlowError, match=re.escape("step 'a': choose() gave 'd', and next has b, c")):
        call(Flow(choosing("d")).agent)


@pytest.mark.parametrize(
    ("made", "message"),
    [
        ([], "a flow has at least one step"),
        ([Step("a", "", Nothing), Step("a", "", Nothing)], "two steps are named a"),
        ([Step("a", "", Nothing, next=("b",))], "step 'a': next names 'b'; there are a"),
        ([Step("a", "", Nothing), Step("b", "", Nothing)], "no step leads to 'b'"),
        (
            [Step("a", "", Nothing, next=("b", "c")), Step("b", "", Nothing), Step("c", "", Nothing)],
            "step 'a' has 2 next steps; choose(result) must say which",
        ),
        ([Step("a", "", Nothing, next=("b",)), Step("b", "", Nothing, next=("a",))], "the flow never ends: each of a, b has a next step"),
        ([Step("a b", "", Nothing)], "tool 'finish_a b': providers take names"),
    ],
)
def test_a_flow_that_cannot_work_is_refused_when_it_is_made(made: list[Step], message: str) -> None:
    """The error names the step."""
    with pytest.raises((FlowError, ToolError), match=re.escape(message)):
        Flow(made).agent
