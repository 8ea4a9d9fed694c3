"""The graph equals its model: what reaches each sink, and in which order, follows from the description alone."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from voiceflow import ControlFrame, ErrorFrame, Lane, Pipeline, Processor, Session, SessionOptions, replace
from voiceflow.testing import run_virtual


class Item(ControlFrame, frozen=True):
    """``path``: which nodes it was in, in which lane and as what."""

    source: int
    number: int
    path: tuple[str, ...] = ()


class UserA(Item, frozen=True):
    lane = Lane.USER


class UserB(Item, frozen=True):
    lane = Lane.USER


class AgentA(Item, frozen=True):
    lane = Lane.AGENT


class AgentB(Item, frozen=True):
    lane = Lane.AGENT


class ControlA(Item, frozen=True):
    pass


TYPES: list[type[Item]] = [UserA, UserB, AgentA, AgentB, ControlA]
ANY: Any = UserA | UserB | AgentA | AgentB | ControlA
DEEDS = ["same", "pass", "drop", "twice", *range(len(TYPES))]
"""What a node does with a type: yield it as it is, marked, not at all, twice, or as another type."""


@dataclass(frozen=True)
class NodeSpec:
    """``deeds``: accepted type -> deed. ``before``: which of the earlier nodes (by number, sources first) feed it."""

    kind: str
    deeds: dict[int, Any]
    before: tuple[int, ...]
    wait_ms: int
    stubborn: bool = False


@dataclass(frozen=True)
class Graph:
    sources: int
    frames: tuple[tuple[int, ...], ...]
    rest_ms: tuple[int, ...]
    nodes: tuple[NodeSpec, ...]
    slow_sink: bool
    bound: int

    @property
    def sink(self) -> int:
        return self.sources + len(self.nodes)

    def after(self, number: int) -> list[int]:
        """The nodes fed by one; those that feed nobody feed the sink."""
        following = [self.sources + i for i, spec in enumerate(self.nodes) if number in spec.before]
        return following or ([] if number == self.sink else [self.sink])


@st.composite
def graphs(draw: st.DrawFn, *, splits: bool) -> Graph:
    """With ``splits``, nodes may feed several others."""
    sources = draw(st.integers(1, 2))
    nodes: list[NodeSpec] = []
    free = list(range(sources))
    for number in range(sources, sources + draw(st.integers(1, 5))):
        choices = list(range(number)) if splits else free
        before = tuple(draw(st.lists(st.sampled_from(choices), min_size=1, max_size=3, unique=True)))
        free = [n for n in free if n not in before] + [number]
        deeds = draw(st.dictionaries(st.integers(0, len(TYPES) - 1), st.sampled_from(DEEDS), min_size=1, max_size=4))
        kind = draw(st.sampled_from(["def", "list", "generator", "async", "async generator"]))
        nodes.append(NodeSpec(kind, deeds, before, draw(st.integers(0, 3)), draw(st.booleans())))
    frames = tuple(tuple(draw(st.lists(st.integers(0, len(TYPES) - 1), max_size=12))) for _ in range(sources))
    rests = tuple(draw(st.integers(0, 2)) for _ in range(sources))
    return Graph(sources, frames, rests, tuple(nodes), draw(st.booleans()), draw(st.sampled_from([1, 2, 3, 256])))


def outcome(name: str, deed: Any, frame: Item) -> list[Item]:
    """What a node of that name makes of a frame."""
    if deed == "same":
        return [frame]
    marked = replace(frame, path=(*frame.path, f"{name} {type(frame).__name__}"))
    if deed == "pass":
        return [marked]
    if deed == "drop":
        return []
    if deed == "twice":
        return [marked, marked]
    return [TYPES[deed](source=frame.source, number=frame.number, path=marked.path, epoch=frame.epoch)]


# ------------------------------------------------------------------------------------------- the description alone


def model(graph: Graph) -> list[Item]:
    """What the sink gets, source by source, as if everything happened one after the other."""
    got: list[Item] = []

    def takers(number: int, kind: int) -> set[int]:
        found: set[int] = set()
        for following in graph.after(number):
            takes = following == graph.sink or kind in graph.nodes[following - graph.sources].deeds
            found |= {following} if takes else takers(following, kind)
        return found

    def send(number: int, frame: Item) -> None:
        kind = TYPES.index(type(frame))
        for taker in sorted(takers(number, kind)):
            if taker == graph.sink:
                got.append(frame)
            else:
                spec = graph.nodes[taker - graph.sources]
                for out in outcome(f"n{taker}", spec.deeds[kind], frame):
                    send(taker, out)

    for source, kinds in enumerate(graph.frames):
        for number, kind in enumerate(kinds):
            send(source, TYPES[kind](source=source, number=number))
    return [replace(frame, epoch=0) for frame in got]


# ------------------------------------------------------------------------------------------------- the engine


def check_fresh(node: Processor, frame: Item) -> None:
    """The engine's promise: nothing said before an interrupt is processed after it."""
    assert frame.lane is not Lane.AGENT or frame.epoch == node.session.epoch, f"{node} was given a stale {frame}"


def make_node(number: int, spec: NodeSpec) -> Processor:
    name = f"n{number}"

    def made(frame: Item) -> list[Item]:
        check_fresh(node, frame)
        return outcome(name, spec.deeds[TYPES.index(type(frame))], frame)

    def plain(self: Processor, frame: Item) -> Item | list[Item] | None:
        out = made(frame)
        return out[0] if len(out) == 1 else out or None

    def listed(self: Processor, frame: Item) -> list[Item]:
        return made(frame)

    def generator(self: Processor, frame: Item) -> Iterator[Item]:
        yield from made(frame)

    async def wait() -> None:
        try:
            await asyncio.sleep(spec.wait_ms / 1000)
        except asyncio.CancelledError:
            if not spec.stubborn:
                raise

    async def waits(self: Processor, frame: Item) -> list[Item]:
        out = made(frame)
        await wait()
        return out

    async def streams(self: Processor, frame: Item) -> AsyncIterator[Item]:
        for item in made(frame):
            await wait()
            yield item

    process: Any = {"def": plain, "list": listed, "generator": generator, "async": waits, "async generator": streams}[spec.kind]
    accepts: Any = TYPES[min(spec.deeds)]
    for kind in spec.deeds:
        accepts |= TYPES[kind]
    process.__annotations__ = {"frame": accepts, "return": AsyncIterator[ANY] if "generator" in spec.kind else list[ANY] | ANY | None}
    node: Processor = type(name, (Processor,), {"process": process})()
    return node


class Source(Processor):
    def __init__(self, frames: list[Item], rest_ms: int) -> None:
        self.frames = frames
        self.rest_ms = rest_ms

    async def run(self) -> AsyncIterator[ANY]:
        for frame in self.frames:
            if self.rest_ms:
                await asyncio.sleep(self.rest_ms / 1000)
            yield replace(frame, epoch=self.session.epoch)


class Sink(Processor):
    def __init__(self) -> None:
        self.got: list[Item] = []

    def process(self, frame: ANY) -> None:
        check_fresh(self, frame)
        self.got.append(frame)


class SlowSink(Sink):
    async def process(self, frame: ANY) -> None:  # type: ignore[override]
        check_fresh(self, frame)
        self.got.append(frame)
        await asyncio.sleep(0.005)


def run(graph: Graph, interrupts_ms: Sequence[float] = ()) -> list[Item]:
    sink = SlowSink() if graph.slow_sink else Sink()
    errors: list[ErrorFrame] = []

    class Errors(Processor):
        def process(self, frame: ErrorFrame) -> None:
            errors.append(frame)

    async def main() -> None:
        nodes: list[Processor] = [
            Source([TYPES[kind](source=i, number=n) for n, kind in enumerate(kinds)], graph.rest_ms[i])
            for i, kinds in enumerate(graph.frames)
        ]
        nodes += [make_node(graph.sources + i, spec) for i, spec in enumerate(graph.nodes)] + [sink]
        pipeline = Pipeline(nodes[0])
        for number, node in enumerate(nodes):
            for following in graph.after(number):
                pipeline.link(node, nodes[following])
        before = Errors()
        for source in nodes[: graph.sources]:
            pipeline.link(before, source)
        session = Session(pipeline, options=SessionOptions(inbox_frames=graph.bound))
        running = asyncio.ensure_future(session.run())
        for ms in interrupts_ms:
            asyncio.get_running_loop().call_later(ms / 1000, lambda: session.state == "ended" or session.interrupt())
        await running
        assert interrupts_ms or session.refused == 0
        assert errors == []

    run_virtual(main())
    return sink.got


def by_way(got: list[Item]) -> dict[tuple[Any, ...], list[int]]:
    """Numbers in order of arrival, for each source, lane, type and way through the graph."""
    ways: dict[tuple[Any, ...], list[int]] = {}
    for frame in got:
        ways.setdefault((frame.source, type(frame).__name__, frame.path), []).append(frame.number)
    return ways


@settings(max_examples=150, deadline=None)
@given(graphs(splits=True))
def test_what_reaches_a_sink_and_in_which_order_is_what_the_description_says(graph: Graph) -> None:
    """On any graph: each frame once for each way it can go, and on each way in the order of the source."""
    got, expected = run(graph), model(graph)
    assert Counter(got) == Counter(expected)
    if all("same" not in spec.deeds.values() for spec in graph.nodes):  # else two ways may look the same
        assert by_way(got) == by_way(expected)


@settings(max_examples=150, deadline=None)
@given(graphs(splits=False))
def test_without_splits_the_agents_lane_arrives_as_if_it_were_alone(graph: Graph) -> None:
    """Whatever waits on the way, the agent's frames of a source come out in one order, those that only pass by included."""
    got, expected = run(graph), model(graph)
    assert Counter(got) == Counter(expected)
    for source in range(graph.sources):
        # Frames that changed lanes on the way belong to two queues, and are only held to the order within each.
        crossed = {
            f.number for f in expected if f.source == source and len({t.split(" ")[1][0] for t in (*f.path, f" {type(f).__name__}")}) > 1
        }
        arrived, foreseen = (
            [(f.number, type(f), f.path) for f in frames if f.source == source and f.lane is Lane.AGENT and f.number not in crossed]
            for frames in (got, expected)
        )
        assert arrived == foreseen


@settings(max_examples=150, deadline=None)
@given(graphs(splits=True), st.lists(st.floats(0, 40), min_size=1, max_size=4))
def test_interrupted_at_random_nothing_stale_is_processed_and_nothing_of_the_callers_lost(graph: Graph, interrupts_ms: list[float]) -> None:
    """On any graph, with nodes that swallow their cancellation too: every frame given to a node is fresh; the rest arrives."""
    got, expected = run(graph, interrupts_ms), model(graph)

    def spared(frames: list[Item]) -> list[Item]:
        """What was never the agent's on its way, without its epoch."""
        return [replace(f, epoch=0) for f in frames if not any("Agent" in step for step in (*f.path, type(f).__name__))]

    assert Counter(spared(got)) == Counter(spared(expected))


@pytest.mark.parametrize("bound", [1, 256])
def test_the_model_is_not_empty(bound: int) -> None:
    """A graph with a bit of everything, worked out by hand, guards the model itself."""
    graph = Graph(
        sources=1,
        frames=((0, 2, 4, 3),),
        rest_ms=(0,),
        nodes=(
            NodeSpec("async", {0: 2, 2: "twice"}, (0,), 1),
            NodeSpec("def", {2: "pass"}, (0,), 0),
            NodeSpec("list", {3: "drop"}, (1, 2), 0),
        ),
        slow_sink=True,
        bound=bound,
    )
    hand = [
        AgentA(source=0, number=0, path=("n1 UserA",), epoch=0),
        UserA(source=0, number=0, epoch=0),
        AgentA(source=0, number=1, path=("n1 AgentA",), epoch=0),
        AgentA(source=0, number=1, path=("n1 AgentA",), epoch=0),
        AgentA(source=0, number=1, path=("n2 AgentA",), epoch=0),
        ControlA(source=0, number=2, epoch=0),
    ]
    assert Counter(model(graph)) == Counter(hand)
    assert Counter(run(graph)) == Counter(hand)
