"""What figures mean by what stands beside them, as `say` reads them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voiceflow.processors.readings import address, date, month, telephone
from voiceflow.processors.spoken import say


@pytest.mark.parametrize(
    ("written", "spoken"),
    [
        ("On May 4, 1987", "on | may | fourth , | nineteen eighty seven"),
        ("Jan. 5 to Feb. 7", "january | fifth | to | february | seventh"),
        ("Jan. was cold", "jan . | was | cold"),
        ("4 May 2024", "the fourth of | may | twenty twenty four"),
        ("the 4 May", "the | fourth of | may"),
        ("May 10-12", "may | tenth to twelfth"),
        ("I may 4 times", "i | may | four | times"),
        ("in May, 4 came", "in | may , | four | came"),
        ("May 45", "may | forty five"),
        ("2026-11-30.", "november thirtieth twenty twenty six ."),
        ("11/30/2026", "november thirtieth twenty twenty six"),
        ("30.11.2026", "november thirtieth twenty twenty six"),
        ("10 km, 1 kg.", "ten | kilometers , | one | kilogram ."),
        ("1.0 km", "one point zero | kilometers"),
        ("5 in the room", "five | in | the | room"),
        ("60 km/h", "sixty | kilometers per hour"),
        ("3 x 4", "three | times | four"),
        ("12 EUR, USD 12 now", "twelve | euros , |  | twelve dollars | now"),
        ("USD 12.50", " | twelve point five zero dollars"),
        ("5€ 5,50€ 17,5", "five euros | five euros and fifty cents | seventeen point five"),
        ("3½ cups ½.", "three and one half | cups | one half ."),
        ("a.b-c@d.org", "a dot b dash c at d dot org"),
        ("https://x.org/a?b=1", "x dot org slash a question mark b equals one"),
        ("(415) 555-0100.", "four one five , | five five five , zero one zero zero ."),
        ("+1 415 555 0100", "plus one , | four one five , | five five five , | zero one zero zero"),
        ("020 7946 0958", "zero two zero , | seven nine four six , | zero nine five eight"),
        ("100 200 300", "one hundred | two hundred | three hundred"),
    ],
)
def test_neighbours_say_what_figures_mean(written: str, spoken: str) -> None:
    """Dates, telephone numbers, units, money and addresses are read as people read them."""
    assert " | ".join(said for _, said in say(written)) == spoken


@pytest.mark.parametrize("core", ["13/14/2020", "2020-00-10", "2020-13-13", "32.12.2020", "1-2-3", "10/2020", "1/2.2020"])
def test_no_date_is_no_date(core: str) -> None:
    """A month or a day that there is not, or figures of another form."""
    assert date(core) is None


def test_months_are_names_with_a_capital() -> None:
    """Whole or cut short, with marks about them; "may" and "mar" are words."""
    assert [month(word) for word in ("May", "Sept.", "(Dec.,", "may", "Maybe", "")] == ["may", "september", "december", None, None, None]


def test_an_address_has_its_form() -> None:
    """Words with dots are none."""
    assert address("e.g.") is address("and/or") is address("a@b") is None
    assert address("www.x.com/") == "W W W dot x dot com"


@pytest.mark.parametrize("text", ["room 555 0100 234 x", "1 2 3", "+1", "(2) 3", "2024 12 31 10"])
def test_figures_in_a_row_need_not_be_a_telephone_number(text: str) -> None:
    """Too few, too many, or not grouped like one."""
    assert telephone(text.split()) == {}


@given(
    st.lists(
        st.sampled_from(
            ["May", "4", "4,", "Jan.", "USD", "12.50", "km", "x", "+1", "(415)", "555-0100", "½", "5€", "1/2/2020", "a@b.co", "."]
        ),
        max_size=8,
    )
)
def test_each_written_word_keeps_its_entry(words: list[str]) -> None:
    """However they stand together, one word gives one entry, and no figure is left in what is said."""
    said = say(" ".join(words))
    assert [written for written, _ in said] == words
    assert not any(c.isdigit() or c in "$€½/@+" for _, spoken in said for c in spoken)
