"""The kit any processor can be put through: ``check_processor(make, feed)``.

It stands the node between a feeder and a collector and checks what the engine expects of it: frames it does not take
pass in order, it can be interrupted wherever it waits and is as good as new afterwards, a slow or failing neighbour does
it no harm, its end is clean, and it leaves nothing behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Sequence

from voiceflow.errors import NodeError
from voiceflow.frames import ControlFrame, EndFrame, ErrorFrame, Frame, Lane, StartFrame, replace
from voiceflow.pipeline import Pipeline
from voiceflow.processor import Processor
from voiceflow.session import Session, SessionOptions
from voiceflow.testing.clock import VirtualClockLoop, run_virtual
from voiceflow.testing.leaks import no_leaks

__all__ = ["AgentStranger", "Collector", "ControlStranger", "Feeder", "UserStranger", "check_processor"]


class UserStranger(ControlFrame, frozen=True):
    """A frame no processor takes, in the caller's lane."""

    lane = Lane.USER
    number: int = 0


class AgentStranger(ControlFrame, frozen=True):
    """The same in the agent's lane."""

    lane = Lane.AGENT
    number: int = 0


class ControlStranger(ControlFrame, frozen=True):
    """The same in the control lane."""

    number: int = 0


_STRANGERS = (UserStranger, AgentStranger, ControlStranger)


class Feeder(Processor):
    """A source that yields the given frames, ``rest_s`` apart, each with the present epoch; ``rounds`` times over."""

    def __init__(self, frames: Sequence[Frame], *, rest_s: float = 0.0, rounds: int = 1, pause_s: float = 0.0) -> None:
        self.frames = list(frames)
        self.rest_s = rest_s
        self.rounds = rounds
        self.pause_s = pause_s
        self.round = 0

    async def run(self) -> AsyncIterator[Frame]:
        """Yield them."""
        while self.round < self.rounds:
            self.round += 1
            for frame in self.frames:
                await asyncio.sleep(self.rest_s)
                yield replace(frame, epoch=self.session.epoch)
            await asyncio.sleep(self.pause_s)


class Collector(Processor):
    """A sink that keeps every frame, and can be made slow or made to fail."""

    def __init__(self, *, each_s: float = 0.0, fail_on: int | None = None) -> None:
        self.each_s = each_s
        self.fail_on = fail_on
        self.frames: list[Frame] = []

    async def process(self, frame: Frame) -> None:
        """Keep it, after ``each_s``; raise on the ``fail_on``-th."""
        if self.each_s:
            await asyncio.sleep(self.each_s)
        self.frames.append(frame)
        if len(self.frames) == self.fail_on:
            raise RuntimeError("a neighbour that fails, on purpose")

    def made(self) -> list[str]:
        """The type names of what was collected, without the session's own frames and strangers."""
        own = (StartFrame, EndFrame, ErrorFrame, *_STRANGERS)
        return [type(frame).__name__ for frame in self.frames if not isinstance(frame, own)]


def check_processor(make: Callable[[], Processor], feed: Sequence[Frame], *, every: int = 1, pause_s: float = 10.0) -> None:
    """Put a processor through the kit. ``make`` builds a fresh one; ``feed`` are frames it takes, as they would come.

    ``every``: interrupt at every n-th point only. ``pause_s``: virtual seconds that suffice for the node to finish its
    work on ``feed``. Raises AssertionError saying which rule was broken, and how.
    """
    accepts = make().contract.accepts
    if not any(issubclass(type(frame), tuple(accepts)) for frame in feed):
        raise AssertionError(f"the feed holds nothing that {make()!r} takes: give frames of its types")
    _check_strangers(make, feed)
    whole = _run(make, Feeder(feed, pause_s=pause_s)).made()
    slow = _run(
        make, Feeder(feed, pause_s=pause_s), collector=Collector(each_s=0.05), options=SessionOptions(inbox_frames=1, inbox_audio_s=0.02)
    ).made()
    _agree(whole, slow, "with a slow consumer it yields something else")
    with _expected("a neighbour that fails, on purpose"):
        failing = _run(make, Feeder(feed, pause_s=pause_s), collector=Collector(fail_on=2), errors_allowed=True).made()
    _agree(whole, failing, "with a consumer that raises it yields something else")
    _check_interrupts(make, feed, every, pause_s)


@contextlib.contextmanager
def _expected(message: str) -> Iterator[None]:
    """Keep an error that the kit itself causes out of the log."""
    log = logging.getLogger("voiceflow")

    def is_news(record: logging.LogRecord) -> bool:
        return message not in record.getMessage()

    log.addFilter(is_news)
    try:
        yield
    finally:
        log.removeFilter(is_news)


def _check_strangers(make: Callable[[], Processor], feed: Sequence[Frame]) -> None:
    mixed: list[Frame] = []
    for number, frame in enumerate([*feed, *feed]):
        mixed += [frame, *(stranger(number=number) for stranger in _STRANGERS)]
    frames = _run(make, Feeder(mixed)).frames
    for stranger in _STRANGERS:
        numbers = [frame.number for frame in frames if isinstance(frame, stranger)]
        if numbers != list(range(2 * len(feed))):
            raise AssertionError(f"{stranger.lane.name} frames it does not take arrive as {numbers}, not once each and in order")


def _check_interrupts(make: Callable[[], Processor], feed: Sequence[Frame], every: int, pause_s: float) -> None:
    undisturbed = _second_round(make, feed, None, pause_s)
    point = 1
    while True:
        result = _second_round(make, feed, point, pause_s)
        if result is None:
            return
        _agree(undisturbed or [], result, f"interrupted at step {point}, it answers the next feed otherwise")
        point += every


def _second_round(make: Callable[[], Processor], feed: Sequence[Frame], point: int | None, pause_s: float) -> list[str] | None:
    """What the node yields for a second feed, after an interrupt at `point` of the first; None if that has no such point."""
    feeder, collector = Feeder(feed, rounds=2, pause_s=pause_s), Collector()
    reached = point is None

    def watch(session: Session, loop: VirtualClockLoop) -> None:
        steps = 0

        def step(_: int) -> None:
            nonlocal steps, reached
            if session.state == "running" and feeder.round == 1:
                steps += 1
                if steps == point:
                    reached = True
                    session.interrupt("conformance")
            elif feeder.round > 1 and loop.before_step is not None:
                loop.before_step = None
                collector.frames.clear()

        loop.before_step = step

    _run(make, feeder, collector=collector, watch=watch)
    return collector.made() if reached else None


def _agree(expected: list[str], got: list[str], what: str) -> None:
    if expected != got:
        raise AssertionError(f"{what}: {got} instead of {expected}")


def _run(
    make: Callable[[], Processor],
    feeder: Feeder,
    *,
    collector: Collector | None = None,
    options: SessionOptions | None = None,
    errors_allowed: bool = False,
    watch: Callable[[Session, VirtualClockLoop], None] | None = None,
) -> Collector:
    loop = VirtualClockLoop()
    collector = collector or Collector()
    errors: list[str] = []

    class Errors(Processor):
        """Stands before the node, where errors go."""

        def process(self, frame: ErrorFrame) -> None:
            errors.append(f"{frame.node} on {frame.frame}: {frame.error}")

    async def main() -> None:
        async with no_leaks():
            pipeline = Pipeline(feeder) >> Errors() >> make() >> collector
            session = Session(pipeline, options=options)
            if watch is not None:
                watch(session, loop)
            try:
                await session.run()
            except* NodeError as group:
                raise AssertionError(f"the session ended with {'; '.join(map(str, group.exceptions))}") from group

    run_virtual(main(), loop=loop)
    if errors and not errors_allowed:
        raise AssertionError(f"it raised: {errors[0]}")
    return collector
