"""What happens on a telephone line beside sound: keys, and who picked up.

Shared by the transports that carry it as messages and the processors that hear and make it as tones.
"""

from __future__ import annotations

from typing import Literal

from voiceflow.frames import ControlFrame, Lane

__all__ = ["KEYS", "AnsweredBy", "DigitReceived", "DigitsFrame"]

KEYS = "0123456789*#ABCD"
"""The keys there are (ITU-T Q.23)."""


class DigitReceived(ControlFrame, frozen=True):
    """The caller pressed a key."""

    lane = Lane.USER
    digit: str

    def __post_init__(self) -> None:
        if len(self.digit) != 1 or self.digit not in KEYS:
            raise ValueError(f"DigitReceived: {self.digit!r} is not a key; there are {KEYS}")


class DigitsFrame(ControlFrame, frozen=True):
    """Press these keys, one after the other; ``w`` waits half a second."""

    lane = Lane.AGENT
    digits: str
    utterance: int = 0

    def __post_init__(self) -> None:
        wrong = set(self.digits) - set(KEYS + "w")
        if wrong or not self.digits:
            raise ValueError(f"DigitsFrame: {self.digits!r} cannot be dialled; there are {KEYS} and w, which waits")


class AnsweredBy(ControlFrame, frozen=True):
    """Who or what picked up. ``ready``: a machine has said its greeting and records now; a person always is."""

    lane = Lane.USER
    by: Literal["human", "machine", "unknown"]
    ready: bool = True
    why: str = ""
    """The phrase or the measure that told."""
