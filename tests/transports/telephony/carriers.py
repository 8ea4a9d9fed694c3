"""Phone carriers in memory: each speaks its own messages and plays what it is sent in real time, on the loop's clock.

Their rule: they believe nothing. A message that the real carrier would not take is a fault, and sound of a wrong size too.
What the caller's ear had is kept sample by sample. ``clear`` throws away what was not played, and marks come back at once.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from voiceflow.audio.g711 import alaw_decode, alaw_encode, mulaw_decode, mulaw_encode

Message = str | bytes


@dataclass
class Dialect:
    """One carrier's messages. ``order``: the byte order of linear samples."""

    rate: int = 8000
    encoding: str = "mulaw"
    order: str = "<"
    call: str = "CA0123456789"
    stream: str = "MZ0123456789"
    caller: str = ""
    called: str = ""
    parameters: dict[str, str] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    name = ""
    linear = False
    clear_returns_marks = True

    def __post_init__(self) -> None:
        if self.linear:
            self.encoding = "l16"

    def encode(self, pcm: bytes) -> bytes:
        if self.encoding == "l16":
            return np.frombuffer(pcm, "<i2").astype(self.order + "i2").tobytes()
        return mulaw_encode(pcm) if self.encoding == "mulaw" else alaw_encode(pcm)

    def decode(self, data: bytes) -> bytes:
        if self.encoding == "l16":
            return np.frombuffer(data, self.order + "i2").astype("<i2").tobytes()
        return mulaw_decode(data) if self.encoding == "mulaw" else alaw_decode(data)

    def b64(self, pcm: bytes) -> str:
        return base64.b64encode(self.encode(pcm)).decode()

    def begin(self) -> list[Message]:
        raise NotImplementedError

    def media(self, number: int, pcm: bytes) -> Message:
        raise NotImplementedError

    def key(self, digit: str) -> Message:
        raise NotImplementedError

    def mark(self, name: str) -> Message:
        raise NotImplementedError

    def stop(self) -> list[Message]:
        raise NotImplementedError

    def cleared(self) -> list[Message]:
        return []

    def understand(self, message: Message) -> tuple[str, Any]:
        """("sound", pcm), ("mark", name), ("clear", None), or ("", None) and a fault."""
        raise NotImplementedError

    def fault(self, text: str) -> tuple[str, None]:
        self.faults.append(text)
        return "", None

    def read(self, message: Message) -> dict[str, Any]:
        if not isinstance(message, str):
            self.faults.append("binary")
            return {"event": ""}
        return json.loads(message)

    def sound(self, payload: str) -> tuple[str, bytes]:
        return "sound", self.decode(base64.b64decode(payload, validate=True))


class Twilio(Dialect):
    name = "twilio"

    def begin(self) -> list[Message]:
        custom = self.parameters | {"caller": self.caller, "called": self.called}
        start = {
            "accountSid": "AC01", "streamSid": self.stream, "callSid": self.call, "tracks": ["inbound"],
            "mediaFormat": {"encoding": "audio/x-mulaw", "sampleRate": self.rate, "channels": 1}, "customParameters": custom,
        }  # fmt: skip
        connected = {"event": "connected", "protocol": "Call", "version": "1.0.0"}
        return [json.dumps(connected), json.dumps({"event": "start", "sequenceNumber": "1", "start": start, "streamSid": self.stream})]

    def media(self, number: int, pcm: bytes, track: str = "inbound") -> Message:
        media = {"track": track, "chunk": str(number), "timestamp": str(number * 20), "payload": self.b64(pcm)}
        return json.dumps({"event": "media", "sequenceNumber": str(number + 1), "media": media, "streamSid": self.stream})

    def key(self, digit: str) -> Message:
        dtmf = {"track": "inbound_track", "digit": digit}
        return json.dumps({"event": "dtmf", "streamSid": self.stream, "sequenceNumber": "5", "dtmf": dtmf})

    def mark(self, name: str) -> Message:
        return json.dumps({"event": "mark", "sequenceNumber": "4", "streamSid": self.stream, "mark": {"name": name}})

    def stop(self) -> list[Message]:
        stop = {"accountSid": "AC01", "callSid": self.call}
        return [json.dumps({"event": "stop", "sequenceNumber": "9", "streamSid": self.stream, "stop": stop})]

    def understand(self, message: Message) -> tuple[str, Any]:
        told = self.read(message)
        if told.get("streamSid") != self.stream:
            return self.fault(f"{told['event']} for stream {told.get('streamSid')!r}")
        match told:
            case {"event": "media", "media": {"payload": payload}}:
                return self.sound(payload)
            case {"event": "mark", "mark": {"name": str(name)}} if name:
                return "mark", name
            case {"event": "clear"}:
                return "clear", None
        return self.fault(f"unknown {message!r}")


class Telnyx(Twilio):
    name = "telnyx"

    def begin(self) -> list[Message]:
        start = {
            "user_id": "u", "call_control_id": self.call, "call_session_id": "s", "from": self.caller, "to": self.called, "tags": [],
            "client_state": base64.b64encode(b"state").decode(),
            "media_format": {"encoding": {"mulaw": "PCMU", "alaw": "PCMA", "l16": "L16"}[self.encoding], "sample_rate": self.rate, "channels": 1},
        }  # fmt: skip
        connected = {"event": "connected", "version": "1.0.0"}
        return [json.dumps(connected), json.dumps({"event": "start", "sequence_number": "1", "start": start, "stream_id": self.stream})]

    def media(self, number: int, pcm: bytes, track: str = "inbound") -> Message:
        media = {"track": track, "chunk": str(number), "timestamp": str(number * 20), "payload": self.b64(pcm)}
        return json.dumps({"event": "media", "sequence_number": str(number + 1), "media": media, "stream_id": self.stream})

    def key(self, digit: str) -> Message:
        return json.dumps({"event": "dtmf", "stream_id": self.stream, "occurred_at": "x", "sequence_number": "5", "dtmf": {"digit": digit}})

    def mark(self, name: str) -> Message:
        return json.dumps({"event": "mark", "sequence_number": "4", "stream_id": self.stream, "mark": {"name": name}})

    def stop(self) -> list[Message]:
        stop = {"user_id": "u", "call_control_id": self.call}
        return [json.dumps({"event": "stop", "sequence_number": "9", "stream_id": self.stream, "stop": stop})]

    def understand(self, message: Message) -> tuple[str, Any]:
        told = self.read(message)
        match told:
            case {"event": "media", "media": {"payload": payload}}:
                kind, pcm = self.sound(payload)
                return (kind, pcm) if 0.02 <= len(pcm) / 2 / self.rate <= 30 else self.fault(f"{len(pcm)} bytes of sound")
            case {"event": "mark", "mark": {"name": str(name)}} if name:
                return "mark", name
            case {"event": "clear"}:
                return "clear", None
        return self.fault(f"unknown {message!r}")


class Plivo(Dialect):
    name = "plivo"

    @property
    def content_type(self) -> str:
        return "audio/x-l16" if self.encoding == "l16" else "audio/x-mulaw"

    def begin(self) -> list[Message]:
        start = {
            "callId": self.call, "streamId": self.stream, "accountId": "MA1", "tracks": ["inbound"],
            "mediaFormat": {"encoding": self.content_type, "sampleRate": self.rate},
        }  # fmt: skip
        headers = ";".join(f"{n}={v}" for n, v in (self.parameters | {"caller": self.caller, "called": self.called}).items())
        return [json.dumps({"event": "start", "sequenceNumber": 0, "start": start, "extra_headers": headers})]

    def media(self, number: int, pcm: bytes, track: str = "inbound") -> Message:
        media = {"track": track, "timestamp": str(number * 20), "chunk": number, "payload": self.b64(pcm)}
        return json.dumps({"event": "media", "sequenceNumber": number, "streamId": self.stream, "media": media, "extra_headers": ""})

    def key(self, digit: str) -> Message:
        dtmf = {"track": "inbound", "digit": digit, "timestamp": "1"}
        return json.dumps({"event": "dtmf", "sequenceNumber": 5, "streamId": self.stream, "dtmf": dtmf})

    def mark(self, name: str) -> Message:
        return json.dumps({"event": "playedStream", "sequenceNumber": 4, "streamId": self.stream, "name": name})

    def cleared(self) -> list[Message]:
        return [json.dumps({"event": "clearedAudio", "sequenceNumber": 6, "streamId": self.stream})]

    def stop(self) -> list[Message]:
        return []

    def understand(self, message: Message) -> tuple[str, Any]:
        told = self.read(message)
        if told.get("streamId") != self.stream:
            return self.fault(f"{told['event']} for stream {told.get('streamId')!r}")
        match told:
            case {"event": "playAudio", "media": {"contentType": self.content_type, "sampleRate": self.rate, "payload": payload}}:
                return self.sound(payload)
            case {"event": "checkpoint", "name": str(name)} if name:
                return "mark", name
            case {"event": "clearAudio"}:
                return "clear", None
        return self.fault(f"unknown {message!r}")


class Vonage(Dialect):
    name = "vonage"
    clear_returns_marks = False

    linear = True

    def begin(self) -> list[Message]:
        own = {"call": self.call, "caller": self.caller, "called": self.called}
        return [json.dumps({"event": "websocket:connected", "content-type": f"audio/l16;rate={self.rate}"} | self.parameters | own)]

    def media(self, number: int, pcm: bytes) -> Message:
        return self.encode(pcm)

    def key(self, digit: str) -> Message:
        return json.dumps({"event": "websocket:dtmf", "digit": digit, "duration": 260})

    def mark(self, name: str) -> Message:
        return json.dumps({"event": "websocket:notify", "payload": {"mark": name}})

    def cleared(self) -> list[Message]:
        return [json.dumps({"event": "websocket:cleared"})]

    def stop(self) -> list[Message]:
        return []

    def understand(self, message: Message) -> tuple[str, Any]:
        if isinstance(message, bytes):
            if len(message) != self.rate * 2 // 50:
                return self.fault(f"{len(message)} bytes of sound are not 20 ms")
            return "sound", message
        match json.loads(message):
            case {"action": "notify", "payload": {"mark": str(name)}} if name:
                return "mark", name
            case {"action": "clear"}:
                return "clear", None
        return self.fault(f"unknown {message!r}")


class Exotel(Dialect):
    name = "exotel"

    linear = True

    def begin(self) -> list[Message]:
        start = {
            "stream_sid": self.stream, "call_sid": self.call, "account_sid": "AC1", "from": self.caller, "to": self.called,
            "custom_parameters": self.parameters,
            "media_format": {"encoding": "audio/x-raw", "sample_rate": str(self.rate), "bit_rate": "16"},
        }  # fmt: skip
        message = {"event": "start", "sequence_number": "1", "stream_sid": self.stream, "start": start}
        return [json.dumps({"event": "connected"}), json.dumps(message)]

    def media(self, number: int, pcm: bytes) -> Message:
        media = {"chunk": str(number), "timestamp": str(number * 20), "payload": self.b64(pcm)}
        return json.dumps({"event": "media", "sequence_number": str(number + 1), "stream_sid": self.stream, "media": media})

    def key(self, digit: str) -> Message:
        dtmf = {"digit": digit, "duration": "100"}
        return json.dumps({"event": "dtmf", "sequence_number": "5", "stream_sid": self.stream, "dtmf": dtmf})

    def mark(self, name: str) -> Message:
        return json.dumps({"event": "mark", "sequence_number": "4", "stream_sid": self.stream, "mark": {"name": name}})

    def stop(self) -> list[Message]:
        stop = {"call_sid": self.call, "account_sid": "AC1", "reason": "callended"}
        return [json.dumps({"event": "stop", "sequence_number": "9", "stream_sid": self.stream, "stop": stop})]

    def understand(self, message: Message) -> tuple[str, Any]:
        told = self.read(message)
        if told.get("stream_sid") != self.stream:
            return self.fault(f"{told['event']} for stream {told.get('stream_sid')!r}")
        match told:
            case {"event": "media", "media": {"payload": payload}}:
                size = len(base64.b64decode(payload, validate=True))
                if size % 320 or not 3200 <= size <= 100_000:
                    return self.fault(f"{size} bytes of sound")
                return self.sound(payload)
            case {"event": "mark", "mark": {"name": str(name)}} if name:
                return "mark", name
            case {"event": "clear"}:
                return "clear", None
        return self.fault(f"unknown {message!r}")


DIALECTS: dict[str, type[Dialect]] = {d.name: d for d in (Twilio, Telnyx, Plivo, Vonage, Exotel)}


class Player:
    """What a carrier does with the agent's messages. ``give``: takes what it sends back. ``way_s``: of a message, one way."""

    def __init__(self, dialect: Dialect, give: Callable[[Message], object], way_s: float = 0.0) -> None:
        self.dialect = dialect
        self.give = give
        self.way_s = way_s
        self.told: list[tuple[float, str, Any]] = []
        """(when it came, kind, content) of each message."""
        self._played: list[tuple[float, np.ndarray]] = []
        self._free_at = 0.0
        self._marks: list[tuple[str, asyncio.TimerHandle]] = []
        self._on_the_way_back: deque[Message] = deque()

    def receive(self, message: Message) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        kind, content = self.dialect.understand(message)
        self.told.append((now, kind, content))
        if kind == "sound":
            samples = np.frombuffer(content, "<i2")
            start = max(self._free_at, now)
            self._played.append((start, samples))
            self._free_at = start + len(samples) / self.dialect.rate
        elif kind == "mark":
            self._marks.append((content, loop.call_at(max(self._free_at, now) + self.way_s, self._return_first)))
        elif kind == "clear":
            self._clear(now)

    def events(self, kind: str) -> list[tuple[float, Any]]:
        return [(at, content) for at, told, content in self.told if told == kind]

    def close(self) -> None:
        """Nothing comes back any more."""
        for _, timer in self._marks:
            timer.cancel()
        self._marks.clear()

    def _return_first(self) -> None:
        self.give(self.dialect.mark(self._marks.pop(0)[0]))

    def _clear(self, now: float) -> None:
        kept = [(at, samples[: max(0, round((now - at) * self.dialect.rate))]) for at, samples in self._played]
        self._played = [(at, samples) for at, samples in kept if len(samples)]
        self._free_at = now
        marks, self._marks = self._marks, []
        for _, timer in marks:
            timer.cancel()
        back = [self.dialect.mark(name) for name, _ in marks] if self.dialect.clear_returns_marks else []
        for message in [*back, *self.dialect.cleared()]:
            self._on_the_way_back.append(message)
            asyncio.get_running_loop().call_later(self.way_s, self._arrive_back)

    def _arrive_back(self) -> None:
        self.give(self._on_the_way_back.popleft())

    def heard(self, before: float = float("inf")) -> np.ndarray:
        """All the samples that the ear had had by then, pauses in which nothing came left out."""
        rate = self.dialect.rate
        parts = [s[: max(0, round((min(before, at + len(s) / rate) - at) * rate))] for at, s in self._played]
        return np.concatenate([np.zeros(0, "<i2"), *parts])

    def sounding(self) -> list[tuple[float, float]]:
        """(from, until) of each stretch in which something other than silence was played."""
        runs: list[tuple[float, float]] = []
        for at, samples in self._played:
            loud = np.flatnonzero(np.abs(samples) > 40)
            for group in np.split(loud, np.flatnonzero(np.diff(loud) > 1) + 1) if len(loud) else []:
                start, until = at + group[0] / self.dialect.rate, at + (group[-1] + 1) / self.dialect.rate
                if runs and start - runs[-1][1] < 0.002:
                    runs[-1] = (runs[-1][0], until)
                else:
                    runs.append((start, until))
        return runs


def chunks(pcm: bytes, rate: int, seconds: float = 0.02) -> list[bytes]:
    """Sound as a carrier cuts it, the last piece filled up."""
    size = round(rate * seconds) * 2
    return [pcm[at : at + size].ljust(size, b"\0") for at in range(0, len(pcm), size)]


def spoken(messages: list[Any], dialect: Dialect) -> bytes:
    """The sound in messages of the agent's."""
    return b"".join(content for kind, content in map(dialect.understand, messages) if kind == "sound")


def ramp(samples: int) -> bytes:
    """No two neighbours are alike, and each companded value comes."""
    return bytes(itertools.chain.from_iterable(int((n * 257) % 60001 - 30000).to_bytes(2, "little", signed=True) for n in range(samples)))
