"""The pictures of a pipeline: everything a reader needs is in them, and they are valid text, Mermaid and DOT."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import pytest

from voiceflow import (
    AudioFormat,
    EndFrame,
    ErrorFrame,
    InputAudioFrame,
    OutputAudioFrame,
    Pipeline,
    PlaybackStopped,
    Processor,
    SayFrame,
    Session,
    TranscriptFrame,
)


class Mic(Processor):
    makes = AudioFormat(48000, 2)

    def process(self, frame: PlaybackStopped | ErrorFrame) -> None: ...

    async def run(self) -> AsyncIterator[InputAudioFrame]:
        if False:
            yield


class Stt(Processor):
    takes = (AudioFormat(16000), AudioFormat(8000))
    holds_ms = 40

    async def process(self, frame: InputAudioFrame) -> AsyncIterator[TranscriptFrame]:
        if False:
            yield


class Agent(Processor):
    def process(self, frame: TranscriptFrame | SayFrame) -> SayFrame: ...


class Voice(Processor):
    makes = AudioFormat(24000)
    holds_ms = 2.5

    async def process(self, frame: SayFrame) -> AsyncIterator[OutputAudioFrame]:
        if False:
            yield


class Speaker(Processor):
    def process(self, frame: OutputAudioFrame | EndFrame) -> PlaybackStopped: ...


def call() -> Pipeline:
    return Mic() >> Stt() >> Agent() >> Voice() >> Speaker()


# --------------------------------------------------------------------------------------------- plain text


def test_print_draws_the_pipeline() -> None:
    """A line a node with how it works, a line an arrow with types and formats, the conversion, and the sum of the delays."""
    lines = str(call()).splitlines()
    head, body = lines[0], lines[1:]
    held = float(re.fullmatch(r"pipeline: 5 nodes, 1 converters, ([\d.]+) ms held back by design", head)[1])  # type: ignore[index]
    assert 42.5 < held < 52.5
    assert body == [
        "Mic      (inline, makes 48000 Hz x2)",
        "    --> Stt      InputAudioFrame [48000 Hz x2 => 16000 Hz x1]",
        "Stt      (worker, takes 16000 Hz x1 or 8000 Hz x1, holds 40 ms)",
        "    --> Agent    TranscriptFrame",
        "Agent    (inline)",
        "    --> Voice    SayFrame",
        "Voice    (worker, makes 24000 Hz x1, holds 2.5 ms)",
        "    --> Speaker  OutputAudioFrame [24000 Hz x1]",
        "Speaker  (inline)",
        "    <-- Mic      PlaybackStopped",
    ]


def test_the_applications_frames_are_drawn_as_such() -> None:
    """What the heads take is assumed to come from the application; what the session gives is not."""
    drawn = str(Agent() >> Voice() >> Speaker())
    assert "application\n    --> Agent    SayFrame, TranscriptFrame\n" in drawn
    assert "StartFrame" not in drawn
    assert "application" not in str(call())


def test_a_picture_of_a_graph_that_cannot_work_is_the_error() -> None:
    """There is nothing to draw of a graph that will not run."""
    with pytest.raises(Exception, match="nobody feeds Voice"):
        str(Mic() >> Stt() >> Voice() >> Speaker())


# ------------------------------------------------------------------------------------ Mermaid, structurally

MERMAID_NODE = re.compile(r'    (\w+)\["((?:[^"])*)"\]')
MERMAID_APP = re.compile(r'    (app)\(\["(application)"\]\)')
MERMAID_ARROW = re.compile(r'    (\w+) (?:-- "([^"]*)" -->|-\. "([^"]*)" \.->) (\w+)')


def read_mermaid(text: str) -> tuple[dict[str, str], list[tuple[str, str, str, bool]]]:
    """Nodes {id: label} and arrows (from, label, to, dotted); any line that is neither is an error."""
    first, *lines = text.splitlines()
    assert first == "flowchart LR"
    nodes: dict[str, str] = {}
    arrows = []
    for line in lines:
        if match := MERMAID_NODE.fullmatch(line) or MERMAID_APP.fullmatch(line):
            assert match[1] not in nodes
            nodes[match[1]] = match[2]
        else:
            match = MERMAID_ARROW.fullmatch(line)
            assert match is not None, line
            assert {match[1], match[4]} <= set(nodes)
            arrows.append((nodes[match[1]], match[2] or match[3], nodes[match[4]], match[2] is None))
    return nodes, arrows


def test_mermaid_holds_every_node_and_arrow() -> None:
    """Solid arrows down, dotted ones for reports, types and formats as labels."""
    nodes, arrows = read_mermaid(call().mermaid())
    assert list(nodes.values()) == ["Mic", "Stt", "Agent", "Voice", "Speaker"]
    assert arrows == [
        ("Mic", "InputAudioFrame [48000 Hz x2 => 16000 Hz x1]", "Stt", False),
        ("Stt", "TranscriptFrame", "Agent", False),
        ("Agent", "SayFrame", "Voice", False),
        ("Voice", "OutputAudioFrame [24000 Hz x1]", "Speaker", False),
        ("Speaker", "PlaybackStopped", "Mic", True),
    ]
    nodes, arrows = read_mermaid((Agent() >> Voice() >> Speaker()).mermaid())
    assert nodes["app"] == "application"
    assert ("application", "SayFrame, TranscriptFrame", "Agent", False) in arrows


# ---------------------------------------------------------------------------------------- DOT, structurally

STRING = r'"((?:[^"\\]|\\.)*)"'
DOT_NODE = re.compile(rf"    (\w+) \[label={STRING}(?:, shape=\w+)?\];")
DOT_ARROW = re.compile(rf"    (\w+) -> (\w+) \[label={STRING}(, style=dashed, constraint=false)?\];")


def read_dot(text: str) -> tuple[list[str], list[tuple[str, str, str, bool]]]:
    first, settings, *lines, last = text.splitlines()
    assert (first, settings, last) == ("digraph pipeline {", "    rankdir=LR; node [shape=box];", "}")
    labels: dict[str, str] = {}
    arrows = []
    for line in lines:
        if match := DOT_NODE.fullmatch(line):
            assert match[1] not in labels
            labels[match[1]] = match[2]
        else:
            match = DOT_ARROW.fullmatch(line)
            assert match is not None, line
            arrows.append((labels[match[1]], match[3], labels[match[2]], match[4] is not None))
    return list(labels.values()), arrows


def test_dot_holds_every_node_and_arrow() -> None:
    """The same graph as Mermaid's, dashed arrows for reports."""
    labels, arrows = read_dot(call().dot())
    _, expected = read_mermaid(call().mermaid())
    assert labels == ["Mic", "Stt", "Agent", "Voice", "Speaker"]
    assert arrows == expected
    labels, arrows = read_dot((Agent() >> Voice() >> Speaker()).dot())
    assert "application" in labels


def test_names_with_quotes_and_backslashes_stay_in_their_place() -> None:
    """A name is a label, whatever is in it; two languages, each with its own way of quoting."""
    pipeline = call()
    pipeline.nodes[0].name = 'the "good" mic'
    pipeline.nodes[1].name = "C:\\stt"
    pipeline.nodes[2].name = "application"
    nodes, _ = read_mermaid(pipeline.mermaid())
    assert list(nodes.values())[:2] == ["the #quot;good#quot; mic", "C:\\stt"]
    labels, arrows = read_dot(pipeline.dot())
    assert labels[:2] == [r"the \"good\" mic", r"C:\\stt"]
    assert len(arrows) == 5


async def test_depths_show_the_live_inboxes() -> None:
    """What session.depths() says stands under the nodes' names."""
    pipeline = call()
    session = Session(pipeline)
    depths = session.depths()
    assert depths == {
        "Stt": "user 0 (0 ms), agent 0 (0 ms)",
        "Voice": "agent 0 (0 ms)",
    }
    nodes, _ = read_mermaid(pipeline.mermaid(depths))
    assert "Stt<br/>user 0 (0 ms), agent 0 (0 ms)" in nodes.values()
    labels, _ = read_dot(pipeline.dot(depths))
    assert r"Voice\nagent 0 (0 ms)" in labels
