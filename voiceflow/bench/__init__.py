"""How fast the engine is on this machine: ``voiceflow bench hop | interrupt | sessions | import | ttfa``.

Owns the measuring of voiceflow against the same work written by hand. One rule: a figure and its baseline come out of the
same run, alternately, since the time a machine takes for anything drifts by more than what is measured.
"""

from __future__ import annotations

from voiceflow.bench.command import main

__all__ = ["main"]
