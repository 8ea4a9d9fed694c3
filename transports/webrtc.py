"""Calls over WebRTC: a page's offer is answered, and a line speaks with it.

The one rule: a call's connection, tasks and threads are gone when the call is over, however it ended.

aiortc does no ICE restart: a page whose network changed makes a new offer, which is a new call.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

from voiceflow.transports.calls import SHUT_DOWN, Calls
from voiceflow.transports.line import Line
from voiceflow.transports.line_ends import ConnectionClock
from voiceflow.transports.webrtc_options import IceServer, PeerOptions, WebRTCError, WebRTCOptions
from voiceflow.transports.webrtc_peer import Peer
from voiceflow.transports.webrtc_wire import WebRTCWire
from voiceflow.transports.wire import CallStarted, Wire

__all__ = ["IceServer", "PeerOptions", "WebRTC", "WebRTCError", "WebRTCOptions"]

log = logging.getLogger("voiceflow")

MAX_CANDIDATES = 64

BUFFERED_S = 0.09
"""From a packet's arrival to the ear on a network without jitter: a browser's jitter buffer and the sound device."""


class WebRTC:
    """Answers offers; ``calls`` runs a session for each, and says how many there may be. Use it as ``async with``, or ``close()`` it.

    ``words``: makes the wire that the data channel speaks, anew for each call; without one the channel is not listened to.
    """

    def __init__(self, calls: Calls, options: WebRTCOptions | None = None, *, words: Callable[[], Wire] | None = None) -> None:
        self.options = options or WebRTCOptions()
        self._calls = calls
        self._words = words
        self._talks: dict[str, _Talk] = {}
        self._closed = False

    @property
    def connections(self) -> int:
        """How many there are, those being made included."""
        return len(self._talks)

    async def answer(self, offer: Mapping[str, str], who: str = "") -> dict[str, str]:
        """The answer to an offer, ``{"sdp", "type", "pc_id"}``; the call begins when the connection stands. ``who``: for the log.

        Raises WebRTCError: no offer, too large, no sound both understand, full. Then, and when it is cancelled, nothing is left.
        """
        sdp = self._checked(offer)
        self._refuse_if_full(None)
        talk = _Talk(secrets.token_urlsafe(12), f"webrtc {who}".strip(), self._words() if self._words else None, self.options)
        self._talks[talk.id] = talk
        self._calls.coming.add(talk)
        try:
            local = await talk.peer.answer(sdp)
            self._refuse_if_full(talk)  # it may be closed by now
        except BaseException:
            self._forget(talk)
            await talk.peer.close(reason="it was not answered")
            raise
        talk.task = asyncio.create_task(self._hold(talk), name=f"webrtc call {talk.id}")
        return {"sdp": local.sdp, "type": local.type, "pc_id": talk.id}

    async def add_candidates(self, pc_id: str, candidates: Sequence[Mapping[str, Any]]) -> None:
        """More addresses of a caller: ``{"candidate", "sdp_mid", "sdp_mline_index"}`` each. Raises WebRTCError: 404 for a call that is over."""
        talk = self._talks.get(pc_id)
        if talk is None:
            raise WebRTCError("there is no such call, or it is over", 404)
        if len(candidates) > MAX_CANDIDATES:
            raise WebRTCError(f"{len(candidates)} candidates; no more than {MAX_CANDIDATES} at a time", 413)
        for candidate in candidates:
            await talk.peer.add_candidate(candidate)

    async def close(self) -> None:
        """End every call at once, and take no more."""
        self._closed = True
        begun = {talk: talk.task for talk in self._talks.values() if talk.task is not None}
        for task in begun.values():
            task.cancel()
        await asyncio.gather(*begun.values(), return_exceptions=True)
        for talk in begun:
            self._forget(talk)
            await talk.peer.close()  # a task that was cancelled before its first step has closed nothing

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    def _checked(self, offer: Mapping[str, str]) -> str:
        kind, sdp = offer.get("type"), offer.get("sdp")
        if kind != "offer" or not isinstance(sdp, str):
            raise WebRTCError(
                f'an offer is {{"type": "offer", "sdp": "..."}}; this one has type {kind!r:.40}, and its sdp is {type(sdp).__name__}'
            )
        if len(sdp) > self.options.max_offer:
            raise WebRTCError(f"the offer has {len(sdp)} characters; no more than {self.options.max_offer} are read", 413)
        return sdp

    def _refuse_if_full(self, talk: _Talk | None) -> None:
        if refusal := SHUT_DOWN if self._closed else self._calls.refusal(talk):
            raise WebRTCError(refusal, 503)

    async def _hold(self, talk: _Talk) -> None:
        try:
            await talk.run(self._calls)
        finally:
            self._forget(talk)

    def _forget(self, talk: _Talk) -> None:
        self._talks.pop(talk.id, None)
        self._calls.coming.discard(talk)


class _Talk:
    """One call: its connection, and the line on it."""

    def __init__(self, id: str, who: str, words: Wire | None, options: WebRTCOptions) -> None:
        self.id = id
        self.who = who
        self.task: asyncio.Task[None] | None = None
        self.peer = Peer(id, options.peer, channel=words is not None, network=self._network_is, lost=self._lost, left=self._left)
        self.wire = WebRTCWire(words)
        live = replace(options.line, speaker=replace(options.line.speaker, continuous=True))
        self.line = Line(self.wire, self.peer, CallStarted(id, who), live)
        clock = self.line.sink.playout.ledger.clock
        assert isinstance(clock, ConnectionClock)
        clock.stood = lambda: self.peer.contact.last  # its reports may wait for a lost one to be sent again, the sound does not
        self._clock = clock

    async def run(self, calls: Calls) -> None:
        """From the answer to the end of the call. Cancelling it ends the call."""
        watch = asyncio.create_task(self.peer.watch(), name=f"webrtc watch {self.id}")
        try:
            if await self.peer.connected():
                calls.coming.discard(self)  # from here on it is one of those under way
                await self.line.run(calls, self.who)
            else:
                log.warning("call of %s: never began: %s", self.who, self.peer.gone)
        finally:
            watch.cancel()
            await asyncio.wait([watch])
            await self.peer.close()

    def _lost(self, lost: bool) -> None:
        """The network is down, and what left lately never came there; or it is up again."""
        now, sink = asyncio.get_running_loop().time(), self.line.sink
        if lost:
            sink.lose(now)
        else:
            sink.find(now)

    def _left(self, why: str) -> None:
        """The far end is gone: before the line can find that out by itself, and not know why."""
        self.line.hang_up(why)

    def _network_is(self, round_trip_s: float | None, jitter_s: float) -> None:
        """How long a report is on its way; and, until the far end reports what it played, how far behind the ear may be."""
        one_way_s = (round_trip_s or 0.0) / 2
        self._clock.return_s = one_way_s
        if not self.wire.reported:
            self._clock.latency_s = one_way_s + BUFFERED_S + 2 * jitter_s
