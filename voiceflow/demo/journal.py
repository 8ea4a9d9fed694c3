"""What happened in a call, turn by turn, out of the frames seen on its edges. Pure: frames and times in, turns out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from voiceflow.demo.script import Spoken
from voiceflow.frames import (
    ContextFrame,
    Frame,
    LLMTextFrame,
    OutputAudioFrame,
    PlaybackStarted,
    PlaybackStopped,
    SentenceFrame,
    SpeechStopped,
    TranscriptFrame,
    TurnEnded,
)
from voiceflow.interruption import Interruption
from voiceflow.score.trace import Made
from voiceflow.score.words import edits, normal_words

__all__ = ["Journal", "Reply", "Turn", "word_error_rate"]

NEAR_S = 0.5
"""The detector's end of speech belongs to a line whose true end is this near."""


@dataclass(slots=True)
class Reply:
    """One reply of the agent: when each stage gave its first result, what was said and what was heard of it."""

    utterance: int
    asked_at: float
    text: str = ""
    heard: str = ""
    interrupted: bool = False
    first_token_at: float | None = None
    first_clause_at: float | None = None
    first_audio_at: float | None = None
    heard_at: float | None = None


@dataclass(slots=True)
class Turn:
    """One turn of the caller and the reply to it. ``said`` is None where only the caller knows."""

    said: str | None
    heard: str
    begin: float
    end: float
    ended_at: float
    final_at: float | None
    stopped_at: float | None
    reply: Reply | None = None

    def waterfall(self) -> dict[str, int | None]:
        """Milliseconds from the end of the caller's voice, stage by stage; the last is the sum, as the caller felt it."""
        reply = self.reply
        return {
            "endpointing": _ms(self.end, self.ended_at),
            "of_it_vad": _ms(self.end, self.stopped_at),
            "of_it_stt": _ms(self.stopped_at, self.final_at),
            "llm_first_token": _ms(reply.asked_at, reply.first_token_at) if reply else None,
            "first_clause": _ms(reply.first_token_at, reply.first_clause_at) if reply else None,
            "tts_first_audio": _ms(reply.first_clause_at, reply.first_audio_at) if reply else None,
            "playout": _ms(reply.first_audio_at, reply.heard_at) if reply else None,
            "voice_to_voice": _ms(self.end, reply.heard_at) if reply else None,
        }


def _ms(begin: float | None, end: float | None) -> int | None:
    return None if begin is None or end is None else round((end - begin) * 1000)


@dataclass
class Journal:
    """Give ``see`` every frame with its target and time. ``on_frame`` hears of what a watcher wants to print live."""

    on_frame: Callable[[Frame, float], None] | None = None
    replies: dict[int, Reply] = field(default_factory=dict)
    ends: list[tuple[TurnEnded, float]] = field(default_factory=list)
    finals: list[tuple[str, float]] = field(default_factory=list)
    stops: list[tuple[float, float]] = field(default_factory=list)
    """Of the detector: (when the voice ended, when it told)."""
    _seen: set[int] = field(default_factory=set)
    _kept: list[Any] = field(default_factory=list)

    def see(self, frame: Frame, now: float) -> None:
        """One frame on one edge; the same frame on further edges counts once."""
        if id(frame) in self._seen or not isinstance(frame, _WATCHED):
            return
        self._seen.add(id(frame))
        self._kept.append(frame)  # so that its id is not given to another
        self._note(frame, now)
        if self.on_frame is not None:
            self.on_frame(frame, now)

    def _note(self, frame: Frame, now: float) -> None:
        if isinstance(frame, ContextFrame):
            self.replies[frame.utterance] = Reply(frame.utterance, now)
        elif isinstance(frame, TurnEnded):
            self.ends.append((frame, now))
        elif isinstance(frame, TranscriptFrame) and frame.final:
            self.finals.append((frame.text, now))
        elif isinstance(frame, SpeechStopped):
            self.stops.append((frame.at, now))
        elif isinstance(frame, PlaybackStopped):
            self._heard(frame.heard.utterance, frame.heard.text, interrupted=not frame.heard.complete)
        elif reply := self.replies.get(getattr(frame, "utterance", 0)):
            if isinstance(frame, LLMTextFrame):
                reply.text += frame.text
                reply.first_token_at = reply.first_token_at or now
            elif isinstance(frame, SentenceFrame):
                reply.first_clause_at = reply.first_clause_at or now
            elif isinstance(frame, OutputAudioFrame):
                reply.first_audio_at = reply.first_audio_at or now
            elif isinstance(frame, PlaybackStarted):
                reply.heard_at = reply.heard_at or frame.at

    def cut(self, interruption: Interruption) -> None:
        """What an interrupt says had been heard."""
        for heard in interruption.heard:
            self._heard(heard.utterance, heard.text, interrupted=not heard.complete)

    def _heard(self, utterance: int, text: str, *, interrupted: bool) -> None:
        if reply := self.replies.get(utterance):
            reply.heard = " ".join(filter(None, [reply.heard, text]))
            reply.interrupted = reply.interrupted or interrupted

    def made(self, rate: int) -> Made:
        """All the sound that was made at this rate, in Hz."""
        made = Made(rate)
        for frame in self._kept:
            if isinstance(frame, OutputAudioFrame):
                made.add(frame, frame.pts or 0.0)
        return made

    def turns(self, spoken: Sequence[Spoken]) -> list[Turn]:
        """The caller's lines, each with what was heard of it and the reply it got; without a script, the turns heard."""
        if any(s.line.text for s in spoken):
            begins = [*(s.begin for s in spoken), float("inf")]
            return [
                self._turn(s.line.text, s.begin, s.end, [e for e in self.ends if s.begin <= e[1] < until], until)
                for s, until in zip(spoken, begins[1:], strict=True)
            ]
        times = [*(at for _, at in self.ends), float("inf")]
        return [
            self._turn(None, end[0].speech_ended, end[0].speech_ended, [end], until)
            for end, until in zip(self.ends, times[1:], strict=True)
        ]

    def _turn(self, said: str | None, begin: float, end: float, ends: Sequence[tuple[TurnEnded, float]], until: float) -> Turn:
        """One line of the caller: the turns it was taken for (one, if all is well) and the last reply before `until`."""
        if not ends:
            return Turn(said, "", begin, end, end, None, None, None)
        ended_at = ends[-1][1]
        replies = [reply for reply in self.replies.values() if ends[0][1] - 1e-6 <= reply.asked_at < until]
        finals = [at for text, at in self.finals if text and begin <= at <= ended_at]
        stops = [told for at, told in self.stops if abs(at - end) < NEAR_S and told <= ended_at]
        heard = ""
        for frame, _ in ends:  # a turn that was taken up again tells its first words again
            heard = frame.text if frame.text.startswith(heard) else f"{heard} {frame.text}"
        return Turn(
            said, heard, begin, end, ended_at, max(finals, default=None), max(stops, default=None), replies[-1] if replies else None
        )


_WATCHED = (
    ContextFrame,
    TurnEnded,
    TranscriptFrame,
    SpeechStopped,
    PlaybackStopped,
    PlaybackStarted,
    LLMTextFrame,
    SentenceFrame,
    OutputAudioFrame,
)


def word_error_rate(turns: Sequence[Turn]) -> float | None:
    """Word errors over words said, of all turns together; None where nobody knows what was said."""
    known = [turn for turn in turns if turn.said]
    said = sum(len(normal_words(turn.said or "")) for turn in known)
    return sum(edits(normal_words(turn.said or ""), normal_words(turn.heard)) for turn in known) / said if said else None
