"""One agent file, unchanged, answers on every kind of line, with real models: what the far end hears is the answer.

Chromium and WebRTC have tests of their own, which use the same file: ``test_browser``, ``test_webrtc``.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
import uuid
import wave
from collections.abc import Awaitable, Callable
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("websockets", reason="pip install -e '.[web]'")

from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from tests.transports.telephony.carriers import Twilio
from voiceflow import InputAudioFrame, OutputAudioFrame, Pipeline, Processor
from voiceflow.apps import load_app
from voiceflow.audio import resample
from voiceflow.models import ModelStore
from voiceflow.testing import no_leaks
from voiceflow.transports.calls import Calls
from voiceflow.transports.telephony.audiosocket import AudioSocketOptions, AudioSocketServer
from voiceflow.transports.telephony.twilio import TwilioWire
from voiceflow.transports.wav import WavIn
from voiceflow.transports.websocket import WebsocketOptions, WebsocketServer
from voiceflow.transports.websocket_client import CallOptions, call

ROOT = Path(__file__).resolve().parents[2]
AGENT = ROOT / "examples" / "local_agent.py"
QUESTION = ROOT / "examples" / "data" / "question.wav"
"""What is the capital of Australia?"""
HEARD_S = 4.0
"""The answer is listened to for so long, from its first sound; or until nothing more came for ``QUIET_S``."""
QUIET_S = 3.0


def question(rate: int) -> bytes:
    with wave.open(str(QUESTION)) as file:
        pcm = resample(file.readframes(file.getnframes()), file.getframerate(), rate, file.getnchannels())
    return bytes(rate) + pcm + bytes(2 * 8 * rate)


async def paced(pcm: bytes, rate: int, send: Callable[[int, bytes], Awaitable[object]]) -> None:
    """20 ms at a time, as it is spoken."""
    loop = asyncio.get_running_loop()
    began, size = loop.time(), rate // 50 * 2
    for number, at in enumerate(range(0, len(pcm), size)):
        await asyncio.sleep(max(began + number * 0.02 - loop.time(), 0))
        await send(number, pcm[at : at + size])


class Ear:
    """What a far end is sent; ``full``: the answer has been listened to."""

    def __init__(self, rate: int) -> None:
        self.rate = rate
        self.pcm = b""

    def take(self, pcm: bytes) -> None:
        if self.pcm or np.any(np.frombuffer(pcm, "<i2")):
            self.pcm += pcm

    @property
    def is_full(self) -> bool:
        return len(self.pcm) >= 2 * self.rate * HEARD_S

    @property
    def patience_s(self) -> float:
        return QUIET_S if self.pcm else 50.0


class Listen(Processor):
    """The caller's own ear, of a session that calls."""

    def __init__(self, ear: Ear, full: asyncio.Event) -> None:
        self.ear, self.full = ear, full

    def process(self, frame: InputAudioFrame) -> None:
        assert frame.sample_rate == self.ear.rate
        self.ear.take(frame.pcm)
        if self.ear.is_full:
            self.full.set()


async def on_the_websocket(tmp_path: Path, calls: Calls) -> bytes:
    """Another session of ours is the caller: it speaks a file, and hears."""
    ear, full, path = Ear(16000), asyncio.Event(), tmp_path / "question.wav"
    with wave.open(str(path), "wb") as file:
        file.setparams((1, 2, 16000, 0, "NONE", ""))
        file.writeframes(question(16000))

    def caller(source: Processor, sink: Processor) -> Pipeline:
        return Pipeline([WavIn(path) >> Aloud() >> sink, source >> Listen(ear, full)])

    async with WebsocketServer(calls, WebsocketOptions(port=0)) as server:
        calling = asyncio.create_task(call(server.options.url, caller, CallOptions(hears=16000)))
        await full.wait()
        calling.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await calling
    return ear.pcm


class Aloud(Processor):
    """What the caller has in a file is what their session says."""

    def process(self, frame: InputAudioFrame) -> OutputAudioFrame:
        return OutputAudioFrame(pcm=frame.pcm, sample_rate=frame.sample_rate)


async def as_twilio(tmp_path: Path, calls: Calls) -> bytes:
    """Twilio's own messages, mu-law at 8 kHz."""
    carrier, ear = Twilio(), Ear(8000)
    async with (
        WebsocketServer(calls, WebsocketOptions(port=0), wire=lambda shown: TwilioWire()) as server,
        connect(server.options.url) as peer,
    ):
        for message in carrier.begin():
            await peer.send(message)
        speaking = asyncio.create_task(paced(question(8000), 8000, lambda number, pcm: peer.send(carrier.media(number, pcm))))
        while not ear.is_full:
            try:
                kind, what = carrier.understand(await asyncio.wait_for(peer.recv(), ear.patience_s))
            except TimeoutError:
                break
            if kind == "mark":
                await peer.send(carrier.mark(what))
            if kind == "sound":
                ear.take(what)
        speaking.cancel()
        with contextlib.suppress(asyncio.CancelledError, ConnectionClosed):
            await speaking
        for message in carrier.stop():
            await peer.send(message)
    assert carrier.faults == []
    return resample(ear.pcm, 8000, 16000)


async def as_asterisk(tmp_path: Path, calls: Calls) -> bytes:
    """AudioSocket over TCP, 8 kHz."""
    ear = Ear(8000)
    async with AudioSocketServer(calls, AudioSocketOptions(port=0)) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.options.port)
        writer.write(struct.pack(">BH", 1, 16) + uuid.uuid4().bytes)

        async def send(number: int, pcm: bytes) -> None:
            writer.write(struct.pack(">BH", 0x10, len(pcm)) + pcm)
            await writer.drain()

        speaking = asyncio.create_task(paced(question(8000), 8000, send))
        while not ear.is_full:
            try:
                kind, size = struct.unpack(">BH", await asyncio.wait_for(reader.readexactly(3), ear.patience_s))
            except TimeoutError:
                break
            assert kind == 0x10
            ear.take(await reader.readexactly(size))
        speaking.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await speaking
        writer.close()
        await writer.wait_closed()
    return resample(ear.pcm, 8000, 16000)


def test_the_same_file_answers_on_every_line(tmp_path: Path) -> None:
    """Asked what the capital of Australia is, each far end hears its name; all at once, with models that they share."""
    whisper = pytest.importorskip("voiceflow.processors.stt_whisper", reason="pip install -e '.[local]'")
    pytest.importorskip("voiceflow.processors.tts_piper", reason="pip install -e '.[local]'")
    pytest.importorskip("xllamacpp", reason="pip install -e '.[local]'")
    for name in ("silero-vad", "smart-turn", "whisper-tiny.en", "piper-joe", "smollm2-135m"):
        if ModelStore().find(name) is None:
            pytest.skip(f"the models are not here; run: voiceflow models get {name}")

    async def main() -> list[bytes]:
        agent = load_app(str(AGENT))
        async with no_leaks(descriptors=False), asyncio.timeout(60):  # a model that is loaded may keep one
            return await asyncio.gather(*(way(tmp_path, Calls(agent, limit=1)) for way in (on_the_websocket, as_twilio, as_asterisk)))

    transcriber = whisper.open_whisper(ModelStore().path("whisper-tiny.en"), whisper.WhisperOptions())
    for pcm in asyncio.run(main()):
        heard = transcriber.transcribe(np.frombuffer(pcm, "<i2").astype(np.float32) / 32768).text
        assert "canberra" in heard.lower(), heard
