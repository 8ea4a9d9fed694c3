"""The caller of a scene: does what the scene says, when it says so.

The one rule: times are kept to the sample on the session's clock, and each thing done is noted with its first and its last audible
sample, which is what everything is measured from.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from voiceflow.frames import AudioFormat, InputAudioFrame
from voiceflow.interruption import Interruption
from voiceflow.processor import Processor
from voiceflow.score.recording import Track
from voiceflow.score.scenes import Action, Scene

__all__ = ["CALLER_RATE", "Air", "CallerLine", "Clip", "Done", "Patience", "Play", "spoken"]

Samples = npt.NDArray[np.int16]

CALLER_RATE = 16000
FRAME_S = 0.02
LONGEST_S = 90.0
"""No scene lasts longer."""


@dataclass(frozen=True, slots=True, eq=False)
class Clip:
    """A sound, 16 kHz mono. What is to be heard in it, noise around it apart, begins and ends at these samples."""

    samples: Samples
    begin: int
    end: int


class Air(Protocol):
    """Where the caller's sound comes from, and what lies over it in the room.

    ``texts`` and ``levels`` are for scripted services: what the labels 1, 2, ... stand for, and how loud each is.
    """

    texts: list[str]
    levels: dict[int, float]

    def clip(self, action: Action, label: int) -> Clip:
        """The sound of an action; ``label`` numbers what is said, from 1, and is 0 for what has no words."""
        ...

    def room(self, speech: Samples, begin: float) -> Samples:
        """What the microphone hears while the caller makes this sound, from time ``begin`` on. Frames come in order, none left out."""
        ...


@dataclass(frozen=True, slots=True)
class Done:
    """An action, and the times of its first and last audible sample."""

    action: Action
    begin: float
    end: float


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a caller waits."""

    answer_s: float = 8.0
    """For an answer, or for what an action is to follow; then the scene goes on, or is over, without."""


class Play:
    """Gives the caller's own sound frame by frame. Told of the agent's playback, it knows when each action is due. Pure."""

    def __init__(self, scene: Scene, air: Air, patience: Patience) -> None:
        self.scene = scene
        self.done: list[Done] = []
        self.waited_in_vain: int | None = None
        """The action whose moment never came."""
        self._air = air
        self._patience = patience
        self._next = 0
        self._label = 0
        self._sound = np.zeros(0, np.int16)
        self._free_at = 0.0  # when the last action was over
        self._origin: float | None = None
        self._began: list[float] = []  # the agent's utterances
        self._stopped: list[float] = []

    def agent_began(self, at: float) -> None:
        """An utterance of the agent's was first heard."""
        self._began.append(at)

    def agent_stopped(self, at: float) -> None:
        """It was heard to its end, or cut."""
        self._stopped.append(at)

    def frame(self, now: float, samples: int) -> Samples | None:
        """The next `samples` of the caller's own sound, which begin at `now`; None when the scene is over."""
        if self._origin is None:
            self._origin = self._free_at = now
        out = np.zeros(samples, np.int16)
        filled = 0
        while filled < samples:
            if not self._sound.size:
                due = self._due(now)
                offset = samples if due is None else max(filled, round((due - now) * CALLER_RATE))
                if offset >= samples:
                    break
                filled = offset
                self._begin(now + filled / CALLER_RATE)
            count = min(len(self._sound), samples - filled)
            out[filled : filled + count], self._sound = self._sound[:count], self._sound[count:]
            filled += count
            if not self._sound.size:
                self._free_at = now + filled / CALLER_RATE
        return None if self._is_over(now) else out

    def _begin(self, at: float) -> None:
        action = self.scene.do[self._next]
        self._next += 1
        self._label += action.is_speech
        clip = self._air.clip(action, self._label if action.is_speech else 0)
        self._sound = clip.samples
        self.done.append(Done(action, at + clip.begin / CALLER_RATE, at + clip.end / CALLER_RATE))

    def _due(self, now: float) -> float | None:
        """When the next action begins, if that is known already."""
        if self._next >= len(self.scene.do) or self._origin is None:
            return None
        action = self.scene.do[self._next]
        if action.at is not None:
            return max(self._free_at, self._origin + action.at)
        if action.after_previous is not None:
            return self._free_at + action.after_previous
        times, after_s = (self._began, action.after_start) if action.after_start is not None else (self._stopped, action.after_end)
        since = next((at for at in times if at >= self._free_at - 1e-6), None)
        if since is not None:
            return since + (after_s or 0.0)
        if now - self._free_at > self._patience.answer_s and not self.is_agent_talking:
            self.waited_in_vain, self._next = self._next, len(self.scene.do)
        return None

    def _is_over(self, now: float) -> bool:
        if self._origin is not None and now - self._origin > LONGEST_S:
            return True
        if self._next < len(self.scene.do) or self._sound.size or self.is_agent_talking:
            return False
        last = self.done[-1] if self.done else None
        if last is not None and last.action.expect in ("answered", "yields") and not any(at > last.begin for at in self._began):
            return now - last.end > self._patience.answer_s
        return now - max(self._free_at, self._stopped[-1] if self._stopped else 0.0) >= self.scene.listen_s

    @property
    def is_agent_talking(self) -> bool:
        """An utterance has begun and not ended."""
        return bool(self._began) and (not self._stopped or self._stopped[-1] < self._began[-1])


async def spoken(
    sound: Callable[[float, int], Samples | None], track: Track, room: Callable[[Samples, float], Samples] | None = None
) -> AsyncGenerator[InputAudioFrame]:
    """``sound(at, samples)``, frame by frame, until it gives None; recorded on ``track``, after ``room(sound, at)`` has added to it.

    Each frame is yielded when its last sample has been spoken; frame n is due n frames after the first.
    """
    loop, samples = asyncio.get_running_loop(), round(FRAME_S * CALLER_RATE)
    origin, number = loop.time(), 0
    while (heard := sound(origin + number * FRAME_S, samples)) is not None:
        at = origin + number * FRAME_S
        number += 1
        await asyncio.sleep(origin + number * FRAME_S - loop.time())
        pcm = (heard if room is None else room(heard, at)).astype("<i2").tobytes()
        track.add(pcm, at)
        yield InputAudioFrame(pcm, CALLER_RATE, pts=at)


class CallerLine(Processor):
    """The caller's end of the line: what the scene's play gives, and what the room adds.

    The source of a scene's pipeline. ``texts``, ``levels`` and ``late`` are what scripted services need to know of it:
    the labels' words, how loud each is in dB of full scale, and by how much its transcript comes late.
    """

    makes = AudioFormat(CALLER_RATE)

    def __init__(self, play: Play, air: Air, track: Track) -> None:
        self.play = play
        self.texts = air.texts
        self.levels = air.levels
        spoken = [action for action in play.scene.do if action.is_speech]
        self.late = {label: action.late_s for label, action in enumerate(spoken, 1)}
        self._air = air
        self._track = track

    async def run(self) -> AsyncIterator[InputAudioFrame]:
        """The sound of the scene; at its end the caller hangs up."""
        async with contextlib.aclosing(spoken(self.play.frame, self._track, self._air.room)) as frames:
            async for frame in frames:
                yield frame
        if self.play.is_agent_talking:
            self.session.interrupt("the caller hangs up")
        self.session.end()  # the way in for what the agent is made to say would keep it open

    def on_interrupt(self, interrupt: Interruption) -> None:
        """The agent was cut short: that is an end of what it said."""
        if interrupt.heard:
            self.play.agent_stopped(interrupt.at)
