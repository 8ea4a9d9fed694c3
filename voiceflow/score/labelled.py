"""The sound of a scene on a virtual clock: labels in place of voices.

The one rule: a sample says which word it is, so what a recogniser would understand needs no recogniser.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from voiceflow.score.caller import CALLER_RATE, Clip
from voiceflow.score.recording import AUDIBLE, Track
from voiceflow.score.scenes import SOUNDS, VOICE_LEVEL_DB, Action, Scene, length_s
from voiceflow.score.trace import Made
from voiceflow.testing.scripts import BACKGROUND, CALLER_STEP, LONGEST_TEXT, NOISE, labelled_speech

__all__ = ["LabelledAir"]

Samples = npt.NDArray[np.int16]

ECHO_DELAY_S = 0.04
ECHO_GAP_S = 0.3
"""After so much silence the echo is another utterance."""


class LabelledAir:
    """Words as labels, other sounds as ``NOISE`` if they would trip a voice detector and ``BACKGROUND`` if not.

    Over noise, and over an echo, the caller's own sound wins: labels do not add up. The echo of the agent's voice is labelled
    with the words that are being heard; it is as loud as the scene says.
    """

    def __init__(self, scene: Scene, heard: Track, made: Made) -> None:
        spoken = [action for action in scene.do if action.is_speech]
        self.texts = [action.say or "" for action in spoken]
        self.levels = {label: action.level_db for label, action in enumerate(spoken, 1)}
        self._scene = scene
        self._heard = heard
        self._made = made
        self._echo_label = 0
        self._echo_words: list[tuple[int, str]] = []  # where each begins in what was made
        self._echo_last = 0
        self._echo_at = 0
        self._silent_s = ECHO_GAP_S

    def clip(self, action: Action, label: int) -> Clip:
        """See ``Air``."""
        seconds = length_s(action)
        if label:
            sound = labelled_speech(label, self.texts[label - 1], seconds)
        else:
            sound = np.full(round(seconds * CALLER_RATE), NOISE if SOUNDS[action.sound or ""].trips else BACKGROUND, np.int16)
        return Clip(sound, 0, len(sound))

    def room(self, speech: Samples, begin: float) -> Samples:
        """See ``Air``."""
        around = self._around(len(speech), begin)
        if (speech > 0).any():
            self._silent_s = ECHO_GAP_S  # what is heard of the agent behind the caller's words is another utterance
        return np.where(speech == 0, np.int16(around), speech) if around else speech

    def _around(self, samples: int, begin: float) -> int:
        """The label of what there is beside the caller; 0: nothing."""
        echo = self._echo(begin, samples / CALLER_RATE) if self._scene.echo_db is not None else 0
        return echo or (BACKGROUND if self._scene.noise is not None else 0)

    def _echo(self, begin: float, seconds: float) -> int:
        track = self._heard
        first = round((begin - ECHO_DELAY_S - track.origin) * track.rate)
        window = track.between(first, first + round(seconds * track.rate))
        if not (np.abs(window.astype(np.int32)) > AUDIBLE).any():
            self._silent_s += seconds
            return 0
        if self._silent_s >= ECHO_GAP_S or len(self._echo_words) >= LONGEST_TEXT:
            self._echo_words, self._echo_last = [], 0
            self.texts.append("")
            self._echo_label = len(self.texts)
            self.levels[self._echo_label] = VOICE_LEVEL_DB + (self._scene.echo_db or 0.0)
        self._silent_s = 0.0
        return self._echo_code(window)

    def _echo_code(self, window: Samples) -> int:
        """Which quarter of which word is to be heard in it."""
        look = len(window) // 2
        at = max(self._made.find(window[:look], self._echo_at), self._made.find(window[-look:], self._echo_at))
        self._echo_at = max(at, self._echo_at)
        word = self._made.word(at) if at >= 0 else None
        if word is None:  # in a fade
            return self._echo_last or NOISE
        if not self._echo_words or self._echo_words[-1][0] != word.begin:
            self._echo_words.append((word.begin, word.text))
            self.texts[self._echo_label - 1] = " ".join(text for _, text in self._echo_words)
        quarter = min(3, (at - word.begin) * 4 // max(word.end - word.begin, 1))
        self._echo_last = self._echo_label * CALLER_STEP + 1 + 4 * (len(self._echo_words) - 1) + quarter
        return self._echo_last
