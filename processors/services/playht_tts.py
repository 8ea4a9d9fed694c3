"""PlayHT's voices, spoken while the reply is still being written, a request for each piece on one WebSocket.

**The service is closed**: the vendor was bought in 2025 and its API was shut down by the end of that year. This node is for
servers that still speak its protocol: installations on one's own premises, replays, tests. Give their address as ``base_url``.

The one rule: a request begins on a connection on which nothing of another one can still come. The protocol has no message that
stops a request, so an interrupt cuts the connection, and the next one is opened at once. Everything else is ``speech_stream``'s.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import urlsplit

from voiceflow.backoff import Backoff, BackoffOptions
from voiceflow.processor import Processor
from voiceflow.processors.filters import FilterMaker
from voiceflow.processors.services.address import checked_url, origin_of
from voiceflow.processors.services.decoders import Decoder, PcmDecoder
from voiceflow.processors.services.http import Deadlines, HttpClient
from voiceflow.processors.services.key import find_key
from voiceflow.processors.services.playht_wire import HINTS, RequestSound, WavSound, read_message, socket_address
from voiceflow.processors.services.retry import ServiceError, Verdict, failure_of_status
from voiceflow.processors.services.socket import Dialer, RefusedError, Socket, SocketOptions, WarmSocket
from voiceflow.processors.services.speech_stream import SpeechStream
from voiceflow.processors.services.voice_service import Sound, StreamOptions, Stretch
from voiceflow.processors.text import FILTERS, Sentences

__all__ = ["PlayHTOptions", "PlayHTTTS"]

PLAYHT = "https://api.play.ht"
KEY_VARIABLE, USER_VARIABLE = "PLAY_HT_API_KEY", "PLAY_HT_USER_ID"
RATES = (8000, 16000, 24000, 44100, 48000)
LONGEST_ANSWER = 64 * 1024


@dataclass(frozen=True, slots=True)
class PlayHTOptions:
    """Which voice, and where the service is."""

    voice: str
    """The address of its manifest, ``s3://voice-cloning-zero-shot/.../manifest.json``."""
    engine: str = "Play3.0-mini"
    """``Play3.0-mini``, ``PlayDialog``, ``PlayDialogMultilingual``, ``PlayDialogArabic``."""
    output_format: Literal["wav", "mulaw"] = "wav"
    sample_rate: int = 24000
    """In Hz. With mulaw: 8000."""
    speed: float | None = None
    """0.1 to 5. None, here and below: as the service has it."""
    temperature: float | None = None
    seed: int | None = None
    language: str | None = None
    """An English word: ``english``, ``french``."""
    base_url: str = PLAYHT
    """Of any server that speaks the protocol, without ``/api``."""
    api_key: str | None = field(default=None, repr=False)
    user_id: str | None = field(default=None, repr=False)
    api_key_variable: str | None = None
    """Environment variable that holds the key. None: ``PLAY_HT_API_KEY`` at PlayHT itself and none elsewhere, so that a key is not
    sent to a stranger."""
    user_id_variable: str | None = None
    """The same for the user's id: ``PLAY_HT_USER_ID``."""
    stream: StreamOptions = field(default_factory=StreamOptions)
    socket: SocketOptions = field(default_factory=SocketOptions)
    backoff: BackoffOptions = field(default_factory=BackoffOptions)

    def __post_init__(self) -> None:
        checked_url(self.base_url, "PlayHTOptions", "https://api.play.ht or http://127.0.0.1:8080")
        if not self.voice or not self.engine:
            raise ValueError("PlayHTOptions: voice and engine must be given; voice is the address of a voice's manifest")
        if self.output_format not in ("wav", "mulaw"):
            raise ValueError(f"PlayHTOptions: output_format is {self.output_format!r}; it must be 'wav' or 'mulaw'")
        if self.sample_rate not in ((8000,) if self.output_format == "mulaw" else RATES):
            raise ValueError(
                f"PlayHTOptions: sample_rate {self.sample_rate} is none of {', '.join(map(str, RATES))}, and with mulaw it must be 8000"
            )
        if self.speed is not None and not 0.1 <= self.speed <= 5:
            raise ValueError(f"PlayHTOptions: speed is {self.speed}; it must be from 0.1 to 5")

    def headers(self) -> dict[str, str]:
        """With the key and the user's id. Raises ServiceError if there is none where there has to be one."""
        where = origin_of(self.base_url)
        at_home = (urlsplit(self.base_url).hostname or "").endswith(".play.ht")
        key = find_key(where, self.api_key, self.api_key_variable or (KEY_VARIABLE if at_home else None))
        user = find_key(where, self.user_id, self.user_id_variable or (USER_VARIABLE if at_home else None))
        return ({"Authorization": f"Bearer {key}"} if key else {}) | ({"X-User-Id": user} if user else {})

    def command(self, text: str, request: str) -> str:
        """The message that asks for the sound of a text."""
        told: dict[str, Any] = {
            "text": text,
            "voice": self.voice,
            "voice_engine": self.engine,
            "output_format": self.output_format,
            "sample_rate": self.sample_rate,
            "request_id": request,
        }
        more = {name: getattr(self, name) for name in ("speed", "temperature", "seed", "language")}
        return json.dumps(told | {name: value for name, value in more.items() if value is not None})

    def request_sound(self) -> RequestSound:
        """For the sound of one request."""
        return WavSound(self.sample_rate, origin_of(self.base_url)) if self.output_format == "wav" else RequestSound()


class PlayHTTTS(SpeechStream):
    """Speaks with a voice of PlayHT's kind. ``options``: or the voice alone.

    ``llm >> voice.pieces() >> voice >> speaker``, where ``pieces()`` cuts sentences, each of which is one request. The service
    tells no times: words are placed by the voice's pace, and marked as estimates. Everything else is as ``SpeechStream`` says.
    """

    key_variable = KEY_VARIABLE

    def __init__(self, options: PlayHTOptions | str) -> None:
        self.options = PlayHTOptions(options) if isinstance(options, str) else options
        super().__init__(_PlayHTVoice(self.options), self.options.stream)

    def pieces(self, filters: Sequence[FilterMaker] = FILTERS) -> Sentences:
        """The node that cuts a reply into what this one is made for."""
        return Sentences(filters=filters)


class _PlayHTVoice:
    """One connection, one request at a time on it. A ``VoiceService``."""

    takes_pieces = False
    speaks_at_once = True
    is_timed = False

    def __init__(self, options: PlayHTOptions) -> None:
        self.options = options
        self.sample_rate = options.sample_rate
        self.where = origin_of(options.base_url)
        self.warm: WarmSocket
        self._node: Processor
        self._headers: dict[str, str] = {}
        self._number = 0

    def decoder(self) -> Decoder:
        """None is needed: a request's sound is decoded with its request."""
        return PcmDecoder(self.sample_rate)

    async def open(self, node: Processor) -> None:
        """Find the key, and begin to connect."""
        options = self.options
        self._node, self._headers = node, options.headers()
        backoff = Backoff(options.backoff, random.Random().random)
        self.warm = WarmSocket(Dialer(self._address, {}, backoff, options.socket, self.names))
        node.session.spawn(self.warm.keep(), f"{node.name}/connection")

    async def close(self) -> None:
        """Nothing: the connection ends with its task."""

    async def begin(self, before: str) -> Stretch:
        """On the connection that is open already. The stretch before has left it clean, or has cut it."""
        socket = await self.warm.borrow()
        self._number += 1
        return _PlayHTStretch(self, socket, f"request-{self._number}")

    def names(self, error: ServiceError) -> ServiceError:
        """What a connection's failure is called here."""
        if isinstance(error, RefusedError):  # the token in its address may be out of date: there is a new one next time
            failure = failure_of_status(error.status or 0, {}, self.where, hints=HINTS)
            failure.verdict = Verdict.LATER
            return failure
        return error

    async def _address(self) -> str:
        """Where the WebSocket is, which the service tells. It is good for an hour, and asked for anew for each connection."""
        loop, open_s = asyncio.get_running_loop(), self.options.socket.open_s
        deadlines = Deadlines(connect_s=open_s, first_s=open_s, idle_s=open_s)
        url = f"{self.options.base_url.rstrip('/')}/api/v4/websocket-auth"
        async with (
            HttpClient(self._node.session, self.options.base_url, deadlines) as client,
            client.post(url, {}, self._headers, loop.time() + open_s, HINTS) as answer,
        ):
            body = b""
            while (data := await answer.read(open_s, "it did not say where its WebSocket is")) and len(body) < LONGEST_ANSWER:
                body += data
        return socket_address(body, self.options.engine, self.where, secure=url.startswith("https"))

    async def drop(self, socket: Socket) -> None:
        """Cut the connection, which is no failure of it: the next one is opened at once."""
        if socket.is_open:
            await self.warm.take()
        socket.abort()
        await socket.close()


class _PlayHTStretch:
    """One request."""

    def __init__(self, voice: _PlayHTVoice, socket: Socket, name: str) -> None:
        self._voice = voice
        self._socket = socket
        self._name = name
        self._sent = asyncio.Event()
        self._sound: RequestSound | None = None
        self._complete = False

    async def say(self, text: str, *, flush: bool) -> None:
        self._sent.set()  # before it fails: whoever receives hears why
        await self._socket.send(self._voice.options.command(text.strip(), self._name))

    async def finish(self) -> None:
        """The request holds all of it."""

    async def receive(self) -> Sound | None:
        await self._sent.wait()
        while not self._complete:
            data = await self._socket.receive(None)
            if isinstance(data, str):
                self._take(data)
            elif self._sound is not None and (pcm := self._sound.push(data)):
                self._voice.warm.dialer.worked()
                return Sound(pcm)
        return None

    def _take(self, data: str) -> None:
        message = read_message(data, self._voice.where)
        if message.error is not None:
            raise message.error
        if message.kind == "start":
            self._sound = self._voice.options.request_sound()
        elif message.kind == "end" and self._sound is not None:
            self._complete = True

    async def cancel(self) -> None:
        if self._sent.is_set() and not self._complete:
            await self._voice.drop(self._socket)

    async def close(self) -> None:
        if self._sent.is_set() and not self._complete:
            self._socket.abort()
