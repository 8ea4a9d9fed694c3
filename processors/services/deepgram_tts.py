"""Deepgram's voices (Aura), spoken while the reply is still being written, on one connection for the whole call.

The one rule: an utterance begins on a connection on which nothing of another one can still come: every flush was answered, or
the clear was, or the connection is a new one. Utterances, words, deadlines and retries are ``speech_stream``'s.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

from voiceflow.backoff import Backoff
from voiceflow.processor import Processor
from voiceflow.processors.filters import FilterMaker
from voiceflow.processors.services.decoders import Decoder
from voiceflow.processors.services.deepgram_options import KEY_VARIABLE, AuraOptions, LineOptions
from voiceflow.processors.services.deepgram_wire import (
    CLEAR,
    FLUSH,
    Cleared,
    Flushed,
    Message,
    Warned,
    closing_failure,
    opening_failure,
    read_message,
    speak,
)
from voiceflow.processors.services.retry import ServiceError
from voiceflow.processors.services.socket import Dialer, RefusedError, Socket, SocketClosedError, WarmSocket
from voiceflow.processors.services.speech_stream import SpeechStream
from voiceflow.processors.services.voice_service import Sound, Stretch
from voiceflow.processors.text import FILTERS, Sentences

__all__ = ["AuraOptions", "DeepgramTTS", "FlushBudget", "LineOptions"]

log = logging.getLogger("voiceflow")

LONGEST_TEXT = 2000
"""Characters of one message. The service takes 2400 or so."""
MINUTE_S = 60.0
SPARED_S = 1.0
"""After the last sound a flush is sent, however many were."""


class DeepgramTTS(SpeechStream):
    """Speaks with a voice of Aura. ``options``: or the voice's model alone, like ``aura-2-thalia-en``.

    ``llm >> voice.pieces() >> voice >> speaker``, where ``pieces()`` cuts sentences. The service tells no times: words are
    placed by the voice's pace, and marked as estimates. An interrupt sends Clear; the next utterance begins when the service
    has acknowledged it. Everything else is as ``SpeechStream`` says.
    """

    key_variable = KEY_VARIABLE

    def __init__(self, options: AuraOptions | str | None = None) -> None:
        self.options = AuraOptions(options) if isinstance(options, str) else options or AuraOptions()
        super().__init__(_AuraVoice(self.options), self.options.stream)

    def pieces(self, filters: Sequence[FilterMaker] = FILTERS) -> Sentences:
        """The node that cuts a reply into what this one is made for."""
        return Sentences(filters=filters)


class FlushBudget:
    """How many flushes may still be sent: ``limit`` in any minute. Pure: times are told."""

    def __init__(self, limit: int) -> None:
        self._sent: deque[float] = deque(maxlen=limit)

    def allows(self, now: float) -> bool:
        """One more may be sent."""
        return len(self._sent) < (self._sent.maxlen or 0) or now - self._sent[0] > MINUTE_S

    def sent(self, now: float) -> None:
        """One was."""
        self._sent.append(now)


class _AuraVoice:
    """One connection, one stretch at a time on it. A ``VoiceService``."""

    takes_pieces = True
    speaks_at_once = False
    is_timed = False

    def __init__(self, options: AuraOptions) -> None:
        self.options = options
        self.sample_rate = options.sample_rate
        self.where = options.line.where
        self.flushes = FlushBudget(options.flushes)
        self.stale = 0
        """Flushes of a stretch that was cleared, whose answers may still come."""
        self.warm: WarmSocket

    def decoder(self) -> Decoder:
        """For one stretch."""
        return self.options.make_decoder()

    async def open(self, node: Processor) -> None:
        """Find the key, and begin to connect."""
        options, line = self.options, self.options.line
        backoff = Backoff(line.backoff, random.Random().random)
        self.warm = WarmSocket(Dialer(options.url(), line.headers(), backoff, line.socket, self.names))
        node.session.spawn(self.warm.keep(), f"{node.name}/connection")

    async def close(self) -> None:
        """Nothing: the connection ends with its task."""

    async def begin(self, before: str) -> Stretch:
        """On the connection that is open already. The stretch before has left it clean, or has cut it."""
        return _AuraStretch(self, await self.warm.borrow())

    def names(self, error: ServiceError) -> ServiceError:
        """What a connection's failure is called here."""
        if isinstance(error, RefusedError):
            return opening_failure(error, error.body, self.where)
        if isinstance(error, SocketClosedError):
            return closing_failure(error.code, error.reason, self.where) or error
        return error

    async def read(self, socket: Socket) -> bytes | Message | None:
        """The next sound or message. Raises ServiceError as the service means it."""
        try:
            data = await socket.receive(None)
        except SocketClosedError as error:
            raise self.names(error) from error
        if isinstance(data, bytes):
            self.warm.dialer.worked()
            return data
        message = read_message(data, self.where)
        if isinstance(message, Warned):
            log.warning("%s warns%s", self.where, f" ({message.code})" if message.code else "")
        return message


class _AuraStretch:
    def __init__(self, voice: _AuraVoice, socket: Socket) -> None:
        self._voice = voice
        self._socket = socket
        self._unflushed = False
        """Text was sent since the last flush."""
        self._flush_due = False
        self._answers_due = 0
        """Flushes that were not answered yet."""
        self._text_over = False
        self._sounded_at = float("-inf")
        self._touched = False
        self._clean = False
        self._complete: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._reading: asyncio.Task[bytes | Message | None] | None = None

    async def say(self, text: str, *, flush: bool) -> None:
        self._touched = True
        for part in _parts(text):
            self._unflushed = True
            await self._socket.send(speak(part))
        self._flush_due |= flush
        await self._flush_if_due()

    async def finish(self) -> None:
        self._text_over = True
        self._flush_due = self._unflushed
        await self._flush_if_due()
        self._see_whether_complete()

    async def _flush_if_due(self) -> None:
        """One at a time: what comes while one is being answered goes with the next. With few left, sound that plays is used first."""
        now = asyncio.get_running_loop().time()
        if not (self._flush_due and self._unflushed) or self._answers_due:
            return
        if not (self._text_over or self._voice.flushes.allows(now) or now - self._sounded_at > SPARED_S):
            return
        self._flush_due = self._unflushed = False
        self._answers_due += 1
        self._voice.flushes.sent(now)
        await self._socket.send(FLUSH)

    def _see_whether_complete(self) -> None:
        if self._text_over and not self._unflushed and not self._answers_due and not self._complete.done():
            self._clean = True
            self._complete.set_result(None)

    async def receive(self) -> Sound | None:
        while not self._complete.done():
            await self._flush_if_due()
            message = await self._next()
            if isinstance(message, bytes):
                if message:
                    self._voice.stale = 0
                    self._sounded_at = asyncio.get_running_loop().time()
                    return Sound(message)
            elif isinstance(message, Flushed):
                if self._voice.stale:  # it comes before any sound
                    self._voice.stale -= 1
                    continue
                self._answers_due = max(0, self._answers_due - 1)
                self._see_whether_complete()
                if not self._unflushed and not self._answers_due:
                    return Sound(b"", caught_up=True)
        return None

    async def _next(self) -> bytes | Message | None:
        """The next message; None besides, when the stretch turns out to be complete. Cancelling it loses nothing."""
        if self._reading is None:
            self._reading = asyncio.create_task(self._voice.read(self._socket), name="the next message")
        waiting: list[asyncio.Future[Any]] = [self._reading, self._complete]
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        if not self._reading.done():
            return None
        reading, self._reading = self._reading, None
        return reading.result()

    async def cancel(self) -> None:
        if not self._touched or self._complete.done():
            return
        try:
            async with asyncio.timeout(self._voice.options.cleared_s):
                await self._socket.send(CLEAR)
                while not isinstance(await self._next(), Cleared):
                    pass
            self._clean = True
            self._voice.stale = self._answers_due
        except (TimeoutError, ServiceError):
            pass  # close() cuts the connection

    async def close(self) -> None:
        if self._touched and not self._clean:
            self._socket.abort()
        if not self._complete.done():
            self._complete.cancel()
        reading, self._reading = self._reading, None
        if reading is not None:
            reading.cancel()
            await asyncio.wait([reading])
            if not reading.cancelled() and reading.exception() is None:
                self._socket.abort()  # something was said that nobody asked for


def _parts(text: str) -> Iterator[str]:
    """Text in pieces that the service takes, cut at blanks where there are any."""
    while len(text) > LONGEST_TEXT:
        cut = text.rfind(" ", 0, LONGEST_TEXT) + 1 or LONGEST_TEXT
        yield text[:cut]
        text = text[cut:]
    yield text
