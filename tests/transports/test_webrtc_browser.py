"""A call over WebRTC from a real browser: a headless Chromium speaks a WAV file, hears the answer, and reports what it played."""

from __future__ import annotations

import asyncio
import itertools
import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from aiohttp import web

pytest.importorskip("aiortc", reason="needs aiortc: pip install 'voiceflow-framegraph[webrtc]'")

from tests.transports.chromium import chromium
from tests.transports.test_webrtc import Agent, Words, all_over
from tests.transports.webrtc_caller import RATE, quiet, tone
from voiceflow.testing import no_leaks
from voiceflow.transports.webrtc import WebRTC, WebRTCError

PAGE = """<!doctype html><meta charset=utf-8><link rel=icon href="data:,"><title>call</title><script>
const heard = { loud: 0, peak: 0, level: 0, told: [], reports: 0 };
let pc, channel, origin = null;
async function call() {
  pc = new RTCPeerConnection();
  channel = pc.createDataChannel("voiceflow");
  channel.onmessage = ({ data }) => {
    const said = JSON.parse(data);
    heard.told.push(said.type);
    if (said.type === "rtp") origin = said.timestamp;
  };
  const plain = { echoCancellation: false, noiseSuppression: false, autoGainControl: false };
  const microphone = await navigator.mediaDevices.getUserMedia({ audio: plain });
  microphone.getTracks().forEach((track) => pc.addTrack(track, microphone));
  pc.ontrack = async ({ streams, receiver }) => {
    const player = new Audio(); // without it Chromium gives a remote track no sound
    player.muted = true;
    player.srcObject = streams[0];
    player.play();
    const context = new AudioContext({ sampleRate: 48000 });
    const analyser = context.createAnalyser();
    analyser.fftSize = 2048;
    analyser.smoothingTimeConstant = 0;
    context.createMediaStreamSource(streams[0]).connect(analyser);
    const wave = new Float32Array(2048), spectrum = new Float32Array(1024);
    setInterval(() => {
      analyser.getFloatTimeDomainData(wave);
      heard.level = Math.sqrt(wave.reduce((sum, x) => sum + x * x, 0) / 2048);
      if (heard.level > 0.03) {
        heard.loud += 1;
        analyser.getFloatFrequencyData(spectrum);
        heard.peak = (spectrum.indexOf(Math.max(...spectrum)) * 48000) / 2048;
      }
      const [source] = receiver.getSynchronizationSources();
      if (source && origin !== null && channel.readyState === "open") {
        channel.send(JSON.stringify({ type: "played", samples: (source.rtpTimestamp - origin) >>> 0 }));
        heard.reports += 1;
      }
    }, 50);
  };
  await pc.setLocalDescription(await pc.createOffer());
  const response = await fetch("/offer", { method: "POST", body: JSON.stringify(pc.localDescription) });
  if (!response.ok) throw new Error(await response.text());
  const answer = await response.json();
  const tell = (candidate) =>
    fetch("/offer", { method: "PATCH", body: JSON.stringify({ pc_id: answer.pc_id, candidates: [{
      candidate: candidate.candidate, sdp_mid: candidate.sdpMid, sdp_mline_index: candidate.sdpMLineIndex }] }) });
  pc.onicecandidate = ({ candidate }) => candidate && tell(candidate);
  await pc.setRemoteDescription(answer);
}
</script>"""


class Server:
    """The page, and the door behind two routes."""

    def __init__(self, door: WebRTC) -> None:
        self.door = door
        self.patched = 0
        application = web.Application()
        application.add_routes([web.get("/", self.page), web.post("/offer", self.offer), web.patch("/offer", self.candidates)])
        self.runner = web.AppRunner(application, shutdown_timeout=1)

    async def start(self) -> str:
        await self.runner.setup()
        site = web.TCPSite(self.runner, "127.0.0.1", 0)
        await site.start()
        return f"http://localhost:{self.runner.addresses[0][1]}/"

    async def page(self, request: web.Request) -> web.Response:
        return web.Response(text=PAGE, content_type="text/html")

    async def offer(self, request: web.Request) -> web.Response:
        try:
            return web.json_response(await self.door.answer(await request.json(), "chromium"))
        except WebRTCError as error:
            return web.Response(text=str(error), status=error.status)

    async def candidates(self, request: web.Request) -> web.Response:
        said = await request.json()
        await self.door.add_candidates(said["pc_id"], said["candidates"])
        self.patched += 1
        return web.json_response({"status": "success"})


def record(target: Path, *sounds: np.ndarray) -> Path:
    with wave.open(str(target), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes(np.concatenate(sounds).astype("<i2").tobytes())
    return target


class TestBrowser:
    def test_chromium_speaks_hears_the_answer_and_says_what_it_played(self, tmp_path: Path) -> None:
        """The microphone's sound is answered, the answer sounds in the page, an interrupt silences it, and what was heard is no guess."""
        microphone = record(tmp_path / "microphone.wav", quiet(1.5), tone(0.6, 800), quiet(30))

        async def test() -> None:
            agent = Agent(words=15)
            door = WebRTC(agent.calls, words=Words)
            server = Server(door)
            url = await server.start()
            async with chromium(microphone) as browser:
                page = await browser.page()
                await page.goto(url)
                await page.evaluate("call()")
                await page.until("heard.loud >= 10")
                assert abs(await page.evaluate("heard.peak") - 440) < 30
                assert "rtp" in await page.evaluate("heard.told")
                sink = agent.sinks[0]
                clock = sink.playout.ledger.clock
                assert clock.exact
                assert clock.latency_s > 0
                await page.evaluate('channel.send(JSON.stringify({ type: "interrupt" }))')
                await page.until("heard.told.includes('interrupted')")
                (heard,) = sink.session.interruptions[0].heard
                assert not heard.complete
                assert not heard.estimated
                assert heard.text.startswith("word0 word1")
                await page.until("heard.level < 0.001")
                frames = agent.parrots[0].frames
                said = np.concatenate([frame.samples[:, 0] for frame in frames]).astype(float)
                steps = [b.pts - a.pts - a.duration for a, b in itertools.pairwise(frames[50:]) if a.pts and b.pts]
                assert max(abs(step) for step in steps) < 0.02
                assert 0.5 < np.count_nonzero(np.abs(said) > 500) / RATE / 0.95 < 0.7
                assert not page.errors
                await page.evaluate("pc.close()")
                await all_over(door)
            assert agent.records[0].outcome == "hung up"
            await door.close()
            await server.runner.cleanup()

        async def clean() -> None:
            async with no_leaks():
                await test()

        asyncio.run(clean())

    def test_a_page_without_a_microphone_is_told_why_it_is_not_answered(self) -> None:
        """An offer of data alone gets the reason in plain words."""

        async def test() -> None:
            door = WebRTC(Agent().calls)
            server = Server(door)
            url = await server.start()
            async with chromium() as browser:
                page = await browser.page()
                await page.goto(url)
                said: Any = await page.evaluate(
                    """(async () => {
                        const pc = new RTCPeerConnection();
                        pc.createDataChannel("x");
                        await pc.setLocalDescription(await pc.createOffer());
                        return (await fetch("/offer", { method: "POST", body: JSON.stringify(pc.localDescription) })).text();
                    })()"""
                )
                assert "has no sound" in said
            await door.close()
            await server.runner.cleanup()

        asyncio.run(test())
