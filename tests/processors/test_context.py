from __future__ import annotations

import asyncio
import json
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from voiceflow import (
    ContextFrame,
    Frame,
    Heard,
    Interruption,
    Message,
    PlaybackStopped,
    SayFrame,
    Session,
    TurnEnded,
)
from voiceflow.processors.context import Context, Conversation
from voiceflow.processors.text import Sentences
from voiceflow.testing import Latency, RecordingSink, ScriptedLLM, ScriptedTTS, check_processor, run_virtual

# ------------------------------------------------------------------------------------------ the conversation


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
    assert conversation.with_assistant_heard(blank) == conversation


@pytest.mark.parametrize(
    ("first", "second", "together"),
    [
        ("what time do you open", "on sunday", "what time do you open on sunday"),
        ("what time do you open", "what time do you open on sunday", "what time do you open on sunday"),
        ("What time do you", "what time do you open?", "what time do you open?"),
        ("no", "nothing", "no nothing"),
        ("?", "hello", "? hello"),
    ],
)
def test_user_texts_in_a_row_are_one_message(first: str, second: str, together: str) -> None:
    """More words join those that nobody answered; a reopened turn, which holds the old words, takes their place."""
    assert Conversation().with_user(first).with_user(second).messages == (Message("user", together),)


def test_assistant_texts_in_a_row_are_one_message() -> None:
    """A greeting and what follows it, with nothing said between, are one message; the last part says if it was cut."""
    conversation = Conversation().with_assistant_heard("Hello.", interrupted=True).with_assistant_heard("One moment.")
    assert conversation.messages == (Message("assistant", "Hello. One moment.", False),)


said = st.lists(st.tuples(st.sampled_from(["user", "assistant"]), st.text(max_size=12), st.booleans()), max_size=12)


@given(said=said)
@settings(deadline=None)
def test_any_conversation_alternates_and_survives_json(said: list[tuple[str, str, bool]]) -> None:
    """Whatever is committed, roles alternate, no text is empty, and JSON brings all of it back."""
    conversation = Conversation()
    for role, text, interrupted in said:
        conversation = conversation.with_user(text) if role == "user" else conversation.with_assistant_heard(text, interrupted=interrupted)
    roles = [message.role for message in conversation.messages]
    assert all(a != b for a, b in pairwise(roles))
    assert all(message.text.strip() for message in conversation.messages)
    assert Conversation.from_json(conversation.to_json()) == conversation


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ({"version": 2}, "version is 2"),
        ({"version": "x"}, r"\$\.version"),
        ({"messages": [{"role": "bot", "text": "x"}]}, r"messages\[0\].role is 'bot'"),
        ({"messages": [{"role": "user", "text": " "}]}, r"messages\[0\].text is empty"),
        ({"messages": [{"role": "user", "text": "x"}, {"role": "user"}]}, r"messages\[1\]"),
        ({"messages": 3}, r"\$\.messages"),
        ({"massages": []}, "massages"),
    ],
)
def test_a_malformed_saved_conversation_names_the_field(change: dict[str, object], names: str) -> None:
    """What is wrong with saved JSON is said with its place."""
    with pytest.raises(ValueError, match=names):
        Conversation.from_json(json.dumps({"version": 1, "messages": []} | change))
    with pytest.raises(ValueError, match="not a saved conversation"):
        Conversation.from_json("{")


# -------------------------------------------------------------------------------------------------- the node


def process(context: Context, frame: TurnEnded | PlaybackStopped) -> list[Frame]:
    return list(context.process(frame))


def heard(utterance: int, text: str, *, complete: bool = True) -> PlaybackStopped:
    return PlaybackStopped(heard=Heard(utterance, text, complete))


def cut(*parts: Heard) -> Interruption:
    return Interruption("test", 1, 0.0, heard=list(parts))


def test_a_turn_asks_for_a_reply() -> None:
    """The request holds the instructions and all that was said, and replies are counted from 1."""
    context = Context("Be brief.")
    system = Message("system", "Be brief.")
    assert process(context, TurnEnded(text="Hello")) == [ContextFrame(messages=(system, Message("user", "Hello")), utterance=1)]
    report = heard(1, "Hi there.")
    assert process(context, report) == [report]
    asked = process(context, TurnEnded(text="Bye"))
    assert asked == [
        ContextFrame(messages=(system, Message("user", "Hello"), Message("assistant", "Hi there."), Message("user", "Bye")), utterance=2)
    ]


def test_a_blank_turn_asks_for_nothing() -> None:
    """A turn without words makes no request."""
    assert process(Context(), TurnEnded(text=" ")) == []


def test_a_saved_conversation_goes_on() -> None:
    """A context can begin where another ended."""
    saved = Conversation().with_user("Hello").with_assistant_heard("Hi").to_json()
    asked = process(Context(conversation=Conversation.from_json(saved)), TurnEnded(text="Where were we"))
    assert isinstance(asked[0], ContextFrame)
    assert [m.text for m in asked[0].messages] == ["Hello", "Hi", "Where were we"]


def test_an_interrupted_reply_is_kept_as_far_as_it_was_heard() -> None:
    """What the interrupt says was heard is committed, marked as cut; what comes later about it is not."""
    context = Context()
    process(context, TurnEnded(text="Tell me"))
    context.on_interrupt(cut(Heard(1, "Once upon", complete=False)))
    process(context, heard(1, "Once upon a", complete=False))
    assert context.conversation.messages[1:] == (Message("assistant", "Once upon", True),)


def test_an_interrupt_before_the_first_word_commits_nothing() -> None:
    """A reply of which nothing was heard never was; the next turn joins the question it left open."""
    context = Context()
    process(context, TurnEnded(text="what time do you open"))
    context.on_interrupt(cut(Heard(1, "", complete=False)))
    asked = process(context, TurnEnded(text="on sunday"))
    assert asked == [ContextFrame(messages=(Message("user", "what time do you open on sunday"),), utterance=2)]


def test_only_one_reply_is_under_way() -> None:
    """A turn that ends while a reply is being made interrupts it before asking for another."""
    context = Context()
    process(context, TurnEnded(text="one"))
    kinds = [type(frame).__name__ for frame in process(context, TurnEnded(text="two"))]
    assert kinds == ["InterruptFrame", "ContextFrame"]
    process(context, heard(2, "Here you are."))
    assert [type(frame).__name__ for frame in process(context, TurnEnded(text="three"))] == ["ContextFrame"]


def test_two_sinks_that_report_the_same_reply_commit_it_once() -> None:
    """A report that comes again is not said again; a reply that was cut in two by a say is kept whole."""
    context = Context()
    process(context, TurnEnded(text="one"))
    process(context, heard(1, "First half."))
    process(context, heard(1, "First half."))
    process(context, heard(0, "One moment."))
    process(context, heard(1, "Second half."))
    assert context.conversation.messages[1].text == "First half. One moment. Second half."


def test_what_is_said_without_being_asked_for_is_kept_each_time() -> None:
    """Sayings have no number, and none is taken for another."""
    context = Context()
    process(context, heard(0, "Hello."))
    process(context, TurnEnded(text="hi"))
    process(context, heard(0, "Hello."))
    assert [m.text for m in context.conversation.messages] == ["Hello.", "hi", "Hello."]


STORY = "One two three four five six seven. " * 5


def conversation_after(interrupt_at: float | None, *, say: bool = False, end_at: float = 9.0) -> tuple[Conversation, list[str]]:
    """Run one reply and interrupt it so long after its first sound; the conversation, and the words the sink played."""
    context, sink = Context(), RecordingSink()
    llm = ScriptedLLM(lambda messages: STORY, Latency(0.05, 0.001))
    pipeline = context >> llm >> Sentences() >> ScriptedTTS() >> sink

    async def main() -> list[str]:
        session = Session(pipeline, inputs=[TurnEnded, SayFrame])
        async with session:
            await session.send(SayFrame(STORY) if say else TurnEnded(text="go"))
            while not sink.heard():
                await asyncio.sleep(0.01)
            first = sink.heard()[0].at
            if interrupt_at is None:
                await asyncio.sleep(end_at)
            else:
                await asyncio.sleep(first + interrupt_at - session.time())
                session.interrupt("test")
            return sink.words()

    words = run_virtual(main())
    return context.conversation, words


@pytest.mark.parametrize("say", [False, True])
def test_b14_b15_the_context_holds_the_words_that_were_heard(say: bool) -> None:
    """Interrupted after 1.25 s of 100 ms words the message has the words heard; unheard ones never enter it."""
    conversation, words = conversation_after(1.25, say=say)
    message = conversation.messages[-1]
    assert message.role == "assistant"
    assert message.interrupted
    assert message.text.split() == words
    assert 11 <= len(words) <= 13


def test_b14_an_interrupt_right_at_the_first_sound_leaves_no_message() -> None:
    """30 ms of the first word are not a word."""
    assert conversation_after(0.03)[0].messages == (Message("user", "go"),)


def test_a_reply_that_is_heard_out_is_kept_whole() -> None:
    """Without an interrupt the message is the reply."""
    conversation, _ = conversation_after(None)
    assert conversation.messages[-1] == Message("assistant", STORY.strip())


def test_context_passes_the_conformance_kit() -> None:
    """Strangers pass, interrupts leave nothing behind, slow and failing neighbours change nothing."""
    check_processor(Context, [TurnEnded(text="hello")])
