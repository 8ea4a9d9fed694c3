"""ElevenLabs' messages and options."""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("websockets", reason="pip install websockets")

from voiceflow.processors.services.elevenlabs_options import ElevenLabsOptions, VoiceSettings
from voiceflow.processors.services.elevenlabs_wire import (
    JsonLines,
    close_context,
    end_of_text,
    failure_of,
    init,
    opening_failure,
    read_message,
    say,
)
from voiceflow.processors.services.retry import ServiceError, Verdict

AUDIO = base64.b64encode(b"\x01\x02\x03").decode()
CHARS, STARTS, LENGTHS = ["H", "i", " "], [0, 100, 250], [100, 150, 50]
SECRET = "sk_0123456789"

# ------------------------------------------------------------------------------------------------- out


def test_what_is_sent_is_spelled_as_the_vendor_does() -> None:
    """The first message is a blank with the settings, a flush is told, the end is an empty text, a context is closed by name."""
    assert json.loads(init()) == {"text": " "}
    assert json.loads(init({"speed": 1.1}, (120, 160), [("d", "v")], "c-1")) == {
        "text": " ",
        "context_id": "c-1",
        "voice_settings": {"speed": 1.1},
        "generation_config": {"chunk_length_schedule": [120, 160]},
        "pronunciation_dictionary_locators": [{"pronunciation_dictionary_id": "d", "version_id": "v"}],
    }
    assert json.loads(say("Hi ")) == {"text": "Hi "}
    assert json.loads(say("Hi ", flush=True, context="c-1")) == {"text": "Hi ", "flush": True, "context_id": "c-1"}
    assert json.loads(end_of_text()) == {"text": ""}
    assert json.loads(close_context("c-1")) == {"context_id": "c-1", "close_context": True}


# -------------------------------------------------------------------------------------------------- in


@pytest.mark.parametrize("context", ["contextId", "context_id"])
@pytest.mark.parametrize("final", ["isFinal", "is_final"])
@pytest.mark.parametrize(
    ("starts", "lengths"),
    [("charStartTimesMs", "charDurationsMs"), ("charsStartTimesMs", "charsDurationsMs"), ("char_start_times_ms", "chars_durations_ms")],
)
def test_every_spelling_is_read(context: str, final: str, starts: str, lengths: str) -> None:
    """Also with fields that nobody knows yet."""
    told = {"chars": CHARS, starts: STARTS, lengths: LENGTHS, "new": 1}
    message = read_message(
        json.dumps({"audio": AUDIO, context: "c-1", final: None, "alignment": told, "normalizedAlignment": None, "x": {}})
    )
    assert (message.audio, message.context, message.is_final, message.error) == (b"\x01\x02\x03", "c-1", False, None)
    assert message.timing is not None
    assert (message.timing.chars, message.timing.starts_s, message.timing.ends_s) == (CHARS, [0, 0.1, 0.25], [0.1, 0.25, 0.3])
    assert message.timing.since == "sound"
    message = read_message(json.dumps({"audio": None, context: "c-1", final: True}))
    assert (message.audio, message.context, message.is_final, message.timing) == (b"", "c-1", True, None)


def test_a_line_of_a_stream_with_timestamps_is_read() -> None:
    """Its times are seconds, from the sound or from the stream."""
    told = {"characters": CHARS, "character_start_times_seconds": [0, 0.1, 0.2], "character_end_times_seconds": [0.1, 0.2, 0.3]}
    message = read_message(json.dumps({"audio_base64": AUDIO, "alignment": told, "normalized_alignment": told}).encode())
    assert message.audio == b"\x01\x02\x03"
    assert message.timing is not None
    assert (message.timing.ends_s, message.timing.since) == ([0.1, 0.2, 0.3], "either")
    assert read_message(json.dumps({"audio_base64": AUDIO, "alignment": None})).timing is None


GARBAGE: list[Any] = [
    "", "{", "[]", "null", '"x"', b"\xff\xfe", '{"audio": 5}', '{"audio": "not base64!"}', '{"audio": "AAA"}',
    json.dumps({"audio": AUDIO, "alignment": {"chars": CHARS, "charStartTimesMs": [0], "charDurationsMs": LENGTHS}}),
    json.dumps({"audio": AUDIO, "alignment": {"chars": "Hi ", "charStartTimesMs": STARTS, "charDurationsMs": LENGTHS}}),
    json.dumps({"audio": AUDIO, "alignment": {"chars": CHARS, "charStartTimesMs": ["x"] * 3, "charDurationsMs": LENGTHS}}),
    "[" * 100_000,
]  # fmt: skip


@pytest.mark.parametrize("data", GARBAGE, ids=range(len(GARBAGE)))
def test_what_cannot_be_read_is_an_error_worth_another_try(data: str | bytes) -> None:
    """And quotes nothing of it."""
    with pytest.raises(ServiceError, match="cannot be read") as raised:
        read_message(data)
    assert raised.value.verdict is Verdict.LATER


@given(st.recursive(st.none() | st.booleans() | st.floats() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(
    st.sampled_from(["audio", "alignment", "chars", "charStartTimesMs", "charDurationsMs", "isFinal", "contextId", "error", "message"]), inner)))  # fmt: skip
@settings(max_examples=50)
def test_no_message_does_harm(value: Any) -> None:
    """It is read, or it is a ServiceError."""
    with contextlib.suppress(ServiceError):
        read_message(json.dumps(value))


@given(st.lists(st.binary(max_size=8).map(lambda line: line.replace(b"\n", b"x")), max_size=6), st.data())
def test_lines_cut_anywhere(lines: list[bytes], data: st.DataObject) -> None:
    """Empty ones left out, the last one also without its end."""
    stream = b"\n".join(lines)
    cuts = [0, *sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6))), len(stream)]
    reader = JsonLines()
    found = [line for a, b in itertools.pairwise(cuts) for line in reader.push(stream[a:b])] + reader.end()
    assert found == [line for line in lines if line.strip()]


# ---------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("message", "name", "verdict"),
    [
        ({"message": SECRET, "error": "quota_exceeded", "code": 1008}, "quota_exceeded", Verdict.NEVER),
        ({"message": SECRET, "error": "system_busy", "code": 1011}, "system_busy", Verdict.LATER),
        ({"message": SECRET, "error": "max_active_conversations", "contextId": "c"}, "max_active_conversations", Verdict.LATER),
        ({"error": {"message": SECRET, "code": "voice_not_found"}}, "voice_not_found", Verdict.NEVER),
        ({"error": {"message": SECRET, "status": "invalid_api_key"}}, "invalid_api_key", Verdict.NEVER),
        ({"message": f"You have no credits left {SECRET}"}, "quota_exceeded", Verdict.NEVER),
        ({"error": f"a sentence with {SECRET}", "message": "?"}, "refused:", Verdict.LATER),
    ],
)
def test_a_complaint_is_told_by_its_name(message: dict[str, Any], name: str, verdict: Verdict) -> None:
    """With what to do about it, and none of its sentences."""
    error = read_message(json.dumps(message), "https://example.com").error
    assert error is not None
    assert name in str(error)
    assert "https://example.com" in str(error)
    assert (SECRET in str(error), error.verdict) == (False, verdict)


@pytest.mark.parametrize(
    ("words", "name", "verdict"),
    [
        ("Have not received a new text input within the timeout of 20 seconds", "input_timeout_exceeded", Verdict.LATER),
        ("Maximum simultaneous contexts per WebSocket connection exceeded (5)", "max_active_conversations", Verdict.LATER),
        ("This request exceeds your quota", "quota_exceeded", Verdict.NEVER),
        ("Unauthorized", "invalid_api_key", Verdict.NEVER),
        ("A voice with voice_id x does not exist", "voice_not_found", Verdict.NEVER),
        ("policy violation", "refused:", Verdict.LATER),
    ],
)
def test_a_close_is_told_by_its_words(words: str, name: str, verdict: Verdict) -> None:
    """What the service says when it closes has no name of its own."""
    error = failure_of("", words, "wss://example.com")
    assert name in str(error)
    assert error.verdict is verdict


@pytest.mark.parametrize(
    ("status", "body", "name"),
    [
        (401, b'{"detail": {"status": "invalid_api_key", "message": "sk_0123456789"}}', "invalid_api_key"),
        (422, b'{"detail": [{"loc": ["query"], "msg": "sk_0123456789"}]}', "422"),
        (404, b"<html>", "look at voice"),
        (503, b"", "try again later"),
    ],
)
def test_a_refused_opening_is_told_by_status_and_name(status: int, body: bytes, name: str) -> None:
    """Whatever stands in its body."""
    error = opening_failure(ServiceError("x", status=status, retry_after_s=2.0), body, "wss://example.com")
    assert name in str(error)
    assert str(status) in str(error)
    assert SECRET not in str(error)
    assert (error.status, error.retry_after_s) == (status, 2.0)


# ---------------------------------------------------------------------------------------------- options


def test_addresses_say_what_was_chosen() -> None:
    """The vendor's own spelling; nothing that was not set."""
    plain = ElevenLabsOptions("v 1")
    assert plain.socket_url() == (
        "wss://api.elevenlabs.io/v1/text-to-speech/v%201/multi-stream-input?model_id=eleven_flash_v2_5&output_format=pcm_24000"
        "&inactivity_timeout=180&sync_alignment=true&auto_mode=true"
    )
    assert plain.request_url() == "https://api.elevenlabs.io/v1/text-to-speech/v%201/stream/with-timestamps?output_format=pcm_24000"
    more = ElevenLabsOptions(
        "v", way="socket", aggregation="token", language="de", seed=7, ssml=True, logging=False, text_normalization="off", timestamps=False
    )
    for part in ("/stream-input?", "auto_mode=false", "language_code=de", "seed=7", "enable_ssml_parsing=true", "enable_logging=false"):
        assert part in more.socket_url()
    assert more.request_url().endswith("/v/stream?output_format=pcm_24000&enable_logging=false")
    assert "apply_text_normalization=off" in more.socket_url()


def test_a_request_says_what_came_before() -> None:
    """For the melody; but not to the model that refuses it."""
    body = ElevenLabsOptions("v", settings=VoiceSettings(speed=1.1)).request_body("Hi.", "Before.")
    assert body == {"text": "Hi.", "model_id": "eleven_flash_v2_5", "voice_settings": {"speed": 1.1}, "previous_text": "Before."}
    assert "previous_text" not in ElevenLabsOptions("v", model="eleven_v3").request_body("Hi.", "Before.")
    assert "previous_text" not in ElevenLabsOptions("v").request_body("Hi.", "")


@pytest.mark.parametrize(
    ("aggregation", "auto_mode", "at_once"),
    [
        ("sentence", None, True),
        ("clause", None, True),
        ("schedule", None, True),
        ("token", None, False),
        ("sentence", False, False),
        ("token", True, True),
    ],
)
def test_whole_pieces_are_spoken_at_once_and_tokens_gathered(aggregation: Any, auto_mode: bool | None, at_once: bool) -> None:
    """Unless it is told otherwise."""
    assert ElevenLabsOptions("v", aggregation=aggregation, auto_mode=auto_mode).speaks_at_once is at_once


@pytest.mark.parametrize(
    ("url", "variable"),
    [
        ("https://api.elevenlabs.io", "ELEVENLABS_API_KEY"),
        ("https://api.eu.residency.elevenlabs.io/", "ELEVENLABS_API_KEY"),
        ("https://elevenlabs.io.example.com", None),
        ("https://notelevenlabs.io", None),
        ("http://127.0.0.1:8080", None),
    ],
)
def test_the_vendors_key_is_for_the_vendors_hosts(url: str, variable: str | None) -> None:
    """A stranger gets none unasked."""
    assert ElevenLabsOptions("v", base_url=url).key_variable == variable


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"voice": ""}, "voice and model"),
        ({"model": ""}, "voice and model"),
        ({"way": "pigeon"}, "way 'pigeon'"),
        ({"way": "http", "aggregation": "token"}, "each token"),
        ({"aggregation": "words"}, "'words'"),
        ({"output_format": "pcm"}, "output_format"),
        ({"output_format": "pcm_12345"}, "output_format"),
        ({"output_format": "wav_44100"}, "output_format"),
        ({"output_format": "mp3_44100_128"}, "compressed_sound"),
        ({"chunk_length_schedule": ()}, "50 to 500"),
        ({"chunk_length_schedule": (49,)}, "50 to 500"),
        ({"inactivity_s": 181}, "inactivity_s"),
        ({"acknowledged_s": 0}, "acknowledged_s"),
        ({"base_url": "https://u:p@example.com"}, "base_url"),
    ],
)
def test_what_the_service_would_refuse_is_refused_at_once(more: dict[str, Any], says: str) -> None:
    """With what to do."""
    with pytest.raises(ValueError, match=says):
        ElevenLabsOptions(**{"voice": "v", **more})


@pytest.mark.parametrize(("name", "value"), [("stability", 1.1), ("similarity_boost", -0.1), ("style", 2), ("speed", 0.6), ("speed", 1.3)])
def test_settings_have_their_ranges(name: str, value: float) -> None:
    """Each is named."""
    with pytest.raises(ValueError, match=name):
        VoiceSettings(**{name: value})  # type: ignore[arg-type]


def test_a_key_is_not_shown() -> None:
    """Not in the options' own text."""
    assert SECRET not in repr(ElevenLabsOptions("v", api_key=SECRET))
