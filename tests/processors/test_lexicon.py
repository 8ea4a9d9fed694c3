"""How words are to be pronounced that a voice gets wrong."""

from __future__ import annotations

import pytest

from voiceflow.processors.lexicon import Lexicon, Pronunciation

WORDS = Lexicon({"nguyen": "win", "SQL": "sequel", "Siobhan": "/ʃɪvˈɔːn/", "US": "U S"})


@pytest.mark.parametrize(
    ("written", "found"),
    [
        ("Nguyen", Pronunciation("win")),
        ("(NGUYEN’s),", Pronunciation("win", possessive=True, mark=",")),
        ('"SQL?"', Pronunciation("sequel", mark="?")),
        ("Siobhan.", Pronunciation("", "ʃɪvˈɔːn", mark=".")),
        ("us", None),
        ("sql", None),
        ("nguyens", None),
        ("", None),
        ("—", None),
    ],
)
def test_a_word_is_found_as_it_is_written(written: str, found: Pronunciation | None) -> None:
    """Whatever marks stand about it; a key in lower case in any case, another only as it is."""
    assert WORDS.find(written) == found
    assert len(WORDS) == 4


@pytest.mark.parametrize(
    ("word", "said", "fault"),
    [
        ("New York", "x", "'New York' is not one word"),
        ("", "x", "'' is not one word"),
        ("Inc.", "x", "'Inc.' is not one word"),
        ("a", "", "says nothing"),
        ("a", "...", "says nothing"),
        ("a", "/ /", "no phonemes"),
        ("a", "/b/c/", "no phonemes"),
    ],
)
def test_a_wrong_entry_is_named(word: str, said: str, fault: str) -> None:
    """The error says which entry and what to write."""
    with pytest.raises(ValueError, match=fault):
        Lexicon({word: said})
