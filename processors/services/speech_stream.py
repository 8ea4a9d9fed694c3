"""What all voices of services share: text goes out as it is written, sound comes in as it is made, both at once.

The one rule: every word is spoken once. A connection that breaks is made again, and the reply goes on with the first word
whose sound was not given out; only what cannot be repaired is an error.

A vendor brings a ``VoiceService``, which begins ``Stretch``es: the text and the sound of one context, one socket or one
request. Everything else is here: utterances and their order, words and their times, pacing, deadlines, retries, the interrupt.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable

from voiceflow.frames import AudioFormat, EndFrame, LLMEnded, OutputAudioFrame, SentenceFrame, UtteranceEnded, Word
from voiceflow.interruption import Interruption
from voiceflow.processor import Processor
from voiceflow.processors.marks import is_spoken, is_unspaced
from voiceflow.processors.services.retry import Retries, ServiceError, Verdict
from voiceflow.processors.services.spoken_text import Pace, WordedSound
from voiceflow.processors.services.utterances import Outbox, Sending, Utterance
from voiceflow.processors.services.voice_service import StreamOptions, Stretch, VoiceService

__all__ = ["SpeechStream"]

log = logging.getLogger("voiceflow")

RESOLUTION_S = 1e-6
MOST_S = 120.0
"""More sound than this is not read ahead, whatever the service sends. Text is held back long before."""


class SpeechStream(Processor):
    """Speaks each utterance as its text comes. A vendor's node subclasses it and gives its service.

    Made for ``SentenceFrame``s; ``LLMEnded`` comes behind the last one of an utterance and becomes ``UtteranceEnded`` when all
    its sound has left. An interrupt cancels what is being spoken at the service; the node takes no new text until that was
    acknowledged. A piece without letter or digit makes no request.

    Raises ServiceError, which becomes an ErrorFrame: from start() if there is no key; from process() if the service refuses or
    cannot be reached any more. The utterance is closed all the same, and what was said of it stands.
    """

    def __init__(self, service: VoiceService, options: StreamOptions) -> None:
        self.makes = AudioFormat(service.sample_rate)
        self._service = service
        self._stream = options
        self._chance: Callable[[], float] = random.Random().random
        self._pace = Pace()
        self._utterance: Utterance | None = None
        self._outbox = Outbox()

    async def start(self) -> None:
        """Find the key and begin to connect, so that the first reply does not wait for it."""
        await self._service.open(self)

    async def stop(self) -> None:
        """Close what is open."""
        await self._service.close()

    async def process(self, frame: SentenceFrame | LLMEnded | EndFrame) -> None:
        """Take text; at its end wait until all of it was spoken. Sound comes from ``run``."""
        current = self._utterance
        if isinstance(frame, SentenceFrame):
            if not is_spoken(frame.text):
                return
            if current is not None and (current.number, current.epoch) != (frame.utterance, frame.epoch):
                await self._spoken(current)
                current = None
            if current is None:
                current = self._utterance = Utterance(frame.utterance, frame.epoch)
            if current.failure is not None:
                current.tell()
                return
            current.add(frame.text + ("" if frame.text[-1].isspace() or is_unspaced(frame.text[-1]) else " "))
            if current.task is None:
                current.task = self.session.spawn(self._speak(current), f"{self.name}/utterance {current.number}")
            return
        failure = None
        try:
            if current is not None:
                await self._spoken(current)
        except ServiceError as error:
            failure = error
        if isinstance(frame, LLMEnded):
            self._outbox.put(UtteranceEnded(utterance=frame.utterance, epoch=frame.epoch))
        await self._outbox.until(self._outbox.is_empty)
        if failure is not None:
            raise failure

    async def run(self) -> AsyncIterator[OutputAudioFrame | UtteranceEnded]:
        """Sound as it comes."""
        while True:
            yield await self._outbox.pop()

    def on_interrupt(self, interrupt: Interruption) -> Awaitable[object] | None:
        """Forget what was not spoken, and have the service stop."""
        self._outbox.clear()
        current, self._utterance = self._utterance, None
        if current is None or current.task is None or current.task.done():
            return None
        current.task.cancel()
        return _over(current.task)

    # ------------------------------------------------------------------------------------- one utterance

    async def _spoken(self, utterance: Utterance) -> None:
        """No more text of it: wait until all its sound is here. Raises ServiceError if it could not be spoken."""
        utterance.complete()
        try:
            if utterance.task is not None:
                await _over(utterance.task)
        finally:
            if self._utterance is utterance:
                self._utterance = None
        utterance.tell()

    async def _speak(self, utterance: Utterance) -> None:
        """All stretches of an utterance, again where one breaks and there is hope."""
        loop = asyncio.get_running_loop()
        text, options = utterance.text, self._stream.retries
        retries, since, spoken = Retries(options, self._chance), 0.0, 0
        while True:
            text.begin()
            if not await utterance.has_text(None):
                return
            try:
                await self._one_stretch(utterance)
            except ServiceError as error:
                if text.done > spoken:
                    retries = Retries(options, self._chance)
                if not retries.tries:
                    since = loop.time()
                wait_s = retries.wait_s(error, loop.time() - since)
                if wait_s is None:
                    utterance.failure = error
                    return
                log.warning("%s: %s; it goes on at word %d in %.2f s", self.name, error, text.done + 1, wait_s)
                await asyncio.sleep(wait_s)
            spoken = text.done

    async def _one_stretch(self, utterance: Utterance) -> None:
        text = utterance.text
        before = " ".join(word.text for word in text.words[: text.done])
        try:
            async with asyncio.timeout(self._stream.first_s):
                stretch = await self._service.begin(before)
        except TimeoutError:
            raise ServiceError(f"{self.name}: no connection within {self._stream.first_s:g} s", verdict=Verdict.LATER) from None
        service, options = self._service, self._stream
        sound = WordedSound(text, service.sample_rate, self._pace, is_timed=service.is_timed, frame_ms=options.frame_ms)
        sending = Sending(stretch, utterance, sound, self._outbox, service=service, options=options)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(sending.run(), name=f"{self.name}/text")
                await self._hear(stretch, utterance, sound, sending)
        except asyncio.CancelledError:
            await stretch.cancel()
            raise
        except ExceptionGroup as errors:
            task = asyncio.current_task()
            if task is not None and task.cancelling():  # an interrupt in the same moment comes first
                await stretch.cancel()
                raise asyncio.CancelledError from None
            raise _first_service_error(errors) from None
        finally:
            await stretch.close()

    async def _hear(self, stretch: Stretch, utterance: Utterance, sound: WordedSound, sending: Sending) -> None:
        loop, decoder = asyncio.get_running_loop(), self._service.decoder()
        heard_at: float | None = None
        receiving = asyncio.create_task(stretch.receive(), name=f"{self.name}/sound")
        try:
            while True:
                await asyncio.wait([receiving], timeout=self._stream.held_s)
                if not receiving.done():
                    self._nothing_came(utterance, sound, sending, heard_at)
                    continue
                event = receiving.result()
                if event is None:
                    break
                receiving = asyncio.create_task(stretch.receive(), name=f"{self.name}/sound")
                self._emit(utterance, sound.push(decoder.push(event.data), event.timing) + (sound.catch_up() if event.caught_up else []))
                await self._outbox.until(lambda: self._outbox.seconds < MOST_S)
                heard_at = loop.time()
                sending.nothing_comes = False
        finally:
            receiving.cancel()
            await asyncio.gather(receiving, return_exceptions=True)
        if sending.failure is not None:
            raise sending.failure
        if not sending.is_finished:
            raise ServiceError(f"{self.name}: the service ended before the text did", verdict=Verdict.LATER)
        self._emit(utterance, sound.push(decoder.end()) + sound.end())

    def _nothing_came(self, utterance: Utterance, sound: WordedSound, sending: Sending, heard_at: float | None) -> None:
        """For ``held_s``. Raises ServiceError if that is too long by now."""
        limit_s = self._stream.first_s if heard_at is None else self._stream.idle_s
        due_since = sending.due_since(heard_at)
        self._emit(utterance, sound.release(half_words=due_since is None))
        if due_since is not None and asyncio.get_running_loop().time() - due_since >= limit_s - RESOLUTION_S:
            raise ServiceError(f"{self.name}: the service gave no sound for {limit_s:g} s", verdict=Verdict.LATER)
        if heard_at is not None:
            sending.sound_stalls()
        if sending.failure is not None:
            raise sending.failure

    def _emit(self, utterance: Utterance, frames: list[tuple[bytes, tuple[Word, ...]]]) -> None:
        rate = self._service.sample_rate
        for pcm, words in frames:
            self._outbox.put(OutputAudioFrame(pcm, rate, words=words, utterance=utterance.number, epoch=utterance.epoch))


async def _over(task: asyncio.Task[None]) -> None:
    await asyncio.wait([task])


def _first_service_error(errors: ExceptionGroup[Exception]) -> Exception:
    """The one that explains the others; a fault of the program's own before all."""
    flat: list[Exception] = []
    for error in errors.exceptions:
        flat += [_first_service_error(error)] if isinstance(error, ExceptionGroup) else [error]
    return next((error for error in flat if not isinstance(error, ServiceError)), flat[0])
