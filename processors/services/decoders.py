"""Sound as services send it, made into PCM while it comes. The one rule: where the bytes are cut makes no difference.

What needs no library is here; MP3 and Opus are in ``compressed_sound``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from voiceflow.audio import Chunker, alaw_decode, mulaw_decode
from voiceflow.processors.services.retry import ServiceError

__all__ = ["Decoder", "G711Decoder", "PcmDecoder", "alaw", "mulaw", "not_pcm"]


class Decoder(Protocol):
    """Bytes in, mono s16le PCM of the promised rate out. One for each stretch of sound. Raises ServiceError at what it cannot read."""

    def push(self, data: bytes) -> bytes:
        """What these bytes complete: whole samples, perhaps none."""

    def end(self) -> bytes:
        """What is left at the end of the stretch."""


class PcmDecoder:
    """Signed 16-bit little-endian, mono, cut anywhere. Half a sample at the end is dropped."""

    def __init__(self, sample_rate: int) -> None:
        self._chunker = Chunker(sample_rate, chunk_ms=1000)
        self._head: bytes | None = b""

    def push(self, data: bytes) -> bytes:
        """Whole samples. Raises ServiceError if the stretch begins as no PCM does."""
        if self._head is not None:
            self._head += data
            if what := not_pcm(self._head):
                raise ServiceError(f"the service sent {what} where PCM was asked for: see that the format it is asked for is one it has")
            if len(self._head) >= 2048:
                self._head = None
        return b"".join(self._chunker.push(data)) + self._chunker.drain()

    def end(self) -> bytes:
        """Nothing, or what a flush gives."""
        return self._chunker.flush()


class G711Decoder:
    """Telephone sound of one byte a sample."""

    def __init__(self, decode: Callable[[bytes], bytes]) -> None:
        self._decode = decode

    def push(self, data: bytes) -> bytes:
        """Two bytes for each."""
        return self._decode(data) if data else b""

    def end(self) -> bytes:
        """Nothing is ever left."""
        return b""


def mulaw() -> Decoder:
    """G.711 mu-law."""
    return G711Decoder(mulaw_decode)


def alaw() -> Decoder:
    """G.711 A-law."""
    return G711Decoder(alaw_decode)


_MP3_RATES = {0b11: (44100, 48000, 32000), 0b10: (22050, 24000, 16000), 0b00: (11025, 12000, 8000)}
_MP3_KBITS = {
    True: (0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320),  # MPEG 1, layer III
    False: (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),  # MPEG 2 and 2.5
}


def _mp3_frame(head: bytes) -> int:
    """Bytes of the frame of MPEG layer III that begins here, or 0. ISO/IEC 11172-3, 2.4.1.3."""
    if len(head) < 4 or head[0] != 0xFF or head[1] & 0xE6 != 0xE2:
        return 0
    version, rate, kbits = head[1] >> 3 & 3, head[2] >> 2 & 3, head[2] >> 4
    if version == 0b01 or rate == 0b11 or not 0 < kbits < 15:
        return 0
    first = version == 0b11
    return (144 if first else 72) * _MP3_KBITS[first][kbits] * 1000 // _MP3_RATES[version][rate] + (head[2] >> 1 & 1)


def not_pcm(head: bytes) -> str:
    """What these first bytes of a stretch are, if they are certainly no PCM; else ""."""
    for mark, what in ((b"ID3", "MP3"), (b"OggS", "Ogg"), (b"RIFF", "WAV"), (b'{"', "JSON"), (b"<!DOCTYPE", "HTML"), (b"fLaC", "FLAC")):
        if head.startswith(mark):
            return what
    size = _mp3_frame(head)
    return "MP3" if size and _mp3_frame(head[size : size + 4]) else ""
