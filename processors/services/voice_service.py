"""What a vendor brings so that ``SpeechStream`` can speak with its voices: the codec and the connection, nothing else.

The one rule: a stretch knows nothing of utterances, words, retries or interrupts; it sends text, gives sound, and can be stopped.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from voiceflow.processor import Processor
from voiceflow.processors.services.decoders import Decoder
from voiceflow.processors.services.retry import RetryOptions
from voiceflow.processors.services.spoken_text import Timing

__all__ = ["Sound", "StreamOptions", "Stretch", "VoiceService"]


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """Pacing and deadlines of a voice."""

    frame_ms: float = 40.0
    ahead_s: float = 6.0
    """More text is sent only while less sound than this waits to go on. An interrupt throws it away, and it has been paid for."""
    text_s: float = 3.0
    """The reply stalls for so long: the stretch is closed, which speaks what is there. More text opens the next one."""
    first_s: float = 5.0
    """From text that is to be spoken now to its first sound."""
    idle_s: float = 4.0
    """Between two pieces of sound."""
    held_s: float = 0.25
    """Sound that is not known to end with a whole word is held back, so that a break can be mended; but no longer than this if its
    words have all their times, or no sound is due."""
    retries: RetryOptions = field(default_factory=RetryOptions)
    """Counted anew whenever a word was spoken."""

    def __post_init__(self) -> None:
        for name in ("frame_ms", "ahead_s", "text_s", "first_s", "idle_s", "held_s"):
            if not getattr(self, name) > 0:
                raise ValueError(f"StreamOptions: {name} is {getattr(self, name)}; it must be more than 0")


@dataclass(frozen=True, slots=True)
class Sound:
    """A piece of sound as the service encodes it, cut anywhere, and when what is said in it."""

    data: bytes
    timing: Timing | None = None
    caught_up: bool = False
    """With this, all that was sent to be spoken has been: for services that say so, and give no times."""


class Stretch(Protocol):
    """Text and sound of one context, socket or request. One task sends, another receives."""

    async def say(self, text: str, *, flush: bool) -> None:
        """Send a piece of text, as it is. ``flush``: a sentence ends here, and should be spoken now."""

    async def finish(self) -> None:
        """No more text: what is there is to be spoken."""

    async def receive(self) -> Sound | None:
        """The next sound, or None when the stretch is complete."""

    async def cancel(self) -> None:
        """Stop it. Returns when the service has acknowledged that, or can send nothing more of it. Has a deadline of its own."""

    async def close(self) -> None:
        """Always the last call. Must not wait for the service."""


class VoiceService(Protocol):
    """A vendor's voice. All of it raises ServiceError."""

    sample_rate: int
    takes_pieces: bool
    """Text is taken piece by piece while sound comes. False: a stretch is one piece (a request)."""
    speaks_at_once: bool
    """Each piece is spoken when it comes. False: some text is gathered first, unless it is flushed."""
    is_timed: bool
    """Sound comes with the times of its characters. False: words are placed by the pace."""

    def decoder(self) -> Decoder:
        """For the sound of one stretch."""

    async def open(self, node: Processor) -> None:
        """Find the key, begin to connect. Called once, in ``start()``; tasks are spawned with ``node.session``."""

    async def close(self) -> None:
        """Called once, in ``stop()``, if ``open`` was entered."""

    async def begin(self, before: str) -> Stretch:
        """The next stretch. ``before``: what this utterance has said already."""
