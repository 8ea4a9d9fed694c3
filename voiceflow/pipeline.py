"""Which node feeds which: a description, in which nothing runs.

``mic >> vad >> stt`` chains, ``a >> [b, c] >> d`` splits and joins, ``pipeline.link(a, b)`` adds any other edge, and a
pipeline stands wherever a node may. ``print(pipeline)`` draws it. Checks happen in :mod:`voiceflow.plan`, when a
session (or a picture) is made of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, Union

from voiceflow import picture
from voiceflow.errors import PipelineError
from voiceflow.frames import Travels
from voiceflow.plan import BY_THE_SESSION, Plan, make_plan

if TYPE_CHECKING:
    from voiceflow.frames import Frame
    from voiceflow.processor import Processor

__all__ = ["Part", "Pipeline"]

Part: TypeAlias = Union["Processor", "Pipeline", "Sequence[Processor | Pipeline]"]


class Pipeline:
    """Nodes and edges, in the order in which they were written.

    ``heads`` are where the next ``>>`` from the left arrives, ``tails`` where the next one to the right leaves.
    """

    def __init__(self, part: Part) -> None:
        self.nodes: list[Processor] = []
        self.edges: list[tuple[Processor, Processor]] = []
        self.heads: list[Processor] = []
        self.tails: list[Processor] = []
        for item in part if isinstance(part, Sequence) and not isinstance(part, str) else [part]:
            if isinstance(item, Pipeline):
                self._absorb(item)
                self.heads += [node for node in item.heads if node not in self.heads]
                self.tails += [node for node in item.tails if node not in self.tails]
            else:
                node = _checked(item)
                self._add(node)
                self.heads.append(node)
                self.tails.append(node)
        if not self.nodes:
            raise PipelineError("an empty list in a pipeline: put at least one processor into each branch")

    def __rshift__(self, other: Part) -> Pipeline:
        right = other if isinstance(other, Pipeline) else Pipeline(other)
        joined = Pipeline(self)
        joined._absorb(right)
        for tail in self.tails:
            for head in right.heads:
                joined.link(tail, head)
        joined.tails = list(right.tails)
        return joined

    def __rrshift__(self, other: Part) -> Pipeline:
        return Pipeline(other) >> self

    def link(self, source: Processor, target: Processor) -> Pipeline:
        """Add an edge; both ends become part of the pipeline if they were not. Returns the pipeline itself."""
        self._add(_checked(source))
        self._add(_checked(target))
        if (source, target) not in self.edges:
            self.edges.append((source, target))
        return self

    def substitute(self, old: Processor, new: Processor) -> Pipeline:
        """The same pipeline with one node exchanged for another."""
        if old not in self.nodes:
            raise PipelineError(f"{old!r} is not in this pipeline; it holds {', '.join(map(repr, self.nodes))}")
        if new in self.nodes:
            raise PipelineError(f"{new!r} is already in this pipeline; put another node in the place of {old!r}")
        swapped = Pipeline(self)

        def swap(node: Processor) -> Processor:
            return _checked(new) if node is old else node

        swapped.nodes = [swap(node) for node in self.nodes]
        swapped.edges = [(swap(a), swap(b)) for a, b in self.edges]
        swapped.heads, swapped.tails = [swap(n) for n in self.heads], [swap(n) for n in self.tails]
        return swapped

    def plan(self, inputs: Sequence[type[Frame]] = ()) -> Plan:
        """Check the graph and solve its audio formats. ``inputs``: what the application will send.

        Raises PipelineError, naming both ends, for a graph that cannot work.
        """
        return make_plan(self.nodes, self.edges, inputs)

    @property
    def held_ms(self) -> float:
        """The delay that the slowest way through it holds back by design, converters included."""
        return self._sketch().held_ms()

    def __str__(self) -> str:
        return picture.text(self._sketch())

    def mermaid(self, depths: Mapping[str, str] | None = None) -> str:
        """The graph as a Mermaid flowchart; ``depths`` (from ``session.depths()``) adds the live inboxes."""
        return picture.mermaid(self._sketch(), depths or {})

    def dot(self, depths: Mapping[str, str] | None = None) -> str:
        """The graph in Graphviz's language; ``depths`` as for :meth:`mermaid`."""
        return picture.dot(self._sketch(), depths or {})

    def data(self) -> dict[str, Any]:
        """The graph as plain values, for JSON and whoever draws it themselves: its ``nodes`` and ``arrows``."""
        return picture.data(self._sketch())

    def _sketch(self) -> Plan:
        """A plan for a picture: what the heads take, reports apart, is assumed to be sent by the application."""
        fed = {target for _, target in self.edges}
        heads = [node for node in self.nodes if node not in fed]
        wanted = {t for node in heads for t in node.contract.accepts if t.travels is Travels.DOWN and t not in BY_THE_SESSION}
        return self.plan(sorted(wanted, key=lambda t: t.__name__))

    def _add(self, node: Processor) -> None:
        if node not in self.nodes:
            self.nodes.append(node)

    def _absorb(self, other: Pipeline) -> None:
        for node in other.nodes:
            self._add(node)
        self.edges += [edge for edge in other.edges if edge not in self.edges]


def _checked(node: object) -> Processor:
    contract = getattr(node, "contract", None)
    if isinstance(node, type) and contract is not None:
        raise PipelineError(f"{node.__name__} is a processor class, not a node: write {node.__name__}()")
    if contract is None:
        cure = "put @processor above the function" if callable(node) else "only processors and pipelines can be linked"
        raise PipelineError(f"{node!r} is not a processor: {cure}")
    if not contract.accepts and not contract.yields and not contract.runs:
        raise PipelineError(f"{node!r} has neither process() nor run(): give it one of them")
    if type(node).__eq__ is not object.__eq__:
        raise PipelineError(f"{type(node).__name__} is compared by its values, and a node must be itself alone: write @dataclass(eq=False)")
    return node  # type: ignore[return-value]  # duck-typed above: importing Processor here would be a cycle
