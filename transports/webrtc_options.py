"""How calls over WebRTC are made, watched and taken, and what an offer is refused with.

The one rule: nothing here needs aiortc.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from voiceflow.errors import VoiceflowError
from voiceflow.transports.line import LineOptions
from voiceflow.transports.speaker import SpeakerOptions

__all__ = ["IceServer", "PeerOptions", "WebRTCError", "WebRTCOptions"]

GUESSED_S = 0.15
"""From a packet's leaving to the ear, before anything is known."""


class WebRTCError(VoiceflowError):
    """An offer that cannot be answered. ``status``: what to say in HTTP: 400, 404, 413, 503."""

    def __init__(self, text: str, status: int = 400) -> None:
        super().__init__(text)
        self.status = status


@dataclass(frozen=True, slots=True)
class IceServer:
    """A STUN or TURN server: ``stun:host:3478``, ``turn:host:3478?transport=udp`` with a name and a password."""

    url: str
    username: str = ""
    credential: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        if not self.url.startswith(("stun:", "turn:", "turns:")):
            raise ValueError(f"IceServer: {self.url!r} is no address of one; it begins with stun:, turn: or turns:")


@dataclass(frozen=True, slots=True)
class PeerOptions:
    """How a connection is made and watched.

    ``ice_servers``: none, for callers who can reach this machine. ``connect_s``: from the answer to the connection.
    ``silent_s``: without a single packet of any kind for so long the far end is gone; a browser sends sound while it is
    muted, and reports while it has no microphone. ``hold_s``: where the caller's sound came steadily and nothing has come for so long,
    the network is believed to be down: the agent holds its speech, and goes on from there when something comes.
    ``wait_s``: how long a packet of sound waits for one before it; then that is silence.
    """

    ice_servers: Sequence[IceServer] = ()
    connect_s: float = 15.0
    silent_s: float = 8.0
    hold_s: float = 1.0
    wait_s: float = 0.06

    def __post_init__(self) -> None:
        for name in ("connect_s", "silent_s", "hold_s"):
            if getattr(self, name) <= 0:
                raise ValueError(f"PeerOptions: {name} is {getattr(self, name)}, it must be more than 0")


@dataclass(frozen=True, slots=True)
class WebRTCOptions:
    """How calls are taken. ``line.speaker``: ``continuous`` is set, since sound flows from the start to the end of a call."""

    peer: PeerOptions = field(default_factory=PeerOptions)
    line: LineOptions = field(default_factory=lambda: LineOptions(speaker=SpeakerOptions(latency_s=GUESSED_S, latency_known=False)))
    max_offer: int = 65536
    """Characters of an offer."""

    def __post_init__(self) -> None:
        if self.max_offer < 1:
            raise ValueError(f"WebRTCOptions: max_offer is {self.max_offer}, it must be 1 or more")
