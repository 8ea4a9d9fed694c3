"""Text for voices that read what is written letter by letter."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voiceflow import LLMEnded, SentenceFrame, Session
from voiceflow.processors.lexicon import Lexicon
from voiceflow.processors.spoken_forms import SpokenForms, spoken_form
from voiceflow.testing import Collector, check_processor, run_virtual


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("It is $12.50, please.", "It is twelve dollars and fifty cents, please."),
        ("Dr. Lane's well-known FBI file: 50%!", "doctor Lane's well-known FBI file: fifty percent!"),
        ("Call (415) 555-0100.", "Call four one five, five five five, zero one zero zero."),
        ("On May 4, 1987 at 3:45 p.m.", "On May fourth, nineteen eighty seven at three forty five p.m."),
        ("10 km for USD 12", "ten kilometers for twelve dollars"),
        ("ana@example.com", "ana at example dot com"),
        ('Wait <break time="1.5 s"/> 2 days. ', 'Wait <break time="1.5 s"/> two days. '),
        ("“Hello!” — she said 😊", "“Hello!” — she said 😊"),
        ("Привет, 你好", "Привет, 你好"),
        ("  ", "  "),
    ],
)
def test_what_is_read_otherwise_is_written_out(text: str, words: str) -> None:
    """Figures, signs and abbreviations become words; other words, their capitals and marks, and tags stay."""
    assert spoken_form(text) == words


def test_a_lexicon_goes_before() -> None:
    """Its spellings stand for the words, with their marks; IPA cannot, and is refused by name."""
    assert spoken_form("Nguyen's 2 cats, SQL!", Lexicon({"nguyen": "win", "SQL": "sequel"})) == "win's two cats, sequel!"
    with pytest.raises(ValueError, match="Siobhan"):
        SpokenForms(Lexicon({"Siobhan": "/ʃɪvˈɔːn/"}))


@given(st.text(alphabet="0123456789.,:;-–/$£€%°'()apmkKst +#<>= "))
def test_no_figure_is_left(text: str) -> None:
    """Outside of tags everything that has a digit is in words, whatever stands beside it."""
    assert not any(c.isdigit() for c in spoken_form(text.replace("<", "")))


def test_the_node_hands_on_the_piece_in_words() -> None:
    """Its utterance stays, and other frames pass by."""

    async def main() -> list[object]:
        out = Collector()
        async with Session(SpokenForms() >> out, inputs=[SentenceFrame, LLMEnded]) as session:
            await session.send(SentenceFrame("It is $5.", utterance=3))
            await session.send(LLMEnded(utterance=3))
        return [f if isinstance(f, LLMEnded) else (f.text, f.utterance) for f in out.frames if isinstance(f, SentenceFrame | LLMEnded)]

    piece, ended = run_virtual(main())
    assert piece == ("It is five dollars.", 3)
    assert isinstance(ended, LLMEnded)


def test_it_passes_the_conformance_kit() -> None:
    """Strangers pass, interrupts leave nothing behind, slow and failing neighbours change nothing."""
    check_processor(SpokenForms, [SentenceFrame("It is $5.", utterance=1), SentenceFrame("Bye.", utterance=1)])
