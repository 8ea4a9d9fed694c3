"""WAV files as caller and as listener."""

from __future__ import annotations

import asyncio
import wave
from collections.abc import AsyncIterator

import numpy as np
import pytest

from voiceflow import (
    AudioFormat,
    Heard,
    HoldFrame,
    InputAudioFrame,
    OutputAudioFrame,
    PipelineError,
    PlaybackStarted,
    PlaybackStopped,
    Processor,
    Session,
    UtteranceEnded,
    Word,
    replace,
)
from voiceflow.playout.refill import PlayoutOptions
from voiceflow.testing import run_virtual
from voiceflow.transports.speaker import SpeakerOptions
from voiceflow.transports.wav import RecordedAudioFrame, WavIn, WavOut

BARE = SpeakerOptions(playout=PlayoutOptions(fade_ms=0, declick_ms=0))


def write(path, data, *, rate=16000, channels=1, width=2):
    with wave.open(str(path), "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(width)
        file.setframerate(rate)
        file.writeframes(data)
    return path


def read(path):
    with wave.open(str(path), "rb") as file:
        return file.getparams(), np.frombuffer(file.readframes(file.getnframes()), "<i2")


class Listener(Processor):
    """Keeps the caller's sound; takes ``each_s`` for a frame."""

    def __init__(self, each_s=0.0):
        self.each_s = each_s
        self.frames: list[tuple[float, InputAudioFrame]] = []

    async def process(self, frame: InputAudioFrame) -> None:
        self.frames.append((self.session.time(), frame))
        if self.each_s:
            await asyncio.sleep(self.each_s)

    @property
    def pcm(self):
        return b"".join(frame.pcm for _, frame in self.frames)


class Voice(Processor):
    """Yields frames and pauses (seconds); ``interrupt`` in it interrupts."""

    makes = AudioFormat(24000)

    def __init__(self, *script):
        self.script = script
        self.reports = []
        self.interruptions = []

    def process(self, frame: PlaybackStarted | PlaybackStopped) -> None:
        self.reports.append(frame)

    async def run(self) -> AsyncIterator[OutputAudioFrame | UtteranceEnded | HoldFrame]:
        for item in self.script:
            if item == "interrupt":
                self.interruptions.append(self.session.interrupt())
            elif isinstance(item, int | float):
                await asyncio.sleep(item)
            else:
                yield replace(item, epoch=self.session.epoch)


def spoken(*texts, value=1000, utterance=1):
    pcm = np.full(2400 * len(texts), value, "<i2").tobytes()
    words = tuple(Word(text, i * 0.1, (i + 1) * 0.1) for i, text in enumerate(texts))
    return OutputAudioFrame(pcm=pcm, sample_rate=24000, utterance=utterance, words=words)


def run(pipeline):
    async def main():
        await Session(pipeline).run()
        return asyncio.get_running_loop().time()

    return run_virtual(main())


RAMP = np.arange(-8000, 8010, dtype="<i2")


class TestIn:
    def test_real_time_gives_each_block_when_it_has_been_said(self, tmp_path):
        """A second of 16 kHz comes in 20 ms blocks, each at its end, with the time of its first sample; the session ends behind it."""
        listener = Listener()
        end = run(WavIn(write(tmp_path / "a.wav", RAMP.tobytes())) >> listener)
        assert listener.pcm == RAMP.tobytes()
        times, frames = zip(*listener.frames, strict=True)
        assert times[:-1] == pytest.approx([(n + 1) * 0.02 for n in range(50)])
        assert [f.pts for f in frames] == pytest.approx([n * 0.02 for n in range(51)])
        assert len(frames[-1].pcm) == 20, "the 10 samples that are left"
        assert end == pytest.approx(len(RAMP) / 16000)

    def test_fast_waits_for_the_slowest_and_drops_nothing(self, tmp_path):
        """A minute read without pacing by a listener that takes 50 ms for each frame arrives whole, with its times."""
        minute = np.arange(60 * 8000, dtype="<i4").astype("<i2").tobytes()
        listener = Listener(each_s=0.05)
        end = run(WavIn(write(tmp_path / "a.wav", minute, rate=8000), realtime=False) >> listener)
        assert listener.pcm == minute
        assert end == pytest.approx(3000 * 0.05)
        assert {type(f) for _, f in listener.frames} == {RecordedAudioFrame}
        assert listener.frames[-1][1].pts == pytest.approx(59.98)

    def test_a_tail_of_silence_follows(self, tmp_path):
        """``tail_s`` of zeros stands behind the file's sound without a gap."""
        listener = Listener()
        run(WavIn(write(tmp_path / "a.wav", RAMP.tobytes()), tail_s=0.5) >> listener)
        assert listener.pcm == RAMP.tobytes() + bytes(16000)

    @pytest.mark.parametrize(
        ("width", "data"),
        [
            (1, bytes([0, 127, 128, 255, 1, 2])),
            (2, np.array([-32768, -256, 0, 32512, -32512, -32256], "<i2").tobytes()),
            (3, b"".join((v << 8).to_bytes(3, "little", signed=True) for v in (-32768, -256, 0, 32512, -32512, -32256))),
            (4, np.array([-32768, -256, 0, 32512, -32512, -32256], "<i4").__lshift__(16).tobytes()),
        ],
    )
    def test_any_width_becomes_16_bits(self, tmp_path, width, data):
        """The same six values in 8, 16, 24 and 32 bits, two channels at 22050 Hz, are the same sound."""
        listener = Listener()
        source = WavIn(write(tmp_path / "a.wav", data, rate=22050, channels=2, width=width))
        assert source.makes == AudioFormat(22050, 2)
        run(source >> listener)
        assert np.frombuffer(listener.pcm, "<i2").tolist() == [-32768, -256, 0, 32512, -32512, -32256]

    def test_an_empty_file_ends_at_once(self, tmp_path):
        """A WAV without a sample yields none."""
        listener = Listener()
        assert run(WavIn(write(tmp_path / "a.wav", b"")) >> listener) == 0.0
        assert listener.frames == []

    def test_what_is_no_wav_is_an_error_that_says_so(self, tmp_path):
        """A missing file, an empty one, text and a coding that is not read are refused by name when the node is made."""
        with pytest.raises(FileNotFoundError, match=r"none\.wav"):
            WavIn(tmp_path / "none.wav")
        (tmp_path / "empty.wav").touch()
        with pytest.raises(ValueError, match=r"empty\.wav is no WAV file .* cut off"):
            WavIn(tmp_path / "empty.wav")
        (tmp_path / "text.wav").write_bytes(b"hello, this is not a sound")
        with pytest.raises(ValueError, match=r"text\.wav is no WAV file .* ffmpeg"):
            WavIn(tmp_path / "text.wav")
        header = bytearray(write(tmp_path / "a.wav", bytes(64), width=4).read_bytes())
        header[20] = 0x11  # IMA ADPCM
        (tmp_path / "adpcm.wav").write_bytes(header)
        with pytest.raises(ValueError, match=r"adpcm\.wav is no WAV file that can be read: its sound is of the kind 17; .* ffmpeg"):
            WavIn(tmp_path / "adpcm.wav")
        with pytest.raises(ValueError, match="block_ms 0"):
            WavIn(tmp_path / "a.wav", block_ms=0)


class TestOut:
    def test_real_time_writes_what_was_heard_at_its_time(self, tmp_path):
        """Speech at half a second lies at half a second in the file, and the file is as long as the session."""
        voice = Voice(0.49, spoken("one", "two"), UtteranceEnded(utterance=1), 1.3)
        end = run(voice >> WavOut(tmp_path / "a.wav", options=BARE))
        params, pcm = read(tmp_path / "a.wav")
        assert (params.framerate, params.nchannels, params.sampwidth) == (24000, 1, 2)
        assert np.flatnonzero(pcm)[[0, -1]].tolist() == [12000, 12000 + 4799]
        assert len(pcm) / 24000 == pytest.approx(end, abs=0.04)

    def test_an_interrupt_keeps_out_what_was_not_heard(self, tmp_path):
        """In real time the file ends its sound at the block under way when the interrupt came."""
        voice = Voice(spoken("one", "two", "three", "four"), 0.29, "interrupt", 0.5, spoken("five", value=5, utterance=2), 0.5)
        run(voice >> WavOut(tmp_path / "a.wav", options=BARE))
        _, pcm = read(tmp_path / "a.wav")
        assert (pcm == 1000).sum() == 14 * 480  # from the second block on, at 0.02 s
        assert (pcm == 5).sum() == 2400
        assert voice.interruptions[0].heard == [Heard(1, "one two three", False)]

    def test_fast_writes_speech_end_to_end(self, tmp_path):
        """Without pacing the file holds the speech alone, as soon as it is made; a hold changes nothing."""
        voice = Voice(0.5, spoken("one"), HoldFrame(), 7.0, spoken("two"), UtteranceEnded(utterance=1))
        end = run(voice >> WavOut(tmp_path / "a.wav", realtime=False))
        assert (read(tmp_path / "a.wav")[1] == 1000).sum() == len(read(tmp_path / "a.wav")[1]) == 4800
        assert end == pytest.approx(7.5)
        assert voice.reports[-1].heard == Heard(1, "one two", True)

    def test_an_interrupt_of_a_fast_one_keeps_what_is_written(self, tmp_path):
        """Without pacing what is in the file stays and counts as heard; the next speech follows it."""
        voice = Voice(spoken("one", "two"), 0.1, "interrupt", spoken("three", value=3, utterance=2), UtteranceEnded(utterance=2))
        run(voice >> WavOut(tmp_path / "a.wav", realtime=False, options=BARE))
        _, pcm = read(tmp_path / "a.wav")
        assert pcm.tolist() == [1000] * 4800 + [3] * 2400
        assert voice.interruptions[0].heard == [Heard(1, "one two", False)]

    def test_the_file_is_valid_at_any_time(self, tmp_path):
        """In the middle of the session, and after a cancel, the header says how much sound there is."""
        path = tmp_path / "a.wav"

        async def main():
            session = Session(Voice(spoken(*"abcdefghij"), 5.0) >> WavOut(path))
            running = asyncio.create_task(session.run())
            await asyncio.sleep(0.51)
            during = len(read(path)[1])
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            return during

        assert run_virtual(main()) == 26 * 480
        assert len(read(path)[1]) == 26 * 480

    def test_a_session_that_says_nothing_leaves_a_valid_file(self, tmp_path):
        """Without any speech the file is a WAV of no or of silent samples."""
        run(Voice(0.1) >> WavOut(tmp_path / "fast.wav", realtime=False))
        run(Voice(0.1) >> WavOut(tmp_path / "real.wav", AudioFormat(8000)))
        assert len(read(tmp_path / "fast.wav")[1]) == 0
        params, pcm = read(tmp_path / "real.wav")
        assert params.framerate == 8000
        assert not pcm.any()

    def test_another_rate_is_converted_on_the_way(self, tmp_path):
        """A voice at 24 kHz in front of a file of 8 kHz: the pipeline converts, the length stays."""
        tone = np.rint(8000 * np.sin(2 * np.pi * 440 * np.arange(48000) / 24000)).astype("<i2")
        frames = [OutputAudioFrame(pcm=part.tobytes(), sample_rate=24000, utterance=1) for part in np.split(tone, 100)]
        run(Voice(*frames, UtteranceEnded(utterance=1)) >> WavOut(tmp_path / "a.wav", AudioFormat(8000), realtime=False))
        pcm = read(tmp_path / "a.wav")[1]
        assert abs(len(pcm) - 16000) <= 1
        assert np.argmax(np.abs(np.fft.rfft(pcm[:16000]))) == 880

    def test_a_place_that_cannot_be_written_is_an_error(self, tmp_path):
        """A missing folder ends the start of the session, with the path."""
        with pytest.raises(ExceptionGroup) as error:
            run(Voice(0.1) >> WavOut(tmp_path / "no" / "a.wav"))
        assert error.group_contains(Exception, match=r"WavOut: start\(\) raised FileNotFoundError: .*no/a\.wav")

    def test_a_width_it_cannot_convert_is_an_error_of_the_graph(self, tmp_path):
        """Six channels do not become one by themselves."""
        voice = Voice(0.1)
        voice.makes = AudioFormat(48000, 6)
        with pytest.raises(PipelineError, match="x6"):
            Session(voice >> WavOut(tmp_path / "a.wav"))


def test_a_file_goes_through_sample_for_sample(tmp_path):
    """Caller from a file, echoed, into a file: without pacing the copy is the original."""

    class Echo(Processor):
        def process(self, frame: InputAudioFrame) -> OutputAudioFrame:
            return OutputAudioFrame(pcm=frame.pcm, sample_rate=frame.sample_rate, epoch=self.session.epoch)

    noise = np.random.default_rng(1).integers(-32768, 32767, 50_001).astype("<i2")
    source = WavIn(write(tmp_path / "in.wav", noise.tobytes(), rate=48000), realtime=False)
    run(source >> Echo() >> WavOut(tmp_path / "out.wav", AudioFormat(48000), realtime=False))
    assert (read(tmp_path / "out.wav")[1] == noise).all()
