"""Tests of the voice detector: the gate on numbers, the model on recorded speech, the node in a session."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from voiceflow.audio import resample
from voiceflow.errors import NodeError
from voiceflow.frames import Frame, InputAudioFrame, SpeechStarted, SpeechStopped
from voiceflow.processor import Processor
from voiceflow.session import Session
from voiceflow.testing import Collector, Feeder, check_processor, no_leaks, run_virtual

vad = pytest.importorskip("voiceflow.processors.vad", reason="pip install onnxruntime", exc_type=ImportError)
onnx = pytest.importorskip("voiceflow.processors.onnx", reason="pip install onnxruntime", exc_type=ImportError)

VadGate, VadOptions, SileroVAD, SpeechFinder, SileroDetector = (
    vad.VadGate,
    vad.VadOptions,
    vad.SileroVAD,
    vad.SpeechFinder,
    vad.SileroDetector,
)

WINDOW_S = 0.032


def edges(probabilities: Sequence[float], options: object = None, begin: float = 0.0) -> list[tuple[str, float, int]]:
    """What a gate makes of windows of 32 ms: which edge, where, and at which window it was told."""
    gate = VadGate(options)
    told = []
    for number, probability in enumerate(probabilities):
        start = begin + number * WINDOW_S
        edge = gate.push(probability, start, start + WINDOW_S)
        if edge is not None:
            told.append((type(edge).__name__, round((edge.at - begin) / WINDOW_S, 6), number))
    return told


# ----------------------------------------------------------------------------------------------------- the gate


def test_speech_starts_at_its_first_window_and_stops_at_the_end_of_its_last():
    """Edges are told when they are sure, 96 ms and 200 ms later, and placed where they were."""
    assert edges([0.1] * 10 + [0.9] * 20 + [0.1] * 10) == [("SpeechStarted", 10, 12), ("SpeechStopped", 30, 36)]


def test_a_click_is_not_speech():
    """Two windows above the threshold are too few."""
    assert edges([0.1, 0.9, 0.9, 0.1] * 5) == []


def test_between_the_thresholds_what_was_goes_on():
    """A middling probability neither starts speech, nor breaks an onset, nor ends speech, nor breaks a silence."""
    middling = 0.4
    assert edges([middling] * 20) == []
    assert edges([0.9, middling, middling, 0.9, 0.9]) == [("SpeechStarted", 0, 4)]
    assert edges([0.9] * 5 + [middling] * 30) == [("SpeechStarted", 0, 2)]
    assert edges([0.9] * 5 + [0.1] + [middling] * 6) == [("SpeechStarted", 0, 2), ("SpeechStopped", 5, 11)]


def test_a_breath_that_fades_is_not_speech():
    """One window at the threshold and a slow fall do not add up to speech: only windows at the threshold count."""
    assert edges([0.1, 0.52, 0.45, 0.41, 0.36, 0.19, 0.1]) == []


def test_a_short_pause_does_not_stop_speech():
    """192 ms of silence between words are part of the speech."""
    assert edges([0.9] * 5 + [0.1] * 6 + [0.9] * 5) == [("SpeechStarted", 0, 2)]


def test_the_edges_carry_what_was_measured():
    """The start has the highest probability so far, the stop the silence since the voice ended."""
    gate = VadGate()
    told = [
        edge
        for n, p in enumerate([0.6, 0.8, 0.7, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0])
        if (edge := gate.push(p, n * WINDOW_S, (n + 1) * WINDOW_S))
    ]

    assert told == [SpeechStarted(at=0.0, probability=0.8), SpeechStopped(at=pytest.approx(0.096), silence=pytest.approx(0.224))]


def test_the_level_is_that_of_the_voice_alone():
    """Windows at the start threshold count, up to the telling at the start and all of them at the stop; pauses do not."""
    gate = VadGate(VadOptions(min_speech_ms=64))
    windows = [(0.9, 0.01), (0.4, 1.0), (0.9, 0.01), (0.9, 0.04), (0.1, 1.0), (0.9, 0.04), *[(0.1, 0.5)] * 8]
    told = [edge for n, (p, power) in enumerate(windows) if (edge := gate.push(p, n * WINDOW_S, (n + 1) * WINDOW_S, power))]

    assert [type(edge) for edge in told] == [SpeechStarted, SpeechStopped]
    assert told[0].level_db == pytest.approx(10 * np.log10(0.01))
    assert told[1].level_db == pytest.approx(10 * np.log10((0.01 + 0.01 + 0.04 + 0.04) / 4))


def test_a_stretch_has_a_level_of_its_own():
    """What was said before does not count; speech that sound's end cuts off has a level too."""
    gate = VadGate()
    levels = []
    for number in range(24):
        speaks, power = (number < 5 or number >= 15), (0.1 if number < 5 else 0.001)
        if edge := gate.push(0.9 if speaks else 0.0, number * WINDOW_S, (number + 1) * WINDOW_S, power):
            levels.append(edge.level_db)
    stopped = gate.stop(1.0)
    assert stopped is not None

    assert [*levels, stopped.level_db] == pytest.approx([-10, -10, -30, -30])


def test_a_hole_in_the_sound_is_no_silence():
    """A quiet moment before sound that comes 400 ms late does not add up with the hole to the end of speech."""
    gate = VadGate()
    at = 0.0
    told = []
    for number in range(24):
        at += 0.4 if number == 12 else 0.0
        told.append(gate.push(0.0 if 10 <= number < 14 else 0.9, at, at + WINDOW_S))
        at += WINDOW_S

    assert [type(edge) for edge in told if edge is not None] == [SpeechStarted]


def test_durations_are_options():
    """The gate's two durations follow the options."""
    options = VadOptions(min_speech_ms=0, stop_silence_ms=64)

    assert edges([0.9, 0.1, 0.1, 0.1], options) == [("SpeechStarted", 0, 0), ("SpeechStopped", 1, 2)]


def test_stopping_ends_speech_once():
    """Told that no more sound comes, a gate in speech ends it where it last heard it; a silent one says nothing."""
    gate = VadGate()
    assert gate.stop(1.0) is None
    for number in range(5):
        gate.push(0.9, number * WINDOW_S, (number + 1) * WINDOW_S)

    assert gate.stop(1.16) == SpeechStopped(at=pytest.approx(0.16), silence=pytest.approx(1.0))
    assert gate.stop(2.0) is None


@pytest.mark.parametrize(
    "options",
    [{"start_threshold": 1.5}, {"stop_threshold": 0.6}, {"min_speech_ms": -1}, {"stop_silence_ms": -1}, {"stall_ms": 0}, {"lift_db": 41}],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, float]):
    """The error names the options and their values."""
    name, value = next(iter(options.items()))
    with pytest.raises(ValueError, match=str(value)):
        VadOptions(**{name: value})


probabilities = st.lists(st.sampled_from([0.0, 0.2, 0.34, 0.36, 0.49, 0.5, 0.7, 1.0]), max_size=120)


@given(probabilities, st.sampled_from([0, 32, 96, 150, 300]), st.sampled_from([0, 32, 100, 200, 500]))
def test_every_edge_is_earned(given_probabilities: list[float], min_speech_ms: float, stop_silence_ms: float):
    """Starts and stops alternate; each lies where speech began or ended, is told as soon as it is sure, and not before."""
    options = VadOptions(min_speech_ms=min_speech_ms, stop_silence_ms=stop_silence_ms)
    told = edges(given_probabilities, options)

    assert [kind for kind, _, _ in told] == ["SpeechStarted", "SpeechStopped"] * (len(told) // 2) + ["SpeechStarted"] * (len(told) % 2)
    last_told = -1
    for kind, at, number in told:
        place = round(at)
        assert place == pytest.approx(at)
        assert number > last_told
        windows = given_probabilities[place : number + 1]
        if kind == "SpeechStarted":
            assert place > last_told
            assert windows[0] >= 0.5
            assert min(windows) >= 0.35
            loud = sum(p >= 0.5 for p in windows)
            assert (loud - 1) * 32 < max(min_speech_ms, 1) <= max(loud * 32, 1)
        else:
            assert given_probabilities[place - 1] >= 0.35
            assert windows[0] < 0.35
            assert max(windows) < 0.5
            assert (len(windows) - 1) * 32 < max(stop_silence_ms, 1) <= max(len(windows) * 32, 1)
        last_told = number


@given(probabilities, st.floats(0, 1e5))
def test_only_differences_of_time_count(given_probabilities: list[float], begin: float):
    """The same probabilities give the same edges whenever the call began."""
    assert edges(given_probabilities, begin=begin) == edges(given_probabilities)


def test_a_faint_stream_is_lifted_and_a_loud_one_left():
    """A stream at -50 dB gets all there is, one at -26 dB what it lacks, one at -10 dB nothing."""
    assert [20 * np.log10(vad.Lift(12.0).gain(10 ** (db / 10))) for db in (-50, -26, -10)] == pytest.approx([12, 6, 0])
    assert vad.Lift(0.0).gain(0.0) == 1.0


def test_what_is_loud_counts_at_once_and_for_a_while():
    """After a loud window a pause is not lifted; when 3 dB a second have gone by, it is again."""
    lift = vad.Lift(12.0)
    assert lift.gain(1e-6) > 3.9
    assert lift.gain(0.01) == 1.0
    gains = [lift.gain(1e-6) for _ in range(round(5 / WINDOW_S))]

    assert gains[0] == pytest.approx(1.0, abs=0.02)
    assert gains == sorted(gains)
    assert 20 * np.log10(gains[round(2 / WINDOW_S)]) == pytest.approx(6, abs=0.2)
    assert gains[-1] == pytest.approx(10 ** (12 / 20))


# --------------------------------------------------------------------------------- the model: chunks, rates and channels

CHUNKS = [1, 7, 160, 320, 441, 512, 720, 1600, 16000, 0]


@pytest.fixture(scope="module")
def silero(model: Callable[[str], Path]) -> object:
    return onnx.open_onnx(model("silero-vad"))


@pytest.fixture(scope="module")
def clip(recording: Callable[[str], np.ndarray]) -> Callable[[int], np.ndarray]:
    """1.5 s of near silence, 3.3 s with speech, 2 s of near silence, at any rate."""

    def at(rate: int) -> np.ndarray:
        speech = recording("amiable_himself")
        quiet = np.random.default_rng(0).normal(0, 3, 24000 + len(speech) + 32000)
        sound = np.concatenate((np.zeros(24000), speech, np.zeros(32000))) + quiet
        return np.frombuffer(resample(np.rint(sound).astype("<i2").tobytes(), 16000, rate), "<i2")

    return at


def find(silero: object, sound: np.ndarray, rate: int, chunk: int) -> list[tuple[str, float]]:
    """The edges of `sound`, shape (n, channels), pushed in chunks (0: whole), with an empty one after each fourth."""
    finder = SpeechFinder(silero)
    found = []
    size = chunk or len(sound)
    for number, begin in enumerate(range(0, len(sound), size)):
        pieces = [sound[begin : begin + size]] + [sound[:0]] * (number % 4 == 0)
        for piece in pieces:
            found += finder.push(InputAudioFrame(piece.tobytes(), rate, sound.shape[1]))
    return [(type(edge).__name__, edge.at) for edge in found]


REFERENCE = [("SpeechStarted", 1.792), ("SpeechStopped", 4.544)]


def assert_is_reference(found: list[tuple[str, float]]) -> None:
    assert [kind for kind, _ in found] == [kind for kind, _ in REFERENCE]
    for (_, at), (_, expected) in zip(found, REFERENCE, strict=True):
        assert abs(at - expected) <= WINDOW_S + 1e-6


@pytest.mark.parametrize("rate", [8000, 16000, 24000, 48000])
@pytest.mark.parametrize("chunk", CHUNKS)
def test_the_same_edges_in_chunks_of_any_size_at_any_rate(silero: object, clip: Callable[[int], np.ndarray], rate: int, chunk: int):
    """One start and one stop, within a window of the same place, even if the sound comes sample by sample or in one piece."""
    sound = clip(rate)
    if chunk == 1:  # a quarter million frames at 48 kHz: the speech's beginning shows as much
        found = find(silero, sound[: rate * 2, None], rate, 1)
        assert [kind for kind, _ in found] == ["SpeechStarted"]
        assert abs(found[0][1] - REFERENCE[0][1]) <= WINDOW_S + 1e-6
        return

    found = find(silero, sound[:, None], rate, chunk)

    assert_is_reference(found)
    assert found == find(silero, sound[:, None], rate, 512)


@pytest.mark.parametrize("rate", [8000, 16000, 24000, 44100, 48000])
@pytest.mark.parametrize("right", ["the same", "silent", "opposite"])
def test_the_same_edges_in_stereo(silero: object, clip: Callable[[int], np.ndarray], rate: int, right: str):
    """Two equal channels, or one and silence, or one and its opposite, give the edges of mono."""
    left = clip(rate)
    stereo = np.stack([left, {"the same": left, "silent": np.zeros_like(left), "opposite": -left}[right]], axis=1)

    assert_is_reference(find(silero, stereo, rate, 960))


@pytest.mark.parametrize("gain", [1.0, 0.1])
@pytest.mark.parametrize(("rate", "right"), [(8000, None), (16000, None), (48000, None), (48000, 0)])
def test_edges_tell_how_loud_the_voice_is(silero: object, clip: Callable[[int], np.ndarray], rate: int, right: int | None, gain: float):
    """At any rate, on one channel of two as on one alone, within 1 dB of the speech measured by itself."""
    sound = np.rint(clip(rate) * gain).astype("<i2")
    speech = clip(16000)[round(1.792 * 16000) : round(4.544 * 16000)].astype(float) / 32768 * gain
    blocks = np.square(speech[: len(speech) // 512 * 512].reshape(-1, 512)).mean(axis=1)
    expected = 10 * np.log10(blocks[blocks > blocks.max() * 0.01].mean())
    finder = SpeechFinder(silero)
    stereo = sound[:, None] if right is None else np.stack([sound, np.full_like(sound, right)], axis=1)
    started, stopped = finder.push(InputAudioFrame(stereo.tobytes(), rate, stereo.shape[1]))

    assert isinstance(stopped, SpeechStopped)
    assert stopped.level_db == pytest.approx(expected, abs=1.0)
    assert started.level_db is not None
    assert started.level_db <= expected + 3  # its first tenth of a second is a breath


@pytest.mark.parametrize("rate", [8000, 16000])
def test_the_model_is_sure_of_speech_and_of_silence(silero: object, clip: Callable[[int], np.ndarray], rate: int):
    """With its context and state fed right, speech scores above 0.9 and near silence below 0.1."""
    detector = SileroDetector(silero, rate)
    sound = clip(rate).astype(np.float32) / 32768
    scores = [detector.probability(sound[i : i + detector.window]) for i in range(0, len(sound) - detector.window, detector.window)]

    assert max(scores) > 0.9
    assert max(scores[:40]) < 0.1
    assert max(scores[-50:]) < 0.1


def test_two_streams_on_one_model_do_not_mix(silero: object, clip: Callable[[int], np.ndarray]):
    """Streams that share the model each keep their own state: interleaved, they score as alone."""
    sound = clip(16000)[24000:56000].astype(np.float32) / 32768
    windows = [sound[i : i + 512] for i in range(0, len(sound) - 511, 512)]
    alone, first, second = (SileroDetector(silero, 16000) for _ in range(3))
    expected = [alone.probability(window) for window in windows]

    got = []
    for window in windows:
        got.append(first.probability(window))
        second.probability(np.zeros(512, np.float32))

    assert got == expected


def test_a_rate_the_model_does_not_know_is_refused(silero: object):
    """The detector works at two rates and says so."""
    with pytest.raises(ValueError, match="8000 and 16000 Hz, not at 44100"):
        SileroDetector(silero, 44100)


def test_places_follow_the_pts_of_the_frames(
    silero: object, clip: Callable[[int], np.ndarray], frames: Callable[..., list[InputAudioFrame]]
):
    """On a clock that stands at 100 s when the call begins, edges are 100 s later."""
    finder = SpeechFinder(silero)
    found = [edge.at - 100 for frame in frames(clip(16000), pts=100.0) for edge in finder.push(frame)]

    assert found == pytest.approx([at for _, at in REFERENCE], abs=WINDOW_S)


def test_a_long_hole_in_mid_speech_ends_it(silero: object, clip: Callable[[int], np.ndarray], frames: Callable[..., list[InputAudioFrame]]):
    """Frames whose stamps jump by 5 s end the speech where it was last heard, and begin another."""
    before, after = frames(clip(16000)[:48000]), frames(clip(16000)[48000:], pts=8.0)
    finder = SpeechFinder(silero)
    found = [(type(edge).__name__, edge.at) for frame in before + after for edge in finder.push(frame)]

    assert [kind for kind, _ in found] == ["SpeechStarted", "SpeechStopped"] * 2
    assert [at for _, at in found] == pytest.approx([1.792, 3.0, 8.0, 9.544], abs=2 * WINDOW_S)


# ----------------------------------------------------------------------------------------------- the node in a session


def run(pipeline: object) -> None:
    async def main() -> None:
        async with no_leaks():
            await Session(pipeline).run()

    run_virtual(main())


def test_sound_passes_untouched_and_edges_come_after_the_frame_that_decided(
    silero: object, clip: Callable[[int], np.ndarray], frames: Callable[..., list[InputAudioFrame]]
):
    """Downstream gets the very samples in order, and each edge right behind the window that made it sure."""
    sent = frames(clip(48000), 48000, pts=None)
    collector = Collector()
    run(Feeder(sent, rest_s=0.02) >> SileroVAD() >> collector)

    heard = [f for f in collector.frames if isinstance(f, InputAudioFrame)]
    assert [f.pcm for f in heard] == [f.pcm for f in sent]
    assert all(f.pts is None for f in heard)
    kept: list[Frame] = [f for f in collector.frames if isinstance(f, InputAudioFrame | SpeechStarted | SpeechStopped)]
    for edge, decided_s in ((SpeechStarted, 1.792 + 0.096), (SpeechStopped, 4.544 + 0.224)):
        place = next(i for i, f in enumerate(kept) if isinstance(f, edge))
        before_s = sum(f.duration for f in kept[:place] if isinstance(f, InputAudioFrame))
        assert decided_s - WINDOW_S <= before_s <= decided_s + WINDOW_S + 0.026  # a frame, and what the resampler holds back


def test_without_pts_places_count_from_the_sessions_time(
    silero: object, clip: Callable[[int], np.ndarray], frames: Callable[..., list[InputAudioFrame]]
):
    """A caller who comes 7 s into the session, with no stamps, speaks 7 s later."""

    class Late(Processor):
        async def run(self) -> AsyncIterator[InputAudioFrame]:
            await asyncio.sleep(7)
            for frame in frames(clip(16000), pts=None):
                yield frame

    collector = Collector()
    run(Late() >> SileroVAD() >> collector)
    found = [f.at for f in collector.frames if isinstance(f, SpeechStarted | SpeechStopped)]

    assert found == pytest.approx([7 + at for _, at in REFERENCE], abs=WINDOW_S)


class Muted(Processor):
    """Speaks until 3.0 s, then no frames come for `pause_s`; then goes on."""

    def __init__(self, sent: list[InputAudioFrame], pause_s: float) -> None:
        self.sent = sent
        self.pause_s = pause_s

    async def run(self) -> AsyncIterator[InputAudioFrame]:
        began = self.session.time()
        for number, frame in enumerate(self.sent):
            at = began + number * 0.02 + (self.pause_s if number >= 150 else 0.0)
            await asyncio.sleep(at + 0.02 - self.session.time())
            yield InputAudioFrame(frame.pcm, frame.sample_rate, pts=at)


def test_when_the_sound_stops_coming_speech_ends_within_a_second(
    silero: object, clip: Callable[[int], np.ndarray], frames: Callable[..., list[InputAudioFrame]]
):
    """Muted in mid-speech, the caller has stopped a second later, where they were last heard; then they start anew."""

    class Times(Processor):
        def __init__(self) -> None:
            self.told: list[tuple[str, float, float]] = []

        def process(self, frame: SpeechStarted | SpeechStopped) -> None:
            self.told.append((type(frame).__name__, frame.at, self.session.time()))

    times = Times()
    run(Muted(frames(clip(16000)), 5.0) >> SileroVAD() >> times)

    assert [kind for kind, _, _ in times.told] == ["SpeechStarted", "SpeechStopped"] * 2
    _, at, told = times.told[1]
    assert at == pytest.approx(3.0, abs=WINDOW_S)
    assert told == pytest.approx(4.0, abs=0.001)
    assert times.told[2][1] == pytest.approx(8.0, abs=2 * WINDOW_S)


def test_a_short_network_gap_does_not_end_speech(
    silero: object, clip: Callable[[int], np.ndarray], frames: Callable[..., list[InputAudioFrame]]
):
    """400 ms without frames in mid-speech are not the end of it."""
    collector = Collector()
    run(Muted(frames(clip(16000)), 0.4) >> SileroVAD() >> collector)

    assert [type(f).__name__ for f in collector.frames if isinstance(f, SpeechStarted | SpeechStopped)] == [
        "SpeechStarted",
        "SpeechStopped",
    ]


class Bursting(Muted):
    """As Muted, but what should have come in the pause comes at its end at once, stamped as said."""

    def __init__(self, sent: list[InputAudioFrame], pause_s: float, stamps: str) -> None:
        super().__init__(sent, pause_s)
        self.stamps = stamps

    async def run(self) -> AsyncIterator[InputAudioFrame]:
        began = self.session.time()
        for number, frame in enumerate(self.sent):
            ready = number * 0.02 + 0.02
            if 3.0 < ready < 3.0 + self.pause_s:
                ready = 3.0 + self.pause_s
            await asyncio.sleep(began + ready - self.session.time())
            pts = {"when spoken": began + number * 0.02, "on arrival": self.session.time() - 0.02, "none": None}[self.stamps]
            yield InputAudioFrame(frame.pcm, frame.sample_rate, pts=pts)


@pytest.mark.parametrize("stop_silence_ms", [200, 800])
@pytest.mark.parametrize("stamps", ["when spoken", "on arrival", "none"])
def test_a_gap_and_the_burst_after_it_are_no_end(
    silero: object, clip: Callable[[int], np.ndarray], frames: Callable[..., list[InputAudioFrame]], stamps: str, stop_silence_ms: float
):
    """400 ms without frames, then twenty at once: one start and one stop, at their places however the frames are stamped."""
    collector = Collector()
    sent = frames(np.concatenate((clip(16000), np.zeros(16000, "<i2"))))
    run(Bursting(sent, 0.4, stamps) >> SileroVAD(VadOptions(stop_silence_ms=stop_silence_ms)) >> collector)

    edges = [f for f in collector.frames if isinstance(f, SpeechStarted | SpeechStopped)]
    assert [type(f) for f in edges] == [SpeechStarted, SpeechStopped]
    assert [f.at for f in edges] == pytest.approx([1.792, 4.544], abs=2 * WINDOW_S + 0.04)


def test_a_pause_shorter_than_the_stop_delay_is_part_of_the_speech(
    silero: object, recording: Callable[[str], np.ndarray], frames: Callable[..., list[InputAudioFrame]]
):
    """With 800 ms of silence asked for, 500 ms between two phrases are one stretch of speech; with 200 ms they are two."""
    card, quiet = recording("seven_of_clubs"), np.zeros(24000, "<i2")
    first, second = card[:20000], card[2000:]
    sent = frames(np.concatenate((quiet, first, np.zeros(8000, "<i2"), second, quiet)))
    kinds = {}
    for stop_silence_ms in (200, 800):
        collector = Collector()
        run(Feeder(sent, rest_s=0.02) >> SileroVAD(VadOptions(stop_silence_ms=stop_silence_ms)) >> collector)
        kinds[stop_silence_ms] = [type(f) for f in collector.frames if isinstance(f, SpeechStarted | SpeechStopped)]

    assert kinds == {200: [SpeechStarted, SpeechStopped] * 2, 800: [SpeechStarted, SpeechStopped]}


def test_the_end_of_the_call_ends_speech(silero: object, clip: Callable[[int], np.ndarray], frames: Callable[..., list[InputAudioFrame]]):
    """A call that ends in mid-speech still tells that the speech stopped."""
    collector = Collector()
    run(Feeder(frames(clip(16000)[:48000]), rest_s=0.02) >> SileroVAD() >> collector)
    found = [f.at for f in collector.frames if isinstance(f, SpeechStarted | SpeechStopped)]

    assert found == pytest.approx([1.792, 3.0], abs=WINDOW_S)


def test_a_model_that_is_not_there_ends_the_session_at_its_start(tmp_path: Path):
    """The error names the node and what was asked for."""
    node = SileroVAD(VadOptions(model=tmp_path / "none.onnx"))
    with pytest.raises(ExceptionGroup) as caught:
        run(Feeder([InputAudioFrame(bytes(640), 16000)]) >> node >> Collector())

    (error,) = caught.value.exceptions
    assert isinstance(error, NodeError)
    assert "SileroVAD" in str(error)
    assert "none.onnx" in str(error)


def test_it_passes_the_conformance_kit(silero: object, recording: Callable[[str], np.ndarray]):
    """Strangers pass, interrupts change nothing, and slow or failing neighbours do no harm."""
    sound = np.concatenate((recording("seven_of_clubs"), np.zeros(8000, "<i2")))
    feed = [InputAudioFrame(sound[i : i + 1600].tobytes(), 16000) for i in range(0, len(sound), 1600)]

    check_processor(SileroVAD, feed, every=7)
