"""What the turn machine knows of the caller and of the agent, as the signals told it.

The one rule: nothing is decided here. A signal that says nothing new is told to be one.
"""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median

from voiceflow.frames import Heard, PlaybackStarted, PlaybackStopped, SpeechStarted, SpeechStopped, TranscriptFrame, TurnScored, WordsHeard
from voiceflow.processors.end_policies import EndPolicy
from voiceflow.processors.marks import spoken_words
from voiceflow.processors.turn_evidence import Agent, Due, Evidence, Pause
from voiceflow.processors.turn_options import TurnOptions

__all__ = ["AgentSide", "CallerSide", "Probe", "speech_in"]

_NOT_SPEECH = re.compile(r"\[[^\]]*\]|\([^)]*\)|\*[^*]*\*")
"""How recognisers write what is no speech: [cough], (music), *sighs*."""

_LATEST_S = 1.0
"""A detector that tells an end of speech later than this waited for sound that did not come; that says nothing of its next end."""
_PAUSE_S = (0.1, 4.0)
"""Shorter is a stop consonant, longer a new thought."""


def speech_in(text: str) -> str:
    """What a transcript holds of speech; "" if there is no word in it."""
    return text.strip() if spoken_words(_NOT_SPEECH.sub(" ", text)) else ""


class CallerSide:
    """The caller's voice and words, the floor, and how this caller speaks."""

    def __init__(self, options: TurnOptions) -> None:
        self._options = options
        self.speaking = False
        self.onset = 0.0
        """Of the present or last stretch of speech."""
        self.ended = 0.0
        """Of the last stretch."""
        self.stop_seen = 0.0
        self.late_s = options.vad_silence_s
        """By how much the detector tells of an end late."""
        self.probability = 1.0
        self.level_db: float | None = None
        self.owed = 0
        """Finals still missing: 1, 0, or -1 when one came before its speech ended."""
        self.owed_since: float | None = None
        """When the first of the stretches ended of which nothing has been told yet."""
        self.has_final = False
        """One came since the last onset."""
        self.partial = ""
        self.confidence: float | None = None
        """Of the last transcript with words."""
        self.words_at = 0.0
        """When the last transcript with words came."""
        self.score: float | None = None
        self.endpoint_at: float | None = None
        self.floor = False
        """Given from outside, and not given back."""
        self.had_floor = False
        """Given from outside at some time of the present or last speech."""
        self.released_at: float | None = None
        self._last_final: tuple[tuple[str, ...], float] | None = None
        self._levels: deque[float] = deque(maxlen=16)
        self._pauses: deque[float] = deque(maxlen=20)
        self._last_pause: float | None = None  # not known yet to have words behind it

    @property
    def usual_db(self) -> float | None:
        """The level at which they usually speak."""
        return median(self._levels) if self._levels else None

    def began(self, signal: SpeechStarted, now: float, *, in_turn: bool, reopens: bool) -> None:
        """Their voice is heard. ``in_turn``: it goes on with what they were saying; ``reopens``: with what was taken to be all."""
        self.speaking = True
        self.onset = min(signal.at, now)
        self.probability, self.level_db = signal.probability, signal.level_db
        if not self.awaits_final_of_the_past(now):
            self.owed, self.owed_since = 0, None
        self.owed = max(self.owed, 0)
        self.has_final = False
        self.partial, self._last_final = "", None
        self.score = self.endpoint_at = None
        self.had_floor = self.floor
        gap_s = self.onset - self.ended
        if not in_turn:
            self.released_at = None
        self._last_pause = gap_s if (in_turn or reopens) and _PAUSE_S[0] <= gap_s <= _PAUSE_S[1] else None

    def stopped(self, signal: SpeechStopped, now: float) -> bool:
        """Their voice is not heard any more."""
        if not self.speaking:
            return False
        self.speaking = False
        self.ended = min(max(signal.at, self.onset), now)
        self.stop_seen = now
        if 0 <= signal.silence <= _LATEST_S:
            self.late_s = signal.silence
        if signal.level_db is not None:
            self.level_db = signal.level_db
        self.owed = min(self.owed + 1, 1)
        self.owed_since = now if self.owed_since is None and self.owed else self.owed_since
        return True

    def said_so_far(self, signal: TranscriptFrame, now: float) -> bool:
        """A partial transcript."""
        text = speech_in(signal.text)
        words = spoken_words(text)
        if not words or (self._last_final is not None and self._last_final[0][: len(words)] == words):
            return False  # of words that are known for good
        self.partial, self.words_at, self.confidence = text, now, signal.confidence
        self.owed_since = None
        if signal.endpoint:
            self.endpoint_at = now
        return True

    def said(self, signal: TranscriptFrame, now: float) -> str | None:
        """A final transcript: the speech in it, perhaps none; None if it is the last one again."""
        text = speech_in(signal.text)
        words = spoken_words(text)
        last = self._last_final
        if words and last is not None and last[0] == words and now - last[1] <= self._options.duplicate_s:
            return None
        self._last_final = (words, now)
        self.owed, self.owed_since = max(self.owed - 1, -1), None
        self.has_final, self.partial = True, ""
        if signal.endpoint:
            self.endpoint_at = now
        if text:
            self.words_at, self.confidence = now, signal.confidence
        if text and self._last_pause is not None:
            self._pauses.append(self._last_pause)
            self._last_pause = None
        return text

    def scored(self, signal: TurnScored) -> bool:
        """How probable it is that they are done."""
        if self.speaking or (signal.at and signal.at < self.onset):
            return False  # about a pause that is over
        self.score = signal.probability
        return True

    def took_floor(self) -> bool:
        """It is their turn, says somebody outside."""
        if self.floor:
            return False
        self.floor = self.had_floor = True
        self.released_at = None
        if not self.speaking:
            self.has_final = False
        return True

    def gave_floor_back(self, now: float) -> bool:
        """They are done, says somebody outside."""
        if not self.floor:
            return False
        self.floor, self.released_at = False, now
        return True

    def awaits_final_of_the_past(self, now: float) -> bool:
        """A transcript that comes now may be of the stretch of speech before: its own is late, not lost."""
        return self.owed > 0 and now - self.stop_seen <= 2 * self._options.final_timeout_s

    def awaits_words(self, now: float) -> None:
        """They have gone on, or stopped, without notice: a final transcript is still to come."""
        self.ended = self.stop_seen = now
        self.owed, self.owed_since, self.has_final, self.score = 1, now, False, None

    def turn_due(self, policy: EndPolicy, now: float) -> Due:
        """When their turn ends if nothing more comes, and why: when the policy says so, and its words are known."""
        if self.floor:
            return Due(math.inf, "the floor is the caller's")
        pause, longest_s = self.pause(now), self._options.silence_max_s
        due = policy.due(pause)
        if due.at > pause.ended + longest_s:
            due = Due(pause.ended + longest_s, f"silence, {pause.after} (silence_max_s {longest_s:g}; {due.why})")
        known = self._words_known(now)
        return due if known is None or due.at > known.at else known

    def _words_known(self, now: float) -> Due | None:
        """When the words of the turn are taken as they are, if its final transcript does not come; None: it is there."""
        if self.owed <= 0:
            return None
        options, pause = self._options, self.pause(now)
        if self.has_final:  # of this stretch, or the late one of the stretch before: who knows
            why = f"silence, {pause.after} (second_final_s {options.second_final_s:g}, a final transcript may be missing)"
            return Due(pause.ended + options.second_final_s, why)
        have = f"the partial one {self.partial!r} counts" if self.partial else "nothing counts"
        if self.owed_since is not None and self.owed_since + options.silence_max_s <= self.stop_seen:
            # Stretch after stretch, a noise perhaps: the last one is not waited for, or the turn would never end.
            return Due(
                self.stop_seen, f"no transcript within {now - self.owed_since:.2f} s (silence_max_s {options.silence_max_s:g}): {have}"
            )
        told = f"{now - self.stop_seen:.2f} s after the end of speech was told (final_timeout_s {options.final_timeout_s:g})"
        return Due(self.stop_seen + options.final_timeout_s, f"no final transcript {told}: {have}")

    def turn_is_over(self, *, said_something: bool) -> None:
        """What belonged to this turn only is forgotten."""
        if said_something and self.level_db is not None:
            self._levels.append(self.level_db)
        self.partial, self.score, self.endpoint_at, self.owed_since = "", None, None, None
        self.had_floor = self.floor or (self.had_floor and self.owed > 0)  # its words may still come
        if not self.had_floor:
            self.released_at = None

    def pause(self, now: float) -> Pause:
        """The present silence, for an end policy."""
        ended = min(now, now if self.speaking else self.ended)
        return Pause(now, ended, self.score, self.endpoint_at, self.released_at, tuple(self._pauses))


class AgentSide:
    """What the agent is doing, what of it was just heard, and what became of speech over it."""

    def __init__(self, options: TurnOptions) -> None:
        self._options = options
        self.words: deque[tuple[str, float]] = deque(maxlen=200)
        """That reached the ear, each with the time."""
        self.refused: set[str] = set()
        """Policies that said no to speech over the present utterance."""
        self.dismissed = 0
        """Times that speech over it had no words in it."""
        self.resumed_at: float | None = None
        """When it last went on after a hold."""
        self.heard_at: float | None = None
        """When something it said after a turn was last over."""
        self._playing: set[int] = set()
        self._asked_at: float | None = None  # a reply was asked for and is not heard yet
        self._cut_asked = False  # that was so when the interrupt under way began
        self._tools: set[str] = set()

    def doing(self, now: float) -> Agent:
        """Whether it can be heard, or thinks of what to say."""
        if self._playing:
            return Agent.SPEAKING
        return Agent.THINKING if self._tools or (self._asked_at is not None and now < self.thinks_until) else Agent.SILENT

    @property
    def thinks_until(self) -> float:
        """When it is given up, if nothing is heard of it."""
        return math.inf if self._tools or self._asked_at is None else self._asked_at + self._options.reply_timeout_s

    def asked(self, now: float) -> None:
        """A reply was asked for."""
        self._asked_at = self.heard_at = now

    def began(self, signal: PlaybackStarted) -> None:
        """It can be heard. What is said meanwhile (utterance 0) is no reply."""
        self._playing.add(signal.utterance)
        if signal.utterance:
            self._asked_at = None
        self.refused.clear()
        self.dismissed = 0
        self.resumed_at = None

    def stopped(self, signal: PlaybackStopped) -> bool:
        """An utterance is over. Whether it answered: some of it was heard, and it was not said while the reply is thought of."""
        heard = signal.heard
        self._playing.discard(heard.utterance)
        if self.heard_at is not None:
            self.heard_at = max(self.heard_at, signal.at)
        is_asked = self._asked_at is not None and signal.at < self.thinks_until
        answered = bool(heard.complete or heard.text) and (heard.utterance != 0 or not is_asked)
        if heard.utterance:
            self._asked_at = None
        return answered

    def said(self, signal: WordsHeard) -> bool:
        """Words have just reached the ear."""
        self.words.extend((word, signal.at) for word in spoken_words(signal.text))
        return True

    def tool_began(self, call_id: str) -> None:
        """The reply waits for a tool."""
        self._tools.add(call_id)

    def tool_ended(self, call_id: str, now: float) -> None:
        """The tool's result is there; what the agent makes of it is to come."""
        if call_id in self._tools:
            self._tools.discard(call_id)
            self._asked_at = now

    def resumed(self, now: float) -> None:
        """It goes on from the start of the cut word, which is heard once more."""
        self.resumed_at = now
        if self.words:
            self.words.append((self.words[-1][0], now))

    def silenced(self, now: float) -> None:
        """It is being interrupted."""
        self._cut_asked |= self._asked_at is not None
        if self.heard_at is not None and (self._playing or self._tools or self._asked_at is not None):
            self.heard_at = now
        self._playing.clear()
        self._tools.clear()
        self._asked_at = None

    def interrupted(self, heard: Iterable[Heard], now: float) -> bool:
        """It was interrupted, and this of it had been heard. Whether that answered, as for :meth:`stopped`."""
        self.silenced(now)
        was_asked, self._cut_asked = self._cut_asked, False
        return any(h.text and (h.utterance != 0 or not was_asked) for h in heard)


@dataclass(slots=True)
class Probe:
    """Speech that is being judged."""

    began: float
    """The voice's first onset."""
    mark: int
    """Where among the turn's transcripts its own begin."""
    quiet_s: float | None
    """Since the last exchange, when it began."""
    in_turn: bool = False
    """It was the caller's turn when the agent began: their words stay."""
    voiced_s: float = 0.0
    """Of the stretches that are over."""
    judged_from: float = 0.0
    """When the last one was told to be over."""
    look_at: float = math.inf
    may_hold: bool = True

    def evidence(self, caller: CallerSide, agent: AgentSide, said: list[str], now: float, *, settled: bool) -> Evidence:
        """All that is known, for a start policy."""
        finals = " ".join(said[self.mark :])
        text = f"{finals} {caller.partial}".strip()
        voiced_s = self.voiced_s + (now - caller.onset - caller.late_s if caller.speaking else 0.0)
        ended = now if caller.speaking else max(self.began, caller.ended)
        return Evidence(
            now=now,
            agent=agent.doing(now),
            speaking=caller.speaking,
            began=self.began,
            ended=ended,
            words_by=max(self.began, min(ended, caller.words_at)),
            voiced_s=voiced_s,
            finals=spoken_words(finals),
            words=spoken_words(text),
            text=text,
            confidence=caller.confidence,
            settled=settled,
            probability=caller.probability,
            level_db=caller.level_db,
            usual_db=caller.usual_db,
            floor=caller.had_floor,
            agent_words=tuple(agent.words),
            refused=frozenset(agent.refused),
            dismissed=agent.dismissed,
            resumed_at=agent.resumed_at,
            quiet_s=self.quiet_s,
        )
