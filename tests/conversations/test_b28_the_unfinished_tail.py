"""Case B28: the unfinished tail: never spoken, or spoken in the wrong turn."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from voiceflow import SayFrame

from .text_rig import CHUNKINGS, Broken, TextCall

FAREWELL = "That is all, farewell."
TAIL = "Second half unfin"


def replies(broken: bool) -> dict[str, Sequence[str]]:
    rest = [Broken(TAIL)] if broken else [TAIL, "ished, too."]
    return {"one": ["Your order is ", "on its way"], "two": ["First part done. ", *rest], "three": ["Sure."]}


@pytest.mark.parametrize("chunking", CHUNKINGS)
async def test_b28_a_tail_without_a_mark_is_spoken_when_the_reply_is_complete(chunking: str) -> None:
    """It is asked for in the same moment in which the model says that it has done."""
    async with TextCall({"one": CHUNKINGS[chunking]("Your order is on its way")}) as call:
        await call.ask("one")
    assert " ".join(call.texts) == "Your order is on its way"
    assert call.voice.requests[-1].at - call.model.ended[1] < 0.2
    assert call.sink.words() == ["Your", "order", "is", "on", "its", "way"]


@pytest.mark.parametrize("fault", ["interrupt", "error"])
@pytest.mark.parametrize("then", ["a turn", "a farewell", "the end", "a turn without text"])
async def test_b28_what_a_fault_left_is_never_spoken(fault: str, then: str) -> None:
    """Not in a later turn, not with what is said without the model, not at the end of the call."""
    words = replies(fault == "error") | {"nothing": ["..."]}
    async with TextCall(words, each_s=0.5) as call:
        await call.ask("one")
        if fault == "interrupt":
            await call.ask("two", 1.3)  # two tokens are out, the third is to come
            call.session.interrupt("the caller")
            await asyncio.sleep(1.0)
        else:
            await call.ask("two")
        if then == "a turn":
            await call.ask("three")
        if then == "a turn without text":
            await call.ask("nothing")
        if then != "the end":
            call.session.send_nowait(SayFrame(FAREWELL))
    assert not any("Second" in text or "unfin" in text for text in call.texts), call.texts
    later = {"a turn": ["Sure."]}.get(then, []) + ([] if then == "the end" else ["That is all,", "farewell."])
    assert call.texts == ["Your order is on its way", "First part done.", *later]
    if then != "the end":
        assert call.sink.words()[-4:] == FAREWELL.split()
    assert len(call.errors.seen) == (fault == "error")
    if then == "a turn":
        assert call.remembered == ["Your order is on its way", "First part done.", f"Sure. {FAREWELL}"]
