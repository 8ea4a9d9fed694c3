"""Words as they are compared: lower case, without marks, numbers spelled out."""

from __future__ import annotations

import re
from collections.abc import Sequence

from voiceflow.processors.spoken import say

__all__ = ["aligned", "edits", "normal_words"]


def normal_words(text: str) -> list[str]:
    """``"2 plus 2?"`` and ``"two plus two"`` are the same words."""
    spoken = " ".join(words for _, words in say(text))
    return re.findall(r"[a-z']+", spoken.lower())


def edits(reference: Sequence[str], heard: Sequence[str]) -> int:
    """Words to insert, delete or exchange to make the one of the other (Levenshtein, 1966)."""
    return sum(a != b for a, b in aligned(reference, heard))


def aligned(reference: Sequence[str], heard: Sequence[str]) -> list[tuple[str | None, str | None]]:
    """The two side by side with the fewest edits: None stands where one has no word for the other's."""
    if list(reference) == list(heard):
        return [(word, word) for word in reference]
    rows = [list(range(len(heard) + 1))]
    for i, wanted in enumerate(reference, 1):
        row, before = [i], rows[-1]
        for j, got in enumerate(heard, 1):
            row.append(min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (wanted != got)))
        rows.append(row)
    pairs: list[tuple[str | None, str | None]] = []
    i, j = len(reference), len(heard)
    while i or j:
        if i and j and rows[i][j] == rows[i - 1][j - 1] + (reference[i - 1] != heard[j - 1]):
            i, j = i - 1, j - 1
            pairs.append((reference[i], heard[j]))
        elif i and rows[i][j] == rows[i - 1][j] + 1:
            i -= 1
            pairs.append((reference[i], None))
        else:
            j -= 1
            pairs.append((None, heard[j]))
    return pairs[::-1]
