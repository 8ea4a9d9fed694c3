"""A Telnyx account: its signed webhooks, TeXML or Call Control, and how a call is hung up.

The one rule: one webhook serves both kinds of application; a form is answered in TeXML, an event by a command.

Sources: https://developers.telnyx.com/docs/voice/programmable-voice/texml-verbs/stream and .../voice-api-webhooks
"""

from __future__ import annotations

import binascii
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import quote
from xml.etree.ElementTree import Element, SubElement

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from voiceflow.transports.telephony.carrier import AHEAD_S
from voiceflow.transports.telephony.telnyx import TelnyxSound, TelnyxWire
from voiceflow.transports.telephony.webhook import AGE_S, Answer, Incoming, RefusedError, Request, RestRequest, document

__all__ = ["TelnyxAccount"]


class _Payload(msgspec.Struct, rename={"caller": "from", "called": "to"}):
    call_control_id: str = ""
    direction: str = ""
    caller: str = ""
    called: str = ""


class _Data(msgspec.Struct):
    event_type: str
    payload: _Payload = msgspec.field(default_factory=_Payload)


class _Event(msgspec.Struct):
    data: _Data


@dataclass(frozen=True, slots=True)
class TelnyxAccount:
    """``public_key``: as the portal shows it, in base64. ``api_key``: for hanging up, and for Call Control to answer at all.

    ``sound``: of the agent; the caller's is asked for as PCMU, or as L16 where that is the agent's. ``client_state``:
    reaches the agent as a parameter of the call (Call Control).
    """

    public_key: str
    api_key: str = field(default="", repr=False)
    sound: TelnyxSound = field(default_factory=TelnyxSound)
    client_state: str = ""
    api_url: str = "https://api.telnyx.com"
    ahead_s: float = AHEAD_S
    name: str = "telnyx"

    def __post_init__(self) -> None:
        self._key()

    def _key(self) -> Ed25519PublicKey:
        try:
            return Ed25519PublicKey.from_public_bytes(b64decode(self.public_key, validate=True))
        except (binascii.Error, ValueError):
            raise ValueError("TelnyxAccount: public_key is not an Ed25519 key of 32 bytes in base64, as the portal shows it") from None

    def check(self, request: Request) -> None:
        """Raises RefusedError unless Telnyx signed this, not more than five minutes ago."""
        stamp = request.header("telnyx-timestamp")
        try:
            signature = b64decode(request.header("telnyx-signature-ed25519"), validate=True)
            self._key().verify(signature, stamp.encode() + b"|" + request.body)
        except (binascii.Error, ValueError, InvalidSignature):
            raise RefusedError("the signature of telnyx is missing or wrong") from None
        if not stamp.isascii() or not stamp.isdigit() or abs(request.now - int(stamp[:20])) > AGE_S:
            raise RefusedError("the signature of telnyx is too old, or the clock here is wrong")

    def incoming(self, request: Request) -> Incoming | None:
        """The call of a TeXML form, or of an event ``call.initiated``; other events are about none."""
        if request.content_type != "application/json":
            call = request.value("CallSid")
            if not call:
                raise RefusedError("a webhook of telnyx without CallSid", 400)
            return Incoming(call, request.value("From"), request.value("To"))
        try:
            data = msgspec.json.decode(request.body, type=_Event).data
        except (msgspec.DecodeError, RecursionError):
            raise RefusedError("a webhook of telnyx that is no event", 400) from None
        payload = data.payload
        takes = data.event_type == "call.initiated" and payload.direction == "incoming"
        if not takes and not (data.event_type == "call.answered" and self._streams_later):
            return None
        if not self.api_key or not payload.call_control_id:
            raise RefusedError("a call of Call Control cannot be answered without api_key and its call_control_id", 400)
        return Incoming(payload.call_control_id, payload.caller, payload.called, by_event=data.event_type)

    @property
    def _streams_later(self) -> bool:
        """``answer`` takes no sample rate, so another than 8 kHz needs a ``streaming_start`` when the call is on."""
        return self.sound.sample_rate != 8000

    def answer(self, incoming: Incoming, stream_url: str) -> Answer:
        """TeXML, or Call Control's ``answer`` or ``streaming_start``."""
        if incoming.by_event:
            return Answer(then=self._command(incoming, stream_url))
        root = Element("Response")
        attributes = {
            "url": stream_url,
            "track": "inbound_track",
            "codec": self._heard,
            "bidirectionalMode": "rtp",
            "bidirectionalCodec": self.sound.codec,
            "bidirectionalSamplingRate": str(self.sound.sample_rate),
        }
        SubElement(SubElement(root, "Connect"), "Stream", attributes)
        return Answer(document(root), "text/xml")

    @property
    def _heard(self) -> str:
        return "L16" if self.sound.codec == "L16" else "PCMU"

    def _command(self, incoming: Incoming, stream_url: str) -> RestRequest:
        if incoming.by_event == "call.initiated" and self._streams_later:
            return self._action(incoming.call, "answer", b"{}")
        asked: dict[str, object] = {
            "stream_url": stream_url,
            "stream_track": "inbound_track",
            "stream_codec": self._heard,
            "stream_bidirectional_mode": "rtp",
            "stream_bidirectional_codec": self.sound.codec,
        }
        if self._streams_later:
            asked["stream_bidirectional_sampling_rate"] = self.sound.sample_rate
        if self.client_state:
            asked["client_state"] = b64encode(self.client_state.encode()).decode()
        return self._action(incoming.call, "streaming_start" if self._streams_later else "answer", msgspec.json.encode(asked))

    def decline(self, incoming: Incoming) -> Answer:
        """The busy tone; a call that was answered already is hung up."""
        if incoming.by_event == "call.initiated":
            return Answer(then=self._action(incoming.call, "reject", b'{"cause":"USER_BUSY"}'))
        if incoming.by_event:
            return Answer(then=self._action(incoming.call, "hangup", b"{}"))
        root = Element("Response")
        SubElement(root, "Reject", reason="busy")
        return Answer(document(root), "text/xml")

    def wire(self) -> TelnyxWire:
        """For one call."""
        return TelnyxWire(self.sound, ahead_s=self.ahead_s)

    def hang_up(self, call: str, now: float) -> RestRequest | None:
        """Call Control's ``hangup``: closing the socket alone would leave the caller in the call."""
        return self._action(call, "hangup", b"{}") if self.api_key else None

    def _action(self, call: str, action: str, body: bytes) -> RestRequest:
        headers: Mapping[str, str] = {"Authorization": f"Bearer {self.api_key}", "Content-Type": "application/json"}
        url = f"{self.api_url}/v2/calls/{quote(call, safe='')}/actions/{action}"
        return RestRequest("POST", url, headers, body, over=((422, "90018"), (404, "")))
