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
    "GREEK_QUESTIONS",
    "LEANS_ON_THE_NEXT",
    "MAY_END",
    "MONTHS",
    "NEVER_END",
    "OPENING_QUOTES_THAT_CLOSE",
    "ORDINAL_BEFORE",
    "QUOTES",
    "REPORTED_BY",
    "TAG",
    "VOWELS",
    "is_greek",
    "is_letter",
    "is_lower",
    "is_ornament",
    "is_spoken",
    "is_unspaced",
    "is_wide",
    "joins",
    "pauses_at_spaces",
    "spoken_words",
]


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


ENDS_TIGHT = frozenset(
    "。！？｡．"  # Chinese, Japanese; full width
    "\u061f\u06d4\u061e\u0700"  # Arabic and Urdu question mark, Urdu full stop, Syriac
    "\u0964\u0965\u0df4"  # danda, double danda (Hindi, Bengali and their neighbours), Sinhala
    "\u0589\u1362\u1367\u1368"  # Armenian; Ethiopic full stop, question mark, end of paragraph
    "\u17d4\u17d5\u104b\u0f0d\u0f0e"  # Khmer, Burmese, Tibetan
    "\u1803\u1809\u1c7e\u1c7f\uabeb\ua9c8\ua9c9\u07f9"  # Mongolian, Ol Chiki, Meetei Mayek, Javanese, N'Ko
)
"""Sentence ends that need no space behind them."""
ENDS = ENDS_TIGHT | frozenset(".!?…‥\u203c\u203d\u2047\u2048\u2049\u05c3")
CLAUSES_TIGHT = frozenset("，、；：—\u060c\u061b\u104a\u1363\u1364\u1365\u1366\u17d6\u055d")
"""Clause marks that need no space behind them: full width, dash, Arabic, Burmese, Ethiopic, Khmer, Armenian."""
CLAUSES = CLAUSES_TIGHT | frozenset(",;:·\u0387")
GREEK_QUESTIONS = frozenset(";\u037e")
"""The question mark of Greek looks like a semicolon, and is written as one."""
QUOTES = frozenset("\"'”’»」』“‘«›‹")
CLOSERS = frozenset("\"'”’»›」』】）》〉〕)]}*_~`")
OPENING_QUOTES_THAT_CLOSE = frozenset("“‘«‹")
"""They close a quotation in German, Danish and others; known to do so by the space behind them."""
REPORTED_BY = frozenset("とっ、")
"""「...。」と言った: what follows a Japanese quotation says who said it, and the sentence goes on."""

NEVER_END = frozenset(
    _words(
        "dr mr mrs ms mx prof st mt ft gen col lt sgt capt cmdr rev hon gov sen rep pres messrs vs cf viz approx esp incl e.g i.e ph.d "
        "fam hr fr frl hrn dipl ing bzw evtl ggf inkl vgl bd blvd sog mme mlle mgr sr sra srta dra ud uds sig dott avv "
        "av avda dña ee p.ej p.es p.ex tél env ul al np tzn tj godz św ks płk inż wg m.in např tzv "
        "bijv bv dhr mevr mw drs blz resp t.ex bl.a doç sn mah cad sok gs pgs ts ths tp "
        "пл ул им стр см тыс млн млрд проф акад гл рис напр просп обл вул буд ім див тис проф бул "
        "δηλ αρ σελ βλ डॉ श्री श्रीमती प्रो पं कु सौ रु कि मी सं ডা ড ডঃ মো মি"
    )
)
CAPITAL_ONLY = frozenset(_words("gen col rep sen hon pres fr sig ing st ud av al ee ts tp gs mt ft ks sn"))
"""Of those, the ones that are also words when they stand in lower case."""
BEFORE_A_NUMBER = frozenset(_words("no nos nr fig figs vol ch sec art abs tel ext pp pág pag pg núm op eq ca env circa kl abb zus ок"))
MAY_END = frozenset(
    _words(
        "etc aprox approx tues thurs oz inc ltd co corp jr bros dept al usw str jan feb mar apr jun jul aug sep sept oct nov dec uu itd itp atd enz ecc m.m vb "
        "др руб коп гг мин сек грн κ.λπ κ.ά h u"
    )
)
ORDINAL_BEFORE = frozenset(_words("im am vom zum zur beim dem den der des das die seit ab bis"))
"""German words between which and a noun a number with a full stop is a rank: "im 19. Jahrhundert"."""
VOWELS = frozenset("aeiouyаеёиоуыэюяіїєъαεηιουω")
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


def is_letter(character: str) -> bool:
    """A letter, a digit, or a mark that belongs to one (the vowel signs of Indic and Thai scripts are marks)."""
    return character.isalnum() or unicodedata.category(character)[0] == "M"


def is_lower(character: str) -> bool:
    """A small letter of a script that begins its sentences with capitals. (Georgian has capitals, and does not.)"""
    return character.islower() and not "\u10d0" <= character <= "\u10ff"


def is_greek(character: str) -> bool:
    """A letter of Greek, with accents or without."""
    return "\u0370" <= character <= "\u03ff" or "\u1f00" <= character <= "\u1fff"


def is_wide(character: str) -> bool:
    """As wide as it is high, and so worth two letters: Chinese, Japanese, Korean."""
    return unicodedata.east_asian_width(character) in "WF"


def is_unspaced(character: str) -> bool:
    """Of Chinese or Japanese, which put no space between words. (Korean is as wide, and does.)"""
    hangul = "\uac00" <= character <= "\ud7a3" or "\u1100" <= character <= "\u11ff" or "\u3130" <= character <= "\u318f"
    return is_wide(character) and not hangul


def pauses_at_spaces(character: str) -> bool:
    """Of Thai, Lao, Burmese or Khmer, where a space stands between clauses and not between words."""
    return "\u0e00" <= character <= "\u0eff" or "\u1000" <= character <= "\u109f" or "\u1780" <= character <= "\u17ff"


def joins(before: str, after: str) -> bool:
    """Whether two neighbours are one character to a reader, or parts of one syllable, or of one Latin word."""
    if unicodedata.category(after)[0] == "M" or is_ornament(after) or before == "\u200d" or unicodedata.combining(before) == _VIRAMA:
        return True
    if before in _VOWELS_BEFORE or after in _VOWELS_AFTER:
        return True
    return before.isascii() and after.isascii() and not after.isspace()


_VIRAMA = 9
"""The combining class of signs that join the consonant before them to the one behind."""
_VOWELS_BEFORE = frozenset("\u0e40\u0e41\u0e42\u0e43\u0e44\u0ec0\u0ec1\u0ec2\u0ec3\u0ec4")
_VOWELS_AFTER = frozenset("\u0e2f\u0e30\u0e32\u0e33\u0e45\u0e46\u0eb0\u0eb2\u0eb3")
"""Thai and Lao vowels that are letters of their own, written before or behind their consonant."""


def is_ornament(character: str) -> bool:
    """Emoji and what modifies them."""
    return character in _JOINERS or unicodedata.category(character) in {"So", "Sk"}
