"""How ElevenLabs is asked to speak. The one rule: what the service would refuse is refused here, with what to do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args
from urllib.parse import quote, urlencode, urlsplit

from voiceflow.backoff import BackoffOptions
from voiceflow.processors.services.address import checked_url, origin_of, websocket_url
from voiceflow.processors.services.decoders import Decoder, PcmDecoder, alaw, mulaw
from voiceflow.processors.services.key import find_key
from voiceflow.processors.services.socket import SocketOptions
from voiceflow.processors.services.voice_service import StreamOptions
from voiceflow.processors.splitter import Mode, SplitterOptions

__all__ = ["ElevenLabsOptions", "VoiceSettings", "Way"]

ELEVENLABS = "https://api.elevenlabs.io"
KEY_VARIABLE = "ELEVENLABS_API_KEY"
Way = Literal["contexts", "socket", "http"]
CODECS = ("pcm", "ulaw", "alaw", "mp3", "opus")
RATES = (8000, 16000, 22050, 24000, 32000, 44100, 48000)
LONGEST_INACTIVITY_S = 180


@dataclass(frozen=True, slots=True)
class VoiceSettings:
    """How the voice sounds. None: as it is set at the service."""

    stability: float | None = None
    """0 to 1."""
    similarity_boost: float | None = None
    """0 to 1."""
    style: float | None = None
    """0 to 1."""
    use_speaker_boost: bool | None = None
    speed: float | None = None
    """0.7 to 1.2."""

    def __post_init__(self) -> None:
        for name, low, high in (("stability", 0, 1), ("similarity_boost", 0, 1), ("style", 0, 1), ("speed", 0.7, 1.2)):
            value = getattr(self, name)
            if value is not None and not low <= value <= high:
                raise ValueError(f"VoiceSettings: {name} is {value}; it must be from {low} to {high}")

    def told(self) -> dict[str, Any]:
        """Those that are set."""
        return {name: value for name in self.__slots__ if (value := getattr(self, name)) is not None}


@dataclass(frozen=True, slots=True)
class ElevenLabsOptions:
    """Which voice, by which way, and how text is cut for it.

    ``way``:

    * ``"contexts"``: one WebSocket for the whole call, a context for each utterance (multi-stream-input). An interrupt closes
      the context and waits until the service has said so; the connection stays.
    * ``"socket"``: a WebSocket for each utterance (stream-input), the next one open before it is needed. An interrupt cuts it.
    * ``"http"``: a request for each piece of text. Its answer streams too, but the text has to be there: nothing can be said
      before the end of a piece. For voices and models that have no WebSocket, and lines on which one costs more than it saves.
    """

    voice: str
    """Its id, like ``21m00Tcm4TlvDq8ikWAM``."""
    model: str = "eleven_flash_v2_5"
    way: Way = "contexts"
    aggregation: Mode = "sentence"
    """What the pieces are that the node is given. ``ElevenLabsTTS.pieces()`` makes the node that cuts them so."""
    auto_mode: bool | None = None
    """The service speaks each piece at once, without waiting for more. None: on, but for ``token``, where pieces are words."""
    chunk_length_schedule: tuple[int, ...] = (120, 160, 250, 290)
    """Without auto_mode: so many characters are gathered for the first sound, the second and so on, unless a sentence ends before. 50 to 500."""
    output_format: str = "pcm_24000"
    """``codec_rate`` or ``codec_rate_kbits``: pcm, ulaw, alaw; mp3 and opus with a ``decoder``."""
    decoder: Callable[[str, int], Decoder] | None = None
    """Makes the decoder of a compressed format: ``voiceflow.processors.services.compressed_sound.decoder``."""
    settings: VoiceSettings = field(default_factory=VoiceSettings)
    language: str | None = None
    """ISO 639-1, for models that can be told."""
    text_normalization: Literal["auto", "on", "off"] | None = None
    seed: int | None = None
    ssml: bool = False
    dictionaries: tuple[tuple[str, str], ...] = ()
    """Pronunciation dictionaries: (id, version)."""
    logging: bool = True
    """False: the service keeps nothing (needs a plan that allows it)."""
    timestamps: bool = True
    """With ``http``: ask for the times of the words."""
    inactivity_s: int = LONGEST_INACTIVITY_S
    """The service closes a connection that hears nothing for so long. It is then opened anew, unasked."""
    acknowledged_s: float = 0.5
    """The acknowledgement of a cancel is waited for so long. Its context cannot be heard any more, acknowledged or not."""
    base_url: str = ELEVENLABS
    api_key: str | None = field(default=None, repr=False)
    api_key_variable: str | None = None
    """Environment variable that holds the key. None: ``ELEVENLABS_API_KEY`` at ElevenLabs itself and none elsewhere, so that a key is
    not sent to a stranger."""
    stream: StreamOptions = field(default_factory=StreamOptions)
    socket: SocketOptions = field(default_factory=SocketOptions)
    backoff: BackoffOptions = field(default_factory=BackoffOptions)

    def __post_init__(self) -> None:
        checked_url(self.base_url, "ElevenLabsOptions", "https://api.elevenlabs.io or http://127.0.0.1:8080")
        if not self.voice or not self.model:
            raise ValueError("ElevenLabsOptions: voice and model must be given; voice is an id like 21m00Tcm4TlvDq8ikWAM")
        if self.way not in get_args(Way):
            raise ValueError(f"ElevenLabsOptions: way {self.way!r} is none of {', '.join(get_args(Way))}")
        if self.way == "http" and self.aggregation == "token":
            raise ValueError(
                "ElevenLabsOptions: a request for each token is too many; use aggregation='sentence' or 'clause' with way='http'"
            )
        codec, rate = self.codec, self.sample_rate
        if codec not in CODECS or rate not in RATES:
            raise ValueError(
                f"ElevenLabsOptions: output_format {self.output_format!r} is none; use one like pcm_24000, ulaw_8000, mp3_44100_128"
            )
        if codec in ("mp3", "opus") and self.decoder is None:
            raise ValueError(
                f"ElevenLabsOptions: {self.output_format} is compressed: give decoder=compressed_sound.decoder (from "
                "voiceflow.processors.services import compressed_sound), or use pcm_24000"
            )
        if not self.chunk_length_schedule or not all(50 <= length <= 500 for length in self.chunk_length_schedule):
            raise ValueError(f"ElevenLabsOptions: chunk_length_schedule {self.chunk_length_schedule} must hold numbers from 50 to 500")
        if not 1 <= self.inactivity_s <= LONGEST_INACTIVITY_S:
            raise ValueError(f"ElevenLabsOptions: inactivity_s {self.inactivity_s} must be from 1 to {LONGEST_INACTIVITY_S}")
        if not self.acknowledged_s > 0:
            raise ValueError(f"ElevenLabsOptions: acknowledged_s {self.acknowledged_s} must be more than 0")
        SplitterOptions(mode=self.aggregation)

    @property
    def codec(self) -> str:
        """Of the output format."""
        return self.output_format.partition("_")[0]

    @property
    def sample_rate(self) -> int:
        """Of the output format, in Hz; 0 if there is none in it."""
        rate = self.output_format.split("_")[1:2]
        return int(rate[0]) if rate and rate[0].isdecimal() else 0

    @property
    def speaks_at_once(self) -> bool:
        """``auto_mode``, decided."""
        return self.aggregation != "token" if self.auto_mode is None else self.auto_mode

    @property
    def key_variable(self) -> str | None:
        """Where the key is, if it was not given."""
        at_home = (urlsplit(self.base_url).hostname or "").endswith(".elevenlabs.io")
        return self.api_key_variable or (KEY_VARIABLE if at_home else None)

    def make_decoder(self) -> Decoder:
        """For the sound of one stretch."""
        if self.decoder is not None and self.codec in ("mp3", "opus"):
            return self.decoder(self.codec, self.sample_rate)
        return {"ulaw": mulaw, "alaw": alaw}.get(self.codec, lambda: PcmDecoder(self.sample_rate))()

    def headers(self) -> dict[str, str]:
        """With the key. Raises ServiceError if there is none where there has to be one."""
        key = find_key(origin_of(self.base_url), self.api_key, self.key_variable)
        return {"xi-api-key": key} if key else {}

    def socket_url(self) -> str:
        """Of the WebSocket."""
        query: dict[str, Any] = {
            "model_id": self.model,
            "output_format": self.output_format,
            "inactivity_timeout": self.inactivity_s,
            "sync_alignment": "true",
            "auto_mode": "true" if self.speaks_at_once else "false",
        }
        if self.ssml:
            query["enable_ssml_parsing"] = "true"
        if not self.logging:
            query["enable_logging"] = "false"
        query |= self._spoken_how(("language", "text_normalization", "seed"))
        path = "stream-input" if self.way == "socket" else "multi-stream-input"
        return f"{websocket_url(self._voice_url())}/{path}?{urlencode(query)}"

    def request_url(self) -> str:
        """Of a request."""
        query = {"output_format": self.output_format} | ({} if self.logging else {"enable_logging": "false"})
        return f"{self._voice_url()}/stream{'/with-timestamps' if self.timestamps else ''}?{urlencode(query)}"

    def request_body(self, text: str, before: str) -> Mapping[str, Any]:
        """Of a request. ``before``: what was said before, for the melody."""
        body: dict[str, Any] = {"text": text, "model_id": self.model} | self._spoken_how(("language", "text_normalization", "seed"))
        if settings := self.settings.told():
            body["voice_settings"] = settings
        if before and self.model != "eleven_v3":
            body["previous_text"] = before
        if self.dictionaries:
            body["pronunciation_dictionary_locators"] = [
                {"pronunciation_dictionary_id": name, "version_id": version} for name, version in self.dictionaries
            ]
        return body

    def _voice_url(self) -> str:
        return f"{self.base_url.rstrip('/')}/v1/text-to-speech/{quote(self.voice, safe='')}"

    def _spoken_how(self, names: tuple[str, ...]) -> dict[str, Any]:
        called = {"language": "language_code", "text_normalization": "apply_text_normalization", "seed": "seed"}
        return {called[name]: value for name in names if (value := getattr(self, name)) is not None}
