"""What is said of a language model's answer as a whole, whichever service it comes from."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from voiceflow.processors.services.anthropic_stream import MessagesStream
from voiceflow.processors.services.chat_stream import ChatStream
from voiceflow.processors.services.reply import ReplyEnd, ReplyStream
from voiceflow.processors.services.retry import Verdict

CHAT = b'data: {"choices": [{"index": 0, "delta": {"content": "One"}}]}\n\n'
MESSAGES = b'data: {"type": "message_start", "message": {}}\n\n'


@pytest.mark.parametrize(
    ("make", "begin"),
    [(lambda: ChatStream((), lambda: "id"), CHAT), (lambda: MessagesStream(lambda: "id"), MESSAGES)],
    ids=["chat completions", "messages"],
)
def test_an_answer_that_is_not_whole_says_what_is_missing(make: Callable[[], ReplyStream], begin: bytes) -> None:
    """Nothing at all, nothing that is understood, no end; what may be a passing fault is worth another try."""
    for data, says, verdict in [
        (b"", "answer is empty", Verdict.LATER),
        (b": comment\n\n", "look at base_url", Verdict.NEVER),
        (b"<html>hello</html>", "look at base_url", Verdict.NEVER),
        (begin, "broke off", Verdict.LATER),
    ]:
        stream = make()
        *_, end = [*stream.feed(data), *stream.close()]
        assert isinstance(end, ReplyEnd)
        assert end.error is not None
        assert says in str(end.error)
        assert end.error.verdict is verdict
