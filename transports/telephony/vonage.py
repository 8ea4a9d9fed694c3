"""Vonage's websockets: the messages of an NCCO ``connect`` to an endpoint of type ``websocket``.

The one rule: sound is binary and exactly 20 ms a message; Vonage drops the connection for another size.

Source: https://developer.vonage.com/voice/voice-api/concepts/websockets
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from voiceflow.frames import AudioFormat
from voiceflow.transports.telephony.carrier import AHEAD_S, Carrier, Encoding, NonsenseError, plain_parameters
from voiceflow.transports.wire import CallStarted, Message, Received

__all__ = ["VonageWire"]

MESSAGE_S = 0.02


class _Dtmf(msgspec.Struct, tag_field="event", tag="websocket:dtmf"):
    digit: str = ""
    dtmf: dict[str, Any] = msgspec.field(default_factory=dict)
    """Older calls have the digit in here."""


class _Cleared(msgspec.Struct, tag_field="event", tag="websocket:cleared"):
    pass


class _Notified(msgspec.Struct, tag_field="event", tag="websocket:notify"):
    payload: dict[str, Any]


class _Connected(msgspec.Struct, tag_field="event", tag="websocket:connected", rename={"content_type": "content-type"}):
    content_type: str


class VonageWire(Carrier):
    """One call's socket. Marks are notifications.

    The headers of the NCCO become parameters of the call; of these ``call``, ``caller`` and ``called``, which our NCCO
    sets, the call's own. There is no stop: the socket closes. ``sample_rate``: before the start says it.
    """

    name = "vonage"
    messages = _Connected | _Dtmf | _Cleared | _Notified

    def __init__(self, *, sample_rate: int = 16000, ahead_s: float = AHEAD_S) -> None:
        super().__init__(Encoding.L16, sample_rate, ahead_s=ahead_s, block_ms=MESSAGE_S * 1000)

    def _binary(self, data: bytes) -> list[Received]:
        if not data or len(data) % 2:
            raise NonsenseError("sound that ends within a sample" if data else "sound of no length")
        return self._sound(None, data)

    def _parse(self, text: str) -> Any:
        message = super()._parse(text)
        return (message, msgspec.json.decode(text, type=dict[str, Any])) if isinstance(message, _Connected) else message

    def _understand(self, message: Any) -> list[Received]:
        match message:
            case (_Connected(content_type), headers):
                return self._start(content_type, plain_parameters(headers))
            case _Dtmf(digit, older):
                return self._key(digit or str(older.get("digit", "")))
            case _Notified(payload):
                name = payload.get("mark")
                return self._mark(name if isinstance(name, str) else "")
        return []

    def _start(self, content_type: str, parameters: dict[str, str]) -> list[Received]:
        found = re.fullmatch(r"audio/l16;\s*rate=(\d{4,6})", content_type, re.IGNORECASE | re.ASCII)
        self._format(Encoding.L16 if found else None, content_type, int(found[1]) if found else 0)
        self.speaks = AudioFormat(self.hears.sample_rate)
        for own in ("event", "content-type"):
            parameters.pop(own, "")
        call, caller, called = (parameters.pop(name, "") for name in ("call", "caller", "called"))
        return self._begin(CallStarted(call, caller, called, parameters), call)

    def _media(self, payload: bytes) -> list[Message]:
        size = round(MESSAGE_S * self.speaks.sample_rate) * 2
        return [payload[at : at + size].ljust(size, b"\0") for at in range(0, len(payload), size)]

    def _clear_message(self) -> dict[str, Any]:
        return {"action": "clear"}

    def _mark_message(self, name: str) -> dict[str, Any]:
        return {"action": "notify", "payload": {"mark": name}}
