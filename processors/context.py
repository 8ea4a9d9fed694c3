"""The conversation as both sides heard it, and what of it is put to the language model.

The one rule: one place commits. The caller's words are committed when their turn ends, the agent's when it is known
what of them reached the ear, and nothing else ever becomes part of the conversation.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from voiceflow.frames import ContextFrame, Heard, InterruptFrame, PlaybackStopped, TurnEnded
from voiceflow.messages import Message
from voiceflow.processor import Processor
from voiceflow.processors.marks import spoken_words

if TYPE_CHECKING:
    from voiceflow.interruption import Interruption

__all__ = ["Context", "Conversation"]

ROLES = ("user", "assistant")
FORMAT = 1


class _Saved(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    version: int
    messages: tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class Conversation:
    """What was said, in order. Immutable: each method returns another conversation.

    ``messages`` alternate between user and assistant: what one side says in pieces is one message.
    """

    messages: tuple[Message, ...] = ()

    def __post_init__(self) -> None:
        for index, message in enumerate(self.messages):
            if message.role not in ROLES:
                raise ValueError(f"messages[{index}].role is {message.role!r}; it must be one of {', '.join(ROLES)}")
            if not message.text.strip():
                raise ValueError(f"messages[{index}].text is empty; leave the message out")

    def with_user(self, text: str) -> Conversation:
        """The caller said this. Blank text changes nothing.

        If nothing has been heard in answer to what they said before, it is one message: text that begins with the old
        words (a reopened turn) takes its place, other text is added to it.
        """
        text = text.strip()
        last = self.messages[-1] if self.messages else None
        if not text or last is None or last.role != "user":
            return self._with(Message("user", text))
        old = spoken_words(last.text)
        if not old or spoken_words(text)[: len(old)] != old:
            text = f"{last.text} {text}"
        return Conversation((*self.messages[:-1], Message("user", text)))

    def with_assistant_heard(self, text: str, *, interrupted: bool = False) -> Conversation:
        """The agent said this and it was heard; ``interrupted``: it would have said more. Blank text changes nothing."""
        text = text.strip()
        last = self.messages[-1] if self.messages else None
        if not text or last is None or last.role != "assistant":
            return self._with(Message("assistant", text, interrupted))
        return Conversation((*self.messages[:-1], Message("assistant", f"{last.text} {text}", interrupted)))

    def _with(self, message: Message) -> Conversation:
        return Conversation((*self.messages, message)) if message.text else self

    def to_json(self) -> str:
        """The conversation as JSON, for :meth:`from_json`."""
        return msgspec.json.encode(_Saved(FORMAT, self.messages)).decode()

    @classmethod
    def from_json(cls, text: str | bytes) -> Conversation:
        """A saved conversation. Raises ValueError that names the field that is wrong."""
        try:
            saved = msgspec.json.decode(text, type=_Saved)
            if saved.version != FORMAT:
                raise ValueError(f"version is {saved.version}; this voiceflow reads version {FORMAT}")
            return cls(saved.messages)
        except ValueError as error:  # msgspec's own errors are ValueErrors and name the place, like `$.messages[0].role`
            raise ValueError(f"not a saved conversation: {error}") from error


class Context(Processor):
    """Keeps the conversation and asks for replies. Instant.

    ``system``: instructions that precede each request. ``conversation``: one to carry on. Replies are numbered from 1
    by ``ContextFrame.utterance``, and what was heard of each is committed once. What is said without being
    asked for (``SayFrame``) has number 0. A reply that a ``SayFrame`` cut in two is reported, and committed, in two parts.

    At most one reply is under way: a turn that ends while one is interrupts it first. Reports go on upstream.
    """

    def __init__(self, system: str = "", conversation: Conversation | None = None) -> None:
        self.system = system
        self.conversation = conversation or Conversation()
        self._utterance = 0  # the last reply that was asked for
        self._under_way = False
        self._committed = 0  # the utterance committed last: two sinks may report the same

    def process(self, frame: TurnEnded | PlaybackStopped) -> Iterator[ContextFrame | InterruptFrame | PlaybackStopped]:
        """Commit the caller's turn and ask for a reply; or commit what was heard. A blank turn asks for nothing."""
        if isinstance(frame, PlaybackStopped):
            self._commit(frame.heard)
            yield frame
            return
        if not frame.text.strip():
            return
        if self._under_way:
            yield InterruptFrame(reason=f"the caller's next turn replaces reply {self._utterance}")
        self.conversation = self.conversation.with_user(frame.text)
        self._utterance += 1
        self._under_way = True
        yield ContextFrame(messages=self.messages(), utterance=self._utterance)

    def messages(self) -> tuple[Message, ...]:
        """What the language model is given: the instructions, then the conversation."""
        instructions = (Message("system", self.system),) if self.system else ()
        return instructions + self.conversation.messages

    def on_interrupt(self, interrupt: Interruption) -> None:
        """Commit what had been heard; the sinks, which come before, have filled it in."""
        for heard in interrupt.heard:
            self._commit(heard)
        self._under_way = False

    def _commit(self, heard: Heard) -> None:
        if heard.utterance and heard.utterance == self._committed:
            return
        self._committed = heard.utterance
        if heard.utterance == self._utterance:
            self._under_way = False
        self.conversation = self.conversation.with_assistant_heard(heard.text, interrupted=not heard.complete)
