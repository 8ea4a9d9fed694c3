"""Tests of cutting sound into segments of speech. In most of them a sample's value is its own position."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from voiceflow.processors.segments import Hush, Segment, Segmenter, SegmentOptions, quietest

RATE = 1000


def numbered(begin: int, end: int) -> np.ndarray:
    return np.arange(begin, end, dtype=np.float32)


def check(segment: Segment | None) -> tuple[int, int]:
    """First and end of a segment whose samples are those that lie there."""
    assert segment is not None
    assert segment.samples.tolist() == list(range(segment.first, segment.end))
    return segment.first, segment.end


@pytest.mark.parametrize("delay", [0, 200, 600])
def test_a_segment_begins_before_the_onset_however_late_it_is_told(delay: int):
    """With 0.3 s of pre-roll a voice from 1.0 s to 2.0 s is a segment from 0.7 s to 2.1 s, whatever the detector's delay."""
    segmenter = Segmenter(RATE)
    segmenter.push(numbered(0, 1000 + delay))
    segmenter.start(1000)
    segmenter.push(numbered(1000 + delay, 2200))

    assert check(segmenter.stop(2000)) == (700, 2100)


def test_the_next_segment_does_not_take_what_the_last_one_has():
    """A voice that begins 150 ms after the last one ended has its pre-roll cut at the last segment's end."""
    segmenter = Segmenter(RATE, SegmentOptions(post_roll_s=0.0))
    segmenter.push(numbered(0, 1200))
    segmenter.start(1000)
    segmenter.push(numbered(1200, 2000))
    first = check(segmenter.stop(2000))
    segmenter.push(numbered(2000, 2350))
    segmenter.start(2150)
    segmenter.push(numbered(2350, 3000))

    assert [first, check(segmenter.stop(3000))] == [(700, 2000), (2000, 3000)]


def test_at_the_start_of_the_call_a_segment_begins_with_the_first_sample():
    """A voice within the first 100 ms has as much pre-roll as there is."""
    segmenter = Segmenter(RATE)
    segmenter.push(numbered(0, 280))
    segmenter.start(80)
    segmenter.push(numbered(280, 700))

    assert check(segmenter.stop(600)) == (0, 700)


def test_sound_used_for_good_is_in_no_later_segment():
    """What was read ahead past the end, and used, is not given out again as pre-roll."""
    segmenter = Segmenter(RATE)
    segmenter.push(numbered(0, 1000))
    segmenter.start(500)
    used = segmenter.so_far().end
    segmenter.stop(700, used)
    segmenter.push(numbered(1000, 1500))
    segmenter.start(1100)

    assert check(segmenter.so_far()) == (1000, 1500)


def test_a_late_onset_beyond_the_history_begins_where_the_history_does():
    """Sound older than what is kept cannot be given; the rest is."""
    segmenter = Segmenter(RATE, SegmentOptions(history_s=1.0))
    for begin in range(0, 5000, 100):
        segmenter.push(numbered(begin, begin + 100))
    segmenter.start(3000)

    assert check(segmenter.so_far()) == (4000, 5000)


def test_a_long_segment_comes_in_pieces_that_join():
    """Beyond its longest, a segment is cut at a quiet place and goes on from there."""
    rng = np.random.default_rng(0)
    sound = rng.normal(0, 0.1, 5000).astype(np.float32)
    sound[1400:1500] = 0  # the only silence
    segmenter = Segmenter(RATE, SegmentOptions(longest_s=2.5))
    segmenter.push(sound[:300])
    segmenter.start(300)
    pieces = [piece for begin in range(300, 5000, 20) if (piece := segmenter.push(sound[begin : begin + 20])) is not None]
    last = segmenter.stop(5000)
    assert last is not None
    pieces.append(last)

    assert 1400 <= pieces[0].end <= 1500
    assert [piece.first for piece in pieces[1:]] == [piece.end for piece in pieces[:-1]]
    assert np.concatenate([piece.samples for piece in pieces]).tolist() == sound.tolist()


def test_an_engine_that_cannot_take_back_is_cut_at_the_end():
    """With `cut_where_quiet` off a piece ends with the newest sample."""
    segmenter = Segmenter(RATE, SegmentOptions(longest_s=1.0, cut_where_quiet=False))
    segmenter.push(numbered(0, 100))
    segmenter.start(0)

    assert check(segmenter.push(numbered(100, 1100))) == (0, 1100)


def test_edges_out_of_place_do_nothing():
    """A stop without a start gives nothing, and a second start leaves the segment as it is."""
    segmenter = Segmenter(RATE)
    segmenter.push(numbered(0, 1000))
    assert segmenter.stop(500) is None
    segmenter.start(400)
    segmenter.start(900)

    assert check(segmenter.stop(1000)) == (100, 1000)


@settings(deadline=None)
@given(
    actions=st.lists(
        st.one_of(
            st.tuples(st.just("push"), st.integers(0, 700)),
            st.tuples(st.just("start"), st.integers(-900, 200)),
            st.tuples(st.just("stop"), st.integers(-900, 200)),
        ),
        max_size=60,
    ),
    pre_roll=st.floats(0, 1),
    post_roll=st.floats(0, 1),
)
def test_no_sample_is_ever_in_two_segments(actions: list[tuple[str, int]], pre_roll: float, post_roll: float):
    """Whatever edges come, wherever they are placed, segments are in order, do not overlap, and hold the right samples."""
    segmenter = Segmenter(RATE, SegmentOptions(pre_roll_s=pre_roll, post_roll_s=post_roll, history_s=1.5, longest_s=2.0))
    given: list[tuple[int, int]] = []
    for action, value in actions:
        if action == "push":
            segment = segmenter.push(numbered(segmenter.position, segmenter.position + value))
        elif action == "start":
            segmenter.start(segmenter.position + value)
            segment = None
        else:
            segment = segmenter.stop(segmenter.position + value)
        if segment is not None:
            given.append(check(segment))

    assert all(first <= end for first, end in given)
    assert all(before[1] <= after[0] for before, after in itertools.pairwise(given))


@pytest.mark.parametrize(
    "options", [{"pre_roll_s": -0.1}, {"post_roll_s": -1}, {"history_s": 0.2}, {"longest_s": 0.5}], ids=lambda o: next(iter(o))
)
def test_lengths_that_make_no_sense_are_refused(options: dict[str, float]):
    """Options are checked when they are made."""
    with pytest.raises(ValueError, match="SegmentOptions"):
        SegmentOptions(**options)


# --------------------------------------------------------------------------------------------------------- hush


def voice(seconds: float, level: float) -> np.ndarray:
    return np.random.default_rng(1).normal(0, level, round(16000 * seconds)).astype(np.float32)


@pytest.mark.parametrize("size", [1, 50, 320, 16000])
def test_a_hush_is_noticed_once_when_it_is_long_enough(size: int):
    """Sound that falls by more than 25 dB is a hush 0.12 s later, in whatever pieces it comes, and only once."""
    sound = np.concatenate((voice(0.5, 0.1), voice(1.0, 0.001)))
    hush = Hush(16000)
    noticed = [begin + size for begin in range(0, len(sound), size) if hush.push(sound[begin : begin + size])]

    assert len(noticed) == 1
    assert 0.62 - 1e-9 <= noticed[0] / 16000 <= 0.64 + size / 16000


def test_short_gaps_and_a_loud_floor_are_no_hush():
    """A stop consonant of 80 ms, and noise only 15 dB down, do not count."""
    gaps = np.concatenate([np.concatenate((voice(0.2, 0.1), voice(0.08, 0.001))) for _ in range(5)])

    assert not Hush(16000).push(gaps)
    assert not Hush(16000).push(np.concatenate((voice(0.5, 0.1), voice(1.0, 0.02))))


def test_each_pause_is_a_hush_of_its_own():
    """After more speech the next hush is noticed again."""
    hush = Hush(16000)
    assert [hush.push(voice(0.3, level)) for level in (0.1, 0.001, 0.1, 0.001)] == [False, True, False, True]


# ----------------------------------------------------------------------------------------------------- quietest


@settings(deadline=None)
@given(length=st.integers(2200, 8000), place=st.floats(0, 1))
def test_the_cut_falls_into_the_quiet(length: int, place: float):
    """A silence of 100 ms in the second half, not in the last second, is where the cut is."""
    sound = np.ones(length, np.float32)
    low, high = length // 2, length - RATE - 100
    if high <= low:
        return
    at = round(low + place * (high - low))
    sound[at : at + 100] = 0

    assert at <= quietest(sound, RATE) <= at + 100


@given(length=st.integers(2, 3000))
def test_a_cut_leaves_something_on_both_sides(length: int):
    """Of two samples and more, neither part is empty."""
    assert 0 < quietest(np.ones(length, np.float32), RATE) < length
