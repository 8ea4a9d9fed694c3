"""A server of ElevenLabs' text to speech, as the vendor describes it: two WebSockets and three requests.

It is strict: what the vendor would refuse it refuses, and the vendor's own client package reads what it says. Its sound says
what was spoken: each character lasts 20 ms, all its samples are the character's number. So ``heard`` reads sound as text, and
whatever is lost, doubled or out of place is seen. https://elevenlabs.io/docs/api-reference/text-to-speech
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from aiohttp import WSMsgType, web

from voiceflow.audio import mulaw_encode

KEY = "sk_0123456789abcdef0123456789abcdef"
VOICE = "21m00Tcm4TlvDq8ikWAM"
CHAR_S = 0.02
MOST_CONTEXTS = 5
SCHEDULE = (120, 160, 250, 290)
RATES = {8000, 16000, 22050, 24000, 32000, 44100, 48000}
QUERY = {
    "model_id", "language_code", "output_format", "inactivity_timeout", "auto_mode", "sync_alignment", "enable_ssml_parsing",
    "enable_logging", "apply_text_normalization", "seed",
}  # fmt: skip
SETTINGS = {"stability", "similarity_boost", "style", "use_speaker_boost", "speed"}
BODY = {
    "text", "model_id", "language_code", "voice_settings", "pronunciation_dictionary_locators", "seed", "previous_text", "next_text",
    "apply_text_normalization",
}  # fmt: skip


def sound_of(text: str, rate: int) -> bytes:
    """What the server speaks."""
    return np.repeat(np.array([ord(c) for c in text], "<i2"), round(CHAR_S * rate)).tobytes()


def heard(pcm: bytes, rate: int) -> str:
    """What was spoken. A sound that is cut within a character shows as a sign of its own."""
    samples, each = np.frombuffer(pcm, "<i2"), round(CHAR_S * rate)
    edges = [0, *(np.flatnonzero(np.diff(samples)) + 1).tolist(), len(samples)]
    text = ""
    for start, end in itertools.pairwise(edges) if len(samples) else ():
        count, rest = divmod(end - start, each)
        text += (chr(samples[start]) * count + ("�" if rest else "")) if samples[start] else ""
    return text


@dataclass(frozen=True, slots=True)
class Fault:
    """What happens on one connection, or to one request. Counted from the first sound of it."""

    status: int = 0
    """Refuse the opening, or the request."""
    body: Mapping[str, Any] = field(default_factory=dict)
    close: tuple[int, str] | None = None
    """Close with this code and reason; at once, or after so many chunks."""
    error: Mapping[str, Any] | None = None
    """Send this before."""
    after: int = 0
    cut: bool = False
    """Break off instead."""
    silent: bool = False
    """Send nothing any more, and answer nothing."""
    deaf: bool = False
    """Do not acknowledge the close of a context."""


@dataclass(slots=True)
class Connection:
    """A WebSocket, and what became of it."""

    at: float
    path: str
    query: Mapping[str, str]
    messages: list[dict[str, Any]] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    open: dict[str, _Context] = field(default_factory=dict)
    most_open: int = 0
    opened: list[str] = field(default_factory=list)
    closed: tuple[int, str] | None = None
    chunks: int = 0
    """Sounds sent."""
    last_text_at: float = 0.0
    first_sound_at: float | None = None


class _Context:
    """The text of one stream, and its generation."""

    def __init__(self, name: str | None, schedule: Sequence[int]) -> None:
        self.name = name
        self.schedule = list(schedule)
        self.buffer = ""
        self.has_text = False
        self.settled = False
        self.closing = False
        self.jobs: asyncio.Queue[str | None] = asyncio.Queue()
        self.generated = 0

    def trigger(self) -> None:
        if self.buffer.strip():
            self.jobs.put_nowait(self.buffer)
            self.generated += 1
        self.buffer = ""


class ElevenLabsServer:
    """``async with ElevenLabsServer() as server: ... server.url``.

    ``first_s``: from a trigger to its first sound; ``each_s``: between sounds of ``chars`` characters. ``sizes``: cut the sound
    into pieces of these numbers of bytes instead. ``faults``: of the first connection or request, the second and so on.
    """

    def __init__(
        self,
        *,
        first_s: float = 0.1,
        each_s: float = 0.02,
        chars: int = 10,
        sizes: Callable[[], Iterator[int]] | None = None,
        faults: Sequence[Fault] = (),
        alignment: bool = True,
        spelling: Mapping[str, str] | None = None,
        overshoot_s: float = 0.0,
        encode: Callable[[str, int], Callable[[bytes, bool], bytes]] | None = None,
    ) -> None:
        self.first_s = first_s
        self.each_s = each_s
        self.chars = chars
        self.sizes = sizes
        self.faults = list(faults)
        self.alignment = alignment
        self.spelling = dict(spelling or {})
        self.encode = encode
        self.overshoot_s = overshoot_s
        """The last character of a text is said to end so much later than its sound does."""
        self.connections: list[Connection] = []
        self.requests: list[dict[str, Any]] = []
        self.left: list[dict[str, Any]] = []
        """Requests whose client went before the end."""
        self.refused: list[str] = []
        """What clients did wrong."""
        self.spoken: list[str] = []
        """Texts in the order in which they were generated."""
        self.url = ""
        self.port = 0
        """Set it before, to have a certain one."""
        self._served = 0
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_get("/v1/text-to-speech/{voice}/stream-input", self._stream_input)
        app.router.add_get("/v1/text-to-speech/{voice}/multi-stream-input", self._multi_stream_input)
        app.router.add_post("/v1/text-to-speech/{voice}", self._request)
        app.router.add_post("/v1/text-to-speech/{voice}/stream", self._request)
        app.router.add_post("/v1/text-to-speech/{voice}/stream/with-timestamps", self._request)
        self._runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port).start()
        self.port = self._runner.addresses[0][1]
        self.url = f"http://127.0.0.1:{self.port}"
        return self

    async def __aexit__(self, *error: object) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    def _fault(self) -> Fault:
        number, self._served = self._served, self._served + 1
        return self.faults[number] if number < len(self.faults) else Fault()

    def _unwanted(self, request: web.Request, fault: Fault) -> web.Response | None:
        if fault.status:
            return web.json_response(dict(fault.body), status=fault.status)
        if request.headers.get("xi-api-key") != KEY:
            given = request.headers.get("xi-api-key", "")
            return _problem(401, "invalid_api_key", f"Invalid API key: {given}")
        if unknown := set(request.query) - QUERY:
            self.refused.append(f"query {unknown}")
            return _problem(422, "invalid_query", f"unknown: {sorted(unknown)}")
        return None

    # ------------------------------------------------------------------------------------------- sockets

    async def _stream_input(self, request: web.Request) -> web.StreamResponse:
        return await self._socket(request, multi=False)

    async def _multi_stream_input(self, request: web.Request) -> web.StreamResponse:
        return await self._socket(request, multi=True)

    async def _socket(self, request: web.Request, *, multi: bool) -> web.StreamResponse:
        fault = self._fault()
        if unwanted := self._unwanted(request, fault):
            return unwanted
        socket = web.WebSocketResponse(autoping=not fault.silent, compress=False, timeout=0.2)
        await socket.prepare(request)
        line = Connection(asyncio.get_running_loop().time(), request.path, dict(request.query))
        self.connections.append(line)
        talk = _Talk(self, socket, request, line, fault, multi=multi)
        async with asyncio.TaskGroup() as group:
            talk.group = group
            try:
                await talk.run(request.match_info["voice"])
            finally:
                for task in talk.tasks:
                    task.cancel()
        line.closed = line.closed or (socket.close_code or 1006, "by the client")
        return socket

    # ------------------------------------------------------------------------------------------ requests

    async def _request(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        fault = self._fault()
        self.requests.append(body)
        if unwanted := self._unwanted(request, fault):
            return unwanted
        if request.match_info["voice"] != VOICE:
            return _problem(404, "voice_not_found", "A voice was not found.")
        if wrong := body_fault(body):
            self.refused.append(wrong)
            return web.json_response({"detail": [{"loc": ["body"], "msg": wrong, "type": "value_error"}]}, status=422)
        codec, _, rate = request.query.get("output_format", "mp3_44100_128").partition("_")
        response = web.StreamResponse(headers={"Content-Type": "audio/mpeg" if codec == "mp3" else "audio/pcm"})
        self.spoken.append(body["text"])
        try:
            await asyncio.sleep(self.first_s)
            await response.prepare(request)
            timed = request.path.endswith("with-timestamps")
            for number, (data, alignment) in enumerate(self.pieces(body["text"], codec, int(rate.partition("_")[0]))):
                if (fault.cut or fault.silent) and number >= fault.after:
                    if fault.silent:
                        await asyncio.Event().wait()
                    assert request.transport is not None
                    request.transport.abort()
                    return response
                await response.write(_line(data, alignment) if timed else data)
                await asyncio.sleep(self.each_s)
        except (asyncio.CancelledError, ConnectionError):
            self.left.append(body)
            raise
        return response

    # --------------------------------------------------------------------------------------------- sound

    def pieces(self, text: str, codec: str, rate: int) -> Iterator[tuple[bytes, dict[str, list[Any]]]]:
        """The sound of a text, piece by piece, with the characters that begin in each: (character, start, end) in seconds of it."""
        sound = sound_of(text, rate)
        if codec == "ulaw":
            sound = mulaw_encode(sound)
        each = len(sound) // len(text)
        sizes = self.sizes() if self.sizes is not None else itertools.repeat(each * self.chars)
        encoder = self.encode(codec, rate) if self.encode is not None else None
        at = 0
        while at < len(sound):
            end = min(len(sound), at + next(sizes))
            begun = range(-(-at // each), -(-end // each))
            alignment = {
                "chars": [text[n] for n in begun],
                "starts": [(n * each - at) / each * CHAR_S for n in begun],
                "ends": [((n + 1) * each - at) / each * CHAR_S for n in begun],
            }
            if self.overshoot_s and end == len(sound):
                last = [n for n, char in enumerate(alignment["chars"]) if char != " "][-1]
                alignment["ends"][last] += self.overshoot_s
            piece = sound[at:end]
            yield (encoder(piece, end == len(sound)) if encoder is not None else piece), alignment
            at = end


class _Talk:
    """One WebSocket being served."""

    def __init__(
        self, server: ElevenLabsServer, socket: web.WebSocketResponse, request: web.Request, line: Connection, fault: Fault, *, multi: bool
    ) -> None:
        self.server, self.socket, self.request, self.line, self.fault, self.multi = server, socket, request, line, fault, multi
        self.group: asyncio.TaskGroup
        self.tasks: list[asyncio.Task[None]] = []
        self.over = False
        self.begun = False

    async def run(self, voice: str) -> None:
        if self.fault.close is not None and not self.fault.after:
            await self.close(*self.fault.close)
            return
        if voice != VOICE:
            await self.complain("voice_id_does_not_exist", "A voice with this id does not exist.")
            return
        quiet_s = float(self.line.query.get("inactivity_timeout", "20"))
        while not self.over:
            try:
                async with asyncio.timeout(quiet_s):
                    message = await self.socket.receive()
            except TimeoutError:
                words = f"Have not received a new text input within the timeout of {quiet_s:g} seconds. Streaming input terminated."
                await self.close(1008, words)
                return
            if message.type is not WSMsgType.TEXT:
                return
            said = json.loads(message.data)
            self.line.messages.append(said)
            self.line.times.append(asyncio.get_running_loop().time())
            wrong = message_fault(said, multi=self.multi, first=not self.begun)
            self.begun = True
            if wrong:
                self.server.refused.append(wrong)
                await self.complain("invalid_input_message", wrong)
                return
            await (self.take_multi(said) if self.multi else self.take(said))

    async def take(self, said: dict[str, Any]) -> None:
        context = self.line.open.get("") or self.open("", said)
        if said["text"] == "":
            context.trigger()
            context.closing = True
            context.jobs.put_nowait(None)
            return
        if context.closing:
            self.server.refused.append("text after the end")
            await self.complain("invalid_input_message", "text after the end")
            return
        await self.add(context, said)

    async def take_multi(self, said: dict[str, Any]) -> None:
        if said.get("close_socket"):
            for context in self.line.open.values():
                context.jobs.put_nowait(None)
            return
        name = said.get("context_id") or "default"
        context = self.line.open.get(name)
        if context is None:
            if len(self.line.open) >= MOST_CONTEXTS:
                self.server.refused.append("too many contexts")
                await self.complain("max_active_conversations", "Maximum simultaneous contexts per WebSocket connection exceeded (5).")
                return
            context = self.open(name, said)
        elif "voice_settings" in said or "generation_config" in said:
            self.server.refused.append("settings twice")
            await self.close(1008, "voice_settings may only be sent in the first message of a context")
            return
        if said.get("close_context"):
            if not context.has_text:
                self.server.refused.append(f"{name} is closed, and never got text")
            context.closing = True
            context.jobs.put_nowait(None)
            return
        if context.closing:
            self.server.refused.append(f"{name} is being closed")
            return
        await self.add(context, said)

    def open(self, name: str, said: dict[str, Any]) -> _Context:
        schedule = (said.get("generation_config") or {}).get("chunk_length_schedule") or SCHEDULE
        context = self.line.open[name] = _Context(name or None, schedule)
        self.line.opened.append(name)
        self.line.most_open = max(self.line.most_open, len(self.line.open))
        self.tasks.append(self.group.create_task(self.speak(name, context)))
        return context

    async def add(self, context: _Context, said: dict[str, Any]) -> None:
        text = said.get("text") or ""
        if said.get("flush") and not context.has_text and not text.strip():
            self.server.refused.append("a flush without text")
        if text.strip():
            context.has_text = True
            self.line.last_text_at = asyncio.get_running_loop().time()
            context.buffer += text
        wanted = context.schedule[min(context.generated, len(context.schedule) - 1)]
        if (
            said.get("flush")
            or self.line.query.get("auto_mode") == "true"
            or len(context.buffer) >= wanted
            or (said.get("try_trigger_generation") and len(context.buffer) >= 50)
        ):
            context.trigger()

    async def speak(self, name: str, context: _Context) -> None:
        codec, _, rate = self.line.query.get("output_format", "mp3_44100_128").partition("_")
        while (text := await context.jobs.get()) is not None:
            self.server.spoken.append(text)
            await asyncio.sleep(self.server.first_s)
            for data, alignment in self.server.pieces(text, codec, int(rate.partition("_")[0])):
                if self.fault.after and self.line.chunks >= self.fault.after:
                    await self.fail()
                    return
                self.line.chunks += 1
                self.line.first_sound_at = self.line.first_sound_at or asyncio.get_running_loop().time()
                await self.send(_sound(data, alignment if self.server.alignment else None, context.name))
                await asyncio.sleep(self.server.each_s)
        if self.fault.deaf or (self.fault.silent and self.fault.after and self.line.chunks >= self.fault.after):
            return
        del self.line.open[name]
        await self.send({"audio": None, "isFinal": True} | ({"contextId": context.name} if context.name else {}))
        if not self.multi:
            await self.close(1000, "")

    async def fail(self) -> None:
        if self.fault.silent:
            await asyncio.Event().wait()
        if self.fault.cut:
            assert self.request.transport is not None
            self.over = True
            self.line.closed = (1006, "cut")
            self.request.transport.abort()
            return
        if self.fault.error is not None:
            await self.send(dict(self.fault.error))
        await self.close(*(self.fault.close or (1011, "")))

    async def send(self, message: dict[str, Any]) -> None:
        if not self.socket.closed:
            await self.socket.send_str(json.dumps(_spelled(message, self.server.spelling)))

    async def complain(self, name: str, words: str) -> None:
        await self.send({"message": words, "error": name, "code": 1008})
        await self.close(1008, words[:120])

    async def close(self, code: int, reason: str) -> None:
        self.over = True
        self.line.closed = (code, reason)
        await self.socket.close(code=code, message=reason.encode()[:120])


def _spelled(value: Any, spelling: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return {spelling.get(name, name): _spelled(inner, spelling) for name, inner in value.items()}
    return value


def _ms(seconds: Sequence[float]) -> list[int]:
    return [round(1000 * at) for at in seconds]


def _sound(data: bytes, alignment: Mapping[str, Any] | None, context: str | None) -> dict[str, Any]:
    told = None
    if alignment is not None:
        starts, ends = _ms(alignment["starts"]), _ms(alignment["ends"])
        lengths = [end - start for start, end in zip(starts, ends, strict=True)]
        told = {"chars": alignment["chars"], "charStartTimesMs": starts, "charDurationsMs": lengths}
    message = {"audio": base64.b64encode(data).decode(), "isFinal": None, "alignment": told, "normalizedAlignment": told}
    return message | ({"contextId": context} if context else {})


def _line(data: bytes, alignment: Mapping[str, Any]) -> bytes:
    told = {
        "characters": alignment["chars"],
        "character_start_times_seconds": alignment["starts"],
        "character_end_times_seconds": alignment["ends"],
    }
    sound = base64.b64encode(data).decode()
    return json.dumps({"audio_base64": sound, "alignment": told, "normalized_alignment": told}).encode() + b"\n"


def _problem(status: int, name: str, words: str) -> web.Response:
    return web.json_response({"detail": {"status": name, "message": words}}, status=status)


def settings_fault(settings: Any) -> str:
    """Why these voice settings would be refused, or ""."""
    if settings is None:
        return ""
    if not isinstance(settings, dict) or set(settings) - SETTINGS:
        return f"voice_settings: {settings}"
    speed = settings.get("speed")
    return "" if speed is None or 0.7 <= speed <= 1.2 else f"speed {speed}"


def message_fault(said: Any, *, multi: bool, first: bool) -> str:
    """Why the vendor would refuse this message, or "". Written down from its description, not from the code under test."""
    allowed = {"text", "flush", "voice_settings", "generation_config", "pronunciation_dictionary_locators"}
    allowed |= {"context_id", "close_context", "close_socket"} if multi else {"try_trigger_generation"}
    if not isinstance(said, dict) or set(said) - allowed:
        return f"fields of {said}"
    text = said.get("text")
    if not multi and not isinstance(text, str):
        return "text is missing"
    if text is not None and not isinstance(text, str):
        return "text is no text"
    if first and text != " " and (not multi or text):
        return f"the first text is {text!r}, not a blank"
    if text and text.isascii() and not text.endswith(" "):
        return f"{text!r} does not end with a blank"
    if not multi and not first and "generation_config" in said:
        return "generation_config after the first message"
    schedule = (said.get("generation_config") or {}).get("chunk_length_schedule")
    if schedule is not None and not all(50 <= length <= 500 for length in schedule):
        return f"chunk_length_schedule {schedule}"
    if said.get("flush") and multi and "context_id" not in said:
        return "a flush without a context"
    return settings_fault(said.get("voice_settings"))


def body_fault(body: Any) -> str:
    """The same of a request."""
    if not isinstance(body, dict) or set(body) - BODY:
        return f"fields of {body}"
    text = body.get("text")
    if not isinstance(text, str) or not any(c.isalnum() for c in text):
        return f"text {text!r}"
    return settings_fault(body.get("voice_settings"))
