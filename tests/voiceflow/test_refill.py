"""How much is collected after a gap, and what a gap is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voiceflow.playout.refill import PlayoutOptions, Refill

RATE = 1000  # a sample is a millisecond


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"start_ms": 20}, "rise from 0"),
        ({"max_ms": 70}, "rise from 0"),
        ({"min_ms": -1}, "rise from 0"),
        ({"fade_ms": 21}, "fit one output frame"),
        ({"declick_ms": -1}, "declick_ms"),
        ({"calm_ms": 0}, "calm_ms"),
    ],
)
def test_impossible_options_are_refused(wrong, says):
    """Options that cannot be kept are an error naming the option."""
    with pytest.raises(ValueError, match=says):
        PlayoutOptions(**wrong)


def test_a_gap_is_an_underrun_only_when_more_comes():
    """Dry and then more of the same: an underrun that grows the target. Dry and then the end: none."""
    refill = Refill(RATE, PlayoutOptions())
    assert refill.ran_dry(30)
    assert not refill.ran_dry(20)
    refill.reset()
    refill.came()
    assert (refill.underruns, refill.target_ms) == (0, 80)
    refill.ran_dry(50)
    refill.came()
    refill.came()
    assert (refill.underruns, refill.target_ms) == (1, 100)
    assert refill.waiting


@pytest.mark.parametrize(
    ("queued", "open", "waited", "goes"), [(99, True, 99, False), (100, True, 0, True), (1, False, 0, True), (1, True, 100, True)]
)
def test_it_goes_on_with_the_target_the_end_or_the_time(queued, open, waited, goes):
    """After an underrun 100 ms are collected, unless the utterance is over or the wait has been as long."""
    refill = Refill(RATE, PlayoutOptions())
    refill.ran_dry(1)
    refill.came()
    refill.wait(waited)
    assert refill.goes_on(queued, open=open) is goes
    assert refill.waiting is not goes


def test_the_ratio_is_the_silence_in_speaking_time():
    """900 ms of sound with a gap of 60 and a wait of 40 ms: a tenth was silence."""
    refill = Refill(RATE, PlayoutOptions())
    assert refill.underrun_ratio == 0
    refill.sound(400, 0, open=True)
    refill.ran_dry(60)
    refill.came()
    refill.wait(40)
    refill.sound(500, 0, open=True)
    assert refill.underrun_ratio == pytest.approx(0.1)


def test_a_second_of_dryness_is_rest():
    """A gap of a second needs no more pulls."""
    refill = Refill(RATE, PlayoutOptions())
    refill.ran_dry(999)
    assert not refill.resting
    refill.ran_dry(1)
    assert refill.resting


@given(st.lists(st.one_of(st.integers(1, 500), st.tuples(st.integers(1, 3000), st.integers(0, 1000)))))
def test_the_target_keeps_to_its_bounds(history):
    """Whatever gaps and sound there are, the target stays between its bounds."""
    options = PlayoutOptions(min_ms=60, max_ms=200)
    refill = Refill(RATE, options)
    for item in history:
        if isinstance(item, int):
            refill.ran_dry(item)
            refill.came()
            refill.goes_on(10_000, open=True)
        else:
            refill.sound(*item, open=True)
        assert 60 <= refill.target_ms <= 200
