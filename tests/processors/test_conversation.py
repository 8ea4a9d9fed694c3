from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from voiceflow import AudioClip, Image, Message, ToolCall
from voiceflow.processors.conversation import STILL_RUNNING, Conversation

WhyInvalid = Callable[[Sequence[Message]], str]

LOOK = ToolCall("c1", "look_up", '{"order": 7}')
ASK = ToolCall("c2", "ask", "{}")
PHOTO = Image("https://example.org/a.png", "a receipt")


def roles(conversation: Conversation) -> str:
    return "".join(message.role[0] for message in conversation.messages)


def test_a_conversation_is_never_changed() -> None:
    """Each method gives another conversation and leaves the first as it was."""
    first = Conversation()
    second = first.with_user("Hello")
    third = second.with_assistant_heard("Hi there", interrupted=True)
    assert first.messages == ()
    assert second.messages == (Message("user", "Hello"),)
    assert third.messages == (Message("user", "Hello"), Message("assistant", "Hi there", True))


@pytest.mark.parametrize("blank", ["", "  \n"])
def test_blank_text_is_no_message(blank: str) -> None:
    """Nothing said, nothing committed."""
    conversation = Conversation().with_user("Hello")
    assert conversation.with_user(blank) == conversation
    assert conversation.with_user(blank, continues=True) == conversation
    assert conversation.with_assistant_heard(blank, interrupted=True) == conversation
    assert conversation.with_tool_calls() == conversation


@pytest.mark.parametrize(
    ("text", "continues", "together"),
    [
        ("on sunday", False, "what time do you open on sunday"),
        ("what time do you open on sunday", True, "what time do you open on sunday"),
        ("what time", False, "what time do you open what time"),
        ("when are you open", True, "when are you open"),
    ],
)
def test_user_texts_in_a_row_are_one_message(text: str, continues: bool, together: str) -> None:
    """More words join those that nobody answered; a turn taken up again stands in place of its first text, whatever the words."""
    conversation = Conversation().with_user("what time do you open")
    assert conversation.with_user(text, continues=continues).messages == (Message("user", together),)


def test_what_was_answered_is_not_replaced() -> None:
    """Once the agent has said something, a turn that continues is a message of its own."""
    conversation = Conversation().with_user("a table").with_assistant_heard("One moment.").with_user("for four", continues=True)
    assert [m.text for m in conversation.messages] == ["a table", "One moment.", "for four"]


def test_what_the_caller_sends_belongs_to_what_they_say() -> None:
    """Images and sounds join the unanswered message, and stay when its text is replaced; alone they are a message."""
    clip = AudioClip("https://example.org/a.ogg", 3.0)
    conversation = Conversation().with_user(media=[PHOTO])
    assert conversation.messages == (Message("user", media=(PHOTO,)),)
    conversation = conversation.with_user("what is", [clip]).with_user("what is this", continues=True)
    assert conversation.messages == (Message("user", "what is this", media=(PHOTO, clip)),)


def test_assistant_texts_in_a_row_are_one_message() -> None:
    """A greeting and what follows it, with nothing said between, are one message; the last part says if it was cut."""
    conversation = Conversation().with_assistant_heard("Hello.", interrupted=True).with_assistant_heard("One moment.")
    assert conversation.messages == (Message("assistant", "Hello. One moment.", False),)


def test_a_call_stands_behind_what_was_said_and_before_its_result() -> None:
    """The result takes the place of its stand-in, and what is said then comes after it."""
    conversation = Conversation().with_user("where is it").with_assistant_heard("Let me see.").with_tool_calls(LOOK)
    assert conversation.messages[1:] == (
        Message("assistant", "Let me see.", calls=(LOOK,)),
        Message("tool", STILL_RUNNING, call_id="c1", pending=True),
    )
    assert conversation.open_calls == (LOOK,)
    done = conversation.with_tool_result("c1", "on its way").with_assistant_heard("It is on its way.")
    assert done.messages[2:] == (Message("tool", "on its way", call_id="c1"), Message("assistant", "It is on its way."))
    assert done.open_calls == ()
    assert done.find_call("c1") == LOOK
    assert done.find_call("c2") is None


def test_calls_of_one_reply_stand_together_however_late_they_come() -> None:
    """A sibling told later, and text heard later, join the message of their reply, also when the caller has spoken since."""
    conversation = Conversation().with_user("two things").with_tool_calls(LOOK).with_tool_result("c1", "seven").with_user("and?")
    conversation = conversation.with_tool_calls(ASK, beside="c1").with_assistant_heard("Sure.", before="c2").with_tool_result("c2", "yes")
    assert conversation.messages == (
        Message("user", "two things"),
        Message("assistant", "Sure.", calls=(LOOK, ASK)),
        Message("tool", "seven", call_id="c1"),
        Message("tool", "yes", call_id="c2"),
        Message("user", "and?"),
    )


@pytest.mark.parametrize(
    ("calls", "names"),
    [
        ([ToolCall("c1", "again")], r"calls\[0\]\.id: call 'c1' is there already"),
        ([ASK, ASK], r"calls\[1\]\.id: call 'c2' is there already"),
        ([ToolCall("", "x")], r"calls\[0\]\.id: empty"),
        ([ToolCall("c2", "")], r"calls\[0\]\.name: empty"),
        ([ToolCall("c2", "x", "[1]")], r"calls\[0\]\.arguments: not a JSON object"),
        ([ToolCall("c2", "x", '{"a": ')], r"calls\[0\]\.arguments: not a JSON object"),
        ([ToolCall("c2", "x", "[" * 100_000)], r"calls\[0\]\.arguments: not a JSON object"),
    ],
)
def test_a_call_that_no_model_would_take_is_refused(calls: list[ToolCall], names: str) -> None:
    """The error names the call and the field."""
    with pytest.raises(ValueError, match=names):
        Conversation().with_tool_calls(LOOK).with_tool_calls(*calls)


def test_a_call_without_arguments_has_none() -> None:
    """A model that writes nothing where no arguments are needed means an empty object."""
    assert Conversation().with_tool_calls(ToolCall("c1", "now", " ")).messages[0].calls[0].arguments == "{}"


def test_a_result_belongs_to_an_open_call() -> None:
    """A result without its call, or a second one, is refused and says which."""
    conversation = Conversation().with_tool_calls(LOOK).with_tool_result("c1", "")
    assert conversation.messages[1] == Message("tool", "", call_id="c1")
    with pytest.raises(ValueError, match="'c1' is no open call: it has its result"):
        conversation.with_tool_result("c1", "again")
    with pytest.raises(ValueError, match="'c2' is no open call: it was not made"):
        conversation.with_tool_result("c2", "what")
    with pytest.raises(ValueError, match="there is no call 'c2'"):
        conversation.with_assistant_heard("Hm.", before="c2")


# ------------------------------------------------------------------------------------------- any order of events

text = st.one_of(st.sampled_from(["", " ", "yes", "a b", "a b c"]), st.text(max_size=8))
event = st.one_of(
    st.tuples(st.just("user"), text, st.booleans(), st.sampled_from([(), (PHOTO,)])),
    st.tuples(st.just("heard"), text, st.booleans(), st.integers(0, 9)),
    st.tuples(st.just("call"), st.sampled_from(["{}", "", '{"a": "é"}']), st.integers(0, 9), st.integers(1, 3)),
    st.tuples(st.just("result"), text, st.integers(0, 9)),
)


def some_id(conversation: Conversation, choice: int, *, none_too: bool = False) -> str:
    ids = [call.id for message in conversation.messages for call in message.calls]
    return ([""] * none_too + ids)[choice % (len(ids) + none_too)] if ids else ""


def after(conversation: Conversation, happened: Any, number: int) -> Conversation:
    match happened:
        case "user", said, continues, media:
            return conversation.with_user(said, media, continues=continues)
        case "heard", said, interrupted, choice:
            return conversation.with_assistant_heard(said, interrupted=interrupted, before=some_id(conversation, choice, none_too=True))
        case "call", arguments, choice, count:
            calls = [ToolCall(f"c{number}-{i}", "tool", arguments) for i in range(count)]
            return conversation.with_tool_calls(*calls, beside=some_id(conversation, choice, none_too=True))
        case "result", said, choice:
            open_calls = conversation.open_calls
            return conversation.with_tool_result(open_calls[choice % len(open_calls)].id, said) if open_calls else conversation
    raise AssertionError(happened)


@given(events=st.lists(event, max_size=14))
@settings(deadline=None)
def test_whatever_happens_the_history_is_valid_and_survives_json(events: list[Any], why_invalid: WhyInvalid) -> None:
    """After any events, at any moment, the strictest model takes the history, and JSON brings all of it back."""
    conversation = Conversation()
    for number, happened in enumerate(events):
        before = roles(conversation)
        conversation = after(conversation, happened, number)
        assert why_invalid(conversation.messages) == ""
        assert Conversation(conversation.messages) == conversation  # as the constructor sees it, too
        assert len(roles(conversation)) >= len(before)
        assert {call.id for call in conversation.open_calls} == {m.call_id for m in conversation.messages if m.pending}
    assert Conversation.from_json(conversation.to_json()) == conversation
    assert Conversation.from_json(conversation.to_json().encode()) == conversation


@given(events=st.lists(event, max_size=10), data=st.data())
@settings(deadline=None)
def test_a_history_that_lost_a_message_is_valid_or_refused(events: list[Any], data: st.DataObject, why_invalid: WhyInvalid) -> None:
    """The constructor refuses exactly what a strict model would refuse."""
    conversation = Conversation()
    for number, happened in enumerate(events):
        conversation = after(conversation, happened, number)
    messages = list(conversation.messages)
    for _ in range(data.draw(st.integers(0, 2))):
        if messages:
            del messages[data.draw(st.integers(0, len(messages) - 1))]
    if len(messages) > 1 and data.draw(st.booleans()):
        messages.insert(0, messages.pop(data.draw(st.integers(0, len(messages) - 1))))
    if why_invalid(messages):
        with pytest.raises(ValueError, match=r"^\$\.messages"):
            Conversation(tuple(messages))
    else:
        assert Conversation(tuple(messages)).messages == tuple(messages)


# ------------------------------------------------------------------------------------------------ saved and broken

CALLS = [{"id": "a", "name": "f", "arguments": "{}"}, {"id": "b", "name": "f", "arguments": "{}"}]


@pytest.mark.parametrize(
    ("messages", "names"),
    [
        (3, r"\$\.messages: Expected `array`"),
        ([{"role": "bot", "text": "x"}], r"\$\.messages\[0\]\.role: 'bot'; it must be one of system, user, assistant, tool"),
        ([{"role": "user", "text": "x"}, {"role": "system", "text": "x"}], r"\$\.messages\[1\]\.role: a summary, 'system', can only"),
        ([{"text": "x"}], r"\$\.messages\[0\]: Object missing required field `role`"),
        ([{"role": "user", "text": " "}], r"\$\.messages\[0\]\.text: empty"),
        ([{"role": "user", "text": "x"}, {"role": "assistant"}], r"\$\.messages\[1\]\.text: empty"),
        ([{"role": "user", "text": "x", "interupted": True}], r"\$\.messages\[0\]: .*`interupted`"),
        ([{"role": "user", "text": "x", "interrupted": True}], r"\$\.messages\[0\]\.interrupted: a message of the user has none"),
        ([{"role": "user", "text": "x", "calls": CALLS}], r"\$\.messages\[0\]\.calls: a message of the user has none"),
        ([{"role": "assistant", "text": "x", "media": [{"type": "image", "url": "u"}]}], r"\$\.messages\[0\]\.media: a message of the ass"),
        ([{"role": "user", "media": [{"type": "film", "url": "u"}]}], r"\$\.messages\[0\]\.media\[0\]\.type: Invalid value 'film'"),
        ([{"role": "user", "media": [{"type": "audio", "url": "u", "seconds": "3"}]}], r"\$\.messages\[0\]\.media\[0\]\.seconds: Expected"),
        ([{"role": "user", "text": "x"}, {"role": "user", "text": "y"}], r"\$\.messages\[1\]: two messages of the user in a row"),
        (
            [{"role": "assistant", "calls": [{"id": "a", "name": "f", "arguments": "["}]}],
            r"\$\.messages\[0\]\.calls\[0\]\.arguments: not a",
        ),
        ([{"role": "assistant", "calls": [{"id": "a", "name": "f", "arguments": {}}]}], r"\$\.messages\[0\]\.calls\[0\]\.arguments: Expec"),
        ([{"role": "assistant", "calls": [{"id": "", "name": "f"}]}], r"\$\.messages\[0\]\.calls\[0\]\.id: empty"),
        ([{"role": "assistant", "calls": [{"id": "a", "name": ""}]}], r"\$\.messages\[0\]\.calls\[0\]\.name: empty"),
        ([{"role": "assistant", "calls": CALLS[:1] * 2}], r"\$\.messages\[0\]\.calls\[1\]\.id: call 'a' is there already"),
        ([{"role": "assistant", "calls": CALLS}, {"role": "tool", "call_id": "a"}], r"\$\.messages: call 'b' has no result"),
        (
            [{"role": "assistant", "calls": CALLS}, {"role": "tool", "call_id": "b"}, {"role": "tool", "call_id": "a"}],
            r"\$\.messages\[1\]: the result of call 'a' must stand here",
        ),
        ([{"role": "assistant", "calls": CALLS}, {"role": "user", "text": "x"}], r"\$\.messages\[1\]: the result of call 'a' must stand"),
        ([{"role": "tool", "call_id": "z", "text": "x"}], r"\$\.messages\[0\]\.call_id: 'z' is the result of no call"),
    ],
)
def test_a_malformed_saved_conversation_names_the_field(messages: object, names: str) -> None:
    """What is wrong with saved JSON is said with its place, broken order included."""
    with pytest.raises(ValueError, match=f"not a saved conversation: {names}"):
        Conversation.from_json(json.dumps({"version": 1, "messages": messages}))


@pytest.mark.parametrize(
    ("saved", "names"),
    [
        ("{", r"\$: .*truncated"),
        ("", r"\$: "),
        (b"\xff", r"\$: "),
        ("[]", r"\$: Expected `object`"),
        ("{}", r"\$: Object missing required field `version`"),
        ('{"version": 1}', r"\$: Object missing required field `messages`"),
        ('{"version": 2, "turns": []}', r"\$\.version: 2; this voiceflow reads 1"),
        ('{"version": "x", "messages": []}', r"\$\.version: Expected `int`"),
        ('{"version": 1, "messages": [], "massages": []}', r"\$: .*`massages`"),
    ],
)
def test_what_is_no_saved_conversation_says_so(saved: str | bytes, names: str) -> None:
    """Something else, or one of another version, is named as such."""
    with pytest.raises(ValueError, match=f"not a saved conversation: {names}"):
        Conversation.from_json(saved)


@given(value=st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=5), lambda inner: st.lists(inner) | st.dictionaries(
    st.sampled_from(["version", "messages", "role", "text", "calls", "id", "name", "arguments", "media"]), inner), max_leaves=12))  # fmt: skip
@settings(deadline=None)
def test_no_json_breaks_the_reading(value: object) -> None:
    """Whatever the file holds, it is a conversation or a ValueError with a place."""
    saved, error = msgspec.json.encode(value), ""
    try:
        conversation = Conversation.from_json(saved)
    except ValueError as refusal:
        error = str(refusal)
    if error:
        assert error.startswith("not a saved conversation: $")
    else:
        assert Conversation.from_json(conversation.to_json()) == conversation
