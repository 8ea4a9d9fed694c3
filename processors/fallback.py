"""Two nodes for one place: when the first fails the second takes over, in the middle of a word if need be.

The one rule: nothing is said twice and nothing is left out. What the second one is given is what the first was given, less what
has already come of it.

It works for whatever answers (a language model, a voice) and for whatever listens (a recogniser).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Iterable
from dataclasses import dataclass

from voiceflow.errors import PipelineError, VoiceflowError, type_names
from voiceflow.frames import (
    AudioFormat,
    ContextFrame,
    EndFrame,
    Frame,
    Lane,
    LLMEnded,
    SpeechStopped,
    StartFrame,
    TranscriptFrame,
)
from voiceflow.interruption import Interruption
from voiceflow.processor import Contract, Processor
from voiceflow.processors.take_over import HELD, Child, Stretch, keep

__all__ = ["Fallback", "FallbackError", "FallbackOptions"]

log = logging.getLogger("voiceflow")


class FallbackError(VoiceflowError):
    """Neither of the two can do it."""


@dataclass(frozen=True, slots=True)
class FallbackOptions:
    """When the first one is tried again, and how long one may be silent."""

    again_s: float = 30.0
    """So long after a failure the first one is tried again, when something new begins; after each failure in a row twice as long."""
    longest_s: float = 600.0
    first_s: float | None = None
    """From being asked to the first that comes of it; None: each has deadlines of its own."""
    keep_s: float = 30.0
    """Sound of the caller that is kept for the other one, from the last final transcript on."""

    def __post_init__(self) -> None:
        for name in ("again_s", "longest_s", "keep_s"):
            if not getattr(self, name) > 0:
                raise ValueError(f"FallbackOptions: {name} is {getattr(self, name)}; it must be more than 0 seconds")
        if self.first_s is not None and not self.first_s > 0:
            raise ValueError(f"FallbackOptions: first_s is {self.first_s}; it must be more than 0 seconds, or None")


class _FailedError(Exception):
    """One of the two raised this."""

    def __init__(self, error: Exception) -> None:
        self.error = error


class Fallback(Processor):
    """``Fallback(ElevenLabsTTS("..."), PiperTTS())``: the first as long as it works, the second when it fails.

    Both must take and yield the same frames, but for what only one of them has. The first is tried again later, when a reply or
    a turn begins and never within one. A model that has said something cannot be taken over from; it ends there, with an error,
    and the other has the next reply. An interrupt is passed on to both. ``at_work``: the name of the one that has the floor.

    Raises:
        PipelineError: the two do not fit one place.
        FallbackError: both failed on the same; it becomes an ErrorFrame, and ends the session if neither can start.
    """

    def __init__(self, primary: Processor, secondary: Processor, options: FallbackOptions | None = None) -> None:
        self.options = options or FallbackOptions()
        self._first, self._second = Child(primary), Child(secondary)
        self.contract = _contract(primary, secondary)  # type: ignore[misc]  # of this one, not of the class: it depends on the two
        self.takes = _formats(primary, secondary)
        self.makes = primary.makes if primary.makes == secondary.makes else None
        self.holds_ms = max(primary.holds_ms, secondary.holds_ms)
        self._stretch: Stretch | None = None
        self._child = self._first
        self._out: asyncio.Queue[Frame] = asyncio.Queue(1)
        self._giving = asyncio.Lock()

    @property
    def at_work(self) -> str:
        """The name of the one that has the present reply or turn, or had the last."""
        return self._child.node.name

    async def start(self) -> None:
        """Start both. Raises FallbackError if neither can."""
        errors = [error for child in (self._first, self._second) if (error := await self._started(child)) is not None]
        if len(errors) == 2:
            raise FallbackError(f"{self.name}: neither can start: {errors[0]}; {errors[1]}") from ExceptionGroup("both", errors)

    async def stop(self) -> None:
        """Stop those that were started."""
        for child in (self._first, self._second):
            if child.runs:
                child.runs = False
                await child.node.stop()

    async def process(self, frame: Frame) -> AsyncIterator[Frame]:
        """See the class."""
        if isinstance(frame, StartFrame | EndFrame):
            for child in (self._first, self._second):
                if child.runs and child.node.contract.takes(type(frame)):
                    async for one in child.frames(frame):
                        yield one
            return
        async with contextlib.AsyncExitStack() as listening:
            stretch = self._stretch_of(frame)
            if stretch.key is None:  # the sound that one of the two is given again must not be overtaken by what comes next
                await listening.enter_async_context(self._giving)
            stretch.given.append(frame)
            failure: Exception | None = None
            try:
                async with contextlib.aclosing(self._through(stretch, [frame])) as made:
                    async for one in made:
                        yield one
            except Exception as error:  # noqa: BLE001 - raised again below, when the reply has been closed
                failure = error
            if failure is not None or isinstance(frame, ContextFrame | LLMEnded):
                for one in [*stretch.release(*HELD), *stretch.closing(frame)]:
                    yield one
                self._stretch = None if stretch.key is not None else self._stretch
            if failure is not None:
                raise failure

    async def run(self) -> AsyncIterator[Frame]:
        """What they give by themselves."""
        while True:
            frame = await self._out.get()
            yield frame
            self._out.task_done()

    def on_interrupt(self, interrupt: Interruption) -> Awaitable[object] | None:
        """Both forget what they had begun."""
        if self._stretch is not None and self._stretch.key is not None:
            self._stretch = None
        found = [child.node.on_interrupt(interrupt) for child in (self._first, self._second) if child.runs]
        waits = [wait for wait in found if wait is not None]
        return _all(waits) if waits else None

    # ------------------------------------------------------------------------------------------- who is at it

    async def _started(self, child: Child) -> Exception | None:
        """Start one. What went wrong, if it did."""
        node = child.node
        try:
            await child.start(self)
        except Exception as error:  # noqa: BLE001 - the other one is there
            log.warning("%s: %s cannot start: %s", self.name, node.name, error)
            child.failed(self.session.time(), self.options.again_s, self.options.longest_s)
            return error
        if node.contract.runs:
            self.session.spawn(self._pump(child), f"{self.name}/{node.name}")
        return None

    def _choose(self) -> Child:
        ready = self.session.time() >= self._first.closed_until
        return self._first if ready or not self._second.runs else self._second

    def _stretch_of(self, frame: Frame) -> Stretch:
        """The one that a frame belongs to: a reply by its number, what the caller says until it is final."""
        number = getattr(frame, "utterance", None)
        key = None if number is None else (number, frame.epoch)
        if self._stretch is None or self._stretch.key != key:
            self._child = self._choose()
            self._stretch = Stretch(self._child, key)
        if key is None:
            keep(self._stretch.given, self.options.keep_s)
        return self._stretch

    def _hand_on(self, stretch: Stretch, error: Exception) -> list[Frame]:
        """The other one takes over; what it is given. Raises what went wrong if it cannot."""
        child = stretch.child
        child.failed(self.session.time(), self.options.again_s, self.options.longest_s)
        stretch.tried.append(child)
        other = self._second if child is self._first else self._first
        rest = stretch.rest()
        if rest is None:
            raise error
        if other in stretch.tried or not other.runs:
            raise FallbackError(f"{self.name}: both failed: {error}; before that {other.node.name}") from error
        log.warning("%s: %s failed (%s); %s takes over", self.name, child.node.name, error, other.node.name)
        stretch.child = self._child = other
        return rest

    # ------------------------------------------------------------------------------------------- what they make

    async def _through(self, stretch: Stretch, todo: list[Frame]) -> AsyncGenerator[Frame, None]:
        """What comes of these frames, from the one that is at it or else from the other."""
        while True:
            try:
                for frame in todo:
                    async with contextlib.aclosing(self._made(stretch, frame)) as made:
                        async for one in made:
                            yield one
            except _FailedError as failure:
                todo = self._hand_on(stretch, failure.error)
                continue
            if any(isinstance(frame, ContextFrame | LLMEnded) for frame in todo):
                stretch.child.failures = 0
            return

    async def _made(self, stretch: Stretch, frame: Frame) -> AsyncGenerator[Frame, None]:
        """What the one that is at it makes of a frame, as far as it goes on now."""
        child, first_s = stretch.child, self.options.first_s
        if not child.node.contract.takes(type(frame)):
            return
        if not child.runs and (failure := await self._started(child)) is not None:
            raise _FailedError(failure)
        if child.error is not None:
            failure, child.error = child.error, None
            raise _FailedError(failure)
        until = None if stretch.key is None or first_s is None else self.session.time() + first_s
        async with contextlib.aclosing(child.frames(frame)) as made:
            while True:
                try:
                    async with asyncio.timeout_at(None if stretch.begun else until):
                        one = await anext(made)
                except StopAsyncIteration:
                    return
                except TimeoutError as late:
                    is_ours = until is not None and self.session.time() >= until
                    raise _FailedError(VoiceflowError(f"nothing came of it within {first_s:g} s") if is_ours else late) from late
                except Exception as error:
                    raise _FailedError(error) from error
                for out in self._taken(stretch, one):
                    yield out

    async def _pump(self, child: Child) -> None:
        """What one gives by itself, as long as it is at it."""
        error: Exception = VoiceflowError(f"{child.node.name} has ended by itself")
        try:
            async with contextlib.aclosing(child.node.run()) as made:  # type: ignore[type-var]  # an async generator: the contract says so
                async for frame in made:
                    stretch = self._stretch
                    if stretch is not None and stretch.child is child:
                        await self._give_out(self._taken(stretch, frame))
        except Exception as raised:  # noqa: BLE001 - the other one is to try
            error = raised
        child.runs, stretch = False, self._stretch
        child.error = error
        if stretch is None or stretch.child is not child or stretch.key is not None:
            return  # a reply learns of it with its next frame
        async with self._giving:
            try:
                todo = self._hand_on(stretch, error)
                async with contextlib.aclosing(self._through(stretch, todo)) as rest:
                    async for frame in rest:
                        await self._give_out([frame])
            except VoiceflowError as failure:
                log.error("%s: %s", self.name, failure)

    async def _give_out(self, frames: Iterable[Frame]) -> None:
        """Have ``run`` yield them; returns when they have been delivered."""
        for frame in frames:
            await self._out.put(frame)
            await self._out.join()

    def _taken(self, stretch: Stretch, frame: Frame) -> list[Frame]:
        if stretch.key is None:
            if isinstance(frame, TranscriptFrame) and frame.final:
                self._heard(stretch)
            return [frame]
        return stretch.take(frame) if getattr(frame, "utterance", None) == stretch.key[0] else [frame]

    def _heard(self, stretch: Stretch) -> None:
        """The caller's words are final: what was said until they stopped is done with, and the next may go to the first one again."""
        stops = [i for i, frame in enumerate(stretch.given) if isinstance(frame, SpeechStopped)]
        done = stops[-1] + 1 if stops else len(stretch.given)
        for _ in range(done):
            stretch.given.popleft()
        stretch.tried.clear()
        stretch.child.failures = 0
        if not stretch.given:
            self._stretch = None


async def _all(waits: list[Awaitable[object]]) -> None:
    await asyncio.gather(*waits)


def _contract(primary: Processor, secondary: Processor) -> Contract:
    one, two = primary.contract, secondary.contract
    names = f"{primary.name or type(primary).__name__} and {secondary.name or type(secondary).__name__}"
    if not one.yields & two.yields:
        raise PipelineError(f"Fallback: {names} yield nothing in common, so neither can stand for the other")
    if not one.accepts & two.accepts:
        raise PipelineError(f"Fallback: {names} take nothing in common, so neither can stand for the other")
    if lost := frozenset(t for t in one.accepts ^ two.accepts if t.lane is Lane.AGENT):
        raise PipelineError(f"Fallback: only one of {names} takes {type_names(lost)}, which the other would lose")
    yields = one.yields | two.yields
    return Contract(one.accepts | two.accepts | {EndFrame}, yields, yields, yields, waits=True, streams=True, runs=True)


def _formats(primary: Processor, secondary: Processor) -> list[AudioFormat]:
    """Those that both can take."""
    one, two = list(primary.takes), list(secondary.takes)
    both = [format for format in one if format in two] if one and two else one or two
    if one and two and not both:
        names = f"{type(primary).__name__} takes {', '.join(map(str, one))} and {type(secondary).__name__} {', '.join(map(str, two))}"
        raise PipelineError(f"Fallback: {names}: there is no sound that both can take")
    return both
