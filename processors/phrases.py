"""Predictable openings, made before they are needed: "One moment.", a greeting, "Let me look that up."

The one rule: a phrase is what the voice itself said, with its words, so that heard text stays exact; and it only ever opens an
utterance, so that it never overtakes what is still being made.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from voiceflow.errors import PipelineError
from voiceflow.frames import EndFrame, Frame, LLMEnded, OutputAudioFrame, SentenceFrame, StartFrame, UtteranceEnded, replace
from voiceflow.interruption import Interruption
from voiceflow.processor import Contract, Processor
from voiceflow.processors.take_over import Child

__all__ = ["PhraseCache", "Phrases"]

log = logging.getLogger("voiceflow")

MEGABYTE = 1_000_000
LATE_S = 30.0
"""A voice that does not end a phrase in so long is not waited for."""


class PhraseCache:
    """Sound of phrases, by voice and text. Give one to all sessions: what one of them made is there for the others.

    At most ``limit_bytes`` of sound; what was not used for longest goes first.
    """

    def __init__(self, limit_bytes: int = 20 * MEGABYTE) -> None:
        if limit_bytes < 1:
            raise ValueError(f"PhraseCache: limit_bytes is {limit_bytes}, it must be 1 or more")
        self.limit_bytes = limit_bytes
        self.bytes = 0
        self._kept: OrderedDict[tuple[str, str], tuple[OutputAudioFrame, ...]] = OrderedDict()
        self._being_made: set[tuple[str, str]] = set()

    def find(self, voice: str, text: str) -> tuple[OutputAudioFrame, ...]:
        """The sound of a phrase; () if it is not there."""
        key = voice, _plain(text)
        if key in self._kept:
            self._kept.move_to_end(key)
        return self._kept.get(key, ())

    def keep(self, voice: str, text: str, sound: Sequence[OutputAudioFrame]) -> None:
        """Keep it, in place of what there was."""
        key, size = (voice, _plain(text)), _size(sound)
        self.bytes -= _size(self._kept.pop(key, ()))
        if not sound or size > self.limit_bytes:
            return
        self._kept[key] = tuple(sound)
        self.bytes += size
        while self.bytes > self.limit_bytes:
            _, oldest = self._kept.popitem(last=False)
            self.bytes -= _size(oldest)

    def claim(self, voice: str, texts: Sequence[str]) -> list[str]:
        """Those of them that nobody has made or is making; they are the claimer's to make, and to give back with ``release``."""
        wanted = [text for text in texts if not self.find(voice, text) and (voice, _plain(text)) not in self._being_made]
        self._being_made |= {(voice, _plain(text)) for text in wanted}
        return wanted

    def release(self, voice: str, texts: Sequence[str]) -> None:
        """They are made, or will not be."""
        self._being_made -= {(voice, _plain(text)) for text in texts}


class Phrases(Processor):
    """A voice that has its openings ready: ``Phrases(lambda: ElevenLabsTTS("rachel"), ["One moment."], cache, voice="rachel")``.

    Stands where the voice would. ``make``: gives one; a second of them makes what ``cache`` lacks, beside the talk, when
    the session starts. ``voice``: what tells its sound from another's in the cache; the voice's class if empty. Until a phrase is there, or if
    it cannot be made, it is spoken like any other text. Errors of the voice are its own; cancelling is passed on to it.

    Raises:
        PipelineError: what ``make`` gives is no voice (it must take SentenceFrame and yield OutputAudioFrame).
    """

    def __init__(self, make: Callable[[], Processor], phrases: Sequence[str], cache: PhraseCache | None = None, *, voice: str = "") -> None:
        self._make = make
        self._live = Child(make())
        node = self._live.node
        if not node.contract.takes(SentenceFrame) or OutputAudioFrame not in node.contract.yields:
            raise PipelineError(f"Phrases: {type(node).__name__} is no voice: it must take SentenceFrame and yield OutputAudioFrame")
        self.phrases = tuple(phrases)
        self.cache = cache or PhraseCache()
        self.voice = voice or type(node).__name__
        yields = node.contract.yields
        self.contract = Contract(  # type: ignore[misc]  # of this one, not of the class: it is the voice's
            node.contract.accepts | {EndFrame}, yields, yields, yields, waits=True, streams=True, runs=True
        )
        self.takes, self.makes, self.holds_ms = node.takes, node.makes, node.holds_ms
        self._out: asyncio.Queue[Frame] = asyncio.Queue(1)
        self._speaks: tuple[int, int] | None = None
        """The utterance of which the voice has been given something."""

    async def start(self) -> None:
        """Start the voice, and begin to make what is not there yet."""
        await _begin(self._live, self, self._out)
        self.session.spawn(self._warm(), f"{self.name}/phrases")

    async def stop(self) -> None:
        """Stop the voice."""
        await self._live.node.stop()

    async def process(self, frame: Frame) -> AsyncIterator[Frame]:
        """A phrase that is there, or what the voice makes of it."""
        if isinstance(frame, SentenceFrame):
            key = frame.utterance, frame.epoch
            if self._speaks != key and (sound := self.cache.find(self.voice, frame.text)):
                for one in sound:
                    yield replace(one, utterance=frame.utterance, epoch=frame.epoch, pts=None)
                return
            self._speaks = key
        elif isinstance(frame, LLMEnded):
            self._speaks = None
        if isinstance(frame, StartFrame | EndFrame) and not self._live.node.contract.takes(type(frame)):
            return
        async with contextlib.aclosing(self._live.frames(frame)) as made:
            async for given in made:
                yield given

    async def run(self) -> AsyncIterator[Frame]:
        """What the voice gives by itself."""
        while True:
            frame = await self._out.get()
            yield frame
            self._out.task_done()

    def on_interrupt(self, interrupt: Interruption) -> Awaitable[object] | None:
        """The voice forgets what it had begun."""
        self._speaks = None
        return self._live.node.on_interrupt(interrupt)

    async def _warm(self) -> None:
        """Make the phrases that are not there."""
        wanted = self.cache.claim(self.voice, self.phrases)
        if not wanted:
            return
        try:
            await self._make_all(wanted)
        except Exception as error:  # noqa: BLE001 - then it is spoken when it is needed
            log.warning("%s: the phrases could not be made beforehand: %s", self.name, error)
        finally:
            self.cache.release(self.voice, wanted)

    async def _make_all(self, texts: Sequence[str]) -> None:
        voice, made = Child(self._make()), asyncio.Queue[Frame](1)
        await _begin(voice, self, made, name=f"{self.name}/maker")
        try:
            for number, text in enumerate(texts, 1):
                self.cache.keep(self.voice, text, await _spoken(voice, made, text, number, self.session.epoch))
        finally:
            await voice.node.stop()


async def _begin(child: Child, owner: Processor, out: asyncio.Queue[Frame], name: str = "") -> None:
    """Start a voice inside another node; what it gives by itself goes into ``out``."""
    await child.start(owner, name)
    node = child.node
    if node.contract.runs:
        owner.session.spawn(_pump(node, out), f"{owner.name}/{node.name}")


async def _pump(node: Processor, out: asyncio.Queue[Frame]) -> None:
    async with contextlib.aclosing(node.run()) as made:  # type: ignore[type-var]  # an async generator: the contract says so
        async for frame in made:
            await out.put(frame)
            await out.join()


async def _spoken(voice: Child, out: asyncio.Queue[Frame], text: str, number: int, epoch: int) -> list[OutputAudioFrame]:
    """All that a voice makes of a text."""
    sound: list[OutputAudioFrame] = []
    ended = asyncio.Event()

    def take(frame: Frame) -> None:
        if isinstance(frame, OutputAudioFrame):
            sound.append(frame)
        elif isinstance(frame, UtteranceEnded):
            ended.set()

    async def listen() -> None:
        while True:
            take(await out.get())
            out.task_done()

    listening = asyncio.ensure_future(listen())
    try:
        for frame in (SentenceFrame(text, utterance=number, epoch=epoch), LLMEnded(utterance=number, epoch=epoch)):
            if voice.node.contract.takes(type(frame)):
                async for one in voice.frames(frame):
                    take(one)
        if UtteranceEnded in voice.node.contract.yields:
            async with asyncio.timeout(LATE_S):
                await ended.wait()
    finally:
        listening.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await listening
    return sound


def _plain(text: str) -> str:
    return " ".join(text.split())


def _size(sound: Sequence[OutputAudioFrame]) -> int:
    return sum(len(frame.pcm) for frame in sound)
