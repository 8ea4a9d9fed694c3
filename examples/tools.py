"""A bookings desk on a virtual clock: a pure look-up, a slow tool with a filler, and a booking that is made exactly once."""

import asyncio

from voiceflow import Message, Session, ToolCall
from voiceflow.processors.context import Context
from voiceflow.processors.text import Sentences
from voiceflow.processors.tool import tool
from voiceflow.processors.tools import Tools
from voiceflow.processors.turns import Turns
from voiceflow.testing import RecordingSink, Said, ScriptedCaller, ScriptedLLM, ScriptedSTT, ScriptedTTS, ScriptedVAD, run_virtual

bookings: list[str] = []


@tool()
async def free_tables(people: int) -> list[str]:
    """Which tables are free tonight. It changes nothing, so it may run before the reply is even heard.

    people: how many seats are needed
    """
    return [f"{hour} o'clock" for hour in (7, 9)] if people < 6 else []


@tool(filler="Let me ask the kitchen.", filler_after_ms=500)
async def ask_kitchen(dish: str) -> str:
    """Whether a dish is on tonight. The kitchen takes its time, so the caller is told after half a second of silence."""
    await asyncio.sleep(2.0)
    return f"{dish} is on"


@tool(effect="once")
async def book(people: int, time: str) -> str:
    """Book a table. It begins when the words before it were heard, is never cancelled then, and never done twice."""
    bookings.append(f"{people} at {time}")
    return "booked, number 12"


def model(messages: tuple[Message, ...]) -> str | tuple[str | ToolCall, ...]:
    """Stands for a language model that calls tools well."""
    last = messages[-1]
    if last.role == "user" and "fish" in last.text:
        return (ToolCall("k1", "ask_kitchen", '{"dish": "fish"}'),)
    if last.role == "user" and "book" in last.text:
        return ("Seven o'clock it is.", ToolCall("b1", "book", '{"people": 4, "time": "7"}'))
    if last.role == "user":
        return ("One moment.", ToolCall("t1", "free_tables", '{"people": 4}'))
    return {"fish is on": "Yes, there is fish.", "booked, number 12": "Done, your number is twelve."}.get(last.text, "Seven or nine?")


async def main() -> None:
    caller = ScriptedCaller(
        [Said(0.5, 1.0, "a table for four please"), Said(4.0, 1.0, "do you have fish"), Said(10.0, 1.0, "then book seven")], until=15.0
    )
    tools = [free_tables, ask_kitchen, book]
    context, sink = Context("You take bookings.", tools=[known.spec for known in tools]), RecordingSink()
    hearing = caller >> ScriptedVAD() >> ScriptedSTT(caller.texts) >> Turns()
    pipeline = hearing >> context >> ScriptedLLM(model) >> Tools(tools) >> Sentences() >> ScriptedTTS() >> sink
    print(pipeline)

    await Session(pipeline).run()
    for message in context.conversation.messages:
        calls = ", ".join(f"{call.name}({call.arguments})" for call in message.calls)
        print(f"{message.role:>9}: {message.text}{' -> ' if message.text and calls else ''}{calls}")
    print(f"   booked: {bookings}")


if __name__ == "__main__":
    run_virtual(main())
