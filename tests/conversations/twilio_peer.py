"""A phone carrier in memory that speaks Twilio's media-stream messages, as far as a test of playback needs them.

It plays what it is sent in real time, from a buffer without a limit. ``mark`` comes back when all before it has been
played; ``clear`` throws away what has not been played and returns all marks at once, as
https://www.twilio.com/docs/voice/media-streams/websocket-messages has it.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from voiceflow import AudioFormat
from voiceflow.audio.g711 import mulaw_decode, mulaw_encode
from voiceflow.playout.ear import MarkClock
from voiceflow.playout.refill import PlayoutOptions
from voiceflow.transports.speaker import Speaker, SpeakerOptions

STREAM = "MZ0123456789abcdef0123456789abcdef"
RATE = 8000
STEP = 1000
"""Between two labels: far enough for mu-law, and for a resampler's ringing."""


@dataclass(slots=True)
class _Chunk:
    at: float
    payload: bytes


class TwilioPeer:
    """The carrier's side of one call. ``network_s``: one way. ``buffer_s``: it holds so much before it begins to play.
    ``returns_marks``: False for one that loses them all."""

    def __init__(self, *, network_s: float = 0.0, buffer_s: float = 0.0, returns_marks: bool = True) -> None:
        self.network_s = network_s
        self.buffer_s = buffer_s
        self.returns_marks = returns_marks
        self.told: list[tuple[float, dict[str, Any]]] = []
        """Each message and when it was sent."""
        self.faults: list[str] = []
        self.closed_at: float | None = None
        self.on_message: Callable[[dict[str, Any]], object] = lambda message: None
        self._played: list[_Chunk] = []
        self._end = 0.0
        self._on_the_way: deque[dict[str, Any]] = deque()
        self._on_the_way_back: deque[dict[str, Any]] = deque()
        self._marks: list[tuple[str, asyncio.TimerHandle]] = []

    def sent_s(self) -> list[tuple[float, float]]:
        """When each ``media`` was sent, and how many seconds of sound had been sent with it."""
        lengths = [len(base64.b64decode(message["media"]["payload"])) / RATE for _, message in self.events("media")]
        return [(at, total) for (at, _), total in zip(self.events("media"), itertools.accumulate(lengths), strict=True)]

    def events(self, event: str) -> list[tuple[float, dict[str, Any]]]:
        """The messages of one kind."""
        return [(at, message) for at, message in self.told if message["event"] == event]

    # ------------------------------------------------------------------------------------ from the agent

    def receive(self, text: str) -> None:
        """A message of the agent's leaves now."""
        loop = asyncio.get_running_loop()
        message = json.loads(text)
        self.told.append((loop.time(), message))
        if self.closed_at is not None:
            self.faults.append(f"{message['event']} after the stop")
        if message.get("streamSid") != STREAM:
            self.faults.append(f"{message['event']} for stream {message.get('streamSid')!r}")
        self._on_the_way.append(message)
        if self.network_s:
            loop.call_later(self.network_s, self._arrive)
        else:
            self._arrive()

    def _arrive(self) -> None:
        loop, message = asyncio.get_running_loop(), self._on_the_way.popleft()  # timers of the same moment keep no order
        now = loop.time()
        match message["event"]:
            case "media":
                self._end = self._end if self._end > now else now + self.buffer_s
                payload = base64.b64decode(message["media"]["payload"], validate=True)
                self._played.append(_Chunk(self._end, payload))
                self._end += len(payload) / RATE
            case "mark":
                name = message["mark"]["name"]
                if not name:
                    self.faults.append("a mark without a name")
                self._marks.append((name, loop.call_at(max(self._end, now), self._mark_is_due)))
            case "clear":
                self._clear(now)
            case other:
                self.faults.append(f"unknown event {other!r}")

    def _mark_is_due(self) -> None:
        self._return(self._marks.pop(0)[0])

    def _return(self, name: str) -> None:
        if self.returns_marks and self.closed_at is None:
            self._on_the_way_back.append({"event": "mark", "sequenceNumber": "1", "streamSid": STREAM, "mark": {"name": name}})
            asyncio.get_running_loop().call_later(self.network_s, self._arrive_back)

    def _arrive_back(self) -> None:
        self.on_message(self._on_the_way_back.popleft())

    def _clear(self, now: float) -> None:
        kept = [_Chunk(c.at, c.payload[: max(0, round((now - c.at) * RATE))]) for c in self._played]
        self._played = [chunk for chunk in kept if chunk.payload]
        self._end = now
        marks, self._marks = self._marks, []
        for name, timer in marks:
            timer.cancel()
            self._return(name)

    def hang_up(self) -> None:
        """The caller is gone: ``stop`` is told, and nothing may be sent any more."""
        self.closed_at = asyncio.get_running_loop().time()
        self._clear(self.closed_at)
        self.on_message({"event": "stop", "sequenceNumber": "2", "streamSid": STREAM, "stop": {"accountSid": "AC1", "callSid": "CA1"}})

    # ---------------------------------------------------------------------------------- what the ear had

    def heard(self, before: float = float("inf")) -> list[tuple[int, float, float]]:
        """(label, from, until) of each stretch of labelled sound that was played before this time, in order; silence left out."""
        runs: list[tuple[int, float, float]] = []
        for chunk in self._played:
            labels = np.round(np.frombuffer(mulaw_decode(chunk.payload), "<i2") / STEP).astype(int)
            edges = [0, *(np.flatnonzero(np.diff(labels)) + 1).tolist(), len(labels)]
            for a, b in itertools.pairwise(edges):
                at, until = chunk.at + a / RATE, min(chunk.at + b / RATE, before)
                if not labels[a] or at >= before:
                    continue
                if runs and runs[-1][0] == labels[a] and at - runs[-1][2] < 0.001:
                    runs[-1] = (runs[-1][0], runs[-1][1], until)
                else:
                    runs.append((int(labels[a]), at, until))
        return [run for run in runs if run[2] - run[1] > 0.01]  # a resampler rings at the edges

    def seconds(self, label: int, before: float = float("inf")) -> float:
        """How long this label was heard."""
        return sum(until - at for heard, at, until in self.heard(before) if heard == label)


class TwilioLine(Speaker):
    """The agent's side: blocks become ``media``, marks and clears are told, marks come back."""

    def __init__(self, peer: TwilioPeer, *, ahead_s: float = 0.0, patience_s: float = 3.0) -> None:
        self.peer = peer
        self.is_open = True
        self.stopped = asyncio.Event()
        options = SpeakerOptions(ahead_s=ahead_s, latency_s=peer.network_s, playout=PlayoutOptions(fade_ms=0, declick_ms=0))
        clock = MarkClock(RATE, peer.network_s, return_s=peer.network_s, patience_s=patience_s)
        super().__init__(self._media, AudioFormat(RATE), options, clock=clock)
        peer.on_message = self._hear

    def _media(self, pcm: bytes) -> None:
        self._send({"event": "media", "streamSid": STREAM, "media": {"payload": base64.b64encode(mulaw_encode(pcm)).decode()}})

    def clear(self) -> None:
        """Tell it to throw its buffer away."""
        self._send({"event": "clear", "streamSid": STREAM})

    def mark(self, name: str) -> None:
        """Ask for word when all so far was played."""
        self._send({"event": "mark", "streamSid": STREAM, "mark": {"name": name}})

    def _send(self, message: dict[str, Any]) -> None:
        if self.is_open:
            self.peer.receive(json.dumps(message))

    def _hear(self, message: dict[str, Any]) -> None:
        if message["event"] == "mark":
            self.mark_returned(message["mark"]["name"])
        elif message["event"] == "stop":
            self.is_open = False
            self.stopped.set()
