"""Which words are in which sound."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voiceflow.frames import Word
from voiceflow.processors.services.spoken_text import Pace, SpokenText, Timing, WordedSound, ends_sentence

RATE = 1000  # a sample a millisecond
CHAR_S = 0.1
Frames = list[tuple[bytes, tuple[Word, ...]]]

PIECES = st.lists(st.text(alphabet="ab ,.é字", min_size=1, max_size=8).map(lambda text: text + " "), min_size=1, max_size=6)


def spoken(*pieces: str, send: bool = True) -> SpokenText:
    text = SpokenText()
    for piece in pieces:
        text.add(piece)
    while send and text.next_piece():
        pass
    return text


def timed(text: SpokenText, frame_ms: float = 40.0) -> WordedSound:
    sent = text.sent
    sound = WordedSound(text, RATE, Pace(), is_timed=True, frame_ms=frame_ms)
    while text.sent < sent and text.next_piece():
        pass
    return sound


def said(characters: str) -> tuple[bytes, Timing]:
    """Its sound, and the times of its characters."""
    starts = [n * CHAR_S for n in range(len(characters))]
    return bytes(2 * round(CHAR_S * RATE) * len(characters)), Timing(list(characters), starts, [at + CHAR_S for at in starts])


def words(frames: Frames) -> list[Word]:
    """At their places in all of the sound."""
    at, found = 0.0, []
    for pcm, inside in frames:
        found += [Word(w.text, round(at + w.start, 6), round(at + w.end, 6), w.estimated) for w in inside]
        at += len(pcm) / 2 / RATE
    return found


@given(PIECES, st.data())
def test_each_word_leaves_once_in_order_where_it_is_spoken(pieces: list[str], data: st.DataObject) -> None:
    """Wherever the service cuts its sound: no sound is lost, and every word stands where its first character is."""
    text = spoken(*pieces)
    sound, frames, whole = timed(text), [], "".join(pieces)
    cuts = [0, *sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=5))), len(whole)]
    for a, b in itertools.pairwise(cuts):
        frames += sound.push(*said(whole[a:b]))
    frames += sound.end()
    assert sum(len(pcm) for pcm, _ in frames) == 2 * round(len(whole) * CHAR_S * RATE)
    assert [word.text for word in words(frames)] == whole.split()
    place = 0
    for word in words(frames):
        place = whole.index(word.text, place)
        assert word == Word(word.text, pytest.approx(place * CHAR_S), pytest.approx((place + len(word.text)) * CHAR_S), False)
        place += len(word.text)
    assert all(pcm and len(pcm) <= 80 for pcm, _ in frames)


@given(PIECES, st.data())
def test_a_break_anywhere_loses_nothing_and_repeats_nothing(pieces: list[str], data: st.DataObject) -> None:
    """Sound that was given out ends with a whole word; the next stretch begins with the next one."""
    text, whole = spoken(*pieces, send=False), "".join(pieces)
    frames: Frames = []
    for _ in range(3):
        sound = WordedSound(text, RATE, Pace(), is_timed=True)
        rest = ""
        while piece := text.next_piece():
            rest += piece
        assert rest.split() == whole.split()[text.done :]
        known = text.done
        given_out = sound.push(*said(rest[: data.draw(st.integers(0, len(rest)))]))
        frames += given_out
        spoken_now = "".join(word.text for word in words(given_out))
        assert [word.text for word in words(given_out)] == whole.split()[known : text.done]
        heard = rest[: round(sum(len(pcm) for pcm, _ in given_out) / 2 / RATE / CHAR_S)]
        assert "".join(heard.split()) == spoken_now
    sound = WordedSound(text, RATE, Pace(), is_timed=True)
    rest = ""
    while piece := text.next_piece():
        rest += piece
    frames += sound.push(*said(rest)) + sound.end()
    assert [word.text for word in words(frames)] == whole.split()


def test_half_a_word_is_held_back_until_its_rest_has_come() -> None:
    """Or until it is released, when it goes as it is."""
    sound = timed(spoken("Good day. "))
    assert [word.text for word in words(sound.push(*said("Good d")))] == ["Good"]
    assert sound.is_holding
    assert words(sound.push(*said("ay.")))[0].text == "day."
    assert not sound.is_holding
    sound = timed(spoken("Good day. "))
    sound.push(*said("Good d"))
    assert words(sound.release(half_words=False)) == []
    (released,) = words(sound.release(half_words=True))
    assert (released.text, released.estimated) == ("day.", True)
    assert words(sound.push(*said("ay.")) + sound.end()) == []


def test_a_word_is_whole_only_with_its_sound() -> None:
    """Times that come before their sound are kept."""
    sound = timed(spoken("Good day. "))
    pcm, timing = said("Good day.")
    assert words(sound.push(pcm[:200], timing)) == []
    frames = sound.push(pcm[200:900])
    assert [word.text for word in words(frames)] == ["Good"]
    assert [word.text for word in words(sound.push(pcm[900:]))] == ["day."]


def test_a_word_with_all_its_times_is_released_though_its_end_is_said_to_be_later() -> None:
    """A service may reckon with silence that it does not send."""
    sound = timed(spoken("Good day. "))
    pcm, timing = said("Good day.")
    late = Timing(timing.chars, timing.starts_s, [*timing.ends_s[:-1], timing.ends_s[-1] + 0.5])
    assert [word.text for word in words(sound.push(pcm, late))] == ["Good"]
    assert [(word.text, word.estimated) for word in words(sound.release(half_words=False))] == [("day.", False)]
    assert not sound.is_holding


def test_a_word_may_come_in_two_pieces() -> None:
    """As languages without blanks do, and tokens may; what was said of it already is a word by itself."""
    text = spoken("Hel")
    sound = timed(text)
    assert words(sound.push(*said("He"))) == []
    text.add("lo ")
    assert text.next_piece() == "lo "
    assert words(sound.push(*said("llo ")))[0] == Word("Hello", 0.0, 0.5)
    text.add("you")
    text.next_piece()
    assert words(sound.push(*said("you")))[0].text == "you"
    text.add("rs. ")
    text.next_piece()
    assert words(sound.push(*said("rs. ")))[0].text == "rs."


@given(PIECES)
def test_without_times_words_are_placed_by_the_pace_and_marked(pieces: list[str]) -> None:
    """All of them by the end, in order, within the sound; the pace is learned."""
    text, pace = spoken(*pieces, send=False), Pace(0.01)
    sound = WordedSound(text, RATE, pace, is_timed=False)
    while text.next_piece():
        pass
    whole = "".join(pieces)
    frames = sound.push(bytes(2 * 100 * len(whole))) + sound.end()
    assert [word.text for word in words(frames)] == whole.split()
    assert all(word.estimated for word in words(frames))
    starts = [word.start for word in words(frames)]
    assert starts == sorted(starts)
    if whole.split():
        assert pace.seconds == pytest.approx(0.1 * len(whole) / len("".join(whole.split())))


def test_a_service_that_says_that_it_has_caught_up_needs_no_times() -> None:
    """All that was sent counts as said, and nothing after it."""
    text = spoken("One two. ", "Three. ", send=False)
    sound = WordedSound(text, RATE, Pace(10.0), is_timed=False)
    text.next_piece()
    frames = sound.push(bytes(1000)) + sound.catch_up()
    assert [word.text for word in words(frames)] == ["One", "two."]
    text.next_piece()
    frames = sound.push(bytes(1000)) + sound.end()
    assert [word.text for word in words(frames)] == ["Three."]


def test_a_timed_service_that_gives_no_times_is_not_waited_for() -> None:
    """After half a second its words are placed by the pace."""
    sound = timed(spoken("One two. "))
    assert words(sound.push(bytes(2 * 400))) == []
    assert [word.text for word in words(sound.push(bytes(2 * 400)))] == ["One", "two."]


def test_words_without_any_sound_are_carried_by_a_little_silence() -> None:
    """They were said, as far as the service knows."""
    sound = timed(spoken("Hm. "))
    ((pcm, inside),) = sound.end()
    assert (pcm, [word.text for word in inside]) == (bytes(20), ["Hm."])


@pytest.mark.parametrize(
    ("since", "starts", "base"),
    [("sound", [0.0], 2.0), ("stretch", [2.0], 0.0), ("either", [0.1], 2.0), ("either", [2.1], 0.0), ("either", [], 0.0)],
)
def test_times_count_from_the_sound_or_from_the_stretch(since: str, starts: Sequence[float], base: float) -> None:
    """Where the service does not say, it is told from the times."""
    assert Timing(["a"] * len(starts), starts, starts, since).origin_s(2.0) == base  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "ends"),
    [
        ("Yes. ", True),
        ('He said "no!" ', True),
        ("Yes, ", False),
        ("word", False),
        ("好。", True),
        ("", False),
        ("(Really?) ", True),
        (" ", False),
    ],
)
def test_where_a_sentence_ends(text: str, ends: bool) -> None:
    """Behind its mark, quotes and brackets aside."""
    assert ends_sentence(text) is ends
