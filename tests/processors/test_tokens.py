from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from voiceflow import AudioClip, Image, Message, ToolCall, ToolSpec
from voiceflow.processors.conversation import Conversation
from voiceflow.processors.tokens import Spent, TokenMeter, estimate_tokens, newest_exchanges


@pytest.mark.parametrize(
    ("message", "least", "most"),
    [
        (Message("user", ""), 1, 6),
        (Message("user", "What is the capital of Australia?"), 8, 16),  # 7 and the marks of a chat format, by several tokenizers
        (Message("user", "澳大利亚的首都是哪里"), 8, 16),
        (Message("assistant", calls=(ToolCall("call_1", "look_up_order", '{"order": 7, "customer": "Ada"}'),)), 12, 24),
        (Message("user", media=(Image("data:image/png;base64," + "A" * 100_000),)), 250, 1700),
        (Message("user", media=(AudioClip("https://example.org/a.ogg", 10.0),)), 100, 400),
        (Message("user", "\ud800"), 1, 8),
    ],
)
def test_an_estimate_is_of_the_right_size(message: Message, least: int, most: int) -> None:
    """Text by its length, calls with their arguments, media by what hosted models count, however long the URL."""
    assert least <= estimate_tokens(message) <= most


def test_the_model_puts_the_estimate_right() -> None:
    """After a reply has said what its prompt took, the same prompt is counted so, and others in proportion."""
    meter = TokenMeter(lambda message: len(message.text))
    asked = (Message("user", "x" * 100),)
    assert meter.tokens(asked) == 100
    meter.asked(1, asked)
    meter.used(1, 150, 20)
    assert meter.tokens(asked) == 150
    assert meter.tokens((*asked, *asked)) == 300
    assert meter.spent == Spent(150, 20, 1)
    meter.used(2, 10, 5)  # of a request that nobody told of: counted, but it says nothing of the estimate
    assert meter.tokens(asked) == 150
    assert meter.spent == Spent(160, 25, 2)


def test_tools_are_part_of_a_request() -> None:
    """What the model is told of its tools takes tokens, too."""
    meter = TokenMeter()
    spec = ToolSpec("look_up", "x" * 380)
    assert meter.tokens((), (spec,)) >= 95


@pytest.mark.parametrize(("prompt", "scale"), [(1, 0.5), (10_000, 4.0), (0, 1.0)])
def test_what_cannot_be_true_of_the_estimate_is_bounded(prompt: int, scale: float) -> None:
    """A model that was shown something else does not make nonsense of the estimate."""
    meter = TokenMeter(lambda message: 100)
    meter.asked(1, (Message("user", "x"),))
    meter.used(1, prompt, 0)
    assert meter.scale == scale


def test_requests_without_a_report_are_forgotten() -> None:
    """A model that never says what a reply cost fills no memory."""
    meter = TokenMeter()
    for number in range(1000):
        meter.asked(number, (Message("user", "x"),))
    assert len(meter._asked) <= 16


def talk(exchanges: int) -> Conversation:
    conversation = Conversation().with_assistant_heard("Hello.")
    for number in range(exchanges):
        conversation = conversation.with_user(f"question {number}").with_tool_calls(ToolCall(f"c{number}", "f"))
        conversation = conversation.with_tool_result(f"c{number}", "x").with_assistant_heard(f"answer {number}")
    return conversation


def test_the_newest_exchanges_are_kept_whole() -> None:
    """What fits is kept from the end, beginning with what the caller said; the rest is left out."""
    short = newest_exchanges(talk(10), 13, lambda c: len(c.messages))
    assert short.messages == talk(10).messages[-12:]
    assert short.messages[0].text == "question 7"


@given(exchanges=st.integers(0, 12), limit=st.integers(0, 60), open_call=st.booleans())
@settings(deadline=None)
def test_shortening_never_parts_a_call_from_its_result(exchanges: int, limit: int, open_call: bool) -> None:
    """The result is a valid conversation that ends as the whole does, within the limit unless the last exchange alone is longer."""
    whole = talk(exchanges)
    if open_call:
        whole = whole.with_user("and now").with_tool_calls(ToolCall("open", "f"))

    def count(conversation: Conversation) -> int:
        return sum(map(estimate_tokens, conversation.messages))

    short = newest_exchanges(whole, limit, count)
    assert short.messages == whole.messages[len(whole.messages) - len(short.messages) :]
    assert Conversation(short.messages) == short
    assert short.open_calls == whole.open_calls
    users = [m for m in short.messages if m.role == "user"]
    assert count(short) <= limit or len(users) <= 1
    longer = whole.messages[: len(whole.messages) - len(short.messages)]
    if count(short) <= limit and longer and users:  # and not one exchange less than it could be
        begin = max((i for i, m in enumerate(longer) if m.role == "user"), default=0)
        if longer[begin].role == "user":
            assert count(Conversation(whole.messages[begin:])) > limit
