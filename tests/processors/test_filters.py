"""What is taken out of a reply before it is spoken."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from voiceflow.processors.filters import Chain, Emoji, FilterMaker, Reasoning
from voiceflow.processors.markdown import Markdown


def run(text: str, maker: FilterMaker) -> str:
    """What comes out, which must be the same for the whole text and for its characters one at a time."""
    whole, one = maker(), maker()
    out = whole.push(text) + whole.flush()
    assert "".join(one.push(c) for c in text) + one.flush() == out
    return out


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("<think>3 < 5</think>Hello.", "Hello."),
        ("Hello<think>x</think>there", "Hello there"),
        ("Hello <think>x</think> there", "Hello there"),
        ("Hello<think>x</think>, there", "Hello, there"),
        ("<Thought a='b'>x</THOUGHT>y", "y"),
        ("<think/>y", "y"),
        ("a<think", "a"),
        ("a</thi", "a"),
        ("a <", "a <"),
        ("a <b", "a <b"),
        ("<thinker>x</thinker>", "<thinker>x</thinker>"),
        ("<think" + " x" * 60 + ">y", "<think" + " x" * 60 + ">y"),
        ("<<think>x</think>y", "< y"),
        ("<think>one</thinking>two</think>three", "three"),
        ("<think>one<think>two</think>three", "three"),
    ],
)
def test_reasoning_goes_with_its_tags(text: str, rest: str) -> None:
    """Blocks and their tags are taken out, and words on both sides stay apart; other tags and signs are text."""
    assert run(text, Reasoning) == rest


def test_a_reply_may_begin_inside_its_reasoning() -> None:
    """A model whose prompt opens the block writes the closing tag alone."""
    assert run("I wonder.</think>Yes.", lambda: Reasoning(begins_inside=True)) == "Yes."
    inside = Reasoning(begins_inside=True)
    assert [inside.push("a</think>b") + inside.flush() for _ in range(2)] == ["b", "b"]


def test_the_names_of_tags_are_an_option() -> None:
    """Other names are taken out, and the usual ones are not."""
    assert run("<plan>a</plan><think>b", lambda: Reasoning(("plan",))) == "<think>b"


def test_a_wrong_name_is_refused() -> None:
    """A name with brackets, and a string in place of names, are errors that say what to write."""
    with pytest.raises(ValueError, match="'<think>' is not a tag's name"):
        Reasoning(("<think>",))
    with pytest.raises(TypeError, match="tuple"):
        Reasoning("think")


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("Great! 😊 Now", "Great!  Now"),
        ("Hi😊there", "Hi there"),
        ("Done.✅Next", "Done. Next"),
        ("👩🏽‍🚀🇫🇷🏴󠁧󠁢󠁳󠁣󠁴󠁿❤️☎️", ""),
        ("1️⃣2️⃣", "12"),
        ("20° © ™ № 5 → € ½", "20° © ™ № 5 → € ½"),
        ("क्‍ष می‌خواهم", "क्‍ष می‌خواهم"),
        ("(😊)", "()"),
    ],
)
def test_emoji_go_and_what_is_read_stays(text: str, rest: str) -> None:
    """Pictures go with all that modifies them; signs, digits and the joiners of scripts stay."""
    assert run(text, Emoji) == rest


def test_a_chain_is_its_filters_one_behind_the_other() -> None:
    """What one lets through, the next sees; without any, text passes."""
    chain: FilterMaker = lambda: Chain((Reasoning, Markdown, Emoji))  # noqa: E731
    assert run("<think>**a**</think>**b😊**", chain) == "b"
    assert run("<think>a", Chain) == "<think>a"


def test_cleared_filters_are_as_new() -> None:
    """An interrupt in the middle of a block, a link or an emoji leaves nothing for the next reply."""
    chain = Chain((Reasoning, Markdown, Emoji))
    for begun in ("<think>a", "<thi", "[a", "**a", "```\na", "# a", "a😊"):
        chain.push(begun)
        chain.clear()
        assert chain.push("b *c* d") + chain.flush() == "b c d"


PARTS = ["<think>", "</think>", "<", ">", "/", "think", "thinking", " ", "a", "b.", "😊", "\u200d", "\ufe0f", "5", "*", "\n"]


@given(parts=st.lists(st.sampled_from(PARTS), max_size=30), cuts=st.lists(st.integers(0, 150), max_size=10))
@settings(deadline=None, max_examples=300)
def test_what_comes_out_does_not_depend_on_the_tokens(parts: list[str], cuts: list[int]) -> None:
    """Any chopping gives the same text, and nothing of a block is in it."""
    text = "".join(parts)
    places = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    for maker in (Reasoning, Emoji, lambda: Chain((Reasoning, Markdown, Emoji))):
        chopped = maker()
        assert "".join(chopped.push(text[a:b]) for a, b in pairwise(places)) + chopped.flush() == run(text, maker)
