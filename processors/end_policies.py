"""End policies: when a silence ends the caller's turn.

The one rule: a policy is shown the :class:`Pause` and says when it will be long enough; it remembers nothing. What has
been said is not its concern: the turn machine waits for the transcript besides.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

from voiceflow.processors.start_policies import External, Policy, check_members
from voiceflow.processors.turn_evidence import Due, Pause

__all__ = ["AdaptiveSilence", "Earliest", "EndPolicy", "Endpoint", "Latest", "Score", "Silence"]


class Silence(Policy, frozen=True, tag="silence"):
    """So many seconds of silence."""

    silence_s: float = 0.5

    def due(self, pause: Pause) -> Due:
        """See the class."""
        return Due(pause.ended + self.silence_s, f"silence, {pause.after} (silence_s {self.silence_s:g})")


class AdaptiveSilence(Policy, frozen=True, tag="adaptive-silence"):
    """Silence longer than this caller's own pauses within turns: the one that ``share`` of them do not reach, times ``factor``.

    Between ``min_s`` and ``max_s``; until ``needs`` pauses are known it is ``start_s``.
    """

    min_s: float = 0.3
    max_s: float = 1.5
    start_s: float = 0.7
    share: float = 0.8
    factor: float = 1.3
    needs: int = 3

    def __post_init__(self) -> None:
        Policy.__post_init__(self)
        if not self.min_s <= self.start_s <= self.max_s:
            raise ValueError(
                f"AdaptiveSilence.start_s is {self.start_s!r}; it must lie between min_s ({self.min_s!r}) and max_s ({self.max_s!r})"
            )
        if self.share > 1:
            raise ValueError(f"AdaptiveSilence.share is {self.share!r}; it must lie between 0 and 1")

    def wanted_s(self, pauses: Sequence[float]) -> float:
        """The silence that ends a turn of a caller who makes these pauses."""
        if len(pauses) < max(self.needs, 1):
            return self.start_s
        usual_s = sorted(pauses)[min(int(self.share * len(pauses)), len(pauses) - 1)]
        return min(max(usual_s * self.factor, self.min_s), self.max_s)

    def due(self, pause: Pause) -> Due:
        """See the class."""
        wanted_s = self.wanted_s(pause.pauses)
        learned = f"{wanted_s:.2f} s after {len(pause.pauses)} pauses of this caller"
        return Due(pause.ended + wanted_s, f"silence, {pause.after} (adaptive: {learned})")


class Endpoint(Policy, frozen=True, tag="endpoint"):
    """The recogniser says so: ``TranscriptFrame.endpoint``."""

    def due(self, pause: Pause) -> Due:
        """See the class."""
        if pause.endpoint_at is None:
            return Due(math.inf, "no endpoint from the recogniser")
        return Due(pause.endpoint_at, f"the recogniser's endpoint, {pause.after}")


class Score(Policy, frozen=True, tag="score"):
    """A turn-end model's score above ``threshold``, at once. Without any score, ``without`` decides; with a low one, time or more speech."""

    threshold: float = 0.5
    without: EndPolicy = Silence(0.5)

    def __post_init__(self) -> None:
        Policy.__post_init__(self)
        if self.threshold > 1:
            raise ValueError(f"Score.threshold is {self.threshold!r}; scores lie between 0 and 1")
        check_members(self, (self.without,), EndPolicy, "end")

    def due(self, pause: Pause) -> Due:
        """See the class."""
        if pause.score is None:
            due = self.without.due(pause)
            return Due(due.at, f"{due.why}, no score")
        if pause.score > self.threshold:
            return Due(pause.ended, f"score {pause.score:.2f} > {self.threshold:g}, {pause.after}")
        return Due(math.inf, f"score {pause.score:.2f} not > {self.threshold:g}")


class _Bounded(Policy, frozen=True):
    """``policies`` together, but not before ``floor_s`` of silence, and at the latest after ``ceiling_s`` (None: no bound)."""

    policies: tuple[EndPolicy, ...]
    floor_s: float = 0.0
    ceiling_s: float | None = None

    def __post_init__(self) -> None:
        Policy.__post_init__(self)
        check_members(self, self.policies, EndPolicy, "end")
        if self.ceiling_s is not None and self.ceiling_s < self.floor_s:
            raise ValueError(f"{type(self).__name__}.ceiling_s ({self.ceiling_s!r}) is shorter than floor_s ({self.floor_s!r})")

    def _between(self, due: Due, pause: Pause) -> Due:
        if self.ceiling_s is not None and due.at > pause.ended + self.ceiling_s:
            return Due(pause.ended + self.ceiling_s, f"silence, {pause.after} (ceiling_s {self.ceiling_s:g}; {due.why})")
        if due.at < pause.ended + self.floor_s:
            return Due(pause.ended + self.floor_s, f"{due.why} (floor_s {self.floor_s:g})")
        return due


class Earliest(_Bounded, frozen=True, tag="earliest"):
    """Whichever of ``policies`` comes first, but not before ``floor_s`` of silence, and at the latest after ``ceiling_s`` (None: no bound)."""

    def due(self, pause: Pause) -> Due:
        """See the class."""
        dues = [policy.due(pause) for policy in self.policies]
        soonest = min(dues, key=lambda due: due.at)
        if soonest.at == math.inf:
            soonest = Due(math.inf, ", ".join(due.why for due in dues))
        return self._between(soonest, pause)


class Latest(_Bounded, frozen=True, tag="latest"):
    """When all of ``policies`` are content, with the same two bounds."""

    def due(self, pause: Pause) -> Due:
        """See the class."""
        return self._between(max((policy.due(pause) for policy in self.policies), key=lambda due: due.at), pause)


EndPolicy: TypeAlias = Silence | AdaptiveSilence | Endpoint | Score | External | Earliest | Latest
"""Says when a silence ends the turn: ``due(pause) -> due``."""
