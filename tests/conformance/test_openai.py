"""OpenAI's chat completions: the vendor's own client against our server, and our node against the same one."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest

pytest.importorskip("aiohttp", reason="pip install aiohttp")

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conformance.openai_call import LLMCall, Sink, options
from tests.conformance.servers.openai_server import KEY, Cut, OpenAIServer, Pause, Reply, Silence, call, calls, chunk, usage, words
from tests.conformance.servers.sockets import SocketLoop, over_sockets
from voiceflow import ContextFrame, LLMTextFrame, Message, Pipeline, Processor, Session, SessionOptions, ToolCall
from voiceflow.messages import ToolSpec
from voiceflow.processors.services.chat_request import ChatOptions
from voiceflow.processors.services.http import Deadlines
from voiceflow.processors.services.openai_llm import OpenAILLM, OpenAIOptions
from voiceflow.processors.services.retry import RetryOptions
from voiceflow.testing import check_processor

WEATHER = ToolSpec("weather", "The weather.", '{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}')
TEXT = "Good day to you, this is a reply of some words. Grüße! 👋"
PARIS = calls(call(0, id="call_1", name="weather", arguments=""), call(0, arguments='{"ci'), call(0, arguments='ty":"Paris"}'))

# ------------------------------------------------------------------------------------------- the vendor's client


def official(server: OpenAIServer, key: str = KEY) -> Any:
    openai = pytest.importorskip("openai", reason="pip install openai")
    return openai.AsyncOpenAI(api_key=key, base_url=server.url, max_retries=0)


@over_sockets
async def test_the_official_client_reads_a_stream() -> None:
    """Text in deltas, the finish reason, and the usage in a chunk of its own."""
    async with OpenAIServer([words(TEXT)]) as server, official(server) as client:
        stream = await client.chat.completions.create(
            model="test", messages=[{"role": "user", "content": "hello"}], stream=True, stream_options={"include_usage": True}
        )
        chunks = [part async for part in stream]
    assert "".join(part.choices[0].delta.content or "" for part in chunks if part.choices) == TEXT
    assert [part.choices[0].finish_reason for part in chunks if part.choices][-1] == "stop"
    assert [(part.usage.prompt_tokens, part.usage.completion_tokens) for part in chunks if part.usage] == [(11, 7)]


@over_sockets
async def test_the_official_client_reads_calls_of_tools_and_sends_their_results() -> None:
    """Its own accumulator gives the call that our decoder gives; the strict server takes the history it sends."""
    async with OpenAIServer([PARIS, words("It is sunny.")]) as server, official(server) as client:
        tools = [{"type": "function", "function": {"name": "weather", "parameters": json.loads(WEATHER.parameters)}}]
        question = {"role": "user", "content": "weather in Paris?"}
        async with client.chat.completions.stream(model="test", messages=[question], tools=tools) as stream:
            message = (await stream.get_final_completion()).choices[0].message
        made = message.tool_calls[0]
        assert (made.id, made.function.name, json.loads(made.function.arguments)) == ("call_1", "weather", {"city": "Paris"})
        history = [
            question,
            message.model_dump(include={"role", "content", "tool_calls"}),
            {"role": "tool", "tool_call_id": "call_1", "content": "sunny"},
        ]
        for sent in history[1]["tool_calls"]:
            sent["function"].pop("parsed_arguments", None)
        async with client.chat.completions.stream(model="test", messages=history, tools=tools) as stream:
            assert (await stream.get_final_completion()).choices[0].message.content == "It is sunny."


@over_sockets
async def test_the_official_client_meets_the_same_refusals() -> None:
    """A wrong key is 401, a history that is not valid 400, and a limit 429, each as its own exception."""
    openai = pytest.importorskip("openai", reason="pip install openai")
    limit = Reply(
        status=429,
        headers={"retry-after": "2"},
        body={"error": {"message": "slow down", "type": "requests", "code": "rate_limit_exceeded"}},
    )
    async with OpenAIServer([limit]) as server:
        hello = {"role": "user", "content": "hello"}
        orphan = {"role": "tool", "tool_call_id": "x", "content": "?"}
        for key, messages, raised in [
            ("sk-wrong", [hello], openai.AuthenticationError), (KEY, [hello, orphan], openai.BadRequestError), (KEY, [hello], openai.RateLimitError),
        ]:  # fmt: skip
            async with official(server, key) as client:
                with pytest.raises(raised):
                    await client.chat.completions.create(model="test", messages=messages, stream=True)


# --------------------------------------------------------------------------------------------------- our node


@over_sockets
async def test_a_reply_is_streamed() -> None:
    """The first text is there before the server has sent the last; frames come between start and one end, the usage goes up."""
    async with OpenAIServer([words(TEXT, each_s=0.1)]) as server, LLMCall(OpenAILLM(options(server))) as llm:
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
    assert server.asked[0].headers["Authorization"] == f"Bearer {KEY}"


@over_sockets
async def test_a_call_of_a_tool_and_its_result() -> None:
    """The call comes once and whole; the strict server takes the history with its result."""
    async with OpenAIServer([PARIS, words("It is sunny.")]) as server, LLMCall(OpenAILLM(options(server)), (WEATHER,)) as llm:
        assert await llm.ask("weather in Paris?") == ""
        assert llm.calls() == [("weather", '{"city":"Paris"}')]
        made = ToolCall("call_1", "weather", '{"city":"Paris"}')
        history = [Message("user", "weather in Paris?"), Message("assistant", calls=(made,)), Message("tool", "sunny", call_id="call_1")]
        assert await llm.ask(*history) == "It is sunny."
        assert llm.reports.errors == []


@given(st.integers(1, 60))
@settings(max_examples=20, deadline=None)
def test_odd_chunk_sizes(size: int) -> None:
    """However many bytes the network hands over at a time: the same text, the same call."""

    @over_sockets
    async def scene() -> None:
        steps = [
            chunk({"content": TEXT}),
            chunk(call(0, id="a", name="weather", arguments='{"city":"Köln"}')),
            chunk(finish="tool_calls"),
            usage(),
        ]
        async with OpenAIServer([Reply(steps, chunk_bytes=size)]) as server, LLMCall(OpenAILLM(options(server)), (WEATHER,)) as llm:
            assert await llm.ask("hello") == TEXT
            assert llm.calls() == [("weather", '{"city":"Köln"}')]
            assert llm.reports.errors == []

    scene()


@pytest.mark.parametrize("after_s", [0.0, 0.05, 0.25, 0.6])
@over_sockets
async def test_cancel_in_mid_stream_tells_the_server_and_leaves_the_next_turn_clean(after_s: float) -> None:
    """The server learns of it at that moment, nothing of the old reply comes any more, and the next is whole."""
    slow = Reply([Pause(0.2), *words("one two three four five six seven", each_s=0.2).steps])
    async with OpenAIServer([slow, words(TEXT)]) as server, LLMCall(OpenAILLM(options(server))) as llm:
        first = llm.begin("hello")
        await asyncio.sleep(after_s)
        at, before = llm.session.time(), len(llm.of(first))
        llm.session.interrupt("the caller speaks")
        if not server.asked:
            server._reply = lambda body: words(TEXT)  # it was never asked for the first
        assert await llm.ask("and now") == TEXT
        await asyncio.sleep(2.0)
        assert len(llm.of(first)) == before
        assert llm.ended(first) == 0
        for asked in server.asked[:-1]:
            assert asked.left_at is not None
            assert asked.left_at - at < 0.01
        assert llm.reports.errors == []


@over_sockets
async def test_the_connection_is_there_before_the_first_turn() -> None:
    """It is made when the session starts, without a request for a reply and without the key; the first turn uses it."""
    async with OpenAIServer([words("Yes.")]) as server, LLMCall(OpenAILLM(options(server))) as llm:
        await asyncio.sleep(1.0)
        assert (server.open_connections, server.asked) == (1, [])
        assert await llm.ask("hello") == "Yes."
        assert server.open_connections == 1


@over_sockets
async def test_a_hundred_turns_on_one_connection() -> None:
    """Each reuses the connection of the one before; nothing is left behind (which the test's clock sees to)."""
    async with OpenAIServer(lambda body: words(f"Reply to {body['messages'][-1]['content']}.")) as server:
        async with LLMCall(OpenAILLM(options(server))) as llm:
            await asyncio.sleep(1.0)  # it is made when the session starts
            for number in range(100):
                assert await llm.ask(f"turn {number}") == f"Reply to turn {number}."
            assert llm.reports.errors == []
        assert server.connections == 1


@over_sockets
async def test_two_nodes_of_a_session_share_the_connections_to_a_host() -> None:
    """A second one asks over the first one's connection; the pool lives until the last is gone, and no longer."""
    async with OpenAIServer(lambda body: words("Yes.")) as server:
        one, two = OpenAILLM(options(server)), OpenAILLM(options(server))
        async with Session(Pipeline([one, two]) >> Sink(), inputs=[ContextFrame]):
            assert one._client is not None
            assert two._client is not None
            assert one._client._http is two._client._http
        assert one._client is None


@over_sockets
async def test_a_connection_that_was_closed_while_nobody_spoke_is_made_anew() -> None:
    """The caller thought for long; they hear nothing of it."""
    closing = words("One.")
    async with OpenAIServer([closing, words("Two.")]) as server, LLMCall(OpenAILLM(options(server))) as llm:
        assert await llm.ask("one") == "One."
        await asyncio.sleep(4000)
        assert await llm.ask("two") == "Two."
        assert llm.reports.errors == []


# ------------------------------------------------------------------------------------------------ what goes wrong

SOON = RetryOptions(tries=3, patience_s=10)
TEMPORARY = {"error": {"message": f"an error that quotes {KEY}", "type": "server_error", "code": None}}


@pytest.mark.parametrize(
    "fault",
    [
        Reply(status=500, body=TEMPORARY),
        Reply(status=503),
        Reply([Cut()]),
        Reply([{"error": {"type": "overloaded"}}]),
        Reply([], done=False),
    ],
)
@over_sockets
async def test_it_is_asked_again_while_nothing_has_come(fault: Reply) -> None:
    """Twice a fault, then an answer: the caller gets it, once."""
    async with OpenAIServer([fault, fault, words("At last.")]) as server, LLMCall(OpenAILLM(options(server, retries=SOON))) as llm:
        assert await llm.ask("hello") == "At last."
        assert [len(server.asked), llm.ended(), llm.reports.errors] == [3, 1, []]


@pytest.mark.parametrize("fault", [Cut(), {"error": {"message": KEY, "type": "server_error"}}, Silence()])
@over_sockets
async def test_it_is_not_asked_again_once_something_has_come(fault: Any) -> None:
    """What was said stands, the utterance is closed, an error tells of it, and the next turn is clean."""
    broken = Reply(
        [
            chunk({"content": "I am "}),
            chunk({"content": "afraid"}),
            chunk(call(0, id="a", name="weather", arguments="{}")),
            Pause(0.1),
            fault,
        ]
    )
    async with OpenAIServer([broken, words("Fine.")]) as server, LLMCall(OpenAILLM(options(server, retries=SOON)), (WEATHER,)) as llm:
        assert await llm.ask("hello") == "I am afraid"
        await asyncio.sleep(0.1)
        assert [len(server.asked), llm.ended(), llm.calls(), len(llm.reports.errors)] == [1, 1, [], 1]
        assert KEY not in llm.reports.errors[0][1]
        assert await llm.ask("hello?") == "Fine."


@over_sockets
async def test_nobody_listens_there() -> None:
    """The address and a question that helps; after the last try."""
    async with OpenAIServer([]) as server:
        url = server.url
    async with LLMCall(OpenAILLM(options(url, retries=SOON))) as llm:
        await llm.ask("hello")
        await asyncio.sleep(0.1)
        ((_, error),) = llm.reports.errors
    assert url.removesuffix("/v1") in error
    assert "is it running" in error


@over_sockets
async def test_a_server_that_does_not_stream_is_understood() -> None:
    """It answers with one JSON object."""
    body = {
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hello.\nYou."}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 2},
    }
    async with OpenAIServer([Reply(body=body)]) as server, LLMCall(OpenAILLM(options(server))) as llm:
        assert await llm.ask("hello") == "Hello.\nYou."
        await asyncio.sleep(0)
        assert [u.prompt_tokens for u in llm.reports.usage] == [3]


@over_sockets
async def test_a_stream_that_stays_open_after_its_end_holds_nobody_up() -> None:
    """Without [DONE] and the closing of the stream: the reply ends half a second after the model's last word, without an error."""
    open_end = Reply([chunk({"content": "Yes."}), chunk(finish="stop"), Silence()])
    async with OpenAIServer([open_end, words("Again.")]) as server, LLMCall(OpenAILLM(options(server))) as llm:
        assert await llm.ask("hello") == "Yes."
        assert llm.session.time() < 0.6
        assert await llm.ask("hello") == "Again."
        assert llm.reports.errors == []


@over_sockets
async def test_a_connection_that_is_merely_kept_alive_is_given_up() -> None:
    """Comments, empty deltas and the role are no tokens: first and idle deadlines hold all the same, on the second of the limit."""
    alive = [step for _ in range(60) for step in (b": keep-alive\n\n", chunk({"role": "assistant", "content": ""}), Pause(0.5))]
    first, idle = Reply(alive), Reply([chunk({"content": "I am "}), *alive])
    deadlines = Deadlines(first_s=4.0, idle_s=2.0)
    async with OpenAIServer([first, idle]) as server, LLMCall(OpenAILLM(options(server, deadlines=deadlines))) as llm:
        assert await llm.ask("hello") == ""
        began = llm.session.time()
        assert began == pytest.approx(4.0, abs=0.01)
        assert await llm.ask("hello") == "I am "
        assert llm.session.time() - began == pytest.approx(2.0, abs=0.01)
        await asyncio.sleep(1.0)
        assert [error.split(": ")[-1] for _, error in llm.reports.errors] == [
            "no token came within 4 s; the request was given up", "no token came for 2 s; the request was given up",
        ]  # fmt: skip
        assert all(asked.left_at is not None for asked in server.asked)


@over_sockets
async def test_a_slow_listener_is_no_slow_server() -> None:
    """What the nodes behind take their time over does not count against the server."""

    class Slow(Processor):
        async def process(self, frame: LLMTextFrame) -> AsyncIterator[LLMTextFrame]:
            await asyncio.sleep(5.0)
            yield frame

    async with OpenAIServer([words("one two three four five six seven eight")]) as server:
        node, sink = OpenAILLM(options(server)), Sink()
        session = Session(Pipeline(node) >> Slow() >> sink, inputs=[ContextFrame], options=SessionOptions(inbox_frames=1))
        async with session:
            session.send_nowait(ContextFrame(messages=(Message("user", "count"),), utterance=1))
            await asyncio.sleep(60)
        assert "".join(frame.text for frame in sink.frames if isinstance(frame, LLMTextFrame)) == "one two three four five six seven eight"


# ----------------------------------------------------------------------------------------------------- the key


@over_sockets
async def test_the_key_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the variable that is named, blanks around it left out; a key of OpenAI is sent to no other host unasked."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-for-openai-only")
    monkeypatch.setenv("MY_KEY", f" {KEY}\n")
    async with (
        OpenAIServer(lambda body: words("Yes.")) as server,
        LLMCall(OpenAILLM(OpenAIOptions(ChatOptions("m"), base_url=server.url, api_key_variable="MY_KEY"))) as llm,
    ):
        assert await llm.ask("hello") == "Yes."
    async with OpenAIServer(lambda body: words("Yes."), key=None) as server:
        async with LLMCall(OpenAILLM(OpenAIOptions(ChatOptions("m"), base_url=server.url))) as llm:
            assert await llm.ask("hello") == "Yes."
        assert "Authorization" not in server.asked[0].headers


@pytest.mark.parametrize(
    ("key", "says"),
    [(None, "OPENAI_API_KEY"), ("", "OPENAI_API_KEY"), ("sk-abc def", "blanks"), ("sk-abc\x00def", "blanks"), ("sk-äöü", "blanks")],
)
@over_sockets
async def test_a_missing_or_broken_key_ends_the_start_with_one_line(key: str | None, says: str) -> None:
    """It says what to set, and does not show the key."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("OPENAI_API_KEY", raising=False)
        session = LLMCall(OpenAILLM(OpenAIOptions(ChatOptions("m"), api_key=key))).session
        with pytest.raises(ExceptionGroup) as raised:
            await session.run()
    text = "".join(str(error) for error in raised.value.exceptions)
    assert says in text
    assert not key or key not in text


@pytest.mark.parametrize("status", [400, 401, 403, 404, 429, 500])
@over_sockets
async def test_the_key_is_in_no_error_no_log_and_no_repr(status: int, caplog: pytest.LogCaptureFixture) -> None:
    """Although the server's own words quote it."""
    body = {"error": {"message": f"Incorrect API key: {KEY}", "type": KEY, "code": f"bad {KEY}"}}
    with caplog.at_level(logging.DEBUG):
        async with OpenAIServer(lambda _: Reply(status=status, body=body)) as server, LLMCall(OpenAILLM(options(server))) as llm:
            await llm.ask("hello")
            await asyncio.sleep(0.1)
            ((_, error),) = llm.reports.errors
            shown = [error, repr(llm.node), repr(llm.node.options), str(llm.session), repr(llm.node._client)]
    assert f"answered {status}" in error
    assert not [text for text in [*shown, caplog.text] if KEY in text]


@pytest.mark.parametrize(
    "url", ["", "api.example.com/v1", "ftp://example.com", "https://user:secret@example.com/v1", "https://example.com/v1?key=secret"]
)
def test_an_address_that_is_none_is_refused(url: str) -> None:
    """When the options are made; a secret in it is not shown."""
    with pytest.raises(ValueError, match="base_url") as raised:
        OpenAIOptions(ChatOptions("m"), base_url=url)
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize("name", ["connect_s", "first_s", "idle_s"])
def test_a_deadline_is_more_than_nothing(name: str) -> None:
    """It is named."""
    with pytest.raises(ValueError, match=name):
        Deadlines(**{name: 0.0})


# ------------------------------------------------------------------------------------------------------- the kit


class Served(OpenAILLM):
    """Brings its server along, in the loop that the kit makes for each run."""

    def __init__(self) -> None:
        super().__init__(OpenAIOptions(ChatOptions("m"), base_url="http://127.0.0.1:1/v1", api_key=KEY))
        self.server = OpenAIServer(
            lambda body: calls({"content": "One "}, {"content": "moment."}, call(0, id="a", name="weather", arguments="{}"))
        )

    async def start(self) -> None:
        await self.server.__aenter__()
        self._url = self.server.url
        await super().start()

    async def stop(self) -> None:
        await super().stop()
        await self.server.__aexit__()


def test_the_node_conforms(monkeypatch: pytest.MonkeyPatch) -> None:
    """The conformance kit: strangers pass, interrupts leave it as good as new, neighbours do it no harm, nothing is left behind."""
    monkeypatch.setattr("voiceflow.testing.conformance.VirtualClockLoop", SocketLoop)
    check_processor(Served, [ContextFrame(messages=(Message("user", "hello"),), utterance=1, tools=(WEATHER,))], every=3)
