"""How often Aura may be told to speak."""

from __future__ import annotations

from voiceflow.processors.services.deepgram_tts import FlushBudget


def test_so_many_in_any_minute() -> None:
    """And again when the oldest is a minute old."""
    budget = FlushBudget(3)
    for at in (0.0, 10.0, 20.0):
        assert budget.allows(at)
        budget.sent(at)
    assert not budget.allows(59.0)
    assert budget.allows(60.1)
    budget.sent(60.1)
    assert not budget.allows(69.0)
