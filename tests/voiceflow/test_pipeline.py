"""A pipeline is built of nodes, lists and other pipelines, and says at once what cannot stand in one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest

from voiceflow import AudioFormat, Pipeline, PipelineError, Processor, SayFrame, SentenceFrame, TextFrame, processor


class Source(Processor):
    async def run(self) -> AsyncIterator[TextFrame]:
        yield TextFrame("")


class Step(Processor):
    def __init__(self, name: str = "") -> None:
        self.name = name

    def process(self, frame: TextFrame) -> TextFrame:
        return frame


class Sink(Processor):
    def process(self, frame: TextFrame) -> None: ...


def edges(pipeline: Pipeline) -> list[str]:
    return [f"{a.name}{b.name}" for a, b in pipeline.edges]


def steps(names: str) -> list[Step]:
    return [Step(name) for name in names]


def test_a_chain_links_each_to_the_next() -> None:
    """`a >> b >> c` is two edges."""
    a, b, c = steps("abc")
    pipeline = a >> b >> c
    assert pipeline.nodes == [a, b, c]
    assert edges(pipeline) == ["ab", "bc"]


def test_a_list_splits_and_joins() -> None:
    """`a >> [b, c] >> d` goes both ways and meets again."""
    a, b, c, d = steps("abcd")
    assert edges(a >> [b, c] >> d) == ["ab", "ac", "bd", "cd"]


def test_a_tuple_is_a_list() -> None:
    """Any sequence of parts makes branches."""
    a, b, c = steps("abc")
    assert edges(a >> (b, c)) == ["ab", "ac"]


def test_a_list_may_come_first() -> None:
    """`[a, b] >> c`: Python hands the list to the right side."""
    a, b, c, d = steps("abcd")
    assert edges([a, b] >> c >> d) == ["ac", "bc", "cd"]
    assert edges([a, b] >> (c >> d)) == ["cd", "ac", "bc"]


def test_list_to_list_links_each_with_each() -> None:
    """All the tails feed all the heads."""
    a, b, c, d = steps("abcd")
    assert edges([a, b] >> Pipeline([c, d])) == ["ac", "ad", "bc", "bd"]


def test_a_pipeline_stands_wherever_a_node_may() -> None:
    """Nested pipelines in chains and in branches keep their inner edges and offer their ends."""
    a, b, c, d, e = steps("abcde")
    inner = b >> c
    assert set(edges(a >> inner >> d)) == {"ab", "bc", "cd"}
    assert set(edges(a >> [inner, d] >> e)) == {"ab", "bc", "ad", "ce", "de"}


def test_joining_changes_neither_part() -> None:
    """A pipeline may be used twice: `>>` makes a new one."""
    a, b, c, d = steps("abcd")
    front = a >> b
    to_c, to_d = front >> c, front >> d
    assert edges(front) == ["ab"]
    assert (edges(to_c), edges(to_d)) == (["ab", "bc"], ["ab", "bd"])


def test_link_adds_any_other_edge_once() -> None:
    """An edge past others, or to a node that was not there yet; the same one twice is one."""
    a, b, c, d = steps("abcd")
    pipeline = (a >> b >> c).link(a, c).link(a, c).link(c, d)
    assert edges(pipeline) == ["ab", "bc", "ac", "cd"]
    assert pipeline.nodes == [a, b, c, d]


def test_the_same_node_in_two_branches_is_one_node() -> None:
    """A node named twice is not doubled."""
    a, b, c, d = steps("abcd")
    pipeline = a >> [b >> d, c >> d]
    assert pipeline.nodes == [a, b, d, c]
    assert pipeline.tails == [d]


def test_substitute_exchanges_a_node_in_a_copy() -> None:
    """Edges and ends follow; the original keeps the old one."""
    a, b, c, new, after = Step("a"), Step("b"), Step("c"), Step("n"), Step("z")
    pipeline = a >> [b, c]
    swapped = pipeline.substitute(b, new)
    assert edges(swapped) == ["an", "ac"]
    assert edges(pipeline) == ["ab", "ac"]
    assert edges(swapped >> after) == ["an", "ac", "nz", "cz"]


def test_substitute_says_what_it_cannot_do() -> None:
    """The old node must be there, the new one must not."""
    a, b, c = steps("abc")
    with pytest.raises(PipelineError, match=r"<c> is not in this pipeline; it holds <a>, <b>"):
        (a >> b).substitute(c, Step())
    with pytest.raises(PipelineError, match=r"<b> is already in this pipeline; put another node in the place of <a>"):
        (a >> b).substitute(a, b)


def shout(frame: TextFrame) -> TextFrame:
    return frame


class Nothing(Processor):
    pass


@dataclass
class Equal(Processor):
    loudness: int = 1

    def process(self, frame: TextFrame) -> TextFrame:
        return frame


@pytest.mark.parametrize(
    ("part", "message"),
    [
        (Step, "Step is a processor class, not a node: write Step()"),
        (processor(shout), "shout is a processor class, not a node: write shout()"),
        (shout, "put @processor above the function"),
        (None, "None is not a processor: only processors and pipelines can be linked"),
        ("tts", "'tts' is not a processor: only processors and pipelines can be linked"),
        ([Step("b"), [Step("c")]], "is not a processor: only processors and pipelines can be linked"),
        (Nothing(), "<Nothing> has neither process() nor run(): give it one of them"),
        ([], "an empty list in a pipeline: put at least one processor into each branch"),
        (Equal(), "Equal is compared by its values, and a node must be itself alone: write @dataclass(eq=False)"),
    ],
)
def test_what_cannot_stand_in_a_pipeline_is_named(part: Any, message: str) -> None:
    """On either side of `>>`, and in link(), the error says what was meant and what to write."""
    with pytest.raises(PipelineError) as right:
        Step("a") >> part
    assert message in str(right.value)
    with pytest.raises(PipelineError) as left:
        part >> Step("a")
    assert message in str(left.value)
    if not isinstance(part, list):
        with pytest.raises(PipelineError) as linked:
            Pipeline(Step("a")).link(Step("b"), part)
        assert message in str(linked.value)


def test_names_are_unique_and_stay() -> None:
    """Like classes are numbered; a name that was given is kept, and a second plan gives the same names."""
    source, a, b, c, d = Source(), Sink(), Sink(), Sink(), Sink()
    c.name = "speaker"
    d.name = "speaker"
    pipeline = source >> [a, b, c, d]
    pipeline.plan()
    names = [node.name for node in pipeline.nodes]
    assert names == ["Source", "Sink", "Sink#2", "speaker", "speaker#2"]
    pipeline.plan()
    assert [node.name for node in pipeline.nodes] == names


def test_names_given_in_two_pipelines_are_told_apart_when_they_join() -> None:
    """Two parts that were drawn each by itself had a node of the same name."""
    first, second = Source() >> Sink(), Source() >> Sink()
    str(first), str(second)
    both = Pipeline([first, second])
    both.plan()
    assert [node.name for node in both.nodes] == ["Source", "Sink", "Source#2", "Sink#2"]


def test_a_plan_can_be_asked_for_what_the_application_sends() -> None:
    """`inputs` feed the heads; without them a head that needs frames is an error."""
    pipeline = Step() >> Sink()
    assert [t.receiver.name for t in pipeline.plan([TextFrame]).targets(None, TextFrame)] == ["Step"]
    with pytest.raises(PipelineError, match="nobody feeds Step"):
        pipeline.plan()


def test_formats_stand_on_the_node_or_on_the_class() -> None:
    """An instance may say its own formats; the class is untouched."""

    class Voice(Processor):
        makes = AudioFormat(24000)

        def process(self, frame: SentenceFrame) -> SayFrame: ...

    node = Voice()
    node.makes = AudioFormat(8000)
    assert Voice.makes == AudioFormat(24000)
