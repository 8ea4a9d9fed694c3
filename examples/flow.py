"""A small flow of steps with typed results, on a virtual clock: collect an address, confirm it, hand over to a person."""

from __future__ import annotations

import msgspec

from voiceflow import Message, Session, ToolCall
from voiceflow.processors.agents import Agent
from voiceflow.processors.context import Context
from voiceflow.processors.steps import Flow, Step
from voiceflow.processors.text import Sentences
from voiceflow.processors.tools import Tools
from voiceflow.processors.turns import Turns
from voiceflow.testing import RecordingSink, Said, ScriptedCaller, ScriptedLLM, ScriptedSTT, ScriptedTTS, ScriptedVAD, run_virtual


class Address(msgspec.Struct):
    street: str
    number: int


class Confirmation(msgspec.Struct):
    is_right: bool


def after_confirmation(result: Confirmation) -> str:
    return "dispatch" if result.is_right else "address"


STEPS = [
    Step("address", "Ask for the street and the number.", Address, next=("confirm",)),
    Step("confirm", "Read the address back and ask if it is right.", Confirmation, next=("dispatch", "address"), choose=after_confirmation),
    Step("dispatch", "Say that the parcel is on its way.", msgspec.defstruct("Nothing", [])),
]


def model(messages: tuple[Message, ...]) -> str | tuple[str | ToolCall, ...]:
    """Stands for a language model that calls tools well: one line for each step, one call when it knows the answer."""
    instructions, last = messages[0].text, messages[-1]
    if "Ask for the street" in instructions:
        wrong = last.role == "tool" and "do not fit" in last.text  # the flow refuses "seven": the number is an int
        if wrong:
            return (ToolCall("2", "finish_address", '{"street": "High Street", "number": 7}'),)
        if "high street" in last.text:
            return (ToolCall("1", "finish_address", '{"street": "High Street", "number": "seven"}'),)
        return "Where do you live?"
    if "Read the address back" in instructions:
        return (ToolCall("3", "finish_confirm", '{"is_right": true}'),) if last.role == "user" else "High Street 7, is that right?"
    return "Your parcel is on its way."


async def main() -> None:
    flow = Flow(STEPS, persona="You are friendly.", after=Agent("person", "You are a person."))
    caller = ScriptedCaller([Said(0.5, 1.0, "a parcel please"), Said(4.0, 1.2, "seven high street"), Said(9.0, 0.5, "yes")], until=13.0)
    context, sink = Context(flow.agent), RecordingSink()
    hearing = caller >> ScriptedVAD() >> ScriptedSTT(caller.texts) >> Turns()
    pipeline = hearing >> context >> ScriptedLLM(model) >> Tools(flow.agent.tools) >> Sentences() >> ScriptedTTS() >> sink

    await Session(pipeline).run()
    for message in context.conversation.messages:
        if message.text:
            print(f"{message.role:>9}: {message.text}")
    print(f"     step: {flow.current}, results: {flow.results}")


if __name__ == "__main__":
    run_virtual(main())
