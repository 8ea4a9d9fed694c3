"""Tests of what all speech-to-text nodes share: when they decode what, and what they tell."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from voiceflow.frames import ErrorFrame, Frame, InputAudioFrame, SpeechStarted, SpeechStopped, TranscriptFrame
from voiceflow.processor import Processor
from voiceflow.processors.dictation import Agreement, Dictation, DictationOptions, Job, SpeechToText, Transcription
from voiceflow.processors.segments import SegmentOptions
from voiceflow.session import Session
from voiceflow.testing import Collector, Feeder, check_processor, no_leaks, run_virtual

RATE = 16000
SIZE = 320  # 20 ms


def sound(number: int, pts: float | None = None) -> InputAudioFrame:
    """20 ms that say their number in every sample, one higher, since 0 is silence."""
    return InputAudioFrame(np.full(SIZE, number + 1, "<i2").tobytes(), RATE, pts=number * 0.02 if pts is None else pts)


def numbers(job: Job) -> list[int]:
    """Which frames the samples of a job come from; every one must be there whole, but the first and the last."""
    values = np.rint(job.segment.samples * 32768).astype(int) - 1
    found, counts = np.unique(values, return_counts=True)
    assert (np.diff(values) >= 0).all()
    assert (counts[1:-1] == SIZE).all()
    return [int(n) for n in found]


class Script:
    """A detector that hears exactly the utterances it is told of, each `delay` seconds late; ends at once."""

    def __init__(self, utterances: Sequence[tuple[float, float]], delay: float, until: float) -> None:
        self.frames: list[Frame] = []
        events = [(begin + delay, SpeechStarted(at=begin)) for begin, _ in utterances]
        events += [(end, SpeechStopped(at=end)) for _, end in utterances]
        events.sort(key=lambda event: event[0])
        for number in range(round(until / 0.02)):
            self.frames.append(sound(number))
            while events and events[0][0] <= (number + 1) * 0.02 + 1e-9:
                self.frames.append(events.pop(0)[1])


class Recorder(SpeechToText):
    """Keeps the jobs it is given; the text is how many frames it heard."""

    def __init__(self, options: DictationOptions | None = None) -> None:
        super().__init__(options)
        self.jobs: list[Job] = []

    def decode(self, job: Job) -> Transcription:
        self.jobs.append(job)
        return Transcription(f"{len(numbers(job))} frames", 0.9, 0.0)

    @property
    def finals(self) -> list[list[int]]:
        return [numbers(job) for job in self.jobs if job.final]


class Measurer(SpeechToText):
    """Keeps how many samples each final had."""

    def __init__(self, options: DictationOptions | None = None) -> None:
        super().__init__(options)
        self.lengths: list[int] = []

    def decode(self, job: Job) -> Transcription:
        if job.final:
            self.lengths.append(len(job.segment.samples))
        return Transcription(f"{len(job.segment.samples)} samples")


NO_REUSE = DictationOptions(reuse_partials=False, segments=SegmentOptions(post_roll_s=0.0))


def run(node: SpeechToText, frames: Sequence[Frame], *, rest_s: float = 0.02) -> list[Frame]:
    """What the node yields in a session, in which nothing is left behind."""
    collector = Collector()

    async def main() -> None:
        async with no_leaks():
            await Session(Feeder(frames, rest_s=rest_s) >> node >> collector).run()

    run_virtual(main())
    return [f for f in collector.frames if isinstance(f, TranscriptFrame | SpeechStarted | SpeechStopped | ErrorFrame)]


def transcripts(frames: Sequence[Frame], *, final: bool = True) -> list[TranscriptFrame]:
    return [frame for frame in frames if isinstance(frame, TranscriptFrame) and frame.final is final]


# ----------------------------------------------------------------------------------------------- pre-roll (in a session)


@pytest.mark.parametrize("delay", [0.2, 0.6])
def test_the_first_word_is_not_clipped_however_late_the_detector(delay: float):
    """A voice from 1.0 to 2.0 s is decoded from 0.70 s on, by a detector that tells after 0.2 s or after 0.6 s."""
    node = Recorder(NO_REUSE)

    run(node, Script([(1.0, 2.0)], delay, 3.0).frames)

    assert node.finals == [list(range(35, 100))]


@pytest.mark.parametrize("delay", [0.2, 0.6])
def test_no_frame_is_in_two_segments(delay: float):
    """A second utterance 150 ms after the first has the silence between them as its pre-roll, and no more."""
    node = Recorder(NO_REUSE)

    run(node, Script([(1.0, 2.0), (2.16, 3.0)], delay, 4.0).frames)

    assert node.finals == [list(range(35, 100)), list(range(100, 150))]


def test_a_voice_at_the_very_beginning_is_decoded_from_the_first_frame():
    """An utterance in the first 100 ms of the call begins with the call's first sample."""
    node = Recorder(NO_REUSE)

    run(node, Script([(0.06, 1.0)], 0.2, 2.0).frames)

    assert node.finals == [list(range(50))]


def test_the_segment_starts_at_the_same_place_at_any_rate_of_the_sound():
    """Sound at 48 kHz in stereo gives the same stretch as at 16 kHz in mono."""
    lengths = []
    for rate, channels in ((16000, 1), (48000, 2), (8000, 1)):
        frames: list[Frame] = []
        for number in range(150):
            pcm = np.full((rate // 50, channels), 100, "<i2").tobytes()
            frames.append(InputAudioFrame(pcm, rate, channels, pts=number * 0.02))
            if number == 59:
                frames.append(SpeechStarted(at=1.0))
            if number == 109:
                frames.append(SpeechStopped(at=2.0))
        node = Measurer(NO_REUSE)
        run(node, frames)
        lengths += node.lengths

    assert lengths == pytest.approx([20800] * 3, abs=1)


# ------------------------------------------------------------------------------------------------ the node in a session


def test_edges_pass_and_the_final_follows_the_stop():
    """Downstream sees the start, partials, the stop and the final, in that order; `pts` is when the speech began."""
    got = run(Recorder(), Script([(1.0, 2.0)], 0.1, 3.0).frames)

    kinds = [type(f).__name__ + ("" if not isinstance(f, TranscriptFrame) else f" final={f.final}") for f in got]
    assert kinds[0] == "SpeechStarted"
    assert kinds[-2:] == ["SpeechStopped", "TranscriptFrame final=True"]
    assert set(kinds[1:-2]) == {"TranscriptFrame final=False"}
    assert {f.pts for f in got if isinstance(f, TranscriptFrame)} == {1.0}


def test_each_stretch_of_speech_gets_one_final_in_order():
    """Three utterances make three finals, however short the silence between them."""
    utterances = [(0.5, 1.0), (1.1, 1.5), (1.6, 2.0)]

    got = run(Recorder(), Script(utterances, 0.1, 3.0).frames)

    assert [f.pts for f in transcripts(got)] == [begin for begin, _ in utterances]


def test_the_end_of_the_call_waits_for_the_last_words():
    """Speech that the end of the session cuts off is still decoded and told."""
    got = run(Recorder(), Script([(1.0, 9.0)], 0.1, 2.0).frames)

    assert [f.text for f in transcripts(got)] == [f"{100 - 35} frames"]


def test_nothing_said_is_told_too():
    """An engine that finds no words yields a final with no text, and no partials."""

    class Deaf(Recorder):
        def decode(self, job: Job) -> Transcription:
            return Transcription("", None, 0.99)

    got = run(Deaf(), Script([(1.0, 2.0)], 0.1, 3.0).frames)

    assert [(f.text, f.confidence) for f in transcripts(got)] == [("", None)]
    assert not transcripts(got, final=False)


class Scripted(Recorder):
    """Says one text for partials and another for finals."""

    partial, final = "", ""

    def decode(self, job: Job) -> Transcription:
        super().decode(job)
        return Transcription(self.final if job.final else self.partial)


@pytest.mark.parametrize(
    ("partial", "final"),
    [("yes I think so", "yes"), ("see you", ""), ("", "yes"), ("no", "yes")],
    ids=["a longer partial", "an empty final", "no partial", "other words"],
)
def test_the_final_stands_in_place_of_all_partials(partial: str, final: str):
    """Whatever partials said, a stretch of speech has one final, nothing after it, and what it says holds; it claims no endpoint."""
    node = Scripted(NO_REUSE)
    node.partial, node.final = partial, final

    got = run(node, Script([(0.5, 1.6), (2.5, 3.6)], 0.1, 5.0).frames)

    for begin in (0.5, 2.5):
        told = [f for f in got if isinstance(f, TranscriptFrame) and f.pts == begin]
        assert [f.final for f in told] == [False] * (len(told) - 1) + [True]
        assert {f.text for f in told[:-1]} == ({partial} if partial else set())
        assert (told[-1].text, told[-1].stable) == (final, len(final.split()))
        assert not any(f.endpoint for f in told)


def test_only_speech_longer_than_the_longest_has_several_finals():
    """Three pieces of one stretch are three finals, each with a later `pts` and words of its own, and no partial comes late."""
    got = run(Recorder(DictationOptions(segments=SegmentOptions(longest_s=2.0, post_roll_s=0.0))), Script([(0.5, 5.5)], 0.1, 6.5).frames)

    told = [f for f in got if isinstance(f, TranscriptFrame)]
    finals = [f.pts for f in told if f.final]
    assert len(finals) >= 3
    assert finals == sorted(set(finals))
    assert [f.pts for f in told] == sorted(f.pts for f in told)


def test_an_engine_that_fails_is_reported_and_the_call_goes_on():
    """A raise goes upstream as an error, the final is told as empty, and the next utterance is decoded."""
    errors: list[str] = []

    class Errors(Processor):
        def process(self, frame: ErrorFrame) -> None:
            errors.append(f"{frame.node}: {frame.error}")

    class Failing(Recorder):
        def decode(self, job: Job) -> Transcription:
            super().decode(job)
            if job.final and len(self.finals) == 1:
                raise RuntimeError("out of memory")
            return Transcription("fine")

    collector = Collector()
    script = Script([(0.5, 1.0), (2.0, 2.5)], 0.1, 4.0)
    run_virtual(Session(Feeder(script.frames, rest_s=0.02) >> Errors() >> Failing(NO_REUSE) >> collector).run())

    assert errors == ["Failing: RuntimeError: out of memory"]
    assert [f.text for f in transcripts(collector.frames)] == ["", "fine"]


def test_listening_goes_on_while_a_decode_is_under_way():
    """With a decode stuck in its thread, sound and edges still go through; its result comes when it comes, once."""
    may_end = threading.Event()

    class Slow(Recorder):
        def decode(self, job: Job) -> Transcription:
            assert may_end.wait(20)
            return super().decode(job)

    class Watch(Processor):
        stops = 0

        def process(self, frame: SpeechStopped) -> None:
            self.stops += 1
            if self.stops == 2:
                may_end.set()  # the first decode, of a partial, is let go only when the second stop has come through

    node, collector = Slow(NO_REUSE), Collector()
    frames = Script([(0.5, 1.0), (1.5, 2.0)], 0.1, 3.0).frames
    watch = Watch()
    run_virtual(Session(Feeder(frames) >> node >> [watch, collector]).run())
    assert watch.stops == 2

    assert [f.pts for f in transcripts(collector.frames)] == [0.5, 1.5]
    assert not transcripts(collector.frames, final=False)  # its speech was over


def test_it_passes_the_conformance_kit():
    """Strangers pass, interrupts change nothing, and slow or failing neighbours do no harm."""

    check_processor(Measurer, Script([(0.1, 0.3)], 0.04, 0.6).frames, every=5)


# ------------------------------------------------------------------------------------------------ the decisions, without a loop


class Desk:
    """A dictation that is fed frame by frame, without partials unless they are asked for."""

    def __init__(self, options: DictationOptions | None = None) -> None:
        self.dictation = Dictation(options)
        self.heard = 0

    def hear(self, until_s: float) -> None:
        while self.heard * 0.02 < until_s - 1e-9:
            self.dictation.hear(sound(self.heard), 0.0)
            self.heard += 1

    def job(self) -> Job:
        job = self.dictation.next()
        assert isinstance(job, Job)
        return job

    def done(self, job: Job, text: str) -> TranscriptFrame | None:
        return self.dictation.done(job, Transcription(text, 0.8, 0.1))


def test_partials_come_a_quarter_second_after_the_onset_and_then_regularly():
    """The first partial is due 0.25 s after the onset, the next 0.4 s after the last, each over all so far."""
    desk = Desk()
    desk.hear(1.2)
    desk.dictation.start(1.0)
    due: list[float] = []
    while desk.heard * 0.02 < 3.0:
        desk.hear(desk.heard * 0.02 + 0.02)
        if desk.dictation.has_work:
            job = desk.job()
            due.append(round(job.segment.end / RATE, 2))
            assert job.segment.first == round(0.7 * RATE)
            desk.done(job, f"text {len(due)}")

    assert due == [1.26, 1.66, 2.06, 2.46, 2.86]


def test_a_partial_that_had_all_the_speech_is_the_final():
    """When the speech ended before the last partial did, its text is told as final at once."""
    desk = Desk()
    desk.hear(1.2)
    desk.dictation.start(1.0)
    desk.hear(1.7)
    job = desk.job()
    partial = desk.done(job, "all of it")
    desk.hear(1.9)
    desk.dictation.stop(1.65)
    final = desk.dictation.next()

    assert isinstance(partial, TranscriptFrame)
    assert isinstance(final, TranscriptFrame)
    assert (partial.final, final.final, final.text, final.stable, final.confidence) == (False, True, "all of it", 3, 0.8)
    assert desk.dictation.next() is None


def test_a_partial_under_way_that_has_all_the_speech_becomes_the_final():
    """The running decode is not abandoned if it covers the speech: its result is the final, and no sound is used twice."""
    desk = Desk()
    desk.hear(1.2)
    desk.dictation.start(1.0)
    desk.hear(1.7)
    job = desk.job()
    desk.hear(1.9)
    desk.dictation.stop(1.4)
    assert desk.dictation.next() is None
    told = desk.done(job, "all of it")
    desk.dictation.start(1.8)
    desk.hear(2.3)
    desk.dictation.stop(2.2)

    assert told is not None
    assert told.final
    assert desk.job().segment.first == job.segment.end


def test_a_partial_under_way_that_ends_too_early_is_dropped():
    """Its result is not told, and the final is decoded over the whole segment."""
    desk = Desk()
    desk.hear(1.2)
    desk.dictation.start(1.0)
    desk.hear(1.7)
    job = desk.job()
    desk.hear(2.2)
    desk.dictation.stop(2.0)

    assert desk.done(job, "some of it") is None
    final = desk.job()
    assert (final.final, numbers(final)) == (True, list(range(35, 105)))


def test_a_hush_calls_for_a_partial_at_once():
    """When the level falls for 0.12 s a decode is due, so that the final is ready when the detector is sure."""
    dictation = Dictation()
    loud, quiet = np.full(SIZE, 3000, "<i2").tobytes(), np.full(SIZE, 3, "<i2").tobytes()
    for number in range(80):
        dictation.hear(InputAudioFrame(loud if 50 <= number < 65 else quiet, RATE, pts=number * 0.02), 0.0)
        if number == 55:
            dictation.start(1.0)
        if number == 63:
            job = dictation.next()
            assert isinstance(job, Job)
            dictation.done(job, Transcription("yes"))
        if dictation.has_work and number > 63:
            break
    job = dictation.next()

    assert isinstance(job, Job)
    assert (number, job.final, job.segment.end) == (70, False, 71 * SIZE)


def test_a_long_monologue_is_told_in_pieces():
    """Speech longer than the longest segment makes a final for each piece; together they have every sample once."""
    options = DictationOptions(segments=SegmentOptions(longest_s=2.0, post_roll_s=0.0))
    desk = Desk(options)
    desk.hear(0.4)
    desk.dictation.start(0.2)
    desk.hear(5.0)
    desk.dictation.stop(5.0)
    jobs = []
    while (job := desk.dictation.next()) is not None:
        assert isinstance(job, Job)
        jobs.append(job)
        assert desk.done(job, "piece") is not None

    assert all(job.final for job in jobs)
    assert len(jobs) >= 3
    assert [job.segment.first for job in jobs] == [0, *(job.segment.end for job in jobs[:-1])]
    assert [job.spoken_at for job in jobs[1:]] == pytest.approx([job.segment.first / RATE for job in jobs[1:]])
    assert jobs[-1].segment.end == 5 * RATE


def test_edges_before_any_sound_do_nothing():
    """A start with no sound to place it by is not speech that could be decoded."""
    dictation = Dictation()
    dictation.start(1.0)
    dictation.stop(2.0)
    dictation.finish()

    assert dictation.next() is None


def test_the_same_partial_is_not_told_twice():
    """A decode that brings nothing new is silent."""
    desk = Desk()
    desk.hear(0.2)
    desk.dictation.start(0.0)
    told = []
    for until in (0.7, 1.2, 1.7):
        desk.hear(until)
        told.append(desk.done(desk.job(), "hello"))

    assert [(f.text, f.stable) if f else None for f in told] == [("hello", 0), ("hello", 1), None]


@pytest.mark.parametrize("options", [{"first_partial_s": -1.0}, {"partial_every_s": 0.0}], ids=lambda o: next(iter(o)))
def test_options_that_make_no_sense_are_refused(options: dict[str, float]):
    """Options are checked when they are made."""
    with pytest.raises(ValueError, match=next(iter(options))):
        DictationOptions(**options)


# ------------------------------------------------------------------------------------------------------- agreement


def test_words_are_stable_when_two_in_a_row_agree():
    """Capitals and punctuation do not count; what was told as stable is told the same for ever."""
    agreement = Agreement()

    assert [agreement.update(text) for text in ["Mike.", "My account", "my account, number is", "My count number is four"]] == [
        ("Mike.", 0),
        ("My account", 0),
        ("my account, number is", 2),
        ("my account, number is four", 2),
    ]


word = st.sampled_from(["a", "A,", "b", "c.", "d"])


@given(st.lists(st.lists(word, max_size=6).map(" ".join), max_size=12))
def test_stable_words_never_change(hypotheses: list[str]):
    """From one partial to the next the stable words stay as they are, and their number does not fall."""
    agreement = Agreement()
    stable: list[str] = []
    for hypothesis in hypotheses:
        text, count = agreement.update(hypothesis)
        words = text.split()
        assert words[: len(stable)] == stable
        assert len(stable) <= count <= len(words)
        stable = words[:count]
