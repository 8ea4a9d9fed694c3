"""Deepgram's messages: what is read of them, what is passed over, and what its errors mean."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voiceflow.frames import Word
from voiceflow.processors.services.deepgram_options import AuraOptions, DeepgramOptions, FluxOptions, LineOptions
from voiceflow.processors.services.deepgram_wire import (
    Cleared,
    Configured,
    Flushed,
    Metadata,
    Results,
    SpeechBegan,
    TurnInfo,
    UtteranceOver,
    Warned,
    closing_failure,
    configure,
    opening_failure,
    read_message,
    speak,
)
from voiceflow.processors.services.retry import ServiceError, Verdict

SECRET = "sk_0123456789"
RESULTS = {
    "type": "Results", "channel_index": [0, 1], "start": 1.5, "duration": 0.5, "is_final": True, "speech_final": False, "from_finalize": True,
    "channel": {"alternatives": [{"transcript": "Hi there", "confidence": 0.75, "words": [
        {"word": "hi", "start": 1.5, "end": 1.7, "confidence": 0.7, "punctuated_word": "Hi"},
        {"word": "there", "start": 1.75, "end": 2.0, "confidence": 0.8}]}]},
}  # fmt: skip


def test_results_are_read() -> None:
    """Text as it is punctuated, times, and each flag."""
    words = (Word("Hi", 1.5, 1.7), Word("there", 1.75, 2.0))
    assert read_message(json.dumps(RESULTS)) == Results(1.5, 0.5, "Hi there", 0.75, words, True, False, True)
    assert read_message(json.dumps({**RESULTS, "channel_index": [1, 2]})) is None
    empty = {**RESULTS, "channel": {"alternatives": []}, "is_final": None}
    assert read_message(json.dumps(empty)) == Results(1.5, 0.5, "", None, (), False, False, True)


@pytest.mark.parametrize(
    ("message", "read"),
    [
        ({"type": "SpeechStarted", "channel": [0], "timestamp": 2.5}, SpeechBegan(2.5)),
        ({"type": "UtteranceEnd", "channel": [0], "last_word_end": 3.1}, UtteranceOver(3.1)),
        ({"type": "Metadata", "request_id": "r", "model_name": "aura"}, Metadata("r", "aura")),
        ({"type": "Connected", "request_id": "r", "sequence_id": 0}, Metadata("r")),
        ({"type": "Flushed", "sequence_id": 1}, Flushed()),
        ({"type": "Cleared", "sequence_id": 1}, Cleared()),
        ({"type": "Warning", "code": "DATA-0001", "description": SECRET}, Warned("DATA-0001")),
        ({"type": "Warning", "code": SECRET, "description": SECRET}, Warned("")),
        ({"type": "ConfigureSuccess"}, Configured()),
        ({"type": "ConfigureFailure", "code": "CONFIGURE_X"}, Configured("CONFIGURE_X")),
        ({"type": "ConfigureFailure"}, Configured("refused")),
        ({"type": "SomethingNew", "x": 1}, None),
        ({"no": "type"}, None),
    ],
)
def test_each_message_is_read(message: dict[str, Any], read: Any) -> None:
    """And what is not known is passed over."""
    assert read_message(json.dumps(message)) == read


def test_turns_are_read() -> None:
    """Words with and without times; the mean of what it is sure of."""
    words = [{"word": "yes", "confidence": 0.5}, {"word": "no", "confidence": 1.0, "start": 0.5, "end": 0.75}]
    message = {
        "type": "TurnInfo", "event": "EndOfTurn", "turn_index": 3, "transcript": "yes no", "words": words, "end_of_turn_confidence": 0.9,
        "audio_window_start": 0.25, "audio_window_end": 1.25, "trigger": "timeout", "sequence_id": 5,
    }  # fmt: skip
    read = TurnInfo("EndOfTurn", 3, "yes no", (Word("yes", -1, -1), Word("no", 0.5, 0.75)), 0.75, 0.9, 0.25, 1.25, "timeout")
    assert read_message(json.dumps(message)) == read


JSON = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(), lambda c: st.lists(c) | st.dictionaries(st.text(), c), max_leaves=8
)


@given(
    st.sampled_from(["Results", "TurnInfo", "SpeechStarted", "UtteranceEnd", "Metadata", "Warning", "Error", "ConfigureFailure"]),
    JSON,
    JSON,
)
def test_a_message_that_cannot_be_read_is_an_error_of_the_service(kind: str, one: Any, two: Any) -> None:
    """Never another one."""
    message = {"type": kind, "channel": one, "start": two, "duration": 1, "event": one, "turn_index": two, "words": one, "code": two}
    for data in (json.dumps(message), json.dumps(one)):
        with contextlib.suppress(ServiceError):
            read_message(data)


@given(st.binary())
def test_noise_is_no_message(data: bytes) -> None:
    """Neither."""
    with contextlib.suppress(ServiceError):
        read_message(data)


@pytest.mark.parametrize(
    ("message", "told", "verdict"),
    [
        ({"type": "Error", "code": "UNPARSABLE_CLIENT_MESSAGE", "description": SECRET}, "UNPARSABLE_CLIENT_MESSAGE", Verdict.NEVER),
        ({"type": "Error", "variant": "SchemaError", "message": SECRET}, "SchemaError", Verdict.NEVER),
        ({"type": "Error", "code": "INTERNAL_SERVER_ERROR", "description": SECRET}, "INTERNAL_SERVER_ERROR", Verdict.LATER),
        ({"type": "Error", "code": SECRET, "description": SECRET}, "fault", Verdict.LATER),
    ],
)
def test_an_error_is_told_by_its_name(message: dict[str, Any], told: str, verdict: Verdict) -> None:
    """None of its sentences."""
    with pytest.raises(ServiceError) as raised:
        read_message(json.dumps(message))
    assert told in str(raised.value)
    assert SECRET not in str(raised.value)
    assert raised.value.verdict is verdict


@pytest.mark.parametrize(
    ("code", "reason", "told", "verdict"),
    [
        (1011, f"{SECRET} NET-0001", "NET-0001", Verdict.LATER),
        (1008, "DATA-0000", "DATA-0000", Verdict.NEVER),
        (1008, SECRET, "does not take", Verdict.LATER),
        (1003, "", "MESSAGE-0000", Verdict.NEVER),
        (1009, "", "BIG-0000", Verdict.NEVER),
        (1011, "", "1011", Verdict.LATER),
    ],
)
def test_a_close_says_why(code: int, reason: str, told: str, verdict: Verdict) -> None:
    """By the code in its reason, or its number."""
    failure = closing_failure(code, reason, "here")
    assert failure is not None
    assert told in str(failure)
    assert SECRET not in str(failure)
    assert failure.verdict is verdict
    assert closing_failure(1000, "", "here") is closing_failure(1006, "", "here") is None


def test_a_refused_opening_keeps_what_the_service_asks_for() -> None:
    """Its name, its hint, the wait; an unreadable body does no harm."""
    error = ServiceError("x", status=429, retry_after_s=3.0)
    failure = opening_failure(error, json.dumps({"err_code": "TOO_MANY_REQUESTS", "err_msg": SECRET}).encode(), "here")
    assert "TOO_MANY_REQUESTS" in str(failure)
    assert "at once" in str(failure)
    assert failure.retry_after_s == 3.0
    for body in (b"", b"[", b"[]", json.dumps({"err_code": SECRET}).encode()):
        assert SECRET not in str(opening_failure(error, body, "here"))


def test_what_is_sent_is_what_the_service_reads() -> None:
    """Only what was given."""
    assert json.loads(speak('say "x"')) == {"type": "Speak", "text": 'say "x"'}
    assert json.loads(configure({"eot_threshold": 0.8})) == {"type": "Configure", "thresholds": {"eot_threshold": 0.8}}
    assert json.loads(configure({}, ())) == {"type": "Configure", "keyterms": []}


def test_addresses_hold_what_was_chosen() -> None:
    """Booleans in small letters, several values several times, nothing that was not chosen; no key."""
    line = LineOptions(base_url="http://127.0.0.1:1/", api_key=SECRET)
    url = DeepgramOptions(line=line, keyterms=("a b", "c"), endpointing_ms=None).url()
    assert url.startswith("ws://127.0.0.1:1/v1/listen?model=nova-3&encoding=linear16&sample_rate=16000&channels=1&interim_results=true")
    assert "endpointing=False" not in url
    assert "endpointing=false" in url
    assert "keyterm=a+b&keyterm=c" in url
    assert "language" not in url
    assert SECRET not in url
    assert "eager_eot_threshold=0.4" in FluxOptions(eager_eot_threshold=0.4).url()
    assert AuraOptions().url() == "wss://api.deepgram.com/v1/speak?model=aura-2-thalia-en&encoding=linear16&sample_rate=24000"
    assert line.headers() == {"Authorization": f"Token {SECRET}"}
    assert LineOptions(api_key=SECRET, scheme="Bearer").headers() == {"Authorization": f"Bearer {SECRET}"}


@pytest.mark.parametrize(
    ("kind", "wrong", "says"),
    [
        (DeepgramOptions, {"sample_rate": 11025}, "sample_rate"),
        (DeepgramOptions, {"utterance_end_ms": 500}, "1000"),
        (DeepgramOptions, {"interim_results": False}, "interim_results"),
        (DeepgramOptions, {"endpointing_ms": 0}, "endpointing_ms"),
        (DeepgramOptions, {"model": ""}, "model"),
        (DeepgramOptions, {"answer_s": 0}, "answer_s"),
        (FluxOptions, {"model": "nova-3"}, "Flux"),
        (FluxOptions, {"eager_eot_threshold": 0.2}, "eager_eot_threshold"),
        (FluxOptions, {"eager_eot_threshold": 0.9, "eot_threshold": 0.6}, "not be more"),
        (FluxOptions, {"eot_timeout_ms": 400}, "eot_timeout_ms"),
        (FluxOptions, {"language_hints": ("de",)}, "multi"),
        (FluxOptions, {"chunk_ms": 0}, "chunk_ms"),
        (AuraOptions, {"encoding": "mp3"}, "encoding"),
        (AuraOptions, {"encoding": "mulaw"}, "sample_rate"),
        (AuraOptions, {"speed": 9}, "speed"),
        (AuraOptions, {"flushes": 21}, "flushes"),
        (AuraOptions, {"cleared_s": 0}, "cleared_s"),
        (AuraOptions, {"model": ""}, "model"),
        (LineOptions, {"base_url": "api.deepgram.com"}, "base_url"),
        (LineOptions, {"scheme": "Basic"}, "scheme"),
        (LineOptions, {"kept_s": 0}, "kept_s"),
    ],
)
def test_what_the_service_would_refuse_is_refused_here(kind: Any, wrong: dict[str, Any], says: str) -> None:
    """With the name of the option."""
    with pytest.raises(ValueError, match=says):
        kind(**wrong)
