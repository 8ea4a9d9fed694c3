"""Our own protocol, the client's side: an agent of ours that calls a server of ours, in frames.

The one rule: it is a wire like any other, on a line like any other; only that here the far end is an agent, and we are its caller.
Pure. See ``docs/websocket.md``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import msgspec

from voiceflow.frames import UNSTAMPED, AudioFormat, Frame, InputAudioFrame, OutputAudioFrame, TranscriptFrame, replace
from voiceflow.phone import DigitsFrame
from voiceflow.transports.wire import (
    AppMessage,
    CallEnded,
    CallResumed,
    CallStarted,
    Cleared,
    Message,
    Received,
    TellFrame,
    WireError,
)
from voiceflow.transports.wire_messages import (
    App,
    Clear,
    Digits,
    End,
    Ended,
    FromServerInFrames,
    Interrupt,
    PlayedSamples,
    Said,
    Start,
    Started,
    State,
    Text,
)

__all__ = ["FramesClientWire"]

Told = Callable[[Frame], object]


class FramesClientWire:
    """One connection to a server. ``hears``: the rate in which it wants the far agent's sound; ``speaks``: of its own.

    ``told``: given what the server tells of the call: what it understood, what its agent said and was heard to say, tools, errors.
    ``resume``: what the connection before was given, to go on with its call. What the pipeline tells goes out as typed text (a final
    TranscriptFrame), keys (DigitsFrame) and messages for the far agent's code (TellFrame).
    """

    name = "websocket to"
    block_ms = 20.0
    ahead_s = 0.0
    clears = False
    proof = ""
    tells: tuple[type[Frame], ...] = (DigitsFrame, TellFrame, TranscriptFrame)

    def __init__(
        self, hears: AudioFormat, speaks: AudioFormat, *, token: str = "", who: str = "", resume: str = "", told: Told | None = None
    ) -> None:
        self.hears = hears
        self.speaks = speaks
        self.faults = 0
        self.resume_token = ""
        self.resume_s = 0.0
        self._start = Start(sample_rate=speaks.sample_rate, wants=hears.sample_rate, token=token, resume=resume, who=who)
        self._told = told
        self._on = self._over = False

    def hello(self) -> Message:
        """The first message."""
        return msgspec.msgpack.encode(self._start)

    def go_on_from(self, before: Self) -> None:
        """The server sees to it."""

    # ----------------------------------------------------------------------------------------- from the server

    def receive(self, message: Message) -> list[Received]:
        """See Wire."""
        try:
            said: Any = FromServerInFrames.decode(message if isinstance(message, bytes) else message.encode())
        except (msgspec.DecodeError, RecursionError, UnicodeError):
            if not self._on:
                raise WireError("the server does not speak voiceflow's frames") from None
            self.faults += 1
            return []
        if isinstance(said, Started):
            return self._begin(said)
        if isinstance(said, Ended):
            self._over = True
            return [CallEnded(said.reason or "the far agent ended it")]
        if not self._on:
            raise WireError(f"the server said {type(said).__name__} before it said started")
        if isinstance(said, OutputAudioFrame):
            return self._sound(said)
        if isinstance(said, Clear):
            return [Cleared()]
        return self._news(said)

    def _begin(self, started: Started) -> list[Received]:
        if self._on:
            self.faults += 1
            return []
        got = AudioFormat(started.speaks.sample_rate), AudioFormat(started.hears.sample_rate)
        if got != (self.hears, self.speaks):
            raise WireError(f"the server speaks {got[0]} and hears {got[1]}; {self.hears} and {self.speaks} were asked for")
        self._on = True
        self.resume_token, self.resume_s = started.resume, started.resume_s
        return [CallResumed(self._start.resume) if started.resumed else CallStarted(started.call)]

    def _sound(self, sound: OutputAudioFrame) -> list[Received]:
        if (sound.sample_rate, sound.channels) != (self.hears.sample_rate, 1):
            self.faults += 1
            return []
        return [InputAudioFrame(pcm=sound.pcm, sample_rate=sound.sample_rate)]

    def _news(self, said: Any) -> list[Received]:
        if isinstance(said, TellFrame):
            return [AppMessage(kind=said.kind, data=said.data)]
        if self._told is not None:
            self._told(TellFrame(kind="state", data=said.state) if isinstance(said, State) else replace(said, epoch=UNSTAMPED))
        return []

    # ------------------------------------------------------------------------------------------- to the server

    def answers(self) -> list[Message]:
        """None are asked for."""
        return []

    def audio(self, pcm: bytes) -> list[Message]:
        """Our own voice."""
        return self._say(InputAudioFrame(pcm=pcm, sample_rate=self.speaks.sample_rate)) if pcm else []

    def clear(self) -> list[Message]:
        """The server has no buffer."""
        return []

    def mark(self, name: str) -> list[Message]:
        """There are none."""
        return []

    def played(self, samples: int) -> list[Message]:
        """So much of the far agent's sound has been heard here since ``started``."""
        return self._say(PlayedSamples(samples))

    def tell(self, frame: Frame) -> list[Message]:
        """See the class."""
        match frame:
            case TranscriptFrame(text=text, final=True):
                return self._say(Text(text))
            case DigitsFrame(digits=digits):
                return self._say(Digits(digits.replace("w", ""))) if digits.strip("w") else []
            case TellFrame(kind="interrupt", data=reason):
                return self._say(Interrupt(str(reason or "")))
            case TellFrame(kind=kind, data=data):
                return self._say(App(kind, data))
        return []

    def end(self, reason: str) -> list[Message]:
        """Hang up."""
        last = self._say(End())
        self._over = True
        return last

    def _say(self, said: Said | InputAudioFrame) -> list[Message]:
        return [msgspec.msgpack.encode(said)] if self._on and not self._over else []
