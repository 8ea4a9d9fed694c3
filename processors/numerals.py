"""Numbers in English words, as Americans say them. The one rule: whatever its size or form, a number gets words.

Figures are strings of decimal digits (of any script), with commas between the thousands or without.
"""

from __future__ import annotations

__all__ = ["cardinal", "ordinal", "say_decimal", "say_digits", "say_whole", "say_year", "value"]

_ONES = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
)  # fmt: skip
_TENS = ("", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_SCALES = ((10**12, "trillion"), (10**9, "billion"), (10**6, "million"), (10**3, "thousand"), (100, "hundred"))
_TOO_LARGE = 10**15
_ORDINALS = {"one": "first", "two": "second", "three": "third", "five": "fifth", "eight": "eighth", "nine": "ninth", "twelve": "twelfth"}


def cardinal(number: int) -> str:
    """``number`` in words: 121 is "one hundred twenty one". From 10**15 on it is read digit by digit."""
    if number < 0:
        return "minus " + cardinal(-number)
    if number < 20:
        return _ONES[number]
    if number < 100:
        return _TENS[number // 10] + (f" {_ONES[number % 10]}" if number % 10 else "")
    if number >= _TOO_LARGE:
        return say_digits(str(number))
    size, name = next(scale for scale in _SCALES if number >= scale[0])
    rest = number % size
    return f"{cardinal(number // size)} {name}" + (f" {cardinal(rest)}" if rest else "")


def ordinal(number: int) -> str:
    """``number`` as a rank: 21 is "twenty first"."""
    head, _, last = cardinal(number).rpartition(" ")
    rank = _ORDINALS.get(last) or (last[:-1] + "ieth" if last.endswith("y") else last + "th")
    return f"{head} {rank}".strip()


def value(figures: str) -> int:
    """The number; of what is too large to matter, 10**15 (and Python refuses to read very long figures)."""
    digits = figures.replace(",", "")
    return int(digits) if len(digits) <= 15 else _TOO_LARGE


def say_digits(digits: str) -> str:
    """Each digit by itself: 007 is "zero zero seven"."""
    return " ".join(_ONES[int(digit)] for digit in digits)


def say_whole(figures: str) -> str:
    """A whole number. One with a leading zero, and a long one without commas, is a code: it is read digit by digit."""
    digits = figures.replace(",", "")
    code = len(digits) >= 7 and "," not in figures and not digits.endswith("000")
    if code or len(digits) > 15 or (len(digits) > 1 and digits[0] == "0"):
        return say_digits(digits)
    return cardinal(int(digits))


def say_decimal(figures: str, fraction: str | None) -> str:
    """A number with the digits after its point, if any: 3 and 14 are "three point one four"."""
    return say_whole(figures) + (f" point {say_digits(fraction)}" if fraction else "")


def say_year(figures: str) -> str:
    """1999 is "nineteen ninety nine", 2007 "two thousand seven", 1500 "fifteen hundred"; other numbers as they are."""
    if len(figures) != 4 or not figures.isdecimal() or not (1100 <= int(figures) < 2000 or 2010 <= int(figures) < 2100):
        return say_whole(figures)
    century, rest = divmod(int(figures), 100)
    if rest == 0:
        return f"{cardinal(century)} hundred"
    return f"{cardinal(century)} {'oh ' if rest < 10 else ''}{cardinal(rest)}"
