"""A whole conversation without a model, on a virtual clock: the caller interrupts the agent, in milliseconds of real time."""

import asyncio

from voiceflow import Message, Session
from voiceflow.processors.context import Context
from voiceflow.processors.text import Sentences
from voiceflow.processors.turns import Turns
from voiceflow.testing import RecordingSink, Said, ScriptedCaller, ScriptedLLM, ScriptedSTT, ScriptedTTS, ScriptedVAD, run_virtual


def reply(messages: tuple[Message, ...]) -> str:
    if "table" in messages[-1].text:
        return "A table for four at eight, gladly."
    return "We are open from noon to ten. Our menu changes with the season, and today there is fish with lemon."


async def main() -> None:
    caller = ScriptedCaller(
        [Said(0.5, 1.0, "when are you open"), Said(4.0, 1.2, "a table for four please")],  # the second cuts into the answer
        until=9.0,
    )
    context, sink = Context("You answer the phone of a restaurant."), RecordingSink()
    hearing = caller >> ScriptedVAD() >> ScriptedSTT(caller.texts) >> Turns()
    pipeline = hearing >> context >> ScriptedLLM(reply) >> Sentences() >> ScriptedTTS() >> sink
    print(pipeline)

    await Session(pipeline).run()
    for message in context.conversation.messages:
        print(f"{message.role:>9}: {message.text}{' ...' if message.interrupted else ''}")
    print(f"          {len(sink.interruptions)} interruption, {asyncio.get_running_loop().time():.1f} s of conversation")


if __name__ == "__main__":
    run_virtual(main())
