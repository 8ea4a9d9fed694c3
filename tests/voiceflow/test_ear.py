"""The clocks that say where the ear is."""

from __future__ import annotations

import math

import pytest

from voiceflow.playout.ear import DelayClock, InstantClock, MarkClock, ReportClock

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


def test_a_pause_shorter_than_the_latency_is_heard_as_one():
    """The ear comes to the end of one stretch and to the start of the next the latency after each of them, and waits in between."""
    clock = DelayClock(1000, 0.5)
    clock.pulled(0, now=0.0)
    clock.pulled(100, now=0.3)  # the first hundred were over at 0.1
    assert [clock.ear(at) for at in (0.55, 0.6, 0.7, 0.8, 0.85)] == pytest.approx([50, 100, 100, 100, 150])


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
        """A report is carried on at the sample rate; after ``fresh_s`` the answer says that it is an estimate."""
        clock = ReportClock(RATE, latency_s=0.0, fresh_s=1.0)
        clock.pulled(0, now=0.5)
        assert clock.report(100, now=1.0)
        assert clock.ear(1.5) == pytest.approx(100 + RATE / 2)
        assert clock.exact
        assert clock.ear(3.0) == pytest.approx(100 + 2 * RATE)
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

    def test_a_report_measures_the_delay_for_what_comes_after_a_pause(self):
        """After a pause the ear is not carried on from the old report: it is as far behind the new sound as it was behind the old."""
        clock = ReportClock(RATE, latency_s=0.0, return_s=0.1)
        clock.pulled(0, now=0.0)
        assert clock.report(RATE, now=1.4)  # a second of sound was over at 1.3
        assert clock.latency_s == pytest.approx(0.3)
        clock.pulled(RATE, now=1.5)
        assert clock.ear(1.5) == RATE
        assert clock.ear(1.9) == pytest.approx(1.1 * RATE)
        assert clock.exact
        clock.cleared(2 * RATE, now=1.9)
        assert clock.latency_s == pytest.approx(0.3), "what was measured is remembered"

    @pytest.mark.parametrize("wrong", [{"latency_s": -1}, {"fresh_s": math.nan}, {"return_s": math.inf}])
    def test_times_that_are_none_are_refused(self, wrong):
        """Each time must be a number of seconds."""
        with pytest.raises(ValueError, match=f"ReportClock: {next(iter(wrong))}"):
            ReportClock(RATE, **wrong)


class TestMarkClock:
    def far(self, **options):
        clock = MarkClock(RATE, latency_s=0.1, **options)
        clock.pulled(0, now=0.0)
        return clock, [clock.mark(RATE // 5 * n) for n in range(1, 6)]  # a second, five marks

    def test_the_ear_is_between_two_marks(self):
        """It is carried on from the last mark that came back, and does not pass the next."""
        clock, names = self.far()
        assert clock.returned(names[0], now=0.45)
        assert clock.latency_s == pytest.approx(0.25)
        assert clock.ear(0.55) == pytest.approx(0.3 * RATE)
        assert clock.ear(0.9) == 0.4 * RATE - 1
        assert clock.exact

    def test_a_later_mark_stands_for_those_before_it(self):
        """Marks that were passed over are counted as lost, and cannot come back any more."""
        clock, names = self.far()
        assert clock.returned(names[2], now=0.7)
        assert clock.lost == 2
        assert not clock.returned(names[0], now=0.71)
        assert not clock.returned(names[2], now=0.72)
        assert clock.ear(0.7) == pytest.approx(0.6 * RATE)

    @pytest.mark.parametrize("name", ["", "no mark", "77", "-1600", "\u0663", "9" * 5000])
    def test_a_name_that_was_never_given_proves_nothing(self, name):
        """Whatever a far end sends, it is no proof and no error."""
        clock, _ = self.far()
        assert not clock.returned(name, now=0.5)
        assert clock.ear(0.2) == pytest.approx(0.1 * RATE)

    def test_a_mark_that_never_comes_makes_an_estimate_and_is_given_up(self):
        """Past ``fresh_s`` it is an estimate, short of the last mark; past ``patience_s`` that mark is not waited for either."""
        clock, _ = self.far(fresh_s=0.5, patience_s=2.0)
        assert clock.ear(0.79) == 0.2 * RATE - 1
        assert clock.ear(0.9) == pytest.approx(0.8 * RATE)
        assert not clock.exact
        assert clock.ear(2.2) == RATE - 1
        assert clock.ear(2.4) > RATE
        assert not clock.exact

    def test_a_mark_after_lost_ones_makes_it_exact_again(self):
        """One that comes back late is a proof like any other."""
        clock, names = self.far(fresh_s=0.5)
        clock.ear(2.0)
        assert clock.returned(names[-1], now=2.0)
        assert clock.ear(2.0) == RATE
        assert clock.exact

    def test_marks_that_were_cleared_neither_prove_nor_are_waited_for(self):
        """Come back or not, they are forgotten; a mark behind the clear counts."""
        clock, names = self.far()
        clock.cleared(RATE, now=0.3)
        assert not any(clock.returned(name, now=0.31) for name in names)
        clock.pulled(RATE, now=0.4)
        late = clock.mark(RATE + 800)
        assert clock.ear(0.55) == pytest.approx(RATE + 400)
        assert clock.returned(late, now=0.6)
        assert clock.exact is False, "not looked at since"
        assert clock.ear(0.6) == RATE + 800
        assert clock.exact

    def test_a_far_end_that_returns_none_fills_no_memory(self):
        """Of thousands of marks the last 256 are kept, the rest are lost."""
        clock, _ = self.far()
        for n in range(5000):
            clock.mark(RATE + n)
        assert clock.lost == 5005 - 256

    def test_the_lost_mark_of_one_utterance_spoils_no_other(self):
        """After a minute's silence the end of the next utterance is waited for as ever, though the last mark before never came."""
        clock, names = self.far()
        assert clock.returned(names[3], now=0.95)  # and the last one, at 1.0, is lost
        for number, at in enumerate((60.0, 120.0)):
            begin = RATE * (1 + number)
            clock.pulled(begin, now=at)
            halfway, end = clock.mark(begin + RATE // 2), clock.mark(begin + RATE)
            assert begin < clock.ear(at + 0.69) <= begin + RATE // 2 - 1
            assert clock.returned(halfway, now=at + 0.7)
            assert clock.ear(at + 1.5) == begin + RATE - 1
            assert clock.exact
            if number:
                assert clock.returned(end, now=at + 1.6)
                assert clock.ear(at + 1.6) == begin + RATE
        assert clock.lost == 3 + 2

    def test_a_far_end_that_has_ceased_to_return_marks_is_waited_for_once(self):
        """Of three utterances whose marks never come the first two cost the patience: until then it may be the one mark that was lost."""
        clock, names = self.far()
        assert clock.returned(names[-1], now=1.1)
        waits = []
        for number, at in enumerate((10.0, 20.0, 30.0)):
            begin = RATE * (1 + number)
            clock.pulled(begin, now=at)
            clock.mark(begin + RATE // 5)
            clock.mark(begin + RATE)
            waits.append(next(t for t in range(10, 60) if clock.ear(at + t / 10) >= begin + RATE) / 10)
        assert waits == [3.3, 3.3, 1.1], "the second time what was before is given up"

    def test_impatience_is_refused(self):
        """The end is waited for no shorter than a proof is fresh."""
        with pytest.raises(ValueError, match=r"patience_s is 0\.5"):
            MarkClock(RATE, patience_s=0.5)
