"""A language model in this process: llama.cpp by way of xllamacpp, for any GGUF file.

The one rule: a reply that is not wanted any more has stopped before the next one begins. llama.cpp writes each reply in
a thread; its callback tells it to stop, and ``process`` is not over before the thread has left llama.cpp. (A thread
left inside when the interpreter exits aborts the process.)

xllamacpp also opens an HTTP server on a loopback port; it is given a random key, so that nobody else can use it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import secrets
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import xllamacpp  # type: ignore[import-untyped]  # it ships no annotations; LlamaServer below is what of it is used

from voiceflow import models
from voiceflow.errors import ModelError
from voiceflow.frames import ContextFrame, LLMEnded, LLMStarted, LLMTextFrame, LLMUsage
from voiceflow.interruption import Interruption
from voiceflow.messages import Image, Message, ToolCall
from voiceflow.processor import Processor
from voiceflow.processors.once import once_per_process

__all__ = ["LlamaLLM", "LlamaOptions", "LlamaServer", "in_words", "open_server", "thread_count"]

log = logging.getLogger("voiceflow")

DEFAULT_MODEL = "smollm2-135m"
PREFILL_STEP = 64
"""Tokens of a prompt read between two looks at whether to stop."""
PROMPT_CACHE_MIB = 128
TOO_LONG = "exceed_context_size_error"


@dataclass(frozen=True, slots=True)
class LlamaOptions:
    """How the model runs and how it writes."""

    system: str = ""
    """Put before a conversation that has no system message. Read at the start, so that the first reply does not wait for it."""
    examples: tuple[Message, ...] = ()
    """Exchanges shown to the model as if they had come before the conversation, and read at the start too. A few short
    answers teach a small model more than any system prompt."""
    max_tokens: int = 120
    temperature: float = 0.0
    seed: int = 1
    top_p: float = 0.95
    repeat_penalty: float = 1.0
    """Against tokens that stood in the prompt or the reply, numbers and names included: 1.1 is much for a small model."""
    frequency_penalty: float = 0.0
    """Against tokens, the more often the reply has them; ends loops in long replies."""
    stop: tuple[str, ...] = ()
    """Texts at which the reply ends; they are not part of it."""
    threads: int | None = None
    """None, and at most: all cores but one. With as many as there are cores, any other work stalls llama.cpp's barriers."""
    context_tokens: int = 2048
    """Of one conversation. Of a longer one the oldest part is left out."""
    slots: int = 1
    """Replies written at the same time by all sessions of the process that share the model; further ones wait."""

    def __post_init__(self) -> None:
        if self.max_tokens < 1 or self.slots < 1 or self.context_tokens <= self.max_tokens:
            raise ValueError(
                f"LlamaOptions: max_tokens {self.max_tokens} and slots {self.slots} must be 1 or more, "
                f"and context_tokens {self.context_tokens} more than max_tokens"
            )


class LlamaLLM(Processor):
    """Answers a conversation, token by token.

    ``model`` is a model's name or the path of a ``.gguf`` file of your own; it is opened once in a process. ``LLMEnded``
    follows ``LLMStarted`` however short the reply, unless it is cancelled. When cancelled, llama.cpp stops after the
    token (of a prompt: the PREFILL_STEP tokens) it is at, and the next reply waits for that. ``LLMUsage`` tells the
    tokens of a reply that was written to its end; those found in the prompt cache count as read.

    It cannot see, hear or call tools: an image is put to it as the text of its ``alt``, a sound as its length, and the
    calls and results of another model as sentences in brackets, so that a conversation can be carried over.

    Raises ModelError: from start() if the model cannot be opened, from process() if llama.cpp refuses the conversation.
    """

    def __init__(self, model: str | Path = DEFAULT_MODEL, options: LlamaOptions | None = None) -> None:
        self.options = options or LlamaOptions()
        self._usage: tuple[int, int] | None = None  # of the reply written last: tokens read and written
        self._model = model
        self._server: LlamaServer | None = None
        self._generation: _Generation | None = None
        self._one_at_a_time = asyncio.Lock()

    async def start(self) -> None:
        """Open the model, and have it read the system prompt."""
        self._server = await self.run_blocking(_open, self._model, self.options)
        async with contextlib.aclosing(self._write((), max_tokens=1)) as pieces:
            async for _ in pieces:
                pass

    async def stop(self) -> None:
        """Wait until llama.cpp has stopped."""
        if self._generation is not None:
            await self._generation.stopped()

    def on_interrupt(self, interrupt: Interruption) -> None:
        """Tell llama.cpp to stop, a moment before the cancellation reaches the work."""
        if self._generation is not None:
            self._generation.stop()

    async def process(self, frame: ContextFrame) -> AsyncIterator[LLMStarted | LLMTextFrame | LLMUsage | LLMEnded]:
        """The reply to a conversation."""
        failure: ModelError | None = None
        self._usage = None
        yield LLMStarted(utterance=frame.utterance)
        try:
            async with contextlib.aclosing(self._write(frame.messages, self.options.max_tokens)) as pieces:
                async for piece in pieces:
                    yield LLMTextFrame(text=piece, utterance=frame.utterance)
        except ModelError as error:
            failure = error
        if self._usage is not None:
            yield LLMUsage(utterance=frame.utterance, prompt_tokens=self._usage[0], completion_tokens=self._usage[1])
        # The end comes after a failure too: what was written so far is spoken and the utterance closed.
        yield LLMEnded(utterance=frame.utterance)
        if failure is not None:
            raise failure

    async def _write(self, messages: Sequence[Message], max_tokens: int) -> AsyncGenerator[str, None]:
        """The reply's text in pieces, none of them empty. Leaves out the oldest messages if there are too many."""
        conversation = self._conversation(messages)
        async with self._one_at_a_time:
            while True:
                try:
                    async with contextlib.aclosing(self._generate(conversation, max_tokens)) as pieces:
                        async for piece in pieces:
                            yield piece
                    return
                except _TooLongError:
                    if len(conversation.turns) == 1:
                        raise
                    left_out = len(conversation.turns) // 2
                    log.warning("%s: the conversation is too long for the model; its oldest %d messages are left out", self.name, left_out)
                    conversation = _Conversation(conversation.fixed, conversation.turns[left_out:])

    def _conversation(self, messages: Sequence[Message]) -> _Conversation:
        system = [message for message in messages if message.role == "system" and message.text.strip()]
        if not system and self.options.system:
            system = [Message("system", self.options.system)]
        turns = in_words([message for message in messages if message.role != "system"])
        return _Conversation([*system, *self.options.examples], turns or [Message("user", "")])

    async def _generate(self, conversation: _Conversation, max_tokens: int) -> AsyncGenerator[str, None]:
        assert self._server is not None, "the session calls start() before it gives a frame"
        request = _request(conversation, max_tokens, self.options)
        generation = self._generation = _Generation(self._server, request, max_tokens, self.run_blocking)
        begun = False
        try:
            async for piece in generation.pieces():
                text = piece if begun else piece.lstrip()
                if text:
                    begun = True
                    yield text
            self._usage = generation.usage
        finally:
            await generation.stopped()
            self._generation = None


# ------------------------------------------------------------------------------------------------ one reply's thread


InThread = Callable[[Callable[[], None]], Coroutine[Any, Any, None]]
"""``run_blocking``: runs a function in a thread of the session."""


class _TooLongError(ModelError):
    pass


class _Generation:
    """One request to llama.cpp in a thread, read from the loop it was made on.

    The queue cannot overflow: llama.cpp gives at most a piece for each token, and what it held back; then come a failure, and the end.
    """

    def __init__(self, server: LlamaServer, request: dict[str, Any], max_tokens: int, in_thread: InThread) -> None:
        self.usage: tuple[int, int] | None = None
        self._server = server
        self._request = request
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[str | ModelError | None] = asyncio.Queue(max_tokens + 3)
        self._stop = threading.Event()
        self._entered = threading.Event()
        self._left = asyncio.Event()
        # Not one of the session's tasks, which would be cancelled with it: this one ends when the thread does.
        self._work = self._loop.create_task(self._follow(in_thread), name="llama.cpp")

    def stop(self) -> None:
        """Have llama.cpp stop at its next token. Does not wait."""
        self._stop.set()

    async def stopped(self) -> None:
        """Stop, and wait until the thread has left, even if cancelled meanwhile; the cancellation is raised afterwards."""
        self._stop.set()
        cancelled: asyncio.CancelledError | None = None
        while not (self._left.is_set() and self._work.done()):
            try:
                await self._left.wait()
                await asyncio.wait([self._work])
            except asyncio.CancelledError as error:
                cancelled = error
        if cancelled is not None:
            raise cancelled

    async def pieces(self) -> AsyncIterator[str]:
        while (item := await self._queue.get()) is not None:
            if isinstance(item, ModelError):
                raise item
            yield item

    async def _follow(self, in_thread: InThread) -> None:
        try:
            await in_thread(self._run)
        finally:
            if not self._entered.is_set():  # cancelled before a thread was free
                self._left.set()

    # What follows runs in the thread.

    def _run(self) -> None:
        self._entered.set()
        try:
            if not self._stop.is_set():
                self._server.handle_chat_completions(self._request, self._take)
        except Exception as error:  # noqa: BLE001 - whatever llama.cpp raises is raised to who asked
            failure = ModelError(f"llama.cpp failed: {type(error).__name__}: {error}")
            failure.__cause__ = error
            self._give(failure)
        finally:
            self._give(None)
            with contextlib.suppress(RuntimeError):  # the loop has been closed: nobody waits
                self._loop.call_soon_threadsafe(self._left.set)

    def _take(self, chunk: Any) -> bool:
        """llama.cpp's callback; True makes it stop."""
        for part in chunk if isinstance(chunk, list) else [chunk]:
            self._read(json.loads(part) if isinstance(part, str | bytes) else part)
        return self._stop.is_set()

    def _read(self, part: dict[str, Any]) -> None:
        if error := part.get("error"):
            kind = _TooLongError if error.get("type") == TOO_LONG else ModelError
            self._give(kind(f"llama.cpp refused the conversation: {error.get('message', error)}"))
            self._stop.set()
        if choices := part.get("choices"):
            text = choices[0].get("delta", {}).get("content")
            if text and not self._stop.is_set():
                self._give(text)
        if timings := part.get("timings"):
            self.usage = timings["prompt_n"] + timings["cache_n"], timings["predicted_n"]

    def _give(self, item: str | ModelError | None) -> None:
        try:
            self._loop.call_soon_threadsafe(self._queue.put_nowait, item)
        except RuntimeError:  # the loop has been closed under us
            self._stop.set()


# ------------------------------------------------------------------------------------------------- requests and model


class LlamaServer(Protocol):
    """What is used of xllamacpp.Server: blocks until the reply is written, calling back with each piece."""

    def handle_chat_completions(self, request: dict[str, Any], callback: Callable[[Any], bool]) -> object:
        """As llama.cpp's own ``/v1/chat/completions``; the callback returns True to stop."""
        ...


@dataclass(frozen=True, slots=True)
class _Conversation:
    """What the model is shown: ``fixed`` always, of ``turns`` the newest that fit."""

    fixed: Sequence[Message]
    turns: Sequence[Message]


def in_words(messages: Sequence[Message]) -> list[Message]:
    """A conversation as plain texts of user and assistant in turn, for a model that knows nothing else. Blank ones are left out."""
    calls = {call.id: call for message in messages for call in message.calls}
    said: list[Message] = []
    for message in messages:
        role, text = ("assistant" if message.role == "assistant" else "user"), _words(message, calls)
        if said and text and said[-1].role == role:
            said[-1] = Message(role, f"{said[-1].text}\n{text}")
        elif text:
            said.append(Message(role, text))
    return said


def _words(message: Message, calls: Mapping[str, ToolCall]) -> str:
    """An interruption is not marked: a small model would write the mark itself."""
    if message.role == "tool":
        name = calls[message.call_id].name if message.call_id in calls else "the tool"
        return f"[{name} says: {message.text.strip()}]"
    parts = [message.text.strip()]
    for item in message.media:
        if isinstance(item, Image):
            parts.append(f"[an image: {item.alt}]" if item.alt else "[an image]")
        else:
            parts.append(f"[a sound of {item.seconds:.0f} s]")
    parts += [f"[{call.name} is asked: {call.arguments}]" for call in message.calls]
    return " ".join(filter(None, parts))


def _request(conversation: _Conversation, max_tokens: int, options: LlamaOptions) -> dict[str, Any]:
    return {
        "messages": [{"role": message.role, "content": message.text} for message in (*conversation.fixed, *conversation.turns)],
        "stream": True,
        "return_progress": True,  # calls back while the prompt is being read, which is the only chance to stop there
        "cache_prompt": True,
        "max_tokens": max_tokens,
        "temperature": options.temperature,
        "seed": options.seed,
        "top_p": options.top_p,
        "repeat_penalty": options.repeat_penalty,
        "frequency_penalty": options.frequency_penalty,
        "stop": list(options.stop),
    }


def _open(model: str | Path, options: LlamaOptions) -> LlamaServer:
    return open_server(models.resolve(model), thread_count(options.threads, _cores()), options.context_tokens, options.slots)


def thread_count(wanted: int | None, cores: int) -> int:
    """All cores but one, or fewer if wanted; see LlamaOptions.threads."""
    most = max(1, cores - 1)
    return most if wanted is None else max(1, min(wanted, most))


def _cores() -> int:
    """Those this process may use, which in a container are fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@once_per_process
def open_server(path: Path, threads: int, context_tokens: int, slots: int) -> LlamaServer:
    """The model of that file, opened at the first call (0.5 s for a small one) and kept. Blocks. Raises ModelError."""
    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(path)
    parameters.n_ctx = context_tokens * slots
    parameters.n_parallel = slots
    parameters.n_batch = parameters.n_ubatch = PREFILL_STEP
    parameters.cache_ram_mib = PROMPT_CACHE_MIB
    parameters.api_keys = [secrets.token_urlsafe(32)]
    parameters.use_jinja = True
    parameters.verbosity = -1
    for cpu in (parameters.cpuparams, parameters.cpuparams_batch):
        cpu.n_threads = threads
        cpu.poll = 0
    try:
        server: LlamaServer = xllamacpp.Server(parameters)
    except RuntimeError as error:
        raise ModelError(
            f"{path} cannot be opened by llama.cpp ({error}); it must be a whole GGUF file of a chat model that fits into memory"
        ) from error
    return server
