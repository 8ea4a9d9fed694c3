"""Whether a caller has fallen silent: from the times at which anything came."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from voiceflow.transports.contact import STEADY, Contact


def steady(until: float = 1.0) -> Contact:
    """A caller whose sound has come every 20 ms, up to then."""
    contact = Contact(1.0)
    for number in range(50):
        contact.sound_came(until - 0.02 * (49 - number))
    return contact


def test_a_steady_caller_is_lost_when_nothing_has_come_for_so_long() -> None:
    """No sooner, and for as long as nothing comes."""
    contact = steady(until=1.0)
    assert [contact.is_lost(at) for at in (1.0, 1.99, 2.0, 60.0)] == [False, False, True, True]


def test_sound_brings_a_lost_caller_back() -> None:
    """One packet does; the caller is missed again once it comes steadily again."""
    contact = steady(until=1.0)
    contact.sound_came(5.0)
    assert [contact.is_lost(at) for at in (5.0, 60.0)] == [False, False]
    for number in range(STEADY):
        contact.sound_came(6.0 + 0.02 * number)
    assert contact.is_lost(7.2)


def test_a_word_shows_that_the_caller_is_there() -> None:
    """While it comes among the sound the caller is missed when both stop; when it is all that comes, the sound was turned off."""
    contact = steady(until=1.0)
    contact.word_came(1.5)
    assert [contact.is_lost(at) for at in (2.4, 2.5)] == [False, True]
    contact.word_came(3.0)
    assert [contact.is_lost(at) for at in (3.0, 4.5, 60.0)] == [False, False, False]


def test_a_caller_who_sends_little_is_not_missed() -> None:
    """As one does in whose coder silence is a packet every 400 ms, or who has no microphone."""
    contact = Contact(1.0)
    for number in range(100):
        contact.sound_came(0.4 * number)
        contact.word_came(0.4 * number + 0.1)
    assert not contact.is_lost(100.0)
    assert not Contact(1.0).is_lost(100.0)


@given(st.lists(st.tuples(st.floats(0.0, 2.0), st.booleans()), max_size=60), st.floats(0.0, 3.0))
def test_nobody_is_lost_who_was_heard_lately(came: list[tuple[float, bool]], later: float) -> None:
    """Whatever came and when: less than ``silent_s`` after it, the caller is there."""
    contact, now = Contact(1.0), 0.0
    for wait, is_sound in came:
        now += wait
        (contact.sound_came if is_sound else contact.word_came)(now)
    assert not contact.is_lost(now + later) or later >= 1.0 - 1e-6
