"""B21: odd but real chunks of a model's stream give the calls and the text that were meant, through the real decoder and real tools."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

pytest.importorskip("aiohttp", reason="pip install aiohttp")

from tests.conformance.servers.openai_server import Cut, Reply, Step, call, calls, chunk, usage, words
from tests.conformance.servers.sockets import SocketLoop, over_sockets
from tests.conversations.llm_rig import ServedCall
from voiceflow.processors.services.retry import RetryOptions
from voiceflow.processors.tool import Tool, tool
from voiceflow.testing import Probe, interrupt_everywhere

PARIS, OSLO = {"city": "Paris"}, {"city": "Oslo"}
END = "So it is done."


class Desk:
    """Tools that keep what they were given."""

    def __init__(self) -> None:
        self.log: list[tuple[str, Any]] = []

        @tool()
        async def weather(city: str) -> str:
            self.log.append(("weather", {"city": city}))
            return f"sunny in {city}"

        @tool(effect="idempotent")
        async def menu() -> str:
            self.log.append(("menu", {}))
            return "fish"

        @tool(effect="once")
        async def book(people: int, time: str) -> str:
            self.log.append(("book", {"people": people, "time": time}))
            return "booked"

        self.tools: list[Tool] = [weather, menu, book]


def both(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """Two calls in one delta."""
    return {"tool_calls": [*first["tool_calls"], *second["tool_calls"]]}


def without_index(delta: dict[str, Any]) -> dict[str, Any]:
    return {"tool_calls": [{key: value for key, value in made.items() if key != "index"} for made in delta["tool_calls"]]}


def arguments(value: Any) -> dict[str, Any]:
    """A whole call whose arguments are no text."""
    return {"tool_calls": [{"index": 0, "id": "a", "type": "function", "function": {"name": "weather", "arguments": value}}]}


BOOKING = '{"people": 4, "time": "19:30"}'
SHAPES: dict[str, tuple[Reply, str, list[tuple[str, Any]]]] = {
    "a: split, nothing between": (
        calls(call(0, id="a", name="weather", arguments=""), call(0, arguments='{"ci'), {"content": None}, call(0, arguments='ty":"Par'), call(0, arguments='is"}')),
        "", [("weather", PARIS)],
    ),
    "b: interleaved": (
        calls(call(0, id="a", name="weather", arguments='{"city"'), call(1, id="b", name="weather", arguments='{"ci'), call(0, arguments=':"Paris"}'), call(1, arguments='ty":"Oslo"}')),
        "", [("weather", PARIS), ("weather", OSLO)],
    ),
    "c: one index, two ids": (
        calls(call(0, id="a", name="weather", arguments='{"city":"Paris"}'), call(0, id="b", name="weather", arguments='{"city":"Oslo"}')),
        "", [("weather", PARIS), ("weather", OSLO)],
    ),
    "c: in one delta": (
        calls(both(call(0, id="a", name="weather", arguments='{"city":"Paris"}'), call(0, id="b", name="menu", arguments=""))),
        "", [("weather", PARIS), ("menu", {})],
    ),
    "c: no index": (
        calls(without_index(call(0, id="a", name="weather", arguments='{"city":')), without_index(call(0, arguments='"Paris"}')), without_index(call(0, id="b", name="menu", arguments=""))),
        "", [("weather", PARIS), ("menu", {})],
    ),
    "c: one id for two": (
        calls(call(0, id="call", name="weather", arguments='{"city":"Paris"}'), call(1, id="call", name="weather", arguments='{"city":"Oslo"}')),
        "", [("weather", PARIS), ("weather", OSLO)],
    ),
    "d: placeholder": (calls(call(0, id="a", name="weather", arguments="{}"), call(0, arguments='{"ci'), call(0, arguments='ty":"Paris"}')), "", [("weather", PARIS)]),
    "d: all so far each time": (
        calls(call(0, id="a", name="weather", arguments='{"city":'), call(0, id="a", name="weather", arguments='{"city":"Pa'), call(0, id="a", name="weather", arguments='{"city":"Paris"}')),
        "", [("weather", PARIS)],
    ),
    "d: an object": (calls(arguments(PARIS)), "", [("weather", PARIS)]),
    "d: encoded twice": (calls(arguments(json.dumps(json.dumps(PARIS)))), "", [("weather", PARIS)]),
    "e: no id, no name in what follows": (calls(call(0, id="a", name="book", arguments=""), *(call(0, arguments=letter) for letter in BOOKING)), "", [("book", json.loads(BOOKING))]),
    "e: no id at all": (calls(call(0, name="weather", arguments='{"city":"Paris"}')), "", [("weather", PARIS)]),
    "f: usage first and last, empty deltas": (
        Reply([usage(11, 0), chunk({"role": "assistant"}), chunk({}), chunk({"content": ""}), chunk({"content": "All "}), chunk({"content": None}), chunk({"content": "well."}), chunk(finish="stop"), usage(11, 7)]),
        "All well.", [],
    ),
    "f: finish reason stop with a call": (calls(call(0, id="a", name="menu", arguments="{}"), finish="stop"), "", [("menu", {})]),
    "f: no [DONE]": (Reply([chunk({"content": "All well."}), chunk(finish="stop")], done=False), "All well.", []),
    "g: text, call, text": (
        calls({"content": "One moment, "}, call(0, id="a", name="weather", arguments='{"city":'), {"content": "I will "}, call(0, arguments='"Paris"}'), {"content": "look."}),
        "One moment, I will look.", [("weather", PARIS)],
    ),
    "h: no arguments": (calls(call(0, id="a", name="menu", arguments="")), "", [("menu", {})]),
    "h: arguments null": (calls(call(0, id="a", name="menu")), "", [("menu", {})]),
    "the old form": (calls({"function_call": {"name": "weather", "arguments": '{"city":'}}, {"function_call": {"arguments": '"Paris"}'}}, finish="function_call"), "", [("weather", PARIS)]),
    "written as text": (Reply([chunk({"content": part}) for part in ('```json\n{"na', 'me": "menu", "argu', 'ments": {}}\n```')] + [chunk(finish="stop")]), "", [("menu", {})]),
}  # fmt: skip


@pytest.mark.parametrize("chunk_bytes", [None, 1, 7], ids=["by chunk", "by byte", "by 7 bytes"])
@pytest.mark.parametrize("shape", SHAPES)
@over_sockets
async def test_b21_exactly_what_was_meant(shape: str, chunk_bytes: int | None) -> None:
    """The tools run with the intended arguments, the text is whole, each reply ends once, the usage counts once, and the answer follows."""
    reply, text, meant = SHAPES[shape]
    desk = Desk()
    script = iter([Reply(reply.steps, chunk_bytes=chunk_bytes, done=reply.done), words(END)])
    async with ServedCall(script, desk.tools) as served:
        heard = await served.says("please")
        follow_up = END if meant else ""
        assert sorted(desk.log, key=str) == sorted(meant, key=str)
        assert "".join(served.seen.text) == text + follow_up
        assert " ".join(heard).split() == f"{text} {follow_up}".split()
        assert served.seen.ended == len(served.server.asked) == (2 if meant else 1)
        assert served.reports.errors == []
        told = sum(any(isinstance(step, dict) and step.get("usage") for step in r.steps) for r in (reply, *([words(END)] if meant else [])))
        assert served.context.spent.prompt_tokens == 11 * told


BROKEN: dict[str, tuple[list[Step], str]] = {
    "arguments cut by the limit of tokens": (
        [chunk(call(0, id="a", name="weather", arguments='{"city":"Pa')), chunk(finish="length")],
        "do not fit",
    ),
    "arguments that are no JSON": (
        [chunk(call(0, id="a", name="weather", arguments="city=Paris")), chunk(finish="tool_calls")],
        "do not fit",
    ),
    "arguments of another tool": (
        [chunk(call(0, id="a", name="weather", arguments='{"people": 4}')), chunk(finish="tool_calls")],
        "do not fit",
    ),
    "a name that is not there": ([chunk(call(0, id="a", name="wether", arguments="{}")), chunk(finish="tool_calls")], "there is no tool"),
    "no name": ([chunk(call(0, id="a", arguments='{"city":"Paris"}')), chunk(finish="tool_calls")], "there is no tool"),
}


@pytest.mark.parametrize("shape", BROKEN)
@over_sockets
async def test_b21_a_call_that_cannot_be_mended_is_told_to_the_model(shape: str) -> None:
    """Nothing runs; the model reads what was wrong, the strict server takes that history, and the caller hears an answer."""
    steps, says = BROKEN[shape]
    desk = Desk()
    async with ServedCall(iter([Reply(steps), words("I try again.")]), desk.tools) as served:
        assert await served.says("please") == ["I", "try", "again."]
        assert desk.log == []
        (result,) = [message for message in served.server.asked[1].body["messages"] if message["role"] == "tool"]
        assert says in result["content"]
        assert served.reports.errors == []


@pytest.mark.parametrize("fault", [Cut(), b": nothing more\n\n"], ids=["broken off", "ended early"])
@over_sockets
async def test_b21_calls_of_a_stream_that_was_cut_off_do_not_run(fault: Step) -> None:
    """Whole as they look: what else the reply would have said is not known. The next turn is answered."""
    steps: list[Step] = [chunk({"content": "I book it."}), chunk(call(0, id="a", name="book", arguments=BOOKING)), fault]
    desk = Desk()
    async with ServedCall(
        iter([Reply(steps, done=False), words("pong it is indeed.")]), desk.tools, retries=RetryOptions(tries=1)
    ) as served:
        assert await served.says("a table please") == ["I", "book", "it."]
        assert desk.log == []
        assert len(served.reports.errors) == 1
        assert await served.says("ping") == ["pong", "it", "is", "indeed."]


def test_b21_interrupted_at_any_point_it_books_at_most_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over real HTTP: one booking at most, its result once, a history the strict server takes, and the next question answered."""
    monkeypatch.setattr("voiceflow.testing.everywhere.VirtualClockLoop", SocketLoop)

    def script(body: dict[str, Any]) -> Reply:
        last = body["messages"][-1]
        if last["role"] == "tool":
            return words("Done.")
        if "ping" in last["content"]:
            return words("pong it is indeed.")
        return calls({"content": "I book it."}, call(0, id="a", name="book", arguments="{}"), call(0, arguments=BOOKING))

    async def scenario(probe: Probe) -> None:
        desk = Desk()
        async with ServedCall(script, desk.tools) as served:
            probe.watch(served.session, served.sink)
            served.asks("a table please")
            await asyncio.sleep(2.0)
            heard = await served.says("ping", 2.0)
            probe.finish()
        results = [message.text for message in served.context.conversation.messages if message.role == "tool"]
        if len(desk.log) > 1 or results != ["booked"] * len(desk.log):
            probe.problems.append(f"booked {desk.log}, told {results}")
        if (probe.interruption is None or probe.interruption.at < 2.0) and heard[-4:] != ["pong", "it", "is", "indeed."]:
            probe.problems.append(f"not answered: {heard}")
        if served.reports.errors:
            probe.problems.append(f"errors: {served.reports.errors}")
        if probe.interruption is None and len(desk.log) != 1:
            probe.problems.append("nothing was booked without an interrupt")

    found = interrupt_everywhere(scenario, every=3)
    found.check()
    assert found.points > 100
