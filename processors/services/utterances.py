"""One utterance on its way through a node that speaks: its text as it comes, its sound as it goes, and how the text is sent.

The one rule: text goes to the service only while there is room for its sound, since what an interrupt throws away has been paid for.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from voiceflow.frames import OutputAudioFrame, UtteranceEnded
from voiceflow.processors.services.retry import ServiceError
from voiceflow.processors.services.spoken_text import SpokenText, WordedSound, ends_sentence
from voiceflow.processors.services.voice_service import StreamOptions, Stretch, VoiceService

__all__ = ["Outbox", "Sending", "Utterance"]


class Utterance:
    """What is said under one number without another one's words between."""

    def __init__(self, number: int, epoch: int) -> None:
        self.number = number
        self.epoch = epoch
        self.text = SpokenText()
        self.is_complete = False
        self.changed = asyncio.Event()
        """More text, or no more."""
        self.failure: ServiceError | None = None
        self.is_told = False
        self.task: asyncio.Task[None] | None = None

    def add(self, piece: str) -> None:
        """More text."""
        self.text.add(piece)
        self.changed.set()

    def tell(self) -> None:
        """Raise what went wrong with it, once."""
        if self.failure is not None and not self.is_told:
            self.is_told = True
            raise self.failure

    def complete(self) -> None:
        """No more text."""
        self.is_complete = True
        self.changed.set()

    async def has_text(self, within_s: float | None) -> bool:
        """Whether there is text to send: now, or soon. False: the reply is complete, or stalls for so long."""
        loop = asyncio.get_running_loop()
        until = None if within_s is None else loop.time() + within_s
        while not self.text.is_unsent and not self.is_complete:
            self.changed.clear()
            try:
                async with asyncio.timeout_at(until):
                    await self.changed.wait()
            except TimeoutError:
                return False
        return self.text.is_unsent


class Outbox:
    """Frames on their way out of the node."""

    def __init__(self) -> None:
        self.seconds = 0.0
        """Of sound in them."""
        self._frames: deque[OutputAudioFrame | UtteranceEnded] = deque()
        self._leaving = False
        self._changed = asyncio.Event()

    def put(self, frame: OutputAudioFrame | UtteranceEnded) -> None:
        """One more frame."""
        self._frames.append(frame)
        self.seconds += frame.duration if isinstance(frame, OutputAudioFrame) else 0.0
        self._changed.set()

    async def pop(self) -> OutputAudioFrame | UtteranceEnded:
        """The next frame, when the one before it has been delivered."""
        self._leaving = False
        self._changed.set()
        await self.until(lambda: bool(self._frames))
        frame = self._frames.popleft()
        self._leaving = True
        self.seconds -= frame.duration if isinstance(frame, OutputAudioFrame) else 0.0
        return frame

    def clear(self) -> None:
        """Forget them all."""
        self._frames.clear()
        self.seconds = 0.0
        self.look_again()

    def look_again(self) -> None:
        """Something has changed that somebody may be waiting for."""
        self._changed.set()

    def is_empty(self) -> bool:
        """Everything has been delivered."""
        return not self._frames and not self._leaving

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until this is so, which is looked at whenever something comes or goes, or ``look_again`` says so."""
        while not holds():
            self._changed.clear()
            await self._changed.wait()


class Sending:
    """The text of one stretch on its way to the service."""

    def __init__(
        self,
        stretch: Stretch,
        utterance: Utterance,
        sound: WordedSound,
        outbox: Outbox,
        *,
        service: VoiceService,
        options: StreamOptions,
    ) -> None:
        self.is_finished = False
        self.nothing_comes = False
        """No sound has come for a while, after some had."""
        self.failure: ServiceError | None = None
        """Text could not be sent."""
        self._stretch = stretch
        self._service = service
        self._utterance = utterance
        self._sound = sound
        self._outbox = outbox
        self._options = options
        self._asked = 0
        """Words that are to be spoken now."""
        self._asked_at = 0.0

    async def run(self) -> None:
        """Piece by piece, while there is room for their sound, until the reply is complete or stalls.

        A failure is left to whoever listens: what the service says about it may be on its way.
        """
        try:
            await self._run()
        except ServiceError as error:
            self.failure = error

    async def _run(self) -> None:
        text = self._utterance.text
        while await self._utterance.has_text(self._options.text_s):
            await self._outbox.until(self._has_room)
            piece = text.next_piece()
            flush = ends_sentence(piece)
            if flush or self._service.speaks_at_once:
                self._ask()
            await self._stretch.say(piece, flush=flush)
            if not self._service.takes_pieces:
                break
        self._ask()
        self.is_finished = True
        await self._stretch.finish()

    def _ask(self) -> None:
        self._asked = self._utterance.text.sent_words()
        self._asked_at = asyncio.get_running_loop().time()
        self.nothing_comes = False

    def _has_room(self) -> bool:
        waiting_s = self._outbox.seconds + (0.0 if self.nothing_comes else self._sound.unheard_s(self._asked))
        return waiting_s < self._options.ahead_s

    def sound_stalls(self) -> None:
        """No sound has come for a while, after some had: what was reckoned to come may be there already."""
        self.nothing_comes = True
        self._outbox.look_again()

    def due_since(self, heard_at: float | None) -> float | None:
        """Since when sound is due, if it last came at ``heard_at``; None: there is none due."""
        if self.is_finished or self._utterance.text.done < self._asked:
            return self._asked_at if heard_at is None else max(heard_at, self._asked_at)
        return None
