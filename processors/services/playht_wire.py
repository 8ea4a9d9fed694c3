"""What is said between us and PlayHT's text to speech over its WebSocket: the address, the command, the answers, the sound.

The protocol as the vendor documented it (``api/v4/websocket-auth``, then a JSON command for each request, answered by ``start``,
binary sound, ``end``) and as its client package speaks it. The one rule: sound belongs to the request whose ``start`` came
before it. No I/O, no clock.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import urlsplit

from voiceflow.audio import mulaw_decode
from voiceflow.processors.services.retry import ServiceError, Verdict, named, problem_in

__all__ = ["HINTS", "RequestSound", "ServerMessage", "WavSound", "read_message", "socket_address"]

KEY = "the key or the user's id is missing or not valid: set the environment variables, or give api_key and user_id"
HINTS: Mapping[int | str, str] = {
    400: "the service does not take this request: look at voice, engine, output_format and sample_rate",
    401: KEY,
    402: "the account has no credit",
    403: KEY,
    404: "there is no such address: look at base_url",
    422: "the service does not take this request: look at voice, engine, output_format and sample_rate",
    429: "too many requests at once for the account's plan",
    "voice": "there is no such voice: look at voice (the address of its manifest, not its name) and engine",
    "key": KEY,
    "credit": "the account has no credit",
    "many": "too many requests at once for the account's plan",
}
_IN_WORDS = (  # what an error says in a sentence, its name, and whether it is of use to ask again
    (r"rate.?limit|too many|concurren", "many", True),
    (r"unauthori[sz]ed|api.?key|token|forbidden|user.?id", "key", False),
    (r"credit|quota|payment", "credit", False),
    (r"voice|manifest", "voice", False),
    (r"invalid|unknown|not supported|required|must be", "", False),
)
LONGEST_HEADER = 4096
"""Bytes of a WAV header."""
_PLAIN_PCM, _EXTENSIBLE = 1, 0xFFFE


def socket_address(body: bytes, engine: str, where: str, *, secure: bool) -> str:
    """The WebSocket's address out of the answer to ``websocket-auth``, in all three spellings there have been.

    ``secure``: it was asked for over https. It holds a token, so it is then taken only if it is wss. Raises ServiceError.
    """
    try:
        answer = json.loads(body)
        addresses = answer.get("websocket_urls", answer.get("webSocketUrls"))
        address = addresses[engine] if isinstance(addresses, dict) else answer["websocket_url"]
        scheme = urlsplit(address).scheme
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise ServiceError(f"{where} gave no WebSocket for the engine {engine!r}: look at engine and base_url") from None
    if scheme not in ({"wss"} if secure else {"ws", "wss"}):
        raise ServiceError(f"{where} gave an address that is no {'wss' if secure else 'ws or wss'} address: is base_url right?")
    return str(address)


@dataclass(frozen=True, slots=True)
class ServerMessage:
    """A text message of the service."""

    kind: Literal["start", "end", "error", "other"]
    error: ServiceError | None = None


def read_message(data: str, where: str) -> ServerMessage:
    """One text message. Raises ServiceError if it cannot be read."""
    try:
        message = json.loads(data)
        if not isinstance(message, dict):
            raise ValueError
    except (ValueError, RecursionError):
        raise ServiceError(f"{where} sent a message that cannot be read", verdict=Verdict.LATER) from None
    if message.get("error") is not None or message.get("type") == "error":
        return ServerMessage("error", _failure(message, where))
    kind = message.get("type")
    return ServerMessage(kind if kind in ("start", "end") else "other")


def _failure(message: Mapping[str, Any], where: str) -> ServiceError:
    """The service's own names for it are told, its sentences are not: they may quote anything."""
    code, kind = problem_in(message)
    words = f"{message.get('error')} {message.get('message') or ''} {code} {kind}"
    found = ((name, again) for pattern, name, again in _IN_WORDS if re.search(pattern, words, re.IGNORECASE))
    name, again = next(found, ("", True))
    hint = HINTS.get(name, "the service cannot speak this: look at voice, engine, output_format and sample_rate")
    names = [message["error"] if isinstance(message.get("error"), str) else code, kind if kind != "error" else ""]
    return ServiceError(f"{where} refused{named(names)}: {hint}", verdict=Verdict.LATER if again else Verdict.NEVER)


class RequestSound:
    """The sound of one request in mu-law, cut anywhere, made mono s16le."""

    def push(self, data: bytes) -> bytes:
        """Whole samples."""
        return mulaw_decode(data) if data else b""


class WavSound(RequestSound):
    """The same in WAV: its header is taken off and must promise 16-bit mono PCM of this rate.

    The lengths in the header are passed over: it was written before they were known. Half a sample at the end is dropped.
    """

    def __init__(self, sample_rate: int, where: str) -> None:
        self._rate = sample_rate
        self._where = where
        self._header: bytes | None = b""
        self._rest = b""

    def push(self, data: bytes) -> bytes:
        """Whole samples. Raises ServiceError if it is no WAV, or another one than was asked for."""
        if self._header is not None:
            self._header += data
            begins = self._sound_begins(self._header)
            if begins is None:
                return b""
            data, self._header = self._header[begins:], None
        data = self._rest + data
        whole = len(data) // 2 * 2
        self._rest = data[whole:]
        return data[:whole]

    def _sound_begins(self, header: bytes) -> int | None:
        """Behind the header, or None while there is more of it to come."""
        if not (b"RIFF".startswith(header[:4]) and b"WAVE".startswith(header[8:12])):
            raise ServiceError(f"{self._where} sent something else where WAV was asked for: look at output_format")
        at, is_told = 12, False
        while len(header) >= at + 8:
            name, size = struct.unpack_from("<4sI", header, at)
            if name == b"data":
                if not is_told:
                    break
                return at + 8
            if name == b"fmt " and len(header) >= at + 24:
                tag, channels, rate, _, _, bits = struct.unpack_from("<HHIIHH", header, at + 8)
                is_told = True
                if tag not in (_PLAIN_PCM, _EXTENSIBLE) or (channels, rate, bits) != (1, self._rate, 16):
                    got = f"format {tag}, {channels} channels, {rate} Hz, {bits} bits"
                    raise ServiceError(f"{self._where} sent WAV of {got} where 16-bit mono of {self._rate} Hz was asked for")
            at += 8 + size + size % 2
            if at > LONGEST_HEADER:
                break
        else:
            return None
        raise ServiceError(f"{self._where} sent WAV that does not say what it is")
