"""Where a streaming text is cut into pieces that can be spoken by themselves.

The one rule: where a cut falls depends on the text alone, never on how it was chopped into tokens. A cut is decided
as soon as the characters that can change the decision are known, which for most marks is the space behind them.

A missed cut costs a little time, a wrong one is heard. So where a full stop is in doubt, it does not cut.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, get_args

from voiceflow.processors.boundaries import NUMBER, Reading, Verdict
from voiceflow.processors.marks import CLAUSES, LEANS_ON_THE_NEXT, MAY_END, TAG, is_letter, is_spoken, is_unspaced, is_wide, joins

__all__ = ["Mode", "Splitter", "SplitterOptions"]

Mode = Literal["clause", "sentence", "token", "schedule"]

_LIST_MARKER = re.compile(r"[^\w]*(?:\d{1,3}[.)]?|\w\))\Z")
_UNSPACED_PER_WORD = 4
_BREAKS_WEIGHED = 3
_SHORTEST_LIMIT = 20


@dataclass(frozen=True, slots=True)
class SplitterOptions:
    """What the pieces are, and how long.

    ``mode``:

    * ``"clause"``: clauses and sentences; the voice begins early.
    * ``"sentence"``: whole sentences, for a voice that needs them for its melody.
    * ``"schedule"``: sentences too, but what of one is longer than ``schedule`` says (in characters, for the first piece of
      a reply, the second and so on) goes before its end, cut behind a clause if there is one in its second half.
    * ``"token"``: each word as soon as it is complete, for a voice that gathers text itself. White space behind a word
      goes with it, so the pieces put together are the text; marks go with the word before them.

    Of ``"clause"`` alone: ``clause_chars``: a clause mark cuts from this many characters on, for the first piece of a
    reply, the second and so on (the last number holds for all later ones; a wide character counts twice). The first is
    small so that the voice begins early, the rest grow so that each covers the making of the next. ``first_words``: the
    first piece is cut after this many words if no mark came; 0 never does.

    ``limit_chars``: no piece is longer (``schedule`` has its own limits).
    """

    mode: Mode = "clause"
    clause_chars: tuple[int, ...] = (8, 40, 80)
    first_words: int = 8
    limit_chars: int = 200
    schedule: tuple[int, ...] = (120, 160, 250, 290)

    def __post_init__(self) -> None:
        if self.mode not in get_args(Mode):
            raise ValueError(f"SplitterOptions.mode: {self.mode!r} is none of {', '.join(get_args(Mode))}")
        if not self.clause_chars or min(self.clause_chars) < 1:
            raise ValueError(f"SplitterOptions.clause_chars: {self.clause_chars!r} must hold one or more numbers of 1 or more")
        if self.first_words < 0:
            raise ValueError(f"SplitterOptions.first_words: {self.first_words!r} is negative; 0 turns the rule off")
        if self.limit_chars < _SHORTEST_LIMIT:
            raise ValueError(f"SplitterOptions.limit_chars: {self.limit_chars!r} is too short for words; use {_SHORTEST_LIMIT} or more")
        if not self.schedule or min(self.schedule) < _SHORTEST_LIMIT:
            raise ValueError(f"SplitterOptions.schedule: {self.schedule!r} must hold one or more numbers of {_SHORTEST_LIMIT} or more")

    def limit(self, piece: int) -> int:
        """Characters that the piece of this number (from 0) may have."""
        return self.schedule[min(piece, len(self.schedule) - 1)] if self.mode == "schedule" else self.limit_chars


class Splitter:
    """Cuts a stream of text into pieces. No clock, no waiting; holds at most a piece and its look-ahead.

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
        self._word = 0  # where the word begins that may begin the next piece, in token mode; 0: none

    def push(self, text: str) -> list[str]:
        """Add text, cut anywhere; returns the pieces that are complete now."""
        self._reading.text += text
        return self._advance(final=False)

    def flush(self) -> list[str]:
        """The reply is complete: returns what is left of it, and begins a new one."""
        pieces = self._advance(final=True)
        rest = self._trimmed(self._reading.text[self._reading.start :])
        if is_spoken(rest):
            pieces.append(rest)
        self.clear()
        return pieces

    def _advance(self, *, final: bool) -> list[str]:
        pieces = []
        reading = self._reading
        while (cut := self._next_cut(final)) is not None:
            pieces.append(self._trimmed(reading.text[reading.start : cut]))
            self._piece += 1
            self._begin(cut)
        self._scan -= reading.start
        self._word -= reading.start if self._word else 0
        reading.forget()  # once, not once a piece: the text may be long
        return pieces

    def _trimmed(self, piece: str) -> str:
        return piece if self.options.mode == "token" else piece.strip()

    def _begin(self, position: int) -> None:
        self._reading.begin(position)
        self._scan, self._word = position, 0

    def _next_cut(self, final: bool) -> int | None:
        """The end of the piece, or None while it is not known."""
        reading, text, limit = self._reading, self._reading.text, self.options.limit(self._piece)
        while self._scan < len(text):
            here = self._scan
            if here == reading.start and text[here].isspace():
                self._begin(here + 1)
                continue
            if self.options.mode == "token":
                if (cut := self._token_cut(here)) is not None:
                    return cut
            else:
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
        if self.options.mode != "clause":
            return False
        needed = self.options.clause_chars[min(self._piece, len(self.options.clause_chars) - 1)]
        return sum(2 if is_wide(c) else 1 for c in piece) >= needed

    def _token_cut(self, here: int) -> int | None:
        """A word begins at ``here``, or goes on. It is known to be one when a letter or digit of it comes: marks alone are none."""
        text, start = self._reading.text, self._reading.start
        if here == start:
            return None
        before, character = text[here - 1], text[here]
        spaced = before.isspace() and not character.isspace()
        if (
            spaced
            or (is_unspaced(character) and is_letter(character))
            or (is_unspaced(before) and is_letter(before) and is_letter(character))
        ):
            self._word = here if not joins(before, character) or spaced else self._word
        if not self._word or not character.isalnum() or not is_spoken(text[start : self._word]):
            return None
        return self._word

    def _word_cut(self, here: int) -> int | None:
        """The first piece has all its words and no mark has come: a place to begin speaking all the same."""
        text = self._reading.text
        if self._piece or self.options.mode != "clause" or not self.options.first_words or here == self._reading.start:
            return None
        unspaced = is_unspaced(text[here]) and is_unspaced(text[here - 1]) and text[here - 1].isalnum()
        if not unspaced and (not text[here].isspace() or text[here - 1].isspace()):
            return None
        said = text[self._reading.start : here]
        words = sum(map(is_unspaced, said)) // _UNSPACED_PER_WORD
        words += sum(1 for word in TAG.sub(" ", said).split() if any(c.isalnum() and not is_unspaced(c) for c in word))
        if words < self.options.first_words:
            return None
        if unspaced:
            return here
        breaks = [b for b in self._breaks(here)[:_BREAKS_WEIGHED] if not self._sticks(b)]
        free = [b for b in breaks if self._reading.token(b).lower() not in LEANS_ON_THE_NEXT]
        return next(iter(free or breaks), None)

    def _hard_cut(self, here: int) -> int | None:
        """The limit is reached: behind a clause or between words if it can be, else between characters. None: nothing in it to say."""
        text, start = self._reading.text, self._reading.start
        half = start + self.options.limit(self._piece) // 2
        if not is_spoken(text[start:here]):
            return None
        breaks = [b for b in self._breaks(here) if is_spoken(text[start:b]) and (b >= half or not is_unspaced(text[here - 1]))]
        if breaks:
            late = [b for b in breaks if b >= half and not self._sticks(b)]
            return next((b for b in late if text[b - 1] in CLAUSES), next(iter(late), breaks[0]))
        cut = here
        while cut > half and joins(text[cut - 1], text[cut]):
            cut -= 1
        return here if cut <= half or not is_spoken(text[start:cut]) else cut

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
