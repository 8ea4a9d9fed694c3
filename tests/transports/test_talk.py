"""``voiceflow talk`` on a sound server: a caller's voice goes into its microphone, and its loudspeaker is recorded."""

from __future__ import annotations

import os
import pty
import re
import shutil
import subprocess
import sys
import tempfile
import termios
import wave
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from voiceflow.models import DEFAULT, ModelStore, path
from voiceflow.processors.stt_whisper import WhisperOptions, open_whisper

ROOT = Path(__file__).resolve().parents[2]
QUESTION = ROOT / "examples" / "data" / "question.wav"
RATE = 16000


def wav_with_silence(target: Path, before_s: float, after_s: float) -> None:
    with wave.open(str(QUESTION)) as file:
        sound = file.readframes(file.getnframes())
    with wave.open(str(target), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes(bytes(2 * round(before_s * RATE)) + sound + bytes(2 * round(after_s * RATE)))


@pytest.fixture
def heard(sound_server: object, tmp_path: Path) -> Iterator[np.ndarray]:
    """What came out of the loudspeaker while the question was asked of a local agent, as int16 at 16 kHz."""
    for program in ("paplay", "parec"):
        if shutil.which(program) is None:
            pytest.skip(f"needs {program}: apt-get install pulseaudio-utils")
    missing = [name for name in DEFAULT if ModelStore().find(name) is None]
    if missing:
        pytest.skip(f"the models are not here; run: voiceflow models get {' '.join(missing)}")
    wav_with_silence(tmp_path / "question.wav", 2.0, 8.0)
    with tempfile.TemporaryFile() as recorded:
        recorder = subprocess.Popen(
            ["parec", "--device=speaker.monitor", f"--rate={RATE}", "--channels=1", "--format=s16le"], stdout=recorded
        )
        command = [
            "env",
            "PULSE_SOURCE=caller.monitor",
            sys.executable,
            "-m",
            "voiceflow",
            "talk",
            str(ROOT / "examples" / "local_agent.py"),
        ]
        talk = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            assert talk.stdout is not None
            assert "Speak" in talk.stdout.readline()
            subprocess.run(["paplay", "--device=caller", str(tmp_path / "question.wav")], check=True, timeout=60)
        finally:
            talk.send_signal(2)  # Ctrl-C
            out, errors = talk.communicate(timeout=30)
            recorder.terminate()
            recorder.wait()
        assert talk.returncode == 0, errors
        assert "you:" in out
        assert "agent:" in out
        recorded.seek(0)
        yield np.frombuffer(recorded.read(), "<i2")


@pytest.mark.usefixtures("sound_server")
class TestTalk:
    def test_a_question_into_the_microphone_is_answered_from_the_loudspeaker(self, heard: np.ndarray) -> None:
        """A recogniser of its own makes out the answer in what the loudspeaker gave."""
        whisper = open_whisper(path("whisper-tiny.en"), WhisperOptions())
        loud = np.flatnonzero(np.abs(heard.astype(np.int32)) > 300)
        assert loud.size, "nothing came out of the loudspeaker"
        answer = heard[max(0, loud[0] - RATE // 4) : loud[-1] + RATE // 4].astype(np.float32) / 32768
        assert "canberra" in whisper.transcribe(answer).text.lower()


APP = """
import asyncio, math, struct
from collections.abc import AsyncIterator
from voiceflow import AudioFormat, InputAudioFrame, OutputAudioFrame, PlaybackStopped, Processor, UtteranceEnded, Word


class Hum(Processor):
    makes = AudioFormat(48000)

    def process(self, frame: PlaybackStopped) -> None:
        pass

    async def run(self) -> AsyncIterator[OutputAudioFrame | UtteranceEnded]:
        tone = struct.pack("<4800h", *(round(16384 * math.sin(math.pi * n / 24)) for n in range(4800)))
        await asyncio.sleep(1.2)  # a null sink and its monitor take a second to agree on their clocks
        for n in range(15):
            words = (Word("hum", 0.0, 0.1),) if n == 0 else ()
            yield OutputAudioFrame(pcm=tone, sample_rate=48000, utterance=1, words=words, epoch=self.session.epoch)
        yield UtteranceEnded(utterance=1, epoch=self.session.epoch)
        await asyncio.Event().wait()


class Deaf(Processor):
    def process(self, frame: InputAudioFrame) -> None:
        pass


def agent(source, sink):
    return (Hum() >> sink).link(source, Deaf())
"""


def in_a_terminal(command: list[str], columns: int, **environment: str) -> str:
    """What a program writes on a terminal so wide, until it ends."""
    master, slave = pty.openpty()
    termios.tcsetwinsize(slave, (24, columns))
    keep = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
    with subprocess.Popen(
        command, stdin=slave, stdout=slave, stderr=slave, env=keep | {"TERM": "xterm"} | environment, cwd=ROOT
    ) as process:
        os.close(slave)
        parts = []
        while True:
            try:
                parts.append(os.read(master, 4096))
            except OSError:  # EIO: the other side is closed
                break
        assert process.wait(timeout=30) == 0, b"".join(parts).decode()
    os.close(master)
    return b"".join(parts).decode()


def screens(written: str) -> list[str]:
    """What stands in the bottom line after each time that it was written."""
    return [re.sub("\x1b\\[[0-9;]*[mK]", "", line) for line in written.replace("\r\n", "\n").split("\r")[1:]]


@pytest.fixture
def app(sound_server: object, tmp_path: Path) -> str:
    (tmp_path / "hum.py").write_text(APP)
    return str(tmp_path / "hum.py")


TALK = [sys.executable, "-m", "voiceflow", "talk"]


@pytest.mark.parametrize("columns", [100, 44, 20, 12])
def test_a_terminal_shows_levels_that_fit(app: str, columns: int) -> None:
    """The last line has both levels, moves with the sound, never fills the terminal, and is written over, not wiped first."""
    written = in_a_terminal([*TALK, app, "--seconds", "3.5"], columns)
    lines = screens(written)
    assert len(lines) > 10
    meters = [line for line in lines if "\n" not in line and line.strip()]
    assert all(len(line) < columns for line in meters)
    levels = [int(re.findall(r"-?\d+", line)[2 if columns == 100 else -1]) for line in meters if re.search(r"\d", line)]
    if columns == 100:
        assert min(levels) == -99
        assert -11 <= max(levels) <= -8, "a sine of half of full scale has an RMS of -9 dB"
        assert any("█" in line for line in meters)
        assert "  agent: hum" in written
        assert "\x1b[3" in written
    assert "\r\x1b[K" not in written[: written.rindex("\r\x1b[K")], "wiped only at the end"


def test_without_colour_and_without_a_terminal(app: str) -> None:
    """NO_COLOR leaves the meter without colour; a dumb terminal and a pipe have no meter and no control characters."""
    plain = in_a_terminal([*TALK, app, "--seconds", "1"], 80, NO_COLOR="1")
    assert "dB" in plain
    assert "\x1b[3" not in plain
    dumb = in_a_terminal([*TALK, app, "--seconds", "1"], 80, TERM="dumb")
    assert "Speak." in dumb
    assert "dB" not in dumb
    assert "\x1b" not in dumb
    piped = subprocess.run([*TALK, app, "--seconds", "1"], capture_output=True, text=True, timeout=60, check=True, cwd=ROOT)
    assert piped.stdout.startswith("Speak. Ctrl-C hangs up.\n")
    assert not {"\r", "\x1b"} & set(piped.stdout)


def test_the_call_is_recorded(app: str, tmp_path: Path) -> None:
    """``--record`` leaves both tracks: the loudspeaker's sound, and the same a moment later through the monitor that is the microphone."""
    path = tmp_path / "call.wav"
    subprocess.run([*TALK, app, "--seconds", "4", "--record", str(path)], capture_output=True, timeout=60, check=True, cwd=ROOT)
    with wave.open(str(path)) as file:
        rate = file.getframerate()
        assert file.getnchannels() == 2
        samples = np.frombuffer(file.readframes(10**8), "<i2").reshape(-1, 2)
    assert len(samples) / rate == pytest.approx(4.0, abs=0.5)
    loud = [np.flatnonzero(np.abs(samples[:, side].astype(int)) > 8000) for side in (0, 1)]
    for places in loud:
        assert (places[-1] - places[0]) / rate == pytest.approx(1.5, abs=0.1)
    assert loud[0][0] / rate == pytest.approx(loud[1][0] / rate, abs=0.05), "both clocks are the device's"


@pytest.mark.usefixtures("sound_server")
def test_the_devices_are_listed() -> None:
    """``--list`` names each device with its number, channels and rate, and holds no call."""
    run = subprocess.run([*TALK, "--list"], capture_output=True, text=True, timeout=60, check=True, cwd=ROOT)
    assert re.search(r"^\d+ 'pulse' \(32 in, 32 out, \d+ Hz\)$", run.stdout, re.MULTILINE)


@pytest.mark.usefixtures("sound_server")
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nowhere.py"], "there is no file nowhere.py"),
        (["nowhere.module"], "there is no module 'nowhere.module'"),
        (["examples/echo.py:nothing"], "has no 'nothing'; it defines agent, main"),
        (["--input", "no such microphone"], "there is no device 'no such microphone' for sound in; devices: 0 '"),
        (["--output", "99"], "there is no device 99 for sound out; devices: 0 '"),
        (["examples/echo.py", "--record", "call.mp3"], "--record: Recorder: call.mp3 must end in one of .wav"),
        (["examples/echo.py", "--seconds", "5", "--record", "/nowhere/call.wav"], "No such file or directory: '/nowhere/call.wav'"),
    ],
)
def test_what_cannot_be_opened_is_said_in_one_line(arguments: list[str], says: str) -> None:
    """A bad application or device ends with 1 and a line that says what is missing."""
    command = [sys.executable, "-m", "voiceflow", "talk", *arguments]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=ROOT)
    assert run.returncode == 1
    assert says in run.stderr
    assert "Traceback" not in run.stderr
