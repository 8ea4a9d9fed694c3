"""When to guess that the caller is done: the turn machine's books, read with a more eager policy.

The one rule: a guess changes nothing. It is told, told to be over, or overtaken by the end of the turn; the machine decides
as if there were none. Pure: no clock, time is passed in.
"""

from __future__ import annotations

import math

from voiceflow.processors.end_policies import EndPolicy
from voiceflow.processors.marks import spoken_words
from voiceflow.processors.speculation import TurnProbable, TurnResumed
from voiceflow.processors.turn_evidence import Agent, Due, State
from voiceflow.processors.turn_machine import TurnMachine

__all__ = ["Guesses"]

_EPSILON_S = 1e-6


class Guesses:
    """Watches a machine. :meth:`look` after each of its steps, and when :meth:`deadline` has come."""

    def __init__(self, eager: EndPolicy) -> None:
        self.eager = eager
        self._told: tuple[str, ...] | None = None
        """The words of the guess that is out."""

    def look(self, machine: TurnMachine, now: float) -> list[TurnProbable | TurnResumed]:
        """What is to be told now."""
        if machine.state in (State.IDLE, State.LISTENING):
            was_out, self._told = self._told is not None, None
            # In IDLE the turn has ended; what came of it says whether the guess was right.
            return [TurnResumed(why="the caller speaks again")] if was_out and machine.state is State.LISTENING else []
        text, due = self._next(machine, now)
        if not text or due.at > now + _EPSILON_S:
            return []
        self._told = spoken_words(text)
        return [TurnProbable(text=text, continues=machine.words.was_asked, why=due.why)]

    def deadline(self, machine: TurnMachine, now: float) -> float | None:
        """When to look if nothing comes before; None: never."""
        text, due = self._next(machine, now)
        return due.at if text and due.at < math.inf else None

    def _next(self, machine: TurnMachine, now: float) -> tuple[str, Due]:
        """What would be asked now, and when to guess it; "": nothing, or it was guessed, or the agent is at work."""
        nothing = "", Due(math.inf, "")
        caller, words = machine.caller, machine.words
        if machine.state is not State.WAITING or caller.floor or machine.agent.doing(now) is not Agent.SILENT:
            return nothing
        said = [*words.turn, *filter(None, [caller.partial])]
        text = " ".join([*words.unanswered, *said])
        if not said or spoken_words(text) == self._told:
            return nothing
        return text, self.eager.due(caller.pause(now))
