"""The stand-ins for services, by the vendors' own clients and by our nodes; and the long line that leads to them in a bench."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

pytest.importorskip("aiohttp", reason="pip install -e '.[services]'")
pytest.importorskip("websockets", reason="pip install -e '.[services]'")

import aiohttp

from tests.conformance.servers.sockets import over_sockets
from voiceflow import ContextFrame, LLMEnded, LLMTextFrame, Message, OutputAudioFrame, Pipeline, Processor, Session, UtteranceEnded
from voiceflow.bench.far import HANDSHAKES, far
from voiceflow.processors.services.anthropic_llm import AnthropicLLM, AnthropicOptions, MessagesOptions
from voiceflow.processors.services.elevenlabs_tts import ElevenLabsOptions, ElevenLabsTTS
from voiceflow.testing.stand_ins import CHAR_S, Pace, StandIns, tokens_of

SAID = "Yes, we are open today. Come by until ten!"
RATE = 24000


class Ear(Processor):
    def __init__(self) -> None:
        self.frames: list[OutputAudioFrame] = []
        self.text: list[tuple[float, str]] = []
        self.over = asyncio.Event()

    def process(self, frame: LLMTextFrame | OutputAudioFrame | UtteranceEnded) -> None:
        if isinstance(frame, LLMTextFrame):
            self.text.append((self.session.time(), frame.text))
        elif isinstance(frame, OutputAudioFrame):
            self.frames.append(frame)
        else:
            self.over.set()

    @property
    def words(self) -> list[str]:
        return [word.text for frame in self.frames for word in frame.words]


def test_tokens_are_the_text_in_pieces() -> None:
    """Nothing is lost, and a sentence's mark is a token of its own."""
    assert "".join(tokens_of(SAID)) == SAID
    assert tokens_of("Yes, now.") == ["Yes", ",", " now", "."]


@over_sockets
async def test_the_model_says_what_it_is_told_to_say_at_its_pace() -> None:
    """To our node, from the caller's last words: the first token after its time, the others one by one."""
    ear = Ear()
    async with StandIns(lambda asked: f"{asked}? {SAID}", Pace(model_s=0.5, token_s=0.1)) as there:
        node = AnthropicLLM(AnthropicOptions(MessagesOptions("any"), base_url=there.url))
        async with Session(Pipeline(node) >> ear, inputs=[ContextFrame]) as session:
            await asyncio.sleep(0.1)
            began = session.time()
            session.send_nowait(ContextFrame(messages=(Message("system", "Be brief."), Message("user", "Open")), utterance=1))
            while "".join(text for _, text in ear.text) != f"Open? {SAID}":
                await asyncio.sleep(0.01)
    times = [at - began for at, _ in ear.text]
    assert times[0] == pytest.approx(0.5, abs=0.01)
    assert times[-1] == pytest.approx(0.5 + 0.1 * (len(times) - 1), abs=0.02)


@pytest.mark.parametrize("whole_words", [True, False])
@pytest.mark.parametrize("way", ["contexts", "socket", "http"])
@over_sockets
async def test_the_voice_speaks_to_our_node_each_way(way: Any, whole_words: bool) -> None:
    """A tone for each word, with its times; all of them, and as long as the text is."""
    ear = Ear()
    async with StandIns(pace=Pace(whole_words=whole_words, piece_s=0.1)) as there:
        node = ElevenLabsTTS(ElevenLabsOptions("anybody", way=way, base_url=there.url))
        async with Session(Pipeline(node.pieces()) >> node >> ear, inputs=[LLMTextFrame, LLMEnded]) as session:
            for number in (1, 2):
                ear.over.clear()
                ear.frames.clear()
                for token in tokens_of(SAID):
                    session.send_nowait(LLMTextFrame(token, utterance=number))
                session.send_nowait(LLMEnded(utterance=number))
                await ear.over.wait()
                assert ear.words == SAID.split()
                assert not any(word.estimated for frame in ear.frames for word in frame.words)
                seconds = sum(frame.duration for frame in ear.frames)
                assert seconds == pytest.approx(CHAR_S * len(SAID), abs=2.5 * CHAR_S)
                assert np.abs(np.frombuffer(b"".join(frame.pcm for frame in ear.frames), "<i2")).max() > 3000


@over_sockets
async def test_the_batch_request_waits_for_all_of_the_sound() -> None:
    """Its time is the voice's own and that of all the sound; the streamed one's is the voice's own."""
    loop = asyncio.get_running_loop()
    async with StandIns(pace=Pace(voice_s=0.5, speed=2)) as there, aiohttp.ClientSession() as http:
        took = []
        for path in ("", "/stream"):
            began = loop.time()
            async with http.post(f"{there.url}/v1/text-to-speech/any{path}?output_format=pcm_24000", json={"text": SAID}) as answer:
                await answer.content.readany()
                took.append(loop.time() - began)
                await answer.read()
        whole_s = CHAR_S * len(SAID)
        assert took[1] == pytest.approx(0.5, abs=0.02)
        assert 0.5 + (whole_s - 0.25) / 2 - 0.02 < took[0] < 0.5 + whole_s / 2 + 0.02


def test_the_official_clients_read_what_they_say() -> None:
    """Anthropic's its text, ElevenLabs' its sound."""
    anthropic = pytest.importorskip("anthropic", reason="pip install anthropic")
    elevenlabs = pytest.importorskip("elevenlabs", reason="pip install elevenlabs")

    def use(url: str) -> tuple[str, bytes]:
        asked = [{"role": "user", "content": "Open?"}]
        with (
            anthropic.Anthropic(api_key="any", base_url=url, max_retries=0) as client,
            client.messages.stream(model="any", max_tokens=9, messages=asked) as stream,
        ):
            text = "".join(stream.text_stream)
        voice = elevenlabs.ElevenLabs(api_key="any", base_url=url)
        try:
            return text, b"".join(voice.text_to_speech.stream("any", text=SAID, output_format="pcm_24000"))
        finally:
            voice._client_wrapper.httpx_client.httpx_client.close()

    async def scene() -> tuple[str, bytes]:
        async with StandIns(lambda asked: SAID, Pace(0, 0, 0, 1000)) as there:
            return await asyncio.to_thread(use, there.url)

    text, sound = asyncio.run(scene())
    assert text == SAID
    assert len(sound) == pytest.approx(2 * RATE * CHAR_S * len(SAID), abs=4)


@pytest.mark.parametrize("round_trip_s", [0.0, 0.25])
@over_sockets
async def test_a_long_line_takes_its_time(round_trip_s: float) -> None:
    """A new connection pays for its handshakes once, each byte for its way; all of them come, in order, and the end too."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1000):
            writer.write(data)
        ended.set()
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    async with far(server.sockets[0].getsockname()[1], round_trip_s) as origin:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(origin.rpartition(":")[2]))
        for trips in (HANDSHAKES + 1, 1):
            began, sent = loop.time(), np.random.default_rng(1).bytes(300_000)
            writer.write(sent)
            assert await reader.readexactly(1) == sent[:1]
            assert loop.time() - began == pytest.approx(trips * round_trip_s, abs=0.01)
            assert await reader.readexactly(len(sent) - 1) == sent[1:]
        writer.write_eof()
        await ended.wait()
        assert await reader.read() == b""
        writer.close()
        await writer.wait_closed()
    server.close()
    await server.wait_closed()
