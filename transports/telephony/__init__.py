"""Phone calls: the media streams of carriers, as wires, and what stands around them.

``twilio``, ``telnyx``, ``plivo``, ``vonage`` and ``exotel`` each know one carrier's messages on the socket;
``*_account`` its webhooks, its signatures and how a call is hung up. ``routes`` puts them on an HTTP server.
"""

from __future__ import annotations

__all__: list[str] = []
