"""A Vonage application: its signed webhooks, the NCCO that connects a call, and how a call is hung up.

The one rule: a token covers the body only by its hash, so a body without one is refused. (Of a GET the parameters are not
covered; set the answer URL to POST.)

Sources: https://developer.vonage.com/getting-started/concepts/webhooks and https://developer.vonage.com/voice/voice-api/ncco-reference
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import jwt
import msgspec

from voiceflow.transports.access import bearer, same
from voiceflow.transports.telephony.carrier import AHEAD_S
from voiceflow.transports.telephony.vonage import VonageWire
from voiceflow.transports.telephony.webhook import AGE_S, Answer, Incoming, RefusedError, Request, RestRequest

__all__ = ["VonageAccount"]

HEADERS_BYTES = 512
"""Of the headers of a websocket; newer pages allow more."""


class _Call(msgspec.Struct, rename={"caller": "from", "called": "to", "call": "uuid"}):
    call: str = ""
    caller: str = ""
    called: str = ""


@dataclass(frozen=True, slots=True)
class VonageAccount:
    """``signature_secret``: of signed webhooks. ``application`` and ``private_key`` (PEM): for hanging up; without them a call ends
    with its socket. ``parameters``: reach the agent as the call's own.
    """

    signature_secret: str = field(repr=False)
    application: str = ""
    private_key: str = field(default="", repr=False)
    sample_rate: int = 16000
    parameters: Mapping[str, str] = field(default_factory=dict)
    api_url: str = "https://api.nexmo.com"
    ahead_s: float = AHEAD_S
    name: str = "vonage"

    def __post_init__(self) -> None:
        if not self.signature_secret:
            raise ValueError("VonageAccount: signature_secret is empty, so no webhook could be checked")
        if self.sample_rate not in (8000, 16000, 24000):
            raise ValueError(f"VonageAccount: sample_rate is {self.sample_rate}, it must be 8000, 16000 or 24000")
        if bool(self.application) != bool(self.private_key):
            raise ValueError("VonageAccount: application and private_key go together")
        if self.private_key:
            try:
                jwt.encode({}, self.private_key, algorithm="RS256")
            except (jwt.InvalidKeyError, ValueError, TypeError):  # at the end of a call it would be too late: nobody could hang up
                raise ValueError("VonageAccount: private_key is no RSA key in PEM; give the text of the file that Vonage made") from None
        if len(msgspec.json.encode(self.parameters)) > HEADERS_BYTES - 200:
            raise ValueError(
                f"VonageAccount: the parameters are too long; Vonage carries {HEADERS_BYTES} bytes, 200 of them for the call's own"
            )

    def check(self, request: Request) -> None:
        """Raises RefusedError unless Vonage signed this, not more than five minutes ago."""
        try:
            # Times are compared below, with the clock of the request.
            options: Any = {"verify_exp": False, "verify_iat": False, "verify_nbf": False, "verify_aud": False, "require": ["iat"]}
            claims = jwt.decode(bearer(request.header("authorization")) or "", self.signature_secret, algorithms=["HS256"], options=options)
        except (jwt.InvalidTokenError, UnicodeError):
            raise RefusedError("the token of vonage is missing or wrong") from None
        issued = claims["iat"]
        if not isinstance(issued, int | float) or not abs(request.now - issued) <= AGE_S:
            raise RefusedError("the token of vonage is too old, or the clock here is wrong")
        digest = claims.get("payload_hash", "")
        if request.body and not same(digest if isinstance(digest, str) else "", hashlib.sha256(request.body).hexdigest()):
            raise RefusedError("a body that the token of vonage does not cover")
        if self.application and claims.get("application_id", self.application) != self.application:
            raise RefusedError("the token of vonage is for another application")

    def incoming(self, request: Request) -> Incoming | None:
        """The call."""
        call = _Call(request.value("uuid"), request.value("from"), request.value("to"))
        if request.content_type == "application/json":
            try:
                call = msgspec.json.decode(request.body, type=_Call)
            except (msgspec.DecodeError, RecursionError):
                raise RefusedError("a webhook of vonage that is not of a call", 400) from None
        if not call.call:
            raise RefusedError("a webhook of vonage without uuid", 400)
        return Incoming(call.call, call.caller, call.called)

    def answer(self, incoming: Incoming, stream_url: str) -> Answer:
        """An NCCO."""
        own = {"call": incoming.call, "caller": incoming.caller[:40], "called": incoming.called[:40]}
        endpoint: dict[str, Any] = {
            "type": "websocket",
            "uri": stream_url,
            "content-type": f"audio/l16;rate={self.sample_rate}",
            "headers": {**self.parameters, **own},
        }
        connect: dict[str, Any] = {"action": "connect", "endpoint": [endpoint]}
        if incoming.called.isascii() and incoming.called.isdigit():
            connect["from"] = incoming.called  # a number of ours, which Vonage wants to see on a new leg
        return Answer(msgspec.json.encode([connect]).decode(), "application/json")

    def decline(self, incoming: Incoming) -> Answer:
        """An NCCO with nothing in it: the call ends."""
        return Answer("[]", "application/json")

    def wire(self) -> VonageWire:
        """For one call."""
        return VonageWire(sample_rate=self.sample_rate, ahead_s=self.ahead_s)

    def hang_up(self, call: str, now: float) -> RestRequest | None:
        """End the call, in the name of the application. ``now``: Unix time."""
        if not self.private_key or not call:
            return None
        claims = {"application_id": self.application, "iat": int(now), "exp": int(now) + 60, "jti": str(uuid.uuid4())}
        headers = {"Authorization": f"Bearer {jwt.encode(claims, self.private_key, algorithm='RS256')}", "Content-Type": "application/json"}
        return RestRequest("PUT", f"{self.api_url}/v1/calls/{quote(call, safe='')}", headers, b'{"action":"hangup"}', over=((404, ""),))
