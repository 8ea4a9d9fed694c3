"""``voiceflow serve``: the command as a process of its own, with real sockets and real signals."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection as Connection
from websockets.sync.client import connect

from voiceflow.plugins import PluginError, load_door

ROOT = Path(__file__).resolve().parents[2]
ECHO = "examples/echo.py"
COMMAND = [sys.executable, "-c", "import sys; from voiceflow.serve import main; sys.exit(main(sys.argv[1:]))"]
DEADLINE_S = 60


class Served:
    """A running server."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        assert process.stdout is not None
        self.first_line = process.stdout.readline()
        found = re.match(r"http://localhost:(\d+)/", self.first_line)
        assert found, self.first_line + process.communicate(timeout=DEADLINE_S)[1]
        self.port = int(found[1])

    def complains(self, text: str) -> None:
        """Wait until it has written this to its log."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if text in line:
                return
        pytest.fail(f"it ended without a word of {text!r}")

    def get(self, path: str) -> tuple[int, bytes]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=10) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read()

    def health(self) -> dict[str, Any]:
        said: dict[str, Any] = json.loads(self.get("/health")[1])
        return said

    def stop(self, how: signal.Signals = signal.SIGTERM) -> tuple[int, str]:
        self.process.send_signal(how)
        _, errors = self.process.communicate(timeout=DEADLINE_S)
        return self.process.returncode, errors


@contextmanager
def started(*arguments: str, app: str = ECHO, environment: dict[str, str] | None = None) -> Iterator[subprocess.Popen[str]]:
    """The command; it does not outlive the block."""
    process = subprocess.Popen(
        [*COMMAND, app, "--port", "0", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), **(environment or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    killer = threading.Timer(DEADLINE_S, process.kill)  # a server that never speaks must not hang the tests
    killer.start()
    try:
        yield process
    finally:
        killer.cancel()
        process.kill()
        process.wait()
        for pipe in (process.stdout, process.stderr):
            assert pipe is not None
            pipe.close()


@contextmanager
def serving(*arguments: str, app: str = ECHO, environment: dict[str, str] | None = None) -> Iterator[Served]:
    with started(*arguments, app=app, environment=environment) as process:
        yield Served(process)


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [*COMMAND, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_the_page_until_it_is_told_to_stop(how: signal.Signals) -> None:
    """The address it prints is the page's; either signal ends it with 0 and no word."""
    with serving() as served:
        assert served.first_line.split() == [f"http://localhost:{served.port}/", "echo"]
        status, page = served.get("/")
        assert status == 200
        assert b"<title>" in page
        assert json.loads(served.get("/page.json")[1]) == {"app": "echo", "webrtc": False}
        assert served.health() == {"ready": True, "full": False, "calls": 0, "limit": 16, "answered": 0}
        assert served.stop(how) == (0, "")


def test_the_token_is_wanted_and_never_printed() -> None:
    """It may come from the environment; where to put it is said."""
    with serving(environment={"VOICEFLOW_TOKEN": "open-sesame"}) as served:
        assert served.get("/may-call")[0] == 401
        assert served.get("/may-call?token=open-sesame")[0] == 204
        assert served.process.stdout is not None
        assert "#token=" in served.process.stdout.readline()
        assert "open-sesame" not in served.first_line
        code, errors = served.stop()
        assert (code, "open-sesame" in errors) == (0, False)


def test_models_are_loaded_before_the_address_is_printed(tmp_path: Path) -> None:
    """One call with nobody in it starts and ends; with --no-warm none does."""
    book = tmp_path / "book"
    app = tmp_path / "agent.py"
    app.write_text(
        "from voiceflow import InputAudioFrame, OutputAudioFrame, Processor\n"
        "class Slow(Processor):\n"
        f"    async def start(self): open({str(book)!r}, 'a').write('start ')\n"
        f"    async def stop(self): open({str(book)!r}, 'a').write('stop ')\n"
        "    def process(self, frame: InputAudioFrame) -> OutputAudioFrame:\n"
        "        return OutputAudioFrame(frame.pcm, frame.sample_rate)\n"
        "def agent(source, sink): return source >> Slow() >> sink\n"
    )
    with serving(app=str(app)) as served:
        assert book.read_text() == "start stop "
        served.stop()
    book.unlink()
    with serving("--no-warm", app=str(app)) as served:
        assert not book.exists()
        served.stop()


ENDLESS = """
import asyncio, sys
from voiceflow import InputAudioFrame, OutputAudioFrame, Processor
class Endless(Processor):
    async def start(self):
        print("loading", flush=True)
        await asyncio.Event().wait()
    async def stop(self): print("stopped", flush=True)
    def process(self, frame: InputAudioFrame) -> OutputAudioFrame:
        return OutputAudioFrame(frame.pcm, frame.sample_rate)
def agent(source, sink): return source >> Endless() >> sink
"""

LOADED_AT_ONCE = """
import threading
print("loading", flush=True)
threading.Event().wait()
"""


@pytest.mark.parametrize(
    ("code", "how", "says"),
    [
        (ENDLESS, signal.SIGINT, "stopped\n"),
        (ENDLESS, signal.SIGTERM, "stopped\n"),
        (LOADED_AT_ONCE, signal.SIGINT, ""),
    ],
    ids=["Ctrl-C", "SIGTERM", "Ctrl-C while the file itself loads them"],
)
def test_a_signal_while_models_are_loaded_ends_it(tmp_path: Path, code: str, how: signal.Signals, says: str) -> None:
    """At once, with 0, no address and no traceback; what had begun to load is stopped."""
    app = tmp_path / "agent.py"
    app.write_text(code)
    with started(app=str(app)) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "loading\n"
        process.send_signal(how)
        output, errors = process.communicate(timeout=DEADLINE_S)
        assert (process.returncode, output, errors) == (0, says, "")


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_wrong_certificate_is_told_of_before_models_are_loaded(tmp_path: Path, workers: str) -> None:
    """Once, by the command itself."""
    app = tmp_path / "agent.py"
    app.write_text("print('loading', flush=True)\n" + ENDLESS)
    done = run(str(app), "--tls-certificate", "nowhere.pem", "--workers", workers)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("voiceflow serve: the certificate nowhere.pem cannot be used")
    assert done.stderr.count("\n") == 1


@contextmanager
def call(served: Served) -> Iterator[Connection]:
    """A call that has begun."""
    with connect(f"ws://127.0.0.1:{served.port}/call") as line:
        line.send(json.dumps({"type": "start"}))
        assert json.loads(line.recv(timeout=DEADLINE_S))["type"] == "started"
        yield line


def sound_comes(line: Connection) -> bool:
    """Say something; the echo says it again. False if the call is over."""
    try:
        while True:
            line.send(b"\x10\x10" * 320)
            if isinstance(line.recv(timeout=DEADLINE_S), bytes):
                return True
    except ConnectionClosed:
        return False


def test_a_call_goes_on_after_sigterm_until_it_ends() -> None:
    """New ones are refused meanwhile; when it has ended the server does."""
    with serving("--no-warm") as served:
        with call(served) as line:
            served.process.send_signal(signal.SIGTERM)
            served.complains("1 calls are under way")
            with pytest.raises(OSError, match="refused"):
                connect(f"ws://127.0.0.1:{served.port}/call")
            assert sound_comes(line)
        assert served.process.wait(timeout=DEADLINE_S) == 0


@pytest.mark.parametrize(
    ("arguments", "signals"),
    [
        ([], [signal.SIGINT]),
        (["--drain", "0"], [signal.SIGTERM]),
        ([], [signal.SIGTERM, signal.SIGTERM]),
        ([], [signal.SIGTERM, signal.SIGINT]),
    ],
    ids=["Ctrl-C", "no time to drain", "twice", "and then Ctrl-C"],
)
def test_a_call_is_ended_when_nobody_wants_to_wait(arguments: list[str], signals: list[signal.Signals]) -> None:
    """It is told so with the code of a server that goes away."""
    with serving("--no-warm", *arguments) as served, call(served) as line:
        for i, one in enumerate(signals):
            served.process.send_signal(one)
            if i < len(signals) - 1:
                served.complains("under way")  # it has come: two signals at once are one
        list(line)  # until it is closed
        assert line.close_code == 1001
        assert served.process.wait(timeout=DEADLINE_S) == 0


def test_more_calls_than_lines_are_refused() -> None:
    """By the socket's close code, by what the page can ask, and by /health, which stays well."""
    with serving("--no-warm", "--max-calls", "1") as served, call(served):
        with connect(f"ws://127.0.0.1:{served.port}/call") as second:
            second.send('{"type": "start", "version": 1}')  # until then it may be one who comes back
            with pytest.raises(ConnectionClosed) as closed:
                second.recv(timeout=DEADLINE_S)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1013
        assert served.get("/may-call")[0] == 429
        status, _ = served.get("/health")
        assert (status, served.health()["full"], served.health()["calls"]) == (200, True, 1)


OFFER = f"""v=0
o=- 1 1 IN IP4 0.0.0.0
s=-
t=0 0
m=audio 9 UDP/TLS/RTP/SAVPF 111
c=IN IP4 0.0.0.0
a=mid:0
a=sendrecv
a=rtcp-mux
a=setup:actpass
a=ice-ufrag:abcd
a=ice-pwd:{"x" * 24}
a=fingerprint:sha-256 {":".join(["AA"] * 32)}
a=rtpmap:111 opus/48000/2
""".replace("\n", "\r\n")
"""Of a page whose addresses never come: it stays one that is being connected."""


def test_an_offer_that_is_being_connected_has_a_line() -> None:
    """The other door, the page and /health see that the house is full, though there is no call yet."""
    pytest.importorskip("aiortc", reason="needs aiortc: pip install 'voiceflow-framegraph[webrtc]'")
    with serving("--no-warm", "--webrtc", "--max-calls", "1") as served:
        said = json.dumps({"type": "offer", "sdp": OFFER}).encode()
        with urllib.request.urlopen(f"http://127.0.0.1:{served.port}/offer", said, timeout=10) as answer:
            assert answer.status == 200
        health = served.health()
        assert (health["full"], health["calls"]) == (True, 0)
        assert served.get("/may-call")[0] == 429
        with connect(f"ws://127.0.0.1:{served.port}/call") as line, pytest.raises(ConnectionClosed, match="all 1 lines are busy"):
            line.recv(timeout=DEADLINE_S)
        assert served.stop(signal.SIGINT)[0] == 0


def test_a_call_through_several_workers() -> None:
    """Each answers calls, and drains them when the keeper is told to stop."""
    with serving("--workers", "2", "--no-warm") as served, call(served) as first, call(served) as second:
        assert sound_comes(first)
        assert sound_comes(second)
        served.process.send_signal(signal.SIGINT)
        assert served.process.wait(timeout=DEADLINE_S) == 0
        for line in (first, second):
            while sound_comes(line):  # what was on its way
                continue


def test_a_way_in_that_is_not_installed_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No such way, one whose package is missing, and one that is out of date each say what to do."""
    info = tmp_path / "acme-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[voiceflow.doors]\npigeon = no_such_pigeon:Post [birds]\nowl = json:Owl\nparrot = json:loads\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert load_door("parrot") is json.loads
    with pytest.raises(PluginError, match="there is no way in called 'raven'"):
        load_door("raven")
    with pytest.raises(
        PluginError, match=re.escape("needs the module 'no_such_pigeon', which is not installed: pip install 'acme[birds]'")
    ):
        load_door("pigeon")
    with pytest.raises(PluginError, match="its entry point is out of date"):
        load_door("owl")


def test_workers_share_the_port_and_are_started_again() -> None:
    """Several processes answer at one address; one that is killed comes back; all end with their keeper."""
    with serving("--workers", "2", "--no-warm") as served:
        workers = children(served.process.pid)
        assert len(workers) == 2
        os.kill(workers[0], signal.SIGKILL)
        wait(lambda: (now := children(served.process.pid)) and len(now) == 2 and workers[0] not in now)
        for _ in range(8):
            assert served.get("/health")[0] == 200
        code, errors = served.stop(signal.SIGINT)
        assert code == 0
        assert "worker 1 of 2 ended with -9; it is started again" in errors or "worker 2 of 2" in errors
        with socket.socket() as again:
            again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            again.bind(("127.0.0.1", served.port))


def test_workers_do_not_outlive_a_keeper_that_was_killed() -> None:
    """They notice that nobody keeps them."""
    with serving("--workers", "2", "--no-warm") as served:
        workers = children(served.process.pid)
        served.process.kill()
        served.process.wait()
        wait(lambda: not any(is_alive(pid) for pid in workers))


def children(pid: int) -> list[int]:
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in found]


def is_alive(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    try:
        return stat.read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait(condition: Any) -> None:
    """Look again until it is true: another program's children tell nobody when they change."""
    until = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < until, "not within the deadline"
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["nowhere.py"], 1, "there is no file nowhere.py"),
        ([ECHO, "--host", "256.1.1.1"], 1, "256.1.1.1"),
        ([ECHO, "--tls-key", "key.pem"], 1, "no meaning without --tls-certificate"),
        ([ECHO, "--tls-certificate", "nowhere.pem"], 1, "nowhere.pem cannot be used"),
        ([ECHO, "--port", "70000"], 2, "from 0 to 65535"),
        ([ECHO, "--workers", "0"], 2, "from 1 to 256"),
        ([ECHO, "--max-calls", "many"], 2, "from 1 to 100000"),
        ([ECHO, "--drain", "-1"], 2, "seconds"),
        (["tests/voiceflow/test_serve.py:broken"], 1, "a node that cannot start"),
    ],
)
def test_what_cannot_be_served_is_said_in_one_line(arguments: list[str], code: int, says: str) -> None:
    """With what was wrong, and no traceback."""
    done = run(*arguments)
    assert done.returncode == code, done.stderr
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_a_port_that_is_taken_is_said_so(tmp_path: Path) -> None:
    """By one process and by several, and before the application is loaded, which may take minutes."""
    app = tmp_path / "app.py"
    app.write_text("raise RuntimeError('it was loaded')")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        for workers in ("1", "2"):
            done = run(str(app), "--port", str(taken.getsockname()[1]), "--workers", workers)
            assert done.returncode == 1
            assert "address already in use" in done.stderr.lower()
            assert "Traceback" not in done.stderr


def broken(source: object, sink: object) -> object:
    """An application for the tests above."""
    from voiceflow import InputAudioFrame, OutputAudioFrame, Processor  # noqa: PLC0415

    class Broken(Processor):
        async def start(self) -> None:
            raise RuntimeError("a node that cannot start")

        def process(self, frame: InputAudioFrame) -> OutputAudioFrame:
            return OutputAudioFrame(frame.pcm, frame.sample_rate)

    return source >> Broken() >> sink  # type: ignore[operator]
