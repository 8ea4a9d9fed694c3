"""Start policies: what counts as the caller's wish to speak.

The one rule: a policy judges the :class:`Evidence` it is shown and remembers nothing. It answers YES, NO, NOT YET (with
when to look again, and whether the agent is held meanwhile) or PASS: nothing here that it judges.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import msgspec

from voiceflow.processors.echo import are_echo, begin_with_echo
from voiceflow.processors.marks import spoken_words
from voiceflow.processors.turn_evidence import Agent, Answer, Due, Evidence, Fate, Pause, Verdict

__all__ = [
    "BACKCHANNELS",
    "AllOf",
    "AnyOf",
    "Confidence",
    "Echo",
    "External",
    "FirstDecides",
    "Level",
    "Never",
    "Phrases",
    "Policy",
    "StartPolicy",
    "Voice",
    "WakePhrase",
    "Words",
    "check_members",
    "has_phrase",
    "is_made_of",
]


def _phrases(text: str) -> tuple[str, ...]:
    return tuple(phrase.strip() for phrase in text.split(","))


BACKCHANNELS = _phrases(
    "mhm, mm, mmm, mm-hm, mm-hmm, mmhm, mmhmm, hm, hmm, uh-huh, uhuh, uh, um, huh, ah, aha, oh, yeah, yep, yup, yes, ok, okay, "
    "right, all right, alright, sure, of course, i see, got it, go on, really, wow, cool, great, ha, haha, uh-uh, ja, genau, oui, d'accord, sí, si, claro, vale"
)
"""What people say to show that they listen."""


class Policy(msgspec.Struct, frozen=True, tag_field="policy", forbid_unknown_fields=True, omit_defaults=True):
    """The root of all: numbers are finite and not negative."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if isinstance(value, int | float) and not isinstance(value, bool) and not 0 <= value < math.inf:
                raise ValueError(f"{type(self).__name__}.{name} is {value!r}; it must be 0 or more, and finite")

    @property
    def _name(self) -> str:
        return str(self.__struct_config__.tag)

    def _yes(self, why: str) -> Verdict:
        return Verdict(Answer.YES, why, self._name)

    def _no(self, why: str, fate: Fate = Fate.ASIDE) -> Verdict:
        return Verdict(Answer.NO, why, self._name, fate=fate)

    def _not_yet(self, why: str, *, hold: bool, look_at: float = math.inf) -> Verdict:
        return Verdict(Answer.NOT_YET, why, self._name, look_at, hold)

    def _pass(self, why: str) -> Verdict:
        return Verdict(Answer.PASS, why, self._name, fate=Fate.DROP)


# ----------------------------------------------------------------------------------------- who begins to speak


class Voice(Policy, frozen=True, tag="voice"):
    """A voice of at least ``min_ms``, whatever it says; 0: at the first notice of it. With words that no detector announced it is 0 long.

    ``hold``: the agent is silent until it is decided. Shorter speech is waited for until its words are known, as they may
    decide elsewhere; then the answer is no.
    """

    min_ms: float = 600.0
    hold: bool = True

    def judge(self, evidence: Evidence) -> Verdict:
        """See the class."""
        needed_s, known_s = self.min_ms / 1000, max(evidence.voiced_s, 0.0)
        if known_s >= needed_s - 1e-6:
            if not evidence.voiced_s and evidence.words:
                return self._yes("words without detected speech")
            since = f"speech since {evidence.now - evidence.began:.2f} s"
            return self._yes(f"speech for {known_s:.2f} s (min_ms {self.min_ms:g})" if needed_s else since)
        said = f"only {evidence.text!r} in it" if evidence.words else "no words in it"
        if evidence.settled:
            return self._no(f"{known_s:.2f} s of speech (min_ms {self.min_ms:g}) and {said}")
        return self._not_yet(f"speech for {known_s:.2f} s (min_ms {self.min_ms:g})", hold=self.hold, look_at=evidence.ripe_at(needed_s))


class Words(Policy, frozen=True, tag="words"):
    """At least ``min`` words. ``partial``: words of partial transcripts count too. ``hold``: as for :class:`Voice`."""

    min: int = 2
    partial: bool = True
    hold: bool = False

    def judge(self, evidence: Evidence) -> Verdict:
        """See the class."""
        words = evidence.words if self.partial else evidence.finals
        have = f"{len(words)} {'word' if len(words) == 1 else 'words'} (min {self.min})"
        if len(words) >= self.min:
            return self._yes(f"the caller said {evidence.text!r}: {have}")
        if evidence.settled:
            return self._no(f"the caller said {evidence.text!r}: {have}" if words else f"no words (min {self.min})")
        return self._not_yet(have, hold=self.hold)


class Phrases(Policy, frozen=True, tag="phrases"):
    """A list of phrases, lower case. Without ``accept``: words other than the ``ignore`` ones are meant, at once.

    Nothing but ``ignore`` phrases is not meant, unless the voice goes on for ``longest_s``. With ``accept``, words are
    meant if one of these phrases is among them, and not otherwise; ``ignore`` has no say then. Before any words: PASS.
    """

    ignore: tuple[str, ...] = BACKCHANNELS
    accept: tuple[str, ...] = ()
    longest_s: float = 1.5
    hold: bool = True

    def judge(self, evidence: Evidence) -> Verdict:
        """See the class."""
        words, said = evidence.words, f"the caller said {evidence.text!r}"
        if not words:
            return self._pass("no words yet")
        if self.accept:
            found = next((phrase for phrase in self.accept if has_phrase(words, phrase)), None)
            if found is not None:
                return self._yes(f"{said}, with {found!r} in it")
            if evidence.settled:
                return self._no(f"{said}, with no accepted phrase in it")
            return self._not_yet("no accepted phrase so far", hold=self.hold)
        if not is_made_of(words, self.ignore):
            return self._yes(said)
        known_s = max(evidence.voiced_s, 0.0)
        if evidence.settled:
            return self._no(f"{known_s:.2f} s of speech and only {evidence.text!r} in it")
        if evidence.speaking and known_s >= self.longest_s - 1e-6:
            return self._yes(f"{evidence.text!r}, and speech for {known_s:.2f} s (longest_s {self.longest_s:g})")
        return self._not_yet(f"only {evidence.text!r} so far", hold=self.hold, look_at=evidence.ripe_at(self.longest_s))


class WakePhrase(Policy, frozen=True, tag="wake-phrase"):
    """One of ``phrases`` (lower case) wakes the agent; for ``awake_s`` after each exchange any voice is meant.

    What is said to others while it sleeps is dropped, and the agent is not held for it.
    """

    phrases: tuple[str, ...]
    awake_s: float = 10.0

    def __post_init__(self) -> None:
        Policy.__post_init__(self)
        if not any(spoken_words(phrase) for phrase in self.phrases):
            raise ValueError("WakePhrase.phrases has no word in it, so nothing could wake the agent")

    def judge(self, evidence: Evidence) -> Verdict:
        """See the class."""
        if evidence.quiet_s is not None and evidence.quiet_s < self.awake_s:
            return self._yes(f"speech {evidence.quiet_s:.2f} s after the last exchange (awake_s {self.awake_s:g})")
        found = next((phrase for phrase in self.phrases if has_phrase(evidence.words, phrase)), None)
        if found is not None:
            return self._yes(f"the caller said {found!r}")
        if evidence.settled:
            return self._no(f"asleep, and no wake phrase in {evidence.text!r}", Fate.DROP)
        return self._not_yet("asleep, and no wake phrase so far", hold=False)


class External(Policy, frozen=True, tag="external"):
    """From outside: ``FloorTaken`` begins a turn, ``FloorReleased`` ends it. A button, or a recogniser that takes turns itself."""

    def judge(self, evidence: Evidence) -> Verdict:
        """YES if the floor was taken."""
        return self._yes("the floor was taken from outside") if evidence.floor else self._pass("the floor was not taken")

    def due(self, pause: Pause) -> Due:
        """When the floor was given back."""
        if pause.released_at is None:
            return Due(math.inf, "the floor was not given back")
        return Due(pause.released_at, f"the floor was given back {pause.now - pause.released_at:.2f} s ago")


class Never(Policy, frozen=True, tag="never"):
    """Nothing is meant: the agent is heard out. What was said meanwhile becomes the caller's turn when it has been."""

    def judge(self, evidence: Evidence) -> Verdict:
        """NO, and the words are kept."""
        return self._no("the agent is to be heard out", Fate.KEEP)


class Echo(Policy, frozen=True, tag="echo"):
    """The agent's own voice, come back: its words, in their order, at most ``within_s`` after they reached the ear. NO to them, else PASS.

    Over an utterance that was once heard as an echo, or for the ``wordless``-th time as a sound without words, mere
    voice is not judged and the agent not held for it any more: only words are. Nor is a voice that begins less than
    ``again_s`` after the agent went on from a hold: an echo comes back as soon as its cause does, and an agent that is held
    for it each time says the same word for ever.
    """

    within_s: float = 0.5
    wordless: int = 2
    again_s: float = 0.5

    def judge(self, evidence: Evidence) -> Verdict:
        """See the class."""
        if evidence.words:
            if are_echo(evidence.words, evidence.began, evidence.words_by, evidence.agent_words, self.within_s):
                return self._no(f"{evidence.text!r} is what the agent was saying at that time (within_s {self.within_s:g})", Fate.DROP)
            unsure = evidence.speaking and not evidence.settled and len(evidence.words) > len(evidence.finals)
            if unsure and begin_with_echo(evidence.words, evidence.began, evidence.words_by, evidence.agent_words, self.within_s):
                return self._not_yet(f"{evidence.text!r} begins with what the agent was saying, and its end may still change", hold=False)
            return self._pass("the words are not the agent's")
        if evidence.agent is not Agent.SPEAKING or evidence.settled:
            return self._pass("no words")
        if self._name in evidence.refused:
            return self._not_yet("an echo was heard in this utterance, so words are waited for", hold=False)
        if self.wordless and evidence.dismissed >= self.wordless:
            times = f"{evidence.dismissed} times (wordless {self.wordless})"
            return self._not_yet(f"sound without words {times} in this utterance, so words are waited for", hold=False)
        if evidence.resumed_at is not None and 0 <= evidence.began - evidence.resumed_at < self.again_s:
            since = f"{evidence.began - evidence.resumed_at:.2f} s after the agent went on (again_s {self.again_s:g})"
            return self._not_yet(f"speech {since}, so words are waited for", hold=False)
        return self._pass("no words")


class Level(Policy, frozen=True, tag="level"):
    """Speech ``quieter_db`` or more below this caller's usual level is somebody else's, or an echo. NO to it, else PASS.

    Until the caller has had a turn their level is not known: then what is more than ``faint_db`` below full scale is
    not judged, and the agent not held for it, until there are words. A caller on a line is about 26 below (ITU-T G.100.1), a
    loudspeaker's echo in the room 15 dB more or fainter; it goes on then, and its words show whose they are.
    """

    quieter_db: float = 12.0
    faint_db: float = 38.0

    def judge(self, evidence: Evidence) -> Verdict:
        """See the class."""
        level, usual = evidence.level_db, evidence.usual_db
        if level is None:
            return self._pass("level unknown")
        if usual is None:
            told = f"{level:.0f} dB, and the caller's own is not known yet (faint_db {self.faint_db:g})"
            if level >= -self.faint_db or evidence.words:
                return self._pass(told)
            return self._no(told, Fate.DROP) if evidence.settled else self._not_yet(told, hold=False)
        told = f"{level:.0f} dB, usually {usual:.0f} dB (quieter_db {self.quieter_db:g})"
        return self._no(told, Fate.DROP) if usual - level >= self.quieter_db else self._pass(told)


class Confidence(Policy, frozen=True, tag="confidence"):
    """Words that the recogniser gives less than ``min`` for (0 to 1) are none: many write words for a cough. Else PASS.

    They are waited for, ``longest_s`` of voice at the most, as the first guess at a real word is unsure too.
    """

    min: float = 0.28
    longest_s: float = 1.5
    hold: bool = True

    def judge(self, evidence: Evidence) -> Verdict:
        """See the class."""
        sure, known_s = evidence.confidence, max(evidence.voiced_s, 0.0)
        if not evidence.words or sure is None:
            return self._pass("no words, or nothing known of how sure they are")
        told = f"{evidence.text!r} with confidence {sure:.2f} (min {self.min:g})"
        if sure >= self.min or (evidence.speaking and known_s >= self.longest_s - 1e-6):
            return self._pass(told)
        return self._no(told) if evidence.settled else self._not_yet(told, hold=self.hold, look_at=evidence.ripe_at(self.longest_s))


class _Several(Policy, frozen=True):
    """``policies`` together."""

    policies: tuple[StartPolicy, ...]

    def __post_init__(self) -> None:
        check_members(self, self.policies, StartPolicy, "start")


class AnyOf(_Several, frozen=True, tag="any"):
    """YES if one says so; NO if all who do not pass do."""

    def judge(self, evidence: Evidence) -> Verdict:
        """See the class."""
        said = _said(self.policies, evidence)
        for answer in (Answer.YES, Answer.NOT_YET):
            if these := [verdict for verdict in said if verdict.answer is answer]:
                return these[0] if answer is Answer.YES else _undecided(these, hold=any(v.hold for v in these))
        return _all_agree(said) if said else self._pass("no policy has anything to judge")


class AllOf(_Several, frozen=True, tag="all"):
    """NO if one says so; YES if all who do not pass do. The agent is held only if all who are undecided want that."""

    def judge(self, evidence: Evidence) -> Verdict:
        """See the class."""
        said = _said(self.policies, evidence)
        for answer in (Answer.NO, Answer.NOT_YET):
            if these := [verdict for verdict in said if verdict.answer is answer]:
                return these[0] if answer is Answer.NO else _undecided(these, hold=all(v.hold for v in these))
        return _all_agree(said) if said else self._pass("no policy has anything to judge")


class FirstDecides(_Several, frozen=True, tag="first"):
    """The first that does not pass decides, and be it that more must be known."""

    def judge(self, evidence: Evidence) -> Verdict:
        """See the class."""
        verdicts = (policy.judge(evidence) for policy in self.policies)
        return next((v for v in verdicts if v.answer is not Answer.PASS), None) or self._pass("no policy has anything to judge")


StartPolicy: TypeAlias = Voice | Words | Phrases | WakePhrase | External | Never | Echo | Level | Confidence | AnyOf | AllOf | FirstDecides
"""Judges whether speech is meant: ``judge(evidence) -> verdict``."""


def check_members(owner: Policy, policies: object, wanted: Any, kind: str) -> None:
    """A combination holds policies of its kind, and at least one; raises ValueError."""
    name = type(owner).__name__
    if not isinstance(policies, tuple) or not policies:
        raise ValueError(f"{name}.policies is {policies!r}; it must be a tuple of one or more {kind} policies")
    for index, policy in enumerate(policies):
        if not isinstance(policy, wanted):
            raise ValueError(f"{name}: {policy!r} (number {index + 1}) is no {kind} policy")


def _said(policies: Sequence[StartPolicy], evidence: Evidence) -> list[Verdict]:
    return [verdict for policy in policies if (verdict := policy.judge(evidence)).answer is not Answer.PASS]


def _undecided(verdicts: Sequence[Verdict], *, hold: bool) -> Verdict:
    soonest = min(verdict.look_at for verdict in verdicts)
    return Verdict(Answer.NOT_YET, " and ".join(verdict.why for verdict in verdicts), verdicts[0].by, soonest, hold)


def _all_agree(verdicts: Sequence[Verdict]) -> Verdict:
    last = verdicts[-1]
    return Verdict(last.answer, " and ".join(verdict.why for verdict in verdicts), last.by, fate=last.fate)


# ------------------------------------------------------------------------------------------------------ phrases


def is_made_of(words: Sequence[str], phrases: Sequence[str]) -> bool:
    """Whether there is nothing in it but these phrases. Nothing at all counts as well."""
    known = _as_words(tuple(phrases))
    longest = max(map(len, known), default=0)
    at = 0
    while at < len(words):
        length = next((n for n in range(min(longest, len(words) - at), 0, -1) if tuple(words[at : at + n]) in known), 0)
        if not length:
            return False
        at += length
    return True


@lru_cache(maxsize=64)
def _as_words(phrases: tuple[str, ...]) -> frozenset[tuple[str, ...]]:
    return frozenset(map(spoken_words, phrases))


def has_phrase(words: Sequence[str], phrase: str) -> bool:
    """Whether the words of ``phrase`` stand in it, one behind the other."""
    wanted = spoken_words(phrase)
    return bool(wanted) and any(tuple(words[at : at + len(wanted)]) == wanted for at in range(len(words) - len(wanted) + 1))
