"""Markdown's marks taken out of a streaming reply, so that the words stay and the marks are not spoken.

The one rule is that of ``filters``: what comes out depends on the text alone. Whether a mark is Markdown is judged by the
characters beside it, as CommonMark's flanking rules do (https://spec.commonmark.org/0.31.2/#left-flanking-delimiter-run),
without waiting for its partner: speech cannot wait for the end of a paragraph. So ``snake_case``, ``7 * 6`` and ``y**3``
stay as they are, and an opening ``**`` whose partner never comes is taken out all the same.

What is known of a line's beginning: headings, rules, quotations, lists, tables, fences. Within a line: emphasis, struck
out text, code, links, images, footnotes, autolinks, escapes. A tag (``<break time="1s"/>``) passes whole.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

__all__ = ["Markdown"]

LONGEST_HELD = 400
"""Characters held back while it is open whether they are a link, a tag or a line of a table; then they are text."""

_BULLETS = "-*+•‣◦▪●"
_ONLY_MARKS = re.compile(r"[ \t]*[-*_=+|:]?[-*_=|: \t]*")
_NUMBERED = re.compile(r"\d{1,3}[.)][ \t]")
_MAY_BE_NUMBERED = re.compile(r"\d{1,3}[.)]?")
_HEADING = re.compile(r"#{1,6}(?:[ \t]|(?=\n))")
_HASHES_TO_THE_END = re.compile(r"#*[ \t]*")
_BOX = re.compile(r"\[[ xX]\][ \t]")
_AUTOLINK = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]+:[^\s<>]+|[^\s<>@]+@[^\s<>@]+)")


@dataclass(slots=True)
class _Line:
    """What the line that is being read is."""

    begins: bool = True
    stands_alone: bool = False
    """A heading or an entry of a list: its end is the end of a sentence."""
    heading: bool = False


class Markdown:
    """A filter: see the module's text. ``code``: whether the lines of a fenced block are spoken; its fences never are.

    The numbers of a list stay, they are read; its bullets go. Headings, entries of lists and rows of tables are set off by
    an empty line, so that each becomes a piece of its own. A table's cells are joined by commas.
    """

    def __init__(self, *, code: bool = True) -> None:
        self._speaks_code = code
        self.clear()

    def clear(self) -> None:
        """See TextFilter."""
        self._text = ""
        self._at = 0
        self._out: list[str] = []
        self._tail = "\n\n"  # the last two characters given out
        self._before = ""  # the last character read
        self._line = _Line()
        self._emphasis: list[tuple[str, int]] = []
        self._ticks = 0  # of the code span that is open
        self._fence = ""

    def push(self, text: str) -> str:
        """See TextFilter."""
        self._text += text
        return self._run(final=False)

    def flush(self) -> str:
        """See TextFilter."""
        rest = self._run(final=True)
        self.clear()
        return rest

    def _run(self, *, final: bool) -> str:
        while self._at < len(self._text) and self._step(final):
            pass
        self._text, self._at = self._text[self._at :], 0
        done, self._out = "".join(self._out), []
        return done

    # ------------------------------------------------------------------------------------------ reading and writing

    def _emit(self, text: str) -> None:
        if text:
            self._out.append(text)
            self._tail = (self._tail + text)[-2:]

    def _consume(self, end: int, said: str = "") -> bool:
        """The text is read up to ``end``, and this is what of it is spoken."""
        if end > self._at:
            self._before = self._text[end - 1]
            self._at = end
        self._emit(said)
        return True

    def _keep(self, end: int) -> bool:
        return self._consume(end, self._text[self._at : end])

    def _replace(self, end: int, by: str) -> bool:
        """What stands up to ``end`` is read as if this stood there."""
        self._text = by + self._text[end:]
        self._at = 0
        return True

    def _run_end(self, begin: int) -> int:
        """Where the run of equal characters ends, or is too long to be anything."""
        end, limit = begin, min(len(self._text), begin + LONGEST_HELD)
        while end < limit and self._text[end] == self._text[begin]:
            end += 1
        return end

    def _line_end(self, begin: int, final: bool) -> int | None:
        """Where the line ends, or is too long to be held; None if not known yet."""
        end = self._text.find("\n", begin, begin + LONGEST_HELD)
        if end < 0 and not final and len(self._text) - begin < LONGEST_HELD:
            return None
        return end if end >= 0 else min(len(self._text), begin + LONGEST_HELD)

    def _set_off(self) -> None:
        """What comes is a piece of its own."""
        if self._tail != "\n\n":
            self._emit("\n" if self._tail.endswith("\n") else "\n\n")

    # ------------------------------------------------------------------------------------------ the beginning of a line

    def _step(self, final: bool) -> bool:
        """Read some characters; False if what comes next must be known first."""
        if self._line.begins:
            return self._begin_line(final)
        if self._fence:
            return self._fenced(final)
        return self._inline(final)

    def _begin_line(self, final: bool) -> bool:
        text, begin = self._text, self._at
        while begin < min(len(text), self._at + LONGEST_HELD) and text[begin] in " \t":
            begin += 1
        if begin - self._at == LONGEST_HELD:
            return self._consume(begin)
        if begin == len(text):
            return final and self._consume(begin)
        rest = text[begin : begin + LONGEST_HELD]
        first = rest[0]
        if first in "`~":
            ticks = self._run_end(begin) - begin
            if ticks < 3 and begin + ticks == len(text) and not final:
                return False
            if ticks >= 3:
                return self._fence_line(begin, ticks, final)
        if self._fence:
            self._line.begins = False
            return True
        if first == "\n":
            self._emphasis.clear()
            return self._consume(begin + 1, "\n")
        if first in "-*_=|:+" and (taken := self._marks_alone(begin, final)) is not None:
            return taken
        return self._marker(begin, final)

    def _marks_alone(self, begin: int, final: bool) -> bool | None:
        """A line of marks alone, a rule or the underline of a heading, goes. None: it is no such line."""
        text = self._text
        marks = _ONLY_MARKS.match(text, begin, begin + LONGEST_HELD)
        end = marks.end() if marks else begin
        if end - begin < LONGEST_HELD:
            if end == len(text) and not final:
                return False
            if end < len(text) and text[end] != "\n":
                return None
        self._set_off()
        return self._consume(end)

    def _marker(self, begin: int, final: bool) -> bool:
        """A mark that says what the line is."""
        text = self._text
        first, known = text[begin], begin + 1 < len(text)
        if first == ">":
            if not known and not final:
                return False
            return self._consume(begin + (2 if text[begin + 1 : begin + 2] == " " else 1))
        if first == "#":
            if (end := self._run_end(begin)) == len(text) and not final:
                return False
            if heading := _HEADING.match(text, begin):
                self._set_off()
                self._line.stands_alone = self._line.heading = True
                return self._begun(heading.end())
            return self._begun(begin) and self._keep(end)
        if first in _BULLETS:
            if not known and not final:
                return False
            if text[begin + 1 : begin + 2] in (" ", "\t"):
                return self._entry(begin + 2, final)
        if first.isdecimal():
            number = _MAY_BE_NUMBERED.match(text, begin)
            if number and number.end() == len(text) and not final:
                return False
            if _NUMBERED.match(text, begin):
                self._set_off()
                self._line.stands_alone = True
        if first == "|":
            return self._row(begin, final)
        return self._begun(begin)

    def _begun(self, at: int) -> bool:
        self._line.begins = False
        self._consume(at)
        self._before = ""
        return True

    def _entry(self, at: int, final: bool) -> bool:
        """An entry of a list: its bullet goes, and so does a box to tick."""
        text = self._text
        if text[at : at + 1] in ("", "[") and at + 4 > len(text) and "\n" not in text[at:] and not final:
            return False
        self._set_off()
        self._line.stands_alone = True
        box = _BOX.match(text, at)
        return self._begun(box.end() if box else at)

    def _row(self, begin: int, final: bool) -> bool:
        """A row of a table: its cells, joined by commas."""
        end = self._line_end(begin, final)
        if end is None:
            return False
        cells = [cell.strip() for cell in self._text[begin:end].split("|")]
        self._set_off()
        self._line = _Line(begins=False, stands_alone=True)
        self._before = ""
        return self._replace(end, ", ".join(cell for cell in cells if cell))

    # ------------------------------------------------------------------------------------------------- fenced code

    def _fence_line(self, begin: int, ticks: int, final: bool) -> bool:
        text = self._text
        end = self._line_end(begin, final)
        if end is None:
            return False
        fence, info = text[begin] * ticks, text[begin + ticks : end]
        if not self._fence and fence[0] not in info:
            self._fence = fence
            self._set_off()
        elif self._fence and fence.startswith(self._fence) and not info.strip():
            self._fence = ""
            self._set_off()
        else:
            return self._begun(begin)
        return self._consume(end + 1 if text[end : end + 1] == "\n" else end)

    def _fenced(self, final: bool) -> bool:
        end = self._text.find("\n", self._at)
        if end >= 0:
            self._line = _Line()
        end = len(self._text) if end < 0 else end + 1
        return self._keep(end) if self._speaks_code else self._consume(end)

    # ---------------------------------------------------------------------------------------------- within a line

    def _inline(self, final: bool) -> bool:
        character = self._text[self._at]
        if character == "\n":
            stands_alone, self._line, self._ticks = self._line.stands_alone, _Line(), 0
            if stands_alone:
                self._emphasis.clear()
            return self._consume(self._at + 1, "\n\n" if stands_alone else "\n")
        if character == "`":
            end = self._run_end(self._at)
            if end == len(self._text) and not final:
                return False
            if self._ticks in (0, end - self._at):
                self._ticks = 0 if self._ticks else end - self._at
            return self._consume(end)
        if self._ticks:
            return self._keep(self._at + 1)
        mark = _MARKS.get(character)
        return mark(self, final) if mark else self._keep(self._at + 1)

    def _escape(self, final: bool) -> bool:
        following = self._text[self._at + 1 : self._at + 2]
        if not following:
            return final and self._keep(self._at + 1)
        if following == "\n":
            return self._consume(self._at + 1)
        return self._consume(self._at + 2, following if _is_ascii_mark(following) else f"\\{following}")

    def _delimiter(self, final: bool) -> bool:
        """A run of ``*``, ``_`` or ``~``: taken out where it opens or closes something, kept where it is text."""
        text, begin, end = self._text, self._at, self._run_end(self._at)
        if end == len(text) and not final:
            return False
        mark, before, after = text[begin], self._before, text[end : end + 1]
        if mark == "~" and end - begin != 2:
            return self._keep(end)
        if not before.strip() and not after.strip():
            return self._lone(end, final)
        left = bool(after.strip()) and (not _is_mark(after) or not before.strip() or _is_mark(before))
        right = bool(before.strip()) and (not _is_mark(before) or not after.strip() or _is_mark(after))
        if mark == "_":
            left, right = left and not before.isalnum(), right and not after.isalnum()
        is_open = any(kind == mark for kind, _ in self._emphasis)
        if is_open and before.strip() and (right or (_is_mark(before) and mark != "_")):
            self._close(mark, end - begin)
            return self._consume(end)
        a_sign = mark == "*" and after.isdecimal() and self._tail[1] == " " and self._tail[0].isdecimal()  # 7 *6
        inside_a_word = before.isalnum() and after.isalnum() and (before.isascii() or after.isascii())  # y**3
        if left and not inside_a_word and not a_sign:
            self._emphasis.append((mark, end - begin))
            return self._consume(end)
        return self._keep(end)

    def _lone(self, end: int, final: bool) -> bool:
        """Blanks on both sides: a sign (7 * 6), unless nothing follows it on the line."""
        following = end
        while following < min(len(self._text), end + LONGEST_HELD) and self._text[following] in " \t":
            following += 1
        if following - end == LONGEST_HELD:
            return self._keep(end)
        if following == len(self._text) and not final:
            return False
        if following == len(self._text) or self._text[following] == "\n":
            return self._consume(following)
        return self._keep(end)

    def _close(self, mark: str, length: int) -> None:
        while (
            length > 0
            and (place := next((i for i in reversed(range(len(self._emphasis))) if self._emphasis[i][0] == mark), None)) is not None
        ):
            length -= self._emphasis.pop(place)[1]

    def _hashes(self, final: bool) -> bool:
        """The ``#`` that close a heading go."""
        if not self._line.heading or self._before not in (" ", "\t", ""):
            return self._keep(self._at + 1)
        found = _HASHES_TO_THE_END.match(self._text, self._at, self._at + LONGEST_HELD)
        end = found.end() if found else self._at
        if end - self._at == LONGEST_HELD:
            return self._keep(end)
        if end == len(self._text) and not final:
            return False
        return self._consume(end) if end == len(self._text) or self._text[end] == "\n" else self._keep(end)

    def _image(self, final: bool) -> bool:
        following = self._text[self._at + 1 : self._at + 2]
        if not following and not final:
            return False
        return self._bracket(final, image=1) if following == "[" else self._keep(self._at + 1)

    def _bracket(self, final: bool, image: int = 0) -> bool:
        """A link is its text, an image what it shows, a footnote nothing; other brackets are text."""
        text, begin = self._text, self._at + image
        close = self._closing(begin, "[]")
        if close is None:
            return self._keep(self._at + 1) if final or self._is_text(begin) else False
        label, following = text[begin + 1 : close], text[close + 1 : close + 2]
        if label.startswith("^") and len(label) > 1:
            return self._consume(close + 1)
        if not following and not final:
            return False
        if following not in ("(", "[") or not following:
            return self._keep(self._at + 1)
        end = self._closing(close + 1, "()" if following == "(" else "[]")
        if end is None:
            return self._keep(self._at + 1) if final or self._is_text(close + 1) else False
        return self._replace(end + 1, label)

    def _closing(self, begin: int, pair: str) -> int | None:
        """Where the bracket that opens at ``begin`` is closed, on its line."""
        depth = 0
        for place in range(begin, min(len(self._text), begin + LONGEST_HELD)):
            character = self._text[place]
            if character == "\n":
                return None
            depth += (character == pair[0]) - (character == pair[1])
            if not depth:
                return place
        return None

    def _is_text(self, begin: int) -> bool:
        """Whether a bracket that is not closed so far never will be, near enough."""
        return "\n" in self._text[begin : begin + LONGEST_HELD] or len(self._text) - begin >= LONGEST_HELD

    def _tag(self, final: bool) -> bool:
        text, begin = self._text, self._at
        following = text[begin + 1 : begin + 2]
        if not following and not final:
            return False
        if not (following.isascii() and (following.isalnum() or following in "/!?")) or not following:
            return self._keep(begin + 1)
        for end in range(begin + 1, begin + LONGEST_HELD):
            if end >= len(text):
                return final and self._keep(begin + 1)
            if text[end] == "<":
                break
            if text[end] == ">":
                link = _AUTOLINK.fullmatch(text, begin + 1, end)
                return self._consume(end + 1, link.group()) if link else self._keep(end + 1)
        return self._keep(begin + 1)


_MARKS = {
    "\\": Markdown._escape,
    "*": Markdown._delimiter,
    "_": Markdown._delimiter,
    "~": Markdown._delimiter,
    "#": Markdown._hashes,
    "!": Markdown._image,
    "[": Markdown._bracket,
    "<": Markdown._tag,
}


def _is_ascii_mark(character: str) -> bool:
    return character.isascii() and character.isprintable() and not character.isalnum() and character != " "


def _is_mark(character: str) -> bool:
    return bool(character) and unicodedata.category(character)[0] in "PS"
