"""Text for voices that read what is written letter by letter: "$12.50" becomes "twelve dollars and fifty cents".

The one rule: only a word whose reading differs from its letters is changed; all else, and every tag, stays as it is written.
"""

from __future__ import annotations

import re

from voiceflow.frames import SentenceFrame, replace
from voiceflow.processor import Processor
from voiceflow.processors.lexicon import Lexicon
from voiceflow.processors.marks import TAG
from voiceflow.processors.spoken import say

__all__ = ["SpokenForms", "spoken_form"]

_BEFORE_A_PAUSE = re.compile(r" (?=[,.;:!?](?: |\Z))")


class SpokenForms(Processor):
    """Stands between ``Sentences`` and a voice that does not read figures and abbreviations itself. English. Instant.

    ``PiperTTS`` and ``KokoroTTS`` need none: they read by the same rules, and keep the words as written for the
    conversation; behind this node the conversation holds the words as spoken. ``lexicon``: spellings that go before;
    raises ValueError for an entry in IPA, which a text cannot carry.
    """

    def __init__(self, lexicon: Lexicon | None = None) -> None:
        if lexicon is not None and (phonemes := lexicon.in_ipa()):
            raise ValueError(f"SpokenForms.lexicon: {', '.join(phonemes)}: IPA is for the voices that take phonemes; give a spelling")
        self._lexicon = lexicon

    def process(self, frame: SentenceFrame) -> SentenceFrame:
        """The same piece, in words."""
        return replace(frame, text=spoken_form(frame.text, self._lexicon))


def spoken_form(text: str, lexicon: Lexicon | None = None) -> str:
    """``text`` with figures, signs and abbreviations in words. White space at its ends stays, inside it is single blanks."""
    parts = re.split(f"({TAG.pattern})", text)
    return "".join(part if place % 2 else _spoken(part, lexicon) for place, part in enumerate(parts))


def _spoken(text: str, lexicon: Lexicon | None) -> str:
    words = [_word(written, spoken, lexicon) for written, spoken in say(text)]
    if not words:
        return text
    return text[: len(text) - len(text.lstrip())] + " ".join(word for word in words if word) + text[len(text.rstrip()) :]


def _word(written: str, spoken: str, lexicon: Lexicon | None) -> str:
    if lexicon is not None and (found := lexicon.find(written)):
        return f"{found.spelling}{chr(39) + 's' if found.possessive else ''}{found.mark}"
    if _letters(written) == _letters(spoken):
        return written
    return _BEFORE_A_PAUSE.sub("", spoken)


def _letters(text: str) -> str:
    return "".join(c for c in text.lower() if c.isalnum())
