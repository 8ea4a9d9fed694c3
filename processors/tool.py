"""A tool: a typed Python function that a language model may call.

The one rule: the function's annotations are the contract. The JSON schema is made of them, and arguments are checked
against them before the function runs.
"""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import msgspec

from voiceflow.errors import VoiceflowError
from voiceflow.messages import ToolCall, ToolSpec
from voiceflow.session import Session

__all__ = ["Effect", "Tool", "ToolError", "ToolRun", "by_name", "tool", "tool_of"]

Effect: TypeAlias = Literal["pure", "idempotent", "once"]


class ToolError(VoiceflowError):
    """A function cannot be a tool, or the arguments that the model gave do not fit. The text says what is wrong where."""


@dataclass(frozen=True, slots=True)
class ToolRun:
    """One run of a tool. A function with a parameter of this type is given it; the model is not told of that parameter."""

    call: ToolCall
    session: Session
    """``await session.send(SayFrame(...))`` says something."""
    progress: Callable[[str], None]
    """Tells how far it is, as a ``ToolProgress``; from any thread."""
    hang_up: Callable[[], None]
    """Ends the call when all that was said has been heard. The model is told the result, and not asked for more words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A tool and how it may be run.

    ``effect``: ``pure`` changes nothing; ``idempotent`` may be done twice without harm; ``once`` must not be. A call of a
    reply that was thrown away runs only if it is pure, and one that must be done once is never cancelled after it began.
    """

    spec: ToolSpec
    run: Callable[[ToolRun], Any]
    """Reads the arguments from ``call.arguments``. Raises ToolError if they do not fit."""
    blocking: bool = False
    """``run`` belongs in a thread; else it gives an awaitable."""
    effect: Effect = "pure"
    timeout_s: float = 15.0
    """A ``once`` call goes on after it, and its result counts whenever it comes; any other is cancelled."""
    after_speech: bool | None = None
    """Begin when what the reply says before the call has been heard. None: only if ``effect`` is ``once``."""
    filler: str = ""
    """Said if there is no result after ``filler_after_ms``: "Let me look that up." """
    filler_after_ms: float = 600.0

    def __post_init__(self) -> None:
        if self.effect not in get_args(Effect):
            raise ToolError(f"tool {self.name}: effect is {self.effect!r}; it must be one of {', '.join(get_args(Effect))}")
        if self.timeout_s <= 0 or self.filler_after_ms < 0:
            raise ToolError(
                f"tool {self.name}: timeout_s {self.timeout_s} must be more than 0 and filler_after_ms {self.filler_after_ms} not negative"
            )

    @property
    def name(self) -> str:
        """What the model calls it by."""
        return self.spec.name

    @property
    def waits_for_speech(self) -> bool:
        """Whether it begins only when the words before it were heard."""
        return self.effect == "once" if self.after_speech is None else self.after_speech


def by_name(tools: Iterable[Tool], whose: str = "") -> dict[str, Tool]:
    """The tools by their names. Raises ToolError, beginning with ``whose``, if two have the same."""
    known: dict[str, Tool] = {}
    for one in tools:
        if one.name in known:
            raise ToolError(f"{whose}two tools are named {one.name}; a model could not tell them apart")
        known[one.name] = one
    return known


def tool(
    *,
    effect: Effect = "pure",
    name: str | None = None,
    timeout_s: float = 15.0,
    after_speech: bool | None = None,
    filler: str = "",
    filler_after_ms: float = 600.0,
) -> Callable[[Callable[..., Any]], Tool]:
    """Make a tool of a function: ``@tool(effect="once")``. The options are those of ``Tool``.

    The first paragraph of its docstring tells the model what it does; lines ``parameter: text`` after it tell what each
    parameter is. ``async def`` runs on the loop, ``def`` in a thread. Raises ToolError naming a parameter that has no
    annotation, or one that is no JSON.
    """

    def make(function: Callable[..., Any]) -> Tool:
        label = name or function.__name__
        _checked_name(label)
        description, told = _described(function)
        arguments, run_name = _arguments(label, function, told)
        spec = ToolSpec(label, description, _schema(label, arguments))
        return Tool(
            spec=spec,
            run=_runner(label, function, arguments, run_name),
            blocking=not inspect.iscoroutinefunction(function),
            effect=effect,
            timeout_s=timeout_s,
            after_speech=after_speech,
            filler=filler,
            filler_after_ms=filler_after_ms,
        )

    return make


def tool_of(arguments: type[msgspec.Struct], run: Callable[[Any], Any], *, name: str, description: str, effect: Effect = "once") -> Tool:
    """Make a tool whose arguments are the fields of a struct, and which is given the struct. ``run`` is ``async``."""
    decoder = msgspec.json.Decoder(arguments, strict=False)

    def begin(this: ToolRun) -> Any:
        return run(_decoded(name, decoder, this))

    return Tool(spec=ToolSpec(_checked_name(name), description, _schema(name, arguments)), run=begin, effect=effect)


def _arguments(label: str, function: Callable[..., Any], told: Mapping[str, str]) -> tuple[type[msgspec.Struct], str | None]:
    """The struct that the arguments must fit, and the name of the parameter that takes the ``ToolRun``."""
    try:
        hints = typing.get_type_hints(function, include_extras=True)
    except NameError as error:
        raise ToolError(f"tool {label}: an annotation names {error.name!r}, which is not defined where the function is") from error
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
    run_name = None
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise ToolError(f"tool {label}: parameter {parameter.name!r} cannot be given by name, and a model gives arguments by name only")
        if parameter.name not in hints:
            raise ToolError(f"tool {label}: parameter {parameter.name!r} has no annotation; say what it takes, like {parameter.name}: str")
        kind = hints[parameter.name]
        if kind is ToolRun:
            run_name = parameter.name
            continue
        if parameter.name in told:
            kind = typing.Annotated[kind, msgspec.Meta(description=told[parameter.name])]
        fields.append((parameter.name, kind) if parameter.default is parameter.empty else (parameter.name, kind, parameter.default))
    try:
        return msgspec.defstruct(f"{label}_arguments", fields, forbid_unknown_fields=True, kw_only=True, frozen=True), run_name
    except TypeError as error:
        raise ToolError(f"tool {label}: {error}") from error


def _checked_name(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name):
        raise ToolError(f"tool {name!r}: providers take names of 1 to 64 letters, digits, _ and - only")
    return name


def _decoded(label: str, decoder: msgspec.json.Decoder[Any], this: ToolRun) -> Any:
    try:
        return decoder.decode(this.call.arguments.strip() or "{}")
    except msgspec.MsgspecError as error:
        raise ToolError(f"the arguments of {label} do not fit: {error}") from error


def _schema(label: str, arguments: type[msgspec.Struct]) -> str:
    """The JSON schema of an object, its own definition in place of the reference that msgspec puts at the top."""
    for field in msgspec.structs.fields(arguments):
        try:
            msgspec.json.schema(field.type)
        except TypeError as error:
            raise ToolError(f"tool {label}: parameter {field.name!r} cannot be told to a model as JSON: {error}") from error
    schema = msgspec.json.schema(arguments)
    others = {name: inner for name, inner in schema["$defs"].items() if name != arguments.__name__}
    own = {key: value for key, value in schema["$defs"][arguments.__name__].items() if key != "title"}
    return msgspec.json.encode(own | ({"$defs": others} if others else {})).decode()


def _described(function: Callable[..., Any]) -> tuple[str, Mapping[str, str]]:
    """What the docstring says of the function, and of each parameter."""
    text = inspect.getdoc(function) or ""
    names = "|".join(re.escape(name) for name in inspect.signature(function).parameters)
    told = {m[1]: " ".join(m[2].split()) for m in re.finditer(rf"^\s*({names})\s*:\s*(.+)$", text, re.MULTILINE)} if names else {}
    return " ".join(text.split("\n\n")[0].split()), told


def _runner(label: str, function: Callable[..., Any], arguments: type[msgspec.Struct], run_name: str | None) -> Callable[[ToolRun], Any]:
    decoder = msgspec.json.Decoder(arguments, strict=False)  # a model's "4" is a number where one is wanted

    def run(this: ToolRun) -> Any:
        given = _decoded(label, decoder, this)
        values = {name: getattr(given, name) for name in arguments.__struct_fields__}
        return function(**values, **({run_name: this} if run_name else {}))

    return run
