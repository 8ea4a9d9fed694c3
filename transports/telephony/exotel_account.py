"""An Exotel flow with a Voicebot applet: the endpoint that tells it where the websocket is.

The one rule: Exotel signs nothing, so the endpoint asks for a user and a password of one's own, written into its URL.

Source: https://developer.exotel.com/docs/agentstream/stream-voicebot-applet
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlencode

import msgspec

from voiceflow.transports.access import same
from voiceflow.transports.telephony.exotel import ExotelWire
from voiceflow.transports.telephony.webhook import Answer, Incoming, RefusedError, Request, RestRequest

__all__ = ["ExotelAccount"]


@dataclass(frozen=True, slots=True)
class ExotelAccount:
    """``user`` and ``password``: those in the URL of the applet, ``https://user:password@host/...``.

    ``parameters``: reach the agent as the call's own; Exotel carries three, 256 characters in all.
    """

    user: str
    password: str = field(repr=False)
    sample_rate: int = 8000
    parameters: Mapping[str, str] = field(default_factory=dict)
    ahead_s: float | None = None
    name: str = "exotel"

    def __post_init__(self) -> None:
        if not self.user or not self.password:
            raise ValueError("ExotelAccount: user or password is empty, so anyone could open calls")
        if self.sample_rate not in (8000, 16000, 24000):
            raise ValueError(f"ExotelAccount: sample_rate is {self.sample_rate}, it must be 8000, 16000 or 24000")
        if len(self.parameters) > 3 or len(urlencode(self.parameters)) > 256:
            raise ValueError("ExotelAccount: there are more than 3 parameters, or they are longer than 256 characters")

    def check(self, request: Request) -> None:
        """Raises RefusedError unless user and password came with it."""
        if not same(request.header("authorization"), "Basic " + b64encode(f"{self.user}:{self.password}".encode()).decode()):
            raise RefusedError("user or password of exotel's request are missing or wrong")

    def incoming(self, request: Request) -> Incoming | None:
        """The call."""
        return Incoming(request.value("CallSid"), request.value("CallFrom", "From"), request.value("CallTo", "To"))

    def answer(self, incoming: Incoming, stream_url: str) -> Answer:
        """The URL, in JSON."""
        query = urlencode({**self.parameters, "sample-rate": self.sample_rate})  # the protocol's own stands
        return Answer(msgspec.json.encode({"url": f"{stream_url}?{query}"}).decode(), "application/json")

    def decline(self, incoming: Incoming) -> Answer:
        """Raises RefusedError: the flow goes on with its next applet."""
        raise RefusedError("all lines are busy", 503)

    def wire(self) -> ExotelWire:
        """For one call."""
        return ExotelWire(sample_rate=self.sample_rate, ahead_s=self.ahead_s)

    def hang_up(self, call: str, now: float) -> RestRequest | None:
        """None: the call ends with its socket, when the flow's next applet is to hang up."""
        return None
