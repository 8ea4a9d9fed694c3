"""Every exception voiceflow raises on purpose, each saying what was wrong, where, and what to do.

VoiceflowError
├─ ContractError       a processor class is not well formed (raised when the class is made)
├─ PipelineError       the graph cannot work (raised when it is built)
├─ SessionError        the session was used in a way it does not allow
├─ NodeError           a node failed in a running session; ``node`` names it, ``__cause__`` is the author's exception
└─ ModelError          a model file is missing, broken or cannot be fetched
"""

from __future__ import annotations

import re
from collections.abc import Iterable

__all__ = [
    "ContractError",
    "ModelError",
    "NodeError",
    "PipelineError",
    "SessionError",
    "VoiceflowError",
    "type_names",
    "what_and_where",
]

_PLACE = re.compile(r"(.*?)(?: - at `(.*)`)?", re.DOTALL)


class VoiceflowError(Exception):
    """The root of the tree."""


class ContractError(VoiceflowError, TypeError):
    """A processor's annotations do not say what it takes and yields, or say it wrongly."""


class PipelineError(VoiceflowError):
    """The graph cannot work as described."""


class SessionError(VoiceflowError):
    """The session cannot do that now."""


class ModelError(VoiceflowError):
    """A model file is not to be had."""


class NodeError(VoiceflowError):
    """A node of a running session failed. ``node`` is its name."""

    def __init__(self, node: str, message: str) -> None:
        super().__init__(f"{node}: {message}")
        self.node = node


def type_names(types: Iterable[type]) -> str:
    """Frame types as a reader wants to see them in an error: ``AudioFrame | TextFrame``."""
    return " | ".join(sorted(t.__name__ for t in types)) or "nothing"


def what_and_where(error: Exception) -> tuple[str, str]:
    """msgspec's message, ``what - at `$.place` ``, in its two parts; the place is "" where it names none."""
    found = _PLACE.fullmatch(str(error))
    assert found is not None  # it matches anything
    return found[1], found[2] or ""
