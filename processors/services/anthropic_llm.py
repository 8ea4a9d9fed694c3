"""A language model over HTTP: Anthropic's Messages API, and servers that speak it (llama.cpp).

The one rule: a key goes to Anthropic alone, unless it was meant for somebody else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from voiceflow.frames import ContextFrame
from voiceflow.processors.services.address import checked_url
from voiceflow.processors.services.anthropic_request import MessagesOptions, messages_body
from voiceflow.processors.services.anthropic_stream import MessagesStream
from voiceflow.processors.services.http import Deadlines
from voiceflow.processors.services.key import find_key
from voiceflow.processors.services.retry import RetryOptions
from voiceflow.processors.services.streamed_llm import FreshIds, StreamedLLM

__all__ = ["AnthropicLLM", "AnthropicOptions"]

ANTHROPIC = "https://api.anthropic.com"
KEY_VARIABLE = "ANTHROPIC_API_KEY"


@dataclass(frozen=True, slots=True)
class AnthropicOptions:
    """Where the model is, and how it is asked."""

    messages: MessagesOptions
    base_url: str = ANTHROPIC
    """Of any server that speaks the protocol, without ``/v1``."""
    api_key: str | None = field(default=None, repr=False)
    api_key_variable: str | None = None
    """Environment variable that holds the key. None: ``ANTHROPIC_API_KEY`` at Anthropic itself and none elsewhere."""
    version: Literal["2023-06-01", "2026-10-21"] = "2023-06-01"
    """Of the API. The older one, which servers other than Anthropic's know, has the key in ``x-api-key``, the newer one as a bearer token."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """More headers: ``{"anthropic-beta": "..."}``."""
    deadlines: Deadlines = field(default_factory=Deadlines)
    retries: RetryOptions = field(default_factory=RetryOptions)

    def __post_init__(self) -> None:
        checked_url(self.base_url, "AnthropicOptions")
        if self.version not in ("2023-06-01", "2026-10-21"):
            raise ValueError(f"AnthropicOptions: version is {self.version!r}; it must be 2023-06-01 or 2026-10-21")


class AnthropicLLM(StreamedLLM):
    """Answers a conversation by way of ``POST {base_url}/v1/messages``, token by token.

    ``AnthropicLLM("claude-...")``, or with ``AnthropicOptions``. Thinking is passed over. Frames, cancelling and errors: as at StreamedLLM.
    """

    key_variable = KEY_VARIABLE

    def __init__(self, options: AnthropicOptions | str) -> None:
        self.options = AnthropicOptions(MessagesOptions(options)) if isinstance(options, str) else options
        super().__init__(checked_url(self.options.base_url, "AnthropicOptions"), self.options.deadlines, self.options.retries)

    def headers(self) -> Mapping[str, str]:
        """See StreamedLLM."""
        options = self.options
        key = find_key(self._url, options.api_key, options.api_key_variable or (KEY_VARIABLE if self._url == ANTHROPIC else None))
        authorisation = {"x-api-key": key} if options.version == "2023-06-01" else {"Authorization": f"Bearer {key}"}
        return {"anthropic-version": options.version, **options.headers, **(authorisation if key else {})}

    def request(self, frame: ContextFrame) -> tuple[str, Mapping[str, Any]]:
        """See StreamedLLM."""
        return f"{self._url}/v1/messages", messages_body(self.options.messages, frame.messages, frame.tools)

    def stream(self, frame: ContextFrame) -> MessagesStream:
        """See StreamedLLM."""
        return MessagesStream(FreshIds(frame))
