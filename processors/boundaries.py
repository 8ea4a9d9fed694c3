"""What a place in a text is: the end of a sentence, the end of a clause, or nothing.

The one rule: a verdict looks at the text before the place and at the least behind it that can change the verdict, and
says ``WAIT`` while that has not come. So the same text gives the same verdicts, whatever pieces it came in.
"""

from __future__ import annotations

import enum
import re
import unicodedata

from voiceflow.processors.marks import (
    AFTER_THE_HOUR,
    BEFORE_A_NUMBER,
    CAPITAL_ONLY,
    CLAUSES,
    CLAUSES_TIGHT,
    CLOSERS,
    ENDS,
    ENDS_TIGHT,
    GREEK_QUESTIONS,
    MAY_END,
    MONTHS,
    NEVER_END,
    OPENING_QUOTES_THAT_CLOSE,
    ORDINAL_BEFORE,
    QUOTES,
    REPORTED_BY,
    VOWELS,
    is_greek,
    is_letter,
    is_lower,
    is_ornament,
    is_spoken,
    is_unspaced,
    pauses_at_spaces,
)

__all__ = ["NUMBER", "Reading", "Verdict"]

_IN_TOKENS = frozenset(".,:'’/@&+-_")
_LONGEST_TOKEN = 40
_ROMAN = frozenset("ivxlc")
_FIRST_OTHER_SCRIPT = "\u0530"
"""Behind Latin, Greek and Cyrillic."""
NUMBER = re.compile(r"\d[\d.,:]*\Z")
_INITIALS = re.compile(r"(?:[^\W\d_]\.)+[^\W\d_]\Z")
_SPACES_LOOKED_PAST = 8


class Verdict(enum.IntEnum):
    """What a boundary is worth."""

    NO = 0
    CLAUSE = 1
    SENTENCE = 2
    WAIT = 3


class Reading:
    """A text that grows, and the piece of it that begins at ``start``."""

    def __init__(self) -> None:
        self.text = ""
        self.start = 0
        self.tags: list[tuple[int, int]] = []
        """Where the tags of the piece are, as far as it was read."""

    def begin(self, position: int) -> None:
        """The piece begins here."""
        self.start = position
        self.tags.clear()

    def piece(self, end: int) -> str:
        """The piece, if it ended here."""
        return self.text[self.start : end]

    def forget(self) -> None:
        """Drop the text before the piece. Positions count from its start now."""
        gone, self.start = self.start, 0
        self.text = self.text[gone:]
        self.tags = [(first - gone, last - gone) for first, last in self.tags]

    def judge(self, here: int, final: bool) -> Verdict:
        """What the boundary before the character at ``here`` is."""
        text = self.text
        if here == self.start:
            return Verdict.NO
        character = text[here]
        if not character.isspace():
            if character in ENDS or character in CLAUSES or character in CLOSERS or character == "<" or is_ornament(character):
                return Verdict.NO  # the run of marks goes on
            return self._judge_tight(here, final)
        verdict = Verdict.NO
        if not text[here - 1].isspace():
            verdict = self._judge_spaced(here, final)
        if character == "\n" and verdict < Verdict.SENTENCE:
            verdict = max(verdict, self._judge_newline(here, final))
        return verdict

    def _judge_tight(self, here: int, final: bool) -> Verdict:
        """A boundary without a space: only marks that need none make one."""
        text = self.text
        end = self._before_closers(here, spaced=False)
        mark = text[end - 1] if end > self.start else ""
        if end > self.start + 1 and text[end - 2].isdigit() and text[here].isdigit():
            return Verdict.NO  # 3．5, 10：30, 1990—1995
        if mark in ENDS_TIGHT or (mark and mark in "!?" and is_unspaced(text[here])):
            if text[here] in OPENING_QUOTES_THAT_CLOSE:  # it opens a quotation, unless a space follows
                if here + 1 == len(text):
                    return Verdict.NO if final else Verdict.WAIT
                return Verdict.NO if text[here + 1].isspace() else Verdict.SENTENCE
            return Verdict.CLAUSE if end < here and text[here] in REPORTED_BY else Verdict.SENTENCE
        if mark and mark in "…‥" and is_unspaced(text[here]):
            return Verdict.CLAUSE
        return Verdict.CLAUSE if mark in CLAUSES_TIGHT else Verdict.NO

    def _judge_spaced(self, here: int, final: bool) -> Verdict:
        text = self.text
        end = self._before_closers(here, spaced=True)
        if end <= self.start:
            return Verdict.NO
        mark = text[end - 1]
        if mark in GREEK_QUESTIONS and is_greek(text[max(self.start, end - 2)]):
            return Verdict.SENTENCE
        if mark not in ENDS:
            return self._judge_clause(end, here, final)
        begin = end
        while begin > self.start and text[begin - 1] in ENDS:
            begin -= 1
        run = text[begin:end]
        following = self._following(here, final)
        if run == ".":
            verdict = self._judge_full_stop(begin, here, final)
        elif all(c in ".…‥" for c in run):
            if following is None:
                return Verdict.WAIT
            # In scripts without capitals it is not to be seen whether the sentence goes on, and in doubt it does.
            goes_on = following.isalpha() and not following.isupper()
            verdict = Verdict.CLAUSE if goes_on else Verdict.SENTENCE
        else:
            verdict = Verdict.SENTENCE
        if verdict is Verdict.SENTENCE and end == here and text.count("«", self.start, here) > text.count("»", self.start, here):
            if following is None:
                return Verdict.WAIT
            verdict = Verdict.NO if following == "»" else verdict  # French leaves a space before it
        if verdict is Verdict.SENTENCE and any(c in QUOTES for c in text[end:here]):  # "Really?" she said.
            if following is None:
                return Verdict.WAIT
            verdict = Verdict.CLAUSE if is_lower(following) else verdict
        return verdict

    def _judge_clause(self, end: int, here: int, final: bool) -> Verdict:
        text = self.text
        mark, before = text[end - 1], text[end - 2] if end - 2 >= self.start else ""
        spaced_dash = mark in "-–" and before.isspace()
        if mark not in CLAUSES and not spaced_dash:
            return Verdict.CLAUSE if pauses_at_spaces(mark) else Verdict.NO
        if before.isdigit() or spaced_dash:  # May 4, 1987; 5 - 3
            following = self._following(here, final)
            if following is None:
                return Verdict.WAIT
            if following.isdigit():
                return Verdict.NO
        return Verdict.CLAUSE

    def _judge_newline(self, here: int, final: bool) -> Verdict:
        """Lines of a list are sentences, a line that goes on in lower case is not; "b)" begins a line of a list."""
        text = self.text
        following = self._following(here, final)
        if following is None:
            return Verdict.WAIT
        gap = text[here + 1 : here + 1 + _SPACES_LOOKED_PAST]
        begin = here + 1 + len(gap) - len(gap.lstrip())
        if not is_lower(following) or "\n" in text[here + 1 : begin] or text[self.start : here].rstrip().endswith(":"):
            return Verdict.SENTENCE
        if begin + 1 >= len(text) and not final:
            return Verdict.WAIT
        return Verdict.SENTENCE if text[begin + 1 : begin + 2] in (")", ".") else Verdict.CLAUSE

    def _judge_full_stop(self, stop: int, here: int, final: bool) -> Verdict:
        """A single full stop at ``stop`` with a space at ``here``."""
        token = self.token(stop)
        low = token.lower()
        elided = low.rpartition("'")[2]
        low = elided if len(elided) > 2 else low  # l'avv.
        if NUMBER.match(token):
            return self._judge_number(stop - len(token), stop, here, final)
        if token == "I" or not token:
            return Verdict.SENTENCE
        if len(token) == 1 and token.isalpha() and not is_unspaced(token) and token not in MAY_END:
            return Verdict.NO  # an initial
        if low in NEVER_END and (low not in CAPITAL_ONLY or token[0].isupper()):
            return Verdict.NO
        hour = low in {"a.m", "p.m"}
        if not hour and _INITIALS.match(token):
            return Verdict.NO
        if not hour and low not in MAY_END and low not in BEFORE_A_NUMBER and not _is_short(low):
            return Verdict.SENTENCE
        following = self._following(here, final)
        if following is None:
            return Verdict.WAIT
        if following.isdigit() or (is_lower(following) and low not in BEFORE_A_NUMBER):
            return Verdict.NO
        return self._unless_next_word(AFTER_THE_HOUR, here, final) if hour and following else Verdict.SENTENCE

    def _judge_number(self, begin: int, stop: int, here: int, final: bool) -> Verdict:
        """``1987.`` ends a sentence; the ``1.`` of a list and the ``3.`` of "3. Mai" do not."""
        text = self.text
        before = text[self.start : begin].rstrip()
        if stop - begin <= 3 and (before.endswith(":") or not is_spoken(before)):
            return Verdict.NO
        following = self._following(here, final)
        if following is None:
            return Verdict.WAIT
        if is_lower(following) or (stop - begin <= 2 and before.rpartition(" ")[2].lower() in ORDINAL_BEFORE):
            return Verdict.NO
        return self._unless_next_word(MONTHS, here, final) if stop - begin <= 2 and following else Verdict.SENTENCE

    def _unless_next_word(self, words: tuple[str, ...], here: int, final: bool) -> Verdict:
        """A sentence's end, unless the next word is one of these; waits only while it still may be."""
        text = self.text
        begin = here
        while begin < len(text) and text[begin].isspace():
            begin += 1
        end = begin
        while end < len(text) and text[end].isalpha():
            end += 1
        word, known = text[begin:end].lower(), end < len(text) or final
        if not known and any(w.startswith(word) for w in words):
            return Verdict.WAIT
        return Verdict.NO if word in words else Verdict.SENTENCE

    # -------------------------------------------------------------------------------------- looking round

    def _following(self, here: int, final: bool) -> str | None:
        """The next character that is not white space; "" if none follows soon; None if not known yet."""
        for position in range(here, here + 1 + _SPACES_LOOKED_PAST):
            if position >= len(self.text):
                return "" if final else None
            if not self.text[position].isspace():
                return self.text[position]
        return ""

    def _before_closers(self, here: int, *, spaced: bool) -> int:
        """``here`` moved back over closing quotes, brackets, emoji and tags."""
        text, end = self.text, here
        while end > self.start:
            character = text[end - 1]
            tag = next((t for t in self.tags if t[1] == end), None) if character == ">" else None
            if tag is not None:
                end = tag[0]
            elif character == "»" and end - 1 > self.start and text[end - 2].isspace():
                end -= 2
            elif character in CLOSERS or is_ornament(character) or (spaced and character in OPENING_QUOTES_THAT_CLOSE):
                end -= 1
            else:
                break
        return end

    def token(self, end: int) -> str:
        """The word, number or address that ends at ``end``, without the marks before it."""
        begin, first = end, max(self.start, end - _LONGEST_TOKEN)
        while begin > first and (self.text[begin - 1] in _IN_TOKENS or is_letter(self.text[begin - 1])):
            begin -= 1
        return self.text[begin:end].lstrip(".,:'’/@&+-")

    def tag_end(self, here: int, limit: int, final: bool) -> int | None:
        """Where the tag that opens at ``here`` ends, at most ``limit`` on; ``here`` if none does; None if not known yet."""
        text = self.text
        if text[here] != "<":
            return here
        if here + 1 >= len(text):
            return here if final else None
        if not (text[here + 1].isascii() and (text[here + 1].isalpha() or text[here + 1] in "/!?")):
            return here
        for position in range(here + 1, here + limit):
            if position >= len(text):
                return here if final else None
            if text[position] == "<":
                return here
            if text[position] == ">":
                return position + 1
        return here


def _is_short(token: str) -> bool:
    """Whether it looks like an abbreviation: a few letters without a vowel, a German street, a king's number."""
    if token.endswith("str") or (len(token) > 1 and _ROMAN.issuperset(token)):
        return True
    letters = unicodedata.normalize("NFD", token)
    return 2 <= len(token) <= 5 and token.isalpha() and token[0] < _FIRST_OTHER_SCRIPT and not VOWELS.intersection(letters)
