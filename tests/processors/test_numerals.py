"""Numbers in words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voiceflow.processors.numerals import cardinal, ordinal, say_decimal, say_whole, say_year


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (0, "zero"),
        (13, "thirteen"),
        (40, "forty"),
        (101, "one hundred one"),
        (1_000_000, "one million"),
        (12_012, "twelve thousand twelve"),
        (-7, "minus seven"),
        (10**15, "one " + " ".join(["zero"] * 15)),
    ],
)
def test_cardinals(number: int, words: str) -> None:
    """A number is read in words; beyond the trillions digit by digit."""
    assert cardinal(number) == words


@pytest.mark.parametrize(
    ("number", "words"), [(1, "first"), (12, "twelfth"), (20, "twentieth"), (23, "twenty third"), (100, "one hundredth")]
)
def test_ordinals(number: int, words: str) -> None:
    """A rank is read with its irregular last word."""
    assert ordinal(number) == words


@given(st.integers(0, 10**15 - 1), st.integers(0, 10**15 - 1))
def test_different_numbers_are_said_differently(one: int, other: int) -> None:
    """No two numbers share their words."""
    assert (cardinal(one) == cardinal(other)) == (one == other)


@pytest.mark.parametrize(
    ("figures", "words"),
    [("42", "forty two"), ("007", "zero zero seven"), ("1,000,001", "one million one"), ("1000000", "one million"), ("0", "zero")],
)
def test_whole_numbers(figures: str, words: str) -> None:
    """Figures are read as a number; codes digit by digit."""
    assert say_whole(figures) == words


@given(st.text(alphabet="0123456789٣", min_size=1, max_size=6000))
def test_figures_of_any_length_are_said(figures: str) -> None:
    """No figures are too long, and nothing but words comes of them."""
    assert say_whole(figures).replace(" ", "").isalpha()
    assert say_decimal(figures, figures).count("point") == 1


@pytest.mark.parametrize(
    ("figures", "words"),
    [
        ("1999", "nineteen ninety nine"),
        ("1905", "nineteen oh five"),
        ("2007", "two thousand seven"),
        ("2026", "twenty twenty six"),
        ("1500", "fifteen hundred"),
        ("3000", "three thousand"),
        ("12", "twelve"),
    ],
)
def test_years(figures: str, words: str) -> None:
    """Four figures of our centuries are read in pairs."""
    assert say_year(figures) == words
