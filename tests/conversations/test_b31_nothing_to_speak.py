"""Case B31: nothing to speak, or far too much."""

from __future__ import annotations

import pytest

from voiceflow.processors.text import FILTERS, SplitterOptions

from .text_rig import CHUNKINGS, TextCall, spoken

SILENT = [
    "",
    "  \n",
    "...",
    "—",
    "😊",
    "()",
    "*",
    "👍🏽 🇫🇷",
    "***\n---",
    '<break time="1s"/>',
    "```\n```",
    "<think>Nothing.</think>",
    "[](https://x.example)",
]
MODES = ["clause", "sentence", "schedule", "token"]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("reply", SILENT)
async def test_b31_nothing_to_speak_makes_no_request_and_no_stuck_turn(reply: str, mode: str) -> None:
    """The voice is asked for nothing, learns in the same moment that the utterance is over, and speaks the next reply."""
    options = SplitterOptions(mode=mode)  # type: ignore[arg-type]
    for chunking in CHUNKINGS.values():
        async with TextCall({"go on": chunking(reply), "ping": ["pong."]}, options) as call:
            await call.ask("go on", 1.0)
            assert call.texts == []
            assert call.voice.ended[1] - call.model.ended[1] < 0.5
            await call.ask("ping", 1.0)
            assert call.sink.words() == ["pong."]
        assert call.errors.seen == []
        assert call.remembered == ["pong."]


@pytest.mark.parametrize("chunking", CHUNKINGS)
@pytest.mark.parametrize(
    ("reply", "wanted"),
    [
        ("5...", ["5..."]),
        ("No. — 👍 Bye.", ["No.", "—  Bye."]),
        ("1️⃣ one", ["1 one"]),
        ("Hi😊there", ["Hi there"]),
        ("Done!✅ Next.", ["Done!", "Next."]),
    ],
)
async def test_b31_little_to_speak_is_spoken(reply: str, wanted: list[str], chunking: str) -> None:
    """A digit or a word among marks and emoji is."""
    asked, _ = await spoken(CHUNKINGS[chunking](reply))
    assert asked == wanted


LONG = {
    "English": ("word " * 1200).strip(),
    "Chinese": "字" * 6000,
    "Thai": "กำลังเดิน" * 700,
    "Hindi": "नमस्ते" * 1000,
    "no spaces": "a" * 6000,
}


@pytest.mark.parametrize("filters", [FILTERS, ()], ids=["filtered", "as it is"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", LONG)
async def test_b31_text_without_a_mark_is_cut_below_the_limit(name: str, mode: str, filters: tuple) -> None:
    """In order, between words or characters; the first of it is asked for within a second of the first token."""
    text, options = LONG[name], SplitterOptions(mode=mode)  # type: ignore[arg-type]
    tokens = [text[i : i + 40] for i in range(0, len(text), 40)]
    async with TextCall({"go on": tokens}, options, filters, each_s=0.01, silent=True) as call:
        await call.ask("go on", 10.0)
    pieces = call.texts
    assert call.errors.seen == []
    assert "".join("".join(pieces).split()) == "".join(text.split())
    assert max(map(len, pieces)) <= max(options.limit(piece) for piece in range(9))
    assert call.voice.requests[0].at - 0.01 < 1.0
    if " " in text:
        assert {word for piece in pieces for word in piece.split()} == {"word"}
    assert not any(piece[0] in "\u093e\u0947\u094d\u0e33\u0e31" for piece in pieces), "a letter is parted from its vowel"


@pytest.mark.parametrize("mode", ["clause", "sentence", "schedule"])
async def test_b31_sentences_in_one_token_go_one_by_one(mode: str) -> None:
    """Five sentences at once are five requests."""
    sentences = ["One is here.", "Two is here!", "Is three here?", "Four is here.", "Five is here."]
    asked, _ = await spoken([" ".join(sentences)], SplitterOptions(mode=mode))  # type: ignore[arg-type]
    assert asked == sentences
