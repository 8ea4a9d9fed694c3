"""The bounds and deadlines of a session. The one rule: they are the session's, so no node decides how long it may take."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["SessionOptions"]


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """Bounds and deadlines. The session keeps the deadlines, so that no node can hang a call."""

    inbox_frames: int = 256
    """Frames other than sound that an inbox holds before whoever fills it waits."""
    inbox_audio_s: float = 2.0
    """Seconds of the agent's sound before the same."""
    live_audio_s: float = 10.0
    """Seconds of the caller's live sound before the oldest is dropped."""
    start_timeout_s: float = 60.0
    end_timeout_s: float = 60.0
    """For everything in hand to be finished and heard after the end was asked for."""
    stop_timeout_s: float = 5.0
    """For each node's stop(), and for tasks and threads to end."""
    cancel_timeout_s: float = 1.0
    """For interrupted work to end before its node is named and given a fresh task."""
    ack_timeout_s: float = 2.0
    """For the acknowledgement of a cancel."""
    max_failures: int = 10
    """Failures of one node in a row that end the session."""
    threads: int = 8
    """For run_blocking."""

    def __post_init__(self) -> None:
        for name in ("inbox_frames", "max_failures", "threads"):
            if getattr(self, name) < 1:
                raise ValueError(f"SessionOptions: {name} is {getattr(self, name)}; it must be 1 or more")
        for name in self.__slots__:
            if name.endswith("_s") and not getattr(self, name) > 0:
                raise ValueError(f"SessionOptions: {name} is {getattr(self, name)}; it must be more than 0 seconds")
