"""RTVI: what a client of Pipecat's says and is told, in both encodings and both versions."""

from __future__ import annotations

import base64
import io
import json
import wave
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voiceflow import AudioFormat, InputAudioFrame, LLMEnded, LLMStarted, LLMTextFrame, ToolCall, TranscriptFrame, TurnEnded, TurnStarted
from voiceflow.frames import Frame, Heard, PlaybackStarted, PlaybackStopped, ToolResultFrame, ToolStarted, WordsHeard
from voiceflow.phone import DigitReceived
from voiceflow.transports.protobuf_frames import Interruption, Packet, RawAudio, RawMessage, RawText, decode, encode
from voiceflow.transports.rtvi import RTVI_VERSION, RTVIWire
from voiceflow.transports.wire import AppMessage, CallEnded, CallStarted, Message, TellFrame, WireError

# ------------------------------------------------------------------------------------------------- protobuf

packets = st.one_of(
    st.builds(RawAudio, st.binary(max_size=400), st.integers(1, 192000), st.integers(1, 2)),
    st.builds(RawMessage, st.text()),
    st.builds(RawText, st.text()),
    st.builds(RawText, st.text(), st.text()),
    st.just(Interruption()),
)


@given(packets)
def test_a_packet_comes_back_as_it_was(packet: Packet) -> None:
    """Whatever it holds."""
    assert decode(encode(packet)) == packet


@pytest.mark.parametrize(
    ("hexed", "packet"),
    [
        # frames.proto by protobuf's own encoder: Frame{audio{audio "ab", sample_rate 16000, num_channels 1}}
        ("12091a02616220807d2801", RawAudio(b"ab", 16000, 1)),
        # the same with id, name and pts, which are of no use here
        ("1210080712016e1a02616220807d28013009", RawAudio(b"ab", 16000, 1)),
        ("22040a027b7d", RawMessage("{}")),
        ("0a041a026869", RawText("hi")),
        ("2a00", Interruption()),
        ("", None),
        ("3a00", None),
    ],
)
def test_the_bytes_are_those_of_protobuf(hexed: str, packet: Packet | None) -> None:
    """Fields that are not known are passed over."""
    assert decode(bytes.fromhex(hexed)) == packet


@given(st.binary(max_size=60))
def test_no_bytes_do_harm(data: bytes) -> None:
    """They are a packet, something unknown, or a WireError."""
    try:
        decode(data)
    except WireError as error:
        code = error.code
    else:
        code = 1007
    assert code == 1007


# ------------------------------------------------------------------------------------------------- messages


def said(kind: str, data: Any = None, number: str = "7") -> str:
    return json.dumps({"label": "rtvi-ai", "type": kind, "id": number} | ({} if data is None else {"data": data}))


def told(messages: list[Message]) -> list[tuple[str, Any]]:
    """Type and data of each RTVI message, in either encoding."""
    found = []
    for message in messages:
        packet = decode(message) if isinstance(message, bytes) else RawMessage(message)
        if isinstance(packet, RawMessage):
            envelope = json.loads(packet.data)
            assert envelope["label"] == "rtvi-ai"
            found.append((envelope["type"], envelope.get("data")))
    return found


def begun(*, binary: bool = True, version: str = RTVI_VERSION) -> RTVIWire:
    wire = RTVIWire()
    ready = said("client-ready", {"version": version, "about": {"library": "test"}})
    assert wire.receive(encode(RawMessage(ready)) if binary else ready) == [CallStarted("")]
    return wire


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize(
    ("version", "answer", "warned"),
    [
        ("2.2.0", RTVI_VERSION, False),
        ("2.0.0", RTVI_VERSION, False),
        ("1.4.0", "1.4.0", False),
        ("3.0.0", RTVI_VERSION, True),
        ("", RTVI_VERSION, True),
    ],
)
def test_a_client_that_is_ready_is_answered(binary: bool, version: str, answer: str, warned: bool) -> None:
    """In its own encoding, with its request's number and the version that is spoken; one that may not fit is told so, and served."""
    wire = begun(binary=binary, version=version)
    answers = wire.answers()
    assert all(isinstance(message, bytes) is binary for message in answers)
    assert [kind for kind, _ in told(answers)] == ["bot-ready", *(["error-response"] if warned else [])]
    assert told(answers)[0][1]["version"] == answer
    first = answers[0] if isinstance(answers[0], str) else decode(answers[0])
    assert json.loads(first if isinstance(first, str) else first.data)["id"] == "7"  # type: ignore[union-attr]
    assert wire.answers() == []


def test_sound_goes_both_ways_in_either_encoding() -> None:
    """Sixteen-bit samples, with their rate."""
    pcm = bytes(range(256)) * 2
    wire = begun()
    assert wire.receive(encode(RawAudio(pcm, 16000))) == [InputAudioFrame(pcm=pcm, sample_rate=16000)]
    assert [decode(m) for m in wire.audio(pcm) if isinstance(m, bytes)] == [RawAudio(pcm, 24000)]
    wire = begun(binary=False)
    raw = {"base64Audio": base64.b64encode(pcm).decode(), "sampleRate": 16000, "numChannels": 1}
    assert wire.receive(said("raw-audio", raw)) == [InputAudioFrame(pcm=pcm, sample_rate=16000)]
    ((kind, data),) = told(wire.audio(pcm))
    assert (kind, base64.b64decode(data["audio"]), data["sample_rate"]) == ("bot-tts-audio", pcm, 24000)


def test_a_peer_without_messages_begins_with_sound() -> None:
    """Its first sound says the rate."""
    wire = RTVIWire()
    pcm = b"\1\0" * 480
    assert wire.receive(encode(RawAudio(pcm, 24000))) == [CallStarted(""), InputAudioFrame(pcm=pcm, sample_rate=24000)]
    assert wire.hears == AudioFormat(24000)


def test_sound_in_a_wav_file_of_its_own_is_sound() -> None:
    """As one of the clients sends each piece."""
    pcm, file = b"\1\0" * 320, io.BytesIO()
    with wave.open(file, "wb") as whole:
        whole.setparams((1, 2, 16000, 0, "NONE", ""))
        whole.writeframes(pcm)
    assert begun().receive(encode(RawAudio(file.getvalue(), 16000))) == [InputAudioFrame(pcm=pcm, sample_rate=16000)]
    assert begun().receive(encode(RawAudio(b"RIFF" + bytes(40), 16000))) == []


def test_sound_of_another_rate_is_brought_to_the_lines_own() -> None:
    """A second of it is a second of it, stereo or not."""
    wire = begun()
    samples = 0
    for _ in range(50):
        for frame in wire.receive(encode(RawAudio(b"\1\0\1\0" * 960, 48000, 2))):
            assert isinstance(frame, InputAudioFrame)
            assert (frame.sample_rate, frame.channels) == (16000, 1)
            samples += len(frame.pcm) // 2
    assert samples == pytest.approx(16000, abs=160)
    assert wire.faults == 0


def test_what_the_client_types_and_presses_is_the_callers() -> None:
    """Text is their final words, keys are keys, and a goodbye ends the call."""
    wire = begun()
    assert wire.receive(said("send-text", {"content": "When?", "options": {}})) == [TranscriptFrame("When?")]
    assert wire.receive(said("dtmf", {"buttons": ["1", "#"]})) == [DigitReceived(digit="1"), DigitReceived(digit="#")]
    assert wire.receive(said("client-message", {"t": "colour", "d": {"r": 1}})) == [AppMessage(kind="colour", data={"r": 1})]
    (end,) = wire.receive(said("disconnect-bot"))
    assert isinstance(end, CallEnded)


@pytest.mark.parametrize(
    "message",
    [
        "no JSON",
        "[]",
        '{"type": "send-text"}',
        said("send-text", {"content": 3}),
        said("send-text", {"content": "  "}),
        said("dtmf", {"buttons": ["x"]}),
        said("dtmf", {"buttons": 4}),
        said("raw-audio", {"base64Audio": "!!", "sampleRate": 16000}),
        said("raw-audio", {"base64Audio": "AA==", "sampleRate": 16000}),
        said("raw-audio", {"base64Audio": "AAA=", "sampleRate": "16000"}),
        said("raw-audio", {"base64Audio": "AAA=", "sampleRate": 3}),
        said("raw-audio-batch", {"base64AudioBatch": 3}),
        said("of-the-future", {}),
        encode(RawAudio(b"\0", 16000)),
        encode(RawAudio(b"\0\0", 0)),
        encode(RawAudio(b"\0\0" * 7, 16000, 7)),
        b"",
        b"\x3a\x00",
    ],
)
def test_what_makes_no_sense_is_passed_over_and_counted(message: Message) -> None:
    """The call goes on; as the first message it ends it with a reason."""
    wire = begun()
    assert wire.receive(message) == []
    assert wire.faults == 1
    with pytest.raises(WireError, match="client-ready"):
        RTVIWire().receive(message)


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=12), inner, max_size=3),
    max_leaves=8,
)
KINDS = ("client-ready", "send-text", "dtmf", "raw-audio", "raw-audio-batch", "disconnect-bot", "x")
FIELDS = ("content", "buttons", "base64Audio", "base64AudioBatch", "sampleRate", "numChannels", "version")


@given(
    st.lists(
        st.one_of(
            st.binary(max_size=50), st.builds(said, st.sampled_from(KINDS), st.dictionaries(st.sampled_from(FIELDS), anything) | anything)
        )
    )
)
def test_nothing_a_client_says_breaks_the_wire(messages: list[Message]) -> None:
    """Frames, faults or a WireError: whatever comes, in whatever order."""
    wire = begun()
    for message in messages:
        try:
            received = wire.receive(message)
        except WireError:
            return
        assert all(isinstance(one, Frame | CallStarted | CallEnded) for one in received)
        told(wire.answers())


CALL = ToolCall("c1", "look_up", "{}")


@pytest.mark.parametrize(
    ("frame", "expected"),
    [
        (TranscriptFrame("hi", final=False, pts=1.5), [("user-transcription", {"text": "hi", "user_id": "", "timestamp": "1.500", "final": False})]),
        (TellFrame(kind="price", data=3), [("server-message", {"kind": "price", "data": 3})]),
        (LLMStarted(utterance=1), [("bot-llm-started", None)]),
        (LLMTextFrame("At", utterance=1), [("bot-llm-text", {"text": "At"})]),
        (LLMEnded(utterance=1), [("bot-llm-stopped", None)]),
        (PlaybackStarted(utterance=1), [("bot-tts-started", None), ("bot-started-speaking", None)]),
        (PlaybackStopped(heard=Heard(1, "At", True)), [("bot-tts-stopped", None), ("bot-stopped-speaking", None)]),
        (ToolResultFrame(call=CALL, text="secret"), [("llm-function-call-stopped", {"tool_call_id": "c1", "function_name": "look_up", "cancelled": False})]),
    ],
)  # fmt: skip
def test_the_client_is_told_what_happens(frame: Frame, expected: list[tuple[str, Any]]) -> None:
    """In the words of the protocol; what a tool found stays here."""
    assert told(begun().tell(frame)) == expected


def test_the_words_heard_come_in_the_form_of_the_clients_version() -> None:
    """1.x knows whether they were spoken, 2.x how far they are."""
    heard = WordsHeard(text="At nine", utterance=1)
    (_, (kind, old)), (_, (_, new)) = told(begun(version="1.4.0").tell(heard)), told(begun().tell(heard))
    assert (kind, old) == ("bot-output", {"text": "At nine", "aggregated_by": "word", "spoken": True})
    assert (new["text"], new["will_be_spoken"], new["spoken_status"]) == ("At nine", True, "completed")


def test_a_tool_is_told_by_its_name() -> None:
    """Its arguments are not."""
    assert [kind for kind, _ in told(begun().tell(ToolStarted(call=CALL)))] == [
        "llm-function-call-started",
        "llm-function-call-in-progress",
    ]


def test_a_clear_stops_every_kind_of_client() -> None:
    """The web client stops when it hears that the caller speaks, others at the interruption; each turn begins and ends once."""
    wire = begun()
    messages = wire.clear()
    assert [kind for kind, _ in told(messages)] == ["user-started-speaking", "bot-interrupted"]
    assert Interruption() in [decode(m) for m in messages if isinstance(m, bytes)]
    assert wire.tell(TurnStarted()) == []
    assert [kind for kind, _ in told(wire.clear())] == ["bot-interrupted"]
    assert [kind for kind, _ in told(wire.tell(TurnEnded()))] == ["user-stopped-speaking"]
    assert wire.tell(TurnEnded()) == []
