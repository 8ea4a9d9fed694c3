"""A speaker in front of a far end that buffers: what leaves when, who is told to clear, what marks prove, when it ends."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator

import numpy as np
import pytest

from voiceflow import (
    AudioFormat,
    Heard,
    OutputAudioFrame,
    PlaybackStarted,
    PlaybackStopped,
    Processor,
    Session,
    UtteranceEnded,
    Word,
    WordsHeard,
    replace,
)
from voiceflow.playout import MarkClock, PlayoutOptions, ReportClock
from voiceflow.testing import check_processor, interrupt_everywhere, no_leaks, run_virtual
from voiceflow.transports.memory import MemoryOut
from voiceflow.transports.speaker import Speaker, SpeakerOptions

from .far_end import FarEnd

RATE = 8000
BLOCK = 160
BARE = PlayoutOptions(fade_ms=0, declick_ms=0)


def spoken(words, *, first=0, utterance=1, ms=250):
    """``words`` words of 250 ms. Sample n of all has the value n + 1, for ``first`` and those behind it."""
    count = ms * RATE // 1000
    samples = np.arange(first * count + 1, (first + words) * count + 1).astype("<i2")
    placed = tuple(Word(f"w{first + i}", i * ms / 1000, (i + 1) * ms / 1000) for i in range(words))
    return OutputAudioFrame(pcm=samples.tobytes(), sample_rate=RATE, utterance=utterance, words=placed)


class Voice(Processor):
    """Yields a script of frames, pauses (seconds) and calls of the session, and keeps the reports that come up."""

    makes = AudioFormat(RATE)

    def __init__(self, *script):
        self.script = script
        self.reports: list[PlaybackStarted | WordsHeard | PlaybackStopped] = []

    def process(self, frame: PlaybackStarted | WordsHeard | PlaybackStopped) -> None:
        self.reports.append(frame)

    async def run(self) -> AsyncIterator[OutputAudioFrame | UtteranceEnded]:
        for item in self.script:
            if isinstance(item, int | float):
                await asyncio.sleep(item)
            elif callable(item):
                item(self.session)
            else:
                yield replace(item, epoch=self.session.epoch)

    @property
    def words(self):
        return [w for r in self.reports if isinstance(r, WordsHeard) for w in r.text.split()]

    @property
    def stopped(self):
        return [r.heard for r in self.reports if isinstance(r, PlaybackStopped)]


def call(*script, ahead_s=0.5, marks=True, meanwhile=None, clock=None, latency_known=True, **far):
    """Run the script to the end. Returns the voice, the far end, and when the session was over."""
    end = FarEnd(RATE, **far)
    voice = Voice(*script)
    options = SpeakerOptions(ahead_s=ahead_s, latency_s=far.get("way_s", 0.0), latency_known=latency_known, playout=BARE)
    speaker = end.speaker = Speaker(end.play, AudioFormat(RATE), options, clear=end.clear, mark=end.mark if marks else None, clock=clock)

    async def main():
        session = Session(voice >> speaker)
        async with no_leaks(threads=False, descriptors=False):
            await asyncio.gather(session.run(), *([meanwhile(session, end)] if meanwhile else []))
        return asyncio.get_running_loop().time()

    return voice, end, run_virtual(main())


ENDED = UtteranceEnded(utterance=1)


# ----------------------------------------------------------------------------------------- when sound leaves


@pytest.mark.parametrize("ahead_s", [0.0, 0.02, 0.3, 1.0])
def test_at_any_time_no_more_than_the_lead_is_out(ahead_s):
    """Of three seconds made in one burst, at any time ``ahead_s`` more than real time has left, exactly, and never more (B45)."""
    voice, far, end = call(0.5, spoken(12), ENDED, ahead_s=ahead_s, marks=False)
    ahead, total = [], 0
    for at, samples in far.sent:
        total += len(samples)
        ahead.append(total / RATE - (at - 0.5))
    assert max(ahead) == pytest.approx(max(ahead_s, 0.02))
    assert total == 3 * RATE
    assert {len(samples) for _, samples in far.sent} == {BLOCK}
    assert voice.reports[-1].at == pytest.approx(3.5)
    assert end == pytest.approx(3.5)
    assert (far.heard() == np.arange(1, 3 * RATE + 1)).all()


def test_what_is_made_late_bridges_as_far_as_the_lead():
    """A voice that is back before the far end has run dry is not noticed; when it comes later, silence has left in time, not before."""
    _, far, _ = call(spoken(4), 0.9, spoken(4, first=4), ENDED, ahead_s=0.5)
    assert far.heard().all(), "the first second was made at 0, the next at 0.9"
    _, far, _ = call(spoken(4), 1.1, spoken(4, first=4), ENDED, ahead_s=0.5)
    heard = far.heard_at()
    gaps = [(a, b) for (a, _), (b, _) in itertools.pairwise(heard) if b - a > 0.001]
    assert gaps == [(pytest.approx(1.0, abs=0.001), pytest.approx(1.12, abs=0.001))], "it sounds with the next block"


def test_the_next_utterance_follows_without_a_gap():
    """What is said while the far end still plays follows on at once, and is not sent twice as far ahead."""
    _, far, _ = call(spoken(4), ENDED, 0.8, spoken(4, first=4, utterance=2), UtteranceEnded(utterance=2))
    assert (far.heard() == np.arange(1, 2 * RATE + 1)).all()
    assert max(sum(len(s) for at2, s in far.sent if at2 <= at) / RATE - at for at, _ in far.sent) == pytest.approx(0.5)


def test_nothing_leaves_while_only_the_ear_is_behind():
    """At a far end that is 1.5 s behind no silence is sent after the last sound, and the end is still waited for."""
    _, far, end = call(spoken(4), ENDED, own_s=1.5)
    assert sum(len(s) for _, s in far.sent) == RATE
    assert end == pytest.approx(2.5, abs=0.03)


@pytest.mark.parametrize("ahead_s", [0.0, 0.3])
def test_b35_every_block_is_whole_and_every_utterance_starts_and_stops_once(ahead_s):
    """Utterances of 10, 39, 41 and 1230 ms, one with 600 ms of nothing in it, one with 2 s of zeros: whole blocks, one pair each."""
    script = []
    for number, ms in enumerate((10, 39, 41, 1230), 1):
        script += [spoken(1, utterance=number, ms=ms), UtteranceEnded(utterance=number), 2.0]
    script += [spoken(1, utterance=5), 0.85, spoken(1, first=1, utterance=5), UtteranceEnded(utterance=5), 2.0]
    zeros = OutputAudioFrame(pcm=bytes(4 * RATE), sample_rate=RATE, utterance=6)
    script += [spoken(1, utterance=6), zeros, UtteranceEnded(utterance=6)]
    voice, far, _ = call(*script, ahead_s=ahead_s)
    assert {len(samples) for _, samples in far.sent} == {BLOCK}
    pairs = [type(r).__name__ for r in voice.reports if not isinstance(r, WordsHeard)]
    assert pairs == ["PlaybackStarted", "PlaybackStopped"] * 6
    heard = far.heard()
    assert (heard != 0).sum() == sum(ms * RATE // 1000 for ms in (10, 39, 41, 1230, 500, 250))


# ----------------------------------------------------------------------------------------- interrupts


def interrupting(at, kept):
    async def meanwhile(session, far):
        await session.started()
        await asyncio.sleep(at)
        kept.append(session.interrupt("barge-in"))

    return meanwhile


@pytest.mark.parametrize("way_s", [0.0, 0.08])
def test_b03_the_far_end_is_told_to_clear_when_all_has_been_sent(way_s):
    """Two seconds are all out, a second is still to be played: the interrupt clears it, and knows what was heard."""
    kept = []
    voice, far, _ = call(spoken(8), ENDED, 3.0, ahead_s=5.0, marks=False, way_s=way_s, meanwhile=interrupting(1.0 + way_s, kept))
    assert far.clears == [pytest.approx(1.0 + way_s)]
    assert kept[0].heard == [Heard(1, "w0 w1 w2 w3", False)]
    assert voice.words == ["w0", "w1", "w2", "w3"]
    assert far.heard()[-1] == pytest.approx(8000 + way_s * RATE, abs=2), "the way there is all that is heard after it"


def test_a_far_end_that_had_nothing_or_has_played_all_is_left_alone():
    """Before any sound and after the last an interrupt sends no clear, with a known latency and with marks; with an estimate it does."""
    for known, marks, clears in ((True, False, 0), (True, True, 0), (False, False, 1)):
        records = []

        def interrupt(session, records=records):
            records.append(session.interrupt())

        script = [interrupt, spoken(2), ENDED, 3.0, interrupt, interrupt]
        _, far, _ = call(*script, marks=marks, latency_known=known, way_s=0.1)
        assert [r.heard for r in records] == [[], [], []]
        assert len(far.clears) == clears, (known, marks)


def test_after_a_clear_the_next_reply_is_heard_at_once():
    """What is said after an interrupt does not wait for the time of what was thrown away."""
    kept = []
    interrupt = interrupting(0.28, kept)
    voice, far, _ = call(
        spoken(8), ENDED, 0.5, spoken(4, first=8, utterance=2), UtteranceEnded(utterance=2), ahead_s=2.0, meanwhile=interrupt
    )
    assert kept[0].heard == [Heard(1, "w0", False)]
    first = next(at for at, value in far.heard_at() if value > 8 * 2000)
    assert first == pytest.approx(0.5)
    assert voice.stopped == [Heard(2, "w8 w9 w10 w11", True)]


def test_an_interrupt_by_an_estimate_says_so():
    """Where the latency is a guess, what was heard at the interrupt is marked as one."""
    kept = []
    call(spoken(8), ENDED, 3.0, marks=False, latency_known=False, meanwhile=interrupting(0.9, kept))
    assert kept[0].heard == [Heard(1, "w0 w1 w2 w3", False, estimated=True)]


def test_interrupted_at_every_point_nothing_stale_is_heard():
    """An interrupt at any step of the loop: what was made before it is not heard after it, and what comes later is whole."""

    async def scenario(probe):
        far = FarEnd(RATE)
        cut = []

        class Marked(Speaker):
            def on_interrupt(self, interrupt):
                super().on_interrupt(interrupt)
                cut.append((len(far.heard(self.session.time())), set(voice.made)))

        class Numbered(Voice):
            made: list[int] = []  # noqa: RUF012 - set for each call below

            async def run(self) -> AsyncIterator[OutputAudioFrame | UtteranceEnded]:
                for value in (1, 2, 3, 4):
                    pcm = np.full(2000, value, "<i2").tobytes()
                    self.made.append(value)
                    yield OutputAudioFrame(pcm, RATE, utterance=(value + 1) // 2, epoch=self.session.epoch)
                    if value % 2 == 0:
                        yield UtteranceEnded(utterance=value // 2, epoch=self.session.epoch)
                        await asyncio.sleep(0.3)

        voice = Numbered()
        voice.made = []
        options = SpeakerOptions(ahead_s=0.2, playout=BARE)
        far.speaker = Marked(far.play, AudioFormat(RATE), options, clear=far.clear, mark=far.mark)
        session = Session(voice >> far.speaker)
        probe.watch(session)
        await session.run()
        before, made = cut[0] if cut else (0, set())
        later = far.heard()[before:]
        if stale := made & set(later.tolist()):
            probe.problems.append(f"samples of {stale} were heard after the interrupt")
        if whole := {1, 2, 3, 4} - made - {v for v in (1, 2, 3, 4) if (later == v).sum() == 2000}:
            probe.problems.append(f"{whole} were made after it and not heard whole")

    result = interrupt_everywhere(scenario)
    result.check()
    assert result.tried > 40


# ----------------------------------------------------------------------------------------- holds


def holding(at, for_s):
    async def meanwhile(session, far):
        await session.started()
        await asyncio.sleep(at)
        session.hold("a cough")
        await asyncio.sleep(for_s)
        session.resume("it was a cough")

    return meanwhile


@pytest.mark.parametrize("ahead_s", [0.0, 0.5, 5.0])
@pytest.mark.parametrize("marks", [True, False])
def test_a_hold_is_silent_at_the_ear_at_once_and_a_resume_says_the_cut_word_again(ahead_s, marks):
    """However much has left, a hold at 0.6 s is silent then; the resume goes on from the third word, and nothing is lost or said twice but it."""
    voice, far, _ = call(spoken(8), ENDED, 4.0, ahead_s=ahead_s, marks=marks, meanwhile=holding(0.6, 1.0))
    heard = far.heard_at()
    assert not [at for at, _ in heard if 0.6 + 1e-9 < at < 1.6 - 1e-9]
    values = np.array([value for _, value in heard])
    cut = round(0.6 * RATE)
    assert values[:cut].tolist() == list(range(1, cut + 1))
    assert values[cut:].tolist() == list(range(4001, 16001))
    assert heard[cut][0] == pytest.approx(1.6)
    assert voice.words == [f"w{i}" for i in range(8)], "each word is reported once"
    assert [type(r).__name__ for r in voice.reports if not isinstance(r, WordsHeard)] == ["PlaybackStarted", "PlaybackStopped"]
    assert voice.stopped == [Heard(1, " ".join(voice.words), True)]
    assert voice.reports[-1].at == pytest.approx(1.6 + 1.5, abs=0.001)


def test_a_hold_that_becomes_an_interrupt_clears_once_and_says_nothing_more():
    """Meant after all: what was taken back is not sent again, and the cut word that was heard counts."""
    kept = []

    async def meanwhile(session, far):
        await session.started()
        await asyncio.sleep(0.6)
        session.hold()
        await asyncio.sleep(0.4)
        kept.append(session.interrupt())

    _, far, _ = call(spoken(8), ENDED, 2.0, ahead_s=5.0, meanwhile=meanwhile)
    assert len(far.clears) == 1
    assert kept[0].heard == [Heard(1, "w0 w1 w2", False)]
    assert far.heard()[-1] == round(0.6 * RATE)


def test_a_hold_before_anything_was_heard_begins_again_from_the_start():
    """A hold while the first sound is on its way sends it again from its first sample, with one start."""
    voice, far, _ = call(spoken(4), ENDED, 3.0, way_s=0.2, marks=False, meanwhile=holding(0.1, 0.5))
    assert [v for _, v in far.heard_at()][-RATE:] == list(range(1, RATE + 1))
    assert [type(r) for r in voice.reports].count(PlaybackStarted) == 1


# ----------------------------------------------------------------------------------------- marks and reports


def test_b56_the_end_waits_for_the_last_mark():
    """A far end that collects 1.5 s before it plays: the session ends when its last mark is back, all words heard."""
    voice, far, end = call(0.3, spoken(8), ENDED, own_s=1.5, way_s=0.05)
    assert end == pytest.approx(0.3 + 0.05 + 1.5 + 2.0 + 0.05, abs=0.03)
    assert far.returned[-1] == (far.marks[-1], True)
    assert len(far.marks) == 10, "five a second"
    assert voice.stopped == [Heard(1, " ".join(f"w{i}" for i in range(8)), True)]


def test_marks_that_never_come_end_with_the_clock_s_patience():
    """The end waits until the first mark is the MarkClock's ``patience_s`` overdue, and what was heard is an estimate."""
    for patience_s, ends in ((3.0, 0.2 + 0.1 + 3.0), (1.0, 2.1)):
        clock = MarkClock(RATE, latency_s=0.1, patience_s=patience_s)
        voice, _, end = call(spoken(8), ENDED, loses_marks=True, way_s=0.1, clock=clock)
        assert end == pytest.approx(ends, abs=0.03)
        assert voice.stopped == [Heard(1, " ".join(f"w{i}" for i in range(8)), True, estimated=True)]


def test_marks_find_the_far_end_s_delay():
    """A far end 400 ms behind, believed to be at once: after the first mark has come back, a cut is exact but for its way back."""
    kept = []
    clock = MarkClock(RATE, latency_s=0.0)
    call(spoken(8), ENDED, 3.0, ahead_s=1.0, own_s=0.4, clock=clock, meanwhile=interrupting(1.5, kept))
    assert kept[0].heard == [Heard(1, "w0 w1 w2 w3 w4"[:14], False)], "1.1 s were heard: four words and a half"
    assert clock.latency_s == pytest.approx(0.4, abs=0.001)


def test_marks_that_a_clear_brings_back_prove_nothing():
    """The far end returns all marks of what it threw away: none is believed, and the next utterance is measured by its own."""
    kept = []
    voice, far, _ = call(
        spoken(8), ENDED, 1.0, spoken(2, first=8, utterance=2), UtteranceEnded(utterance=2), ahead_s=5.0, way_s=0.05,
        meanwhile=interrupting(0.8, kept),
    )  # fmt: skip
    assert kept[0].heard == [Heard(1, "w0 w1 w2", False)]
    assert [name for name, proves in far.returned if not proves]
    assert voice.stopped == [Heard(2, "w8 w9", True)]
    assert voice.reports[-1].at == pytest.approx(1.0 + 0.5 + 0.1, abs=0.03)


def test_a_client_s_reports_tell_where_it_is():
    """A browser that is 300 ms behind and reports every 100 ms: words are reported when it has played them."""
    kept = []

    async def report(session, far):
        await session.started()
        for n in range(18):
            await asyncio.sleep(0.1)
            if n >= 3:
                assert far.speaker.played_to((n - 2) * RATE // 10)
        assert far.speaker.position == 2 * RATE
        kept.append(session.interrupt())

    voice, _, _ = call(spoken(8), ENDED, 3.0, marks=False, clock=ReportClock(RATE, latency_s=1.0), ahead_s=1.0, own_s=0.3, meanwhile=report)
    assert kept[0].heard == [Heard(1, "w0 w1 w2 w3 w4 w5", False)]
    ats = [r.at for r in voice.reports if isinstance(r, WordsHeard)]
    assert ats[3:] == pytest.approx([0.3 + 0.05 + 0.25 * n for n in (3, 4, 5)], abs=0.03)


# ----------------------------------------------------------------------------------------- what cannot be


def test_what_cannot_work_is_refused():
    """A lead without a clear, marks without their clock, and reports that nobody follows are errors that say what is missing."""
    lead = SpeakerOptions(ahead_s=0.2)
    with pytest.raises(ValueError, match=r"Speaker: ahead_s is 0\.2, but the far end cannot be told to clear"):
        Speaker(print, options=lead)
    with pytest.raises(ValueError, match=r"MemoryOut: ahead_s is 0\.2"):
        MemoryOut(options=lead)
    with pytest.raises(ValueError, match="marks need both"):
        Speaker(print, clock=MarkClock(24000))
    with pytest.raises(ValueError, match="marks need both"):
        Speaker(print, mark=print, clock=ReportClock(24000))
    with pytest.raises(ValueError, match="no meaning with paced=False"):
        SpeakerOptions(ahead_s=0.2, paced=False)
    with pytest.raises(ValueError, match="mark_every_s"):
        SpeakerOptions(mark_every_s=-1)
    with pytest.raises(ValueError, match="sets no marks"):
        Speaker(print).mark_returned("1")
    with pytest.raises(ValueError, match="follows no reports"):
        Speaker(print).played_to(1)


def test_a_transport_may_override_instead():
    """A subclass with its own ``clear`` and ``mark`` needs to give none."""

    class Line(Speaker):
        def clear(self):
            """Told."""

        def mark(self, name):
            """Set."""

    line = Line(print, options=SpeakerOptions(ahead_s=0.2))
    assert line.playout.recalls
    assert isinstance(line.playout.ledger.clock, MarkClock)


def test_it_conforms():
    """The conformance kit passes for a speaker that sends ahead."""

    def make():
        return Speaker(lambda pcm: None, AudioFormat(RATE), SpeakerOptions(ahead_s=0.2), clear=lambda: None)

    check_processor(make, [spoken(2), ENDED])
