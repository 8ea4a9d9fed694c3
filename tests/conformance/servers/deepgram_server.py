"""A server of Deepgram's: listen v1, Flux (listen v2) and Aura (speak v1), as the vendor describes them.

It is strict: what the vendor would refuse it refuses, and the vendor's own client package reads what it says. What it hears is
read from the sound itself: ``speech([7, 8])`` is the words "w7 w8", each 200 ms of samples that are the word's number. A word
of which a part is missing is heard as "w7!", one that comes twice twice. What it speaks is as in ``elevenlabs_server``: each
character 20 ms of its own number, so that sound can be read as text.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from aiohttp import WSMsgType, web

from tests.conformance.servers.elevenlabs_server import sound_of
from voiceflow.audio import alaw_encode, mulaw_encode

KEY = "0123456789abcdef0123456789abcdef01234567"
WORD_S = 0.2
GAP_S = 0.05
RATE = 16000
QUERY = {
    "/v1/listen": {
        "model", "language", "encoding", "sample_rate", "channels", "multichannel", "interim_results", "endpointing", "utterance_end_ms",
        "vad_events", "smart_format", "punctuate", "numerals", "profanity_filter", "redact", "keyterm", "tag", "mip_opt_out",
    },
    "/v2/listen": {
        "model", "encoding", "sample_rate", "eager_eot_threshold", "eot_threshold", "eot_timeout_ms", "keyterm", "language_hint",
        "profanity_filter", "numerals", "tag", "mip_opt_out",
    },
    "/v1/speak": {"model", "encoding", "sample_rate", "speed", "mip_opt_out"},
}  # fmt: skip
MESSAGES = {
    "/v1/listen": {"KeepAlive", "Finalize", "CloseStream"},
    "/v2/listen": {"CloseStream", "Configure", "ForceEndTurn"},
    "/v1/speak": {"Speak", "Flush", "Clear", "Close"},
}


def speech(words: Sequence[int], rate: int = RATE, pause_s: float = 0.0) -> bytes:
    """Sound that says these words, and then nothing for so long."""
    word, gap = round(WORD_S * rate), bytes(2 * round(GAP_S * rate))
    said = b"".join(np.full(word, number, "<i2").tobytes() + gap for number in words)
    return said + bytes(2 * round(pause_s * rate))


@dataclass(frozen=True, slots=True)
class Fault:
    """What happens on one connection. ``after``: so many seconds of sound heard, or pieces of sound spoken."""

    status: int = 0
    body: Mapping[str, Any] = field(default_factory=dict)
    close: tuple[int, str] | None = None
    error: Mapping[str, Any] | None = None
    """Say this before."""
    after: float = 0.0
    cut: bool = False
    """Break off."""
    silent: bool = False
    """Read on, and say nothing any more."""
    mute_finalize: bool = False
    """Answer no Finalize, but say the rest as if there had been none."""

    @property
    def ends(self) -> bool:
        return bool(self.close or self.cut or self.silent or self.error)


@dataclass(slots=True)
class Connection:
    """A WebSocket, and what became of it."""

    path: str
    query: Mapping[str, str]
    at: float
    messages: list[dict[str, Any]] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    heard: bytearray = field(default_factory=bytearray)
    sizes: list[int] = field(default_factory=list)
    closed: int | None = None
    spoken_chunks: int = 0

    def kinds(self) -> list[str]:
        return [message["type"] for message in self.messages]


class DeepgramServer:
    """``async with DeepgramServer() as server: ... server.url``.

    ``first_s``, ``each_s``: from a flush to its first sound, and between pieces of ``chars`` characters; ``sizes``: pieces of so many
    bytes instead. ``faults``: of the first connection, the second and so on. ``lag_s``: from sound to what is said about it.
    """

    def __init__(
        self,
        *,
        first_s: float = 0.1,
        each_s: float = 0.02,
        chars: int = 10,
        sizes: Callable[[], Iterator[int]] | None = None,
        faults: Sequence[Fault] = (),
        lag_s: float = 0.05,
        eager_s: float = 0.25,
        end_s: float = 0.6,
        prefix: bytes = b"",
    ) -> None:
        self.first_s, self.each_s, self.chars, self.sizes = first_s, each_s, chars, sizes
        self.faults = list(faults)
        self.lag_s, self.eager_s, self.end_s = lag_s, eager_s, end_s
        self.prefix = prefix
        self.connections: list[Connection] = []
        self.served = 0
        self.refused: list[str] = []
        """What clients did wrong."""
        self.spoken: list[str] = []
        self.url = ""
        self.port = 0
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> Self:
        app = web.Application()
        for path in QUERY:
            app.router.add_get(path, self._serve)
        self._runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port).start()
        self.port = self._runner.addresses[0][1]
        self.url = f"http://127.0.0.1:{self.port}"
        return self

    async def __aexit__(self, *error: object) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        number, self.served = self.served, self.served + 1
        fault = self.faults[number] if number < len(self.faults) else Fault()
        if unwanted := self._unwanted(request, fault):
            return unwanted
        socket = web.WebSocketResponse(autoping=not fault.silent, compress=False, timeout=0.2)
        socket.headers["dg-request-id"] = f"request-{number}"
        await socket.prepare(request)
        line = Connection(request.path, dict(request.query), asyncio.get_running_loop().time())
        self.connections.append(line)
        kind = {"/v1/listen": _Listen, "/v2/listen": _Flux, "/v1/speak": _Speak}[request.path]
        talk = kind(self, socket, request, line, fault)
        try:
            await talk.run()
        finally:
            for task in talk.tasks:
                task.cancel()
            if talk.tasks:
                await asyncio.wait(talk.tasks)
            line.closed = line.closed or socket.close_code or 1006
        return socket

    def _unwanted(self, request: web.Request, fault: Fault) -> web.Response | None:
        headers = {"dg-request-id": "r", "dg-error": "refused"}
        if fault.status:
            return web.json_response(dict(fault.body), status=fault.status, headers=headers)
        if request.headers.get("Authorization") not in (f"Token {KEY}", f"Bearer {KEY}"):
            given = request.headers.get("Authorization", "")
            return web.json_response({"err_code": "INVALID_AUTH", "err_msg": f"Invalid credentials: {given}"}, status=401, headers=headers)
        query = request.query
        wrong = [f"unknown: {name}" for name in set(query) - QUERY[request.path]]
        if request.path != "/v1/speak" and not (query.get("model") and query.get("encoding") == "linear16" and query.get("sample_rate")):
            wrong.append("model, encoding and sample_rate")
        if "utterance_end_ms" in query and query.get("interim_results") != "true":
            wrong.append("utterance_end_ms without interim_results")
        if request.path == "/v2/listen" and not query["model"].startswith("flux-"):
            wrong.append("no model of Flux")
        if wrong:
            self.refused.append(f"query: {wrong}")
            return web.json_response({"err_code": "Bad Request", "err_msg": str(wrong)}, status=400, headers=headers)
        return None


class _Talk:
    """One WebSocket being served."""

    def __init__(self, server: DeepgramServer, socket: web.WebSocketResponse, request: web.Request, line: Connection, fault: Fault) -> None:
        self.server, self.socket, self.request, self.line, self.fault = server, socket, request, line, fault
        self.tasks: list[asyncio.Task[None]] = []
        self.over = False
        self.out: asyncio.Queue[tuple[float, dict[str, Any]]] = asyncio.Queue()
        self.sequence = itertools.count()

    async def run(self) -> None:
        if self.fault.ends and not self.fault.after:
            await self.fail()
            if self.over:
                return
        self.tasks.append(asyncio.create_task(self.deliver()))
        await self.begin()
        loop = asyncio.get_running_loop()
        quiet_since = loop.time()
        while not self.over:
            try:
                async with asyncio.timeout_at(quiet_since + 10.0 if self.line.path != "/v1/speak" else None):
                    message = await self.socket.receive()
            except TimeoutError:
                await self.close(1011, "Deepgram did not receive audio data or a text message within the timeout window. NET-0001")
                return
            if message.type is WSMsgType.BINARY:
                quiet_since = loop.time()
                self.line.sizes.append(len(message.data))
                if not message.data or len(message.data) % 2 or self.line.path == "/v1/speak":
                    self.server.refused.append(f"{len(message.data)} bytes")
                    await self.close(1011, "")
                    return
                self.line.heard += message.data
                await self.hear()
            elif message.type is WSMsgType.TEXT:
                said = json.loads(message.data)
                self.line.messages.append(said)
                self.line.times.append(loop.time())
                if said.get("type") not in MESSAGES[self.line.path]:
                    self.server.refused.append(f"message {said}")
                    await self.say({"type": "Error", "code": "UNPARSABLE_CLIENT_MESSAGE", "description": str(said), "sequence_id": 0})
                    await self.close(1008, "DATA-0000")
                    return
                if self.line.heard:  # alone, before any sound, a KeepAlive is not enough
                    quiet_since = loop.time()
                await self.take(said)
            else:
                return

    async def begin(self) -> None: ...

    async def hear(self) -> None: ...

    async def take(self, said: dict[str, Any]) -> None: ...

    def tell(self, message: dict[str, Any]) -> None:
        self.out.put_nowait((asyncio.get_running_loop().time() + self.server.lag_s, message))

    async def deliver(self) -> None:
        while True:
            due, message = await self.out.get()
            await asyncio.sleep(max(0.0, due - asyncio.get_running_loop().time()))
            await self.say(message)
            self.out.task_done()

    async def say(self, message: dict[str, Any]) -> None:
        if not self.socket.closed and not (self.fault.silent and self.is_broken):
            if self.line.path == "/v2/listen":
                message = {**message, "request_id": "r", "sequence_id": next(self.sequence)}
            await self.socket.send_str(json.dumps(message))

    is_broken = False

    async def fail(self) -> None:
        self.is_broken = True
        if self.fault.cut:
            assert self.request.transport is not None
            self.over, self.line.closed = True, 1006
            self.request.transport.abort()
        elif not self.fault.silent:
            if self.fault.error is not None:
                await self.socket.send_str(json.dumps({"type": "Error", **self.fault.error}))
            await self.close(*(self.fault.close or (1011, "")))

    async def close(self, code: int, reason: str) -> None:
        self.over, self.line.closed = True, code
        await self.socket.close(code=code, message=reason.encode())


@dataclass(slots=True)
class _Heard:
    """A stretch of sound that is one word."""

    text: str
    start: float
    end: float


class _Recogniser(_Talk):
    """Hears words: runs of samples that are one number."""

    async def begin(self) -> None:
        self.rate = int(self.line.query["sample_rate"])
        self.words: list[_Heard] = []
        self.run_value = 0
        self.run_length = 0
        self.position = 0

    @property
    def now(self) -> float:
        """How far the sound goes."""
        return self.position / self.rate

    async def hear(self) -> None:
        samples = np.frombuffer(bytes(self.line.heard[2 * self.position :]), "<i2")
        step = round(0.01 * self.rate)
        for at in range(0, len(samples), step):
            self.listen(samples[at : at + step])
            if self.fault.ends and self.fault.after and not self.is_broken and self.now >= self.fault.after:
                await self.fail()
            if self.over:
                return
            if not (self.is_broken and self.fault.silent):
                self.look()

    def listen(self, samples: Any) -> None:
        edges = [0, *(np.flatnonzero(np.diff(samples)) + 1).tolist(), len(samples)]
        for start, end in itertools.pairwise(edges):
            value = int(samples[start])
            if value != self.run_value:
                self.end_of_run()
                self.run_value, self.run_length = value, 0
            self.run_length += end - start
            self.position += end - start

    def end_of_run(self) -> None:
        """A word is over."""
        if not self.run_value:
            return
        whole = abs(self.run_length - WORD_S * self.rate) <= 2
        text = f"w{self.run_value}" + ("" if whole else "!")
        self.words.append(_Heard(text, self.now - self.run_length / self.rate, self.now))
        self.run_value = 0

    def look(self) -> None:
        """What is there to say now?"""

    @property
    def silence_s(self) -> float:
        """Since the last word."""
        return 0.0 if self.run_value else self.run_length / self.rate if self.words else self.now

    def described(self, words: Sequence[_Heard], **more: Any) -> list[dict[str, Any]]:
        return [{"word": w.text, "start": round(w.start, 3), "end": round(w.end, 3), "confidence": 0.9, **more} for w in words]


class _Listen(_Recogniser):
    async def begin(self) -> None:
        await super().begin()
        self.final_to = 0.0
        self.told = 0
        """Words in finals."""
        self.interim_at = 0.5
        self.voice = False
        self.utterance_ended = True

    def results(self, words: Sequence[_Heard], until: float, **flags: bool) -> None:
        alternative = {"transcript": " ".join(w.text for w in words), "confidence": 0.9 if words else 0.0, "words": self.described(words)}
        self.tell({
            "type": "Results", "channel_index": [0, 1], "start": self.final_to, "duration": until - self.final_to, "is_final": False,
            "speech_final": False, "channel": {"alternatives": [alternative]},
            "metadata": {"request_id": "r", "model_info": {"name": "m", "version": "1", "arch": "a"}, "model_uuid": "u"}, **flags,
        })  # fmt: skip

    def final(self, until: float, **flags: bool) -> None:
        words, self.told = self.words[self.told :], len(self.words)
        self.results(words, until, is_final=True, **flags)
        self.final_to = until

    def look(self) -> None:
        query, new = self.line.query, self.words[self.told :]
        if self.run_value and not self.voice:
            self.voice, self.utterance_ended = True, False
            if query.get("vad_events") == "true":
                self.tell({"type": "SpeechStarted", "channel": [0, 1], "timestamp": self.now})
        endpointing = query.get("endpointing", "10")
        if self.voice and endpointing != "false" and self.words and self.silence_s >= int(endpointing) / 1000:
            self.voice = False
            self.final(self.now, speech_final=True)
        elif len(new) >= 4 or (not new and not self.run_value and self.now - self.final_to >= 3.0):
            self.final(new[-1].end if new else self.now)
        elif query.get("interim_results") == "true" and self.now >= self.interim_at:
            self.interim_at = self.now + 0.5
            self.results(new, self.now)
        if not self.utterance_ended and "utterance_end_ms" in query and self.silence_s >= int(query["utterance_end_ms"]) / 1000:
            self.utterance_ended = True
            self.tell({"type": "UtteranceEnd", "channel": [0, 1], "last_word_end": self.words[-1].end if self.words else -1.0})

    async def take(self, said: dict[str, Any]) -> None:
        if said["type"] == "Finalize" and not (self.is_broken and self.fault.silent):
            if self.fault.mute_finalize or self.now - self.final_to < 0.05:
                return  # there is next to nothing: it is not answered
            self.end_of_run()
            self.voice = False
            self.final(self.now, speech_final=True, from_finalize=True)
        elif said["type"] == "CloseStream" and not (self.is_broken and self.fault.silent):
            self.end_of_run()
            self.final(self.now)
            self.tell({
                "type": "Metadata", "transaction_key": "deprecated", "request_id": "r", "sha256": "0", "created": "2026-12-01",
                "duration": self.now, "channels": 1,
            })  # fmt: skip
            await self.out.join()
            await self.close(1000, "")


class _Flux(_Recogniser):
    async def begin(self) -> None:
        await super().begin()
        self.turn = 0
        self.first = 0
        """Of the turn's words."""
        self.start = 0.0
        self.state = ""
        self.update_at = 0.25
        query = self.line.query
        self.thresholds = {name: query.get(name) for name in ("eager_eot_threshold", "eot_threshold", "eot_timeout_ms")}
        self.tell({"type": "Connected"})

    def info(self, event: str, **more: Any) -> None:
        words = self.words[self.first :]
        self.tell({
            "type": "TurnInfo", "event": event, "turn_index": self.turn, "audio_window_start": self.start, "audio_window_end": self.now,
            "transcript": " ".join(w.text for w in words), "words": self.described(words), "end_of_turn_confidence": 0.5, **more,
        })  # fmt: skip

    def look(self) -> None:
        new = len(self.words) > self.first
        if not self.state and new:
            self.state = "turn"
            self.info("StartOfTurn")
        elif self.state == "eager" and self.run_value:
            self.state = "turn"
            self.info("TurnResumed")
        elif self.state and self.silence_s >= self.server.end_s:
            self.end("model")
        elif self.state == "turn" and self.thresholds["eager_eot_threshold"] and self.silence_s >= self.server.eager_s:
            self.state = "eager"
            self.info("EagerEndOfTurn")
        elif self.now >= self.update_at:
            self.info("Update")
        else:
            return
        self.update_at = self.now + 0.25

    def end(self, trigger: str) -> None:
        self.info("EndOfTurn", trigger=trigger)
        self.state, self.first, self.start = "", len(self.words), self.now
        self.turn += 1

    async def take(self, said: dict[str, Any]) -> None:
        if said["type"] == "Configure":
            given = said.get("thresholds") or {}
            if not 0.5 <= float(given.get("eot_threshold", 0.7)) <= 1:
                self.tell({"type": "ConfigureFailure", "code": "CONFIGURE_INVALID", "description": str(given)})
                return
            self.thresholds |= given
            self.tell({"type": "ConfigureSuccess", "thresholds": self.thresholds, "keyterms": said.get("keyterms") or []})
        elif said["type"] == "ForceEndTurn":
            self.end_of_run()
            self.end("manual")
        elif not (self.is_broken and self.fault.silent):
            self.end_of_run()
            if len(self.words) > self.first:
                self.info("Update")
            await self.out.join()
            await self.close(1000, "")


class _Speak(_Talk):
    async def begin(self) -> None:
        self.text = ""
        self.flushes: deque[float] = deque()
        self.jobs: asyncio.Queue[str] = asyncio.Queue()
        self.sent = 0
        self.speaking: asyncio.Task[None] | None = None
        query = self.line.query
        self.codec, self.rate = query.get("encoding", "linear16"), int(query.get("sample_rate", "24000"))
        await self.say(
            {"type": "Metadata", "request_id": "r", "model_name": query.get("model", "m"), "model_version": "1", "model_uuid": "u"}
        )
        self.start()

    def start(self) -> None:
        self.speaking = asyncio.create_task(self.speak())
        self.tasks.append(self.speaking)

    async def take(self, said: dict[str, Any]) -> None:
        now = asyncio.get_running_loop().time()
        if said["type"] == "Speak":
            if not said["text"].strip() or len(said["text"]) > 2400:
                self.server.refused.append(f"text of {len(said['text'])}")
            self.text += said["text"]
        elif said["type"] == "Flush":
            while self.flushes and now - self.flushes[0] > 60:
                self.flushes.popleft()
            if len(self.flushes) >= 20:
                self.server.refused.append("too many flushes")
                await self.say({"type": "Warning", "code": "EXCESSIVE_FLUSH", "description": "Flush"})
                return
            if not self.text:
                self.server.refused.append("a flush without text")
            self.flushes.append(now)
            self.jobs.put_nowait(self.text)
            self.text = ""
        elif said["type"] == "Clear":
            assert self.speaking is not None
            self.speaking.cancel()
            await asyncio.wait([self.speaking])
            self.tasks.remove(self.speaking)
            self.text, self.jobs = "", asyncio.Queue()
            self.start()
            await asyncio.sleep(self.server.lag_s)
            await self.say({"type": "Cleared", "sequence_id": 0})
        else:
            if self.text:
                self.jobs.put_nowait(self.text)
            await self.jobs.join()
            await self.close(1000, "")

    async def speak(self) -> None:
        while True:
            text = await self.jobs.get()
            self.server.spoken.append(text)
            await asyncio.sleep(self.server.first_s)
            for piece in self.pieces(text):
                if self.fault.ends and self.fault.after and self.line.spoken_chunks >= self.fault.after:
                    await self.fail()
                    await asyncio.Event().wait()
                self.line.spoken_chunks += 1
                await self.socket.send_bytes(piece)
                await asyncio.sleep(self.server.each_s)
            await self.say({"type": "Flushed", "sequence_id": self.sent})
            self.sent += 1
            self.jobs.task_done()

    def pieces(self, text: str) -> Iterator[bytes]:
        encode = {"mulaw": mulaw_encode, "alaw": alaw_encode}.get(self.codec, bytes)
        sound = self.server.prefix + encode(sound_of(text, self.rate))
        each = len(sound) // len(text)
        sizes = self.server.sizes() if self.server.sizes is not None else itertools.repeat(each * self.server.chars)
        at = 0
        while at < len(sound):
            size = next(sizes)
            yield sound[at : at + size]
            at += size
