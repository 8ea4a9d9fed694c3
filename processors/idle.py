"""What to do when nobody speaks: an event, a question whether somebody is there, at last a goodbye.

Owns the pure ``IdleTimer`` and the node around it. The one rule: only silence counts. The timer stands while anyone speaks,
a reply is being thought of, a tool runs or something is still to be heard; a noise makes it stand, but not begin again.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import msgspec

from voiceflow.frames import (
    CallerIdle,
    EndFrame,
    PlaybackStarted,
    PlaybackStopped,
    SayFrame,
    SpeechStarted,
    SpeechStopped,
    ToolResultFrame,
    ToolStarted,
    TurnEnded,
    TurnStarted,
)
from voiceflow.phone import DigitReceived
from voiceflow.processor import Processor
from voiceflow.tasks import woken

if TYPE_CHECKING:
    from voiceflow.interruption import Interruption

__all__ = ["Idle", "IdleOptions", "IdleSignal", "IdleTimer"]

IdleSignal = (
    SpeechStarted
    | SpeechStopped
    | TurnStarted
    | TurnEnded
    | PlaybackStarted
    | PlaybackStopped
    | ToolStarted
    | ToolResultFrame
    | DigitReceived
)

_EPSILON_S = 1e-6


class IdleOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """How long silence may last, and what is said then."""

    idle_s: float = 8.0
    """Silence after which the caller is idle."""
    prompts: tuple[str, ...] = ()
    """Said at the first time, the second time and so on. With none of them there is the event alone."""
    goodbye: str = ""
    """Said at the time after the last prompt; then the call ends. "": it does not."""
    reply_timeout_s: float = 15.0
    """A reply (or a prompt) that is not heard by then is not waited for any more."""
    noise_s: float = 30.0
    """A voice that goes on for so long without a break is taken for a noise, and the timer runs."""

    def __post_init__(self) -> None:
        for name in ("idle_s", "reply_timeout_s", "noise_s"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"IdleOptions.{name} is {getattr(self, name)!r}; it must be more than 0 seconds, and finite")
        for index, prompt in enumerate(self.prompts):
            if not prompt.strip():
                raise ValueError(f"IdleOptions.prompts[{index}] is blank; leave it out")


class IdleTimer:
    """Counts the silence. Give it every signal, and :meth:`tick` it when ``deadline`` has come. Times in seconds.

    It fires once in each silence: another silence begins when somebody has spoken. ``count`` begins again with the
    caller's words. Silence counts from the first :meth:`start` on.
    """

    def __init__(self, options: IdleOptions | None = None) -> None:
        self.options = options or IdleOptions()
        self.count = 0
        """How often it has fired since the caller last spoke."""
        self._is_armed = False
        self._silent_s = 0.0  # up to _since
        self._since = 0.0
        self._voice_from: float | None = None
        self._in_turn = False
        self._awaited_from: float | None = None  # a reply or a prompt
        self._in_reply = False  # it is a reply: what is said meanwhile without being asked for (utterance 0) is not it
        self._playing: set[int] = set()
        self._tools: set[str] = set()

    def start(self, now: float) -> None:
        """The call begins: silence counts."""
        self._since, self._is_armed = now, True

    def step(self, signal: IdleSignal, now: float) -> None:
        """A signal came."""
        self._count_up_to(now)
        if isinstance(signal, SpeechStarted):
            self._voice_from = now
        elif isinstance(signal, SpeechStopped):
            self._voice_from = None
        elif isinstance(signal, TurnStarted):
            self._in_turn = True
        elif isinstance(signal, TurnEnded):
            self._in_turn = False
            if signal.text.strip():
                self.count = 0
                self._await_reply(now)
        elif isinstance(signal, PlaybackStarted):
            self._playing.add(signal.utterance)
            if signal.utterance or not self._in_reply:
                self._awaited_from = None
            self._begin_anew()
        elif isinstance(signal, PlaybackStopped):
            self._playing.discard(signal.heard.utterance)
            if signal.heard.utterance or not self._in_reply:
                self._awaited_from = None
            self._begin_anew()
        elif isinstance(signal, DigitReceived):
            self.count = 0
            self._begin_anew()
        elif isinstance(signal, ToolStarted):
            self._tools.add(signal.call.id)
        else:
            self._tools.discard(signal.call.id)
            self._await_reply(now)

    def interrupted(self, now: float) -> None:
        """The agent was silenced. Its tools run on, but nothing waits for them."""
        self._count_up_to(now)
        self._playing.clear()
        self._tools.clear()
        self._awaited_from = None
        self._begin_anew()

    def prompted(self, now: float) -> None:
        """A prompt was given out and is to be heard."""
        self._count_up_to(now)
        self._awaited_from, self._in_reply = now, False
        self._begin_anew()

    def tick(self, now: float) -> CallerIdle | None:
        """Time has passed; an event if the silence has become too long."""
        due = self.deadline
        if due is None or due > now + _EPSILON_S:
            return None
        self._count_up_to(now)
        if self._silent_s < self.options.idle_s - _EPSILON_S:
            return None
        self._is_armed = False
        self.count += 1
        return CallerIdle(idle_s=self._silent_s, count=self.count)

    @property
    def deadline(self) -> float | None:
        """When to tick, if nothing comes before; None: never."""
        runs_from = self._runs_from
        if not self._is_armed or self._in_turn or runs_from == math.inf:
            return None
        return max(self._since, runs_from) + max(self.options.idle_s - self._silent_s, 0.0)

    def _await_reply(self, now: float) -> None:
        self._awaited_from, self._in_reply = now, True
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._silent_s, self._is_armed = 0.0, True

    @property
    def _runs_from(self) -> float:
        """From when on the present state is silence; ``math.inf``: it is not."""
        if self._playing or self._tools:
            return math.inf
        waits = [-math.inf]
        if self._voice_from is not None:
            waits.append(self._voice_from + self.options.noise_s)
        if self._awaited_from is not None:
            waits.append(self._awaited_from + self.options.reply_timeout_s)
        return max(waits)

    def _count_up_to(self, now: float) -> None:
        now = max(now, self._since)
        self._silent_s += max(now - max(self._since, self._runs_from), 0.0)
        self._since = now


class Idle(Processor):
    """Notices that the caller is silent: neither speaks nor presses a key. Stands behind ``Turns``, whose frames it hands on. Instant.

    Yields ``CallerIdle``; then, by its options, a prompt or the goodbye as ``SayFrame``. After the goodbye it ends the
    call, which lets the goodbye be heard first. No timer runs once the call is ending, and no task is left.
    """

    def __init__(self, options: IdleOptions | None = None) -> None:
        self.timer = IdleTimer(options)
        self._wake = asyncio.Event()
        self._is_over = False

    async def start(self) -> None:
        """Begin to count."""
        self.timer.start(self.session.time())

    def process(self, frame: IdleSignal | EndFrame) -> IdleSignal | None:
        """Take note, and hand the frame on."""
        self._wake.set()
        if isinstance(frame, EndFrame):
            self._is_over = True
            return None
        self.timer.step(frame, self.session.time())
        return frame

    async def run(self) -> AsyncIterator[CallerIdle | SayFrame]:
        """Wait for silence."""
        options = self.timer.options
        while not self._is_over:
            await woken(self._wake, self.timer.deadline)
            event = None if self._is_over else self.timer.tick(self.session.time())
            if event is None:
                continue
            yield event
            is_last = event.count > len(options.prompts)
            text = options.goodbye if is_last else options.prompts[event.count - 1]
            if text:
                self.timer.prompted(self.session.time())
                yield SayFrame(text, epoch=self.session.epoch)
            if text and is_last:
                self.session.end()
                self._is_over = True

    def on_interrupt(self, interrupt: Interruption) -> None:
        """The agent is silent now."""
        self.timer.interrupted(interrupt.at)
        self._wake.set()
