"""Our own protocol, the server's side: JSON and raw sound for a page, or frames in MessagePack for a program with voiceflow.

The one rule: a client is believed in nothing. What it says is checked against ``wire_messages``; what does not fit is passed over and
counted, and only a client that cannot be understood at all is hung up on. See ``docs/websocket.md``. Pure.
"""

from __future__ import annotations

import logging
import secrets
from dataclasses import dataclass, field
from typing import Any, Self

import msgspec

from voiceflow.errors import what_and_where
from voiceflow.frames import (
    UNSTAMPED,
    AudioFormat,
    ErrorFrame,
    FloorReleased,
    FloorTaken,
    Frame,
    InputAudioFrame,
    InterruptFrame,
    LLMStarted,
    OutputAudioFrame,
    PlaybackStarted,
    PlaybackStopped,
    ToolResultFrame,
    ToolStarted,
    TranscriptFrame,
    TurnEnded,
    TurnStarted,
    replace,
)
from voiceflow.phone import KEYS, DigitReceived
from voiceflow.transports.access import same
from voiceflow.transports.wire import (
    POLICY,
    PROTOCOL,
    RATES,
    AppMessage,
    CallEnded,
    CallResumed,
    CallStarted,
    Message,
    Played,
    Received,
    TellFrame,
    WireError,
)
from voiceflow.transports.wire_messages import (
    TOLD,
    VERSION,
    App,
    Clear,
    Digits,
    End,
    Ended,
    FromClient,
    FromClientInFrames,
    Interrupt,
    Mute,
    Ping,
    PlayedSamples,
    Pong,
    Said,
    Sound,
    Start,
    Started,
    State,
    TakeFloor,
    Text,
    as_json,
)

__all__ = ["FramesOptions", "FramesWire"]

log = logging.getLogger("voiceflow")

FAULTS = 500
"""A client that has said so much nonsense is hung up on."""

LONGEST_S = 1.0
"""Of sound in one message."""


@dataclass(frozen=True, slots=True)
class FramesOptions:
    """``token``: who calls has to show it. ``speaks``: the agent's rate in Hz, for a client that wants no other. ``ahead_s``: how far ahead of
    its time sound is sent. ``resume_s``: how long a call waits for a client whose connection was lost; 0 for not at all.
    """

    token: str = field(default="", repr=False)
    speaks: int = 24000
    ahead_s: float = 0.2
    resume_s: float = 15.0

    def __post_init__(self) -> None:
        if self.speaks not in RATES:
            raise ValueError(f"FramesOptions: speaks is {self.speaks}, it must be {RATES.start} to {RATES.stop - 1} Hz")
        for name in ("ahead_s", "resume_s"):
            if getattr(self, name) < 0:
                raise ValueError(f"FramesOptions: {name} is {getattr(self, name)}, it must not be negative")


class FramesWire:
    """One connection of one client. ``shown``: it has shown the token already, in a header."""

    name = "websocket"
    block_ms = 20.0
    clears = True
    proof = "reports"
    tells = TOLD

    def __init__(self, options: FramesOptions | None = None, *, shown: bool = False) -> None:
        self._options = options or FramesOptions()
        self._shown = shown or not self._options.token
        self.hears = AudioFormat(16000)
        self.speaks = AudioFormat(self._options.speaks)
        self.ahead_s = self._options.ahead_s
        self.faults = 0
        self.resume_token = ""
        self.resume_s = self._options.resume_s
        self.call = ""
        self._answers: list[Message] = []
        self._in_frames = False
        self._on = self._over = False
        self._muted = False
        self._state = "listening"

    # ------------------------------------------------------------------------------------------- from the client

    def receive(self, message: Message) -> list[Received]:
        """What a message says. The first must be ``start``: WireError if it is not."""
        if self._over:
            return []
        if not self._on:
            return self._start(message)
        if isinstance(message, bytes) and not self._in_frames:
            return self._sound(message)
        if isinstance(message, str) and self._in_frames:
            return self._fault("text, from a client that began with frames")
        try:
            return self._understand(_decoded(message))
        except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
            what, where = what_and_where(error)
            return self._fault(f"a message that is not understood: {what[:80]!r} at {where[:80] or 'the top'}")

    def _start(self, message: Message) -> list[Received]:
        self._in_frames = isinstance(message, bytes)
        try:
            start = _decoded(message)
        except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
            kind = f"{len(message)} bytes that are no MessagePack of" if self._in_frames else "text that is no JSON of"
            raise WireError(f"the first message has to be a start, and was {kind} one: {what_and_where(error)[0][:60]}", PROTOCOL) from None
        if not isinstance(start, Start):
            raise WireError(f"the first message has to be a start, and was {type(start).__name__}", PROTOCOL)
        if not self._shown and not same(start.token, self._options.token):
            raise WireError("this server wants its token, in the start or in a header: Authorization: Bearer TOKEN", POLICY)
        if start.version != VERSION:
            raise WireError(f"version {start.version} of the protocol is not spoken here; {VERSION} is", PROTOCOL)
        wants = start.wants or self._options.speaks
        for name, rate in (("sample_rate", start.sample_rate), ("wants", wants)):
            if rate not in RATES:
                raise WireError(f"{name} is {rate}; it has to be {RATES.start} to {RATES.stop - 1} Hz", PROTOCOL)
        self.hears, self.speaks = AudioFormat(start.sample_rate), AudioFormat(wants)
        self._on = True
        if start.resume:
            return [CallResumed(start.resume)]
        self.call = secrets.token_hex(8)
        self._greet(resumed=False)
        return [CallStarted(self.call, caller="".join(filter(str.isprintable, start.who)))]

    def go_on_from(self, before: Self) -> None:
        """See Resumable. The rates and the encoding have to be those of before."""
        if (self.hears, self.speaks, self._in_frames) != (before.hears, before.speaks, before._in_frames):
            raise WireError("a call is taken up again with the rates and the encoding that it began with", POLICY)
        self.call, self._state, self._muted = before.call, before._state, before._muted
        self._greet(resumed=True)

    def _greet(self, *, resumed: bool) -> None:
        if self.resume_s > 0:
            self.resume_token = secrets.token_urlsafe(24)
        hears, speaks = Sound(self.hears.sample_rate), Sound(self.speaks.sample_rate)
        started = Started(hears, speaks, self.call, resume=self.resume_token, resume_s=self.resume_s, resumed=resumed)
        self._answers += [self._encoded(started), self._encoded(State(self._state))]

    def _understand(self, said: Any) -> list[Received]:
        match said:
            case InputAudioFrame(pcm=pcm, sample_rate=rate, channels=channels):
                return self._sound(pcm, AudioFormat(rate, channels))
            case PlayedSamples(samples):
                return [Played(samples)]
            case Text(text) | TranscriptFrame(text=text):
                return [TranscriptFrame(text)] if text.strip() else self._fault("typed words that are none")
            case Digits(digits) if digits and set(digits) <= set(KEYS):
                return [DigitReceived(digit) for digit in digits]
            case Interrupt(reason):
                return [InterruptFrame(reason=reason or "the caller asked for it")]
            case Mute(muted):
                was, self._muted = self._muted, muted
                return [FloorReleased(why="muted")] if muted and not was else []
            case TakeFloor(taken):
                return [FloorTaken(why="the client")] if taken else [FloorReleased(why="the client")]
            case App(kind, data):
                return [AppMessage(kind=kind, data=data)]
            case Ping():
                self._answers.append(self._encoded(Pong()))
                return []
            case End():
                self._over = True
                return [CallEnded("the caller hung up")]
        return self._fault(f"a {type(said).__name__} that has no meaning here")

    def _sound(self, pcm: bytes, form: AudioFormat | None = None) -> list[Received]:
        if form is not None and form != self.hears:
            return self._fault(f"sound of {form} in a call of {self.hears}")
        if not pcm or len(pcm) % 2 or len(pcm) > 2 * LONGEST_S * self.hears.sample_rate:
            return self._fault(f"{len(pcm)} bytes of sound; a message holds whole samples, and at most {LONGEST_S:g} s")
        return [] if self._muted else [InputAudioFrame(pcm=pcm, sample_rate=self.hears.sample_rate)]

    def _fault(self, what: str) -> list[Received]:
        self.faults += 1
        if self.faults == 1:
            log.warning("%s: %s was passed over; more of the like are only counted", self.name, what)
        if self.faults > FAULTS:
            raise WireError(f"more than {FAULTS} messages made no sense, the last of them {what}", PROTOCOL)
        return []

    # --------------------------------------------------------------------------------------------- to the client

    def answers(self) -> list[Message]:
        """``started``, when it is due, and ``pong``."""
        answers, self._answers = self._answers, []
        return answers

    def audio(self, pcm: bytes) -> list[Message]:
        """Sound, signed 16-bit in ``speaks``."""
        if not self._is_on or not pcm:
            return []
        return [self._packed(OutputAudioFrame(pcm=pcm, sample_rate=self.speaks.sample_rate)) if self._in_frames else pcm]

    def clear(self) -> list[Message]:
        """Throw away what has not been played."""
        return self._say(Clear())

    def mark(self, name: str) -> list[Message]:
        """There are none."""
        return []

    def tell(self, frame: Frame) -> list[Message]:
        """What happens in the call, and then what the agent does, if that is new."""
        if not self._is_on:
            return []
        return [*self._tell(frame), *self._tell_state(frame)]

    def _tell(self, frame: Frame) -> list[Message]:
        said = as_json(frame)
        if said is None:
            return []
        if not self._in_frames:
            return [msgspec.json.encode(said).decode()]
        if isinstance(frame, ToolStarted | ToolResultFrame | ErrorFrame):
            frame = TellFrame(kind=said.pop("type"), data=said)
        return [self._packed(frame)]

    def _tell_state(self, frame: Frame) -> list[Message]:
        state = _state_after(frame)
        if state is None or state == self._state:
            return []
        self._state = state
        return self._say(State(state))

    def end(self, reason: str) -> list[Message]:
        """The agent's side ends the call."""
        last = self._say(Ended(reason))
        self._over = True
        return last

    @property
    def _is_on(self) -> bool:
        return self._on and not self._over

    def _say(self, said: Said) -> list[Message]:
        return [self._encoded(said)] if self._is_on else []

    def _encoded(self, said: Said) -> Message:
        return self._packed(said) if self._in_frames else msgspec.json.encode(said).decode()

    def _packed(self, value: Frame | Said) -> bytes:
        """In MessagePack; a frame without what means something in this process only."""
        return msgspec.msgpack.encode(replace(value, pts=None, epoch=UNSTAMPED) if isinstance(value, Frame) else value)


def _decoded(message: Message) -> Any:
    return FromClientInFrames.decode(message) if isinstance(message, bytes) else FromClient.decode(message)


def _state_after(frame: Frame) -> str | None:
    if isinstance(frame, PlaybackStarted):
        return "speaking"
    if isinstance(frame, LLMStarted) or (isinstance(frame, TurnEnded) and frame.text):
        return "thinking"
    return "listening" if isinstance(frame, PlaybackStopped | InterruptFrame | TurnStarted | TurnEnded) else None
