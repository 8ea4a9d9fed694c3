"""Puts what was said and done where it belongs in the conversation, by the reply that it belongs to.

The one rule: whatever order reports come in, each is committed once, in its place. Pure: time is passed in.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import msgspec

from voiceflow.frames import Heard
from voiceflow.messages import ToolCall
from voiceflow.processors.conversation import Conversation, Media, is_object

__all__ = ["Commits"]

KEPT = 16
"""Replies of which a late report is still recognised."""


@dataclass(slots=True)
class _Reply:
    """``exchange``: how often the caller had spoken. ``calls``: the model's ids of its calls, and their ids in the conversation."""

    exchange: int
    calls: dict[str, str] = field(default_factory=dict)
    told: set[str] = field(default_factory=set)
    """What was committed of it: a part for each stretch of speech."""
    is_closed: bool = False
    """An interrupt has said what was heard of it."""
    is_done: bool = False
    """It is complete: no further call of it will come."""


class Commits:
    """The conversation, and the replies that are being heard, thought of or worked for.

    Replies are numbered from 1 by :meth:`ask`; 0 is what is said without being asked for. At most one is under way:
    the last one asked for, unless it was interrupted, until it was heard and its calls have results.
    """

    def __init__(self, conversation: Conversation | None = None) -> None:
        self.conversation = conversation or Conversation()
        self._spoken_at = [float("-inf")] * _times_spoken(self.conversation)  # when the caller's messages were begun
        self.utterance = 0
        """The last reply asked for."""
        self._reserved = 0  # the last number given away
        self._is_live = False  # and not interrupted
        self._is_heard = True
        self._goes_on = False  # a reply follows the last one, even if its calls were left behind
        self._replies: dict[int, _Reply] = {}
        self._words: dict[int, list[str]] = {}  # heard of what is being said, and not reported yet
        self._cut_at = float("-inf")
        self._cut_text = ""  # what the last interrupt committed: a report that comes late may be of what was heard before
        self._turn = ""  # what the last one said
        self._added: list[str] = []  # texts of the caller's last message that were sent, not said

    def begin_anew(self, conversation: Conversation) -> None:
        """Take another conversation, a summary of this one, say. What is under way goes on at its end."""
        self.conversation = conversation
        self._spoken_at = [float("-inf")] * _times_spoken(conversation)
        self._added.clear()
        for reply in self._replies.values():
            reply.exchange = len(self._spoken_at)
        self._forget_calls()

    def summarised(self, count: int, text: str) -> None:
        """``text`` stands for the first ``count`` messages from here on. What is under way keeps its place."""
        gone = _times_spoken(Conversation(self.conversation.messages[:count]))
        self.conversation = self.conversation.summarised(count, text)
        del self._spoken_at[:gone]
        for reply in self._replies.values():
            reply.exchange = max(0, reply.exchange - gone)
        self._forget_calls()

    def _forget_calls(self) -> None:
        """Those that the conversation has no more."""
        for reply in self._replies.values():
            reply.calls = {its: ours for its, ours in reply.calls.items() if self.conversation.find_call(ours) is not None}

    def hand_over(self, conversation: Conversation, *, asks: bool) -> None:
        """Another agent goes on, with this conversation; ``asks``: by a reply when the calls are done, else by waiting for the caller."""
        if conversation is not self.conversation:
            self.begin_anew(conversation)
        self._goes_on, self._is_live = asks, self._is_live and asks

    # ---------------------------------------------------------------------------------------------- the caller

    def turn(self, text: str, now: float = 0.0, *, continues: bool = False) -> None:
        """The caller's turn has ended. ``continues``: ``text`` holds what the last turn said, as far as that still counts."""
        conversation = self.with_turn(text, continues=continues)
        if not self._is_unanswered:
            self._added.clear()
        self._turn = text.strip()
        self._spoken(conversation, now)

    def with_turn(self, text: str, *, continues: bool = False) -> Conversation:
        """The conversation as it would be if the caller's turn ended now with this text."""
        text, before = text.strip(), self._turn
        if not continues:
            return self.conversation.with_user(text)
        if text == before or text.startswith(f"{before} "):
            # Only what is new: something may have been said or sent since.
            return self.conversation.with_user(text[len(before) :])
        added = self._added if self._is_unanswered else ()
        return self.conversation.with_user(" ".join([*added, text]), continues=True)

    def add(self, text: str, media: Sequence[Media], now: float = 0.0) -> None:
        """The caller sent this."""
        if not self._is_unanswered:
            self._added.clear()
        if text.strip():
            self._added.append(text.strip())
        self._spoken(self.conversation.with_user(text, media), now)

    def _spoken(self, conversation: Conversation, now: float) -> None:
        self._spoken_at += [now] * (len(conversation.messages) - len(self.conversation.messages))
        self.conversation = conversation

    @property
    def _is_unanswered(self) -> bool:
        messages = self.conversation.messages
        return bool(messages) and messages[-1].role == "user"

    def reserve(self) -> int:
        """The number of a reply that may come to nothing. No number is given away twice: reports are known by it."""
        self._reserved = max(self._reserved, self.utterance) + 1
        return self._reserved

    def ask(self, reserved: int | None = None) -> int:
        """A reply is asked for, or one that was begun under a ``reserved`` number is wanted: its number."""
        self.utterance = reserved or self.reserve()
        self._replies.pop(self.utterance, None)
        self._is_live, self._is_heard, self._goes_on = True, False, False
        self._reply(self.utterance)
        return self.utterance

    # ---------------------------------------------------------------------------------------------- the agent

    @property
    def under_way(self) -> bool:
        """The last reply is still to be heard, or its tools are at work."""
        return self._is_live and (not self._is_heard or bool(self._replies[self.utterance].calls))

    def words(self, utterance: int, text: str, at: float) -> None:
        """These words have just been heard. A report of what an interrupt has committed changes nothing."""
        reply = self._replies.get(utterance)
        if at > self._cut_at and not (reply and reply.is_closed):
            self._words.setdefault(utterance, []).append(text)

    def heard(self, heard: Heard, at: float = 0.0) -> None:
        """Nothing more of this stretch of an utterance will be heard; ``at``: since when, 0 if nobody knows.

        A report that comes twice, or after an interrupt has told of the same, changes nothing.
        """
        utterance = heard.utterance
        self._forget_words(heard)
        if utterance == self.utterance:
            self._is_heard = True
        reply = self._reply(utterance) if utterance else None
        if reply is not None:
            if reply.is_closed or heard.text in reply.told:
                return
            reply.told.add(heard.text)
        ahead_of = self._cut_text if 0 < at <= self._cut_at else ""
        self.conversation = self._said(self.conversation, utterance, heard.text, at, interrupted=not heard.complete, ahead_of=ahead_of)

    def _forget_words(self, heard: Heard) -> None:
        """They are reported; those behind them are of what is said next, which has no number of its own either."""
        left = " ".join(self._words.pop(heard.utterance, [])).split()[len(heard.text.split()) :]
        if left and not heard.utterance and heard.complete:
            self._words[0] = left

    def interrupted(self, heard: Iterable[Heard], at: float) -> None:
        """All that the agent was doing has stopped; ``heard``: what had been heard of each utterance in hand."""
        cut: dict[int, Heard] = {}
        for one in heard:
            if one.utterance not in cut or not cut[one.utterance].text:  # two sinks may tell of the same
                cut[one.utterance] = one
        for one in cut.values():
            self.heard(one)
            if one.utterance:
                self._reply(one.utterance).is_closed = True
        self._is_live, self._cut_at = False, at
        self._cut_text = " ".join(one.text for one in cut.values() if one.text)

    def so_far(self, *utterances: int) -> Conversation:
        """The conversation, with the words heard of what is being said: of all, or of these utterances."""
        conversation = self.conversation
        for utterance, words in self._words.items():
            if not utterances or utterance in utterances:
                conversation = self._said(conversation, utterance, " ".join(words), 0.0, interrupted=True)
        return conversation

    def finish(self) -> None:
        """The call is over: what was heard of what was being said is all of it."""
        self.conversation = self.so_far()
        self._words.clear()
        self._is_live = False

    def _reply(self, utterance: int) -> _Reply:
        if utterance not in self._replies:
            self._replies[utterance] = _Reply(len(self._spoken_at))
            if len(self._replies) > KEPT:
                pending = {call.id for call in self.conversation.open_calls}
                idle = (
                    n for n, r in self._replies.items() if n not in (utterance, self.utterance) and pending.isdisjoint(r.calls.values())
                )
                self._replies.pop(next(idle, 0), None)
        return self._replies[utterance]

    def _said(
        self, conversation: Conversation, utterance: int, text: str, at: float, *, interrupted: bool, ahead_of: str = ""
    ) -> Conversation:
        reply = self._replies.get(utterance) if utterance else None
        if reply is not None and reply.calls:
            return conversation.with_assistant_heard(text, interrupted=interrupted, before=next(iter(reply.calls.values())))
        exchange = reply.exchange if reply is not None else bisect(self._spoken_at, at or float("inf"))
        if reply is None and exchange == len(self._spoken_at):
            # Said while tools are at work, it belongs before their results: a history must not end with it.
            return conversation.with_assistant_heard(text, interrupted=interrupted, before=_at_work(conversation), ahead_of=ahead_of)
        return _within(conversation, exchange, lambda part: part.with_assistant_heard(text, interrupted=interrupted, ahead_of=ahead_of))

    # ---------------------------------------------------------------------------------------------- tools

    def called(self, utterance: int, call: ToolCall) -> None:
        """A call has begun: it will have a result. Told twice it is the same call."""
        reply = self._reply(utterance)
        if call.id in reply.calls:
            return
        own = self._own(call)
        if reply.calls:
            self.conversation = self.conversation.with_tool_calls(own, beside=next(iter(reply.calls.values())))
        else:
            self.conversation = _within(self.conversation, reply.exchange, lambda part: part.with_tool_calls(own))
        reply.calls[call.id] = own.id

    def result(self, utterance: int, call: ToolCall, text: str) -> None:
        """The result of a call, also of one that nobody has told of. A second result changes nothing."""
        reply = self._replies.get(utterance)
        if reply is None and self.conversation.find_call(call.id) is not None:
            known = call.id  # of a conversation that was carried on, or of long ago
        else:
            self.called(utterance, call)
            known = self._replies[utterance].calls[call.id]
        if any(call.id == known for call in self.conversation.open_calls):
            self.conversation = self.conversation.with_tool_result(known, text)

    def done(self, utterance: int) -> None:
        """All calls of a reply have been told of."""
        self._reply(utterance).is_done = True

    @property
    def follow_up_due(self) -> bool:
        """The calls of the last reply are all done, and nothing has taken its place: it is time to ask for the next."""
        if not self._is_live:
            return False
        reply = self._replies[self.utterance]
        pending = {call.id for call in self.conversation.open_calls}
        return reply.is_done and (bool(reply.calls) or self._goes_on) and pending.isdisjoint(reply.calls.values())

    def _own(self, call: ToolCall) -> ToolCall:
        """The call as the conversation can keep it: some models number each reply's calls anew, or write no JSON."""
        name, arguments = call.name or "unnamed", call.arguments
        if arguments.strip() and not is_object(arguments):
            arguments = msgspec.json.encode({"not_json": arguments}).decode()
        call_id, number = call.id, 1
        while not call_id or self.conversation.find_call(call_id) is not None:
            number += 1
            call_id = f"{call.id or 'call'}-{number}"
        return ToolCall(call_id, name, arguments)


def _times_spoken(conversation: Conversation) -> int:
    return sum(message.role == "user" for message in conversation.messages)


def _at_work(conversation: Conversation) -> str:
    """The id of an open call, if the conversation ends with the calls of tools."""
    for message in reversed(conversation.messages):
        if message.role != "tool" or message.pending:
            return message.call_id
    return ""


def _within(conversation: Conversation, exchange: int, change: Callable[[Conversation], Conversation]) -> Conversation:
    """``change`` at the end of an exchange: before what the caller said next."""
    messages = conversation.messages
    spoken = [index for index, message in enumerate(messages) if message.role == "user"]
    if exchange >= len(spoken):
        return change(conversation)
    end = spoken[exchange]
    return Conversation((*change(Conversation(messages[:end])).messages, *messages[end:]))
