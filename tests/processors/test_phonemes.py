"""English text to phonemes."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("gruut_lang_en", reason="pip install gruut-lang-en")
pytest.importorskip("pycrfsuite", reason="pip install python-crfsuite")

from voiceflow.processors.lexicon import Lexicon
from voiceflow.processors.phonemes import SpokenWord, load, phonemes


@pytest.fixture(scope="module", autouse=True)
def lexicon() -> None:
    load()


def ipa(text: str) -> str:
    return " ".join(word.ipa for word in phonemes(text))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Hello.", "həlˈoʊ."),
        ("I can help you with that order.", "aɪ kæn hˈɛlp juː wɪð ðæt ˈɔːɹdɚ."),
        ("The capital of Australia is Canberra.", "ðə kˈæpɪɾəl ʌv ɔːstɹˈeɪliə ɪz kˈænbɚɹə."),
        ("The end, the apple, to eat, to go", "ðɪ ˈɛnd, ðɪ ˈæpəl, tʊ ˈiːt, tə ɡˌoʊ"),
        ("FBI", "ˈɛf bˈiː ˈaɪ"),
        ("dog's dogs'", "dˈɑːɡz dˈɑːɡz"),
        ("Zoë", "zˈoʊi"),
        ("plan A.", "plˈæn ˈeɪ."),
    ],
)
def test_words_sound_as_espeak_says_them(text: str, expected: str) -> None:
    """Known words come out in espeak's American notation, pause marks after them."""
    assert ipa(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cabin", "kˈæbɪn"),  # stands before "cabinet" in the lexicon's word list, and ends there like "king"
        ("caffeine", "kæfˈiːn"),
        ("king", "kˈɪŋ"),
        ("at", "æt"),
        ("order", "ˈɔːɹdɚ"),
        ("over it", "ˌoʊvɚɹ ɪt"),
        ("over, it", "ˌoʊvɚ, ɪt"),
        ("over there", "ˌoʊvɚ ðɛɹ"),
        ("her eyes", "hɜːɹ ˈaɪz"),
        ("it is", "ɪɾ ɪz"),
    ],
)
def test_a_word_is_coloured_by_its_neighbour_in_the_text_alone(text: str, expected: str) -> None:
    """The last sound of a word depends on the word spoken after it, not on the one after it in a word list."""
    assert ipa(text) == expected


def test_a_written_word_keeps_its_spelling_and_its_marks() -> None:
    """Several spoken words for one written word stay in its one entry."""
    assert phonemes("Pay $12.50, please.") == [
        SpokenWord("Pay", "pˈeɪ"),
        SpokenWord("$12.50,", "twˈɛlv dˈɑːlɚz ænd fˈɪfti sˈɛnts,"),
        SpokenWord("please.", "plˈiːz."),
    ]


@pytest.mark.parametrize("text", ["...", "—", "😊", "?!", "中文", "*"])
def test_what_cannot_be_said_has_no_sound(text: str) -> None:
    """A word without a Latin letter or a digit stays, silent."""
    assert phonemes(text) == [SpokenWord(text, "")]


def test_own_pronunciations_go_before_all_others() -> None:
    """A spelling is read, IPA is taken as it is; the word stays as written, with its mark and its plural."""
    own = Lexicon({"nguyen": "win", "SQL": "sequel", "voiceflow": "/vˈɔɪs flˌoʊ/"})
    assert phonemes("Nguyen's SQL, Voiceflow. sql", own) == [
        SpokenWord("Nguyen's", "wˈɪnz"),
        SpokenWord("SQL,", "sˈiːkwəl,"),
        SpokenWord("Voiceflow.", "vˈɔɪs flˌoʊ."),
        *phonemes("sql"),
    ]
    assert phonemes("The SQL end", Lexicon({"SQL": "apple"}))[0].ipa == "ðɪ"


def test_no_words_no_entries() -> None:
    """Text without a word gives nothing."""
    assert phonemes("") == phonemes(" \n\t ") == []


@pytest.mark.parametrize("word", ["voiceflow", "beeblebrox", "kubernetes", "xqzt"])
def test_unknown_words_are_sounded_out(word: str) -> None:
    """A word that is in no lexicon gets phonemes from its letters."""
    assert len(ipa(word)) >= 3


text_with_figures = st.text(alphabet="0123456789.,:;-–/$£%°'’\"() apmPMkKstndrhEIUéñ#@+*&!?…")


@settings(max_examples=300)
@given(st.one_of(st.text(), text_with_figures))
def test_any_text_gives_its_own_words_back(text: str) -> None:
    """Whatever the text, nothing raises, and the written words joined are the text."""
    words = phonemes(text)
    assert " ".join(word.text for word in words) == " ".join(text.split())
    assert all(word.ipa == word.ipa.strip() for word in words)


def test_many_threads_sound_out_words_at_once() -> None:
    """Sessions in different threads share the model and get what one alone gets."""
    words = [f"{a}{b}{c}" for a in ("blor", "strim", "gack") for b in ("en", "iff", "oz") for c in ("ter", "ling", "wick")]
    barrier = threading.Barrier(4)

    def run(_: int) -> list[str]:
        barrier.wait(timeout=10)
        return [ipa(f"{word}s") for word in words]

    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(run, range(4)))
    assert results == [[ipa(f"{word}s") for word in words]] * 4
