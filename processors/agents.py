"""Agents that hand a call over to one another, inside one session.

The one rule: an agent is a value: instructions, tools, a voice. What makes another one speak is the result of a tool.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from voiceflow.frames import ControlFrame, LLMEnded, SayFrame, SentenceFrame, Travels
from voiceflow.processor import Processor
from voiceflow.processors.conversation import Conversation
from voiceflow.processors.tool import Tool, ToolError, by_name

__all__ = ["Agent", "AgentChanged", "Carry", "HandOver", "HandOverFrame", "OnlyVoice", "carried"]

Carry: TypeAlias = Literal["all", "last", "nothing"] | Callable[[Conversation], Conversation]
"""What of the conversation the next agent is given: all of it, the caller's last words, nothing, or what a function makes of it."""


@dataclass(frozen=True, slots=True)
class Agent:
    """Who answers. ``greeting``: what they say first; without one the model is asked at once. ``voice``: see ``OnlyVoice``."""

    name: str
    system: str
    tools: tuple[Tool, ...] = ()
    greeting: str = ""
    voice: str = ""

    def __post_init__(self) -> None:
        by_name(self.tools, f"agent {self.name}: ")


@dataclass(frozen=True, slots=True)
class HandOver:
    """What a tool returns so that another agent goes on. ``note``: told to that agent behind its instructions.

    Such a tool should have the effect ``once``: then it runs when the words before it were heard, and two voices never mix.
    """

    to: Agent
    carry: Carry = "all"
    note: str = ""

    def __post_init__(self) -> None:
        if not callable(self.carry) and self.carry not in get_args(get_args(Carry)[0]):
            raise ToolError(f"HandOver to {self.to.name}: carry is {self.carry!r}; it must be 'all', 'last', 'nothing' or a function")
        if self.carry == "nothing" and not self.to.greeting:
            raise ToolError(f"HandOver to {self.to.name}: with carry 'nothing' there is nothing to answer; give the agent a greeting")


class HandOverFrame(ControlFrame, frozen=True):
    """A tool has handed the call over."""

    travels = Travels.UP
    hand_over: HandOver


class AgentChanged(ControlFrame, frozen=True):
    """``name`` speaks, in ``voice``, from the reply ``utterance`` on."""

    name: str
    voice: str = ""
    utterance: int = 0


def carried(conversation: Conversation, carry: Carry) -> Conversation:
    """What the next agent is given."""
    if callable(carry):
        return carry(conversation)
    if carry == "all":
        return conversation
    last = next((message for message in reversed(conversation.messages) if message.role == "user"), None)
    return Conversation((last,)) if carry == "last" and last is not None else Conversation()


class OnlyVoice(Processor):
    """Stands before a voice and lets through what the agents with that voice say: ``[OnlyVoice("a") >> tts_a, OnlyVoice("b") >> tts_b]``.

    ``first``: this is the voice until the first ``AgentChanged``.
    """

    def __init__(self, voice: str, *, first: bool = False) -> None:
        self.voice = voice
        self._since: list[tuple[int, bool]] = [(0, first)]  # from which utterance on: is it this voice

    def process(self, frame: SentenceFrame | SayFrame | LLMEnded | AgentChanged) -> Iterator[SentenceFrame | SayFrame | LLMEnded]:
        """See the class."""
        if isinstance(frame, AgentChanged):
            self._since = [*self._since[-1:], (frame.utterance, frame.voice == self.voice)]
        elif self._is_mine(frame.utterance):
            yield frame

    def _is_mine(self, utterance: int) -> bool:
        """What was not asked for (number 0) is said in the present voice."""
        return next((mine for since, mine in reversed(self._since) if not utterance or since <= utterance), self._since[0][1])
