"""What was heard, against an oracle that knows nothing of the ledger: the labelled samples that came to a modelled ear.

At 8192 Hz every time is an exact float, so that the two are compared to the sample.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from voiceflow.frames import AudioFormat, Heard, OutputAudioFrame, PlaybackStarted, PlaybackStopped, Word, WordsHeard
from voiceflow.playout import DelayClock, MarkClock, Pacer, Playout, PlayoutOptions

RATE = 8192
HEARD = round(0.05 * RATE)
BARE = PlayoutOptions(fade_ms=0, declick_ms=0)


@dataclass
class Call:
    """A playout, its pacer and the far end, in samples of time. Sample n of all that was made has the value n + 1."""

    block: int
    latency: int
    ahead: int = 0
    recalls: bool = False
    clock: DelayClock | MarkClock | None = None
    marks_every: int = 0
    now: int = 0
    made: int = 0
    utterance: int = 0
    words: list[tuple[int, str, int]] = field(default_factory=list)
    """(first sample, text, utterance)"""
    ends: dict[int, int | None] = field(default_factory=dict)
    """Utterance -> one past its last sample, when all of it was made."""
    far: list[tuple[int, np.ndarray]] = field(default_factory=list)
    """(when it plays, less the latency; samples)"""
    on_the_way: list[tuple[int, str]] = field(default_factory=list)
    cleared: int = 0
    events: list[PlaybackStarted | WordsHeard | PlaybackStopped] = field(default_factory=list)

    def __post_init__(self):
        self.clock = self.clock or DelayClock(RATE, self.latency / RATE)
        self.playout = Playout(AudioFormat(RATE), BARE, self.clock, recalls=self.recalls)
        self.pacer = Pacer(RATE, self.block / RATE, self.ahead / RATE)

    # -------------------------------------------------------------------------- what is done

    def push(self, count, spoken, another):
        if another or self.ends.get(self.utterance, 0) is not None:
            self.end()
            self.utterance += 1
        self.ends[self.utterance] = None
        placed = []
        for i in range(spoken):
            start = round(i * count / spoken)
            self.words.append((self.made + start, f"w{len(self.words)}", self.utterance))
            placed.append(Word(self.words[-1][1], start / RATE, round((i + 1) * count / spoken) / RATE))
        samples = np.arange(self.made + 1, self.made + count + 1).astype("<i2")
        self.playout.push(OutputAudioFrame(samples.tobytes(), RATE, words=tuple(placed), utterance=self.utterance, epoch=0))
        self.made += count

    def end(self):
        if self.utterance and self.ends.get(self.utterance) is None:
            self.ends[self.utterance] = self.made
            self.playout.end(self.utterance)

    def hold(self):
        if self.playout.hold(self.now / RATE):
            self.clear()

    def lose(self):
        """The way to the far end is down: what is on it never comes there."""
        if self.playout.hold(self.now / RATE, lost=True):
            if self.recalls:
                self.clear()
            else:
                self._vanish()

    def resume(self):
        self.playout.resume(self.now / RATE)

    def clear(self):
        """At the far end all is gone that the ear has not had."""
        self._vanish()
        self.pacer.cleared(self.now / RATE)
        self.on_the_way.clear()

    def _vanish(self):
        had = [(start, s[: max(self.now - self.latency - start, 0)]) for start, s in self.far]
        self.far = [(start, s) for start, s in had if len(s)]

    def wait(self, samples):
        until = self.now + samples
        begun = False
        while True:
            self._marks()
            if self.playout.has_sound and not begun:
                # A stretch goes on while there is sound; after a pause it begins anew.
                begun = True
                self.pacer.begin(self.now / RATE) if self.pacer.free_at <= self.now / RATE else None
            at = round(self.pacer.leaves_at(ready=self.playout.ready(self.pacer.samples)) * RATE)
            at = max(at, self.now)
            if not self.playout.has_sound:
                begun = False
                at = until + 1
            nearest = min([at, *(when for when, _ in self.on_the_way)])
            if nearest > until:
                break
            self.now = max(nearest, self.now)
            if nearest == at:
                self._leave()
        self.now = until
        self.playout.look(self.now / RATE)
        self.events += self.playout.events()

    def _leave(self):
        due, count = self.pacer.due, self.pacer.samples
        self.pacer.leave()
        pcm = self.playout.pull(count, self.now / RATE, 0, due)
        self.events += self.playout.events()
        free = self.far[-1][0] + len(self.far[-1][1]) if self.far else 0
        self.far.append((max(self.now, free), np.frombuffer(pcm, "<i2")))
        if self.marks_every and isinstance(self.clock, MarkClock):
            ledger = self.playout.ledger
            if ledger.left - self.clock.marked >= self.marks_every or not self.playout.queued_s:
                self.on_the_way.append((self.far[-1][0] + count + self.latency, self.clock.mark(ledger.left)))

    def _marks(self):
        for when, name in [m for m in self.on_the_way if m[0] <= self.now]:
            self.on_the_way.remove((when, name))
            self.clock.returned(name, self.now / RATE)

    # -------------------------------------------------------------------------- the oracle

    def ear(self):
        """The samples that the ear has had, in order, silence left out."""
        had = [s[: max(self.now - self.latency - start, 0)] for start, s in self.far]
        out = np.concatenate([np.zeros(0, int), *had]).astype(int)
        return out[out > 0]

    def truly_heard(self):
        """The words of which the ear has had 50 ms; all of an utterance that it has had to its end."""
        had = int(self.ear().max(initial=0))
        return [
            text
            for start, text, number in self.words
            if had - start >= HEARD or (self.ends[number] is not None and had >= self.ends[number])
        ]

    def cut(self):
        """Cut it. Returns (the words the playout says were heard, the Heards of the cut utterances)."""
        heard = self.playout.clear(self.now / RATE)
        self.events += self.playout.events()
        stopped = [e.heard for e in self.events if isinstance(e, PlaybackStopped)]
        return [w for h in [*stopped, *heard] for w in h.text.split()], heard

    def check_order(self):
        """Nothing is left out; where something is said again it is no more than the word that was cut."""
        next_one, starts = 1, {start + 1 for start, _, _ in self.words}
        for value in self.ear():
            assert value <= next_one, "something was left out"
            if value < next_one:
                assert not any(value < start < next_one for start in starts), "more than the cut word is said again"
            next_one = value + 1


acts = st.one_of(
    st.tuples(st.just("push"), st.integers(1, 1500), st.integers(0, 3), st.booleans()),
    st.tuples(st.just("wait"), st.integers(1, 1500)),
    st.tuples(st.sampled_from(["hold", "lose", "resume", "end"])),
)
blocks = st.integers(30, 400)


def run(call, sequence, cut_after):
    for act, *args in sequence:
        getattr(call, act)(*args)
    call.wait(cut_after)


@settings(max_examples=400, deadline=None)
@given(st.lists(acts, max_size=20), blocks, st.integers(0, 2000), st.integers(0, 4000), st.booleans(), st.integers(0, 3000))
def test_with_timings_no_word_is_wrong_at_any_cut(sequence, block, latency, ahead, recalls, cut_after):
    """Random words, frames, blocks, latencies, leads and holds, cut anywhere: the words are exactly those that the ear had."""
    call = Call(block, latency, ahead if recalls else 0, recalls)
    run(call, sequence, cut_after)
    truth = call.truly_heard()
    call.check_order()
    said, heard = call.cut()
    assert said == truth
    assert [w for e in call.events if isinstance(e, WordsHeard) for w in e.text.split()] == truth, "each word once, as it was heard"
    assert not any(h.estimated for h in heard)
    check_reports(call, heard)


def check_reports(call, heard):
    """Each utterance starts before its words, and stops behind them or is cut, once."""
    state: dict[int, str] = {}
    for event in call.events:
        if isinstance(event, PlaybackStarted):
            assert event.utterance not in state
            state[event.utterance] = "started"
        elif isinstance(event, WordsHeard):
            assert state[event.utterance] == "started"
        else:
            assert state.get(event.heard.utterance) == "started"
            state[event.heard.utterance] = "stopped"
    for h in heard:
        assert state.get(h.utterance) != "stopped"


@settings(max_examples=200, deadline=None)
@given(st.lists(acts, max_size=20), blocks, st.integers(0, 4000), st.booleans())
def test_all_is_heard_in_the_end(sequence, block, ahead, recalls):
    """Whatever was held and resumed, the ear gets every sample, and each utterance starts once and stops once, complete."""
    call = Call(block, 700, ahead if recalls else 0, recalls)
    run(call, sequence, 0)
    call.resume()
    call.end()
    for _ in range(60):
        call.wait(1000)
    assert call.playout.idle
    call.check_order()
    assert set(call.ear()) == set(range(1, call.made + 1))
    started = [e.utterance for e in call.events if isinstance(e, PlaybackStarted)]
    stopped = [e.heard for e in call.events if isinstance(e, PlaybackStopped)]
    assert started == [h.utterance for h in stopped] == list(range(1, call.utterance + 1))
    assert [w for h in stopped for w in h.text.split()] == [text for _, text, _ in call.words]
    assert all(h.complete for h in stopped)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.integers(1640, 4000), min_size=1, max_size=6), blocks, st.integers(0, 2400), st.integers(-819, 819), st.integers(0, 12_000)
)
def test_with_an_estimate_at_most_one_word_is_wrong_and_it_says_so(lengths, block, latency, error, cut_at):
    """Where the latency is a guess, up to 100 ms off, at most one word of 200 ms or more is wrong, and the cut is marked."""
    call = Call(block, latency, clock=DelayClock(RATE, max(latency + error, 0) / RATE, exact=False))
    for i, length in enumerate(lengths):
        call.push(length, 1, another=i == 0)
    call.wait(cut_at)
    truth = call.truly_heard()
    said, heard = call.cut()
    assert abs(len(said) - len(truth)) <= 1
    assert said == [text for _, text, _ in call.words[: len(said)]]
    assert [h.estimated for h in heard] == [True]


@settings(max_examples=300, deadline=None)
@given(
    st.lists(acts, max_size=16),
    blocks,
    st.integers(0, 3000),
    st.integers(0, 3000),
    st.integers(0, 3000),
    st.integers(400, 2000),
    st.integers(0, 6000),
)
def test_what_marks_prove_was_heard(sequence, block, latency, guess, ahead, every, cut_after):
    """Where only marks tell how far the far end is, what is not called an estimate was heard, to the word, and order is kept."""
    clock = MarkClock(RATE, latency_s=guess / RATE, fresh_s=1.0)
    call = Call(block, latency, ahead, recalls=True, clock=clock, marks_every=every)
    run(call, sequence, cut_after)
    truth = call.truly_heard()
    said, heard = call.cut()
    stopped = [e.heard for e in call.events if isinstance(e, PlaybackStopped)]
    sure = [h for h in [*stopped, *heard] if not h.estimated]
    for h in sure:
        words = [text for _, text, number in call.words if number == h.utterance and text in truth]
        assert h.text.split() == words[: len(h.text.split())]
    if len(sure) == len(stopped) + len(heard):
        assert said == truth[: len(said)]
        # What is not proved yet lies behind the last mark that came back, or the one that was due.
        unproved = [start for start, text, _ in call.words if text in truth[len(said) :]]
        assert not unproved or max(unproved) - min(unproved) <= every + 2 * block


def test_the_oracle_sees_a_word_too_many():
    """The oracle can fail: a clock that claims 100 ms too much is found out."""
    call = Call(160, 1000, clock=DelayClock(RATE, 180 / RATE))
    call.push(4000, 4, another=True)
    call.wait(2300)
    truth = call.truly_heard()
    assert call.cut()[0] != truth


def test_the_example_in_numbers():
    """Four words of 250 ms, 0.5 s ahead, a far end 100 ms behind, cut at 0.6 s: 500 ms were heard, which are two words."""
    call = Call(164, 819, ahead=4096, recalls=True)
    call.push(8192, 4, another=True)
    call.wait(4915)
    assert call.playout.unheard(call.now / RATE)
    assert call.cut() == (["w0", "w1"], (Heard(1, "w0 w1", False),))
