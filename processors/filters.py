"""What is taken out of a reply before it is spoken: a model's reasoning, and emoji. ``markdown`` has the third filter.

The one rule: what a filter gives out depends on the text alone, never on how it was chopped into tokens. A filter holds
back only what it cannot judge yet, and ``flush`` decides about that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

__all__ = ["Chain", "Emoji", "FilterMaker", "Reasoning", "TextFilter", "is_emoji"]

LONGEST_TAG = 100
"""Characters of a tag of reasoning, with its attributes; what is longer is text."""


class TextFilter(Protocol):
    """A pure streaming change of text, of one reply at a time."""

    def push(self, text: str) -> str:
        """Add text, cut anywhere; returns what of all so far is ready to be spoken."""

    def flush(self) -> str:
        """The reply is complete: returns the rest, and begins a new one."""

    def clear(self) -> None:
        """Forget what was not given out; the next text begins a new reply."""


FilterMaker = Callable[[], TextFilter]
"""Makes a fresh filter: a class, or a lambda that gives it its options."""


class Chain:
    """Filters one behind the other, as one filter. Without any, text passes as it is."""

    def __init__(self, makers: Iterable[FilterMaker] = ()) -> None:
        self._filters = [make() for make in makers]

    def push(self, text: str) -> str:
        """See TextFilter."""
        for one in self._filters:
            text = one.push(text)
        return text

    def flush(self) -> str:
        """See TextFilter."""
        text = ""
        for one in self._filters:
            text = one.push(text) + one.flush()
        return text

    def clear(self) -> None:
        """See TextFilter."""
        for one in self._filters:
            one.clear()


class Reasoning:
    """Takes out what stands between tags of reasoning, the tags as well: ``<think>...</think>``, in any case.

    ``tags``: their names. ``begins_inside``: the reply begins within a block, for models whose prompt ends with the
    opening tag. A block that is never closed lasts to the end of the reply. A closing tag without a block is dropped,
    and so is the beginning of a tag at the reply's very end. Other tags, and ``a < b``, are text.
    """

    def __init__(self, tags: Iterable[str] = ("think", "thinking", "thought", "reasoning"), *, begins_inside: bool = False) -> None:
        if isinstance(tags, str):
            raise TypeError(f"Reasoning.tags: give the names in a tuple, ({tags!r},)")
        self._names = frozenset(name.lower() for name in tags)
        for name in self._names:
            if not (name[:1].isalpha() and name.replace("_", "").replace("-", "").isalnum()):
                raise ValueError(f"Reasoning.tags: {name!r} is not a tag's name; leave out the angle brackets")
        self._begins_inside = begins_inside
        self.clear()

    def clear(self) -> None:
        """See TextFilter."""
        self._held = ""
        self._inside: str | None = "" if self._begins_inside else None  # the open block's tag; "": any closing tag ends it
        self._last = ""  # the last character given out
        self._joint = False  # a block was taken out behind it, and nothing has come since

    def push(self, text: str) -> str:
        """See TextFilter."""
        return self._read(self._held + text, final=False)

    def flush(self) -> str:
        """See TextFilter."""
        rest = self._read(self._held, final=True)
        self.clear()
        return rest

    def _read(self, text: str, *, final: bool) -> str:
        out: list[str] = []
        position = 0
        while position < len(text):
            opening = text.find("<", position)
            stretch = text[position:] if opening < 0 else text[position:opening]
            if stretch and self._inside is None:
                out.append(self._jointed(stretch))
            if opening < 0:
                position = len(text)
                break
            position = opening
            end = self._tag_end(text, opening)
            if end is None:
                if not final:
                    break
                end = opening + 1 if len(text) == opening + 1 else len(text)
                if end == opening + 1 and self._inside is None:
                    out.append(self._jointed("<"))
            elif end == opening:
                end = opening + 1
                if self._inside is None:
                    out.append(self._jointed("<"))
            else:
                self._pass(text[opening + 1 : end - 1])
            position = end
        self._held = text[position:]
        return "".join(out)

    def _tag_end(self, text: str, opening: int) -> int | None:
        """Where the tag of reasoning that opens here ends; ``opening`` if it is none; None if not known yet."""
        begin = opening + 1
        if text.startswith("/", begin):
            begin += 1
        end = begin
        while end < len(text) and (text[end].isalnum() or text[end] in "_-"):
            end += 1
        name = text[begin:end].lower()
        if end == len(text):
            return None if any(known.startswith(name) for known in self._names) else opening
        if name not in self._names or not (text[end] in ">/" or text[end].isspace()):
            return opening
        for place in range(end, opening + LONGEST_TAG):
            if place >= len(text):
                return None
            if text[place] == ">":
                return place + 1
            if text[place] == "<":
                break
        return opening

    def _pass(self, tag: str) -> None:
        """Go into a block or out of it. A block ends at its own closing tag alone: thoughts may name other tags."""
        name = tag.strip("/ ").split()[0].rstrip("/").lower()
        if tag.startswith("/"):
            if self._inside in ("", name, None):
                self._inside = None
                self._joint = True
        elif self._inside is None and not tag.rstrip().endswith("/"):
            self._inside = name
            self._joint = True

    def _jointed(self, text: str) -> str:
        """Text behind a block: words before and behind it stay apart, by one blank."""
        if self._joint:
            if not self._last or self._last.isspace():
                text = text.lstrip(" ")
                if not text:
                    return ""
            elif text[0].isalnum():
                text = f" {text}"
            self._joint = False
        self._last = text[-1]
        return text


class Emoji:
    """Takes out emoji, with all that modifies them. Signs that are read (``°``, ``©``, ``№``) and the digit of a keycap stay.

    Where an emoji stood between two words without a blank, one blank stands.
    """

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """See TextFilter."""
        self._last = ""  # the last character given out
        self._removed = False  # something was taken out behind it

    def push(self, text: str) -> str:
        """See TextFilter."""
        out: list[str] = []
        for character in text:
            if is_emoji(character) or (character == _JOINER and self._removed):
                self._removed = self._removed or character not in _SELECTORS
                continue
            if self._removed and character.isalnum() and (self._last.isalnum() or self._last in _JOINED_BY_A_BLANK):
                out.append(" ")
            self._removed, self._last = False, character
            out.append(character)
        return "".join(out)

    def flush(self) -> str:
        """See TextFilter."""
        self.clear()
        return ""


_JOINER = "\u200d"
"""Joins emoji; in Indic and Arabic scripts it joins letters, so only the one behind an emoji is taken out."""
_SELECTORS = frozenset("\ufe0e\ufe0f\u20e3")
"""Variation selectors and the keycap's frame: they change the look of a character that may well be read."""
_JOINED_BY_A_BLANK = frozenset(".!?,;:…")
_BLOCKS = (
    (0x2300, 0x23FF),  # technical: watch, hourglass, media keys
    (0x25A0, 0x27BF),  # geometric shapes, miscellaneous symbols, dingbats
    (0x2B00, 0x2BFF),  # stars, squares, arrows
    (0x1F000, 0x1FAFF),  # everything newer, with flags and skin tones
    (0xE0020, 0xE007F),  # the letters of a region's flag
)


def is_emoji(character: str) -> bool:
    """Whether a character is one of an emoji: a picture, or what changes a picture's look. Blocks as in Unicode's emoji-data."""
    code = ord(character)
    if code < 0x2300:
        return character == "\u20e3"
    return character in _SELECTORS or any(first <= code <= last for first, last in _BLOCKS)
