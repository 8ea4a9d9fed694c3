"""Server-sent events, as bytes come in: https://html.spec.whatwg.org/multipage/server-sent-events.html

The one rule: where the bytes are cut makes no difference.
"""

from __future__ import annotations

from dataclasses import dataclass

from voiceflow.processors.services.retry import ServiceError

__all__ = ["EventStream", "ServerEvent"]

LONGEST = 4 * 1024 * 1024
"""Bytes of one event; a server that sends more is not sending events."""


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """``name`` is "message" unless the server says otherwise. ``data``: its lines, joined by line feeds."""

    data: str
    name: str = "message"


class EventStream:
    """Bytes in, whole events out. Comments, which keep a connection alive, and unknown fields are passed over."""

    def __init__(self) -> None:
        self.has_come = False
        """There was a byte, if only of a comment."""
        self._line = bytearray()  # not yet ended
        self._after_return = False  # a line feed here belongs to the carriage return before it
        self._begun = False
        self._data: list[str] = []
        self._held = 0
        self._name = ""

    def feed(self, chunk: bytes) -> list[ServerEvent]:
        """The events that these bytes complete. Raises ServiceError if one is longer than ``LONGEST``."""
        self.has_come = self.has_come or bool(chunk)
        if self._after_return and chunk:
            self._after_return = False
            chunk = chunk.removeprefix(b"\n")
        *lines, rest = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        self._after_return = chunk.endswith(b"\r")
        events = []
        for line in lines:
            self._line += line
            whole, self._line = bytes(self._line), bytearray()
            if event := self._take(whole):
                events.append(event)
        self._line += rest
        if len(self._line) + self._held > LONGEST:
            raise ServiceError(f"the server sent an event of more than {LONGEST} bytes; is this the address of a streaming API?")
        return events

    def close(self) -> list[ServerEvent]:
        """The stream is over: what stands there without the blank line behind it, which some servers leave out."""
        rest, self._line = bytes(self._line), bytearray()
        return [event for event in (self._take(rest), self._take(b"")) if event]

    def _take(self, line: bytes) -> ServerEvent | None:
        if not self._begun:
            self._begun = True
            line = line.removeprefix(b"\xef\xbb\xbf")
        if not line:
            data, name = self._data, self._name or "message"
            self._data, self._held, self._name = [], 0, ""
            return ServerEvent("\n".join(data), name) if data else None
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self._data.append(value.decode("utf-8", "replace"))
            self._held += len(value)
        elif field == b"event":
            self._name = value.decode("utf-8", "replace")
        elif field == b"error":  # older llama.cpp: a line of its own
            self._data.append(value.decode("utf-8", "replace"))
            self._name = "error"
        return None
