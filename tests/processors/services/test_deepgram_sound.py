"""Sound kept for a recogniser: every sample is heard by one that makes it final, or counted as lost."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from voiceflow.processors.services.deepgram_sound import KeptSound, Mark

RATE = 1000


def numbered(start: int, count: int) -> bytes:
    return np.arange(start, start + count, dtype="<i2").tobytes()


def taken(sound: KeptSound, *, everything: bool = False) -> list[int | str]:
    """All that is to be sent now: numbers of samples, and "|" for a mark."""
    found: list[int | str] = []
    while (item := sound.take(everything=everything)) is not None:
        found += ["|"] if isinstance(item, Mark) else np.frombuffer(item, "<i2").tolist()
    return found


def test_marks_stand_where_speech_ended() -> None:
    """Also those set before the sound before them was sent."""
    sound = KeptSound(RATE, 10.0)
    sound.push(numbered(0, 3))
    sound.mark()
    sound.push(numbered(3, 2))
    sound.mark()
    assert taken(sound) == [0, 1, 2, "|", 3, 4, "|"]
    assert sound.marks == 2


def test_whole_chunks_are_sent_but_for_a_mark_or_the_end() -> None:
    """Nothing waits that must not."""
    sound = KeptSound(RATE, 10.0, chunk=4)
    sound.push(numbered(0, 10))
    assert taken(sound) == list(range(8))
    sound.mark()
    assert taken(sound) == [8, 9, "|"]
    sound.push(numbered(10, 1))
    assert taken(sound) == []
    assert taken(sound, everything=True) == [10]


def test_another_connection_hears_what_was_not_settled_and_its_marks() -> None:
    """Ends of speech before it are answered by that."""
    sound = KeptSound(RATE, 10.0)
    sound.push(numbered(0, 4))
    sound.mark()
    sound.push(numbered(4, 4))
    sound.mark()
    taken(sound)
    sound.settle(4)
    assert sound.rewind() == 1
    assert taken(sound) == [4, 5, 6, 7, "|"]
    assert sound.at(0.001) == 5
    assert sound.lost == 0


def test_silence_that_was_made_up_moves_no_word() -> None:
    """Times of the connection count it, positions do not."""
    sound = KeptSound(RATE, 10.0)
    sound.padded(100)
    sound.push(numbered(0, 10))
    assert sound.at(0.105) == 5


def test_what_finds_no_room_is_lost_and_counted() -> None:
    """The oldest."""
    sound = KeptSound(RATE, 0.01)
    sound.push(numbered(0, 25))
    sound.rewind()
    assert taken(sound) == list(range(15, 25))
    assert sound.lost == 15


STEPS = st.lists(st.tuples(st.sampled_from(["push", "mark", "take", "settle", "rewind", "answer"]), st.integers(0, 30)), max_size=60)


@given(STEPS, st.sampled_from([1, 7]))
def test_no_sample_is_left_out_and_none_comes_out_of_order(steps: list[tuple[str, int]], chunk: int) -> None:
    """On each connection: from what is settled on, without a gap. After the last all of it was sent."""
    sound = KeptSound(RATE, 100.0, chunk=chunk)
    pushed, sent = 0, 0
    for step, number in steps:
        if step == "push":
            sound.push(numbered(pushed, number))
            pushed += number
        elif step == "mark":
            sound.mark()
        elif step == "take":
            item = sound.take()
            if isinstance(item, bytes):
                assert np.frombuffer(item, "<i2").tolist() == list(range(sent, sent + len(item) // 2))
                sent += len(item) // 2
        elif step == "settle":
            sound.settle(sound.settled_to + number)
            assert sound.settled_to <= sent
        elif step == "rewind":
            sound.rewind()
            sent = sound.settled_to
        elif sound.marks:
            sound.answered()
    rest = [item for item in taken(sound, everything=True) if item != "|"]
    assert rest == list(range(sent, pushed))
    assert sound.lost == 0
