"""The playout: what goes out, when, how it is cut, and what it says was heard."""

from __future__ import annotations

import tracemalloc
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from voiceflow.frames import AudioFormat, Heard, OutputAudioFrame, PlaybackStarted, PlaybackStopped, Word, WordsHeard
from voiceflow.playout.buffer import Playout
from voiceflow.playout.ear import DelayClock, EarClock, InstantClock, ReportClock
from voiceflow.playout.refill import PlayoutOptions

RATE = 24000
BLOCK = 480  # 20 ms
MONO = AudioFormat(RATE)
BARE = PlayoutOptions(fade_ms=0, declick_ms=0)
"""No smoothing: every sample that goes out is one that was pushed."""


def sound(samples, utterance=1, words=(), epoch=0, channels=1):
    pcm = np.asarray(samples, "<i2").tobytes()
    return OutputAudioFrame(pcm=pcm, sample_rate=RATE, channels=channels, words=tuple(words), utterance=utterance, epoch=epoch)


def level(ms, value=1000, utterance=1, words=(), epoch=0):
    return sound(np.full(round(ms * RATE / 1000), value), utterance, words, epoch)


def spoken(texts, ms=200, value=1000, utterance=1, epoch=0, estimated=False):
    """One frame with a word every ``ms``."""
    words = [Word(text, i * ms / 1000, (i + 1) * ms / 1000, estimated) for i, text in enumerate(texts)]
    return level(ms * len(texts), value, utterance, words, epoch)


@dataclass
class Ear:
    """Pulls blocks at their pace and keeps what came and when."""

    playout: Playout
    now: float = 0.0
    epoch: int = 0
    blocks: list[np.ndarray] = field(default_factory=list)
    events: list = field(default_factory=list)
    """All but the words."""
    words: list[WordsHeard] = field(default_factory=list)

    def hear(self, blocks=1, samples=BLOCK):
        for _ in range(blocks):
            pcm = self.playout.pull(samples, self.now, self.epoch)
            self.blocks.append(np.frombuffer(pcm, "<i2").reshape(-1, self.playout.format.channels))
            for event in self.playout.events():
                (self.words if isinstance(event, WordsHeard) else self.events).append(event)
            self.now += samples / RATE
        return np.concatenate(self.blocks[-blocks:])[:, 0] if blocks else None

    def drain(self):
        for _ in range(100_000):
            if self.playout.idle:
                return self
            self.hear()
        raise AssertionError("the playout never ends")

    @property
    def pcm(self):
        return np.concatenate(self.blocks)[:, 0]

    @property
    def stopped(self):
        return [event.heard for event in self.events if isinstance(event, PlaybackStopped)]


def ear(options=None, clock: EarClock | None = None, format=MONO):
    return Ear(Playout(format, options, clock))


def largest_step(samples):
    return int(np.abs(np.diff(samples.astype(int), prepend=0)).max())


# ------------------------------------------------------------------------------------------- what goes out


@pytest.mark.parametrize("sizes", [[480] * 20, [1, 3, 700, 7, 2, 5000, 1], [9600]])
def test_all_that_is_pushed_goes_out_once_and_in_order(sizes):
    """Frames of any size come out as one unbroken sound, sample for sample, and silence follows."""
    ramp = np.arange(1, sum(sizes) + 1)
    it = ear()
    for part in np.split(ramp, np.cumsum(sizes)[:-1]):
        it.playout.push(sound(part))
    it.playout.end(1)
    it.drain()
    assert (it.pcm[: len(ramp)] == ramp).all()
    assert not it.pcm[len(ramp) :].any()


def test_a_pull_is_as_long_as_asked():
    """A pull gives exactly the samples asked for, with or without sound, in each channel."""
    playout = Playout(AudioFormat(RATE, 2), BARE)
    playout.push(sound([[1, 2], [3, 4], [5, 6]], channels=2))
    pulled = [np.frombuffer(playout.pull(n, 0.0, 0), "<i2").reshape(-1, 2).tolist() for n in (0, 1, 4)]
    assert pulled == [[], [[1, 2]], [[3, 4], [5, 6], [0, 0], [0, 0]]]


def test_the_first_frame_goes_out_at_once():
    """A single frame plays in the very next pull although the target is 80 ms."""
    it = ear()
    it.hear(5)
    it.playout.push(level(20))
    assert (it.hear() == 1000).all()


def test_another_format_is_an_error_that_names_both():
    """A frame of another rate or width is refused with both formats in the text."""
    with pytest.raises(ValueError, match=r"plays 24000 Hz x1 .* 16000 Hz x1"):
        Playout(MONO).push(OutputAudioFrame(pcm=b"\0\0", sample_rate=16000))
    with pytest.raises(ValueError, match="24000 Hz x2"):
        Playout(MONO).push(OutputAudioFrame(pcm=b"\0\0\0\0", sample_rate=RATE, channels=2))
    with pytest.raises(ValueError, match="no audio format"):
        Playout(AudioFormat(0))
    with pytest.raises(ValueError, match="cannot pull -1"):
        Playout(MONO).pull(-1, 0.0, 0)


# ------------------------------------------------------------------------------------------- running dry


def test_after_an_underrun_it_fills_to_the_grown_target():
    """A gap in mid-utterance is an underrun: it plays on when 80 + 20 ms are queued, not before."""
    it = ear()
    it.playout.push(level(20))
    it.hear(3)
    assert it.playout.underruns == 0, "no more may come: it is not known yet to be an underrun"
    it.playout.push(level(20))
    assert (it.playout.underruns, it.playout.target_ms) == (1, 100)
    for _ in range(3):
        assert not it.hear().any()
        it.playout.push(level(20))
    assert not it.hear().any(), "80 ms queued of 100"
    it.playout.push(level(20))
    assert it.hear().any()


def test_the_wait_after_an_underrun_ends_with_the_utterance_or_the_target():
    """Less than the target plays as soon as it is known to be all, and in any case after the target's time."""
    it = ear()
    it.playout.push(level(20))
    it.hear(2)
    it.playout.push(level(20))
    assert not it.hear().any()
    it.playout.end(1)
    assert it.hear().any()
    slow = ear()
    slow.playout.push(level(20))
    slow.hear(2)
    slow.playout.push(level(20))
    assert [bool(slow.hear().any()) for _ in range(6)] == [False] * 5 + [True]


def test_the_end_of_an_utterance_is_no_underrun():
    """Silence behind the last sound counts for nothing, also when the end is told late or another utterance follows."""
    it = ear()
    it.playout.push(level(30))
    it.hear(4)
    it.playout.end(1)
    it.hear(4)
    it.playout.push(level(30, utterance=2))
    it.hear(4)
    it.playout.push(level(30, utterance=3))
    assert it.hear().any(), "the first frame of the next one goes out at once"
    assert (it.playout.underruns, it.playout.underrun_ratio, it.playout.target_ms) == (0, 0.0, 80)


def test_the_target_grows_to_its_bound_and_shrinks_on_a_lasting_surplus():
    """Underruns grow the target up to max_ms; each 5 s of sound with the queue above it take 10 ms off, down to min_ms."""
    it = ear(PlayoutOptions(max_ms=150))
    targets = []
    for _ in range(12):
        it.playout.push(level(40))
        it.hear(9)
        targets.append(it.playout.target_ms)
    assert targets[:4] == [80, 100, 120, 140]
    assert targets == sorted(targets)
    it.playout.push(level(60_000))
    it.hear(240)
    assert it.playout.target_ms == 150
    it.hear(250)
    assert it.playout.target_ms == 140
    it.hear(2500)
    assert it.playout.target_ms == 40


def test_a_pause_no_buffer_could_bridge_counts_but_does_not_grow_the_target():
    """A gap longer than max_ms is an underrun in the numbers and leaves the target as it was."""
    it = ear()
    it.playout.push(level(20))
    it.hear(1 + 30)
    it.playout.push(level(200))
    it.hear()
    assert (it.playout.underruns, it.playout.target_ms) == (1, 80)
    it.hear(9)
    assert it.playout.underrun_ratio == pytest.approx(600 / (600 + 220))


def test_it_rests_when_there_is_nothing_to_pull_for():
    """With nothing to say, while held, or a second after running dry, a pacing loop is told that it may rest."""
    it = ear()
    assert not it.playout.needs_pull
    it.playout.push(level(40))
    assert it.playout.needs_pull
    it.hear(3)
    assert it.playout.needs_pull, "the gap is still to be measured"
    it.hear(60)
    assert not it.playout.needs_pull
    it.playout.push(level(400))
    it.hear(5)
    it.playout.hold(it.now)
    assert it.playout.needs_pull, "the fade is to go out"
    it.hear(2)
    assert not it.playout.needs_pull
    it.playout.resume(it.now)
    assert it.playout.needs_pull
    it.playout.end()
    it.drain()
    assert not it.playout.needs_pull


def test_news_that_a_clear_brought_is_to_be_fetched():
    """An utterance that the ear finished between a pull and the clear is news: the pacing loop may not rest on it."""
    playout = Playout(MONO, BARE)
    playout.push(level(10))
    playout.end(1)
    playout.pull(BLOCK, 0.0, 0)
    playout.events()
    assert playout.clear(0.015) == ()
    assert playout.needs_pull
    assert playout.events() == [PlaybackStopped(heard=Heard(1, "", True), at=pytest.approx(0.01))]
    assert not playout.needs_pull


# ------------------------------------------------------------------------------------------- cutting


SINE = np.rint(32767 * np.sin(2 * np.pi * 220 * np.arange(RATE * 2) / RATE)).astype(int)
SINE_STEP = largest_step(SINE)


def test_no_cut_steps_further_than_the_sound_itself():
    """Clear, hold, resume and running dry, each at any phase of a full-scale sine, click no louder than the sine is steep.

    The sine (220 Hz at 24 kHz) steps 1887 at most. Largest steps seen: at a hold 1887, at a resume 1887, at a
    clear 705, at running dry 705; at a cut without any smoothing 32765.
    """
    worst = {}
    for offset in range(0, 480, 7):
        for act in ("clear", "hold", "dry"):
            it = ear()
            it.playout.push(sound(SINE[: 4800 + offset]))
            it.hear(1, 3 * BLOCK + offset)
            if act == "clear":
                it.playout.clear(it.now)
            elif act == "hold":
                it.playout.hold(it.now)
                it.hear(3)
                it.playout.resume(it.now)
            it.hear(20)
            worst[act] = max(worst.get(act, 0), largest_step(it.pcm))
    # A decay of 3 ms from full scale is at most 32767 * (pi / 2) / 73 = 705 steep, a fade of 8 ms 267.
    assert max(worst.values()) <= SINE_STEP + 3, worst


def test_a_second_hold_in_the_middle_of_the_fade_in_does_not_click():
    """Holding again while the sound is coming up joins both fades without a step."""
    it = ear()
    it.playout.push(sound(SINE))
    for samples in (700, 90, 50, 200, 120, 30):
        it.hear(1, samples)
        it.playout.hold(it.now)
        it.hear(1, samples)
        it.playout.resume(it.now)
    assert largest_step(it.pcm) <= SINE_STEP + 3


def test_a_hold_fades_within_one_frame_and_then_is_silent():
    """The pull after a hold fades in 8 ms; nothing follows however long it lasts."""
    it = ear()
    it.playout.push(level(1000))
    it.hear(5)
    it.playout.hold(it.now)
    faded = it.hear()
    assert faded[0] > 990
    assert (np.diff(faded.astype(int)) <= 0).all()
    assert not faded[192:].any()
    it.hear(100)
    assert not it.pcm[6 * BLOCK :].any()
    assert it.playout.held


def test_a_resume_says_the_cut_word_again_from_its_start():
    """After a hold in the middle of the second word, that word comes whole, and nothing twice but it."""
    it = ear(BARE)
    ramp = np.arange(1, 24001)
    words = [Word(w, i * 0.25, (i + 1) * 0.25) for i, w in enumerate(["one", "two", "three", "four"])]
    it.playout.push(sound(ramp, words=words))
    it.playout.end(1)
    it.hear(18)  # 360 ms: in "two"
    it.playout.hold(it.now)
    it.hear(7)
    it.playout.resume(it.now)
    it.drain()
    out = it.pcm[it.pcm != 0]
    assert (out == np.concatenate([ramp[:8640], ramp[6000:]])).all()
    assert it.stopped == [Heard(1, "one two three four", True)]


def test_a_resume_between_words_repeats_nothing():
    """A hold in the pause between two words goes on with the pause."""
    it = ear(BARE)
    ramp = np.arange(1, 12001)
    it.playout.push(sound(ramp, words=[Word("one", 0.0, 0.1), Word("two", 0.4, 0.5)]))
    it.playout.end(1)
    it.hear(10)
    it.playout.hold(it.now)
    it.playout.pull(10, it.now, 0)
    it.playout.resume(it.now)
    it.drain()
    assert (it.pcm[it.pcm != 0] == ramp).all()


def test_a_word_that_overlaps_the_next_utterance_is_not_said_again_from_there():
    """A word whose stated end lies beyond its utterance ends with it: a hold in the next one does not go back across."""
    it = ear(BARE)
    it.playout.push(level(100, value=1, words=[Word("long", 0.0, 0.9)]))
    it.playout.push(level(200, value=2, utterance=2, words=[Word("next", 0.1, 0.2)]))
    it.hear(7)
    it.playout.hold(it.now)
    it.hear()
    it.playout.resume(it.now)
    assert (it.hear(5) == 2).all()


def test_the_word_said_again_may_lie_in_frames_long_gone():
    """With 10 ms frames the start of a 600 ms word is still at hand at its end, and no more than the bound is kept."""
    for replay_ms, first in ((3000, 2400), (200, 14400 - 4800)):
        it = ear(PlayoutOptions(fade_ms=0, declick_ms=0, replay_ms=replay_ms))
        ramp = np.arange(1, 24001)
        for i in range(100):
            it.playout.push(sound(ramp[i * 240 : (i + 1) * 240], words=[Word("long", 0.0, 0.6)] if i == 10 else []))
        it.hear(30)
        it.playout.hold(it.now)
        it.hear()
        it.playout.resume(it.now)
        assert it.hear()[0] == ramp[first]


def test_a_resume_before_the_next_pull_changes_nothing():
    """A hold taken back before any block was pulled leaves the sound untouched."""
    it = ear()
    it.playout.push(level(200, words=[Word("one", 0.0, 0.2)]))
    it.hear(3)
    it.playout.hold(it.now)
    it.playout.resume(it.now)
    assert (it.hear(3) == 1000).all()


def test_what_is_pushed_during_a_hold_waits_whole():
    """An utterance that begins during a hold starts unfaded at the resume."""
    it = ear()
    it.playout.hold(it.now)
    it.hear(2)
    it.playout.push(level(40))
    it.hear(2)
    assert not it.pcm.any()
    it.playout.resume(it.now)
    assert (it.hear(2) == 1000).all()


def test_clear_is_silence_at_once():
    """After a clear not one sample of the old sound goes out: its last level decays for 3 ms, and that is all."""
    it = ear()
    it.playout.push(sound(np.tile([3000, -3000], 12000)))
    it.hear(3)
    it.playout.clear(it.now)
    tail = it.hear()
    assert (tail[:72] <= 0).all(), "the sound would swing; the decay of its last sample does not"
    assert not tail[72:].any()
    assert not it.hear(20).any()
    assert it.playout.idle


def test_clear_in_the_middle_of_a_fade_drops_the_fade():
    """A clear right after a hold does not even let the fade-out go on."""
    it = ear()
    it.playout.push(sound(np.tile([3000, -3000], 12000)))
    it.hear(1, 480)
    it.playout.hold(it.now)
    it.hear(1, 48)
    it.playout.clear(it.now)
    tail = it.hear()
    assert (tail[:72] <= 0).all()
    assert not tail[72:].any()


def test_clear_ends_a_hold_and_the_next_reply_is_whole():
    """What is pushed behind a clear goes out complete, at once behind the decay."""
    it = ear(BARE)
    it.playout.push(level(500))
    it.hear(5)
    it.playout.hold(it.now)
    it.playout.clear(it.now)
    it.epoch = 1
    it.playout.push(level(60, value=7, utterance=2, epoch=1))
    it.playout.end(2)
    it.drain()
    assert (it.pcm[5 * BLOCK :] == 7).sum() == 3 * BLOCK
    assert set(it.pcm) == {0, 7, 1000}


def test_stale_pieces_are_refused_without_any_clear():
    """The second guard: a pull or a push of a newer epoch throws out what is older and counts it."""
    it = ear(BARE)
    it.playout.push(level(100, words=[Word("old", 0.0, 0.1)]))
    it.hear(1)
    it.epoch = 1
    assert not it.hear().any()
    it.playout.push(level(100))
    assert not it.hear().any()
    it.playout.push(level(20, value=5, utterance=2, epoch=2))
    assert (it.hear() == 5).all()
    assert it.playout.refused == 2
    it.playout.end(2)
    it.drain()
    assert it.stopped == [Heard(1, "", False), Heard(2, "", True)]


def test_stale_pieces_refused_by_a_device_are_still_in_the_clear_that_follows():
    """A device's thread may pull with the new epoch a moment before the clear: the clear says what was heard all the same."""
    it = ear()
    it.playout.push(spoken(["one", "two"], ms=100))
    it.hear(7)
    it.epoch = 1
    it.hear(1)
    assert it.playout.clear(it.now) == (Heard(1, "one", False),)


def test_a_replay_cannot_bring_back_an_older_epoch():
    """The part of a word kept for a resume goes with its epoch."""
    it = ear(BARE)
    it.playout.push(level(100, words=[Word("old", 0.0, 0.5)]))
    it.hear(6)
    it.epoch = 1
    it.hear()
    it.playout.hold(it.now)
    it.hear()
    it.playout.resume(it.now)
    assert not it.hear(10).any()


def test_a_hold_behind_a_word_that_ends_after_its_sound_says_nothing_again():
    """A voice that states an end of its last word beyond the sound: when all was heard, a hold and a resume do nothing."""
    it = ear(BARE)
    it.playout.push(level(100, words=[Word("long", 0.0, 0.3)]))
    it.playout.end(1)
    it.drain()
    it.playout.hold(it.now)
    it.hear()
    it.playout.resume(it.now)
    assert not it.hear(20).any()
    assert it.stopped == [Heard(1, "long", True)]


def test_sound_that_sets_on_again_after_a_hold_in_a_gap_fades_in():
    """Held when the queue has just run empty, the rest comes up with a fade, and a new utterance comes whole."""
    it = ear()
    it.playout.push(level(20))
    it.hear(1)
    it.playout.hold(it.now)
    it.hear(3)
    it.playout.push(level(200))
    it.playout.resume(it.now)
    it.hear(9)
    again = it.pcm[3 * BLOCK :]
    assert 0 < again[np.flatnonzero(again)[0]] < 100
    other = ear()
    other.playout.push(level(20))
    other.hear(1)
    other.playout.hold(other.now)
    other.hear(3)
    other.playout.push(level(200, utterance=2))
    other.playout.resume(other.now)
    assert (other.hear(3) == 1000).all()


# ------------------------------------------------------------------------------------------- what was heard


def test_words_are_reported_once_as_they_are_heard():
    """Each word is told when the ear has had 50 ms of it, those of one look together, a word said again not again."""
    it = ear()
    it.playout.push(spoken(["one", "two", "three", "four"], ms=100))
    it.playout.push(spoken(["", "five"], ms=10))
    it.playout.end(1)
    it.hear(8)
    assert [(w.text, w.at) for w in it.words] == [("one", pytest.approx(0.05))]
    it.playout.hold(it.now)
    it.hear(3)
    assert [w.text for w in it.words] == ["one", "two"], "the rest of the block before the hold was heard"
    it.playout.resume(it.now)
    it.hear(1, 6000)
    it.drain()
    assert [w.text for w in it.words] == ["one", "two", "three four", "five"]
    assert it.stopped == [Heard(1, "one two three four five", True)]


def test_words_stand_between_their_start_and_their_stop():
    """Start, words, stop; and so for the next utterance, also when all is found out in one look."""
    playout = Playout(MONO, BARE)
    for number in (1, 2):
        playout.push(spoken(["a", "b"], ms=100, utterance=number))
        playout.end(number)
    playout.pull(9600, 0.0, 0)
    playout.look(1.0)
    told = [(type(e).__name__, e.heard.utterance if isinstance(e, PlaybackStopped) else e.utterance) for e in playout.events()]
    assert told == [(kind, n) for n in (1, 2) for kind in ("PlaybackStarted", "WordsHeard", "PlaybackStopped")]


def test_an_utterance_starts_and_stops_once_with_all_its_words():
    """Two utterances end to end: each is started when its first sample sounds and stopped when its last has."""
    it = ear()
    it.playout.push(spoken(["Good", "morning,"], ms=105))
    it.playout.end(1)
    it.playout.push(spoken(["Sir."], ms=100, utterance=2))
    it.playout.end(2)
    it.drain()
    assert it.events == [
        PlaybackStarted(utterance=1, at=0.0),
        PlaybackStopped(heard=Heard(1, "Good morning,", True), at=pytest.approx(0.21)),
        PlaybackStarted(utterance=2, at=pytest.approx(0.21)),
        PlaybackStopped(heard=Heard(2, "Sir.", True), at=pytest.approx(0.31)),
    ]


def test_a_gap_makes_no_second_start_and_zeros_no_new_one():
    """600 ms without sound in the middle, and sound of zeros at the end, stay within one start and one stop."""
    it = ear()
    it.playout.push(level(100))
    it.hear(35)
    it.playout.push(level(100))
    it.playout.push(level(2000, value=0))
    it.playout.end(1)
    it.drain()
    assert [type(e) for e in it.events] == [PlaybackStarted, PlaybackStopped]


def test_a_number_may_come_again():
    """Sayings that all carry utterance 0 are told apart by their ends."""
    it = ear()
    for text in ("one", "two"):
        it.playout.push(spoken([text], utterance=0))
        it.playout.end(0)
        it.playout.end(0)
    it.drain()
    assert it.stopped == [Heard(0, "one", True), Heard(0, "two", True)]


def test_an_utterance_without_sound_stops_in_its_turn():
    """An end without any sound is reported as complete, after what is before it, and never started."""
    it = ear()
    it.playout.push(spoken(["one"]))
    it.playout.end(1)
    it.playout.end(2)
    it.drain()
    assert it.stopped == [Heard(1, "one", True), Heard(2, "", True)]
    assert len(it.events) == 3
    it.playout.end(3)
    assert it.playout.needs_pull
    it.drain()
    assert it.stopped[-1] == Heard(3, "", True)


@pytest.mark.parametrize(("heard_ms", "text"), [(0, ""), (40, ""), (60, "one"), (240, "one"), (260, "one two"), (600, "one two three")])
def test_a_word_is_heard_when_the_ear_has_had_50_ms_of_it(heard_ms, text):
    """Cut at any time, the text is that of the words that began 50 ms before the ear."""
    it = ear()
    it.playout.push(spoken(["one", "two", "three", "four"]))
    it.hear(heard_ms // 20)
    assert it.playout.clear(it.now) == (Heard(1, text, False),)
    it.drain()
    assert it.stopped == []


def test_the_ear_is_the_latency_behind_the_pull():
    """With 100 ms of device latency the same pulls have been heard 100 ms less."""
    it = ear(clock=DelayClock(RATE, 0.1))
    it.playout.push(spoken(["one", "two"]))
    it.playout.end(1)
    it.hear(14)
    assert it.events == [PlaybackStarted(utterance=1, at=pytest.approx(0.1))]
    assert it.playout.clear(it.now) == (Heard(1, "one", False),)
    it.playout.push(spoken(["three"], utterance=2))
    it.playout.end(2)
    it.drain()
    assert it.stopped == [Heard(2, "three", True)]
    assert it.events[-1].at == pytest.approx(0.28 + 0.003 + 0.2 + 0.1)  # behind 3 ms of decay


def test_a_latency_that_changes_never_takes_back_what_was_heard():
    """A device that reports a longer latency later does not make heard words unheard."""
    clock = DelayClock(RATE)
    it = ear(clock=clock)
    it.playout.push(spoken(["one", "two", "three"]))
    it.hear(14)
    clock.latency_s = 5.0
    assert it.playout.clear(it.now) == (Heard(1, "one two", False),)


def test_estimates_say_so_unless_all_was_heard():
    """Words placed by estimate make a cut an estimate; the text of the whole is certain."""
    it = ear()
    it.playout.push(spoken(["one", "two"], estimated=True))
    it.playout.end(1)
    it.drain()
    it.playout.push(spoken(["one", "two"], estimated=True))
    it.hear(10)
    assert it.stopped == [Heard(1, "one two", True, estimated=False)]
    assert it.playout.clear(it.now) == (Heard(1, "one", False, estimated=True),)


def test_a_guessed_ear_says_so():
    """Where the latency is a guess, so is the end."""
    it = ear(clock=DelayClock(RATE, 0.05, exact=False))
    it.playout.push(spoken(["one"]))
    it.playout.end(1)
    it.drain()
    assert it.stopped == [Heard(1, "one", True, estimated=True)]


def test_all_at_once_has_been_heard():
    """A playout into a file hears what it pulls."""
    it = ear(clock=InstantClock())
    it.playout.push(spoken(["one", "two"]))
    it.playout.end(1)
    it.hear(1, 9600)
    assert it.stopped == [Heard(1, "one two", True)]


def test_the_words_of_a_held_stretch_count_once():
    """A word that is cut, said again and finished is one word."""
    it = ear()
    it.playout.push(spoken(["one", "two", "three"]))
    it.playout.end(1)
    for _ in range(3):
        it.hear(14)
        it.playout.hold(it.now)
        it.hear(3)
        it.playout.resume(it.now)
    it.drain()
    assert it.stopped == [Heard(1, "one two three", True)]
    assert [type(e) for e in it.events] == [PlaybackStarted, PlaybackStopped]


def test_a_clear_lists_every_utterance_in_hand():
    """Said, being said, waiting: the first is an event, the others are in the clear, oldest first."""
    it = ear()
    for number in (1, 2, 3):
        it.playout.push(spoken(["a", "b"], ms=100, utterance=number))
        it.playout.end(number)
    it.hear(16)
    assert it.playout.clear(it.now) == (Heard(2, "a", False), Heard(3, "", False))
    assert it.stopped == [Heard(1, "a b", True)]
    assert it.playout.clear(it.now) == ()


class TestReports:
    """The ear of a far end that says where it is."""

    def far(self):
        clock = ReportClock(RATE, latency_s=0.2)
        it = ear(clock=clock)
        it.playout.push(spoken(["one", "two", "three", "four"]))
        return clock, it

    def test_before_any_report_it_is_an_estimate(self):
        """Without a report the latency decides and the result says so."""
        _, it = self.far()
        it.hear(15)
        assert it.playout.clear(it.now) == (Heard(1, "one", False, estimated=True),)

    def test_a_report_is_carried_on_at_the_sample_rate(self):
        """100 ms after a report of 200 ms the ear is at 300 ms, exactly."""
        clock, it = self.far()
        it.hear(20)
        assert clock.report(4800, it.now)
        it.hear(5)
        assert it.playout.clear(it.now) == (Heard(1, "one two", False),)

    def test_an_estimate_that_ran_ahead_stays_an_estimate(self):
        """A report behind what was estimated before does not make it a certainty, until later ones have come up to it."""
        clock, it = self.far()
        it.hear(40)
        clock.report(2400, it.now)
        it.hear()
        it.playout.end(1)
        assert it.stopped == []
        clock.report(40 * BLOCK - 10, it.now)
        it.hear(2)
        assert it.stopped == [Heard(1, "one two three four", True)]
        behind, it = self.far()
        it.hear(40)
        behind.report(2400, it.now)
        assert it.playout.clear(it.now) == (Heard(1, "one two three", False, estimated=True),)

    def test_an_old_report_makes_an_estimate(self):
        """A report older than ``fresh_s`` is no proof any more."""
        clock, it = self.far()
        clock.fresh_s = 0.5
        clock.report(1, it.now)
        it.hear(60)
        (heard,) = it.playout.clear(it.now)
        assert heard == Heard(1, "one two three four", False, estimated=True)

    def test_the_ear_is_never_ahead_of_what_left(self):
        """A report beyond what was sent claims no more than what was sent."""
        clock, it = self.far()
        it.hear(13)
        clock.report(90_000, it.now)
        assert it.playout.clear(it.now) == (Heard(1, "one two", False),)

    def test_marks_returned_by_a_clear_prove_nothing(self):
        """After a clear the far end returns all its marks at once: they are ignored."""
        clock, it = self.far()
        it.hear(40)
        it.playout.clear(it.now)
        it.epoch = 1
        it.playout.push(spoken(["five"], utterance=2, epoch=1))
        it.playout.end(2)
        assert not clock.report(40 * BLOCK, it.now)
        it.hear(5)
        assert it.events[1:] == []
        assert clock.report(40 * BLOCK + 100, it.now)
        it.hear()
        assert it.events[-1].utterance == 2


# ------------------------------------------------------------------------------------------- any sequence


pushes = st.tuples(st.just("push"), st.integers(0, 1500), st.integers(0, 3), st.booleans())
acts = st.one_of(
    pushes,
    st.tuples(st.just("pull"), st.integers(0, 1200)),
    st.tuples(st.sampled_from(["end", "hold", "resume", "clear", "interrupt", "epoch"])),
)


@dataclass
class Model:
    """Drives a playout with numbered samples and knows what may come out."""

    options: PlayoutOptions
    latency_s: float
    made: int = 0
    utterance: int = 1
    open: bool = False
    words: dict[int, list[str]] = field(default_factory=dict)
    starts: list[int] = field(default_factory=list)
    allowed_from: int = 0
    may_go_back: bool = False
    last_out: int = 0
    reports: list[Heard] = field(default_factory=list)

    def __post_init__(self):
        self.ear = ear(self.options, DelayClock(RATE, self.latency_s))
        self.playout = self.ear.playout

    def push(self, count, words, starts_new):
        if starts_new and self.open:
            self.end()
        if not self.open:
            self.utterance += 1
        self.open = True
        # Values run 1..32767 and then begin again; a run makes fewer than 32767 samples between two clears.
        values = (np.arange(self.made, self.made + count) % 32767) + 1
        step = count / max(words, 1)
        placed = []
        for i in range(words):
            text = f"w{len(self.words.setdefault(self.utterance, []))}"
            self.words[self.utterance].append(text)
            self.starts.append(self.made + round(i * step))
            placed.append(Word(text, round(i * step) / RATE, round((i + 1) * step) / RATE))
        self.words.setdefault(self.utterance, [])
        self.playout.push(sound(values, self.utterance, placed, self.ear.epoch))
        self.made += count

    def end(self):
        if not self.open:
            self.utterance += 1  # one without sound
        self.playout.end(self.utterance)
        self.open = False

    def pull(self, count):
        out = self.ear.hear(1, count)
        for value in out[out != 0]:
            index = next(i for i in range(self.made - 1 - (self.made - value) % 32767, -1, -32767)) if self.made else -1
            assert index >= self.allowed_from, "a sample from before the clear"
            if index != self.last_out and self.may_go_back:
                assert index < self.last_out, "something was left out"
                assert not any(index < start < self.last_out for start in self.starts), "more than the cut word is said again"
                self.may_go_back = False
            else:
                assert index == self.last_out, "not in order"
            self.last_out = index + 1

    def stop(self):
        self.reports += self.playout.clear(self.ear.now)
        self.allowed_from = self.last_out = self.made
        self.open = False
        self.may_go_back = False

    def do(self, act, *args):
        if act == "push":
            self.push(*args)
        elif act == "pull":
            self.pull(*args)
        elif act == "end":
            self.end()
        elif act == "hold":
            self.playout.hold(self.ear.now)
        elif act == "resume":
            self.playout.resume(self.ear.now)
            self.may_go_back = True
        elif act == "clear":
            self.stop()
        elif act == "interrupt":
            self.ear.epoch += 1
            self.stop()
        else:  # an interrupt of which only the epoch has arrived; the clear follows a pull later
            self.ear.epoch += 1
            self.allowed_from = self.made
            self.pull(100)
            self.stop()


@settings(max_examples=300, deadline=None)
@given(st.lists(acts, max_size=25), st.sampled_from([0.0, 0.02, 0.13]))
def test_any_sequence_keeps_order_epoch_and_words(sequence, latency_s):
    """Whatever is pushed, pulled, held, resumed and cleared: order is kept, nothing stale sounds, heard text is a prefix."""
    model = Model(BARE, latency_s)
    for act in sequence:
        model.do(*act)
    model.playout.resume(model.ear.now)
    model.may_go_back = True
    model.playout.end()
    while not model.playout.idle:
        model.pull(BLOCK)
    model.reports += model.ear.stopped
    assert model.playout.queued_s == 0
    for heard in model.reports:
        words = model.words.get(heard.utterance, [])
        assert heard.text.split() == words[: len(heard.text.split())]
        if heard.complete:
            assert heard.text.split() == words
    started = [e.utterance for e in model.ear.events if isinstance(e, PlaybackStarted)]
    assert len(started) == len(set(started))
    if not any(act[0] in ("clear", "interrupt", "epoch") for act in sequence):
        assert model.last_out == model.made


@settings(max_examples=200, deadline=None)
@given(st.lists(acts, max_size=25))
def test_any_sequence_of_a_loud_sine_is_smooth(sequence):
    """Under the same acts a full-scale sine never steps further than the sine does, but for its own natural starts and ends."""
    it = ear()
    phase = 0
    for act, *args in sequence:
        if act == "push":
            it.playout.push(sound(SINE[phase : phase + args[0]], epoch=it.epoch))
            phase += args[0]
        elif act == "pull":
            it.hear(1, args[0])
        elif act == "hold":
            it.playout.hold(it.now)
        elif act == "resume":
            it.playout.resume(it.now)
        elif act in ("clear", "interrupt", "epoch"):
            phase = 0
            if act != "clear":
                it.epoch += 1
            if act != "epoch":
                it.playout.clear(it.now)
    it.hear(3)
    assert largest_step(it.pcm) <= SINE_STEP + 3


def test_a_long_call_keeps_nothing():
    """Two hours of speech in 10-word utterances, every third one cut, leave no more behind than two minutes do."""
    it = ear()
    frame = spoken([f"word{i}" for i in range(10)], ms=100)

    def talk(utterances):
        for i in range(utterances):
            it.playout.push(frame)
            it.playout.end(1)
            while it.playout.needs_pull and not (i % 3 == 0 and it.playout.queued_s < 0.5):
                it.hear()
            it.playout.clear(it.now)
            it.blocks.clear()
            it.events.clear()
            it.words.clear()

    talk(120)
    tracemalloc.start()
    try:
        talk(600)
        grown = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert grown < 100_000


def test_the_lag_of_the_ear_bounds_what_is_kept():
    """In one endless utterance of endless words, played-out sound and its labels are let go."""
    it = ear(clock=DelayClock(RATE, 0.05))
    word = [Word("a", 0.0, 0.1)]

    def talk(frames):
        for _ in range(frames):
            it.playout.push(sound(np.full(2400, 100), words=word))
            it.hear(5)
            it.blocks.clear()
            it.words.clear()

    talk(50)
    tracemalloc.start()
    try:
        talk(1000)
        grown = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert grown < 60_000, "the text of the utterance grows, 100 s of sound would be 4.8 MB"
