"""Which sample belongs to which word, and which words the ear has had. One sample is a millisecond here."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voiceflow.frames import Heard, PlaybackStarted, PlaybackStopped, Word, WordsHeard
from voiceflow.playout.ear import DelayClock, ReportClock
from voiceflow.playout.ledger import Ledger

RATE = 1000


def ledger(latency_s=0.0):
    return Ledger(RATE, DelayClock(RATE, latency_s))


def words(*starts_ms, length_ms=100, estimated=False):
    return [Word(f"w{ms}", ms / 1000, (ms + length_ms) / 1000, estimated) for ms in starts_ms]


def leave(it, source, count, at):
    """``count`` samples from ``source`` leave at that time."""
    it.pulling(at)
    it.speech(source, count)


def test_words_are_placed_from_the_frame_they_are_in():
    """A word's place is its frame's place plus its own, whatever came before."""
    it = ledger()
    it.add(1, 0, 250, words(0, 100))
    (late,) = it.add(1, 0, 250, words(50))
    assert (late.start, late.end) == (300, 400)


def test_an_utterance_is_its_start_its_words_and_its_end():
    """Start and stop carry the time at which the ear was there, also when nobody looked until later."""
    it = ledger(latency_s=0.1)
    it.add(7, 0, 200, words(0, 100))
    it.end(7)
    leave(it, 0, 200, at=1.0)
    it.advance(1.0999)
    assert it.events == []
    it.advance(5.0)
    assert it.events == [
        PlaybackStarted(utterance=7, at=pytest.approx(1.1)),
        WordsHeard(text="w0 w100", utterance=7, at=pytest.approx(1.25)),
        PlaybackStopped(heard=Heard(7, "w0 w100", True), at=pytest.approx(1.3)),
    ]
    assert it.idle


def test_sound_said_again_is_the_same_words():
    """A stretch that leaves twice maps to the same words, once."""
    it = ledger()
    it.add(1, 0, 300, words(0, 100, 200))
    it.end(1)
    leave(it, 0, 150, at=0.0)
    leave(it, 100, 200, at=1.0)
    it.advance(2.0)
    assert [e.heard.text for e in it.events if isinstance(e, PlaybackStopped)] == ["w0 w100 w200"]


def test_a_cut_counts_the_words_that_began_50_ms_before():
    """At 149 ms the second word is not heard, at 150 it is."""
    for now, text in ((0.149, "w0"), (0.150, "w0 w100")):
        it = ledger()
        it.add(1, 0, 300, words(0, 100, 200))
        leave(it, 0, 300, at=0.0)
        assert it.cut(now) == (Heard(1, text, False),)
        assert it.idle
        assert not it.underway


def test_estimates_among_the_heard_words_mark_the_cut():
    """A word placed by estimate that was not heard does not make an estimate of the rest."""
    it = ledger()
    it.add(1, 0, 300, [*words(0), *words(100, estimated=True)])
    leave(it, 0, 300, at=0.0)
    assert it.cut(0.12) == (Heard(1, "w0", False, estimated=False),)
    it.add(2, 0, 300, [*words(0), *words(100, estimated=True)])
    leave(it, 300, 300, at=1.0)
    assert it.cut(1.2) == (Heard(2, "w0 w100", False, estimated=True),)


def test_ends_are_matched_to_their_utterances():
    """An end closes its own utterance; a second, or a late one of a cut utterance, opens nothing."""
    it = ledger()
    it.add(1, 0, 100, [])
    it.add(2, 0, 100, [])
    it.end(1)
    assert it.open, "the end of the first, which the second has ended already"
    it.cut(0.0)
    it.end(2)
    assert it.idle
    it.end(3)
    assert not it.idle, "one without any sound, to be reported"
    it.advance(0.0)
    assert it.events == [PlaybackStopped(heard=Heard(3, "", True), at=0.0)]
    it.end(3)
    it.end(None)
    assert it.idle


def test_the_same_number_in_another_epoch_is_another_utterance():
    """Sound of two epochs is never one utterance, even where the number is the same."""
    it = ledger()
    it.add(0, 0, 100, words(0))
    it.add(0, 1, 100, words(0))
    assert len(it.cut(0.0)) == 2


def test_refused_sound_is_reported_by_the_cut_or_by_what_follows():
    """Stale sound that was begun is cut short in the next clear; without one, when other sound comes."""
    it = ledger()
    it.add(1, 0, 300, words(0, 100))
    leave(it, 0, 100, at=0.0)
    it.refuse(100, 300)
    assert it.idle
    assert not it.open
    it.advance(0.1)
    it.add(2, 1, 50, [])
    assert it.events[-1] == PlaybackStopped(heard=Heard(1, "w0", False), at=pytest.approx(0.1))


def test_a_guess_that_ran_ahead_is_marked_until_reports_have_come_up():
    """What was heard by guess stays a guess as long as the reports are behind it."""
    clock = ReportClock(RATE, latency_s=0.0)
    it = Ledger(RATE, clock)
    it.add(1, 0, 1000, words(0, 400))
    leave(it, 0, 1000, at=0.0)
    it.advance(0.5)
    clock.report(100, 0.5)
    it.advance(0.5)
    assert it.cut(0.6) == (Heard(1, "w0 w400", False, estimated=True),)


@given(
    st.lists(st.tuples(st.integers(0, 400), st.integers(0, 4)), min_size=1, max_size=6),
    st.lists(st.integers(1, 300), max_size=30),
    st.integers(0, 200),
)
def test_whatever_leaves_the_words_heard_are_a_prefix(frames, pulls, latency_ms):
    """For any frames, any blocks and any latency the text of a cut is the first words of what was made, never more than left."""
    it = Ledger(RATE, DelayClock(RATE, latency_ms / 1000))
    made = []
    for count, spoken in frames:
        starts = [round(i * count / max(spoken, 1)) for i in range(spoken)]
        made += [(it.made + start) for start in starts]
        it.add(1, 0, count, [Word(f"w{it.made + s}", s / RATE, s / RATE) for s in starts])
    now, source = 0.0, 0
    for pull in pulls:
        count = min(pull, it.made - source)
        it.pulling(now)
        if count:
            it.speech(source, count)
        it.silence(pull - count)
        source += count
        it.advance(now)
        now += pull / RATE
    heard = it.cut(now)
    text = heard[0].text.split() if heard else []
    assert text == [f"w{start}" for start in made[: len(text)]]
    assert all(start + 50 <= source for start in made[: len(text)])
