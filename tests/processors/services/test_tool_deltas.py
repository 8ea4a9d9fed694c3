"""Calls put together of pieces."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voiceflow.processors.services.tool_deltas import ToolDeltas, mended_arguments

PARIS, OSLO = '{"city": "Paris"}', '{"city": "Oslo"}'


def piece(index: Any = 0, id: Any = None, name: Any = None, arguments: Any = None) -> dict[str, Any]:
    return {"index": index, "id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def calls_of(*pieces: Any, known: tuple[str, ...] = ("weather", "time")) -> list[tuple[str, str, Any]]:
    deltas = ToolDeltas()
    for one in pieces:
        deltas.take([one])
    fresh = (f"fresh{number}" for number in itertools.count(1))
    return [(call.id, call.name, json.loads(call.arguments)) for call in deltas.calls(known, lambda: next(fresh))]


SHAPES: dict[str, tuple[list[Any], list[tuple[str, str, Any]]]] = {
    "split": (
        [piece(id="a", name="weather", arguments=""), piece(arguments='{"ci'), piece(arguments='ty": "Par'), piece(arguments='is"}')],
        [("a", "weather", {"city": "Paris"})],
    ),
    "interleaved": (
        [
            piece(0, "a", "weather", ""), piece(1, "b", "weather", ""), piece(0, None, None, '{"city"'), piece(1, None, None, '{"city": "O'),
            piece(0, None, None, ': "Paris"}'), piece(1, None, None, 'slo"}'),
        ],
        [("a", "weather", {"city": "Paris"}), ("b", "weather", {"city": "Oslo"})],
    ),
    "one index, two ids": (
        [piece(0, "a", "weather", PARIS), piece(0, "b", "weather", OSLO)],
        [("a", "weather", {"city": "Paris"}), ("b", "weather", {"city": "Oslo"})],
    ),
    "one index, two ids, interleaved": (
        [piece(0, "a", "weather", '{"city": '), piece(0, "b", "weather", '{"city": '), piece(0, "a", None, '"Paris"}'), piece(0, "b", None, '"Oslo"}')],
        [("a", "weather", {"city": "Paris"}), ("b", "weather", {"city": "Oslo"})],
    ),
    "no index at all": (
        [piece(None, "a", "weather", '{"city": '), piece(None, None, None, '"Paris"}'), piece(None, "b", "time", "{}")],
        [("a", "weather", {"city": "Paris"}), ("b", "time", {})],
    ),
    "neither index nor ids": (
        [piece(None, None, "weather", PARIS), piece(None, None, "weather", OSLO)],
        [("fresh1", "weather", {"city": "Paris"}), ("fresh2", "weather", {"city": "Oslo"})],
    ),
    "no ids": (
        [piece(0, None, "weather", PARIS), piece(1, "", "time", None)],
        [("fresh1", "weather", {"city": "Paris"}), ("fresh2", "time", {})],
    ),
    "the same id twice": (
        [piece(0, "call", "weather", PARIS), piece(1, "call", "weather", OSLO)],
        [("call", "weather", {"city": "Paris"}), ("fresh1", "weather", {"city": "Oslo"})],
    ),
    "an id in every piece": (
        [piece(0, "a", "weather", '{"city": '), piece(0, "a", "weather", '"Paris"}')],
        [("a", "weather", {"city": "Paris"})],
    ),
    "another id in each piece": (
        [piece(0, "a", "weather", '{"city": '), piece(0, "x7", None, '"Paris"}')],
        [("a", "weather", {"city": "Paris"})],
    ),
    "an id that comes late": ([piece(0, None, "weather", '{"city": '), piece(0, "a", None, '"Paris"}')], [("a", "weather", {"city": "Paris"})]),
    "numbers for ids": ([piece(0, 0, "time", "{}"), piece(1, 1, "time", "{}")], [("0", "time", {}), ("1", "time", {})]),
    "a name that comes late": ([piece(0, "a", None, '{"city": '), piece(0, None, "weather", '"Paris"}')], [("a", "weather", {"city": "Paris"})]),
    "a name in pieces": ([piece(0, "a", "wea", ""), piece(0, None, "ther", PARIS)], [("a", "weather", {"city": "Paris"})]),
    "a name that grows": ([piece(0, "a", "wea", ""), piece(0, None, "weather", PARIS)], [("a", "weather", {"city": "Paris"})]),
    "no name": ([piece(0, "a", None, PARIS)], [("a", "", {"city": "Paris"})]),
    "placeholder": ([piece(0, "a", "weather", "{}"), piece(0, None, None, PARIS)], [("a", "weather", {"city": "Paris"})]),
    "placeholder, then pieces": (
        [piece(0, "a", "weather", "{}"), piece(0, None, None, '{"city": '), piece(0, None, None, '"Paris"}')],
        [("a", "weather", {"city": "Paris"})],
    ),
    "placeholder with its name again": ([piece(0, "a", "weather", "{}"), piece(0, None, "weather", PARIS)], [("a", "weather", {"city": "Paris"})]),
    "null": ([piece(0, "a", "weather", "null"), piece(0, None, None, PARIS)], [("a", "weather", {"city": "Paris"})]),
    "all that came so far": (
        [piece(0, "a", "weather", '{"ci'), piece(0, "a", "weather", '{"city": "Pa'), piece(0, "a", "weather", PARIS)],
        [("a", "weather", {"city": "Paris"})],
    ),
    "the whole again at the end": (
        [piece(0, "a", "weather", '{"city": '), piece(0, None, None, '"Paris"}'), piece(0, None, None, PARIS)],
        [("a", "weather", {"city": "Paris"})],
    ),
    "an object": ([piece(0, "a", "weather", {"city": "Paris"})], [("a", "weather", {"city": "Paris"})]),
    "encoded twice": ([piece(0, "a", "weather", json.dumps(PARIS))], [("a", "weather", {"city": "Paris"})]),
    "no arguments": ([piece(0, "a", "time", "")], [("a", "time", {})]),
    "arguments null": ([piece(0, "a", "time", None)], [("a", "time", {})]),
    "empty pieces": ([piece(0, "a", "time", ""), piece(0, None, None, None), piece(None), None, "?", 3, {}], [("a", "time", {})]),
    "without the function around": ([{"index": 0, "id": "a", "name": "weather", "arguments": PARIS}], [("a", "weather", {"city": "Paris"})]),
}  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
def test_each_shape_gives_exactly_the_calls_that_were_meant(shape: str) -> None:
    """Whatever a server does to a call, its name and arguments come out as the model wrote them."""
    pieces, meant = SHAPES[shape]
    assert calls_of(*pieces) == meant


@pytest.mark.parametrize("text", ['{"city": "Par', "city=Paris", '{"a": 1} and {"b": 2}', "[1]", '"Paris"', "{}{", '{"a": 1}{"b": 2}'])
def test_what_is_no_object_is_handed_on_as_it_came(text: str) -> None:
    """The tool's own check then tells the model what was wrong."""
    assert mended_arguments([text]) == text


@given(
    st.dictionaries(st.text("ab", max_size=2), st.dictionaries(st.text("cd", max_size=2), st.integers(), max_size=2), min_size=1), st.data()
)
def test_arguments_that_were_cut_short_are_not_taken_for_others(arguments: dict[str, Any], data: st.DataObject) -> None:
    """Of truncated arguments no whole part is taken for the whole."""
    text = json.dumps(arguments)
    text = text[: data.draw(st.integers(1, len(text) - 1))]
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=5)))
    assert mended_arguments([text[a:b] for a, b in itertools.pairwise([0, *cuts, len(text)])]) == text


ARGUMENTS = st.dictionaries(st.text(max_size=6), st.recursive(st.none() | st.integers() | st.text(max_size=8), lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3), max_leaves=6), max_size=4)  # fmt: skip


@given(st.lists(st.tuples(st.sampled_from(["weather", "time"]), ARGUMENTS), min_size=1, max_size=4), st.data())
def test_calls_survive_any_cutting_and_any_interleaving(meant: list[tuple[str, dict[str, Any]]], data: st.DataObject) -> None:
    """Pieces of all calls, cut anywhere and mixed in any order that keeps each call's own, give the calls back."""
    queues = []
    for index, (name, arguments) in enumerate(meant):
        text = json.dumps(arguments)
        cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=5)))
        parts = [text[a:b] for a, b in itertools.pairwise([0, *cuts, len(text)])]
        queues.append([piece(index, f"id{index}", name, ""), *(piece(index, None, None, part) for part in parts)])
    mixed = []
    while any(queues):
        queue = data.draw(st.sampled_from([q for q in queues if q]))
        mixed.append(queue.pop(0))
    assert sorted(calls_of(*mixed)) == [(f"id{index}", name, arguments) for index, (name, arguments) in enumerate(meant)]


@given(st.lists(st.one_of(st.none(), st.text(max_size=4), st.dictionaries(st.sampled_from(["index", "id", "function", "name", "arguments"]), st.one_of(st.none(), st.integers(), st.text(max_size=5), st.lists(st.none()), st.dictionaries(st.sampled_from(["name", "arguments"]), st.one_of(st.none(), st.text(max_size=5), st.floats(), st.lists(st.integers())))))), max_size=6))  # fmt: skip
def test_nothing_a_server_can_send_raises(pieces: list[Any]) -> None:
    """Nonsense gives calls or none, never an exception."""
    deltas = ToolDeltas()
    deltas.take(pieces)
    list(deltas.calls((), lambda: "x"))
