"""Case B23: reasoning tags, split over tokens, are spoken."""

from __future__ import annotations

import pytest

from .text_rig import CHUNKINGS, TextCall, spoken

REPLIES = {
    "block": ("<think>I should say 3 < 5. </think>Hello there.", ["Hello there."]),
    "thinking": ("<thinking>I should say 3 < 5. </thinking>Hello there.", ["Hello there."]),
    "upper case": ("<THINK>I should say 3 < 5. </Think>Hello there.", ["Hello there."]),
    "two blocks": ("<think>First this. </think>Hello <think>Then <b>that</b>. </think>there.", ["Hello there."]),
    "with attributes": ('<think lang="en">Hm. </think >\n\nHello there.', ["Hello there."]),
    "another tag in it": ("<think>What does <thinking> mean? </think>Hello there.", ["Hello there."]),
    "a closing tag alone": ("</think>Hello there.", ["Hello there."]),
    "never closed": ("<think>I should say 3 < 5. Hello there.", []),
    "a block alone": ("<think>I should say nothing.</think>", []),
    "cut in the opening tag": ("Hello there. <thi", ["Hello there."]),
    "cut in the closing tag": ("<think>I should say nothing.</thin", []),
    "signs": ("a < b and c > d.", ["a < b and c > d."]),
    "other tags": ("Hello <thin>there.", ["Hello <thin>there."]),
}


@pytest.mark.parametrize("chunking", CHUNKINGS)
@pytest.mark.parametrize("name", REPLIES)
async def test_b23_nothing_of_a_block_is_spoken_or_remembered(name: str, chunking: str) -> None:
    """The voice is asked for the answer alone, however the reply is cut; the next turn is answered."""
    text, wanted = REPLIES[name]
    asked, remembered = await spoken(CHUNKINGS[chunking](text))
    assert asked == wanted
    assert " ".join(remembered).split() == " ".join([*wanted, "pong it is."]).split()


async def test_b23_tokens_as_a_model_cuts_them() -> None:
    """The tokens of the report: both tags are in two parts."""
    asked, _ = await spoken(["<th", "ink", ">I should say 3 < 5. ", "</th", "ink>", "Hello ", "there."])
    assert asked == ["Hello there."]


async def test_b23_a_turn_of_reasoning_alone_is_over_when_its_text_is() -> None:
    """The voice learns at once that there is nothing to say."""
    async with TextCall({"go on": ["<think>", "Never closed."]}) as call:
        await call.ask("go on")
    assert call.texts == []
    assert call.voice.ended == call.model.ended
