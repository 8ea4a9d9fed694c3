"""One-time tickets: only a socket whose URL we gave to a carrier is let in.

The one rule: a ticket is believed by its own signature, so any process that has the secret can take it, and one process takes
it once. Pure: time is passed in.
"""

from __future__ import annotations

import binascii
import hashlib
import hmac
import secrets
import struct
from base64 import urlsafe_b64decode, urlsafe_b64encode

__all__ = ["Tickets"]

_HEAD = struct.Struct(">Q12s")
TAG_BYTES = 16


class Tickets:
    """``secret``: the same in all processes behind one address; None: of this process alone. ``life_s``: how long one is good."""

    def __init__(self, secret: bytes | None = None, life_s: float = 60.0) -> None:
        if secret is not None and len(secret) < 16:
            raise ValueError(f"Tickets: the secret has {len(secret)} bytes, it must have at least 16")
        if life_s <= 0:
            raise ValueError(f"Tickets: life_s is {life_s}, it must be more than 0 seconds")
        self.life_s = life_s
        self._secret = secret or secrets.token_bytes(32)
        self._taken: dict[bytes, float] = {}
        """Those taken and not too old yet, and when they will be."""

    def issue(self, carrier: str, now: float) -> str:
        """A new ticket, of letters, digits, ``-`` and ``_``."""
        head = _HEAD.pack(round((now + self.life_s) * 1000), secrets.token_bytes(12))
        return urlsafe_b64encode(head + self._tag(carrier, head)).decode()

    def take(self, ticket: str, carrier: str, now: float) -> bool:
        """Whether it is one of ours for this carrier, not too old and not taken yet. It is now."""
        try:
            data = urlsafe_b64decode(ticket.encode("ascii"))
        except (binascii.Error, ValueError):
            return False
        head, tag = data[: _HEAD.size], data[_HEAD.size :]
        if len(head) < _HEAD.size or not hmac.compare_digest(tag, self._tag(carrier, head)):
            return False
        until = _HEAD.unpack(head)[0] / 1000
        self._taken = {taken: good for taken, good in self._taken.items() if good >= now}
        if until < now or until > now + self.life_s + 1 or head in self._taken:
            return False
        self._taken[head] = until
        return True

    def _tag(self, carrier: str, head: bytes) -> bytes:
        return hmac.digest(self._secret, carrier.encode() + b"|" + head, hashlib.sha256)[:TAG_BYTES]
