"""Exotel's AgentStream: the messages of a bidirectional stream (the Voicebot applet).

The one rule: what is sent is at least 3,200 bytes, at most 100,000 and a multiple of 320; other sizes leave gaps.

Source: https://developer.exotel.com/docs/agentstream/websocket-protocol
"""

from __future__ import annotations

from typing import Any

import msgspec

from voiceflow.frames import AudioFormat
from voiceflow.transports.telephony.carrier import Carrier, Connected, Dtmf, Encoding, Mark, Media, plain_parameters
from voiceflow.transports.wire import CallStarted, Message, Received

__all__ = ["ExotelWire"]

LEAST_BYTES, MOST_BYTES, UNIT_BYTES = 3200, 99840, 320


class _MediaFormat(msgspec.Struct):
    encoding: str = "audio/x-raw"
    sample_rate: int = 8000


class _StartBody(msgspec.Struct, rename={"caller": "from", "called": "to"}):
    call_sid: str
    stream_sid: str = ""
    caller: str | None = None
    called: str | None = None
    custom_parameters: dict[str, Any] | None = None
    media_format: _MediaFormat = msgspec.field(default_factory=_MediaFormat)


class _Start(msgspec.Struct, tag_field="event", tag="start"):
    start: _StartBody
    stream_sid: str = ""


class _StopBody(msgspec.Struct):
    reason: str | None = None


class _Stop(msgspec.Struct, tag_field="event", tag="stop"):
    stop: _StopBody = msgspec.field(default_factory=_StopBody)


class ExotelWire(Carrier):
    """One call's stream: 16-bit linear at the rate the start says, in blocks of 200 ms at 8 kHz and of 100 ms above.

    ``custom_parameters`` become parameters of the call.
    """

    name = "exotel"
    messages = Connected | _Start | Media | Dtmf | Mark | _Stop

    def __init__(self, *, sample_rate: int = 8000, ahead_s: float | None = None) -> None:
        """``ahead_s``: None is two blocks, so that a first block may wait until there is sound for all of it."""
        self._own_ahead = ahead_s is None
        ahead_s = _block_ms(sample_rate) / 500 if ahead_s is None else ahead_s
        super().__init__(Encoding.L16, sample_rate, ahead_s=ahead_s, block_ms=_block_ms(sample_rate))

    def _understand(self, message: Any) -> list[Received]:
        match message:
            case _Start(start, stream):
                return self._start(start, start.stream_sid or stream)
            case _Stop(stop):
                return self._end(f"exotel stopped the stream{f': {stop.reason[:80]}' if stop.reason else ''}")
        return super()._understand(message)

    def _start(self, start: _StartBody, stream: str) -> list[Received]:
        form = start.media_format
        encoding = Encoding.L16 if form.encoding in ("audio/x-raw", "raw/slin", "base64") else None  # older pages name the last
        self._format(encoding, form.encoding, form.sample_rate)
        self.speaks, self.block_ms = AudioFormat(form.sample_rate), _block_ms(form.sample_rate)
        self.ahead_s = self.block_ms / 500 if self._own_ahead else self.ahead_s
        parameters = plain_parameters(start.custom_parameters or {})
        return self._begin(CallStarted(start.call_sid, start.caller or "", start.called or "", parameters), stream)

    def _media(self, payload: bytes) -> list[Message]:
        """In pieces that Exotel takes, the last filled up with silence."""
        pieces = [payload[at : at + MOST_BYTES] for at in range(0, len(payload), MOST_BYTES)]
        size = max(LEAST_BYTES, -(-len(pieces[-1]) // UNIT_BYTES) * UNIT_BYTES)
        pieces[-1] = pieces[-1].ljust(size, b"\0")
        return [message for piece in pieces for message in Carrier._media(self, piece)]

    def _media_message(self, payload: str) -> dict[str, Any]:
        return {"event": "media", "stream_sid": self.stream, "media": {"payload": payload}}

    def _clear_message(self) -> dict[str, Any]:
        return {"event": "clear", "stream_sid": self.stream}

    def _mark_message(self, name: str) -> dict[str, Any]:
        return {"event": "mark", "stream_sid": self.stream, "mark": {"name": name}}


def _block_ms(sample_rate: int) -> float:
    return 200 if sample_rate < 16000 else 100
