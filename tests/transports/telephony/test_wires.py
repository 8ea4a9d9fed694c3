"""What each carrier's wire makes of its carrier's messages, good and bad, and what it sends."""

from __future__ import annotations

import base64
import json
import logging
import random
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from voiceflow import AudioFormat, InputAudioFrame
from voiceflow.frames import SayFrame
from voiceflow.phone import KEYS, DigitReceived
from voiceflow.transports.telephony.carrier import MESSAGE_LIMIT, Carrier
from voiceflow.transports.telephony.exotel import ExotelWire
from voiceflow.transports.telephony.plivo import PlivoWire
from voiceflow.transports.telephony.telnyx import TelnyxSound, TelnyxWire
from voiceflow.transports.telephony.twilio import TwilioWire
from voiceflow.transports.telephony.vonage import VonageWire
from voiceflow.transports.wire import CallEnded, CallStarted, MarkReturned, Received, Wire, WireError

from .carriers import DIALECTS, Dialect, chunks, ramp, spoken

WIRES: dict[str, type[Carrier]] = {w.name: w for w in (TwilioWire, TelnyxWire, PlivoWire, VonageWire, ExotelWire)}
SOUNDS = [
    ("twilio", {}, {}),
    ("telnyx", {}, {}),
    ("telnyx", {"sound": TelnyxSound("PCMA")}, {"encoding": "alaw"}),
    ("telnyx", {"sound": TelnyxSound("L16", 16000)}, {"encoding": "l16", "rate": 16000, "order": ">"}),
    ("telnyx", {"sound": TelnyxSound("L16", 16000, "little")}, {"encoding": "l16", "rate": 16000}),
    ("plivo", {}, {}),
    ("plivo", {}, {"encoding": "l16", "rate": 8000}),
    ("plivo", {"byte_order": "big"}, {"encoding": "l16", "rate": 16000, "order": ">"}),
    ("vonage", {"sample_rate": 8000}, {"rate": 8000}),
    ("vonage", {}, {"rate": 16000}),
    ("vonage", {"sample_rate": 24000}, {"rate": 24000}),
    ("exotel", {}, {"rate": 8000}),
    ("exotel", {}, {"rate": 16000}),
    ("exotel", {}, {"rate": 24000}),
]
each_sound = pytest.mark.parametrize(("name", "options", "form"), SOUNDS, ids=[f"{n}-{i}" for i, (n, _, _) in enumerate(SOUNDS)])
each = pytest.mark.parametrize("name", WIRES)


def begun(name: str, options: dict | None = None, **form) -> tuple[Carrier, Dialect]:
    """A wire whose call has started."""
    wire, dialect = WIRES[name](**(options or {})), DIALECTS[name](**form)
    received = take(wire, dialect.begin())
    assert [type(item) for item in received] == [CallStarted]
    assert wire.faults == 0
    return wire, dialect


def take(wire: Carrier, messages: list) -> list:
    """All that these messages say."""
    return [item for message in messages for item in wire.receive(message)]


def sound(received) -> bytes:
    return b"".join(frame.pcm for frame in received if isinstance(frame, InputAudioFrame))


# ------------------------------------------------------------------------------------------ what is sound and right


@each_sound
def test_the_callers_sound_arrives_as_it_was_sent(name, options, form) -> None:
    """To the sample, at the rate that the start says."""
    wire, dialect = begun(name, options, **form)
    pcm = ramp(dialect.rate)
    pieces = chunks(pcm, dialect.rate)
    frames = [item for number, piece in enumerate(pieces, 1) for item in wire.receive(dialect.media(number, piece))]
    assert len(frames) == len(pieces)
    assert {(f.sample_rate, f.channels) for f in frames} == {(dialect.rate, 1)}
    assert wire.hears == AudioFormat(dialect.rate)
    assert sound(frames) == dialect.decode(dialect.encode(pcm))
    assert wire.faults == 0


@each_sound
@pytest.mark.parametrize("samples", [1, 159, 160, 161, 1600, 80_000])
def test_the_agents_sound_is_played_as_it_was_given(name, options, form, samples) -> None:
    """Whole, in messages of a size that the carrier takes; what fills up the last of them is silence."""
    wire, dialect = begun(name, options, **form)
    pcm = ramp(samples)
    messages = wire.audio(pcm)
    if name == "telnyx" and samples < dialect.rate // 50:
        return  # the line gives whole blocks of 20 ms
    played = spoken(messages, dialect)
    assert dialect.faults == []
    right = dialect.decode(dialect.encode(pcm))
    assert played[: len(right)] == right
    assert played[len(right) :].strip(b"\0") == b""
    assert wire.audio(b"") == []


@each_sound
def test_a_block_of_the_speaker_is_one_message(name, options, form) -> None:
    """At the wire's own block length nothing is filled up."""
    wire, dialect = begun(name, options, **form)
    pcm = ramp(round(wire.speaks.sample_rate * wire.block_ms / 1000))
    messages = wire.audio(pcm)
    assert len(messages) == 1
    assert len(spoken(messages, dialect)) == len(pcm)
    assert dialect.faults == []
    if name == "exotel":
        assert wire.ahead_s == wire.block_ms / 500, "two blocks: a first one may wait until there is sound for all of it"


def test_half_a_sample_is_refused() -> None:
    """An odd number of bytes is a fault of this side, and says so."""
    for name, options, form in SOUNDS:
        wire, _ = begun(name, options, **form)
        with pytest.raises(ValueError, match="sample"):
            wire.audio(b"\1\2\3")


@each
def test_a_start_says_whose_call_it_is(name) -> None:
    """Number, caller, called and what the application gave to pass on."""
    wire = WIRES[name]()
    parameters = {"client_state": "state"} if name == "telnyx" else {"plan": "gold7"}
    dialect = DIALECTS[name](rate=wire.hears.sample_rate, caller="15551234567", called="15557654321", parameters=parameters)
    received = take(wire, dialect.begin())
    assert received == [CallStarted(dialect.call, "15551234567", "15557654321", parameters)]


@each
def test_keys_marks_and_the_end_are_told(name) -> None:
    """All sixteen keys; marks by their names; after the stop the call is over."""
    wire, dialect = begun(name, rate=WIRES[name]().hears.sample_rate)
    assert [wire.receive(dialect.key(key))[0] for key in KEYS] == [DigitReceived(key) for key in KEYS]
    assert wire.receive(dialect.mark("1234")) == [MarkReturned("1234")]
    for message in dialect.stop():
        [ended] = wire.receive(message)
        assert isinstance(ended, CallEnded)
        assert dialect.name in ended.reason


@each
def test_marks_and_clears_are_the_carriers_own(name) -> None:
    """Each carrier understands them; what it has no word for is not sent."""
    wire, dialect = begun(name, rate=WIRES[name]().hears.sample_rate)
    assert [dialect.understand(m) for m in wire.mark("17") + wire.clear()] == [("mark", "17"), ("clear", None)]
    assert dialect.faults == []
    assert wire.tell(SayFrame("hello")) == []


@each
def test_nothing_is_sent_before_the_start_or_after_the_end(name) -> None:
    """Neither sound, marks nor clears; and after our own end nothing comes in either."""
    wire, dialect = WIRES[name](), DIALECTS[name](rate=WIRES[name]().hears.sample_rate)

    def all_of_it() -> list:
        return wire.audio(b"\0\0" * 4000) + wire.mark("1") + wire.clear()

    assert all_of_it() == []
    for message in dialect.begin():
        wire.receive(message)
    assert all_of_it() != []
    assert wire.end("goodbye") == []
    assert all_of_it() == []
    assert wire.receive(dialect.media(1, b"\0\0" * 160)) == []


@pytest.mark.parametrize("name", ["twilio", "telnyx", "exotel"])
def test_after_the_stop_nothing_is_accepted_or_sent(name) -> None:
    """B47: media after stop is passed over."""
    wire, dialect = begun(name)
    wire.receive(dialect.stop()[0])
    assert wire.receive(dialect.media(1, b"\0\0" * 160)) == []
    assert wire.faults == 1
    assert wire.audio(b"\0\0" * 4000) + wire.mark("1") + wire.clear() == []


@each
def test_every_wire_keeps_the_contract(name) -> None:
    """Its attributes are there before the start and of the right kind."""
    wire: Wire = WIRES[name]()
    assert wire.name == name
    assert (wire.proof, wire.clears, wire.faults) == ("marks", True, 0)
    assert wire.ahead_s == (0.4 if name == "exotel" else 0.2)
    with pytest.raises(ValueError, match="ahead_s"):
        WIRES[name](ahead_s=-1)


# ------------------------------------------------------------------------------------------------------ B47: what is not


def broken(dialect: Dialect) -> list[str | bytes]:
    """What a carrier, a proxy or a stranger may send in place of a message."""
    good = dialect.media(3, b"\1\0" * 160)
    texts: list[str | bytes] = [
        "not json", "null", "[]", "{}", "1", '""', '{"event":"nonsense"}', '{"event":null}', '{"event":{}}',
        '{"event":"media"}', '{"event":"media","media":{}}', '{"event":"media","media":null}', '{"event":"dtmf"}',
        '{"event":"mark"}', '{"event":"mark","mark":{}}', '{"event":"mark","mark":{"name":""}}', '{"event":"playedStream","name":""}',
        '{"event":"start"}', '{"event":"start","start":{}}', '{"event":"websocket:dtmf"}', '{"event":"websocket:notify","payload":{}}',
        '{"event":"websocket:notify","payload":{"mark":7}}', '{"event":"websocket:connected"}',
        "[" * 30_000, '{"event":' * 9000, "\ud800", "x" * 1_000_000,
    ]  # fmt: skip
    if isinstance(good, str):
        media = json.loads(good)
        for payload in ("//8", "*$%", "", "A" * 1_000_000, 7, None, "ÿÿÿÿ", "AAAA\n"):
            texts.append(json.dumps(media | {"media": media["media"] | {"payload": payload}}))
        if dialect.name != "exotel":
            texts.append(dialect.media(3, b"\1\0" * 160, track="outbound"))
        texts.append(random.Random(1).randbytes(320))
    else:
        texts += [b"", b"\1\2\3", b"\0" * 1_000_000]
    for digit in ("", "12", "x", "é"):
        texts.append(dialect.key(digit))
    return texts


@each
def test_broken_messages_are_passed_over_and_the_call_lives(name, caplog) -> None:
    """Each is one fault and gives nothing; each kind is logged once; good sound around them is whole."""
    wire, dialect = begun(name, rate=WIRES[name]().hears.sample_rate)
    caplog.set_level(logging.WARNING)
    items = broken(dialect)
    for _ in range(3):
        for message in items:
            assert wire.receive(message) == [], message[:60]
    assert wire.faults == 3 * len(items)
    assert 3 <= len(caplog.records) <= 12
    assert len({record.getMessage().partition("(")[0] for record in caplog.records}) == len(caplog.records)
    assert all(len(record.getMessage()) < 300 for record in caplog.records)
    [frame] = wire.receive(dialect.media(1, ramp(160)))
    assert isinstance(frame, InputAudioFrame)


@each
def test_sound_before_the_start_is_kept_up_to_a_second(name) -> None:
    """B47: it follows the start; nothing is sent before; what is more than a second of it is left out and counted."""
    wire, dialect = WIRES[name](), DIALECTS[name](rate=WIRES[name]().hears.sample_rate)
    pieces = chunks(ramp(dialect.rate * 2), dialect.rate)
    for number, piece in enumerate(pieces[:5], 1):
        assert wire.receive(dialect.media(number, piece)) == []
    assert wire.faults == 0
    for number, piece in enumerate(pieces[5:], 6):
        wire.receive(dialect.media(number, piece))
    assert wire.faults == 50
    started, *frames = take(wire, dialect.begin())
    assert isinstance(started, CallStarted)
    assert sound(frames) == dialect.decode(dialect.encode(b"".join(pieces[:50])))


@pytest.mark.parametrize("name", ["twilio", "telnyx", "plivo", "exotel"])
def test_chunks_are_put_in_order(name) -> None:
    """B47: 5, 7, 6, 8, 8 is heard as 5, 6, 7, 8."""
    wire, dialect = begun(name)
    pieces = chunks(ramp(160 * 9), 8000)
    order = [1, 2, 3, 4, 5, 7, 6, 8, 8, 9]
    received = [item for n in order for item in wire.receive(dialect.media(n, pieces[n - 1]))]
    assert sound(received) == dialect.decode(dialect.encode(b"".join(pieces)))
    assert wire.faults == 1


@pytest.mark.parametrize("name", ["twilio", "telnyx", "plivo", "exotel"])
def test_a_chunk_that_comes_twice_is_heard_once(name) -> None:
    """However often that happens in a call."""
    wire, dialect = begun(name)
    pieces = chunks(ramp(160 * 50), 8000)
    received = [item for n, piece in enumerate(pieces, 1) for _ in range(2) for item in wire.receive(dialect.media(n, piece))]
    assert sound(received) == dialect.decode(dialect.encode(b"".join(pieces)))
    assert wire.faults == 50


@pytest.mark.parametrize("name", ["twilio", "telnyx", "plivo", "exotel"])
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_small_disorder_is_put_right(name, data) -> None:
    """Chunks that are late by no more than four others are heard once each, in order; none waits for more than five."""
    wire, dialect = begun(name)
    pieces = chunks(ramp(160 * 30), 8000)
    lateness = data.draw(st.lists(st.integers(0, 4), min_size=30, max_size=30))
    order = sorted(range(30), key=lambda n: (n + lateness[n], n))
    doubled = data.draw(st.sets(st.integers(0, 29), max_size=3))
    received, heard = [], 0
    for came, n in enumerate(order, 1):
        for _ in range(2 if n in doubled else 1):
            received += wire.receive(dialect.media(n + 1, pieces[n]))
        heard = len(sound(received)) // 320
        assert came - heard <= 5
    assert sound(received) == dialect.decode(dialect.encode(b"".join(pieces)))
    assert wire.faults == len(doubled)


@pytest.mark.parametrize("name", ["twilio", "telnyx", "plivo", "exotel"])
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(numbers=st.lists(st.one_of(st.just(1), st.integers(0, 40), st.integers(-3, 2**63 - 1)), min_size=20, max_size=80))
def test_whatever_the_numbers_say_the_caller_is_heard(name, numbers) -> None:
    """Lost, repeated or senseless numbers cost at most a few chunks at a time, never the rest of the call."""
    wire, dialect = begun(name)
    heard = [len(wire.receive(dialect.media(number, b"\1\0" * 160))) for number in numbers]
    for _ in range(12):  # a carrier whose numbers stand still
        heard.append(len(wire.receive(dialect.media(7, b"\1\0" * 160))))
    assert sum(heard[-4:]) >= 3 or sum(heard[-12:]) >= 4
    assert sum(heard) + wire.faults <= len(numbers) + 12


def test_a_chunk_that_is_lost_delays_no_more_than_five() -> None:
    """Number 3 never comes: 4 to 8 wait, with the ninth all are heard; from then on none waits."""
    wire, dialect = begun("telnyx")
    got = [len(wire.receive(dialect.media(n, b"\1\0" * 160))) for n in (1, 2, 4, 5, 6, 7, 8, 9, 10)]
    assert got == [1, 1, 0, 0, 0, 0, 0, 6, 1]


@pytest.mark.parametrize("name", ["twilio", "telnyx", "exotel"])
def test_chunks_that_wait_are_heard_at_the_stop(name) -> None:
    """Nothing more will come before them."""
    wire, dialect = begun(name)
    for n in (1, 3, 4):
        wire.receive(dialect.media(n, b"\1\0" * 160))
    received = wire.receive(dialect.stop()[0])
    assert [type(item) for item in received] == [InputAudioFrame, InputAudioFrame, CallEnded]


@pytest.mark.parametrize("name", ["twilio", "plivo", "exotel"])
def test_a_second_start_of_the_same_call_names_the_stream_anew(name) -> None:
    """B47: from then on the new number is used; it is no second call, and its chunks are numbered anew."""
    wire, dialect = begun(name)
    pieces = chunks(ramp(160 * 4), 8000)
    for n in (1, 2):
        wire.receive(dialect.media(n, pieces[n - 1]))
    again = DIALECTS[name](stream="MZother")
    assert take(wire, again.begin()) == []
    assert again.understand(wire.clear()[0]) == ("clear", None)
    assert again.faults == []
    assert sound(wire.receive(again.media(1, pieces[2]))) == dialect.decode(dialect.encode(pieces[2]))


@each
def test_another_call_in_the_same_stream_is_the_end(name) -> None:
    """No caller hears another's agent."""
    rate = WIRES[name]().hears.sample_rate
    wire, _ = begun(name, rate=rate)
    with pytest.raises(WireError, match="second call") as refused:
        take(wire, DIALECTS[name](rate=rate, call="CAother").begin())
    assert refused.value.code == 1008


@each
@pytest.mark.parametrize("field", ["call", "caller"])
def test_a_number_of_unreasonable_length_is_passed_over(name, field) -> None:
    """It would stand in every line of the log."""
    wire = WIRES[name]()
    rate = wire.hears.sample_rate
    assert take(wire, DIALECTS[name](rate=rate, **{field: "1" * 10_000}).begin()) == []
    assert wire.faults == 1
    assert wire.audio(b"\0\0" * 1600) == []
    assert len(take(wire, DIALECTS[name](rate=rate).begin())) == 1


@each
def test_sound_that_is_not_understood_ends_the_call_and_says_why(name) -> None:
    """A wrong encoding or rate would be noise; the text names both."""
    for encoding, rate in (("G722", 8000), ("audio/mpeg", 44100), ("audio/l16;rate=99", 99)):
        dialect = DIALECTS[name](rate=8000)
        texts = [m.replace("audio/x-mulaw", encoding).replace("PCMU", encoding).replace("audio/x-raw", encoding) for m in dialect.begin()]
        texts = [m.replace("audio/l16;rate=8000", encoding).replace("8000", str(rate)) for m in texts]
        with pytest.raises(WireError, match=f"{name} sends '{encoding[:3]}") as refused:
            take(WIRES[name](), texts)
        assert refused.value.code == 1003


@pytest.mark.parametrize("name", ["plivo", "vonage", "exotel"])
def test_sound_that_changes_within_a_call_ends_it(name) -> None:
    """Nodes behind the wire were made for one format."""
    wire, _ = begun(name, rate=8000, encoding="l16")
    with pytest.raises(WireError, match="changes the sound"):
        take(wire, DIALECTS[name](rate=16000, encoding="l16").begin())


SCRAP = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["event", "media", "start", "payload", "name"]), inner, max_size=4),
    max_leaves=8,
)  # fmt: skip
EVENTS = ["connected", "start", "media", "dtmf", "mark", "stop", "error", "playedStream", "clearedAudio"]
EVENTS += ["websocket:connected", "websocket:dtmf", "websocket:notify", "websocket:cleared"]


@each
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_any_message_is_understood_passed_over_or_ends_the_call_with_a_reason(name, data) -> None:
    """Whatever comes, changed or invented: nothing but WireError is ever raised."""
    rate = WIRES[name]().hears.sample_rate
    wire, dialect = WIRES[name](), DIALECTS[name](rate=rate)
    good = [*dialect.begin(), dialect.media(1, b"\1\0" * 160), dialect.key("5"), dialect.mark("1"), *dialect.stop()]
    strays = st.one_of(
        st.text(max_size=60),
        st.binary(max_size=700),
        SCRAP.map(json.dumps),
        st.builds(lambda event, rest: json.dumps({"event": event, event: rest} | (rest if isinstance(rest, dict) else {})),
                  st.sampled_from(EVENTS), SCRAP),
        st.sampled_from(good),
        st.builds(lambda text, at, put: text[:at] + put + text[at + 1 :],
                  st.sampled_from([m for m in good if isinstance(m, str)]), st.integers(0, 300), st.text(max_size=2)),
    )  # fmt: skip
    for message in data.draw(st.lists(strays, min_size=1, max_size=20)):
        try:
            for item in wire.receive(message):
                if isinstance(item, InputAudioFrame):
                    assert len(item.pcm) % 2 == 0
                    assert item.pcm
        except WireError as error:
            assert name in str(error)  # noqa: PT017 - it may or may not come
            break
    wire.audio(b"\0\0" * 160)
    wire.clear()


def test_a_long_message_is_still_taken() -> None:
    """100 ms at 24 kHz, far below the limit."""
    wire, dialect = begun("exotel", rate=24000)
    message = dialect.media(1, b"\1\0" * 2400)
    assert len(message) < MESSAGE_LIMIT / 8
    assert len(wire.receive(message)) == 1


@pytest.mark.parametrize(
    ("headers", "parameters"),
    [
        ("userId=12345;sessionId=abc-xyz", {"userId": "12345", "sessionId": "abc-xyz"}),
        ("a=1,b=2", {"a": "1", "b": "2"}),
        ('{"a": "1", "b": 2, "c": [3]}', {"a": "1", "b": "2"}),
        ("{broken", {}),
        ("", {}),
        ("=x;y", {}),
    ],
)
def test_plivos_extra_headers_are_read_in_each_of_its_spellings(headers, parameters) -> None:
    """Its pages, its XML and its SDK differ."""
    [start] = DIALECTS["plivo"]().begin()
    message = json.dumps(json.loads(start) | {"extra_headers": headers})
    [started] = PlivoWire().receive(message)
    assert started.parameters == parameters


def test_vonages_older_keys_are_read_too() -> None:
    """The digit stands in an object of its own."""
    wire, _ = begun("vonage", rate=16000)
    assert wire.receive('{"event":"websocket:dtmf","dtmf":{"digit":"7"}}') == [DigitReceived("7")]


def test_telnyx_says_what_it_refused_once(caplog) -> None:
    """An error of the carrier's is logged by its code and title; the call goes on."""
    wire, _ = begun("telnyx")
    error = {"event": "error", "stream_id": "x", "payload": {"code": 100004, "title": "invalid_media", "detail": "secret"}}
    assert [wire.receive(json.dumps(error)) for _ in range(3)] == [[], [], []]
    assert [record.getMessage() for record in caplog.records] == [
        "telnyx refused a message of ours: 100004 'invalid_media'; more of these are not logged"
    ]
    assert wire.faults == 0


@pytest.mark.parametrize(
    "bad", [{"codec": "G722"}, {"sample_rate": 16000}, {"codec": "L16", "sample_rate": 11025}, {"byte_order": "middle"}]
)
def test_a_sound_that_telnyx_does_not_offer_is_refused(bad) -> None:
    """With the choice that there is."""
    with pytest.raises(ValueError, match=r"must be|has 8000 Hz"):
        TelnyxSound(**bad)


def test_both_laws_are_bit_exact_through_a_wire() -> None:
    """B44: each of the 256 bytes is the same after hearing and speaking it, but for the second zero of mu-law."""
    data = np.arange(256, dtype=np.uint8).tobytes()
    for codec, encoding in (("PCMU", "mulaw"), ("PCMA", "alaw")):
        wire, dialect = begun("telnyx", {"sound": TelnyxSound(codec)}, encoding=encoding)  # type: ignore[arg-type]
        pcm = dialect.decode(data)
        [frame] = wire.receive(dialect.media(1, pcm))
        assert frame.pcm == pcm
        [message] = wire.audio(frame.pcm)
        assert dialect.understand(message) == ("sound", pcm)


def exotel_in_order() -> tuple[ExotelWire, Callable[[int, bytes], list[Received]]]:
    """A call of a carrier that numbers its chunks, and what comes of one."""
    wire = ExotelWire()
    wire.receive(json.dumps({"event": "start", "stream_sid": "S", "start": {"call_sid": "C", "stream_sid": "S"}}))

    def chunk(number: int, pcm: bytes) -> list[Received]:
        media = {"chunk": number, "payload": base64.b64encode(pcm).decode()}
        return wire.receive(json.dumps({"event": "media", "stream_sid": "S", "media": media}))

    return wire, chunk


def test_half_a_sample_that_is_ahead_of_its_turn_spoils_nothing() -> None:
    """It is passed over when it comes: the sound behind it is heard, and the stop ends the call."""
    wire, chunk = exotel_in_order()
    chunk(1, bytes(320))
    assert chunk(3, b"\1\2\3") == []
    assert wire.faults == 1
    chunk(4, bytes(320))
    assert len(chunk(2, bytes(320))) == 1
    *sound, end = wire.receive(json.dumps({"event": "stop", "stop": {"call_sid": "C"}}))
    assert [len(frame.pcm) for frame in sound] == [320]
    assert isinstance(end, CallEnded)


def test_what_waits_is_heard_when_the_stream_begins_again() -> None:
    """A second start of the same call."""
    wire, chunk = exotel_in_order()
    chunk(1, bytes(320))
    assert chunk(3, bytes(160)) == []
    again = wire.receive(json.dumps({"event": "start", "stream_sid": "T", "start": {"call_sid": "C", "stream_sid": "T"}}))
    assert [len(frame.pcm) for frame in again] == [160]
