"""What the microphone of a real-time scene hears, as far as it needs no voice model."""

from __future__ import annotations

import numpy as np
import pytest

from voiceflow.score.caller import CALLER_RATE
from voiceflow.score.live import LiveAir, prepare
from voiceflow.score.recording import Track
from voiceflow.score.scenes import Action, Scene
from voiceflow.score.trace import Made

FRAME = CALLER_RATE // 50
RATE = 24000


def scene(**fields: object) -> Scene:
    return Scene(**{"name": "a", "kind": "noise", "expect": "ignored", **fields})  # type: ignore[arg-type]


def room(air: LiveAir, seconds: float) -> np.ndarray:
    return np.concatenate([air.room(np.zeros(FRAME, np.int16), n * 0.02) for n in range(round(seconds * 50))]).astype(float)


def level_db(sound: np.ndarray) -> float:
    return float(10 * np.log10(np.mean((sound / 32768) ** 2)))


def test_a_bed_of_noise_lies_so_far_below_a_voice() -> None:
    """At 10 dB it has -36 dB, for longer than it is itself."""
    air = LiveAir(scene(noise="pink", snr_db=10.0), Track(RATE, 0.0), Made(RATE))
    sound = room(air, 25.0)
    assert level_db(sound) == pytest.approx(-36.0, abs=0.5)
    assert level_db(sound[-CALLER_RATE:]) == pytest.approx(-36.0, abs=2.0)


def test_the_agent_is_heard_again_later_and_quieter() -> None:
    """A tone from 0.2 to 0.6 s comes back 20 dB down, some ten milliseconds later, and silence comes back silent."""
    track = Track(RATE, 0.0)
    tone = (8000 * np.sin(np.arange(RATE // 50) * 2 * np.pi * 1000 / RATE)).astype("<i2")
    air = LiveAir(scene(echo_db=-20.0), track, Made(RATE))
    sound = []
    for n in range(50):
        if 10 <= n < 30:
            track.add(tone.tobytes(), n * 0.02)
        sound.append(air.room(np.zeros(FRAME, np.int16), n * 0.02))
    heard = np.concatenate(sound).astype(float)
    loud = np.flatnonzero(np.abs(heard) > 100)
    assert 0.24 < loud[0] / CALLER_RATE < 0.30
    assert level_db(heard[round(0.45 * CALLER_RATE) : round(0.6 * CALLER_RATE)]) == pytest.approx(level_db(tone.astype(float)) - 20, abs=3)
    assert not np.abs(heard[: round(0.19 * CALLER_RATE)]).max()


def test_a_sound_is_as_long_and_as_loud_as_the_scene_says() -> None:
    """A lasting noise of 1.5 s at -30 dB; and where nothing is said a clip of it needs no model."""
    action = Action(at=0.0, sound="traffic", seconds=1.5, level_db=-30.0, voice="heart", expect="ignored")
    clip = LiveAir(scene(do=(action,)), Track(RATE, 0.0), Made(RATE)).clip(action, 0)
    assert len(clip.samples) == round(1.5 * CALLER_RATE)
    assert level_db(clip.samples.astype(float)) == pytest.approx(-30.0, abs=2.0)
    assert 0 <= clip.begin < clip.end <= len(clip.samples)


def test_sounds_that_would_lie_over_each_other_are_refused_before_the_call() -> None:
    """By their true lengths, with scene and field."""
    hum = Action(at=0.0, sound="hum", seconds=2.0, voice="heart", expect="ignored")
    cough = Action(at=1.0, sound="cough", voice="heart", expect="ignored")
    with pytest.raises(ValueError, match=r"scene 'a': do\[1\]\.at: is 1, but the action before it lasts until 2\.00"):
        prepare([scene(do=(hum, cough))])
