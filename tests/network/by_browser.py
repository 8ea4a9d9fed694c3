"""The trials of the page: `voiceflow serve`'s own server and page, in a real browser, on a bad link between the two.

The ear is the page's output to the sound device, and the mouth stands in place of the microphone (``page_ear.js``); all between them
is the page as it is served. Each word is a tone of its own.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from aiohttp import web

from tests.network.link import Link, Network, tcp_link, udp_link
from tests.network.side import Side
from tests.network.talk import LINKS, NEAR, PATIENCE_S, Course, Ear, Result, Trial, converse, lateness
from tests.network.tones import Singer, nearest, sung
from tests.transports.chromium import Browser, Page, chromium
from tests.transports.webrtc_caller import CANDIDATE, candidate, redirected
from voiceflow.testing.scripts import WORD_S
from voiceflow.transports.calls import Calls
from voiceflow.transports.line import LineOptions
from voiceflow.transports.web.offer import offer_routes
from voiceflow.transports.web.server import ServerOptions, WebServer
from voiceflow.transports.web.socket import PING_S, call_handler
from voiceflow.transports.web.view import show
from voiceflow.transports.webrtc import PeerOptions, WebRTC, WebRTCOptions
from voiceflow.transports.wire_frames import FramesOptions, FramesWire

__all__ = ["AT_ONCE", "GIVEN_UP_S", "NOTICED_S", "TRIALS", "hold_all"]

HERE = Path(__file__).parent
HOP_S = 0.005
WINDOW_S = 0.02
SURE = 5
"""Times in a row that the same must be found: a crack is in the window no longer."""
POLL_S = 0.05
RESUME_S = 2.0
"""Of the trials with a dead peer, so that they are short."""
GIVEN_UP_S = {"websocket": 1.5 * PING_S + RESUME_S + 2 * LineOptions().close_s, "webrtc": 2 * RESUME_S}
"""By the server, from the moment the page is dead: a ping is due, it is not answered, nobody comes back, and the socket does not close."""
NOTICED_S = 12.0
"""By the page, from the moment the server is dead: over WebRTC the browser itself takes up to 7.5 s to miss its answers."""
STOP_S = 0.05
"""From the page's knowing of an interrupt to the silence: its message to the audio thread, and what that had made already."""
AT_ONCE = {"websocket": 4, "webrtc": 2}
"""More would be trials of this machine."""

SWITCHES = ("--disable-background-timer-throttling", "--disable-renderer-backgrounding", "--disable-backgrounding-occluded-windows")
"""Each page as if it were the one that is looked at."""

TRIALS = (
    *reversed(LINKS),  # the long ones first
    Trial("50 ms, half open", NEAR, half_open=True),
    Trial("50 to 100 ms", Link(delay_s=0.05, jitter_s=0.05)),
    Trial("50 ms, cut for 4 s", NEAR, outage_s=4.0),
)


class Hearing:
    """Finds words in the sound that a page played, 5 ms at a time."""

    def __init__(self, ear: Ear) -> None:
        self.ear = ear
        self.rate = 48000
        self._word: dict[int, int] = {}
        """The number of the last word of each utterance."""
        self._current: tuple[int, int] | None = None
        self._found: tuple[int, int] | None = None
        self._times = 0
        """What sounds now, and what has been found in its place so many times in a row: utterance, and word modulo 10."""
        self._pending: list[float] = []
        """When the pieces began of which it is not known yet."""
        self._kept = np.zeros(0, "<i2")
        self._from = self._next = 0
        """The numbers of the first sample kept, and of the first that has not been listened to."""

    def take(self, pieces: Sequence[tuple[int, str]], clock: float) -> None:
        """``clock``: of the first sample of all, on the loop's clock."""
        for at, encoded in pieces:
            if at != self._from + len(self._kept):
                self._find(clock, around_it=0)
                self._settle()
                self._kept, self._current, self._found, self._pending = self._kept[:0], None, None, []
                self._from = self._next = at
            self._kept = np.concatenate([self._kept, np.frombuffer(base64.b64decode(encoded), "<i2")])
            self._find(clock, around_it=round((WINDOW_S - HOP_S) / 2 * self.rate))
        self.ear.stirred.set()

    def _find(self, clock: float, around_it: int) -> None:
        """``around_it``: so much must be known on both sides of what is listened to, if there is any."""
        hop = round(HOP_S * self.rate)
        while (begin := self._next - self._from) + hop + around_it <= len(self._kept):
            if np.sqrt(np.mean(self._kept[begin : begin + hop].astype(float) ** 2)) > 300:
                self._hear(clock + self._next / self.rate, self._kept[max(begin - around_it, 0) : begin + hop + around_it])
            self._next += hop
        done = max(self._next - around_it - self._from, 0)
        self._from, self._kept = self._from + done, self._kept[done:]

    def _hear(self, at: float, window: np.ndarray) -> None:
        """Another word is believed when it has sounded a little: where packets are missing a crack may sound like any."""
        found = sung(window, self.rate)
        self._pending.append(at)
        if found is None or found == self._current:
            self._found = None
            self._settle()
        elif found != self._found:
            self._settle(but=1)
            self._found, self._times = found, 1
        else:
            self._times += 1
            if self._times == SURE:
                utterance, word = self._current = found
                self._word[utterance] = nearest(word, self._word.get(utterance, 0))
                self._settle()

    def _settle(self, but: int = 0) -> None:
        """What is pending is of the word there is now: all of it before the last so many pieces."""
        if self._current is not None:
            utterance = self._current[0]
            count = len(self._pending) - but
            for at in self._pending[:count]:
                self.ear.hear(at, (utterance, self._word[utterance]), HOP_S)
            del self._pending[:count]


class Caller:
    """The page, as the caller's end."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.ear = Ear()
        self.stopped: dict[int, bool] = {}
        self.knew: list[float] = []
        """When it was told of each interrupt."""
        self.states: list[tuple[float, str]] = []
        """What the page showed."""
        self.calls = 0
        self._hearing = Hearing(self.ear)
        self._clock = 0.0

    async def begin(self) -> None:
        await self.page.click("#talk")
        await self.page.until("document.body.dataset.state === 'listening' && trial.mouth")
        await self.listen()

    async def follow(self) -> None:
        """Take what the page heard and was told, again and again."""
        while True:
            await asyncio.sleep(POLL_S)
            await self.listen()

    async def listen(self) -> None:
        had = await self.page.evaluate("trial.take()")
        loop = asyncio.get_running_loop()
        epoch = time.time() - loop.time()
        self._hearing.rate = had["rate"]
        for said in had["told"]:
            at = had["epoch"] - epoch + said["at"]
            if said["type"] == "playback_stopped":
                self.stopped[said["utterance"]] = said["complete"]
            elif said["type"] == "interrupted":
                self.knew.append(at)
            elif said["type"] == "page":
                self.states.append((at, said["state"]))
            elif said["type"] == "started":
                self.calls += 1
        if had["clock"] is not None:
            self._clock = had["clock"] - epoch
            self._hearing.take(had["pieces"], self._clock)

    async def say(self, seconds: float) -> float:
        at = float(await self.page.evaluate(f"trial.say({seconds})")) + self._clock
        await asyncio.sleep(max(at - asyncio.get_running_loop().time(), 0.0))
        return at

    def showed(self, state: str, since: float) -> float | None:
        """When the page first did, after that."""
        return next((at for at, shown in self.states if shown == state and at > since), None)


class Detour:
    """Answers a page's offer for ``door``, so that the only way between the two leads through a network."""

    def __init__(self, door: WebRTC, network: Network, stack: contextlib.AsyncExitStack) -> None:
        self.door, self.network, self.stack = door, network, stack

    async def answer(self, offer: Mapping[str, str], who: str = "") -> dict[str, str]:
        answer = await self.door.answer({**offer, "sdp": CANDIDATE.sub("a=x-removed\r", offer["sdp"])}, who)
        host, port = candidate(answer["sdp"])
        relay = await self.stack.enter_async_context(udp_link(port, self.network, host))
        return answer | {"sdp": redirected(answer["sdp"], (host, relay))}

    async def add_candidates(self, pc_id: str, candidates: Sequence[Mapping[str, Any]]) -> None:
        """The page sends none."""


@contextlib.asynccontextmanager
async def served(calls: Calls, trial: Trial, network: Network, *, webrtc: bool) -> AsyncIterator[str]:
    """As ``voiceflow serve`` does it, behind the network; the page's address."""
    frames = FramesOptions(resume_s=RESUME_S) if trial.half_open else FramesOptions()
    options = WebRTCOptions(peer=PeerOptions(silent_s=RESUME_S)) if trial.half_open else WebRTCOptions()
    async with WebRTC(calls, options, words=FramesWire) as door, contextlib.AsyncExitStack() as stack:
        server = WebServer(
            ServerOptions(port=0),
            about=lambda: {"app": "trial", "webrtc": webrtc},
            health=lambda: {"ready": True, "full": bool(calls.refusal())},
            doors=[web.get("/call", call_handler(calls, frames=frames)), *offer_routes("/offer", Detour(door, network, stack))],
            routes=[web.get("/page_ear_worklet.js", worklet)],
        )
        await server.start()
        try:
            async with tcp_link(server.options.port, network) as port:
                yield f"http://localhost:{port}/"
        finally:
            calls.cancel()
            await calls.drain(0)
            await server.close()


async def worklet(request: web.Request) -> web.FileResponse:
    return web.FileResponse(HERE / "page_ear_worklet.js")


async def hold(trial: Trial, browser: Browser, *, webrtc: bool, seed: int = 1) -> Result:
    """Hold the conversation on this link."""
    course, result = Course(), Result("webrtc" if webrtc else "websocket", trial, page=True)
    side, network, loop = Side(Singer, show), Network(Link(buffer=trial.link.buffer), seed), asyncio.get_running_loop()
    page = await browser.page(before=(HERE / "page_ear.js").read_text(encoding="utf-8"))
    async with served(side.calls, trial, network, webrtc=webrtc) as address, lateness(side.look) as late:
        await page.goto(address)
        await page.until("document.querySelector('#app').textContent === 'trial'")
        caller = Caller(page)
        await caller.begin()  # over an untroubled link: here it is the conversation that is tried
        network.link = trial.link
        script, following = (loop.create_task(work) for work in (converse(caller, network, trial, course), caller.follow()))
        try:
            until = loop.time() + PATIENCE_S + trial.outage_s
            while not script.done() and not following.done() and loop.time() < until and not (trial.half_open and side.records):
                if len(side.ends) > 1 and caller.calls > 1 and course.mended_at is not None:
                    break  # the first call is lost, and another has begun
                await asyncio.wait([script, following], timeout=POLL_S, return_when=asyncio.FIRST_COMPLETED)
            if following.done():
                following.result()
            if script.done():
                script.result()
        finally:
            for task in (script, following):
                task.cancel()
            await asyncio.wait([script, following])
        await caller.listen()
        if course.cut_at is not None:
            noticed = caller.showed("reconnecting", course.cut_at)
            result.noticed_s = noticed - course.cut_at if noticed is not None else None
        result.caller_why = await page.evaluate(
            "document.querySelector('#problem').hidden ? '' : document.querySelector('#problem').dataset.name"
        )
        result.late_s = late[0]
        if course.finished:
            await page.click("#talk")
            await side.calls.drain(10)
        await page.close()
    result.take(side, caller.ear, course)
    if course.mended_at is not None and result.recovery_s is None and (again := caller.showed("listening", course.mended_at)) is not None:
        result.recovery_s = again - course.mended_at  # with a new call
    agent = side.agents[0]
    for (interruption, _, position), knew in zip(agent.cuts, caller.knew, strict=False):
        utterance = interruption.heard[-1].utterance
        result.told_s.append(knew - interruption.at)
        if webrtc:
            left = (position - agent.notes.begun[utterance]) / (WORD_S * side.ends[0].format.sample_rate)
            result.stale += never_left(caller.ear, utterance, left)
        else:
            result.stale += sum(of == utterance and at > knew + STOP_S for at, (of, _), _, _ in caller.ear.had)
    return result


def never_left(ear: Ear, utterance: int, left: float) -> int:
    """Pieces of words that were heard though only so many had left: what had cannot be called back."""
    return sum(of == utterance and word > left for _, (of, word), _, _ in ear.had)


async def hold_all(trials: Sequence[Trial], *, webrtc: bool) -> list[Result]:
    """All of them in one browser, so many side by side."""
    room = asyncio.Semaphore(AT_ONCE["webrtc" if webrtc else "websocket"])

    async with chromium(switches=SWITCHES) as browser:

        async def one(trial: Trial) -> Result:
            async with room:
                return await hold(trial, browser, webrtc=webrtc)

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(trial), name=trial.name) for trial in trials]
    await asyncio.get_running_loop().shutdown_default_executor()  # it looked names up
    return [task.result() for task in tasks]
