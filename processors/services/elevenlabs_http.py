"""Speaking with ElevenLabs over HTTP: a request for each piece of text, whose answer is heard while it comes.

The one rule: a request that nobody listens to any more is closed at once.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque

from voiceflow.processor import Processor
from voiceflow.processors.services.decoders import Decoder
from voiceflow.processors.services.elevenlabs_options import ElevenLabsOptions
from voiceflow.processors.services.elevenlabs_wire import HINTS, JsonLines, read_message
from voiceflow.processors.services.http import Answer, Deadlines, HttpClient
from voiceflow.processors.services.retry import ServiceError
from voiceflow.processors.services.voice_service import Sound, Stretch

__all__ = ["RequestVoice"]

LONGEST_BEFORE = 300
"""So many characters of what was said before are told with a request."""
_NEVER_S = 600.0
"""Whoever listens has deadlines of its own, much shorter ones."""


class RequestVoice:
    """A ``VoiceService``."""

    takes_pieces = False

    def __init__(self, options: ElevenLabsOptions) -> None:
        self.options = options
        self.sample_rate = options.sample_rate
        self.speaks_at_once = True
        self.is_timed = options.timestamps
        self.deadlines = Deadlines(connect_s=options.socket.open_s, first_s=options.stream.first_s, idle_s=options.stream.idle_s)
        self.headers: dict[str, str] = {}
        self.client: HttpClient | None = None

    def decoder(self) -> Decoder:
        """For one stretch."""
        return self.options.make_decoder()

    async def open(self, node: Processor) -> None:
        """Find the key and open the pool of connections."""
        self.headers = {**self.options.headers(), "Accept": "*/*"}
        self.client = await HttpClient(node.session, self.options.base_url, self.deadlines).__aenter__()

    async def close(self) -> None:
        """Close the connections, if nobody else in the session uses them."""
        if self.client is not None:
            await self.client.__aexit__()
            self.client = None

    async def begin(self, before: str) -> Stretch:
        """A request, which is made when its text is there."""
        return _RequestStretch(self, before[-LONGEST_BEFORE:])


class _RequestStretch:
    def __init__(self, voice: RequestVoice, before: str) -> None:
        self._voice = voice
        self._before = before
        self._text = ""
        self._finished = asyncio.Event()
        self._requests = contextlib.AsyncExitStack()
        self._answer: Answer | None = None
        self._lines = JsonLines()
        self._sounds: deque[Sound] = deque()
        self._over = False

    async def say(self, text: str, *, flush: bool) -> None:
        self._text += text

    async def finish(self) -> None:
        self._finished.set()

    async def receive(self) -> Sound | None:
        await self._finished.wait()
        voice = self._voice
        if self._answer is None:
            assert voice.client is not None, "the session calls start() before it gives a frame"
            body = voice.options.request_body(self._text.strip(), self._before)
            until = asyncio.get_running_loop().time() + _NEVER_S
            request = voice.client.post(voice.options.request_url(), body, voice.headers, until, HINTS)
            self._answer = await self._requests.enter_async_context(request)
        while not self._sounds and not self._over:
            data = await self._answer.read(_NEVER_S, "no sound came")
            self._over = not data
            if not voice.options.timestamps:
                self._sounds += [Sound(data)] if data else []
                continue
            for line in self._lines.push(data) if data else self._lines.end():
                message = read_message(line)
                if message.error is not None:
                    raise message.error
                self._sounds.append(Sound(message.audio, message.timing))
        return self._sounds.popleft() if self._sounds else None

    async def cancel(self) -> None:
        """Nothing more: it is closed."""

    async def close(self) -> None:
        given_up = None if self._over else ServiceError("nobody listens any more")
        await self._requests.__aexit__(type(given_up) if given_up else None, given_up, None)
