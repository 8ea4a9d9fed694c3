"""The page in a real browser: a headless Chromium whose microphone is a WAV file, and a server that it calls."""

from __future__ import annotations

import asyncio
import importlib.metadata
import importlib.util
import itertools
import json
import os
import re
import subprocess
import wave
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from aiohttp import WSMsgType, web

from tests.transports.chromium import Browser, Page, chromium
from tests.transports.conftest import SoundServer
from tests.voiceflow.test_serve import Served, serving, wait
from voiceflow.models import DEFAULT, ModelStore
from voiceflow.transports.web.server import PAGE, ServerOptions, WebServer

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
LOGIC = HERE / "page_logic.js"
INSECURE = "not-localhost.test"
"""A name of this machine to which a browser gives no microphone."""


class Rig:
    """A loop of real time for the whole file, and the browsers that live on it."""

    def __init__(self, runner: asyncio.Runner, stack: AsyncExitStack, folder: Path) -> None:
        self._runner = runner
        self._stack = stack
        self._folder = folder
        self._browsers: dict[str, Browser] = {}

    def run(self, main: Coroutine[Any, Any, None]) -> None:
        self._runner.run(main)

    async def browser(self, kind: str = "silent") -> Browser:
        """``silent``: its microphone hears nothing; ``humming``: a tone; ``refusing``: it may not be used; ``bare``: there is none."""
        if kind not in self._browsers:
            microphone = None
            if kind != "bare":
                microphone = self._folder / f"{kind}.wav"
                with wave.open(str(microphone), "wb") as file:
                    file.setnchannels(1)
                    file.setsampwidth(2)
                    file.setframerate(48000)
                    level = 3000 if kind == "humming" else 0
                    file.writeframes((level * np.sin(np.arange(60 * 48000) / 30)).astype("<i2").tobytes())
            switches = [f"--host-resolver-rules=MAP {INSECURE} 127.0.0.1"]
            if kind == "refusing":
                switches.append("--use-fake-ui-for-media-stream=deny")
            self._browsers[kind] = await self._stack.enter_async_context(chromium(microphone, switches=switches))
        return self._browsers[kind]


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        try:
            yield Rig(runner, stack, tmp_path_factory.mktemp("browser"))
        finally:
            runner.run(stack.aclose())


@asynccontextmanager
async def listening(application: web.Application) -> AsyncIterator[str]:
    """Serve it on a port of its own; its address."""
    runner = web.AppRunner(application, shutdown_timeout=1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://localhost:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


# ------------------------------------------------------------------------------------------------- the pure modules


@pytest.fixture(scope="module")
def results(rig: Rig) -> dict[str, str]:
    """What each test of ``page_logic.js`` says, "" where it passed."""
    found: dict[str, str] = {}

    async def empty(request: web.Request) -> web.Response:
        return web.Response(text="<!doctype html><title>logic</title>", content_type="text/html")

    async def main() -> None:
        application = web.Application()
        application.router.add_get("/", empty)
        application.router.add_static("/tests/", HERE)
        application.router.add_static("/", PAGE)
        async with listening(application) as address:
            page = await (await rig.browser()).page()
            await page.goto(f"{address}/")
            said = await page.evaluate(
                """import("/tests/page_logic.js").then(({ tests }) => Object.fromEntries(Object.entries(tests).map(([name, test]) => {
                    try { test(); return [name, ""]; } catch (error) { return [name, error.stack || String(error)]; }
                })))"""
            )
            found.update(said)

    rig.run(main())
    return found


class TestLogic:
    """``page_logic.js`` tests the modules that need no browser, in the one engine that is here anyway."""

    @pytest.mark.parametrize("name", re.findall(r'^  "(.+)"\(\) \{$', LOGIC.read_text(encoding="utf-8"), re.MULTILINE))
    def test_logic(self, results: dict[str, str], name: str) -> None:
        """Each says for itself what it holds."""
        assert results[name] == ""

    def test_every_one_of_them_is_run(self, results: dict[str, str]) -> None:
        """None is missed by the way in which the names are read."""
        assert len(results) == LOGIC.read_text(encoding="utf-8").count("() {\n") >= 28


# ------------------------------------------------------------------------------------------ the page and a scripted server

SPEAKS = 24000
QUICK = "const later = setTimeout; globalThis.setTimeout = (act, ms, ...rest) => later(act, globalThis.quick && ms > 300 ? ms / 50 : ms, ...rest);"
"""Once ``quick`` is set in the page its long waits pass fifty times faster."""


FAST_TICKS = "const slow = setInterval; globalThis.setInterval = (act, ms, ...rest) => slow(act, ms === 2000 ? 40 : ms, ...rest);"
"""From now on a connection looks that often whether the server is there."""


class Line:
    """One call as the server sees it: what came, and what the script sends."""

    def __init__(self, socket: web.WebSocketResponse, request: web.Request) -> None:
        self.socket = socket
        self.request = request
        self.said: list[dict[str, Any]] = []
        self.sound: list[bytes] = []
        self._reading: asyncio.Task[None]
        self._code = 0
        self._reason = b""
        self.closed = False
        self.answers = True
        """Pings."""
        self._news = asyncio.Event()

    async def listen(self) -> None:
        self._reading = asyncio.create_task(self._read())
        await asyncio.wait([self._reading])
        if self._code:
            await self.socket.close(code=self._code, message=self._reason)
        self.closed = True
        self._news.set()

    async def _read(self) -> None:
        async for message in self.socket:
            if message.type == WSMsgType.BINARY:
                self.sound.append(message.data)
            else:
                self.said.append(json.loads(message.data))
                if self.said[-1]["type"] == "ping" and self.answers:
                    await self.tell("pong")
            self._news.set()

    async def close(self, code: int, message: bytes = b"") -> None:
        """Once nobody reads any more: beside a reader, aiohttp waits for no answer, and the code may be lost."""
        self._code, self._reason = code, message
        self._reading.cancel()
        await self.until(lambda: self.closed)

    async def until(self, condition: Callable[[], Any]) -> Any:
        async with asyncio.timeout(20):
            while not (value := condition()):
                self._news.clear()
                await self._news.wait()
        return value

    async def tell(self, type: str, **fields: Any) -> None:
        await self.socket.send_json({"type": type, **fields})

    def drop(self) -> None:
        """The network breaks."""
        assert self.request.transport is not None
        self.request.transport.abort()

    async def speak(self, seconds: float, hz: float = 440.0) -> None:
        times = np.arange(round(seconds * SPEAKS)) / SPEAKS
        await self.socket.send_bytes((8000 * np.sin(2 * np.pi * hz * times)).astype("<i2").tobytes())

    def positions(self) -> list[int]:
        return [message["samples"] for message in self.said if message["type"] == "played"]

    def has_said(self, type: str) -> dict[str, Any] | None:
        return next((message for message in self.said if message["type"] == type), None)


class Peer:
    """Takes calls as the server would. ``greet``: it says that the call has started; ``resumes``: that it goes on with one that was lost."""

    def __init__(self) -> None:
        self.lines: list[Line] = []
        self.greet = True
        self.resumes = False
        self.health: dict[str, Any] = {"ready": True}
        self._lines: asyncio.Queue[Line] = asyncio.Queue()

    async def answer(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        line = Line(socket, request)
        self.lines.append(line)
        if self.greet:
            await line.tell("started", hears={"sample_rate": 16000}, speaks={"sample_rate": SPEAKS}, resume="again", resumed=self.resumes)
        self._lines.put_nowait(line)
        await line.listen()
        return socket

    async def line(self) -> Line:
        async with asyncio.timeout(20):
            return await self._lines.get()


@asynccontextmanager
async def served(peer: Peer, port: int = 0, token: str = "") -> AsyncIterator[WebServer]:
    server = WebServer(
        ServerOptions(port=port, token=token),
        about=lambda: {"app": "scripted"},
        health=lambda: peer.health,
        doors=[web.get("/call", peer.answer)],
    )
    await server.start()
    try:
        yield server
    finally:
        await asyncio.gather(*(line.close(code=1001) for line in peer.lines))
        await server.close()


@asynccontextmanager
async def opened(
    rig: Rig, peer: Peer, *, kind: str = "silent", host: str = "localhost", hash: str = "", token: str = ""
) -> AsyncIterator[Page]:
    """The page, before any call. At the end its console must have been silent."""
    async with served(peer, token=token) as server:
        page = await (await rig.browser(kind)).page(before=QUICK)
        await page.goto(f"http://{host}:{server.options.port}/{hash}")
        yield page
        assert page.errors == []


@asynccontextmanager
async def calling(rig: Rig, peer: Peer | None = None, **options: Any) -> AsyncIterator[tuple[Page, Line]]:
    """A call that has been taken."""
    peer = peer or Peer()
    async with opened(rig, peer, **options) as page:
        await page.click("#talk")
        line = await peer.line()
        await state(page, "listening")
        yield page, line


async def state(page: Page, name: str) -> None:
    await page.until(f"document.body.dataset.state === {json.dumps(name)}")


async def problem(page: Page, name: str) -> str:
    """Wait for a problem to be shown; what is said of it."""
    await page.until(
        f"!document.querySelector('#problem').hidden && document.querySelector('#problem').dataset.name === {json.dumps(name)}"
    )
    return await page.text("#problem")


class TestSound:
    def test_the_microphone_arrives_in_20_ms_at_the_rate_of_the_call(self, rig: Rig) -> None:
        """Mono, 16 bits, 16 kHz, whatever the sound card does; it stops when the call does."""

        async def main() -> None:
            async with calling(rig) as (page, line):
                await line.until(lambda: len(line.sound) >= 25)
                assert {len(message) for message in line.sound} == {640}
                await page.click("#talk")
                await state(page, "ended")
                await line.until(lambda: line.closed)
                assert line.has_said("end")
                assert await page.evaluate("voiceflow.call.microphone === undefined && voiceflow.call.context === undefined")

        rig.run(main())

    def test_the_page_tells_how_far_the_ear_has_come(self, rig: Rig) -> None:
        """Positions rise, never run ahead of what the sound device has had, and end at the last sample."""

        async def main() -> None:
            async with calling(rig) as (page, line):
                await page.evaluate(
                    """(() => {
                        const { loudspeaker, context } = voiceflow.call;
                        const { moved, note } = loudspeaker;
                        globalThis.early = [];
                        const left = [];  // when the sample at each position leaves the page
                        loudspeaker.note = (data) => { left.push([data.time, data.position]); note.call(loudspeaker, data); };
                        loudspeaker.moved = (position) => {
                            const heard = context.currentTime - context.outputLatency;
                            const next = left.find(([time]) => time >= heard);
                            if (next && position > next[1]) early.push([heard, position, next]);
                            moved(position);
                        };
                    })()"""
                )
                await line.speak(1.0)
                await line.until(lambda: SPEAKS in line.positions())
                positions = line.positions()
                assert positions == sorted(set(positions))
                assert len(positions) > 10
                assert await page.evaluate("early") == []

        rig.run(main())

    def test_a_clear_is_silent_at_once_and_counts_as_passed(self, rig: Rig) -> None:
        """On the page's own audio clock there is no sound 50 ms after the clear came, and the position is behind all that was sent."""

        async def main() -> None:
            async with calling(rig) as (page, line):
                await page.evaluate(LOUD)
                await line.speak(5.0)
                await page.until("loud() > 0.05")
                await line.tell("clear")
                await line.until(lambda: 5 * SPEAKS in line.positions())
                await page.until("voiceflow.call.context.currentTime > clearedAt + 0.3")
                assert await page.evaluate("lastLoud - clearedAt") < 0.05
                await line.speak(0.2)
                await line.until(lambda: 5 * SPEAKS + SPEAKS // 5 in line.positions())

        rig.run(main())

    def test_muted_the_caller_is_silent_and_the_call_goes_on(self, rig: Rig) -> None:
        """Messages keep coming, and there is nothing in them."""

        async def main() -> None:
            async with calling(rig, kind="humming") as (page, line):
                await line.until(lambda: any(np.frombuffer(m, "<i2").any() for m in line.sound))
                await page.click("#mute")
                assert await page.text("#mute") == "Muted"
                await line.until(lambda: not np.frombuffer(line.sound[-1], "<i2").any())
                count = len(line.sound)
                await line.until(lambda: len(line.sound) > count + 20)
                assert not np.frombuffer(b"".join(line.sound[count:]), "<i2").any()
                await page.click("#mute")
                await line.until(lambda: np.frombuffer(line.sound[-1], "<i2").any())

        rig.run(main())


LOUD = """(() => {
    const { loudspeaker, context } = voiceflow.call;
    const analyser = new AnalyserNode(context, { fftSize: 256 });
    loudspeaker.node.connect(analyser);
    const samples = new Float32Array(256);
    globalThis.loud = () => (analyser.getFloatTimeDomainData(samples), Math.max(...samples.map(Math.abs)));
    globalThis.lastLoud = 0;
    globalThis.clearedAt = Infinity;
    const { clear } = loudspeaker;
    loudspeaker.clear = () => { clear.call(loudspeaker); clearedAt = context.currentTime; };
    setInterval(() => { if (loud() > 0.001) lastLoud = context.currentTime; }, 2);
})()"""
"""``loud()``: what the loudspeaker gives now. ``lastLoud``, ``clearedAt``: in the context's seconds."""


class TestTalking:
    def test_captions_follow_the_conversation(self, rig: Rig) -> None:
        """Partials, turns, the agent's words as they are heard, and where it was cut; only what is final is announced."""

        async def main() -> None:
            async with calling(rig) as (page, line):
                await line.tell("speech_started")
                await state(page, "hearing")
                await line.tell("transcript", text="when are", final=False)
                await page.until("document.querySelector('#captions').innerText === 'You\\nwhen are'")
                assert await page.text("#announced") == ""
                await line.tell("speech_stopped")
                await state(page, "listening")
                await line.tell("turn_ended", text="When are you open?")
                await line.tell("state", state="thinking")
                await state(page, "thinking")
                await page.until("document.querySelector('#announced').innerText === 'You: When are you open?'")
                await line.tell("state", state="speaking")
                await state(page, "speaking")
                await line.tell("words_heard", utterance=1, text="From noon")
                await line.tell("words_heard", utterance=1, text="to")
                await page.until("document.querySelector('#captions').innerText.endsWith('From noon to')")
                await line.tell("playback_stopped", utterance=1, text="From noon to", complete=False)
                await line.tell("state", state="listening")
                await state(page, "listening")
                assert (await page.text("#captions")).split("\n") == ["You", "When are you open?", "Agent", "From noon to …"]
                assert await page.text("#announced") == "Agent: From noon to"

        rig.run(main())

    def test_the_agent_is_interrupted_by_button_and_by_key(self, rig: Rig) -> None:
        """Only while there is something to interrupt."""

        async def main() -> None:
            async with calling(rig) as (page, line):
                assert await page.evaluate("document.querySelector('#interrupt').disabled")
                await line.tell("state", state="speaking")
                await state(page, "speaking")
                await page.click("#interrupt")
                await line.until(lambda: line.has_said("interrupt"))
                await page.press("Escape")
                await line.until(lambda: sum(m["type"] == "interrupt" for m in line.said) == 2)

        rig.run(main())

    def test_typing_needs_no_microphone(self, rig: Rig) -> None:
        """What is typed before a call begins one, and is said in it first."""

        async def main() -> None:
            peer = Peer()
            async with opened(rig, peer, kind="bare") as page:
                await page.click("#text")
                await page.type("When are you open?")
                await page.press("Enter")
                line = await peer.line()
                said = await line.until(lambda: line.has_said("text"))
                assert said["text"] == "When are you open?"
                assert await page.evaluate("document.querySelector('#text').value") == ""
                assert await page.evaluate("document.querySelector('#mute').disabled")
                assert line.sound == []

        rig.run(main())

    def test_all_of_it_can_be_done_with_the_keyboard(self, rig: Rig) -> None:
        """Tab leads to everything, in order, and Enter and Space press it."""

        async def main() -> None:
            peer = Peer()
            async with opened(rig, peer) as page:
                await page.press("Tab")
                assert await page.evaluate("document.activeElement.id") == "talk"
                await page.press("Enter")
                line = await peer.line()
                await line.tell("state", state="speaking")
                await state(page, "speaking")
                order = []
                for _ in range(7):
                    await page.press("Tab")
                    order.append(await page.evaluate("document.activeElement.id || document.activeElement.innerText"))
                assert order == ["mute", "interrupt", "captions", "text", "Send", "Latency", "Pipeline"]
                await page.evaluate("document.querySelector('#mute').focus()")
                await page.press(" ")
                assert await page.text("#mute") == "Muted"

        rig.run(main())

    def test_the_waits_and_the_pipeline_are_drawn(self, rig: Rig) -> None:
        """Each stage against its budget, newest turn first; each node with what waits for it."""

        async def main() -> None:
            async with calling(rig) as (page, line):
                graph = {
                    "nodes": [{"name": "VAD"}, {"name": "STT"}],
                    "arrows": [{"source": "VAD", "target": "STT", "label": "InputAudioFrame", "report": False}],
                }
                await line.tell("pipeline", **graph)
                await line.tell("depths", nodes={"STT": {"frames": 3, "ms": 60, "dropped": 2, "busy": True}})
                await page.until("document.querySelector('#graph .busy')?.textContent === 'STT3 waiting · 60 ms · 2 lost'")
                await line.tell("turn_ended", text="Hello?")
                await line.tell("latency", stages={"stt": 100, "llm": 210, "tts": 90, "playout": 20}, budget=BUDGET)
                await line.tell("latency", stages={"stt": 300, "llm": 210, "tts": 90, "playout": 20}, budget=BUDGET)
                await page.until("document.querySelectorAll('#turns li').length === 2")
                assert (await page.text("#turns li")).split("\n") == [
                    "Hello?",
                    "620 ms",
                    "STT 300 of 150",
                    "LLM 210 of 200",
                    "TTS 90 of 150",
                    "Playout 20",
                ]
                over = "[...document.querySelectorAll('#turns .over')].map(e => e.textContent)"
                assert await page.evaluate(over) == ["620 ms", "STT 300 of 150", "LLM 210 of 200", "LLM 210 of 200"]

        rig.run(main())


BUDGET = {"stt": 150, "llm": 200, "tts": 150, "total": 500}


class TestProblems:
    @pytest.mark.parametrize(
        ("name", "kind", "host", "says"),
        [
            ("denied", "refusing", "localhost", "Allow it with the icon"),
            ("absent", "bare", "localhost", "Plug one in"),
            ("insecure", "silent", INSECURE, "http://localhost"),
        ],
    )
    def test_without_a_microphone_it_is_said_why_and_what_to_do(self, rig: Rig, name: str, kind: str, host: str, says: str) -> None:
        """The call does not begin, and may be tried again."""

        async def main() -> None:
            async with opened(rig, Peer(), kind=kind, host=host) as page:
                await page.click("#talk")
                assert says in await problem(page, name)
                await state(page, "ended")
                assert await page.text("#talk") == "Talk"
                await page.click("#problem .retry")
                await problem(page, name)

        rig.run(main())

    @pytest.mark.parametrize(("code", "name"), [(1011, "failed"), (1013, "full"), (1008, "refused"), (1002, "refused")])
    def test_a_call_that_the_server_ends_is_explained(self, rig: Rig, code: int, name: str) -> None:
        """By the code with which the socket was closed; the microphone is off."""

        async def main() -> None:
            async with calling(rig) as (page, line):
                await line.close(code=code)
                await problem(page, name)
                await state(page, "ended")
                assert await page.evaluate("voiceflow.call.microphone === undefined")

        rig.run(main())

    def test_a_call_that_is_over_is_no_problem(self, rig: Rig) -> None:
        """The agent hung up."""

        async def main() -> None:
            async with calling(rig) as (page, line):
                await line.close(code=1000)
                await state(page, "ended")
                assert await page.evaluate("document.querySelector('#problem').hidden")
                assert await page.text("#state") == "The call has ended."

        rig.run(main())

    def test_a_lost_connection_is_made_again(self, rig: Rig) -> None:
        """It says so, and that what follows is a new call; the microphone stays."""

        async def main() -> None:
            peer = Peer()
            async with calling(rig, peer) as (page, line):
                await line.close(code=1001)
                await state(page, "reconnecting")
                again = await peer.line()
                await state(page, "listening")
                await again.until(lambda: again.sound)
                assert "a new call" in await page.text("#captions")

        rig.run(main())

    def test_a_server_that_has_fallen_silent_is_left(self, rig: Rig) -> None:
        """No socket is closed where a network swallows everything: the page asks, is not answered, and calls again. One that answers is kept."""

        async def main() -> None:
            peer = Peer()
            peer.resumes = True
            async with opened(rig, peer) as page:
                await page.evaluate(FAST_TICKS)
                await page.click("#talk")
                line = await peer.line()
                await line.until(lambda: sum(m["type"] == "ping" for m in line.said) > 10)
                assert len(peer.lines) == 1
                line.answers = False
                again = await peer.line()
                assert (await again.until(lambda: again.has_said("start")))["resume"] == "again"
                await state(page, "listening")

        rig.run(main())

    def test_a_call_that_the_server_kept_goes_on(self, rig: Rig) -> None:
        """The page shows what it was told for that; positions begin anew, and nothing is said of a new call."""

        async def main() -> None:
            peer = Peer()
            async with calling(rig, peer) as (page, line):
                await line.speak(0.5)
                await line.until(lambda: SPEAKS // 2 in line.positions())
                peer.resumes = True
                line.drop()
                again = await peer.line()
                await again.until(lambda: again.has_said("start"))
                assert again.said[0]["resume"] == "again"
                await state(page, "listening")
                await again.speak(0.25)
                await again.until(lambda: SPEAKS // 4 in again.positions())
                assert max(again.positions()) == SPEAKS // 4
                assert "a new call" not in await page.text("#captions")

        rig.run(main())

    def test_a_call_that_the_server_did_not_keep_begins_anew(self, rig: Rig) -> None:
        """What is refused to be resumed is asked for as a new call."""

        async def main() -> None:
            peer = Peer()
            async with calling(rig, peer) as (page, line):
                peer.greet = False
                await line.close(code=1001)
                refused = await peer.line()
                peer.greet = True
                await refused.close(code=1008, message=b"nothing to resume")
                again = await peer.line()
                await again.until(lambda: again.has_said("start"))
                assert "resume" not in again.said[0]
                await state(page, "listening")
                assert "a new call" in await page.text("#captions")

        rig.run(main())

    def test_a_server_that_does_not_come_back_is_given_up(self, rig: Rig) -> None:
        """After some tries, each later than the one before; when it is there again, Talk works again."""

        async def main() -> None:
            peer = Peer()
            async with served(peer) as server:
                page = await (await rig.browser()).page(before=QUICK)
                await page.goto(f"http://localhost:{server.options.port}/")
                await page.click("#talk")
                await peer.line()
                await state(page, "listening")
                await page.evaluate("quick = true")
            assert "does not answer" in await problem(page, "gone")
            await page.evaluate("quick = false")
            assert await page.text("#talk") == "Talk"
            async with served(peer, port=server.options.port):
                await page.click("#problem .retry")
                await peer.line()
                await state(page, "listening")

        rig.run(main())

    @pytest.mark.parametrize(("hash", "health", "name"), [("", {"ready": True}, "token"), ("#token=wrong", {"ready": True}, "token")])
    def test_a_wrong_token_is_said_to_be_one(self, rig: Rig, hash: str, health: dict[str, Any], name: str) -> None:
        """A browser tells nothing of a socket that was refused; the page finds it out."""

        async def main() -> None:
            peer = Peer()
            peer.health = health
            async with opened(rig, peer, hash=hash, token="right") as page:
                await page.click("#talk")
                assert "#token=YOUR-TOKEN" in await problem(page, name)
                page.errors.clear()  # Chromium notes each refused request

        rig.run(main())

    def test_the_right_token_opens(self, rig: Rig) -> None:
        """It stands behind the #, which no browser sends to a server or into a log."""

        async def main() -> None:
            async with calling(rig, hash="#token=a b&c", token="a b") as (page, _):
                await state(page, "listening")

        rig.run(main())

    def test_a_server_that_never_says_a_word_is_given_up(self, rig: Rig) -> None:
        """A socket that opens is no call yet."""

        async def main() -> None:
            peer = Peer()
            peer.greet = False
            async with opened(rig, peer) as page:
                await page.evaluate("quick = true")
                await page.click("#talk")
                await problem(page, "gone")
                page.errors.clear()  # Chromium notes each socket that is closed before it opened

        rig.run(main())


class TestLooks:
    @pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
    @pytest.mark.parametrize("width", [320, 360, 1280])
    def test_it_can_be_read_and_used(self, rig: Rig, width: int, dark: bool, tmp_path: Path) -> None:
        """Contrast, names, sizes and reflow hold in every state, on a telephone and on a desk, in light and in dark."""

        async def main() -> None:
            peer = Peer()
            async with opened(rig, peer) as page:
                await page.resize(width, 800, dark=dark)
                assert await page.evaluate(AUDIT) == []
                await page.click("#talk")
                line = await peer.line()
                await state(page, "listening")
                nodes = ["MemoryIn", "SileroVAD", "WhisperSTT", "ANodeWithAVeryLongNameIndeed#2"]
                arrows = [{"source": a, "target": b, "label": "", "report": False} for a, b in itertools.pairwise(nodes)]
                await line.tell("pipeline", nodes=[{"name": name} for name in nodes], arrows=arrows)
                await line.tell("depths", nodes={"WhisperSTT": {"frames": 12, "ms": 240, "busy": True}})
                await line.tell("turn_ended", text="a" * 200)
                await line.tell("latency", stages={"stt": 300, "llm": 900, "tts": 90, "playout": 20}, budget=BUDGET)
                await line.tell("state", state="speaking")
                await line.tell("words_heard", utterance=1, text="We are open")
                await line.tell("transcript", text="and could you", final=False)
                await page.click("#mute")
                await state(page, "speaking")
                await page.until("document.querySelector('#captions').innerText.endsWith('and could you')")
                assert await page.evaluate(AUDIT) == []
                await line.close(code=1011)
                await problem(page, "failed")
                assert await page.evaluate(AUDIT) == []

        rig.run(main())

    def test_the_audit_sees_what_is_wrong(self, rig: Rig) -> None:
        """Pale text, a nameless button, a small one and a page too wide are each found."""

        async def main() -> None:
            async with opened(rig, Peer()) as page:
                for harm, found in [
                    ("document.querySelector('#state').style.color = '#999'", "contrast"),
                    ("document.querySelector('#mute').textContent = ''", "has no name"),
                    ("Object.assign(document.querySelector('#talk').style, { minHeight: '0', height: '20px' })", "pixels"),
                    ("document.querySelector('main').style.width = '3000px'", "wide"),
                    ("document.querySelector('.meter .caller').style.background = '#ccc'", "a bar"),
                ]:
                    await page.evaluate(harm)
                    assert any(found in fault for fault in await page.evaluate(AUDIT)), found

        rig.run(main())


AUDIT = "(() => {" + (HERE / "page_audit.js").read_text(encoding="utf-8").replace("export ", "") + "; return audit(); })()"


# ------------------------------------------------------------------------------------------- the page and the local agent

QUESTION = ROOT / "examples" / "data" / "question.wav"
ANSWERED = "document.querySelector('#captions .agent:not(.partial)')"


@pytest.fixture(scope="module")
def agent() -> Iterator[Served]:
    """``voiceflow serve examples/local_agent.py``, warm."""
    missing = [name for name in DEFAULT if ModelStore().find(name) is None]
    if missing:
        pytest.skip(f"the models are not here; run: voiceflow models get {' '.join(missing)}")
    with serving(app="examples/local_agent.py") as served:
        yield served


def after_silence(target: Path, seconds: float) -> Path:
    """The question, asked so long after the microphone was opened: whoever speaks before the call is on is not heard."""
    with wave.open(str(QUESTION)) as question, wave.open(str(target), "wb") as file:
        file.setparams(question.getparams())
        file.writeframes(bytes(2 * round(seconds * question.getframerate())) + question.readframes(question.getnframes()))
    return target


class TestLocalAgent:
    def test_a_question_into_the_microphone_is_answered_from_the_loudspeaker(self, rig: Rig, agent: Served, tmp_path: Path) -> None:
        """The question is understood, the answer is heard to its last sample, and every word of it is reported as heard."""

        async def main() -> None:
            async with chromium(after_silence(tmp_path / "question.wav", 4.0)) as browser:
                page = await browser.page()
                await page.goto(f"http://localhost:{agent.port}/")
                await page.click("#talk")
                await state(page, "listening")
                await page.evaluate(LOUD)
                await page.evaluate("globalThis.loudest = 0; setInterval(() => { loudest = Math.max(loudest, loud()); }, 5)")
                await page.until(ANSWERED, 60)
                said = (await page.text("#captions")).split("\n")
                assert (said[0], said[2]) == ("You", "Agent")
                assert re.sub(r"\W+", " ", said[1]).strip().lower() == "what is the capital of australia"
                assert "canberra" in said[3].lower()
                assert not said[3].endswith("…"), "it was heard to its end"
                await state(page, "listening")
                assert await page.evaluate("loudest") > 0.05
                assert await page.evaluate("voiceflow.call.loudspeaker.reported") > SPEAKS
                turn = (await page.text("#turns li")).split("\n")
                assert turn[0] == said[1]
                assert [stage.split()[0] for stage in turn[2:]] == ["STT", "LLM", "TTS", "Playout"]
                nodes = await page.evaluate("[...document.querySelectorAll('#graph g')].map(g => g.querySelector('text').textContent)")
                assert {"LineIn", "SileroVAD", "WhisperSTT", "LlamaLLM", "PiperTTS", "LineOut"} <= set(nodes)
                await page.click("#talk")
                await state(page, "ended")
                assert page.errors == []

        rig.run(main())
        wait(lambda: agent.health()["calls"] == 0)

    def test_the_caller_barges_in(self, rig: Rig, agent: Served, shared_sound_server: SoundServer) -> None:
        """The loudspeaker is silent soon after, the page shows what had been heard, and the new question is answered."""
        environment = {**os.environ, **shared_sound_server.environment, "PATH": os.environ["PATH"]}
        load = ["pactl", "load-module", "module-remap-source", "master=caller.monitor", "source_name=microphone"]
        module = subprocess.run(load, env=environment, check=True, capture_output=True, text=True).stdout.strip()
        environment["PULSE_SOURCE"] = "microphone"

        async def ask() -> None:
            player = await asyncio.create_subprocess_exec("paplay", "--device=caller", str(QUESTION), env=environment)
            assert await player.wait() == 0

        async def main() -> None:
            async with chromium(switches=["--use-fake-ui-for-media-stream"], environment=environment) as browser:
                page = await browser.page()
                await page.goto(f"http://localhost:{agent.port}/")
                await page.click("#headset")  # without one the browser's echo canceller takes the caller's voice for echo
                await page.click("#talk")
                await state(page, "listening")
                await page.evaluate(LOUD)
                await ask()
                await page.until("document.querySelector('#captions .agent')", 60)
                await ask()
                await page.until("document.querySelector('#captions .agent.cut')")
                await page.until("voiceflow.call.context.currentTime > clearedAt + 0.3")
                assert await page.evaluate("lastLoud - clearedAt") < 0.05
                heard = await page.text("#captions .agent.cut")
                assert "Canberra" not in heard
                await page.until("[...document.querySelectorAll('#captions .agent:not(.partial):not(.cut)')].length > 0", 60)
                assert "Canberra" in await page.text("#captions .agent:not(.partial):not(.cut)")
                assert page.errors == []

        try:
            rig.run(main())
        finally:
            subprocess.run(["pactl", "unload-module", module], env=environment, check=True)


class TestWebRTC:
    def test_the_same_page_calls_over_webrtc(self, rig: Rig) -> None:
        """Served with --webrtc, sound goes by the browser's own way, and the messages by its data channel."""
        if importlib.util.find_spec("aiortc") is None or not importlib.metadata.entry_points(group="voiceflow.doors", name="webrtc"):
            pytest.skip("needs aiortc: pip install -e '.[webrtc]'")

        async def main(port: int) -> None:
            page = await (await rig.browser("humming")).page()
            await page.goto(f"http://localhost:{port}/")
            await page.until("document.querySelector('#app').textContent === 'echo'")
            await page.click("#talk")
            await state(page, "listening")
            assert await page.evaluate("voiceflow.call.connection.carriesSound")
            await page.until("voiceflow.call.callerLevel > 0.01 && voiceflow.call.agentLevel > 0.01")
            await page.until("document.querySelector('#graph g')")
            # What it tells of its playout grows, and is no more than has been sent since the call began.
            await page.evaluate("""(() => {
                const { channel } = voiceflow.call.connection, send = channel.send.bind(channel);
                globalThis.reports = [];
                channel.send = (text) => { const m = JSON.parse(text); if (m.type === "played") reports.push(m.samples); send(text); };
            })()""")
            await page.until("reports.length > 5 && reports.at(-1) > reports[0]")
            assert await page.evaluate("reports.every((n, i) => n < 48000 * performance.now() / 1000 && (i === 0 || n >= reports[i - 1]))")
            await page.click("#talk")
            await state(page, "ended")
            assert page.errors == []

        with serving("--webrtc", "--no-warm") as served:
            rig.run(main(served.port))
            wait(lambda: served.health()["calls"] == 0)
            assert served.stop()[0] == 0
