"""When a connection to a service is made again: what its failure means for the count."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voiceflow.backoff import Backoff, BackoffOptions
from voiceflow.processors.services.retry import ServiceError, Verdict, wait_after

LATER = ServiceError("no", verdict=Verdict.LATER)


def waits(backoff: Backoff, error: ServiceError, count: int) -> list[float | None]:
    return [wait_after(error, backoff) for _ in range(count)]


def test_the_waits_grow_up_to_a_limit_and_then_it_is_given_up() -> None:
    """Doubled each time; after that one may still try, once for each time it is wanted."""
    backoff = Backoff(BackoffOptions(first_wait_s=1.0, longest_wait_s=3.0, tries=5), lambda: 1.0)
    assert waits(backoff, LATER, 7) == [1.0, 2.0, 3.0, 3.0, None, None, None]


def test_the_count_begins_anew_when_it_has_worked() -> None:
    """Six drops an hour are no reason to give up."""
    backoff = Backoff(BackoffOptions(first_wait_s=1.0, tries=2), lambda: 1.0)
    for _ in range(6):
        assert waits(backoff, LATER, 1) == [1.0]
        backoff.worked()
    assert waits(backoff, LATER, 2) == [1.0, None]


def test_what_cannot_succeed_is_not_tried_again() -> None:
    """A wrong key stays wrong."""
    assert wait_after(ServiceError("no"), Backoff(BackoffOptions(), lambda: 1.0)) is None


def test_a_connection_that_was_good_is_made_again_at_once() -> None:
    """The first time."""
    assert waits(Backoff(BackoffOptions(first_wait_s=1.0), lambda: 1.0), ServiceError("no", verdict=Verdict.AT_ONCE), 2) == [0.0, 2.0]


@pytest.mark.parametrize(("asked_s", "found"), [(0.5, 1.0), (7.0, 7.0), (11.0, None)])
def test_what_the_service_asks_for_is_waited_for_within_bounds(asked_s: float, found: float | None) -> None:
    """Longer than the longest wait is too long."""
    error = ServiceError("no", verdict=Verdict.LATER, retry_after_s=asked_s)
    assert wait_after(error, Backoff(BackoffOptions(first_wait_s=1.0, longest_wait_s=10.0), lambda: 1.0)) == found


@given(st.integers(1, 200), st.floats(0, 1), st.floats(0.01, 5), st.floats(5, 60))
def test_the_bounds_hold(tries: int, chance: float, first_s: float, longest_s: float) -> None:
    """Full jitter: from nothing to the doubled wait, never more than the longest; not more tries than allowed."""
    backoff = Backoff(BackoffOptions(first_wait_s=first_s, longest_wait_s=longest_s, tries=tries), lambda: chance)
    found = waits(backoff, LATER, tries)
    assert found[-1] is None
    for number, wait_s in enumerate(found[:-1]):
        assert wait_s == pytest.approx(chance * min(longest_s, first_s * 2.0**number))


@pytest.mark.parametrize("more", [{"tries": 0}, {"first_wait_s": -1.0}, {"first_wait_s": 2.0, "longest_wait_s": 1.0}])
def test_options_that_make_no_sense_are_refused(more: dict[str, float]) -> None:
    """With all their names."""
    with pytest.raises(ValueError, match=r"tries .* longest_wait_s .* first_wait_s"):
        BackoffOptions(**more)  # type: ignore[arg-type]
