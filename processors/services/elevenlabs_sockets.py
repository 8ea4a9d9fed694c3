"""Speaking with ElevenLabs over WebSockets: a context of one connection for each stretch, or a connection for each.

The one rule: what belongs to another stretch is never heard in this one, whatever the service still sends.
"""

from __future__ import annotations

import asyncio
import random

from voiceflow.backoff import Backoff
from voiceflow.processor import Processor
from voiceflow.processors.services.address import origin_of
from voiceflow.processors.services.decoders import Decoder
from voiceflow.processors.services.elevenlabs_options import ElevenLabsOptions
from voiceflow.processors.services.elevenlabs_wire import (
    ServerMessage,
    close_context,
    end_of_text,
    failure_of,
    init,
    opening_failure,
    read_message,
    say,
)
from voiceflow.processors.services.retry import ServiceError
from voiceflow.processors.services.socket import Dialer, RefusedError, Socket, SocketClosedError, WarmSocket
from voiceflow.processors.services.voice_service import Sound, Stretch

__all__ = ["ContextVoice", "SocketVoice"]

MOST_CONTEXTS = 2
"""Open at once on a connection, those included whose close was not acknowledged yet. The service allows five."""
NORMAL, POLICY = 1000, 1008


class SocketVoice:
    """A connection for each stretch; the next one is open before it is needed. A ``VoiceService``."""

    takes_pieces = True
    is_timed = True

    def __init__(self, options: ElevenLabsOptions) -> None:
        self.options = options
        self.sample_rate = options.sample_rate
        self.speaks_at_once = options.speaks_at_once
        self.where = origin_of(options.base_url)
        self.warm: WarmSocket

    def decoder(self) -> Decoder:
        """For one stretch."""
        return self.options.make_decoder()

    async def open(self, node: Processor) -> None:
        """Find the key, and begin to connect."""
        options = self.options
        dialer = Dialer(
            options.socket_url(), options.headers(), Backoff(options.backoff, random.Random().random), options.socket, self.names
        )
        self.warm = WarmSocket(dialer)
        node.session.spawn(self.warm.keep(), f"{node.name}/connection")

    async def close(self) -> None:
        """Nothing: the connection ends with its task."""

    async def begin(self, before: str) -> Stretch:
        """On the connection that is open already."""
        return _SocketStretch(self, await self.warm.take())

    def names(self, error: ServiceError) -> ServiceError:
        """What a connection's failure is called here."""
        if isinstance(error, RefusedError):
            return opening_failure(error, error.body, self.where)
        if isinstance(error, SocketClosedError) and error.code == POLICY:
            return failure_of("", error.reason, self.where)
        return error

    def first(self, context: str | None = None) -> str:
        """The message that opens a connection or a context."""
        options = self.options
        schedule = () if options.speaks_at_once else options.chunk_length_schedule
        return init(options.settings.told(), schedule, options.dictionaries, context)

    async def read(self, socket: Socket, within_s: float | None = None) -> ServerMessage:
        """The next message. Raises ServiceError as the service means it."""
        try:
            message = read_message(await socket.receive(within_s), self.where)
        except SocketClosedError as error:
            raise self.names(error) from None
        if message.audio:
            self.warm.dialer.worked()
        return message


class _SocketStretch:
    def __init__(self, voice: SocketVoice, socket: Socket) -> None:
        self._voice = voice
        self._socket = socket
        self._begun = False
        self._ended = False
        self._complete = False

    async def say(self, text: str, *, flush: bool) -> None:
        if not self._begun:
            self._begun = True
            await self._socket.send(self._voice.first())
        await self._socket.send(say(text, flush=flush))

    async def finish(self) -> None:
        self._ended = True
        await self._socket.send(end_of_text())

    async def receive(self) -> Sound | None:
        while not self._complete:
            try:
                message = await self._voice.read(self._socket)
            except SocketClosedError as error:
                if self._ended and error.code == NORMAL:
                    break
                raise
            if message.error is not None:
                raise message.error
            self._complete = message.is_final
            if message.audio:
                return Sound(message.audio, message.timing)
        self._complete = True
        return None

    async def cancel(self) -> None:
        self._socket.abort()

    async def close(self) -> None:
        if not self._complete:
            self._socket.abort()
        await self._socket.close()


class ContextVoice(SocketVoice):
    """One connection; a context for each stretch. A ``VoiceService``."""

    def __init__(self, options: ElevenLabsOptions) -> None:
        super().__init__(options)
        self.contexts: set[str] = set()
        """Open on the connection, or not yet said to be closed."""
        self._socket: Socket | None = None
        self._number = 0

    async def begin(self, before: str) -> Stretch:
        """A context of its own."""
        socket = await self.warm.borrow()
        if socket is self._socket and len(self.contexts) >= MOST_CONTEXTS:
            socket.abort()  # the service does not close what it was told to
            socket = await self.warm.borrow()
        if socket is not self._socket:
            self._socket = socket
            self.contexts.clear()
        self._number += 1
        return _ContextStretch(self, socket, f"stretch-{self._number}")

    async def read(self, socket: Socket, within_s: float | None = None) -> ServerMessage:
        """The next message; a context that it says is over is."""
        message = await super().read(socket, within_s)
        if message.is_final and message.context is not None and socket is self._socket:
            self.contexts.discard(message.context)
        return message


class _ContextStretch:
    def __init__(self, voice: ContextVoice, socket: Socket, context: str) -> None:
        self._voice = voice
        self._socket = socket
        self._context = context
        self._begun = False
        self._closing = False
        self._complete = False
        self._cancelled = False

    async def say(self, text: str, *, flush: bool) -> None:
        if not self._begun:
            self._begun = True
            self._voice.contexts.add(self._context)
            await self._socket.send(self._voice.first(self._context))
        await self._socket.send(say(text, flush=flush, context=self._context))

    async def finish(self) -> None:
        if self._begun:
            await self._socket.send(say("", flush=True, context=self._context))
            await self._end()

    async def _end(self) -> None:
        self._closing = True  # before it is sent: said twice it would open a context of that name
        await self._socket.send(close_context(self._context))

    async def receive(self) -> Sound | None:
        while not self._complete:
            message = await self._voice.read(self._socket)
            if message.error is not None and message.context in (None, self._context):
                self._socket.abort()
                raise message.error
            if message.context != self._context:
                continue
            self._complete = message.is_final
            if message.audio:
                return Sound(message.audio, message.timing)
        return None

    async def cancel(self) -> None:
        self._cancelled = True
        if not self._begun or self._complete:
            return
        try:
            async with asyncio.timeout(self._voice.options.acknowledged_s):
                if not self._closing:
                    await self._end()
                while await self.receive() is not None:
                    pass
        except TimeoutError:
            pass  # its context is counted until the service says that it is closed
        except ServiceError:
            self._socket.abort()

    async def close(self) -> None:
        if self._begun and not self._complete and not self._cancelled:
            self._socket.abort()  # it broke in the middle
