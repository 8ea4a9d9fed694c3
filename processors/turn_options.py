"""The settings of turn taking: which policies, and the numbers that belong to none of them.

The one rule: every number that decides about a turn is here or in a policy, with its unit and its reason.
"""

from __future__ import annotations

import math
from typing import Any

import msgspec

from voiceflow.frames import ControlFrame, Lane
from voiceflow.processors.end_policies import Earliest, EndPolicy, Score, Silence
from voiceflow.processors.start_policies import Confidence, Echo, External, FirstDecides, Level, Phrases, StartPolicy, Voice
from voiceflow.processors.turn_policies import read_json

__all__ = ["PoliciesInForce", "TurnOptions", "TurnPolicyFrame"]


class TurnOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Who speaks when. Times are counted from the voice itself, not from when the detector told.

    Data: :meth:`from_json` and :meth:`to_json`; ``msgspec.structs.replace(options, end=...)`` changes a field. Raises
    ValueError that names the field.
    """

    start: StartPolicy = FirstDecides((External(), Echo(), Voice(0)))
    """Judges speech while the agent is silent: does a turn begin?"""
    barge_in: StartPolicy = FirstDecides((External(), Echo(), Level(), Confidence(longest_s=2.2), Phrases(longest_s=2.2), Voice(2200)))
    """Judges speech while the agent speaks, or thinks of what to say: is it an interruption? The agent is on hold while it is
    judged, so waiting for the words costs the caller nothing. "Mhm" and a cleared throat last up to 0.7 s, a laugh 1.1 s,
    and a transcript may be late by as much."""
    end: EndPolicy = Earliest((External(), Score(0.5, without=Silence(0.5))), ceiling_s=1.0)
    """Says when the caller is done."""
    judge_timeout_s: float = 1.2
    """How long a transcript of speech to be judged is waited for once the speech has stopped. Then what is known must do."""
    hold_max_s: float = 3.0
    """No hold is longer. Undecided by then, the agent goes on, and only words can still stop it."""
    final_timeout_s: float = 2.0
    """How long the final transcript of a stretch of speech in a turn is waited for; then the last partial one counts."""
    second_final_s: float = 1.0
    """Silence after which a turn with a final transcript ends although another one may be missing."""
    silence_max_s: float = 10.0
    """Silence that ends a turn whatever the policy says, unless the floor was given to the caller from outside. A turn of
    several stretches of speech, of which nothing has been told for so long, ends in its next pause."""
    vad_silence_s: float = 0.2
    """How late the voice detector tells that speech stopped, until it has told how late it is."""
    reply_timeout_s: float = 15.0
    """A reply that is not heard by then is taken to have failed, and the agent not to be thinking any more."""
    answer_window_s: float = 1.0
    """A backchannel that ends so shortly before the agent does was an answer: "Shall I book it?" "Yeah"."""
    duplicate_s: float = 1.0
    """The same final transcript again within this time, with no speech between, is the same words."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if name in ("start", "barge_in", "end"):
                wanted: Any = EndPolicy if name == "end" else StartPolicy
                if not isinstance(value, wanted):
                    raise ValueError(f"TurnOptions.{name} is {value!r}; it must be a policy of voiceflow.processors.turn_policies")
            elif isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
                raise ValueError(f"TurnOptions.{name} is {value!r}; it must be a number, 0 or more, and finite")

    @classmethod
    def from_json(cls, text: str | bytes) -> TurnOptions:
        """Options of JSON; what is left out has its default. Raises ValueError with the place, like ``$.end.policies[1].policy``."""
        options: TurnOptions = read_json(text, cls, "TurnOptions")
        return options

    def to_json(self) -> str:
        """What :meth:`from_json` reads. Fields at their defaults are left out."""
        return msgspec.json.encode(self).decode()


class TurnPolicyFrame(ControlFrame, frozen=True):
    """Take turns by these policies from now on; None leaves one as it is.

    ``once``: for a while only, then what was before is in force again: ``barge_in`` until the next utterance of the agent
    has been heard out or is interrupted, ``start`` and ``end`` until a turn has ended.
    """

    lane = Lane.USER

    start: StartPolicy | None = None
    barge_in: StartPolicy | None = None
    end: EndPolicy | None = None
    once: bool = False


class PoliciesInForce:
    """Which policies hold now: those of the options, what took their place, and what does so for a while."""

    def __init__(self, options: TurnOptions) -> None:
        self.start: StartPolicy = options.start
        self.barge_in: StartPolicy = options.barge_in
        self.end: EndPolicy = options.end
        self._turn_before: tuple[StartPolicy, EndPolicy] | None = None
        self._barge_in_before: StartPolicy | None = None
        self._next_has_begun = False

    def use(self, change: TurnPolicyFrame) -> None:
        """Take what ``change`` names. A change for good also ends one for a while."""
        if change.start is not None or change.end is not None:
            before = self._turn_before or (self.start, self.end)
            self._turn_before = before if change.once else None
            if not change.once:
                self.start, self.end = before
            self.start, self.end = change.start or self.start, change.end or self.end
        if change.barge_in is not None:
            self._barge_in_before = (self._barge_in_before or self.barge_in) if change.once else None
            self._next_has_begun = False
            self.barge_in = change.barge_in

    def turn_ended(self) -> None:
        """A turn of the caller is over."""
        if self._turn_before is not None:
            (self.start, self.end), self._turn_before = self._turn_before, None

    def utterance_began(self) -> None:
        """The agent can be heard: one that spoke already when the policy came is not the next."""
        self._next_has_begun = True

    def utterance_ended(self, *, interrupted: bool = False) -> None:
        """The agent has been heard out, or was silenced."""
        if self._barge_in_before is not None and (self._next_has_begun or interrupted):
            self.barge_in, self._barge_in_before = self._barge_in_before, None
