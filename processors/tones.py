"""The telephone's keys as tones: made, and heard in any other sound. Also their gathering to an entry. Pure.

The one rule: a key is heard once, however long it is pressed, and never in speech.

Source: ITU-T Q.23 (the frequencies) and Q.24 (what a receiver must take and must not): tones of 40 ms or more count, with pauses of 40 ms or more; a
break of 10 ms does not part a tone; the frequencies of a pair may differ in level, the higher one by up to 4 dB more or 8 dB less.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from voiceflow.audio import fade_in, fade_out, mix
from voiceflow.phone import KEYS

__all__ = ["DigitCollector", "Entry", "ToneDetector", "key_tone"]

LOW = (697.0, 770.0, 852.0, 941.0)
HIGH = (1209.0, 1336.0, 1477.0, 1633.0)
PAD = ("123A", "456B", "789C", "*0#D")

BLOCK_S = 0.01275
"""At 8 kHz 102 samples: few for a short tone, and enough to tell the frequencies apart."""
LEVEL = 10 ** (-46 / 20)
"""Each tone's least amplitude, of full scale."""
HIGH_OVER_LOW_DB, LOW_OVER_HIGH_DB = 5.0, 9.0
"""What Q.24 asks for, and 1 dB for the block's own error."""
ALONE_DB = 8.0
"""Each tone is so far above the others of its group."""
PURE = 0.80
"""So much of all the sound is the two tones."""
BLOCKS_ON, BLOCKS_OFF = 4, 3
"""Blocks lie half over one another: a tone of 40 ms fills four of them, wherever it begins, one of 20 ms three at the most."""
STILL = 0.3
"""A block with so much of a tone in it lies at its edge, or holds a break: 9 ms spoil two blocks, but leave more of one of them."""
FADE_MS = 2


def key_tone(key: str, sample_rate: int, *, on_ms: float = 100, off_ms: float = 70, level_db: float = -12.0) -> bytes:
    """A key's tone and the pause behind it, mono s16le. ``level_db``: of each of the two, of full scale. ``w``: half a second of silence.

    Raises ValueError for another key, and for a level at which the two would clip.
    """
    if key == "w":
        return bytes(2 * round(sample_rate * 0.5))
    row = next((row for row, keys in enumerate(PAD) if key and key in keys), None)
    if row is None or len(key) != 1:
        raise ValueError(f"key_tone: {key!r} is not a key; there are {KEYS} and w")
    if level_db > -6.1:
        raise ValueError(f"key_tone: level_db is {level_db}; two tones above -6.1 dB each would clip")
    t = np.arange(round(sample_rate * on_ms / 1000)) / sample_rate
    wave = np.sin(2 * np.pi * LOW[row] * t) + np.sin(2 * np.pi * HIGH[PAD[row].index(key)] * t)
    pcm = np.round(wave * 10 ** (level_db / 20) * 32767).astype("<i2").tobytes()
    pcm = fade_out(fade_in(pcm, sample_rate, FADE_MS), sample_rate, FADE_MS)
    return pcm + bytes(2 * round(sample_rate * off_ms / 1000))


class ToneDetector:
    """Sound in, keys out, each with the second of the stream at which its tone was sure (some 30 ms after it began)."""

    def __init__(self, sample_rate: int, channels: int = 1) -> None:
        if sample_rate < 2 * HIGH[-1] * 1.05:
            raise ValueError(f"ToneDetector: sample_rate is {sample_rate}; tones up to 1633 Hz need 3430 Hz or more")
        self.sample_rate = sample_rate
        self.channels = channels
        self._block = round(BLOCK_S * sample_rate)
        self._hop = self._block // 2
        turns = np.arange(self._block) / sample_rate
        self._waves = np.exp(-2j * np.pi * np.outer((*LOW, *HIGH), turns)).T.astype(np.complex64) / self._block
        self._rest = np.empty(0, np.float32)
        self._blocks = 0
        self._key = ""
        self._seen, self._run = "", 0
        self._level = 0.0

    def feed(self, pcm: bytes) -> list[tuple[str, float]]:
        """The keys that became sure in this sound."""
        samples = np.frombuffer(mix(pcm, self.channels, 1), "<i2").astype(np.float32) / 32768
        self._rest = np.concatenate([self._rest, samples])
        if len(self._rest) < self._block:
            return []
        blocks = np.lib.stride_tricks.sliding_window_view(self._rest, self._block)[:: self._hop]
        self._rest = self._rest[len(blocks) * self._hop :]
        found: list[tuple[str, float]] = []
        for tones, power in self._measured(blocks):
            self._blocks += 1
            if sure := self._take(self._key_of(tones, power), tones):
                found.append((sure, ((self._blocks - 1) * self._hop + self._block) / self.sample_rate))
        return found

    def _take(self, key: str, tones: list[float]) -> str:
        """One block later: the key that has become sure with it."""
        if not key and self._key and self._sounds(tones):
            return ""  # a break, or noise, in the middle of the tone
        self._run = self._run + 1 if key == self._seen else 1
        self._seen = key
        if key:
            self._level = max(tones[:4]) + max(tones[4:])
        if key == self._key or self._run < (BLOCKS_ON if key else BLOCKS_OFF):
            return ""
        self._key = key
        return key

    def _sounds(self, tones: list[float]) -> bool:
        """Whether there is still something of the present key's tones."""
        row = next(i for i, keys in enumerate(PAD) if self._key in keys)
        return tones[row] + tones[4 + PAD[row].index(self._key)] >= STILL * self._level

    def _measured(self, blocks: npt.NDArray[np.float32]) -> list[tuple[list[float], float]]:
        """Of each block the amplitude of each tone, and the power of all of it."""
        amplitudes = 2 * np.abs(blocks @ self._waves)
        total = np.mean(blocks * blocks, axis=1)
        return list(zip(amplitudes.tolist(), total.tolist(), strict=True))

    @staticmethod
    def _key_of(tones: list[float], power: float) -> str:
        """The key of a block, "" for none."""
        low, high = max(tones[:4]), max(tones[4:])
        if min(low, high) < LEVEL or (low * low + high * high) / 2 < PURE * power:
            return ""
        twist_db = 20 * math.log10(high / low)
        if not -LOW_OVER_HIGH_DB <= twist_db <= HIGH_OVER_LOW_DB:
            return ""
        alone = 10 ** (-ALONE_DB / 20)
        for group, strongest in ((tones[:4], low), (tones[4:], high)):
            if sorted(group)[-2] > strongest * alone:
                return ""
        return PAD[tones[:4].index(low)][tones[4:].index(high)]


@dataclass(frozen=True, slots=True)
class Entry:
    """What was keyed in. ``why``: ``terminator``, ``length``, ``timeout`` or ``end``."""

    digits: str
    why: str


class DigitCollector:
    """Gathers keys to an entry: until the terminator, until there are ``length``, or until none came for ``timeout_s``.

    The terminator is no part of the entry. ``deadline``: when to call ``tick``.
    """

    def __init__(self, *, terminator: str = "#", length: int | None = None, timeout_s: float = 3.0) -> None:
        if len(terminator) > 1 or (terminator and terminator not in KEYS):
            raise ValueError(f"DigitCollector: terminator is {terminator!r}; it must be one of {KEYS}, or empty")
        if length is not None and length < 1:
            raise ValueError(f"DigitCollector: length is {length}; it must be 1 or more, or None")
        if not timeout_s > 0:
            raise ValueError(f"DigitCollector: timeout_s is {timeout_s}; it must be more than 0")
        self.terminator, self.length, self.timeout_s = terminator, length, timeout_s
        self.digits = ""
        self.deadline: float | None = None

    def press(self, digit: str, now: float) -> Entry | None:
        """A key; the entry, if that completes it. A terminator alone is no entry."""
        if digit == self.terminator:
            return self._done("terminator")
        self.digits += digit
        if self.length is not None and len(self.digits) >= self.length:
            return self._done("length")
        self.deadline = now + self.timeout_s
        return None

    def tick(self, now: float) -> Entry | None:
        """Time has passed; the entry, if that completes it."""
        return self._done("timeout") if self.deadline is not None and now >= self.deadline - 1e-6 else None

    def end(self) -> Entry | None:
        """Nothing more comes; the entry, if there is something."""
        return self._done("end")

    def clear(self) -> None:
        """Forget what was keyed in."""
        self.digits, self.deadline = "", None

    def _done(self, why: str) -> Entry | None:
        digits = self.digits
        self.clear()
        return Entry(digits, why) if digits else None
