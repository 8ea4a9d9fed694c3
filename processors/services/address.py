"""Addresses of services. The one rule: a secret has no place in an address, and an address in an error shows none."""

from __future__ import annotations

from urllib.parse import urlsplit

__all__ = ["checked_url", "origin_of", "websocket_url"]


def checked_url(url: str, owner: str, example: str = "https://api.example.com/v1 or http://127.0.0.1:8080/v1") -> str:
    """The URL of an HTTP service without a slash at its end. Raises ValueError if it is none, or holds a secret or a query."""
    parts = urlsplit(url)
    if parts.username or parts.password or parts.query or parts.fragment:
        raise ValueError(f"{owner}: base_url must be an address alone, with no user, password, query or fragment; a key goes into api_key")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{owner}: base_url is {url!r}; it must be like {example}")
    return url.rstrip("/")


def origin_of(url: str) -> str:
    """Scheme, host and port."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def websocket_url(url: str) -> str:
    """The address of the same host by way of WebSocket: ``https`` becomes ``wss``, ``http`` becomes ``ws``."""
    return "ws" + url.removeprefix("http") if url.startswith("http") else url
