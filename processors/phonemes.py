"""English text to phonemes in espeak's American notation, without espeak: a pronouncing lexicon and a letter-to-sound model.

Owns the two parts of ``gruut-lang-en`` (MIT, data only): its espeak-style lexicon of 124,000 words, and its CRF model
for words not in it, run by ``python-crfsuite`` (MIT). The one rule: ``phonemes(text)`` gives one entry per written word,
and the written words joined by blanks are the text again (white space aside).

The lexicon was made by reading an alphabetical word list aloud, so the last sound of many entries is coloured by the
word that came next in the list ("cabin" ends like "ring" before "cabinet"). ``_citation`` takes that back, and ``_link``
puts it in again where the *spoken* neighbour asks for it ("over it", "the apple").
"""

from __future__ import annotations

import base64
import contextlib
import functools
import itertools
import re
import sqlite3
import threading
import unicodedata
from dataclasses import dataclass
from pathlib import Path

import gruut_lang_en  # type: ignore[import-untyped]  # ships no stubs; only get_lang_dir() is used
import pycrfsuite  # type: ignore[import-untyped]  # ships no stubs; only Tagger.open() and tag() are used

from voiceflow.errors import ModelError
from voiceflow.processors.lexicon import Lexicon, Pronunciation
from voiceflow.processors.spoken import PAUSES, say

__all__ = ["SpokenWord", "load", "phonemes"]


@dataclass(frozen=True, slots=True)
class SpokenWord:
    """One written word and its sound.

    ``text``: as written, punctuation included. ``ipa``: espeak-style phonemes, several spoken words apart by a blank,
    followed by its pause mark (one of ``, . ; : ! ?``); "" where nothing is said (an emoji, a script that is not Latin).
    """

    text: str
    ipa: str


def phonemes(text: str, own: Lexicon | None = None) -> list[SpokenWord]:
    """The written words of ``text`` with their phonemes. Never raises for any text; the first call loads the lexicon.

    ``own``: pronunciations that go before all others.
    """
    entries = say(text)
    units = [_own(found) if own and (found := own.find(written)) else _sounds(spoken) for written, spoken in entries]
    return [SpokenWord(written, _assemble(sounds)) for (written, _), sounds in zip(entries, _link(units), strict=True)]


def _sounds(spoken: str) -> list[str]:
    return [_pronounce(word) for word in spoken.split()]


def _own(found: Pronunciation) -> list[str]:
    sounds = found.ipa.split() or [sound for _, spoken in say(found.spelling) for sound in _sounds(spoken)]
    return sounds + ([_POSSESSIVE] if found.possessive else []) + ([found.mark] if found.mark else [])


def load() -> None:
    """Read the lexicon and the model now (0.3 s, 40 MB) instead of at the first call. Raises ModelError if they are broken."""
    _lexicon()


# ------------------------------------------------------------------------------------------------- connected speech

_VOWELS = frozenset("aɑɐæɛeəɚɜiɪᵻoɔuʊʌ")
_UNSTRESSED = {"i": "aɪ", "a": "ɐ", "can": "kæn", "an": "ɐn"}
_LETTERS = {"A": "ˈeɪ", "I": "ˈaɪ"}


def _link(units: list[list[str]]) -> list[list[str]]:
    """Colour the last sound of each word by the first of the next, unless a pause stands between them."""
    flat = [(row, column) for row, sounds in enumerate(units) for column, sound in enumerate(sounds) if sound]
    for (row, column), (next_row, next_column) in itertools.pairwise(flat):
        if units[next_row][next_column].lstrip("ˈˌ")[:1] in _VOWELS:
            units[row][column] = _before_vowel(units[row][column])
    return units


def _before_vowel(sound: str) -> str:
    if sound in _BEFORE_VOWEL:
        return _BEFORE_VOWEL[sound]
    return sound + "ɹ" if sound.endswith(("ɚ", "ɜː")) else sound


_BEFORE_VOWEL = {"ðə": "ðɪ", "tə": "tʊ", "ɪt": "ɪɾ", "æt": "æɾ"}


def _assemble(sounds: list[str]) -> str:
    """Spoken words apart by blanks; a pause mark or a plural's s hangs on the word before it."""
    joined = ""
    for sound in sounds:
        if sound == _POSSESSIVE:
            joined += _plural_s(joined)
        elif sound and (sound in PAUSES or not joined):
            joined += sound
        elif sound:
            joined += " " + sound
    return "" if all(c in PAUSES or c == " " for c in joined) else joined


_POSSESSIVE = "'s"


def _plural_s(sound: str) -> str:
    if sound.endswith(("s", "z", "ʃ", "ʒ")):
        return "ᵻz"
    return "s" if sound.endswith(("p", "t", "k", "f", "θ")) else "z"


# ------------------------------------------------------------------------------------------------------ single words


def _pronounce(word: str) -> str:
    """The phonemes of one spoken word; a pause mark or ``'s`` is itself."""
    if word in PAUSES or word == _POSSESSIVE:
        return word
    return _sound(word)


@functools.lru_cache(8192)
def _sound(word: str) -> str:
    lexicon = _lexicon()
    if word in _LETTERS:
        return _LETTERS[word]
    lower = word.lower()
    plain = _latin(lower)
    for spelling in (lower, plain, plain.strip("'")):
        if spelling in _UNSTRESSED:
            return _UNSTRESSED[spelling]
        if found := lexicon.words.get(spelling):
            return found
    if plain.endswith("'s") and len(plain) > 2:
        stem = _sound(plain[:-2])
        return stem + _plural_s(stem) if stem else ""
    if plain.endswith("s'") and len(plain) > 2:
        return _sound(plain[:-1])
    return lexicon.guess(re.sub("[^a-z]", "", plain))


def _latin(word: str) -> str:
    """Accents taken off: "zoë" is looked up as written first, then as "zoe"."""
    return "".join(c for c in unicodedata.normalize("NFKD", word) if not unicodedata.combining(c))


def _citation(word: str, phones: str) -> str:
    """The entry as the word sounds by itself, in the notation of espeak 1.52, which the voices were trained on."""
    sound = phones.replace(" ", "").replace("oːɹ", "ɔːɹ")
    if sound.endswith("ŋ") and "g" not in word[-4:]:
        return sound[:-1] + "n"
    if sound.endswith("ɾ"):
        return sound[:-1] + ("d" if "d" in word[-2:] else "t")
    return sound[:-1] if sound.endswith(("ɚɹ", "ɜːɹ")) else sound


class _Lexicon:
    """Both parts, opened once in a process and shared by all sessions."""

    def __init__(self, folder: Path) -> None:
        database, model = folder / "lexicon.db", folder / "g2p" / "model.crf"
        try:
            # Read whole: the table has no index, so a look-up by SQL is a scan of all of it.
            with contextlib.closing(sqlite3.connect(f"{database.as_uri()}?mode=ro&immutable=1", uri=True)) as connection:
                rows = connection.execute("SELECT word, phonemes FROM word_phonemes ORDER BY id DESC").fetchall()
            self._tagger = pycrfsuite.Tagger()
            self._tagger.open(str(model))
        except (sqlite3.Error, OSError, ValueError) as error:
            raise ModelError(f"the English lexicon in {folder} cannot be read ({error}); reinstall the package gruut-lang-en") from error
        # Newest id first, so that the first (commonest) reading of a word is the one that stays.
        self.words = {word: _citation(word, sounds) for word, sounds in rows}
        self._lock = threading.Lock()  # a tagger holds the word it is working on

    def guess(self, letters: str) -> str:
        """Letter-to-sound for ``letters`` (a-z); one tag per letter, each some phones joined by "|", or "_" for none."""
        if not letters:
            return ""
        with self._lock:
            tags = self._tagger.tag(_features(letters))
        return "".join(p for tag in tags for p in base64.b64decode(tag).decode().split("|") if p != "_")


@functools.lru_cache(1)
def _lexicon() -> _Lexicon:
    return _Lexicon(Path(gruut_lang_en.get_lang_dir()) / "espeak")


def _features(letters: str) -> list[dict[str, object]]:
    """The features the CRF was trained on: each letter, three neighbours either side, and the word's edges."""
    coded = [base64.b64encode(letter.encode()).decode() for letter in letters]
    last = len(coded) - 1
    items: list[dict[str, object]] = []
    for i, letter in enumerate(coded):
        item: dict[str, object] = {"bias": 1.0, "grapheme": letter}
        for distance in (1, 2, 3):
            if i >= distance:
                item[f"grapheme-{distance}"] = coded[i - distance]
            if i + distance <= last:
                item[f"grapheme+{distance}"] = coded[i + distance]
        if i == 0:
            item["begin"] = True
        if i == last:
            item["end"] = True
        items.append(item)
    return items
