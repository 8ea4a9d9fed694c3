"""What figures mean by what stands beside them: dates, telephone numbers, units, money by its code, addresses of the net.

The one rule: a reading is given only where the neighbours leave no doubt; else the word is left to ``spoken``, which reads it
by itself. English, as Americans read it. Where figures alone are a date, the month stands first, unless it cannot.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from voiceflow.processors.numerals import cardinal, ordinal, say_digits, say_whole, say_year, value

__all__ = ["CURRENCIES", "UNITS", "UNIT_PHRASES", "address", "beside", "date", "month", "plural", "telephone"]

CURRENCIES = {"USD": "dollar", "EUR": "euro", "GBP": "pound", "JPY": "yen", "INR": "rupee", "CHF": "franc", "CAD": "Canadian dollar"}
UNITS = {
    "km": "kilometer", "m": "meter", "cm": "centimeter", "mm": "millimeter", "mi": "mile", "ft": "foot", "in": "inch",
    "kg": "kilogram", "g": "gram", "mg": "milligram", "lb": "pound", "lbs": "pound", "oz": "ounce", "l": "liter", "ml": "milliliter",
    "h": "hour", "hr": "hour", "hrs": "hour", "min": "minute", "mins": "minute", "sec": "second", "secs": "second", "ms": "millisecond",
    "gb": "gigabyte", "mb": "megabyte", "kb": "kilobyte", "tb": "terabyte", "kw": "kilowatt", "kwh": "kilowatt hour",
}  # fmt: skip
UNIT_PHRASES = {
    "mph": "miles per hour", "kmh": "kilometers per hour", "km/h": "kilometers per hour", "m/s": "meters per second",
    "hz": "hertz", "khz": "kilohertz", "mhz": "megahertz", "ghz": "gigahertz", "x": "times",
}  # fmt: skip
_ALSO_WORDS = frozenset(["in", "x"])
"""Units that behind a number and a blank are something else: "5 in the morning"."""
_PLURALS = {
    "penny": "pence",
    "yen": "yen",
    "sen": "sen",
    "paisa": "paise",
    "foot": "feet",
    "inch": "inches",
    "kilowatt hour": "kilowatt hours",
}

_MONTHS = (
    "january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november", "december",
)  # fmt: skip
_SHORT_MONTHS = {name[:3]: name for name in _MONTHS} | {"sept": "september"}
_DATE = re.compile(r"(\d{4})-(\d{1,2})-(\d{1,2})|(\d{1,2})([/.])(\d{1,2})\5(\d{4})")
_DAY = re.compile(r"([1-9]|[12]\d|3[01])")
_DAYS = re.compile(r"(\d{1,2})[-–](\d{1,2})")
_NUMBER = re.compile(r"[-−+]?(\d{1,3}(?:,\d{3})+|\d+)(?:\.(\d+))?")
_WHOLE_OF_MONEY = re.compile(r"(\d{1,3}(?:,\d{3})+|\d+)(?:\.(\d\d))?")
_URL = re.compile(r"(?:https?|ftp)://(.+)|(www\..+)", re.I)
_MAIL = re.compile(r"[^\s@]+@[^\s@]+\.[^\s@]+")
_PIECE = re.compile(r"\d+|[^\W\d_]+|.", re.S)
_SIGNS = {
    ".": "dot", "@": "at", "/": "slash", "-": "dash", "_": "underscore", "+": "plus", "=": "equals", "?": "question mark", "&": "and",
    "#": "hash", ":": "colon", "~": "tilde", "%": "percent",
}  # fmt: skip
_GROUP = re.compile(r"\+?\(?\d{1,6}\)?(?:[-.]\d{2,6})*")
_LOCAL_GROUPS = ([3, 4], [3, 3, 4])
_SHORTEST_TELEPHONE, _LONGEST_TELEPHONE = 7, 15


def plural(word: str, count: int) -> str:
    """``word`` for this many."""
    return word if count == 1 else _PLURALS.get(word, word + "s")


def month(word: str) -> str | None:
    """The month that a written word names, whole or cut short. "may" and "march" in lower case are words like others."""
    bare = word.strip("\"'(),;:")
    low = bare.rstrip(".").lower()
    named = low if low in _MONTHS else _SHORT_MONTHS.get(low)
    return named if named and bare[:1].isupper() else None


def beside(core: str, before: str, after: str) -> str | None:
    """What a word is read as because of its neighbours, or None. All without the marks about them."""
    if core[:1].isdecimal():
        return _day(core, before, after) or _amount(core, before)
    named = month(core)
    if named and named != core.lower() and (after[:1].isdecimal() or before[-1:].isdecimal()):
        return named
    counted = _NUMBER.fullmatch(before)
    if counted is None:
        return "" if core in CURRENCIES and _WHOLE_OF_MONEY.fullmatch(after) else None
    if core in CURRENCIES:
        return plural(CURRENCIES[core], _count(counted))
    if core == "x" and after[:1].isdecimal():
        return "times"
    low = core if core in ("m", "M") else core.lower()
    if low in _ALSO_WORDS:
        return None
    return plural(UNITS[low], _count(counted)) if low in UNITS else UNIT_PHRASES.get(low)


def _count(number: re.Match[str]) -> int:
    return 2 if number[2] else value(number[1])


def _day(core: str, before: str, after: str) -> str | None:
    """A day of the month beside the month's name."""
    if month(before):
        if _DAY.fullmatch(core):
            return ordinal(int(core))
        days = _DAYS.fullmatch(core)
        if days and _DAY.fullmatch(days[1]) and _DAY.fullmatch(days[2]):
            return f"{ordinal(int(days[1]))} to {ordinal(int(days[2]))}"
    elif month(after) and _DAY.fullmatch(core):
        return f"{'' if before.lower() == 'the' else 'the '}{ordinal(int(core))} of"
    return None


def _amount(core: str, before: str) -> str | None:
    """The number behind a currency's code: USD 12."""
    money = _WHOLE_OF_MONEY.fullmatch(core)
    if before not in CURRENCIES or money is None:
        return None
    cents = f" point {say_digits(money[2])}" if money[2] and int(money[2]) else ""
    return f"{say_whole(money[1])}{cents} {plural(CURRENCIES[before], 2 if cents else value(money[1]))}"


def date(core: str) -> str | None:
    """A date in figures: 2026-11-30, 11/30/2026, 30.11.2026. None if there is no such day, or none is meant."""
    found = _DATE.fullmatch(core)
    if found is None:
        return None
    if found[1]:
        year, month_number, day = found[1], int(found[2]), int(found[3])
    else:
        year, month_number, day = found[7], int(found[4]), int(found[6])
        if found[5] == "." or month_number > 12:
            month_number, day = day, month_number
    if not (1 <= month_number <= 12 and 1 <= day <= 31):
        return None
    return f"{_MONTHS[month_number - 1]} {ordinal(day)} {say_year(year)}"


def address(core: str) -> str | None:
    """An address of the net, read out; the ``https://`` is left unsaid. None: it is none."""
    link = _URL.fullmatch(core)
    text = (link[1] or link[2]).rstrip("/") if link else core if _MAIL.fullmatch(core) else ""
    said = [_said(piece) for piece in _PIECE.findall(text)]
    return " ".join(piece for piece in said if piece) or None


def _said(piece: str) -> str:
    if piece.isdecimal():
        return say_whole(piece)
    if piece.lower() == "www":
        return "W W W"
    return piece.lower() if piece.isalpha() else _SIGNS.get(piece, "")


def telephone(words: Sequence[str]) -> dict[int, str]:
    """The words that are parts of telephone numbers, with what is said for each, digit by digit.

    A number with a plus, a code in brackets or a leading zero, or grouped as at home (555 0100; 415 555 0100).
    """
    said: dict[int, str] = {}
    begin = 0
    while begin < len(words):
        end = begin
        while end < len(words) and _GROUP.fullmatch(words[end] if words[end][:1] in "+(" else words[end].rstrip(".,;:!?\")'")):
            if words[end][0] == "+" and end > begin:
                break
            end += 1
            if words[end - 1][-1] in ".,;:!?":
                break
        if _is_telephone(words[begin:end]):
            for place in range(begin, end):
                said[place] = _groups(words[place], last=place == end - 1)
        begin = max(end, begin + 1)
    return said


def _is_telephone(words: Sequence[str]) -> bool:
    groups = [len(group) for word in words for group in re.findall(r"\d+", word)]
    if len(words) < 2 or not _SHORTEST_TELEPHONE <= sum(groups) <= _LONGEST_TELEPHONE:
        return False
    return words[0][0] in "+(0" or groups in _LOCAL_GROUPS


def _groups(word: str, *, last: bool) -> str:
    plus = "plus " if word.startswith("+") else ""
    read = cardinal if plus and len(re.findall(r"\d", word)) <= 2 else None
    groups = [read(int(g)) if read else say_digits(g) for g in re.findall(r"\d+", word)]
    mark = word[-1] if word[-1] in ".,;:!?" else ""
    return plus + " , ".join(groups) + (f" {mark}" if last and mark else "" if last else " ,")
