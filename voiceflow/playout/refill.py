"""What a playout does when it has run dry: how much to collect before it goes on, learned from the gaps there were.

Its one rule: a gap is an underrun only when the utterance goes on after it; the last sound of an utterance is followed
by silence too. Pure, and counted in samples: it has no clock.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["PlayoutOptions", "Refill"]

REST_MS = 1000
"""An unfinished utterance that has been dry this long needs no more pulls until something comes."""


@dataclass(frozen=True, slots=True)
class PlayoutOptions:
    """How much sound is collected before going on after an underrun, and how sound is cut."""

    start_ms: float = 80
    """Target at first."""
    min_ms: float = 40
    max_ms: float = 400
    """Bounds of the target. A gap longer than ``max_ms`` does not grow it: no buffer allowed here could have bridged it."""
    grow_ms: float = 20
    """Added to the target by an underrun."""
    shrink_ms: float = 10
    """Taken off the target after ``calm_ms`` of sound during which the queue never fell below it."""
    calm_ms: float = 5000
    fade_ms: float = 8
    """Length of the fade at a hold, a resume and the return from an underrun; within one 20 ms output frame."""
    declick_ms: float = 3
    """After a cut at full level the last sample decays to zero in this time: a constant, no speech. 0: stop dead."""
    replay_ms: float = 3000
    """At most this much of the cut word is kept to be said again."""

    def __post_init__(self) -> None:
        if not 0 <= self.min_ms <= self.start_ms <= self.max_ms:
            raise ValueError(
                f"PlayoutOptions: min_ms {self.min_ms}, start_ms {self.start_ms}, max_ms {self.max_ms} must rise from 0 in this order"
            )
        if not 0 <= self.fade_ms <= 20:
            raise ValueError(f"PlayoutOptions: fade_ms is {self.fade_ms}; it must fit one output frame, 0 to 20")
        for name in ("grow_ms", "shrink_ms", "declick_ms", "replay_ms"):
            if getattr(self, name) < 0:
                raise ValueError(f"PlayoutOptions: {name} is {getattr(self, name)}, it must not be negative")
        if self.calm_ms <= 0:
            raise ValueError(f"PlayoutOptions: calm_ms is {self.calm_ms}, it must be more than 0")


class Refill:
    """Follows the queue of one playout. ``open``: more sound of the newest utterance is to come."""

    def __init__(self, sample_rate: int, options: PlayoutOptions) -> None:
        self.sample_rate = sample_rate
        self.options = options
        self.target_ms = options.start_ms
        self.underruns = 0
        self._gap: int | None = None
        """Samples of silence since the queue ran dry in mid-utterance."""
        self._waited: int | None = None
        """Samples of silence since it began to fill again."""
        self._calm = 0
        self._sounded = 0
        self._starved = 0

    def samples(self, ms: float) -> int:
        """Milliseconds as samples."""
        return round(ms * self.sample_rate / 1000)

    @property
    def waiting(self) -> bool:
        """It collects before it goes on."""
        return self._waited is not None

    @property
    def resting(self) -> bool:
        """It has been dry for so long that a pull would change nothing."""
        return self._gap is not None and self._gap >= self.samples(REST_MS)

    @property
    def underrun_ratio(self) -> float:
        """The share of speaking time that was silence for want of sound, 0 to 1."""
        total = self._sounded + self._starved
        return self._starved / total if total else 0.0

    def reset(self) -> None:
        """There is nothing to go on with: the gap, if there was one, was the end."""
        self._gap = self._waited = None

    def ran_dry(self, missing: int) -> bool:
        """``missing`` samples were wanted and the utterance is not at its end. True when it just began."""
        began = self._gap is None
        self._gap = missing + (self._gap or 0)
        return began

    def came(self) -> None:
        """More of the same utterance was pushed: if the queue had run dry, that was an underrun."""
        if self._gap is None or self._waited is not None:
            return
        self.underruns += 1
        self._starved += self._gap
        self._calm = 0
        if self._gap <= self.samples(self.options.max_ms):
            self.target_ms = min(self.target_ms + self.options.grow_ms, self.options.max_ms)
        self._waited = 0

    def goes_on(self, queued: int, *, open: bool) -> bool:
        """After an underrun: enough is queued, or it is all there is, or the wait has been as long as the target."""
        if not self.enough(queued, open=open):
            return False
        self.reset()
        return True

    def enough(self, queued: int, *, open: bool) -> bool:
        """Whether it would go on."""
        target = self.samples(self.target_ms)
        return self._waited is None or queued >= target or not open or self._waited >= target

    def wait(self, count: int) -> None:
        """``count`` samples of silence went out while it collects."""
        self._waited = count + (self._waited or 0)
        self._starved += count

    def sound(self, count: int, queued: int, *, open: bool) -> None:
        """``count`` samples of sound went out, ``queued`` are left: shrink the target while there is plenty."""
        self._sounded += count
        # The draining end of an utterance says nothing about how it was fed.
        self._calm = 0 if open and queued < self.samples(self.target_ms) else self._calm + count
        if self._calm >= self.samples(self.options.calm_ms):
            self._calm = 0
            self.target_ms = max(self.target_ms - self.options.shrink_ms, self.options.min_ms)
