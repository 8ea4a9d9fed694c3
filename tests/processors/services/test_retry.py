"""When a request is made again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voiceflow.processors.services.retry import Retries, RetryOptions, ServiceError, Verdict, asked_to_wait_s, failure_of_status

LATER = ServiceError("no", verdict=Verdict.LATER)


def waits(options: RetryOptions, error: ServiceError, chance: float = 1.0) -> list[float]:
    retries, elapsed, found = Retries(options, lambda: chance), 0.0, []
    while (wait_s := retries.wait_s(error, elapsed)) is not None:
        found.append(wait_s)
        elapsed += wait_s
    return found


def test_the_waits_double_up_to_a_limit() -> None:
    """0.25, 0.5, 1 ... and not more than the longest."""
    assert waits(RetryOptions(tries=6, longest_wait_s=2.0, patience_s=60), LATER) == [0.25, 0.5, 1.0, 2.0, 2.0]
    assert waits(RetryOptions(tries=3, patience_s=60), LATER, chance=0.0) == [0.125, 0.25]
    assert waits(RetryOptions(tries=1), LATER) == []


def test_what_cannot_succeed_is_not_tried_again() -> None:
    """A wrong key stays wrong."""
    assert waits(RetryOptions(), ServiceError("no")) == []


def test_a_kept_connection_that_was_closed_is_no_reason_to_wait() -> None:
    """The first time; a server that does so again is in trouble."""
    assert waits(RetryOptions(), ServiceError("no", verdict=Verdict.AT_ONCE)) == [0.0, 0.5]


@pytest.mark.parametrize(("asked_s", "found"), [(2.0, [2.0, 2.0]), (5.0, [5.0]), (9.0, []), (0.0, [0.25, 0.5])])
def test_a_wait_that_the_service_asks_for_is_kept_or_it_is_given_up(asked_s: float, found: list[float]) -> None:
    """It is never asked before that time; where that is too long for a caller, it fails at once."""
    assert waits(RetryOptions(), ServiceError("no", verdict=Verdict.LATER, retry_after_s=asked_s)) == found


@given(st.integers(1, 8), st.floats(0, 5), st.floats(0, 20), st.floats(0, 30), st.floats(0, 1))
def test_the_bounds_hold(tries: int, first_s: float, patience_s: float, asked_s: float, chance: float) -> None:
    """Whatever is asked for: not more tries than allowed, none after the patience is over, none before its time."""
    options = RetryOptions(tries=tries, first_wait_s=first_s, longest_wait_s=max(first_s, 4.0), patience_s=patience_s)
    found = waits(options, ServiceError("no", verdict=Verdict.LATER, retry_after_s=asked_s), chance)
    assert len(found) < tries
    assert sum(found) <= patience_s + 1e-9
    assert all(wait_s >= asked_s for wait_s in found)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "2"}, 2.0),
        ({"retry-after": " 1.5 "}, 1.5),
        ({"retry-after-ms": "250", "retry-after": "1"}, 0.25),
        ({"retry-after": "Tue, 01 Dec 2026 10:00:05 GMT", "date": "Tue, 01 Dec 2026 10:00:01 GMT"}, 4.0),
        ({"retry-after": "Tue, 01 Dec 2026 10:00:05 GMT", "date": "Tue, 01 Dec 2026 11:00:00 GMT"}, 0.0),
        ({"retry-after": "Tue, 01 Dec 2026 10:00:05 GMT"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-1"}, None),
        ({}, None),
    ],
)
def test_retry_after_is_read_in_each_form(headers: dict[str, str], seconds: float | None) -> None:
    """Seconds, milliseconds, or a date, which is measured by the server's own clock."""
    assert asked_to_wait_s(headers) == seconds


@pytest.mark.parametrize(
    ("status", "code", "again", "says"),
    [
        (401, "invalid_api_key", False, "environment variable"),
        (403, "", False, "may not use"),
        (404, "model_not_found", False, "no such model"),
        (400, "context_length_exceeded", False, "max_tokens"),
        (302, "", False, "has moved"),
        (429, "rate_limit_exceeded", True, "limit"),
        (429, "insufficient_quota", False, "no quota"),
        (408, "", True, "try again"),
        (500, "", True, "try again"),
        (503, "", True, "try again"),
    ],
)
def test_a_status_says_what_to_do(status: int, code: str, again: bool, says: str) -> None:
    """The status, the vendor's word for it, and a cure; tried again only where that can help."""
    error = failure_of_status(status, {}, "https://api.example.com", code)
    assert (error.status, error.verdict is Verdict.LATER) == (status, again)
    assert f"answered {status}" in str(error)
    assert says in str(error)
    assert code in str(error)


def test_the_service_can_forbid_another_try() -> None:
    """``x-should-retry: false``, as the vendor's own client reads it."""
    assert failure_of_status(500, {"x-should-retry": "false"}, "x").verdict is Verdict.NEVER


@pytest.mark.parametrize("code", ["Incorrect key sk-1234", "sk-test-1234567890", "abc 1", "a" * 60, "ab\ncd", "key1234567"])
def test_only_a_plain_word_of_a_body_is_told(code: str) -> None:
    """What might be a key or a sentence is not."""
    assert code not in str(failure_of_status(400, {}, "x", code, code))


@pytest.mark.parametrize("options", [{"tries": 0}, {"first_wait_s": -1}, {"longest_wait_s": 0.1}, {"patience_s": -1}])
def test_options_that_make_no_sense_are_refused(options: dict[str, float]) -> None:
    """With the names of the fields."""
    with pytest.raises(ValueError, match=next(iter(options))):
        RetryOptions(**options)  # type: ignore[arg-type]
