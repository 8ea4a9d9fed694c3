"""Our own protocol as messages: what a client may say, what a server says, in both encodings, and what is nonsense."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from voiceflow import (
    AudioFormat,
    ErrorFrame,
    FloorReleased,
    FloorTaken,
    Frame,
    Heard,
    InputAudioFrame,
    InterruptFrame,
    LLMStarted,
    LLMTextFrame,
    OutputAudioFrame,
    PlaybackStarted,
    PlaybackStopped,
    SpeechStarted,
    SpeechStopped,
    ToolStarted,
    TranscriptFrame,
    TurnEnded,
    TurnStarted,
    UtteranceEnded,
    WordsHeard,
)
from voiceflow.messages import ToolCall
from voiceflow.phone import DigitReceived, DigitsFrame
from voiceflow.transports.wire import (
    AppMessage,
    CallEnded,
    CallResumed,
    CallStarted,
    Cleared,
    Message,
    Played,
    Resumable,
    TellFrame,
    Wire,
    WireError,
)
from voiceflow.transports.wire_frames import FAULTS, FramesOptions, FramesWire
from voiceflow.transports.wire_frames_client import FramesClientWire
from voiceflow.transports.wire_messages import RESERVED, FromClient, Start

DOCS = Path(__file__).parents[2] / "docs/websocket.md"

ALLOWED = (
    InputAudioFrame,
    TranscriptFrame,
    DigitReceived,
    FloorTaken,
    FloorReleased,
    AppMessage,
    InterruptFrame,
    Played,
    CallStarted,
    CallResumed,
    CallEnded,
)

encodings = pytest.mark.parametrize("encoding", ["json", "frames"])


def written(encoding: str, **message: Any) -> Message:
    return json.dumps(message) if encoding == "json" else msgspec.msgpack.encode(message)


def read(message: Message) -> dict[str, Any]:
    value = json.loads(message) if isinstance(message, str) else msgspec.msgpack.decode(message)
    assert isinstance(value, dict)
    return value


def begun(encoding: str, options: FramesOptions | None = None, **start: Any) -> FramesWire:
    wire = FramesWire(options)
    received = wire.receive(written(encoding, type="start", **start))
    assert isinstance(received[0], CallStarted | CallResumed)
    return wire


def pair(**options: Any) -> tuple[FramesWire, FramesClientWire, list[Frame]]:
    """Both ends of a call that has begun, and what the client is told."""
    told: list[Frame] = []
    server = FramesWire(FramesOptions(**options))
    client = FramesClientWire(AudioFormat(16000), AudioFormat(24000), who="a caller", told=told.append)
    (started,) = server.receive(client.hello())
    assert isinstance(started, CallStarted)
    assert started.caller == "a caller"
    assert [item for message in server.answers() for item in client.receive(message)] == [CallStarted(started.call)]
    told.clear()
    return server, client, told


# ----------------------------------------------------------------------------------------------------- the start


def test_both_ends_are_wires() -> None:
    """What a line asks of a wire, both have, and both can come back to a call."""
    wires: list[Wire] = [FramesWire(), FramesClientWire(AudioFormat(16000), AudioFormat(16000))]
    assert all(isinstance(wire, Resumable) for wire in wires)


@encodings
def test_the_start_says_the_rates(encoding: str) -> None:
    """The client's sound is taken in its rate, and the agent's is sent in the one it wants; both are confirmed."""
    wire = begun(encoding, sample_rate=48000, wants=8000)
    started, state = map(read, wire.answers())
    assert (wire.hears, wire.speaks) == (AudioFormat(48000), AudioFormat(8000))
    assert (started["type"], started["hears"], started["speaks"]) == ("started", {"sample_rate": 48000}, {"sample_rate": 8000})
    assert state == {"type": "state", "state": "listening"}
    assert wire.answers() == []


def test_a_client_that_says_nothing_of_rates_has_the_usual_ones() -> None:
    """16 kHz from it, and the server's own rate to it."""
    wire = begun("json", FramesOptions(speaks=22050))
    assert (wire.hears, wire.speaks) == (AudioFormat(16000), AudioFormat(22050))


@encodings
@pytest.mark.parametrize(
    ("start", "says"),
    [
        ({"version": 2}, "version 2"),
        ({"sample_rate": 7999}, "sample_rate is 7999"),
        ({"wants": 96000}, "wants is 96000"),
        ({"sample_rate": -1}, "sample_rate is -1"),
        ({"sample_rate": "fast"}, "has to be a start"),
        ({"token": "x" * 201}, "has to be a start"),
    ],
)
def test_a_start_that_cannot_be_met_says_why(encoding: str, start: dict[str, Any], says: str) -> None:
    """The reason names the value."""
    with pytest.raises(WireError, match=says) as raised:
        FramesWire().receive(written(encoding, type="start", **start))
    assert raised.value.code == 1002


@encodings
@pytest.mark.parametrize("shown", ["", "wrong", "CANARY", "CANARY-12", "CANARY-1234", "\N{SNOWMAN}"])
def test_a_token_has_to_be_shown(encoding: str, shown: str) -> None:
    """Without the right one there is no call, and what is said about it does not hold it."""
    wire = FramesWire(FramesOptions(token="CANARY-123"))
    with pytest.raises(WireError, match="wants its token") as raised:
        wire.receive(written(encoding, type="start", token=shown))
    assert raised.value.code == 1008
    assert "CANARY" not in f"{raised.value!r} {FramesOptions(token='CANARY-123')!r} {wire!r}"


@pytest.mark.parametrize(
    ("token", "start"), [("x", r'{"type": "start", "token": "\udcff"}'), ("x\udcff", '{"type": "start", "token": "x"}')]
)
def test_a_token_that_is_no_text_lets_nobody_in(token: str, start: str) -> None:
    """Neither the client's, nor the server's own, as the environment gives bytes that are none."""
    with pytest.raises(WireError):
        FramesWire(FramesOptions(token=token)).receive(start)


@encodings
def test_a_token_that_was_shown_lets_in(encoding: str) -> None:
    """In the start, or in a header before."""
    begun(encoding, FramesOptions(token="CANARY-123"), token="CANARY-123")
    wire = FramesWire(FramesOptions(token="CANARY-123"), shown=True)
    assert wire.receive(written(encoding, type="start"))


def test_a_name_that_a_client_gives_cannot_break_the_log() -> None:
    """What cannot be printed is left out of it."""
    (started,) = FramesWire().receive(written("json", type="start", who="eve\n2026 call of root\x1b[2J"))
    assert isinstance(started, CallStarted)
    assert started.caller == "eve2026 call of root[2J"


@encodings
def test_a_second_start_is_passed_over(encoding: str) -> None:
    """The rates of a call do not change."""
    wire = begun(encoding)
    assert wire.receive(written(encoding, type="start", sample_rate=8000)) == []
    assert wire.hears == AudioFormat(16000)
    assert wire.faults == 1


@encodings
def test_a_resume_shows_its_token(encoding: str) -> None:
    """A client that comes back is told that it was let in by the call it comes back to, and gets a new token."""
    before = begun(encoding, sample_rate=8000)
    before.answers()
    token = before.resume_token
    wire = FramesWire()
    assert wire.receive(written(encoding, type="start", sample_rate=8000, resume=token)) == [CallResumed(token)]
    assert wire.answers() == []
    wire.go_on_from(before)
    started = read(wire.answers()[0])
    assert (started["resumed"], started["call"]) == (True, before.call)
    assert started["resume"] == wire.resume_token != token
    assert token not in repr(CallResumed(token))


def test_a_resume_in_another_encoding_or_rate_does_not_fit() -> None:
    """What waits for the client is in the encoding it had."""
    for wire in (begun("json"), begun("frames", sample_rate=8000), begun("frames", wants=8000)):
        with pytest.raises(WireError, match="rates and the encoding"):
            wire.go_on_from(begun("frames"))


def test_a_server_that_keeps_no_calls_gives_no_token() -> None:
    """``resume_s`` 0 is said, too."""
    wire = begun("json", FramesOptions(resume_s=0))
    started = read(wire.answers()[0])
    assert (started["resume"], started["resume_s"], wire.resume_token) == ("", 0, "")


# --------------------------------------------------------------------------------------------- what a client says


@encodings
@pytest.mark.parametrize(
    ("message", "meaning"),
    [
        ({"type": "text", "text": "hello"}, [TranscriptFrame("hello")]),
        ({"type": "played", "samples": 480}, [Played(480)]),
        ({"type": "digits", "digits": "1*D"}, [DigitReceived("1"), DigitReceived("*"), DigitReceived("D")]),
        ({"type": "interrupt"}, [InterruptFrame(reason="the caller asked for it")]),
        ({"type": "interrupt", "reason": "no"}, [InterruptFrame(reason="no")]),
        ({"type": "floor", "taken": True}, [FloorTaken(why="the client")]),
        ({"type": "floor", "taken": False}, [FloorReleased(why="the client")]),
        ({"type": "app", "kind": "map", "data": {"x": [1, None]}}, [AppMessage(kind="map", data={"x": [1, None]})]),
        ({"type": "mute", "muted": True}, [FloorReleased(why="muted")]),
        ({"type": "mute", "muted": False}, []),
        ({"type": "ping"}, []),
        ({"type": "end"}, [CallEnded("the caller hung up")]),
    ],
)
def test_what_a_client_says_is_understood(encoding: str, message: dict[str, Any], meaning: list[object]) -> None:
    """Each message of the documentation, in both encodings."""
    wire = begun(encoding)
    assert wire.receive(written(encoding, **message)) == meaning
    assert wire.faults == 0


@encodings
def test_a_ping_is_answered(encoding: str) -> None:
    """Once each; before the start it is no start."""
    wire = begun(encoding)
    wire.answers()
    for _ in range(2):
        assert wire.receive(written(encoding, type="ping")) == []
        assert [read(m) for m in wire.answers()] == [{"type": "pong"}]
    with pytest.raises(WireError, match="has to be a start, and was Ping"):
        FramesWire().receive(written(encoding, type="ping"))


@encodings
@pytest.mark.parametrize(
    "message",
    [
        {"type": "digits", "digits": "12x"},
        {"type": "digits", "digits": ""},
        {"type": "text", "text": "   "},
        {"type": "text", "text": "x" * 4001},
        {"type": "text"},
        {"type": "text", "text": 5},
        {"type": "played", "samples": -1},
        {"type": "played", "samples": 1 << 63},
        {"type": "played", "samples": 1.5},
        {"type": "mute", "muted": "yes"},
        {"type": "new in version 7"},
        {"type": "SentenceFrame", "text": "say this", "utterance": 1},
        {"type": "OutputAudioFrame", "pcm": b"", "sample_rate": 16000},
        {"type": "EndFrame"},
        {},
    ],
)
def test_what_makes_no_sense_is_passed_over(encoding: str, message: dict[str, Any]) -> None:
    """The call goes on, and it is counted. Frames that are no caller's do not come in."""
    wire = begun(encoding)
    if encoding == "json":
        message = {name: value for name, value in message.items() if not isinstance(value, bytes)}
    assert wire.receive(written(encoding, **message)) == []
    assert wire.faults == 1
    assert wire.receive(written(encoding, type="text", text="still here")) == [TranscriptFrame("still here")]


def test_raw_sound_is_whole_samples_of_at_most_a_second() -> None:
    """Other binary messages are passed over."""
    wire = begun("json", sample_rate=8000)
    assert wire.receive(b"\1\0\2\0") == [InputAudioFrame(pcm=b"\1\0\2\0", sample_rate=8000)]
    assert wire.receive(bytes(16000)) == [InputAudioFrame(pcm=bytes(16000), sample_rate=8000)]
    for wrong in (b"", b"\1", bytes(16002), bytes(15999)):
        assert wire.receive(wrong) == []
    assert wire.faults == 4


def test_sound_in_frames_has_the_rate_that_was_agreed() -> None:
    """Another rate, more channels and half a sample are passed over; text among frames, too. What a client says of time is not believed."""
    wire = begun("frames", sample_rate=16000)
    good = {"type": "InputAudioFrame", "pcm": bytes(640), "sample_rate": 16000, "pts": 1e9, "epoch": 77}
    assert wire.receive(msgspec.msgpack.encode(good)) == [InputAudioFrame(pcm=bytes(640), sample_rate=16000)]
    for wrong in ({"sample_rate": 8000}, {"channels": 2}, {"pcm": bytes(5)}, {"pcm": bytes(64000)}, {"pcm": b""}):
        assert wire.receive(msgspec.msgpack.encode(good | wrong)) == []
    assert wire.receive(json.dumps({"type": "interrupt"})) == []
    assert wire.faults == 6
    typed = {"type": "TranscriptFrame", "text": "typed", "pts": 5.0, "epoch": 3, "confidence": 9.0}
    assert wire.receive(msgspec.msgpack.encode(typed)) == [TranscriptFrame("typed")]


@encodings
def test_a_muted_client_is_not_heard(encoding: str) -> None:
    """Its sound is dropped without being a fault, until it is on again."""
    wire = begun(encoding)
    sound = bytes(640) if encoding == "json" else msgspec.msgpack.encode(InputAudioFrame(pcm=bytes(640), sample_rate=16000))
    assert len(wire.receive(sound)) == 1
    assert len(wire.receive(written(encoding, type="mute", muted=True))) == 1
    assert wire.receive(written(encoding, type="mute", muted=True)) == []
    assert wire.receive(sound) == []
    assert wire.receive(written(encoding, type="mute", muted=False)) == []
    assert len(wire.receive(sound)) == 1
    assert wire.faults == 0


def test_after_the_end_nothing_is_taken_and_nothing_said() -> None:
    """Whichever side ended it."""
    for wire in (begun("json"), begun("json")):
        assert wire.answers()
        assert wire.receive('{"type": "end"}') if wire.faults else wire.end("over")
        assert wire.receive('{"type": "text", "text": "too late"}') == []
        assert wire.audio(bytes(640)) == wire.clear() == wire.tell(TurnStarted()) == wire.end("again") == []


def test_before_the_start_nothing_is_said() -> None:
    """Not even sound."""
    wire = FramesWire()
    assert wire.audio(bytes(640)) == wire.clear() == wire.tell(TurnStarted()) == wire.end("refused") == wire.answers() == []


def test_a_client_that_talks_nothing_but_nonsense_is_hung_up_on(caplog: pytest.LogCaptureFixture) -> None:
    """After many faults, with the last of them as the reason; the log has one line about it."""
    wire = begun("json")
    assert all(wire.receive(b"\1") == [] for _ in range(FAULTS))
    with pytest.raises(WireError, match="made no sense, the last of them 1 bytes of sound"):
        wire.receive(b"\1")
    assert len(caplog.records) == 1


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=8,
)
KINDS = ["start", "played", "text", "digits", "interrupt", "mute", "floor", "app", "end", "InputAudioFrame", "TranscriptFrame", "EndFrame"]
FIELDS = [
    "samples",
    "text",
    "digits",
    "reason",
    "muted",
    "taken",
    "kind",
    "data",
    "sample_rate",
    "pcm",
    "final",
    "token",
    "resume",
    "version",
]
NEARLY = st.builds(
    lambda kind, fields: {"type": kind, **fields},
    st.sampled_from(KINDS),
    st.dictionaries(st.sampled_from(FIELDS), JSON | st.binary(max_size=40), max_size=5),
)


def _json_or_text(value: Any) -> str:
    return json.dumps(value, default=lambda raw: raw.hex())


MESSAGES = st.one_of(
    st.text(max_size=80),
    st.binary(max_size=80),
    JSON.map(_json_or_text),
    NEARLY.map(_json_or_text),
    NEARLY.map(msgspec.msgpack.encode),
    st.integers(500, 5000).map(lambda depth: "[" * depth),
    st.integers(500, 5000).map(lambda depth: b"\x91" * depth),
    st.just('{"type":"text","text":"\\ud800"}'),
)


@given(st.sampled_from(["json", "frames"]), st.lists(MESSAGES, max_size=20))
def test_no_message_breaks_a_call(encoding: str, messages: list[Message]) -> None:
    """In any order, of any content: only what a caller may say comes out, and in the end typed words are still understood."""
    wire = begun(encoding)
    over = False
    for message in messages:
        for item in wire.receive(message):
            assert isinstance(item, ALLOWED)
            over = over or isinstance(item, CallEnded)
            if isinstance(item, InputAudioFrame):
                assert item.sample_rate == 16000
        assert wire.answers() is not None
    expected = [] if over else [TranscriptFrame("hello")]
    assert wire.receive(written(encoding, type="text", text="hello")) == expected


@given(MESSAGES)
def test_no_first_message_does_anything_but_begin_a_call_or_say_why_not(message: Message) -> None:
    """It is a start, or a WireError with a close code."""
    wire = FramesWire()
    received: list[object] = []
    code, why = 0, ""
    try:
        received += wire.receive(message)
    except WireError as error:
        code, why = error.code, str(error)
    assert bool(received) is not bool(why)
    assert all(isinstance(item, CallStarted | CallResumed) for item in received)
    assert code in ((0,) if received else (1002, 1008))
    assert len(why.encode()) < 400


# --------------------------------------------------------------------------------------------- what a server says

TOLD: list[tuple[Frame, dict[str, Any]]] = [
    (SpeechStarted(at=3.0), {"type": "speech_started"}),
    (SpeechStopped(at=3.0), {"type": "speech_stopped"}),
    (TranscriptFrame("hel", final=False), {"type": "transcript", "text": "hel", "final": False}),
    (TurnStarted(), {"type": "turn_started"}),
    (TurnEnded(text="hello", continues=True), {"type": "turn_ended", "text": "hello", "continues": True}),
    (PlaybackStarted(utterance=2), {"type": "playback_started", "utterance": 2}),
    (WordsHeard(text="hi", utterance=2), {"type": "words_heard", "utterance": 2, "text": "hi"}),
    (UtteranceEnded(utterance=2), {"type": "utterance_ended", "utterance": 2}),
    (
        PlaybackStopped(heard=Heard(2, "hi", complete=False, estimated=True)),
        {"type": "playback_stopped", "utterance": 2, "text": "hi", "complete": False, "estimated": True},
    ),
    (InterruptFrame(reason="barge-in"), {"type": "interrupted", "reason": "barge-in"}),
    (TellFrame(kind="latency", data={"stages": {"stt": 1.0}}), {"type": "latency", "stages": {"stt": 1.0}}),
    (TellFrame(kind="count", data=[1, 2]), {"type": "count", "data": [1, 2]}),
]


@pytest.mark.parametrize(("frame", "message"), TOLD, ids=lambda value: value.get("type") if isinstance(value, dict) else None)
def test_what_a_page_is_told(frame: Frame, message: dict[str, Any]) -> None:
    """Each message of the documentation."""
    wire = begun("json")
    assert read(wire.tell(frame)[0]) == message


@pytest.mark.parametrize("frame", [frame for frame, _ in TOLD], ids=lambda frame: type(frame).__name__)
def test_what_a_program_is_told_comes_there_as_it_was(frame: Frame) -> None:
    """In the frames' own encoding, less what means something in the server's process only."""
    server, client, told = pair()
    received = [item for message in server.tell(msgspec.structs.replace(frame, epoch=5, pts=9.0)) for item in client.receive(message)]
    if isinstance(frame, TellFrame):
        assert received == [AppMessage(kind=frame.kind, data=frame.data)]
    else:
        assert received == []
        assert told[0] == frame
    assert client.faults == 0


@encodings
def test_the_agents_state_is_told_when_it_changes(encoding: str) -> None:
    """Listening, thinking, speaking, and listening again when it is interrupted."""
    wire = begun(encoding)
    stopped = PlaybackStopped(heard=Heard(1, "hi", complete=True))
    frames: list[Frame] = [TurnStarted(), TurnEnded(text="hello"), LLMStarted(), PlaybackStarted(utterance=1), stopped]
    frames += [TurnEnded(text=""), TurnEnded(text="again"), PlaybackStarted(utterance=2), InterruptFrame(), stopped]
    states = [said["state"] for frame in frames for said in map(read, wire.tell(frame)) if said["type"] == "state"]
    assert states == ["thinking", "speaking", "listening", "thinking", "speaking", "listening"]


@encodings
def test_what_a_tool_was_given_and_what_an_error_said_stay_on_the_server(encoding: str) -> None:
    """A client learns the names only."""
    wire = begun(encoding)
    call = ToolCall(id="7", name="look_up", arguments='{"key": "CANARY"}')
    told = [read(m) for f in (ToolStarted(call=call), ErrorFrame(node="llm", error="CANARY refused")) for m in wire.tell(f)]
    assert "CANARY" not in repr(told)
    assert "look_up" in repr(told[0])
    assert "llm failed" in repr(told[1])


@encodings
@pytest.mark.parametrize("kind", [*sorted(RESERVED), ""])
def test_an_application_cannot_say_the_protocols_own_words(encoding: str, kind: str) -> None:
    """A message that would be taken for the server's is not sent."""
    assert begun(encoding).tell(TellFrame(kind=kind, data={"reason": "x"})) == []


@encodings
def test_frames_that_are_not_listed_are_not_told(encoding: str) -> None:
    """What a model streams stays here."""
    wire = begun(encoding)
    assert wire.tell(LLMTextFrame("thinking aloud")) == wire.tell(DigitsFrame(digits="1")) == wire.mark("7") == []


def test_sound_to_a_page_is_raw_and_the_clear_is_a_message() -> None:
    """A binary message is sound and nothing else."""
    wire = begun("json")
    assert wire.audio(b"\1\0") == [b"\1\0"]
    assert wire.audio(b"") == []
    assert wire.clear() == ['{"type":"clear"}']
    assert [read(message) for message in wire.end("it is late")] == [{"type": "ended", "reason": "it is late"}]


# -------------------------------------------------------------------------------------------------- our own client


def test_sound_goes_both_ways_between_programs() -> None:
    """Each end hears the other in the rate that was agreed."""
    server, client, _ = pair()
    (message,) = client.audio(b"\1\0\2\0")
    assert server.receive(message) == [InputAudioFrame(pcm=b"\1\0\2\0", sample_rate=24000)]
    (message,) = server.audio(b"\3\0")
    assert client.receive(message) == [InputAudioFrame(pcm=b"\3\0", sample_rate=16000)]
    assert [item for m in server.clear() for item in client.receive(m)] == [Cleared()]


def test_what_a_caller_agent_does_is_what_a_caller_does() -> None:
    """Typed words, keys, an interrupt, an application's message, reports and the hanging up."""
    server, client, _ = pair()
    said: list[Message] = []
    for frame in (
        TranscriptFrame("hello"),
        TranscriptFrame("hel", final=False),
        DigitsFrame(digits="1w2"),
        TellFrame(kind="interrupt"),
        TellFrame(kind="map", data=5),
    ):
        said += client.tell(frame)
    said += [*client.played(480), *client.end("enough")]
    assert client.end("again") == []
    received = [item for message in said for item in server.receive(message)]
    assert received == [
        TranscriptFrame("hello"),
        DigitReceived("1"),
        DigitReceived("2"),
        InterruptFrame(reason="the caller asked for it"),
        AppMessage(kind="map", data=5),
        Played(480),
        CallEnded("the caller hung up"),
    ]
    assert server.faults == 0


@pytest.mark.parametrize("message", ["not ours", b"\x00", msgspec.msgpack.encode({"type": "clear"})])
def test_a_server_of_another_kind_is_noticed_at_once(message: Message) -> None:
    """The client does not wait for a start that never comes."""
    with pytest.raises(WireError, match="server"):
        FramesClientWire(AudioFormat(16000), AudioFormat(16000)).receive(message)


def test_a_server_with_other_rates_than_were_asked_for_is_noticed() -> None:
    """The error names both."""
    server = FramesWire()
    server.receive(written("frames", type="start", sample_rate=8000, wants=8000))
    with pytest.raises(WireError, match="8000 Hz x1 and hears 8000 Hz x1"):
        FramesClientWire(AudioFormat(16000), AudioFormat(24000)).receive(server.answers()[0])


@given(st.lists(st.binary(max_size=60) | st.text(max_size=30) | NEARLY.map(msgspec.msgpack.encode), max_size=10))
def test_no_message_of_a_server_breaks_a_client(messages: list[Message]) -> None:
    """What is not understood is passed over; sound of another rate, too."""
    _, client, _ = pair()
    for message in messages:
        for item in client.receive(message):
            assert isinstance(item, InputAudioFrame | AppMessage | Cleared | CallEnded)
    sound = msgspec.msgpack.encode(OutputAudioFrame(pcm=bytes(4), sample_rate=8000))
    assert client.receive(sound) == []


# --------------------------------------------------------------------------------------------- the documentation


def documented() -> list[dict[str, Any]]:
    text = DOCS.read_text()
    return [json.loads(found) for found in re.findall(r"^\| `(\{.*?\})` \|", text, re.MULTILINE) for found in found.split("` `")]


def test_every_message_of_the_documentation_is_one() -> None:
    """Its examples are understood, and every message there is stands in it."""
    examples = documented()
    said_by_clients = {"start", "played", "text", "digits", "interrupt", "mute", "floor", "app", "ping", "end"}
    for message in examples:
        if message["type"] in said_by_clients:
            FromClient.decode(json.dumps(message))
    kinds = {message["type"] for message in examples}
    assert kinds >= RESERVED | said_by_clients
    server = begun("json")
    said = [read(m) for m in server.answers()] + [m for _, m in TOLD if m["type"] in RESERVED]
    for message in said:
        example = next(e for e in examples if e["type"] == message["type"])
        assert set(example) == set(message)
    assert set(next(e for e in examples if e["type"] == "start")) <= set(Start.__struct_fields__) | {"type"}


@pytest.mark.parametrize(
    ("options", "says"), [({"speaks": 4000}, "speaks is 4000"), ({"ahead_s": -1}, "ahead_s is -1"), ({"resume_s": -1}, "resume_s is -1")]
)
def test_options_that_make_no_sense_are_errors(options: dict[str, Any], says: str) -> None:
    """The error names the option."""
    with pytest.raises(ValueError, match=says):
        FramesOptions(**options)
