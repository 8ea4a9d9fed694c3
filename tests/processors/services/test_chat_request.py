"""Requests for a chat completion."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.conformance.servers.openai_server import request_fault
from voiceflow.messages import AudioClip, Image, Message, ToolCall, ToolSpec
from voiceflow.processors.services.chat_request import ChatOptions, chat_body

TOOL = ToolSpec("weather", "The weather.", '{"type":"object","properties":{"city":{"type":"string"}}}')
HISTORY = (
    Message("system", "Be kind."),
    Message("system", "Earlier: they said hello."),
    Message("user", "what is the weather"),
    Message("assistant", "One moment.", calls=(ToolCall("a", "weather", '{"city": "Paris"}'), ToolCall("b", "weather"))),
    Message("tool", "sunny", call_id="a"),
    Message("tool", "still running", call_id="b", pending=True),
    Message("assistant", "It is sun", interrupted=True),
    Message("user", "thanks"),
)


def test_a_conversation_with_calls() -> None:
    """One system message in front; each call is answered right behind it; the strict server takes it."""
    body = chat_body(ChatOptions("m", max_tokens=50, temperature=0.0), HISTORY, [TOOL])
    assert request_fault(body) == ""
    assert body["messages"][0] == {"role": "system", "content": "Be kind.\nEarlier: they said hello."}
    assert body["messages"][2] == {
        "role": "assistant",
        "content": "One moment.",
        "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Paris"}'}},
            {"id": "b", "type": "function", "function": {"name": "weather", "arguments": "{}"}},
        ],
    }
    assert body["messages"][3] == {"role": "tool", "tool_call_id": "a", "content": "sunny"}
    assert body["messages"][5] == {"role": "assistant", "content": "It is sun"}
    assert body["tools"] == [
        {"type": "function", "function": {"name": "weather", "description": "The weather.", "parameters": json.loads(TOOL.parameters)}}
    ]
    assert (body["stream"], body["stream_options"], body["max_tokens"], body["temperature"]) == (True, {"include_usage": True}, 50, 0.0)


def test_what_a_server_may_not_know_is_not_sent() -> None:
    """Without options: model, messages, stream and the usage, which can be left out as well."""
    assert set(chat_body(ChatOptions("m"), [Message("user", "hi")], ())) == {"model", "messages", "stream", "stream_options"}
    assert set(chat_body(ChatOptions("m", usage=False, tool_choice="required"), [Message("user", "hi")], ())) == {
        "model",
        "messages",
        "stream",
    }


def test_options_of_tools_and_more_fields() -> None:
    """Only where there are tools; ``extra`` goes in as it is."""
    options = ChatOptions(
        "m", tool_choice="required", parallel_calls=False, extra={"seed": 3}, max_tokens=9, max_tokens_name="max_completion_tokens"
    )
    body = chat_body(options, [Message("user", "hi")], [TOOL])
    assert request_fault(body) == ""
    assert (body["tool_choice"], body["parallel_tool_calls"], body["seed"], body["max_completion_tokens"]) == ("required", False, 3, 9)


MEDIA: dict[str, tuple[Message, bool, Any]] = {
    "an image": (
        Message("user", "what is this", media=(Image("https://example.com/a.png", "a dog"),)), True,
        [{"type": "text", "text": "what is this"}, {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}],
    ),
    "an image alone": (Message("user", media=(Image("data:image/png;base64,AA=="),)), True, [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}]),
    "an image for the blind": (Message("user", "what is this", media=(Image("https://example.com/a.png", "a dog"),)), False, "what is this\n[an image: a dog]"),
    "a sound": (Message("user", media=(AudioClip("data:audio/wav;base64,UklG", 1.0),)), True, [{"type": "input_audio", "input_audio": {"data": "UklG", "format": "wav"}}]),
    "a sound elsewhere": (Message("user", "listen", media=(AudioClip("https://example.com/a.wav", 3.2),)), True, "listen\n[a sound of 3 s]"),
}  # fmt: skip


@pytest.mark.parametrize("name", MEDIA)
def test_media(name: str) -> None:
    """Images and sounds as parts of a message, or as words where the server could not use them."""
    message, sees, content = MEDIA[name]
    body = chat_body(ChatOptions("m", sees=sees), [message], ())
    assert body["messages"] == [{"role": "user", "content": content}]
    assert request_fault(body) == ""


def test_calls_held_to_a_schema() -> None:
    """No tools are sent, but a schema and the instructions; the history is in that form, and valid."""
    examples = (Message("user", "weather in Oslo"), Message("assistant", calls=(ToolCall("x", "weather", '{"city": "Oslo"}'),)))
    options = ChatOptions("m", tool_calls="constrained", tool_choice="required", examples=examples)
    body = chat_body(options, HISTORY, [TOOL])
    assert request_fault(body) == ""
    assert "tools" not in body
    assert body["response_format"]["json_schema"]["schema"]["anyOf"][1]["properties"]["call"] == {"const": "weather"}
    assert body["messages"][2] == {"role": "assistant", "content": '{"call": "weather", "arguments": {"city": "Oslo"}}'}
    assert "response_format" not in chat_body(options, [Message("user", "hi")], ())


@pytest.mark.parametrize(
    "options",
    [{"model": ""}, {"model": "m", "max_tokens": 0}, {"model": "m", "tool_calls": "maybe"}, {"model": "m", "extra": {"stream": False}}],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any]) -> None:
    """With the name of the field."""
    with pytest.raises(ValueError, match=f"{list(options)[-1]}"):
        ChatOptions(**options)


def test_instructions_of_its_own_stand_in_only_where_there_are_none() -> None:
    """``system`` is for a conversation without."""
    options = ChatOptions("m", system="Be brief.")
    assert chat_body(options, [Message("user", "hi")], ())["messages"][0] == {"role": "system", "content": "Be brief."}
    assert chat_body(options, HISTORY, ())["messages"][0]["content"].startswith("Be kind.")
