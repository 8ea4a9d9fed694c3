"""When something that was lost is tried again: the count itself."""

from __future__ import annotations

from typing import Any

import pytest

from voiceflow.backoff import Backoff, BackoffOptions


def test_waits_grow_with_jitter_up_to_a_cap() -> None:
    """Full jitter: anything from nothing to the whole wait; after the last try there is none."""
    for share in (0.0, 0.5, 1.0):
        reconnect = Backoff(BackoffOptions(first_wait_s=0.5, longest_wait_s=3.0, tries=6), lambda share=share: share)  # type: ignore[misc]
        waits = [reconnect.failed() for _ in range(6)]
        assert waits == [share * 0.5, share * 1.0, share * 2.0, share * 3.0, share * 3.0, None]


def test_a_connection_that_worked_begins_the_count_anew() -> None:
    """Drops that are far between are tried for ever."""
    reconnect = Backoff(BackoffOptions(first_wait_s=1.0, longest_wait_s=8.0, tries=3), lambda: 1.0)
    for _ in range(50):
        assert [reconnect.failed(), reconnect.failed()] == [1.0, 2.0]
        reconnect.worked()
    assert [reconnect.failed(), reconnect.failed(), reconnect.failed()] == [1.0, 2.0, None]


@pytest.mark.parametrize("wrong", [{"tries": 0}, {"first_wait_s": -1}, {"first_wait_s": 2, "longest_wait_s": 1}])
def test_tries_that_make_no_sense_are_errors(wrong: dict[str, Any]) -> None:
    """The error names all three values."""
    with pytest.raises(ValueError, match="tries"):
        BackoffOptions(**wrong)
