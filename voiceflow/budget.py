"""The latency budget: how long the caller may wait for the first sound of an answer, stage by stage, and how long they did.

Its one rule: the stages of a turn add up to what the caller felt. Each is what it added to the wait, so work that was done
ahead (speculation) costs nothing.

The default is the usual one of the field: 500 ms from the caller's last word to the first sound of the answer, above which
people notice a lag; 150 for the recogniser, 200 for the model's first token, 150 for the voice's first sound.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from voiceflow.errors import PipelineError
from voiceflow.frames import Frame, LLMTextFrame, OutputAudioFrame, PlaybackStarted, TurnEnded
from voiceflow.pipeline import Pipeline
from voiceflow.session import Session

__all__ = ["STAGES", "Budget", "Latencies", "TurnLatency"]

log = logging.getLogger("voiceflow")

STAGES = ("stt", "llm", "tts", "playout")
"""What a turn waits for, in order."""

REPLIES = 32
"""Replies whose first token and first sound are remembered: a guess may come before its turn has ended."""


@dataclass(frozen=True, slots=True)
class Budget:
    """Milliseconds that each stage may take. ``playout`` has none of its own: it comes off the whole.

    ``stt_ms``: from the end of the caller's voice until their turn has ended, with all its words. ``llm_ms``: on to the
    first token. ``tts_ms``: on to the first sound made; the first clause is waited for in it.

    Raises:
        ValueError: one of them is not more than 0.
    """

    stt_ms: float = 150
    llm_ms: float = 200
    tts_ms: float = 150

    def __post_init__(self) -> None:
        for name in ("stt_ms", "llm_ms", "tts_ms"):
            value = getattr(self, name)
            if not (value > 0 and math.isfinite(value)):
                raise ValueError(f"Budget: {name} is {value}, it must be more than 0 milliseconds")

    @property
    def total_ms(self) -> float:
        """Of the whole."""
        return self.stt_ms + self.llm_ms + self.tts_ms

    @property
    def limits(self) -> dict[str, float]:
        """Stage -> milliseconds that it may take, in order; at the end ``total``, of the whole."""
        return {"stt": self.stt_ms, "llm": self.llm_ms, "tts": self.tts_ms, "total": self.total_ms}

    def over(self, turn: TurnLatency) -> tuple[str, ...]:
        """The stages of a turn that took longer than they may, in order; at the end ``total``, if that did too."""
        took = {**turn.stages, "total": turn.total_ms}
        return tuple(name for name, limit in self.limits.items() if took[name] > limit)

    def check(self, pipeline: Pipeline) -> None:
        """Raises PipelineError if the delays that the nodes hold back by design are more than the whole budget."""
        held_ms = pipeline.held_ms
        if held_ms > self.total_ms:
            nodes = sorted((node for node in pipeline.nodes if node.holds_ms), key=lambda node: -node.holds_ms)
            most = ", ".join(f"{node.name or type(node).__name__} {node.holds_ms:g} ms" for node in nodes[:3])
            raise PipelineError(
                f"the budget is {self.total_ms:g} ms, and the pipeline holds back {held_ms:g} ms by design ({most}): "
                "no turn can keep it; give the budget more, or those nodes other options"
            )


class TurnLatency(msgspec.Struct, frozen=True):
    """What the caller waited for after a turn. ``at``: when their voice had ended; the rest in milliseconds."""

    utterance: int
    at: float
    stt_ms: float
    llm_ms: float
    tts_ms: float
    playout_ms: float

    @property
    def stages(self) -> dict[str, float]:
        """Stage -> milliseconds, in order."""
        return {"stt": self.stt_ms, "llm": self.llm_ms, "tts": self.tts_ms, "playout": self.playout_ms}

    @property
    def total_ms(self) -> float:
        """From the end of the caller's voice to the first sound of the answer at their ear."""
        return self.stt_ms + self.llm_ms + self.tts_ms + self.playout_ms


class Latencies:
    """Measures each turn of a call against a budget, out of the frames on its edges.

    ``Latencies(on_turn=print).watch(session)``, or give ``see`` the frames. A turn over the budget is logged, with the stages
    that were. ``turns``: the last 64. A turn that gets no answer, or is interrupted before its first sound, is not measured.
    """

    def __init__(self, budget: Budget | None = None, on_turn: Callable[[TurnLatency, tuple[str, ...]], object] | None = None) -> None:
        self.budget = budget or Budget()
        self.turns: deque[TurnLatency] = deque(maxlen=64)
        self._on_turn = on_turn
        self._ended: tuple[float, float] | None = None
        """Of the turn that waits for an answer: when the caller's voice ended, and when that was known."""
        self._first_token: dict[int, float] = {}
        self._first_sound: dict[int, float] = {}

    def watch(self, session: Session) -> Callable[[], None]:
        """Measure a session from now on. The returned function ends it."""

        def tap(frame: Frame, source: str, target: str) -> None:
            self.see(frame, session.time())

        return session.tap(tap)

    def see(self, frame: Frame, now: float) -> TurnLatency | None:
        """Take in a frame seen on any edge; the turn, when this is its answer's first sound at the ear."""
        if isinstance(frame, TurnEnded):
            if frame.text:
                self._ended = frame.speech_ended or now, now
        elif isinstance(frame, LLMTextFrame):
            _note(self._first_token, frame.utterance, now)
        elif isinstance(frame, OutputAudioFrame):
            _note(self._first_sound, frame.utterance, now)
        elif isinstance(frame, PlaybackStarted) and self._ended is not None and frame.at >= self._ended[0]:
            return self._answered(frame.utterance, frame.at, *self._ended)
        return None

    def _answered(self, utterance: int, heard_at: float, voice_ended: float, turn_ended: float) -> TurnLatency:
        self._ended = None
        times = [
            voice_ended,
            turn_ended,
            self._first_token.get(utterance, turn_ended),
            self._first_sound.get(utterance, heard_at),
            heard_at,
        ]
        for i in range(1, len(times)):
            times[i] = min(max(times[i], times[i - 1]), max(heard_at, voice_ended))
        stages = [(times[i + 1] - times[i]) * 1000 for i in range(4)]
        turn = TurnLatency(utterance, voice_ended, *stages)
        self.turns.append(turn)
        over = self.budget.over(turn)
        if over:
            took = ", ".join(f"{name} {ms:.0f}" for name, ms in turn.stages.items())
            log.info("turn over its budget of %g ms: %.0f ms (%s); over: %s", self.budget.total_ms, turn.total_ms, took, ", ".join(over))
        if self._on_turn is not None:
            self._on_turn(turn, over)
        return turn


def _note(times: dict[int, float], utterance: int, now: float) -> None:
    if utterance not in times:
        times[utterance] = now
        if len(times) > REPLIES:
            del times[next(iter(times))]
