"""The clocks that say where the ear is."""

from __future__ import annotations

import math

import pytest

from voiceflow.playout.ear import DelayClock, InstantClock, ReportClock

RATE = 8000


def test_a_delay_clock_runs_at_the_sample_rate_behind_the_last_pull():
    """The ear is at the pulled position when the latency has passed, and a second of samples further a second later."""
    clock = DelayClock(RATE, 0.25)
    clock.pulled(1000, now=10.0)
    assert clock.ear(10.25) == 1000
    assert clock.ear(11.25) == 1000 + RATE
    assert clock.ear(10.0) == 1000 - 0.25 * RATE
    assert clock.exact
    assert not DelayClock(RATE, exact=False).exact


@pytest.mark.parametrize("latency_s", [-0.1, math.inf, math.nan])
def test_a_latency_that_is_none_is_refused(latency_s):
    """A latency must be a number of seconds."""
    with pytest.raises(ValueError, match="latency_s"):
        DelayClock(RATE, latency_s)


def test_an_instant_clock_is_ahead_of_all():
    """Whatever left has been heard."""
    clock = InstantClock()
    clock.pulled(5, now=0.0)
    clock.cleared(5, now=0.0)
    assert clock.ear(0.0) == math.inf
    assert clock.exact


class TestReportClock:
    def test_it_guesses_until_the_first_report(self):
        """Before any report it is a delay clock that says it guesses."""
        clock = ReportClock(RATE, latency_s=0.2)
        clock.pulled(800, now=1.0)
        assert clock.ear(1.2) == pytest.approx(800)
        assert not clock.exact

    def test_a_report_counts_while_it_is_fresh(self):
        """A report is carried on for ``fresh_s``; then the guess takes over where it is further, and says so."""
        clock = ReportClock(RATE, latency_s=0.0, fresh_s=1.0)
        assert clock.report(100, now=1.0)
        assert clock.ear(1.5) == 100 + RATE / 2
        assert clock.exact
        clock.pulled(5 * RATE, now=3.0)
        assert clock.ear(3.0) == 5 * RATE
        assert not clock.exact

    def test_reports_do_not_go_back(self):
        """A report of an earlier position, come late, is ignored."""
        clock = ReportClock(RATE)
        assert clock.report(200, now=1.0)
        assert not clock.report(100, now=1.1)
        assert clock.ear(1.1) == pytest.approx(200 + RATE * 0.1)

    def test_positions_before_a_clear_prove_nothing(self):
        """After a clear, reports of what was thrown away are refused; those of what came after count."""
        clock = ReportClock(RATE)
        clock.report(100, now=1.0)
        clock.cleared(500, now=1.0)
        assert not clock.report(400, now=1.1)
        assert not clock.report(500, now=1.1)
        clock.ear(1.1)
        assert not clock.exact
        assert clock.report(501, now=1.2)
        assert clock.ear(1.2) == 501
        assert clock.exact
