"""When a request that failed is made again, and what its failure is called.

The one rule: whoever waits on the line is not kept waiting for a service that has said how long it will not answer.
No clock and no I/O: times are told, chance is given.
"""

from __future__ import annotations

import email.utils
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from voiceflow.backoff import Backoff
from voiceflow.errors import VoiceflowError

__all__ = [
    "Retries",
    "RetryOptions",
    "ServiceError",
    "Verdict",
    "asked_to_wait_s",
    "failure_of_status",
    "named",
    "problem_in",
    "wait_after",
]

TOO_EARLY, TOO_MANY = 425, 429


class Verdict(Enum):
    """Whether the same request may succeed when made again."""

    NEVER = "never"
    LATER = "later"
    AT_ONCE = "at once"
    """A kept connection had been closed by the server meanwhile."""


class ServiceError(VoiceflowError):
    """A service could not be reached, refused, or broke off. The text holds no key and nothing of the conversation.

    ``status``: of HTTP, if there was an answer. ``retry_after_s``: what the service asked for.
    """

    def __init__(
        self, message: str, *, status: int | None = None, verdict: Verdict = Verdict.NEVER, retry_after_s: float | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.verdict = verdict
        self.retry_after_s = retry_after_s


@dataclass(frozen=True, slots=True)
class RetryOptions:
    """How often and how long a service is asked again. Only before the first token of an answer."""

    tries: int = 3
    """In all."""
    first_wait_s: float = 0.25
    """Before the second try; doubled for each further one."""
    longest_wait_s: float = 4.0
    patience_s: float = 8.0
    """No try begins later than this after the first: the caller hears nothing meanwhile."""

    def __post_init__(self) -> None:
        if self.tries < 1 or self.first_wait_s < 0 or self.longest_wait_s < self.first_wait_s or self.patience_s < 0:
            raise ValueError(
                f"RetryOptions: tries {self.tries} must be 1 or more, patience_s {self.patience_s} not negative, "
                f"and longest_wait_s {self.longest_wait_s} not less than first_wait_s {self.first_wait_s}, itself not negative"
            )


class Retries:
    """The tries of one request. ``chance`` gives numbers from 0 to 1: half of each wait is left to it."""

    def __init__(self, options: RetryOptions, chance: Callable[[], float]) -> None:
        self.options = options
        self.tries = 0
        self._chance = chance

    def wait_s(self, error: ServiceError, elapsed_s: float) -> float | None:
        """So long until the next try, ``elapsed_s`` after the first began; None: there is none."""
        self.tries += 1
        options = self.options
        if error.verdict is Verdict.NEVER or self.tries >= options.tries:
            return None
        wait_s = min(options.longest_wait_s, options.first_wait_s * 2 ** (self.tries - 1)) * (1 + self._chance()) / 2
        if error.verdict is Verdict.AT_ONCE and self.tries == 1:
            wait_s = 0.0
        if error.retry_after_s is not None:
            wait_s = max(wait_s, error.retry_after_s)
        return wait_s if elapsed_s + wait_s <= options.patience_s else None


def wait_after(error: ServiceError, backoff: Backoff) -> float | None:
    """A connection that is kept for long has failed: so many seconds until the next try; None: it is given up."""
    wait_s = backoff.failed(at_once=error.verdict is Verdict.AT_ONCE, asked_s=error.retry_after_s or 0.0)
    return None if error.verdict is Verdict.NEVER else wait_s


def asked_to_wait_s(headers: Mapping[str, str]) -> float | None:
    """Seconds that ``Retry-After`` (a number, or a date read against the answer's own ``Date``) asks for."""
    for name, scale in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        text = headers.get(name, "").strip()
        if re.fullmatch(r"\d{1,9}(\.\d{1,9})?", text):
            return float(text) * scale
        if text and scale == 1.0:
            try:
                until, now = (email.utils.parsedate_to_datetime(value) for value in (text, headers.get("date", "")))
                return max(0.0, (until - now).total_seconds())
            except (TypeError, ValueError):  # no date, or one with and one without a zone
                return None
    return None


_HINTS: Mapping[int | str, str] = {
    400: "the server does not take this request: see that the model exists and takes what was sent (tools, images, options)",
    401: "the key is missing or not valid: set it in the environment variable, or give api_key",
    402: "the account has no credit",
    403: "the key may not use this model or this address",
    404: "there is no such model or address: look at model and base_url",
    413: "the conversation is too long: set ContextOptions.max_tokens",
    422: "the server does not take this request: see that it takes what was sent (tools, images, options)",
    429: "the limit of requests or tokens is reached",
    "context_length_exceeded": "the conversation is too long: set ContextOptions.max_tokens",
    "exceed_context_size_error": "the conversation is too long: set ContextOptions.max_tokens",
    "insufficient_quota": "the account has no quota left",
    "model_not_found": "there is no such model: look at model",
}


def _plain(names: Iterable[str]) -> list[str]:
    return [name for name in dict.fromkeys(names) if re.fullmatch(r"[A-Za-z0-9_]{3,40}", name) and not re.search(r"\d{4}", name)]


def named(names: Iterable[str]) -> str:
    """What a service calls its errors, in brackets, as far as these are words: never a sentence, which might quote a key."""
    plain = _plain(names)
    return f" ({', '.join(plain)})" if plain else ""


def problem_in(body: Mapping[str, Any]) -> tuple[str, str]:
    """``code`` (or ``status``) and ``type`` in the body of an error, as far as there are."""
    error = body.get("error", body.get("detail", body))
    if not isinstance(error, dict):
        return "", ""
    return str(error.get("code") or error.get("status") or ""), str(error.get("type") or "")


def failure_of_status(
    status: int, headers: Mapping[str, str], where: str, code: str = "", kind: str = "", *, hints: Mapping[int | str, str] | None = None
) -> ServiceError:
    """The failure that an HTTP status means. ``code``, ``kind``: what the body calls it; the only words of it that are told.

    ``hints``: what to do about a status or a name, where it is not what is said here, which is for language models.
    """
    names = _plain((code, kind))
    known = {**_HINTS, **(hints or {})}
    hint = next((known[name] for name in (*names, status) if name in known), "the service has a fault; try again later")
    if 300 <= status < 400:
        hint = "the address has moved: give the new one as base_url"
    told = named(names)
    again = status in (408, 409, TOO_EARLY, TOO_MANY) or status >= 500
    if not {"insufficient_quota", "quota_exceeded"}.isdisjoint(names) or headers.get("x-should-retry") == "false":
        again = False
    after_s = asked_to_wait_s(headers)
    asks = f"; it asks for {after_s:g} s" if again and after_s is not None else ""
    return ServiceError(
        f"{where} answered {status}{told}: {hint}{asks}",
        status=status,
        verdict=Verdict.LATER if again else Verdict.NEVER,
        retry_after_s=after_s if again else None,
    )
