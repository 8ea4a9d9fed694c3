"""A pipeline, checked and solved: the order of its nodes, who gets what from whom, which formats must be converted.

The one rule: whatever is wrong with a graph is found here, before anything runs, and the error names both ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from voiceflow.errors import PipelineError, type_names
from voiceflow.frames import (
    AudioFormat,
    AudioFrame,
    EndFrame,
    ErrorFrame,
    Frame,
    InterruptFrame,
    Lane,
    StartFrame,
    Travels,
)

if TYPE_CHECKING:
    from voiceflow.processor import Processor

__all__ = ["Conversion", "Plan", "Target", "make_plan"]

BY_THE_SESSION: tuple[type[Frame], ...] = (StartFrame, EndFrame, ErrorFrame)
"""What the session itself gives to each node that takes it."""

TO_THE_SESSION: tuple[type[Frame], ...] = (InterruptFrame, EndFrame, ErrorFrame)
"""What the session itself takes from any node."""

MAX_CHANNELS = 2


@dataclass(frozen=True, slots=True)
class Target:
    """One receiver of a frame. ``through``: the waiting nodes whose agent-lane inbox the frame passes on its way,
    nearest first. ``last``: the node before the receiver on that way."""

    receiver: Processor
    through: tuple[Processor, ...]
    last: Processor | None


@dataclass(frozen=True, slots=True)
class Conversion:
    """A converter the graph needs on an edge."""

    source: Processor | None
    """None: the application."""
    target: Processor
    formats: tuple[AudioFormat | None, ...]
    """What arrives (None: not known before it runs)."""
    wanted: AudioFormat


@dataclass(slots=True)
class Plan:
    """``nodes`` in topological order, sources first."""

    nodes: list[Processor]
    edges: list[tuple[Processor, Processor]]
    inputs: tuple[type[Frame], ...]
    conversions: list[Conversion] = field(default_factory=list)
    converters: Mapping[Processor, Processor] = field(default_factory=dict)
    """Converter -> the node it converts for, once they stand in the graph."""
    down: dict[Processor, list[Processor]] = field(default_factory=dict)
    up: dict[Processor, list[Processor]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for node in self.nodes:
            self.down[node] = [b for a, b in self.edges if a is node]
            self.up[node] = [a for a, b in self.edges if b is node]

    @property
    def heads(self) -> list[Processor]:
        """Nodes with no edge into them: where the application's frames enter."""
        return [node for node in self.nodes if not self.up[node]]

    def before(self, node: Processor) -> list[Processor]:
        """All nodes from which a way leads to this one, sources first."""
        return self._beyond(node, self.up)

    def after(self, node: Processor) -> list[Processor]:
        """All nodes to which a way leads from this one, sources first."""
        return self._beyond(node, self.down)

    def _beyond(self, node: Processor, step: Mapping[Processor, list[Processor]]) -> list[Processor]:
        found: set[Processor] = set()
        pending = [node]
        while pending:
            fresh = [other for other in step[pending.pop()] if other not in found]
            found.update(fresh)
            pending += fresh
        return [other for other in self.nodes if other in found]

    def targets(self, source: Processor | None, frame_type: type[Frame], *, declared: bool = False) -> list[Target]:
        """The next nodes that take ``frame_type`` from ``source`` (None: the application), each once.

        ``declared``: the type is an annotation, so a receiver of a subclass of it may get frames too.
        """
        is_up = frame_type.travels is Travels.UP
        step = self.up if is_up else self.down
        queues = frame_type.lane is Lane.AGENT and not is_up
        found: dict[Processor, Target] = {}
        # The way with the most inboxes to each node: an agent frame overtakes nothing, in whatever order branches were written.
        ways: dict[Processor, tuple[Processor | None, tuple[Processor, ...]]]
        ways = dict.fromkeys(self.heads if source is None else step[source], (source, ()))
        for node in reversed(self.nodes) if is_up else self.nodes:
            if node not in ways:
                continue
            last, through = ways[node]
            if node.contract.takes(frame_type):
                found[node] = Target(node, through, last)
                continue
            if declared and any(
                issubclass(wanted, frame_type) and wanted.travels is frame_type.travels for wanted in node.contract.accepts
            ):
                found[node] = Target(node, through, last)  # some of what the annotation allows; the rest passes by
            if queues and node.contract.waits:
                through = (*through, node)
            for following in step[node]:
                if following not in ways or len(through) > len(ways[following][1]):
                    ways[following] = (node, through)
        served = {self.converters[node] for node in found if node in self.converters}
        return [target for node, target in found.items() if node not in served]

    def flows(self) -> Iterator[tuple[Processor | None, type[Frame], Target]]:
        """Every declared way of a frame: from whom (None: the application), which type, to whom."""
        for frame_type in self.inputs:
            for target in self.targets(None, frame_type, declared=True):
                yield None, frame_type, target
        for node in self.nodes:
            for frame_type in sorted(node.contract.yields, key=lambda t: t.__name__):
                for target in self.targets(node, frame_type, declared=True):
                    yield node, frame_type, target

    def held_ms(self) -> float:
        """The delay that the slowest way through the graph holds back by design, in ms, converters included."""
        converters = {(c.source, c.target): _conversion_ms(c) for c in self.conversions}
        total: dict[Processor, float] = {}
        for node in self.nodes:
            total[node] = node.holds_ms + max(
                (total[before] + converters.get((before, node), 0.0) for before in self.up[node]), default=0.0
            )
        return max(total.values())


def _conversion_ms(conversion: Conversion) -> float:
    from voiceflow.audio import holds_ms  # noqa: PLC0415 - numpy and soxr cost more than all the rest; equal formats do not need them

    known = [f for f in conversion.formats if f is not None]
    return max((holds_ms(f.sample_rate, conversion.wanted.sample_rate) for f in known), default=0.0)


def make_plan(nodes: Sequence[Processor], edges: Sequence[tuple[Processor, Processor]], inputs: Sequence[type[Frame]] = ()) -> Plan:
    """Name the nodes, order them, check that each is fed and heard, and find where formats do not meet."""
    _name(nodes)
    plan = Plan(_in_order(nodes, edges), list(edges), tuple(dict.fromkeys(inputs)))
    _check_fed(plan)
    _check_heard(plan)
    plan.conversions = list(_conversions(plan))
    return plan


def _name(nodes: Sequence[Processor]) -> None:
    taken: set[str] = set()
    for node in nodes:
        wanted = node.name.partition("#")[0] or type(node).__name__
        if node.name and node.name not in taken:
            wanted = node.name
        name, number = wanted, 1
        while name in taken:
            number += 1
            name = f"{wanted}#{number}"
        taken.add(name)
        node.name = name


def _in_order(nodes: Sequence[Processor], edges: Sequence[tuple[Processor, Processor]]) -> list[Processor]:
    """Kahn's algorithm, keeping the order of writing where the edges leave it free."""
    waiting = {node: {a for a, b in edges if b is node} for node in nodes}
    ordered: list[Processor] = []
    while waiting:
        ready = next((node for node, before in waiting.items() if not before), None)
        if ready is None:
            loop = " -> ".join(node.name for node in _find_loop(waiting))
            raise PipelineError(
                f"the pipeline runs in a circle: {loop}; a report goes back by itself if its type travels UP, so remove one of these links"
            )
        del waiting[ready]
        ordered.append(ready)
        for before in waiting.values():
            before.discard(ready)
    return ordered


def _find_loop(waiting: dict[Processor, set[Processor]]) -> list[Processor]:
    node = next(iter(waiting))
    trail: list[Processor] = []
    while node not in trail:
        trail.append(node)
        node = next(iter(waiting[node]))
    return [node, *reversed(trail[trail.index(node) :])]


def _check_fed(plan: Plan) -> None:
    fed = {target.receiver for _, _, target in plan.flows()}
    for node in plan.nodes:
        wanted = [t for t in node.contract.accepts if t not in BY_THE_SESSION]
        if not wanted or node in fed:
            continue
        accepts = type_names(wanted)
        if not plan.up[node]:
            raise PipelineError(
                f"nobody feeds {node.name}: it takes {accepts}, has no node before it and no frame is sent to it; "
                f"link a source to it, or say what the application sends: Session(pipeline, inputs=[{wanted[0].__name__}])"
            )
        before = "; ".join(f"{other.name} yields {type_names(other.contract.yields)}" for other in plan.before(node))
        raise PipelineError(f"nobody feeds {node.name}: it takes {accepts}, but no frame of these types reaches it ({before})")
    for frame_type in plan.inputs:
        if frame_type not in BY_THE_SESSION and not plan.targets(None, frame_type, declared=True):
            raise PipelineError(
                f"nobody takes {frame_type.__name__}, which the application says it sends; remove it from inputs or add a node for it"
            )


def _check_heard(plan: Plan) -> None:
    heard = {source for source, _, _ in plan.flows()}
    for node in plan.nodes:
        made = [t for t in node.contract.yields if t.travels is Travels.DOWN and t not in TO_THE_SESSION]
        if not made or node in heard:
            continue
        after = "; ".join(f"{other.name} takes {type_names(other.contract.accepts)}" for other in plan.after(node))
        raise PipelineError(f"nobody takes what {node.name} yields ({type_names(made)}): {after or 'there is no node after it'}")


def _conversions(plan: Plan) -> Iterator[Conversion]:
    """Where a receiver takes certain formats only and another (or an unknown one) arrives."""
    arriving: dict[tuple[Processor | None, Processor], list[AudioFormat | None]] = {}
    formats: dict[Processor, set[AudioFormat | None]] = {}

    def arrive(source: Processor | None, frame_type: type[Frame], made: set[AudioFormat | None]) -> None:
        if not _may_be_sound(frame_type):
            return
        for target in plan.targets(source, frame_type, declared=True):
            if any(map(_may_be_sound, target.receiver.contract.accepts)):
                known = arriving.setdefault((target.last, target.receiver), [])
                known += [f for f in made if f not in known]

    for frame_type in plan.inputs:
        arrive(None, frame_type, {None})
    for node in plan.nodes:
        came_in = {f for (_, b), known in arriving.items() if b is node for f in known}
        if node.takes and came_in:
            came_in = {f if f in node.takes else node.takes[0] for f in came_in}
        formats[node] = {node.makes} if node.makes is not None else came_in or {None}
        for frame_type in node.contract.yields:
            arrive(node, frame_type, formats[node])
    for (last, receiver), known in arriving.items():
        wrong = [f for f in known if f not in receiver.takes]
        if not receiver.takes or not wrong:
            continue
        wanted = receiver.takes[0]
        if any(f.channels > MAX_CHANNELS for f in [*filter(None, wrong), wanted]):
            made = ", ".join("a format not known before it runs" if f is None else str(f) for f in known)
            raise PipelineError(
                f"{last.name if last else 'the application'} makes {made} and {receiver.name} takes {', '.join(map(str, receiver.takes))}: "
                f"only mono and stereo can be converted; put a node between them that mixes the channels"
            )
        yield Conversion(last, receiver, tuple(known), wanted)


def _may_be_sound(frame_type: type[Frame]) -> bool:
    """An audio type, or a base type under which sound may come."""
    return issubclass(frame_type, AudioFrame) or issubclass(AudioFrame, frame_type)
