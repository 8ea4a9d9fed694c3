"""How a written word is said: "$12.50," is "twelve dollars and fifty cents ,". English, as Americans read it.

The one rule: one written word (what stands between white space) gives one entry, so that what was heard can be told
in the words as they were written. That is why no library does it: those there are (NeMo's grammars and what is made of
them) give one text for another, and which word became which is lost. The numbers' words are a library's (``numerals``).

In what is said, a capital letter alone is the letter's name ("F B I"); everything else is lower case. The marks
``, . ; : ! ?`` stand by themselves and mean a pause.
"""

from __future__ import annotations

import re
import unicodedata

from voiceflow.processors.numerals import cardinal, ordinal, say_decimal, say_digits, say_whole, say_year, value
from voiceflow.processors.readings import UNIT_PHRASES, UNITS, address, beside, date, month, plural, telephone

__all__ = ["PAUSES", "say", "split_mark"]

PAUSES = ",.;:!?"

_MONEY = {"$": ("dollar", "cent"), "£": ("pound", "penny"), "€": ("euro", "cent"), "¥": ("yen", "sen"), "₹": ("rupee", "paisa")}
_SCALE_WORDS = {"hundred", "thousand", "million", "billion", "trillion"}
_SCALE_LETTERS = {"k": "thousand", "m": "million", "b": "billion", "bn": "billion", "t": "trillion"}
_FRACTIONS = {"1/2": "one half", "1/3": "one third", "2/3": "two thirds", "1/4": "one quarter", "3/4": "three quarters"}
_ABBREVIATIONS = {
    "mr.": "mister", "mrs.": "missus", "ms.": "miz", "dr.": "doctor", "prof.": "professor", "jr.": "junior", "sr.": "senior",
    "e.g.": "for example", "i.e.": "that is", "etc.": "et cetera", "vs.": "versus", "vs": "versus", "approx.": "approximately",
    "ave.": "avenue", "blvd.": "boulevard", "rd.": "road", "apt.": "apartment", "dept.": "department", "inc.": "incorporated",
    "°c": "degrees celsius", "°f": "degrees fahrenheit", "24/7": "twenty four seven", "mt.": "mount", "ft.": "feet", "ok": "okay", "tv": "T V", "w/": "with", "w/o": "without", "www": "W W W",
}  # fmt: skip
_SIGNS = {
    "&": "and", "%": "percent", "@": "at", "+": "plus", "=": "equals", "#": "number", "°": "degrees", "×": "times", "÷": "divided by",
    "$": "dollars", "£": "pounds", "€": "euros", "<": "less than", ">": "greater than", "*": "",
}  # fmt: skip
# Written in capitals for what they mean, though the lexicon would read them as words.
_SPELLED = frozenset(
    ["US", "UK", "IT", "PM", "ID", "EU", "UN", "AI", "PC", "TV", "DJ", "CEO", "FBI", "CIA", "USA", "ATM", "FAQ", "GPS", "SMS"]
)

_AM_PM = re.compile(r"([ap])\.?m\.?", re.I)
_NUMBER = r"(\d{1,3}(?:,\d{3})+|\d+)"
_RE_MONEY = re.compile(rf"([-−+]?)([$£€¥₹]){_NUMBER}(?:\.(\d+))?(k|m|bn?|t)?", re.I)
_RE_TIME = re.compile(r"(\d{1,2}):([0-5]\d)(?::([0-5]\d))?(?:([ap])\.?m\.?)?", re.I)
_RE_HOUR = re.compile(r"(\d{1,2})([ap])\.?m\.?", re.I)
_RE_ORDINAL = re.compile(rf"{_NUMBER}(?:st|nd|rd|th)", re.I)
_RE_PHONE = re.compile(r"(?:\+?\d{1,3}[-.])?(?:\(?\d{3}\)?[-.])?\d{3}[-.]\d{4}")
_RE_RANGE = re.compile(rf"{_NUMBER}(?:\.(\d+))?[-–]{_NUMBER}(?:\.(\d+))?(%?)")
_RE_DECADE = re.compile(r"(\d{0,2}[1-9])0['’]?s")
_RE_NUMBER = re.compile(rf"([-−+]?){_NUMBER}(?:\.(\d+))?(%|°[CF]?)?")
_RE_LONE = re.compile(rf"([-−+]?){_NUMBER}(?:\.(\d+))?([a-z]+)", re.I)
_RE_VULGAR = re.compile(r"(\d*)([\u00bc-\u00be\u2150-\u215e])([.,;:!?]?)")
_RE_MONEY_BEHIND = re.compile(rf"([-−+]?){_NUMBER}(?:[.,](\d+))?([$£€¥₹])")
_RE_COMMA = re.compile(r"([-−+]?)(\d+),(\d{1,2})(%|°[CF]?)?")
_RE_INITIALS = re.compile(r"(?:[A-Za-z]\.){2,}[A-Za-z]?")
_RE_RUN = re.compile(r"\d+|[^\W\d_]+(?:['’][^\W\d_]+)*['’]?|.", re.S)


def say(text: str) -> list[tuple[str, str]]:
    """Each written word of ``text`` with what is said for it; "" where nothing is (an emoji, a dash)."""
    written = text.split()
    telephones = telephone(written)
    said: list[tuple[str, str]] = []
    for index, word in enumerate(written):
        before = written[index - 1] if index else ""
        after = written[index + 1] if index + 1 < len(written) else ""
        spoken = telephones.get(index) or _say_word(word, before, after)
        if not spoken and said and said[-1][1] and not any(c.isalnum() for c in word) and any(c in "-–—…" for c in word):
            said[-1] = (said[-1][0], _with_pause(said[-1][1]))  # a dash by itself is a pause after the word before it
        said.append((word, spoken))
    return said


def _with_pause(spoken: str) -> str:
    return spoken if spoken[-1] in PAUSES else spoken + " ,"


# ------------------------------------------------------------------------------------------- one written word


def _say_word(written: str, before: str, after: str) -> str:
    if fraction := _RE_VULGAR.fullmatch(written):
        return _vulgar(fraction)
    word = unicodedata.normalize("NFKC", written).replace("’", "'").replace("‘", "'")
    core, mark = split_mark(word)
    spoken = _beside(core, mark, before, after)
    if spoken is not None:
        return f"{spoken} {'' if mark == '.' and after and month(core) else mark}".strip() if spoken else ""
    spoken = _abbreviation(word, core, before, after)
    if spoken is not None:
        # The full stop belongs to the abbreviation, except where nothing follows.
        mark = mark if mark != "." or not after else ""
        return f"{spoken} {mark}".strip()
    spoken = _currency_tail(core, before) or address(core) or date(core) or _numeric(core, after)
    if spoken is None:
        spoken = _mixed(core, after)
    return f"{spoken} {mark}".strip() if spoken.strip() else ""


def _beside(core: str, mark: str, before: str, after: str) -> str | None:
    """What its neighbours make of the word; a mark between them parts them, but for the full stop of "Jan."."""
    left, left_mark = split_mark(before)
    right = split_mark(after)[0]
    left = left if not left_mark or (left_mark == "." and month(left)) else ""
    return beside(core, left, right if not mark or (mark == "." and month(core)) else "")


def _vulgar(match: re.Match[str]) -> str:
    """3½ is "three and one half"."""
    whole, part, mark = match.groups()
    top, _, bottom = unicodedata.normalize("NFKC", part).partition("\u2044")
    said = _FRACTIONS.get(f"{top}/{bottom}") or f"{cardinal(int(top))} {plural(ordinal(int(bottom)), int(top))}"
    return f"{say_whole(whole)} and {said} {mark}".strip() if whole else f"{said} {mark}".strip()


def split_mark(word: str) -> tuple[str, str]:
    """The word without the quotes and brackets about it, and the pause after it."""
    core = word.strip("\"'“”„«»()[]{}<>*_~`…—–-.,;:!?|\\")
    if not core:
        return word.strip("\"'“”„«»()[]{}*_~`…—–-.,;:!?|\\"), ""
    start = word.index(core)
    tail = word[start + len(core) :]
    if word[:start].endswith(("-", "−")) and core[0].isdigit():
        core = "-" + core
    if tail.startswith("'") and core[-1] in "sS":
        tail = tail[1:]
    for mark in "?!":
        if mark in tail:
            return core, mark
    for mark in tail:
        if mark in PAUSES:
            return core, mark
        if mark in "—–…":
            return core, "," if mark != "…" else "."
    return core, ""


def _abbreviation(word: str, core: str, before: str, after: str) -> str | None:
    bare = word.rstrip(",;:!?\"')").lstrip("\"'(")  # unlike the core, with its full stops
    lower = bare.lower()
    if lower == "st.":
        return "saint" if after[:1].isupper() else "street"
    if lower == "no." and after[:1].isdigit():
        return "number"
    if lower in _ABBREVIATIONS:
        return _ABBREVIATIONS[lower]
    if core.lower() in _ABBREVIATIONS:
        return _ABBREVIATIONS[core.lower()]
    if _AM_PM.fullmatch(lower) and (lower.rstrip(".") != "am" or before[-1:].isdecimal()):
        return f"{bare[0].upper()} M"
    if after and len(bare) == 2 and bare[0].isupper() and bare[0] != "I" and bare[1] == ".":
        return bare[0]  # a name's initial
    if _RE_INITIALS.fullmatch(bare):
        return " ".join(letter.upper() for letter in bare if letter != ".")
    return None


def _numeric(core: str, after: str) -> str | None:
    """What is said for a word that is a number of some kind, or None."""
    if not any(c.isdecimal() for c in core):
        return None
    if core in _FRACTIONS:
        return _FRACTIONS[core]
    for pattern, reader in _READERS:
        if match := pattern.fullmatch(core):
            return reader(match, after)
    return None


def _money(match: re.Match[str], after: str) -> str:
    sign, symbol, whole, fraction, scale = match.groups()
    unit, small = _MONEY[symbol]
    sign_word = _sign(sign)
    if scale:
        return f"{sign_word}{say_decimal(whole, fraction)} {_SCALE_LETTERS[scale.lower()]} {plural(unit, 2)}"
    if split_mark(after)[0].lower() in _SCALE_WORDS:
        return f"{sign_word}{say_decimal(whole, fraction)}"  # "$5 million": the unit comes with the next word
    amount = say_whole(whole)
    said = f"{amount} {plural(unit, value(whole))}"
    if fraction and len(fraction) != 2:
        return f"{sign_word}{say_decimal(whole, fraction)} {plural(unit, 2)}"
    if fraction and int(fraction):
        cents = f"{cardinal(int(fraction))} {plural(small, int(fraction))}"
        said = f"{said} and {cents}" if value(whole) else cents
    return sign_word + said


def _money_behind(match: re.Match[str], after: str) -> str | None:
    """5€, as written where the sign stands behind."""
    sign, whole, fraction, symbol = match.groups()
    as_before = _RE_MONEY.fullmatch(f"{sign}{symbol}{whole}" + (f".{fraction}" if fraction else ""))
    return _money(as_before, after) if as_before else None


def _plain_with_comma(match: re.Match[str], after: str) -> str:
    """17,5: a decimal comma, since no thousands follow it."""
    as_point = _RE_NUMBER.fullmatch("{}{}.{}{}".format(*(part or "" for part in match.groups())))
    return _plain(as_point, after) if as_point else say_digits(match[2] + match[3])


def _currency_tail(core: str, before: str) -> str | None:
    """The second half of "$5 million"."""
    if core.lower() in _SCALE_WORDS and (match := _RE_MONEY.fullmatch(split_mark(before)[0] or " ")) and not match[5]:
        return f"{core.lower()} {plural(_MONEY[match[2]][0], 2)}"
    return None


def _time(match: re.Match[str], after: str) -> str:
    hour, minute, second, half = match.groups()
    said = cardinal(int(hour))
    if int(minute):
        said += f" oh {cardinal(int(minute))}" if int(minute) < 10 else f" {cardinal(int(minute))}"
    elif second is None and not half and not _AM_PM.fullmatch(after.rstrip(",;:!?\"')")):
        said += " o'clock" if int(hour) <= 12 else " hundred"
    if second is not None:
        said += f" and {cardinal(int(second))} {plural('second', int(second))}"
    return said + (f" {half.upper()} M" if half else "")


def _hour(match: re.Match[str], after: str) -> str:
    return f"{cardinal(int(match[1]))} {match[2].upper()} M"


def _rank(match: re.Match[str], after: str) -> str:
    digits = match[1].replace(",", "")
    return ordinal(int(digits)) if len(digits) < 15 else say_digits(digits)


def _phone(match: re.Match[str], after: str) -> str:
    return " , ".join(say_digits(part) for part in re.findall(r"\d+", match[0]))


def _range(match: re.Match[str], after: str) -> str:
    first, first_part, last, last_part, percent = match.groups()
    years = len(first) == len(last) == 4
    numbers = [say_year(n) if years and not part else say_decimal(n, part) for n, part in ((first, first_part), (last, last_part))]
    return " to ".join(numbers) + (" percent" if percent else "")


def _decade(match: re.Match[str], after: str) -> str:
    said = say_year(match[1] + "0")
    return said[:-1] + "ies" if said.endswith("y") else said + "s"


def _plain(match: re.Match[str], after: str) -> str:
    sign, whole, fraction, unit = match.groups()
    said = _sign(sign) + (say_decimal(whole, fraction) if fraction or unit or sign else say_year(whole))
    return said + {"%": " percent", "°": " degrees", "°C": " degrees celsius", "°F": " degrees fahrenheit", None: ""}[unit]


def _measure(match: re.Match[str], after: str) -> str | None:
    sign, whole, fraction, unit = match.groups()
    number, unit = _sign(sign) + say_decimal(whole, fraction), unit if unit in ("m", "M") else unit.lower()
    if unit in UNITS:
        return f"{number} {plural(UNITS[unit], 2 if fraction else value(whole))}"
    if unit in UNIT_PHRASES:
        return f"{number} {UNIT_PHRASES[unit]}"
    if unit.lower() in _SCALE_LETTERS:
        return f"{number} {_SCALE_LETTERS[unit.lower()]}"
    return None


_READERS = (
    (_RE_MONEY, _money),
    (_RE_MONEY_BEHIND, _money_behind),
    (_RE_COMMA, _plain_with_comma),
    (_RE_TIME, _time),
    (_RE_HOUR, _hour),
    (_RE_ORDINAL, _rank),
    (_RE_PHONE, _phone),
    (_RE_RANGE, _range),
    (_RE_DECADE, _decade),
    (_RE_NUMBER, _plain),
    (_RE_LONE, _measure),
)


# ------------------------------------------------------------------------------------------------ the small parts


def _sign(sign: str) -> str:
    return {"": "", "+": "plus "}.get(sign, "minus ")


def _mixed(core: str, after: str) -> str:
    """Words, letters, numbers and signs in one written word, run by run."""
    said: list[str] = []
    runs = _RE_RUN.findall(core)
    for position, run in enumerate(runs):
        if run.isdecimal():
            said.append(say_year(run) if len(runs) == 1 else say_whole(run))
        elif run[0].isalpha():
            said.append(_letters(run, lone=len(runs) == 1, last=not after, beside_digits=any(r.isdecimal() for r in runs)))
        elif run in ".:/" and 0 < position < len(runs) - 1:
            said.append(_inner(run, runs[position - 1], runs[position + 1]))
        elif run in "—–…;,!?":
            said.append(",")
        else:
            said.append(_SIGNS.get(run, ""))
    return " ".join(part for part in said if part).strip(" ,")


def _inner(mark: str, left: str, right: str) -> str:
    if mark == ".":
        if left.isdecimal() and right.isdecimal():
            return "point"
        return "dot" if left[0].isalnum() and right[0].islower() else ","
    return ""


def _letters(run: str, *, lone: bool, last: bool, beside_digits: bool) -> str:
    bare = run.removesuffix("'s") if run.endswith("'s") else run
    ending = " 's" if bare != run else ""
    if len(bare) == 1 and bare.isupper() and bare.isascii():
        word = lone and not ending and (bare == "I" or (bare == "A" and not last))
        return bare.lower() if word else bare + ending
    spelled = bare in _SPELLED or (beside_digits and bare.isupper() and len(bare) <= 3)
    if spelled or (bare.isascii() and bare.isupper() and not any(vowel in bare for vowel in "AEIOUY")):
        return " ".join(bare) + ending
    if len(bare) > 1 and bare[-1] == "s" and bare[:-1].isascii() and bare[:-1].isupper() and bare[:-1] in _SPELLED:
        return " ".join(bare[:-1]) + " 's"
    return run.lower()
