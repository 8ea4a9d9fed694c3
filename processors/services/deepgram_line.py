"""The connection of a recogniser: sound out, messages in, made again when it breaks.

The one rule: whoever speaks is listened to. No sound waits for the connection, and none is forgotten because of it: what the
recogniser had not told for good is sent again. Which messages mean what is the business of its ``Ears``.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Sequence
from typing import Protocol

from voiceflow.backoff import Backoff
from voiceflow.frames import ErrorFrame, Frame
from voiceflow.processors.services.deepgram_options import LineOptions
from voiceflow.processors.services.deepgram_sound import KeptSound, Mark
from voiceflow.processors.services.deepgram_wire import CLOSE_STREAM, closing_failure, opening_failure
from voiceflow.processors.services.retry import ServiceError
from voiceflow.processors.services.socket import Dialer, RefusedError, Socket, SocketClosedError
from voiceflow.tasks import woken

__all__ = ["Ears", "ListenLine"]

log = logging.getLogger("voiceflow")

NORMAL = 1000
PADDING_S = 0.1
_MOST_FRAMES = 256


class Ears(Protocol):
    """What is made of a recogniser's messages. All times are the loop's."""

    said_goodbye: bool
    """The recogniser has said its last, if it was asked to."""

    @property
    def deadline(self) -> float | None:
        """When to call ``tick``, if nothing comes before."""

    def connected(self, now: float, past_marks: int) -> Sequence[Frame]:
        """A new connection, on which all sound that was not settled comes again, without these ends of speech."""

    def read(self, data: str | bytes, now: float) -> Sequence[Frame]:
        """A message. Raises ServiceError."""

    def asked(self, now: float) -> None:
        """The recogniser was told that speech has ended."""

    def tick(self, now: float) -> Sequence[Frame]:
        """The deadline has come. Raises ServiceError if the recogniser is not there any more."""


class ListenLine:
    """``run`` is its one task. ``mark``: what tells that speech has ended; ``keep_alive``: what to send without sound; None: silence."""

    def __init__(
        self, url: str, options: LineOptions, sound: KeptSound, ears: Ears, *, mark: str | None = None, keep_alive: str | None = None
    ) -> None:
        self.frames: asyncio.Queue[Frame] = asyncio.Queue(_MOST_FRAMES)
        """What came of it all, for ``run()`` of the node, which calls ``task_done``."""
        self.over = asyncio.Event()
        """Everything was said, or nobody is there to say it."""
        self.wake = asyncio.Event()
        """The ears have another deadline."""
        self._options = options
        self._sound = sound
        self._ears = ears
        self._mark = mark
        self._keep_alive = keep_alive
        self._news = asyncio.Event()
        self._messages: list[str] = []
        self._finishing = False
        self._closing = False
        self._finished = False
        self._has_sound = False
        backoff = Backoff(options.backoff, random.Random().random)
        self._dialer = Dialer(url, options.headers(), backoff, options.socket, self._names)

    @property
    def dialled(self) -> int:
        """How often a connection was asked for."""
        return self._dialer.dialled

    def look(self) -> None:
        """There is more sound, or a mark in it."""
        self._news.set()

    def configure(self, message: str) -> None:
        """Send this as well: now, and first of all on every connection that comes."""
        self._messages.append(message)
        self._news.set()

    def finish(self) -> None:
        """No more sound comes: when all of it was sent, ask for the rest of the words. Then ``over``."""
        self._finishing = True
        self._news.set()

    async def finished(self, within_s: float) -> None:
        """``finish``, and wait for the end of it; not for long."""
        self.finish()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self.over.wait()

    async def run(self, name: str) -> None:
        """Connect, use the connection, connect again; until everything was said."""
        try:
            while not self._finished:
                try:
                    async with await self._dialer.dial() as socket:
                        await self._use(socket)
                except ServiceError as error:
                    await self._given_up(name, error)
        finally:
            self.over.set()

    async def _given_up(self, name: str, error: ServiceError) -> None:
        log.warning("%s: %s; tried again in %g s", name, error, self._options.again_s)
        await self.frames.put(ErrorFrame(node=name, frame="InputAudioFrame", error=str(error)))
        await asyncio.sleep(self._options.again_s)

    async def _use(self, socket: Socket) -> None:
        """Until it is over. Raises ServiceError if it is not to be made again."""
        self._closing = self._has_sound = False
        lost = self._sound.lost
        past = self._sound.rewind()
        if self._sound.lost > lost:
            log.warning("%s: %.1f s of sound were lost", socket.where, (self._sound.lost - lost) / self._sound.sample_rate)
        try:
            for frame in self._ears.connected(asyncio.get_running_loop().time(), past):
                await self.frames.put(frame)
            await self._talk(socket)
        except ServiceError as error:
            socket.abort()
            log.info("%s; the connection is made again", error)
            self._dialer.lost(error)

    async def _talk(self, socket: Socket) -> None:
        tasks = [asyncio.create_task(work, name=f"{socket.where}/{what}") for what, work in (
            ("sound", self._send(socket)), ("words", self._receive(socket)), ("deadlines", self._watch()),
        )]  # fmt: skip
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        failures = [error for task in tasks if not task.cancelled() and (error := task.exception()) is not None]
        for error in sorted(failures, key=lambda error: isinstance(error, ServiceError)):
            raise error

    async def _send(self, socket: Socket) -> None:
        """Sound and marks as they come."""
        loop = asyncio.get_running_loop()
        told = 0
        while True:
            while told < len(self._messages):
                told += 1
                await socket.send(self._messages[told - 1])
            item = self._sound.take(everything=self._finishing)
            if isinstance(item, bytes):
                await socket.send(item)
                self._has_sound = True
            elif item is Mark.END_OF_SPEECH:
                if self._mark is not None:
                    await socket.send(self._mark)
                self._ears.asked(loop.time())
                self.wake.set()
            elif self._finishing and not self._closing:
                self._closing = True
                await socket.send(CLOSE_STREAM)
            else:
                await self._wait_for_sound(socket)

    async def _wait_for_sound(self, socket: Socket) -> None:
        try:
            async with asyncio.timeout(self._options.keep_alive_s):
                await self._news.wait()
        except TimeoutError:
            if self._closing:
                return
            if self._keep_alive is not None and self._has_sound:
                await socket.send(self._keep_alive)
            else:  # a keep-alive before any sound does not count
                samples = round(PADDING_S * self._sound.sample_rate)
                await socket.send(bytes(2 * samples))
                self._sound.padded(samples)
                self._has_sound = True
        self._news.clear()

    async def _receive(self, socket: Socket) -> None:
        loop = asyncio.get_running_loop()
        while not self._finished:
            try:
                data = await socket.receive(None)
            except SocketClosedError as error:
                if self._closing and error.code == NORMAL:
                    self._finished = True
                    return
                raise self._names(error) from error
            settled = self._sound.settled_to
            frames = self._ears.read(data, loop.time())
            if frames or self._sound.settled_to > settled:
                self._dialer.worked()
            self.wake.set()
            for frame in frames:
                await self.frames.put(frame)
            self._finished = self._closing and self._ears.said_goodbye

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await woken(self.wake, self._ears.deadline)
            if self._ears.deadline is not None and self._ears.deadline <= loop.time() + 1e-6:
                for frame in self._ears.tick(loop.time()):
                    await self.frames.put(frame)

    def _names(self, error: ServiceError) -> ServiceError:
        if isinstance(error, RefusedError):
            return opening_failure(error, error.body, self._options.where)
        if isinstance(error, SocketClosedError):
            return closing_failure(error.code, error.reason, self._options.where) or error
        return error
