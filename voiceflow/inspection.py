"""``voiceflow inspect [NAME ...]``: what each installed processor is, takes, yields, needs and can be told.

One rule: all of it is read from the class itself and from its package's metadata; a processor is never made. One that cannot be
imported is listed with the line that says what to install.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.metadata
import inspect
import json
import os
import re
import sys
import types
import typing
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from voiceflow.errors import type_names
from voiceflow.frames import (
    ContextFrame,
    Frame,
    InputAudioFrame,
    LLMTextFrame,
    OutputAudioFrame,
    SpeechStarted,
    TranscriptFrame,
    TurnEnded,
    TurnScored,
)
from voiceflow.plugins import GROUP, Plugin, PluginError, find, plugins
from voiceflow.processor import Processor

__all__ = ["Option", "Report", "kind_of", "main", "options_of", "report"]

KINDS: tuple[tuple[str, frozenset[type[Frame]], frozenset[type[Frame]]], ...] = (
    # what, and what it takes and yields; the first that fits
    ("language model", frozenset({ContextFrame}), frozenset({LLMTextFrame})),
    ("turn taking", frozenset(), frozenset({TurnEnded})),
    ("end of turn", frozenset({InputAudioFrame}), frozenset({TurnScored})),
    ("speech to text", frozenset({InputAudioFrame}), frozenset({TranscriptFrame})),
    ("voice activity", frozenset({InputAudioFrame}), frozenset({SpeechStarted})),
)


@dataclass(frozen=True, slots=True)
class Option:
    """One argument, or one field of an options object (``options.base_url``). ``default`` is None for one that must be given."""

    name: str
    type: str
    default: str | None


@dataclass(slots=True)
class Report:
    """All that is known of a processor. ``problem``: why it cannot be imported; then the rest of it is not known."""

    name: str
    package: str
    target: str
    needs: tuple[str, ...]
    """Requirements of the extra that brings what it stands on, and which of them is missing."""
    kind: str = ""
    about: str = ""
    takes: str = ""
    yields: str = ""
    key: str = ""
    """Environment variable of the service's key, and whether it is set."""
    options: list[Option] = field(default_factory=list)
    problem: str = ""


def kind_of(node: type[Processor]) -> str:
    """What part of an agent it is, by its contract."""
    contract = node.contract
    for kind, takes, yields in KINDS:
        if takes <= contract.accepts and yields <= contract.process_yields | contract.run_yields and not yields & contract.accepts:
            return kind
    if InputAudioFrame in contract.run_yields and InputAudioFrame not in contract.accepts:
        return "source"
    if OutputAudioFrame in contract.accepts - contract.yields:
        return "sink"
    return "text to speech" if OutputAudioFrame in contract.yields - contract.accepts else "node"


def options_of(node: type[Processor]) -> list[Option]:
    """The arguments of its constructor with their defaults; where one is an options dataclass, its fields below it."""
    hints = typing.get_type_hints(node.__init__)
    found: list[Option] = []
    for name, parameter in list(inspect.signature(node).parameters.items()):
        default = None if parameter.default is parameter.empty else repr(parameter.default)
        found.append(Option(name, _type_name(hints.get(name, Any)), default))
        for options in _dataclasses(hints.get(name)):
            found += _fields(options, name)
    return found


def _fields(options: type, prefix: str) -> Iterator[Option]:
    hints = typing.get_type_hints(options)
    for one in dataclasses.fields(options):
        default: str | None = None
        if one.default is not dataclasses.MISSING:
            default = repr(one.default) if one.repr else "..."
        elif one.default_factory is not dataclasses.MISSING:
            default = repr(one.default_factory())
        yield Option(f"{prefix}.{one.name}", _type_name(hints[one.name]), default)
        if default is None:
            for inner in _dataclasses(hints[one.name]):
                yield from _fields(inner, f"{prefix}.{one.name}")


def _dataclasses(hint: Any) -> list[type]:
    """The dataclasses in an annotation, a union opened."""
    parts = typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)
    return [part for part in parts if isinstance(part, type) and dataclasses.is_dataclass(part)]


def _type_name(hint: Any) -> str:
    text = inspect.formatannotation(hint)
    return re.sub(r"\b(?:[a-z_]\w*\.)+(?=[A-Za-z_])", "", text)


def report(plugin: Plugin) -> Report:
    """Import it and look at it. Raises nothing for one that cannot be imported: see ``Report.problem``."""
    found = Report(plugin.name, f"{plugin.package} {plugin.version}", plugin.target, tuple(_needs(plugin)))
    try:
        node = plugin.load()
    except PluginError as error:
        found.problem = str(error)
        return found
    variable = getattr(node, "key_variable", "")
    found.kind = kind_of(node)
    found.about = (inspect.getdoc(node) or "").partition("\n")[0]
    found.takes, found.yields = type_names(node.contract.accepts), type_names(node.contract.yields)
    found.key = f"{variable} ({'set' if os.environ.get(variable, '').strip() else 'not set'})" if variable else ""
    found.options = options_of(node)
    return found


def _needs(plugin: Plugin) -> Iterator[str]:
    """The requirements that the extras named in its entry point bring."""
    try:
        distribution = importlib.metadata.distribution(plugin.package)
    except importlib.metadata.PackageNotFoundError:
        return
    for text in distribution.requires or ():
        requirement, _, marker = text.partition(";")
        extra = re.search(r"""extra\s*==\s*["']([^"']+)["']""", marker)
        if extra is None or extra[1] not in plugin.extras:
            continue
        name = re.match(r"[\w.-]+", requirement)
        try:
            importlib.metadata.version(name[0] if name else "")
            yield f"{requirement.strip()} (extra {extra[1]})"
        except importlib.metadata.PackageNotFoundError:
            yield f"{requirement.strip()} (extra {extra[1]}, not installed)"


# ------------------------------------------------------------------------------------------------ the command


def main(arguments: Sequence[str]) -> int:
    """Describe the processors that are named, or list all. 0, or 1 after saying what is wrong with one of those named."""
    parser = argparse.ArgumentParser(
        prog="voiceflow inspect", description="The processors that are installed: what each is, takes, yields and needs."
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="say all about these (default: a line about each)")
    parser.add_argument("--json", action="store_true", help="for programs")
    options = parser.parse_args(arguments)
    try:
        reports = [report(plugin) for plugin in ([find(name) for name in options.names] or plugins())]
    except PluginError as error:
        sys.stderr.write(f"voiceflow inspect: {error}\n")
        return 1
    if options.json:
        sys.stdout.write(json.dumps([dataclasses.asdict(one) for one in reports], indent=2) + "\n")
    elif options.names:
        sys.stdout.write("\n\n".join(map(_page, reports)) + "\n")
    else:
        width = max((len(one.name) for one in reports), default=0)
        for one in reports:
            sys.stdout.write(
                f"{one.name.ljust(width)}  {one.kind or '?':<15} {one.about or one.problem}{f' [{one.key}]' if one.key else ''}\n"
            )
    if not reports:
        sys.stderr.write(f"nothing is installed under {GROUP!r}; run pip install -e . in voiceflow's folder\n")
    failed = [one for one in reports if one.problem]
    for one in failed if options.names else ():
        sys.stderr.write(f"voiceflow inspect: {one.problem}\n")
    return 1 if failed and options.names else 0


def _page(one: Report) -> str:
    lines = [f"{one.name}: {one.kind or 'cannot be imported'}", one.about, ""]
    facts = {
        "class": one.target,
        "package": one.package,
        "takes": one.takes,
        "yields": one.yields,
        "needs": ", ".join(one.needs),
        "key": one.key,
    }
    lines += [f"  {name:<8} {value}" for name, value in facts.items() if value]
    if one.options:
        lines += ["", "  options"]
        width = max(len(option.name) for option in one.options)
        lines += [
            f"    {option.name.ljust(width)}  {option.type}{' (must be given)' if option.default is None else f' = {option.default}'}"
            for option in one.options
        ]
    return "\n".join(lines)
