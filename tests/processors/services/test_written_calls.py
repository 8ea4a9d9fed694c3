"""Calls that are written as text."""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voiceflow.messages import Message, ToolCall, ToolSpec
from voiceflow.processors.services.written_calls import LooseCalls, ReplyObject, reply_schema, with_written_calls

KNOWN = ("order_status", "book")
NUMBER = '{"number": 7}'
CALL = f'{{"name": "order_status", "arguments": {NUMBER}}}'


def said(reply: LooseCalls | ReplyObject, *pieces: str) -> tuple[str, list[tuple[str, str]]]:
    text = "".join(reply.feed(piece) for piece in pieces)
    left, calls = reply.close()
    return text + left, calls


@pytest.mark.parametrize(
    "text",
    [
        CALL,
        f"\n  {CALL}\n",
        f"```json\n{CALL}\n```",
        f"```\n{CALL}```",
        f"<tool_call>\n{CALL}\n</tool_call>",
        f"[TOOL_CALLS] [{CALL}]",
        f'<|python_tag|>{{"name": "order_status", "parameters": {NUMBER}}}',
        f'{{"type": "function", "function": {{"name": "order_status", "arguments": {NUMBER}}}}}',
        f"[{CALL}]",
    ],
)
def test_a_call_in_any_usual_dress_is_a_call_and_not_spoken(text: str) -> None:
    """Bare, fenced, or in the marks of a chat template; whole or by single characters."""
    for pieces in ([text], list(text)):
        assert said(LooseCalls(KNOWN), *pieces) == ("", [("order_status", NUMBER)])


def test_several_calls() -> None:
    """As many as were written."""
    text = f'<tool_call>{CALL}</tool_call>\n<tool_call>{{"name": "book", "arguments": {{}}}}</tool_call>'
    assert said(LooseCalls(KNOWN), text) == ("", [("order_status", NUMBER), ("book", "{}")])


@pytest.mark.parametrize(
    "text",
    ["Hello.", "", "  ", '{"name": "unknown", "arguments": {}}', "{curly} words", "```\ncode\n```", "[laughs] Hello.", f"{CALL} is what I would write", "<tool_call>{"],
)  # fmt: skip
def test_any_other_text_is_spoken_as_it_is(text: str) -> None:
    """Whatever it begins with, nothing is lost."""
    for pieces in ([text], list(text)):
        assert said(LooseCalls(KNOWN), *pieces) == (text, [])


def test_ordinary_text_is_not_held_back() -> None:
    """The first word is handed on when it comes; without tools, so is everything."""
    assert LooseCalls(KNOWN).feed("He") == "He"
    assert LooseCalls(KNOWN).feed(" He") == " He"
    assert LooseCalls(()).feed("{") == "{"


WORDS = st.text(st.characters(codec="utf-8"), max_size=30)


@given(WORDS, st.booleans(), st.lists(st.integers(0, 400), max_size=8))
def test_words_of_a_constrained_reply_come_whole_however_it_is_cut(words: str, escaped: bool, cuts: list[int]) -> None:
    """Escapes, and letters written as two of them, may be cut anywhere."""
    text = json.dumps({"say": words}, ensure_ascii=escaped)
    places = [0, *sorted(cut for cut in cuts if cut < len(text)), len(text)]
    assert said(ReplyObject(), *(text[a:b] for a, b in itertools.pairwise(places))) == (words, [])


def test_words_of_a_constrained_reply_are_streamed() -> None:
    """Each is there when it was written, before the object ends; blanks in the JSON do not matter."""
    reply = ReplyObject()
    assert [reply.feed(piece) for piece in ('{\n "s', 'ay" : "Hel', "lo \\", '"you', '\\"."', "\n}")] == [
        "",
        "Hel",
        "lo ",
        '"you',
        '".',
        "",
    ]


@pytest.mark.parametrize(
    ("text", "words", "calls"),
    [
        (f'{{"call": "book", "arguments": {NUMBER}}}', "", [("book", NUMBER)]),
        (f'{{"say": "One moment.", "call": "book", "arguments": {NUMBER}}}', "One moment.", [("book", NUMBER)]),
        (f'{{"call": "book", "arguments": {NUMBER}}}\n{{"call": "book"}}', "", [("book", NUMBER), ("book", "{}")]),
        ('{"call": "book", "argum', "", []),
        ('{"say": "I was cut o', "I was cut o", []),
        ("A server that knows no schema.", "A server that knows no schema.", []),
    ],
)
def test_calls_of_a_constrained_reply(text: str, words: str, calls: list[tuple[str, str]]) -> None:
    """Beside words or alone; half a call is neither a call nor spoken."""
    assert said(ReplyObject(), text) == (words, calls)


BOOK = ToolSpec(
    "book",
    "Book a table.",
    '{"type":"object","properties":{"at":{"$ref":"#/$defs/Place"}},"required":["at"],"$defs":{"Place":{"type":"object","properties":{}}}}',
)


def test_the_schema_has_a_shape_for_words_and_one_for_each_tool() -> None:
    """Definitions stand at the top, each under its tool's name, where references look for them."""
    schema = reply_schema([BOOK, ToolSpec("hang_up")])
    assert [list(shape["properties"]) for shape in schema["anyOf"]] == [["say"], ["call", "arguments"], ["call", "arguments"]]
    assert schema["anyOf"][1]["properties"]["arguments"]["properties"]["at"] == {"$ref": "#/$defs/book.Place"}
    assert list(schema["$defs"]) == ["book.Place"]


def test_the_model_is_shown_its_calls_as_it_writes_them() -> None:
    """Results are told as the caller's words; the tools stand in the instructions."""
    shown = with_written_calls(
        [
            Message("system", "Be kind."),
            Message("user", "book it"),
            Message("assistant", "One moment.", calls=(ToolCall("a", "book", NUMBER), ToolCall("b", "hang_up"))),
            Message("tool", "done", call_id="a"),
            Message("tool", "gone", call_id="b"),
            Message("assistant", "Done."),
        ],
        [BOOK],
    )
    assert [message.role for message in shown] == ["system", "user", "assistant", "user", "assistant"]
    assert "Be kind." in shown[0].text
    assert "book: Book a table." in shown[0].text
    assert shown[2].text == f'{{"say": "One moment."}}\n{{"call": "book", "arguments": {NUMBER}}}\n{{"call": "hang_up", "arguments": {{}}}}'
    assert shown[3].text == "book says: done\nhang_up says: gone"
    assert shown[4].text == '{"say": "Done."}'
    assert with_written_calls([Message("user", "hello")], [])[0].role == "system"
