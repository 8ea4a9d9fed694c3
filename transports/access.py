"""Who may call: the token that is shown, and the page that calls.

The one rule: whatever a stranger writes is answered with yes or no; nothing of theirs raises. Pure.
"""

from __future__ import annotations

import hmac
from urllib.parse import urlsplit

__all__ = ["bearer", "origin_allowed", "same"]


def same(given: str, right: str | bytes) -> bool:
    """Whether two secrets or signatures are equal, in constant time."""
    # Bytes that are no text reach us as lone surrogates, from a header as from the environment; plain UTF-8 would raise.
    wanted = right if isinstance(right, bytes) else right.encode("utf-8", "surrogatepass")
    return hmac.compare_digest(given.encode("utf-8", "surrogatepass"), wanted)


def bearer(authorization: str) -> str | None:
    """The token in an ``Authorization`` header; None where it shows none."""
    scheme, _, token = authorization.partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None


def origin_allowed(origin: str, host: str, origins: tuple[str, ...], *, has_token: bool) -> bool:
    """Whether a page of this origin ("": it is no browser) may call the server that it calls ``host``.

    A browser lets any page open a socket to any server. So where there is no list of ``origins``, and no token either, only pages of
    this host may.
    """
    if not origin or origin in origins:
        return True
    return not origins and (has_token or _host_of(origin) == host)


def _host_of(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc
    except ValueError:  # http://[
        return None
