"""Whoever wants to see what goes out: a recorder, a meter. Its one rule: it is called in the pulling thread, and must not wait."""

from __future__ import annotations

from typing import Protocol

__all__ = ["Tape"]


class Tape(Protocol):
    """Stands in ``Playout.tapes``. Positions are samples of the stream, per channel."""

    def left(self, position: int, pcm: bytes, due: float) -> None:
        """A block went out whose first sample has this position, due to sound from then on."""

    def cut(self, position: int) -> None:
        """The far end has thrown away what went out from this position on."""
