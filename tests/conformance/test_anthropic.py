"""Anthropic's Messages API: the vendor's own clients, new and old, against our server, and our node against the same one."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import subprocess
from typing import Any

import pytest

pytest.importorskip("aiohttp", reason="pip install aiohttp")

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conformance.environments import python_of
from tests.conformance.openai_call import LLMCall
from tests.conformance.servers.anthropic_server import (
    KEY,
    AnthropicServer,
    Cut,
    Pause,
    Reply,
    Silence,
    begin,
    call,
    end,
    reply,
    request_fault,
    text,
    thought,
    words,
)
from tests.conformance.servers.sockets import SocketLoop, over_sockets
from voiceflow import ContextFrame, Message, ToolCall
from voiceflow.messages import AudioClip, Image, ToolSpec
from voiceflow.processors.services.anthropic_llm import AnthropicLLM, AnthropicOptions
from voiceflow.processors.services.anthropic_request import MessagesOptions, messages_body
from voiceflow.processors.services.anthropic_stream import MessagesStream
from voiceflow.processors.services.reply import Reasoning, ReplyCall, ReplyEnd, ReplyText, ReplyUsage
from voiceflow.processors.services.retry import RetryOptions, ServiceError
from voiceflow.testing import check_processor

WEATHER = ToolSpec("weather", "The weather.", '{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}')
TEXT = "Good day to you, this is a reply of some words. Grüße! 👋"
PARIS = reply(
    thought(0, "Hm, ", "Paris."), text(1, "Let me ", "see."), call(2, "toolu_1", "weather", "", '{"ci', 'ty":"Paris"}'), reason="tool_use"
)

# ----------------------------------------------------------------------------------------- the vendor's clients


async def swept() -> None:
    """The vendor's client closes copies of itself when they are collected, by tasks of its own."""
    gc.collect()
    await asyncio.sleep(0.1)


@over_sockets
async def test_the_official_client_reads_a_stream() -> None:
    """Text in deltas, the stop reason and the usage; it says who it is in the newer way."""
    anthropic = pytest.importorskip("anthropic", reason="pip install anthropic")
    async with AnthropicServer([words(TEXT), PARIS, words("It is sunny.")]) as server:
        async with anthropic.AsyncAnthropic(api_key=KEY, base_url=server.origin, max_retries=0) as client:
            tools = [{"name": "weather", "description": "The weather.", "input_schema": json.loads(WEATHER.parameters)}]
            question = {"role": "user", "content": "weather in Paris?"}
            async with client.messages.stream(model="test", max_tokens=100, messages=[question]) as stream:
                assert "".join([part async for part in stream.text_stream]) == TEXT
                message = await stream.get_final_message()
            assert (message.stop_reason, message.usage.output_tokens) == ("end_turn", 7)
            async with client.messages.stream(model="test", max_tokens=100, messages=[question], tools=tools) as stream:
                message = await stream.get_final_message()
            assert [block.type for block in message.content] == ["thinking", "text", "tool_use"]
            assert message.content[2].input == {"city": "Paris"}
            blocks = [
                {"type": "text", "text": "Let me see."},
                {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Paris"}},
            ]
            result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "sunny"}
            history = [question, {"role": "assistant", "content": blocks}, {"role": "user", "content": [result]}]
            async with client.messages.stream(model="test", max_tokens=100, messages=history, tools=tools) as stream:
                assert "".join([part async for part in stream.text_stream]) == "It is sunny."
        assert {asked.headers["anthropic-version"] for asked in server.asked} == {"2026-10-21"}
    await swept()


@over_sockets
async def test_the_official_client_meets_the_same_refusals() -> None:
    """A wrong key, a history that does not fit, and an error in the middle of a stream."""
    anthropic = pytest.importorskip("anthropic", reason="pip install anthropic")
    overloaded = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    async with AnthropicServer([Reply([begin(), overloaded])]) as server:
        hello = [{"role": "user", "content": "hello"}]
        async with anthropic.AsyncAnthropic(api_key="wrong", base_url=server.origin, max_retries=0) as client:
            with pytest.raises(anthropic.AuthenticationError):
                await client.messages.create(model="test", max_tokens=9, messages=hello, stream=True)
        async with anthropic.AsyncAnthropic(api_key=KEY, base_url=server.origin, max_retries=0) as client:
            with pytest.raises(anthropic.BadRequestError, match="alternate"):
                await client.messages.create(model="test", max_tokens=9, messages=hello + hello, stream=True)
            with pytest.raises(anthropic.APIStatusError, match="Overloaded"):
                async for _ in await client.messages.create(model="test", max_tokens=9, messages=hello, stream=True):
                    pass
    await swept()


OLD = """
import sys, anthropic
client = anthropic.Anthropic(api_key=sys.argv[2], base_url=sys.argv[1], max_retries=0)
with client.messages.stream(model="test", max_tokens=100, messages=[{"role": "user", "content": "hello"}]) as stream:
    for part in stream.text_stream:
        sys.stdout.write(part)
"""


@pytest.mark.timeout(900)
def test_the_older_official_client_reads_the_same_stream() -> None:
    """With its key in a header of its own, and the version of the API that was current then."""
    python = python_of("anthropic-0", ["anthropic==0.125.0"])

    async def main() -> tuple[str, str | None]:
        async with AnthropicServer([words(TEXT)]) as server:
            process = await asyncio.create_subprocess_exec(python, "-c", OLD, server.origin, KEY, stdout=subprocess.PIPE)
            said, _ = await asyncio.wait_for(process.communicate(), 60)
            return said.decode(), server.asked[0].headers.get("anthropic-version")

    assert asyncio.run(main()) == (TEXT, "2023-06-01")


# --------------------------------------------------------------------------------------------------- our node


def node(server: AnthropicServer | str, **more: Any) -> AnthropicLLM:
    url = server if isinstance(server, str) else server.origin
    return AnthropicLLM(AnthropicOptions(MessagesOptions("test"), **{"base_url": url, "api_key": KEY, **more}))


@pytest.mark.parametrize("version", ["2023-06-01", "2026-10-21"])
@over_sockets
async def test_a_reply_is_streamed(version: Any) -> None:
    """The first text is there before the service has sent the last; frames come between start and one end, the usage goes up."""
    async with AnthropicServer([words(TEXT, each_s=0.1)]) as server, LLMCall(node(server, version=version)) as llm:
        number = llm.begin("hello")
        await llm.first_text(number)
        assert server.asked[0].sent < len(TEXT.split())
        while not llm.ended(number):
            await llm.news()
        assert llm.text(number) == TEXT
        assert [type(frame).__name__ for frame in llm.of(number)] == ["LLMStarted", *["LLMTextFrame"] * len(TEXT.split()), "LLMEnded"]
        await asyncio.sleep(1)
        assert [(u.utterance, u.prompt_tokens, u.completion_tokens) for u in llm.reports.usage] == [(number, 11, 7)]
        assert llm.reports.errors == []


@over_sockets
async def test_a_call_of_a_tool_and_its_result() -> None:
    """What it thinks is not said; the call comes once and whole; the strict server takes the history with its result."""
    async with AnthropicServer([PARIS, words("It is sunny.")]) as server, LLMCall(node(server), (WEATHER,)) as llm:
        assert await llm.ask("weather in Paris?") == "Let me see."
        assert llm.calls() == [("weather", '{"city":"Paris"}')]
        made = ToolCall("toolu_1", "weather", '{"city":"Paris"}')
        said = Message("assistant", "Let me see.", calls=(made,))
        assert await llm.ask(Message("user", "weather in Paris?"), said, Message("tool", "sunny", call_id="toolu_1")) == "It is sunny."
        assert llm.reports.errors == []


@given(st.integers(1, 60))
@settings(max_examples=20, deadline=None)
def test_odd_chunk_sizes(size: int) -> None:
    """However many bytes the network hands over at a time: the same text, the same call."""

    @over_sockets
    async def scene() -> None:
        whole = reply(text(0, TEXT), call(1, "a", "weather", '{"city":"Köln"}'), reason="tool_use")
        async with AnthropicServer([Reply(whole.steps, chunk_bytes=size)]) as server, LLMCall(node(server), (WEATHER,)) as llm:
            assert await llm.ask("hello") == TEXT
            assert llm.calls() == [("weather", '{"city":"Köln"}')]
            assert llm.reports.errors == []

    scene()


@pytest.mark.parametrize("after_s", [0.0, 0.05, 0.25, 0.6])
@over_sockets
async def test_cancel_in_mid_stream_tells_the_service_and_leaves_the_next_turn_clean(after_s: float) -> None:
    """It learns of it at that moment, nothing of the old reply comes any more, and the next is whole."""
    slow = Reply([Pause(0.2), *words("one two three four five six seven", each_s=0.2).steps])
    async with AnthropicServer([slow, words(TEXT)]) as server, LLMCall(node(server)) as llm:
        first = llm.begin("hello")
        await asyncio.sleep(after_s)
        at, before = llm.session.time(), len(llm.of(first))
        llm.session.interrupt("the caller speaks")
        if not server.asked:
            server._reply = lambda body: words(TEXT)  # it was never asked for the first
        assert await llm.ask("and now") == TEXT
        await asyncio.sleep(2.0)
        assert (len(llm.of(first)), llm.ended(first)) == (before, 0)
        for asked in server.asked[:-1]:
            assert asked.left_at is not None
            assert asked.left_at - at < 0.01
        assert llm.reports.errors == []


@over_sockets
async def test_a_hundred_turns_on_one_connection() -> None:
    """Each reuses the connection of the one before; nothing is left behind (which the test's clock sees to)."""
    async with AnthropicServer(lambda body: words(f"Reply to {body['messages'][-1]['content'][0]['text']}.")) as server:
        async with LLMCall(node(server)) as llm:
            await asyncio.sleep(1.0)  # it is made when the session starts
            for number in range(100):
                assert await llm.ask(f"turn {number}") == f"Reply to turn {number}."
            assert llm.reports.errors == []
        assert server.connections == 1


SOON = RetryOptions(tries=3, patience_s=10)
OVERLOADED = {"type": "error", "error": {"type": "overloaded_error", "message": f"busy {KEY}"}}


@pytest.mark.parametrize(
    "fault",
    [Reply(status=529, body=OVERLOADED), Reply(status=500), Reply([Cut()]), Reply([OVERLOADED]), Reply([begin(), OVERLOADED]), Reply([])],
)
@over_sockets
async def test_it_is_asked_again_while_nothing_has_come(fault: Reply) -> None:
    """Twice a fault, then an answer: the caller gets it, once."""
    async with AnthropicServer([fault, fault, words("At last.")]) as server, LLMCall(node(server, retries=SOON)) as llm:
        assert await llm.ask("hello") == "At last."
        assert [len(server.asked), llm.ended(), llm.reports.errors] == [3, 1, []]


@pytest.mark.parametrize("fault", [Cut(), OVERLOADED, Silence()])
@over_sockets
async def test_it_is_not_asked_again_once_something_has_come(fault: Any) -> None:
    """What was said stands, the utterance is closed, no tool runs, an error tells of it, and the next turn is clean."""
    broken = Reply([begin(), *text(0, "I am ", "afraid"), *call(1, "a", "weather", "{}"), Pause(0.1), fault])
    async with AnthropicServer([broken, words("Fine.")]) as server, LLMCall(node(server, retries=SOON), (WEATHER,)) as llm:
        assert await llm.ask("hello") == "I am afraid"
        await asyncio.sleep(0.1)
        assert [len(server.asked), llm.ended(), llm.calls(), len(llm.reports.errors)] == [1, 1, [], 1]
        assert KEY not in llm.reports.errors[0][1]
        assert await llm.ask("hello?") == "Fine."


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 429, 500, 529])
@over_sockets
async def test_a_refusal_is_told_without_the_key(status: int, caplog: pytest.LogCaptureFixture) -> None:
    """The status and what to do, and nothing of what the service quotes; not in the log and not in a repr either."""
    caplog.set_level(logging.DEBUG)
    body = {"type": "error", "error": {"type": "x_error", "message": f"the key {KEY} is no good"}}
    one = AnthropicServer(lambda _: Reply(status=status, body=body))
    async with one as server, LLMCall(node(server, retries=RetryOptions(tries=1))) as llm:
        await llm.ask("hello")
        await asyncio.sleep(0.1)
        ((_, error),) = llm.reports.errors
        assert f"answered {status}" in error
        assert KEY not in error + caplog.text + repr(llm.node) + repr(llm.node.options)  # type: ignore[attr-defined]


def test_a_key_is_looked_for_at_anthropic_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stranger's server is not sent the key of the environment."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    assert AnthropicLLM("m").headers()["x-api-key"] == KEY
    elsewhere = AnthropicLLM(AnthropicOptions(MessagesOptions("m"), base_url="http://127.0.0.1:1"))
    assert KEY not in str(elsewhere.headers())
    monkeypatch.delenv("ANTHROPIC_API_KEY")
    with pytest.raises(ServiceError, match="ANTHROPIC_API_KEY"):
        AnthropicLLM("m").headers()


@pytest.mark.parametrize("wrong", [{"model": ""}, {"max_tokens": 0}, {"opening": " "}, {"going_on": ""}, {"extra": {"stream": False}}])
def test_wrong_options_are_refused(wrong: dict[str, Any]) -> None:
    """The error names the field."""
    with pytest.raises(ValueError, match=next(iter(wrong))):
        MessagesOptions(**{"model": "m", **wrong})


# ------------------------------------------------------------------------------------------------ the request

TOOLS = ("look_up", "book")
texts = st.sampled_from(["", " ", "hello", "When do you open? "])


@st.composite
def conversations(draw: st.DrawFn) -> list[Message]:
    """Any that voiceflow's context can give: whoever speaks first, each call with its one result behind it."""
    messages: list[Message] = [Message("system", "You answer.")] if draw(st.booleans()) else []
    for number in range(draw(st.integers(0, 6))):
        kind = draw(st.sampled_from(["user", "assistant", "calls", "image"]))
        if kind == "image":
            url = draw(st.sampled_from(["https://x/y.png", "data:image/png;base64,AAAA", "data:text/plain,x"]))
            messages.append(Message("user", draw(texts), media=(Image(url), AudioClip("mem:1", 2.0))))
        elif kind == "calls":
            made = tuple(
                ToolCall(f"call.{number}:{i}", draw(st.sampled_from(TOOLS)), draw(st.sampled_from(["{}", '{"a":1}', "[1]", "{broken", ""])))
                for i in range(draw(st.integers(1, 3)))
            )
            messages.append(Message("assistant", draw(texts), calls=made))
            messages += [Message("tool", draw(texts), call_id=one.id) for one in made]
        else:
            messages.append(Message(kind, draw(texts)))
    return messages


@given(conversations())
def test_any_conversation_becomes_one_that_the_strict_server_takes(messages: list[Message]) -> None:
    """Sides in turn, calls answered next, nothing empty; and no word is lost."""
    body = messages_body(MessagesOptions("m"), messages, [WEATHER])
    assert request_fault(json.loads(json.dumps(body))) == ""
    sent = json.dumps(body["messages"])
    assert all(message.text.strip() in sent for message in messages if message.role != "system")


def test_the_choice_of_tools() -> None:
    """As the API has it."""
    body = messages_body(MessagesOptions("m", tool_choice="any", parallel_calls=False), [Message("user", "x")], [WEATHER])
    assert body["tool_choice"] == {"type": "any", "disable_parallel_tool_use": True}
    assert body["tools"][0]["input_schema"]["required"] == ["city"]
    assert "tool_choice" not in messages_body(MessagesOptions("m", tool_choice="any"), [Message("user", "x")], [])


# ------------------------------------------------------------------------------------------------- the stream


def read(*events: dict[str, Any] | bytes, size: int = 0) -> list[Any]:
    """What a stream says of these events."""
    server = AnthropicServer([])
    data = b"".join(event if isinstance(event, bytes) else server.encode(event) for event in events)
    ids = iter(range(100))
    stream = MessagesStream(lambda: f"fresh{next(ids)}")
    found: list[Any] = []
    for at in range(0, len(data), size or max(len(data), 1)):
        found += stream.feed(data[at : at + (size or len(data))])
    return [*found, *stream.close()]


def calls_of(found: list[Any]) -> list[tuple[str, str, str]]:
    return [(one.call.id, one.call.name, one.call.arguments) for one in found if isinstance(one, ReplyCall)]


BEGUN = {"type": "content_block_start", "index": 0, "content_block": {"type": "tool_use", "id": "a", "name": "weather", "input": {}}}


def piece(text: str, index: object = 0) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": {"type": "input_json_delta", "partial_json": text}}


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([BEGUN, piece('{"a":'), piece("1}")], [("a", "weather", '{"a":1}')]),
        ([BEGUN], [("a", "weather", "{}")]),
        (call(0, "a", "weather", given={"a": 1}), [("a", "weather", '{"a": 1}')]),
        (call(0, "a", "weather", '{"a":2}', given={"a": 1}), [("a", "weather", '{"a":2}')]),
        (call(0, "", "weather", "{}"), [("fresh0", "weather", "{}")]),
        ([BEGUN, piece('{"a":1}', index=7)], [("a", "weather", '{"a":1}')]),
        ([BEGUN, piece('{"a":1}', index=None)], [("a", "weather", '{"a":1}')]),
        ([*call(0, "a", "weather", "{}"), *call(0, "b", "book", '{"x":1}')], [("a", "weather", "{}"), ("b", "book", '{"x":1}')]),
        ([BEGUN, piece('{"a":')], [("a", "weather", '{"a":')]),
        ([BEGUN, {"type": "content_block_delta", "index": 0, "delta": None}, b"event: x\ndata: {broken\n\n", piece("{}")], [("a", "weather", "{}")]),
    ],
)  # fmt: skip
def test_calls_however_they_are_cut_up(events: list[Any], expected: list[tuple[str, str, str]]) -> None:
    """Whole at once, in pieces, without id, with a wrong or repeated index, cut off: one call each, as well as it can be known."""
    found = read(begin(), *events, *end("tool_use"))
    assert calls_of(found) == expected
    assert found[-1] == ReplyEnd("tool_use")


def test_a_stream_that_breaks_off_runs_no_tool() -> None:
    """Its calls may not be all of them."""
    found = read(begin(), *call(0, "a", "weather", "{}"))
    assert calls_of(found) == []
    assert "broke off" in str(found[-1].error)


def test_thinking_is_kept_apart_and_the_usage_is_told_once() -> None:
    """Counts overwrite one another; what came out of a cache counts as well."""
    found = read(
        begin(), *thought(0, "hm"), *text(1, "Yes."), {"type": "message_delta", "delta": {}, "usage": {"output_tokens": 3}}, *end()
    )
    assert found == [Reasoning("hm"), ReplyText("Yes."), ReplyUsage(11, 7), ReplyEnd("end_turn")]


def test_an_answer_that_is_not_streamed_is_understood() -> None:
    """A service that ignores `stream`."""
    content = [{"type": "text", "text": "Hm."}, {"type": "tool_use", "id": "a", "name": "weather", "input": {"city": "X"}}]
    whole = {
        "type": "message",
        "role": "assistant",
        "content": content,
        "stop_reason": "tool_use",
        "usage": {"input_tokens": 4, "output_tokens": 2},
    }
    found = read(whole)
    assert found == [ReplyText("Hm."), ReplyCall(ToolCall("a", "weather", '{"city": "X"}')), ReplyUsage(4, 2), ReplyEnd("tool_use")]


@pytest.mark.parametrize(("reason", "says"), [("refusal", "refused"), ("max_tokens", "max_tokens is too small")])
def test_an_empty_reply_says_why(reason: str, says: str) -> None:
    """What the caller waits for will not come."""
    assert says in str(read(begin(), *thought(0, "hm"), *end(reason))[-1].error)


@given(
    st.lists(
        st.one_of(st.sampled_from([begin(), *text(0, "a"), *call(1, "x", "y", "{}"), *end(), {"type": "ping"}]), st.binary(max_size=30))
    ),
    st.integers(1, 40),
)
def test_no_stream_does_harm(events: list[Any], size: int) -> None:
    """Events in any order with anything between them: an end, or an error of the service."""
    try:
        found = read(*events, size=size)
    except ServiceError:
        return
    assert isinstance(found[-1], ReplyEnd)
    assert sum(isinstance(one, ReplyEnd) for one in found) == 1


class Served(AnthropicLLM):
    """Brings its server along, in the loop that the kit makes for each run."""

    def __init__(self) -> None:
        super().__init__(AnthropicOptions(MessagesOptions("m"), base_url="http://127.0.0.1:1", api_key=KEY))
        self.server = AnthropicServer(lambda body: PARIS)

    async def start(self) -> None:
        await self.server.__aenter__()
        self._url = self.server.origin
        await super().start()

    async def stop(self) -> None:
        await super().stop()
        await self.server.__aexit__()


def test_the_node_conforms(monkeypatch: pytest.MonkeyPatch) -> None:
    """The conformance kit: strangers pass, interrupts leave it as good as new, neighbours do it no harm, nothing is left behind."""
    monkeypatch.setattr("voiceflow.testing.conformance.VirtualClockLoop", SocketLoop)
    check_processor(Served, [ContextFrame(messages=(Message("user", "hello"),), utterance=1, tools=(WEATHER,))], every=3)
