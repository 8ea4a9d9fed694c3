"""The messages of our own protocol, as values: what a client says and what a server says, in JSON and in MessagePack.

The one rule: what is not listed here does not come in and does not go out. See ``docs/websocket.md``.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

import msgspec
from msgspec import Meta

from voiceflow.frames import (
    ErrorFrame,
    Frame,
    InputAudioFrame,
    InterruptFrame,
    LLMStarted,
    OutputAudioFrame,
    PlaybackStarted,
    PlaybackStopped,
    SpeechStarted,
    SpeechStopped,
    ToolResultFrame,
    ToolStarted,
    TranscriptFrame,
    TurnEnded,
    TurnStarted,
    UtteranceEnded,
    WordsHeard,
)
from voiceflow.transports.wire import TellFrame

__all__ = [
    "TOLD",
    "VERSION",
    "App",
    "Clear",
    "Digits",
    "End",
    "Ended",
    "FromClient",
    "FromClientInFrames",
    "FromServerInFrames",
    "Interrupt",
    "Mute",
    "Ping",
    "PlayedSamples",
    "Pong",
    "Said",
    "Sound",
    "Start",
    "Started",
    "State",
    "TakeFloor",
    "Text",
    "as_json",
]

VERSION = 1

Text4000 = Annotated[str, Meta(max_length=4000)]
Short = Annotated[str, Meta(max_length=200)]


class Said(msgspec.Struct, frozen=True, tag_field="type"):
    """The root of all messages that are no frames."""


# ------------------------------------------------------------------------------------------- what a client says


class Start(Said, frozen=True, tag="start"):
    """The first message. ``sample_rate``: of the caller's sound; ``wants``: of the agent's, 0 for the server's choice."""

    version: int = VERSION
    sample_rate: int = 16000
    wants: int = 0
    token: Short = ""
    resume: Short = ""
    who: Short = ""
    """For the server's log, and its agent."""


class PlayedSamples(Said, frozen=True, tag="played"):
    """So much was played since ``started``."""

    samples: Annotated[int, Meta(ge=0, le=1 << 62)]


class Text(Said, frozen=True, tag="text"):
    """The caller typed this."""

    text: Text4000


class Digits(Said, frozen=True, tag="digits"):
    """Keys were pressed."""

    digits: Short


class Interrupt(Said, frozen=True, tag="interrupt"):
    """Stop what the agent is saying and doing."""

    reason: Short = ""


class Mute(Said, frozen=True, tag="mute"):
    """The microphone is off, or on again."""

    muted: bool


class TakeFloor(Said, frozen=True, tag="floor"):
    """Push to talk: the caller takes the turn, or gives it back."""

    taken: bool


class App(Said, frozen=True, tag="app"):
    """For the agent's own code."""

    kind: Short
    data: Any = None


class Ping(Said, frozen=True, tag="ping"):
    """Say something back: a browser's page can send no ping of the websocket itself."""


class End(Said, frozen=True, tag="end"):
    """The caller hangs up."""


# ------------------------------------------------------------------------------------------- what a server says


class Sound(msgspec.Struct, frozen=True):
    """What is known of sound."""

    sample_rate: int


class Started(Said, frozen=True, tag="started"):
    """The call is on."""

    hears: Sound
    speaks: Sound
    call: str = ""
    version: int = VERSION
    resume: str = ""
    resume_s: float = 0.0
    resumed: bool = False


class Clear(Said, frozen=True, tag="clear"):
    """Throw away all sound that has not been played."""


class State(Said, frozen=True, tag="state"):
    """What the agent does: ``listening``, ``thinking`` or ``speaking``."""

    state: str


class Pong(Said, frozen=True, tag="pong"):
    """The answer to a ping."""


class Ended(Said, frozen=True, tag="ended"):
    """The call is over."""

    reason: str = ""


Control: TypeAlias = Start | PlayedSamples | Text | Digits | Interrupt | Mute | TakeFloor | App | Ping | End

FromClient = msgspec.json.Decoder(Control)
"""The JSON of a client."""

FromClientInFrames = msgspec.msgpack.Decoder(Control | InputAudioFrame | TranscriptFrame)
"""The MessagePack of a client. Sound comes as its frame; typed words may."""

TOLD: tuple[type[Frame], ...] = (
    SpeechStarted,
    SpeechStopped,
    TranscriptFrame,
    TurnStarted,
    TurnEnded,
    PlaybackStarted,
    WordsHeard,
    UtteranceEnded,
    PlaybackStopped,
    InterruptFrame,
    LLMStarted,
    ToolStarted,
    ToolResultFrame,
    ErrorFrame,
    TellFrame,
)
"""What a client is told of. What is in a tool's call, and an error's text, stay here."""

FromServerInFrames = msgspec.msgpack.Decoder(
    Started
    | Clear
    | State
    | Pong
    | Ended
    | OutputAudioFrame
    | SpeechStarted
    | SpeechStopped
    | TranscriptFrame
    | TurnStarted
    | TurnEnded
    | PlaybackStarted
    | WordsHeard
    | UtteranceEnded
    | PlaybackStopped
    | InterruptFrame
    | TellFrame
)
"""The MessagePack of a server: frames in their own encoding."""

RESERVED = {struct.__struct_config__.tag for struct in (Started, Clear, State, Pong, Ended)} | {
    "speech_started", "speech_stopped", "transcript", "turn_started", "turn_ended", "playback_started", "words_heard", "utterance_ended",
    "playback_stopped", "interrupted", "tool_started", "tool_ended", "error",
}  # fmt: skip
"""Words of the protocol, which no application may say."""


def as_json(frame: Frame) -> dict[str, Any] | None:
    """What a client that speaks JSON is told of a frame; None for nothing."""
    match frame:
        case SpeechStarted():
            return {"type": "speech_started"}
        case SpeechStopped():
            return {"type": "speech_stopped"}
        case TranscriptFrame(text=text, final=final):
            return {"type": "transcript", "text": text, "final": final}
        case TurnStarted():
            return {"type": "turn_started"}
        case TurnEnded(text=text, continues=continues):
            return {"type": "turn_ended", "text": text, "continues": continues}
        case PlaybackStarted(utterance=utterance):
            return {"type": "playback_started", "utterance": utterance}
        case WordsHeard(utterance=utterance, text=text):
            return {"type": "words_heard", "utterance": utterance, "text": text}
        case UtteranceEnded(utterance=utterance):
            return {"type": "utterance_ended", "utterance": utterance}
        case PlaybackStopped(heard=heard):
            return {"type": "playback_stopped", **msgspec.to_builtins(heard)}
        case InterruptFrame(reason=reason):
            return {"type": "interrupted", "reason": reason}
        case ToolStarted(call=call):
            return {"type": "tool_started", "name": call.name}
        case ToolResultFrame(call=call):
            return {"type": "tool_ended", "name": call.name}
        case ErrorFrame(node=node):
            return {"type": "error", "text": f"{node} failed; the call goes on"}
        case TellFrame(kind=kind, data=data):
            return _of_the_application(kind, data)
    return None


def _of_the_application(kind: str, data: Any) -> dict[str, Any] | None:
    if not kind or kind in RESERVED:
        return None
    return (
        {"type": kind, **{name: value for name, value in data.items() if name != "type"}}
        if isinstance(data, dict)
        else {"type": kind, "data": data}
    )
