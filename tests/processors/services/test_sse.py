"""Server-sent events."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voiceflow.processors.services.retry import ServiceError
from voiceflow.processors.services.sse import LONGEST, EventStream, ServerEvent

STREAM = (
    "\ufeff: a comment that keeps the connection alive\n\n"
    "data: {\"text\": \"Grüße 👋\"}\r\n\r\n"
    "event: delta\rdata: one\rdata:two\r\r"
    "id: 7\nretry: 10\n: another\nunknown field\ndata\n\n"
    "event: nothing\n\n"
    "data: last, with no blank line behind it"
).encode()  # fmt: skip
EVENTS = [
    ServerEvent('{"text": "Grüße 👋"}'),
    ServerEvent("one\ntwo", "delta"),
    ServerEvent(""),
    ServerEvent("last, with no blank line behind it"),
]


def events_of(*chunks: bytes) -> list[ServerEvent]:
    stream = EventStream()
    return [event for chunk in chunks for event in stream.feed(chunk)] + stream.close()


@given(st.lists(st.integers(0, len(STREAM)), max_size=12))
def test_where_the_bytes_are_cut_makes_no_difference(cuts: list[int]) -> None:
    """Within a line ending, a field name or a letter of several bytes: the events are the same."""
    places = [0, *sorted(cuts), len(STREAM)]
    assert events_of(*(STREAM[a:b] for a, b in itertools.pairwise(places))) == EVENTS


def test_byte_by_byte() -> None:
    """One byte at a time is the same, too."""
    assert events_of(*(STREAM[at : at + 1] for at in range(len(STREAM)))) == EVENTS


def test_an_event_is_there_as_soon_as_its_blank_line_is() -> None:
    """It is not held back until the next one."""
    assert EventStream().feed(b"data: one\n\n") == [ServerEvent("one")]
    assert EventStream().feed(b"data: one\r\r") == [ServerEvent("one")]


def test_bytes_without_end_are_refused() -> None:
    """A server that sends no line ends cannot fill the memory."""
    for piece in (b"x" * 60000, b"data: " + b"x" * 60000 + b"\n"):
        with pytest.raises(ServiceError, match="is this the address of a streaming API"):
            events_of(*[piece] * (LONGEST // 60000 + 1))


@given(st.binary(max_size=200))
def test_any_bytes_can_come(data: bytes) -> None:
    """Bytes that are no events raise nothing."""
    events_of(data)
