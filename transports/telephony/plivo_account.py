"""A Plivo account: its signed webhooks (V3), the XML that connects a call, and how a call is hung up.

The one rule: the stream is the last element of the XML, so that a call ends with its socket even if hanging up fails.

Source: https://www.plivo.com/docs/voice/concepts/signature-validation
"""

from __future__ import annotations

import hashlib
import hmac
import re
from base64 import b64encode
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import quote, urlsplit
from xml.etree.ElementTree import Element, SubElement

from voiceflow.transports.access import same
from voiceflow.transports.telephony.carrier import AHEAD_S
from voiceflow.transports.telephony.plivo import PlivoWire
from voiceflow.transports.telephony.webhook import Answer, Incoming, RefusedError, Request, RestRequest, document

__all__ = ["PlivoAccount"]

CONTENT_TYPES = ("audio/x-mulaw;rate=8000", "audio/x-l16;rate=8000", "audio/x-l16;rate=16000")
HEADERS_BYTES = 512


@dataclass(frozen=True, slots=True)
class PlivoAccount:
    """``auth_id``: for hanging up; without it a call ends with its stream.

    ``parameters``: reach the agent as the call's own; Plivo carries letters and digits only, 512 bytes in all.
    ``byte_order``: of linear samples.
    """

    auth_token: str = field(repr=False)
    auth_id: str = ""
    content_type: str = CONTENT_TYPES[0]
    byte_order: Literal["little", "big"] = "little"
    parameters: Mapping[str, str] = field(default_factory=dict)
    api_url: str = "https://api.plivo.com"
    ahead_s: float = AHEAD_S
    name: str = "plivo"

    def __post_init__(self) -> None:
        if not self.auth_token:
            raise ValueError("PlivoAccount: auth_token is empty, so no webhook could be checked")
        if self.content_type not in CONTENT_TYPES:
            raise ValueError(f"PlivoAccount: content_type is {self.content_type!r}; Plivo has {', '.join(CONTENT_TYPES)}")
        for name, value in self.parameters.items():
            if not re.fullmatch("[A-Za-z0-9]+", name + value):
                raise ValueError(f"PlivoAccount: the parameter {name!r} is {value!r}; Plivo carries letters and digits only")
        if len(_extra_headers(self.parameters)) > HEADERS_BYTES - 80:
            raise ValueError(
                f"PlivoAccount: the parameters are too long; Plivo carries {HEADERS_BYTES} bytes, 80 of them for the call's own"
            )

    def check(self, request: Request) -> None:
        """Raises RefusedError unless Plivo signed this."""
        nonce, given = request.header("x-plivo-signature-v3-nonce"), request.header("x-plivo-signature-v3")
        text = f"{_signed_text(request)}.{nonce}"
        right = b64encode(hmac.new(self.auth_token.encode(), text.encode("utf-8", "surrogatepass"), hashlib.sha256).digest())
        if True not in [same(signature.strip(), right) for signature in given.split(",")]:
            raise RefusedError("the signature of plivo is missing or wrong; is public_url what plivo was given?")

    def incoming(self, request: Request) -> Incoming | None:
        """The call."""
        call = request.value("CallUUID")
        if not call:
            raise RefusedError("a webhook of plivo without CallUUID", 400)
        return Incoming(call, request.value("From"), request.value("To"))

    def answer(self, incoming: Incoming, stream_url: str) -> Answer:
        """Plivo XML."""
        numbers = {"caller": incoming.caller, "called": incoming.called}
        own = {name: re.sub("[^A-Za-z0-9]", "", number)[:32] for name, number in numbers.items()}
        root = Element("Response")
        attributes = {"bidirectional": "true", "keepCallAlive": "true", "contentType": self.content_type}
        SubElement(root, "Stream", attributes, extraHeaders=_extra_headers({**self.parameters, **own})).text = stream_url
        return Answer(document(root), "text/xml")

    def decline(self, incoming: Incoming) -> Answer:
        """The busy tone."""
        root = Element("Response")
        SubElement(root, "Hangup", reason="busy")
        return Answer(document(root), "text/xml")

    def wire(self) -> PlivoWire:
        """For one call."""
        return PlivoWire(byte_order=self.byte_order, ahead_s=self.ahead_s)

    def hang_up(self, call: str, now: float) -> RestRequest | None:
        """Delete the call."""
        if not self.auth_id:
            return None
        url = f"{self.api_url}/v1/Account/{quote(self.auth_id, safe='')}/Call/{quote(call, safe='')}/"
        key = b64encode(f"{self.auth_id}:{self.auth_token}".encode()).decode()
        return RestRequest("DELETE", url, {"Authorization": f"Basic {key}"}, over=((404, ""),))


def _extra_headers(parameters: Mapping[str, str]) -> str:
    return ",".join(f"{name}={value}" for name, value in parameters.items() if value)


def _signed_text(request: Request) -> str:
    """The URL with its query in order and, of a form, its parameters in order."""
    parts = urlsplit(request.url)
    text = f"{parts.scheme}://{parts.netloc}{parts.path}"
    query = "&".join(f"{name}={value}" for name, value in _in_order(request.query))
    form = "" if request.method == "GET" else "".join(name + value for name, value in _in_order(request.form))
    if query or form:
        text += f"?{query}"
    return text + ("." if query and form else "") + form


def _in_order(pairs: Iterable[tuple[str, str]]) -> Iterable[tuple[str, str]]:
    values: dict[str, list[str]] = defaultdict(list)
    for name, value in pairs:
        values[name].append(value)
    return [(name, value) for name in sorted(values) for value in sorted(values[name])]
