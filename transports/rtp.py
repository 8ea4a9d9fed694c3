"""One stream of Opus packets as it comes from the network, put in order and on the clock.

Its one rule: what is lost leaves a hole of its own length, so that sound after it is where it was spoken. Pure: time is passed in.

Sources: RFC 3550 (sequence numbers and timestamps), RFC 6716 section 3.1 (how much sound an Opus packet holds).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["OPUS_RATE", "Piece", "RtpStream", "opus_samples"]

OPUS_RATE = 48000
"""In Hz: of the timestamps, whatever rate was encoded, and of the sound here."""

JUMP_PACKETS = 3000
"""A sequence number this far from the last belongs to another stream: a minute, and less than 16 bits can tell apart."""

JUMP_S = 60.0
"""So does a timestamp."""

HOLE_S = 2.0
"""A longer hole is not filled: the clock jumps. It was a pause of the far end's, or of the network's."""

DRIFT = 2e-4
"""How much faster or slower the far end's clock may run: crystals are within half of it."""

_SILK_MS = (10, 20, 40, 60)
_HYBRID_MS = (10, 20)
_CELT_MS = (2.5, 5, 10, 20)


def opus_samples(payload: bytes) -> int:
    """How many samples at 48 kHz a packet decodes to; 0 for one that holds none or is malformed."""
    if not payload:
        return 0
    config, code = payload[0] >> 3, payload[0] & 3
    if config < 12:
        frame_ms: float = _SILK_MS[config & 3]
    elif config < 16:
        frame_ms = _HYBRID_MS[config & 1]
    else:
        frame_ms = _CELT_MS[config & 3]
    counted = payload[1] & 63 if len(payload) > 1 else 0
    frames = (1, 2, 2, counted)[code]
    samples = round(frame_ms * frames * OPUS_RATE / 1000)
    return samples if samples <= 120 * OPUS_RATE // 1000 else 0


class Piece(NamedTuple):
    """A packet that is next. ``pts``: when its first sample was spoken; ``missing``: samples that were lost right before it."""

    pts: float
    missing: int
    samples: int
    payload: bytes


@dataclass(slots=True)
class _Held:
    position: int
    payload: bytes
    arrived: float


class RtpStream:
    """Packets in as they arrive, pieces out in order.

    A packet that is next comes out at once. One behind a hole waits ``wait_s`` for what is missing; then that is lost.
    ``pts`` is the arrival of the fastest packet so far, less its own length: the network's shortest way is not known and
    not taken off.
    """

    def __init__(self, wait_s: float = 0.06) -> None:
        if wait_s < 0:
            raise ValueError(f"RtpStream: wait_s is {wait_s}, it must be 0 or more seconds")
        self.wait_s = wait_s
        self.lost = 0
        """Packets that never came in time."""
        self.late = 0
        """Packets that came after they were given up, or twice."""
        self.restarts = 0
        """Times that another stream took this one's place."""
        self._held: dict[int, _Held] = {}
        self._started = False
        self._next = 0
        """Sequence number of the next packet, counted on past 16 bits; ``_position`` likewise for timestamps, from 0."""
        self._highest = 0
        self._position = 0
        self._timestamp = 0
        self._end: int | None = None
        """Where the last piece ended."""
        self._offset: float | None = None
        self._offset_at = 0.0

    def add(self, sequence: int, timestamp: int, payload: bytes, now: float) -> None:
        """A packet arrived."""
        step = _signed(sequence - self._highest, 16)
        move = _signed(timestamp - self._timestamp, 32)
        if not self._started or abs(step) > JUMP_PACKETS or abs(move) > JUMP_S * OPUS_RATE:
            self._begin(sequence, timestamp)
            step = move = 0
        number, position = self._highest + step, self._position + move
        if step > 0:
            self._highest, self._position, self._timestamp = number, position, timestamp
        if number < self._next or number in self._held:
            self.late += 1
            return
        self._held[number] = _Held(position, payload, now)
        length = opus_samples(payload)
        if length:
            self._tune(now - (position + length) / OPUS_RATE, now)

    def take(self, now: float) -> list[Piece]:
        """What is next, in order; what waited too long for others goes on without them."""
        pieces = []
        while self._held:
            if self._next not in self._held:
                if now < self._deadline():
                    break
                first = min(self._held)
                self.lost += first - self._next
                self._next = first
            piece = self._piece(self._held.pop(self._next))
            self._next += 1
            if piece is not None:
                pieces.append(piece)
        return pieces

    @property
    def due(self) -> float | None:
        """When ``take`` would give up a hole; None while nothing waits."""
        return self._deadline() if self._held else None

    def _deadline(self) -> float:
        return min(held.arrived for held in self._held.values()) + self.wait_s

    def _begin(self, sequence: int, timestamp: int) -> None:
        self.restarts += self._started
        self._started = True
        self._held.clear()
        self._next = self._highest = sequence
        self._position, self._timestamp = 0, timestamp
        self._end = self._offset = None

    def _tune(self, offset: float, now: float) -> None:
        if self._offset is None:
            self._offset = offset
        else:
            self._offset = min(self._offset + (now - self._offset_at) * DRIFT, offset)
        self._offset_at = now

    def _piece(self, held: _Held) -> Piece | None:
        samples = opus_samples(held.payload)
        if not samples:  # a probe of the network's width, or nonsense
            return None
        missing = 0 if self._end is None else held.position - self._end
        if missing < 0:
            self.late += 1
            return None
        self._end = held.position + samples
        assert self._offset is not None
        return Piece(self._offset + held.position / OPUS_RATE, missing if missing <= HOLE_S * OPUS_RATE else 0, samples, held.payload)


def _signed(difference: int, bits: int) -> int:
    half = 1 << (bits - 1)
    return ((difference + half) & ((1 << bits) - 1)) - half
