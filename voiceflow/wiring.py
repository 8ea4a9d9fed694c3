"""A plan with its converters in it: what a session runs. The one rule: a converter stands for its receiver.

Whatever sound reaches the receiver by any way reaches it through the converter, and once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias

from voiceflow.plan import Plan
from voiceflow.processor import Processor

if TYPE_CHECKING:
    from voiceflow.convert import Converter

__all__ = ["Converters", "with_converters"]

Converters: TypeAlias = "dict[tuple[Processor | None, Processor], Converter]"
"""(source, None for the application; target) -> the converter between them."""


def with_converters(plan: Plan, standing: Mapping[tuple[Processor | None, Processor], Converter]) -> tuple[Plan, Converters]:
    """The plan with a converter node wherever formats do not meet. Those that are `standing` already stay, with what they hold."""
    if not plan.conversions:
        return plan, {}
    from voiceflow.convert import Converter  # noqa: PLC0415 - numpy and soxr cost more than all the rest; equal formats do not need them

    nodes, edges = list(plan.nodes), list(plan.edges)
    converters: Converters = {}
    for conversion in plan.conversions:
        source, target = conversion.source, conversion.target
        converter = standing.get((source, target))
        if converter is None or converter.target != conversion.wanted:
            converter = Converter(conversion.wanted, conversion.formats)
            converter.name = f"{source.name if source is not None else 'application'} => {target.name}"
        converters[source, target] = converter
        nodes.insert(nodes.index(target), converter)
        if source is not None:
            edges.remove((source, target))
            edges.append((source, converter))
        edges.append((converter, target))
    serves: dict[Processor, Processor] = {converter: target for (_, target), converter in converters.items()}
    return Plan(nodes, edges, plan.inputs, converters=serves), converters
