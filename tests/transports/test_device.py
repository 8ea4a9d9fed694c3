"""Microphone and loudspeaker on a real sound server: PulseAudio's null sink, heard through its monitor."""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import shutil
import subprocess
from collections.abc import AsyncIterator

import numpy as np
import pytest

from voiceflow import (
    AudioFormat,
    Heard,
    InputAudioFrame,
    OutputAudioFrame,
    PlaybackStarted,
    PlaybackStopped,
    Processor,
    Session,
    UtteranceEnded,
    Word,
)
from voiceflow.backoff import BackoffOptions
from voiceflow.testing import no_leaks

if importlib.util.find_spec("pyaudio") is None:
    pytest.skip("needs PyAudio: apt-get install portaudio19-dev && pip install PyAudio", allow_module_level=True)

from voiceflow.transports.device import DeviceError, DeviceIn, DeviceOut, devices

RATE = 48000
FORM = AudioFormat(RATE)
NOISE = np.random.default_rng(7).integers(-8000, 8000, 2 * RATE).astype("<i2")


def tone(hz, seconds):
    return np.rint(8000 * np.sin(2 * np.pi * hz * np.arange(round(seconds * RATE)) / RATE)).astype("<i2")


class Voice(Processor):
    """Says what it is told to; keeps the reports."""

    makes = FORM

    def __init__(self):
        self.reports = []
        self.orders = asyncio.Queue(8)
        self.report = asyncio.Event()

    def process(self, frame: PlaybackStarted | PlaybackStopped) -> None:
        self.reports.append(frame)
        self.report.set()

    async def run(self) -> AsyncIterator[OutputAudioFrame | UtteranceEnded]:
        while True:
            samples, utterance, words = await self.orders.get()
            epoch = self.session.epoch
            for i, part in enumerate(np.split(samples, range(4800, len(samples), 4800))):
                begin = [Word(w.text, w.start - i * 0.1, w.end - i * 0.1) for w in words if i * 0.1 <= w.start < (i + 1) * 0.1]
                yield OutputAudioFrame(pcm=part.tobytes(), sample_rate=RATE, utterance=utterance, words=tuple(begin), epoch=epoch)
            yield UtteranceEnded(utterance=utterance, epoch=epoch)

    async def say(self, samples, utterance=1, words=()):
        """Returns when all of it was heard."""
        await self.orders.put((samples, utterance, words))
        await self.until(PlaybackStopped, utterance)

    async def until(self, kind, utterance):
        while not any(isinstance(r, kind) and getattr(r, "heard", r).utterance == utterance for r in self.reports):
            self.report.clear()
            await self.report.wait()


class Tape(Processor):
    """Keeps the microphone's sound."""

    def __init__(self):
        self.frames: list[InputAudioFrame] = []
        self.came = asyncio.Event()

    def process(self, frame: InputAudioFrame) -> None:
        self.frames.append(frame)
        self.came.set()

    async def roll(self, seconds):
        """Returns when this much more has been recorded."""
        end = sum(f.duration for f in self.frames) + seconds
        while sum(f.duration for f in self.frames) < end:
            self.came.clear()
            await self.came.wait()

    def time_of(self, sample):
        for frame in self.frames:
            if sample < len(frame.samples):
                return frame.pts + sample / RATE
            sample -= len(frame.samples)
        raise AssertionError("not recorded")

    @property
    def pcm(self):
        return np.concatenate([f.samples[:, 0] for f in self.frames]).astype(float)


def best_match(recorded, played):
    """Where ``played`` lies in ``recorded``, and how well (correlation)."""
    size = 1 << (len(recorded) + len(played)).bit_length()
    product = np.fft.irfft(np.fft.rfft(recorded, size) * np.conj(np.fft.rfft(played, size)))
    at = int(product[: len(recorded)].argmax())
    part = recorded[at : at + len(played)]
    return at, np.corrcoef(part, played[: len(part)])[0, 1]


def seconds_of(recorded, hz):
    """How long a tone is in the recording: windows of 10 ms in which it is the strongest by far."""
    windows = recorded[: len(recorded) // 480 * 480].reshape(-1, 480)
    t = np.arange(480) / RATE
    level = np.abs(windows @ np.exp(-2j * np.pi * hz * t)) / 240
    return (level > 4000).sum() * 0.01


async def listen_and_speak(script, *, form=FORM):
    """Run ``script(session, voice, tape, speaker)`` with loudspeaker and microphone open; then end, drained."""
    voice, tape, speaker = Voice(), Tape(), DeviceOut("pulse", form)
    session = Session([voice >> speaker, DeviceIn("pulse", FORM) >> tape])
    async with no_leaks(descriptors=False), session:
        await tape.roll(1.5)  # a null sink and its monitor take a second to agree on their clocks
        await script(session, voice, tape, speaker)
    return voice, tape, speaker


@pytest.fixture(autouse=True)
def server(sound_server):
    if not any(device.name == "pulse" for device in devices()):
        pytest.skip("needs ALSA's way to PulseAudio: apt-get install libasound2-plugins")
    return sound_server


def test_what_is_said_is_what_is_recorded():
    """Two seconds of noise through loudspeaker and microphone come back sample for sample, and are reported as heard."""

    async def script(session, voice, tape, speaker):
        words = [Word(str(i), i * 0.5, i * 0.5 + 0.5) for i in range(4)]
        await voice.say(NOISE, words=words)
        await tape.roll(0.5)

    voice, tape, speaker = asyncio.run(listen_and_speak(script))
    at, correlation = best_match(tape.pcm, NOISE.astype(float))
    assert correlation > 0.99
    started, stopped = voice.reports
    assert stopped.heard == Heard(1, "0 1 2 3", True)
    assert stopped.at - started.at == pytest.approx(2.0, abs=0.1)
    assert 0 <= speaker.latency_s < 0.5
    # Both ends tell the time by their device's own clock: the sound was recorded when it was said to be heard.
    recorded_at = tape.time_of(at)
    assert started.at == pytest.approx(recorded_at, abs=0.05)


def test_an_interrupt_leaves_only_what_the_device_had_taken():
    """Of a tone cut in its middle no more is recorded than was heard and what lay in the device; the next is whole."""

    async def script(session, voice, tape, speaker):
        await voice.orders.put((tone(1000, 5.0), 1, [Word("long", 0.0, 5.0)]))
        await voice.until(PlaybackStarted, 1)
        await tape.roll(1.0)
        record = session.interrupt("barge-in")
        assert record.heard == [Heard(1, "long", False)]
        await voice.say(tone(2500, 0.5), 2)
        await tape.roll(0.5)
        script.heard_s = record.at - voice.reports[0].at

    voice, tape, _ = asyncio.run(listen_and_speak(script))
    over = seconds_of(tape.pcm, 1000) - script.heard_s
    assert over < 0.2, "seen: 9 to 14 ms with PULSE_LATENCY_MSEC=20, 66 to 68 ms with 60"
    assert seconds_of(tape.pcm, 2500) == pytest.approx(0.5, abs=0.03)
    assert [type(r) for r in voice.reports] == [PlaybackStarted, PlaybackStarted, PlaybackStopped]


def test_a_hold_is_silent_and_a_resume_goes_on():
    """During a hold the microphone picks up nothing; afterwards the tone goes on and is heard to its end."""

    async def script(session, voice, tape, speaker):
        await voice.orders.put((tone(1000, 1.5), 1, [Word("long", 0.0, 1.5)]))
        await voice.until(PlaybackStarted, 1)
        await tape.roll(0.5)
        session.hold("a cough")
        await tape.roll(0.5)
        script.held = len(tape.pcm)
        await tape.roll(0.5)
        script.silent = tape.pcm[script.held :]
        session.resume("it was one")
        await voice.until(PlaybackStopped, 1)
        await tape.roll(0.5)

    voice, tape, _ = asyncio.run(listen_and_speak(script))
    assert seconds_of(script.silent, 1000) == 0
    assert seconds_of(tape.pcm, 1000) >= 1.5
    assert voice.reports[-1].heard == Heard(1, "long", True)


def test_the_end_waits_for_the_device():
    """A session ended right after the words were made has them all recorded."""

    async def script(session, voice, tape, speaker):
        await voice.orders.put((tone(1000, 1.0), 1, ()))
        await voice.until(PlaybackStarted, 1)

    voice, _, _ = asyncio.run(listen_and_speak(script))
    assert voice.reports[-1].heard.complete


def test_another_rate_and_stereo_work():
    """A 24 kHz stereo loudspeaker plays what a 48 kHz voice says."""

    async def script(session, voice, tape, speaker):
        await voice.say(tone(1000, 1.0))
        await tape.roll(0.5)

    _, tape, _ = asyncio.run(listen_and_speak(script, form=AudioFormat(24000, 2)))
    assert seconds_of(tape.pcm, 1000) == pytest.approx(1.0, abs=0.05)


def test_devices_are_found_by_index_name_and_part_of_it():
    """The default, an index, a name, and a unique part of it in any case lead to the same device, at its own rate."""
    pulse = next(device for device in devices() if device.name == "pulse")
    assert DeviceIn("pulse").device == DeviceIn(pulse.index).device == DeviceOut("PUL").device == pulse
    assert DeviceOut("pulse").format == AudioFormat(pulse.sample_rate)
    assert DeviceIn().device.inputs > 0


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: DeviceOut("no such thing"), r"no device 'no such thing' for sound out; devices: .*'pulse'"),
        (lambda: DeviceIn(99), r"no device 99 for sound in; devices: .*'pulse'"),
        (lambda: DeviceIn("u"), r"'u' is part of the names of \d+ devices .* use an index"),
        (lambda: DeviceOut("pulse", AudioFormat(RATE, 64)), r"'pulse' .* has 32 channels out, not 64"),
    ],
)
def test_a_device_that_is_not_there_is_an_error_naming_those_that_are(make, says):
    """An unknown name or index, an ambiguous name and too many channels are refused when the node is made."""
    with pytest.raises(DeviceError, match=says):
        make()


def test_a_machine_without_sound_says_so(monkeypatch):
    """Without a sound server there is no default device, and the text says what to do."""
    monkeypatch.setenv("PULSE_SERVER", "unix:/nowhere")
    if devices():
        pytest.skip("this machine has a sound card")
    with pytest.raises(DeviceError, match="no default device for sound out; devices: none at all"):
        DeviceOut()


def test_a_device_that_cannot_be_opened_ends_the_start(own_sound_server):
    """When the server is gone between making the node and starting the session, the error names node and device."""
    voice, speaker = Voice(), DeviceOut("pulse", FORM)
    own_sound_server.kill()
    with pytest.raises(ExceptionGroup) as error:
        asyncio.run(Session(voice >> speaker).run())
    assert error.group_contains(Exception, match=r"DeviceOut: start\(\) raised DeviceError: .*'pulse' .* could not be opened for output")


async def run_until(session, disturb):
    """Run the session, ``disturb()`` it once it runs, and raise what it ends with."""
    running = asyncio.create_task(session.run())
    await asyncio.sleep(0)
    await session.started()
    disturb()
    await running


@pytest.mark.parametrize("end", ["loudspeaker", "microphone"])
def test_a_device_that_goes_away_ends_the_session(own_sound_server, end):
    """A server that dies in the middle of the session ends it with an error that names the device."""
    pipeline = Voice() >> DeviceOut("pulse", FORM) if end == "loudspeaker" else DeviceIn("pulse", FORM) >> Tape()
    with pytest.raises(ExceptionGroup) as error:
        asyncio.run(run_until(Session(pipeline), own_sound_server.kill))
    assert error.group_contains(Exception, match="DeviceError: .*'pulse' .* has stopped")
    assert len(error.value.exceptions) == 1, "closing a device that is gone does not hang"


class Hum(Processor):
    """Speaks for ever."""

    makes = FORM

    async def run(self) -> AsyncIterator[OutputAudioFrame]:
        while True:
            yield OutputAudioFrame(pcm=NOISE[:4800].tobytes(), sample_rate=RATE, utterance=1, epoch=self.session.epoch)


def pactl(*arguments):
    """The sound server's own control; it returns when it is done."""
    if shutil.which("pactl") is None:
        pytest.skip("needs pactl: apt-get install pulseaudio-utils")
    return subprocess.run(["pactl", *arguments], check=True, capture_output=True, text=True, timeout=10).stdout


async def grows(number, by):
    """Returns when ``number()`` has grown by so much."""
    wanted = number() + by
    while number() < wanted:
        await asyncio.sleep(0.02)


@pytest.mark.parametrize(
    ("disturb", "node"),
    [
        (("suspend-sink", "caller", "1"), "DeviceIn"),
        (("suspend-sink", "speaker", "1"), "DeviceOut"),
    ],
)
def test_one_device_that_stops_ends_the_session_though_the_other_lives(own_sound_server, monkeypatch, disturb, node):
    """A microphone or a loudspeaker that is suspended in mid-call ends it with its node's name, and closing it does not hang."""
    monkeypatch.setenv("PULSE_SOURCE", "caller.monitor")
    pactl("info")
    speaker, tape = DeviceOut("pulse", FORM), Tape()
    session = Session([Hum() >> speaker, DeviceIn("pulse", FORM) >> tape])
    before = {}

    def stop():
        before.update(speaker=speaker.position, tape=len(tape.frames))
        pactl(*disturb)

    async def main():
        async with no_leaks(descriptors=False):
            await run_until(session, stop)

    with pytest.raises(ExceptionGroup) as error:
        asyncio.run(main())
    assert [e.node for e in error.value.exceptions] == [node], "nothing else failed: no stop() that hangs, no thread left"
    assert error.group_contains(Exception, match="DeviceError: .*'pulse' .* has stopped: .* Choose another device, or give reopen")
    lived = len(tape.frames) > before["tape"] + 50 if node == "DeviceOut" else speaker.position > before["speaker"] + RATE
    assert lived, "the other one went on until the end"


@pytest.mark.parametrize("how", ["suspended", "unplugged"])
def test_a_device_that_comes_back_is_opened_again(own_sound_server, how, caplog):
    """With ``reopen`` the call goes on after the loudspeaker was away: it is tried again with waits, and the voice waits meanwhile."""
    away, back = {
        "suspended": ([("suspend-sink", "speaker", "1")], ("suspend-sink", "speaker", "0")),
        # All there are: with another one left the server moves the stream there.
        "unplugged": (
            [("unload-module", module) for module in ("module-always-sink", "module-null-sink")],
            ("load-module", "module-null-sink", "sink_name=speaker", "rate=48000"),
        ),
    }[how]
    pactl("info")
    speaker = DeviceOut("pulse", FORM, reopen=BackoffOptions(tries=30, longest_wait_s=1.0))
    caplog.set_level(logging.WARNING)

    async def main():
        session = Session(Hum() >> speaker)
        async with asyncio.timeout(60), no_leaks(descriptors=False):
            running = asyncio.create_task(session.run())
            await asyncio.sleep(0)
            await session.started()
            await grows(lambda: speaker.position, RATE // 2)
            for command in away:
                pactl(*command)
            while not any("has stopped" in record.message for record in caplog.records):
                await asyncio.sleep(0.02)
            at = speaker.position
            pactl(*back)
            while not any("is used now" in record.message for record in caplog.records):
                await asyncio.sleep(0.02)
            assert speaker.position - at < RATE, "the voice waited"
            await grows(lambda: speaker.position, RATE)
            session.cancel()
            await running

    asyncio.run(main())


def test_no_device_that_comes_back_ends_the_session(own_sound_server, caplog):
    """With ``reopen`` too a dead sound server is an error in the end, which names the device and the tries."""
    pipeline = DeviceIn("pulse", FORM, reopen=BackoffOptions(tries=3, longest_wait_s=0.25)) >> Tape()
    with pytest.raises(ExceptionGroup) as error:
        asyncio.run(run_until(Session(pipeline), own_sound_server.kill))
    assert error.group_contains(Exception, match="'pulse' .* has stopped, and no device could be opened in 3 tries: there is no")


@pytest.mark.parametrize("unplugged", [False, True])
def test_a_stream_that_is_moved_goes_on(own_sound_server, unplugged):
    """The user moves the agent's sound to another sink in mid-call, or the server does since the first is gone: it is played there."""
    pactl("info")
    speaker = DeviceOut("pulse", FORM)

    async def main():
        session = Session(Hum() >> speaker)
        running = asyncio.create_task(session.run())
        await asyncio.sleep(0)
        await session.started()
        stream = pactl("list", "short", "sink-inputs").split()[0]
        pactl(*(("unload-module", "1") if unplugged else ("move-sink-input", stream, "caller")))
        async with asyncio.timeout(30):
            await grows(lambda: speaker.position, 2 * RATE)
        caller = next(line.split()[0] for line in pactl("list", "short", "sinks").splitlines() if "caller" in line)
        assert pactl("list", "short", "sink-inputs").split()[1] == caller
        session.cancel()
        await running

    asyncio.run(main())


def test_a_bug_in_the_callback_is_not_swallowed(monkeypatch):
    """What is raised in PortAudio's thread ends the session with the node's name."""
    speaker = DeviceOut("pulse", FORM)
    with pytest.raises(ExceptionGroup) as error:
        asyncio.run(run_until(Session(Voice() >> speaker), lambda: monkeypatch.setattr(speaker.playout, "pull", lambda *_: 1 / 0)))
    assert error.group_contains(Exception, match=r"DeviceOut: run\(\) raised ZeroDivisionError")


def test_nothing_is_printed_about_drivers_that_are_not_there(capfd):
    """Looking for devices and opening one leaves stderr clean."""

    async def script(session, voice, tape, speaker):
        await tape.roll(0.1)

    devices()
    asyncio.run(listen_and_speak(script))
    assert capfd.readouterr().err == ""
