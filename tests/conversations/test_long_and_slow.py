"""Case B60, memory in long calls, and the engine's part of B52, a client that stops taking."""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import AsyncIterator

import numpy as np
import pytest

from voiceflow import AudioFormat, EndFrame, InputAudioFrame, Message, OutputAudioFrame, Processor, SayFrame, Session, UtteranceEnded
from voiceflow.processors.context import Context
from voiceflow.processors.text import Sentences
from voiceflow.processors.turns import Turns
from voiceflow.testing import CALLER_STEP, Latency, ScriptedLLM, ScriptedSTT, ScriptedTTS, ScriptedVAD, no_leaks, run_virtual
from voiceflow.transports.speaker import Speaker

RATE = 16000
PERIOD_S = 12.0
SHORT = "Yes, we have that in blue and in green. Which one shall it be?"
LONG = " ".join(f"This is sentence number {n} of a very long answer." for n in range(15))


def resident_mb() -> float:
    gc.collect()
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


class Talkative(Processor):
    """A caller who speaks for a second every 12 s, for so many turns; made as it goes, not kept."""

    makes = AudioFormat(RATE)

    def __init__(self, turns: int) -> None:
        self.turns = turns

    async def run(self) -> AsyncIterator[InputAudioFrame]:
        silence, voice = bytes(640), np.full(320, CALLER_STEP, "<i2").tobytes()
        loop = asyncio.get_running_loop()
        began = loop.time()
        for number in range(round(self.turns * PERIOD_S * 50)):
            at = number * 0.02
            await asyncio.sleep(began + at + 0.02 - loop.time())
            yield InputAudioFrame(voice if 1.0 <= at % PERIOD_S < 2.0 else silence, RATE, pts=began + at)


class Call:
    """One call on the demo's graph; every third answer is so long that the next question cuts it."""

    def __init__(self, turns: int, file: str) -> None:
        self.context = Context("Sell shirts.")
        self.llm = ScriptedLLM(self.reply, Latency(0.2, 0.005))
        self.file = open(file, "wb")  # noqa: SIM115 - closed at the end of the call
        self.speaker = Speaker(self.file.write, AudioFormat(24000))
        hearing = Talkative(turns) >> ScriptedVAD() >> ScriptedSTT(["tell me more"]) >> Turns()
        self.session = Session(hearing >> self.context >> self.llm >> Sentences() >> ScriptedTTS() >> self.speaker)
        self.answers = 0

    def reply(self, messages: tuple[Message, ...]) -> str:
        self.answers += 1
        return SHORT if self.answers % 3 else LONG


@pytest.mark.timeout(300)
@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="needs /proc to read the resident memory: run on Linux")
def test_b60_a_call_of_two_hours_does_not_grow() -> None:
    """360,000 frames, 600 turns, every third interrupted: memory, queues and tasks at the end are as at turn 50."""

    async def main() -> None:
        call = Call(600, os.devnull)
        running = asyncio.create_task(call.session.run())
        loop = asyncio.get_running_loop()
        await asyncio.sleep(50 * PERIOD_S - 0.5)
        before, tasks = resident_mb(), len(asyncio.all_tasks())
        deepest = 0.0
        while loop.time() < 600 * PERIOD_S - 1.0:
            await asyncio.sleep(PERIOD_S)
            states = call.session.inboxes()
            deepest = max([deepest, *(state.seconds for state in states)])
            assert all(state.frames <= 16 for state in states if state.lane != "AGENT")
        assert len(asyncio.all_tasks()) == tasks
        await running
        call.file.close()
        assert call.answers == 600
        assert len([m for m in call.context.conversation.messages if m.interrupted]) > 150
        assert deepest <= 2.2  # seconds of sound that the session lets wait, and the frame on the brink
        assert resident_mb() - before <= 20

    run_virtual(main())


@pytest.mark.timeout(200)
@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="needs /proc to read the resident memory: run on Linux")
def test_b60_thirty_calls_one_after_another_do_not_grow() -> None:
    """A minute each, in one process: nothing of a call outlives it."""

    async def main() -> None:
        marks = []
        for _ in range(30):
            async with no_leaks():
                call = Call(5, os.devnull)
                await call.session.run()
                call.file.close()
            marks.append(resident_mb())
        assert marks[-1] - marks[4] <= 10

    run_virtual(main())


class StuckClient(Processor):
    """A sink whose far end has stopped reading."""

    def __init__(self) -> None:
        self.reads = asyncio.Event()
        self.got: list[int] = []

    async def process(self, frame: OutputAudioFrame | UtteranceEnded | EndFrame) -> None:
        if isinstance(frame, OutputAudioFrame):
            await self.reads.wait()
            self.got.append(frame.utterance)


class Speech(Processor):
    """120 s of sound for a SayFrame, as fast as it is taken; or in one frame of 30 s."""

    def __init__(self, *, at_once: bool) -> None:
        self.at_once = at_once
        self.made_s = 0.0

    async def process(self, frame: SayFrame) -> AsyncIterator[OutputAudioFrame]:
        seconds, count = (30.0, 1) if self.at_once else (0.1, 1200)
        for _ in range(count):
            await asyncio.sleep(0)
            self.made_s += seconds
            yield OutputAudioFrame(bytes(2 * round(24000 * seconds)), 24000, utterance=int(frame.text))


@pytest.mark.parametrize("at_once", [False, True])
async def test_b52_a_client_that_stops_taking_holds_up_its_own_call_only(at_once: bool) -> None:
    """What waits for it is bounded, an interrupt gets through at once, and nothing stale is sent when it reads again."""
    speech, client = Speech(at_once=at_once), StuckClient()
    other_speech, other = Speech(at_once=False), StuckClient()
    other.reads.set()
    async with Session(speech >> client, inputs=[SayFrame]) as slow, Session(other_speech >> other, inputs=[SayFrame]) as quick:
        await slow.send(SayFrame("1"))
        await quick.send(SayFrame("1"))
        await asyncio.sleep(20.0)
        assert len(other.got) == 1200
        assert speech.made_s <= (30.0 if at_once else 2.3)
        waiting = sum(state.frames for state in slow.inboxes())
        interruption = slow.interrupt("the caller speaks")
        assert interruption.dropped >= waiting
        assert all(state.frames == 0 for state in slow.inboxes())
        await slow.send(SayFrame("2"))
        await asyncio.sleep(20.0)
        client.reads.set()
        await asyncio.sleep(1.0)
    assert set(client.got) == {2}
