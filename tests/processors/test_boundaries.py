"""What a place in a text is."""

from __future__ import annotations

import pytest

from voiceflow.processors.boundaries import Reading, Verdict


def judge(text: str, here: int, *, final: bool = False) -> Verdict:
    reading = Reading()
    reading.text = text
    return reading.judge(here, final)


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("Hello. ", Verdict.SENTENCE),
        ("Dr. ", Verdict.NO),
        ("In 1987. ", Verdict.WAIT),
        ("In 1987. S", Verdict.SENTENCE),
        ("In 1987. s", Verdict.NO),
        ("Well, ", Verdict.CLAUSE),
        ("Wait... ", Verdict.WAIT),
        ("Wait... n", Verdict.CLAUSE),
        ("Wait... N", Verdict.SENTENCE),
        ("It weighs 5 lb. i", Verdict.NO),
        ("It weighs 5 lb. I", Verdict.SENTENCE),
        ("Im 19. J", Verdict.NO),
        ("« Non. »", Verdict.NO),
        ("Τι; ", Verdict.SENTENCE),
        ("what; ", Verdict.CLAUSE),
        ("ครับ ", Verdict.CLAUSE),
        ("ლარი ღირს. კ", Verdict.SENTENCE),
    ],
)
def test_the_space_behind_a_mark(text: str, verdict: Verdict) -> None:
    """What it is worth as soon as what stands behind it is known, and not before."""
    here = max(i for i, c in enumerate(text) if c.isspace() and not text[i + 1 : i + 3].startswith("»"))
    assert judge(text, here) is verdict


@pytest.mark.parametrize(
    ("text", "here", "verdict"),
    [
        ("你好。我", 3, Verdict.SENTENCE),
        ("你好，我", 3, Verdict.CLAUSE),
        ("「行こう！」と", 6, Verdict.CLAUSE),
        ("好……我", 3, Verdict.CLAUSE),
        ("گیا۔“", 4, Verdict.WAIT),
        ("گیا۔“ ", 4, Verdict.NO),
        ("他走了。“再", 4, Verdict.SENTENCE),
        ("3．5", 2, Verdict.NO),
        ("a.b", 2, Verdict.NO),
    ],
)
def test_the_place_behind_a_mark_that_needs_no_space(text: str, here: int, verdict: Verdict) -> None:
    """Marks of scripts without spaces, and closing quotes, which belong to the sentence before them."""
    assert judge(text, here) is verdict


def test_at_the_end_of_the_text_nothing_is_waited_for() -> None:
    """What cannot come any more is not there."""
    assert judge("In 1987. ", 8, final=True) is Verdict.SENTENCE
    assert judge("گیا۔“", 4, final=True) is Verdict.NO
    assert judge("Wait... ", 7, final=True) is Verdict.SENTENCE


def test_a_token_is_read_back_with_its_marks() -> None:
    """The word, number or address that ends at a place, vowel signs and all."""
    reading = Reading()
    reading.text = "see डॉ. (T.S. x@y.z"
    assert [reading.token(end) for end in (6, 12, len(reading.text))] == ["डॉ", "T.S", "x@y.z"]
