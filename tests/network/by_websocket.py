"""The trials of the websocket: a server of ours, a bad link, and our own client, whose ear plays at the pace of the clock."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import numpy as np

from tests.network.link import Link, Network, tcp_link
from tests.network.talk import PATIENCE_S, Agent, Course, Ear, Notes, Result, Trial, converse, lateness
from voiceflow.frames import (
    EndFrame,
    Frame,
    InputAudioFrame,
    InterruptFrame,
    OutputAudioFrame,
    PlaybackStopped,
    UtteranceEnded,
)
from voiceflow.pipeline import Pipeline
from voiceflow.processor import Processor
from voiceflow.session import Session
from voiceflow.testing import ScriptedTTS
from voiceflow.transports.calls import CallRecord, Calls
from voiceflow.transports.line import LineOptions
from voiceflow.transports.line_ends import LineOut
from voiceflow.transports.websocket import WebsocketOptions, WebsocketServer
from voiceflow.transports.websocket_client import CallOptions, call
from voiceflow.transports.wire_frames import FramesOptions

__all__ = ["HALF_OPEN_S", "TRIALS", "hold"]

RATE = 24000
FADES = 24
"""Fewer samples of one value are a fade that passes by."""
LATENCY_S = 0.1
"""What the client's own loudspeaker end takes off for the way."""
PING_S, RESUME_S = 1.0, 2.0
"""Of the trials with a dead peer, so that they are short."""
HALF_OPEN_S = 2 * PING_S + RESUME_S + 2 * LineOptions().close_s
"""A ping is due, it is not answered, nobody comes back, and the socket does not close."""

NEAR = Link(delay_s=0.05)

TRIALS = (
    Trial("no delay", Link()),
    Trial("20 ms", Link(delay_s=0.02)),
    Trial("100 ms", Link(delay_s=0.1)),
    Trial("300 ms", Link(delay_s=0.3)),
    Trial("50 to 150 ms", Link(delay_s=0.05, jitter_s=0.1)),
    Trial("50 ms, 1 % lost", Link(delay_s=0.05, loss=0.01)),
    Trial("50 ms, 5 % lost", Link(delay_s=0.05, loss=0.05)),
    Trial("50 ms, 20 % lost", Link(delay_s=0.05, loss=0.2)),
    Trial("50 ms, 64 kbit/s", Link(delay_s=0.05, rate=64000, buffer=8192)),
    Trial("50 ms, 64 kbit/s to the caller only", Link(delay_s=0.05, rate=64000, buffer=8192), up=NEAR, ping_s=20.0),
    Trial("50 ms, cut for 10 s", NEAR, outage_s=10.0),
    Trial("50 ms, cut for 10 s, pings of 1 s", NEAR, outage_s=10.0, ping_s=PING_S),
    Trial("50 ms, half open", NEAR, half_open=True, ping_s=PING_S),
)


class Talker(Processor):
    """The caller: says what it is told to, and keeps what it hears and is told."""

    def __init__(self, agent: Agent) -> None:
        self.ear = Ear()
        self.stopped: dict[int, bool] = {}
        self.taken: list[tuple[float, int]] = []
        """When each piece of sound was taken from the queue before the ear, or a little earlier than that."""
        self.knew: list[float] = []
        """When it was told of each interrupt."""
        self._agent = agent
        self._to_say: asyncio.Queue[float] = asyncio.Queue(4)
        self._said = 0
        self._over: dict[int, float] = {}

    async def run(self) -> AsyncIterator[OutputAudioFrame | UtteranceEnded | EndFrame]:
        while seconds := await self._to_say.get():
            self._said += 1
            pcm = np.full(round(seconds * RATE), 5000, "<i2").tobytes()
            yield OutputAudioFrame(pcm, RATE, utterance=self._said, epoch=self.session.epoch)
            yield UtteranceEnded(utterance=self._said, epoch=self.session.epoch)
        yield EndFrame()

    def process(self, frame: InputAudioFrame | PlaybackStopped) -> None:
        if isinstance(frame, PlaybackStopped):
            self._over[frame.heard.utterance] = frame.at - LATENCY_S
            self.ear.stirred.set()
            return
        assert frame.pts is not None
        samples = np.frombuffer(frame.pcm, "<i2")
        starts = np.flatnonzero(np.diff(samples, prepend=samples[:1] - 1))
        for start, stop in zip(starts, [*starts[1:], len(samples)], strict=True):
            number = int(samples[start])
            word = self._agent.notes.words.get(number) if self._agent.notes is not None else None
            if word is not None and stop - start >= FADES:
                self.ear.hear(frame.pts + start / RATE, word, (stop - start) / RATE, number)
                self.taken.append((frame.pts + frame.duration, number))
        self.ear.stirred.set()

    def tell(self, frame: Frame) -> None:
        """What the server tells."""
        if isinstance(frame, PlaybackStopped):
            self.stopped[frame.heard.utterance] = frame.heard.complete
        elif isinstance(frame, InterruptFrame):
            self.knew.append(asyncio.get_running_loop().time())

    async def say(self, seconds: float) -> float:
        number = self._said + 1
        self._to_say.put_nowait(seconds)
        await self.ear.hears(lambda: number in self._over)
        return self._over[number]

    def hang_up(self) -> None:
        self._to_say.put_nowait(0.0)


async def hold(trial: Trial, seed: int = 1) -> Result:
    """Hold the conversation on this link."""
    agent, course, result, records = Agent(), Course(), Result("websocket", trial), list[CallRecord]()
    ends: list[LineOut] = []

    def answering(source: Processor, sink: Processor) -> Pipeline:
        assert isinstance(sink, LineOut)
        ends.append(sink)
        agent.notes = Notes(lambda: sink.position)
        return source >> agent.answerer >> ScriptedTTS(numbered=True) >> agent.notes >> sink

    def watch(session: Session, _: Pipeline, __: Processor) -> None:
        agent.session = session

    def look() -> None:
        for end in ends:
            result.most_waiting = max(result.most_waiting, len(end.outbox))
            result.longest_waiting_s = max(result.longest_waiting_s, end.outbox.waiting_s(asyncio.get_running_loop().time()))

    class Kept(Calls):
        def _over(self, record: CallRecord, error: BaseException | None) -> CallRecord:
            records.append(record)
            return super()._over(record, error)

    talker, network = Talker(agent), Network(trial.link, seed, trial.up)
    calls = Kept(answering, limit=1, watch=watch)
    frames = FramesOptions(resume_s=RESUME_S) if trial.half_open or trial.link.rate else FramesOptions()
    options = CallOptions(hears=RATE, told=talker.tell, ping_s=trial.ping_s)
    async with (
        WebsocketServer(calls, WebsocketOptions(port=0, ping_s=trial.ping_s), frames=frames) as server,
        tcp_link(server.options.port, network) as port,
        lateness(look) as late,
    ):
        loop = asyncio.get_running_loop()
        calling = loop.create_task(call(f"ws://127.0.0.1:{port}/call", lambda source, sink: Pipeline(source) >> talker >> sink, options))
        script = loop.create_task(converse(talker, network, trial, course))
        await asyncio.wait([calling, script], timeout=PATIENCE_S + trial.outage_s, return_when=asyncio.FIRST_COMPLETED)
        if trial.half_open:
            assert course.cut_at is not None
            while calls.running and loop.time() < course.cut_at + PATIENCE_S:
                await asyncio.wait([calling], timeout=0.05)
            result.given_up_s = loop.time() - course.cut_at
        if script.done():
            script.result()
        script.cancel()
        talker.hang_up()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(5):
                result.caller_why = (await calling).why
        await calls.drain(0 if trial.half_open else 10)
        await asyncio.wait([script])
        result.late_s = late[0]
    result.why = records[0].why if records else "it never began"
    result.take(agent, talker.ear, course)
    assert agent.notes is not None
    cuts = [cut for cut in agent.notes.cut if cut[0].heard]
    for (interruption, last, _), knew in zip(cuts, talker.knew, strict=False):
        result.told_s.append(knew - interruption.at)
        result.stale += sum(number <= last and taken > knew for taken, number in talker.taken)
    return result
