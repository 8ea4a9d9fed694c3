"""The conversation of a call, and when a reply is asked for.

The one rule: one place commits. The caller's words are committed when their turn ends, the agent's when it is known what
of them reached the ear, a call of a tool when the tool has begun; and nothing else becomes part of the conversation.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from voiceflow.frames import (
    ContextFrame,
    EndFrame,
    ErrorFrame,
    InterruptFrame,
    LLMUsage,
    PlaybackStarted,
    PlaybackStopped,
    SayFrame,
    ToolResultFrame,
    ToolsDone,
    ToolStarted,
    TurnEnded,
    WordsHeard,
)
from voiceflow.messages import Message, ToolSpec
from voiceflow.processor import Processor
from voiceflow.processors.agents import Agent, AgentChanged, HandOver, HandOverFrame, carried
from voiceflow.processors.commits import Commits
from voiceflow.processors.conversation import Conversation, Media
from voiceflow.processors.marks import spoken_words
from voiceflow.processors.speculation import ReplyDecided, Speculating, TurnProbable, TurnResumed
from voiceflow.processors.summary import Summarise, Summary, part_to_summarise
from voiceflow.processors.tokens import Spent, TokenMeter, estimate_tokens, newest_exchanges

if TYPE_CHECKING:
    from voiceflow.interruption import Interruption

__all__ = ["Context", "ContextOptions", "Shorten"]

log = logging.getLogger("voiceflow")

Report = PlaybackStarted | PlaybackStopped | WordsHeard | ToolStarted | ToolResultFrame | ToolsDone | LLMUsage

Shorten = Callable[[Conversation, int, Callable[[Conversation], int]], Conversation]
"""``shorten(conversation, max_tokens, count)``: the conversation to be put to the model instead of one that is too long.
``count`` says how many tokens a request with such a conversation takes, instructions included. It must not wait."""


@dataclass(frozen=True, slots=True)
class ContextOptions:
    """How long a request may be."""

    max_tokens: int | None = None
    """Of a request, by estimate; a longer conversation is shortened. None: no limit."""
    count_tokens: Callable[[Message], int] = estimate_tokens
    """Of one message. Scaled by what the model says a prompt took (``LLMUsage``)."""
    shorten: Shorten = newest_exchanges
    """What the model is given of a conversation that is too long. The conversation itself stays whole. If this raises, the
    error is reported and the model is given all of it."""

    summarise: Summarise | None = None
    """Makes a summary of the older part, beside the talk; until it is there, and if it fails, ``shorten`` does. Unlike that, a
    summary takes the place of what it stands for; ``Context.summaries`` keeps both."""
    summarise_at: float = 0.75
    """The share of ``max_tokens`` at which that begins."""
    summarise_timeout_s: float = 30.0
    keep_exchanges: int = 4
    """So many of the newest exchanges are never summarised, nor is anything from a call without a result on."""

    def __post_init__(self) -> None:
        if self.max_tokens is not None and self.max_tokens < 1:
            raise ValueError(f"ContextOptions: max_tokens is {self.max_tokens}; it must be 1 or more, or None for no limit")
        if self.summarise is not None and self.max_tokens is None:
            raise ValueError("ContextOptions: summarise needs max_tokens, the limit that it keeps to")
        if not 0 < self.summarise_at <= 1 or self.keep_exchanges < 1 or self.summarise_timeout_s <= 0:
            raise ValueError(
                f"ContextOptions: summarise_at {self.summarise_at} must lie in (0, 1], keep_exchanges {self.keep_exchanges} be 1 or more, "
                f"and summarise_timeout_s {self.summarise_timeout_s} more than 0"
            )


@dataclass(frozen=True, slots=True)
class _Guess:
    """A reply that was begun as if the caller's turn had ended with ``text``, and all that it was made of besides."""

    utterance: int
    text: str
    continues: bool
    made_of: tuple[Conversation, str, tuple[ToolSpec, ...]]


class Context(Processor):
    """Keeps the conversation and asks for replies. Instant. Its place is before the language model; reports go on upstream.

    ``system``: instructions that precede each request, or an ``Agent`` with instructions and tools. ``conversation``: one
    to carry on. ``tools``: what the model may call. ``HandOverFrame`` puts another agent in the place of this one.

    Replies are numbered from 1 by ``ContextFrame.utterance``, and what was heard of each is committed once. What is said
    without being asked for (``SayFrame``) has number 0. A reply that a ``SayFrame`` cut in two is reported, and
    committed, in two parts.

    At most one reply is under way: a turn that ends while one is interrupts it first. A reply with calls is under way
    until they have their results and ``ToolsDone`` says so; then one more is asked for, which is told of them. That does
    not happen if the reply was interrupted, but the results are kept: the next request has them.

    With a ``Speculation`` in the graph a reply may be begun on a ``TurnProbable``. It becomes part of the conversation if the turn ends with
    the same words; else it is dropped by an interrupt, or, while something is being heard, by never letting it through. Its number is then not used again.
    """

    def __init__(
        self,
        system: str | Agent = "",
        conversation: Conversation | None = None,
        options: ContextOptions | None = None,
        *,
        tools: Sequence[ToolSpec] = (),
    ) -> None:
        agent = system if isinstance(system, Agent) else None
        self.system = agent.system if agent else str(system)
        self.options = options or ContextOptions()
        self.tools = (*(known.spec for known in agent.tools), *tools) if agent else tuple(tools)
        self._commits = Commits(conversation)
        self._meter = TokenMeter(self.options.count_tokens)
        self._summaries: list[Summary] = []
        self._is_summarising = False
        self._speculates = False  # there is a gate
        self._guess: _Guess | None = None
        self._audible: set[int] = set()

    # -------------------------------------------------------------------------------- what an application sees

    @property
    def conversation(self) -> Conversation:
        """What is committed. May be set: to a summary of it, say. What is under way goes on at its end."""
        return self._commits.conversation

    @conversation.setter
    def conversation(self, conversation: Conversation) -> None:
        self._commits.begin_anew(conversation)

    @property
    def heard_so_far(self) -> Conversation:
        """The conversation with the words heard of what is being said now: what to save in the middle of a call."""
        return self._commits.so_far()

    @property
    def summaries(self) -> tuple[Summary, ...]:
        """What was summarised so far, with the text that stands for it."""
        return tuple(self._summaries)

    @property
    def spent(self) -> Spent:
        """Tokens that the call has cost so far, as far as the model says (``LLMUsage``)."""
        return self._meter.spent

    @property
    def tokens(self) -> int:
        """About how many tokens the next request takes, unless it is shortened."""
        return self._count(self.conversation)

    def messages(self) -> tuple[Message, ...]:
        """What the language model would be given now, unless it is shortened: the instructions, then the conversation."""
        return self._request(self.conversation)

    def add_user(self, text: str = "", media: Sequence[Media] = ()) -> None:
        """Add what the caller sent: a picture, say. No reply is asked for; the next one is told of it."""
        self._commits.add(text, media, self._now)

    # --------------------------------------------------------------------------------------------- the node

    def process(
        self,
        frame: TurnEnded
        | TurnProbable
        | TurnResumed
        | Speculating
        | PlaybackStarted
        | PlaybackStopped
        | WordsHeard
        | ToolStarted
        | ToolResultFrame
        | ToolsDone
        | HandOverFrame
        | LLMUsage
        | EndFrame,
    ) -> Iterator[
        ContextFrame
        | ReplyDecided
        | Speculating
        | InterruptFrame
        | ErrorFrame
        | AgentChanged
        | SayFrame
        | PlaybackStarted
        | PlaybackStopped
        | WordsHeard
        | ToolStarted
        | ToolResultFrame
        | ToolsDone
        | HandOverFrame
        | LLMUsage
    ]:
        """Commit the caller's turn and ask for a reply; or commit what a report says. A blank turn asks for nothing."""
        commits = self._commits
        if isinstance(frame, TurnEnded):
            yield from self._turn_ended(frame)
            return
        if isinstance(frame, TurnProbable):
            yield from self._guess_at(frame)
            return
        if isinstance(frame, TurnResumed):
            yield from self._drop("the caller goes on")
            return
        if isinstance(frame, EndFrame):
            yield from self._drop("the call ends", quietly=True)
            return
        if isinstance(frame, Speculating):
            self._speculates = True
            yield frame
            yield ReplyDecided(utterance=commits.utterance)
            return
        if isinstance(frame, HandOverFrame):
            yield from self._hand_over(frame.hand_over)
            yield frame
            return
        self._take(frame)
        yield frame
        if isinstance(frame, ToolResultFrame | ToolsDone) and commits.follow_up_due:
            yield from self._ask(commits.so_far(commits.utterance))

    def _turn_ended(self, frame: TurnEnded) -> Iterator[ContextFrame | ReplyDecided | InterruptFrame | ErrorFrame]:
        commits, guess = self._commits, self._guess
        if not frame.text.strip():
            yield from self._drop("nothing was said")
        elif guess is not None and self._fits(guess, frame):
            self._guess = None
            commits.turn(frame.text, self._now, continues=frame.continues)
            yield ReplyDecided(utterance=commits.ask(guess.utterance))
            self._summarise_if_due()
        else:
            yield from self._drop(f"the caller's turn ended with {frame.text!r}")
            if commits.under_way:
                yield InterruptFrame(reason=f"the caller's next turn replaces reply {commits.utterance}")
            commits.turn(frame.text, self._now, continues=frame.continues)
            yield from self._ask(commits.conversation)

    # -------------------------------------------------------------------------------------------- speculation

    def _guess_at(self, frame: TurnProbable) -> Iterator[ContextFrame | ReplyDecided | InterruptFrame | ErrorFrame]:
        """Begin a reply as if the turn had ended, unless the agent is at work: dropping it must cut nothing that is heard."""
        commits, text = self._commits, frame.text.strip()
        if not self._speculates or (self._guess is not None and self._fits(self._guess, frame)):
            return
        yield from self._drop(f"the caller has said {text!r}")
        if not text or commits.under_way or self._audible:
            return
        guess = self._guess = _Guess(commits.reserve(), text, frame.continues, self._ingredients)
        for out in self._request_reply(commits.with_turn(text, continues=frame.continues), guess.utterance):
            if self._guess is not guess:  # interrupted meanwhile
                return
            yield out

    @property
    def _ingredients(self) -> tuple[Conversation, str, tuple[ToolSpec, ...]]:
        return self._commits.conversation, self.system, self.tools

    def _fits(self, guess: _Guess, turn: TurnEnded | TurnProbable) -> bool:
        """The same words, whatever their case and marks, said to the same agent at the same place of the conversation."""
        is_same = guess.text == turn.text.strip() or (spoken_words(guess.text) == spoken_words(turn.text) != ())
        is_here = guess.made_of[0] is self._commits.conversation and guess.made_of[1:] == self._ingredients[1:]
        return is_same and is_here and guess.continues == turn.continues

    def _drop(self, why: str, *, quietly: bool = False) -> Iterator[ReplyDecided | InterruptFrame]:
        """The guess that is out was wrong. ``quietly``: let the work on it run out."""
        guess = self._guess
        if guess is None:
            return
        yield ReplyDecided(utterance=guess.utterance, counts=False)
        if not (self._audible or quietly):
            yield InterruptFrame(reason=f"{why}: the reply to {guess.text!r} was begun too early")
        self._guess = None

    # ------------------------------------------------------------------------------------------------ reports

    @property
    def _now(self) -> float:
        """0 while there is no call: the conversation of one may be prepared before it and completed after it."""
        session = self._session
        return session.time() if session is not None and session.state not in ("new", "ended") else 0.0

    def _take(self, report: Report) -> None:
        commits = self._commits
        if isinstance(report, PlaybackStarted):
            self._audible.add(report.utterance)
        elif isinstance(report, PlaybackStopped):
            self._audible.discard(report.heard.utterance)
            commits.heard(report.heard, report.at)
        elif isinstance(report, WordsHeard):
            commits.words(report.utterance, report.text, report.at)
        elif isinstance(report, ToolStarted):
            commits.called(report.utterance, report.call)
        elif isinstance(report, ToolResultFrame):
            commits.result(report.utterance, report.call, report.text)
        elif isinstance(report, ToolsDone):
            commits.done(report.utterance)
        else:
            self._meter.used(report.utterance, report.prompt_tokens, report.completion_tokens)

    def _hand_over(self, over: HandOver) -> Iterator[AgentChanged | SayFrame]:
        """The next reply is another agent's. With a greeting that is what they say, and no reply is asked for."""
        agent, commits = over.to, self._commits
        self.system = "\n".join(filter(None, [agent.system, over.note]))
        self.tools = tuple(known.spec for known in agent.tools)
        commits.hand_over(carried(commits.conversation, over.carry), asks=not agent.greeting)
        yield AgentChanged(name=agent.name, voice=agent.voice, utterance=commits.utterance + 1)
        if agent.greeting:
            yield SayFrame(agent.greeting)

    def on_interrupt(self, interrupt: Interruption) -> None:
        """Commit what had been heard; the sinks, which come before, have filled it in."""
        self._audible.clear()
        guess, self._guess = self._guess, None
        if guess is not None and not interrupt.heard:
            return  # nothing that counts was cut
        self._commits.interrupted(interrupt.heard, interrupt.at)

    async def stop(self) -> None:
        """The call is over, perhaps in the middle of a word: commit what was heard."""
        self._commits.finish()

    def _ask(self, conversation: Conversation) -> Iterator[ContextFrame | ReplyDecided | ErrorFrame]:
        utterance = self._commits.ask()
        if self._speculates:
            yield ReplyDecided(utterance=utterance)
        yield from self._request_reply(conversation, utterance)
        self._summarise_if_due()

    def _request_reply(self, conversation: Conversation, utterance: int) -> Iterator[ContextFrame | ErrorFrame]:
        frame = f"request {utterance}"
        try:
            conversation = self._shortened(conversation)
        except Exception as error:  # of the application's own functions; the caller must have an answer all the same
            what = f"shortening the conversation failed, all of it is used: {type(error).__name__}: {error}"
            log.error("%s: %s", self.name, what, exc_info=error)
            yield ErrorFrame(node=self.name, frame=frame, error=what)
        messages = self._request(conversation)
        self._meter.asked(utterance, messages, self.tools)
        yield ContextFrame(messages=messages, utterance=utterance, tools=self.tools)

    def _summarise_if_due(self) -> None:
        options, conversation = self.options, self.conversation
        if options.summarise is None or options.max_tokens is None or self._is_summarising:
            return
        count = part_to_summarise(conversation, options.keep_exchanges)
        if count and self.tokens > options.summarise_at * options.max_tokens:
            self._is_summarising = True
            part = Conversation(conversation.messages[:count])
            self.session.spawn(self._summarise(options.summarise, part), f"{self.name}/summary")

    async def _summarise(self, summarise: Summarise, part: Conversation) -> None:
        """Beside the talk; whatever goes wrong, the conversation is as it was and the next request tries again."""
        try:
            async with asyncio.timeout(self.options.summarise_timeout_s):
                text = await summarise(part)
            if not text.strip():
                raise ValueError("the summary is empty")
        except Exception as error:  # of the application's own function, which must not end the call
            log.error("%s: no summary: %s: %s", self.name, type(error).__name__, error, exc_info=error)
            return
        finally:
            self._is_summarising = False
        count = len(part.messages)
        if self.conversation.messages[:count] == part.messages:  # unless another conversation has been put in its place
            self._commits.summarised(count, text)
            self._summaries.append(Summary(text, part.messages))

    def _shortened(self, conversation: Conversation) -> Conversation:
        limit = self.options.max_tokens
        if limit is None or self._count(conversation) <= limit:
            return conversation
        shorter = self.options.shorten(conversation, limit, self._count)
        if not isinstance(shorter, Conversation):
            raise TypeError(f"shorten() gave {type(shorter).__name__}, not a Conversation")
        return shorter

    def _request(self, conversation: Conversation) -> tuple[Message, ...]:
        summary, messages = conversation.summary, conversation.messages
        system = "\n\n".join(filter(None, [self.system, f"The conversation so far: {summary}" if summary else ""]))
        instructions = (Message("system", system),) if system else ()
        return instructions + (messages[1:] if summary else messages)

    def _count(self, conversation: Conversation) -> int:
        return self._meter.tokens(self._request(conversation), self.tools)
