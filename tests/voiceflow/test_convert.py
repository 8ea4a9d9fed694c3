"""The converter node: one format out, nothing lost at the ends, words and times where they were."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from voiceflow.audio import holds_ms, resample
from voiceflow.convert import Converter
from voiceflow.errors import PipelineError
from voiceflow.frames import AudioFormat, AudioFrame, EndFrame, Frame, InputAudioFrame, OutputAudioFrame, SayFrame, UtteranceEnded, Word
from voiceflow.processor import Processor
from voiceflow.session import Session

PHONE = AudioFormat(8000)
WIDE = AudioFormat(16000)
INTERRUPT: Any = SimpleNamespace(reason="test")


def tone(rate: int, samples: int, hertz: float = 440) -> bytes:
    return np.rint(8000 * np.sin(2 * np.pi * hertz * np.arange(samples) / rate)).astype("<i2").tobytes()


def numbers(pcm: bytes) -> npt.NDArray[np.int64]:
    return np.frombuffer(pcm, "<i2").astype(np.int64)


def feed(converter: Converter, frames: Sequence[Frame]) -> list[Any]:
    """All that comes out, checked: only the target's format, never an empty frame."""
    out: list[Any] = []
    for frame in frames:
        given = converter.process(frame)  # type: ignore[arg-type]
        out += given if isinstance(given, list) else [given]
    for frame in out:
        if isinstance(frame, AudioFrame):
            assert (frame.sample_rate, frame.channels) == (converter.target.sample_rate, converter.target.channels)
            assert frame.pcm
    return out


def cut(pcm: bytes, samples: int) -> list[bytes]:
    return [pcm[i : i + 2 * samples] for i in range(0, len(pcm), 2 * samples)]


def said(pcm: bytes, rate: int = 24000, **fields: Any) -> list[Frame]:
    return [OutputAudioFrame(pcm=piece, sample_rate=rate, **fields) for piece in cut(pcm, rate // 50)]


def test_sound_in_the_target_format_passes_as_the_same_object() -> None:
    """Nothing is copied where nothing is to be converted, in both lanes."""
    converter = Converter(WIDE)
    for frame in (InputAudioFrame(pcm=bytes(640), sample_rate=16000), OutputAudioFrame(pcm=bytes(640), sample_rate=16000)):
        assert converter.process(frame) is frame


def test_an_utterance_comes_out_whole_before_its_end() -> None:
    """All 3 s of it, equal to the one-shot result, the tail ahead of UtteranceEnded."""
    sound = tone(24000, 72000)
    out = feed(Converter(PHONE), [*said(sound), UtteranceEnded()])
    assert isinstance(out[-1], UtteranceEnded)
    made = numbers(b"".join(frame.pcm for frame in out[:-1]))
    assert len(made) == 24000
    assert np.abs(made - numbers(resample(sound, 24000, 8000))).max() <= 16


def test_the_end_brings_the_tails_of_both_lanes() -> None:
    """EndFrame gives what is held back of the caller's and of the agent's sound; it is the session's to pass it on."""
    out = feed(
        Converter(PHONE),
        [
            InputAudioFrame(pcm=tone(24000, 4800), sample_rate=24000),
            OutputAudioFrame(pcm=tone(24000, 2400), sample_rate=24000),
            EndFrame(),
        ],
    )
    lengths = {t: sum(len(f.pcm) // 2 for f in out if type(f) is t) for t in (InputAudioFrame, OutputAudioFrame)}
    assert lengths == {InputAudioFrame: 1600, OutputAudioFrame: 800}
    assert not any(isinstance(frame, EndFrame) for frame in out)


def test_frames_too_short_to_give_any_sound_give_no_frame() -> None:
    """Pushes of a few samples mostly yield nothing, never an empty frame, and still add up."""
    frames = [InputAudioFrame(pcm=piece, sample_rate=48000) for piece in cut(tone(48000, 4800), 7)]
    converter = Converter(WIDE)
    assert converter.process(frames[0]) == []
    out = feed(converter, [*frames[1:], InputAudioFrame(pcm=b"", sample_rate=48000), EndFrame()])
    assert sum(len(frame.pcm) // 2 for frame in out) == 1600
    assert converter.process(InputAudioFrame(pcm=b"", sample_rate=16000)) == []


def test_stereo_comes_down_to_mono_and_mono_goes_up() -> None:
    """Channels and rate are converted together; equal channels give the sound itself."""
    mono = numbers(tone(48000, 9600))
    stereo = np.repeat(mono, 2).astype("<i2").tobytes()
    down = feed(Converter(WIDE), [InputAudioFrame(pcm=stereo, sample_rate=48000, channels=2), EndFrame()])
    expected = numbers(resample(mono.astype("<i2").tobytes(), 48000, 16000))
    assert np.abs(numbers(b"".join(f.pcm for f in down)) - expected).max() <= 16
    up = feed(Converter(AudioFormat(48000, 2)), [OutputAudioFrame(pcm=tone(16000, 3200), sample_rate=16000), EndFrame()])
    both = numbers(b"".join(f.pcm for f in up)).reshape(-1, 2)
    assert len(both) == 9600
    assert np.array_equal(both[:, 0], both[:, 1])


def test_channels_alone_are_mixed_without_delay() -> None:
    """At the same rate each frame gives one frame, at once, with its words and time."""
    word = Word("hello", 0.0, 0.01)
    frame = OutputAudioFrame(pcm=bytes(1280), sample_rate=16000, channels=2, words=(word,), pts=3.0, utterance=4)
    (out,) = feed(Converter(WIDE), [frame])
    assert (len(out.pcm), out.words, out.pts, out.utterance) == (640, (word,), 3.0, 4)


# ------------------------------------------------------------------------------------------------ words and times


@given(
    lengths=st.lists(st.integers(1, 1500), min_size=1, max_size=40),
    places=st.lists(st.integers(0, 20000), max_size=12, unique=True),
    rates=st.sampled_from([(24000, 8000), (22050, 16000), (8000, 24000), (24000, 48000)]),
)
@settings(max_examples=60, deadline=None)
def test_words_stay_where_they_begin(lengths: list[int], places: list[int], rates: tuple[int, int]) -> None:
    """Each word comes out once, on the frame in which it begins, at its place in the sound to within half a sample."""
    source, target = rates
    total = sum(lengths)
    starts = sorted(place for place in places if place < total)
    frames: list[Frame] = []
    at = 0
    for length in lengths:
        words = tuple(Word(str(p), (p - at) / source, (p - at + 300) / source, True) for p in starts if at <= p < at + length)
        frames.append(OutputAudioFrame(pcm=bytes(2 * length), sample_rate=source, words=words))
        at += length
    out = feed(Converter(AudioFormat(target)), [*frames, UtteranceEnded()])[:-1]
    found: list[str] = []
    begin = 0
    for frame in out:
        for word in frame.words:
            assert 0.0 <= word.start < frame.duration + 0.5 / target
            assert begin / target + word.start == pytest.approx(int(word.text) / source, abs=0.51 / target)
            assert begin / target + word.end == pytest.approx((int(word.text) + 300) / source, abs=1e-9)
            assert word.estimated
            found.append(word.text)
        begin += len(frame.pcm) // 2
    assert found == [str(place) for place in starts]


def test_a_word_points_at_its_sound() -> None:
    """A click at the beginning of each word is where the converted frame says the word is."""
    sound = np.zeros(24000, "<i2")
    starts = [0, 479, 480, 961, 5000, 23999 - 240]
    sound[starts] = 30000
    frames: list[Frame] = []
    for at in range(0, 24000, 480):
        words = tuple(Word("x", (p - at) / 24000, (p - at) / 24000) for p in starts if at <= p < at + 480)
        frames.append(OutputAudioFrame(pcm=sound[at : at + 480].tobytes(), sample_rate=24000, words=words))
    out = feed(Converter(AudioFormat(48000)), [*frames, UtteranceEnded()])[:-1]
    heard = numbers(b"".join(frame.pcm for frame in out))
    begin = 0
    pointed: list[int] = []
    for frame in out:
        pointed += [begin + round(word.start * 48000) for word in frame.words]
        begin += len(frame.pcm) // 2
    assert pointed == [2 * start for start in starts]
    assert all(heard[place] > 20000 for place in pointed)


def test_a_word_at_the_very_end_is_not_lost() -> None:
    """A voice that places a word on the frame's last instant still has it spoken."""
    frames = [OutputAudioFrame(pcm=bytes(960), sample_rate=24000, words=(Word("end", 0.02, 0.02),))]
    out = feed(Converter(PHONE), [*frames, UtteranceEnded()])
    assert [word.text for frame in out[:-1] for word in frame.words] == ["end"]


def test_times_are_those_of_the_first_sample() -> None:
    """``pts`` goes on without a gap from frame to frame, though the sound is held back."""
    frames = [InputAudioFrame(pcm=bytes(1764), sample_rate=44100, pts=10 + i / 50) for i in range(50)]
    out = feed(Converter(WIDE), [*frames, EndFrame()])
    at = 10.0
    for frame in out:
        assert frame.pts == pytest.approx(at, abs=1e-9)
        at += frame.duration
    assert at == pytest.approx(11.0, abs=1e-4)


def test_a_frame_without_a_time_is_given_none() -> None:
    """No ``pts`` is invented."""
    assert all(f.pts is None for f in feed(Converter(WIDE), [InputAudioFrame(pcm=bytes(960), sample_rate=8000), EndFrame()]))


def test_a_frame_keeps_its_type_utterance_and_epoch() -> None:
    """A plugin's own type, the utterance and the epoch stay, on the tail too."""

    class Labelled(OutputAudioFrame, frozen=True):
        label: str = ""

    out = feed(
        Converter(PHONE), [Labelled(pcm=tone(24000, 2400), sample_rate=24000, label="a", utterance=7, epoch=3), UtteranceEnded(utterance=7)]
    )
    assert len(out) == 3
    assert {(type(f), f.label, f.utterance, f.epoch) for f in out[:-1]} == {(Labelled, "a", 7, 3)}


# ---------------------------------------------------------------------------------------------- where streams end


def test_another_utterance_begins_after_the_tail_of_the_last() -> None:
    """Without an UtteranceEnded between them too, each utterance is whole and keeps its own words."""
    out = feed(
        Converter(PHONE),
        [
            *said(tone(24000, 4800), utterance=1),
            *said(tone(24000, 2400), utterance=2, words=(Word("two", 0.0, 0.1),)),
            UtteranceEnded(utterance=2),
        ],
    )
    lengths = {u: sum(len(f.pcm) // 2 for f in out[:-1] if f.utterance == u) for u in (1, 2)}
    assert lengths == {1: 1600, 2: 800}
    assert [f.utterance for f in out[:-1]] == sorted(f.utterance for f in out[:-1])
    assert not any(f.words for f in out[:-1] if f.utterance == 1)


def test_another_type_begins_after_the_tail_of_the_last() -> None:
    """Sound of a plugin's own type is never yielded as plain sound, nor the other way round."""

    class Music(OutputAudioFrame, frozen=True):
        pass

    plain = OutputAudioFrame(pcm=tone(24000, 2400), sample_rate=24000)
    out = feed(Converter(PHONE), [plain, Music(pcm=tone(24000, 4800), sample_rate=24000), UtteranceEnded()])
    assert [sum(len(f.pcm) // 2 for f in out if type(f) is t) for t in (OutputAudioFrame, Music)] == [800, 1600]
    assert [type(f) for f in out[:-1]] == sorted((type(f) for f in out[:-1]), key=lambda t: t is Music)


@pytest.mark.parametrize("rate", [8000, 16000, 22050, 24000, 44100, 48000])
def test_another_rate_begins_after_the_tail_of_the_last(rate: int) -> None:
    """A change of the source's rate, also to the target's own, loses nothing and keeps the order."""
    out = feed(Converter(PHONE), [*said(tone(24000, 24000)), *said(tone(rate, rate), rate), UtteranceEnded()])
    assert abs(sum(len(f.pcm) // 2 for f in out[:-1]) - 16000) <= 1
    made = numbers(b"".join(f.pcm for f in out[:-1]))
    for second in (made[:8000], made[8000:]):
        assert np.abs(second[100:-100] - numbers(tone(8000, 8000))[100 : len(second) - 100]).max() <= 16


def test_a_frame_that_cannot_be_converted_breaks_nothing() -> None:
    """A frame labelled 0 Hz, or of 6 channels, raises; the stream before it goes on as if it had not come."""
    converter = Converter(AudioFormat(16000, 2))
    sound = [OutputAudioFrame(pcm=piece, sample_rate=24000) for piece in cut(tone(24000, 4800), 480)]
    out = feed(converter, sound[:5])
    with pytest.raises(ValueError, match="0 Hz"):
        converter.process(OutputAudioFrame(pcm=bytes(4), sample_rate=0))
    with pytest.raises(ValueError, match="6 channels cannot be mixed to 2"):
        converter.process(OutputAudioFrame(pcm=bytes(24), sample_rate=24000, channels=6))
    out += feed(converter, [*sound[5:], UtteranceEnded()])
    undisturbed = feed(Converter(AudioFormat(16000, 2)), [*sound, UtteranceEnded()])
    assert [getattr(f, "pcm", None) for f in out] == [getattr(f, "pcm", None) for f in undisturbed]


def test_an_interrupt_drops_the_agents_sound_and_keeps_the_callers() -> None:
    """Of what was being said not a sample or word comes after it; of the caller not a sample is missing."""
    converter = Converter(PHONE)
    caller = feed(converter, [InputAudioFrame(pcm=tone(24000, 2400), sample_rate=24000)])
    feed(converter, said(tone(24000, 2400), words=(Word("old", 0.019, 0.5),), utterance=1))
    converter.on_interrupt(INTERRUPT)
    out = feed(converter, [*said(bytes(4800), utterance=1), UtteranceEnded(), EndFrame()])
    agent = [f for f in out if isinstance(f, OutputAudioFrame)]
    assert not any(f.words for f in agent)
    assert not numbers(b"".join(f.pcm for f in agent)).any()
    assert sum(len(f.pcm) // 2 for f in agent) == 800
    caller += [f for f in out if isinstance(f, InputAudioFrame)]
    assert sum(len(f.pcm) // 2 for f in caller) == 800


# --------------------------------------------------------------------------------------------------- stated delay


def test_the_delay_is_stated_for_what_comes_in() -> None:
    """holds_ms is that of the slowest source, of 8 kHz where none is known, and 0 where nothing is to be done."""
    assert Converter(WIDE, [AudioFormat(48000)]).holds_ms == holds_ms(48000, 16000)
    assert Converter(WIDE, [AudioFormat(48000), AudioFormat(8000)]).holds_ms == holds_ms(8000, 16000)
    assert Converter(WIDE, [None]).holds_ms == Converter(WIDE).holds_ms == holds_ms(8000, 16000)
    assert Converter(WIDE, [WIDE, AudioFormat(16000, 2)]).holds_ms == 0.0
    assert Converter(WIDE).makes == WIDE


@pytest.mark.parametrize("source", [AudioFormat(0), AudioFormat(16000, 6)])
def test_a_source_that_cannot_be_converted_is_refused_at_once(source: AudioFormat) -> None:
    """The graph is wrong before it runs, and the error names the target."""
    with pytest.raises(PipelineError, match=r"Converter to 48000 Hz x2"):
        Converter(AudioFormat(48000, 2), [source])


# --------------------------------------------------------------------------------------------------- in a session


class Voice(Processor):
    """Says 200 ms at 24 kHz in pieces of 20 ms, at the level the text names."""

    makes = AudioFormat(24000)

    async def process(self, frame: SayFrame) -> AsyncIterator[OutputAudioFrame | UtteranceEnded]:
        for _ in range(10):
            pcm = np.full(480, int(frame.text), "<i2").tobytes()
            yield OutputAudioFrame(pcm=pcm, sample_rate=24000, utterance=frame.utterance)
        yield UtteranceEnded(utterance=frame.utterance)


class Ear(Processor):
    """Takes 8 kHz only. At the frame numbered ``interrupt_at`` it interrupts the session."""

    takes = (PHONE,)

    def __init__(self, interrupt_at: int = -1) -> None:
        self.got: list[OutputAudioFrame | UtteranceEnded] = []
        self.interrupt_at = interrupt_at
        self.interrupted = asyncio.Event()

    def process(self, frame: OutputAudioFrame | UtteranceEnded) -> None:
        self.got.append(frame)
        if len(self.got) == self.interrupt_at:
            self.session.interrupt("enough")
            self.interrupted.set()


def run(ear: Ear, *texts: str) -> None:
    async def call() -> None:
        async with Session(Voice() >> Converter(PHONE, [AudioFormat(24000)]) >> ear, inputs=[SayFrame]) as session:
            for number, text in enumerate(texts, 1):
                await session.send(SayFrame(text=text, utterance=number))

    asyncio.run(call())


def test_a_call_hears_each_utterance_whole() -> None:
    """In a running session two utterances of 200 ms arrive as 200 ms each, and each end after its last sound."""
    ear = Ear()
    run(ear, "1000", "-1000")
    for number in (1, 2):
        of_it = [f for f in ear.got if f.utterance == number]
        assert isinstance(of_it[-1], UtteranceEnded)
        assert sum(len(f.pcm) // 2 for f in of_it if isinstance(f, OutputAudioFrame)) == 1600


@pytest.mark.parametrize("moment", range(1, 13))
def test_nothing_of_an_interrupted_utterance_follows(moment: int) -> None:
    """Interrupted at any frame, by the ear itself in the middle of a delivery, the next utterance has no sample of it."""
    ear = Ear(interrupt_at=moment)

    async def call() -> None:
        async with Session(Voice() >> Converter(PHONE) >> ear, inputs=[SayFrame]) as session:
            await session.send(SayFrame(text="9000", utterance=1))
            await ear.interrupted.wait()
            await session.send(SayFrame(text="-1000", utterance=2))

    asyncio.run(call())
    after = ear.got[moment:]
    assert {f.utterance for f in after} == {2}
    sound = numbers(b"".join(f.pcm for f in after if isinstance(f, OutputAudioFrame)))
    assert len(sound) == 1600
    assert sound.max() <= 200  # the ripple of a step from silence, nothing of the 9000
