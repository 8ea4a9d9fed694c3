"""Text on its way to the voice: a reply's tokens become pieces to speak.

The one rule: nothing is spoken out of place. A piece belongs to one utterance, and what an interrupt or a broken reply
left behind is dropped, never said later.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from voiceflow.frames import EndFrame, LLMEnded, LLMTextFrame, SayFrame, SentenceFrame
from voiceflow.processor import Processor
from voiceflow.processors.splitter import Splitter, SplitterOptions

if TYPE_CHECKING:
    from voiceflow.interruption import Interruption

__all__ = ["Sentences", "Splitter", "SplitterOptions"]


class Sentences(Processor):
    """Gathers a reply's tokens into pieces to speak. Instant.

    The tail without a mark is spoken at ``LLMEnded``. An interrupt drops it. If the next reply begins while the last
    has no ``LLMEnded`` (the model failed), the old tail is dropped and the old utterance closed, so that nothing of
    it is spoken out of place. A ``SayFrame`` is an utterance of its own; a tail that it overtook is spoken only if
    its reply goes on.
    """

    def __init__(self, options: SplitterOptions | None = None) -> None:
        self.options = options or SplitterOptions()
        self._reply = Splitter(self.options)
        self._utterance: int | None = None  # the reply that is open
        self._overtaken = False
        self._closed: int | None = None  # the last reply closed here before its own LLMEnded

    def process(self, frame: LLMTextFrame | LLMEnded | SayFrame | EndFrame) -> Iterator[SentenceFrame | LLMEnded]:
        """Yields each piece as soon as it is complete, and ``LLMEnded`` behind the last one of an utterance."""
        if isinstance(frame, LLMTextFrame):
            yield from self._text(frame)
        elif isinstance(frame, SayFrame):
            self._overtaken = True
            say = Splitter(self.options)
            for piece in say.push(frame.text) + say.flush():
                yield SentenceFrame(text=piece, utterance=frame.utterance)
            yield LLMEnded(utterance=frame.utterance)
        elif isinstance(frame, LLMEnded):
            yield from self._ended(frame)
        elif self._utterance is not None:
            utterance, tail = self._utterance, [] if self._overtaken else self._reply.flush()
            self._forget()
            for piece in tail:
                yield SentenceFrame(text=piece, utterance=utterance)
            yield LLMEnded(utterance=utterance)

    def _text(self, frame: LLMTextFrame) -> Iterator[SentenceFrame | LLMEnded]:
        if self._utterance is not None and self._utterance != frame.utterance:
            self._closed = self._utterance
            self._forget()
            yield LLMEnded(utterance=self._closed)
        self._utterance, self._overtaken = frame.utterance, False
        for piece in self._reply.push(frame.text):
            yield SentenceFrame(text=piece, utterance=frame.utterance)

    def _ended(self, frame: LLMEnded) -> Iterator[SentenceFrame | LLMEnded]:
        if frame.utterance == self._utterance:
            tail = self._reply.flush()
            self._forget()
            for piece in tail:
                yield SentenceFrame(text=piece, utterance=frame.utterance)
        elif frame.utterance == self._closed:
            self._closed = None
            return
        yield LLMEnded(utterance=frame.utterance)

    def _forget(self) -> None:
        self._reply.clear()
        self._utterance, self._overtaken = None, False

    def on_interrupt(self, interrupt: Interruption) -> None:
        """The rest of the reply will not be spoken."""
        self._forget()
