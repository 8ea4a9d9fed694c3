"""A scripted conversation on a bad network, whatever carries it: the agent, the far ear, what the caller does, and what came of it.

The one rule: nothing is believed of what the playout says of itself. Each stretch of the agent's sound says which word of which reply
it is, and what the far ear had is compared with what was made.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Protocol

from tests.network.link import Link, Network
from tests.network.side import Agent, Side, Word
from voiceflow.testing.scripts import WORD_S

__all__ = ["LINKS", "Ear", "End", "Result", "Trial", "Words", "converse", "lateness", "words_of"]

HEARD_S = 0.05
"""A word of which so much reached the ear was heard."""
PATIENCE_S = 30.0
"""Of the caller, beyond an outage."""


@dataclass(frozen=True)
class Trial:
    """``outage_s``: nothing passes for so long, in the first reply; ``half_open``: nothing ever again, and no peer is told.

    ``up``: the caller's way to the server, if it is another. ``ping_s``: of both ends of a websocket.
    """

    name: str
    link: Link
    outage_s: float = 0.0
    half_open: bool = False
    ping_s: float = 5.0
    up: Link | None = None

    @property
    def one_way_s(self) -> float:
        """At most, where nothing is lost and the link is wide."""
        return self.link.delay_s + self.link.jitter_s

    @property
    def cuts(self) -> int:
        """Replies that the caller is to cut short."""
        return 0 if self.half_open else 1 if self.outage_s else 2


NEAR = Link(delay_s=0.05)

LINKS = (
    Trial("no delay", Link()),
    Trial("20 ms", Link(delay_s=0.02)),
    Trial("100 ms", Link(delay_s=0.1)),
    Trial("300 ms", Link(delay_s=0.3)),
    Trial("50 ms, 1 % lost", Link(delay_s=0.05, loss=0.01)),
    Trial("50 ms, 5 % lost", Link(delay_s=0.05, loss=0.05)),
    Trial("50 ms, 20 % lost", Link(delay_s=0.05, loss=0.2)),
    Trial("50 ms, 64 kbit/s", Link(delay_s=0.05, rate=64000, buffer=8192)),
    Trial("50 ms, cut for 10 s", NEAR, outage_s=10.0),
)
"""On which each path is tried, besides others."""


# --------------------------------------------------------------------------------------------------- the far end's


@dataclass
class Ear:
    """What the far ear had, in order: (when, which word, for how long, its number in the voice if it is known)."""

    had: list[tuple[float, Word, float, int]] = field(default_factory=list)
    stirred: asyncio.Event = field(default_factory=asyncio.Event)

    def hear(self, at: float, word: Word, seconds: float, number: int = 0) -> None:
        self.had.append((at, word, seconds, number))
        self.stirred.set()

    def seconds(self, utterance: int) -> float:
        return sum(seconds for _, (of, _), seconds, _ in self.had if of == utterance)

    def first(self, utterance: int) -> float | None:
        return next((at for at, (of, _), _, _ in self.had if of == utterance), None)

    def until(self, utterance: int) -> float | None:
        """When the last of it was over."""
        return next((at + seconds for at, (of, _), seconds, _ in reversed(self.had) if of == utterance), None)

    def words(self, utterance: int) -> dict[int, float]:
        """Which were heard, and for how long."""
        heard: dict[int, float] = {}
        for _, (of, word), seconds, _ in self.had:
            if of == utterance:
                heard[word] = heard.get(word, 0.0) + seconds
        return {word: seconds for word, seconds in heard.items() if seconds >= HEARD_S - 1e-6}

    def gaps(self, utterance: int, but: tuple[float, float] | None = None) -> float:
        """Seconds of silence within it, those that touch ``but`` left out."""
        stretches = [(at, at + seconds) for at, (of, _), seconds, _ in self.had if of == utterance]
        gaps = [(before[1], after[0]) for before, after in itertools.pairwise(stretches) if after[0] - before[1] > 0.004]
        return sum(end - begin for begin, end in gaps if but is None or end < but[0] or begin > but[1])

    async def hears(self, condition: Callable[[], object]) -> None:
        """Looked at with each piece of sound that comes, and each piece of news."""
        while not condition():
            self.stirred.clear()
            await self.stirred.wait()


class End(Protocol):
    """The caller's end of a call."""

    ear: Ear
    stopped: dict[int, bool]
    """Utterances of which the caller was told that they are over -> whether they were heard to the end."""

    async def say(self, seconds: float) -> float:
        """Make a sound of that length; gives when its last sample left."""


@dataclass
class Course:
    """How the conversation went, on the caller's side."""

    said: list[float] = field(default_factory=list)
    """When each thing that the caller said was over."""
    cut_at: float | None = None
    mended_at: float | None = None
    finished: bool = False


async def converse(end: End, network: Network, trial: Trial, course: Course) -> None:
    """What the caller does: asks, cuts in twice, hears the third reply out. With an outage or a dead peer in the first."""
    loop = asyncio.get_running_loop()
    course.said.append(await end.say(0.4))
    await end.ear.hears(lambda: end.ear.seconds(1) >= 0.8)
    if trial.half_open:
        network.half_open, course.cut_at = True, loop.time()
        await asyncio.Event().wait()
    if trial.outage_s:
        network.cut()
        course.cut_at = loop.time()
        await asyncio.sleep(trial.outage_s)  # that is how long it lasts
        network.mend()
        course.mended_at = loop.time()
        await end.ear.hears(lambda: 1 in end.stopped)
    course.said.append(await end.say(0.4))
    await end.ear.hears(lambda: end.ear.seconds(2) >= 0.8)
    course.said.append(await end.say(0.4))
    await end.ear.hears(lambda: 3 in end.stopped)
    course.finished = True


# ----------------------------------------------------------------------------------------------- what came of it


@dataclass(frozen=True)
class Words:
    """Of one reply: how many words were made, were heard, and are believed to have been. ``wrong``: in one and not in the other."""

    made: int
    heard: int
    believed: int
    wrong: int
    complete: bool
    lost: int
    doubled: int
    """Pieces of 10 ms that are missing before the last that was heard, and that were heard twice."""


@dataclass
class Result:
    """Of one trial. Seconds."""

    way: str
    """``websocket`` or ``webrtc``."""
    trial: Trial
    page: bool = False
    """The far end is a page in a browser."""
    finished: bool = False
    latency_s: list[float] = field(default_factory=list)
    """From the caller's last sample to the first of the reply at the caller's ear."""
    silence_s: list[float] = field(default_factory=list)
    """From an interrupt at the server to the end of the old sound at the far ear."""
    after_s: list[float] = field(default_factory=list)
    """How much old sound was heard from an interrupt at the server on."""
    gap_s: float = 0.0
    sound_s: float = 0.0
    stale: int = 0
    """Pieces of sound, made before an interrupt, that the far end played though it knew of the interrupt, or that left after it."""
    told_s: list[float] = field(default_factory=list)
    """From an interrupt at the server until the far end knew."""
    words: dict[int, Words] = field(default_factory=dict)
    recovery_s: float | None = None
    """From the end of the outage to the next new sound."""
    given_up_s: float | None = None
    """From the moment the peer was dead until the server had ended the call."""
    noticed_s: float | None = None
    """From the moment nothing passed any more until a page said so."""
    why: str = ""
    caller_why: str = ""
    most_waiting: int = 0
    """Messages in the server's outbox."""
    longest_waiting_s: float = 0.0
    late_s: float = 0.0
    """How late the loop's timers were, at worst: no figure is better than that."""

    @property
    def underruns(self) -> float:
        """Share of the speaking time that was silence."""
        return self.gap_s / (self.gap_s + self.sound_s) if self.sound_s else 0.0

    @property
    def words_wrong(self) -> int:
        return sum(words.wrong for words in self.words.values())

    def take(self, side: Side, ear: Ear, course: Course) -> None:
        """All that can be said whatever carried the call."""
        self.finished = course.finished
        self.why = side.records[0][1].why if side.records else "it never began"
        self.most_waiting, self.longest_waiting_s = side.most_waiting, side.longest_waiting_s
        if side.records and not course.finished and course.cut_at is not None:
            self.given_up_s = side.records[0][0] - course.cut_at
        if not side.agents:
            return
        agent = side.agents[0]
        outage = (course.cut_at, course.mended_at) if course.cut_at is not None and course.mended_at is not None else None
        for number, said in enumerate(course.said, 1):
            if (first := ear.first(number)) is not None:
                self.latency_s.append(first - said)
        for utterance in sorted(agent.notes.spoken):
            self.sound_s += ear.seconds(utterance)
            self.gap_s += ear.gaps(utterance, outage)
        self.words = words_of(agent, ear)
        for interruption, _, _ in agent.notes.cut:
            if interruption.heard and (until := ear.until(interruption.heard[-1].utterance)) is not None:
                self.silence_s.append(until - interruption.at)
                cut = interruption.heard[-1].utterance
                self.after_s.append(sum(seconds for at, (of, _), seconds, _ in ear.had if of == cut and at > interruption.at))
        if outage is not None:
            assert course.mended_at is not None
            self.recovery_s = next((at - course.mended_at for at, _, _, _ in ear.had if at > course.mended_at), None)


def words_of(agent: Agent, ear: Ear) -> dict[int, Words]:
    """For each reply that the agent believes to be over."""
    found = {}
    for utterance, (text, complete) in agent.believed().items():
        heard, believed = ear.words(utterance), {int(word.removeprefix("word")) for word in text.split()}
        numbers = Counter(number for _, (of, _), _, number in ear.had if of == utterance and number)
        made = [number for number, (of, _) in agent.notes.words.items() if of == utterance and number <= max(numbers, default=0)]
        found[utterance] = Words(
            agent.notes.spoken[utterance],
            len(heard),
            len(believed),
            len(believed ^ set(heard)),
            complete,
            len([number for number in made if number not in numbers]) if numbers else 0,
            sum(count - 1 for count in numbers.values()),
        )
    return found


@contextlib.asynccontextmanager
async def lateness(look: Callable[[], object] = lambda: None) -> AsyncIterator[list[float]]:
    """The worst lateness of the loop's timers so far, in the first place of the list; ``look`` is called every 20 ms."""
    worst, loop = [0.0], asyncio.get_running_loop()

    async def watch() -> None:
        while True:
            due = loop.time() + 0.02
            await asyncio.sleep(0.02)
            worst[0] = max(worst[0], loop.time() - due)
            look()

    watching = asyncio.create_task(watch(), name="network/lateness")
    try:
        yield worst
    finally:
        watching.cancel()
        await asyncio.wait([watching])


assert WORD_S == 0.1, "the voices of these trials take 100 ms for a word"
