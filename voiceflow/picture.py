"""Pictures of a plan: plain text, Mermaid, Graphviz, and data for whoever draws it themselves. Pure functions of the plan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from voiceflow.frames import AudioFormat, AudioFrame

if TYPE_CHECKING:
    from voiceflow.plan import Plan
    from voiceflow.processor import Processor

__all__ = ["data", "dot", "mermaid", "text"]


class _Arrow:
    """All that goes from one node to another in one direction."""

    def __init__(self) -> None:
        self.types: list[str] = []
        self.format: str = ""


def _arrows(plan: Plan) -> dict[tuple[Processor | None, Processor], _Arrow]:
    arrows: dict[tuple[Processor | None, Processor], _Arrow] = {}
    converted = {(c.source, c.target): c for c in plan.conversions}
    for source, frame_type, target in plan.flows():
        arrow = arrows.setdefault((source, target.receiver), _Arrow())
        if frame_type.__name__ not in arrow.types:
            arrow.types.append(frame_type.__name__)
        if issubclass(frame_type, AudioFrame) or issubclass(AudioFrame, frame_type):
            conversion = converted.get((target.last, target.receiver))
            if conversion is not None:
                came = ", ".join("any" if f is None else str(f) for f in conversion.formats)
                arrow.format = f"[{came} => {conversion.wanted}]"
            elif source is not None and source.makes is not None:
                arrow.format = f"[{source.makes}]"
    return arrows


def _is_report(plan: Plan, source: Processor | None, receiver: Processor) -> bool:
    return source is not None and plan.nodes.index(receiver) < plan.nodes.index(source)


def _label(arrow: _Arrow) -> str:
    return " ".join(filter(None, [", ".join(arrow.types), arrow.format]))


def text(plan: Plan) -> str:
    """One line a node, one line below it for each receiver, and the sum of the delays held back."""
    arrows = _arrows(plan)
    lines = [f"pipeline: {len(plan.nodes)} nodes, {len(plan.conversions)} converters, {plan.held_ms():g} ms held back by design"]
    width = max(len(node.name) for node in plan.nodes)
    for source in [None, *plan.nodes] if plan.inputs else plan.nodes:
        if source is None:
            lines.append("application")
        else:
            notes = [
                "worker" if source.contract.waits else "inline" if source.contract.accepts else "source",
                f"takes {_formats(source.takes)}" if source.takes else "",
                f"makes {source.makes}" if source.makes else "",
                f"holds {source.holds_ms:g} ms" if source.holds_ms else "",
            ]
            lines.append(f"{source.name.ljust(width)}  ({', '.join(filter(None, notes))})")
        for (origin, receiver), arrow in arrows.items():
            if origin is source:
                sign = "<--" if _is_report(plan, source, receiver) else "-->"
                lines.append(f"    {sign} {receiver.name.ljust(width)}  {_label(arrow)}")
    return "\n".join(lines)


def _formats(formats: tuple[AudioFormat, ...] | list[AudioFormat] | object) -> str:
    return " or ".join(map(str, formats)) if isinstance(formats, list | tuple) else str(formats)


def mermaid(plan: Plan, depths: Mapping[str, str]) -> str:
    """A Mermaid flowchart: solid arrows down the pipeline, dotted ones for reports."""
    names = _identifiers(plan)
    lines = ["flowchart LR"]
    lines += [f'    {names[n]}["{_title(n, depths, "<br/>").replace(chr(34), "#quot;")}"]' for n in plan.nodes]
    if plan.inputs:
        lines.append('    app(["application"])')
    for (source, receiver), arrow in _arrows(plan).items():
        line, head = ("-.", ".->") if _is_report(plan, source, receiver) else ("--", "-->")
        lines.append(f'    {names[source]} {line} "{_label(arrow)}" {head} {names[receiver]}')
    return "\n".join(lines)


def dot(plan: Plan, depths: Mapping[str, str]) -> str:
    """The same for Graphviz."""
    names = _identifiers(plan)
    lines = ["digraph pipeline {", "    rankdir=LR; node [shape=box];"]
    lines += [f'    {names[n]} [label="{_title(n, depths, chr(10)).translate(_DOT_ESCAPES)}"];' for n in plan.nodes]
    if plan.inputs:
        lines.append('    app [label="application", shape=oval];')
    for (source, receiver), arrow in _arrows(plan).items():
        style = ", style=dashed, constraint=false" if _is_report(plan, source, receiver) else ""
        lines.append(f'    {names[source]} -> {names[receiver]} [label="{_label(arrow)}"{style}];')
    return "\n".join([*lines, "}"])


def data(plan: Plan) -> dict[str, Any]:
    """The same as plain values, for JSON: ``nodes`` and ``arrows`` in order. ``report``: it goes up. What the application sends has no arrow."""
    return {
        "nodes": [{"name": node.name, "waits": node.contract.waits, "holds_ms": node.holds_ms} for node in plan.nodes],
        "arrows": [
            {"source": source.name, "target": receiver.name, "label": _label(arrow), "report": _is_report(plan, source, receiver)}
            for (source, receiver), arrow in _arrows(plan).items()
            if source is not None
        ],
    }


_DOT_ESCAPES = str.maketrans({'"': r"\"", "\\": r"\\", "\n": r"\n"})


def _identifiers(plan: Plan) -> dict[Processor | None, str]:
    """What the two languages call the nodes: names may hold anything, so they are labels only."""
    return {None: "app"} | {node: f"n{i}" for i, node in enumerate(plan.nodes)}


def _title(node: Processor, depths: Mapping[str, str], newline: str) -> str:
    depth = depths.get(node.name)
    return f"{node.name}{newline}{depth}" if depth else node.name
