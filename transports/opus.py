"""Opus, by FFmpeg's libopus (PyAV): 48 kHz, mono, sent in blocks of 20 ms.

The one rule: one codec object a stream and direction; what it remembers is that stream's.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

import av
from av.audio.codeccontext import AudioCodecContext

from voiceflow.transports.rtp import OPUS_RATE

__all__ = ["BLOCK", "OpusDecoder", "OpusEncoder", "OpusPacket", "packet_at"]

BLOCK = 960
"""Samples of a block."""

_TIME_BASE = Fraction(1, OPUS_RATE)

if TYPE_CHECKING:
    OpusPacket = av.Packet[Any]
else:
    OpusPacket = av.Packet  # generic in its stubs only


def packet_at(payload: bytes, position: int) -> OpusPacket:
    """A payload as a packet that begins at this sample of its stream."""
    packet = OpusPacket(payload)
    packet.pts = position
    packet.time_base = _TIME_BASE
    return packet


class OpusEncoder:
    """Blocks of 16-bit samples to payloads of 40 kbit/s, in which each also tells a little of the one before it that may be lost."""

    def __init__(self) -> None:
        codec = av.CodecContext.create("libopus", "w")
        assert isinstance(codec, AudioCodecContext)
        codec.bit_rate = 40000
        codec.format = "s16"
        codec.layout = "mono"
        codec.sample_rate = OPUS_RATE
        codec.time_base = _TIME_BASE
        codec.options = {"application": "voip", "compression_level": "5", "fec": "1", "packet_loss": "10"}
        self._codec = codec
        self._position = 0

    def encode(self, pcm: bytes) -> list[bytes]:
        """One block, 1920 bytes, gives one payload. It holds sound of up to 6.5 ms before."""
        frame = av.AudioFrame(format="s16", layout="mono", samples=len(pcm) // 2)
        frame.planes[0].update(pcm)
        frame.sample_rate = OPUS_RATE
        frame.pts = self._position
        frame.time_base = _TIME_BASE
        self._position += frame.samples
        return [bytes(packet) for packet in self._codec.encode(frame)]


class OpusDecoder:
    """Payloads to 16-bit samples, mono. A stereo stream is mixed down by the codec itself."""

    def __init__(self) -> None:
        codec = av.CodecContext.create("libopus", "r")
        assert isinstance(codec, AudioCodecContext)
        codec.format = "s16"
        codec.layout = "mono"
        codec.sample_rate = OPUS_RATE
        self._codec = codec

    def decode(self, payload: bytes) -> bytes:
        """What a packet says; b"" if it cannot be made out."""
        try:
            frames = self._codec.decode(OpusPacket(payload))
        except av.FFmpegError:
            return b""
        return b"".join(bytes(frame.planes[0])[: frame.samples * 2] for frame in frames)
