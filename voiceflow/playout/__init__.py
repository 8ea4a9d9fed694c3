"""From the making of sound to the ear that hears it: an adaptive buffer in milliseconds, and a ledger of what was heard.

``buffer`` is the queue, ``pacing`` when its blocks leave, ``refill`` what it does when it has run dry, ``ear`` where the ear is by the best clock the
transport has, ``ledger`` which sample belongs to which word and how much of it was heard,
``tape`` whoever records it. All pure: no await, time passed in.
"""

from __future__ import annotations

from voiceflow.playout.buffer import Playout
from voiceflow.playout.ear import DelayClock, EarClock, InstantClock, MarkClock, ReportClock
from voiceflow.playout.ledger import Ledger, PlacedWord
from voiceflow.playout.pacing import Pacer
from voiceflow.playout.refill import PlayoutOptions, Refill
from voiceflow.playout.tape import Tape

__all__ = [
    "DelayClock",
    "EarClock",
    "InstantClock",
    "Ledger",
    "MarkClock",
    "Pacer",
    "PlacedWord",
    "Playout",
    "PlayoutOptions",
    "Refill",
    "ReportClock",
    "Tape",
]
