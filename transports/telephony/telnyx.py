"""Telnyx's media streams: the messages of a stream with ``bidirectionalMode="rtp"``.

The one rule: each direction has an encoding of its own; the caller's is what the start says, the agent's what was asked for.

Source: https://developers.telnyx.com/docs/voice/programmable-voice/media-streaming
"""

from __future__ import annotations

import binascii
import logging
from base64 import b64decode
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from voiceflow.transports.telephony.carrier import AHEAD_S, Carrier, Connected, Dtmf, Encoding, Mark, Media, Stop, pcm_encoding
from voiceflow.transports.wire import CallStarted, Received

__all__ = ["TelnyxSound", "TelnyxWire"]

log = logging.getLogger("voiceflow")

G711 = {"PCMU": Encoding.MULAW, "PCMA": Encoding.ALAW}


@dataclass(frozen=True, slots=True)
class TelnyxSound:
    """What was asked for with ``bidirectionalCodec`` and ``bidirectionalSamplingRate``."""

    codec: Literal["PCMU", "PCMA", "L16"] = "PCMU"
    sample_rate: int = 8000
    byte_order: Literal["big", "little"] = "big"
    """Of L16, both ways. Telnyx says that a payload is that of RTP, which is big-endian (RFC 3551), but not in so many words."""

    def __post_init__(self) -> None:
        if self.codec not in (*G711, "L16"):
            raise ValueError(f"TelnyxSound: codec is {self.codec!r}, it must be PCMU, PCMA or L16")
        if self.codec in G711 and self.sample_rate != 8000:
            raise ValueError(f"TelnyxSound: {self.codec} has 8000 Hz, not {self.sample_rate}")
        if self.sample_rate not in (8000, 16000, 22050, 24000, 48000):
            raise ValueError(f"TelnyxSound: sample_rate is {self.sample_rate}, it must be 8000, 16000, 22050, 24000 or 48000")
        pcm_encoding(self.byte_order)

    def encoding(self, codec: str) -> Encoding | None:
        """Of a codec by Telnyx's name; None for one that is not understood."""
        return pcm_encoding(self.byte_order) if codec == "L16" else G711.get(codec)


class _MediaFormat(msgspec.Struct):
    encoding: str = "PCMU"
    sample_rate: int = 8000


class _StartBody(msgspec.Struct, rename={"caller": "from", "called": "to"}):
    call_control_id: str
    caller: str | None = None
    called: str | None = None
    client_state: str | None = None
    tags: list[Any] | None = None
    custom_parameters: dict[str, Any] | None = None
    media_format: _MediaFormat = msgspec.field(default_factory=_MediaFormat)


class _Start(msgspec.Struct, tag_field="event", tag="start"):
    start: _StartBody
    stream_id: str = ""


class _ErrorBody(msgspec.Struct):
    code: int = 0
    title: str = ""


class _Error(msgspec.Struct, tag_field="event", tag="error"):
    payload: _ErrorBody


class TelnyxWire(Carrier):
    """One call's stream. ``client_state`` and ``tags`` become parameters of the call."""

    name = "telnyx"
    messages = Connected | _Start | Media | Dtmf | Mark | _Error | Stop

    def __init__(self, sound: TelnyxSound | None = None, *, ahead_s: float = AHEAD_S) -> None:
        self.sound = sound or TelnyxSound()
        encoding = self.sound.encoding(self.sound.codec)
        assert encoding is not None  # TelnyxSound has checked it
        super().__init__(encoding, self.sound.sample_rate, ahead_s=ahead_s)
        self._errors: set[int] = set()

    def _understand(self, message: Any) -> list[Received]:
        match message:
            case _Start(start, stream):
                return self._start(start, stream)
            case _Error(error):
                if error.code not in self._errors and len(self._errors) < 8:
                    self._errors.add(error.code)
                    log.warning("telnyx refused a message of ours: %d %r; more of these are not logged", error.code, error.title[:80])
                return []
        return super()._understand(message)

    def _start(self, start: _StartBody, stream: str) -> list[Received]:
        form = start.media_format
        self._format(self.sound.encoding(form.encoding), form.encoding, form.sample_rate)
        parameters = {name: value for name, value in (start.custom_parameters or {}).items() if isinstance(value, str)}
        if start.client_state:
            parameters["client_state"] = _text(start.client_state)
        if start.tags:
            parameters["tags"] = ",".join(tag for tag in start.tags if isinstance(tag, str))
        return self._begin(CallStarted(start.call_control_id, start.caller or "", start.called or "", parameters), stream)

    def _media_message(self, payload: str) -> dict[str, Any]:
        return {"event": "media", "media": {"payload": payload}}

    def _clear_message(self) -> dict[str, Any]:
        return {"event": "clear"}

    def _mark_message(self, name: str) -> dict[str, Any]:
        return {"event": "mark", "mark": {"name": name}}


def _text(state: str) -> str:
    """``client_state`` out of its base64, or as it is."""
    try:
        return b64decode(state, validate=True).decode()
    except (binascii.Error, ValueError):
        return state
