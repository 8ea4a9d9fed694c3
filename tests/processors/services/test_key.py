"""Where keys are found."""

from __future__ import annotations

import pytest

from voiceflow.processors.services.key import find_key
from voiceflow.processors.services.retry import ServiceError


@pytest.mark.parametrize(
    ("given", "environment", "variable", "found"),
    [
        ("k-1", "k-2", "MY_KEY", "k-1"),
        (" k-1\n", "", "MY_KEY", "k-1"),
        (None, " k-2 ", "MY_KEY", "k-2"),
        (None, "k-2", None, ""),
        ("", "k-2", None, ""),
    ],
)
def test_the_key_that_was_given_comes_before_the_environments(
    given: str | None, environment: str, variable: str | None, found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blanks around it are left out; without a variable there need be none."""
    monkeypatch.setenv("MY_KEY", environment)
    assert find_key("https://example.com", given, variable) == found


@pytest.mark.parametrize(
    ("given", "says"), [(None, "MY_KEY"), ("", "MY_KEY"), ("  ", "MY_KEY"), ("a b", "blanks"), ("ä", "blanks"), ("a\x00", "blanks")]
)
def test_what_is_no_key_is_refused_and_not_shown(given: str | None, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line says whose it is and what to set."""
    monkeypatch.delenv("MY_KEY", raising=False)
    with pytest.raises(ServiceError, match=says) as raised:
        find_key("https://example.com", given, "MY_KEY")
    assert "https://example.com" in str(raised.value)
    assert not (given or "").strip() or given not in str(raised.value)
