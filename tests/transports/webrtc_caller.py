"""A caller for the tests of WebRTC: an aiortc peer of its own, a network that loses and delays, and an agent that needs no model."""

from __future__ import annotations

import asyncio
import random
import re
import wave
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soxr

pytest.importorskip("aiortc", reason="needs aiortc: pip install 'voiceflow-framegraph[webrtc]'")

import av
from aiortc import MediaStreamTrack, RTCConfiguration, RTCPeerConnection, RTCSessionDescription
from aiortc.mediastreams import MediaStreamError

from voiceflow import Processor
from voiceflow.frames import AudioFormat, InputAudioFrame, InterruptFrame, OutputAudioFrame, UtteranceEnded, Word
from voiceflow.tasks import whatever_happens
from voiceflow.transports.webrtc_peer import Connection

DEADLINE_S = 20.0
RATE = 48000
BLOCK = 960


def tone(seconds: float, hz: float = 440.0, level: float = 8000) -> np.ndarray:
    return (np.sin(2 * np.pi * hz * np.arange(round(seconds * RATE)) / RATE) * level).astype(np.int16)


def quiet(seconds: float) -> np.ndarray:
    return np.zeros(round(seconds * RATE), np.int16)


def wav_at_48k(path: Path) -> np.ndarray:
    with wave.open(str(path)) as file:
        samples = np.frombuffer(file.readframes(file.getnframes()), "<i2")
        return np.asarray(soxr.resample(samples, file.getframerate(), RATE), np.int16)


class Voice(MediaStreamTrack):
    """The caller's microphone: what was ``said``, then silence, paced by the loop's clock."""

    kind = "audio"

    def __init__(self, *said: np.ndarray) -> None:
        super().__init__()
        self.sound = np.concatenate([*said, quiet(0.02)])
        self.position = 0
        self.begun: float | None = None

    def say(self, sound: np.ndarray) -> None:
        """From now on."""
        self.sound = np.concatenate([quiet(self.position / RATE), sound])

    async def recv(self) -> av.AudioFrame:
        if self.readyState != "live":
            raise MediaStreamError
        loop = asyncio.get_running_loop()
        if self.begun is None:
            self.begun = loop.time()
        await asyncio.sleep(max(self.begun + self.position / RATE - loop.time(), 0))
        block = self.sound[self.position : self.position + BLOCK]
        block = np.pad(block, (0, BLOCK - len(block)))
        frame = av.AudioFrame.from_ndarray(block[None], format="s16", layout="mono")
        frame.sample_rate, frame.pts, frame.time_base = RATE, self.position, Fraction(1, RATE)
        self.position += BLOCK
        return frame


@dataclass
class Caller:
    """One who calls. ``heard``: (time of the loop, its loudness) for each 20 ms that came."""

    voice: Voice = field(default_factory=Voice)
    channel: bool = False
    connection: RTCPeerConnection = field(default_factory=lambda: Connection(RTCConfiguration(iceServers=[])))
    heard: list[tuple[float, float]] = field(default_factory=list)
    sound: list[np.ndarray] = field(default_factory=list)
    told: asyncio.Queue[Any] = field(default_factory=asyncio.Queue)
    stirred: asyncio.Event = field(default_factory=asyncio.Event)
    opened: asyncio.Event = field(default_factory=asyncio.Event)
    listening: asyncio.Task[None] | None = None
    data: Any = None

    async def offer(self) -> dict[str, str]:
        pc = self.connection
        pc.on("track", self._track)
        if self.channel:
            self.data = pc.createDataChannel("voiceflow")
            self.data.on("message", self.told.put_nowait)
            self.data.on("open", self.opened.set)
        pc.addTrack(self.voice)
        await whatever_happens(pc.setLocalDescription(await pc.createOffer()))
        return {"sdp": pc.localDescription.sdp, "type": pc.localDescription.type}

    async def accept(self, answer: dict[str, str]) -> None:
        await whatever_happens(self.connection.setRemoteDescription(RTCSessionDescription(answer["sdp"], answer["type"])))

    async def call(self, answer: Callable[[dict[str, str]], Awaitable[dict[str, str]]]) -> None:
        await self.accept(await answer(await self.offer()))

    async def close(self) -> None:
        await self.connection.close()
        if self.listening is not None:
            self.listening.cancel()  # a track that never began to flow does not end by itself
            await asyncio.wait([self.listening])

    def _track(self, track: MediaStreamTrack) -> None:
        self.listening = asyncio.create_task(self._listen(track))

    async def _listen(self, track: MediaStreamTrack) -> None:
        while True:
            try:
                frame = await track.recv()
            except MediaStreamError:
                return
            samples = frame.to_ndarray().reshape(-1, 2)[:, 0]
            self.sound.append(samples)
            self.heard.append((asyncio.get_running_loop().time(), float(np.sqrt(np.mean(samples.astype(float) ** 2)))))
            self.stirred.set()

    async def until(self, condition: Callable[[], object], deadline_s: float = DEADLINE_S) -> None:
        """Looked at with each block that comes."""
        async with asyncio.timeout(deadline_s):
            while not condition():
                self.stirred.clear()
                await self.stirred.wait()

    def loud(self, level: float = 500) -> list[float]:
        """When sound came that was loud."""
        return [at for at, loudness in self.heard if loudness > level]


class Parrot(Processor):
    """Answers each stretch of sound that is followed by 200 ms of silence with a tone of a word each 200 ms; speech cuts it short."""

    def __init__(self, words: int = 10) -> None:
        self.words = words
        self.utterance = 0
        self.frames: list[InputAudioFrame] = []
        self.loud_s = self.quiet_s = 0.0
        self.speaking = False

    def process(self, frame: InputAudioFrame) -> list[OutputAudioFrame | UtteranceEnded | InterruptFrame]:
        self.frames.append(frame)
        if np.sqrt(np.mean(frame.samples.astype(float) ** 2)) > 300:
            self.loud_s, self.quiet_s = self.loud_s + frame.duration, 0.0
            if self.speaking and self.loud_s > 0.05:
                self.speaking = False
                return [InterruptFrame(reason="barge-in")]
            return []
        self.quiet_s += frame.duration
        if self.quiet_s < 0.2 or self.loud_s < 0.1:
            return []
        self.loud_s = 0.0
        self.speaking = True
        self.utterance += 1
        words = tuple(Word(f"word{n}", n * 0.2, (n + 1) * 0.2) for n in range(self.words))
        pcm = tone(self.words * 0.2).tobytes()
        return [
            OutputAudioFrame(pcm=pcm, sample_rate=RATE, words=words, utterance=self.utterance),
            UtteranceEnded(utterance=self.utterance),
        ]

    takes = (AudioFormat(RATE),)


class Network(asyncio.DatagramProtocol):
    """What lies between the two: media is lost and delayed, at random but the same each time."""

    def __init__(self, loss: float = 0.0, jitter_s: float = 0.0, seed: int = 7) -> None:
        self.loss = loss
        self.jitter_s = jitter_s
        self.cut = False
        """Nothing passes any more."""
        self.passed = self.lost = 0
        self._random = random.Random(seed)
        self._sides: list[_Side] = []
        self._waiting: deque[asyncio.TimerHandle] = deque(maxlen=1000)

    async def open(self, address: str) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(2):
            _, side = await loop.create_datagram_endpoint(lambda: _Side(self), local_addr=(address, 0))
            self._sides.append(side)
        self._sides[0].other, self._sides[1].other = self._sides[1], self._sides[0]

    def close(self) -> None:
        for timer in self._waiting:
            timer.cancel()
        for side in self._sides:
            side.transport.close()

    def between(
        self, answer: Callable[[dict[str, str]], Awaitable[dict[str, str]]]
    ) -> Callable[[dict[str, str]], Awaitable[dict[str, str]]]:
        """The same answer, to an offer that leads through here."""

        async def through(offer: dict[str, str]) -> dict[str, str]:
            address, _ = candidate(offer["sdp"])
            await self.open(address)
            given = await answer(offer | {"sdp": redirected(offer["sdp"], self._sides[1].address)})
            self._sides[1].peer = candidate(given["sdp"])
            return given | {"sdp": redirected(given["sdp"], self._sides[0].address)}

        return through

    def carry(self, data: bytes, to: _Side) -> None:
        media = len(data) > 12 and 128 <= data[0] <= 191 and not 64 <= data[1] & 127 <= 95
        if self.cut:
            return
        if media and self._random.random() < self.loss:
            self.lost += 1
            return
        self.passed += media
        if media and self.jitter_s:
            self._waiting.append(asyncio.get_running_loop().call_later(self._random.random() * self.jitter_s, to.send, data))
        else:
            to.send(data)


class _Side(asyncio.DatagramProtocol):
    other: _Side
    transport: asyncio.DatagramTransport

    def __init__(self, network: Network) -> None:
        self.network = network
        self.peer: tuple[str, int] | None = None

    @property
    def address(self) -> tuple[str, int]:
        host, port = self.transport.get_extra_info("sockname")[:2]
        return host, port

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def datagram_received(self, data: bytes, peer: Any) -> None:
        self.peer = peer[:2]
        self.network.carry(data, self.other)

    def send(self, data: bytes) -> None:
        if self.peer is not None and not self.transport.is_closing():
            self.transport.sendto(data, self.peer)


CANDIDATE = re.compile(r"^a=candidate:(\S+) (\d+) (\S+) (\d+) (\S+) (\d+) typ host\r?$", re.MULTILINE)


def candidate(sdp: str) -> tuple[str, int]:
    """The first of IPv4."""
    return next((found[5], int(found[6])) for found in CANDIDATE.finditer(sdp) if "." in found[5])


def redirected(sdp: str, address: tuple[str, int]) -> str:
    """The only way there is leads to this address."""
    first = True

    def change(found: re.Match[str]) -> str:
        nonlocal first
        if not first:
            return "a=x-removed\r"
        first = False
        return f"a=candidate:{found[1]} {found[2]} {found[3]} {found[4]} {address[0]} {address[1]} typ host\r"

    return CANDIDATE.sub(change, sdp)
