"""What is said between us and ElevenLabs' text to speech: messages out, messages in, and what its errors mean.

https://elevenlabs.io/docs/api-reference (stream-input, multi-stream-input, stream, stream/with-timestamps). The one rule: every
spelling that the service has been seen to use is read; the one of its own SDK is written. No I/O, no clock.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from voiceflow.processors.services.retry import ServiceError, Verdict, failure_of_status, named, problem_in
from voiceflow.processors.services.spoken_text import Timing

__all__ = [
    "HINTS",
    "JsonLines",
    "ServerMessage",
    "close_context",
    "end_of_text",
    "failure_of",
    "init",
    "opening_failure",
    "read_message",
    "say",
]

KEY = "the key is missing or not valid: set it in the environment variable, or give api_key"
VOICE = "there is no such voice: look at voice (its id, not its name), and whether this account may use it"
HINTS: Mapping[int | str, str] = {
    400: "the service does not take this request: look at voice, model and output_format",
    401: KEY,
    402: "the account's plan does not allow this, or has no credit: look at output_format and voice",
    403: "the account's plan or key does not allow this: look at output_format, voice and the key's permissions",
    404: VOICE,
    422: "the service does not take this request: look at voice, model, output_format and the voice's settings",
    429: "too many requests at once for the account's plan",
    "invalid_api_key": KEY,
    "missing_permissions": "the key has no permission for text to speech",
    "quota_exceeded": "the account has no characters left",
    "max_character_limit_exceeded": "the text is too long for the account's plan or the model",
    "voice_not_found": VOICE,
    "voice_id_does_not_exist": VOICE,
    "model_not_found": "there is no such model: look at model",
    "output_format_not_allowed": "the account's plan does not allow this output_format",
    "too_many_concurrent_requests": "too many requests at once for the account's plan",
    "system_busy": "the service is busy",
    "max_active_conversations": "too many contexts at once on one connection",
    "input_timeout_exceeded": "the service waited too long for text",
    "invalid_input_message": "the service does not understand what it was sent: look at the voice's settings",
}
_FINAL = {"invalid_api_key", "missing_permissions", "quota_exceeded", "max_character_limit_exceeded", "voice_not_found", "model_not_found"}
_FINAL |= {"voice_id_does_not_exist", "output_format_not_allowed", "invalid_input_message"}
_IN_WORDS = (  # what a closing says in a sentence, and its name
    (r"timeout|new text input", "input_timeout_exceeded"),
    (r"simultaneous contexts", "max_active_conversations"),
    (r"quota|credits", "quota_exceeded"),
    (r"api.?key|unauthori[sz]ed|authenticat", "invalid_api_key"),
    (r"voice.*(not|no) |no.*voice", "voice_not_found"),
    (r"model.*(not|no) ", "model_not_found"),
)


# ------------------------------------------------------------------------------------------------- out


def init(
    settings: Mapping[str, Any] | None = None,
    schedule: Sequence[int] = (),
    dictionaries: Sequence[tuple[str, str]] = (),
    context: str | None = None,
) -> str:
    """The first message of a connection, or of a context: one blank. What is said here holds for all of it."""
    message: dict[str, Any] = {"text": " "}
    if context is not None:
        message["context_id"] = context
    if settings:
        message["voice_settings"] = dict(settings)
    if schedule:
        message["generation_config"] = {"chunk_length_schedule": list(schedule)}
    if dictionaries:
        message["pronunciation_dictionary_locators"] = [
            {"pronunciation_dictionary_id": name, "version_id": version} for name, version in dictionaries
        ]
    return json.dumps(message)


def say(text: str, *, flush: bool = False, context: str | None = None) -> str:
    """Text, which should end with a blank. ``flush``: all that is there is to be spoken now."""
    message: dict[str, Any] = {"text": text}
    if context is not None:
        message["context_id"] = context
    if flush:
        message["flush"] = True
    return json.dumps(message)


def end_of_text() -> str:
    """The last message of a connection without contexts. The service says the rest, tells that it was the last, and closes."""
    return json.dumps({"text": ""})


def close_context(context: str) -> str:
    """The last message of a context. What was flushed is still spoken."""
    return json.dumps({"context_id": context, "close_context": True})


# -------------------------------------------------------------------------------------------------- in


@dataclass(frozen=True, slots=True)
class ServerMessage:
    """A message of the service. ``error``: what it complains about."""

    audio: bytes = b""
    timing: Timing | None = None
    context: str | None = None
    is_final: bool = False
    error: ServiceError | None = None


def read_message(data: str | bytes, where: str = "the service") -> ServerMessage:
    """One message of a WebSocket, or one line of a stream with timestamps. Raises ServiceError if it cannot be read."""
    try:
        message = json.loads(data)
        if not isinstance(message, dict):
            raise ValueError
        context = _either(message, "contextId", "context_id")
        sound = _either(message, "audio", "audio_base64") or ""
        return ServerMessage(
            audio=base64.b64decode(sound, validate=True),
            timing=_timing(message.get("alignment")),
            context=context if isinstance(context, str) else None,
            is_final=_either(message, "isFinal", "is_final") is True,
            error=_complaint(message, where) if not sound else None,
        )
    except (ValueError, TypeError, KeyError, RecursionError, binascii.Error):
        raise ServiceError(f"{where} sent a message that cannot be read", verdict=Verdict.LATER) from None


def _either(message: Mapping[str, Any], *names: str) -> Any:
    return next((message[name] for name in names if message.get(name) is not None), None)


def _timing(alignment: Any) -> Timing | None:
    if not isinstance(alignment, dict):
        return None
    chars = _either(alignment, "chars", "characters")
    seconds = _either(alignment, "character_start_times_seconds", "characterStartTimesSeconds")
    if seconds is not None:
        ends = _either(alignment, "character_end_times_seconds", "characterEndTimesSeconds")
        return _checked(chars, [float(at) for at in seconds], [float(at) for at in ends], "either")
    starts = _either(alignment, "charStartTimesMs", "charsStartTimesMs", "char_start_times_ms", "chars_start_times_ms")
    lengths = _either(alignment, "charDurationsMs", "charsDurationsMs", "char_durations_ms", "chars_durations_ms")
    if starts is None or lengths is None:
        return None
    begins = [at / 1000 for at in starts]
    return _checked(chars, begins, [at + length / 1000 for at, length in zip(begins, lengths, strict=True)], "sound")


def _checked(chars: Any, starts: list[float], ends: list[float], since: Literal["sound", "either"]) -> Timing:
    if not isinstance(chars, list) or not len(chars) == len(starts) == len(ends) or not all(isinstance(c, str) for c in chars):
        raise ValueError
    return Timing(chars, starts, ends, since)


class JsonLines:
    """A stream of JSON objects, one a line, cut anywhere."""

    def __init__(self) -> None:
        self._rest = b""

    def push(self, data: bytes) -> list[bytes]:
        """The lines that these bytes complete."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [line for line in lines if line.strip()]

    def end(self) -> list[bytes]:
        """A last line without its end."""
        rest, self._rest = self._rest, b""
        return [rest] if rest.strip() else []


# ---------------------------------------------------------------------------------------------- errors


def _complaint(message: Mapping[str, Any], where: str) -> ServiceError | None:
    """What a message complains about: the service's own word for it is told, its sentences are not."""
    if message.get("error") is None and (message.get("message") is None or "audio" in message):
        return None
    code, kind = problem_in(message)
    name = message["error"] if isinstance(message.get("error"), str) else code or kind
    return failure_of(name, f"{message.get('message') or ''} {message.get('error') or ''}", where)


def failure_of(name: str, words: str, where: str) -> ServiceError:
    """The error of that name; or, if the name says nothing, what these words of the service amount to."""
    if name not in HINTS:
        name = next((known for pattern, known in _IN_WORDS if re.search(pattern, words, re.IGNORECASE)), name)
    hint = HINTS.get(name, "the service does not take what it was sent: look at voice, model and the voice's settings")
    return ServiceError(f"{where} refused{named([name])}: {hint}", verdict=Verdict.NEVER if name in _FINAL else Verdict.LATER)


def opening_failure(error: ServiceError, body: bytes, where: str) -> ServiceError:
    """A refusal at the opening of a WebSocket, as the service calls it."""
    code = kind = ""
    try:
        message = json.loads(body)
        if isinstance(message, dict):
            code, kind = problem_in(message)
    except (ValueError, RecursionError):
        pass
    failure = failure_of_status(error.status or 0, {}, where, code, kind, hints=HINTS)
    failure.retry_after_s = error.retry_after_s
    return failure
