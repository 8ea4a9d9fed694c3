"""The smallest questions about characters."""

from __future__ import annotations

import pytest

from voiceflow.processors.marks import (
    CLAUSES,
    ENDS,
    ENDS_TIGHT,
    is_greek,
    is_letter,
    is_lower,
    is_spoken,
    is_unspaced,
    is_wide,
    joins,
    pauses_at_spaces,
    spoken_words,
)


def test_scripts_are_told_apart() -> None:
    """Which put spaces between words, which between clauses, which begin sentences with capitals."""
    assert [c for c in "aя字かカ한ไ" if is_unspaced(c)] == ["字", "か", "カ"]
    assert [c for c in "a字한ไ" if is_wide(c)] == ["字", "한"]
    assert [c for c in "a字ไລမខ" if pauses_at_spaces(c)] == ["ไ", "ລ", "မ", "ខ"]
    assert [c for c in "aAяαა字" if is_lower(c)] == ["a", "я", "α"]
    assert [c for c in "aαᾶя" if is_greek(c)] == ["α", "ᾶ"]
    assert all(map(is_letter, "a5ाำ字"))
    assert not any(map(is_letter, " .-😊"))


@pytest.mark.parametrize(
    ("before", "after"),
    [("न", "म"), ("字", "字"), ("ก", "ม"), ("a", " "), ("é", "é")],
    ids=["Hindi", "Chinese", "Thai", "space", "accents"],
)
def test_between_letters_may_be_cut(before: str, after: str) -> None:
    """If nothing holds them together."""
    assert not joins(before, after)


@pytest.mark.parametrize(
    ("before", "after"),
    [("न", "ा"), ("\u094d", "त"), ("เ", "ก"), ("ก", "ะ"), ("e", "\u0301"), ("👩", "\u200d"), ("\u200d", "🚀"), ("a", "b")],
)
def test_a_letter_and_what_belongs_to_it_stay_together(before: str, after: str) -> None:
    """A vowel sign, a joined consonant, a vowel written before or behind, an accent, an emoji, a Latin word."""
    assert joins(before, after)


def test_the_ends_of_sentences_of_many_scripts_are_known() -> None:
    """Marks that need no space are ends; a mark ends a sentence or a clause, and not both."""
    assert ENDS_TIGHT < ENDS
    assert not ENDS & CLAUSES
    assert set("。！？؟۔।॥։።፧។။") <= ENDS_TIGHT


def test_speech_is_letters_and_digits_outside_tags() -> None:
    """Nothing else can be spoken."""
    assert [t for t in ("a", "5", "字", "...", "😊", '<a b="c">', "<a>b") if is_spoken(t)] == ["a", "5", "字", "<a>b"]


def test_words_are_compared_without_case_and_marks() -> None:
    """As turn taking compares two transcripts."""
    assert spoken_words("Don't, 'stop' — it's ÜBER-cool!") == ("don't", "stop", "it's", "über-cool")
