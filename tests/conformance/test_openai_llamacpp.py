"""Our node against a real llama.cpp server, and one genuine call of a tool from spoken question to spoken answer."""

from __future__ import annotations

import asyncio
import json
import wave
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("aiohttp", reason="pip install aiohttp")
pytest.importorskip("xllamacpp", reason="pip install xllamacpp")

from tests.conformance.openai_call import LLMCall
from tests.conformance.servers.llama_server import llama_server
from voiceflow import Message, Session, ToolCall
from voiceflow.audio import resample
from voiceflow.messages import ToolSpec
from voiceflow.models import ModelStore
from voiceflow.processors.context import Context
from voiceflow.processors.services.anthropic_llm import AnthropicLLM, AnthropicOptions
from voiceflow.processors.services.anthropic_request import MessagesOptions
from voiceflow.processors.services.chat_request import ChatOptions
from voiceflow.processors.services.http import Deadlines
from voiceflow.processors.services.openai_llm import OpenAILLM, OpenAIOptions
from voiceflow.processors.text import Sentences
from voiceflow.processors.tool import tool
from voiceflow.processors.tools import Tools
from voiceflow.processors.turns import Turns
from voiceflow.testing import no_leaks
from voiceflow.transports.wav import WavIn, WavOut

KEY = "local-key-of-the-tests"
SLOW = Deadlines(first_s=12.0, idle_s=12.0)
"""For a machine that has other things to do."""
SYSTEM = "You help callers with their orders."
ORDER = ToolSpec(
    "order_status",
    "Look up the status of an order.",
    '{"type":"object","properties":{"number":{"type":"integer"}},"required":["number"],"additionalProperties":false}',
)


def shown(number: int, status: str) -> tuple[Message, ...]:
    made = ToolCall(f"e{number}", "order_status", json.dumps({"number": number}))
    result = Message("tool", status, call_id=made.id)
    return (Message("user", f"Where is order {number}?"), Message("assistant", calls=(made,)), result, Message("assistant", status))


HELLO = (Message("user", "Hello!"), Message("assistant", "Hello, how can I help?"))
EXAMPLES = (*HELLO, *shown(15, "Order 15 is on its way."), *shown(230, "Order 230 comes on Friday."))


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A llama.cpp server with the smallest model there is."""
    store = ModelStore()
    if store.find("smollm2-135m") is None:
        pytest.skip("the model is not here; run: voiceflow models get smollm2-135m")
    with llama_server(store.path("smollm2-135m"), KEY) as address:
        yield address


def node(url: str, *, key: str = KEY, **chat: object) -> OpenAILLM:
    options = ChatOptions("smollm2", temperature=0.0, **{"max_tokens": 40, **chat})  # type: ignore[arg-type]
    return OpenAILLM(OpenAIOptions(options, base_url=url, api_key=key, deadlines=SLOW))


def real(scene: Callable[[], object]) -> None:
    async def main() -> None:
        async with no_leaks():
            await scene()  # type: ignore[misc]

    asyncio.run(main())


def test_a_reply_of_a_real_server(url: str) -> None:
    """In pieces, with one end and the usage; a second over the same connection, out of the server's prompt cache."""

    async def scene() -> None:
        async with LLMCall(node(url)) as llm:
            first = await llm.ask("What is the capital of Australia?")
            assert "Canberra" in first
            assert await llm.ask("What is the capital of Australia?") == first
            await asyncio.sleep(0.05)
            assert [u.utterance for u in llm.reports.usage] == [1, 2]
            assert all(u.prompt_tokens > 5 and 3 < u.completion_tokens <= 40 for u in llm.reports.usage)
            assert len(llm.of(1)) > 5
            assert llm.reports.errors == []

    real(scene)


def test_a_reply_by_the_messages_api_of_a_real_server(url: str) -> None:
    """The same server speaks Anthropic's protocol too, and our node for it is answered."""

    async def scene() -> None:
        asked = MessagesOptions("smollm2", max_tokens=40, temperature=0.0)
        options = AnthropicOptions(asked, base_url=url.removesuffix("/v1"), api_key=KEY, deadlines=SLOW)
        async with LLMCall(AnthropicLLM(options)) as llm:
            assert "Canberra" in await llm.ask("What is the capital of Australia?")
            await asyncio.sleep(0.05)
            assert [u.prompt_tokens > 5 and 3 < u.completion_tokens <= 40 for u in llm.reports.usage] == [True]
            assert llm.reports.errors == []

    real(scene)


def test_cancelling_frees_the_real_server(url: str) -> None:
    """It has one place only: were the cancelled replies of 900 tokens still being written, the next would get no token before its deadline."""

    async def scene() -> None:
        async with LLMCall(node(url, max_tokens=900, extra={"ignore_eos": True})) as llm:
            for _ in range(3):
                await llm.first_text(llm.begin("Tell me a very long story about a dog."))
                llm.session.interrupt("the caller speaks")
            llm.node._chat = ChatOptions("smollm2", temperature=0.0, max_tokens=20)
            assert "Canberra" in await llm.ask("What is the capital of Australia?")
            assert [llm.ended(number) for number in (1, 2, 3, 4)] == [0, 0, 0, 1]
            assert llm.reports.errors == []

    real(scene)


def test_errors_of_a_real_server(url: str) -> None:
    """A wrong key, and a conversation that is too long for it, each say what to do."""

    async def scene() -> None:
        async with LLMCall(node(url, key="wrong")) as llm:
            await llm.ask("hello")
            await asyncio.sleep(0.05)
            assert ["answered 401" in error and "wrong" not in error for _, error in llm.reports.errors] == [True]
        async with LLMCall(node(url)) as llm:
            await llm.ask("word " * 3000)
            await asyncio.sleep(0.05)
            assert ["ContextOptions.max_tokens" in error for _, error in llm.reports.errors] == [True]

    real(scene)


@pytest.mark.parametrize(
    ("said", "calls"),
    [
        ("Where is my order 4271?", [4271]),
        ("Has order 83 been sent?", [83]),
        ("Good morning.", []),
        ("Thank you, goodbye.", []),
    ],
)
def test_the_smallest_model_chooses_between_words_and_a_call(url: str, said: str, calls: list[int]) -> None:
    """Held to the schema and shown three exchanges, it calls with the caller's number, and talks when there is nothing to look up."""

    async def scene() -> None:
        async with LLMCall(node(url, tool_calls="constrained", examples=EXAMPLES, system=SYSTEM), (ORDER,)) as llm:
            text = await llm.ask(said)
            assert [json.loads(arguments)["number"] for _, arguments in llm.calls()] == calls
            assert bool(text) is not bool(calls)
            assert "{" not in text
            assert llm.reports.errors == []

    real(scene)


def test_a_spoken_question_a_tool_and_a_spoken_answer(url: str, tmp_path: Path) -> None:
    """Sound to sound with real models only: what is heard at the end holds what only the tool knows."""
    vad = pytest.importorskip("voiceflow.processors.vad", reason="pip install onnxruntime")
    whisper = pytest.importorskip("voiceflow.processors.stt_whisper", reason="pip install ctranslate2")
    piper = pytest.importorskip("voiceflow.processors.tts_piper", reason="pip install gruut-lang-en python-crfsuite")
    for name in ("silero-vad", "whisper-tiny.en", "piper-joe"):
        if ModelStore().find(name) is None:
            pytest.skip(f"the model is not here; run: voiceflow models get {name}")
    asked: list[int] = []

    @tool(effect="idempotent")
    async def order_status(number: int) -> str:
        """Look up the status of an order."""
        asked.append(number)
        return f"Order {number} comes on Wednesday."

    said = piper.Piper.shared(ModelStore().path("piper-joe")).synthesize(
        "Where is my order 42?", piper.PiperOptions(noise=0.0, rhythm_noise=0.0)
    )
    with wave.open(str(tmp_path / "question.wav"), "wb") as file:
        file.setparams((1, 2, said.sample_rate, 0, "NONE", ""))
        file.writeframes(said.pcm)
    context = Context(SYSTEM, tools=[order_status.spec])
    llm = node(url, tool_calls="constrained", examples=EXAMPLES)
    hearing = WavIn(tmp_path / "question.wav", tail_s=1.5) >> vad.SileroVAD() >> whisper.WhisperSTT() >> Turns()
    speaking = Sentences() >> piper.PiperTTS() >> WavOut(tmp_path / "answer.wav")
    asyncio.run(Session(hearing >> context >> llm >> Tools([order_status]) >> speaking).run())
    assert asked == [42]
    assert [message.role for message in context.conversation.messages] == ["user", "assistant", "tool", "assistant"]
    assert "Wednesday" in context.conversation.messages[-1].text
    with wave.open(str(tmp_path / "answer.wav")) as file:
        pcm = resample(file.readframes(file.getnframes()), file.getframerate(), 16000, file.getnchannels())
    heard = np.frombuffer(pcm, "<i2").astype(np.float32) / 32768
    transcriber = whisper.open_whisper(ModelStore().path("whisper-tiny.en"), whisper.WhisperOptions())
    assert "wednesday" in transcriber.transcribe(heard).text.lower()
