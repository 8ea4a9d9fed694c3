"""The trials of the websocket: a server of ours, a bad link, and our own client, whose ear plays at the pace of the clock."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import numpy as np

from tests.network.link import Link, Network, tcp_link
from tests.network.side import Side
from tests.network.talk import LINKS, NEAR, PATIENCE_S, Course, Ear, Result, Trial, converse, lateness
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
from voiceflow.testing import ScriptedTTS
from voiceflow.transports.line import LineOptions
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

TRIALS = (
    *LINKS,
    Trial("50 to 150 ms", Link(delay_s=0.05, jitter_s=0.1)),
    Trial("50 ms, 64 kbit/s to the caller only", Link(delay_s=0.05, rate=64000, buffer=8192), up=NEAR, ping_s=20.0),
    Trial("50 ms, cut for 10 s, pings of 1 s", NEAR, outage_s=10.0, ping_s=PING_S),
    Trial("50 ms, half open", NEAR, half_open=True, ping_s=PING_S),
)


class Talker(Processor):
    """The caller: says what it is told to, and keeps what it hears and is told."""

    def __init__(self, side: Side) -> None:
        self.ear = Ear()
        self.stopped: dict[int, bool] = {}
        self.taken: list[tuple[float, int]] = []
        """When each piece of sound was taken from the queue before the ear, or a little earlier than that."""
        self.knew: list[float] = []
        """When it was told of each interrupt."""
        self._side = side
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
            word = self._side.agents[0].notes.words.get(number)
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
    course, result = Course(), Result("websocket", trial)
    side = Side(lambda rate: ScriptedTTS(numbered=True))
    talker, network, calls = Talker(side), Network(trial.link, seed, trial.up), side.calls
    frames = FramesOptions(resume_s=RESUME_S) if trial.half_open or trial.link.rate else FramesOptions()
    options = CallOptions(hears=RATE, told=talker.tell, ping_s=trial.ping_s)
    async with (
        WebsocketServer(calls, WebsocketOptions(port=0, ping_s=trial.ping_s), frames=frames) as server,
        tcp_link(server.options.port, network) as port,
        lateness(side.look) as late,
    ):
        loop = asyncio.get_running_loop()
        calling = loop.create_task(call(f"ws://127.0.0.1:{port}/call", lambda source, sink: Pipeline(source) >> talker >> sink, options))
        script = loop.create_task(converse(talker, network, trial, course))
        await asyncio.wait([calling, script], timeout=PATIENCE_S + trial.outage_s, return_when=asyncio.FIRST_COMPLETED)
        if trial.half_open:
            assert course.cut_at is not None
            while calls.running and loop.time() < course.cut_at + PATIENCE_S:
                await asyncio.wait([calling], timeout=0.05)
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
    result.take(side, talker.ear, course)
    for (interruption, last, _), knew in zip(side.agents[0].cuts, talker.knew, strict=False):
        result.told_s.append(knew - interruption.at)
        result.stale += sum(number <= last and taken > knew for taken, number in talker.taken)
    return result
