"""What is said between us and Deepgram: messages out, messages in, and what its errors mean. Listen v1, Flux (listen v2), Aura (speak v1).

https://developers.deepgram.com/reference. The one rule: a message of a kind that is not known here is passed over, a known one
that cannot be read is an error. No I/O, no clock. Times are seconds from the first sample of the connection.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from voiceflow.frames import Word
from voiceflow.processors.services.retry import ServiceError, Verdict, failure_of_status, named

__all__ = [
    "CLEAR",
    "CLOSE_STREAM",
    "FINALIZE",
    "FLUSH",
    "HINTS",
    "KEEP_ALIVE",
    "Cleared",
    "Configured",
    "Flushed",
    "Metadata",
    "Results",
    "SpeechBegan",
    "TurnInfo",
    "UtteranceOver",
    "Warned",
    "closing_failure",
    "configure",
    "opening_failure",
    "read_message",
    "speak",
]

KEEP_ALIVE, FINALIZE, CLOSE_STREAM = '{"type":"KeepAlive"}', '{"type":"Finalize"}', '{"type":"CloseStream"}'
FLUSH, CLEAR = '{"type":"Flush"}', '{"type":"Clear"}'

KEY = "the key is missing or not valid: set it in the environment variable, or give api_key"
HINTS: Mapping[int | str, str] = {
    400: "the service does not take this request: look at model, language, encoding and sample_rate",
    401: KEY,
    402: "the account has no credit left",
    403: "the key or the account may not use this model: look at model and the key's permissions",
    404: "there is no such address: look at base_url",
    429: "too many connections at once for the account's plan",
    "INVALID_AUTH": KEY,
    "ASR_PAYMENT_REQUIRED": "the account has no credit left",
    "PROJECT_NOT_FOUND": "the key belongs to no project",
    "INSUFFICIENT_PERMISSIONS": "the key or the account may not use this model: look at model and the key's permissions",
    "TOO_MANY_REQUESTS": "too many connections at once for the account's plan",
    "DATA-0000": "the service cannot read what it was sent: look at encoding and sample_rate",
    "DATA-0001": "more text was sent than the service takes in so short a time",
    "MESSAGE-0000": "the service does not understand what it was sent",
    "BIG-0000": "a message was too long for the service",
    "BIG-0001": "a message was too long for the service",
    "NET-0000": "the service had nothing to say in time",
    "NET-0001": "the service waited too long for sound or text",
    "NET-0003": "a connection may last no longer",
    "UNPARSABLE_CLIENT_MESSAGE": "the service does not understand what it was sent",
    "SchemaError": "the service does not understand what it was sent",
}
_FINAL = {"DATA-0000", "MESSAGE-0000", "BIG-0000", "BIG-0001", "INVALID_AUTH", "UNPARSABLE_CLIENT_MESSAGE", "SchemaError"}
_CODE = re.compile(r"\b(?:DATA|NET|BIG|MESSAGE)-\d{4}\b")
_CODE_OF_CLOSE = {1003: "MESSAGE-0000", 1008: "", 1009: "BIG-0000", 1011: ""}
_POLICY = 1008


# ------------------------------------------------------------------------------------------------- out


def speak(text: str) -> str:
    """Text for Aura. It is spoken with the next flush at the latest."""
    return json.dumps({"type": "Speak", "text": text})


def configure(thresholds: Mapping[str, float | int], keyterms: tuple[str, ...] | None = None) -> str:
    """Other thresholds, or other key terms, for Flux from now on."""
    message: dict[str, Any] = {"type": "Configure"}
    if thresholds:
        message["thresholds"] = dict(thresholds)
    if keyterms is not None:
        message["keyterms"] = list(keyterms)
    return json.dumps(message)


# -------------------------------------------------------------------------------------------------- in


@dataclass(frozen=True, slots=True)
class Results:
    """Listen v1: what was said from ``start`` on. Not ``is_final``: as far as it is known."""

    start: float
    duration: float
    text: str
    confidence: float | None = None
    words: tuple[Word, ...] = ()
    is_final: bool = False
    speech_final: bool = False
    from_finalize: bool = False


@dataclass(frozen=True, slots=True)
class SpeechBegan:
    """Listen v1: a voice is heard."""

    at: float


@dataclass(frozen=True, slots=True)
class UtteranceOver:
    """Listen v1: no word for a while."""

    last_word_end: float


@dataclass(frozen=True, slots=True)
class Metadata:
    """Of a connection: the last message of listen v1, the first of Flux and Aura."""

    request_id: str
    model: str = ""


@dataclass(frozen=True, slots=True)
class TurnInfo:
    """Flux: an event of a turn, with all that was said in the turn so far. ``words`` without times have none (-1)."""

    event: str
    turn: int
    text: str
    words: tuple[Word, ...]
    confidence: float | None
    end_of_turn: float
    start: float
    end: float
    trigger: str = ""


@dataclass(frozen=True, slots=True)
class Configured:
    """Flux took a configuration, or (``failure``) did not."""

    failure: str = ""


@dataclass(frozen=True, slots=True)
class Flushed:
    """Aura: what was sent before the flush has been spoken."""


@dataclass(frozen=True, slots=True)
class Cleared:
    """Aura: nothing more comes of what was sent before the clear."""


@dataclass(frozen=True, slots=True)
class Warned:
    """The service goes on, and says what it did not do."""

    code: str


Message = Results | SpeechBegan | UtteranceOver | Metadata | TurnInfo | Configured | Flushed | Cleared | Warned


def read_message(data: str | bytes, where: str = "the service") -> Message | None:
    """One text message; None: of a kind that means nothing here. Raises ServiceError if it cannot be read, or tells of an error."""
    try:
        message = json.loads(data)
        if not isinstance(message, dict):
            raise ValueError
        kind = message.get("type")
        if kind == "Error":
            raise _complaint(message, where)
        reader = _READERS.get(kind) if isinstance(kind, str) else None
        return None if reader is None else reader(message)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError):
        raise ServiceError(f"{where} sent a message that cannot be read", verdict=Verdict.LATER) from None


def _results(message: dict[str, Any]) -> Results | None:
    channel = message.get("channel_index") or [0]
    if channel[0] != 0:
        return None
    best = (message["channel"]["alternatives"] or [{}])[0]
    text = str(best.get("transcript") or "").strip()
    return Results(
        start=float(message["start"]),
        duration=float(message["duration"]),
        text=text,
        confidence=float(best["confidence"]) if text and best.get("confidence") is not None else None,
        words=tuple(_word(word) for word in best.get("words") or ()),
        is_final=bool(message.get("is_final")),
        speech_final=bool(message.get("speech_final")),
        from_finalize=bool(message.get("from_finalize")),
    )


def _word(word: dict[str, Any]) -> Word:
    start, end = word.get("start"), word.get("end")
    text = str(word.get("punctuated_word") or word["word"])
    return Word(text, -1.0, -1.0) if start is None or end is None else Word(text, float(start), float(end))


def _turn_info(message: dict[str, Any]) -> TurnInfo:
    words = message.get("words") or ()
    sure = [float(word["confidence"]) for word in words if word.get("confidence") is not None]
    return TurnInfo(
        event=str(message["event"]),
        turn=int(message["turn_index"]),
        text=str(message.get("transcript") or "").strip(),
        words=tuple(_word(word) for word in words),
        confidence=sum(sure) / len(sure) if sure else None,
        end_of_turn=float(message.get("end_of_turn_confidence") or 0.0),
        start=float(message.get("audio_window_start") or 0.0),
        end=float(message["audio_window_end"]),
        trigger=str(message.get("trigger") or ""),
    )


def _metadata(message: dict[str, Any]) -> Metadata:
    return Metadata(str(message.get("request_id") or ""), str(message.get("model_name") or ""))


_READERS: Mapping[str, Any] = {
    "Results": _results,
    "SpeechStarted": lambda message: SpeechBegan(float(message["timestamp"])),
    "UtteranceEnd": lambda message: UtteranceOver(float(message["last_word_end"])),
    "Metadata": _metadata,
    "Connected": _metadata,
    "TurnInfo": _turn_info,
    "ConfigureSuccess": lambda message: Configured(),
    "ConfigureFailure": lambda message: Configured(_plain(message.get("code")) or "refused"),
    "Flushed": lambda message: Flushed(),
    "Cleared": lambda message: Cleared(),
    "Warning": lambda message: Warned(_plain(message.get("code"))),
}


# ---------------------------------------------------------------------------------------------- errors


def _plain(code: Any) -> str:
    """The service's own word, if it is one: a sentence might quote anything."""
    return code if isinstance(code, str) and re.fullmatch(r"[A-Za-z_]{3,40}(-\d{4})?", code) else ""


def _complaint(message: Mapping[str, Any], where: str) -> ServiceError:
    code = _plain(message.get("code")) or _plain(message.get("variant"))
    return _failure(code, where, "refused")


def _failure(code: str, where: str, what: str, hint: str = "") -> ServiceError:
    hint = HINTS.get(code, hint or "the service has a fault; try again later")
    told = f" ({code})" if code else ""
    return ServiceError(f"{where} {what}{told}: {hint}", verdict=Verdict.NEVER if code in _FINAL else Verdict.LATER)


def closing_failure(code: int, reason: str, where: str) -> ServiceError | None:
    """What a close by the service means; None: what any close means."""
    found = _CODE.search(reason)
    name = found[0] if found is not None else _CODE_OF_CLOSE.get(code)
    if name is None:
        return None
    hint = "the service does not take what it was sent: look at model, encoding and sample_rate" if code == _POLICY else ""
    return _failure(name, where, f"closed the connection with {code}", hint)


def opening_failure(error: ServiceError, body: bytes, where: str) -> ServiceError:
    """A refusal at the opening, as the service calls it."""
    code = ""
    try:
        message = json.loads(body)
        if isinstance(message, dict):
            code = str(message.get("err_code") or message.get("category") or "")
    except (ValueError, RecursionError):
        pass
    failure = failure_of_status(error.status or 0, {}, where, code if named([code]) else "", hints=HINTS)
    failure.retry_after_s = error.retry_after_s
    return failure
