"""Finding the way through a telephone menu, to whom the agent wants to speak to.

    turns = Turns()
    menu = Navigator("billing, about invoice 4711", then=Agent("ann", "You are Ann. Ask why invoice 4711 is so high."), turns=turns)
    ... >> stt >> turns >> Context(menu.agent) >> menu >> llm >> Tools(menu.agent.tools) >> Sentences() >> tts >> DTMFOut() >> sink

The one rule: each thing the menu says is answered with one choice, and the same menu is not listened to for ever.

The model chooses by calling a tool (keys) or by saying a word. ``LoopGuard`` decides, without a clock, when its choices lead nowhere.
"""

from __future__ import annotations

import asyncio
import difflib
import logging
import math
from collections import deque
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass

import msgspec

from voiceflow.frames import ContextFrame, LLMEnded, LLMStarted, LLMTextFrame, ToolCallFrame
from voiceflow.messages import ToolCall
from voiceflow.phone import KEYS, DigitsFrame
from voiceflow.processor import Processor
from voiceflow.processors.agents import Agent, HandOver
from voiceflow.processors.end_policies import Silence
from voiceflow.processors.marks import spoken_words
from voiceflow.processors.start_policies import External
from voiceflow.processors.tool import Tool, ToolError, tool
from voiceflow.processors.turns import Turns

__all__ = ["Left", "LoopGuard", "MenuOptions", "Navigator"]

log = logging.getLogger("voiceflow")

DIALLED = frozenset(KEYS + "w")

INSTRUCTIONS = (
    "You are on the telephone with an automatic menu. What you want to reach: {goal}. Each message is what the menu has just said. "
    "Answer it with exactly one choice: call press with the keys it asks for, or, if it asks for a word, say that word and nothing else. "
    "To go on listening, press w. When a person answers, call arrived. If the menu cannot lead there, call give_up."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MenuOptions:
    """How a menu is listened to, and for how long. Raises ValueError that names the field."""

    silence_s: float = 1.8
    """Silence after which the menu waits for a choice: it pauses between its options as well."""
    repeats: int = 4
    """Heard so often, a menu is one that the model's choices only lead back to. A wrong key and a blind alley are two of the times."""
    escapes: tuple[str, ...] = ("0", "operator")
    """What is tried then, one at each further time: keys are pressed, words are said. After the last one the call ends."""
    most: int = 30
    """So many things heard, of any kind, and the call ends."""
    alike: float = 0.8
    """What shares so much of its words is the same menu: a recogniser does not hear it the same way twice."""

    def __post_init__(self) -> None:
        if not 0 < self.silence_s < math.inf:
            raise ValueError(f"MenuOptions.silence_s is {self.silence_s}; it must be more than 0, and finite")
        if self.repeats < 2 or self.most < 1:
            raise ValueError(f"MenuOptions: repeats is {self.repeats} and most {self.most}; they must be 2 and 1 or more")
        if not 0 < self.alike <= 1:
            raise ValueError(f"MenuOptions.alike is {self.alike}; it must lie between 0 and 1")
        if not all(escape.strip() for escape in self.escapes):
            raise ValueError("MenuOptions.escapes holds an empty one; each must be keys or words")


@dataclass(frozen=True, slots=True)
class Left:
    """How it came out: the goal is ``reached``, or the call ended, and ``why``."""

    reached: bool
    why: str


class LoopGuard:
    """Whether the model may choose. It remembers nothing: all that was heard is given each time."""

    def __init__(self, options: MenuOptions | None = None) -> None:
        self.options = options or MenuOptions()

    def judge(self, heard: Sequence[str]) -> str | Left | None:
        """Of all that the menu has said, oldest first: None (the model chooses), what to try instead, or that it is over."""
        options = self.options
        if not heard:
            return None
        if len(heard) > options.most:
            return Left(reached=False, why=f"{options.most} menus were heard and none of them led there")
        last = spoken_words(heard[-1])
        times = sum(self._are_alike(spoken_words(text), last) for text in heard)
        if times < options.repeats:
            return None
        if times - options.repeats < len(options.escapes):
            return options.escapes[times - options.repeats]
        return Left(reached=False, why=f"the same menu came {times} times, whatever was tried: {heard[-1][:80]!r}")

    def _are_alike(self, one: tuple[str, ...], other: tuple[str, ...]) -> bool:
        return one == other or difflib.SequenceMatcher(None, one, other, autojunk=False).ratio() >= self.options.alike


class Navigator(Processor):
    """Chooses in a telephone menu, with the model behind it, until somebody answers; then it hands the call over to ``then``.

    ``agent`` is for the ``Context`` before it and its tools for the ``Tools`` behind the model. ``DTMFOut`` plays the keys, unless
    the line has messages for them. ``left`` says how it came out, from then on. Until then the menu interrupts nothing, and its turn
    ends after ``options.silence_s``; after it, the policies of ``turns`` are those of its options. No ``Speculation`` belongs into the graph.
    """

    def __init__(self, goal: str, then: Agent, turns: Turns, options: MenuOptions | None = None) -> None:
        if not goal.strip():
            raise ValueError("Navigator: goal is empty; say in words what is to be reached")
        self.guard = LoopGuard(options)
        self.then = then
        self.turns = turns
        self.left: Left | None = None
        self.agent = Agent("navigator", INSTRUCTIONS.format(goal=goal.strip()), self._tools(goal.strip()))
        self._keys: deque[str] = deque()  # those of a reply or two
        self._wake = asyncio.Event()
        self._has_chosen = False

    async def start(self) -> None:
        """From here on it is a menu that is listened to."""
        self.turns.use(barge_in=External(), end=Silence(self.guard.options.silence_s))

    def process(self, frame: ContextFrame) -> Iterator[ContextFrame | LLMStarted | LLMTextFrame | ToolCallFrame | LLMEnded]:
        """Let the model answer, or answer in its place: with nothing behind a choice, with something else where it goes in circles."""
        is_menu = bool(frame.messages) and frame.messages[-1].role == "user"
        has_chosen, self._has_chosen = self._has_chosen, False
        if self.left is not None and self.left.reached:
            yield frame
            return
        move = self.guard.judge([message.text for message in frame.messages if message.role == "user"]) if is_menu else None
        if isinstance(move, Left):
            self._leave(move)
        if move is None and self.left is None and (is_menu or not has_chosen):
            yield frame
            return
        yield LLMStarted(utterance=frame.utterance)
        if isinstance(move, str):
            yield self._choice(move, frame.utterance)
        yield LLMEnded(utterance=frame.utterance)

    async def run(self) -> AsyncIterator[DigitsFrame]:
        """The keys."""
        while True:
            while self._keys:
                yield DigitsFrame(digits=self._keys.popleft(), epoch=self.session.epoch)
            self._wake.clear()
            await self._wake.wait()

    def _choice(self, move: str, utterance: int) -> ToolCallFrame | LLMTextFrame:
        """As the model would make it, so that it is in the conversation."""
        log.info("%s: the menu goes in circles; trying %r", self.name, move)
        if DIALLED.issuperset(move):
            arguments = msgspec.json.encode({"digits": move}).decode()
            return ToolCallFrame(call=ToolCall(f"{self.name}-{utterance}", "press", arguments), utterance=utterance)
        return LLMTextFrame(move, utterance=utterance)

    def _leave(self, left: Left) -> None:
        self.left = left
        if left.reached:
            self.turns.use(barge_in=self.turns.machine.options.barge_in, end=self.turns.machine.options.end)
            return
        log.warning("%s: %s", self.name, left.why)
        self.session.end()

    def _tools(self, goal: str) -> tuple[Tool, ...]:
        @tool(effect="once")
        async def press(digits: str) -> str:
            """Press keys of the telephone.

            digits: one or more of 0-9, * and #; w waits half a second
            """
            keys = digits.replace(" ", "").replace("-", "")
            if not keys or not DIALLED.issuperset(keys):
                raise ToolError(f"{digits!r} cannot be pressed; there are {KEYS} and w, which waits")
            self._has_chosen = True
            self._keys.append(keys)
            self._wake.set()
            return f"pressed {keys}; what the menu says to that comes next"

        @tool(effect="once")
        async def arrived() -> HandOver:
            """A person has answered, or what was wanted is reached."""
            self._leave(Left(reached=True, why="somebody answered"))
            return HandOver(self.then, carry="last", note=f"You have come through a telephone menu to: {goal}.")

        @tool(effect="once")
        async def give_up(why: str) -> str:
            """End the call, because the menu cannot lead there.

            why: the reason, in a few words
            """
            self._leave(Left(reached=False, why=why))
            return "the call ends"

        return press, arrived, give_up
