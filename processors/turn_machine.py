"""Whose turn it is: when the caller begins, when they are done, and whether they mean to interrupt.

A table of transitions: signals and times in, frames out, no clock. The one rule: silence first, judgement after. A
voice that may want the turn holds the agent's speech at once; whether it was a question or a cough is decided behind
that silence, where it costs the caller nothing.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any, TypeAlias

from voiceflow.frames import (
    HoldFrame,
    InterruptFrame,
    PlaybackStarted,
    PlaybackStopped,
    ResumeFrame,
    SpeechStarted,
    SpeechStopped,
    TranscriptFrame,
    TurnEnded,
    TurnScored,
    TurnStarted,
)
from voiceflow.processors.marks import spoken_words
from voiceflow.processors.turn_options import TurnOptions, is_backchannel, speech_in

__all__ = ["Decision", "Signal", "State", "TurnMachine"]

Signal: TypeAlias = SpeechStarted | SpeechStopped | TranscriptFrame | TurnScored | PlaybackStarted | PlaybackStopped
Decision: TypeAlias = TurnStarted | TurnEnded | HoldFrame | ResumeFrame | InterruptFrame

_EPSILON_S = 1e-6


class State(enum.Enum):
    """What the caller is doing."""

    IDLE = "not their turn, silent"
    PROBING = "speaking while the agent speaks or thinks; not judged yet"
    JUDGING = "they have stopped again; still not judged"
    LISTENING = "their turn, speaking"
    WAITING = "their turn, silent: are they done?"


_Input = enum.Enum("_Input", "SPEECH_STARTED SPEECH_STOPPED PARTIAL FINAL SCORED PLAYBACK_STARTED PLAYBACK_STOPPED TIMER")

_KINDS: dict[type[Any], _Input] = {
    SpeechStarted: _Input.SPEECH_STARTED,
    SpeechStopped: _Input.SPEECH_STOPPED,
    TurnScored: _Input.SCORED,
    PlaybackStarted: _Input.PLAYBACK_STARTED,
    PlaybackStopped: _Input.PLAYBACK_STOPPED,
}


class TurnMachine:
    """Decides about turns. Give it every signal with :meth:`step`, and :meth:`tick` it when ``deadline`` has come.

    Each decision says why. ``TurnEnded.text`` is all that the caller has said and not been answered: speech that
    comes before a word of the reply was heard reopens the turn, and the question goes out again with what was added,
    or as it was if nothing was. A turn in which nothing was said ends without a ``TurnEnded``.

    An interruption and the end of the turn never come out of the same call, so that the first can be carried out,
    and :meth:`interrupted` called, before the second.
    """

    def __init__(self, options: TurnOptions | None = None) -> None:
        self.options = options or TurnOptions()
        self.state = State.IDLE
        self._now = 0.0
        self._out: list[Decision] = []
        # the caller
        self._speaking = False
        self._onset = 0.0  # of the present or last stretch of speech
        self._ended = 0.0  # of the last stretch
        self._stop_seen = 0.0
        self._late_s = self.options.vad_silence_s  # by how much the detector tells of an end late
        self._owed = 0  # finals still missing: 1, 0, or -1 when one came before its speech ended
        self._has_final = False  # one came since the last onset
        self._partial = ""
        self._last_final: tuple[tuple[str, ...], float] | None = None
        self._score: float | None = None
        # the turn
        self._is_open = False  # TurnStarted was told
        self._said: list[str] = []
        self._cut_reply = False  # this turn interrupted something
        self._unanswered: list[str] = []
        self._stood_in: str | None = None  # the partial transcript that the last turn ended with for want of a final one
        # the agent
        self._playing: set[int] = set()
        self._asked_at: float | None = None  # a reply was asked for and is not heard yet
        # speech over the agent
        self._held = False
        self._probed_from = 0.0
        self._judged_from = 0.0
        self._voiced = 0.0
        self._mark = 0  # where in _said it begins
        self._aside: tuple[str, float] | None = None

    # ------------------------------------------------------------------------------------------- the doors

    def step(self, signal: Signal, now: float) -> list[Decision]:
        """A signal came at ``now`` (seconds)."""
        if isinstance(signal, TranscriptFrame):
            return self._run(_Input.FINAL if signal.final else _Input.PARTIAL, signal, now)
        return self._run(next(_KINDS[t] for t in type(signal).__mro__ if t in _KINDS), signal, now)

    def tick(self, now: float) -> list[Decision]:
        """Time has passed."""
        due = self.deadline
        return self._run(_Input.TIMER, None, now) if due is not None and due <= now + _EPSILON_S else []

    def interrupted(self, now: float, *, heard: bool) -> None:
        """The agent was silenced, by this machine or anyone. ``heard``: some words of it had reached the ear."""
        self._now = max(self._now, now)
        self._playing.clear()
        self._asked_at = None
        self._held = False
        if heard:
            self._unanswered.clear()

    def finish(self, now: float) -> list[Decision]:
        """The call ends: nothing more will be heard from the caller. Ends what is open with what is known."""
        self._now = max(self._now, now)
        if self._held:
            self._resume("the call ends")
        if self.state in (State.LISTENING, State.WAITING):
            self._end_turn("the call ends")
        self.state, self._speaking = State.IDLE, False
        return self._take()

    @property
    def deadline(self) -> float | None:
        """When to :meth:`tick`, if nothing comes before; None: never."""
        if self.state is State.WAITING:
            return self._end()[0]
        if self.state not in (State.PROBING, State.JUDGING):
            return None
        if not self._is_agent_busy:
            return self._now
        return min(self._judgement_due(), self._probed_from + self.options.hold_max_s)

    def _run(self, kind: _Input, signal: Any, now: float) -> list[Decision]:
        self._now = max(self._now, now)
        note = _NOTES.get(kind)
        if note is None or note(self, signal):
            action = _TRANSITIONS.get((self.state, kind))
            if action is not None:
                action(self)
        return self._take()

    def _take(self) -> list[Decision]:
        out, self._out = self._out, []
        return out

    # ------------------------------------------- notes: what a signal says, in any state. False: nothing new

    def _note_speech_started(self, signal: SpeechStarted) -> bool:
        if self._speaking:
            return False
        self._speaking = True
        self._onset = min(signal.at, self._now)
        self._owed = max(self._owed, 0) if self._awaits_final_of_the_past() else 0
        self._has_final = False
        self._partial, self._score, self._last_final, self._stood_in, self._aside = "", None, None, None, None
        return True

    def _note_speech_stopped(self, signal: SpeechStopped) -> bool:
        if not self._speaking:
            return False
        self._speaking = False
        self._ended = min(max(signal.at, self._onset), self._now)
        self._stop_seen = self._now
        self._late_s = min(max(signal.silence, 0.0), self.options.max_silence_s)
        self._owed = min(self._owed + 1, 1)
        return True

    def _note_partial(self, signal: TranscriptFrame) -> bool:
        text = speech_in(signal.text)
        if self.state is State.IDLE or not text:
            return False
        words = spoken_words(text)
        if self._last_final is not None and self._last_final[0][: len(words)] == words:
            return False  # of words that are known for good
        self._partial = text
        return True

    def _note_final(self, signal: TranscriptFrame) -> bool:
        text = speech_in(signal.text)
        words = spoken_words(text)
        if (
            words
            and self._last_final is not None
            and self._last_final[0] == words
            and self._now - self._last_final[1] <= self.options.duplicate_s
        ):
            return False
        self._last_final = (words, self._now)
        if self.state is State.IDLE and not self._awaits_final_of_the_past():
            self._ended = self._now  # words that no speech announced
        self._owed = max(self._owed - 1, -1)
        self._has_final, self._partial = True, ""
        if text:
            self._said.append(text)
        return True

    def _note_scored(self, signal: TurnScored) -> bool:
        if self._speaking or (signal.at and signal.at < self._onset):
            return False  # about a pause that is over
        self._score = signal.probability
        return True

    def _note_playback_started(self, signal: PlaybackStarted) -> bool:
        self._playing.add(signal.utterance)
        self._asked_at = None
        return True

    def _note_playback_stopped(self, signal: PlaybackStopped) -> bool:
        heard = signal.heard
        self._playing.discard(heard.utterance)
        self._asked_at = None
        if heard.complete or heard.text:
            self._unanswered.clear()
        return heard.complete

    # ------------------------------------------------------------------------------------- actions of the table

    def _speech_began(self) -> None:
        """Their turn, unless the agent is at work: then hold, and judge."""
        if not self._is_agent_busy:
            self._listen(f"speech since {self._now - self._onset:.2f} s")
            return
        self._probe()

    def _probe(self) -> None:
        self.state = State.PROBING
        self._probed_from, self._voiced, self._mark = self._now, 0.0, len(self._said)
        if not self._held:
            doing = "speaks" if self._playing else "thinks"
            self._held = True
            self._out.append(HoldFrame(why=f"speech since {self._now - self._onset:.2f} s while the agent {doing}"))

    def _speech_began_again(self) -> None:
        self.state = State.PROBING

    def _agent_began(self) -> None:
        """The agent begins to speak while they do."""
        if self._said or self._partial:
            self._interrupt("the agent began to speak in the caller's turn")
        else:
            self._probe()

    def _probe_stopped(self) -> None:
        self.state, self._judged_from = State.JUDGING, self._now
        self._voiced += self._ended - self._onset
        self._judge_words()

    def _judge_words(self) -> None:
        """Words over the agent: meant, unless they only show that somebody listens."""
        words = " ".join([*self._said[self._mark :], self._partial]).strip()
        if not is_backchannel(words, self.options.backchannels):
            self._interrupt(f"the caller said {words!r}")
        elif self.state is State.JUDGING and self._owed <= 0:
            self._dismiss(f"{self._voiced:.2f} s of speech and " + (f"only {words!r} in it" if words else "no words in it"))

    def _agent_fell_silent(self) -> None:
        """Nothing is left to interrupt: what they say is a turn like any other."""
        if self._is_agent_busy:
            return
        if self._held:
            self._resume("nothing is left to hold")
        self._listen("speech, and the agent has fallen silent")

    def _judgement_is_due(self) -> None:
        options, on_hold_s = self.options, self._now - self._probed_from
        if not self._is_agent_busy:
            self._agent_fell_silent()
        elif self.state is State.JUDGING:
            self._dismiss(f"no words within {self._now - self._judged_from:.2f} s of {self._voiced:.2f} s of speech")
        elif on_hold_s >= options.hold_max_s - _EPSILON_S:
            self._interrupt(f"still speaking after {on_hold_s:.2f} s on hold (hold_max_s {options.hold_max_s:g})")
        else:
            spoken_s = self._voiced + self._now - self._onset - self._late_s
            self._interrupt(f"speech for {spoken_s:.2f} s (interrupt_after_ms {options.interrupt_after_ms:g})")

    def _turn_speech_stopped(self) -> None:
        self.state = State.WAITING
        self._end_if_due()

    def _more_words_without_speech(self) -> None:
        """A partial transcript in a pause: the detector missed that they go on."""
        if self._owed <= 0:
            self._ended = self._stop_seen = self._now
            self._owed, self._has_final, self._score = 1, False, None

    def _late_words(self) -> None:
        """A final transcript while it is not their turn: of a turn that ended without it, or of speech nobody noticed."""
        text = self._said[-1] if self._said else ""
        stood_in, self._stood_in = self._stood_in, None
        known = stood_in is not None and spoken_words(stood_in) == spoken_words(text)
        if known or (self._is_agent_busy and is_backchannel(text, self.options.backchannels)):
            if text and not known:
                self._aside = (text, self._now)
            self._said.clear()
            return
        if not text:
            return
        if stood_in is not None and self._unanswered and self._unanswered[-1] == stood_in:
            self._unanswered.pop()  # the final transcript takes its place
        if self._is_agent_busy:
            self._interrupt(f"the caller said {text!r}, told late")
            return
        self._listen("words, told late" if self._ended < self._now else "words without detected speech")
        self._end_if_due()

    def _answer_at_the_end(self) -> None:
        """The agent has finished: a "yeah" right before was the answer."""
        if self._aside is None or self._is_agent_busy:
            return
        (text, at), self._aside = self._aside, None
        if self._now - at <= self.options.answer_window_s:
            self._said = [text]
            self._listen(f"{text!r} {self._now - at:.2f} s before the agent finished")
            self._end_turn(f"the agent finished {self._now - at:.2f} s after {text!r} (answer_window_s {self.options.answer_window_s:g})")

    # ------------------------------------------------------------------------------------------- what they do

    @property
    def _is_agent_busy(self) -> bool:
        """The agent can be heard, or is thinking of what to say."""
        asked_at = self._asked_at
        return bool(self._playing) or (asked_at is not None and self._now - asked_at < self.options.reply_timeout_s)

    def _awaits_final_of_the_past(self) -> bool:
        """A transcript that comes now may be of the stretch of speech before: its own is late, not lost."""
        return self._owed > 0 and self._now - self._stop_seen <= 2 * self.options.final_timeout_s

    def _judgement_due(self) -> float:
        options = self.options
        if self.state is State.JUDGING:
            return self._judged_from + options.judge_timeout_s
        needed_s = options.backchannel_max_s if self._partial or len(self._said) > self._mark else options.interrupt_after_ms / 1000
        # An end of speech is told late: only speech that is still not over then was that long.
        return self._onset + needed_s - self._voiced + self._late_s

    def _listen(self, why: str) -> None:
        """It is their turn."""
        self.state = State.LISTENING if self._speaking else State.WAITING
        if not self._is_open:
            self._is_open = True
            self._out.append(TurnStarted(why=why))

    def _interrupt(self, why: str) -> None:
        self._out.append(InterruptFrame(reason=why))
        self._held, self._cut_reply, self._asked_at = False, True, None
        self._playing.clear()
        self._listen(why)

    def _resume(self, why: str) -> None:
        self._held = False
        self._out.append(ResumeFrame(why=why))

    def _dismiss(self, why: str) -> None:
        """It was nothing."""
        aside = " ".join([*self._said[self._mark :], self._partial]).strip()
        self._aside = (aside, self._now) if aside else None
        del self._said[self._mark :]
        self._partial = ""
        self._resume(why)
        self.state = State.WAITING if self._is_open and self._said else State.IDLE
        self._is_open = self.state is State.WAITING

    def _end(self) -> tuple[float, str]:
        """When the turn ends if nothing more comes, and why."""
        options = self.options
        after = f"{self._now - self._ended:.2f} s after speech"
        if self._owed > 0 and self._has_final:  # of this stretch, or the late one of the stretch before: who knows
            return (
                self._ended + options.max_silence_s,
                f"silence, {after} (max_silence_s {options.max_silence_s:g}, a final transcript may be missing)",
            )
        if self._owed > 0:
            have = f"the partial one {self._partial!r} counts" if self._partial else "nothing counts"
            why = f"no final transcript {self._now - self._stop_seen:.2f} s after the end of speech was told (final_timeout_s {options.final_timeout_s:g}): {have}"
            return self._stop_seen + options.final_timeout_s, why
        if self._score is None:
            return self._ended + options.silence_s, f"silence, {after} (silence_s {options.silence_s:g}, no score)"
        score = f"score {self._score:.2f}"
        if self._score > options.score_threshold:
            return self._ended, f"{score} > {options.score_threshold:g}, {after}"
        return self._ended + options.max_silence_s, f"silence, {after} (max_silence_s {options.max_silence_s:g}, {score})"

    def _end_if_due(self) -> None:
        due, why = self._end()
        if due <= self._now + _EPSILON_S:
            self._end_turn(why)

    def _end_turn(self, why: str) -> None:
        if self._partial:  # only ever for want of a final one
            self._said.append(self._partial)
            self._stood_in = self._partial
        again = not self._said and self._cut_reply and not self._is_agent_busy
        if self._said or (again and self._unanswered):
            self._unanswered += self._said
            why = f"nothing was said, so the question stands; {why}" if again else why
            self._out.append(TurnEnded(text=" ".join(self._unanswered), why=why, speech_ended=self._ended))
            self._asked_at = self._now
        self.state, self._is_open, self._cut_reply = State.IDLE, False, False
        self._said, self._partial, self._score = [], "", None


_NOTES: dict[_Input, Callable[[TurnMachine, Any], bool]] = {
    _Input.SPEECH_STARTED: TurnMachine._note_speech_started,
    _Input.SPEECH_STOPPED: TurnMachine._note_speech_stopped,
    _Input.PARTIAL: TurnMachine._note_partial,
    _Input.FINAL: TurnMachine._note_final,
    _Input.SCORED: TurnMachine._note_scored,
    _Input.PLAYBACK_STARTED: TurnMachine._note_playback_started,
    _Input.PLAYBACK_STOPPED: TurnMachine._note_playback_stopped,
}

_TRANSITIONS: dict[tuple[State, _Input], Callable[[TurnMachine], None]] = {
    (State.IDLE, _Input.SPEECH_STARTED): TurnMachine._speech_began,
    (State.IDLE, _Input.FINAL): TurnMachine._late_words,
    (State.IDLE, _Input.PLAYBACK_STOPPED): TurnMachine._answer_at_the_end,
    (State.PROBING, _Input.SPEECH_STOPPED): TurnMachine._probe_stopped,
    (State.PROBING, _Input.PARTIAL): TurnMachine._judge_words,
    (State.PROBING, _Input.FINAL): TurnMachine._judge_words,
    (State.PROBING, _Input.PLAYBACK_STOPPED): TurnMachine._agent_fell_silent,
    (State.PROBING, _Input.TIMER): TurnMachine._judgement_is_due,
    (State.JUDGING, _Input.SPEECH_STARTED): TurnMachine._speech_began_again,
    (State.JUDGING, _Input.PARTIAL): TurnMachine._judge_words,
    (State.JUDGING, _Input.FINAL): TurnMachine._judge_words,
    (State.JUDGING, _Input.PLAYBACK_STOPPED): TurnMachine._agent_fell_silent,
    (State.JUDGING, _Input.TIMER): TurnMachine._judgement_is_due,
    (State.LISTENING, _Input.SPEECH_STOPPED): TurnMachine._turn_speech_stopped,
    (State.LISTENING, _Input.PLAYBACK_STARTED): TurnMachine._agent_began,
    (State.WAITING, _Input.SPEECH_STARTED): TurnMachine._speech_began,
    (State.WAITING, _Input.PARTIAL): TurnMachine._more_words_without_speech,
    (State.WAITING, _Input.FINAL): TurnMachine._end_if_due,
    (State.WAITING, _Input.SCORED): TurnMachine._end_if_due,
    (State.WAITING, _Input.TIMER): TurnMachine._end_if_due,
}
"""What follows from which signal in which state. A pair that is not here changes nothing but what the notes keep."""
