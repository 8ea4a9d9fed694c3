"""What the demo's caller says, and when: a small pure play, asked for one frame of sound at a time.

The one rule: the caller behaves like one. They wait for an answer to be heard before they go on, except where the script
makes them cut in.
"""

from __future__ import annotations

import wave
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import numpy as np
import numpy.typing as npt

from voiceflow.audio import mix, resample

__all__ = ["RATE", "SCRIPT", "Caller", "Line", "Spoken", "load_line", "read_wav"]

RATE = 16000
VOICED = 0.02
"""Amplitude, of full scale, from which a sample of a clean recording counts as voice."""


@dataclass(frozen=True, slots=True)
class Line:
    """One thing the caller says. ``cuts_in_s``: seconds of the running answer after which they interrupt it."""

    text: str | None
    clip: str = ""
    cuts_in_s: float | None = None


SCRIPT = (
    Line("Hello, who are you?", "hello"),
    Line("What is half of ten?", "half"),
    Line("Please tell me a story about a dog.", "story"),
    Line("Wait, stop. What is the capital of France?", "stop", cuts_in_s=3.0),
    Line("Thank you very much. Goodbye.", "bye"),
)


@dataclass(slots=True)
class Spoken:
    """A line as it was said: from when to when there was voice, on the session's clock."""

    line: Line
    begin: float
    end: float


def load_line(line: Line) -> npt.NDArray[np.int16]:
    """The recording of one of SCRIPT's lines: int16, 16 kHz mono."""
    with resources.as_file(resources.files("voiceflow.demo") / "caller" / f"{line.clip}.wav") as path:
        return read_wav(path)


def read_wav(path: Path) -> npt.NDArray[np.int16]:
    """A 16-bit WAV file of any rate, mono or stereo, as int16 at 16 kHz mono. Raises ValueError for anything else."""
    try:
        with wave.open(str(path), "rb") as file:
            rate, channels, width = file.getframerate(), file.getnchannels(), file.getsampwidth()
            data = file.readframes(file.getnframes())
    except (wave.Error, EOFError) as error:
        raise ValueError(f"{path} is not a WAV file of integer samples: {error or 'it is empty'}") from error
    if width != 2:
        raise ValueError(f"{path}: {8 * width}-bit samples; the demo reads 16-bit WAV files")
    if channels > 2:
        raise ValueError(f"{path}: {channels} channels; the demo reads mono and stereo")
    pcm = mix(data, channels, 1)
    return np.frombuffer(resample(pcm, rate, RATE), "<i2")


class Caller:
    """Gives the caller's sound frame by frame. Told of the agent's playback, it knows when it is its turn."""

    def __init__(self, lines: Sequence[tuple[Line, npt.NDArray[np.int16]]], *, pause_s: float = 0.6, patience_s: float = 15.0) -> None:
        self.spoken: list[Spoken] = []
        self._lines = list(lines)
        self._pause_s = pause_s
        self._patience_s = patience_s
        self._sound = np.zeros(0, np.int16)
        self._free_at: float | None = None  # when the last line was over
        self._answer_began: float | None = None
        self._answer_over: float | None = None

    def agent_began(self, at: float) -> None:
        """The first sound of an answer was heard."""
        self._answer_began, self._answer_over = at, None

    def agent_stopped(self, at: float) -> None:
        """An answer was heard to its end."""
        self._answer_over = at

    def frame(self, now: float, samples: int) -> npt.NDArray[np.int16] | None:
        """The next `samples` of sound, which begin at `now`; None when the play is over."""
        if not self._sound.size:
            if self._free_at is None:
                self._free_at = now
            if self._is_due(now):
                if not self._lines:
                    return None
                self._begin(now)
        sound, self._sound = self._sound[:samples], self._sound[samples:]
        return np.concatenate([sound, np.zeros(samples - len(sound), np.int16)])

    def _begin(self, now: float) -> None:
        line, self._sound = self._lines.pop(0)
        voiced = np.flatnonzero(np.abs(self._sound.astype(np.int32)) > VOICED * 32768)
        self.spoken.append(Spoken(line, now + voiced[0] / RATE, now + voiced[-1] / RATE))
        self._free_at = now + len(self._sound) / RATE
        self._answer_began = self._answer_over = None

    def _is_due(self, now: float) -> bool:
        assert self._free_at is not None
        if not self.spoken:
            return now - self._free_at >= self._pause_s
        if now - self._free_at > self._patience_s:
            return True  # no answer came, or it never ends: go on, and let the report say so
        cuts_in_s = self._lines[0][0].cuts_in_s if self._lines else None
        if cuts_in_s is not None and self._answer_began is not None:
            return now - self._answer_began >= cuts_in_s
        return self._answer_over is not None and now - self._answer_over >= self._pause_s
