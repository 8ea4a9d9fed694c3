"""Where a streaming text is cut into pieces that can be spoken by themselves.

The one rule: where a cut falls depends on the text alone, never on how it was chopped into tokens. A cut is decided
as soon as the characters that can change the decision are known, which for most marks is the space behind them.

A missed cut costs a little time, a wrong one is heard. So where a full stop is in doubt, it does not cut.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

from voiceflow.processors.boundaries import NUMBER, Reading, Verdict
from voiceflow.processors.marks import LEANS_ON_THE_NEXT, MAY_END, TAG, is_ornament, is_spoken, is_wide

__all__ = ["Splitter", "SplitterOptions"]

_LIST_MARKER = re.compile(r"[^\w]*(?:\d{1,3}[.)]?|\w\))\Z")
_WIDE_PER_WORD = 4
_BREAKS_WEIGHED = 3


@dataclass(frozen=True, slots=True)
class SplitterOptions:
    """How long the pieces are.

    ``clause_chars``: a clause mark cuts from this many characters on, for the first piece of a reply, the second and
    so on (the last number holds for all later ones; a wide character counts twice). The first is small so that the
    voice begins early, the rest grow so that each covers the making of the next. ``first_words``: the first piece is
    cut after this many words if no mark came; 0 never does. ``limit_chars``: no piece is longer.
    """

    clause_chars: tuple[int, ...] = (8, 40, 80)
    first_words: int = 8
    limit_chars: int = 200

    def __post_init__(self) -> None:
        if not self.clause_chars or min(self.clause_chars) < 1:
            raise ValueError(f"SplitterOptions.clause_chars: {self.clause_chars!r} must hold one or more numbers of 1 or more")
        if self.first_words < 0:
            raise ValueError(f"SplitterOptions.first_words: {self.first_words!r} is negative; 0 turns the rule off")
        if self.limit_chars < 20:
            raise ValueError(f"SplitterOptions.limit_chars: {self.limit_chars!r} is too short for words; use 20 or more")


class Splitter:
    """Cuts a stream of text into clauses and sentences. No clock, no waiting; holds at most a piece and its look-ahead.

    The pieces joined are the text, white space aside, less what could not be spoken: a tail without letter or digit,
    and runs of such longer than the limit.
    """

    def __init__(self, options: SplitterOptions | None = None) -> None:
        self.options = options or SplitterOptions()
        self.clear()

    def clear(self) -> None:
        """Forget what was not given out; the next text begins a new reply."""
        self._reading = Reading()
        self._scan = 0  # the first boundary not decided yet: the one before this character
        self._piece = 0

    def push(self, text: str) -> list[str]:
        """Add text, cut anywhere; returns the pieces that are complete now."""
        self._reading.text += text
        return self._advance(final=False)

    def flush(self) -> list[str]:
        """The reply is complete: returns what is left of it, and begins a new one."""
        pieces = self._advance(final=True)
        rest = self._reading.text[self._reading.start :].strip()
        if is_spoken(rest):
            pieces.append(rest)
        self.clear()
        return pieces

    def _advance(self, *, final: bool) -> list[str]:
        pieces = []
        reading = self._reading
        while (cut := self._next_cut(final)) is not None:
            pieces.append(reading.text[reading.start : cut].strip())
            self._piece += 1
            self._begin(cut)
        self._scan -= reading.start
        reading.forget()  # once, not once a piece: the text may be long
        return pieces

    def _begin(self, position: int) -> None:
        self._reading.begin(position)
        self._scan = position

    def _next_cut(self, final: bool) -> int | None:
        """The end of the piece, or None while it is not known."""
        reading, text, limit = self._reading, self._reading.text, self.options.limit_chars
        while self._scan < len(text):
            here = self._scan
            if here == reading.start and text[here].isspace():
                self._begin(here + 1)
                continue
            verdict = reading.judge(here, final)
            if verdict is Verdict.WAIT:
                return None
            if self._cuts(here, verdict):
                return here
            if (cut := self._word_cut(here)) is not None:
                return cut
            if here - reading.start >= limit:
                if (cut := self._hard_cut(here)) is not None:
                    return cut
                self._begin(here)  # a long run with nothing to say in it
                continue
            after = reading.tag_end(here, limit, final)
            if after is None:
                return None
            if after > here and after - reading.start > limit and is_spoken(text[reading.start : here]):
                return here
            if after > here:
                reading.tags.append((here, after))
            self._scan = max(after, here + 1)
        return None

    def _cuts(self, here: int, verdict: Verdict) -> bool:
        if verdict is Verdict.NO:
            return False
        piece = self._reading.piece(here)
        if not is_spoken(piece) or _LIST_MARKER.match(piece.rstrip()):
            return False
        if verdict is Verdict.SENTENCE:
            return True
        needed = self.options.clause_chars[min(self._piece, len(self.options.clause_chars) - 1)]
        return sum(2 if is_wide(c) else 1 for c in piece) >= needed

    def _word_cut(self, here: int) -> int | None:
        """The first piece has all its words and no mark has come: a place to begin speaking all the same."""
        text = self._reading.text
        if self._piece or not self.options.first_words or here == self._reading.start:
            return None
        wide = is_wide(text[here]) and is_wide(text[here - 1]) and text[here - 1].isalnum()
        if not wide and (not text[here].isspace() or text[here - 1].isspace()):
            return None
        said = text[self._reading.start : here]
        words = sum(map(is_wide, said)) // _WIDE_PER_WORD
        words += sum(1 for word in TAG.sub(" ", said).split() if any(c.isalnum() and not is_wide(c) for c in word))
        if words < self.options.first_words:
            return None
        if wide:
            return here
        breaks = [b for b in self._breaks(here)[:_BREAKS_WEIGHED] if not self._sticks(b)]
        free = [b for b in breaks if self._reading.token(b).lower() not in LEANS_ON_THE_NEXT]
        return next(iter(free or breaks), None)

    def _hard_cut(self, here: int) -> int | None:
        """The limit is reached: between words if it can be, else between characters. None: nothing in it to say."""
        text, half = self._reading.text, self._reading.start + self.options.limit_chars // 2
        if not is_spoken(text[self._reading.start : here]):
            return None
        breaks = [b for b in self._breaks(here) if is_spoken(text[self._reading.start : b]) and (b >= half or not is_wide(text[here - 1]))]
        if breaks:
            return next((b for b in breaks if b >= half and not self._sticks(b)), breaks[0])
        cut = here
        while cut > half and self._inside_character(cut):
            cut -= 1
        return here if cut <= half or not is_spoken(text[self._reading.start : cut]) else cut

    def _breaks(self, end: int) -> list[int]:
        """The places between words up to ``end``, last first, none of them inside a tag."""
        text = self._reading.text
        return [
            b
            for b in range(end, self._reading.start, -1)
            if text[b].isspace() and not text[b - 1].isspace() and not any(first < b < last for first, last in self._reading.tags)
        ]

    def _sticks(self, at: int) -> bool:
        """Whether what stands before this space belongs to what follows: a number, a title, an initial."""
        token = self._reading.token(at)
        bare = token.rstrip(".").lower()
        if NUMBER.match(token):
            return True
        return token.endswith(".") and bare not in MAY_END and bare not in {"a.m", "p.m"}

    def _inside_character(self, at: int) -> bool:
        """Whether a cut here would part a letter from its marks, an emoji, or a word in Latin letters."""
        before, after = self._reading.text[at - 1], self._reading.text[at]
        joined = unicodedata.category(after)[0] == "M" or is_ornament(after) or before == "\u200d"
        return joined or (before.isascii() and after.isascii() and not after.isspace())
