"""What a line speaks: the messages of one far end, as a pure class, sans I/O.

The one rule: a wire knows the messages and nothing else. It opens no socket, keeps no time and makes no decision about a
call; ``line`` carries its messages and stands between it and the playout.

A wire is made for one call, takes each message that came and gives the messages that are to leave.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, Self, runtime_checkable

from voiceflow.frames import AudioFormat, ControlFrame, Frame, Lane

__all__ = [
    "BUSY",
    "FAULT",
    "GOING_AWAY",
    "POLICY",
    "PROTOCOL",
    "RATES",
    "RESTARTS",
    "AppMessage",
    "CallEnded",
    "CallResumed",
    "CallStarted",
    "Cleared",
    "MarkReturned",
    "Message",
    "Played",
    "Received",
    "Resumable",
    "TellFrame",
    "Wire",
    "WireError",
]

Message = str | bytes
"""Text or binary. A stream without messages (TCP) is cut into them by its own wire."""

RATES = range(8000, 48001)
"""Sample rates in Hz that are believed of a far end's sound, and spoken to it."""

GOING_AWAY, PROTOCOL, POLICY, FAULT, RESTARTS, BUSY = 1001, 1002, 1008, 1011, 1012, 1013
"""Close codes of RFC 6455 and the registry it begins."""


class WireError(Exception):
    """The far end broke its protocol so badly that the call cannot go on. The text says what came and what was expected.

    ``code``: the close code of a websocket.
    """

    def __init__(self, text: str, code: int = PROTOCOL) -> None:
        super().__init__(text)
        self.code = code


class AppMessage(ControlFrame, frozen=True):
    """The far end's program says something of its own: ``data`` is plain values, as JSON has them."""

    lane = Lane.USER
    kind: str
    data: Any = None


class TellFrame(ControlFrame, frozen=True):
    """Tell the far end's program something of the application's own, at once: ``data`` is plain values, as JSON has them."""

    kind: str
    data: Any = None


@dataclass(frozen=True, slots=True)
class CallStarted:
    """The far end has said what it has to say before sound flows. From now on ``hears`` and ``speaks`` hold."""

    call: str
    """Its own number for the call, or "" where it has none."""
    caller: str = ""
    called: str = ""
    parameters: Mapping[str, str] = field(default_factory=dict)
    """What the application gave the carrier to pass on."""


@dataclass(frozen=True, slots=True)
class CallResumed:
    """In place of CallStarted: the far end goes on with a call whose connection was lost, and shows what it was given for that."""

    token: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Cleared:
    """The far end takes back the sound that it sent and that was not played: for the wire of a side that calls."""


@dataclass(frozen=True, slots=True)
class MarkReturned:
    """A mark came back: all before it was played, or cleared (the playout knows which)."""

    name: str


@dataclass(frozen=True, slots=True)
class Played:
    """The far end has played so many samples of the sound that was sent to it, silence included, counted from the call's start in
    ``speaks``; what it threw away at a clear counts as played. What never left is no concern of a wire: the line knows."""

    samples: int


@dataclass(frozen=True, slots=True)
class CallEnded:
    """The far end says that the call is over."""

    reason: str = ""


Received = Frame | CallStarted | CallResumed | MarkReturned | Played | Cleared | CallEnded
"""Frames are the caller's: sound, keys, typed text (a final TranscriptFrame), ``FloorTaken`` and ``FloorReleased``, ``AnsweredBy``,
an ``AppMessage``, an ``InterruptFrame`` (acted on at once), an ``EndFrame`` (finish what is in hand, then end)."""


class Wire(Protocol):
    """One far end's protocol. Methods that give messages give [] for what it has no word for."""

    name: str
    """For the log: ``twilio``."""
    hears: AudioFormat
    """Of the caller's sound, as ``receive`` gives it."""
    speaks: AudioFormat
    """Of the agent's sound, as ``audio`` takes it."""
    block_ms: float
    """How much sound one message carries."""
    ahead_s: float
    """How far ahead of its time sound may be sent. More than 0 only where there is a ``clear``."""
    clears: bool
    """The far end has a buffer, and a message that empties it."""
    proof: str
    """How it tells what was played: ``marks``, ``reports``, or "" for not at all."""

    @property
    def tells(self) -> tuple[type[Frame], ...]:
        """Types of frames that ``tell`` has a word for; () where it has none. The line sees to it that they get there."""

    def answers(self) -> list[Message]:
        """What is to leave in answer to what came, the greeting included: asked for after each ``receive``, and then forgotten."""

    def receive(self, message: Message) -> list[Received]:
        """What a message says. What it cannot make sense of is passed over and counted in ``faults``; raises WireError if the call cannot go on."""

    faults: int
    """Messages that made no sense, and were passed over."""

    def audio(self, pcm: bytes) -> list[Message]:
        """Sound, signed 16-bit in ``speaks``."""

    def clear(self) -> list[Message]:
        """Throw away what has not been played."""

    def mark(self, name: str) -> list[Message]:
        """Say when all before this has been played."""

    def tell(self, frame: Frame) -> list[Message]:
        """Anything else the far end may want to know: captions, states, keys to press. [] before the start and after the end."""

    def end(self, reason: str) -> list[Message]:
        """The agent's side ends the call."""


@runtime_checkable
class Resumable(Wire, Protocol):
    """A protocol in which a far end whose connection was lost can come back to its call. Each connection has a wire of its own."""

    resume_token: str
    """What the far end has to show; "" while it cannot come back."""
    resume_s: float
    """How long the call waits for it."""

    def go_on_from(self, before: Self) -> None:
        """This connection's far end has shown the token: it carries on the call of that one. Raises WireError if it does not fit."""
