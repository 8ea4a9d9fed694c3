"""How written words are said."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voiceflow.processors.spoken import say


def said(text: str) -> str:
    return " | ".join(spoken for _, spoken in say(text))


@pytest.mark.parametrize(
    ("written", "spoken"),
    [
        ("$12.50,", "twelve dollars and fifty cents ,"),
        ("$1.00", "one dollar"),
        ("$0.99", "ninety nine cents"),
        ("£1.01.", "one pound and one penny ."),
        ("$3k", "three thousand dollars"),
        ("$5 million", "five | million dollars"),
        ("$1.5 billion.", "one point five | billion dollars ."),
        ("3:45 pm", "three forty five | P M"),
        ("3:00", "three o'clock"),
        ("3:00 p.m.", "three | P M ."),
        ("9:05", "nine oh five"),
        ("8am", "eight A M"),
        ("I am. Here", "i | am . | here"),
        ("October 21st", "october | twenty first"),
        ("1999", "nineteen ninety nine"),
        ("2007", "two thousand seven"),
        ("1990s", "nineteen nineties"),
        ("1,234,567", "one million two hundred thirty four thousand five hundred sixty seven"),
        ("1500 people", "fifteen hundred | people"),
        ("12345678", "one two three four five six seven eight"),
        ("007", "zero zero seven"),
        ("555-1234", "five five five , one two three four"),
        ("10-15%", "ten to fifteen percent"),
        ("3.14", "three point one four"),
        ("-5", "minus five"),
        ("50%!", "fifty percent !"),
        ("1/2", "one half"),
        ("20°C", "twenty degrees celsius"),
        ("10km", "ten kilometers"),
        ("1kg", "one kilogram"),
        ("65mph", "sixty five miles per hour"),
        ("#1", "number one"),
        ("R&D", "R and D"),
        ("Dr. Smith", "doctor | smith"),
        ("St. James St. now", "saint | james | street | now"),
        ("J. Smith", "J | smith"),
        ("e.g. this", "for example | this"),
        ("FBI, NASA", "F B I , | nasa"),
        ("USA's", "U S A 's"),
        ("A dog", "a | dog"),
        ("plan A.", "plan | A ."),
        ("B52", "B fifty two"),
        ("a@b.com", "a at b dot com"),
        ("and/or", "and or"),
        ('"Hello," she', "hello , | she"),
        ("(quietly) — then", "quietly , |  | then"),
        ("word—another", "word , another"),
        ("well...", "well ."),
        ("why?!", "why ?"),
        ("don’t", "don't"),
        ("１２", "twelve"),
        ("😊 … —", " |  | "),
    ],
)
def test_written_words_are_said_as_people_read_them(written: str, spoken: str) -> None:
    """Numbers, money, times, dates, abbreviations and signs become the words a reader would say."""
    assert said(written) == spoken


@given(st.text())
def test_each_written_word_has_one_entry(text: str) -> None:
    """What stands between white space gives one entry, as written, whatever the text."""
    assert [written for written, _ in say(text)] == text.split()


@given(st.text(alphabet="0123456789.,:;-–/$£€%°'()apmkKst +#x"))
def test_no_digit_is_left_to_be_said(text: str) -> None:
    """Whatever figures are thrown together, what is said for them has no figure and no sign in it."""
    assert not any(c.isdigit() or c in "$£€%°/-+#" for _, spoken in say(text) for c in spoken)
