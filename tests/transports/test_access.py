"""Who may call: tokens, and the origins of pages, whatever a stranger writes there."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from voiceflow.transports.access import bearer, origin_allowed, same

ANYTHING = st.text(st.characters(), max_size=30)
"""Lone surrogates too: that is how libraries hand on bytes that are no text."""


@given(ANYTHING, ANYTHING)
def test_only_the_same_is_the_same(one: str, other: str) -> None:
    """Of any characters, against text and against bytes."""
    assert same(one, one)
    assert same(one, other) is (one == other)
    assert same(one, one.encode("utf-8", "surrogatepass"))


@given(ANYTHING)
def test_any_header_shows_a_token_or_none(token: str) -> None:
    """The scheme in any case; what stands alone, or under another scheme, is none."""
    assert bearer(f"Bearer {token}") == bearer(f"bEARER  {token} ") == token.strip()
    assert bearer(f"Basic {token}") is None
    assert bearer("") is None


@given(ANYTHING)
def test_any_origin_is_allowed_or_not(host: str) -> None:
    """Without a token and a list only this host's pages may call, and what is no address is none of them."""
    for origin in (f"http://{host}", host, f"http://[{host}", f"http://{host}]"):
        assert origin_allowed(origin, "here.example", (), has_token=False) is (origin in ("", "http://here.example"))
        assert origin_allowed(origin, "here.example", (), has_token=True)
