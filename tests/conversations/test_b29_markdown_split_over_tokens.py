"""Case B29: Markdown split over tokens."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from voiceflow.processors.text import Markdown

from .text_rig import CHUNKINGS, spoken

REPLIES = {
    "emphasis": ("Hello **Robert**! Speak *softly*.", ["Hello Robert!", "Speak softly."]),
    "headings": ("# Title\n\n## Sub\nText.", ["Title", "Sub", "Text."]),
    "headings in small letters": ("# title\nunder it\n## sub ##\nmore", ["title", "under it", "sub", "more"]),
    "lists": ("- one\n* two\n1. three", ["one", "two", "1. three"]),
    "in brackets": ("(**2**) to cancel", ["(2) to cancel"]),
    "beside marks": ('**"Yes,"** he said, **really**? *(Quite.)*', ['"Yes," he said,', "really?", "(Quite.)"]),
    "a name": ("call snake_case_name", ["call snake_case_name"]),
    "sums": ("7 * 6 = 42 and y**3", ["7 * 6 = 42 and y**3"]),
    "link": ("See [our site](https://x.example/a_(b)) now.", ["See our site now."]),
    "image": ("![a red door](door.png) is it.", ["a red door is it."]),
    "fence": ("Run this:\n```python\nx = a*b*c\n```\nDone.", ["Run this:", "x = a*b*c", "Done."]),
    "code": ("Use `*a* b_c` here.", ["Use *a* b_c here."]),
    "lone mark": ("Hello there *", ["Hello there"]),
    "lone mark before a line's end": ("Hello there *\nAnd more.", ["Hello there", "And more."]),
    "rule": ("Above.\n\n---\n\nBelow.", ["Above.", "Below."]),
    "underlined": ("Title\n=====\nText.", ["Title", "Text."]),
    "quotation": ("> **Note** this\n> as well.", ["Note this", "as well."]),
    "table": ("| A | B |\n|---|--:|\n| 1 | **2** |\n", ["A, B", "1, 2"]),
    "boxes": ("- [ ] milk\n- [x] bread", ["milk", "bread"]),
    "escaped": (r"Press \*9 or \#.", ["Press *9 or #."]),
    "tag": ('Wait <break time="1.5 s"/> *here*.', ['Wait <break time="1.5 s"/> here.']),
    "struck out": ("It is ~~five~~ six, ~ten at most.", ["It is five six,", "~ten at most."]),
    "Chinese": ("这是**重点**内容。**“好”**吧。", ["这是重点内容。", "“好”吧。"]),
    "footnote": ("So it is.[^1]", ["So it is."]),
}


@pytest.mark.parametrize("chunking", CHUNKINGS)
@pytest.mark.parametrize("name", REPLIES)
async def test_b29_no_mark_is_spoken_and_every_word_is(name: str, chunking: str) -> None:
    """The same for every chunking; the conversation holds what was heard, without the marks."""
    text, wanted = REPLIES[name]
    asked, remembered = await spoken(CHUNKINGS[chunking](text))
    assert asked == wanted
    assert " ".join(remembered).split() == " ".join([*wanted, "pong it is."]).split()


async def test_b29_tokens_as_a_model_cuts_them() -> None:
    """The tokens of the report."""
    asked, _ = await spoken(["Hello **Rob", "ert**! Speak *sof", "tly*."])
    assert asked == ["Hello Robert!", "Speak softly."]


MARKS = [
    "*",
    "**",
    "_",
    "~~",
    "`",
    "```",
    "#",
    "# ",
    "- ",
    "1. ",
    "> ",
    "|",
    "[",
    "](",
    ")",
    "!",
    "<b>",
    "\\",
    "\n",
    " ",
    "word",
    "5",
    "重",
    ".",
]


@given(pieces=st.lists(st.sampled_from(MARKS), max_size=40), cuts=st.lists(st.integers(0, 120), max_size=12))
@settings(deadline=None, max_examples=400)
def test_b29_what_comes_out_does_not_depend_on_the_tokens(pieces: list[str], cuts: list[int]) -> None:
    """Any chopping of any marks gives the same text, and no word of it is lost."""
    text = "".join(pieces)
    places = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    chopped = [text[a:b] for a, b in itertools.pairwise(places)]
    whole = filtered([text])
    assert filtered(chopped) == filtered(list(text)) == whole
    if not {"[", "```", "|"} & set(pieces):  # an address and a fence's first line are not spoken
        assert whole.count("word") == text.count("word")


def filtered(parts: list[str]) -> str:
    markdown = Markdown()
    return "".join(markdown.push(part) for part in parts) + markdown.flush()
