"""A function's annotations become what the model is told, and what its arguments are checked against."""

from __future__ import annotations

import enum
import json
import re
from collections.abc import Callable
from typing import Annotated, Any, Literal

import msgspec
import pytest

from voiceflow import ToolCall
from voiceflow.processors.tool import Tool, ToolError, ToolRun, tool


class Size(enum.Enum):
    SMALL = "small"
    LARGE = "large"


class Guest(msgspec.Struct):
    name: str
    age: int | None = None


@tool(effect="once")
async def book_table(people: Annotated[int, msgspec.Meta(ge=1, le=20)], day: Literal["monday", "tuesday"], size: Size = Size.SMALL) -> str:
    """Book a table
    at the restaurant.

    people: how many
      day: the day of the week
    """
    return f"{people} on {day}, {size.value}"


def run(of: Tool, arguments: str) -> Any:
    return of.run(ToolRun(ToolCall("1", of.name, arguments), None, print, print))  # type: ignore[arg-type]


def test_the_schema_is_made_of_annotations_and_docstring() -> None:
    """Names, types, bounds, choices, defaults and descriptions are told to the model, as one object without indirection."""
    assert (book_table.name, book_table.spec.description) == ("book_table", "Book a table at the restaurant.")
    schema = json.loads(book_table.spec.parameters)
    assert (schema["type"], schema["required"], schema["additionalProperties"]) == ("object", ["people", "day"], False)
    assert schema["properties"]["people"] == {"type": "integer", "minimum": 1, "maximum": 20, "description": "how many"}
    assert schema["properties"]["day"] == {"enum": ["monday", "tuesday"], "description": "the day of the week"}
    assert schema["properties"]["size"]["default"] == "small"
    assert set(schema["$defs"]) == {"Size"}


def test_a_tool_without_parameters_takes_an_empty_object() -> None:
    """Models write nothing, or {}."""

    @tool()
    def now() -> str:
        return "noon"

    assert json.loads(now.spec.parameters)["properties"] == {}
    assert [run(now, text) for text in ("", "  ", "{}")] == ["noon"] * 3
    assert now.blocking


def test_arguments_come_as_the_types_of_the_annotations() -> None:
    """Structs, enums and numbers written as text are what the function is given."""
    seen: list[object] = []

    @tool(name="greet")
    def function(guests: list[Guest], size: Size, loud: bool = False) -> None:
        seen.extend([guests, size, loud])

    run(function, '{"guests": [{"name": "Ana", "age": "7"}], "size": "large", "loud": "true"}')
    assert seen == [[Guest("Ana", 7)], Size.LARGE, True]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ('{"people": 0, "day": "monday"}', "`int` >= 1 - at `$.people`"),
        ('{"people": 4}', "missing required field `day`"),
        ('{"people": 4, "day": "sunday"}', "Invalid enum value 'sunday' - at `$.day`"),
        ('{"people": 4, "day": "monday", "smoking": true}', "unknown field `smoking`"),
        ('{"people": "many", "day": "monday"}', "at `$.people`"),
        ('{"people": 4, "da', "truncated"),
        ("[4]", "Expected `object`, got `array`"),
        ("null", "Expected `object`, got `null`"),
    ],
)
def test_arguments_that_do_not_fit_are_named(arguments: str, message: str) -> None:
    """The function does not run, and the error says what is wrong where, so that the model can put it right."""
    with pytest.raises(ToolError, match=re.escape("the arguments of book_table do not fit: ") + ".*" + re.escape(message)):
        run(book_table, arguments)


def no_annotation(a) -> None:  # type: ignore[no-untyped-def]
    ...


def not_json(a: Callable[[], None]) -> None: ...


def positional(a: int, /) -> None: ...


def rest(*a: int) -> None: ...


def keywords(**a: int) -> None: ...


def unknown(a: Nowhere) -> None: ...  # type: ignore[name-defined]  # noqa: F821


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (no_annotation, "tool no_annotation: parameter 'a' has no annotation"),
        (not_json, "tool not_json: parameter 'a' cannot be told to a model as JSON"),
        (positional, "parameter 'a' cannot be given by name"),
        (rest, "parameter 'a' cannot be given by name"),
        (keywords, "parameter 'a' cannot be given by name"),
        (unknown, "tool unknown: an annotation names 'Nowhere'"),
    ],
)
def test_a_function_that_cannot_become_a_tool_says_which_parameter(function: Callable[..., Any], message: str) -> None:
    """The error comes when the tool is made, not in the middle of a call."""
    with pytest.raises(ToolError, match=message):
        tool()(function)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"effect": "twice"}, "effect is 'twice'; it must be one of pure, idempotent, once"),
        ({"timeout_s": 0}, "timeout_s 0 must be more than 0"),
        ({"filler_after_ms": -1}, "filler_after_ms -1 not negative"),
        ({"name": "book a table"}, "tool 'book a table': providers take names"),
    ],
)
def test_wrong_options_are_named(options: dict[str, Any], message: str) -> None:
    """What cannot be is refused where it is written."""
    with pytest.raises(ToolError, match=message):
        tool(**options)(book_table.run)


def test_the_run_is_given_to_who_asks_for_it_and_not_told_to_the_model() -> None:
    """A parameter of type ToolRun is no argument."""

    @tool()
    def whose(this: ToolRun, what: str) -> str:
        return f"{this.call.id} {what}"

    assert list(json.loads(whose.spec.parameters)["properties"]) == ["what"]
    assert run(whose, '{"what": "x"}') == "1 x"
