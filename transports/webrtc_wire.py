"""What a WebRTC call speaks: Opus packets both ways, and beside them the messages of the data channel, which another wire knows.

The one rule: what was lost on the way in is silence of its own length. Pure.

Binary messages are Opus: one that came is a ``Piece`` of ``rtp`` (``pack``), one that is to leave is the payload alone, of 20 ms.
"""

from __future__ import annotations

import struct

from voiceflow.frames import AudioFormat, Frame, InputAudioFrame
from voiceflow.transports.opus import BLOCK, OpusDecoder, OpusEncoder
from voiceflow.transports.rtp import OPUS_RATE, Piece
from voiceflow.transports.wire import CallStarted, Message, Played, Received, Wire

__all__ = ["WebRTCWire", "pack"]

_HEAD = struct.Struct("<dIH")


def pack(piece: Piece) -> bytes:
    """A piece as a message."""
    return _HEAD.pack(piece.pts, piece.missing, piece.samples) + piece.payload


class WebRTCWire:
    """One call. ``words``: the wire of the data channel, if it is listened to; its own sound, start and clear are not used.

    Sound leaves at its time and cannot be called back: after an interrupt the far end still plays what its jitter buffer holds, some
    50 to 100 ms. ``Played`` counts samples at 48 kHz from the first packet's first.
    """

    name = "webrtc"
    hears = speaks = AudioFormat(OPUS_RATE)
    block_ms = BLOCK * 1000 / OPUS_RATE
    ahead_s = 0.0
    clears = False
    proof = "reports"

    def __init__(self, words: Wire | None = None) -> None:
        self.words = words
        self.faults = 0
        """Packets that no sound could be made of."""
        self.reported = False
        """The far end has said what it played."""
        self._encoder = OpusEncoder()
        self._decoder = OpusDecoder()

    @property
    def tells(self) -> tuple[type[Frame], ...]:
        """See Wire."""
        return self.words.tells if self.words else ()

    def receive(self, message: Message) -> list[Received]:
        """See Wire."""
        if isinstance(message, bytes):
            return self._sound(message)
        received = self.words.receive(message) if self.words else []
        self.reported = self.reported or any(isinstance(item, Played) for item in received)
        return [item for item in received if not isinstance(item, CallStarted)]

    def answers(self) -> list[Message]:
        """See Wire."""
        return self.words.answers() if self.words else []

    def audio(self, pcm: bytes) -> list[Message]:
        """One block."""
        return list(self._encoder.encode(pcm))

    def clear(self) -> list[Message]:
        """Nothing can be called back."""
        return []

    def mark(self, name: str) -> list[Message]:
        """There are none."""
        return []

    def tell(self, frame: Frame) -> list[Message]:
        """See Wire."""
        return self.words.tell(frame) if self.words else []

    def end(self, reason: str) -> list[Message]:
        """See Wire."""
        return self.words.end(reason) if self.words else []

    def _sound(self, message: bytes) -> list[Received]:
        pts, missing, samples = _HEAD.unpack_from(message)
        frames: list[Received] = []
        if missing:
            frames.append(InputAudioFrame(pcm=bytes(2 * missing), sample_rate=OPUS_RATE, pts=pts - missing / OPUS_RATE))
        pcm = self._decoder.decode(message[_HEAD.size :])
        if len(pcm) != 2 * samples:
            self.faults += 1
            pcm = pcm[: 2 * samples].ljust(2 * samples, b"\0")
        frames.append(InputAudioFrame(pcm=pcm, sample_rate=OPUS_RATE, pts=pts))
        return frames
