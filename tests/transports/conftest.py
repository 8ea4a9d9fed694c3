"""A sound server of the tests' own: PulseAudio with a null sink, whose monitor is the microphone."""

from __future__ import annotations

import contextlib
import importlib.util
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

MODULES = [
    "module-native-protocol-unix auth-anonymous=1",
    "module-null-sink sink_name=speaker rate=48000",
    "module-null-sink sink_name=caller rate=48000",
    "module-always-sink",
]


@dataclass
class SoundServer:
    """A running PulseAudio. ``environment`` leads a program to it, playing into the sink and recording its monitor."""

    environment: dict[str, str]
    process: subprocess.Popen[str]

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@contextlib.contextmanager
def serve_sound() -> Iterator[SoundServer]:
    with tempfile.TemporaryDirectory(prefix="voiceflow-pulse-") as folder:
        environment = {
            "XDG_RUNTIME_DIR": folder,
            "XDG_CONFIG_HOME": folder,
            "HOME": folder,
            "PATH": "/usr/bin:/bin",
            "PULSE_RUNTIME_PATH": folder,
            "PULSE_SERVER": f"unix:{folder}/native",
            "PULSE_SINK": "speaker",
            "PULSE_SOURCE": "speaker.monitor",
            "PULSE_LATENCY_MSEC": "60",  # a busy machine must not make gaps in what is recorded
        }
        command = [
            "pulseaudio",
            "--daemonize=no",
            "--exit-idle-time=-1",
            "-n",
            "--log-level=info",
            "--log-target=stderr",
            "--use-pid-file=no",
        ]
        command += [f"--load={module}" for module in MODULES]
        process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
        assert process.stderr is not None
        # Its log goes on for ever: this thread reads it, so that it never waits for a full pipe.
        reader = threading.Thread(target=process.stderr.read, daemon=True)
        log = []
        try:
            for line in process.stderr:
                log.append(line)
                if "Daemon startup complete" in line:
                    break
            else:
                pytest.fail("PulseAudio did not start:\n" + "".join(log))
            reader.start()
            yield SoundServer(environment, process)
        finally:
            process.kill()
            process.wait()
            if reader.is_alive():
                reader.join()
            process.stderr.close()


@pytest.fixture(scope="session")
def shared_sound_server() -> Iterator[SoundServer]:
    if shutil.which("pulseaudio") is None:
        pytest.skip("needs a sound server: apt-get install pulseaudio libasound2-plugins")
    if importlib.util.find_spec("pyaudio") is None:
        pytest.skip("needs PyAudio: apt-get install portaudio19-dev && pip install PyAudio")
    with serve_sound() as server:
        yield server


@pytest.fixture
def sound_server(shared_sound_server: SoundServer, monkeypatch: pytest.MonkeyPatch) -> SoundServer:
    """The private sound server; this test's sound goes there."""
    enter(shared_sound_server, monkeypatch)
    return shared_sound_server


@pytest.fixture
def own_sound_server(shared_sound_server: SoundServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[SoundServer]:
    """One more, for this test alone: it may be killed."""
    with serve_sound() as server:
        enter(server, monkeypatch)
        yield server


def enter(server: SoundServer, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in server.environment.items():
        if name not in ("PATH", "HOME"):
            monkeypatch.setenv(name, value)
