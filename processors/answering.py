"""Who picked up, a person or an answering machine, and what an agent that calls out does then.

    line.source >> Beeps() >> vad >> stt >> Answering() >> Turns() >> Voicemail("It's Ann. Call me.") >> Context("...") >> llm >> ...

The one rule: a person taken for a machine is hung up on, which is worse than the reverse; so only words make a machine, or a beep
behind a voice.

``WhoAnswered`` decides, without a clock; ``Answering`` asks it. ``Voicemail`` keeps the caller's turns until it is known whose they are,
and leaves the message.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import dataclass, fields
from typing import Literal, TypeAlias

from voiceflow.frames import EndFrame, SayFrame, SpeechStarted, SpeechStopped, TranscriptFrame, TurnEnded, replace
from voiceflow.phone import AnsweredBy
from voiceflow.processor import Processor
from voiceflow.processors.beeps import BeepHeard
from voiceflow.processors.marks import spoken_words
from voiceflow.processors.speculation import TurnProbable, TurnResumed
from voiceflow.processors.start_policies import has_phrase
from voiceflow.tasks import RESOLUTION_S, woken

__all__ = ["Answering", "AnsweringOptions", "Voicemail", "WhoAnswered"]


def _phrases(text: str) -> tuple[str, ...]:
    return tuple(phrase.strip() for phrase in text.split(","))


MACHINE = _phrases(
    "leave a message, leave me a message, leave us a message, leave a brief message, leave a short message, leave a detailed message, "
    "leave your message, leave your name, leave me your name, after the tone, after the beep, at the tone, at the beep, "
    "wait for the tone, wait for the beep, record your message, record your name, record a message, you know what to do, "
    "voicemail, voice mail, voice messaging, voice message system, mailbox, answering machine, screening service, "
    "can't take your call, cannot take your call, unable to take your call, not available to take your call, "
    "can't come to the phone, cannot come to the phone, can't get to the phone, can't answer the phone, unable to answer the phone"
)
OPENINGS = _phrases("you've reached, you have reached")
HINTS = _phrases(
    "not available, unavailable, not in the office, out of the office, get back to you, call you back, return your call, call back later, "
    "try again later, the person you are calling, the person you're calling, the number you have dialed, the number you are calling, "
    "is closed, opening hours, office hours, please hang up, thank you for calling, thanks for calling, as soon as, soon as i can"
)
PERSON = _phrases(
    "can i, may i, can we help, may we help, how can we, who is this, who's this, who is it, who is calling, who's calling, "
    "would you like to, do you want to, can you hear me, hold on, one moment, one second, just a second, just a moment, what do you want, "
    "is that you, are you there, who am i speaking"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnsweringOptions:
    """What tells a machine. The phrases are English; ones of another language may take their place.

    Raises ValueError that names the field.
    """

    machine: tuple[str, ...] = MACHINE
    """Said by machines: told at once."""
    openings: tuple[str, ...] = OPENINGS
    """With these a machine begins, or a desk that asks a question next: told when no question comes."""
    hints: tuple[str, ...] = HINTS
    """Said by both; two of them, or one and an opening, make a machine."""
    person: tuple[str, ...] = PERSON
    """Said by people. One of these, and it is no machine by its words."""
    many_words: int = 20
    """So many words without waiting for an answer are a machine's, whatever they say."""
    short_words: int = 5
    """So few words are a hello."""
    short_pause_s: float = 0.8
    """Silence that makes a person, after a hello or what only people say."""
    long_pause_s: float = 1.6
    """The same after anything longer: machines pause between sentences as well."""
    words_timeout_s: float = 2.0
    """How long the words of a stretch of speech are waited for after its end; ``Turns`` waits for them as long."""
    silence_s: float = 5.0
    """Nobody says anything: it is not known who it is."""
    limit_s: float = 20.0
    """It is not known by then."""
    ready_silence_s: float = 2.5
    """Silence of a machine that makes it record, if no beep was heard."""
    ready_limit_s: float = 60.0
    """It is taken to record by then, whatever goes on: music, or a greeting without end."""
    desk_timeout_s: float = 5.0
    """How long the words are waited for of a stretch of speech behind an opening: they may be a desk's question."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, tuple):
                if blank := [phrase for phrase in value if not isinstance(phrase, str) or not spoken_words(phrase)]:
                    raise ValueError(f"AnsweringOptions.{field.name} holds {blank[0]!r}; each phrase must have a word")
            elif isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
                raise ValueError(f"AnsweringOptions.{field.name} is {value!r}; it must be a number above 0, and finite")
        if self.short_pause_s > self.long_pause_s:
            raise ValueError(f"AnsweringOptions.short_pause_s ({self.short_pause_s}) is longer than long_pause_s ({self.long_pause_s})")


Heard: TypeAlias = SpeechStarted | SpeechStopped | TranscriptFrame | BeepHeard | AnsweredBy

_Due: TypeAlias = tuple[float, Literal["human", "machine", "unknown"], str]


class WhoAnswered:
    """Give it every signal with :meth:`step`, and :meth:`tick` it at ``deadline``. Both return what that decided.

    It says who it is once, and of a machine, once, that it records now (``ready``). Times in seconds, all of one clock.
    """

    def __init__(self, options: AnsweringOptions | None = None) -> None:
        self.options = options or AnsweringOptions()
        self.verdict: AnsweredBy | None = None
        self._began = self._told = 0.0
        self._was_voice = False
        self._stopped: float | None = None
        """When the voice stopped last; None while there is one, or was none."""
        self._finals: list[str] = []
        self._words: tuple[str, ...] = ()
        """All that were said so far."""
        self._owed = 0
        """Stretches of speech that have ended and whose words are not known."""
        self._has_beeped = False

    def start(self, now: float) -> None:
        """The call was picked up."""
        self._began = now

    def step(self, signal: Heard, now: float) -> AnsweredBy | None:
        """A signal came. A carrier's ``AnsweredBy`` counts as one's own, unless it knows nothing."""
        if isinstance(signal, SpeechStarted):
            self._was_voice, self._stopped = True, None
        elif isinstance(signal, SpeechStopped):
            self._owed += self._stopped is None  # an edge may come by two ways
            self._was_voice, self._stopped = True, signal.at
        elif isinstance(signal, BeepHeard):
            self._has_beeped = self._was_voice  # before any voice it is the line's: a ringing tone
        elif isinstance(signal, AnsweredBy):
            if signal.by != "unknown" and self._is_news(signal):
                self.verdict, self._told = signal, now
                return signal
        else:
            if signal.final:
                self._finals.append(signal.text)
                self._owed = max(self._owed - 1, 0)
            said = " ".join([*self._finals, "" if signal.final else signal.text])
            self._words = spoken_words(said.replace("’", "'").replace("-", " "))
        return self.tick(now)

    def tick(self, now: float) -> AnsweredBy | None:
        """Time has passed."""
        said = self._judge(now + RESOLUTION_S)
        if said is None or not self._is_news(said):
            return None
        self.verdict, self._told = said, now
        return said

    @property
    def deadline(self) -> float | None:
        """When to tick, if nothing comes before; None: never."""
        return min((at for at, _, _ in self._dues()), default=None)

    def _is_news(self, said: AnsweredBy) -> bool:
        before = self.verdict
        return before is None or (before.by == said.by == "machine" and said.ready and not before.ready)

    def _judge(self, now: float) -> AnsweredBy | None:
        if self._has_beeped:
            return AnsweredBy(by="machine", ready=True, why="a beep")
        if self.verdict is None and (why := self._machine_by_words()):
            return AnsweredBy(by="machine", ready=False, why=why)
        for at, by, why in self._dues():
            if at <= now:
                return AnsweredBy(by=by, ready=by != "machine" or self.verdict is not None, why=why)
        return None

    def _machine_by_words(self) -> str:
        """The words that only a machine says, or ""."""
        if self._found(self.options.person):
            return ""
        if said := self._found(self.options.machine):
            return f"it said {said[0]!r}"
        if len(said := self._found((*self.options.openings, *self.options.hints))) >= 2:
            return f"it said {said[0]!r} and {said[1]!r}"
        if len(self._words) >= self.options.many_words:
            return f"it said {len(self._words)} words without waiting for an answer"
        return ""

    def _dues(self) -> Iterator[_Due]:
        """What time will make of it, unless something comes before."""
        options, verdict = self.options, self.verdict
        if verdict is not None:
            if verdict.by == "machine" and not verdict.ready:
                yield self._told + options.ready_limit_s, "machine", f"neither a beep nor silence within {options.ready_limit_s:g} s"
            if verdict.by == "machine" and not verdict.ready and self._stopped is not None:
                yield self._stopped + options.ready_silence_s, "machine", f"silence for {options.ready_silence_s:g} s, without a beep"
            return
        yield self._began + options.limit_s, "unknown", f"nothing told within {options.limit_s:g} s"
        if self._stopped is not None and (self._words or self._owed):
            is_person = bool(self._found(options.person))
            is_short = is_person or (len(self._words) <= options.short_words and not self._found(options.openings))
            is_machine = not is_person and bool(self._found(options.openings))
            pause_s = options.short_pause_s if is_short else options.long_pause_s
            if self._owed:
                pause_s = max(pause_s, options.desk_timeout_s if is_machine else options.words_timeout_s)
            what = f"it said {' '.join(self._words)!r}" if self._words else "it said something"
            yield self._stopped + pause_s, "machine" if is_machine else "human", f"{what}, and waited for {pause_s:g} s"
        elif self._stopped is not None or not self._was_voice:
            yield self._began + options.silence_s, "unknown", f"nobody said a word for {options.silence_s:g} s"

    def _found(self, phrases: Iterable[str]) -> list[str]:
        return [phrase for phrase in phrases if has_phrase(self._words, phrase)]


class Answering(Processor):
    """Says who picked up (``AnsweredBy``), and of a machine once more when it records. Instant; hands on what it hears.

    Its place is between the recogniser and ``Turns``, and ``Beeps`` belongs before the recogniser. The session begins when the call is
    picked up. A carrier's own ``AnsweredBy`` counts, and is told once.
    """

    def __init__(self, options: AnsweringOptions | None = None) -> None:
        self.who = WhoAnswered(options)
        self._wake = asyncio.Event()

    async def start(self) -> None:
        """The call was picked up."""
        self.who.start(self.session.time())

    def process(
        self, frame: SpeechStarted | SpeechStopped | TranscriptFrame | BeepHeard | AnsweredBy
    ) -> Iterator[SpeechStarted | SpeechStopped | TranscriptFrame | AnsweredBy]:
        """See the class."""
        decided = self.who.step(frame, self.session.time())
        self._wake.set()
        if decided is not None:
            yield decided
        if not isinstance(frame, BeepHeard | AnsweredBy):
            yield frame

    async def run(self) -> AsyncIterator[AnsweredBy]:
        """What time decides."""
        while True:
            await woken(self._wake, self.who.deadline)
            if (decided := self.who.tick(self.session.time())) is not None:
                yield decided


class Voicemail(Processor):
    """Keeps turns until ``Answering`` says who picked up; leaves a message with a machine. Instant. Stands before ``Context``.

    A person's turns are handed on, the first at once, and so are those of somebody unknown. To a machine nothing is answered: when it
    records, the message is said to its end, and the call ends; without a message it ends as soon as it is known to be a machine. An
    interrupt forgets nothing: what is kept is the caller's.
    """

    def __init__(self, message: str = "") -> None:
        self.message = message
        self.answered: AnsweredBy | None = None
        """Who it is, as far as it is known."""
        self._kept: list[TurnEnded] = []

    def process(
        self, frame: TurnEnded | TurnProbable | TurnResumed | AnsweredBy | EndFrame
    ) -> Iterator[TurnEnded | TurnProbable | TurnResumed | AnsweredBy | SayFrame]:
        """See the class."""
        if isinstance(frame, AnsweredBy):
            self.answered = frame
            yield frame
            yield from self._act(frame)
        elif isinstance(frame, EndFrame):
            yield from self._let_go()
        elif self.answered is None:
            if isinstance(frame, TurnEnded):
                self._keep(frame)
        elif self.answered.by != "machine":
            yield frame

    def _act(self, answered: AnsweredBy) -> Iterator[TurnEnded | SayFrame]:
        if answered.by != "machine":
            yield from self._let_go()
            return
        self._kept.clear()
        if self.message and answered.ready:
            yield SayFrame(self.message)
        if answered.ready or not self.message:
            self.session.end()

    def _keep(self, turn: TurnEnded) -> None:
        if turn.continues and self._kept:
            turn = replace(turn, continues=self._kept.pop().continues)
        self._kept.append(turn)

    def _let_go(self) -> Iterator[TurnEnded]:
        kept, self._kept = self._kept, []
        yield from kept
