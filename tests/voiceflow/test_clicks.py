"""No cut and no setting on again steps further than the sound itself: measured for a sine and for sound like speech."""

from __future__ import annotations

import numpy as np
import pytest

from voiceflow.frames import AudioFormat, OutputAudioFrame, Word
from voiceflow.playout import Playout

RATE = 24000
BLOCK = 480


def sine():
    """220 Hz at full scale."""
    return np.rint(32767 * np.sin(2 * np.pi * 220 * np.arange(2 * RATE) / RATE)).astype(int)


def speech():
    """A glottal pulse train of moving pitch through three resonances, in syllables of 180 ms, at full scale; and breath."""
    t = np.arange(2 * RATE) / RATE
    pitch = 120 + 25 * np.sin(2 * np.pi * 0.7 * t)
    pulses = (np.diff(np.floor(np.cumsum(pitch) / RATE), prepend=0) > 0).astype(float)
    ring = np.arange(RATE // 50) / RATE
    shape = sum(
        g * np.exp(-np.pi * b * ring) * np.sin(2 * np.pi * f * ring) for f, b, g in ((650, 60, 1), (1100, 90, 0.6), (2500, 120, 0.3))
    )
    voice = np.convolve(pulses, shape)[: len(t)] + 0.01 * np.random.default_rng(1).standard_normal(len(t))
    voice *= 0.5 - 0.5 * np.cos(2 * np.pi * t / 0.18)
    return np.rint(voice / np.abs(voice).max() * 32700).astype(int)


SOUNDS = {"sine": sine(), "speech": speech()}
OWN = {name: int(np.abs(np.diff(samples)).max()) for name, samples in SOUNDS.items()}
"""The largest step from one sample to the next in the sound itself."""

WORST = {
    ("sine", "hold"): 1886, ("sine", "resume"): 1887, ("sine", "clear"): 705, ("sine", "underrun"): 1887,
    ("speech", "hold"): 10188, ("speech", "resume"): 10208, ("speech", "clear"): 362, ("speech", "underrun"): 10444,
}  # fmt: skip
"""The largest step seen from 30 ms around each act, at 240 phases. By itself the sine steps 1887 at most, the speech 12808."""


def steps(name, act, offset):
    """The largest step from the sample before the cut on, for 30 ms, when the sound is cut ``offset`` samples into it."""
    samples = SOUNDS[name]
    dry = act == "underrun"
    playout = Playout(AudioFormat(RATE))
    words = (Word("w", (offset - 2000) / RATE, 2.0),)

    def push(part):
        playout.push(OutputAudioFrame(np.asarray(part, "<i2").tobytes(), RATE, words=() if dry else words, utterance=1, epoch=0))

    push(samples[:offset] if dry else samples)
    now, out = 0.0, []

    def pull(count):
        nonlocal now
        out.append(np.frombuffer(playout.pull(count, now, 0), "<i2").astype(int))
        now += count / RATE

    pull(offset)
    if act == "clear":
        playout.clear(now)
        pull(720)
        return int(np.abs(np.diff(np.concatenate(out)[offset - 1 :])).max())
    if dry:
        pull(720)
        push(samples[offset : offset + 9600])
        pull(9600)
        heard = np.concatenate(out)
        again = offset + np.flatnonzero(heard[offset + 100 :])[0] + 100
        return int(max(np.abs(np.diff(heard[offset - 1 : offset + 720])).max(), np.abs(np.diff(heard[again - 2 : again + 720])).max()))
    playout.hold(now)
    pull(720)
    if act == "hold":
        return int(np.abs(np.diff(np.concatenate(out)[offset - 1 :])).max())
    playout.resume(now)
    pull(720)
    return int(np.abs(np.diff(np.concatenate(out)[-721:])).max())


@pytest.mark.parametrize("name", SOUNDS)
@pytest.mark.parametrize("act", ["hold", "resume", "clear", "underrun"])
def test_no_cut_steps_further_than_the_sound(name, act):
    """At any phase, a cut and a return step no further than the sound itself does somewhere; and no further than stated above."""
    worst = max(steps(name, act, offset) for offset in range(4800, 4800 + 24 * 240, 24))
    assert worst <= min(OWN[name], WORST[name, act] + 3)


def test_a_cut_without_smoothing_would_click():
    """The measure is able to see a click: cut dead, the same sine steps by its full height."""
    cut = np.concatenate([SOUNDS["sine"][: 4800 + 27], np.zeros(100, int)])
    assert np.abs(np.diff(cut)).max() > 30000
