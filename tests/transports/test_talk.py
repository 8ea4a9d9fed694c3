"""``voiceflow talk`` on a sound server: a caller's voice goes into its microphone, and its loudspeaker is recorded."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
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


@pytest.mark.usefixtures("sound_server")
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nowhere.py"], "there is no file nowhere.py"),
        (["nowhere.module"], "there is no module 'nowhere.module'"),
        (["examples/echo.py:nothing"], "has no 'nothing'; it defines agent, main"),
        (["--input", "no such microphone"], "no such microphone"),
    ],
)
def test_what_cannot_be_opened_is_said_in_one_line(arguments: list[str], says: str) -> None:
    """A bad application or device ends with 1 and a line that says what is missing."""
    command = [sys.executable, "-m", "voiceflow", "talk", *arguments]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=ROOT)
    assert run.returncode == 1
    assert says in run.stderr
    assert "Traceback" not in run.stderr
