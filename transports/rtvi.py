"""RTVI, the protocol of Pipecat's clients, on a websocket: protobuf frames, or JSON text with the sound in base64.

The one rule: a client gets what its version of the protocol knows. Pure.

Source: RTVI 2.2 and the older 1.x, as pipecat-ai 1.14 and the web client 1.x speak it. A client says ``client-ready`` and is
answered ``bot-ready``; one that begins with sound instead is a plain peer without messages. The first message says which of the two
encodings is spoken.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from typing import Any

import msgspec

import voiceflow
from voiceflow.audio import StreamResampler, mix
from voiceflow.frames import (
    AudioFormat,
    Frame,
    InputAudioFrame,
    LLMEnded,
    LLMStarted,
    LLMTextFrame,
    PlaybackStarted,
    PlaybackStopped,
    ToolResultFrame,
    ToolStarted,
    TranscriptFrame,
    TurnEnded,
    TurnStarted,
    WordsHeard,
)
from voiceflow.phone import KEYS, DigitReceived
from voiceflow.transports.protobuf_frames import Interruption, RawAudio, RawMessage, RawText, decode, encode
from voiceflow.transports.wire import RATES, AppMessage, CallEnded, CallStarted, Message, Received, TellFrame, WireError

__all__ = ["RTVI_VERSION", "RTVIWire"]

RTVI_VERSION = "2.2.0"
LABEL = "rtvi-ai"


class RTVIWire:
    """One client's line. ``hears`` and ``speaks``: mono; sound in other rates is brought to ``hears``.

    Typed text (``send-text``) and text frames are the caller's final words; ``dtmf`` is keys, a
    ``client-message`` an ``AppMessage``. What the client is told: turns, transcripts,
    the reply as it is written, what of it was heard, when the agent speaks, and tools by their names.
    """

    name = "rtvi"
    block_ms = 20.0
    ahead_s = 0.0
    clears = True
    proof = ""
    tells = (
        TurnStarted,
        TurnEnded,
        TranscriptFrame,
        LLMStarted,
        LLMTextFrame,
        LLMEnded,
        PlaybackStarted,
        WordsHeard,
        PlaybackStopped,
        ToolStarted,
        ToolResultFrame,
        TellFrame,
    )

    def __init__(self, *, hears: AudioFormat | None = None, speaks: AudioFormat | None = None) -> None:
        self.hears = hears or AudioFormat(16000)
        self.speaks = speaks or AudioFormat(24000)
        self.faults = 0
        self._started = False
        self._binary = True
        self._major = 2
        self._resampler: StreamResampler | None = None
        self._from = self.hears
        self._caller_speaks = False
        self._answers: list[Message] = []

    # ------------------------------------------------------------------------------------------ from the client

    def receive(self, message: Message) -> list[Received]:
        """See Wire."""
        if isinstance(message, bytes):
            if not self._started:
                self._binary = True
            return self._packet(message)
        if not self._started:
            self._binary = False
        return self._json(message)

    def _packet(self, data: bytes) -> list[Received]:
        packet = decode(data)
        if isinstance(packet, RawAudio):
            return self._sound(packet.pcm, packet.sample_rate, packet.channels)
        if isinstance(packet, RawMessage):
            return self._json(packet.data)
        if isinstance(packet, RawText):
            return [*self._begin(), *self._typed(packet.text)]
        return self._fault() if packet is None else self._begin()

    def _json(self, text: str) -> list[Received]:
        try:
            message = json.loads(text)
        except (ValueError, RecursionError):
            return self._fault()
        if not isinstance(message, dict) or message.get("label") != LABEL:
            return self._fault()
        data = message.get("data")
        return self._message(str(message.get("type")), str(message.get("id") or ""), data if isinstance(data, dict) else {})

    def _message(self, kind: str, number: str, data: Mapping[str, Any]) -> list[Received]:
        if kind == "client-ready":
            return self._ready(number, data)
        if kind == "disconnect-bot":
            return [CallEnded("the client said disconnect-bot")]
        if kind == "send-text" and isinstance(data.get("content"), str):
            return self._typed(data["content"])
        if kind == "client-message" and isinstance(data.get("t"), str) and data["t"]:
            return [AppMessage(kind=data["t"], data=data.get("d"))]
        if kind == "dtmf":
            buttons = data.get("buttons", [data.get("button")])
            keys = [key for key in buttons if isinstance(key, str) and len(key) == 1 and key in KEYS] if isinstance(buttons, list) else []
            return [DigitReceived(digit=key) for key in keys] or self._fault()
        if kind in ("raw-audio", "raw-audio-batch"):
            return self._raw(data)
        return self._fault()

    def _raw(self, data: Mapping[str, Any]) -> list[Received]:
        pieces = data.get("base64AudioBatch") or [data.get("base64Audio")]
        try:
            pcm = b"".join(base64.b64decode(piece, validate=True) for piece in pieces)
        except (binascii.Error, TypeError, ValueError):
            return self._fault()
        rate, channels = data.get("sampleRate", self.hears.sample_rate), data.get("numChannels", 1)
        return self._sound(pcm, rate, channels) if isinstance(rate, int) and isinstance(channels, int) else self._fault()

    def _ready(self, number: str, data: Mapping[str, Any]) -> list[Received]:
        version = str(data.get("version") or "")
        major = version.partition(".")[0]
        self._major = 1 if major == "1" else 2
        answer = version if self._major == 1 else RTVI_VERSION
        about = {"library": "voiceflow", "library_version": voiceflow.__version__}
        self._answers += self._say("bot-ready", {"version": answer, "about": about}, number)
        if major not in ("1", "2"):
            problem = (
                f"this agent speaks RTVI {RTVI_VERSION} and 1.x, and the client said {version or 'no version'}; some messages may not fit"
            )
            self._answers += self._say("error-response", {"error": problem}, number)
        return self._begin()

    def _begin(self) -> list[Received]:
        if self._started:
            return []
        self._started = True
        return [CallStarted("")]

    def _sound(self, pcm: bytes, sample_rate: int, channels: int) -> list[Received]:
        if pcm.startswith(b"RIFF"):  # Pipecat's Python client puts each piece into a WAV file of its own
            pcm = pcm[pcm.find(b"data") + 8 :] if b"data" in pcm[:200] else b""
        if sample_rate not in RATES or channels not in (1, 2) or len(pcm) % (2 * channels) or not pcm:
            return self._fault()
        if not self._started:
            self.hears = self._from = AudioFormat(sample_rate)  # a plain peer says its rate with its first sound
        begun = self._begin()
        mono = mix(pcm, channels, 1)
        if sample_rate != self._from.sample_rate:
            self._from = AudioFormat(sample_rate)
            self._resampler = StreamResampler(sample_rate, self.hears.sample_rate) if sample_rate != self.hears.sample_rate else None
        if self._resampler is not None:
            mono = self._resampler.process(mono)
        return [*begun, InputAudioFrame(pcm=mono, sample_rate=self.hears.sample_rate)] if mono else begun

    def _typed(self, text: str) -> list[Received]:
        return [TranscriptFrame(text)] if text.strip() else self._fault()

    def _fault(self) -> list[Received]:
        if not self._started:
            raise WireError("the first message is neither RTVI's client-ready nor sound; this address speaks RTVI")
        self.faults += 1
        return []

    # -------------------------------------------------------------------------------------------- to the client

    def answers(self) -> list[Message]:
        """``bot-ready``, to who is ready."""
        answers, self._answers = self._answers, []
        return answers

    def audio(self, pcm: bytes) -> list[Message]:
        """See Wire."""
        if self._binary:
            return [encode(RawAudio(pcm, self.speaks.sample_rate))]
        data = {"audio": base64.b64encode(pcm).decode(), "sample_rate": self.speaks.sample_rate, "num_channels": 1}
        return self._say("bot-tts-audio", data)

    def clear(self) -> list[Message]:
        """The web client stops its player when the caller begins, others at the interruption itself."""
        begins = [] if self._caller_speaks else self._say("user-started-speaking")
        self._caller_speaks = True
        return [*begins, *([encode(Interruption())] if self._binary else []), *self._say("bot-interrupted")]

    def mark(self, name: str) -> list[Message]:
        """There are none."""
        return []

    def tell(self, frame: Frame) -> list[Message]:
        """See the class."""
        if isinstance(frame, TurnStarted | TurnEnded):
            starts = isinstance(frame, TurnStarted)
            if starts is self._caller_speaks:
                return []
            self._caller_speaks = starts
            return self._say("user-started-speaking" if starts else "user-stopped-speaking")
        if isinstance(frame, TranscriptFrame):
            at = f"{frame.pts:.3f}" if frame.pts is not None else ""
            return self._say("user-transcription", {"text": frame.text, "user_id": "", "timestamp": at, "final": frame.final})
        if isinstance(frame, LLMStarted | LLMEnded):
            return self._say("bot-llm-started" if isinstance(frame, LLMStarted) else "bot-llm-stopped")
        if isinstance(frame, LLMTextFrame):
            return self._say("bot-llm-text", {"text": frame.text})
        if isinstance(frame, PlaybackStarted):
            return [*self._say("bot-tts-started"), *self._say("bot-started-speaking")]
        if isinstance(frame, WordsHeard):
            return [*self._say("bot-tts-text", {"text": frame.text}), *self._say("bot-output", self._output(frame.text))]
        if isinstance(frame, PlaybackStopped):
            return [*self._say("bot-tts-stopped"), *self._say("bot-stopped-speaking")]
        if isinstance(frame, TellFrame):
            return self._say("server-message", {"kind": frame.kind, "data": frame.data})
        return self._tool(frame)

    def _output(self, text: str) -> dict[str, Any]:
        kinds = {"output_type": "word", "text_type": "word", "aggregated_by": "word"}
        if self._major == 1:
            return {"text": text, "aggregated_by": "word", "spoken": True}
        return {"text": text, **kinds, "will_be_spoken": True, "spoken_status": "completed"}

    def _tool(self, frame: Frame) -> list[Message]:
        if isinstance(frame, ToolStarted):
            about = {"tool_call_id": frame.call.id, "function_name": frame.call.name}
            return [
                *self._say("llm-function-call-started", {"function_name": frame.call.name}),
                *self._say("llm-function-call-in-progress", about),
            ]
        if isinstance(frame, ToolResultFrame):
            # Results may hold what the caller is not to see.
            about = {"tool_call_id": frame.call.id, "function_name": frame.call.name}
            return self._say("llm-function-call-stopped", {**about, "cancelled": False})
        return []

    def end(self, reason: str) -> list[Message]:
        """RTVI has no word for it; the socket closes."""
        return []

    def _say(self, kind: str, data: Mapping[str, Any] | None = None, number: str = "") -> list[Message]:
        message: dict[str, Any] = {"label": LABEL, "type": kind}
        if number:
            message["id"] = number
        if data is not None:
            message["data"] = data
        text = msgspec.json.encode(message).decode()
        return [encode(RawMessage(text)) if self._binary else text]
