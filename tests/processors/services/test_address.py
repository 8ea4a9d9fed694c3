"""Addresses of services."""

from __future__ import annotations

import pytest

from voiceflow.processors.services.address import checked_url, origin_of, websocket_url


@pytest.mark.parametrize(("url", "origin", "socket"), [
    ("https://api.example.com/v1/", "https://api.example.com", "wss://api.example.com/v1/"),
    ("http://127.0.0.1:8080", "http://127.0.0.1:8080", "ws://127.0.0.1:8080"),
    ("wss://user:secret@api.example.com/v1", "wss://api.example.com", "wss://user:secret@api.example.com/v1"),
])  # fmt: skip
def test_an_origin_shows_no_secret_and_a_socket_stands_where_its_page_does(url: str, origin: str, socket: str) -> None:
    """Scheme, host and port; the same host by WebSocket."""
    assert (origin_of(url), websocket_url(url)) == (origin, socket)


@pytest.mark.parametrize(
    "url", ["", "example.com", "ftp://example.com", "https://u:secret@example.com", "https://example.com?k=secret", "https://e.com#secret"]
)
def test_an_address_that_is_none_is_refused(url: str) -> None:
    """With whose it is; a secret in it is not shown."""
    with pytest.raises(ValueError, match="Owner: base_url") as raised:
        checked_url(url, "Owner")
    assert "secret" not in str(raised.value)
    assert checked_url("https://example.com/v1/", "Owner") == "https://example.com/v1"
