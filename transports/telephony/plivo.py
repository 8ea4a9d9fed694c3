"""Plivo's audio streams: the messages of a ``<Stream bidirectional="true">``.

The one rule: what is sent has the same encoding and rate as what is heard, which the start says.

Source: https://www.plivo.com/docs/voice-agents/audio-streaming/concepts/audio-streaming-reference
"""

from __future__ import annotations

import re
from typing import Any, Literal

import msgspec

from voiceflow.frames import AudioFormat
from voiceflow.transports.telephony.carrier import AHEAD_S, Carrier, Dtmf, Encoding, Media, Stop, pcm_encoding, plain_parameters
from voiceflow.transports.wire import CallStarted, Received

__all__ = ["PlivoWire"]


class _MediaFormat(msgspec.Struct, rename="camel"):
    encoding: str = "audio/x-mulaw"
    sample_rate: int = 8000


class _StartBody(msgspec.Struct, rename="camel"):
    call_id: str
    stream_id: str
    media_format: _MediaFormat = msgspec.field(default_factory=_MediaFormat)


class _Start(msgspec.Struct, tag_field="event", tag="start"):
    start: _StartBody
    extra_headers: str | None = None


class _Played(msgspec.Struct, tag_field="event", tag="playedStream"):
    name: str


class _Cleared(msgspec.Struct, tag_field="event", tag="clearedAudio"):
    pass


class PlivoWire(Carrier):
    """One call's stream. Marks are Plivo's checkpoints.

    ``extraHeaders`` become parameters of the call; of these ``caller`` and ``called``, which our XML sets, the call's own.
    ``byte_order``: of linear samples, which Plivo does not document.
    """

    name = "plivo"
    messages = _Start | Media | Dtmf | _Played | _Cleared | Stop

    def __init__(self, *, byte_order: Literal["little", "big"] = "little", ahead_s: float = AHEAD_S) -> None:
        super().__init__(Encoding.MULAW, 8000, ahead_s=ahead_s)
        self._encodings = {"audio/x-mulaw": Encoding.MULAW, "audio/x-l16": pcm_encoding(byte_order)}
        self._content_type = "audio/x-mulaw"

    def _understand(self, message: Any) -> list[Received]:
        match message:
            case _Start(start, headers):
                return self._start(start, headers or "")
            case _Played(name):
                return self._mark(name)
        return super()._understand(message)

    def _start(self, start: _StartBody, headers: str) -> list[Received]:
        form = start.media_format
        content_type, _, rate = form.encoding.partition(";rate=")
        self._format(self._encodings.get(content_type), form.encoding, int(rate) if rate.isdecimal() else form.sample_rate)
        self._speaking, self.speaks, self._content_type = self._hearing, AudioFormat(self.hears.sample_rate), content_type
        parameters = _extra_headers(headers)
        caller, called = parameters.pop("caller", ""), parameters.pop("called", "")
        return self._begin(CallStarted(start.call_id, caller, called, parameters), start.stream_id)

    def _media_message(self, payload: str) -> dict[str, Any]:
        media = {"contentType": self._content_type, "sampleRate": self.speaks.sample_rate, "payload": payload}
        return {"event": "playAudio", "streamId": self.stream, "media": media}

    def _clear_message(self) -> dict[str, Any]:
        return {"event": "clearAudio", "streamId": self.stream}

    def _mark_message(self, name: str) -> dict[str, Any]:
        return {"event": "checkpoint", "streamId": self.stream, "name": name}


def _extra_headers(text: str) -> dict[str, str]:
    """``extra_headers`` of a start: Plivo's pages show ``a=1;b=2``, its XML ``a=1,b=2`` and its SDK a JSON object."""
    if text.lstrip().startswith("{"):
        try:
            return plain_parameters(msgspec.json.decode(text, type=dict[str, Any]))
        except (msgspec.DecodeError, RecursionError):
            return {}
    pairs = (part.partition("=") for part in re.split(r"[;,]", text))
    return {name.strip(): value.strip() for name, equals, value in pairs if equals and name.strip()}
