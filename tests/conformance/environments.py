"""Python environments of their own, for packages that do not fit beside ours: made once, kept in a cache folder, used again.

The rule: an environment is the one that its name, its requirements and this Python say, or it is made anew; a half-made one is
never used. Building one may take minutes: give tests that ask for one ``pytest.mark.timeout``.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

__all__ = ["BUILD_S", "python_of"]

BUILD_S = 900
"""For all downloads and installs of one environment."""


def python_of(name: str, requirements: Sequence[str]) -> Path:
    """The interpreter of an environment with these pinned requirements. Skips the test if pip cannot fetch them.

    The folder is ``VOICEFLOW_TEST_ENVIRONMENTS``, or ``voiceflow/environments`` in the user's cache.
    """
    loose = [requirement for requirement in requirements if "==" not in requirement]
    if loose:
        raise ValueError(f"python_of({name!r}): pin the requirements with ==, or the cache holds whatever was new once: {loose}")
    wanted = "\n".join([sys.version, sys.base_prefix, *sorted(requirements)])  # not the environment that asks: CI has a new one each time
    folder = _cache() / f"{name}-{hashlib.sha256(wanted.encode()).hexdigest()[:12]}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another run may be making the same one
        if not (folder / "ready").exists():
            _build(name, folder, requirements)
    return folder / "bin" / "python"


def _cache() -> Path:
    if given := os.environ.get("VOICEFLOW_TEST_ENVIRONMENTS"):
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "voiceflow" / "environments"


def _build(name: str, folder: Path, requirements: Sequence[str]) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    try:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True, capture_output=True, text=True, timeout=BUILD_S)
        pip = [folder / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input", *requirements]
        subprocess.run(pip, check=True, capture_output=True, text=True, timeout=BUILD_S)
    except (subprocess.SubprocessError, OSError) as error:
        said = [line for line in (getattr(error, "stderr", "") or str(error)).splitlines() if line.strip() and "WARNING" not in line]
        shutil.rmtree(folder, ignore_errors=True)
        pytest.skip(
            f"the environment {name!r} needs a package index that has {' '.join(requirements)}: {(said or ['no reason'])[-1][:200]}"
        )
    (folder / "ready").touch()
