"""Where sound stands in a recording."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from voiceflow.transports.tracks import Track

BLOCK = 160
LIMIT = 10**6


def block(value, length=BLOCK):
    return np.full(length, value, np.int16)


def where(track, until=LIMIT):
    """{value: (first place, samples)} of a track's sound."""
    out = track.take(until)
    return {int(v): (int(np.flatnonzero(out == v)[0]), int((out == v).sum())) for v in set(out) - {0}}


def test_sound_stands_where_it_is_dated_and_the_rest_is_silence():
    """Two blocks with a pause between them leave the pause as it was."""
    track = Track(LIMIT)
    track.put(100, block(1))
    track.put(1000, block(2))
    out = track.take(2000)
    assert len(out) == 2000
    assert np.flatnonzero(out).tolist() == [*range(100, 260), *range(1000, 1160)]


@pytest.mark.parametrize("off", [-79, -1, 1, 79])
def test_a_date_that_is_off_by_less_than_half_a_block_opens_no_gap(off):
    """Jitter in the dates neither opens a gap nor overlaps."""
    track = Track(LIMIT)
    track.put(0, block(1))
    track.put(BLOCK + off, block(2))
    track.put(2 * BLOCK, block(3))
    assert where(track) == {1: (0, BLOCK), 2: (BLOCK, BLOCK), 3: (2 * BLOCK, BLOCK)}
    assert not track.lost


@pytest.mark.parametrize("gap", [2, 40, 81, 1000])
def test_exact_dates_are_kept_to_the_sample(gap):
    """Where the dates are exact a pause of a few samples stays one."""
    track = Track(LIMIT, exact=True)
    track.put(0, block(1))
    track.put(BLOCK + gap, block(2))
    assert where(track)[2] == (BLOCK + gap, BLOCK)


def test_a_burst_dated_by_its_coming_slides_back_to_where_it_was_said():
    """After a stall ten blocks come at once, all dated now: they end where the next on time begins, and none is lost."""
    track = Track(LIMIT)
    track.put(0, block(1))
    for n in range(2, 12):  # said from BLOCK on, and all come at the end of the tenth
        track.put(10 * BLOCK, block(n))
    track.put(11 * BLOCK, block(12))
    assert where(track) == {n: ((n - 1) * BLOCK, BLOCK) for n in range(1, 13)}
    assert not track.lost


def test_what_was_taken_out_stays_as_it_was():
    """A burst slides no further back than what is written already; what has no room is counted."""
    track = Track(LIMIT)
    track.take(9 * BLOCK)
    for n in range(1, 11):
        track.put(10 * BLOCK, block(n))
    found = where(track)
    assert min(found) == 1
    assert found[1][0] == 0, "where the part that was taken out ends"
    assert sum(samples for _, samples in found.values()) + track.lost == 10 * BLOCK
    assert track.lost > 0


def test_a_clock_that_runs_fast_or_slow_is_never_far_off():
    """Blocks of a clock 1000 ppm off stand within half a block of their dates for ten minutes, and the loss is the drift."""
    for ppm in (-1000, 1000):
        track = Track(LIMIT)
        blocks = 30_000
        for n in range(blocks):
            at = round(n * BLOCK * (1 + ppm / 1e6))
            track.put(at, block(1 + n % 30000))
            assert abs(track._end - BLOCK - at) <= BLOCK // 2 + 1
            track.take(at - 10 * BLOCK)
        drift = blocks * BLOCK * 1000 // 10**6
        assert track.lost == pytest.approx(drift if ppm < 0 else 0, abs=BLOCK)


def test_a_cut_takes_out_what_came_from_there_on():
    """What the far end threw away is silence, within a block too; what comes next stands where it is dated."""
    track = Track(LIMIT, exact=True)
    for n in range(4):
        track.put(n * BLOCK, block(n + 1), source=n * BLOCK)
    track.cut(2 * BLOCK + 10)
    track.put(2 * BLOCK + 50, block(9), source=4 * BLOCK)
    assert where(track) == {1: (0, BLOCK), 2: (BLOCK, BLOCK), 3: (2 * BLOCK, 10), 9: (2 * BLOCK + 50, BLOCK)}


def test_what_a_cut_took_away_leaves_its_place_free():
    """Also where all that waited lay behind a pause."""
    track = Track(LIMIT, exact=True)
    track.put(0, block(1), source=0)
    track.put(50 * BLOCK, block(2), source=BLOCK)
    track.put(51 * BLOCK, block(3), source=2 * BLOCK)
    track.cut(BLOCK)
    track.put(49 * BLOCK, block(9, 3 * BLOCK), source=3 * BLOCK)
    assert where(track) == {1: (0, BLOCK), 9: (49 * BLOCK, 3 * BLOCK)}


def test_what_waits_is_bounded():
    """Over the limit the oldest sound becomes silence and is counted, and the rest stands where it did."""
    track = Track(3 * BLOCK)
    for n in range(10):
        track.put(n * BLOCK, block(n + 1))
        assert track.held <= 3 * BLOCK
    assert track.dropped == 7 * BLOCK
    assert where(track) == {n + 1: (n * BLOCK, BLOCK) for n in (7, 8, 9)}


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(-300, 900), st.integers(0, 400)),
        st.tuples(st.just("take"), st.integers(0, 800), st.just(0)),
        st.tuples(st.just("cut"), st.integers(0, 600), st.just(0)),
    ),
    max_size=40,
)


@given(STEPS, st.booleans(), st.integers(200, 2000))
def test_whatever_comes_nothing_is_doubled_or_out_of_order(steps, exact, limit):
    """Every sample that was put in comes out once, in order, or is counted as lost, dropped or cut; the length is what was asked for."""
    track = Track(limit, exact=exact)
    now = taken = made = cut = 0
    out = []
    for step, number, length in steps:
        if step == "put":
            now += number
            track.put(max(now, 0), np.arange(made + 1, made + length + 1, dtype=np.int64).astype(np.int16), made)
            made += length
        elif step == "take":
            part = track.take(taken + number)
            assert len(part) == number
            taken += number
            out.append(part)
        else:
            before = track.held
            track.cut(max(made - number, 0))
            cut += before - track.held
        assert track.held <= limit
    out.append(track.take(taken + 10**5))
    sound = np.concatenate(out)
    sound = sound[sound != 0]
    assert (np.diff(sound) > 0).all()
    assert len(sound) + track.lost + track.dropped + cut == made
    assert not track.held


@given(st.lists(st.tuples(st.integers(1, 500), st.integers(2, 2000)), max_size=30), st.integers(1, 700))
def test_exact_dates_give_exact_places(parts, step):
    """With exact dates and pauses between, each sample comes out at the place that it was dated, however it is taken out."""
    track, at, want = Track(LIMIT, exact=True), 0, {}
    for number, (length, pause) in enumerate(parts):
        track.put(at, block(number + 1, length))
        want[number + 1] = (at, length)
        at += length + pause
    out = np.concatenate([track.take(until) for until in range(step, at + 2 * step, step)])
    assert {n: (int(np.flatnonzero(out == n)[0]), int((out == n).sum())) for n in want} == want
