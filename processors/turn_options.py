"""The policy of turn taking: how long, how sure, and which words do not count.

The one rule: every number that decides about a turn is here, with its unit and its reason.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from voiceflow.processors.marks import spoken_words

__all__ = ["BACKCHANNELS", "TurnOptions", "is_backchannel", "speech_in"]


def _phrases(text: str) -> frozenset[str]:
    return frozenset(phrase.strip() for phrase in text.split(","))


BACKCHANNELS = _phrases(
    "mhm, mm, mmm, mm-hm, mm-hmm, mmhm, mmhmm, hm, hmm, uh-huh, uhuh, uh, um, huh, ah, aha, oh, yeah, yep, yup, yes, ok, okay, "
    "right, all right, alright, sure, of course, i see, got it, go on, really, wow, cool, great, ja, genau, oui, d'accord, sí, si, claro, vale"
)
"""What people say to show that they listen, in words as :func:`~voiceflow.processors.marks.spoken_words` gives them."""

_NOT_SPEECH = re.compile(r"\[[^\]]*\]|\([^)]*\)|\*[^*]*\*")
"""How recognisers write what is no speech: [cough], (music), *sighs*."""
_LONGEST_PHRASE = 3


@dataclass(frozen=True, slots=True)
class TurnOptions:
    """The policy. Times are counted from the voice itself, not from when the detector told."""

    interrupt_after_ms: float = 600.0
    """Speech over the agent, still going on, is meant as an interruption after so long, words or none. Nothing is heard
    meanwhile: the agent is on hold. A cough or "mhm" lasts 200 to 500 ms."""
    backchannel_max_s: float = 1.5
    """The same while the partial transcript holds nothing but backchannels."""
    backchannels: frozenset[str] = BACKCHANNELS
    """Words and phrases of up to three words, lower case."""
    judge_timeout_s: float = 1.2
    """How long a transcript of speech over the agent is waited for once the speech has stopped. Then the agent goes on."""
    hold_max_s: float = 3.0
    """No hold is longer: by then it is an interruption if they speak, and nothing if they do not."""
    score_threshold: float = 0.5
    """A turn-end score above it ends the turn at once."""
    silence_s: float = 0.5
    """Silence that ends a turn when no score came."""
    max_silence_s: float = 1.0
    """Silence that ends a turn whatever the score."""
    final_timeout_s: float = 2.0
    """How long the final transcript of a stretch of speech is waited for; then the last partial one counts."""
    vad_silence_s: float = 0.2
    """How late the voice detector tells that speech stopped, until it has told how late it is."""
    reply_timeout_s: float = 15.0
    """A reply that is not heard by then is taken to have failed, and the agent not to be thinking any more."""
    answer_window_s: float = 1.0
    """A backchannel that ends so shortly before the agent does was an answer: "Shall I book it?" "Yeah"."""
    duplicate_s: float = 1.0
    """The same final transcript again within this time, with no speech between, is the same words."""

    def __post_init__(self) -> None:
        for name in self.__dataclass_fields__:
            value = getattr(self, name)
            if isinstance(value, float | int) and not 0 <= value < float("inf"):
                raise ValueError(f"TurnOptions.{name} is {value!r}; it must be 0 or more, and finite")
        if self.score_threshold > 1:
            raise ValueError(f"TurnOptions.score_threshold is {self.score_threshold!r}; scores lie between 0 and 1")
        if self.max_silence_s < self.silence_s:
            raise ValueError(f"TurnOptions.max_silence_s ({self.max_silence_s!r}) is shorter than silence_s ({self.silence_s!r})")


def speech_in(text: str) -> str:
    """What a transcript holds of speech; "" if there is no word in it."""
    return text.strip() if spoken_words(_NOT_SPEECH.sub(" ", text)) else ""


def is_backchannel(text: str, phrases: frozenset[str]) -> bool:
    """Whether there is nothing in it but phrases that show that one listens. Nothing at all counts as well."""
    words = spoken_words(text)
    at = 0
    while at < len(words):
        length = next((n for n in range(_LONGEST_PHRASE, 0, -1) if " ".join(words[at : at + n]) in phrases and at + n <= len(words)), 0)
        if not length:
            return False
        at += length
    return True
