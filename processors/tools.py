"""Tools: runs what the model calls, and gives each call its one result.

The one rule: nothing with an effect runs for a reply that may still be thrown away, and what has begun is never lost.

``Calls`` decides, without a clock, which call may begin when; ``Tools`` runs them.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from voiceflow.frames import (
    LLMEnded,
    PlaybackStarted,
    PlaybackStopped,
    SayFrame,
    ToolCallFrame,
    ToolProgress,
    ToolResultFrame,
    ToolsDone,
    ToolStarted,
)
from voiceflow.messages import ToolCall
from voiceflow.processor import Processor
from voiceflow.processors.agents import HandOver, HandOverFrame
from voiceflow.processors.speculation import ReplyDecided, Speculating, Verdicts
from voiceflow.processors.tool import Tool, ToolError, ToolRun, by_name, tool
from voiceflow.tasks import whatever_happens

if TYPE_CHECKING:
    from voiceflow.interruption import Interruption

__all__ = ["Calls", "Entry", "Tools", "tool"]

log = logging.getLogger("voiceflow")

REMEMBERED = 64
"""Of so many replies it is kept whether they are complete."""

Report = ToolStarted | ToolProgress | ToolResultFrame | ToolsDone | HandOverFrame | SayFrame


@dataclass(slots=True, eq=False)
class Entry:
    """A call of a reply. ``tool`` is None if there is none of that name."""

    call: ToolCall
    utterance: int
    epoch: int
    tool: Tool | None
    is_running: bool = False
    hand_over: HandOver | None = None
    """Its result, if that is another agent."""


class Calls:
    """The calls without a result, in the order in which the model made them. ``parallel``: calls of one reply run side by side."""

    def __init__(self, *, parallel: bool = True) -> None:
        self.parallel = parallel
        self.verdicts = Verdicts()
        """Which replies count."""
        self.entries: list[Entry] = []
        self._calling: set[int] = set()  # replies with calls that were not told as done
        self._ended: set[int] = set()  # replies whose text and calls are complete
        self._heard: set[int] = set()  # replies heard to their end

    def called(self, call: ToolCall, utterance: int, epoch: int, known: Tool | None) -> None:
        """The model wants this. The same call told twice counts once, and one of a wrong guess not at all."""
        if self.verdicts.of(utterance) is not False and all(
            entry.call.id != call.id or entry.utterance != utterance for entry in self.entries
        ):
            self.entries.append(Entry(call, utterance, epoch, known))
            self._calling.add(utterance)

    def reply_ended(self, utterance: int) -> None:
        """The reply is complete."""
        self._ended = {n for n in self._ended if n > utterance - REMEMBERED} | {utterance}

    def reply_heard(self, utterance: int) -> None:
        """All of the reply's sound was heard; a part of it that was heard before the rest was made does not count."""
        if utterance in self._ended:
            self._heard = {n for n in self._heard if n > utterance - REMEMBERED} | {utterance}

    def ready(self) -> list[Entry]:
        """Those that begin now; they count as running from here on."""
        begun = []
        for entry in self.entries:
            if not entry.is_running and self._may_begin(entry):
                entry.is_running = True
                begun.append(entry)
        return begun

    def _may_begin(self, entry: Entry) -> bool:
        known = entry.tool
        if not self.parallel and next(e for e in self.entries if e.utterance == entry.utterance) is not entry:
            return False
        if known is None:
            return True
        if known.waits_for_speech:
            return entry.utterance in self._heard
        return known.effect == "pure" or (entry.utterance in self._ended and self.verdicts.of(entry.utterance) is True)

    def finished(self, entry: Entry) -> None:
        """It has its result."""
        self.entries.remove(entry)

    def done(self) -> list[int]:
        """Replies that are complete, had calls, and wait for no result any more; each is told once."""
        waiting = {entry.utterance for entry in self.entries}
        done = sorted((self._calling & self._ended) - waiting)
        self._calling -= set(done)
        return done

    def decided(self, frame: ReplyDecided) -> list[Entry]:
        """A reply counts or does not. Those to cancel."""
        self.verdicts.take(frame)
        if frame.counts:
            return []
        self.entries = [entry for entry in self.entries if entry.is_running or entry.utterance != frame.utterance]
        self._calling.discard(frame.utterance)
        return [entry for entry in self.entries if entry.utterance == frame.utterance]

    def interrupted(self) -> list[Entry]:
        """The replies under way are thrown away: what has not begun never will. Those to cancel."""
        for entry in self.entries:
            if self.verdicts.of(entry.utterance) is None:
                self.verdicts.drop(entry.utterance)
        self.entries = [entry for entry in self.entries if entry.is_running]
        self._calling.clear()
        return [entry for entry in self.entries if entry.tool is None or entry.tool.effect != "once"]


class Tools(Processor):
    """Runs the tools that replies call. Its place is right behind the language model.

    A pure tool begins at once, one with an effect when the reply is complete, and one that must be done once when
    what the reply says before it has been heard as well. An interrupt drops calls that have not begun; running ones
    are cancelled, and told so, unless their effect is ``once``. Every call that began gets exactly one result, also
    when it raises, takes too long, or does not exist. The end of the session waits for what has begun.

    With a ``Speculation`` behind it, of a reply that does not count yet only pure tools run, and nothing is told of them
    until it does. If it turns out not to count nothing ever is.
    """

    def __init__(self, tools: Sequence[Tool], *, parallel: bool = True) -> None:
        self.tools = by_name(tools)
        """Of the agent who speaks: a hand-over exchanges them."""
        self.calls = Calls(parallel=parallel)
        self._tasks: dict[Entry, asyncio.Task[None]] = {}
        self._hung_up: set[int] = set()
        """Replies that a tool ended the call with."""
        self._reports: deque[Report] = deque()  # at most a few for each call
        self._early: list[tuple[int, Report]] = []  # of a reply that may not count; there is one such at most
        self._decided = asyncio.Event()
        self._told = asyncio.Event()
        self._all_told = asyncio.Event()
        self._all_told.set()
        self._playing: set[int] = set()
        self._silent = asyncio.Event()
        self._silent.set()

    async def process(
        self, frame: ToolCallFrame | LLMEnded | PlaybackStarted | PlaybackStopped | Speculating | ReplyDecided
    ) -> AsyncIterator[LLMEnded | PlaybackStarted | PlaybackStopped | Speculating | ReplyDecided]:
        """See the class."""
        if isinstance(frame, ToolCallFrame):
            self.calls.called(frame.call, frame.utterance, frame.epoch, self.tools.get(frame.call.name))
        elif isinstance(frame, LLMEnded):
            self.calls.reply_ended(frame.utterance)
        elif isinstance(frame, PlaybackStarted):
            self._playing.add(frame.utterance)
        elif isinstance(frame, PlaybackStopped):
            self._playing.discard(frame.heard.utterance)
            if frame.heard.complete:
                self.calls.reply_heard(frame.heard.utterance)
        elif isinstance(frame, Speculating):
            self.calls.verdicts.guard()
        elif isinstance(frame, ReplyDecided):
            self._decide(frame)
        if not self._playing:
            self._silent.set()
        else:
            self._silent.clear()
        if isinstance(frame, LLMEnded | PlaybackStarted | PlaybackStopped | Speculating | ReplyDecided):
            yield frame
        self._go_on()
        await self._all_told.wait()

    def _go_on(self) -> None:
        """Begin what may begin, and tell of the replies that are done."""
        for utterance in self.calls.done():
            if utterance not in self._hung_up:
                self._tell(ToolsDone(utterance=utterance), utterance)
        for entry in self.calls.ready():
            self._tasks[entry] = self.session.spawn(self._carry_out(entry), f"{self.name}/{entry.call.name}", in_hand=True)

    def _decide(self, frame: ReplyDecided) -> None:
        """Tell what was kept back of a reply that counts, or undo one that does not."""
        for entry in self.calls.decided(frame):
            self._tasks[entry].cancel()
        early, self._early = self._early, []
        for utterance, report in early:
            self._tell(report, utterance)
        self._decided.set()

    def on_interrupt(self, interrupt: Interruption) -> None:
        """See the class."""
        self._playing.clear()
        self._silent.set()
        for entry in self.calls.interrupted():
            self._tasks[entry].cancel()
        self._early.clear()

    async def run(self) -> AsyncIterator[Report]:
        """Tell of starts, progress and results."""
        while True:
            while self._reports:
                yield self._reports.popleft()
            self._all_told.set()
            self._told.clear()
            await self._told.wait()

    def _tell(self, report: Report, utterance: int) -> None:
        counts = self.calls.verdicts.of(utterance)
        if counts is None:
            self._early.append((utterance, report))
        elif counts:
            if isinstance(report, HandOverFrame):
                self.tools = by_name(report.hand_over.to.tools)
            self._reports.append(report)
            self._all_told.clear()
            self._told.set()

    async def _carry_out(self, entry: Entry) -> None:
        """Run one call, whatever happens, and tell its result."""
        self._tell(ToolStarted(call=entry.call, utterance=entry.utterance), entry.utterance)
        try:
            text = await self._result(entry)
        except asyncio.CancelledError:
            text = _problem("cancelled: the caller went on before it was done")
        finally:
            del self._tasks[entry]
        self.calls.finished(entry)
        self._tell(ToolResultFrame(call=entry.call, text=text, utterance=entry.utterance), entry.utterance)
        if entry.hand_over is not None:
            self._tell(HandOverFrame(hand_over=entry.hand_over), entry.utterance)
        self._go_on()
        await self._all_told.wait()  # an end that waits for this waits for what comes of it

    async def _result(self, entry: Entry) -> str:
        if entry.tool is None:
            return _problem(f"there is no tool {entry.call.name!r}; there are {', '.join(sorted(self.tools)) or 'none'}")
        loop = asyncio.get_running_loop()

        def progress(text: str) -> None:
            report = ToolProgress(call=entry.call, text=text, utterance=entry.utterance)
            loop.call_soon_threadsafe(self._tell, report, entry.utterance)

        def hang_up() -> None:
            self._hung_up.add(entry.utterance)
            self.session.end()

        work = self._work(entry, entry.tool, ToolRun(entry.call, self.session, progress, hang_up))
        filler = self.session.spawn(self._fill(entry, entry.tool), f"{self.name}/{entry.call.name}/filler")
        try:
            if entry.tool.effect == "once":
                return await whatever_happens(work)  # what has begun is not cancelled, not even by the end of the session
            async with asyncio.timeout(entry.tool.timeout_s):
                return await work
        except TimeoutError:
            return _problem(f"no result within {entry.tool.timeout_s:g} s")
        finally:
            filler.cancel()

    async def _work(self, entry: Entry, known: Tool, this: ToolRun) -> str:
        """The function's result as text; what goes wrong in it is a result as well, which the model can read."""
        try:
            result = await self.run_blocking(known.run, this) if known.blocking else await known.run(this)
            if isinstance(result, HandOver):
                entry.hand_over = result
                return f"{result.to.name} goes on from here"
            return result if isinstance(result, str) else msgspec.json.encode(result).decode()
        except ToolError as error:
            return _problem(str(error))
        except Exception as error:  # any bug of a tool's author is told to the model, and logged
            log.error("%s: tool %s failed: %s: %s", self.name, known.name, type(error).__name__, error, exc_info=error)
            return _problem(f"{known.name} failed: {type(error).__name__}: {error}")

    async def _fill(self, entry: Entry, known: Tool) -> None:
        """Say the filler once there has been silence for so long, unless the reply it belongs to is gone."""
        if not known.filler:
            return
        while self.calls.verdicts.of(entry.utterance) is None:  # until then the caller waits for nothing
            self._decided.clear()
            await self._decided.wait()
        while True:
            await self._silent.wait()
            await asyncio.sleep(known.filler_after_ms / 1000)
            if self._silent.is_set():
                break
        self._tell(SayFrame(known.filler, epoch=entry.epoch), entry.utterance)


def _problem(text: str) -> str:
    return msgspec.json.encode({"error": text}).decode()
