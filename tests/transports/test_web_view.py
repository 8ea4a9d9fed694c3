"""What a page is told of a call beside the conversation."""

from __future__ import annotations

import asyncio
import itertools
import json
from typing import Any

from voiceflow import Pipeline, Session
from voiceflow.budget import Budget
from voiceflow.processors.context import Context
from voiceflow.processors.text import Sentences
from voiceflow.processors.turns import Turns
from voiceflow.session import NodeState
from voiceflow.testing import Latency, RecordingSink, Said, ScriptedCaller, ScriptedLLM, ScriptedSTT, ScriptedTTS, ScriptedVAD
from voiceflow.transports.web.view import View, depths, show
from voiceflow.transports.wire import TellFrame

QUESTION = Said(0.5, 1.0, "when are you open")


def agent() -> Pipeline:
    caller = ScriptedCaller([QUESTION], until=8.0)
    hearing = caller >> ScriptedVAD() >> ScriptedSTT(caller.texts) >> Turns()
    llm = ScriptedLLM(lambda messages: "We are open from noon to ten.", latency=Latency(0.18, 0.1))
    return hearing >> Context("You answer.") >> llm >> Sentences() >> ScriptedTTS(latency=Latency(0.09, 0.0)) >> RecordingSink()


async def seen(budget: Budget | None = None) -> list[tuple[str, Any]]:
    """All that a page is told of a call with one answer, as kind and data."""
    told: list[tuple[str, Any]] = []
    answered = asyncio.Event()

    def tell(frame: TellFrame) -> None:
        told.append((frame.kind, frame.data))
        if frame.kind == "latency":
            answered.set()

    session = Session(agent())
    async with session:
        View(session, tell, budget)
        async with asyncio.timeout(20):
            await answered.wait()
    json.dumps(told)
    return told


async def test_the_picture_comes_first_and_then_now_and_again() -> None:
    """Every node with its name, every arrow with both ends among them; a page that listens a little later gets it too."""
    told = await seen()
    assert told[0][0] == "pipeline"
    graph, again = (data for kind, data in told if kind == "pipeline")  # in two to four seconds
    assert again is graph, "drawn once: the loop is everybody's"
    names = {node["name"] for node in graph["nodes"]}
    assert {"ScriptedCaller", "Turns", "Context", "ScriptedLLM", "RecordingSink"} <= names
    arrows = {(arrow["source"], arrow["target"]): arrow["report"] for arrow in graph["arrows"]}
    assert {end for ends in arrows for end in ends} <= names
    assert arrows["Turns", "Context"] is False
    assert arrows["RecordingSink", "Context"] is True


async def test_the_picture_is_that_of_the_pipeline_as_it_is() -> None:
    """A node that replaced another stands in it from the next picture on."""
    told: list[set[str]] = []
    pipeline = agent()
    session = Session(pipeline)
    async with session:
        View(session, lambda frame: told.append({node["name"] for node in frame.data["nodes"]}) if frame.kind == "pipeline" else None)
        await asyncio.sleep(0.1)
        new = ScriptedTTS()
        new.name = "another voice"
        await session.replace(next(node for node in pipeline.nodes if node.name == "ScriptedTTS"), new)
        await asyncio.sleep(2.1)
        session.cancel()
    assert [told[0] - told[-1], told[-1] - told[0]] == [{"ScriptedTTS"}, {"another voice"}]


async def test_the_wait_for_an_answer_is_told_stage_by_stage_with_its_budget() -> None:
    """One message an answer; what the model and the voice took stands where it belongs."""
    told = await seen(Budget(stt_ms=100, llm_ms=300, tts_ms=200))
    (latency,) = [data for kind, data in told if kind == "latency"]
    assert latency["budget"] == {"stt": 100, "llm": 300, "tts": 200, "total": 600}
    assert list(latency["stages"]) == ["stt", "llm", "tts", "playout"]
    assert 180 <= latency["stages"]["llm"] <= 200
    assert latency["stages"]["tts"] >= 90


async def test_depths_are_told_when_they_change() -> None:
    """Nodes that work are shown at work; the same is told again only with the picture."""
    everything = [(kind, data) for kind, data in await seen() if kind != "latency"]
    told = [data["nodes"] for kind, data in everything if kind == "depths"]
    assert any(nodes["ScriptedLLM"]["busy"] for nodes in told)
    for (_, before), (kind, after) in itertools.pairwise(everything):
        assert kind == "pipeline" or before != after
    assert "Turns" not in told[0], "it has no inbox"


def test_the_lanes_of_a_node_are_added_up() -> None:
    """A node with two inboxes is one box in the picture."""
    states = [
        NodeState("TTS", "AGENT", 3, 0.5, 1, None, None),
        NodeState("TTS", "CONTROL", 1, 0.0, 2, "HoldFrame", 1.0),
        NodeState("LLM", "AGENT", 0, 0.0, 0, None, None),
    ]
    assert depths(states) == {
        "TTS": {"frames": 4, "ms": 500, "dropped": 3, "busy": True},
        "LLM": {"frames": 0, "ms": 0, "dropped": 0, "busy": False},
    }


async def test_only_a_line_that_has_a_word_for_it_is_told() -> None:
    """A loudspeaker of another kind is left alone."""
    pipeline = agent()
    session = Session(pipeline)
    async with session:
        before = len(asyncio.all_tasks())
        show(session, pipeline, pipeline.nodes[-1])
        assert len(asyncio.all_tasks()) == before
        session.cancel()
