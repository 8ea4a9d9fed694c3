"""Whether words are the agent's own, come back through the caller's microphone.

The one rule: the same words are an echo only at the time at which the ear got them. A caller who repeats what the
agent said does so later.
"""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher
from functools import lru_cache

from voiceflow.processors.marks import spoken_words
from voiceflow.processors.spoken import say

__all__ = ["are_echo", "begin_with_echo", "sounds_alike"]

EARLY_S = 0.3
"""The onset of an echo may be placed inside its first word, whose own beginning was then so much earlier."""
ALIKE = 0.7
"""Of letters in common, for recognisers mishear an echo."""
SHARE = 0.7
"""Of the words that must be the agent's."""
UNSURE = 2
"""The newest words of a partial transcript that may be misheard for want of what follows them."""
DRIFT = 0.5
"""Where a word lies in the sound is reckoned by its letters: wrong by so much of the sound before it."""


def sounds_alike(heard: str, spoken: str) -> bool:
    """Whether one word may be the other, misheard or cut short."""
    if heard == spoken:
        return True
    shorter = min(len(heard), len(spoken))
    if shorter >= 2 and (spoken.startswith(heard) or (spoken.endswith(heard) and len(heard) > len(spoken) / 2)):
        return True
    return shorter >= 3 and SequenceMatcher(None, heard, spoken, autojunk=False).ratio() >= ALIKE


def are_echo(words: Sequence[str], began: float, ended: float, spoken: Sequence[tuple[str, float]], within_s: float) -> bool:
    """Whether ``words``, said from ``began`` to ``ended``, are ``spoken`` words (each with the time it reached the ear).

    They must come in the same order, each no later than ``within_s`` after the agent's, and the last one must be among
    them: words behind the agent's are the caller's.
    """
    words = _spelled(words)
    spoken = [(part, heard_at) for word, heard_at in spoken for part in _spelled((word,))]
    if not words or not spoken:
        return False
    length = max(ended - began, 0.0)
    letters = sum(len(word) + 1 for word in words)
    # best[j]: the most words matched so far, the last of them with spoken[j - 1] or one before it.
    best = [0] * (len(spoken) + 1)
    at, is_last = began, False
    for number, word in enumerate(words):
        row, drift = best[:], DRIFT * (at - began)
        is_last = False
        for j, (other, heard_at) in enumerate(spoken, start=1):
            row[j] = max(row[j], row[j - 1])
            if -EARLY_S - drift <= at - heard_at <= within_s + drift and sounds_alike(word, other):
                is_last |= number == len(words) - 1
                row[j] = max(row[j], best[j - 1] + 1)
        best = row
        at += length * (len(word) + 1) / letters
    return is_last and best[-1] >= SHARE * len(words)


def begin_with_echo(words: Sequence[str], began: float, ended: float, spoken: Sequence[tuple[str, float]], within_s: float) -> bool:
    """Whether they are an echo but for the last word, or of six and more the last two, which a recogniser may still change."""
    letters = sum(len(word) + 1 for word in words)
    for count in range(len(words) - 1, max(len(words) - 1 - UNSURE, 1), -1):
        if len(words) - count > count // 2:
            break
        share = sum(len(word) + 1 for word in words[:count]) / letters
        if are_echo(words[:count], began, began + share * (ended - began), spoken, within_s):
            return True
    return False


@lru_cache(maxsize=512)
def _spelled_word(word: str) -> tuple[str, ...]:
    """As it is said, so that "9" and "nine" are the same word."""
    return spoken_words(" ".join(sound for _, sound in say(word))) if any(c.isdigit() for c in word) else (word,)


def _spelled(words: Sequence[str]) -> list[str]:
    return [part for word in words for part in _spelled_word(word)]
