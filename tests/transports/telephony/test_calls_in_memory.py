"""A whole call of a scripted agent on each carrier, on a virtual clock: what the caller's ear had is compared with all that was told."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator

import numpy as np
import pytest

from voiceflow import Session
from voiceflow.transports.calls import CallRecord, Calls
from voiceflow.transports.line import answer
from voiceflow.transports.telephony.carrier import Carrier
from voiceflow.transports.telephony.exotel import ExotelWire
from voiceflow.transports.telephony.plivo import PlivoWire
from voiceflow.transports.telephony.telnyx import TelnyxSound, TelnyxWire
from voiceflow.transports.telephony.twilio import TwilioWire
from voiceflow.transports.telephony.vonage import VonageWire

from .agent import ANSWER, STEP, STORY, WORD_S, Agent, caller_says, until
from .carriers import DIALECTS, Dialect, Player, chunks


class MemorySocket:
    """A websocket to a carrier in memory that is ``way_s`` away."""

    lost = False

    def __init__(self, player: Player, way_s: float) -> None:
        self.player, self.way_s = player, way_s
        self.came: asyncio.Queue[str | bytes | None] = asyncio.Queue(1000)
        self.closed: tuple[int, str] | None = None
        self._on_the_way: deque[str | bytes] = deque()

    async def receive(self) -> str | bytes | None:
        return await self.came.get()

    async def send(self, message: str | bytes) -> None:
        if self.closed is not None:
            raise ConnectionError("closed")
        self._on_the_way.append(message)
        if self.way_s:
            asyncio.get_running_loop().call_later(self.way_s, self._arrive)
        else:
            self._arrive()

    async def close(self, code: int, reason: str) -> None:
        self.closed = self.closed or (code, reason)

    def _arrive(self) -> None:
        self.player.receive(self._on_the_way.popleft())  # timers of the same moment keep no order


LINES = {
    "twilio": (TwilioWire, {}),
    "telnyx": (lambda **more: TelnyxWire(TelnyxSound("L16", 16000), **more), {"encoding": "l16", "rate": 16000, "order": ">"}),
    "telnyx-pcmu": (TelnyxWire, {}),
    "plivo": (PlivoWire, {}),
    "vonage": (VonageWire, {"rate": 16000}),
    "exotel": (ExotelWire, {}),
    "exotel-16": (ExotelWire, {"rate": 16000}),
}
each = pytest.mark.parametrize("line", LINES)
ways = pytest.mark.parametrize("way_s", [0.0, 0.04])


class PhoneCall:
    """One call in a loop: the fake carrier, its wire on a socket in memory, and the agent on the line."""

    def __init__(self, line: str, way_s: float = 0.0, ahead_s: float | None = None) -> None:
        make, form = LINES[line]
        self.wire: Carrier = make(**({} if ahead_s is None else {"ahead_s": ahead_s}))
        self.dialect: Dialect = DIALECTS[line.partition("-")[0]](**form)
        self.player = Player(self.dialect, self.give, way_s)
        self.agent = Agent()
        self.calls = Calls(self.agent.between, limit=1)
        self.socket = MemorySocket(self.player, way_s)
        self.record: CallRecord | None = None
        self.to_say: list[bytes] = []
        self._chunk = 0

    def give(self, message: str | bytes) -> None:
        """From the carrier."""
        self.socket.came.put_nowait(message)

    @property
    def session(self) -> Session:
        return self.calls.sessions[0]

    @contextlib.asynccontextmanager
    async def on(self) -> AsyncIterator[None]:
        """Taken by the agent; at the end of the block the agent ends it."""
        for message in self.dialect.begin():
            self.give(message)
        answering = asyncio.create_task(answer(self.wire, self.socket, self.calls))
        await until(lambda: self.calls.sessions)
        await self.session.started()
        talking = asyncio.create_task(self._line())
        try:
            yield
        finally:
            for session in self.calls.sessions:
                session.end()
            self.record = await answering
            talking.cancel()
            self.player.close()
        assert self.dialect.faults == []
        assert self.wire.faults == 0

    async def _line(self) -> None:
        """The caller's line is never quiet: silence comes all the time, and her sentences in between."""
        rate, loop = self.dialect.rate, asyncio.get_running_loop()
        start = loop.time()
        while True:
            piece = self.to_say.pop(0) if self.to_say else b"\0\0" * (rate // 50)
            self._chunk += 1
            await asyncio.sleep(start + self._chunk * 0.02 - loop.time())
            self.give(self.dialect.media(self._chunk, piece))

    def says(self, number: int, seconds: float = 0.5) -> None:
        self.to_say += chunks(caller_says(number, self.dialect.rate, seconds), self.dialect.rate)

    def heard_words(self, label: int, before: float = float("inf")) -> float:
        """How many words of the agent's sentence of this number the ear had."""
        samples = self.player.heard(before)
        return float(np.count_nonzero(np.abs(samples - label * STEP) < STEP // 3)) / self.dialect.rate / WORD_S


@each
@ways
async def test_a_call_is_heard_answered_and_told_to_the_word(line: str, way_s: float) -> None:
    """The caller asks, hears the whole answer, and the context knows by the marks that she did, no sooner."""
    call = PhoneCall(line, way_s)
    async with call.on():
        call.says(2)
        await until(lambda: call.agent.reports.stopped)
        told_at = call.session.time()
        [stopped] = call.agent.reports.stopped
        assert (stopped.heard.text, stopped.heard.complete, stopped.heard.estimated) == (ANSWER, True, False)
        assert call.heard_words(1) == pytest.approx(5, abs=0.2)
        [(began, until_s)] = call.player.sounding()
        assert until_s + way_s <= told_at + 1e-6 <= until_s + way_s + 0.25
        assert began < 1.2
        assert call.agent.said("user") == ["what", "is", "next"]
        assert call.agent.said() == ANSWER.split()
        assert call.player.events("clear") == []


@each
@pytest.mark.parametrize(("way_s", "ahead_s"), [(0.0, None), (0.04, 10.0)])
async def test_a_barge_in_clears_the_line_and_the_next_answer_is_heard_whole(line: str, way_s: float, ahead_s: float | None) -> None:
    """Even when all was sent: silence at once, one clear, and the context holds what the ear had, to a word. (B03)"""
    call = PhoneCall(line, way_s, ahead_s)
    async with call.on():
        call.says(1)
        await until(call.player.sounding)
        began = call.player.sounding()[0][0]
        await asyncio.sleep(began + 1.53 - call.session.time())
        call.says(2, seconds=1.0)
        spoke = call.session.time()
        await until(lambda: len(call.agent.reports.stopped) >= 1 and len(call.agent.context.conversation.messages) >= 4)
        await asyncio.sleep(2.0)
        clears = call.player.events("clear")
        assert len(clears) >= 1
        silent = max(end for start, end in call.player.sounding() if start < clears[0][0])
        assert silent <= clears[0][0] + 1e-6
        # The detector needs 100 ms of the caller's voice; a hold is a clear here.
        assert clears[0][0] <= spoke + 0.2 + way_s
        before = call.heard_words(1)
        [cut, whole] = [m for m in call.agent.context.conversation.messages if m.role == "assistant"]
        assert cut.interrupted
        assert cut.text.split() == STORY.split()[: len(cut.text.split())]
        assert abs(len(cut.text.split()) - before) <= 1
        assert whole.text == ANSWER
        assert call.heard_words(2) == pytest.approx(5, abs=0.2)


@each
async def test_an_interrupt_when_nothing_is_out_clears_nothing(line: str) -> None:
    """Before the first sound and after the last one was heard, the carrier is told nothing."""
    call = PhoneCall(line)
    async with call.on():
        call.session.interrupt("early")
        call.says(2)
        await until(lambda: call.agent.reports.stopped)
        call.session.interrupt("late")
        assert call.player.events("clear") == []


@each
async def test_keys_reach_the_agent_while_it_speaks(line: str) -> None:
    """All of them, in order, an interruption in between included. (B49)"""
    call = PhoneCall(line)
    async with call.on():
        call.says(1)
        await until(call.player.sounding)
        for key in "12#":
            call.give(call.dialect.key(key))
        call.session.interrupt("now")
        for key in "*7":
            call.give(call.dialect.key(key))
        await asyncio.sleep(0.1)
        assert call.agent.keys.pressed == "12#*7"


@each
async def test_what_is_sent_is_paced(line: str) -> None:
    """B45: at no time more is out than what has been played and the lead, or one block; and all of it comes."""
    call = PhoneCall(line)
    async with call.on():
        call.says(1)
        await until(lambda: call.agent.reports.stopped)
        sounds = call.player.events("sound")
        first, lead = sounds[0][0], max(call.wire.ahead_s, call.wire.block_ms / 1000)
        sent = np.cumsum([len(pcm) / 2 / call.dialect.rate for _, pcm in sounds])
        assert all(out <= at - first + lead + 0.001 for (at, _), out in zip(sounds, sent, strict=True))
        assert call.heard_words(1) == pytest.approx(40, abs=0.3)
        assert call.agent.reports.stopped[0].heard.text == STORY


@pytest.mark.parametrize("line", [line for line in LINES if line.partition("-")[0] not in ("plivo", "vonage")])
async def test_the_stop_in_mid_speech_leaves_nothing_to_send(line: str) -> None:
    """B13: the caller hangs up; nothing is sent after it, and the call is over."""
    call = PhoneCall(line)
    async with call.on():
        call.says(1)
        await until(call.player.sounding)
        for message in call.dialect.stop():
            call.give(message)
        await until(lambda: not call.calls.sessions)
        sent = len(call.player.told)
        await asyncio.sleep(1)
        assert len(call.player.told) == sent
        assert call.socket.closed is not None
    assert call.record is not None
    assert call.record.outcome == "hung up"
    assert call.wire.name in call.record.why


@each
async def test_a_socket_that_closes_is_a_caller_who_hung_up(line: str) -> None:
    """Whether or not the carrier had a word for it."""
    call = PhoneCall(line)
    async with call.on():
        call.says(1)
        await until(call.player.sounding)
        call.socket.came.put_nowait(None)
        await until(lambda: not call.calls.sessions)
    assert call.record is not None
    assert call.record.outcome == "hung up"
    assert "closed" in call.record.why


@each
async def test_the_agents_end_lets_the_caller_hear_the_last_words(line: str) -> None:
    """The call ends when the goodbye was heard to its end, by the marks."""
    call = PhoneCall(line, 0.04)
    async with call.on():
        call.says(2)
        await until(call.player.sounding)
    assert call.record is not None
    assert call.record.outcome == "ended"
    assert call.heard_words(1) == pytest.approx(5, abs=0.2)
    assert call.socket.closed is not None
    assert call.socket.closed[0] == 1000
    assert call.agent.said() == ANSWER.split()
