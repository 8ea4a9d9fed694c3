"""The sound of a scene in real time: synthetic voices, noise and echo, as a microphone hears them.

The one rule: everything is rendered before the call, so that nothing but adding is done while it lasts.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from voiceflow.audio import StreamResampler
from voiceflow.score import sounds
from voiceflow.score.caller import CALLER_RATE, Clip
from voiceflow.score.mixing import EchoPath
from voiceflow.score.recording import Track
from voiceflow.score.scenes import VOICE_LEVEL_DB, Action, Scene, check_times
from voiceflow.score.trace import Made

__all__ = ["LiveAir", "prepare"]

Samples = npt.NDArray[np.int16]

BED_S = 20.0
"""A bed of noise repeats after so long."""


def prepare(scenes: Sequence[Scene]) -> None:
    """Speak all that the callers will say, and check that their true lengths leave no two actions over each other.

    Raises ValueError naming scene and field, ModelError if the voice model cannot be had.
    """
    lines = [(action.voice, action.say) for scene in scenes for action in scene.do if action.say is not None and action.sound is None]
    sounds.prepare(lines, babble=any("babble" in _noises(scene) for scene in scenes))
    for scene in scenes:
        try:
            check_times(scene, lambda action: len(_rendered(action).samples) / CALLER_RATE)
        except ValueError as error:
            raise ValueError(f"scene {scene.name!r}: {error}") from error


def _noises(scene: Scene) -> set[str | None]:
    return {scene.noise, *(action.noise for action in scene.do), *(action.sound for action in scene.do)}


@lru_cache(maxsize=512)
def _rendered(action: Action) -> Clip:
    return sounds.render(
        say=action.say,
        sound=action.sound,
        voice=action.voice,
        level_db=action.level_db,
        noise=action.noise,
        snr_db=action.snr_db,
        seconds=action.seconds,
        seed=action.seed,
        far=action.far,
    )


class LiveAir:
    """Adds what the room adds: the scene's bed of noise, and the agent's own sound by way of the loudspeaker."""

    def __init__(self, scene: Scene, heard: Track, made: Made) -> None:
        self.texts: list[str] = []
        self.levels: dict[int, float] = {}
        self._heard = heard
        self._bed: Samples | None = None
        if scene.noise is not None and scene.snr_db is not None:
            self._bed = sounds.background(scene.noise, BED_S, VOICE_LEVEL_DB - scene.snr_db)
        self._at = 0
        self._echo = None if scene.echo_db is None else EchoPath(scene.echo_db)
        self._to_16k = StreamResampler(heard.rate, CALLER_RATE)
        self._read: int | None = None
        """The next sample of what was heard that goes into the echo."""
        self._waiting = np.zeros(0)

    def clip(self, action: Action, label: int) -> Clip:
        """See ``Air``."""
        return _rendered(action)

    def room(self, speech: Samples, begin: float) -> Samples:
        """See ``Air``."""
        total = speech.astype(np.float64)
        if self._bed is not None:
            total += np.take(self._bed, range(self._at, self._at + len(speech)), mode="wrap")
            self._at = (self._at + len(speech)) % len(self._bed)
        if self._echo is not None:
            total += self._echo.push(self._agent(len(speech), begin))
        return np.clip(np.rint(total), -32768, 32767).astype(np.int16)

    def _agent(self, samples: int, begin: float) -> npt.NDArray[np.float64]:
        """The agent's sound at 16 kHz while the caller's frame lasts; the converter's delay is part of the way."""
        track = self._heard
        end = round((begin + samples / CALLER_RATE - track.origin) * track.rate)
        first = end - round(samples / CALLER_RATE * track.rate) if self._read is None else self._read
        self._read = end
        pcm = self._to_16k.process(track.between(first, end).tobytes())
        self._waiting = np.concatenate([self._waiting, np.frombuffer(pcm, "<i2").astype(np.float64)])
        out, self._waiting = self._waiting[:samples], self._waiting[samples:]
        return np.concatenate([np.zeros(samples - len(out)), out])
