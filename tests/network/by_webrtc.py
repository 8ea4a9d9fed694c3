"""The trials of WebRTC: an aiortc peer behind a bad relay, with a browser's manner of playing: packets in order, a little late, on the clock.

Sound that has been through Opus carries no numbers: here each word is a tone of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator

import numpy as np

from tests.network.link import Link, Network, udp_link
from tests.network.side import Side
from tests.network.talk import LINKS, NEAR, PATIENCE_S, Course, Ear, Result, Trial, converse, lateness
from tests.network.tones import Singer, nearest, sung
from tests.transports.webrtc_caller import RATE, Caller, Voice, candidate, redirected, tone
from voiceflow.transports.opus import OpusDecoder
from voiceflow.transports.rtp import RtpStream
from voiceflow.transports.webrtc import PeerOptions, WebRTC, WebRTCOptions
from voiceflow.transports.webrtc_peer import _Packet, _Tap
from voiceflow.transports.wire_frames import FramesOptions, FramesWire

__all__ = ["AT_ONCE", "SILENT_S", "TRIALS", "hold"]

BLOCK = 960
BLOCK_S = BLOCK / RATE
BUFFER_S = 0.06
"""How far behind the fastest packet the far end plays; it grows with packets that come later, as a browser's does."""
REPORT_S = 0.1
SILENT_S = 1.5
"""Of the trials with a dead peer, so that they are short."""
AT_ONCE = 4
"""Each codes and encrypts as much as two calls."""

TRIALS = (
    *reversed(LINKS),  # the long ones first
    Trial("50 to 100 ms", Link(delay_s=0.05, jitter_s=0.05)),
    Trial("50 ms, cut for 4 s", NEAR, outage_s=4.0),
    Trial("50 ms, half open", NEAR, half_open=True),
)


class Telephone:
    """The caller's peer. Its loudspeaker plays each packet when it is due, and what is late pushes the rest back."""

    def __init__(self) -> None:
        self.ear = Ear()
        self.stopped: dict[int, bool] = {}
        self.places: list[tuple[int, int]] = []
        """Where in the agent's stream each piece of sound lay, and of which utterance it is."""
        self.knew: list[float] = []
        """When it was told of each interrupt."""
        self.caller = Caller(Voice(), channel=True)
        self.stream = RtpStream()
        self._decoder = OpusDecoder()
        self._origin: int | None = None
        self._first: int | None = None
        self._delay_s: float | None = None
        self._at: dict[int, int] = {}
        """Where each packet's sound lies, by its timestamp, as a browser counts: in a long outage the stream jumps."""
        self._word: dict[int, int] = {}
        self._played = self._reported = 0
        self._pending: list[asyncio.TimerHandle] = []
        self._ssrc: int | None = None

    def listen(self) -> None:
        """Take the sound where aiortc would put it into its own buffer, and the words of the data channel."""
        (receiver,) = self.caller.connection.getReceivers()
        _Tap(self._arrived).put_into(receiver)
        self.caller.data.on("message", self._told)

    async def say(self, seconds: float) -> float:
        voice = self.caller.voice
        assert voice.begun is not None
        voice.say(tone(seconds, 800))
        return voice.begun + len(voice.sound) / RATE

    def _told(self, message: str) -> None:
        said = json.loads(message)
        if said["type"] == "playback_stopped":
            self.stopped[said["utterance"]] = said["complete"]
        elif said["type"] == "interrupted":
            self.knew.append(asyncio.get_running_loop().time())
        elif said["type"] == "rtp":
            self._origin = said["timestamp"]
        self.ear.stirred.set()

    def _arrived(self, packet: _Packet) -> None:
        loop = asyncio.get_running_loop()
        if packet.ssrc != self._ssrc:
            self._ssrc, self._first, self.stream = packet.ssrc, packet.timestamp, RtpStream()
        self._at[id(packet.payload)] = (packet.timestamp - self._first) % 2**32
        self.stream.add(packet.sequence_number, packet.timestamp, packet.payload, loop.time())
        self._take()

    def _take(self) -> None:
        loop = asyncio.get_running_loop()
        for piece in self.stream.take(loop.time()):
            self._play(piece.payload, self._at.pop(id(piece.payload)), loop)
        if self.stream.due is not None:
            self._pending.append(loop.call_at(self.stream.due, self._take))
            del self._pending[:-50]

    def _play(self, payload: bytes, position: int, loop: asyncio.AbstractEventLoop) -> None:
        sound = np.frombuffer(self._decoder.decode(payload), "<i2")
        now = loop.time()
        least_s = now - position / RATE
        if self._delay_s is None or least_s > self._delay_s:
            self._delay_s = least_s if self._delay_s is not None else least_s + BUFFER_S
        at = self._delay_s + position / RATE
        self._pending.append(loop.call_at(at, self._sounds, at, position, sound))
        del self._pending[:-400]

    def _sounds(self, at: float, position: int, sound: np.ndarray) -> None:
        found = sung(sound, RATE)
        if found is not None:
            utterance, word = found
            before = self._word.get(utterance, 0)
            self._word[utterance] = word = nearest(word, before)
            self.ear.hear(at, (utterance, word), BLOCK_S)
            self.places.append((position, utterance))
        self.ear.stirred.set()
        self._played = position + BLOCK
        channel = self.caller.data
        if self._origin is not None and self._played - self._reported >= REPORT_S * RATE and channel.readyState == "open":
            self._reported = self._played
            assert self._first is not None
            channel.send(json.dumps({"type": "played", "samples": self._played + (self._first - self._origin) % 2**32}))

    async def close(self) -> None:
        for handle in self._pending:
            handle.cancel()
        await self.caller.close()
        for handle in self._pending:
            handle.cancel()


@contextlib.asynccontextmanager
async def called(door: WebRTC, telephone: Telephone, link: Link, seed: int) -> AsyncIterator[Network]:
    """The connection, made over an untroubled relay, which is as bad as ``link`` from then on."""
    caller = telephone.caller
    offer = await caller.offer()
    host, port = candidate(offer["sdp"])
    network = Network(Link(), seed)
    async with udp_link(port, network, host) as relay:
        answer = await door.answer(offer | {"sdp": redirected(offer["sdp"], (host, relay))})
        telephone.listen()
        await caller.accept(answer | {"sdp": redirected(answer["sdp"], (host, relay))})
        async with asyncio.timeout(15):
            await caller.opened.wait()
        caller.data.send(json.dumps({"type": "start"}))
        network.link = link
        try:
            yield network
        finally:
            await telephone.close()


async def hold(trial: Trial, seed: int = 1) -> Result:
    """Hold the conversation on this link."""
    course, result, side = Course(), Result("webrtc", trial), Side(Singer)
    telephone, loop = Telephone(), asyncio.get_running_loop()
    options = WebRTCOptions(peer=PeerOptions(silent_s=SILENT_S)) if trial.half_open else WebRTCOptions()
    async with (
        WebRTC(side.calls, options, words=lambda: FramesWire(FramesOptions(resume_s=0))) as door,
        called(door, telephone, trial.link, seed) as network,
        lateness(side.look) as late,
    ):
        script = loop.create_task(converse(telephone, network, trial, course))
        until = loop.time() + PATIENCE_S + trial.outage_s
        while not script.done() and loop.time() < until and not side.records:
            await asyncio.wait([script], timeout=0.05)
        if script.done():
            script.result()
        script.cancel()
        await asyncio.wait([script])
        result.late_s = late[0]
        if course.finished:
            telephone.caller.data.send(json.dumps({"type": "end"}))
        until = loop.time() + 5
        while course.finished and not side.records and loop.time() < until:
            await telephone.ear.stirred.wait()  # silence comes too, until the end
            telephone.ear.stirred.clear()
            await asyncio.sleep(0)
    result.take(side, telephone.ear, course)
    cuts = side.agents[0].cuts
    result.told_s = [knew - interruption.at for (interruption, _, _), knew in zip(cuts, telephone.knew, strict=False)]
    for interruption, _, position in cuts:
        utterance = interruption.heard[-1].utterance
        # The coder looks back a little: the first packet after an interrupt may have the tail of the old sound.
        result.stale += sum(of == utterance and place >= position + BLOCK for place, of in telephone.places)
    return result
