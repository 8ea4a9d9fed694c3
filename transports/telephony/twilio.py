"""Twilio's media streams: the messages of a bidirectional ``<Connect><Stream>``.

The one rule: what Twilio writes as a string is read as either, and written as Twilio's own examples have it.

Source: https://www.twilio.com/docs/voice/media-streams/websocket-messages
"""

from __future__ import annotations

from typing import Any

import msgspec

from voiceflow.frames import AudioFormat
from voiceflow.transports.telephony.carrier import AHEAD_S, Carrier, Connected, Dtmf, Encoding, Mark, Media, Stop, plain_parameters
from voiceflow.transports.wire import CallStarted, Received

__all__ = ["TwilioWire"]


class _MediaFormat(msgspec.Struct, rename="camel"):
    encoding: str = "audio/x-mulaw"
    sample_rate: int = 8000


class _StartBody(msgspec.Struct, rename="camel"):
    call_sid: str
    stream_sid: str = ""
    media_format: _MediaFormat = msgspec.field(default_factory=_MediaFormat)
    custom_parameters: dict[str, Any] = msgspec.field(default_factory=dict)


class _Start(msgspec.Struct, tag_field="event", tag="start", rename="camel"):
    start: _StartBody
    stream_sid: str = ""


_ENCODINGS = {"audio/x-mulaw": Encoding.MULAW, "audio/x-alaw": Encoding.ALAW, "audio/x-l16": Encoding.L16, "audio/l16": Encoding.L16}
"""Twilio documents the first only; the others are what ``<Stream audioFormat>`` would have to name."""


class TwilioWire(Carrier):
    """One call's stream. It hears and speaks mu-law at 8 kHz, or what the start says.

    The parameters ``caller`` and ``called``, which our TwiML sets, become those of the call.
    """

    name = "twilio"
    messages = Connected | _Start | Media | Dtmf | Mark | Stop

    def __init__(self, *, ahead_s: float = AHEAD_S) -> None:
        super().__init__(Encoding.MULAW, 8000, ahead_s=ahead_s)

    def _understand(self, message: Any) -> list[Received]:
        if isinstance(message, _Start):
            return self._start(message.start, message.start.stream_sid or message.stream_sid)
        return super()._understand(message)

    def _start(self, start: _StartBody, stream: str) -> list[Received]:
        form = start.media_format
        self._format(_ENCODINGS.get(form.encoding), form.encoding, form.sample_rate)
        self._speaking, self.speaks = self._hearing, AudioFormat(form.sample_rate)
        parameters = plain_parameters(start.custom_parameters)
        caller, called = parameters.pop("caller", ""), parameters.pop("called", "")
        return self._begin(CallStarted(start.call_sid, caller, called, parameters), stream)

    def _media_message(self, payload: str) -> dict[str, Any]:
        return {"event": "media", "streamSid": self.stream, "media": {"payload": payload}}

    def _clear_message(self) -> dict[str, Any]:
        return {"event": "clear", "streamSid": self.stream}

    def _mark_message(self, name: str) -> dict[str, Any]:
        return {"event": "mark", "streamSid": self.stream, "mark": {"name": name}}
