"""Pipecat's own websocket clients call an agent of ours: protobuf frames with and without WAV headers, and RTVI in JSON."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("websockets", reason="pip install -e '.[web]'")

from tests.conformance.environments import BUILD_S, python_of
from tests.transports.line_rig import Ears, Parrot
from voiceflow import Pipeline, Processor, Session
from voiceflow.testing import Latency, ScriptedTTS, no_leaks
from voiceflow.transports.calls import Calls
from voiceflow.transports.rtvi import RTVIWire
from voiceflow.transports.websocket import WebsocketOptions, WebsocketServer

pytestmark = pytest.mark.timeout(BUILD_S + 60)


@pytest.fixture(scope="module")
def pipecat() -> Path:
    return python_of("pipecat", ["pipecat-ai==1.14.0"])


class Peer:
    """The process of the other framework, and what it says it was given."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.told: list[dict[str, Any]] = []

    def say(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n".encode())

    async def until(self, kind: str, **more: Any) -> dict[str, Any]:
        """Read until it was given that."""
        assert self.process.stdout is not None
        while True:
            line = await self.process.stdout.readline()
            assert line, f"the peer ended without {kind} {more}; it was given {self.told}"
            one = json.loads(line)
            self.told.append(one)
            if one["kind"] == kind and all(one.get(key) == value for key, value in more.items()):
                return one

    def kinds(self) -> list[str]:
        """RTVI's messages, by type."""
        return [one["message"]["type"] for one in self.told if one["kind"] == "message"]


@pytest.mark.parametrize("way", ["protobuf", "wav", "rtvi"])
def test_pipecats_client_speaks_with_our_agent(pipecat: Path, way: str) -> None:
    """It is heard, sample for sample; its typed words are answered in sound and words; an interrupt reaches it; it hangs up."""
    ears: list[Ears] = []
    sessions: list[Session] = []

    def agent(source: Processor, sink: Processor) -> Pipeline:
        ears.append(Ears())
        return source >> ears[-1] >> Parrot() >> ScriptedTTS(Latency(), step=1000) >> sink

    async def main() -> Peer:
        calls = Calls(agent, limit=2, watch=lambda session, *_: sessions.append(session))
        async with (
            no_leaks(),
            WebsocketServer(calls, WebsocketOptions(port=0), wire=lambda shown: RTVIWire()) as server,
            asyncio.timeout(60),
        ):
            command = [str(pipecat), str(Path(__file__).with_name("rtvi_peer.py")), server.options.url, way]
            pipe = asyncio.subprocess.PIPE
            process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)
            peer = Peer(process)
            try:
                await talk(peer)
                peer.say("end")
                await process.wait()
                while calls.running:
                    await asyncio.sleep(0.01)
            finally:
                if process.returncode is None:
                    process.kill()
                    await process.wait()
            return peer

    async def talk(peer: Peer) -> None:
        if way == "rtvi":
            await peer.until("LLMTextFrame", text="one two three four")
            await peer.until("BotStartedSpeakingFrame")
            await peer.until("TTSTextFrame")
            sessions[0].interrupt("the test")
            await peer.until("InterruptionFrame")
        else:
            await peer.until("audio", rate=24000, channels=1)
            sessions[0].interrupt("the test")
            await peer.until("InterruptionFrame")
        peer.say("type")
        if way == "rtvi":
            await peer.until("LLMTextFrame", text="five six")
            await peer.until("BotStoppedSpeakingFrame")
        else:
            before = peer.told[-1].get("samples", 0)
            while (await peer.until("audio"))["samples"] < before + 24000 * 0.15:
                pass
            while "bot-tts-text" not in peer.kinds():
                await peer.until("message")

    peer = asyncio.run(main())
    (heard,) = ears
    pcm = b"".join(frame.pcm for frame in heard.sound)
    values, counts = np.unique(np.frombuffer(pcm, "<i2"), return_counts=True)
    assert dict(zip(values.tolist(), counts.tolist(), strict=True))[0x0110] == 16000 // 5
    assert {frame.sample_rate for frame in heard.sound} == {16000}
    if way != "rtvi":
        assert peer.kinds()[0] == "bot-ready"
        assert {"bot-llm-text", "bot-started-speaking", "bot-interrupted", "bot-tts-text"} <= set(peer.kinds())
