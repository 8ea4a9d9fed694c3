"""Words as they are compared: lower case, without marks, numbers spelled out."""

from __future__ import annotations

import re
from collections.abc import Sequence

from voiceflow.processors.spoken import say

__all__ = ["edits", "normal_words"]


def normal_words(text: str) -> list[str]:
    """``"2 plus 2?"`` and ``"two plus two"`` are the same words."""
    spoken = " ".join(words for _, words in say(text))
    return re.findall(r"[a-z']+", spoken.lower())


def edits(reference: Sequence[str], heard: Sequence[str]) -> int:
    """Words to insert, delete or exchange to make the one of the other (Levenshtein, 1966)."""
    row = list(range(len(heard) + 1))
    for i, wanted in enumerate(reference, 1):
        before, row[0] = row[0], i
        for j, got in enumerate(heard, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (wanted != got))
    return row[-1]
