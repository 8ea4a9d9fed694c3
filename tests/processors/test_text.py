from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from voiceflow import EndFrame, Frame, LLMEnded, LLMTextFrame, Processor, SayFrame, SentenceFrame, Session
from voiceflow.processors.marks import is_spoken
from voiceflow.processors.text import Sentences, Splitter, SplitterOptions
from voiceflow.testing import check_processor, run_virtual

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
def test_b26_cuts_at_the_ends_of_sentences_only(name: str, feeding: str) -> None:
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
def test_b31_nothing_to_say_makes_no_piece(text: str) -> None:
    """Text without a letter or digit to speak gives nothing."""
    assert split([text]) == []
    assert split(text) == []


@pytest.mark.parametrize(
    ("text", "pieces"), [("5...", ["5..."]), ("No. — 👍 Bye.", ["No.", "— 👍 Bye."]), ("42", ["42"]), ("Yes", ["Yes"])]
)
def test_b31_little_to_say_is_said(text: str, pieces: list[str]) -> None:
    """A digit or a word among marks is spoken."""
    assert split(text) == pieces


@pytest.mark.parametrize("text", ["word " * 1200, "字" * 6000, "a" * 6000, "नमस्ते" * 1000, "12 " * 2000, "e\u0301" * 3000])
@pytest.mark.parametrize("limit", [20, 200])
def test_b31_text_without_marks_is_cut_below_the_limit(text: str, limit: int) -> None:
    """Endless text is cut between words, or between characters where there are none, and nothing of it is lost."""
    pieces = split([text], SplitterOptions(limit_chars=limit))
    assert max(map(len, pieces)) <= limit
    assert bare("".join(pieces)) == bare(text)
    assert not any(re.match(r"[\u0300-\u036f\u093e-\u094d]", piece) for piece in pieces), "a letter is parted from its mark"
    if " " in text:
        assert set(" ".join(pieces).split()) == set(text.split())


def test_b31_long_text_begins_at_once() -> None:
    """The first piece of endless text is short."""
    assert split(["word " * 1200])[0] == "word " * 7 + "word"
    assert len(split(["字" * 6000])[0]) == 32


def test_marks_without_end_are_not_kept() -> None:
    """A long run of marks is dropped, so that the splitter's memory stays small, and speech goes on behind it."""
    assert split(["." * 10_000, " Hello there."])[-1].endswith("Hello there.")
    assert split(["-" * 10_000]) == []


def test_b31_sentences_that_come_at_once_go_one_by_one() -> None:
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
    [({"clause_chars": ()}, "clause_chars"), ({"first_words": -1}, "first_words"), ({"limit_chars": 5}, "limit_chars")],
)
def test_options_out_of_range_name_the_field(options: dict[str, object], field: str) -> None:
    """A wrong option is refused by name."""
    with pytest.raises(ValueError, match=field):
        SplitterOptions(**options)  # type: ignore[arg-type]


# -------------------------------------------------------------------------------------------------- the node


class Keep(Processor):
    def __init__(self) -> None:
        self.frames: list[Frame] = []

    def process(self, frame: SentenceFrame | LLMEnded) -> None:
        self.frames.append(frame)


def talk(*steps: Frame | str, ends: bool = True) -> list[str]:
    """Send frames (or, at a string, interrupt) through Sentences; what comes out, as text or `<utterance` for LLMEnded."""

    async def main() -> list[str]:
        out = Keep()
        session = Session(Sentences() >> out, inputs=[LLMTextFrame, LLMEnded, SayFrame])
        async with session:
            for step in steps:
                session.interrupt(step) if isinstance(step, str) else await session.send(step)
            if not ends:
                return shown(out.frames)
        return shown(out.frames)

    return run_virtual(main())


def shown(frames: list[Frame]) -> list[str]:
    return [f.text if isinstance(f, SentenceFrame) else f"<{f.utterance}" for f in frames if isinstance(f, SentenceFrame | LLMEnded)]


def token(text: str, utterance: int) -> LLMTextFrame:
    return LLMTextFrame(text, utterance=utterance)


def test_b28_the_tail_is_spoken_when_the_reply_ends() -> None:
    """A reply without a full stop is spoken whole, and closed behind its last words."""
    assert talk(token("Your order is on its way", 1), LLMEnded(utterance=1), ends=False) == ["Your order is on its way", "<1"]


def test_b28_the_tail_of_an_interrupted_reply_is_never_spoken() -> None:
    """What an interrupt left behind comes neither in a later turn nor at the end."""
    said = talk(
        token("First part done. Second half unfin", 2),
        "the caller",
        token("Sure.", 3),
        LLMEnded(utterance=3),
        SayFrame("That is all, farewell."),
    )
    assert said == ["First part done.", "Sure.", "<3", "That is all,", "farewell.", "<0"]


def test_b28_the_tail_of_a_failed_reply_is_dropped_and_its_utterance_closed() -> None:
    """A reply that stops without an end is closed when the next one begins, and not spoken in it."""
    said = talk(token("First part done. Second half unfin", 2), token("Sure.", 3), LLMEnded(utterance=3), LLMEnded(utterance=2))
    assert said == ["First part done.", "<2", "Sure.", "<3"]


def test_b28_a_stale_tail_does_not_follow_the_goodbye() -> None:
    """The last words of the call are the goodbye, not a fragment of a reply that failed before."""
    said = talk(token("First part done. Second half unfin", 2), SayFrame("That is all, farewell."))
    assert said == ["First part done.", "That is all,", "farewell.", "<0", "<2"]


def test_a_reply_goes_on_behind_a_say() -> None:
    """Something said in between takes nothing from a reply that is still being written."""
    said = talk(token("Let me see what I", 1), SayFrame("One moment."), token(" can find.", 1), LLMEnded(utterance=1))
    assert said == ["One moment.", "<0", "Let me see what I can find.", "<1"]


def test_the_end_of_the_call_yields_the_tail() -> None:
    """EndFrame speaks what was written so far and closes the utterance."""
    assert talk(token("Good night. Sleep we", 4)) == ["Good night.", "Sleep we", "<4"]


def test_an_empty_reply_is_still_closed() -> None:
    """A reply with nothing to say makes no sentence, and the voice learns that it is over."""
    assert talk(token(" ... ", 1), LLMEnded(utterance=1), LLMEnded(utterance=2)) == ["<1", "<2"]
    assert talk(SayFrame("😊", utterance=7)) == ["<7"]


def test_sentences_pass_the_conformance_kit() -> None:
    """Strangers pass, interrupts leave nothing behind, slow and failing neighbours change nothing."""
    feed = [token("Hello there. How are", 1), token(" you? I am", 1), LLMEnded(utterance=1), SayFrame("Well then.")]
    check_processor(Sentences, feed)


def test_the_end_frame_belongs_to_the_contract() -> None:
    """The node asks for EndFrame, so that it can yield its tail."""
    assert EndFrame in Sentences.contract.accepts
