"""How words are to be pronounced that a voice gets wrong: names, brands, abbreviations.

The one rule: a word is found as it is written, whatever marks stand about it, and stays one word: what was heard is told as written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from voiceflow.processors.spoken import split_mark

__all__ = ["Lexicon", "Pronunciation"]


@dataclass(frozen=True, slots=True)
class Pronunciation:
    """How one written word is said: ``spelling`` is read like any text, unless ``ipa`` stands there: phonemes, words apart by blanks.

    ``possessive``: an ``'s`` follows. ``mark``: the pause after it, or "".
    """

    spelling: str
    ipa: str = ""
    possessive: bool = False
    mark: str = ""


class Lexicon:
    """Words with their pronunciations: ``Lexicon({"Nguyen": "win", "SQL": "sequel", "Siobhan": "/ʃɪvˈɔːn/"})``.

    A value between slashes is IPA, as espeak writes American English (stress marks before the vowel); another is a
    spelling, of one word or several. A key is one written word. One in lower case is found in any case, another as it is
    written only, so that "US" is not "us". Raises ValueError that names the entry that is wrong.
    """

    def __init__(self, words: Mapping[str, str]) -> None:
        self._words: dict[str, Pronunciation] = {}
        for word, said in words.items():
            if len(word.split()) != 1 or split_mark(word)[0] != word:
                raise ValueError(f"Lexicon: {word!r} is not one word without marks about it; enter each word by itself")
            self._words[word] = _read(word, said.strip())

    def find(self, written: str) -> Pronunciation | None:
        """The pronunciation of a written word, marks about it and all; None if it is not here."""
        core, mark = split_mark(written.replace("’", "'"))
        for possessive, word in ((False, core), (True, core.removesuffix("'s"))):
            found = self._words.get(word) or self._words.get(word.lower())
            if found:
                return Pronunciation(found.spelling, found.ipa, possessive and word != core, mark)
        return None

    def in_ipa(self) -> list[str]:
        """The words whose pronunciation is phonemes."""
        return [word for word, said in self._words.items() if said.ipa]

    def __len__(self) -> int:
        return len(self._words)

    def __repr__(self) -> str:
        return f"<Lexicon of {len(self)}>"


def _read(word: str, said: str) -> Pronunciation:
    if len(said) > 2 and said[0] == said[-1] == "/":
        ipa = said[1:-1].strip()
        if not any(c.isalpha() for c in ipa) or "/" in ipa:
            raise ValueError(f"Lexicon: {word!r}: {said!r} holds no phonemes; write IPA between two slashes")
        return Pronunciation("", ipa)
    if not any(c.isalnum() for c in said):
        raise ValueError(f"Lexicon: {word!r}: {said!r} says nothing; give a spelling, or IPA between slashes")
    return Pronunciation(said)
