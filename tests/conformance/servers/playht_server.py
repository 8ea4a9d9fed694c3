"""A server of PlayHT's text to speech, as the vendor described it while it was there: an address to ask for, a WebSocket, a request.

It is strict: what the vendor would refuse it refuses, and the vendor's own client package reads what it says. Requests of one
connection are answered in order: ``start``, sound, ``end``. The sound says what was spoken, like that of ``elevenlabs_server``.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from aiohttp import WSMsgType, web

from tests.conformance.servers.elevenlabs_server import sound_of
from voiceflow.audio import mulaw_encode

USER, KEY = "user0123456789", "ak-0123456789abcdef0123456789abcdef"
VOICE = "s3://voice-cloning-zero-shot/0123/olivia/manifest.json"
TOKEN = "token-0123456789abcdef"
ENGINES = ("Play3.0-mini", "PlayDialog", "PlayDialogMultilingual", "PlayDialogArabic")
FIELDS = {
    "text", "voice", "voice_engine", "output_format", "speed", "sample_rate", "seed", "temperature", "top_p", "text_guidance",
    "voice_guidance", "style_guidance", "repetition_penalty", "language", "version", "request_id", "voice_2", "turn_prefix",
    "turn_prefix_2", "voice_conditioning_seconds", "voice_conditioning_seconds_2", "scene_description", "turn_clip_description",
    "num_candidates", "candidate_ranking_method",
}  # fmt: skip
FORMATS = ("wav", "mulaw", "raw", "mp3", "ogg", "flac", "pcm")


def wav_header(rate: int, length: int = 0xFFFFFFFF, *, extra: bytes = b"") -> bytes:
    """As a server writes it that does not know yet how much will come. ``extra``: chunks before the sound."""
    told = struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, 1, rate, 2 * rate, 2, 16)
    return struct.pack("<4sI4s", b"RIFF", 0xFFFFFFFF, b"WAVE") + told + extra + struct.pack("<4sI", b"data", length)


@dataclass(frozen=True, slots=True)
class Fault:
    """What happens on one connection. ``after``: so many pieces of sound."""

    status: int = 0
    """Refuse the opening."""
    after: int = 0
    error: Mapping[str, Any] | None = None
    """Send this. The connection stays open."""
    close: tuple[int, str] | None = None
    cut: bool = False
    silent: bool = False
    """Send nothing any more."""


@dataclass(slots=True)
class Connection:
    """A WebSocket, and what became of it."""

    commands: list[dict[str, Any]] = field(default_factory=list)
    finished: int = 0
    """Requests answered to their end."""
    pieces: int = 0
    closed: int | None = None


class PlayHTServer:
    """``async with PlayHTServer() as server: ... server.url``. ``first_s``: to the first sound of a request; ``each_s``: between pieces.

    ``chars``: in each piece; ``sizes``: cut into pieces of these numbers of bytes instead, the header among them. ``faults``: of the
    first connection, the second and so on. ``spelling``: of the answer that tells where the WebSocket is.
    """

    def __init__(
        self,
        *,
        first_s: float = 0.1,
        each_s: float = 0.02,
        chars: int = 10,
        sizes: Callable[[], Iterator[int]] | None = None,
        faults: Sequence[Fault] = (),
        spelling: str = "websocket_urls",
        auth_status: int = 201,
        header: Callable[[int], bytes] = wav_header,
    ) -> None:
        self.first_s = first_s
        self.each_s = each_s
        self.chars = chars
        self.sizes = sizes
        self.faults = list(faults)
        self.spelling = spelling
        self.auth_status = auth_status
        self.header = header
        self.asked = 0
        """For the address."""
        self.connections: list[Connection] = []
        self.refused: list[str] = []
        """What clients did wrong."""
        self.spoken: list[str] = []
        self.url = ""
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_post("/api/v4/websocket-auth", self._tell_sockets)
        app.router.add_post("/api/v4/sdk-auth", self._tell_all)
        app.router.add_post("/stream", self._request)
        app.router.add_get("/ws", self._socket)
        self._runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *error: object) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    # ------------------------------------------------------------------------------------------- addresses

    def _unwanted(self, request: web.Request) -> web.Response | None:
        self.asked += 1
        if request.headers.get("Authorization") != f"Bearer {KEY}" or request.headers.get("X-User-Id") != USER:
            words = f"the key {request.headers.get('Authorization')} is not valid"
            return web.json_response({"error": {"code": "UNAUTHORIZED", "message": words}}, status=401)
        return None

    @property
    def _address(self) -> str:
        return f"{self.url.replace('http', 'ws', 1)}/ws?token={TOKEN}"

    async def _tell_sockets(self, request: web.Request) -> web.Response:
        if refused := self._unwanted(request):
            return refused
        told = self._address if self.spelling == "websocket_url" else dict.fromkeys(ENGINES, self._address)
        return web.json_response({self.spelling: told, "expires_at": "2099-01-01T00:00:00.000Z"}, status=self.auth_status)

    async def _tell_all(self, request: web.Request) -> web.Response:
        if refused := self._unwanted(request):
            return refused
        each = {"http_streaming_url": f"{self.url}/stream", "websocket_url": self._address}
        return web.json_response({**dict.fromkeys(ENGINES, each), "expires_at": "2099-01-01T00:00:00.000Z"})

    # -------------------------------------------------------------------------------------------- requests

    async def _request(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        if wrong := command_fault(body):
            self.refused.append(wrong)
            return web.json_response({"error": wrong}, status=400)
        response = web.StreamResponse(headers={"Content-Type": "audio/wav"})
        await response.prepare(request)
        for piece in self.pieces(body):
            await response.write(piece)
        return response

    async def _socket(self, request: web.Request) -> web.StreamResponse:
        number = len(self.connections)
        fault = self.faults[number] if number < len(self.faults) else Fault()
        line = Connection()
        self.connections.append(line)
        if fault.status or request.query.get("token") != TOKEN:
            return web.Response(status=fault.status or 401)
        socket = web.WebSocketResponse(compress=False, timeout=0.2)
        await socket.prepare(request)
        commands: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        answering = asyncio.create_task(self._answer(request, socket, line, fault, commands))
        try:
            async for message in socket:
                if message.type is not WSMsgType.TEXT:
                    self.refused.append(f"a message of {message.type}")
                    continue
                line.commands.append(json.loads(message.data))
                commands.put_nowait(line.commands[-1])
        finally:
            answering.cancel()
            await asyncio.wait([answering])
            line.closed = socket.close_code or 1006
        return socket

    async def _answer(
        self, request: web.Request, socket: web.WebSocketResponse, line: Connection, fault: Fault, commands: asyncio.Queue[dict[str, Any]]
    ) -> None:
        for number in itertools.count(1):
            command = await commands.get()
            if wrong := command_fault(command):
                self.refused.append(wrong)
                await socket.send_json({"error": wrong})
                continue
            name = {"request_id": command.get("request_id", f"server-{number}")}
            self.spoken.append(_text(command))
            await socket.send_json({"type": "start", **name})
            await asyncio.sleep(self.first_s)
            for piece in self.pieces(command):
                if fault != Fault() and line.pieces >= fault.after:
                    await self._fail(request, socket, fault)
                    return
                line.pieces += 1
                await socket.send_bytes(piece)
                await asyncio.sleep(self.each_s)
            line.finished += 1
            await socket.send_json({"type": "end", **name})

    async def _fail(self, request: web.Request, socket: web.WebSocketResponse, fault: Fault) -> None:
        if fault.error is not None:
            await socket.send_json(fault.error)
        if fault.cut:
            assert request.transport is not None
            request.transport.abort()
        elif fault.close is not None:
            await socket.close(code=fault.close[0], message=fault.close[1].encode())
        elif fault.silent:
            await asyncio.Event().wait()

    def pieces(self, command: Mapping[str, Any]) -> Iterator[bytes]:
        """The sound that a command asks for."""
        rate = command.get("sample_rate") or 24000
        text = _text(command)
        sound = sound_of(text, rate)
        each = len(sound) // len(text)
        if command["output_format"] == "mulaw":
            sound, each = mulaw_encode(sound), each // 2
        elif command["output_format"] == "wav":
            sound = self.header(rate) + sound
        sizes = self.sizes() if self.sizes is not None else itertools.repeat(each * self.chars)
        at = 0
        while at < len(sound):
            size = next(sizes)
            yield sound[at : at + size]
            at += size


def _text(command: Mapping[str, Any]) -> str:
    text = command["text"]
    return text if isinstance(text, str) else " ".join(text)


def command_fault(command: Any) -> str:
    """Why the vendor would refuse this command, or ""."""
    if not isinstance(command, dict) or set(command) - FIELDS:
        return f"unknown fields: {set(command) - FIELDS}"
    text = command.get("text")
    if (
        not (isinstance(text, str) or (isinstance(text, list) and all(isinstance(part, str) for part in text)))
        or not _text(command).strip()
    ):
        return "text is required"
    if command.get("voice") != VOICE:
        return f"voice {command.get('voice')} not found"
    if command.get("voice_engine") not in ENGINES:
        return "voice_engine is not supported"
    if command.get("output_format") not in FORMATS:
        return "output_format is not supported"
    rate = command.get("sample_rate")
    return "" if rate in (None, 8000, 16000, 24000, 44100, 48000) else f"sample_rate {rate} is not supported"
