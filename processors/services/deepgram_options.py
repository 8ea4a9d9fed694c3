"""How Deepgram is asked to listen and to speak. The one rule: what the service would refuse is refused here, with what to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import urlencode, urlsplit

from voiceflow.backoff import BackoffOptions
from voiceflow.processors.end_policies import Endpoint
from voiceflow.processors.services.address import checked_url, origin_of, websocket_url
from voiceflow.processors.services.decoders import Decoder, PcmDecoder, alaw, mulaw
from voiceflow.processors.services.key import find_key
from voiceflow.processors.services.socket import SocketOptions
from voiceflow.processors.services.voice_service import StreamOptions
from voiceflow.processors.turn_options import TurnOptions

__all__ = ["AuraOptions", "DeepgramOptions", "FluxOptions", "LineOptions"]

DEEPGRAM = "https://api.deepgram.com"
KEY_VARIABLE = "DEEPGRAM_API_KEY"
RATES = (8000, 16000, 24000, 32000, 44100, 48000)
VOICE_RATES = {"linear16": (8000, 16000, 24000, 32000, 48000), "mulaw": (8000, 16000), "alaw": (8000, 16000)}


@dataclass(frozen=True, slots=True)
class LineOptions:
    """Of the connection: where it goes, with which key, and how long anything may take."""

    base_url: str = DEEPGRAM
    api_key: str | None = field(default=None, repr=False)
    api_key_variable: str | None = None
    """Environment variable that holds the key. None: ``DEEPGRAM_API_KEY`` at Deepgram itself and none elsewhere, so that a key is
    not sent to a stranger."""
    scheme: Literal["Token", "Bearer"] = "Token"
    """``Bearer``: the key is a token that lives for a short time only."""
    again_s: float = 10.0
    """A recogniser that was given up is tried again after so long."""
    keep_alive_s: float = 4.0
    """After so long without sound the recogniser is told that more will come. It leaves after 10."""
    silent_s: float = 4.0
    """A recogniser that says nothing for so long, although it has something to say, is taken to be gone."""
    tail_s: float = 2.0
    """At the end of the call, for the last words."""
    kept_s: float = 30.0
    """So much sound of which nothing final is known is kept, to be sent again on another connection."""
    socket: SocketOptions = field(default_factory=SocketOptions)
    backoff: BackoffOptions = field(default_factory=BackoffOptions)

    def __post_init__(self) -> None:
        checked_url(self.base_url, "LineOptions", "https://api.deepgram.com or http://127.0.0.1:8080")
        for name in ("again_s", "keep_alive_s", "silent_s", "tail_s", "kept_s"):
            if not getattr(self, name) > 0:
                raise ValueError(f"LineOptions: {name} is {getattr(self, name)}; it must be more than 0")
        if self.scheme not in ("Token", "Bearer"):
            raise ValueError(f"LineOptions: scheme is {self.scheme!r}; it must be 'Token' or 'Bearer'")

    @property
    def where(self) -> str:
        """For errors."""
        return origin_of(self.base_url)

    @property
    def key_variable(self) -> str | None:
        """Where the key is, if it was not given."""
        at_home = (urlsplit(self.base_url).hostname or "").endswith(".deepgram.com")
        return self.api_key_variable or (KEY_VARIABLE if at_home else None)

    def headers(self) -> dict[str, str]:
        """With the key. Raises ServiceError if there is none where there has to be one."""
        key = find_key(self.where, self.api_key, self.key_variable)
        return {"Authorization": f"{self.scheme} {key}"} if key else {}

    def url(self, path: str, query: Mapping[str, Any]) -> str:
        """Of a WebSocket. A value that is a tuple is given several times, None not at all."""
        told = {name: _told(value) for name, value in query.items() if value is not None}
        return f"{websocket_url(self.base_url.rstrip('/'))}/{path}?{urlencode(told, doseq=True)}"


def _told(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    return [str(item) for item in value] if isinstance(value, tuple) else str(value)


def _check_rate(owner: str, rate: int, rates: Sequence[int]) -> None:
    if rate not in rates:
        raise ValueError(f"{owner}: sample_rate {rate} is none of {', '.join(map(str, rates))}")


@dataclass(frozen=True, slots=True)
class DeepgramOptions:
    """How listen v1 is asked. None: as the service has it."""

    model: str = "nova-3"
    language: str | None = None
    sample_rate: int = 16000
    interim_results: bool = True
    """Partial transcripts."""
    endpointing_ms: int | None = 300
    """Silence at which the service ends an utterance by itself. It counts where no detector tells the edges of speech."""
    utterance_end_ms: int | None = 1000
    """The same by words, for lines on which it is never silent: 1000 or more. Needs ``interim_results``."""
    edges: bool = False
    """There is no detector before the node: it tells ``SpeechStarted`` and ``SpeechStopped`` itself, as the service does."""
    smart_format: bool | None = None
    punctuate: bool | None = True
    numerals: bool | None = None
    profanity_filter: bool | None = None
    keyterms: tuple[str, ...] = ()
    redact: tuple[str, ...] = ()
    tag: tuple[str, ...] = ()
    mip_opt_out: bool | None = None
    answer_s: float = 1.0
    """From the end of speech to what the service makes of it; then what is known must do, or it is taken to be gone."""
    line: LineOptions = field(default_factory=LineOptions)

    def __post_init__(self) -> None:
        if not self.model:
            raise ValueError("DeepgramOptions: model must be given, like nova-3")
        _check_rate("DeepgramOptions", self.sample_rate, RATES)
        if self.utterance_end_ms is not None and (self.utterance_end_ms < 1000 or not self.interim_results):
            raise ValueError("DeepgramOptions: utterance_end_ms must be 1000 or more, and needs interim_results")
        if self.endpointing_ms is not None and self.endpointing_ms < 1:
            raise ValueError(f"DeepgramOptions: endpointing_ms is {self.endpointing_ms}; it must be 1 or more, or None")
        if not self.answer_s > 0:
            raise ValueError(f"DeepgramOptions: answer_s is {self.answer_s}; it must be more than 0")

    def url(self) -> str:
        """Of the connection."""
        query = {
            "model": self.model, "language": self.language, "encoding": "linear16", "sample_rate": self.sample_rate, "channels": 1,
            "interim_results": self.interim_results, "endpointing": self.endpointing_ms if self.endpointing_ms is not None else False,
            "utterance_end_ms": self.utterance_end_ms, "vad_events": self.edges or None, "smart_format": self.smart_format,
            "punctuate": self.punctuate, "numerals": self.numerals, "profanity_filter": self.profanity_filter,
            "keyterm": self.keyterms or None, "redact": self.redact or None, "tag": self.tag or None, "mip_opt_out": self.mip_opt_out,
        }  # fmt: skip
        return self.line.url("v1/listen", query)


@dataclass(frozen=True, slots=True)
class FluxOptions:
    """How Flux (listen v2) is asked."""

    model: str = "flux-general-en"
    sample_rate: int = 16000
    eager_eot_threshold: float | None = None
    """0.3 to 0.9: so sure that the caller is done, and a reply may be begun. None: it never says so. For ``Speculation``."""
    eot_threshold: float = 0.7
    """0.5 to 1: so sure, and the turn has ended."""
    eot_timeout_ms: int = 5000
    """500 to 60000: silence that ends it anyhow."""
    keyterms: tuple[str, ...] = ()
    language_hints: tuple[str, ...] = ()
    """For flux-general-multi."""
    profanity_filter: bool | None = None
    numerals: bool | None = None
    tag: tuple[str, ...] = ()
    mip_opt_out: bool | None = None
    chunk_ms: float = 80.0
    """Sound is sent in pieces of this length."""
    line: LineOptions = field(default_factory=LineOptions)

    def __post_init__(self) -> None:
        if not self.model.startswith("flux-"):
            raise ValueError(f"FluxOptions: model {self.model!r} is none of Flux, like flux-general-en; for others there is DeepgramSTT")
        _check_rate("FluxOptions", self.sample_rate, RATES)
        for name, low, high in (("eager_eot_threshold", 0.3, 0.9), ("eot_threshold", 0.5, 1.0), ("eot_timeout_ms", 500, 60000)):
            value = getattr(self, name)
            if value is not None and not low <= value <= high:
                raise ValueError(f"FluxOptions: {name} is {value}; it must be from {low} to {high}")
        if self.eager_eot_threshold is not None and self.eager_eot_threshold > self.eot_threshold:
            raise ValueError("FluxOptions: eager_eot_threshold must not be more than eot_threshold")
        if self.language_hints and self.model != "flux-general-multi":
            raise ValueError("FluxOptions: language_hints are for the model flux-general-multi alone")
        if not self.chunk_ms > 0:
            raise ValueError(f"FluxOptions: chunk_ms is {self.chunk_ms}; it must be more than 0")

    def url(self) -> str:
        """Of the connection."""
        query = {
            "model": self.model, "encoding": "linear16", "sample_rate": self.sample_rate, "eager_eot_threshold": self.eager_eot_threshold,
            "eot_threshold": self.eot_threshold, "eot_timeout_ms": self.eot_timeout_ms, "keyterm": self.keyterms or None,
            "language_hint": self.language_hints or None, "profanity_filter": self.profanity_filter, "numerals": self.numerals,
            "tag": self.tag or None, "mip_opt_out": self.mip_opt_out,
        }  # fmt: skip
        return self.line.url("v2/listen", query)

    def turns(self) -> TurnOptions:
        """Turn taking in which a turn ends when Flux says so: for ``Turns``."""
        longest_s = self.eot_timeout_ms / 1000
        return TurnOptions(end=Endpoint(), final_timeout_s=longest_s + 2.0, silence_max_s=max(10.0, longest_s + 2.0))


@dataclass(frozen=True, slots=True)
class AuraOptions:
    """Which voice of Aura, and what its sound is."""

    model: str = "aura-2-thalia-en"
    """The voice and its language."""
    encoding: Literal["linear16", "mulaw", "alaw"] = "linear16"
    sample_rate: int = 24000
    speed: float | None = None
    mip_opt_out: bool | None = None
    flushes: int = 16
    """In a minute. The service allows 20; beyond this number a sentence waits until the sound before it has come, and goes with the next."""
    cleared_s: float = 0.5
    """The acknowledgement of a cancel is waited for so long; then the connection is made anew."""
    stream: StreamOptions = field(default_factory=StreamOptions)
    line: LineOptions = field(default_factory=LineOptions)

    def __post_init__(self) -> None:
        if not self.model:
            raise ValueError("AuraOptions: model must be given, like aura-2-thalia-en")
        if self.encoding not in VOICE_RATES:
            raise ValueError(f"AuraOptions: encoding {self.encoding!r} is none of {', '.join(VOICE_RATES)}")
        _check_rate(f"AuraOptions (encoding {self.encoding})", self.sample_rate, VOICE_RATES[self.encoding])
        if self.speed is not None and not 0.7 <= self.speed <= 1.5:
            raise ValueError(f"AuraOptions: speed is {self.speed}; it must be from 0.7 to 1.5")
        if not 1 <= self.flushes <= 20:
            raise ValueError(f"AuraOptions: flushes is {self.flushes}; it must be from 1 to 20")
        if not self.cleared_s > 0:
            raise ValueError(f"AuraOptions: cleared_s is {self.cleared_s}; it must be more than 0")

    def url(self) -> str:
        """Of the connection."""
        query = {
            "model": self.model, "encoding": self.encoding, "sample_rate": self.sample_rate, "speed": self.speed,
            "mip_opt_out": self.mip_opt_out,
        }  # fmt: skip
        return self.line.url("v1/speak", query)

    def make_decoder(self) -> Decoder:
        """For the sound of one stretch."""
        return {"mulaw": mulaw, "alaw": alaw}.get(self.encoding, lambda: PcmDecoder(self.sample_rate))()
