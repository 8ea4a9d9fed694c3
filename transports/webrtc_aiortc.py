"""Where aiortc is done otherwise: what takes the sound in and out of it, and a connection that leaves nothing behind.

The one rule: this is the only file that knows aiortc's private names. No sound goes through its own queues: after the first lost packet
its jitter buffer stays 280 ms behind for the rest of a call and closes up the hole, so ``Tap`` takes its place; on the way out it is
given ready packets, so that nothing waits for a thread that encodes.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Protocol

from aiortc import MediaStreamTrack, RTCConfiguration, RTCPeerConnection, RTCRtpReceiver, RTCRtpSender
from aiortc.exceptions import InvalidStateError
from aiortc.mediastreams import MediaStreamError

from voiceflow.errors import VoiceflowError
from voiceflow.transports.opus import BLOCK, OpusPacket, packet_at

__all__ = ["Connection", "Packet", "Tap", "Track", "WebRTCError"]

log = logging.getLogger("voiceflow")

BURST = 25
"""Packets that may wait for the connection: after a stall of the loop they leave together. More are too old to be of use."""


class WebRTCError(VoiceflowError):
    """An offer that cannot be answered. ``status``: what to say in HTTP: 400, 404, 413, 503."""

    def __init__(self, text: str, status: int = 400) -> None:
        super().__init__(text)
        self.status = status


class Packet(Protocol):
    """What is used of aiortc's RtpPacket."""

    ssrc: int
    sequence_number: int
    timestamp: int
    payload: bytes


class Tap:
    """In the place of aiortc's jitter buffer: hands on each packet, and gives aiortc nothing to decode."""

    BUFFER = "_RTCRtpReceiver__jitter_buffer"

    def __init__(self, arrived: Callable[[Packet], object]) -> None:
        self._arrived = arrived

    def add(self, packet: Packet) -> tuple[bool, None]:
        """Called by aiortc for each packet of a codec that was agreed upon."""
        self._arrived(packet)
        return False, None

    def put_into(self, receiver: RTCRtpReceiver) -> None:
        """Take the place. Raises WebRTCError with an aiortc that is built differently."""
        if not hasattr(receiver, self.BUFFER):
            raise WebRTCError("this version of aiortc keeps its jitter buffer elsewhere: install aiortc 1.16", 503)
        setattr(receiver, self.BUFFER, self)


class Track(MediaStreamTrack):
    """What aiortc sends: each payload as soon as it is put. ``begun`` is told the RTP timestamp of the first one's first sample."""

    kind = "audio"

    TIMESTAMP = "_RTCRtpSender__rtp_timestamp"

    def __init__(self, begun: Callable[[int], object]) -> None:
        super().__init__()
        self.sender: RTCRtpSender | None = None
        self._begun = begun
        self._packets: deque[bytes] = deque(maxlen=BURST)
        self._filled = asyncio.Event()
        self._position = 0

    def put(self, payload: bytes) -> None:
        """20 ms."""
        self._packets.append(payload)
        self._filled.set()

    async def recv(self) -> OpusPacket:
        """The next packet. Their timestamps follow one another: the far end counts what was sent."""
        if self.sender is not None and self._position:  # the first has left: now the random start that aiortc gave it is known
            stamp = getattr(self.sender, self.TIMESTAMP, None)
            self.sender = None
            if stamp is not None:
                self._begun(stamp)
        while not self._packets:
            if self.readyState != "live":
                raise MediaStreamError
            self._filled.clear()
            await self._filled.wait()
        packet = packet_at(self._packets.popleft(), self._position)
        self._position += BLOCK
        return packet

    def stop(self) -> None:
        """No more."""
        super().stop()
        self._filled.set()


class Connection(RTCPeerConnection):
    """aiortc's, which leaves the task that connects to itself: closed before it is connected, that would run on and raise.

    What aiortc and aioice start for a connection and forget is owned here, and over when ``close`` returns.
    """

    def __init__(self, configuration: RTCConfiguration) -> None:
        super().__init__(configuration)
        self._connecting: set[asyncio.Task[None]] = set()

    async def _RTCPeerConnection__connect(self) -> None:  # noqa: N802 - aiortc's private name, so that its calls come here
        task = asyncio.current_task()
        assert task is not None
        self._connecting.add(task)
        try:
            await super()._RTCPeerConnection__connect()  # type: ignore[misc]
        except (InvalidStateError, ConnectionError):
            log.debug("a connection was closed while it was made", exc_info=True)
        finally:
            self._connecting.discard(task)

    async def close(self) -> None:
        """End what is still connecting, which would go on to start senders and receivers, and close it."""
        for task in (left := list(self._connecting)):
            task.cancel()
        if left:
            await asyncio.wait(left)
        await super().close()
