"""Webhooks as the carriers send them, signed with keys of the tests' own."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from urllib.parse import urlencode

import jwt
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from voiceflow.transports.telephony.exotel_account import ExotelAccount
from voiceflow.transports.telephony.plivo_account import PlivoAccount
from voiceflow.transports.telephony.telnyx_account import TelnyxAccount
from voiceflow.transports.telephony.twilio_account import TwilioAccount
from voiceflow.transports.telephony.vonage_account import VonageAccount
from voiceflow.transports.telephony.webhook import Request

NOW = 1_790_000_000.0
FORM = "application/x-www-form-urlencoded"
TOKEN = "12345678901234567890123456789012"
SECRET = "a-signature-secret-of-more-than-32-bytes"
SIGNING_KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
PUBLIC_KEY = base64.b64encode(SIGNING_KEY.public_key().public_bytes_raw()).decode()
ACCOUNTS = {
    "twilio": TwilioAccount(TOKEN),
    "telnyx": TelnyxAccount(PUBLIC_KEY, "KEYsecret"),
    "plivo": PlivoAccount(TOKEN),
    "vonage": VonageAccount(SECRET),
    "exotel": ExotelAccount("me", "a password"),
}


def twilio(url: str, values: dict[str, str], token: str = TOKEN) -> Request:
    text = url + "".join(name + value for name, value in sorted(values.items()))
    signature = base64.b64encode(hmac.new(token.encode(), text.encode(), hashlib.sha1).digest()).decode()
    return Request("POST", url, {"Content-Type": FORM, "X-Twilio-Signature": signature}, urlencode(values).encode(), NOW)


def telnyx(url: str, body: bytes, content_type: str = FORM, now: float = NOW) -> Request:
    stamp = str(int(now))
    signature = base64.b64encode(SIGNING_KEY.sign(f"{stamp}|".encode() + body)).decode()
    headers = {"content-type": content_type, "telnyx-timestamp": stamp, "telnyx-signature-ed25519": signature}
    return Request("POST", url, headers, body, NOW)


def plivo(url: str, values: dict[str, str], token: str = TOKEN) -> Request:
    base, _, query = url.partition("?")
    form = "".join(name + value for name, value in sorted(values.items()))
    text = f"{base}?{query}{'.' if query else ''}{form}.nonce1"
    signature = base64.b64encode(hmac.new(token.encode(), text.encode(), hashlib.sha256).digest()).decode()
    headers = {"Content-Type": FORM, "X-Plivo-Signature-V3": f"other,{signature}", "X-Plivo-Signature-V3-Nonce": "nonce1"}
    return Request("POST", url, headers, urlencode(values).encode(), NOW)


def vonage(url: str, values: dict[str, str], secret: str = SECRET, now: float = NOW, **claims: object) -> Request:
    body = json.dumps(values).encode()
    own = {"iat": int(now), "jti": "1", "iss": "Vonage", "payload_hash": hashlib.sha256(body).hexdigest(), "api_key": "k"} | claims
    token = jwt.encode({name: value for name, value in own.items() if value is not None}, secret, algorithm="HS256")
    return Request("POST", url, {"Authorization": f"Bearer {token}", "content-type": "application/json; charset=utf-8"}, body, NOW)


def exotel(url: str, values: dict[str, str], password: str = "a password") -> Request:
    key = base64.b64encode(f"me:{password}".encode()).decode()
    return Request("GET", f"{url}?{urlencode(values)}", {"Authorization": f"Basic {key}"}, b"", NOW)


def incoming(name: str, url: str, call: str = "CA1", caller: str = "15551234567", called: str = "15557654321", now: float = NOW) -> Request:
    """What this carrier sends when a call comes in."""
    match name:
        case "twilio":
            return twilio(url, {"CallSid": call, "From": caller, "To": called, "AccountSid": "AC1"})
        case "telnyx":
            return telnyx(url, urlencode({"CallSid": call, "From": caller, "To": called}).encode(), now=now)
        case "plivo":
            return plivo(url, {"CallUUID": call, "From": caller, "To": called, "Event": "StartApp"})
        case "vonage":
            return vonage(url, {"uuid": call, "from": caller, "to": called, "conversation_uuid": "CON-1"}, now=now)
    return exotel(url, {"CallSid": call, "CallFrom": caller, "CallTo": called, "Direction": "incoming"})
