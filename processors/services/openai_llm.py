"""A language model over HTTP: OpenAI's chat completions, and every server that speaks them (vLLM, llama.cpp, Ollama ...).

The one rule: a key goes to OpenAI alone, unless it was meant for somebody else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from voiceflow.frames import ContextFrame
from voiceflow.processors.services.address import checked_url
from voiceflow.processors.services.chat_request import ChatOptions, chat_body
from voiceflow.processors.services.chat_stream import ChatStream
from voiceflow.processors.services.http import Deadlines
from voiceflow.processors.services.key import find_key
from voiceflow.processors.services.retry import RetryOptions
from voiceflow.processors.services.streamed_llm import FreshIds, StreamedLLM

__all__ = ["OpenAILLM", "OpenAIOptions"]

OPENAI = "https://api.openai.com/v1"
KEY_VARIABLE = "OPENAI_API_KEY"


@dataclass(frozen=True, slots=True)
class OpenAIOptions:
    """Where the model is, and how it is asked."""

    chat: ChatOptions
    base_url: str = OPENAI
    """Of any server that speaks the protocol, ``/v1`` included: ``http://127.0.0.1:11434/v1`` for Ollama, ``...:8000/v1`` for vLLM."""
    api_key: str | None = field(default=None, repr=False)
    api_key_variable: str | None = None
    """Environment variable that holds the key. None: ``OPENAI_API_KEY`` at OpenAI itself and none elsewhere, so that a key is
    not sent to a stranger."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """More headers: ``{"OpenAI-Project": "..."}``."""
    deadlines: Deadlines = field(default_factory=Deadlines)
    retries: RetryOptions = field(default_factory=RetryOptions)

    def __post_init__(self) -> None:
        checked_url(self.base_url, "OpenAIOptions")


class OpenAILLM(StreamedLLM):
    """Answers a conversation by way of ``POST {base_url}/chat/completions``, token by token.

    ``OpenAILLM("gpt-4.1-mini")``, or with ``OpenAIOptions``. Calls of tools are understood whichever way the server cuts them
    up. Frames, cancelling and errors: as at StreamedLLM.
    """

    key_variable = KEY_VARIABLE

    def __init__(self, options: OpenAIOptions | str) -> None:
        self.options = OpenAIOptions(ChatOptions(options)) if isinstance(options, str) else options
        super().__init__(checked_url(self.options.base_url, "OpenAIOptions"), self.options.deadlines, self.options.retries)
        chat = self.options.chat
        if chat.max_tokens_name is None and self._url == OPENAI:
            chat = replace(chat, max_tokens_name="max_completion_tokens")
        self._chat = chat

    def headers(self) -> Mapping[str, str]:
        """See StreamedLLM."""
        variable = self.options.api_key_variable or (KEY_VARIABLE if self._url == OPENAI else None)
        key = find_key(self._url, self.options.api_key, variable)
        return {**self.options.headers, **({"Authorization": f"Bearer {key}"} if key else {})}

    def request(self, frame: ContextFrame) -> tuple[str, Mapping[str, Any]]:
        """See StreamedLLM."""
        return f"{self._url}/chat/completions", chat_body(self._chat, frame.messages, frame.tools)

    def stream(self, frame: ContextFrame) -> ChatStream:
        """See StreamedLLM."""
        is_written = self._chat.tool_calls == "constrained" and bool(frame.tools)
        return ChatStream([spec.name for spec in frame.tools], FreshIds(frame), written=is_written)
