"""MP3 and Opus made into PCM while they come: the one module that imports av (FFmpeg), of the extra ``compressed``.

The one rule: what a packet gives leaves as soon as the packet is whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import av
import numpy as np
from av.audio.codeccontext import AudioCodecContext
from av.audio.frame import AudioFrame

from voiceflow.processors.services.decoders import Decoder
from voiceflow.processors.services.retry import ServiceError

__all__ = ["CompressedSound", "decoder"]

_SYNC = b"OggS"
_HEADER = 27
_LONGEST = 1 << 20
_UNREAD = 64 * 1024
"""More bytes than this without sound in them are no sound: a picture in a tag, at most."""


def decoder(codec: str, sample_rate: int) -> Decoder:
    """For ``mp3`` or ``opus`` at that rate: what services take as the option ``decoder``. Raises ValueError for another."""
    return CompressedSound(codec, sample_rate)


class CompressedSound:
    """One stretch of MP3, or of Opus in Ogg (RFC 7845), mono or stereo, at any rate."""

    def __init__(self, codec: str, sample_rate: int) -> None:
        if codec not in ("mp3", "opus"):
            raise ValueError(f"CompressedSound: {codec!r} is neither mp3 nor opus")
        self._codec = cast(AudioCodecContext, AudioCodecContext.create("mp3float" if codec == "mp3" else "libopus", "r"))
        self._resampler = av.AudioResampler(format="s16", layout="mono", rate=sample_rate)
        self._pages = _OggPages() if codec == "opus" else None
        self._what = codec.upper()
        self._unread = 0
        """Bytes since something could be read."""

    def push(self, data: bytes) -> bytes:
        """The sound that these bytes complete. Raises ServiceError if they are something else."""
        try:
            packets = self._codec.parse(data) if self._pages is None else self._pages.push(data)
            pcm = b"".join(self._opus(packet) if isinstance(packet, bytes) else self._decode(packet) for packet in packets if packet)
        except (av.error.FFmpegError, ValueError):
            raise self._foreign() from None
        self._unread = 0 if pcm else self._unread + len(data)
        if self._unread > _UNREAD:
            raise self._foreign()
        return pcm

    def _foreign(self) -> ServiceError:
        return ServiceError(f"the service sent what is no {self._what}: see that the format it is asked for is one it has")

    def end(self) -> bytes:
        """What the decoder and the resampler held back."""
        try:
            rest = b"" if self._pages is not None else b"".join(self._decode(packet) for packet in self._codec.parse())
            return rest + self._decode(None) + self._pcm(None)
        except av.error.FFmpegError:
            return b""

    def _opus(self, packet: bytes) -> bytes:
        if packet.startswith(b"OpusHead"):
            self._codec.extradata = packet
            return b""
        return b"" if packet.startswith(b"OpusTags") else self._decode(av.Packet(packet))

    def _decode(self, packet: av.Packet[Any] | None) -> bytes:
        try:
            return b"".join(self._pcm(frame) for frame in self._codec.decode(packet))
        except av.error.InvalidDataError:  # a tag, or the end of a frame that began before the stream
            return b""

    def _pcm(self, frame: AudioFrame | None) -> bytes:
        if frame is not None:
            frame.pts = None
        return b"".join(_bytes(piece) for piece in self._resampler.resample(frame))


def _bytes(frame: AudioFrame) -> bytes:
    return np.ascontiguousarray(frame.to_ndarray(), "<i2").tobytes()


class _OggPages:
    """Pages in, packets out. RFC 3533."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._packet = b""

    def push(self, data: bytes) -> Iterator[bytes]:
        self._data += data
        while len(self._data) >= _HEADER:
            if not self._data.startswith(_SYNC):
                raise ValueError("no Ogg page")
            lacing = self._data[_HEADER : _HEADER + self._data[26]]
            size = _HEADER + self._data[26] + sum(lacing)
            if len(lacing) < self._data[26] or len(self._data) < size:
                return
            at = _HEADER + self._data[26]
            for length in lacing:
                self._packet += self._data[at : at + length]
                at += length
                if length < 255:
                    packet, self._packet = self._packet, b""
                    yield packet
            if len(self._packet) > _LONGEST:
                raise ValueError("an Ogg packet without an end")
            del self._data[:size]
