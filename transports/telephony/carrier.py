"""What the media streams of all carriers have in common: when a call is on, sound in base64, chunks in order, faults.

The one rule: nothing a carrier sends ends the call by being nonsense; it is passed over, counted, and logged once a kind.
Only what makes the sound unusable raises WireError.
"""

from __future__ import annotations

import binascii
import enum
import logging
from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec
import numpy as np

from voiceflow.audio.g711 import alaw_decode, alaw_encode, mulaw_decode, mulaw_encode
from voiceflow.errors import what_and_where
from voiceflow.frames import AudioFormat, Frame, InputAudioFrame
from voiceflow.phone import KEYS, DigitReceived
from voiceflow.transports.wire import POLICY, RATES, CallEnded, CallStarted, MarkReturned, Message, Received, WireError

__all__ = [
    "AHEAD_S",
    "Carrier",
    "Connected",
    "Dtmf",
    "Encoding",
    "InOrder",
    "Mark",
    "Media",
    "NonsenseError",
    "Stop",
    "pcm_encoding",
    "plain_parameters",
]

log = logging.getLogger("voiceflow")

AHEAD_S = 0.2
"""How far ahead of its time sound is sent: it bridges a late network, and a clear takes it back."""

MESSAGE_LIMIT = 1 << 16
"""Longer messages are passed over: a carrier sends 20 to 100 ms of sound at a time, at most 7 KB."""

NUMBER_CHARS = 256
"""Of a call, a stream or a telephone; the longest known have some 100."""

EARLY_S = 1.0
"""Sound that comes before the start is kept so long."""


class NonsenseError(Exception):
    """A message is passed over. ``kind``: one of a few, each logged once a call; ``detail``: what exactly, without the content."""

    def __init__(self, kind: str, detail: str = "") -> None:
        super().__init__(f"{kind} ({detail})" if detail else kind)
        self.kind = kind


class Encoding(enum.Enum):
    """How samples are written on the line."""

    MULAW = "mu-law"
    ALAW = "A-law"
    L16 = "16-bit linear, least significant byte first"
    L16_SWAPPED = "16-bit linear, most significant byte first"

    def decode(self, data: bytes) -> bytes:
        """As signed 16-bit PCM, least significant byte first. Raises NonsenseError for half a sample."""
        match self:
            case Encoding.MULAW:
                return mulaw_decode(data)
            case Encoding.ALAW:
                return alaw_decode(data)
        if len(data) % 2:
            raise NonsenseError("sound that ends within a sample")
        return data if self is Encoding.L16 else _swapped(data)

    def encode(self, pcm: bytes) -> bytes:
        """The reverse. Raises ValueError for an odd number of bytes."""
        match self:
            case Encoding.MULAW:
                return mulaw_encode(pcm)
            case Encoding.ALAW:
                return alaw_encode(pcm)
        if len(pcm) % 2:
            raise ValueError(f"{len(pcm)} bytes are no whole number of 16-bit samples")
        return pcm if self is Encoding.L16 else _swapped(pcm)

    @property
    def sample_bytes(self) -> int:
        """Bytes of a sample on the line."""
        return 1 if self in (Encoding.MULAW, Encoding.ALAW) else 2


def _swapped(data: bytes) -> bytes:
    return np.frombuffer(data, "<u2").byteswap().tobytes()


def pcm_encoding(byte_order: str) -> Encoding:
    """16-bit linear in this byte order, ``little`` or ``big``. Raises ValueError for another."""
    if byte_order not in ("little", "big"):
        raise ValueError(f"the byte order is {byte_order!r}, it must be 'little' or 'big'")
    return Encoding.L16 if byte_order == "little" else Encoding.L16_SWAPPED


def plain_parameters(values: Mapping[str, Any]) -> dict[str, str]:
    """Parameters as texts; what is no plain value is left out."""
    return {name: value if isinstance(value, str) else str(value) for name, value in values.items() if isinstance(value, str | int | float)}


class InOrder:
    """Numbered chunks of sound, put in order. Pure.

    A chunk that is ahead of its turn waits for those before it, until ``hold`` chunks wait: then they are given up. What
    comes twice or too late is left out; but from ``hold`` in a row on the numbers are not what they were taken for, and
    such chunks are given as they come.
    """

    def __init__(self, hold: int = 5) -> None:
        self.hold = hold
        self._next: int | None = None
        self._waiting: dict[int, bytes] = {}
        self._late = 0

    def put(self, number: int, chunk: bytes) -> list[bytes]:
        """The chunks whose turn it is now, in order. Raises NonsenseError for one that comes twice or too late."""
        if self._next is None:
            self._next = 1 if 1 <= number <= self.hold else number  # numbers begin at 1; the very first may be late, too
        if number < self._next or number in self._waiting:
            self._late += 1
            if self._late < self.hold:
                raise NonsenseError("sound that came twice or too late")
            return [*self.rest(), chunk]
        self._late = 0
        self._waiting[number] = chunk
        ready = self._ready()
        if len(self._waiting) > self.hold:
            self._next = min(self._waiting)
            ready += self._ready()
        return ready

    def rest(self) -> list[bytes]:
        """What still waits, in order: nothing more will come."""
        chunks = [self._waiting[number] for number in sorted(self._waiting)]
        self._waiting.clear()
        return chunks

    def _ready(self) -> list[bytes]:
        assert self._next is not None
        chunks = []
        while self._next in self._waiting:
            chunks.append(self._waiting.pop(self._next))
            self._next += 1
        return chunks


class Connected(msgspec.Struct, tag_field="event", tag="connected"):
    """A stream begins; what it is of is said by the start, which is each carrier's own."""


class _MediaBody(msgspec.Struct):
    payload: str
    track: str = "inbound"
    chunk: int | None = None


class Media(msgspec.Struct, tag_field="event", tag="media"):
    """Sound."""

    media: _MediaBody


class _DtmfBody(msgspec.Struct):
    digit: str


class Dtmf(msgspec.Struct, tag_field="event", tag="dtmf"):
    """A key was pressed."""

    dtmf: _DtmfBody


class _MarkBody(msgspec.Struct):
    name: str


class Mark(msgspec.Struct, tag_field="event", tag="mark"):
    """A mark came back."""

    mark: _MarkBody


class Stop(msgspec.Struct, tag_field="event", tag="stop"):
    """The stream is over."""


class Carrier:
    """A Wire, as far as carriers agree. A subclass gives the messages and says what those mean that are its own.

    Before the start nothing is sent and sound is kept, up to a second of it; after the stop nothing is sent or taken.
    """

    name = ""
    messages: ClassVar[Any]
    """The union of the structs that may come, told apart by their ``event``."""

    proof = "marks"
    clears = True
    tells: tuple[type[Frame], ...] = ()

    def __init__(self, encoding: Encoding, sample_rate: int, *, ahead_s: float = AHEAD_S, block_ms: float = 20) -> None:
        if ahead_s < 0:
            raise ValueError(f"{type(self).__name__}: ahead_s is {ahead_s}, it must not be negative")
        self.hears = self.speaks = AudioFormat(sample_rate)
        self.block_ms = block_ms
        self.ahead_s = ahead_s
        self.faults = 0
        self.stream = ""
        """The carrier's number for the stream of this call; "" before the start."""
        self.call = ""
        """Its number for the call; "" before the start."""
        self.stopped = False
        """The carrier said that the stream is over: the call has ended, or is none of ours any more."""
        self._hearing = self._speaking = encoding
        self._started = self._over = False
        self._order = InOrder()
        self._early: list[tuple[int | None, bytes]] = []
        self._logged: set[str] = set()
        self._decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(self.messages, strict=False)

    # ------------------------------------------------------------------------------- from the carrier

    def receive(self, message: Message) -> list[Received]:
        """What a message says. Raises WireError if the call cannot go on."""
        try:
            if self._over:
                raise NonsenseError("a message after the end")
            if len(message) > MESSAGE_LIMIT:
                raise NonsenseError("a message that is too long", f"{len(message)} of at most {MESSAGE_LIMIT}")
            return self._binary(message) if isinstance(message, bytes) else self._understand(self._parse(message))
        except NonsenseError as nonsense:
            self.faults += 1
            if nonsense.kind not in self._logged:
                self._logged.add(nonsense.kind)
                log.warning("%s: %s was passed over; more of these are only counted", self.name, nonsense)
            return []

    def _parse(self, text: str) -> Any:
        try:
            return self._decoder.decode(text)
        except msgspec.ValidationError as error:
            what, where = what_and_where(error)
            raise NonsenseError("a message that does not fit", f"{what[:80]!r} at {where[:80] or 'the top'}") from None
        except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
            raise NonsenseError("text that is not JSON") from None

    def _binary(self, data: bytes) -> list[Received]:
        raise NonsenseError("a binary message")

    def _understand(self, message: Any) -> list[Received]:
        """What the messages mean that carriers share; the start is for a subclass."""
        match message:
            case Media(media):
                if media.track != "inbound":
                    raise NonsenseError("sound of another track")
                return self._sound(media.chunk, self._payload(media.payload))
            case Dtmf(dtmf):
                return self._key(dtmf.digit)
            case Mark(mark):
                return self._mark(mark.name)
            case Stop():
                return self._end(f"{self.name} stopped the stream")
        return []

    def _begin(self, started: CallStarted, stream: str) -> list[Received]:
        """The call is on: what came too early follows. A second start of the same call names a new stream, and is no news."""
        if max(len(number) for number in (started.call, started.caller, started.called, stream)) > NUMBER_CHARS:
            raise NonsenseError("a start with a number that is too long")
        if self._started and started.call != self.call:
            raise WireError(f"{self.name} started a second call, {started.call!r}, in the stream of the call {self.call!r}", code=POLICY)
        self.stream = stream
        if self._started:
            before, self._order = self._order, InOrder()
            return self._frames(before.rest())
        self._started, self.call = True, started.call
        received: list[Received] = [started]
        early, self._early = self._early, []
        for number, payload in early:
            try:
                received += self._sound(number, payload)
            except NonsenseError:
                self.faults += 1
        return received

    def _payload(self, text: str) -> bytes:
        """Sound out of its base64."""
        try:
            payload = b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            raise NonsenseError("sound that is not base64") from None
        if not payload:
            raise NonsenseError("sound of no length")
        return payload

    def _sound(self, number: int | None, payload: bytes) -> list[Received]:
        """The caller's sound; ``number`` where it is to be put in order."""
        if not self._started:
            if sum(len(kept) for _, kept in self._early) + len(payload) > EARLY_S * self.hears.sample_rate * self._hearing.sample_bytes:
                raise NonsenseError("more than a second of sound before the start")
            self._early.append((number, payload))
            return []
        pcm = self._hearing.decode(payload)  # before it waits: half a sample must not spoil what waits with it, or the stop behind it
        return self._frames([pcm] if number is None else self._order.put(number, pcm))

    def _frames(self, chunks: list[bytes]) -> list[Received]:
        return [InputAudioFrame(pcm, self.hears.sample_rate, self.hears.channels) for pcm in chunks]

    def _key(self, digit: str) -> list[Received]:
        if len(digit) != 1 or digit.upper() not in KEYS:
            raise NonsenseError("a key that no telephone has")
        return [DigitReceived(digit.upper())]

    def _mark(self, name: str) -> list[Received]:
        if not name:
            raise NonsenseError("a mark without a name")
        return [MarkReturned(name)]

    def _end(self, reason: str) -> list[Received]:
        self._over = self.stopped = True
        return [*self._frames(self._order.rest()), CallEnded(reason)]

    def _format(self, encoding: Encoding | None, said: str, rate: int) -> None:
        """The start says what the caller's sound is."""
        if encoding is None or rate not in RATES:
            raise WireError(f"{self.name} sends {said[:40]!r} at {rate} Hz, which is not understood here", code=1003)
        if self._started and (encoding, rate) != (self._hearing, self.hears.sample_rate):
            raise WireError(f"{self.name} changes the sound to {encoding.value} at {rate} Hz within a call", code=1003)
        self._hearing, self.hears = encoding, AudioFormat(rate)

    # --------------------------------------------------------------------------------- to the carrier

    @property
    def is_on(self) -> bool:
        """Between start and stop: only then anything is sent."""
        return self._started and not self._over

    def audio(self, pcm: bytes) -> list[Message]:
        """Sound, signed 16-bit in ``speaks``. Raises ValueError for an odd number of bytes."""
        return self._media(self._speaking.encode(pcm)) if self.is_on and pcm else []

    def clear(self) -> list[Message]:
        """Throw away what has not been played."""
        return [_json(self._clear_message())] if self.is_on else []

    def mark(self, name: str) -> list[Message]:
        """Say when all before this has been played."""
        return [_json(self._mark_message(name))] if self.is_on else []

    def answers(self) -> list[Message]:
        """Carriers ask for none."""
        return []

    def tell(self, frame: Frame) -> list[Message]:
        """Carriers want to know nothing else."""
        return []

    def end(self, reason: str) -> list[Message]:
        """There is no such message: the socket is closed, and the call is hung up by REST."""
        self._over = True
        return []

    def _media(self, payload: bytes) -> list[Message]:
        return [_json(self._media_message(b64encode(payload).decode()))]

    def _media_message(self, payload: str) -> dict[str, Any]:
        raise NotImplementedError

    def _clear_message(self) -> dict[str, Any]:
        raise NotImplementedError

    def _mark_message(self, name: str) -> dict[str, Any]:
        raise NotImplementedError


def _json(message: dict[str, Any]) -> str:
    return msgspec.json.encode(message).decode()
