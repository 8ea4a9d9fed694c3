"""Where a streaming text is cut."""

from __future__ import annotations

import random
import re
import unicodedata
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from voiceflow.processors.marks import is_spoken
from voiceflow.processors.splitter import Splitter, SplitterOptions

# Text, what must not be cut, and after what it must be cut before the reply ends.
SENTENCES = {
    "date": ("She was born on May 4, 1987. Her brother came later.", ["May 4, 1987"], ["1987."]),
    "prices": ("It is $4.75 small and $1,299.99 large. Anything else?", ["4.75", "1,299.99"], ["large."]),
    "degrees": ("It was 37.4°C, about 99.3°F.", ["37.4", "99.3"], []),
    "decimal comma": ("Es sind 17,5 Grad. Gut.", ["17,5"], ["Grad."]),
    "titles": ("Dr. Lane read T.S. Eliot at 5 p.m. on Friday. They left.", ["Dr. Lane", "T.S. Eliot", "5 p.m."], ["Friday."]),
    "addresses": (
        "Write to ana.lima@example.com or see https://docs.example.com/a.b?x=1.2 now. Thanks!",
        ["ana.lima@example.com", "https://docs.example.com/a.b?x=1.2"],
        ["now."],
    ),
    "dots": ("Wait... what? No!! Really?!", ["...", "!!", "?!"], ["what?"]),
    "list": ("1. Apples\n2. Pears\n3. Plums", ["1. Apples", "2. Pears", "3. Plums"], ["Apples", "Pears"]),
    "tag": ('<rate value="0.95"/>Hello there. Bye.', ['<rate value="0.95"/>'], ["there."]),
    "versions": ("Version 2.0.1 is out. Update at 10.30.", ["2.0.1", "10.30"], ["out."]),
    "hour and zone": ("The call is at 5 p.m. Eastern time. At 6 p.m. They left.", ["5 p.m. Eastern"], ["time.", "6 p.m."]),
    "number or no": ("He took No. 5. The answer is no. Then he went.", ["No. 5"], ["5.", "no."]),
    "day of the month": ("Am 3. Mai 2024 war es kalt. Am 5. kam er.", ["3. Mai", "5. kam"], ["kalt."]),
    "initial and firm": ("We met Mr. J. Smith at Acme Inc. He works there.", ["Mr. J. Smith", "Acme Inc."], ["Inc."]),
    "quotes": ('He said "Go." Then he left. "Really?" she said.', ['"Go."', '"Really?" she'], ['"Go."', "left."]),
    "steps": ("Steps: 1. Open it. 2. Close it.", ["1. Open", "2. Close"], ["Open it."]),
    "numbers on lines of their own": ("1.\nApples\n2.\nPears", ["1.\nApples", "2.\nPears"], ["Apples"]),
    "letters of a list": ("Choose:\na)\nApples\nb)\nPears", ["a)\nApples", "b)\nPears"], ["Apples"]),
    "a line behind a colon": ("Pick:\nred ones\nor blue ones", ["red ones"], ["Pick:"]),
    "and so on": ("Bring pens, etc. and paper. Bring Jan. 5 forms, etc. Then go.", ["etc. and", "Jan. 5"], ["paper.", "forms, etc."]),
    "tag with a space": ('Wait <break time="1.5 s"/> here. Bye.', ['<break time="1.5 s"/>'], ["here."]),
    "less than": ("If a < 5 and b > 3, stop. Go on.", [], ["stop."]),
    "emoji stays": ("Great!😊 Now go. Bye", ["Great!😊"], ["Great!😊", "go."]),
    "Chinese": ("你好。我来了！他说：“走吧。”然后呢？好", ["“走吧。”"], ["你好。", "我来了！", "“走吧。”", "然后呢？"]),
    "Japanese": ("はい。「行こう！」と言った。終わり", ["「行こう！」"], ["はい。", "言った。"]),
    "Hindi": ("वह गया। वह आई। फिर", [], ["गया।", "आई।"]),
    "Arabic": ("هل أنت هنا؟ نعم. شكرا", [], ["هنا؟", "نعم."]),
    "Urdu": ("وہ گیا۔ وہ آئی۔ پھر", [], ["گیا۔", "آئی۔"]),
    "Armenian": ("Բարև։ Ինչպես ես։ Լավ", [], ["Բարև։"]),
    "Amharic": ("ሰላም። እንዴት ነህ። ደህና", [], ["ሰላም።"]),
    "Greek": ("Γεια σας. Τι κάνετε; Καλά.", [], ["σας."]),
    "Russian": ("Это А. С. Пушкин. Он поэт.", ["А. С. Пушкин"], ["Пушкин."]),
    "Hebrew": ("שלום לך. מה שלומך? טוב", [], ["לך.", "שלומך?"]),
    "Thai": ("สวัสดี! สบายดีไหม? ดี", [], ["สวัสดี!"]),
}


def tokens(text: str) -> list[str]:
    """Cut at every mark and space, each of them its own token."""
    return re.findall(r"\w+|\W", text)


FEEDINGS = {"characters": list, "tokens": tokens, "whole": lambda text: [text]}


def split(parts: Iterable[str], options: SplitterOptions | None = None) -> list[str]:
    splitter = Splitter(options)
    pieces = [piece for part in parts for piece in splitter.push(part)]
    return pieces + splitter.flush()


def before_the_end(parts: Iterable[str]) -> list[str]:
    splitter = Splitter()
    return [piece for part in parts for piece in splitter.push(part)]


def bare(text: str) -> str:
    return "".join(text.split())


@pytest.mark.parametrize("feeding", FEEDINGS)
@pytest.mark.parametrize("name", SENTENCES)
def test_cuts_at_the_ends_of_sentences_only(name: str, feeding: str) -> None:
    """Sentences end where a reader would say so, before the reply is over, however its text arrives."""
    text, whole, ends = SENTENCES[name]
    parts = FEEDINGS[feeding](text)
    pieces = split(parts)
    assert bare("".join(pieces)) == bare(text)
    for inside in whole:
        assert any(inside in piece for piece in pieces), f"{inside!r} is cut: {pieces}"
    early = before_the_end(parts)
    for end in ends:
        assert any(piece.endswith(end) for piece in early), f"no cut after {end!r}: {early}"
    for piece in pieces:
        assert is_spoken(piece)
        assert not re.fullmatch(r"\W*\d{1,3}\.\W*", piece), f"a list number alone: {pieces}"


@pytest.mark.parametrize("text", ["", "  \n", "...", "—", "😊", "()", "*", "*** --- !!!", '<break time="1s"/>'])
def test_nothing_to_say_makes_no_piece(text: str) -> None:
    """Text without a letter or digit to speak gives nothing."""
    assert split([text]) == []
    assert split(text) == []


@pytest.mark.parametrize(
    ("text", "pieces"), [("5...", ["5..."]), ("No. — 👍 Bye.", ["No.", "— 👍 Bye."]), ("42", ["42"]), ("Yes", ["Yes"])]
)
def test_little_to_say_is_said(text: str, pieces: list[str]) -> None:
    """A digit or a word among marks is spoken."""
    assert split(text) == pieces


@pytest.mark.parametrize("text", ["word " * 1200, "字" * 6000, "a" * 6000, "नमस्ते" * 1000, "12 " * 2000, "e\u0301" * 3000])
@pytest.mark.parametrize("limit", [20, 200])
def test_text_without_marks_is_cut_below_the_limit(text: str, limit: int) -> None:
    """Endless text is cut between words, or between characters where there are none, and nothing of it is lost."""
    pieces = split([text], SplitterOptions(limit_chars=limit))
    assert max(map(len, pieces)) <= limit
    assert bare("".join(pieces)) == bare(text)
    assert not any(re.match(r"[\u0300-\u036f\u093e-\u094d]", piece) for piece in pieces), "a letter is parted from its mark"
    if " " in text:
        assert set(" ".join(pieces).split()) == set(text.split())


def test_long_text_begins_at_once() -> None:
    """The first piece of endless text is short."""
    assert split(["word " * 1200])[0] == "word " * 7 + "word"
    assert len(split(["字" * 6000])[0]) == 32


def test_marks_without_end_are_not_kept() -> None:
    """A long run of marks is dropped, so that the splitter's memory stays small, and speech goes on behind it."""
    assert split(["." * 10_000, " Hello there."])[-1].endswith("Hello there.")
    assert split(["-" * 10_000]) == []


def test_sentences_that_come_at_once_go_one_by_one() -> None:
    """Five sentences in one delta are five pieces."""
    text = "One is here. Two is here! Is three here? Four is here. Five is here."
    assert split([text]) == ["One is here.", "Two is here!", "Is three here?", "Four is here.", "Five is here."]


def test_speaks_from_the_first_clause() -> None:
    """The first piece ends at the first clause, later ones at clauses only when they are long."""
    text = "I can help you, no problem, of course. It is simple, quick, and free of charge. Here, then, it is."
    assert split([text])[:2] == ["I can help you,", "no problem, of course."]
    assert split([text])[2:] == ["It is simple, quick, and free of charge.", "Here, then, it is."]
    long = "Hello. It is a long way from the house on the hill to the town by the sea, and further still to the harbour behind it all."
    assert split([long])[1].endswith("sea,")


def test_the_first_piece_is_cut_by_words_when_no_mark_comes() -> None:
    """Eight words without a mark are enough to begin with; the cut avoids leaving an article or preposition behind."""
    splitter = Splitter()
    assert splitter.push("The opening hours are nine to five on weekdays") == ["The opening hours are nine to five"]
    assert split(["one two three four five six seven eight nine ten"], SplitterOptions(first_words=0)) == [
        "one two three four five six seven eight nine ten"
    ]


def test_a_tag_is_never_cut() -> None:
    """Neither the word rule nor the limit cuts inside a tag, whatever spaces it holds."""
    tag = '<say-as interpret-as="a b c d e f">'
    assert any(tag in piece for piece in split([f"one two three four five six seven {tag}the cat sat on the mat and slept"]))
    text = f"one two three {tag} " * 10 + "end"
    pieces = split([text], SplitterOptions(first_words=0, limit_chars=60))
    assert bare("".join(pieces)) == bare(text)
    assert sum(piece.count(tag) for piece in pieces) == 10


@pytest.mark.parametrize(
    ("text", "known_with"),
    [
        ("Of course, we", " "),
        ("Hello there. We", " "),
        ("Really? yes", " "),
        ("你好。我", "我"),
        ("Wait... No", "N"),
        ("In 1987. She", "S"),
    ],
)
def test_a_cut_is_decided_as_early_as_it_can_be(text: str, known_with: str) -> None:
    """A mark is decided by the space behind it, or by the first letter where that decides."""
    splitter = Splitter()
    for character in text:
        pieces = splitter.push(character)
        if pieces:
            assert character == known_with
            return
    pytest.fail("no cut")


WORDS = """Dr. Lane 4.75 $1,299.99 p.m. a.m. Jan. 5 May mai No. no. I U.S. e.g. etc. T.S. Hello, there. what? No!! ... … — – - : ;
wait... 你好。 我，来 「好」 वह। गया هل؟ نعم، 😊 👍 1. 2) (a) " ' ” « <b>bold</b> <break/> < > <x 3.5 https://a.b/c?d=1.2 x@y.z and the of"""
words = st.sampled_from(WORDS.split())
gaps = st.sampled_from([" ", " ", " ", "", "\n", "\n\n", "  ", "\t"])
texts = st.lists(st.tuples(words, gaps), max_size=25).map(lambda pairs: "".join(word + gap for word, gap in pairs)) | st.text(max_size=60)


@given(text=texts, cuts=st.lists(st.integers(0, 300), max_size=12), limit=st.sampled_from([20, 40, 200]))
@settings(deadline=None, max_examples=400)
def test_the_pieces_do_not_depend_on_the_tokens(text: str, cuts: list[int], limit: int) -> None:
    """Any chopping of a text gives the same pieces; joined they are the text; each can be spoken and is short enough."""
    options = SplitterOptions(limit_chars=limit)
    whole = split([text], options)
    places = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    assert split([text[a:b] for a, b in pairwise(places)], options) == whole
    assert split(text, options) == whole
    assert all(is_spoken(piece) and len(piece) <= limit for piece in whole)
    said, rest = bare("".join(whole)), bare(text)
    for character in said:  # pieces are the text in its order, less what cannot be spoken
        place = rest.index(character)
        assert not any(c.isalnum() for c in re.sub(r"<[^<>]*>", "", rest[:place]))
        rest = rest[place + 1 :]
    assert not is_spoken(rest)


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"clause_chars": ()}, "clause_chars"),
        ({"first_words": -1}, "first_words"),
        ({"limit_chars": 5}, "limit_chars"),
        ({"mode": "word"}, "mode"),
        ({"schedule": ()}, "schedule"),
        ({"schedule": (120, 5)}, "schedule"),
    ],
)
def test_options_out_of_range_name_the_field(options: dict[str, object], field: str) -> None:
    """A wrong option is refused by name."""
    with pytest.raises(ValueError, match=field):
        SplitterOptions(**options)  # type: ignore[arg-type]


# ----------------------------------------------------------------------------------------- sentences of many languages


def _languages() -> dict[str, list[str]]:
    languages: dict[str, list[str]] = {}
    for line in (Path(__file__).resolve().parents[1] / "data" / "sentences.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            languages[line[1:-1]] = current = []
        elif line and not line.startswith("#"):
            current.append(line)
    return languages


LANGUAGES = _languages()
WITHOUT_SPACES = {"Chinese", "Japanese"}
WITHOUT_MARKS = {"Thai", "Lao"}
WHOLE = SplitterOptions(mode="sentence", limit_chars=400)
MODES = {
    "clause": SplitterOptions(),
    "sentence": SplitterOptions(mode="sentence"),
    "schedule": SplitterOptions(mode="schedule"),
    "token": SplitterOptions(mode="token"),
    "short": SplitterOptions(limit_chars=20),
}


def text_of(language: str) -> str:
    return ("" if language in WITHOUT_SPACES else " ").join(LANGUAGES[language])


def test_there_are_enough_sentences() -> None:
    """Over 500, in over 30 languages and over 15 scripts, which are told by the names of their letters."""
    assert sum(map(len, LANGUAGES.values())) >= 500
    assert len(LANGUAGES) >= 30
    letters = {c for sentences in LANGUAGES.values() for sentence in sentences for c in sentence if c.isalpha()}
    assert len({unicodedata.name(c).split()[0] for c in letters} - {"FEMININE", "FULLWIDTH", "MASCULINE", "MODIFIER"}) >= 15


@pytest.mark.parametrize("language", LANGUAGES.keys() - WITHOUT_MARKS)
def test_a_text_is_cut_into_its_sentences(language: str) -> None:
    """Each sentence is one piece, in whatever language; the splitter is not told which."""
    assert split(text_of(language), WHOLE) == LANGUAGES[language]


@pytest.mark.parametrize("language", sorted(WITHOUT_MARKS))
def test_where_sentences_have_no_marks_spaces_are_where_the_voice_pauses(language: str) -> None:
    """Thai and Lao are cut at spaces, and neither a word nor a letter's vowel is torn off."""
    pieces = split(text_of(language))
    assert len(pieces) > 3
    assert " ".join(pieces) == text_of(language)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("language", LANGUAGES)
def test_in_every_language_and_mode_the_pieces_do_not_depend_on_the_tokens(language: str, mode: str) -> None:
    """One character at a time, whole, and cut by chance: the same pieces, which are the text."""
    text, options = text_of(language), MODES[mode]
    whole = split([text], options)
    assert split(text, options) == whole
    chance = random.Random(language)
    for _ in range(5):
        places = sorted({0, len(text), *(chance.randrange(len(text)) for _ in range(len(text) // chance.randint(2, 12)))})
        assert split([text[a:b] for a, b in pairwise(places)], options) == whole
    assert bare("".join(whole)) == bare(text)
    assert all(is_spoken(piece) and len(piece) <= options.limit(number) for number, piece in enumerate(whole))


@pytest.mark.parametrize("language", LANGUAGES)
def test_any_run_of_sentences_is_cut_alike(language: str) -> None:
    """What stands before a sentence does not change where it ends: each sentence by itself is one piece, too."""
    if language in WITHOUT_MARKS:
        return
    for sentence in LANGUAGES[language]:
        assert split(sentence, WHOLE) == [sentence]


# --------------------------------------------------------------------------------------------------------- the modes


def test_sentences_stay_whole() -> None:
    """In sentence mode neither a clause mark nor the number of words cuts."""
    text = "Well, as I said, it is simple, quick, and free of charge for you. Here, then, it is."
    assert split(text, SplitterOptions(mode="sentence")) == [
        "Well, as I said, it is simple, quick, and free of charge for you.",
        "Here, then, it is.",
    ]


def test_words_go_as_they_are_complete() -> None:
    """In token mode the pieces put together are the text, white space and all; marks go with the word before them."""
    text = "Hello, (my) friend — it is $4.75 !  你好，世界。 <break time='1 s'/> 안녕 하세요 ..."
    pieces = split(text, SplitterOptions(mode="token"))
    assert "".join(pieces) == text
    assert pieces[:6] == ["Hello, ", "(my) ", "friend — ", "it ", "is ", "$4.75 !  "]
    assert "你" in pieces
    assert "하세요 ..." in pieces
    splitter = Splitter(SplitterOptions(mode="token"))
    assert [splitter.push(part) for part in ("Hel", "lo", " wor", "ld")] == [[], [], ["Hello "], []]


def test_a_schedule_grows_and_flushes_at_the_ends_of_sentences() -> None:
    """A long sentence goes in pieces by the schedule, behind a clause if one ends in the second half; a sentence's end cuts in any case."""
    options = SplitterOptions(mode="schedule", schedule=(40, 60))
    text = "This is quite a long sentence, with a clause or two, and it goes on and on without an end. Short. The end"
    pieces = split(text, options)
    assert pieces == [
        "This is quite a long sentence,",
        "with a clause or two, and it goes on and on without an end.",
        "Short.",
        "The end",
    ]


def test_the_schedule_holds_for_text_without_marks() -> None:
    """The pieces are as long as the schedule allows, by words."""
    pieces = split("word " * 300, SplitterOptions(mode="schedule"))
    assert [len(piece) for piece in pieces[:5]] == [119, 159, 249, 289, 289]
