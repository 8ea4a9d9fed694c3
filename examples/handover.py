"""Two agents in one call, on a virtual clock: the reception hands over to billing, which has its own tools and its own voice."""

from voiceflow import Message, Session, ToolCall
from voiceflow.processors.agents import Agent, HandOver, OnlyVoice
from voiceflow.processors.context import Context
from voiceflow.processors.text import Sentences
from voiceflow.processors.tool import tool
from voiceflow.processors.tools import Tools
from voiceflow.processors.turns import Turns
from voiceflow.testing import RecordingSink, Said, ScriptedCaller, ScriptedLLM, ScriptedSTT, ScriptedTTS, ScriptedVAD, run_virtual


@tool()
async def check_bill() -> str:
    """What the last bill was."""
    return "40 euros, 10 too many"


BILLING = Agent("billing", "You are the billing desk.", (check_bill,), voice="bob")


@tool(effect="once")
async def to_billing(problem: str) -> HandOver:
    """Hand the caller over to the billing desk.

    problem: what it is about, in a few words
    """
    return HandOver(BILLING, carry="all", note=f"The caller's problem: {problem}.")  # "last", "nothing" or a function, else


RECEPTION = Agent("reception", "You are the reception.", (to_billing,), voice="ava")


def model(messages: tuple[Message, ...]) -> str | tuple[str | ToolCall, ...]:
    """Stands for a language model that calls tools well; what it is told to be is in its instructions."""
    instructions, last = messages[0].text, messages[-1]
    if instructions.startswith(RECEPTION.system):
        return ("I connect you with billing.", ToolCall("1", "to_billing", '{"problem": "a wrong bill"}'))
    if "10 too many" in last.text:
        return "You are right, you get ten euros back."
    return ("Billing here, let me see.", ToolCall("2", "check_bill")) if last.role == "tool" else "Goodbye."


async def main() -> None:
    caller = ScriptedCaller([Said(0.5, 1.2, "my bill is wrong"), Said(6.0, 0.8, "thank you")], until=9.0)
    context, sink = Context(RECEPTION), RecordingSink()
    hearing = caller >> ScriptedVAD() >> ScriptedSTT(caller.texts) >> Turns()
    thinking = hearing >> context >> ScriptedLLM(model) >> Tools(RECEPTION.tools) >> Sentences()
    ava, bob = ScriptedTTS(), ScriptedTTS()
    pipeline = thinking >> [OnlyVoice("ava", first=True) >> ava, OnlyVoice("bob") >> bob] >> sink

    await Session(pipeline).run()
    for message in context.conversation.messages:
        calls = ", ".join(f"{call.name}({call.arguments})" for call in message.calls)
        print(f"{message.role:>9}: {message.text}{' -> ' if message.text and calls else ''}{calls}")
    print(f"      ava: {' '.join(ava.sentences)}")
    print(f"      bob: {' '.join(bob.sentences)}")
    print(f"    heard: {' '.join(sink.words())}")


if __name__ == "__main__":
    run_virtual(main())
