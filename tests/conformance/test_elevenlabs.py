"""ElevenLabs' text to speech: the vendor's own client against our server, and our node against the same one."""

from __future__ import annotations

import asyncio
import base64
import io
import itertools
import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any, Self

import numpy as np
import pytest

pytest.importorskip("aiohttp", reason="pip install aiohttp")
pytest.importorskip("websockets", reason="pip install websockets")

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conformance.elevenlabs_call import RATE, Sink, VoiceCall, options
from tests.conformance.servers.elevenlabs_server import CHAR_S, KEY, VOICE, ElevenLabsServer, Fault, heard, sound_of
from tests.conformance.servers.sockets import SocketLoop, over_sockets
from tests.conversations.rig import PONG, StrictLLM
from tests.conversations.rig import Reports as CallReports
from voiceflow import LLMEnded, LLMTextFrame, OutputAudioFrame, Pipeline, Processor, SentenceFrame, Session, UtteranceEnded
from voiceflow.audio import mulaw_decode, mulaw_encode
from voiceflow.frames import AudioFormat, PlaybackStopped, TurnEnded
from voiceflow.processors.context import Context
from voiceflow.processors.fallback import Fallback
from voiceflow.processors.services.elevenlabs_tts import ElevenLabsOptions, ElevenLabsTTS, VoiceSettings
from voiceflow.processors.services.retry import RetryOptions
from voiceflow.processors.services.voice_service import StreamOptions
from voiceflow.testing import Latency, Probe, check_processor, interrupt_everywhere
from voiceflow.transports.speaker import Speaker

ONE, TWO, THREE = "Good day to you, my friend.", "This is the second sentence!", "And here comes number 3?"
TEXT = f"{ONE} {TWO} {THREE}"
WAYS = ["contexts", "socket", "http"]


class Slow(Processor):
    """A listener that takes sound no faster than it is heard."""

    async def process(self, frame: OutputAudioFrame) -> AsyncIterator[OutputAudioFrame]:
        await asyncio.sleep(frame.duration)
        yield frame


def squeezed(text: str) -> str:
    """Without blanks: a request for each sentence has none between them."""
    return "".join(text.split())


# ------------------------------------------------------------------------------------------- the vendor's client


def official(server: ElevenLabsServer, key: str = KEY) -> Any:
    elevenlabs = pytest.importorskip("elevenlabs", reason="pip install elevenlabs")
    client = elevenlabs.ElevenLabs(api_key=key, base_url=server.url)
    client.text_to_speech._ws_base_url = server.url.replace("http", "ws", 1)  # it would dial wss
    return client


def with_the_official_client(use: Callable[[Any], list[Any]], key: str = KEY, **more: Any) -> list[Any]:
    """It waits in a thread of its own, on the real clock."""

    async def scene() -> list[Any]:
        async with ElevenLabsServer(first_s=0.01, each_s=0.001, **more) as server:
            client = official(server, key)
            try:
                return await asyncio.to_thread(use, client)
            finally:
                client._client_wrapper.httpx_client.httpx_client.close()
                assert server.refused == []

    return asyncio.run(scene())


def test_the_official_client_streams() -> None:
    """Chunks of sound that together say the text."""
    chunks = with_the_official_client(lambda c: list(c.text_to_speech.stream(VOICE, text=TEXT, output_format="pcm_24000")))
    assert len(chunks) > 1
    assert heard(b"".join(chunks), RATE) == TEXT


def test_the_official_client_streams_with_timestamps() -> None:
    """The characters come with their sound."""
    parts = with_the_official_client(lambda c: list(c.text_to_speech.stream_with_timestamps(VOICE, text=TEXT, output_format="pcm_24000")))
    assert heard(b"".join(base64.b64decode(part.audio_base_64) for part in parts), RATE) == TEXT
    assert "".join(char for part in parts for char in part.alignment.characters) == TEXT


@pytest.mark.filterwarnings("ignore:ConnectionClosed.code:DeprecationWarning")  # its own business
def test_the_official_client_speaks_while_text_comes() -> None:
    """Over a WebSocket: text in pieces, sound that says all of it; its settings are taken."""
    elevenlabs = pytest.importorskip("elevenlabs", reason="pip install elevenlabs")
    voice = elevenlabs.VoiceSettings(stability=0.4, similarity_boost=0.7, speed=1.1)

    def use(client: Any) -> list[Any]:
        pieces = iter([ONE, " ", TWO, " ", THREE])
        return list(client.text_to_speech.convert_realtime(VOICE, text=pieces, output_format="pcm_24000", voice_settings=voice))

    assert squeezed(heard(b"".join(with_the_official_client(use)), RATE)) == squeezed(TEXT)


@pytest.mark.parametrize(
    ("key", "voice", "text", "status"),
    [("sk_wrong", VOICE, TEXT, 401), (KEY, "nobody", TEXT, 404), (KEY, VOICE, "...", 422)],
)
def test_the_official_client_meets_the_same_refusals(key: str, voice: str, text: str, status: int) -> None:
    """A wrong key, a voice that there is not, a text that is none."""
    core = pytest.importorskip("elevenlabs.core", reason="pip install elevenlabs")

    def use(client: Any) -> list[Any]:
        with pytest.raises(core.ApiError) as raised:
            list(client.text_to_speech.stream(voice, text=text))
        return [raised.value.status_code]

    async def scene() -> list[Any]:
        async with ElevenLabsServer() as server:
            client = official(server, key)
            try:
                return await asyncio.to_thread(use, client)
            finally:
                client._client_wrapper.httpx_client.httpx_client.close()

    assert asyncio.run(scene()) == [status]


@pytest.mark.filterwarnings("ignore:ConnectionClosed.*:DeprecationWarning")
def test_the_official_client_meets_the_same_errors_on_the_socket() -> None:
    """A voice that there is not: an error, and a close that is not normal."""
    core = pytest.importorskip("elevenlabs.core", reason="pip install elevenlabs")

    def use(client: Any) -> list[Any]:
        with pytest.raises(core.ApiError) as raised:
            list(client.text_to_speech.convert_realtime("nobody", text=iter([TEXT])))
        return [raised.value.status_code]

    assert with_the_official_client(use) == [1008]


# --------------------------------------------------------------------------------------------------- our node


@pytest.mark.parametrize("way", WAYS)
@over_sockets
async def test_an_utterance_is_spoken_with_its_words(way: str) -> None:
    """Every character once and in order, every word where it is spoken, and one end."""
    async with ElevenLabsServer() as server, VoiceCall(ElevenLabsTTS(options(server, way=way))) as call:
        assert squeezed(await call.speak(ONE, TWO, THREE)) == squeezed(TEXT)
        assert [word.text for word in call.words()] == TEXT.split()
        for word in call.words():
            at = round(word.start / CHAR_S)
            assert heard(call.pcm(), RATE)[at : at + len(word.text)] == word.text, word
            assert word.end - word.start == pytest.approx(CHAR_S * len(word.text), abs=0.002)
            assert not word.estimated
        assert call.ends() == 1
        assert call.reports.errors == []
    assert server.refused == []


@pytest.mark.parametrize("way", WAYS)
@over_sockets
async def test_sound_comes_before_the_last_text_is_there(way: str) -> None:
    """The first sentence is heard while the second is not even written; the second is heard when it comes."""
    async with ElevenLabsServer() as server, VoiceCall(ElevenLabsTTS(options(server, way=way))) as call:
        call.begin()
        call.say(ONE)
        await call.sound()
        assert [text.strip() for text in server.spoken] == [ONE]
        await asyncio.sleep(0.5)
        call.say(TWO)
        call.end()
        await call.ended()
        assert squeezed(call.text()) == squeezed(ONE + TWO)
        assert call.reports.errors == []


@pytest.mark.parametrize("way", ["contexts", "socket"])
@over_sockets
async def test_tokens_are_sent_as_they_come(way: str) -> None:
    """Each at once, without auto_mode; the service gathers them by the schedule, and speaks at the end of a sentence."""
    async with ElevenLabsServer() as server:
        chosen = options(server, way=way, aggregation="token", chunk_length_schedule=(50, 60), settings=VoiceSettings(speed=1.1))
        async with VoiceCall(ElevenLabsTTS(chosen)) as call:
            call.begin()
            for word in ONE.split():
                call.say(word + " ")
                await asyncio.sleep(0.05)
            await call.sound()
            line = server.connections[0]
            assert line.query["auto_mode"] == "false"
            assert [message["text"] for message in line.messages] == [" ", *(word + " " for word in ONE.split())]
            assert [message.get("flush", False) for message in line.messages] == [False] * 6 + [True]
            assert line.messages[0]["generation_config"] == {"chunk_length_schedule": [50, 60]}
            assert line.messages[0]["voice_settings"] == {"speed": 1.1}
            call.say(*(word + " " for word in TWO.split()))
            call.end()
            await call.ended()
            assert squeezed(call.text()) == squeezed(ONE + TWO)
            assert call.reports.errors == []
        assert server.refused == []


@pytest.mark.parametrize("aggregation", ["sentence", "clause", "token", "schedule"])
@over_sockets
async def test_each_aggregation_speaks_all_of_a_reply(aggregation: str) -> None:
    """Tokens of a model, cut by the node that ``pieces()`` gives."""
    reply = "Well, hello there — nice of you to call! I have 3 rooms left, all with a view; shall I book one?"
    async with ElevenLabsServer() as server:
        node = ElevenLabsTTS(options(server, aggregation=aggregation))
        sink = Sink()
        async with Session(Pipeline(node.pieces()) >> node >> sink, inputs=[LLMTextFrame, LLMEnded]) as session:
            for at in range(0, len(reply), 7):
                session.send_nowait(LLMTextFrame(reply[at : at + 7], utterance=1))
                await asyncio.sleep(0.01)
            session.send_nowait(LLMEnded(utterance=1))
            while not any(isinstance(frame, UtteranceEnded) for frame in sink.frames):
                sink.news.clear()
                await sink.news.wait()
        pcm = b"".join(frame.pcm for frame in sink.frames if isinstance(frame, OutputAudioFrame))
        assert squeezed(heard(pcm, RATE)) == squeezed(reply)
        words = [word.text for frame in sink.frames if isinstance(frame, OutputAudioFrame) for word in frame.words]
        assert words == reply.split()
        assert server.refused == []


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("after_s", [0.0, 0.05, 0.15, 0.3, 0.6])
@over_sockets
async def test_cancel_in_mid_utterance_and_the_next_turn_is_clean(way: str, after_s: float) -> None:
    """Nothing of the old utterance comes any more; the next is whole, and nothing the service saw was wrong."""
    async with ElevenLabsServer(each_s=0.1) as server, VoiceCall(ElevenLabsTTS(options(server, way=way))) as call:
        first = call.begin()
        call.say(ONE, TWO, THREE)
        await asyncio.sleep(after_s)
        interruption = call.session.interrupt("the caller speaks")
        before = len(call.frames(first))
        assert squeezed(await call.speak("And now this.")) == "Andnowthis."
        await asyncio.sleep(2.0)
        assert len(call.frames(first)) == before
        assert call.ends(first) == 0
        assert call.reports.errors == []
        if after_s:
            assert interruption.acknowledged[call.node.name] is not None
            assert interruption.acknowledged[call.node.name] < (0.6 if way == "contexts" else 0.02)
        assert call.session.refused == 0
        if way == "contexts":
            assert len(server.connections) == 1
            assert server.connections[0].most_open <= 2
            assert server.connections[0].open == {}
        if way == "http" and after_s > 0.1:
            assert server.left
    assert server.refused == []


@over_sockets
async def test_a_warm_connection_is_there_for_the_next_utterance() -> None:
    """Both where one is kept and where each utterance has its own: it was open before the text came."""
    for way in ("contexts", "socket"):
        async with ElevenLabsServer() as server, VoiceCall(ElevenLabsTTS(options(server, way=way))) as call:
            await asyncio.sleep(0.5)
            assert len(server.connections) == 1
            for number in range(3):
                await call.speak(ONE)
                used = server.connections[0 if way == "contexts" else number]
                assert used.at < used.times[0] - 0.4
                await asyncio.sleep(0.5)
            assert all(line.messages or line is server.connections[-1] for line in server.connections)


@over_sockets
async def test_interrupted_again_and_again() -> None:
    """B05: never more than two contexts open, none closed or flushed that got no text, no close, no reconnect; the last turn is whole."""
    async with ElevenLabsServer(each_s=0.05) as server, VoiceCall(ElevenLabsTTS(options(server))) as call:
        for turn in range(12):
            call.begin()
            if turn % 2:
                call.say(ONE, TWO)
                await call.sound()
                await asyncio.sleep(0.05)
            else:
                await asyncio.sleep(0.05)
            call.session.interrupt("again")
            await asyncio.sleep(0.1)
        assert await call.speak("This one is not interrupted.") == "This one is not interrupted."
        (line,) = server.connections
        assert line.most_open <= 2
        assert line.closed is None
        assert call.reports.errors == []
    assert server.refused == []


@over_sockets
async def test_a_service_that_never_says_that_a_context_is_closed() -> None:
    """It is not waited for long, two contexts are open at most, and then the connection is made anew."""
    async with ElevenLabsServer(each_s=0.1, faults=[Fault(deaf=True)]) as server, VoiceCall(ElevenLabsTTS(options(server))) as call:
        for number in range(4):
            call.begin()
            call.say(ONE)
            await call.sound()
            at = call.session.time()
            call.session.interrupt("again")
            assert await call.speak("Next.") == "Next." if number == 3 else True
            assert call.session.time() - at < 2.0
            await asyncio.sleep(1.0)
        assert max(line.most_open for line in server.connections) <= 2
        assert len(server.connections) == 2
        assert call.reports.errors == []


@pytest.mark.parametrize(("way", "turns"), [("contexts", 100), ("socket", 25), ("http", 25)])
@over_sockets
async def test_a_hundred_turns_on_one_connection(way: str, turns: int) -> None:
    """Or some on one each; nothing is left behind (which the test's clock sees to)."""
    async with ElevenLabsServer(first_s=0.05, each_s=0.0, chars=40) as server:
        async with VoiceCall(ElevenLabsTTS(options(server, way=way))) as call:
            for number in range(turns):
                assert await call.speak(f"This is turn {number}.") == f"This is turn {number}."
            assert call.reports.errors == []
            assert len(server.connections) == {"contexts": 1, "socket": turns + 1, "http": 0}[way]
        assert all(line.most_open <= 1 for line in server.connections)
    assert server.refused == []


@pytest.mark.parametrize("spelled", [
    {"contextId": "context_id", "isFinal": "is_final"},
    {"charDurationsMs": "charsDurationsMs", "charStartTimesMs": "charsStartTimesMs"},
    {"charDurationsMs": "chars_durations_ms", "charStartTimesMs": "char_start_times_ms"},
])  # fmt: skip
@over_sockets
async def test_each_spelling_is_read(spelled: dict[str, str]) -> None:
    """As the service has been seen to write it."""
    async with ElevenLabsServer(spelling=spelled) as server, VoiceCall(ElevenLabsTTS(options(server))) as call:
        assert await call.speak(ONE) == ONE
        assert [(word.text, word.estimated) for word in call.words()] == [(word, False) for word in ONE.split()]


@over_sockets
async def test_words_without_times_are_placed_by_estimate() -> None:
    """Sockets that give no alignment, and requests without timestamps: each word once, in order, spread over the sound."""
    for way in WAYS:
        async with ElevenLabsServer(alignment=False) as server:
            chosen = options(server, way=way, timestamps=False)
            async with VoiceCall(ElevenLabsTTS(chosen)) as call:
                for _ in range(2):
                    assert squeezed(await call.speak(ONE, TWO, THREE)) == squeezed(TEXT)
                    words = call.words()
                    assert [word.text for word in words] == TEXT.split()
                    assert all(word.estimated for word in words)
                    starts = [word.start for word in words]
                    assert starts == sorted(starts)
                assert starts[len(starts) // 2] > 0.2 * starts[-1]


@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=4).map(lambda few: [*few, 4063, 1697]),
    st.sampled_from(["pcm_24000", "ulaw_8000", "pcm_8000"]),
    st.sampled_from(WAYS),
)
@settings(max_examples=20, deadline=None)
def test_odd_chunk_sizes(sizes: list[int], output_format: str, way: str) -> None:
    """B32: however the sound is cut, inside a sample too: the same sound, whole frames, the same words."""

    @over_sockets
    async def scene() -> None:
        async with ElevenLabsServer(each_s=0.0, sizes=lambda: itertools.cycle(sizes)) as server:
            chosen = options(server, way=way, output_format=output_format)
            async with VoiceCall(ElevenLabsTTS(chosen)) as call:
                await call.speak(ONE, TWO)
                expected = sound_of("".join(server.spoken), call.rate)
                if output_format == "ulaw_8000":
                    expected = mulaw_decode(mulaw_encode(expected))
                assert call.pcm() == expected
                assert [word.text for word in call.words()] == f"{ONE} {TWO}".split()
                assert all(frame.pcm for frame in call.frames())
                assert call.reports.errors == []

    scene()


@over_sockets
async def test_a_large_message_is_taken() -> None:
    """B31: more than a megabyte of sound in one."""
    text = "word " * 230 + "end."
    async with ElevenLabsServer(sizes=lambda: itertools.repeat(2_000_000)) as server, VoiceCall(ElevenLabsTTS(options(server))) as call:
        assert await call.speak(text) == text
        assert call.reports.errors == []


@over_sockets
async def test_what_cannot_be_spoken_makes_no_request() -> None:
    """Nor does an utterance without text; each ends at once."""
    for way in WAYS:
        async with ElevenLabsServer() as server, VoiceCall(ElevenLabsTTS(options(server, way=way))) as call:
            for piece in ("...", "—", "  \n", "😊", "()"):
                began = call.session.time()
                assert await call.speak(piece) == ""
                assert call.session.time() - began < 0.5
            assert await call.speak() == ""
            assert [line.messages for line in server.connections] == [[] for _ in server.connections]
            assert server.requests == []
            assert await call.speak("5...") == "5..."


# ------------------------------------------------------------------------------------------------ what goes wrong

BREAKS = {
    "cut": Fault(cut=True),
    "closed": Fault(close=(1011, "")),
    "error": Fault(error={"message": f"it is busy, {KEY}", "error": "system_busy", "code": 1011}),
    "idle": Fault(close=(1008, "Have not received a new text input within the timeout of 20 seconds.")),
    "silent": Fault(silent=True),
}


@pytest.mark.parametrize("after", [1, 3, 6])
@pytest.mark.parametrize("fault", BREAKS)
@pytest.mark.parametrize("way", ["contexts", "socket"])
@over_sockets
async def test_a_break_in_mid_utterance_is_mended(way: str, fault: str, after: int) -> None:
    """It goes on with the first word whose sound had not come: nothing is lost, nothing is said twice, nobody is told."""
    broken = [replace(BREAKS[fault], after=after), replace(BREAKS[fault], after=after)]
    async with ElevenLabsServer(faults=broken, each_s=0.05) as server, VoiceCall(ElevenLabsTTS(options(server, way=way))) as call:
        assert squeezed(await call.speak(ONE, TWO, THREE)) == squeezed(TEXT)
        assert [word.text for word in call.words()] == TEXT.split()
        assert len(server.connections) >= 2
        assert call.ends() == 1
        assert call.session.time() < 12
        assert await call.speak("Next turn.") == "Next turn."
        assert call.reports.errors == []
    assert server.refused == []


@pytest.mark.parametrize("after", [0, 1, 2])
@pytest.mark.parametrize("fault", ["cut", "silent"])
@over_sockets
async def test_a_request_that_breaks_off_is_made_again_for_the_rest(fault: str, after: int) -> None:
    """With timestamps to the word."""
    broken = [replace(BREAKS[fault], after=after)] * 2
    async with ElevenLabsServer(faults=broken, each_s=0.05) as server, VoiceCall(ElevenLabsTTS(options(server, way="http"))) as call:
        assert squeezed(await call.speak(ONE, TWO, THREE)) == squeezed(TEXT)
        assert [word.text for word in call.words()] == TEXT.split()
        assert call.reports.errors == []
        assert server.requests[0]["text"] == ONE
        assert server.requests[-1]["previous_text"].endswith("second sentence!")


REFUSALS = [
    (Fault(status=401, body={"detail": {"status": "invalid_api_key", "message": f"bad {KEY}"}}), "invalid_api_key", "api_key"),
    (Fault(status=401, body={"detail": {"status": "quota_exceeded", "message": KEY}}), "quota_exceeded", "no characters left"),
    (Fault(status=403, body={"detail": {"status": "only_for_creator+", "message": KEY}}), "403", "plan"),
    (Fault(status=404, body={"detail": {"status": "voice_not_found", "message": KEY}}), "voice_not_found", "look at voice"),
    (Fault(status=422, body={"detail": [{"loc": ["query"], "msg": KEY}]}), "422", "output_format"),
]
SOCKET_REFUSALS = [
    (Fault(close=(1008, f"You have no quota left, {KEY}")), "quota_exceeded", "no characters left"),
    (Fault(close=(1008, f"Invalid API key {KEY}")), "invalid_api_key", "api_key"),
    (Fault(close=(1008, f"A voice with voice_id {KEY} does not exist")), "voice_not_found", "look at voice"),
    (Fault(after=1, error={"message": KEY, "error": "quota_exceeded", "code": 1008}, close=(1008, "x")), "quota_exceeded", "no characters"),
    (
        Fault(after=1, error={"message": KEY, "error": "invalid_input_message", "code": 1008}, close=(1008, "x")),
        "invalid_input",
        "settings",
    ),
]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("number", range(len(REFUSALS) + len(SOCKET_REFUSALS)))
@over_sockets
async def test_a_refusal_says_what_to_do_and_is_not_repeated(number: int, way: str) -> None:
    """Its name and a hint; the utterance is closed; no key and none of the service's sentences is shown."""
    fault, name, hint = [*REFUSALS, *SOCKET_REFUSALS][number]
    if way == "http" and not fault.status:
        return
    async with ElevenLabsServer(faults=[fault] * 50) as server, VoiceCall(ElevenLabsTTS(options(server, way=way))) as call:
        await call.speak(ONE, TWO)
        await asyncio.sleep(0.1)
        ((_, error),) = call.reports.errors
        assert name in error
        assert hint in error
        assert call.ends() == 1
        await asyncio.sleep(30)
        assert server._served <= 3


@pytest.mark.parametrize("way", ["contexts", "socket"])
@over_sockets
async def test_a_service_that_accepts_and_closes_is_given_up_and_tried_again_when_needed(way: str) -> None:
    """B50: an error after a few quick failures, no storm of connections; and it works again when the service does."""
    faults = [Fault(close=(1008, "policy"))] * 8
    async with ElevenLabsServer(faults=faults) as server, VoiceCall(ElevenLabsTTS(options(server, way=way))) as call:
        await call.speak(ONE)
        await asyncio.sleep(0.1)
        assert len(call.reports.errors) == 1
        await asyncio.sleep(30 - call.session.time())
        assert server._served <= 10
        for _ in range(8):
            await asyncio.sleep(5)
            if await call.speak(ONE) == ONE:
                break
        assert call.text() == ONE


@over_sockets
async def test_a_connection_that_drops_now_and_then() -> None:
    """B50: each time it is there again before the next utterance; the number of failures is counted anew whenever it worked."""
    async with ElevenLabsServer(faults=[Fault(after=2, cut=True)] * 12) as server, VoiceCall(ElevenLabsTTS(options(server))) as call:
        for _ in range(12):
            assert squeezed(await call.speak(ONE, TWO)) == squeezed(ONE + TWO)
            await asyncio.sleep(60)
        assert call.reports.errors == []


@over_sockets
async def test_drops_that_come_quickly_are_no_reason_to_give_up(caplog: pytest.LogCaptureFixture) -> None:
    """As long as something was spoken in between."""
    async with ElevenLabsServer(faults=[Fault(after=2, cut=True)] * 12) as server, VoiceCall(ElevenLabsTTS(options(server))) as call:
        for _ in range(12):
            assert squeezed(await call.speak(ONE, TWO)) == squeezed(ONE + TWO)
            await asyncio.sleep(1)
        assert call.reports.errors == []
    assert "tried again when it is needed" not in caplog.text


@over_sockets
async def test_nobody_listens_there() -> None:
    """The address, and a question that helps; within the patience of whoever waits on the line."""
    async with ElevenLabsServer() as server:
        url = server.url
    for way in WAYS:
        async with VoiceCall(ElevenLabsTTS(options(url, way=way))) as call:
            await call.speak(ONE)
            await asyncio.sleep(0.1)
            ((at, error),) = call.reports.errors
            assert at < 12
            assert "is it running" in error


@pytest.mark.parametrize("way", ["contexts", "socket"])
@over_sockets
async def test_a_silent_caller_costs_nothing(way: str) -> None:
    """B37: the service closes what hears nothing; no empty text is sent to prevent it; the reply after it is whole, the end quick."""
    async with ElevenLabsServer() as server:
        async with VoiceCall(ElevenLabsTTS(options(server, way=way, inactivity_s=20))) as call:
            await call.speak(ONE)
            sent = sum(len(line.messages) for line in server.connections)
            await asyncio.sleep(400)
            assert sum(len(line.messages) for line in server.connections) == sent
            assert len(server.connections) > 10
            assert await call.speak(TWO) == TWO
            assert call.reports.errors == []
            ended_at = call.session.time()
        assert asyncio.get_running_loop().time() - ended_at < 0.5
    assert server.connections[-1].closed is not None


@pytest.mark.parametrize("way", ["contexts", "socket"])
@over_sockets
async def test_a_reply_that_stalls_is_spoken_as_far_as_it_goes(way: str) -> None:
    """After three seconds without text the stretch is closed, which speaks what the service had gathered; more text goes on in another."""
    async with ElevenLabsServer() as server, VoiceCall(ElevenLabsTTS(options(server, way=way, aggregation="token"))) as call:
        call.begin()
        call.say("Let ", "me ", "see ")
        await asyncio.sleep(2.9)
        assert call.text() == ""
        await asyncio.sleep(0.6)
        assert call.text() == "Let me see"
        await asyncio.sleep(60)
        call.say("what ", "there ", "is. ")
        call.end()
        await call.ended()
        assert call.text() == "Let me see what there is."
        assert call.reports.errors == []
    assert server.refused == []


@over_sockets
async def test_text_waits_while_enough_sound_does() -> None:
    """What an interrupt would throw away is not made, nor paid for."""

    sentences = [f"This is sentence number {n} of a long reply." for n in range(20)]
    async with ElevenLabsServer(each_s=0.0, chars=50) as server:
        node, sink = ElevenLabsTTS(options(server)), Sink()
        async with Session(Pipeline(node) >> Slow() >> sink, inputs=[SentenceFrame, LLMEnded]) as session:
            for sentence in sentences:
                session.send_nowait(SentenceFrame(sentence, utterance=1))
            session.send_nowait(LLMEnded(utterance=1))
            await asyncio.sleep(4)
            made = CHAR_S * sum(map(len, server.spoken))
            assert made < 4 + 2 + node.options.stream.ahead_s + 2
            while not any(isinstance(frame, UtteranceEnded) for frame in sink.frames):
                sink.news.clear()
                await sink.news.wait()
        pcm = b"".join(frame.pcm for frame in sink.frames if isinstance(frame, OutputAudioFrame))
        assert heard(pcm, RATE).strip() == " ".join(sentences)
        assert len(server.connections) == 1


@pytest.mark.parametrize("way", WAYS)
@over_sockets
async def test_a_slow_service_is_waited_for(way: str) -> None:
    """Slower than speech, but within its deadlines: nothing is lost and nothing asked for twice."""
    async with ElevenLabsServer(first_s=2.2, each_s=1.6) as server, VoiceCall(ElevenLabsTTS(options(server, way=way))) as call:
        assert squeezed(await call.speak(ONE, TWO)) == squeezed(ONE + TWO)
        assert [word.text for word in call.words()] == f"{ONE} {TWO}".split()
        assert squeezed("".join(server.spoken)) == squeezed(ONE + TWO)
        assert len(server.requests) in (0, 2)
        assert call.reports.errors == []


@pytest.mark.parametrize("way", WAYS)
@over_sockets
async def test_a_service_that_comes_back_in_time(way: str) -> None:
    """B50: nobody listens for three seconds, then somebody does: the caller hears all of it, and no error is told."""
    async with ElevenLabsServer() as server:
        port = server.port
    async with VoiceCall(ElevenLabsTTS(options(server, way=way, stream=PATIENT))) as call:
        await asyncio.sleep(1.0)
        call.begin()
        call.say(ONE)
        call.end()
        await asyncio.sleep(2.0)
        again = ElevenLabsServer()
        again.port = port
        async with again:
            await call.ended()
            assert call.text() == ONE
            assert call.reports.errors == []
            call.session.cancel()


PATIENT = StreamOptions(first_s=10.0, retries=RetryOptions(tries=8, first_wait_s=0.5, patience_s=10.0))


@pytest.mark.parametrize("way", WAYS)
@over_sockets
async def test_the_end_of_a_call_speaks_what_is_there_and_its_cancel_does_not(way: str) -> None:
    """Also without an end of the reply. A call that is broken off is over at once."""
    async with ElevenLabsServer(each_s=0.1) as server:
        async with VoiceCall(ElevenLabsTTS(options(server, way=way))) as call:
            call.begin()
            call.say(ONE, TWO)
        assert squeezed(call.text()) == squeezed(ONE + TWO)
        async with VoiceCall(ElevenLabsTTS(options(server, way=way))) as call:
            call.begin()
            call.say(ONE, TWO)
            await call.sound()
            at = call.session.time()
            call.session.cancel()
        assert asyncio.get_running_loop().time() - at < 0.3


@pytest.mark.parametrize("way", WAYS)
@over_sockets
async def test_nothing_is_lost_at_the_end_of_a_call_behind_a_slow_listener(way: str) -> None:
    """What waits to go on has gone on before the node ends."""

    sentences = [f"This is sentence number {n} of a reply." for n in range(6)]
    async with ElevenLabsServer(each_s=0.0, chars=50) as server:
        sink = Sink()
        async with Session(
            Pipeline(ElevenLabsTTS(options(server, way=way))) >> Slow() >> sink, inputs=[SentenceFrame, LLMEnded]
        ) as session:
            for sentence in sentences:
                session.send_nowait(SentenceFrame(sentence, utterance=1))
            session.send_nowait(LLMEnded(utterance=1))
        pcm = b"".join(frame.pcm for frame in sink.frames if isinstance(frame, OutputAudioFrame))
        assert squeezed(heard(pcm, RATE)) == squeezed("".join(sentences))


@over_sockets
async def test_a_service_that_sends_without_end_is_not_read_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits to go on has a limit; all of it is heard all the same."""
    monkeypatch.setattr("voiceflow.processors.services.speech_stream.MOST_S", 3.0)

    text, most = " ".join(["word"] * 199) + ".", 0.0
    async with ElevenLabsServer(each_s=0.0) as server:
        node, sink = ElevenLabsTTS(options(server)), Sink()
        async with Session(Pipeline(node) >> Slow() >> sink, inputs=[SentenceFrame, LLMEnded]) as session:
            session.send_nowait(SentenceFrame(text, utterance=1))
            session.send_nowait(LLMEnded(utterance=1))
            for _ in range(40):
                await asyncio.sleep(0.25)
                most = max(most, node._outbox.seconds)
        assert most < 3.5
        pcm = b"".join(frame.pcm for frame in sink.frames if isinstance(frame, OutputAudioFrame))
        assert heard(pcm, RATE).strip() == text


@over_sockets
async def test_what_waits_to_go_on_is_dropped_by_an_interrupt() -> None:
    """Behind a slow listener too: nothing of it goes as far as being refused."""

    async with ElevenLabsServer(each_s=0.0, chars=50) as server:
        sink = Sink()
        async with Session(Pipeline(ElevenLabsTTS(options(server))) >> Slow() >> sink, inputs=[SentenceFrame, LLMEnded]) as session:
            for _ in range(6):
                session.send_nowait(SentenceFrame(TEXT, utterance=1))
            await asyncio.sleep(2.0)
            session.interrupt("the caller speaks")
            session.send_nowait(SentenceFrame(ONE, utterance=2))
            session.send_nowait(LLMEnded(utterance=2))
            await asyncio.sleep(3.0)
            assert session.refused == 0
        pcm = b"".join(frame.pcm for frame in sink.frames if isinstance(frame, OutputAudioFrame) and frame.utterance == 2)
        assert heard(pcm, RATE).strip() == ONE


@over_sockets
async def test_a_voice_that_is_quicker_than_was_reckoned_is_not_waited_for() -> None:
    """Without times it is not known how much sound is still to come; when none comes, there is none."""
    sentence = "Word " * 40 + "end."
    async with ElevenLabsServer(alignment=False, chars=100) as server, VoiceCall(ElevenLabsTTS(options(server))) as call:
        assert squeezed(await call.speak(sentence, sentence, sentence)) == squeezed(sentence * 3)
        assert call.session.time() < 2.5
        assert len(server.connections) == 1
        assert call.reports.errors == []


@over_sockets
async def test_the_last_word_does_not_wait_for_more_text() -> None:
    """Although the service says that it ends later than its sound does."""
    async with ElevenLabsServer(overshoot_s=0.5) as server, VoiceCall(ElevenLabsTTS(options(server))) as call:
        call.begin()
        call.say(ONE)
        await asyncio.sleep(1.0)
        assert call.text() == ONE
        call.end()
        await call.ended()
        assert [word.text for word in call.words()] == ONE.split()


@pytest.mark.parametrize("way", WAYS)
@over_sockets
async def test_a_notice_between_the_sentences_of_a_reply(way: str) -> None:
    """Each utterance in the order in which its text came, and one end for each."""
    async with ElevenLabsServer() as server, VoiceCall(ElevenLabsTTS(options(server, way=way))) as call:
        for frame in (
            SentenceFrame(ONE, utterance=1), SentenceFrame(TWO, utterance=2), LLMEnded(utterance=2), SentenceFrame(THREE, utterance=1),
            LLMEnded(utterance=1),
        ):  # fmt: skip
            call.session.send_nowait(frame)
        await call.ended(1)
        said = [(frame.utterance, type(frame) is UtteranceEnded) for frame in call.sink.frames]
        assert [key for key, _ in itertools.groupby(said)] == [(1, False), (2, False), (2, True), (1, False), (1, True)]
        pcm = b"".join(frame.pcm for frame in call.sink.frames if isinstance(frame, OutputAudioFrame))
        assert squeezed(heard(pcm, RATE)) == squeezed(TEXT)
        assert call.reports.errors == []


@over_sockets
async def test_compressed_bytes_where_pcm_was_asked_for_are_no_sound() -> None:
    """B34: an error that says so, and no noise."""
    async with ElevenLabsServer(encode=lambda codec, rate: lambda pcm, last: b"ID3\x04" + pcm) as server:
        for way in WAYS:
            async with VoiceCall(ElevenLabsTTS(options(server, way=way))) as call:
                await call.speak(ONE)
                await asyncio.sleep(0.1)
                assert call.pcm() == b""
                ((_, error),) = call.reports.errors
                assert "MP3 where PCM was asked for" in error


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("output_format", ["mp3_44100_128", "opus_48000_64"])
@over_sockets
async def test_compressed_sound_is_decoded_while_it_comes(output_format: str, way: str) -> None:
    """All of it, with its words at their places; the first of it long before the last has come."""
    compressed = pytest.importorskip("voiceflow.processors.services.compressed_sound", reason="pip install av")
    async with ElevenLabsServer(encode=Encoder, each_s=0.1) as server:
        chosen = options(server, way=way, output_format=output_format, decoder=compressed.decoder)
        async with VoiceCall(ElevenLabsTTS(chosen)) as call:
            call.begin()
            call.say(ONE)
            call.end()
            await call.sound()
            first = call.session.time()
            await call.ended()
            assert call.session.time() - first > 0.15
            duration = len(call.pcm()) / 2 / call.rate
            assert duration == pytest.approx(len(ONE) * CHAR_S, abs=0.12)
            assert [word.text for word in call.words()] == ONE.split()
            assert call.words()[-1].start == pytest.approx(CHAR_S * ONE.rindex(" "), abs=0.12)
            assert call.reports.errors == []


class Encoder:
    """PCM into MP3, or Opus in Ogg, as the service would."""

    def __init__(self, codec: str, rate: int) -> None:
        av = pytest.importorskip("av", reason="pip install av")
        self._file = io.BytesIO()
        self._av, self._rate = av, rate
        self._out = av.open(self._file, "w", format={"mp3": "mp3", "opus": "ogg"}[codec], options={"page_duration": "20000"})
        self._stream = self._out.add_stream({"mp3": "libmp3lame", "opus": "libopus"}[codec], rate=rate, layout="mono")
        self._fit = av.AudioResampler(format=self._stream.format, layout="mono", rate=rate, frame_size=self._stream.frame_size or 960)
        self._sent = 0

    def __call__(self, pcm: bytes, last: bool) -> bytes:
        frame = self._av.AudioFrame.from_ndarray(np.frombuffer(pcm, "<i2").reshape(1, -1), format="s16", layout="mono")
        frame.sample_rate = self._rate
        for fitted in [*self._fit.resample(frame), *(self._fit.resample(None) if last else [])]:
            self._out.mux(self._stream.encode(fitted))
        if last:
            self._out.mux(self._stream.encode(None))
            self._out.close()
        sound = self._file.getvalue()[self._sent :]
        self._sent += len(sound)
        return sound


@over_sockets
async def test_another_voice_takes_over_at_the_word() -> None:
    """When the first can no more, a second one says the rest, and only that."""
    broken = [Fault(after=3, close=(1008, "You have no quota left")), *[Fault(close=(1008, "You have no quota left"))] * 50]
    async with ElevenLabsServer(faults=broken, each_s=0.05) as first, ElevenLabsServer() as second:
        node = Fallback(ElevenLabsTTS(options(first)), ElevenLabsTTS(options(second)))
        sink = Sink()
        async with Session(Pipeline(node) >> sink, inputs=[SentenceFrame, LLMEnded]) as session:
            for number in (1, 2):
                for sentence in (ONE, TWO, THREE):
                    session.send_nowait(SentenceFrame(sentence, utterance=number))
                session.send_nowait(LLMEnded(utterance=number))
                while sum(isinstance(frame, UtteranceEnded) for frame in sink.frames) < number:
                    sink.news.clear()
                    await sink.news.wait()
                frames = [frame for frame in sink.frames if isinstance(frame, OutputAudioFrame) and frame.utterance == number]
                assert squeezed(heard(b"".join(frame.pcm for frame in frames), RATE)) == squeezed(TEXT)
                assert [word.text for frame in frames for word in frame.words] == TEXT.split()
        assert first.spoken
        assert second.refused == []


# ----------------------------------------------------------------------------------------------------- the key


@over_sockets
async def test_the_key_is_in_no_log_and_no_repr(caplog: pytest.LogCaptureFixture) -> None:
    """Although the service's own words quote it, and the libraries would log the headers."""
    fault = Fault(status=401, body={"detail": {"status": f"bad {KEY}", "message": KEY}})
    with caplog.at_level(logging.DEBUG):
        for way in WAYS:
            faults = [Fault(after=1, close=(1011, KEY)), *[fault] * 9]
            async with ElevenLabsServer(faults=faults) as server, VoiceCall(ElevenLabsTTS(options(server, way=way))) as call:
                await call.speak(ONE, TWO)
                await call.speak(ONE, TWO)
                await asyncio.sleep(0.1)
                shown = [repr(call.node), repr(call.node.options), *(error for _, error in call.reports.errors)]
                assert call.reports.errors
                assert not [text for text in shown if KEY in text]
    assert KEY not in caplog.text


@pytest.mark.parametrize(("key", "says"), [(None, "ELEVENLABS_API_KEY"), ("", "ELEVENLABS_API_KEY"), ("sk abc", "blanks")])
@over_sockets
async def test_a_missing_or_broken_key_ends_the_start(key: str | None, says: str) -> None:
    """It says what to set; nothing is asked of the vendor."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("ELEVENLABS_API_KEY", raising=False)
        for way in WAYS:
            session = VoiceCall(ElevenLabsTTS(ElevenLabsOptions(VOICE, way=way, api_key=key))).session
            with pytest.raises(ExceptionGroup) as raised:
                await session.run()
            text = "".join(str(error) for error in raised.value.exceptions)
            assert says in text
            assert not key or key not in text


@over_sockets
async def test_a_key_of_the_vendor_is_sent_to_no_other_host_unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only if its variable is named."""
    monkeypatch.setenv("ELEVENLABS_API_KEY", KEY)
    async with ElevenLabsServer() as server:
        async with VoiceCall(ElevenLabsTTS(options(server, api_key=None))) as call:
            await call.speak(ONE)
            await asyncio.sleep(0.1)
            assert "invalid_api_key" in call.reports.errors[0][1]
        async with VoiceCall(ElevenLabsTTS(options(server, api_key=None, api_key_variable="ELEVENLABS_API_KEY"))) as call:
            assert await call.speak(ONE) == ONE


# ------------------------------------------------------------------------------------------------- a whole call


@pytest.mark.parametrize("way", WAYS)
@over_sockets
async def test_a_whole_call_with_interrupts(way: str) -> None:
    """Whenever the caller speaks up: what the conversation holds is what the ear heard, to the word; nothing is heard out of turn."""
    for at_ms in (150, 900, 1350, 2600):
        async with ElevenLabsServer(first_s=0.1, each_s=0.05) as server, WholeCall(server, way) as call:
            call.asks("tell me a story")
            await asyncio.sleep(at_ms / 1000)
            call.session.interrupt("the caller speaks")
            at = call.session.time()
            story = call.heard(before=at)
            await asyncio.sleep(1.0)
            assert call.heard() == story, "sound after the interrupt"
            held = " ".join(message.text for message in call.context.conversation.messages if message.role == "assistant").split()
            assert held == STORY.split()[: len(held)]
            begun = len(squeezed(story))
            assert len("".join(held[:-1])) < begun or not held, "it holds a word that was not begun"
            assert begun <= len("".join(held)) + 0.06 / CHAR_S, "it lacks a word that was heard"
            call.asks("ping")
            await call.quiet()
            assert squeezed(call.heard()[len(story) :]) == squeezed(PONG)
            assert call.context.conversation.messages[-1].text == PONG
            assert call.reports.errors == []
            assert call.model.refused == []
        assert server.refused == []


@pytest.mark.parametrize("way", WAYS)
def test_interrupted_everywhere(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """At each point where the graph can wait (or some of them): nothing stale passes an edge, and the next question is answered in full."""
    monkeypatch.setattr("voiceflow.testing.everywhere.VirtualClockLoop", SocketLoop)

    async def scene(probe: Probe) -> None:
        async with ElevenLabsServer(each_s=0.03) as server, WholeCall(server, way, "One moment. I am looking.") as call:
            probe.watch(call.session)
            call.asks("hello")
            await asyncio.sleep(1.2)
            probe.finish()
            before = len(call.heard())
            call.asks("ping")
            await call.quiet()
            if squeezed(call.heard()[before:]) != squeezed(PONG):
                probe.problems.append(f"heard {call.heard()[before:]!r}")
            probe.problems += [error.error for error in call.reports.errors] + server.refused

    found = interrupt_everywhere(scene, every=5 if way == "contexts" else 11)
    found.check()
    assert found.tried > 8


STORY = "Once upon a time there was a king. He had three daughters, and all of them could sing! One day the youngest went away."


class WholeCall:
    """Context, a model that keeps to the rules of its kind, the node, and a speaker that plays at the pace of speech."""

    def __init__(self, server: ElevenLabsServer, way: str, reply: str = "") -> None:
        self.context, self.reports = Context(), CallReports()
        self.model = StrictLLM(lambda messages: reply or STORY, Latency(0.2, 0.02))
        self.blocks: list[tuple[float, bytes]] = []
        node = ElevenLabsTTS(options(server, way=way))
        self.speaker = Speaker(lambda pcm: self.blocks.append((self.session.time(), pcm)), AudioFormat(RATE))
        pipeline = Pipeline(self.reports) >> self.context >> self.model >> node.pieces() >> node >> self.speaker
        self.session = Session(pipeline, inputs=[TurnEnded])

    async def __aenter__(self) -> Self:
        await self.session.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.session.__aexit__(*error)

    def asks(self, text: str) -> None:
        """A turn of the caller's."""
        self.session.send_nowait(TurnEnded(text=text))

    async def quiet(self) -> None:
        """Wait until an answer has been heard to its end."""
        known = len(self.reports.playback)
        while not any(isinstance(frame, PlaybackStopped) for frame in self.reports.playback[known:]):
            await asyncio.sleep(0.05)

    def heard(self, before: float = float("inf")) -> str:
        """What left the speaker by then, silence aside; a character of which a part was played counts, the fade of a cut does not."""
        samples = np.frombuffer(b"".join(pcm for at, pcm in self.blocks if at <= before), "<i2")
        edges = np.flatnonzero(np.diff(samples, prepend=0, append=0))
        each, text = round(CHAR_S * RATE), ""
        for start, end in itertools.pairwise(edges.tolist()):
            if 32 <= samples[start] < 127 and end - start > each / 5:
                text += chr(samples[start]) * round((end - start) / each + 0.4)
        return text


# ------------------------------------------------------------------------------------------------------- the kit


class Served(ElevenLabsTTS):
    """Brings its server along, in the loop that the kit makes for each run."""

    way = "contexts"

    def __init__(self) -> None:
        self.server = ElevenLabsServer(each_s=0.01)
        super().__init__(ElevenLabsOptions(VOICE, way=self.way, base_url="http://127.0.0.1:1", api_key=KEY))

    async def start(self) -> None:
        await self.server.__aenter__()
        chosen = replace(self.options, base_url=self.server.url)
        self._service = type(self._service)(chosen)
        await super().start()

    async def stop(self) -> None:
        await super().stop()
        await self.server.__aexit__()


@pytest.mark.parametrize("way", WAYS)
def test_the_node_conforms(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The conformance kit: strangers pass, interrupts leave it as good as new, neighbours do it no harm, nothing is left behind."""
    monkeypatch.setattr("voiceflow.testing.conformance.VirtualClockLoop", SocketLoop)
    monkeypatch.setattr(Served, "way", way)
    check_processor(Served, [SentenceFrame("One moment.", utterance=1), LLMEnded(utterance=1)], every=3)
