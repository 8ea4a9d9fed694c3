"""What a line asks of a connection, and what it allows a far end.

The one rule: whatever carries messages looks the same from here on; its library's errors stay with it.
"""

from __future__ import annotations

import asyncio
import logging
import socket as sockets
from dataclasses import dataclass, field
from typing import Protocol

from voiceflow.transports.speaker import SpeakerOptions
from voiceflow.transports.wire import POLICY, Message, WireError

__all__ = ["UNSENT", "LineOptions", "Rate", "Socket", "close_socket", "keep_little_unsent"]

log = logging.getLogger("voiceflow")

REASON_BYTES = 120
"""A websocket's close frame has room for 123."""

UNSENT = 8192
"""Bytes that may wait in a library, and as many in the system: of what is behind them an interrupt takes all back."""


class Socket(Protocol):
    """A connection that carries messages. Its library's errors do not come through: a lost connection is a closed one."""

    @property
    def lost(self) -> bool:
        """It is closed, but the far end did not close it: the network did, and it may come back. False for a protocol without a goodbye."""

    async def receive(self) -> Message | None:
        """The next message; None once it is closed, by whichever side. Cancelling loses none."""

    async def send(self, message: Message) -> None:
        """Send, waiting while the far end takes no more. Raises ConnectionError when it is closed."""

    async def close(self, code: int, reason: str) -> None:
        """Say so and close; again does nothing. Waits for the far end a few seconds at most; raises nothing."""


@dataclass(frozen=True, slots=True)
class LineOptions:
    """What a line allows."""

    handshake_s: float = 10.0
    """For the far end to say what it has to say before sound flows."""
    stall_s: float = 10.0
    """A far end that takes nothing for so long is hung up on. So much sound waits for it at most."""
    live_s: float = 2.0
    """The caller's sound that is held for a pipeline that is not ready yet, or falls behind."""
    messages_per_s: float = 500.0
    """Of more than this, for long, the far end is hung up on."""
    burst: int = 2000
    """Messages that may come at once, after an outage."""
    close_s: float = 2.0
    """For the last words to leave, and again for the socket to close."""
    speaker: SpeakerOptions = field(default_factory=lambda: SpeakerOptions(latency_s=0.2, latency_known=False))
    """Of the playout. ``block_ms`` and ``ahead_s`` are the wire's; ``latency_s`` is the guess before there was any report."""

    def __post_init__(self) -> None:
        for name in ("handshake_s", "stall_s", "live_s", "messages_per_s", "burst", "close_s"):
            if not getattr(self, name) > 0:
                raise ValueError(f"LineOptions: {name} is {getattr(self, name)}, it must be more than 0")


class Rate:
    """How many messages came, less those that are allowed by now. Pure."""

    def __init__(self, options: LineOptions) -> None:
        self._options = options
        self._level = 0.0
        self._at = 0.0

    def check(self, now: float) -> None:
        """One more came. Raises WireError if that is too many."""
        self._level = max(self._level - (now - self._at) * self._options.messages_per_s, 0.0) + 1
        self._at = now
        if self._level > self._options.burst:
            raise WireError(f"more than {self._options.messages_per_s:g} messages a second", POLICY)


def keep_little_unsent(socket: sockets.socket | None) -> None:
    """Keep sound out of the system's buffers, where no interrupt can take it back, as far as the system lets one."""
    option = getattr(sockets, "TCP_NOTSENT_LOWAT", None)
    if option is not None and socket is not None and socket.family in (sockets.AF_INET, sockets.AF_INET6):
        socket.setsockopt(sockets.IPPROTO_TCP, option, UNSENT)


async def close_socket(socket: Socket, code: int, reason: str, timeout_s: float) -> None:
    """Close it within the time there is, with as much of the reason as there is room for."""
    short = reason.encode()[:REASON_BYTES].decode(errors="ignore")
    try:
        async with asyncio.timeout(timeout_s):
            await socket.close(code, short)
    except TimeoutError:
        log.debug("a socket did not close within %g s", timeout_s)
