"""The stream of a chat completion, bytes to events."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conformance.servers.openai_server import call, chunk, usage
from voiceflow.messages import ToolCall
from voiceflow.processors.services.chat_stream import ChatStream
from voiceflow.processors.services.reply import Reasoning, ReplyCall, ReplyEnd, ReplyEvent, ReplyText, ReplyUsage
from voiceflow.processors.services.retry import ServiceError

DONE = b"data: [DONE]\n\n"
ROLE = chunk({"role": "assistant", "content": ""})
STOP = chunk(finish="stop")


def encoded(*chunks: dict[str, Any] | bytes) -> bytes:
    return b"".join(c if isinstance(c, bytes) else f"data: {json.dumps(c, ensure_ascii=False)}\n\n".encode() for c in chunks)


def read(
    *chunks: dict[str, Any] | bytes, sizes: list[int] | None = None, known: tuple[str, ...] = ("weather",), written: bool = False
) -> list[ReplyEvent]:
    fresh = (f"fresh{number}" for number in itertools.count(1))
    stream = ChatStream(known, lambda: next(fresh), written=written)
    whole = encoded(*chunks)
    places = [0, *sorted(min(size, len(whole)) for size in sizes or []), len(whole)]
    return [event for a, b in itertools.pairwise(places) for event in stream.feed(whole[a:b])] + stream.close()


def text_of(events: list[ReplyEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, ReplyText))


def test_text_comes_as_it_is_sent() -> None:
    """A piece for each delta that has any, then the usage and the end."""
    stream = ChatStream((), lambda: "x")
    assert stream.feed(encoded(ROLE, chunk({"content": "Good "}))) == [ReplyText("Good ")]
    assert stream.feed(encoded(chunk({"content": "day."}))) == [ReplyText("day.")]
    assert stream.feed(encoded(STOP, usage(5, 2), DONE)) == []
    assert stream.close() == [ReplyUsage(5, 2), ReplyEnd("stop")]


FULL = [
    {"choices": [], "prompt_filter_results": []}, ROLE, chunk({"reasoning_content": "Hm. "}), chunk({"content": None}), chunk({}),
    chunk({"content": "Grüße, "}), chunk(call(0, id="a", name="weather", arguments='{"ci')), b": keep-alive\r\n\r\n",
    chunk(call(0, arguments='ty":"Köln"}')), chunk({"content": "👋."}), chunk(finish="tool_calls"), usage(), DONE,
]  # fmt: skip
SAID = ["Grüße, ", "👋."]


@given(st.lists(st.integers(0, len(encoded(*FULL))), max_size=20))
def test_where_the_bytes_are_cut_makes_no_difference(sizes: list[int]) -> None:
    """Also within a letter or a line's end."""
    events = read(*FULL, sizes=sizes)
    assert [event.text for event in events if isinstance(event, ReplyText)] == SAID
    assert events[-3:] == [ReplyCall(ToolCall("a", "weather", '{"city":"Köln"}')), ReplyUsage(11, 7), ReplyEnd("tool_calls")]
    assert [event for event in events if isinstance(event, Reasoning)] == [Reasoning("Hm. ")]


def bare(delta: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"choices": [{"delta": delta, **more}]}


ODD: dict[str, tuple[list[dict[str, Any] | bytes], str, str]] = {
    "no role, no ids, no created": ([bare({"content": "Yes."}, finish_reason="stop"), DONE], "Yes.", "stop"),
    "no [DONE]": ([chunk({"content": "Yes."}), STOP], "Yes.", "stop"),
    "no finish reason": ([chunk({"content": "Yes."}), DONE], "Yes.", ""),
    "no blank line at the end": ([chunk({"content": "Yes."}), STOP, b"data: [DONE]"], "Yes.", "stop"),
    "no blank lines at all": ([encoded(chunk({"content": "Yes."}), STOP, DONE).replace(b"\n\n", b"\n")], "Yes.", "stop"),
    "no blank after the colon": ([encoded(chunk({"content": "Yes."}), STOP, DONE).replace(b"data: ", b"data:")], "Yes.", "stop"),
    "carriage returns": ([encoded(chunk({"content": "Yes."}), STOP, DONE).replace(b"\n", b"\r\n")], "Yes.", "stop"),
    "after the end": ([chunk({"content": "Yes."}), STOP, DONE, chunk({"content": "No."})], "Yes.", "stop"),
    "a broken chunk": ([chunk({"content": "Yes"}), b'data: {"choices": [{"del\n\n', chunk({"content": "."}), STOP, DONE], "Yes.", "stop"),
    "chunks of other shapes": ([b'data: [1]\n\ndata: "x"\n\ndata: 7\n\n', {"choices": None}, {"choices": [None, 3]}, {"choices": {}}, bare({"content": 5}), {"choices": [{"delta": "?"}]}, chunk({"content": "Yes."}), STOP, DONE], "Yes.", "stop"),
    "several answers": ([{"choices": [{"index": 1, "delta": {"content": "No."}}, {"index": 0, "delta": {"content": "Yes."}, "finish_reason": "stop"}]}, DONE], "Yes.", "stop"),
    "a message, not deltas": ([{"choices": [{"index": 0, "message": {"role": "assistant", "content": "Yes."}, "finish_reason": "stop"}]}], "Yes.", "stop"),
    "content in parts": ([bare({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}, {"type": "text", "text": "Yes."}]}), STOP], "Yes.", "stop"),
    "a refusal": ([chunk({"refusal": "I must not."}), STOP, DONE], "I must not.", "stop"),
    "an event with a name": ([b"event: message\n" + encoded(chunk({"content": "Yes."})), STOP, DONE], "Yes.", "stop"),
    "an unknown reason": ([chunk({"content": "Yes."}), chunk(finish="eos"), DONE], "Yes.", "eos"),
}  # fmt: skip


@pytest.mark.parametrize("shape", ODD)
def test_odd_but_understandable(shape: str) -> None:
    """What servers leave out, add or write otherwise does not change what was said."""
    chunks, text, reason = ODD[shape]
    events = read(*chunks)
    assert text_of(events) == text
    assert events[-1] == ReplyEnd(reason)
    assert sum(isinstance(event, ReplyEnd) for event in events) == 1


@pytest.mark.parametrize("key", ["reasoning_content", "reasoning"])
def test_reasoning_is_no_text(key: str) -> None:
    """Under either name; and under both, once."""
    events = read(chunk({key: "Let me think. "}), chunk({key: "Yes.", "content": ""}), chunk({"content": "Hello."}), STOP, DONE)
    assert events == [Reasoning("Let me think. "), Reasoning("Yes."), ReplyText("Hello."), ReplyEnd("stop")]
    assert read(chunk({"reasoning": "a", "reasoning_content": "a"}), STOP)[:-1] == [Reasoning("a")]


@pytest.mark.parametrize(
    "chunks",
    [
        [usage(1, 1), chunk({"content": "a"}), chunk({}, usage={"prompt_tokens": 11, "completion_tokens": 7}), STOP, DONE],
        [chunk({"content": "a"}, usage={"prompt_tokens": 11, "completion_tokens": 1}), chunk({}, finish="stop", usage=None), usage(), DONE],
        [chunk({"content": "a"}), chunk({}, finish="stop", x_groq={"usage": {"prompt_tokens": 11, "completion_tokens": 7}}), DONE],
        [chunk({"content": "a"}), STOP, usage(), usage(), DONE],
    ],
)
def test_usage_is_told_once(chunks: list[dict[str, Any] | bytes]) -> None:
    """Wherever it stands and however often, the last word counts."""
    assert [event for event in read(*chunks) if isinstance(event, ReplyUsage)] == [ReplyUsage(11, 7)]


@pytest.mark.parametrize("usage", [5, [], {"prompt_tokens": "many"}, {"prompt_tokens": None, "completion_tokens": -1}])
def test_usage_that_makes_no_sense_is_nothing(usage: object) -> None:
    """It breaks no reply."""
    found = read(chunk({"content": "a"}, usage=usage), STOP, DONE)
    assert [event for event in found if isinstance(event, ReplyUsage)] in ([], [ReplyUsage(0, 0)])
    assert text_of(found) == "a"


def test_a_call_in_the_old_form() -> None:
    """``function_call``, of before there were several in a reply."""
    deltas = [{"function_call": {"name": "weather", "arguments": ""}}, {"function_call": {"arguments": '{"city":"Paris"}'}}]
    events = read(*(chunk(delta) for delta in deltas), chunk(finish="function_call"), DONE)
    assert [event for event in events if isinstance(event, ReplyCall)] == [ReplyCall(ToolCall("fresh1", "weather", '{"city":"Paris"}'))]


def test_a_call_written_as_text() -> None:
    """By a server that does not know it for one: it is called and not spoken."""
    text = '{"name": "weather", "arguments": {"city": "Paris"}}'
    events = read(*(chunk({"content": letter}) for letter in text), STOP, DONE)
    assert events == [ReplyCall(ToolCall("fresh1", "weather", '{"city": "Paris"}')), ReplyEnd("stop")]
    assert text_of(read(*(chunk({"content": letter}) for letter in text), STOP, DONE, known=())) == text


def test_a_reply_held_to_a_schema() -> None:
    """Words are streamed out of it, calls come at the end."""
    assert read(chunk({"content": '{"say": "Hel'}), chunk({"content": 'lo."}'}), STOP, DONE, written=True) == [ReplyText("Hel"), ReplyText("lo."), ReplyEnd("stop")]  # fmt: skip
    assert read(chunk({"content": '{"call": "weather", "arguments": {}}'}), STOP, written=True)[0] == ReplyCall(
        ToolCall("fresh1", "weather")
    )


@pytest.mark.parametrize(
    "chunks", [[chunk({"content": "Half a sen"}), chunk(call(0, id="a", name="weather", arguments='{"city":"Paris"}'))], [ROLE]]
)
def test_a_stream_that_is_cut_off_runs_no_call(chunks: list[dict[str, Any] | bytes]) -> None:
    """What was said is told, and that it is not all: neither a finish reason nor [DONE] has come."""
    events = read(*chunks)
    assert not any(isinstance(event, ReplyCall) for event in events)
    end = events[-1]
    assert isinstance(end, ReplyEnd)
    assert "broke off" in str(end.error)


def test_arguments_cut_by_the_token_limit_are_handed_on() -> None:
    """The tool's check then tells the model, which can try again."""
    events = read(chunk(call(0, id="a", name="weather", arguments='{"city":"Pa')), chunk(finish="length"), DONE)
    assert events[0] == ReplyCall(ToolCall("a", "weather", '{"city":"Pa'))


@pytest.mark.parametrize(("reason", "says"), [("length", "max_tokens"), ("content_filter", "filter")])
def test_a_reply_of_nothing_says_why(reason: str, says: str) -> None:
    """Dead air has a reason; a reply that has words, or simply nothing to say, is none."""
    end = read(ROLE, chunk(finish=reason), DONE)[-1]
    assert isinstance(end, ReplyEnd)
    assert says in str(end.error)
    assert read(chunk({"content": "a"}), chunk(finish=reason), DONE)[-1] == ReplyEnd(reason)
    assert read(ROLE, STOP, DONE)[-1] == ReplyEnd("stop")


@pytest.mark.parametrize(
    "line",
    [
        {"error": {"message": "key sk-secret-1 is wrong", "type": "server_error", "code": None}},
        {"error": {"message": "key sk-secret-1 is wrong", "code": 500, "type": "server_error"}},
        {"error": "key sk-secret-1 is wrong"},
        b'error: {"code": 500, "message": "key sk-secret-1 is wrong", "type": "server_error"}\n\n',
        b"event: error\ndata: key sk-secret-1 is wrong\n\n",
    ],
)
def test_an_error_in_the_stream_is_raised_without_its_words(line: dict[str, Any] | bytes) -> None:
    """In the vendor's form, or in those of other servers."""
    with pytest.raises(ServiceError, match="in the middle of the reply") as raised:
        read(chunk({"content": "a"}), line)
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize("data", [b"<html>not an API</html>", b"", b"data: [DONE]\n\n", b'data: {"choi\n\n'])
def test_what_is_no_chat_completion_is_told(data: bytes) -> None:
    """Another kind of server stands at that address."""
    end = read(data)[-1]
    assert isinstance(end, ReplyEnd)
    assert end.error is not None


JSON = st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=5), lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["choices", "delta", "content", "tool_calls", "function", "index", "usage", "finish_reason", "message", "type", "text"]), inner, max_size=4), max_leaves=12)  # fmt: skip


@given(st.lists(JSON, max_size=5), st.booleans())
def test_any_json_can_come(values: list[Any], written: bool) -> None:
    """A server's nonsense raises nothing but our own error."""
    read(*(f"data: {json.dumps(value)}\n\n".encode() for value in values), written=written)
