"""Numbers in words. The one rule: whatever its size or form, a number gets words.

The words are Unicode's own (CLDR's rules for spelling numbers out, by ``unicode-rbnf``, MIT); here stands only how figures
are read: as a number, as a year, or digit by digit. Figures are strings of decimal digits (of any script), with commas
between the thousands or without. English, as Americans say it: without hyphens, for the words are counted.
"""

from __future__ import annotations

import functools

from unicode_rbnf import FormatPurpose, RbnfEngine

__all__ = ["cardinal", "ordinal", "say_decimal", "say_digits", "say_whole", "say_year", "value"]

_TOO_LARGE = 10**15
_TOO_LARGE_DIGITS = 15


@functools.lru_cache(1)
def _english() -> RbnfEngine:
    return RbnfEngine.for_language("en")  # reads its rules from a file: 3 ms


@functools.lru_cache(4096)
def _spelled(number: int, purpose: FormatPurpose) -> str:
    return _english().format_number(number, purpose).text.replace("-", " ")


def cardinal(number: int) -> str:
    """``number`` in words: 121 is "one hundred twenty one". From 10**15 on it is read digit by digit."""
    if abs(number) >= _TOO_LARGE:
        return ("minus " if number < 0 else "") + say_digits(str(abs(number)))
    return _spelled(number, FormatPurpose.CARDINAL)


def ordinal(number: int) -> str:
    """``number`` as a rank: 21 is "twenty first". Of a number from 10**15 on, its digits."""
    return cardinal(number) if abs(number) >= _TOO_LARGE else _spelled(number, FormatPurpose.ORDINAL)


def value(figures: str) -> int:
    """The number; of what is too large to matter, 10**15 (and Python refuses to read very long figures)."""
    digits = figures.replace(",", "")
    return int(digits) if len(digits) <= _TOO_LARGE_DIGITS else _TOO_LARGE


def say_digits(digits: str) -> str:
    """Each digit by itself: 007 is "zero zero seven"."""
    return " ".join(_spelled(int(digit), FormatPurpose.CARDINAL) for digit in digits)


def say_whole(figures: str) -> str:
    """A whole number. One with a leading zero, and a long one without commas, is a code: it is read digit by digit."""
    digits = figures.replace(",", "")
    code = len(digits) >= 7 and "," not in figures and not digits.endswith("000")
    if code or len(digits) > _TOO_LARGE_DIGITS or (len(digits) > 1 and digits[0] == "0"):
        return say_digits(digits)
    return cardinal(int(digits))


def say_decimal(figures: str, fraction: str | None) -> str:
    """A number with the digits after its point, if any: 3 and 14 are "three point one four"."""
    return say_whole(figures) + (f" point {say_digits(fraction)}" if fraction else "")


def say_year(figures: str) -> str:
    """1999 is "nineteen ninety nine", 2007 "two thousand seven", 1500 "fifteen hundred"; other numbers as they are."""
    if len(figures) != 4 or not figures.isdecimal() or not (1100 <= int(figures) < 2000 or 2010 <= int(figures) < 2100):
        return say_whole(figures)
    return _spelled(int(figures), FormatPurpose.YEAR)
