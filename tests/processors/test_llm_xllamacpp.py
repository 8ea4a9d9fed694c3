"""The language model in this process, real."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import textwrap
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("xllamacpp", reason="pip install xllamacpp")

from voiceflow.frames import ContextFrame, ErrorFrame, Frame, InterruptFrame, LLMEnded, LLMStarted, LLMTextFrame, LLMUsage
from voiceflow.messages import AudioClip, Image, Message, ToolCall
from voiceflow.pipeline import Pipeline
from voiceflow.processor import Processor
from voiceflow.processors import llm_xllamacpp
from voiceflow.processors.conversation import Conversation
from voiceflow.processors.llm_xllamacpp import LlamaLLM, LlamaOptions, in_words, thread_count
from voiceflow.session import Session
from voiceflow.testing import Collector, check_processor, no_leaks, run_virtual

QUESTION = (Message("user", "What is the capital of Australia?"),)
STORY = (Message("user", "Tell me a long story about a dog."),)


class Spy:
    """The real server, with a count of the requests inside it and of all that came."""

    def __init__(self, server: Any) -> None:
        self.server = server
        self.inside = 0
        self.most_inside = 0
        self.requests: list[dict[str, Any]] = []
        self.pieces = 0
        self.read: list[int] = []
        """Tokens of each prompt that were not in the cache."""

    def handle_chat_completions(self, request: dict[str, Any], callback: Callable[[Any], bool]) -> object:
        self.requests.append(request)
        self.inside += 1
        self.most_inside = max(self.most_inside, self.inside)

        def counted(chunk: Any) -> bool:
            self.pieces += 1
            for part in chunk if isinstance(chunk, list) else [chunk]:
                if timings := (json.loads(part) if isinstance(part, str | bytes) else part).get("timings"):
                    self.read.append(timings["prompt_n"])
            return callback(chunk)

        try:
            return self.server.handle_chat_completions(request, counted)
        finally:
            self.inside -= 1


@pytest.fixture
def spy(model: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> Spy:
    """The model opened beforehand, since it is kept open for the life of the process."""
    server = Spy(llm_xllamacpp.open_server(model("smollm2-135m"), 1, 512, 1))
    monkeypatch.setattr(llm_xllamacpp, "open_server", lambda path, threads, context_tokens, slots: server)
    return server


class Script(Processor):
    """Asks each conversation in turn, the next when the last has been answered or interrupted."""

    def __init__(self, *conversations: tuple[Message, ...]) -> None:
        self.conversations = conversations
        self.go_on = asyncio.Event()

    async def run(self) -> AsyncIterator[ContextFrame]:
        for number, messages in enumerate(self.conversations, 1):
            self.go_on.clear()
            yield ContextFrame(messages=messages, utterance=number, epoch=self.session.epoch)
            await self.go_on.wait()


class Follow(Processor):
    """Lets the script go on at the end of a reply; interrupts the first reply at its ``interrupt_at``-th piece."""

    def __init__(self, script: Script, interrupt_at: int | None = None) -> None:
        self.script = script
        self.interrupt_at = interrupt_at
        self.pieces = 0

    def process(self, frame: LLMTextFrame | LLMEnded) -> Iterator[LLMTextFrame | LLMEnded | InterruptFrame]:
        yield frame
        if isinstance(frame, LLMEnded):
            self.script.go_on.set()
            return
        self.pieces += 1
        if self.pieces == self.interrupt_at:
            self.script.go_on.set()
            yield InterruptFrame(reason="test")


class Errors(Processor):
    """Stands before the model, where errors and the cost go."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.usage: list[LLMUsage] = []

    def process(self, frame: ErrorFrame | LLMUsage) -> None:
        if isinstance(frame, LLMUsage):
            self.usage.append(frame)
        else:
            self.texts.append(frame.error)


def run(llm: LlamaLLM, *conversations: tuple[Message, ...], interrupt_at: int | None = None, errors: Errors | None = None) -> list[Frame]:
    collector = Collector()

    async def main() -> None:
        async with no_leaks():
            script = Script(*conversations)
            await Session(Pipeline(script) >> (errors or Errors()) >> llm >> Follow(script, interrupt_at) >> collector).run()

    run_virtual(main())
    return [frame for frame in collector.frames if isinstance(frame, LLMStarted | LLMTextFrame | LLMEnded)]


def text_of(frames: list[Frame], utterance: int = 1) -> str:
    return "".join(frame.text for frame in frames if isinstance(frame, LLMTextFrame) and frame.utterance == utterance)


def test_a_reply_is_streamed_in_pieces(spy: Spy) -> None:
    """Text comes token by token, none of it empty, between LLMStarted and LLMEnded of its utterance."""
    frames = run(LlamaLLM(options=LlamaOptions(max_tokens=40)), QUESTION)
    assert frames[0] == LLMStarted(utterance=1, epoch=0)
    assert frames[-1] == LLMEnded(utterance=1, epoch=0)
    pieces = [frame.text for frame in frames[1:-1] if isinstance(frame, LLMTextFrame)]
    assert len(pieces) == len(frames) - 2 > 4
    assert all(pieces)
    assert not pieces[0][0].isspace()
    assert " " in "".join(pieces)
    assert "<|" not in "".join(pieces)


def test_the_same_seed_gives_the_same_reply(spy: Spy) -> None:
    """A reply is the same each time, and another seed at a high temperature gives another."""
    options = [LlamaOptions(max_tokens=30, temperature=2.0, seed=seed) for seed in (5, 5, 6)]
    one, same, other = (text_of(run(LlamaLLM(options=o), STORY)) for o in options)
    assert one == same != other


def test_no_more_than_max_tokens_are_written(spy: Spy) -> None:
    """A reply that would go on ends at its limit."""
    errors = Errors()
    frames = run(LlamaLLM(options=LlamaOptions(max_tokens=7)), STORY, errors=errors)
    assert [usage.completion_tokens for usage in errors.usage] == [7]
    assert isinstance(frames[-1], LLMEnded)
    assert 1 <= len(frames) - 2 <= 7


def test_a_reply_ends_at_a_stop_text(spy: Spy) -> None:
    """What follows a stop text is not written, and it is not itself part of the reply."""
    whole = text_of(run(LlamaLLM(options=LlamaOptions(max_tokens=40)), STORY))
    stop = whole.split()[3]
    assert text_of(run(LlamaLLM(options=LlamaOptions(max_tokens=40, stop=(stop,))), STORY)).strip() == whole[: whole.index(stop)].strip()


def test_an_empty_reply_ends_too(spy: Spy) -> None:
    """LLMEnded follows LLMStarted even if the model wrote nothing."""
    everything = tuple("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 .,*\"'\n-")
    assert run(LlamaLLM(options=LlamaOptions(stop=everything)), QUESTION) == [
        LLMStarted(utterance=1, epoch=0),
        LLMEnded(utterance=1, epoch=0),
    ]


def test_the_system_prompt_has_been_read_before_the_first_question(spy: Spy) -> None:
    """System prompt and examples go before the conversation; of the first request only the question is left to read."""
    system = "You are Ava, a friendly voice assistant. " * 12
    examples = (Message("user", "What is the capital of Spain?"), Message("assistant", "The capital of Spain is Madrid."))
    errors = Errors()
    run(LlamaLLM(options=LlamaOptions(system=system, examples=examples, max_tokens=3)), QUESTION, errors=errors)
    (usage,) = errors.usage
    assert usage.prompt_tokens > 120
    assert spy.read[-1] < 20
    roles = [message["role"] for message in spy.requests[-1]["messages"]]
    assert roles == ["system", "user", "assistant", "user"]


def test_a_conversation_with_a_system_message_keeps_its_own(spy: Spy) -> None:
    """The option's system prompt stands aside, and messages without text are left out."""
    run(LlamaLLM(options=LlamaOptions(system="unused", max_tokens=2)), (Message("system", "own"), Message("assistant", " "), *QUESTION))
    assert [message["content"] for message in spy.requests[-1]["messages"]] == ["own", QUESTION[0].text]


def test_each_reply_says_what_it_cost(spy: Spy) -> None:
    """The model's own numbers, one report a reply that was written to its end, with its number; none for a cut one."""
    errors = Errors()
    run(LlamaLLM(options=LlamaOptions(max_tokens=5)), QUESTION, (*QUESTION, Message("assistant", "Canberra."), *STORY), errors=errors)
    one, two = errors.usage
    assert (one.utterance, two.utterance) == (1, 2)
    assert 5 < one.prompt_tokens < two.prompt_tokens < 100
    assert one.completion_tokens == two.completion_tokens == 5
    errors = Errors()
    run(LlamaLLM(options=LlamaOptions(max_tokens=200)), STORY, QUESTION, interrupt_at=3, errors=errors)
    assert [usage.utterance for usage in errors.usage] == [2]


def test_media_and_tools_are_put_in_words(spy: Spy) -> None:
    """A conversation carried over from another model is read as plain text, roles in turn, interruptions unmarked."""
    conversation = Conversation().with_user(
        "what is this", [Image("https://example.org/a.png", "a receipt"), Image("https://x"), AudioClip("u", 3.2)]
    )
    conversation = conversation.with_assistant_heard("One mom", interrupted=True).with_tool_calls(
        ToolCall("a", "look_up", '{"order": 7}'), ToolCall("b", "ask")
    )
    conversation = conversation.with_tool_result("a", "shipped").with_user("well?")
    run(LlamaLLM(options=LlamaOptions(max_tokens=2)), conversation.messages)
    assert [(message["role"], message["content"]) for message in spy.requests[-1]["messages"]] == [
        ("user", "what is this [an image: a receipt] [an image] [a sound of 3 s]"),
        ("assistant", 'One mom [look_up is asked: {"order": 7}] [ask is asked: {}]'),
        ("user", "[look_up says: shipped]\n[ask says: still running; the result will follow]\nwell?"),
    ]
    assert in_words([Message("tool", "x", call_id="gone"), Message("assistant", " ")]) == [Message("user", "[the tool says: x]")]


def test_an_interrupt_stops_the_model_before_the_next_reply(spy: Spy) -> None:
    """After an interrupt llama.cpp writes no more than the token it is at; then the next question is answered."""
    frames = run(LlamaLLM(options=LlamaOptions(max_tokens=200)), STORY, QUESTION, interrupt_at=3)
    first = [frame for frame in frames if frame.utterance == 1]
    assert not any(isinstance(frame, LLMEnded) for frame in first)
    assert text_of(frames, 2)
    assert isinstance(frames[-1], LLMEnded)
    assert spy.inside == 0
    assert spy.most_inside == 1
    assert len(spy.requests) == 3  # the system prompt, the story, the question
    assert spy.pieces < 150


def test_closing_the_reply_waits_for_the_model(spy: Spy) -> None:
    """When the generator has been closed, llama.cpp has stopped: also if the closing itself is cancelled."""
    llm = LlamaLLM(options=LlamaOptions(max_tokens=200))
    collector = Collector()

    async def main() -> None:
        async with Session(Pipeline(llm) >> collector, inputs=[ContextFrame]):
            for cancel in (False, True):
                reply = llm.process(ContextFrame(messages=STORY, utterance=9))
                async for frame in reply:
                    if isinstance(frame, LLMTextFrame):
                        break
                assert spy.inside == 1
                closing = asyncio.ensure_future(reply.aclose())  # type: ignore[attr-defined]  # it is a generator
                await asyncio.sleep(0)
                if cancel:
                    closing.cancel()
                await asyncio.wait([closing])
                assert closing.cancelled() == cancel
                assert spy.inside == 0
        assert spy.pieces < 100

    asyncio.run(main())


def test_an_interrupt_while_the_prompt_is_read_stops_that(spy: Spy) -> None:
    """A long prompt is given up between two steps of reading it, and the next one is answered."""
    llm = LlamaLLM(options=LlamaOptions(max_tokens=4))
    script = Script((Message("user", "word " * 400),), QUESTION)
    collector = Collector()
    original = spy.handle_chat_completions

    def watched(request: dict[str, Any], callback: Callable[[Any], bool]) -> object:
        long = "word word" in request["messages"][-1]["content"]

        def taken(chunk: Any) -> bool:
            if long:
                seen.append(chunk)
            if len(seen) == 3 and long:
                loop.call_soon_threadsafe(interrupt)
                interrupted.wait(timeout=30)
            return callback(chunk)

        return original(request, taken)

    def interrupt() -> None:
        llm.session.interrupt("test")
        interrupted.set()
        script.go_on.set()

    seen: list[Any] = []
    interrupted = threading.Event()
    spy.handle_chat_completions = watched  # type: ignore[method-assign]

    async def main() -> None:
        nonlocal loop
        loop = asyncio.get_running_loop()
        await Session(Pipeline(script) >> llm >> Follow(script) >> collector).run()

    loop: asyncio.AbstractEventLoop
    run_virtual(main())
    texts = [frame for frame in collector.frames if isinstance(frame, LLMTextFrame)]
    assert texts
    assert {frame.utterance for frame in texts} == {2}
    assert interrupted.is_set()
    assert len(seen) == 3
    assert "content': '" not in str(seen)  # not a token had been written, so the prompt was still being read


def test_the_oldest_of_a_long_conversation_is_left_out(spy: Spy, caplog: pytest.LogCaptureFixture) -> None:
    """A conversation beyond the model's context is answered from its newer part, and the log says so."""
    long = tuple(Message(("user", "assistant")[i % 2], f"Message number {i}. " * 10) for i in range(20))
    frames = run(LlamaLLM(options=LlamaOptions(system="Be brief.", max_tokens=5)), long + QUESTION)
    assert text_of(frames)
    sent = [message["content"] for message in spy.requests[-1]["messages"]]
    assert sent[0] == "Be brief."
    assert sent[-1] == QUESTION[0].text
    assert len(sent) < 15
    assert "too long for the model" in caplog.text


def test_a_single_message_beyond_the_context_is_an_error(spy: Spy) -> None:
    """What cannot be shortened is refused with the model's reason, and the utterance is closed."""
    errors = Errors()
    frames = run(LlamaLLM(options=LlamaOptions(max_tokens=5)), (Message("user", "word " * 2000),), QUESTION, errors=errors)
    assert [type(frame) for frame in frames[:2]] == [LLMStarted, LLMEnded]
    assert len(errors.texts) == 1
    assert "exceeds the available context size" in errors.texts[0]
    assert text_of(frames, 2)


def test_a_failure_inside_the_model_is_reported(spy: Spy, monkeypatch: pytest.MonkeyPatch) -> None:
    """An exception from llama.cpp becomes an error with its text, and the next question is answered."""
    original = spy.handle_chat_completions

    def failing(request: dict[str, Any], callback: Callable[[Any], bool]) -> object:
        if request["messages"][-1]["content"] == STORY[0].text:
            raise RuntimeError("out of slots")
        return original(request, callback)

    monkeypatch.setattr(spy, "handle_chat_completions", failing)
    errors = Errors()
    frames = run(LlamaLLM(options=LlamaOptions(max_tokens=5)), STORY, QUESTION, errors=errors)
    assert errors.texts == ["ModelError: llama.cpp failed: RuntimeError: out of slots"]
    assert [type(frame) for frame in frames[:2]] == [LLMStarted, LLMEnded]
    assert text_of(frames, 2)


def test_it_passes_the_conformance_kit(spy: Spy) -> None:
    """Strangers pass, order is kept, and an interrupt at any point leaves nothing behind."""
    check_processor(lambda: LlamaLLM(options=LlamaOptions(max_tokens=3)), [ContextFrame(messages=QUESTION, utterance=1)], every=3)
    assert spy.inside == 0
    assert spy.most_inside == 1


def test_a_file_that_is_no_model_ends_the_session_at_its_start(tmp_path: Path) -> None:
    """A broken GGUF file is named, with what to do."""
    (tmp_path / "broken.gguf").write_bytes(b"GGUF junk")

    async def main() -> None:
        await Session(Pipeline(Script()) >> LlamaLLM(tmp_path / "broken.gguf") >> Collector()).run()

    with pytest.raises(ExceptionGroup) as failure:
        asyncio.run(main())
    assert failure.group_contains(Exception, match=r"broken\.gguf cannot be opened by llama\.cpp .* whole GGUF file")


def test_a_path_that_is_not_there_is_named(tmp_path: Path) -> None:
    """A missing file is not taken for a model's name."""

    async def main() -> None:
        await Session(Pipeline(Script()) >> LlamaLLM(tmp_path / "none.gguf") >> Collector()).run()

    with pytest.raises(ExceptionGroup) as failure:
        asyncio.run(main())
    assert failure.group_contains(Exception, match=r"none\.gguf")


def test_the_process_can_end_in_the_middle_of_a_reply(model: Callable[[str], Path]) -> None:
    """A program that leaves its loop while the model writes exits with its own status, not with an abort."""
    program = f"""
        import asyncio
        from voiceflow.frames import ContextFrame, LLMTextFrame
        from voiceflow.messages import Message
        from voiceflow.pipeline import Pipeline
        from voiceflow.processor import processor
        from voiceflow.processors.llm_xllamacpp import LlamaLLM, LlamaOptions
        from voiceflow.session import Session

        heard = None

        @processor
        def sink(frame: LLMTextFrame) -> None:
            heard.set()

        async def main():
            global heard
            heard = asyncio.Event()
            session = Session(Pipeline(LlamaLLM({str(model("smollm2-135m"))!r}, LlamaOptions(max_tokens=400))) >> sink(), inputs=[ContextFrame])
            running = asyncio.ensure_future(session.run())
            await asyncio.sleep(0)
            await session.started()
            await session.send(ContextFrame(messages=(Message("user", "Tell me a long story about a dog."),)))
            await heard.wait()
            raise SystemExit(7)

        asyncio.run(main())
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 7, done.stderr
    assert "FATAL" not in done.stderr


@pytest.mark.parametrize(
    ("wanted", "cores", "threads"), [(None, 1, 1), (None, 2, 1), (None, 8, 7), (4, 8, 4), (8, 8, 7), (0, 8, 1), (3, 1, 1)]
)
def test_one_core_is_left_for_the_rest(wanted: int | None, cores: int, threads: int) -> None:
    """llama.cpp never gets all the cores, unless there is only one."""
    assert thread_count(wanted, cores) == threads


@pytest.mark.parametrize("options", [{"max_tokens": 0}, {"slots": 0}, {"max_tokens": 100, "context_tokens": 100}])
def test_options_that_cannot_work_are_refused(options: dict[str, int]) -> None:
    """The error names the options and what they must be."""
    with pytest.raises(ValueError, match=r"max_tokens .* and slots .* must be 1 or more"):
        LlamaOptions(**options)  # type: ignore[arg-type]  # all of them are integers
