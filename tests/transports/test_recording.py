"""Calls on disk: both tracks at the exact sample, whatever happens in the call, on the disk or to the process."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import random
import resource
import subprocess
import sys
import threading
import wave
from collections.abc import AsyncIterator

import numpy as np
import pytest

from voiceflow import (
    AudioFormat,
    InputAudioFrame,
    OutputAudioFrame,
    Processor,
    Session,
    SessionOptions,
    UtteranceEnded,
    Word,
)
from voiceflow.playout.refill import PlayoutOptions
from voiceflow.testing import VirtualClockLoop, no_leaks, run_virtual
from voiceflow.transports.memory import MemoryIn, MemoryOut
from voiceflow.transports.recording import Recorder, RecorderOptions
from voiceflow.transports.riff import WavReader
from voiceflow.transports.speaker import Speaker, SpeakerOptions
from voiceflow.transports.wav import WavIn, WavOut

from .far_end import FarEnd

if importlib.util.find_spec("soundfile") is None:
    pytest.skip("needs soundfile: pip install soundfile", allow_module_level=True)

import soundfile

BARE = PlayoutOptions(fade_ms=0, declick_ms=0)
LOUD = 12000


class Caller(Processor):
    """Live sound with a click every ``every`` samples; ``loses(n)``: whether the n-th frame never comes."""

    def __init__(self, seconds, rate=8000, *, every=1777, loses=lambda n: False):
        self.makes = AudioFormat(rate)
        self.rate, self.frames, self.every = rate, round(seconds * 50), every
        self.loses = loses
        self.clicks = []
        """When each click was said, in samples."""

    async def run(self) -> AsyncIterator[InputAudioFrame]:
        loop, size = asyncio.get_running_loop(), self.rate // 50
        start = loop.time()
        for n in range(self.frames):
            pause = start + (n + 1) * 0.02 - loop.time()
            if pause > 0:
                await asyncio.sleep(pause)
            if self.loses(n):
                continue
            samples = np.zeros(size, "<i2")
            clicks = [place for place in range(n * size, (n + 1) * size) if place % self.every == 0]
            samples[[place - n * size for place in clicks]] = LOUD
            self.clicks += clicks
            yield InputAudioFrame(pcm=samples.tobytes(), sample_rate=self.rate, pts=start + n * 0.02)


class Voice(Processor):
    """Says clicking utterances of the given seconds, with pauses between and within."""

    def __init__(self, script, rate=16000, every=997):
        self.makes = AudioFormat(rate)
        self.script, self.rate, self.every = script, rate, every

    async def run(self) -> AsyncIterator[OutputAudioFrame | UtteranceEnded]:
        for number, (seconds, stall_s, pause_s) in enumerate(self.script, 1):
            epoch = self.session.epoch
            for piece in range(round(seconds * 10)):
                if stall_s and piece == round(seconds * 5):
                    await asyncio.sleep(stall_s)
                samples = np.zeros(self.rate // 10, "<i2")
                samples[:: self.every] = LOUD
                samples[1] = 1  # no block of it is silence
                words = (Word(f"w{piece}", 0.0, 0.1),)
                yield OutputAudioFrame(pcm=samples.tobytes(), sample_rate=self.rate, utterance=number, words=words, epoch=epoch)
            yield UtteranceEnded(utterance=number, epoch=epoch)
            await asyncio.sleep(pause_s)


def clicks(track):
    """Where a track has its clicks: each the loudest within a few samples."""
    loud = np.flatnonzero(np.abs(track.astype(int)) > LOUD // 3)
    groups = np.split(loud, np.flatnonzero(np.diff(loud) > 8) + 1) if len(loud) else []
    return [int(group[np.abs(track[group].astype(int)).argmax()]) for group in groups]


def read(path):
    samples, rate = soundfile.read(path, dtype="int16", always_2d=True)
    return samples, rate


def near(found, wanted, within=1):
    """Each of both lists has its partner in the other."""
    assert len(found) == len(wanted), (len(found), len(wanted))
    assert np.abs(np.array(found) - np.array(wanted)).max(initial=0) <= within


async def call(source, voice, sink, recorder, *, options=None, meanwhile=()):
    pipeline = (voice >> sink).link(source, recorder)
    session = Session(pipeline, options=options)
    running = asyncio.create_task(session.run())
    await asyncio.sleep(0)
    await session.started()
    helpers = [asyncio.create_task(one(session)) for one in meanwhile]
    try:
        await running
    finally:
        for helper in helpers:
            helper.cancel()
        await asyncio.gather(*helpers, return_exceptions=True)
    return session


class TestPlaces:
    @pytest.mark.parametrize("seed", range(3))
    def test_ten_minutes_of_clicks_stand_at_the_exact_sample(self, tmp_path, seed):
        """With lost frames, stalls, holds, voice stalls and interrupts each click is where it was said or heard, and what was cut is not there."""
        dice = random.Random(seed)
        lost = {n for n in range(30_000) if dice.random() < 0.01} | set(range(9000, 10_000))
        caller = Caller(600, loses=lambda n: n in lost)
        script = [(dice.uniform(0.3, 6), dice.choice([0, 0, dice.uniform(0.1, 2)]), dice.uniform(0.05, 4)) for _ in range(100)]
        voice = Voice(script)
        far = FarEnd(16000)
        sink = Speaker(far.play, AudioFormat(16000), SpeakerOptions(ahead_s=0.3, playout=BARE), clear=far.clear)
        path = tmp_path / "call.wav"
        recorder = Recorder(path, sink)
        held = []

        async def disturb(session):
            loop = asyncio.get_running_loop()
            while True:
                await asyncio.sleep(dice.uniform(0.2, 6))
                what = dice.choice(["interrupt", "hold", "stall", "stall"])
                if what == "interrupt":
                    session.interrupt("barge-in")
                elif what == "hold":
                    session.hold("a cough")
                    await asyncio.sleep(dice.uniform(0.05, 0.8))
                    session.resume("it was one")
                else:  # the loop is held up, while something is said for no longer than the far end has sound
                    loop.now += dice.uniform(0, 1.5 if sink.playout.idle else max(far._free_at - loop.now - 0.02, 0))

        async def weigh(session):
            while True:
                await asyncio.sleep(0.1)
                held.append(recorder.held_bytes)

        session = run_virtual(call(caller, voice, sink, recorder, meanwhile=[disturb, weigh]))
        assert len(session.interruptions) > 20
        samples, rate = read(path)
        assert rate == 16000
        near(clicks(samples[:, 0]), [2 * place for place in caller.clicks])
        heard = [round(at * 16000) for at, value in far.heard_at() if value == LOUD]
        assert len(heard) > 1000
        near(clicks(samples[:, 1]), heard)
        assert max(held) <= (2 + 0.3 + 1 + 0.5 + 1.5) * 2 * (8000 + 16000), "what settles, a second, a tick and a stall"
        assert max(held) > 1000

    @pytest.mark.parametrize(("source", "agent", "file"), [(44100, 22050, 48000), (48000, 24000, None), (8000, 48000, 44100)])
    def test_other_rates_stay_together(self, tmp_path, source, agent, file):
        """A minute at rates that have little in common has its clicks within a sample of their times at its end too."""
        caller, voice = Caller(60, source, every=source // 6 * 2 + 14), Voice([(5, 0, 1.0)] * 9, agent)
        out = MemoryOut(AudioFormat(agent), SpeakerOptions(playout=BARE))
        recorder = Recorder(tmp_path / "call.wav", out, RecorderOptions(sample_rate=file))
        run_virtual(call(caller, voice, out, recorder))
        samples, rate = read(tmp_path / "call.wav")
        assert rate == (file or agent)
        near(clicks(samples[:, 0]), [round(place * rate / source) for place in caller.clicks])
        wanted = [
            round((block.at + offset / agent) * rate)
            for block in out.blocks
            for offset in np.flatnonzero(np.frombuffer(block.pcm, "<i2") == LOUD)
        ]
        near(clicks(samples[:, 1]), wanted)
        assert len(samples) == pytest.approx(60 * rate, abs=0.1 * rate)

    def test_a_burst_dated_by_its_coming_is_where_it_was_said(self, tmp_path):
        """After a stall of the line a second comes at once, dated now: its sound stands where it was said, to half a frame, and none is lost."""

        async def main():
            source, out = MemoryIn(AudioFormat(16000)), MemoryOut(AudioFormat(24000))
            recorder = Recorder(tmp_path / "call.wav", out)
            session = Session((Voice([], 24000) >> out).link(source, recorder))
            async with session:
                for n in range(500):
                    samples = np.full(320, 1000 + n, "<i2")
                    if not 200 <= n < 250:
                        await asyncio.sleep(max((n + 1) * 0.02 - session.time(), 0))
                    await source.send(InputAudioFrame(pcm=samples.tobytes(), sample_rate=16000))
                    if n == 199:
                        await asyncio.sleep(1.0)
                source.close()

        run_virtual(main())
        samples, rate = read(tmp_path / "call.wav")
        assert rate == 24000
        for n in range(500):  # the middle of each frame
            assert abs(int(samples[round((n + 0.5) * 480), 0]) - 1000 - n) <= 1, n

    def test_stereo_ends_are_mixed_and_a_change_of_rate_is_followed(self, tmp_path):
        """A stereo caller whose line changes its rate in mid-call, and a stereo loudspeaker, are one channel each."""

        async def main():
            source, out = MemoryIn(), MemoryOut(AudioFormat(16000, 2), SpeakerOptions(playout=BARE))
            voice = Voice([(1.0, 0, 0)], 16000)
            session = Session((voice >> out).link(source, Recorder(tmp_path / "call.wav", out)))
            async with session:
                for rate, begin in ((8000, 0), (16000, 50)):
                    for n in range(begin, begin + 50):
                        pcm = np.tile(np.array([2000, 4000], "<i2"), rate // 50).tobytes()
                        await source.send(InputAudioFrame(pcm=pcm, sample_rate=rate, channels=2, pts=n * 0.02))
                        await asyncio.sleep(0.02)
                source.close()

        run_virtual(main())
        samples, _ = read(tmp_path / "call.wav")
        middles = samples[160 : 100 * 320 : 320, 0].astype(int)
        assert len(middles) == 100
        assert np.abs(middles - 3000).max() < 100
        assert len(clicks(samples[:, 1])) == 10 * 2

    def test_only_one_side_leaves_the_other_silent(self, tmp_path):
        """A caller without an agent, and an agent whose caller sends nothing, are both as long as the call."""
        out = MemoryOut(AudioFormat(16000))
        run_virtual(call(Caller(5), Voice([]), out, Recorder(tmp_path / "a.wav", out)))
        samples, _ = read(tmp_path / "a.wav")
        assert len(samples) == pytest.approx(80_000, abs=20)
        assert not samples[:, 1].any()
        out = MemoryOut(AudioFormat(16000))
        run_virtual(call(Caller(4, loses=lambda n: True), Voice([(2, 0, 0)]), out, Recorder(tmp_path / "b.wav", out)))
        samples, _ = read(tmp_path / "b.wav")
        assert len(samples) == pytest.approx(64_000, abs=20)
        assert not samples[:, 0].any()
        assert len(clicks(samples[:, 1])) == 20 * 2


@pytest.mark.parametrize("name", ["call.flac", "call.opus", "call.ogg"])
def test_compressed_files_hold_the_same(tmp_path, name):
    """FLAC has every sample of the WAV; Opus has its clicks within a millisecond."""
    files = {}
    for file in ("call.wav", name):
        out = MemoryOut(AudioFormat(24000), SpeakerOptions(playout=BARE))
        run_virtual(call(Caller(10), Voice([(1, 0, 0.5)] * 4, 24000), out, Recorder(tmp_path / file, out)))
        files[file], rate = read(tmp_path / file)
        assert rate == 24000
    plain, packed = files["call.wav"], files[name]
    if name.endswith("flac"):
        assert np.array_equal(plain, packed)
    else:
        assert abs(len(plain) - len(packed)) < 24
        for side in (0, 1):
            for place in clicks(plain[:, side]):
                near_it = np.abs(packed[max(place - 200, 0) : place + 200, side].astype(int))
                assert abs(near_it.argmax() - min(place, 200)) <= 24


CUT_OFF = """
import asyncio, os, sys
from tests.transports.test_recording import AudioFormat, Caller, MemoryOut, Recorder, Voice, call, run_virtual

async def die(session):
    await asyncio.sleep(30)
    os._exit(9)

out = MemoryOut(AudioFormat(24000))
run_virtual(call(Caller(60), Voice([(2, 0, 1)] * 20, 24000), out, Recorder(sys.argv[1], out), meanwhile=[die]))
"""


@pytest.mark.parametrize("name", ["call.wav", "call.flac", "call.opus"])
def test_a_process_that_is_ended_in_the_middle_leaves_a_file_that_plays(tmp_path, name):
    """Ended without warning after 30 s the process leaves at least 25 s on both tracks, for soundfile, for wave and for WavIn."""
    path = tmp_path / name
    run = subprocess.run([sys.executable, "-c", CUT_OFF, str(path)], timeout=60, check=False, capture_output=True, text=True)
    assert run.returncode == 9, run.stderr
    samples, rate = read(path)
    assert 25 < len(samples) / rate < 30
    assert np.abs(samples[-4 * rate :]).max(axis=0).min() > LOUD / 4
    if name == "call.wav":
        with wave.open(str(path)) as file:
            assert file.getnframes() == len(samples)
        assert WavIn(path).duration_s == len(samples) / rate


@contextlib.contextmanager
def a_disk_of(size):
    """No file of this process may grow over this many bytes: the write after that fails, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("name", ["call.wav", "call.flac", "call.opus"])
def test_a_full_disk_ends_the_recording_and_not_the_call(tmp_path, name, caplog):
    """The call goes on to its end, which says what the file lacks; up to there the file is whole."""
    caller = Caller(60, 16000, every=50)
    out = MemoryOut(AudioFormat(48000))
    recorder = Recorder(tmp_path / name, out)
    ended = []

    async def main():
        try:
            await call(caller, Voice([(2, 0, 1)] * 5, 48000, every=40), out, recorder)
        finally:
            ended.append(asyncio.get_running_loop().time())

    with a_disk_of(60_000 if name == "call.opus" else 500_000), pytest.raises(ExceptionGroup) as error:
        run_virtual(main())
    assert ended == [pytest.approx(60, abs=0.1)]
    assert error.group_contains(Exception, match=rf"Recorder: stop\(\) raised RecordingError: the recording .*{name} ends after \d+ s: ")
    assert [r.message for r in caplog.records if "the call goes on" in r.message]
    samples, rate = read(tmp_path / name)
    assert 1 < len(samples) / rate < 50
    assert len(caller.clicks) == 60 * 16000 // 50


class BlockedDisk:
    """Takes its first second when ``go`` is set."""

    go = threading.Event()

    def __init__(self, path, form):
        self.pcm = b""

    def write(self, pcm):
        self.go.wait()
        self.pcm += pcm

    def close(self):
        pass


class ClockGoesOn(VirtualClockLoop):
    """Its time does not wait for a thread that waits for the disk."""

    def run_in_executor(self, executor, func, *args):
        if BlockedDisk.go.is_set():
            return super().run_in_executor(executor, func, *args)
        return asyncio.SelectorEventLoop.run_in_executor(self, executor, func, *args)


def test_a_disk_slower_than_the_call_costs_sound_and_never_time(tmp_path, caplog):
    """While the disk takes nothing the caller's frames go through on time and what waits is bounded; the rest of the file is in its place."""
    caller, out = Caller(60), MemoryOut(AudioFormat(16000))
    recorder = Recorder(tmp_path / "call.wav", out)
    disk = BlockedDisk("", None)
    disk.go.clear()
    recorder._make = lambda path, form: disk
    held = []

    async def unblock(session):
        for _ in range(40):
            await asyncio.sleep(1)
            held.append(recorder.held_bytes)
        disk.go.set()

    with pytest.raises(ExceptionGroup) as error:
        run_virtual(
            call(caller, Voice([]), out, recorder, meanwhile=[unblock], options=SessionOptions(stop_timeout_s=1e6)), loop=ClockGoesOn()
        )
    assert error.group_contains(Exception, match=r"call\.wav lacks \d+\.\d s of sound: the disk was slower than the call")
    assert [r.message for r in caplog.records if "loses sound" in r.message]
    assert 5 * 8000 * 2 <= max(held) <= 10 * 8000 * 2
    assert len(caller.clicks) == 60 * 8000 // 1777 + 1
    samples = np.frombuffer(disk.pcm, "<i2").reshape(-1, 2)
    found = clicks(samples[:, 0])
    assert set(found) <= {2 * place + n for place in caller.clicks for n in (-1, 0, 1)}
    assert found
    assert (
        60 * 16000 - len(found) * 2 * 1777
    ) / 16000 > 20  # how much more depends on when the real thread wakes, for which no clock waits


def test_it_is_refused_where_it_could_not_work(tmp_path):
    """An unknown ending, a sink without pacing, a sink of another call and a place that cannot be written are clear errors."""
    out = MemoryOut(AudioFormat(16000))
    with pytest.raises(ValueError, match=r"call\.mp3 must end in one of \.wav"):
        Recorder(tmp_path / "call.mp3", out)
    with pytest.raises(ValueError, match="no place in time"):
        Recorder(tmp_path / "call.wav", WavOut(tmp_path / "a.wav", realtime=False))
    with pytest.raises(ValueError, match="limit_s"):
        RecorderOptions(limit_s=1)
    for recorder, says in (
        (Recorder(tmp_path / "call.wav", MemoryOut()), "not in this session"),
        (Recorder(tmp_path / "no" / "call.wav", out), "No such file"),
    ):
        sink = out if "No such" in says else MemoryOut(AudioFormat(16000))
        with pytest.raises(ExceptionGroup) as error:
            run_virtual(call(Caller(1), Voice([]), sink, recorder))
        assert error.group_contains(Exception, match=says)


def test_without_soundfile_wav_is_recorded_and_the_rest_says_what_to_install(tmp_path):
    """On a machine without the library WAV works, and another ending names the extra when the node is made."""
    program = (
        "import sys; sys.modules['soundfile'] = None\n"
        "from voiceflow.transports.memory import MemoryOut\n"
        "from voiceflow.transports.recording import Recorder\n"
        "Recorder('a.wav', MemoryOut())\n"
        "Recorder('a.flac', MemoryOut())\n"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert "line 5" in run.stderr
    assert "FLAC and Opus need soundfile: install the extra 'record', or record to .wav" in run.stderr


def test_opus_takes_a_rate_that_it_knows(tmp_path):
    """A sink at 44.1 kHz is recorded to Opus at 48; one asked for by name is refused when the session starts."""
    assert Recorder(tmp_path / "a.opus", MemoryOut(AudioFormat(44100))).format.sample_rate == 48000
    out = MemoryOut(AudioFormat(16000))
    with pytest.raises(ExceptionGroup) as error:
        run_virtual(call(Caller(1), Voice([]), out, Recorder(tmp_path / "a.opus", out, RecorderOptions(sample_rate=44100))))
    assert error.group_contains(Exception, match="Opus has 8000, .*, not 44100")


def test_a_caller_faster_than_time_ends_the_recording(tmp_path):
    """A file read at full speed has no place on the clock: the recording ends with an error that says so."""
    with wave.open(str(tmp_path / "in.wav"), "wb") as file:
        file.setparams((1, 2, 8000, 0, "NONE", ""))
        file.writeframes(bytes(16000 * 20))
    out = MemoryOut(AudioFormat(16000))
    with pytest.raises(ExceptionGroup) as error:
        run_virtual(call(WavIn(tmp_path / "in.wav", realtime=False), Voice([]), out, Recorder(tmp_path / "call.wav", out)))
    assert error.group_contains(Exception, match="ahead of the clock; only live sound can be recorded")


def test_a_cancelled_call_leaves_a_closed_file_and_nothing_else(tmp_path):
    """Cancelled in mid-speech the session leaves no thread, task or descriptor, and a file as long as the call was."""

    async def main():
        out = MemoryOut(AudioFormat(16000))
        async with no_leaks():

            async def hang_up(session):
                await asyncio.sleep(3.3)
                session.cancel()

            await call(Caller(60), Voice([(20, 0, 0)]), out, Recorder(tmp_path / "call.wav", out), meanwhile=[hang_up])

    run_virtual(main())
    samples, rate = read(tmp_path / "call.wav")
    assert len(samples) / rate == pytest.approx(3.3, abs=0.01)
    assert len(clicks(samples[:, 1])) == pytest.approx(33 * 2, abs=3)


def test_the_header_of_a_wav_is_right_after_every_second(tmp_path):
    """At any time of the call the file is a WAV as long as it should be."""
    lengths = []

    async def look(session):
        while True:
            await asyncio.sleep(1)
            reader = WavReader(tmp_path / "call.wav")
            reader.close()
            lengths.append(reader.frames / 16000)

    out = MemoryOut(AudioFormat(16000))
    run_virtual(call(Caller(20), Voice([]), out, Recorder(tmp_path / "call.wav", out), meanwhile=[look]))
    assert lengths[5:] == pytest.approx([n - 2.5 for n in range(6, 6 + len(lengths) - 5)], abs=1.1)
