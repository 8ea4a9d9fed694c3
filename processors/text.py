"""Text on its way to the voice: a reply's tokens become pieces to speak.

The one rule: nothing is spoken out of place. A piece belongs to one utterance, and what an interrupt or a broken reply
left behind is dropped, never said later.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from voiceflow.frames import EndFrame, LLMEnded, LLMTextFrame, SayFrame, SentenceFrame
from voiceflow.processor import Processor
from voiceflow.processors.filters import Chain, Emoji, FilterMaker, Reasoning, TextFilter
from voiceflow.processors.markdown import Markdown
from voiceflow.processors.splitter import Mode, Splitter, SplitterOptions

if TYPE_CHECKING:
    from voiceflow.interruption import Interruption

__all__ = ["FILTERS", "Emoji", "Markdown", "Mode", "Reasoning", "Sentences", "Splitter", "SplitterOptions", "TextFilter"]

FILTERS: tuple[FilterMaker, ...] = (Reasoning, Markdown, Emoji)
"""What is taken out unless told otherwise, first to last."""


class Sentences(Processor):
    """Gathers a reply's tokens into pieces to speak. Instant.

    ``options``: what the pieces are: clauses, sentences, words, or lengths by a schedule. ``filters``: what is taken out
    before, as makers of filters (``lambda: Markdown(code=False)``); ``()`` takes out nothing. What a filter takes out is
    not spoken, not heard, and so not in the conversation either.

    The tail without a mark is spoken at ``LLMEnded``. An interrupt drops it. If another reply begins or ends, or the call
    ends, while a reply has no ``LLMEnded`` (its model failed), its tail is dropped and its utterance closed, so that
    nothing of it is spoken out of place. A ``SayFrame`` is an utterance of its own; a tail that it overtook is spoken only
    if its reply goes on. An utterance with nothing to say yields its ``LLMEnded`` alone.
    """

    def __init__(self, options: SplitterOptions | None = None, filters: Sequence[FilterMaker] = FILTERS) -> None:
        self.options = options or SplitterOptions()
        self.filters = tuple(filters)
        self._reply = _Reply(self.options, self.filters)
        self._utterance: int | None = None  # the reply that is open
        self._closed: int | None = None  # the last reply closed here before its own LLMEnded

    def process(self, frame: LLMTextFrame | LLMEnded | SayFrame | EndFrame) -> Iterator[SentenceFrame | LLMEnded]:
        """Yields each piece as soon as it is complete, and ``LLMEnded`` behind the last one of an utterance."""
        if isinstance(frame, LLMTextFrame):
            yield from self._close_unless(frame.utterance)
            self._utterance = frame.utterance
            yield from _pieces(self._reply.push(frame.text), frame.utterance)
        elif isinstance(frame, LLMEnded):
            yield from self._ended(frame)
        elif isinstance(frame, SayFrame):
            say = _Reply(self.options, self.filters)
            yield from _pieces(say.push(frame.text) + say.flush(), frame.utterance)
            yield LLMEnded(utterance=frame.utterance)
        else:
            yield from self._close_unless(None)

    def _ended(self, frame: LLMEnded) -> Iterator[SentenceFrame | LLMEnded]:
        if frame.utterance == self._closed:
            self._closed = None
            return
        yield from self._close_unless(frame.utterance)
        if frame.utterance == self._utterance:
            tail = self._reply.flush()
            self._forget()
            yield from _pieces(tail, frame.utterance)
        yield LLMEnded(utterance=frame.utterance)

    def _close_unless(self, utterance: int | None) -> Iterator[LLMEnded]:
        """Give up the reply that is open, if it is not this one: its own LLMEnded has not come, and is not waited for."""
        if self._utterance is None or self._utterance == utterance:
            return
        self._closed = self._utterance
        self._forget()
        yield LLMEnded(utterance=self._closed)

    def _forget(self) -> None:
        self._reply.clear()
        self._utterance = None

    def on_interrupt(self, interrupt: Interruption) -> None:
        """The rest of the reply will not be spoken."""
        self._forget()


class _Reply:
    """One reply's filters and splitter."""

    def __init__(self, options: SplitterOptions, filters: Sequence[FilterMaker]) -> None:
        self._chain = Chain(filters)
        self._splitter = Splitter(options)

    def push(self, text: str) -> list[str]:
        return self._splitter.push(self._chain.push(text))

    def flush(self) -> list[str]:
        return self._splitter.push(self._chain.flush()) + self._splitter.flush()

    def clear(self) -> None:
        self._chain.clear()
        self._splitter.clear()


def _pieces(texts: list[str], utterance: int) -> Iterator[SentenceFrame]:
    for text in texts:
        yield SentenceFrame(text=text, utterance=utterance)
