"""PlayHT's text to speech: the vendor's last client against our server, and our node against the same one. The service itself is closed."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import logging
import struct
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("aiohttp", reason="pip install -e '.[services]'")
pytest.importorskip("websockets", reason="pip install -e '.[services]'")

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conformance.elevenlabs_call import VoiceCall
from tests.conformance.environments import BUILD_S, python_of
from tests.conformance.servers.elevenlabs_server import heard, sound_of
from tests.conformance.servers.playht_server import KEY, TOKEN, USER, VOICE, Fault, PlayHTServer, wav_header
from tests.conformance.servers.sockets import SocketLoop, over_sockets
from voiceflow import LLMEnded, SentenceFrame
from voiceflow.audio import mulaw_decode, mulaw_encode
from voiceflow.processors.services.playht_tts import PlayHTOptions, PlayHTTTS
from voiceflow.processors.services.playht_wire import WavSound, read_message, socket_address
from voiceflow.processors.services.retry import ServiceError
from voiceflow.testing import check_processor

ONE, TWO, THREE = "Good day to you, my friend.", "This is the second sentence!", "And here comes number 3?"
TEXT = f"{ONE} {TWO} {THREE}"
RATE = 24000


def options(server: PlayHTServer | str, **more: Any) -> PlayHTOptions:
    url = server if isinstance(server, str) else server.url
    return PlayHTOptions(**{"voice": VOICE, "base_url": url, "api_key": KEY, "user_id": USER, **more})


def call_of(server: PlayHTServer, **more: Any) -> VoiceCall:
    return VoiceCall(PlayHTTTS(options(server, **more)))


def squeezed(text: str) -> str:
    """Without blanks: each sentence is a request, and none is spoken between them."""
    return "".join(text.split())


# --------------------------------------------------------------------------------------------- the vendor's client

CLIENT = """
import struct, sys
from pyht import Client, TTSOptions
from pyht.client import Format
from pyht.inference_coordinates import InferenceCoordinatesOptions
url, user, key, voice, protocol, *texts = sys.argv[1:]
told = Client.AdvancedOptions(inference_coordinates_options=InferenceCoordinatesOptions(api_url=url + "/api/v4"))
client = Client(user, key, auto_connect=False, advanced=told)
for text in texts:
    chunks = list(client.tts(text, TTSOptions(voice, Format.FORMAT_WAV, 24000), "Play3.0-mini", protocol))
    sound = b"".join(chunks)
    sys.stdout.buffer.write(struct.pack("<II", len(chunks), len(sound)) + sound)
"""


@pytest.fixture(scope="module")
def pyht() -> Path:
    return python_of("pyht", ["pyht==0.1.14"])


@pytest.mark.timeout(BUILD_S + 60)
@pytest.mark.parametrize("protocol", ["ws", "http"])
def test_the_official_client_hears_each_request(pyht: Path, protocol: str) -> None:
    """Several on one connection, each a WAV in chunks that say its text."""

    async def scene() -> bytes:
        async with PlayHTServer(first_s=0.01, each_s=0.001) as server:
            command = [str(pyht), "-W", "ignore", "-c", CLIENT, server.url, USER, KEY, VOICE, protocol, ONE, TWO, THREE]
            pipe = asyncio.subprocess.PIPE
            process = await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=pipe)
            async with asyncio.timeout(60):
                said, errors = await process.communicate()
            assert process.returncode == 0, errors.decode()[-2000:]
            assert server.refused == []
            assert len(server.connections) == (protocol == "ws")
            return said

    said = asyncio.run(scene())
    texts = []
    while said:
        chunks, size = struct.unpack_from("<II", said)
        assert chunks > 1
        assert said[8:12] == b"RIFF"
        texts.append(heard(said[8 + len(wav_header(RATE)) : 8 + size], RATE))
        said = said[8 + size :]
    assert texts == [ONE, TWO, THREE]


# ------------------------------------------------------------------------------------------------------- our node


@pytest.mark.parametrize("spelling", ["websocket_urls", "webSocketUrls", "websocket_url"])
@pytest.mark.parametrize("auth_status", [200, 201])
@over_sockets
async def test_an_utterance_is_spoken_with_its_words(spelling: str, auth_status: int) -> None:
    """Every character once and in order, each word once and in the sound of its sentence, one end; wherever the address stands."""
    async with PlayHTServer(spelling=spelling, auth_status=auth_status) as server, call_of(server) as call:
        assert squeezed(await call.speak(ONE, TWO, THREE)) == squeezed(TEXT)
        words = call.words()
        assert [word.text for word in words] == TEXT.split()
        assert all(word.estimated for word in words)
        first_s = 0.02 * len(ONE)
        assert sum(word.start < first_s - 1e-6 for word in words) == len(ONE.split())
        assert call.ends() == 1
        assert call.reports.errors == []
    assert server.refused == []


@over_sockets
async def test_sound_comes_before_the_last_text_is_there() -> None:
    """The first sentence is heard while the second is not even written; the second is heard when it comes."""
    async with PlayHTServer() as server, call_of(server) as call:
        call.begin()
        call.say(ONE)
        await call.sound()
        assert server.spoken == [ONE]
        await asyncio.sleep(0.7)
        assert call.text() == ONE
        call.say(TWO)
        call.end()
        await call.ended()
        assert squeezed(call.text()) == squeezed(ONE + TWO)
        assert call.reports.errors == []


@over_sockets
async def test_the_connection_is_open_before_the_first_text() -> None:
    """The first request waits for nothing but its sound."""
    async with PlayHTServer(first_s=0.1) as server, call_of(server) as call:
        await asyncio.sleep(0.5)
        assert len(server.connections) == 1
        began = call.session.time()
        call.begin()
        call.say(ONE)
        await call.sound()
        assert call.session.time() - began < 0.15
        call.end()
        await call.ended()


@pytest.mark.parametrize("after_s", [0.0, 0.05, 0.15, 0.3, 0.6])
@over_sockets
async def test_cancel_in_mid_utterance_and_the_next_turn_is_clean(after_s: float) -> None:
    """Nothing of the old utterance comes any more, the service is made to stop it, and the next is whole and does not wait."""
    async with PlayHTServer(each_s=0.1) as server, call_of(server) as call:
        first = call.begin()
        call.say(ONE, TWO, THREE)
        await asyncio.sleep(after_s)
        interruption = call.session.interrupt("the caller speaks")
        before = len(call.frames(first))
        began = call.session.time()
        assert squeezed(await call.speak("And now this.")) == "Andnowthis."
        assert call.session.time() - began < 1.0
        await asyncio.sleep(2.0)
        assert len(call.frames(first)) == before
        assert call.ends(first) == 0
        assert call.reports.errors == []
        if after_s:
            assert interruption.acknowledged[call.node.name] is not None
            assert interruption.acknowledged[call.node.name] < 0.02
            assert len(server.connections) == 2
            assert server.connections[0].closed is not None
            assert len(server.connections[0].commands) - server.connections[0].finished == 1
    assert server.refused == []


@over_sockets
async def test_interrupted_again_and_again(caplog: pytest.LogCaptureFixture) -> None:
    """Each time before any sound: an interrupt is no failure, so no pause grows and nothing is given up; the next turn does not wait."""
    async with PlayHTServer() as server, call_of(server) as call:
        for turn in range(12):
            call.begin()
            call.say(ONE, TWO)
            await asyncio.sleep(0.05)
            call.session.interrupt("again")
            await asyncio.sleep(0.1 * (turn % 2))
        began = call.session.time()
        call.begin()
        call.say(THREE)
        await call.sound()
        assert call.session.time() - began < 0.15
        call.end()
        await call.ended()
        assert call.text() == THREE
        assert call.reports.errors == []
        assert len(server.connections) == 13
    assert [record for record in caplog.records if record.name == "voiceflow" and record.levelno >= logging.WARNING] == []
    assert server.refused == []


@over_sockets
async def test_a_hundred_turns_on_one_connection() -> None:
    """One connection, one address asked for; nothing that a turn made is left after it."""
    async with PlayHTServer(first_s=0.05, each_s=0.0, chars=40) as server, call_of(server) as call:
        counted = []
        for number in range(100):
            assert await call.speak(f"This is turn {number}.") == f"This is turn {number}."
            if number % 45 == 5:
                call.sink.frames.clear()
                gc.collect()
                counted.append(Counter(type(thing).__name__ for thing in gc.get_objects() if "voiceflow" in str(type(thing).__module__)))
        assert all(counted[-1][name] <= counted[0][name] for name in counted[-1]), counted[-1] - counted[0]
        assert len(server.connections) == server.asked == 1
        assert server.connections[0].finished == 100
        assert call.reports.errors == []
    assert server.refused == []


@given(st.lists(st.integers(1, 60), min_size=1, max_size=4).map(lambda few: [*few, 4063, 1697]), st.sampled_from(["wav", "mulaw"]))
@settings(max_examples=20, deadline=None)
def test_odd_chunk_sizes(sizes: list[int], output_format: str) -> None:
    """B32: however the sound is cut, inside its header and inside a sample too: the same sound, no click of a header, the same words."""

    @over_sockets
    async def scene() -> None:
        rate = RATE if output_format == "wav" else 8000
        async with (
            PlayHTServer(each_s=0.0, sizes=lambda: itertools.cycle(sizes)) as server,
            call_of(server, output_format=output_format, sample_rate=rate) as call,
        ):
            await call.speak(ONE, TWO)
            expected = sound_of(ONE + TWO, rate)
            if output_format == "mulaw":
                expected = mulaw_decode(mulaw_encode(expected))
            assert call.pcm() == expected
            assert [word.text for word in call.words()] == f"{ONE} {TWO}".split()
            assert all(frame.pcm for frame in call.frames())
            assert call.reports.errors == []

    scene()


@over_sockets
async def test_what_cannot_be_spoken_makes_no_request() -> None:
    """An utterance without letter or digit ends at once."""
    async with PlayHTServer() as server, call_of(server) as call:
        for piece in ("...", "—", "😊"):
            assert await call.speak(piece) == ""
        assert await call.speak() == ""
        assert server.spoken == []
        assert await call.speak("5...") == "5..."


# -------------------------------------------------------------------------------------------------- what goes wrong

BREAKS = {
    "cut": Fault(cut=True),
    "closed": Fault(close=(1011, "")),
    "goodbye": Fault(close=(1000, "")),
    "error": Fault(error={"error": f"Internal failure of {KEY}", "request_id": "x"}),
    "silent": Fault(silent=True),
}


@pytest.mark.parametrize("after", [0, 1, 4, 7])
@pytest.mark.parametrize("fault", BREAKS)
@over_sockets
async def test_a_break_in_mid_utterance_is_mended(fault: str, after: int) -> None:
    """It goes on with the first word that was not given out: each word once, at most one of them begun twice in the sound; nobody is told."""
    broken = [replace(BREAKS[fault], after=after)]
    async with PlayHTServer(faults=broken, each_s=0.05) as server, call_of(server) as call:
        said = squeezed(await call.speak(ONE, TWO, THREE))
        assert [word.text for word in call.words()] == TEXT.split()
        assert said.endswith(squeezed(server.spoken[-1]))
        assert len(server.connections) == 2
        assert call.ends() == 1
        assert await call.speak("Next turn.") == "Next turn."
        assert call.reports.errors == []
    assert server.refused == []


@over_sockets
async def test_a_line_that_breaks_often_is_not_given_up(caplog: pytest.LogCaptureFixture) -> None:
    """As long as each connection gives some sound, there is another one."""
    broken = [Fault(cut=True, after=2)] * 9
    async with PlayHTServer(faults=broken, chars=8, each_s=0.05) as server, call_of(server) as call:
        await call.speak(ONE, TWO, THREE)
        await call.speak(THREE, TWO, ONE)
        assert [word.text for word in call.words(1)] == TEXT.split()
        assert call.reports.errors == []
        assert len(server.connections) > 6
    assert "when it is needed" not in caplog.text


@over_sockets
async def test_a_connection_lost_between_turns_is_made_again() -> None:
    """Before it is needed: the next turn does not wait for it, and no text was sent into the dead one."""
    async with PlayHTServer(faults=[Fault(close=(1001, ""), after=3)], chars=10) as server, call_of(server) as call:
        assert await call.speak(ONE) == ONE
        assert await call.speak(TWO) == TWO
        assert call.reports.errors == []
        assert len(server.connections) == 2


REFUSALS = [
    ({"error": "voice_not_found", "message": f"no such voice, {KEY}"}, "look at voice"),
    ({"error": f"Unauthorized: api key {KEY}"}, "give api_key"),
    ({"type": "error", "error": {"code": "OUT_OF_CREDITS", "message": KEY}}, "no credit"),
    ({"error": f"invalid speed {KEY}"}, "look at voice, engine"),
]


@pytest.mark.parametrize(("error", "hint"), REFUSALS)
@over_sockets
async def test_a_refusal_says_what_to_do_and_is_not_repeated(error: dict[str, Any], hint: str) -> None:
    """A hint; the utterance is closed; no key and none of the service's sentences is shown; the next turn is spoken."""
    async with PlayHTServer(faults=[Fault(error=error)]) as server, call_of(server) as call:
        assert await call.speak(ONE) == ""
        await asyncio.sleep(0.1)  # the end of the utterance comes first
        ((_, said),) = call.reports.errors
        assert any(part in said for part in hint.split("|"))
        assert KEY not in said
        assert TOKEN not in said
        assert call.ends() == 1
        assert await call.speak(TWO) == TWO
        assert server.spoken == [ONE, TWO]


@over_sockets
async def test_an_error_that_may_pass_is_tried_again() -> None:
    """Too many requests at once: asked again, on another connection, and heard."""
    async with PlayHTServer(faults=[Fault(error={"error": "Too many concurrent requests"})]) as server, call_of(server) as call:
        assert await call.speak(ONE) == ONE
        assert call.reports.errors == []
        assert server.spoken == [ONE, ONE]


@over_sockets
async def test_a_wrong_key_is_told_without_it(caplog: pytest.LogCaptureFixture) -> None:
    """What to do, and neither key nor token in an error, a log or a repr."""
    with caplog.at_level(logging.DEBUG):
        async with PlayHTServer() as server, call_of(server, api_key="ak-wrong-key") as call:
            assert await call.speak(ONE) == ""
            await asyncio.sleep(0.1)
            ((_, said),) = call.reports.errors
            assert "401" in said
            assert "api_key" in said
            assert server.connections == []
        async with PlayHTServer(faults=[Fault(cut=True)]) as server, call_of(server) as call:
            await call.speak(ONE)
            shown = said + repr(call.node.options) + "".join(record.getMessage() for record in caplog.records if record.name == "voiceflow")
    assert "goes on at word" in shown
    assert not any(secret in shown for secret in ("ak-wrong", KEY, TOKEN))


@over_sockets
async def test_a_token_that_is_out_of_date_is_asked_for_anew() -> None:
    """The opening is refused once: another address, another try, and the utterance is whole."""
    async with PlayHTServer(faults=[Fault(status=401)]) as server, call_of(server) as call:
        assert await call.speak(ONE) == ONE
        assert server.asked == 2
        assert call.reports.errors == []


@over_sockets
async def test_a_key_is_needed_at_the_vendors_own_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """And is sent nowhere else unless it was meant for there."""
    monkeypatch.setenv("PLAY_HT_API_KEY", KEY)
    monkeypatch.setenv("PLAY_HT_USER_ID", USER)
    assert options("https://api.play.ht", api_key=None, user_id=None).headers() == {"Authorization": f"Bearer {KEY}", "X-User-Id": USER}
    assert options("http://127.0.0.1:1", api_key=None, user_id=None).headers() == {}
    monkeypatch.delenv("PLAY_HT_USER_ID")
    with pytest.raises(ServiceError, match="PLAY_HT_USER_ID"):
        options("https://api.play.ht", api_key=None, user_id=None).headers()


@pytest.mark.parametrize(
    "wrong",
    [
        {"voice": ""},
        {"engine": ""},
        {"output_format": "mp3"},
        {"sample_rate": 11025},
        {"output_format": "mulaw"},
        {"speed": 9.0},
        {"base_url": "x"},
    ],
)
def test_options_that_the_service_would_refuse_are_refused_at_once(wrong: dict[str, Any]) -> None:
    """With the name of the option."""
    with pytest.raises(ValueError, match=f"PlayHTOptions.*({next(iter(wrong))}|sample_rate)"):
        PlayHTOptions(**{"voice": VOICE, **wrong})


# ---------------------------------------------------------------------------------------------------------- the wire


@pytest.mark.parametrize("extra", [b"", b"LIST\x05\0\0\0INFOx\0", b"fact\x04\0\0\0\0\0\0\0"])
def test_a_header_is_taken_off_wherever_it_is_cut(extra: bytes) -> None:
    """With other chunks in it too, and the sound behind it is whole."""
    sound = bytes(range(200))
    wav = wav_header(RATE, extra=extra) + sound
    for cut in range(1, len(wav)):
        reader = WavSound(RATE, "it")
        assert reader.push(wav[:cut]) + reader.push(wav[cut:]) == sound


@pytest.mark.parametrize(
    "wrong",
    [
        b"ID3\x04 and what else an mp3 has",
        b"RIFFxxxxAVI LIST",
        wav_header(16000),
        b"RIFFxxxxWAVEdata\0\0\0\0",
        b"RIFFxxxxWAVEjunk\xff\xff\xff\xff" + bytes(9000),
    ],
)
def test_what_is_no_such_wav_is_refused(wrong: bytes) -> None:
    """Another format, another rate, no description: an error that names what was asked for, and no noise."""
    with pytest.raises(ServiceError, match="WAV"):
        WavSound(RATE, "it").push(wrong + bytes(100))


@given(st.binary(max_size=80), st.booleans())
def test_any_bytes_are_read_or_refused(data: bytes, begins_well: bool) -> None:
    """Never another error than ServiceError."""
    for read in (
        lambda: WavSound(RATE, "it").push(b"RIFFxxxxWAVE" + data if begins_well else data),
        lambda: read_message(data.decode("latin-1"), "it"),
        lambda: socket_address(data, "x", "it", secure=False),
    ):
        with contextlib.suppress(ServiceError):
            read()


@pytest.mark.parametrize(
    ("body", "secure", "fine"),
    [
        (b'{"websocket_urls": {"A": "ws://host/x?token=1"}}', False, True),
        (b'{"websocket_urls": {"A": "ws://host/x?token=1"}}', True, False),
        (b'{"websocket_url": "wss://host/x"}', True, True),
        (b'{"websocket_urls": {"B": "wss://host/x"}}', True, False),
        (b'{"websocket_urls": {"A": 5}}', True, False),
        (b"[]", True, False),
    ],
)
def test_an_address_is_taken_only_if_it_can_be_trusted(body: bytes, secure: bool, fine: bool) -> None:
    """One for the engine, and encrypted if it was asked for so; the error shows no token."""
    if fine:
        assert socket_address(body, "A", "it", secure=secure).startswith("ws")
    else:
        with pytest.raises(ServiceError) as raised:
            socket_address(body, "A", "it", secure=secure)
        assert "token" not in str(raised.value)


# ----------------------------------------------------------------------------------------------------------- the kit


class Served(PlayHTTTS):
    """Brings its server along, in the loop that the kit makes for each run."""

    def __init__(self) -> None:
        self.server = PlayHTServer(each_s=0.01)
        super().__init__(options("http://127.0.0.1:1"))

    async def start(self) -> None:
        await self.server.__aenter__()
        self._service = type(self._service)(options(self.server))
        await super().start()

    async def stop(self) -> None:
        await super().stop()
        await self.server.__aexit__()


def test_the_node_conforms(monkeypatch: pytest.MonkeyPatch) -> None:
    """The conformance kit: strangers pass, interrupts leave it as good as new, neighbours do it no harm, nothing is left behind."""
    monkeypatch.setattr("voiceflow.testing.conformance.VirtualClockLoop", SocketLoop)
    check_processor(Served, [SentenceFrame("One moment.", utterance=1), LLMEnded(utterance=1)], every=3)
