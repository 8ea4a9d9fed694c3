"""When blocks leave."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from voiceflow.playout.pacing import Pacer

RATE = 8000


def test_blocks_are_due_one_length_apart_and_stretches_do_not_overlap():
    """The n-th block is due n lengths after the first; a stretch that begins too early waits for the end of the one before."""
    pacer = Pacer(RATE, 0.02)
    pacer.begin(1.0)
    dues = []
    for _ in range(3):
        dues.append(pacer.due)
        assert pacer.samples == 160
        pacer.leave()
    assert dues == [1.0, 1.02, 1.04]
    pacer.begin(1.05)
    assert pacer.due == pacer.free_at == 1.06
    pacer.begin(2.0)
    assert pacer.due == 2.0


def test_sound_leaves_early_and_silence_in_time():
    """With 0.1 s ahead the end of a block of sound may leave 0.1 s before its time; silence leaves when it is due."""
    pacer = Pacer(RATE, 0.02, ahead_s=0.1)
    pacer.begin(1.0)
    assert pacer.leaves_at(ready=True) == 1.0 - 0.08
    assert pacer.leaves_at(ready=False) == 1.0
    assert Pacer(RATE, 0.02, ahead_s=0.02).early_s == 0.0


def test_the_first_block_of_a_stretch_sounds_when_it_leaves():
    """Had it been given time to fill, and left before that: what follows is due behind it. One that leaves late moves nothing."""
    pacer = Pacer(RATE, 0.2, 0.4)
    pacer.begin(1.18)
    pacer.leaves_now(1.0)
    assert pacer.due == 1.0
    pacer.leave()
    pacer.leaves_now(1.01)
    assert pacer.due == 1.2
    late = Pacer(RATE, 0.02)
    late.begin(1.0)
    late.leaves_now(1.3)
    assert late.due == 1.0


def test_after_a_clear_what_comes_next_is_due_at_once():
    """What left ahead of its time is gone, and its time with it."""
    pacer = Pacer(RATE, 0.02, ahead_s=1.0)
    pacer.begin(0.0)
    for _ in range(50):
        pacer.leave()
    assert pacer.free_at == 1.0
    pacer.cleared(0.3)
    assert pacer.due == pacer.free_at == 0.3


@given(
    st.integers(1, 60).map(lambda ms: ms / 1000),
    st.floats(0, 2),
    st.sampled_from([8000, 11025, 22050, 48000]),
    st.lists(st.tuples(st.booleans(), st.floats(0, 0.3)), max_size=60),
)
def test_never_more_leaves_than_real_time_and_the_lead(block_s, ahead_s, rate, blocks):
    """Whatever is ready when, and however late the loop is, what left is at most the time since the start and ``ahead_s``, or a block."""
    pacer = Pacer(rate, block_s, ahead_s)
    pacer.begin(5.0)
    now, left = 5.0, 0
    for ready, late_s in blocks:
        now = max(now, pacer.leaves_at(ready=ready)) + (late_s if late_s > 0.25 else 0.0)
        left += pacer.samples
        pacer.leave()
        assert left / rate <= now - 5.0 + max(ahead_s, block_s) + 1 / rate + 1e-9
