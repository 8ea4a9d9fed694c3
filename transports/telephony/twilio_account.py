"""A Twilio account: its signed webhooks, the TwiML that connects a call, and how a call is hung up.

The one rule: a signature covers the URL that Twilio was given, so that one must be known here exactly.

Source: https://www.twilio.com/docs/usage/webhooks/webhooks-security
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import quote, urlsplit, urlunsplit
from xml.etree.ElementTree import Element, SubElement

from voiceflow.transports.access import same
from voiceflow.transports.telephony.carrier import AHEAD_S
from voiceflow.transports.telephony.twilio import TwilioWire
from voiceflow.transports.telephony.webhook import Answer, Incoming, RefusedError, Request, RestRequest, document

__all__ = ["TwilioAccount"]

ALGORITHMS = {"HMAC_SHA1": hashlib.sha1, "HMAC_SHA256": hashlib.sha256}


@dataclass(frozen=True, slots=True)
class TwilioAccount:
    """``account``: its SID, for hanging up; without it a call ends with its TwiML, when the socket is closed.

    ``shared_keys``: secrets by their ids, for webhooks that are signed with a shared key. ``parameters``: reach the agent
    as the call's own.
    """

    auth_token: str = field(repr=False)
    account: str = ""
    shared_keys: Mapping[str, str] = field(default_factory=dict, repr=False)
    parameters: Mapping[str, str] = field(default_factory=dict)
    api_url: str = "https://api.twilio.com"
    ahead_s: float = AHEAD_S
    name: str = "twilio"

    def __post_init__(self) -> None:
        if not self.auth_token:
            raise ValueError("TwilioAccount: auth_token is empty, so no webhook could be checked")

    def check(self, request: Request) -> None:
        """Raises RefusedError unless Twilio signed this."""
        secret, algorithm = self.auth_token, "HMAC_SHA1"
        if settings := request.header("x-twilio-webhooks-signature-settings"):
            said = {name.strip(): value.strip() for name, _, value in (part.partition("=") for part in settings.split(","))}
            algorithm = said.get("algorithm", algorithm).upper()
            if algorithm not in ALGORITHMS:
                raise RefusedError(f"twilio signed with {algorithm[:40]!r}, which is not known here")
            if "key" in said:
                secret = self.shared_keys.get(said["key"], "")
                if not secret:
                    raise RefusedError(f"twilio signed with the shared key {said['key'][:80]!r}, which is not among shared_keys")
        signed = _signed_parameters(request)
        given = request.header("x-twilio-signature")
        right = [_signature(secret, url + signed, algorithm) for url in _spellings(request.url)]
        if True not in [same(given, signature) for signature in right]:
            raise RefusedError("the signature of twilio is missing or wrong; is public_url what twilio was given?")

    def incoming(self, request: Request) -> Incoming | None:
        """The call."""
        call = request.value("CallSid")
        if not call:
            raise RefusedError("a webhook of twilio without CallSid", 400)
        return Incoming(call, request.value("From"), request.value("To"))

    def answer(self, incoming: Incoming, stream_url: str) -> Answer:
        """TwiML."""
        root = Element("Response")
        stream = SubElement(SubElement(root, "Connect"), "Stream", url=stream_url)
        for name, value in {**self.parameters, "caller": incoming.caller, "called": incoming.called}.items():
            SubElement(stream, "Parameter", name=name, value=value)
        return Answer(document(root), "text/xml")

    def decline(self, incoming: Incoming) -> Answer:
        """The busy tone."""
        root = Element("Response")
        SubElement(root, "Reject", reason="busy")
        return Answer(document(root), "text/xml")

    def wire(self) -> TwilioWire:
        """For one call."""
        return TwilioWire(ahead_s=self.ahead_s)

    def hang_up(self, call: str, now: float) -> RestRequest | None:
        """Complete the call."""
        if not self.account:
            return None
        return RestRequest(
            "POST",
            f"{self.api_url}/2010-04-01/Accounts/{quote(self.account, safe='')}/Calls/{quote(call, safe='')}.json",
            {
                "Authorization": "Basic " + b64encode(f"{self.account}:{self.auth_token}".encode()).decode(),
                "Content-Type": "application/x-www-form-urlencoded",
            },
            b"Status=completed",
            over=((404, "20404"), (400, "21220")),
        )


def _signed_parameters(request: Request) -> str:
    """What is signed behind the URL: names and values in order, none twice. A body that is no form is covered by its hash."""
    if request.body and request.content_type != "application/x-www-form-urlencoded":
        digest = dict(request.query).get("bodySHA256", "")
        if not same(digest, hashlib.sha256(request.body).hexdigest()):
            raise RefusedError("a body that twilio's bodySHA256 does not cover")
        return ""
    return "".join(name + value for name, value in sorted(set(request.form)))


def _signature(secret: str, text: str, algorithm: str) -> str:
    return b64encode(hmac.new(secret.encode(), text.encode("utf-8", "surrogatepass"), ALGORITHMS[algorithm]).digest()).decode()


def _spellings(url: str) -> list[str]:
    """The URL with and without a port: Twilio is not of one mind which it signs."""
    parts = urlsplit(url)
    host = parts.netloc if parts.port is None else parts.netloc.rpartition(":")[0]
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return [urlunsplit(parts._replace(netloc=netloc)) for netloc in dict.fromkeys((host, f"{host}:{port}"))]
