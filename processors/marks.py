"""The marks and abbreviations of written text, as far as they tell where a voice may pause.

Tables and the smallest questions about characters; its one rule: nothing here looks at more than it is given. The
lists are short on purpose: an abbreviation that is missing here ends a sentence too early, one too many ends it too
late.
"""

from __future__ import annotations

import re
import unicodedata

__all__ = [
    "AFTER_THE_HOUR",
    "BEFORE_A_NUMBER",
    "CAPITAL_ONLY",
    "CLAUSES",
    "CLAUSES_TIGHT",
    "CLOSERS",
    "ENDS",
    "ENDS_TIGHT",
    "LEANS_ON_THE_NEXT",
    "MAY_END",
    "MONTHS",
    "NEVER_END",
    "OPENING_QUOTES_THAT_CLOSE",
    "QUOTES",
    "TAG",
    "is_ornament",
    "is_spoken",
    "is_wide",
    "spoken_words",
]


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


ENDS_TIGHT = frozenset("。！？｡．؟۔।॥։።፧។៕။།")
"""Sentence ends that need no space behind them: CJK, Arabic, Urdu, Devanagari, Armenian, Ethiopic, Khmer, Burmese, Tibetan."""
ENDS = ENDS_TIGHT | frozenset(".!?…‥")
CLAUSES_TIGHT = frozenset("，、；：،؛၊፣—")
CLAUSES = CLAUSES_TIGHT | frozenset(",;:")
QUOTES = frozenset("\"'”’»」』“‘«›‹")
CLOSERS = frozenset("\"'”’»›」』】）》〉〕)]}*_~`")
OPENING_QUOTES_THAT_CLOSE = frozenset("“‘«‹")
"""They close a quotation in German, Danish and others; known to do so by the space behind them."""

NEVER_END = frozenset(
    _words(
        "dr mr mrs ms mx prof st mt ft gen col lt sgt capt cmdr rev hon gov sen rep pres messrs vs cf viz approx esp incl e.g i.e ph.d "
        "hr fr frl hrn dipl ing bzw ca evtl ggf inkl vgl sog mme mlle mgr sr sra srta dra ud uds sig dott avv"
    )
)
CAPITAL_ONLY = frozenset(_words("gen col rep sen hon pres fr ca sig ing st ud"))
"""Of those, the ones that are also words when they stand in lower case."""
BEFORE_A_NUMBER = frozenset(_words("no nos nr fig figs vol ch sec art abs tel ext pp pág núm op eq"))
MAY_END = frozenset(_words("etc inc ltd co corp jr bros dept al usw str jan feb mar apr jun jul aug sep sept oct nov dec"))
MONTHS = _words("januar jänner februar märz april mai juni juli august september oktober november dezember")
AFTER_THE_HOUR = _words(
    "eastern pacific central mountain gmt utc est edt cst cdt mst mdt pst pdt cet cest bst ist "
    "monday tuesday wednesday thursday friday saturday sunday"
)
LEANS_ON_THE_NEXT = frozenset(
    _words(
        "a an the of to in on at for with and or but is are was were my your our his her their its this that these from by as if not no "
        "der die das den dem ein eine und oder zu von mit im am el la los las un una de y o en que le les et du des il lo di e da em um uma"
    )
)

TAG = re.compile(r"<[A-Za-z/!?][^<>]*>")
"""A tag of SSML or the like: kept whole, and not spoken."""
_JOINERS = frozenset("\u200d\ufe0e\ufe0f\u20e3")
"""Zero-width joiner, variation selectors, keycap: parts of the emoji before them."""


def is_spoken(text: str) -> bool:
    """Whether there is anything to say in it: a letter or a digit outside a tag."""
    return any(character.isalnum() for character in TAG.sub("", text))


def spoken_words(text: str) -> tuple[str, ...]:
    """The words, without case and marks, for comparing what two transcripts say."""
    kept = "".join(c if c.isalnum() or c in "'’-" or unicodedata.category(c)[0] == "M" else " " for c in text.casefold())
    return tuple(word for part in kept.split() if (word := part.strip("'’-")))


def is_wide(character: str) -> bool:
    """A character of a script without spaces, as wide as it is high."""
    return unicodedata.east_asian_width(character) in "WF"


def is_ornament(character: str) -> bool:
    """Emoji and what modifies them."""
    return character in _JOINERS or unicodedata.category(character) in {"So", "Sk"}
