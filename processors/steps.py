"""A flow: named steps, each of which asks the caller for something and ends with a typed result.

The one rule: a step is over when its result fits its type, and the flow decides what comes next, not the model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from voiceflow.errors import VoiceflowError
from voiceflow.processors.agents import Agent, Carry, HandOver
from voiceflow.processors.tool import Tool, tool_of

__all__ = ["Flow", "FlowError", "Step"]


class FlowError(VoiceflowError):
    """A flow that cannot work, or a step that cannot be taken. The text names the step."""


@dataclass(frozen=True, slots=True)
class Step:
    """One thing to find out or to do.

    ``ask``: the model's instructions. ``result``: a msgspec.Struct of what is to be known at the end. ``next``: the
    steps that may follow; with several, ``choose(result)`` gives the name of one. None follows the last.
    """

    name: str
    ask: str
    result: type[msgspec.Struct]
    next: tuple[str, ...] = ()
    choose: Callable[[Any], str] | None = None
    tools: tuple[Tool, ...] = ()
    say: str = ""
    """What is said first; without it the model is asked at once."""
    carry: Carry = "all"


class Flow:
    """Steps, the first one first. ``results`` has what was found out, by step; ``after``: who goes on after the last step.

    Without ``after``, the last step's agent goes on without its task. Raises FlowError naming the step: a name that is
    given twice or is not there, a step that cannot be reached, one with several next steps and no way to choose, a flow without an end.
    """

    def __init__(self, steps: Sequence[Step], *, persona: str = "", after: Agent | None = None, voice: str = "") -> None:
        self.steps = {step.name: step for step in steps}
        self.persona = persona
        self.after = after
        self.voice = voice
        self.results: dict[str, msgspec.Struct] = {}
        self.done = False
        _check(steps, self.steps)
        self.current = steps[0].name

    @property
    def agent(self) -> Agent:
        """Who asks for the present step."""
        return self._agent(self.steps[self.current])

    def finish(self, step: str, result: msgspec.Struct) -> Step | None:
        """``step`` is over: the next one, or None at the end. A step that is not the present one is a FlowError."""
        if self.done or step != self.current:
            raise FlowError(f"step {step!r} is not the present one ({'the flow is over' if self.done else repr(self.current)})")
        here = self.steps[step]
        to = here.choose(result) if here.choose is not None else here.next[0] if here.next else None
        if to is not None and to not in here.next:
            raise FlowError(f"step {step!r}: choose() gave {to!r}, and next has {', '.join(here.next) or 'nothing'}")
        self.results[step] = result
        if to is None:
            self.done = True
            return None
        self.current = to
        return self.steps[to]

    def _agent(self, step: Step) -> Agent:
        task = f"{step.ask} When you know it, call {_finish_name(step)}."
        known = "".join(f" {name}: {msgspec.json.encode(result).decode()}." for name, result in self.results.items())
        system = " ".join(filter(None, [self.persona, task, f"Known so far.{known}" if known else ""]))
        return Agent(step.name, system, (*step.tools, self._tool(step)), step.say, self.voice)

    def _tool(self, step: Step) -> Tool:
        async def finish(result: msgspec.Struct) -> HandOver | str:
            following = self.finish(step.name, result)
            if following is not None:
                return HandOver(self._agent(following), following.carry)
            return HandOver(self.after) if self.after is not None else "That was all. Thank the caller."

        return tool_of(step.result, finish, name=_finish_name(step), description=f"Ends the step {step.name!r} with its result.")


def _finish_name(step: Step) -> str:
    return f"finish_{step.name}"


def _check(steps: Sequence[Step], known: dict[str, Step]) -> None:
    if not steps:
        raise FlowError("a flow has at least one step")
    names = [step.name for step in steps]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise FlowError(f"two steps are named {', '.join(twice)}")
    for step in steps:
        if missing := [name for name in step.next if name not in known]:
            raise FlowError(f"step {step.name!r}: next names {', '.join(map(repr, missing))}; there are {', '.join(names)}")
        if len(step.next) > 1 and step.choose is None:
            raise FlowError(f"step {step.name!r} has {len(step.next)} next steps; choose(result) must say which")
    reached, ahead = set(), [steps[0].name]
    while ahead:
        name = ahead.pop()
        if name not in reached:
            reached.add(name)
            ahead += known[name].next
    if unreachable := [name for name in names if name not in reached]:
        raise FlowError(f"no step leads to {', '.join(map(repr, unreachable))}")
    if all(known[name].next for name in reached):
        raise FlowError(f"the flow never ends: each of {', '.join(names)} has a next step")
