"""Whose turn it is: when the caller begins, when they are done, and whether they mean to interrupt.

A table of transitions: signals and times in, frames out, no clock. What speech means is judged by policies
(``turn_policies``); what is known is kept by ``turn_knowledge``. The one rule: silence first, judgement after. A voice
that may want the turn holds the agent's speech at once, if the policy is of that kind; whether it was a question or a
cough is decided behind that silence, where it costs the caller nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from voiceflow.frames import (
    FloorReleased,
    FloorTaken,
    Heard,
    HoldFrame,
    InterruptFrame,
    PlaybackStarted,
    PlaybackStopped,
    ResumeFrame,
    SpeechStarted,
    SpeechStopped,
    ToolResultFrame,
    ToolStarted,
    TranscriptFrame,
    TurnEnded,
    TurnScored,
    TurnStarted,
    WordsHeard,
)
from voiceflow.processors.turn_evidence import Agent, Answer, Due, Fate, State, Verdict
from voiceflow.processors.turn_knowledge import AgentSide, CallerSide, Probe
from voiceflow.processors.turn_options import PoliciesInForce, TurnOptions, TurnPolicyFrame
from voiceflow.processors.turn_words import TurnWords

__all__ = ["Decision", "Signal", "State", "TurnMachine"]

_Reports: TypeAlias = PlaybackStarted | PlaybackStopped | WordsHeard | ToolStarted | ToolResultFrame
Signal: TypeAlias = SpeechStarted | SpeechStopped | TranscriptFrame | TurnScored | FloorTaken | FloorReleased | TurnPolicyFrame | _Reports
Decision: TypeAlias = TurnStarted | TurnEnded | HoldFrame | ResumeFrame | InterruptFrame

_EPSILON_S = 1e-6

_PARTIAL, _FINAL, _TIMER = "a partial transcript", "a final transcript", "time has passed"

_Input: TypeAlias = type[Any] | str
"""The type of a signal, or which kind of transcript."""


class TurnMachine:
    """Decides about turns. Give it every signal with :meth:`step`, and :meth:`tick` it when ``deadline`` has come.

    Each decision says why. Each ``TurnStarted`` is followed by exactly one ``TurnEnded``, whose text is empty if nothing
    was said. Else it is all that the caller has said and not been answered: speech that comes before a word of the reply
    was heard reopens the turn, and the question goes out again (``continues``) with what was added, or as it was if
    nothing was.

    An interruption and the end of the turn never come out of the same call, so that the first can be carried out,
    and :meth:`interrupted` called, before the second.
    """

    def __init__(self, options: TurnOptions | None = None) -> None:
        self.options = options or TurnOptions()
        self.policies = PoliciesInForce(self.options)
        self.caller = CallerSide(self.options)
        self.agent = AgentSide(self.options)
        self.state = State.IDLE
        self._now = 0.0
        self._out: list[Decision] = []
        # the turn
        self._is_open = False  # TurnStarted was told
        self.words = TurnWords()
        self._cut_reply = False  # this turn interrupted something
        self._doubted = False  # it was opened on a voice alone; its words may show that it was nothing
        self._interrupts = False  # its interruption is about to be carried out
        # speech to be judged
        self._probe = Probe(0.0, 0, None)
        self._held_from: float | None = None

    # ------------------------------------------------------------------------------------------- the doors

    def step(self, signal: Signal, now: float) -> list[Decision]:
        """A signal came at ``now`` (seconds)."""
        if isinstance(signal, TranscriptFrame):
            return self._run(_FINAL if signal.final else _PARTIAL, signal, now)
        return self._run(next(t for t in type(signal).__mro__ if t in _NOTES), signal, now)

    def tick(self, now: float) -> list[Decision]:
        """Time has passed."""
        due = self.deadline
        return self._run(_TIMER, None, now) if due is not None and due <= now + _EPSILON_S else []

    def interrupted(self, now: float, heard: Iterable[Heard] = ()) -> None:
        """The agent was silenced, by this machine or anyone; ``heard``: what had reached the ear of what it was saying."""
        self._now = max(self._now, now)
        is_cut = self._interrupts or self._doing is not Agent.SILENT  # else a guess was dropped, say, of which nobody heard
        self._interrupts = False
        if self.agent.interrupted(heard, self._now):
            self.words.answered()
        if is_cut:
            self.policies.utterance_ended(interrupted=True)
        self._held_from = None
        self._probe.look_at = self._now  # by other rules: nothing is left to interrupt

    def finish(self, now: float) -> list[Decision]:
        """The call ends: nothing more will be heard from the caller. Ends what is open with what is known."""
        self._now = max(self._now, now)
        self._resume("the call ends")
        if self.state in (State.PROBING, State.JUDGING) and self._doing is Agent.SILENT:
            self._look(timed_out=True)
        if self.words.kept:
            self._listen("the call ends, and something was said while the agent was to be heard out")
        if self._is_open:
            self._end_turn("the call ends")
        self.state, self.caller.speaking = State.IDLE, False
        return self._take()

    @property
    def deadline(self) -> float | None:
        """When to :meth:`tick`, if nothing comes before; None: never."""
        times = [math.inf]
        if self.state is State.WAITING:
            times.append(self._end().at)
        elif self.state in (State.PROBING, State.JUDGING):
            times.append(self._probe.look_at)
            if self.state is State.JUDGING:
                times.append(self._probe.judged_from + self.options.judge_timeout_s)
            if self._held_from is not None:
                times.append(self._held_from + self.options.hold_max_s)
            if self._doing is Agent.THINKING:
                times.append(self.agent.thinks_until)
            elif self._doing is Agent.SILENT and self._held_from is not None:
                times.append(self._now)
        elif self.words.kept and self._doing is not Agent.SPEAKING:
            times.append(self.agent.thinks_until if self._doing is Agent.THINKING else self._now)
        return min(times) if min(times) < math.inf else None

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
        if self.caller.speaking:
            return False
        self.caller.began(signal, self._now, in_turn=self._is_open, reopens=bool(self.words.unanswered))
        self.words.voice_began(its_final_is_late=self.caller.owed > 0)
        return True

    def _note_partial(self, signal: TranscriptFrame) -> bool:
        return self.state is not State.IDLE and self.caller.said_so_far(signal, self._now)

    def _note_final(self, signal: TranscriptFrame) -> bool:
        is_announced = self.state is not State.IDLE or self.caller.awaits_final_of_the_past(self._now)
        text = self.caller.said(signal, self._now)
        if text is None:
            return False
        if not is_announced:
            self.caller.ended = self._now
        return not text or self.words.add(text, in_turn=self.state in (State.LISTENING, State.WAITING))

    def _note_playback_started(self, signal: PlaybackStarted) -> bool:
        self.agent.began(signal)
        self.policies.utterance_began()
        return True

    def _note_playback_stopped(self, signal: PlaybackStopped) -> bool:
        if self.agent.stopped(signal):
            self.words.answered()
        if self._doing is not Agent.SPEAKING:
            self.policies.utterance_ended()
        return True

    def _note_tool(self, signal: ToolStarted | ToolResultFrame) -> bool:
        if isinstance(signal, ToolStarted):
            self.agent.tool_began(signal.call.id)
        else:
            self.agent.tool_ended(signal.call.id, self._now)
        return True

    def _note_policy(self, signal: TurnPolicyFrame) -> bool:
        self.policies.use(signal)
        return True

    # ------------------------------------------------------------------------------------- actions of the table

    def _speech_began(self) -> None:
        self._start_probe(self.caller.onset, len(self.words.turn))
        self._look()

    def _speech_began_in_turn(self) -> None:
        """They go on, unless the agent is at work meanwhile: then that is judged."""
        if self._doing is Agent.SILENT:
            self.state = State.LISTENING
        else:
            self._speech_began()

    def _speech_began_again(self) -> None:
        self.state = State.PROBING
        self._look()

    def _agent_began(self) -> None:
        """The agent begins to speak in the caller's turn: what they say and have said is judged."""
        self._start_probe(self.caller.onset, 0)
        self._probe.in_turn = True
        if not self.caller.speaking:
            self.state, self._probe.judged_from = State.JUDGING, self._now
        self._look()

    def _probe_stopped(self) -> None:
        self.state, self._probe.judged_from = State.JUDGING, self._now
        self._probe.voiced_s += self.caller.ended - self.caller.onset
        self._look()

    def _time_to_judge(self) -> None:
        if self._held_from is not None and self._now >= self._held_from + self.options.hold_max_s - _EPSILON_S:
            self._probe.may_hold = False
            self._resume(f"undecided after {self._now - self._held_from:.2f} s on hold (hold_max_s {self.options.hold_max_s:g})")
        due = self._probe.judged_from + self.options.judge_timeout_s
        self._look(timed_out=self.state is State.JUDGING and self._now >= due - _EPSILON_S)

    def _turn_speech_stopped(self) -> None:
        self.state = State.WAITING
        self._end_if_due()

    def _more_words_without_speech(self) -> None:
        """A partial transcript in a pause: the detector missed that they go on."""
        if self.caller.owed <= 0:
            self.caller.awaits_words(self._now)

    def _words_in_turn(self) -> None:
        """A final transcript. If a voice alone opened the turn, it may show that it was the agent's own, or somebody else's."""
        if self._doubted and self.words.turn:
            self._doubted = False
            verdict = self.policies.start.judge(self._probe.evidence(self.caller, self.agent, self.words.turn, self._now, settled=True))
            if verdict.answer is Answer.NO and verdict.fate is Fate.DROP:
                del self.words.turn[self._probe.mark :]
        if self.state is State.WAITING:
            self._end_if_due()

    def _late_words(self) -> None:
        """A final transcript while it is not their turn: of a turn that ended without it, or of speech nobody noticed."""
        if not self.words.turn:
            return
        is_of_the_past = self.caller.ended < self._now
        self._start_probe(self.caller.onset if is_of_the_past else self._now, 0)
        self._probe.voiced_s = max(self.caller.ended - self.caller.onset, 0.0) if is_of_the_past else 0.0
        verdict = self._judge(settled=True)
        if verdict.answer is not Answer.YES:
            self._dismiss(verdict)
            return
        self._accept(f"{verdict.why}, told late" if is_of_the_past else verdict.why)
        if not self._cut_reply:
            self._end_if_due()

    def _floor_was_taken(self) -> None:
        if self.state is State.WAITING and self._doing is Agent.SILENT:
            return
        state = self.state
        self._start_probe(self._now, len(self.words.turn))
        verdict = self._judge(settled=False)
        self.state = state
        if verdict.answer is Answer.YES:
            self._accept(verdict.why)

    def _floor_was_given_back(self) -> None:
        """If that ends the turn, it ends as soon as the words are known."""
        if self.policies.end.due(self.caller.pause(self._now)).at > self._now + _EPSILON_S:
            return
        self.state = State.WAITING
        if self.caller.speaking or not self.caller.has_final:
            self.caller.awaits_words(self._now)
        self._end_if_due()

    def _agent_finished(self) -> None:
        """A "yeah" right before was the answer; and what was said while the agent was to be heard out is due now."""
        if self._doing is not Agent.SILENT:
            return
        if aside := self.words.take_aside(self._now, self.options.answer_window_s):
            ago = f"{aside[1]:.2f} s before the agent finished (answer_window_s {self.options.answer_window_s:g})"
            self._listen(f"{aside[0]!r} {ago}")
            self._end_turn(f"{aside[0]!r} {ago}")
        elif self.words.kept:
            self._listen("it was said while the agent was to be heard out")
            self._end_if_due()

    # --------------------------------------------------------------------------------------------- judgement

    @property
    def _doing(self) -> Agent:
        return self.agent.doing(self._now)

    def _start_probe(self, began: float, mark: int) -> None:
        since = self.agent.heard_at
        quiet_s = None if since is None else 0.0 if self._doing is not Agent.SILENT else max(began - since, 0.0)
        self.state, self._probe = State.PROBING, Probe(began, mark, quiet_s, judged_from=self._now)

    def _judge(self, *, settled: bool) -> Verdict:
        policy = self.policies.start if self._doing is Agent.SILENT else self.policies.barge_in
        verdict = policy.judge(self._probe.evidence(self.caller, self.agent, self.words.turn, self._now, settled=settled))
        self._probe.look_at = verdict.look_at
        return verdict

    def _look(self, *, timed_out: bool = False) -> None:
        """Ask the policy what is to be made of the speech that is being judged."""
        if self._doing is Agent.SILENT:
            self._resume("nothing is left to hold")
        settled = timed_out or (self.state is State.JUDGING and self.caller.owed <= 0)
        verdict = self._judge(settled=settled)
        if verdict.answer is Answer.YES:
            self._accept(verdict.why)
        elif settled:
            self._dismiss(verdict)
        elif verdict.answer is Answer.NO:
            self.agent.refused.add(verdict.by)
            self._probe.may_hold = False
            self._resume(verdict.why)
        elif not verdict.hold:
            self._resume(verdict.why)
        elif self._probe.may_hold and self._held_from is None and self._doing is not Agent.SILENT:
            self._held_from = self._now
            self._out.append(HoldFrame(why=f"speech since {self._now - self._probe.began:.2f} s while the agent {self._doing.value}"))

    def _accept(self, why: str) -> None:
        """It is meant."""
        if self._doing is Agent.SILENT:
            self._listen(why)
            return
        self._out.append(InterruptFrame(reason=why))
        self._held_from, self._cut_reply, self._interrupts = None, True, True
        self.agent.silenced(self._now)
        self._listen(why)

    def _resume(self, why: str) -> None:
        """Let the agent go on, if it is on hold."""
        if self._held_from is not None:
            self._held_from = None
            self.agent.resumed(self._now)
            self._out.append(ResumeFrame(why=why))

    def _dismiss(self, verdict: Verdict) -> None:
        """It was nothing, or nothing for now."""
        mark, partial = self._probe.mark, self.caller.partial
        texts = [*self.words.turn[mark:], *filter(None, [partial])]
        self._resume(verdict.why)
        if self._doing is not Agent.SILENT:
            self.agent.refused.add(verdict.by)
            self.agent.dismissed += not texts
        if not self._probe.in_turn:
            self.words.dismiss(texts, mark, verdict.fate, self._now)
            self.words.stood_in = partial or self.words.stood_in  # its final transcript may still come
            self.caller.partial = ""
        self.state = State.WAITING if self._is_open else State.IDLE

    # --------------------------------------------------------------------------------------------- the turn

    def _listen(self, why: str) -> None:
        """It is their turn."""
        self.state = State.LISTENING if self.caller.speaking else State.WAITING
        self.words.open()
        if not self._is_open:
            self._is_open = True
            self._doubted = not self.words.turn
            self._out.append(TurnStarted(why=why))

    def _end(self) -> Due:
        return self.caller.turn_due(self.policies.end, self._now)

    def _end_if_due(self) -> None:
        due = self._end()
        if due.at <= self._now + _EPSILON_S:
            self._end_turn(due.why)

    def _end_turn(self, why: str) -> None:
        caller = self.caller
        if caller.partial:  # only ever for want of a final one
            self.words.stand_in(caller.partial)
        said = bool(self.words.turn)
        if said or (self._cut_reply and self._doing is Agent.SILENT and self.words.unanswered):
            text, continues = self.words.ask()
            why = why if said else f"nothing was said, so the question stands; {why}"
            self._out.append(TurnEnded(text=text, why=why, speech_ended=caller.ended, continues=continues))
            self.agent.asked(self._now)
        else:
            self._out.append(TurnEnded(text="", why=f"nothing was said; {why}", speech_ended=caller.ended))
        caller.turn_is_over(said_something=said)
        self.policies.turn_ended()
        self.state, self._is_open, self._cut_reply = State.IDLE, False, False


_NOTES: dict[_Input, Callable[[TurnMachine, Any], bool]] = {
    SpeechStarted: TurnMachine._note_speech_started,
    SpeechStopped: lambda machine, signal: machine.caller.stopped(signal, machine._now),
    _PARTIAL: TurnMachine._note_partial,
    _FINAL: TurnMachine._note_final,
    TurnScored: lambda machine, signal: machine.caller.scored(signal),
    FloorTaken: lambda machine, signal: machine.caller.took_floor(),
    FloorReleased: lambda machine, signal: machine.caller.gave_floor_back(machine._now),
    PlaybackStarted: TurnMachine._note_playback_started,
    PlaybackStopped: TurnMachine._note_playback_stopped,
    WordsHeard: lambda machine, signal: machine.agent.said(signal),
    ToolStarted: TurnMachine._note_tool,
    ToolResultFrame: TurnMachine._note_tool,
    TurnPolicyFrame: TurnMachine._note_policy,
}

_JUDGED_ANEW = (_PARTIAL, _FINAL, FloorTaken, PlaybackStarted, PlaybackStopped, WordsHeard, TurnPolicyFrame)

_TRANSITIONS: dict[tuple[State, _Input], Callable[[TurnMachine], None]] = {
    (State.IDLE, SpeechStarted): TurnMachine._speech_began,
    (State.IDLE, _FINAL): TurnMachine._late_words,
    (State.IDLE, FloorTaken): TurnMachine._floor_was_taken,
    (State.IDLE, PlaybackStopped): TurnMachine._agent_finished,
    (State.IDLE, _TIMER): TurnMachine._agent_finished,
    **{(state, kind): TurnMachine._look for state in (State.PROBING, State.JUDGING) for kind in _JUDGED_ANEW},
    (State.PROBING, SpeechStopped): TurnMachine._probe_stopped,
    (State.PROBING, _TIMER): TurnMachine._time_to_judge,
    (State.JUDGING, SpeechStarted): TurnMachine._speech_began_again,
    (State.JUDGING, _TIMER): TurnMachine._time_to_judge,
    (State.LISTENING, SpeechStopped): TurnMachine._turn_speech_stopped,
    (State.LISTENING, _FINAL): TurnMachine._words_in_turn,
    (State.LISTENING, FloorReleased): TurnMachine._floor_was_given_back,
    (State.LISTENING, PlaybackStarted): TurnMachine._agent_began,
    (State.WAITING, SpeechStarted): TurnMachine._speech_began_in_turn,
    (State.WAITING, _PARTIAL): TurnMachine._more_words_without_speech,
    (State.WAITING, _FINAL): TurnMachine._words_in_turn,
    (State.WAITING, TurnScored): TurnMachine._end_if_due,
    (State.WAITING, FloorTaken): TurnMachine._floor_was_taken,
    (State.WAITING, FloorReleased): TurnMachine._floor_was_given_back,
    (State.WAITING, TurnPolicyFrame): TurnMachine._end_if_due,
    (State.WAITING, _TIMER): TurnMachine._end_if_due,
}
"""What follows from which signal in which state. A pair that is not here changes nothing but what the notes keep."""
