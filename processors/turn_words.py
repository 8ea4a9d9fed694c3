"""What the caller has said, from the transcript to the question that is answered.

The one rule: no word is lost and none counts twice. Words are in the turn, kept for later, an aside, or in the question.
"""

from __future__ import annotations

from collections.abc import Sequence

from voiceflow.processors.marks import spoken_words
from voiceflow.processors.turn_evidence import Fate

__all__ = ["TurnWords"]


class TurnWords:
    """The texts of the turn under way, and of those that nobody has answered."""

    def __init__(self) -> None:
        self.turn: list[str] = []
        """Final transcripts of the turn, or of speech that is being judged."""
        self.kept: list[str] = []
        """Said while the agent was to be heard out."""
        self.unanswered: list[str] = []
        """Of turns that have ended."""
        self.was_asked = False
        """A ``TurnEnded`` held them."""
        self.stood_in: str | None = None
        """The partial transcript that counted for want of a final one, which may still come."""
        self._replaced: str | None = None
        self._aside: tuple[str, float] | None = None

    def voice_began(self, *, its_final_is_late: bool) -> None:
        """They speak again: what they said aside is not the answer, and a final transcript that is not late is of the new speech."""
        self._aside = None
        if not its_final_is_late:
            self.stood_in = None

    def add(self, text: str, *, in_turn: bool) -> bool:
        """A final transcript; False if it only says what a partial one said that counts already."""
        stood_in, self.stood_in = self.stood_in, None
        if stood_in is not None and spoken_words(stood_in) == spoken_words(text):
            return False
        self.turn.append(text)
        self._replaced = stood_in
        if in_turn:
            self.open()
        return True

    def stand_in(self, partial: str) -> None:
        """A partial transcript counts, for want of a final one."""
        self.turn.append(partial)
        self.stood_in = partial

    def open(self) -> None:
        """It is their turn: what was kept for it comes first, and a late final transcript takes the place of what stood in for it."""
        self._replace((self.unanswered, self.kept))
        self.turn, self.kept = self.kept + self.turn, []

    def _replace(self, places: Sequence[list[str]]) -> None:
        replaced, self._replaced = self._replaced, None
        for texts in places:
            if replaced is not None and texts and texts[-1] == replaced:
                texts.pop()

    def dismiss(self, texts: Sequence[str], mark: int, fate: Fate, now: float) -> None:
        """The turn's texts from ``mark`` on were not meant for now. ``texts``: these, and a partial one behind them."""
        del self.turn[mark:]
        self._replace((self.kept,) if fate is Fate.KEEP else ())
        if not texts:
            return
        if fate is Fate.KEEP:
            self.kept += texts
        self._aside = (" ".join(texts), now) if fate is Fate.ASIDE else None

    def take_aside(self, now: float, window_s: float) -> tuple[str, float] | None:
        """What was said aside at most ``window_s`` ago, with how long ago; it belongs to the turn now."""
        aside, self._aside = self._aside, None
        if aside is None or now - aside[1] > window_s:
            return None
        self.turn.append(aside[0])
        return aside[0], now - aside[1]

    def ask(self) -> tuple[str, bool]:
        """The turn has ended: all that nobody has answered, and whether some of it was asked before."""
        self.unanswered += self.turn
        continues, self.was_asked = self.was_asked, True
        self.turn = []
        return " ".join(self.unanswered), continues

    def answered(self) -> None:
        """The question has been answered."""
        self.unanswered.clear()
        self.was_asked = False
