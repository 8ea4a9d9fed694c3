"""Tickets: each is good once, for its carrier, in its time, in any process that has the secret."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voiceflow.transports.telephony.tickets import Tickets

SECRET = b"0123456789abcdef"


def test_a_ticket_is_good_once() -> None:
    """And each is another."""
    tickets = Tickets()
    issued = [tickets.issue("twilio", 100.0) for _ in range(50)]
    assert len(set(issued)) == 50
    assert [tickets.take(ticket, "twilio", 101.0) for ticket in issued] == [True] * 50
    assert [tickets.take(ticket, "twilio", 101.0) for ticket in issued] == [False] * 50


@pytest.mark.parametrize(
    ("carrier", "at", "good"), [("twilio", 159.9, True), ("twilio", 160.1, False), ("plivo", 101.0, False), ("twilio", 90.0, False)]
)
def test_a_ticket_is_for_its_carrier_and_its_time(carrier, at, good) -> None:
    """A minute by default; and none comes from the future."""
    tickets = Tickets()
    assert tickets.take(tickets.issue("twilio", 100.0), carrier, at) is good


def test_any_process_with_the_secret_takes_a_ticket() -> None:
    """Behind one address one process may answer the webhook and another the socket."""
    ticket = Tickets(SECRET).issue("twilio", 100.0)
    assert Tickets(SECRET).take(ticket, "twilio", 101.0)
    assert not Tickets().take(ticket, "twilio", 101.0)
    assert not Tickets(SECRET + b"x").take(ticket, "twilio", 101.0)


@given(st.text(max_size=100))
def test_nothing_else_is_a_ticket(text) -> None:
    """Whatever stands in its place."""
    assert not Tickets(SECRET).take(text, "twilio", 100.0)


@given(at=st.integers(0, 47), letter=st.sampled_from("AZaz09-_=!é"))
def test_a_changed_ticket_is_none(at, letter) -> None:
    """Each letter counts, and none gives a second ticket for the same."""
    tickets = Tickets(SECRET)
    ticket = tickets.issue("twilio", 100.0)
    other = ticket[:at] + letter + ticket[at + 1 :]
    assert tickets.take(other, "twilio", 101.0) == (other == ticket)
    assert tickets.take(ticket, "twilio", 101.0) == (other != ticket)
    assert not tickets.take(ticket + "=", "twilio", 101.0)


def test_tickets_that_were_taken_are_forgotten_when_they_are_too_old() -> None:
    """Memory does not grow with the calls of a day."""
    tickets = Tickets()
    for minute in range(100):
        assert tickets.take(tickets.issue("twilio", minute * 60.0), "twilio", minute * 60.0 + 1)
    assert len(tickets._taken) <= 2


@pytest.mark.parametrize("bad", [{"secret": b"short"}, {"life_s": 0}])
def test_weak_tickets_are_refused(bad) -> None:
    """A short secret could be guessed."""
    with pytest.raises(ValueError, match="Tickets"):
        Tickets(**bad)
