"""Interrupt a conversation at every point where it can wait, and show that nothing stale is left.

The rule it proves is the engine's promise: after an interrupt returns, nothing said before it is processed or heard,
nothing the caller did is lost, and the next question is answered.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Any

from voiceflow.frames import ContextFrame, Frame, Lane, Travels
from voiceflow.interruption import Interruption
from voiceflow.session import Session
from voiceflow.testing.clock import VirtualClockLoop, run_virtual
from voiceflow.testing.leaks import no_leaks
from voiceflow.testing.sink import RecordingSink

__all__ = ["Everywhere", "Probe", "interrupt_everywhere"]


@dataclass
class Probe:
    """One run of the scenario. ``watch`` the session, run it; ``problems`` says what was wrong with this run.

    ``point``: the step (or delivery) at which to interrupt; None in the first, undisturbed run that counts them.
    """

    loop: VirtualClockLoop
    point: int | None
    at_deliveries: bool = False
    problems: list[str] = field(default_factory=list)
    interruption: Interruption | None = None
    steps: int = 0
    deliveries: int = 0
    _session: Session | None = None
    _newest: int = 0
    _floor: int | None = None
    _sinks: list[RecordingSink] = field(default_factory=list)

    def watch(self, session: Session, *sinks: RecordingSink) -> None:
        """Tap every edge of the session, and interrupt it at the probe's point once it runs."""
        self._session = session
        self._sinks = list(sinks)
        session.tap(self._see)
        if not self.at_deliveries:
            self.loop.before_step = self._step

    def finish(self) -> None:
        """Look for stale sound in what the sinks played. Call it inside the session, at the end of the scenario."""
        self.loop.before_step = None
        if self.interruption is None or self._floor is None:
            return
        for sink in self._sinks:
            for played in sink.heard():
                if played.until > self.interruption.at + 1e-9 and self._is_stale(played.frame, played.frame.utterance):
                    self.problems.append(
                        f"stale sound: utterance {played.frame.utterance} heard until {played.until - self.interruption.at:.3f} s after the interrupt"
                    )

    def _step(self, _: int) -> None:
        if self._session is not None and self._session.state == "running":
            self.steps += 1
            if self.steps == self.point:
                self._interrupt()

    def _see(self, frame: Frame, source: str, target: str) -> None:
        utterance = getattr(frame, "utterance", 0)
        if frame.lane is Lane.AGENT and frame.travels is Travels.DOWN and self._is_stale(frame, utterance):
            self.problems.append(f"stale {type(frame).__name__} of utterance {utterance} on {source} -> {target}")
        if isinstance(frame, ContextFrame):
            self._newest = max(self._newest, frame.utterance)
        self.deliveries += 1
        if self.at_deliveries and self.deliveries == self.point:
            self._interrupt()

    def _is_stale(self, frame: Frame, utterance: int) -> bool:
        """By the number of its reply; what was said without being asked for has none, and is known by its epoch only."""
        if self._floor is None or self._session is None:
            return False
        return utterance <= self._floor if utterance else frame.epoch < self._session.epoch

    def _interrupt(self) -> None:
        assert self._session is not None
        self._floor = self._newest
        self.interruption = self._session.interrupt("interrupt_everywhere")
        left = [f"{state.name} ({state.frames})" for state in self._session.inboxes() if state.lane == Lane.AGENT.name and state.frames]
        if left:
            self.problems.append(f"agent-lane inboxes not empty after the interrupt: {', '.join(left)}")


@dataclass(frozen=True, slots=True)
class Everywhere:
    """How many points there were, how many were tried, and what went wrong: (point, problem)."""

    points: int
    tried: int
    problems: tuple[tuple[int, str], ...]

    def check(self) -> None:
        """Raise AssertionError with the first problems, if there were any."""
        if self.problems:
            first = "\n".join(f"  at point {point}: {problem}" for point, problem in self.problems[:10])
            raise AssertionError(
                f"{len(self.problems)} problems at {len({p for p, _ in self.problems})} of {self.tried} interrupt points:\n{first}"
            )


def interrupt_everywhere(
    scenario: Callable[[Probe], Coroutine[Any, Any, None]],
    *,
    at_deliveries: bool = False,
    every: int = 1,
    stop_after_problems: int | None = None,
) -> Everywhere:
    """Run the scenario once to count its points, then once for each point (or each ``every``-th) with an interrupt there.

    A point is a step of the event loop, which is every place where the graph can wait; with ``at_deliveries`` it is a
    frame's delivery on an edge, in the middle of a synchronous chain. The scenario builds its graph afresh, calls
    ``probe.watch(session, sink)``, runs the session, calls ``probe.finish()`` inside it, and adds what it finds wrong
    to ``probe.problems``; what it raises is a problem too.
    """
    first = _run(scenario, None, at_deliveries=at_deliveries)
    if first.problems:
        raise AssertionError(f"the scenario fails without any interrupt: {first.problems[0]}")
    points = first.deliveries if at_deliveries else first.steps
    problems: list[tuple[int, str]] = []
    tried = 0
    for point in _points(points, every):
        tried += 1
        problems += [(point, problem) for problem in _run(scenario, point, at_deliveries=at_deliveries).problems]
        if stop_after_problems is not None and len(problems) >= stop_after_problems:
            break
    return Everywhere(points, tried, tuple(problems))


def _points(count: int, every: int) -> Iterable[int]:
    return range(1, count + 1, every)


def _run(scenario: Callable[[Probe], Coroutine[Any, Any, None]], point: int | None, *, at_deliveries: bool) -> Probe:
    loop = VirtualClockLoop()
    probe = Probe(loop, point, at_deliveries)

    async def guarded() -> None:
        async with no_leaks():
            await scenario(probe)

    try:
        run_virtual(guarded(), loop=loop)
    except Exception as error:  # noqa: BLE001 - whatever the scenario raises is what this run found
        members = error.exceptions if isinstance(error, ExceptionGroup) else (error,)
        probe.problems += [f"{type(member).__name__}: {member}" for member in members]
    return probe
