"""Deepgram: the vendor's own client against our server, and our nodes against the same one."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Iterator, Sequence
from typing import Any, Self

import numpy as np
import pytest

pytest.importorskip("aiohttp", reason="pip install aiohttp")
pytest.importorskip("websockets", reason="pip install websockets")

from websockets.exceptions import InvalidStatus

from tests.conformance.elevenlabs_call import Reports, Sink, VoiceCall
from tests.conformance.servers.deepgram_server import GAP_S, KEY, RATE, WORD_S, DeepgramServer, Fault, speech
from tests.conformance.servers.elevenlabs_server import CHAR_S, heard, sound_of
from tests.conformance.servers.sockets import over_sockets
from tests.conversations.rig import StrictLLM
from voiceflow import (
    LLMEnded,
    Pipeline,
    Processor,
    SentenceFrame,
    Session,
    SpeechStarted,
    SpeechStopped,
    TranscriptFrame,
)  # fmt: skip
from voiceflow.audio import alaw_decode, alaw_encode, mulaw_decode, mulaw_encode
from voiceflow.backoff import BackoffOptions
from voiceflow.frames import AudioFormat, InputAudioFrame, TurnEnded
from voiceflow.processors.context import Context
from voiceflow.processors.end_policies import Silence
from voiceflow.processors.services.deepgram_flux import ConfigureFlux, DeepgramFlux, FluxOptions
from voiceflow.processors.services.deepgram_options import LineOptions
from voiceflow.processors.services.deepgram_stt import DeepgramOptions, DeepgramSTT
from voiceflow.processors.services.deepgram_tts import AuraOptions, DeepgramTTS
from voiceflow.processors.speculation import Speculation
from voiceflow.processors.turns import Turns
from voiceflow.testing import Latency
from voiceflow.transports.speaker import Speaker

ONE, TWO, THREE = "Good day to you, my friend.", "This is the second sentence!", "And here comes number 3?"
VOICE_RATE = 24000


def line(server: DeepgramServer | str, **more: Any) -> LineOptions:
    """To that server, with its key."""
    return LineOptions(**{"base_url": server if isinstance(server, str) else server.url, "api_key": KEY, **more})


def squeezed(text: str) -> str:
    return "".join(text.split())


# ------------------------------------------------------------------------------------------- the vendor's client


ITS_OWN_BUSINESS = pytest.mark.filterwarnings("ignore:websockets.*:DeprecationWarning")


def official(use: Any, key: str = KEY, **more: Any) -> Any:
    """``use(client)`` in a thread of its own, on the real clock. The server found nothing wrong."""
    deepgram = pytest.importorskip("deepgram", reason="pip install deepgram-sdk==7.17.0")
    environment = pytest.importorskip("deepgram.environment").DeepgramClientEnvironment

    async def scene() -> Any:
        async with DeepgramServer(**{"first_s": 0.01, "each_s": 0.001, "lag_s": 0.001, **more}) as server:
            ws = server.url.replace("http", "ws", 1)
            client = deepgram.DeepgramClient(
                api_key=key, environment=environment(base=server.url, production=ws, agent=ws, agent_rest=server.url)
            )
            try:
                return await asyncio.to_thread(use, client)
            finally:
                client._client_wrapper.httpx_client.httpx_client.close()
                assert server.refused == []

    return asyncio.run(scene())


@ITS_OWN_BUSINESS
def test_the_official_client_listens() -> None:
    """Partials, finals, the answer to Finalize and the goodbye, each as the client's own type; the words are those of the sound."""

    def use(client: Any) -> list[Any]:
        found = []
        with client.listen.v1.connect(
            model="nova-3", encoding="linear16", sample_rate=str(RATE), interim_results="true", vad_events="true", endpointing="false",
            utterance_end_ms="1000",
        ) as socket:  # fmt: skip
            for number in range(6):
                socket.send_media(speech([number + 1]))
            socket.send_finalize()
            socket.send_keep_alive()
            socket.send_close_stream()
            found += list(socket)
        return found

    messages = official(use)
    results = [message for message in messages if message.type == "Results"]
    assert " ".join(r.channel.alternatives[0].transcript for r in results if r.is_final).split() == ["w1", "w2", "w3", "w4", "w5", "w6"]
    assert [r.from_finalize for r in results if r.from_finalize] == [True]
    assert any(not r.is_final for r in results)
    assert {type(m).__name__ for m in messages} == {"ListenV1Results", "ListenV1SpeechStarted", "ListenV1Metadata"}


@ITS_OWN_BUSINESS
def test_the_official_client_follows_turns() -> None:
    """Each event of Flux, with the transcript so far, and a configuration."""

    def use(client: Any) -> list[Any]:
        with client.listen.v2.connect(
            model="flux-general-en", encoding="linear16", sample_rate=str(RATE), eager_eot_threshold="0.4"
        ) as socket:
            for piece in (speech([1], pause_s=0.3), speech([2], pause_s=0.8)):
                socket.send_media(piece)
            socket.send_close_stream()
            return list(socket)

    messages = official(use)
    assert type(messages[0]).__name__ == "ListenV2Connected"
    turn = [message for message in messages if message.type == "TurnInfo" and message.event != "Update"]
    assert [message.event for message in turn] == ["StartOfTurn", "EagerEndOfTurn", "TurnResumed", "EagerEndOfTurn", "EndOfTurn"]
    assert turn[-1].transcript == turn[-2].transcript == "w1 w2"
    assert [message.sequence_id for message in messages] == list(range(len(messages)))


@ITS_OWN_BUSINESS
def test_the_official_client_speaks() -> None:
    """Sound that says the text, what was flushed and cleared, metadata."""
    speak = pytest.importorskip("deepgram.speak.v1.types", reason="pip install deepgram-sdk==7.17.0")

    def use(client: Any) -> list[Any]:
        with client.speak.v1.connect(model="aura-2-thalia-en", encoding="linear16", sample_rate="24000") as socket:
            socket.send_text(speak.SpeakV1Text(type="Speak", text=ONE))
            socket.send_flush()
            found = [socket.recv()]
            while getattr(found[-1], "type", "") != "Flushed":
                found.append(socket.recv())
            socket.send_clear()
            found.append(socket.recv())
            socket.send_close()
            return [*found, *socket]

    messages = official(use)
    assert heard(b"".join(m for m in messages if isinstance(m, bytes)), VOICE_RATE) == ONE
    assert [m.type for m in messages if not isinstance(m, bytes)] == ["Metadata", "Flushed", "Cleared"]


@ITS_OWN_BUSINESS
def test_the_official_client_meets_the_same_refusal() -> None:
    """A wrong key."""

    def use(client: Any) -> int:
        with pytest.raises(InvalidStatus) as raised, client.listen.v1.connect(model="nova-3"):
            pass
        return raised.value.response.status_code

    assert official(use, key="wrong") == 401


# ---------------------------------------------------------------------------------------------------- speaking


def call_of(server: DeepgramServer, **more: Any) -> VoiceCall:
    return VoiceCall(DeepgramTTS(AuraOptions(line=line(server), **more)))


@over_sockets
async def test_an_utterance_is_spoken_with_words_that_are_estimates() -> None:
    """Every character once and in order; every word, near its place, marked; one end."""
    async with DeepgramServer() as server, call_of(server) as call:
        await call.speak(ONE, TWO)  # the voice's pace is learned
        assert squeezed(await call.speak(ONE, TWO, THREE)) == squeezed(ONE + TWO + THREE)
        words = call.words()
        assert [word.text for word in words] == f"{ONE} {TWO} {THREE}".split()
        assert all(word.estimated for word in words)
        starts = np.array([word.start for word in words])
        assert (np.diff(starts) >= 0).all()
        true = [CHAR_S * m for m in np.cumsum([0, *(len(w) + 1 for w in f"{ONE} {TWO} {THREE}".split()[:-1])])]
        assert np.abs(starts - true).max() < 0.35
        assert call.ends(call.utterance) == 1
        assert call.reports.errors == []
    assert server.refused == []
    assert len(server.connections) == 1


@over_sockets
async def test_sound_comes_before_the_last_text_is_there() -> None:
    """The first sentence is heard while the second is not even written."""
    async with DeepgramServer() as server, call_of(server) as call:
        number = call.begin()
        call.say(ONE)
        await call.sound()
        await asyncio.sleep(1.0)
        assert squeezed(call.text()) == squeezed(ONE)
        call.say(TWO)
        call.end()
        while not call.ends(number):
            await call.news()
        assert squeezed(call.text()) == squeezed(ONE + TWO)
    assert server.refused == []


@pytest.mark.parametrize("after_s", [0.0, 0.05, 0.12, 0.3, 0.6, 1.5])
@over_sockets
async def test_cancel_in_mid_utterance_and_the_next_turn_is_clean(after_s: float) -> None:
    """Clear is sent and its acknowledgement awaited; nothing of the old utterance comes any more; the connection stays."""
    async with DeepgramServer(each_s=0.1, lag_s=0.1) as server, call_of(server) as call:
        first = call.begin()
        call.say(ONE, TWO, THREE)
        await asyncio.sleep(after_s)
        interruption = call.session.interrupt("the caller speaks")
        before = len(call.frames(first))
        assert squeezed(await call.speak("And now this.")) == "Andnowthis."
        await asyncio.sleep(1.0)
        assert len(call.frames(first)) == before
        assert call.ends(first) == 0
        assert call.reports.errors == []
        assert len(server.connections) == 1
        if after_s:
            assert interruption.acknowledged.get(call.node.name) is not None
            assert server.connections[0].kinds().count("Clear") == 1
    assert server.refused == []


@over_sockets
async def test_interrupted_again_and_again() -> None:
    """B05: one connection; the last turn is whole."""
    async with DeepgramServer(each_s=0.05) as server, call_of(server) as call:
        for turn in range(12):
            call.begin()
            if turn % 2:
                call.say(ONE, TWO)
                await call.sound()
            await asyncio.sleep(0.05)
            call.session.interrupt("again")
            await asyncio.sleep(0.1)
        assert await call.speak("This one is not interrupted.") == "This one is not interrupted."
        assert len(server.connections) == 1
        assert call.reports.errors == []
    assert server.refused == []


@over_sockets
async def test_a_clear_that_is_not_acknowledged_costs_the_connection() -> None:
    """It is not waited for long; the next turn is clean on another connection."""
    async with DeepgramServer(each_s=0.1, faults=[Fault(silent=True, after=3)]) as server, call_of(server) as call:
        call.begin()
        call.say(ONE, TWO)
        await call.sound()
        await asyncio.sleep(0.6)
        at = call.session.time()
        call.session.interrupt("again")
        assert await call.speak("Next.") == "Next."
        assert call.session.time() - at < 1.5
        assert len(server.connections) == 2


@over_sockets
async def test_a_hundred_turns_on_one_connection() -> None:
    """Nothing is left behind (which the test's clock sees to)."""
    async with DeepgramServer(first_s=0.05, each_s=0.0, chars=40) as server, call_of(server) as call:
        for number in range(100):
            assert await call.speak(f"This is turn {number}.") == f"This is turn {number}."
            await asyncio.sleep(3.5)
        assert len(server.connections) == 1
        assert call.reports.errors == []
    assert server.refused == []


@over_sockets
async def test_many_short_sentences_are_flushed_together() -> None:
    """The service warns of the twenty-first flush in a minute: it does not come to that."""
    sentences = [f"It is {number}." for number in range(60)]
    async with DeepgramServer(first_s=0.02, each_s=0.0, chars=50) as server, call_of(server) as call:
        assert squeezed(await call.speak(*sentences)) == squeezed("".join(sentences))
        assert call.reports.errors == []
    assert server.refused == []


def odd_sizes(seed: int) -> Iterator[int]:
    chance = random.Random(seed)
    return iter(lambda: chance.choice([1, 3, 2, 4063, 1697, 5]), None)


@pytest.mark.parametrize("seed", range(3))
@over_sockets
async def test_chunks_cut_anywhere(seed: int) -> None:
    """B32: within a sample too; after a cancel as well nothing is shifted."""
    async with DeepgramServer(each_s=0.0005, sizes=lambda: odd_sizes(seed)) as server, call_of(server) as call:
        assert squeezed(await call.speak(ONE, TWO)) == squeezed(ONE + TWO)
        call.begin()
        call.say(THREE)
        await call.sound()
        call.session.interrupt("now")
        assert await call.speak(TWO) == TWO
        assert call.reports.errors == []


@pytest.mark.parametrize(("encoding", "rate"), [("mulaw", 8000), ("alaw", 8000), ("linear16", 48000), ("linear16", 8000)])
@over_sockets
async def test_each_encoding_is_decoded(encoding: str, rate: int) -> None:
    """B34: to the sample, with the rate that was asked for."""
    codec = {"mulaw": lambda p: mulaw_decode(mulaw_encode(p)), "alaw": lambda p: alaw_decode(alaw_encode(p))}.get(encoding, bytes)
    async with DeepgramServer() as server, call_of(server, encoding=encoding, sample_rate=rate) as call:
        await call.speak(ONE)
        assert call.pcm() == codec(sound_of(ONE + " ", rate)) or call.pcm() == codec(sound_of(ONE, rate))
        assert server.connections[0].query["encoding"] == encoding


@over_sockets
async def test_compressed_bytes_where_pcm_was_asked_for_are_no_sound() -> None:
    """B34: an error that says so, and no noise."""
    async with DeepgramServer(prefix=b"ID3\x04") as server, call_of(server) as call:
        await call.speak(ONE)
        await asyncio.sleep(0.1)
        assert call.pcm() == b""
        assert "MP3 where PCM was asked for" in call.reports.errors[0][1]


BREAKS = {
    "cut": Fault(cut=True),
    "closed": Fault(close=(1011, "NET-0000")),
    "goes away": Fault(close=(1001, "")),
    "half open": Fault(silent=True),
    "error": Fault(error={"description": KEY, "code": "INTERNAL"}, close=(1011, "")),
}


@pytest.mark.parametrize("after", [0, 1, 4])
@pytest.mark.parametrize("how", list(BREAKS))
@over_sockets
async def test_a_voice_whose_connection_breaks_goes_on_at_the_word(how: str, after: int) -> None:
    """Every word is said; at most one of them, which was cut, is begun again; no error is told."""
    fault = BREAKS[how]
    broken = Fault(close=fault.close, error=fault.error, cut=fault.cut, silent=fault.silent, after=after)
    async with DeepgramServer(faults=[broken], each_s=0.05) as server, call_of(server) as call:
        await call.speak(ONE, TWO)
        assert [word.text for word in call.words()] == f"{ONE} {TWO}".split()
        assert len(server.connections) >= 2 or after == 0
        assert await call.speak("Next turn.") == "Next turn."
        assert call.reports.errors == []
    assert server.refused == []


REFUSALS = [
    (Fault(status=401, body={"err_code": "INVALID_AUTH", "err_msg": KEY}), "INVALID_AUTH", "api_key"),
    (Fault(status=402, body={"err_code": "ASR_PAYMENT_REQUIRED", "err_msg": KEY}), "402", "credit"),
    (Fault(status=403, body={"err_code": "INSUFFICIENT_PERMISSIONS", "err_msg": KEY}), "INSUFFICIENT", "model"),
    (Fault(status=400, body={"err_code": f"Bad {KEY}", "err_msg": KEY}), "400", "encoding"),
    (Fault(close=(1008, f"DATA-0000 {KEY}")), "DATA-0000", "sample_rate"),
    (Fault(error={"code": "UNPARSABLE_CLIENT_MESSAGE", "description": KEY}, close=(1008, KEY)), "", "the service does not"),
]


@pytest.mark.parametrize("number", range(len(REFUSALS)))
@over_sockets
async def test_a_refusal_says_what_to_do_and_is_not_repeated(number: int) -> None:
    """For the voice and the recogniser: its name and a hint, once in a while; no key and none of the service's sentences."""
    fault, name, hint = REFUSALS[number]
    async with DeepgramServer(faults=[fault] * 50) as server, call_of(server) as call:
        await call.speak(ONE)
        await asyncio.sleep(30)
        errors = [error for _, error in call.reports.errors]
        assert len(errors) == 1
        assert name in errors[0]
        assert hint in errors[0]
        assert KEY not in errors[0]
        assert server.served <= 10
    async with DeepgramServer(faults=[fault] * 50) as server, EarCall(DeepgramSTT(listening(server))) as ear:
        await ear.hears(speech([1], pause_s=0.5))
        await asyncio.sleep(30)
        errors = ear.errors()
        assert errors
        assert all(name in error and hint in error and KEY not in error for error in errors)
        assert server.served <= 10


# --------------------------------------------------------------------------------------------------- listening


def listening(server: DeepgramServer | str, line_options: dict[str, Any] | None = None, **more: Any) -> DeepgramOptions:
    return DeepgramOptions(line=line(server, **(line_options or {})), **more)


def flux(server: DeepgramServer | str, line_options: dict[str, Any] | None = None, **more: Any) -> FluxOptions:
    return FluxOptions(line=line(server, **(line_options or {})), **more)


class Ear(Processor):
    """Keeps what the recogniser says."""

    def __init__(self) -> None:
        self.frames: list[tuple[float, Any]] = []
        self.news = asyncio.Event()

    def process(self, frame: TranscriptFrame | SpeechStarted | SpeechStopped | TurnEnded) -> None:
        self.frames.append((self.session.time(), frame))
        self.news.set()


class EarCall:
    """A caller whose sound says which words it is, 50 ms at a time, in the session's time."""

    def __init__(self, node: DeepgramSTT | DeepgramFlux) -> None:
        self.node, self.ear, self.reports = node, Ear(), Reports()
        inputs: list[type[Any]] = [InputAudioFrame, SpeechStarted, SpeechStopped] if isinstance(node, DeepgramSTT) else [InputAudioFrame]
        if isinstance(node, DeepgramFlux):
            inputs.append(ConfigureFlux)
        self.session = Session(Pipeline(self.reports) >> node >> self.ear, inputs=inputs)

    async def __aenter__(self) -> Self:
        await self.session.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.session.__aexit__(*error)

    async def hears(self, pcm: bytes, rate: int = RATE) -> None:
        """The microphone: in real time."""
        size = 2 * rate // 20
        for at in range(0, len(pcm), size):
            self.session.send_nowait(InputAudioFrame(pcm[at : at + size], rate))
            await asyncio.sleep(0.05)

    async def says(self, words: Sequence[int], pause_s: float = 0.5) -> None:
        """With the edges of a detector, which tells the end 200 ms late."""
        self.session.send_nowait(SpeechStarted(at=self.session.time()))
        await self.hears(speech(words))
        ended = self.session.time()
        await self.hears(speech([], pause_s=0.2))
        self.session.send_nowait(SpeechStopped(at=ended, silence=0.2))
        await self.hears(speech([], pause_s=pause_s))

    def of(self, kind: type[Any]) -> list[Any]:
        return [frame for _, frame in self.ear.frames if isinstance(frame, kind)]

    def finals(self) -> list[str]:
        return [frame.text for frame in self.of(TranscriptFrame) if frame.final]

    def errors(self) -> list[str]:
        return [error for _, error in self.reports.errors]


def named(numbers: Sequence[int]) -> str:
    return " ".join(f"w{number}" for number in numbers)


@over_sockets
async def test_each_stretch_of_speech_has_one_final_with_all_of_its_words() -> None:
    """Partials grow, their stable words stay; the final comes soon after the end of speech, which the service is told of."""
    async with DeepgramServer() as server, EarCall(DeepgramSTT(listening(server))) as call:
        await call.says(range(1, 8))
        await call.says([8], pause_s=1.0)
        await call.says([], pause_s=0.5)
        assert call.finals() == [named(range(1, 8)), "w8", ""]
        stops = [at for at, frame in call.ear.frames if isinstance(frame, SpeechStopped)]
        ends = [at for at, frame in call.ear.frames if isinstance(frame, TranscriptFrame) and frame.final]
        assert ends[0] - stops[0] < 0.1
        stable: list[str] = []
        for frame in itertools.takewhile(lambda frame: "w8" not in frame.text, call.of(TranscriptFrame)):
            assert frame.text.split()[: len(stable)] == stable
            stable = frame.text.split()[: frame.stable]
        assert len(stable) == 7
        partials = [frame for frame in call.of(TranscriptFrame) if not frame.final]
        assert len(partials) >= 3
        first = call.of(TranscriptFrame)[0]
        assert first.confidence == pytest.approx(0.9)
        assert server.connections[0].kinds() == ["Finalize"] * 3
    assert server.connections[0].kinds()[-1] == "CloseStream"
    assert server.connections[0].closed == 1000
    assert server.refused == []


@over_sockets
async def test_words_have_the_times_at_which_they_were_said() -> None:
    """On the session's clock, however late the connection came, and after silence that was made up to keep it."""
    async with DeepgramServer() as server, EarCall(DeepgramSTT(listening(server))) as call:
        await asyncio.sleep(7.0)
        began = call.session.time()
        await call.says([1, 2, 3])
        (final,) = [frame for frame in call.of(TranscriptFrame) if frame.final]
        assert [word.text for word in final.words] == ["w1", "w2", "w3"]
        for number, word in enumerate(final.words):
            assert word.start == pytest.approx(began + number * (WORD_S + GAP_S), abs=0.03)
            assert word.end - word.start == pytest.approx(WORD_S, abs=0.02)
        assert final.pts == pytest.approx(began, abs=0.03)


@over_sockets
async def test_speech_that_no_detector_told_of_is_final_when_the_service_says_so() -> None:
    """Joined over all of its segments; with ``edges`` its beginning and end are told as well."""
    for edges in (False, True):
        async with DeepgramServer() as server, EarCall(DeepgramSTT(listening(server, edges=edges))) as call:
            await call.hears(speech(range(1, 7), pause_s=1.5))
            await call.hears(speech([7], pause_s=1.5))
            assert call.finals() == [named(range(1, 7)), "w7"]
            assert [frame.endpoint for frame in call.of(TranscriptFrame) if frame.final] == [True, True]
            kinds = [type(frame) for frame in call.of(SpeechStarted | SpeechStopped)]
            assert kinds == ([SpeechStarted, SpeechStopped] * 2 if edges else [])
            assert "Finalize" not in server.connections[0].kinds()


@over_sockets
async def test_a_muted_line_is_kept_and_a_silent_start_too() -> None:
    """Something is sent in time, in text, never an empty piece; nothing is dialled again; the end is quick."""
    async with DeepgramServer() as server:
        async with EarCall(DeepgramSTT(listening(server))) as call:
            await asyncio.sleep(25)
            await call.says([1])
            await asyncio.sleep(60)
            await call.says([2])
            assert call.finals() == ["w1", "w2"]
            assert len(server.connections) == 1
            assert "KeepAlive" in server.connections[0].kinds()
            ended_at = call.session.time()
        assert asyncio.get_running_loop().time() - ended_at < 0.5
    assert server.refused == []


@pytest.mark.parametrize("rate", [8000, 16000, 48000])
@over_sockets
async def test_sound_of_any_rate_is_heard(rate: int) -> None:
    """It is brought to the rate that was asked for. (At another rate the words' edges blur: they are heard as cut.)"""
    async with DeepgramServer() as server, EarCall(DeepgramSTT(listening(server))) as call:
        call.session.send_nowait(SpeechStarted(at=0.0))
        await call.hears(np.repeat(np.array([0, 9000, 0], "<i2"), rate).tobytes(), rate)
        call.session.send_nowait(SpeechStopped(at=2.0))
        await asyncio.sleep(0.5)
        total = len(server.connections[0].heard) / 2 / RATE
        assert total == pytest.approx(3.0, abs=0.1)
        assert len(call.finals()) == 1


STT_BREAKS = {name: fault for name, fault in BREAKS.items() if name != "half open"}


@pytest.mark.parametrize("after", [0.3, 0.9, 1.3, 2.0, 2.6])
@pytest.mark.parametrize("how", list(STT_BREAKS))
@over_sockets
async def test_a_connection_lost_while_the_caller_speaks_loses_and_doubles_no_word(how: str, after: float) -> None:
    """B50: what was not final is sent again, from there, in order; each word is heard whole and once."""
    fault = BREAKS[how]
    broken = Fault(close=fault.close, error=fault.error, cut=fault.cut, after=after)
    async with DeepgramServer(faults=[broken, broken]) as server, EarCall(DeepgramSTT(listening(server))) as call:
        await call.says(range(1, 11), pause_s=2.0)
        await call.says([11, 12], pause_s=2.0)
        assert call.finals() == [named(range(1, 11)), "w11 w12"]
        assert len(server.connections) == 3
        assert call.errors() == []
    assert server.refused == []


@pytest.mark.parametrize("after", [0.3, 1.3, 1.8])
@over_sockets
async def test_a_half_open_recogniser_is_found_out(after: float) -> None:
    """It reads on and says nothing: another connection hears it all."""
    for node in (DeepgramSTT, DeepgramFlux):
        async with DeepgramServer(faults=[Fault(silent=True, after=after)]) as server:
            chosen: Any = listening(server) if node is DeepgramSTT else flux(server)
            async with EarCall(node(chosen)) as call:
                if node is DeepgramSTT:
                    await call.says(range(1, 9), pause_s=4.0)
                else:
                    await call.hears(speech(range(1, 9), pause_s=8.0))
                assert call.finals() == [named(range(1, 9))]
                assert len(server.connections) == 2
                assert call.errors() == []


@over_sockets
async def test_a_service_that_answers_no_finalize_is_not_waited_for() -> None:
    """The words that are final count after a second; none comes twice, none is lost, the connection stays."""
    async with DeepgramServer(faults=[Fault(mute_finalize=True)]) as server, EarCall(DeepgramSTT(listening(server))) as call:
        await call.says([1, 2, 3], pause_s=2.0)
        await call.says([4], pause_s=2.0)
        assert " ".join(call.finals()).split() == ["w1", "w2", "w3", "w4"]
        assert len(server.connections) == 1


@over_sockets
async def test_nobody_listens_for_a_while() -> None:
    """Three seconds in which the caller speaks: it is heard when the service is there; longer, and an error says so first."""
    async with DeepgramServer() as server:
        port = server.port
    patient = {"backoff": BackoffOptions(tries=20)}
    async with EarCall(DeepgramSTT(listening(f"http://127.0.0.1:{port}", patient))) as call:
        await call.says([1, 2, 3], pause_s=1.0)
        again = DeepgramServer()
        again.port = port
        async with again:
            await asyncio.sleep(12)
            await call.says([4], pause_s=1.0)
            assert call.finals() == ["w1 w2 w3", "w4"]
            call.session.cancel()


@over_sockets
async def test_more_sound_than_is_kept_is_lost_from_its_beginning() -> None:
    """An outage longer than the memory: the newest words are heard, the number of lost samples is known."""
    async with DeepgramServer() as server:
        port = server.port
    few = {"kept_s": 2.0, "again_s": 1.0}
    async with EarCall(DeepgramSTT(listening(f"http://127.0.0.1:{port}", few))) as call:
        await call.says(range(1, 21), pause_s=0.1)
        again = DeepgramServer()
        again.port = port
        async with again:
            await asyncio.sleep(12)
            (text,) = call.finals()
            words = text.split()
            assert words[-5:] == [f"w{n}" for n in range(16, 21)]
            assert len(words) < 10
            assert call.node.sound.lost > 0
            assert call.errors()
            call.session.cancel()


@over_sockets
async def test_the_last_words_before_the_end_are_heard() -> None:
    """The call ends while the caller speaks: the tail is asked for and waited for; with a dead service not for long."""
    async with DeepgramServer(lag_s=0.3) as server:
        async with EarCall(DeepgramSTT(listening(server))) as call:
            call.session.send_nowait(SpeechStarted(at=0.0))
            await call.hears(speech([1, 2, 3]))
        assert call.finals() == ["w1 w2 w3"]
    async with DeepgramServer(faults=[Fault(silent=True, after=0.1)]) as server:
        async with EarCall(DeepgramSTT(listening(server))) as call:
            call.session.send_nowait(SpeechStarted(at=0.0))
            await call.hears(speech([1, 2, 3]))
            at = call.session.time()
        assert asyncio.get_running_loop().time() - at < 3.0
        assert call.finals() == [""]


@over_sockets
async def test_a_service_that_accepts_and_closes_every_time() -> None:
    """B50: a few quick tries, then an error and one try in ten seconds; the end of the call is not held up."""
    async with DeepgramServer(faults=[Fault(close=(1011, "NET-0000"))] * 100) as server:
        async with EarCall(DeepgramSTT(listening(server))) as call:
            await call.hears(speech([1], pause_s=29.0))
            assert server.served <= 10
            assert 1 <= len(call.errors()) <= 4
            at = call.session.time()
        assert asyncio.get_running_loop().time() - at < 2.5


@over_sockets
async def test_a_hundred_stretches_of_speech_on_one_connection() -> None:
    """Each has its final; the memory stays small; nothing is left behind."""
    async with DeepgramServer() as server, EarCall(DeepgramSTT(listening(server))) as call:
        for number in range(100):
            await call.says([number + 1], pause_s=0.1)
        await asyncio.sleep(0.5)
        assert call.finals() == [f"w{n + 1}" for n in range(100)]
        assert len(server.connections) == 1
        assert len(call.node.sound._data) < 2 * RATE * 5


@over_sockets
async def test_a_greeting_is_no_proof_that_the_service_works() -> None:
    """B50: Flux says that it is connected, and then closes, every time: it is given up as if it had said nothing."""
    faults = [Fault(close=(1011, "NET-0000"), after=0.3)] * 200
    async with DeepgramServer(faults=faults, lag_s=0.0) as server, EarCall(DeepgramFlux(flux(server))) as call:
        await call.hears(speech([1], pause_s=20.0))
        assert server.served <= 10
        assert call.errors()
        call.session.cancel()


# --------------------------------------------------------------------------------------------------------- Flux


@over_sockets
async def test_flux_turns_are_edges_and_endpoints() -> None:
    """A pause is the end of speech, speech after it another beginning, the end of the turn one final of all its words."""
    async with DeepgramServer() as server, EarCall(DeepgramFlux(flux(server, eager_eot_threshold=0.4))) as call:
        await call.hears(speech([1, 2], pause_s=0.4))
        await call.hears(speech([3], pause_s=1.0))
        await call.hears(speech([4], pause_s=1.0))
        shown = [f"{frame.text}{'.' if frame.final else ''}" if isinstance(frame, TranscriptFrame) else type(frame).__name__[6:]
                 for _, frame in call.ear.frames]  # fmt: skip
        assert shown == [
            "Started",
            "w1",
            "w1 w2",
            "Stopped",
            "Started",
            "w1 w2 w3",
            "Stopped",
            "w1 w2 w3.",
            "Started",
            "w4",
            "Stopped",
            "w4.",
        ]
        assert [frame.endpoint for frame in call.of(TranscriptFrame) if frame.final] == [True, True]
        assert set(server.connections[0].sizes) == {2 * RATE * 80 // 1000}
    assert server.refused == []


@pytest.mark.parametrize("after", [0.3, 0.9, 1.5, 2.3])
@over_sockets
async def test_flux_lost_in_a_turn_hears_it_again_from_its_start(after: float) -> None:
    """One beginning, one end, every word once."""
    async with DeepgramServer(faults=[Fault(cut=True, after=after)]) as server, EarCall(DeepgramFlux(flux(server))) as call:
        await call.hears(speech(range(1, 7), pause_s=2.0))
        await call.hears(speech([7], pause_s=2.0))
        assert call.finals() == [named(range(1, 7)), "w7"]
        assert [type(frame) for frame in call.of(SpeechStarted | SpeechStopped)] == [SpeechStarted, SpeechStopped] * 2
        assert len(server.connections) == 2


@over_sockets
async def test_flux_is_configured_in_the_call_and_again_on_another_connection() -> None:
    """What it does not take is an error that says so."""
    async with DeepgramServer(faults=[Fault(cut=True, after=3.0)]) as server, EarCall(DeepgramFlux(flux(server))) as call:
        await call.hears(speech([1], pause_s=1.0))
        call.session.send_nowait(ConfigureFlux(eager_eot_threshold=0.5, keyterms=("voiceflow",)))
        await call.hears(speech([2], pause_s=3.0))
        wanted = {"type": "Configure", "thresholds": {"eager_eot_threshold": 0.5}, "keyterms": ["voiceflow"]}
        assert [connection.messages for connection in server.connections] == [[wanted], [wanted]]
        call.session.send_nowait(ConfigureFlux(eot_threshold=2.0))
        await call.hears(speech([], pause_s=1.0))
        assert "CONFIGURE_INVALID" in call.errors()[0]


@over_sockets
async def test_the_end_of_a_call_in_an_open_turn() -> None:
    """What Flux had told by then is the turn."""
    async with DeepgramServer() as server:
        async with EarCall(DeepgramFlux(flux(server))) as call:
            await call.hears(speech([1, 2, 3], pause_s=0.1))
        assert call.finals() == ["w1 w2 w3"]
    assert server.refused == []


# ---------------------------------------------------------------------------------------------------- whole calls


class WholeCall:
    """Sound, Flux, turns, context, a model that keeps to the rules of its kind, Aura, a speaker that plays at the pace of speech."""

    def __init__(self, server: DeepgramServer, *, speculates: bool) -> None:
        self.options = flux(server, eager_eot_threshold=0.4)
        self.llm = StrictLLM(lambda messages: f"You said {messages[-1].text}.", Latency(0.05, 0.01))
        self.context = Context()
        self.blocks: list[bytes] = []
        voice = DeepgramTTS(AuraOptions(line=line(server)))
        speaker = Speaker(self.blocks.append, AudioFormat(VOICE_RATE))
        self.node = DeepgramFlux(self.options)
        head = self.node >> Turns(self.options.turns()) >> self.context >> self.llm >> voice.pieces()
        pipeline = head >> Speculation(eager=Silence(0.0)) >> voice >> speaker if speculates else head >> voice >> speaker
        self.session = Session(pipeline, inputs=[InputAudioFrame])

    async def __aenter__(self) -> Self:
        await self.session.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.session.__aexit__(*error)

    hears = EarCall.hears

    def asked(self) -> list[str]:
        """The caller's last words in each request."""
        return [messages[-1].text for messages in self.llm.requests]

    def said(self) -> list[tuple[str, str]]:
        """The conversation."""
        return [(message.role, squeezed(message.text)) for message in self.context.conversation.messages]

    def heard(self) -> str:
        """What left the speaker; a character of which a part was played counts, the fade of a cut does not."""
        samples = np.frombuffer(b"".join(self.blocks), "<i2")
        edges = np.flatnonzero(np.diff(samples, prepend=0, append=0))
        each, text = round(CHAR_S * VOICE_RATE), ""
        for start, end in itertools.pairwise(edges.tolist()):
            if 32 < samples[start] < 127 and end - start > each / 5:
                text += chr(samples[start]) * round((end - start) / each + 0.4)
        return text


TALK = [("user", "w1w2w3"), ("assistant", "Yousaidw1w2w3."), ("user", "w4w5"), ("assistant", "Yousaidw4w5.")]


@pytest.mark.parametrize("speculates", [False, True])
@over_sockets
async def test_turn_taking_by_flux(speculates: bool) -> None:
    """A pause within a turn ends nothing; each turn is answered once, with all of its words; guesses leave no trace in the context."""
    async with DeepgramServer() as server:
        async with WholeCall(server, speculates=speculates) as call:
            await call.hears(speech([1, 2], pause_s=0.4))
            await call.hears(speech([3], pause_s=2.5))
            await call.hears(speech([4, 5], pause_s=2.5))
        guesses = ["w1 w2"] if speculates else []
        assert call.asked() == [*guesses, "w1 w2 w3", "w4 w5"]
        assert call.said() == TALK
        assert call.heard() == "Yousaidw1w2w3.Yousaidw4w5."
        assert server.refused == []


@pytest.mark.parametrize("speculates", [False, True])
@over_sockets
async def test_a_caller_who_interrupts_is_heard_by_flux(speculates: bool) -> None:
    """What the conversation holds of the cut reply is what the ear heard; the interruption is answered."""
    async with DeepgramServer() as server:
        async with WholeCall(server, speculates=speculates) as call:
            call.llm.reply = lambda messages: f"This is a long story about {messages[-1].text}, and it does not end so soon. " * 2
            await call.hears(speech([1], pause_s=1.6))
            await call.hears(speech(range(2, 14), pause_s=2.0))
        said = call.said()
        assert said[0] == ("user", "w1")
        assert said[1][0] == "assistant"
        assert len(said[1][1]) < 60
        assert call.heard().startswith(said[1][1])
        assert said[2] == ("user", squeezed(named(range(2, 14))))
        assert call.asked()[-1] == named(range(2, 14))
        assert server.refused == []


# ----------------------------------------------------------------------------------------------------- the key


@over_sockets
async def test_the_key_is_in_no_log_no_repr_and_goes_to_no_stranger() -> None:
    """Although the service's own words quote it."""
    for node in (
        DeepgramTTS(AuraOptions(line=LineOptions(api_key=KEY))),
        DeepgramSTT(listening("http://127.0.0.1:1")),
        DeepgramFlux(flux("http://127.0.0.1:1")),
    ):
        assert KEY not in repr(node) + repr(node.options)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DEEPGRAM_API_KEY", KEY)
        async with DeepgramServer() as server:
            async with EarCall(DeepgramSTT(DeepgramOptions(line=LineOptions(base_url=server.url)))) as call:
                await call.hears(speech([1]))
                assert "INVALID_AUTH" in call.errors()[0]
            named_one = LineOptions(base_url=server.url, api_key_variable="DEEPGRAM_API_KEY")
            async with EarCall(DeepgramSTT(DeepgramOptions(line=named_one))) as call:
                await call.says([1])
                assert call.finals() == ["w1"]
        patch.delenv("DEEPGRAM_API_KEY")
        for node in (DeepgramTTS(), DeepgramSTT(), DeepgramFlux()):
            session = Session(Pipeline(node) >> Ear() if not isinstance(node, DeepgramTTS) else Pipeline(node) >> Sink(VOICE_RATE),
                              inputs=[SentenceFrame, LLMEnded] if isinstance(node, DeepgramTTS) else [InputAudioFrame])  # fmt: skip
            with pytest.raises(ExceptionGroup) as raised:
                await session.run()
            assert "DEEPGRAM_API_KEY" in "".join(str(error) for error in raised.value.exceptions)
