"""The frames: what travels through a pipeline. Immutable values, one type for each thing that can happen.

Some facts stand beside a type as class variables, so that nobody decides them per node:

* ``lane``: ``USER`` (what the caller does), ``AGENT`` (what the agent does) or ``CONTROL``. Order is kept
  within a lane; lanes never block one another. An interrupt drops the agent lane and nothing else.
* ``travels``: ``DOWN`` the pipeline, or ``UP`` it (reports: what was heard, what failed).
* ``live``: True for sound that is happening now, which is dropped rather than made to wait.
* ``perishable``: True for what an interrupt makes meaningless although it is not in the agent's lane: a hold.

and one is a field of each frame: ``epoch``, how many interrupts there had been when the work that made it began. The engine writes it.

A plugin adds a type by subclassing the nearest one. ``msgspec.msgpack.encode(frame)`` is the wire form. Times are seconds on the session's clock.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, ClassVar

import msgspec

from voiceflow.messages import Message, ToolCall, ToolSpec

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = [
    "AudioFormat",
    "AudioFrame",
    "CallerIdle",
    "ContextFrame",
    "ControlFrame",
    "EndFrame",
    "ErrorFrame",
    "FloorReleased",
    "FloorTaken",
    "Frame",
    "Heard",
    "HoldFrame",
    "InputAudioFrame",
    "InterruptFrame",
    "LLMEnded",
    "LLMStarted",
    "LLMTextFrame",
    "LLMUsage",
    "Lane",
    "OutputAudioFrame",
    "PlaybackStarted",
    "PlaybackStopped",
    "ResumeFrame",
    "SayFrame",
    "SentenceFrame",
    "SpeechStarted",
    "SpeechStopped",
    "StartFrame",
    "TextFrame",
    "ToolCallFrame",
    "ToolProgress",
    "ToolResultFrame",
    "ToolStarted",
    "ToolsDone",
    "TranscriptFrame",
    "Travels",
    "TurnEnded",
    "TurnScored",
    "TurnStarted",
    "UtteranceEnded",
    "Word",
    "WordsHeard",
    "replace",
]

UNSTAMPED = -1

replace = msgspec.structs.replace


class Lane(enum.IntEnum):
    """Whose doing a frame is. Each lane has its own queue at every node that takes time."""

    USER = 0
    AGENT = 1
    CONTROL = 2


class Travels(enum.IntEnum):
    """Which way a frame goes: with the arrows of the pipeline, or against them."""

    DOWN = 0
    UP = 1


class Frame(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The root of all frames. ``pts``: when it happened, or None; ``epoch``: written by the engine."""

    lane: ClassVar[Lane] = Lane.CONTROL
    travels: ClassVar[Travels] = Travels.DOWN
    live: ClassVar[bool] = False
    perishable: ClassVar[bool] = False

    pts: float | None = None
    epoch: int = UNSTAMPED


# ---------------------------------------------------------------------------------------------------- audio


class AudioFormat(msgspec.Struct, frozen=True):
    """A sample rate in Hz and a number of channels, of signed 16-bit samples."""

    sample_rate: int
    channels: int = 1

    def __str__(self) -> str:
        return f"{self.sample_rate} Hz x{self.channels}"


class Word(msgspec.Struct, frozen=True):
    """A word and where it lies in the sound: seconds from the first sample of the frame that carries it.

    ``estimated`` is True where the voice gave no timing and the word was placed in proportion.
    """

    text: str
    start: float
    end: float
    estimated: bool = False


class AudioFrame(Frame, frozen=True):
    """Sound: interleaved signed 16-bit little-endian samples."""

    pcm: bytes
    sample_rate: int
    channels: int = 1

    def __post_init__(self) -> None:
        if self.channels < 1:
            raise ValueError(f"{type(self).__name__}: {self.channels} channels; sound has 1 or more")
        if len(self.pcm) % (2 * self.channels):
            raise ValueError(
                f"{type(self).__name__}: {len(self.pcm)} bytes of PCM do not divide into {self.channels}-channel "
                "16-bit samples; collect the stream with voiceflow.audio.Chunker, which never splits a sample"
            )

    @property
    def samples(self) -> npt.NDArray[np.int16]:
        """Read-only view, shape (samples, channels)."""
        import numpy as np  # noqa: PLC0415 - it costs more than all the rest; a program that looks at no samples does without

        return np.frombuffer(self.pcm, "<i2").reshape(-1, self.channels)

    @property
    def duration(self) -> float:
        """Length in seconds."""
        return len(self.pcm) / (2 * self.channels * self.sample_rate)


class InputAudioFrame(AudioFrame, frozen=True):
    """Sound from the caller."""

    lane = Lane.USER
    live = True


class OutputAudioFrame(AudioFrame, frozen=True):
    """Sound for the caller, with the words spoken in this stretch of it.

    A word stands in the frame in which it begins; its end may lie beyond the frame.
    """

    lane = Lane.AGENT

    words: tuple[Word, ...] = ()
    utterance: int = 0


# ----------------------------------------------------------------------------------------------------- text


class TextFrame(Frame, frozen=True):
    """Text of any kind."""

    text: str


class TranscriptFrame(TextFrame, frozen=True):
    """What the caller said, as far as it is known.

    ``stable``: so many leading words will not change any more. ``endpoint``: the recogniser holds that the caller has finished.
    """

    lane = Lane.USER

    final: bool = True
    confidence: float | None = None
    stable: int = 0
    endpoint: bool = False


class LLMTextFrame(TextFrame, frozen=True):
    """A piece of a reply as the language model streams it, cut anywhere."""

    lane = Lane.AGENT
    utterance: int = 0


class SentenceFrame(TextFrame, frozen=True):
    """A piece of a reply that can be spoken by itself: a clause or a sentence."""

    lane = Lane.AGENT
    utterance: int = 0


class SayFrame(TextFrame, frozen=True):
    """Say this, without asking the language model."""

    lane = Lane.AGENT
    utterance: int = 0


# -------------------------------------------------------------------------------------------------- control


class ControlFrame(Frame, frozen=True):
    """Something happened. Past participles are events; the rest are requests."""


class StartFrame(ControlFrame, frozen=True):
    """The session runs. The first frame any node sees; sent by the session alone."""


class EndFrame(ControlFrame, frozen=True):
    """Finish what is in hand, then end. Yield your tail when you get it."""


class SpeechStarted(ControlFrame, frozen=True):
    """The caller's voice began at ``at``; ``probability`` is the detector's, ``level_db`` its level in dB of full scale."""

    lane = Lane.USER
    at: float = 0.0
    probability: float = 1.0
    level_db: float | None = None


class SpeechStopped(ControlFrame, frozen=True):
    """The caller's voice ended at ``at``, ``silence`` seconds ago; ``level_db``: of the whole stretch."""

    lane = Lane.USER
    at: float = 0.0
    silence: float = 0.0
    level_db: float | None = None


class FloorTaken(ControlFrame, frozen=True):
    """From outside: it is the caller's turn now. A button is pressed, or a recogniser that takes turns itself says so."""

    lane = Lane.USER
    why: str = ""


class FloorReleased(ControlFrame, frozen=True):
    """From outside: the caller is done."""

    lane = Lane.USER
    why: str = ""


class TurnStarted(ControlFrame, frozen=True):
    """The caller took the turn."""

    lane = Lane.USER
    why: str = ""


class TurnEnded(ControlFrame, frozen=True):
    """The caller is done; ``text`` is all they said that has not been answered. ``speech_ended`` is when their voice stopped.

    ``continues``: the turn before was taken up again, and this text stands in place of its text.
    """

    lane = Lane.USER
    text: str = ""
    why: str = ""
    speech_ended: float = 0.0
    continues: bool = False


class CallerIdle(ControlFrame, frozen=True):
    """Nobody has spoken for ``idle_s`` seconds, for the ``count``-th time since the caller last did."""

    lane = Lane.USER
    idle_s: float = 0.0
    count: int = 1


class TurnScored(ControlFrame, frozen=True):
    """How probable it is that the caller, whose voice stopped at ``at``, has said all they wanted to say (0 to 1)."""

    lane = Lane.USER
    probability: float
    at: float = 0.0


class ContextFrame(ControlFrame, frozen=True):
    """A conversation to be answered: it starts a reply, so it belongs to the agent's lane."""

    lane = Lane.AGENT
    messages: tuple[Message, ...] = ()
    utterance: int = 0
    tools: tuple[ToolSpec, ...] = ()


class LLMStarted(ControlFrame, frozen=True):
    """A reply begins to stream."""

    lane = Lane.AGENT
    utterance: int = 0


class LLMEnded(ControlFrame, frozen=True):
    """The reply's text is complete."""

    lane = Lane.AGENT
    utterance: int = 0


class LLMUsage(ControlFrame, frozen=True):
    """What a reply cost, in the model's own tokens."""

    travels = Travels.UP
    utterance: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0


class ToolCallFrame(ControlFrame, frozen=True):
    """The reply wants a tool to run."""

    lane = Lane.AGENT
    call: ToolCall
    utterance: int = 0


class ToolStarted(ControlFrame, frozen=True):
    """The tool runs: its call will get a result, whatever happens to the reply."""

    travels = Travels.UP
    call: ToolCall
    utterance: int = 0


class ToolProgress(ControlFrame, frozen=True):
    """How far a tool is, in its own words."""

    travels = Travels.UP
    call: ToolCall
    text: str
    utterance: int = 0


class ToolResultFrame(ControlFrame, frozen=True):
    """The one result of a call, as the text that the model will read."""

    travels = Travels.UP
    call: ToolCall
    text: str
    utterance: int = 0


class ToolsDone(ControlFrame, frozen=True):
    """The reply is complete and every call in it has its result: it is to go on."""

    travels = Travels.UP
    utterance: int = 0


class UtteranceEnded(ControlFrame, frozen=True):
    """All sound of this utterance has been made."""

    lane = Lane.AGENT
    utterance: int = 0


class HoldFrame(ControlFrame, frozen=True):
    """Stop speaking for now, with a fade: the caller may want the turn."""

    perishable = True
    why: str = ""


class ResumeFrame(ControlFrame, frozen=True):
    """It was nothing: go on from the start of the cut word."""

    perishable = True
    why: str = ""


class Heard(msgspec.Struct, frozen=True):
    """What of an utterance reached the ear.

    ``complete``: to the end. ``estimated``: word places or the ear's position were estimates.
    """

    utterance: int
    text: str
    complete: bool
    estimated: bool = False


class PlaybackStarted(ControlFrame, frozen=True):
    """The first sound of an utterance reached the ear at ``at``."""

    travels = Travels.UP
    utterance: int = 0
    at: float = 0.0


class WordsHeard(ControlFrame, frozen=True):
    """These words of an utterance have just reached the ear, at ``at``."""

    travels = Travels.UP
    text: str
    utterance: int = 0
    at: float = 0.0


class PlaybackStopped(ControlFrame, frozen=True):
    """An utterance has been heard to its end, or nothing more of it will be. An interrupt reports by itself."""

    travels = Travels.UP
    heard: Heard
    at: float = 0.0


class ErrorFrame(ControlFrame, frozen=True):
    """A node failed on a frame, and the session goes on. ``error`` is the exception's text, never its secrets."""

    travels = Travels.UP
    node: str = ""
    frame: str = ""
    error: str = ""


class InterruptFrame(ControlFrame, frozen=True):
    """Stop all that the agent is doing. Never queued: yielding it is the interrupt."""

    reason: str = ""
