"""One WebRTC call's connection, as the socket of a line: aiortc does ICE, DTLS and SRTP.

The one rule: no sound goes through aiortc's own queues. After the first lost packet its jitter buffer stays 280 ms behind for
the rest of a call and closes up the hole, so ``_Tap`` takes its place. On the way out it is given ready packets, so that
nothing waits for a thread that encodes.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from aiortc import (
    MediaStreamTrack,
    RTCConfiguration,
    RTCDataChannel,
    RTCIceServer,
    RTCPeerConnection,
    RTCRtpReceiver,
    RTCRtpSender,
    RTCSessionDescription,
)
from aiortc.exceptions import InvalidStateError
from aiortc.mediastreams import MediaStreamError
from aiortc.sdp import SessionDescription, candidate_from_sdp

from voiceflow.tasks import whatever_happens
from voiceflow.transports.contact import Contact
from voiceflow.transports.opus import BLOCK, OpusPacket, packet_at
from voiceflow.transports.rtp import OPUS_RATE, RtpStream
from voiceflow.transports.webrtc_options import PeerOptions, WebRTCError
from voiceflow.transports.webrtc_wire import pack
from voiceflow.transports.wire import Message

__all__ = ["Connection", "Peer"]

log = logging.getLogger("voiceflow")

LOOK_S = 1.0
"""How often it is looked whether the far end is still there, and what it says of the network."""

CLOSE_S = 5.0
"""What aiortc gets to close a connection."""

FULL = 2**18
"""Bytes waiting in the data channel: the page does not read, and what is told now would come too late."""

PORTS = range(1, 65536)

WAITING = 1000
"""Messages that may wait for the line; of more the oldest is dropped."""

BURST = 25
"""Packets that may wait for the connection: after a stall of the loop they leave together. More are too old to be of use."""


class _Packet(Protocol):
    """What is used of aiortc's RtpPacket."""

    ssrc: int
    sequence_number: int
    timestamp: int
    payload: bytes


class _Tap:
    """In the place of aiortc's jitter buffer: hands on each packet, and gives aiortc nothing to decode."""

    BUFFER = "_RTCRtpReceiver__jitter_buffer"

    def __init__(self, arrived: Callable[[_Packet], object]) -> None:
        self._arrived = arrived

    def add(self, packet: _Packet) -> tuple[bool, None]:
        """Called by aiortc for each packet of a codec that was agreed upon."""
        self._arrived(packet)
        return False, None

    def put_into(self, receiver: RTCRtpReceiver) -> None:
        """Take the place. Raises WebRTCError with an aiortc that is built differently."""
        if not hasattr(receiver, self.BUFFER):
            raise WebRTCError("this version of aiortc keeps its jitter buffer elsewhere: install aiortc 1.16", 503)
        setattr(receiver, self.BUFFER, self)


class _Track(MediaStreamTrack):
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


class Peer:
    """One caller's connection. ``gone``: why the far end is no longer there, "" while it is; ``left`` is told of it at once.

    ``receive``, ``send`` and ``close``: a line's Socket. ``network``: told the round trip (None: not known yet) and the jitter, in
    seconds, as the far end's RTCP reports say, about once a second. ``lost``: told True again and again while the network is down, see
    ``PeerOptions.hold_s``, and False once it is up again.
    """

    def __init__(
        self,
        id: str,
        options: PeerOptions,
        *,
        channel: bool,
        network: Callable[[float | None, float], object],
        lost: Callable[[bool], object],
        left: Callable[[str], object],
    ) -> None:
        self.id = id
        self.options = options
        self.stream = RtpStream(options.wait_s)
        """The caller's sound, put in order."""
        self.gone = ""
        self._network = network
        self._lost = lost
        self._left = left
        self.contact = Contact(options.hold_s)
        self._is_lost = False
        self._wants_channel = channel
        self._channel: RTCDataChannel | None = None
        self._origin: int | None = None
        """The RTP timestamp of the agent's first sample."""
        self._ssrc: int | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._messages: deque[Message] = deque(maxlen=WAITING)
        self._came = asyncio.Event()
        self._settled = asyncio.Event()
        """It is connected, or never will be."""
        servers = [
            RTCIceServer(urls=server.url, username=server.username or None, credential=server.credential or None)
            for server in options.ice_servers
        ]
        self._connection = Connection(RTCConfiguration(iceServers=servers))
        self._connection.on("connectionstatechange", self._state_changed)
        self._connection.on("datachannel", self._channel_opened)
        self._track = _Track(self._stream_began)

    # ------------------------------------------------------------------------------------------- coming to terms

    async def answer(self, sdp: str) -> RTCSessionDescription:
        """Agree on Opus both ways, and nothing else. Raises WebRTCError. Cancelling waits for aiortc to come to an end with it."""
        _check_audio(sdp)
        try:
            return await whatever_happens(self._negotiate(sdp))  # as in close
        except WebRTCError:
            raise
        except Exception as error:  # aiortc raises whatever its parser meets
            raise WebRTCError(f"the offer cannot be answered: {type(error).__name__}: {error!s:.200}") from error

    async def _negotiate(self, sdp: str) -> RTCSessionDescription:
        pc = self._connection
        transceiver = pc.addTransceiver(self._track, "sendrecv")
        opus = [codec for codec in RTCRtpSender.getCapabilities("audio").codecs if codec.mimeType.lower() == "audio/opus"]
        transceiver.setCodecPreferences(opus)
        self._track.sender = transceiver.sender
        _Tap(self._packet_arrived).put_into(transceiver.receiver)
        await pc.setRemoteDescription(RTCSessionDescription(sdp=sdp, type="offer"))
        for other in pc.getTransceivers():
            if other is not transceiver:
                other.direction = "inactive"  # video would be decoded, and nobody looks
        await pc.setLocalDescription(await pc.createAnswer())
        return pc.localDescription

    async def add_candidate(self, candidate: Mapping[str, Any]) -> None:
        """One more address of the far end. Raises WebRTCError."""
        text = candidate.get("candidate")
        if text == "":
            return  # the end of them
        try:
            found = candidate_from_sdp(str(text).removeprefix("candidate:"))
            found.sdpMid = candidate.get("sdp_mid", candidate.get("sdpMid"))
            found.sdpMLineIndex = candidate.get("sdp_mline_index", candidate.get("sdpMLineIndex"))
            if found.port not in PORTS or not isinstance(found.sdpMid, str | None) or not isinstance(found.sdpMLineIndex, int | None):
                raise ValueError("its port, sdp_mid or sdp_mline_index is none")
            await self._connection.addIceCandidate(found)
        except (ValueError, AssertionError, IndexError, InvalidStateError) as error:
            raise WebRTCError(f"not a candidate: {text!r:.100}: {error!s:.100}") from error

    async def connected(self) -> bool:
        """Wait for the connection; False if there will be none."""
        try:
            async with asyncio.timeout(self.options.connect_s):
                await self._settled.wait()
        except TimeoutError:
            self.hang_up(f"no connection within {self.options.connect_s:g} s")
        return not self.gone

    # ------------------------------------------------------------------------------------------------ the socket

    @property
    def lost(self) -> bool:
        """See Socket. aiortc cannot take a connection up again: what is lost is over."""
        return False

    async def receive(self) -> Message | None:
        """See Socket."""
        while not self._messages:
            if self.gone:
                return None
            self._came.clear()
            await self._came.wait()
        return self._messages.popleft()

    async def send(self, message: Message) -> None:
        """Binary is sound, text goes into the data channel. Neither waits: sound must not wait behind words."""
        if self.gone:
            raise ConnectionError(self.gone)
        if isinstance(message, bytes):
            self._track.put(message)
        else:
            self._say(message)

    async def close(self, code: int = 1000, reason: str = "the call is over") -> None:
        """Leave nothing behind."""
        self.hang_up(reason)
        if self._timer is not None:
            self._timer.cancel()
        await whatever_happens(self._disconnect())  # cancelled on its way, aioice would leave sockets open

    async def _disconnect(self) -> None:
        try:
            async with asyncio.timeout(CLOSE_S):
                await self._connection.close()
        except TimeoutError:
            log.error("webrtc call %s: aiortc did not close the connection within %g s", self.id, CLOSE_S)

    # ------------------------------------------------------------------------------------------------- its life

    async def watch(self) -> None:
        """See that the far end is there, and ask what it knows of the network, until it is gone."""
        await self._settled.wait()
        now = asyncio.get_running_loop().time
        packets, since = -1, now()
        look_s = min(LOOK_S, self.options.silent_s / 4)
        while not self.gone:
            until = now() + look_s
            while (wait_s := until - now()) > 0:
                await asyncio.sleep(min(wait_s, self.options.hold_s / 4))
                self._see_whether_lost()
            received = await self._look()
            if received != packets:
                packets, since = received, now()
                if self._is_lost:
                    self.contact.word_came(since)
                    self._see_whether_lost()
            elif now() - since >= self.options.silent_s:
                self.hang_up(f"nothing came from the caller for {self.options.silent_s:g} s")

    def _see_whether_lost(self) -> None:
        """Say so again, while it is: what begins to speak meanwhile has to be held too."""
        before, self._is_lost = self._is_lost, self.contact.is_lost(asyncio.get_running_loop().time())
        if self._is_lost or before:
            self._lost(self._is_lost)

    async def _look(self) -> int:
        """Ask aiortc; gives the packets received so far, of any kind."""
        received = 0
        for sender in self._connection.getSenders():
            for report in (await sender.getStats()).values():
                if report.type == "remote-inbound-rtp":
                    self._network(report.roundTripTime, report.jitter / OPUS_RATE)
                elif report.type == "transport":
                    received = report.packetsReceived
        return received

    def hang_up(self, reason: str) -> None:
        """The far end is gone, or said so. The first reason stands."""
        if not self.gone:
            self.gone = reason
            self._left(reason)
        self._settled.set()
        self._came.set()

    def _state_changed(self) -> None:
        state = self._connection.connectionState
        if state == "connected":
            self._settled.set()
        elif state == "closed":
            self.hang_up("the caller hung up")
        elif state == "failed":
            self.hang_up("the connection was lost" if self._settled.is_set() else "no way to the caller was found")

    def _put(self, message: Message) -> None:
        self._messages.append(message)
        self._came.set()

    # ----------------------------------------------------------------------------------------------- what comes

    def _packet_arrived(self, packet: _Packet) -> None:
        self.contact.sound_came(asyncio.get_running_loop().time())
        if self._is_lost:
            self._see_whether_lost()
        if packet.ssrc != self._ssrc:
            self._ssrc, self.stream = packet.ssrc, RtpStream(self.options.wait_s)
        self.stream.add(packet.sequence_number, packet.timestamp, packet.payload, asyncio.get_running_loop().time())
        self._take()

    def _take(self) -> None:
        loop = asyncio.get_running_loop()
        for piece in self.stream.take(loop.time()):
            self._put(pack(piece))
        if self._timer is not None:
            self._timer.cancel()
        due = self.stream.due
        self._timer = loop.call_at(due, self._take) if due is not None and not self.gone else None

    def _channel_opened(self, channel: RTCDataChannel) -> None:
        if self._wants_channel and self._channel is None:
            self._channel = channel
            channel.on("message", self._message_came)
            self._say_where_it_began()

    def _message_came(self, message: Message) -> None:
        self.contact.word_came(asyncio.get_running_loop().time())
        if self._is_lost:
            self._see_whether_lost()
        if isinstance(message, str):  # binary is sound here, and that does not come this way
            self._put(message)

    def _say(self, message: str) -> None:
        channel = self._channel
        if channel is not None and channel.readyState == "open" and channel.bufferedAmount <= FULL:
            channel.send(message)

    def _stream_began(self, origin: int) -> None:
        self._origin = origin
        self._say_where_it_began()

    def _say_where_it_began(self) -> None:
        """A browser tells a page the RTP timestamp of what it plays: with this the page can say how much that is."""
        if self._origin is not None and self._channel is not None:
            self._say(json.dumps({"type": "rtp", "timestamp": self._origin}))


def _check_audio(sdp: str) -> None:
    """Raise WebRTCError for what is no SDP, or has no sound to speak and hear by."""
    try:
        description = SessionDescription.parse(sdp)
    except Exception as error:  # aiortc's parser raises whatever it meets
        raise WebRTCError(f"the offer's sdp cannot be read: {type(error).__name__}: {error!s:.200}") from error
    audio = next((part for part in description.media if part.kind == "audio"), None)
    if audio is None:
        raise WebRTCError("the offer has no sound: add an audio transceiver or the microphone's track before createOffer()")
    if audio.direction not in ("sendrecv", "recvonly"):
        raise WebRTCError(
            f"the offer's sound is {audio.direction}: the agent could not be heard; offer sendrecv, or recvonly without a microphone"
        )
    if audio.dtls is None or not audio.dtls.fingerprints or audio.ice is None or not audio.ice.usernameFragment:
        raise WebRTCError("the offer's sound cannot be answered: it has no DTLS fingerprint, or no ICE name and password")
    if not any(codec.mimeType.lower() == "audio/opus" for codec in audio.rtp.codecs):
        raise WebRTCError("the offer's sound has no Opus, the one codec that is spoken here")
    parts = {part.rtp.muxId for part in description.media if part.kind in ("audio", "video", "application")}
    bundle = next((group.items for group in description.group if group.semantic == "BUNDLE"), [])
    if wrong := next((c.port for part in description.media for c in part.ice_candidates if c.port not in PORTS), None):
        raise WebRTCError(f"the offer has a candidate with port {wrong}, which is none")
    if bundle and bundle[0] not in parts:  # aiortc would have no transport for the rest of the group, and not close again
        raise WebRTCError(f"the offer's BUNDLE group begins with {bundle[0]!r:.40}, which is the mid of none of its parts")
