"""Case B26: full stops that do not end a sentence, and those that do."""

from __future__ import annotations

import re

import pytest

from voiceflow.processors.text import FILTERS, SplitterOptions

from .text_rig import CHUNKINGS, TextCall, spoken

# The text, what must not be cut, and after what it must be cut before the reply ends.
TEXTS = [
    ("She was born on May 4, 1987. Her brother came later.", ["May 4, 1987"], ["1987."]),
    ("It is $4.75 small and $1,299.99 large. Anything else?", ["4.75", "1,299.99"], ["large."]),
    ("It was 37.4°C, about 99.3°F.", ["37.4", "99.3"], []),
    ("Es sind 17,5 Grad. Gut.", ["17,5"], ["Grad."]),
    ("Dr. Lane read T.S. Eliot at 5 p.m. on Friday. They left.", ["Dr. Lane", "T.S. Eliot", "5 p.m."], ["Friday."]),
    (
        "Write to ana.lima@example.com or see https://docs.example.com/a.b?x=1.2 now. Thanks!",
        ["ana.lima@example.com", "https://docs.example.com/a.b?x=1.2"],
        ["now."],
    ),
    ("Wait... what? No!! Really?!", ["..."], ["what?"]),
    ("1. Apples\n2. Pears\n3. Plums", ["1. Apples", "2. Pears", "3. Plums"], ["1. Apples", "2. Pears"]),
    ('<rate value="0.95"/>Hello there. Bye.', ['<rate value="0.95"/>'], ["there."]),
    ('`<rate value="0.95"/>`Hello there. Bye.', ['<rate value="0.95"/>'], ["there."]),
    ("Version 2.0.1 is out. Update at 10.30.", ["2.0.1", "10.30"], ["out."]),
]
MODES = {
    "clause": SplitterOptions(),
    "sentence": SplitterOptions(mode="sentence"),
    "schedule": SplitterOptions(mode="schedule"),
}


def bare(text: str) -> str:
    return "".join(text.replace("`", "").split())


@pytest.mark.parametrize("filters", [FILTERS, ()], ids=["filtered", "as it is"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("text", "whole", "ends"), TEXTS, ids=[str(n) for n, _ in enumerate(TEXTS)])
async def test_b26_cut_where_a_sentence_ends_and_nowhere_else(
    text: str, whole: list[str], ends: list[str], mode: str, filters: tuple
) -> None:
    """Nothing that belongs together is cut, every sentence is, and the pieces are the text; however it is fed."""
    fed = [await spoken(chunk(text), MODES[mode], filters) for chunk in CHUNKINGS.values()]
    pieces = fed[0][0]
    assert all(asked == pieces for asked, _ in fed)
    assert bare("".join(pieces)) == bare(text)
    for inside in whole:
        assert any(inside in piece for piece in pieces), f"{inside!r} is cut: {pieces}"
    for end in ends:
        assert any(piece.endswith(end) for piece in pieces), f"no cut after {end!r}: {pieces}"
    for piece in pieces:
        assert re.search(r"\w", re.sub(r"<[^>]*>", "", piece)), f"only marks: {pieces}"
        assert not re.fullmatch(r"\W*\d+\.\W*", piece), f"a list number alone: {pieces}"


@pytest.mark.parametrize("chunking", CHUNKINGS)
@pytest.mark.parametrize(("text", "whole", "ends"), TEXTS, ids=[str(n) for n, _ in enumerate(TEXTS)])
async def test_b26_a_sentence_is_spoken_before_the_reply_ends(text: str, whole: list[str], ends: list[str], chunking: str) -> None:
    """What is complete goes to the voice while the model still writes."""
    async with TextCall({"go on": CHUNKINGS[chunking](f"{text} And so on it goes until")}, each_s=0.01) as call:
        await call.ask("go on", 20.0)
    early = [request.text for request in call.voice.requests if chunking == "whole" or request.at < call.model.ended[1]]
    assert [end for end in ends if not any(piece.endswith(end) for piece in early)] == []
