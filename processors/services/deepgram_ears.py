"""What is made of listen v1's messages: which words are final, where an utterance ends, and whether anybody is still there.

The one rule: no word is told twice as final, and none is left out. Segments that the service calls final are gathered until the
utterance ends. Who says that it does: the detector before the node, whose end of speech the service is asked to answer; where
none speaks, the service. Pure: times are told.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from voiceflow.frames import Frame, SpeechStarted, SpeechStopped, TranscriptFrame, Word
from voiceflow.processors.services.deepgram_options import DeepgramOptions
from voiceflow.processors.services.deepgram_sound import KeptSound
from voiceflow.processors.services.deepgram_wire import Metadata, Results, SpeechBegan, UtteranceOver, read_message
from voiceflow.processors.services.retry import ServiceError, Verdict

__all__ = ["ListenEars", "TimedTranscript", "timed"]


class TimedTranscript(TranscriptFrame, frozen=True):
    """A transcript with the times of its words, in seconds on the session's clock."""

    words: tuple[Word, ...] = ()


def timed(words: Sequence[Word], sound: KeptSound) -> tuple[Word, ...]:
    """Times of a connection as those of the session."""
    return tuple(Word(word.text, sound.time_at(word.start), sound.time_at(word.end), word.estimated) for word in words if word.start >= 0)


class ListenEars:
    """See ``Ears`` of ``deepgram_line``."""

    def __init__(self, options: DeepgramOptions, sound: KeptSound) -> None:
        self.said_goodbye = False
        self._options = options
        self._sound = sound
        self._segments: list[Results] = []
        self._words: list[Word] = []
        """Of the segments."""
        self._interim: Results | None = None
        self._told = ""
        self._speaking = False
        self._onsets: deque[float] = deque(maxlen=64)
        self._utterance_over = False
        self._asked_at: float | None = None
        """Since when an end of speech is unanswered on this connection."""
        self._heard_at = 0.0

    # ------------------------------------------------------------------------------- what the detector says

    def started(self, at: float, now: float) -> None:
        """The caller's voice began at ``at``."""
        if not self._speaking:
            self._speaking = True
            self._onsets.append(at)
            self._heard_at = max(self._heard_at, now)

    def stopped(self) -> bool:
        """It has ended. False: it had not begun."""
        was, self._speaking = self._speaking, False
        if was:
            self._sound.mark()
        return was

    # ------------------------------------------------------------------------------- what the service says

    def connected(self, now: float, past_marks: int) -> Sequence[Frame]:
        """What was not final is heard again; until then it is all that is known. Ends of speech with only finals before them are answered."""
        self._asked_at, self._heard_at = None, now
        return [self._final() for _ in range(past_marks)]

    def read(self, data: str | bytes, now: float) -> Sequence[Frame]:
        """A message."""
        message = read_message(data, self._options.line.where)
        self._heard_at = now
        if isinstance(message, Results):
            return [*self._maybe_started(message, now), *self._take(message, now)]
        if isinstance(message, SpeechBegan) and self._options.edges:
            return self._edge(self._sound.time_at(message.at), now)
        if isinstance(message, UtteranceOver):
            self._utterance_over = bool(self._interim is not None and self._interim.text)
            if not self._utterance_over and self._is_free:
                return self._service_ends(now)
        self.said_goodbye |= isinstance(message, Metadata)
        return []

    def _maybe_started(self, results: Results, now: float) -> list[Frame]:
        return self._edge(self._sound.time_at(_onset(results)), now) if self._options.edges and results.text else []

    def _edge(self, at: float, now: float) -> list[Frame]:
        if self._speaking:
            return []
        self.started(min(at, now), now)
        return [SpeechStarted(at=min(at, now))]

    def _take(self, results: Results, now: float) -> list[Frame]:
        if not results.is_final:
            self._interim = results
            return self._partial()
        self._interim = None
        if results.text:
            self._segments.append(results)
            self._words += timed(results.words, self._sound)
        self._sound.settle(self._sound.at(results.start + results.duration))
        if results.from_finalize and self._sound.answered():
            self._asked_at = now if self._asked_at is not None and self._sound.marks else None
            return [self._final()]
        if (results.speech_final or self._utterance_over) and self._is_free:
            return self._service_ends(now)
        return self._partial()

    @property
    def _is_free(self) -> bool:
        """The service may end the utterance: no detector is at work on it."""
        return self._options.edges or not (self._speaking or self._sound.marks)

    def _service_ends(self, now: float) -> list[Frame]:
        self._utterance_over = False
        if not self._segments and not (self._options.edges and self._speaking):
            return []
        frames: list[Frame] = []
        final = self._final(endpoint=True)
        if self._options.edges and self._speaking:
            self._speaking = False
            ended = min(now, final.words[-1].end) if final.words else now
            frames.append(SpeechStopped(at=ended, silence=now - ended))
        return [*frames, final]

    # -------------------------------------------------------------------------------------------- deadlines

    def asked(self, now: float) -> None:
        """The service was asked to answer an end of speech."""
        self._asked_at = now

    @property
    def deadline(self) -> float | None:
        """See ``Ears``."""
        dues = [self._asked_at + self._options.answer_s] if self._asked_at is not None else []
        if self._speaking:
            dues.append(self._heard_at + self._options.line.silent_s)
        return min(dues, default=None)

    def tick(self, now: float) -> Sequence[Frame]:
        """Time is up. The service need not answer where it has nothing to say; it is gone if it owes words, or says nothing at all."""
        line = self._options.line
        asked, self._asked_at = self._asked_at, None
        if asked is not None and now >= asked + self._options.answer_s - 1e-6:
            owes = self._interim is not None and bool(self._interim.text)
            if owes or self._heard_at < asked - self._options.answer_s:
                raise ServiceError(f"{line.where} gave no answer for {self._options.answer_s:g} s", verdict=Verdict.AT_ONCE)
            while self._sound.answered():
                pass
            return [self._final()]
        self._asked_at = asked
        if self._speaking and now >= self._heard_at + line.silent_s - 1e-6:
            raise ServiceError(f"{line.where} said nothing for {line.silent_s:g} s of speech", verdict=Verdict.AT_ONCE)
        return []

    def tail(self) -> Sequence[Frame]:
        """No more comes: what is known must do."""
        owed = self._sound.answered() or self._speaking
        while self._sound.answered():
            pass
        if self._interim is not None and self._interim.text:
            self._segments.append(self._interim)
            self._words += timed(self._interim.words, self._sound)
            self._interim = None
        self._speaking = False
        return [self._final()] if owed or self._segments else []

    # ------------------------------------------------------------------------------------------ transcripts

    def _partial(self) -> list[Frame]:
        interim = [self._interim] if self._interim is not None and self._interim.text else []
        text = _joined([*self._segments, *interim])
        if not text or text == self._told:
            return []
        self._told = text
        words = (*self._words, *(word for results in interim for word in timed(results.words, self._sound)))
        onset = self._onsets[0] if self._onsets else words[0].start if words else None
        confidence, stable = _confidence([*self._segments, *interim]), len(_joined(self._segments).split())
        return [TimedTranscript(text=text, final=False, confidence=confidence, stable=stable, words=words, pts=onset)]

    def _final(self, *, endpoint: bool = False) -> TimedTranscript:
        segments, self._segments = self._segments, []
        words, self._words = tuple(self._words), []
        self._told = ""
        text = _joined(segments)
        onset = self._onsets.popleft() if self._onsets else words[0].start if words else None
        return TimedTranscript(
            text=text, confidence=_confidence(segments), stable=len(text.split()), endpoint=endpoint, words=words, pts=onset
        )


def _onset(results: Results) -> float:
    return next((word.start for word in results.words if word.start >= 0), results.start)


def _joined(segments: Sequence[Results]) -> str:
    return " ".join(results.text for results in segments)


def _confidence(segments: Sequence[Results]) -> float | None:
    """The mean, by words."""
    sure = [(results.confidence, len(results.text.split())) for results in segments if results.confidence is not None and results.text]
    return sum(value * count for value, count in sure) / sum(count for _, count in sure) if sure else None
