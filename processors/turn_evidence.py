"""What is known when a turn is judged, and what a judgement says: the values between the turn machine and its policies.

The one rule: an answer always comes with its why, in the signals, thresholds and times that led to it.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass

__all__ = ["Agent", "Answer", "Due", "Evidence", "Fate", "Pause", "State", "Verdict"]


class Answer(enum.Enum):
    """What a start policy says about speech."""

    YES = "it is meant"
    NO = "it is not meant"
    NOT_YET = "more must be known"
    PASS = "nothing here that this policy judges"


class Fate(enum.Enum):
    """What becomes of the words of speech that was not meant."""

    DROP = "they were not for the agent"
    ASIDE = "they count only if the agent turns out to be just about done"
    KEEP = "they become the caller's turn once the agent has finished"


class Agent(enum.Enum):
    """What the agent is doing."""

    SILENT = "is silent"
    THINKING = "thinks"
    SPEAKING = "speaks"


class State(enum.Enum):
    """What the caller is doing."""

    IDLE = "not their turn, silent"
    PROBING = "speaking; not judged yet whether it is their turn"
    JUDGING = "they have stopped again; still not judged"
    LISTENING = "their turn, speaking"
    WAITING = "their turn, silent: are they done?"


@dataclass(frozen=True, slots=True)
class Verdict:
    """A start policy's answer. ``look_at``: when to ask again if no signal comes before (seconds on the session's clock).

    ``hold``: whether the agent is to be silent until the question is decided. ``by``: the policy that decided.
    """

    answer: Answer
    why: str
    by: str
    look_at: float = math.inf
    hold: bool = False
    fate: Fate = Fate.ASIDE


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that is known of speech that is to be judged. Times in seconds on the session's clock."""

    now: float
    agent: Agent = Agent.SILENT
    speaking: bool = False
    """The voice still goes on, or its end has not been told yet."""
    began: float = 0.0
    """When the voice began."""
    ended: float = 0.0
    """When it ended; now, while it goes on."""
    voiced_s: float = 0.0
    """Seconds of voice that are sure: the end of speech is told late, so the newest ones are not. Below 0 at first."""
    finals: tuple[str, ...] = ()
    """Words of final transcripts, without case and marks."""
    words: tuple[str, ...] = ()
    """Those and the words of the partial transcript behind them."""
    text: str = ""
    """The same as it was written."""
    confidence: float | None = None
    """The recogniser's in the last transcript with words, 0 to 1; None: it tells none."""
    words_by: float = 0.0
    """They were said by then."""
    settled: bool = False
    """No more will be known: the speech is over, and its transcript is there or was waited for in vain."""
    probability: float = 1.0
    """The voice detector's, at the onset."""
    level_db: float | None = None
    """Level of this speech in dB of full scale, if the detector tells it."""
    usual_db: float | None = None
    """The level at which this caller usually speaks."""
    floor: bool = False
    """The floor was given to the caller from outside (a button, a recogniser), now or during this speech."""
    agent_words: tuple[tuple[str, float], ...] = ()
    """Words of the agent that reached the ear lately, each with the time."""
    refused: frozenset[str] = frozenset()
    """The policies that have said no to speech over this very utterance of the agent."""
    dismissed: int = 0
    """How often speech over this very utterance had no words in it and was taken for nothing."""
    resumed_at: float | None = None
    """When this very utterance of the agent last went on after a hold; None: it was not held."""
    quiet_s: float | None = None
    """When this speech began: seconds since the last exchange (a turn, or what the agent said after it); None: there was none."""

    def ripe_at(self, seconds: float) -> float:
        """When there will have been so much voice, if it goes on."""
        return self.now + seconds - self.voiced_s if self.speaking else math.inf


@dataclass(frozen=True, slots=True)
class Due:
    """When a turn ends if nothing more comes; ``math.inf``: not by itself."""

    at: float
    why: str


@dataclass(frozen=True, slots=True)
class Pause:
    """What is known of a silence in the caller's turn."""

    now: float
    ended: float
    """When the voice stopped."""
    score: float | None = None
    """A turn-end model's: how probable it is that they are done."""
    endpoint_at: float | None = None
    """When the recogniser said that they are done."""
    released_at: float | None = None
    """When the floor was given back from outside."""
    pauses: tuple[float, ...] = ()
    """The last pauses this caller made within turns, in seconds, oldest first."""

    @property
    def after(self) -> str:
        """The elapsed time, in words."""
        return f"{self.now - self.ended:.2f} s after speech"
