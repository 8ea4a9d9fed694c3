"""Interpreters started by the benches. One rule: they import the voiceflow that started them, wherever they are started."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import voiceflow

__all__ = ["first_line", "python"]


def python(*arguments: str, environment: Mapping[str, str] | None = None) -> str:
    """Run this Python with ``arguments``, in this process's environment and ``environment``; what it printed.

    Raises RuntimeError with what it said on standard error if it failed.
    """
    done = subprocess.run(_command(arguments), env=_environment(environment), capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(arguments)} failed with exit code {done.returncode}: {done.stderr.strip()[-2000:]}")
    return done.stdout


def first_line(*arguments: str) -> str:
    """The first line that this Python prints when run with ``arguments``; then it is killed, whatever it still has to put away.

    Raises RuntimeError with what it said on standard error if it ended without one.
    """
    with (
        tempfile.TemporaryFile("w+") as said,
        subprocess.Popen(_command(arguments), env=_environment(), stdout=subprocess.PIPE, stderr=said, text=True) as child,
    ):
        assert child.stdout is not None
        line = child.stdout.readline()
        child.kill()
        if not line:
            said.seek(0)
            raise RuntimeError(f"{' '.join(arguments)} printed nothing: {said.read().strip()[-2000:]}")
        return line


def _command(arguments: tuple[str, ...]) -> list[str]:
    return [sys.executable, "-P", *arguments]


def _environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    path = [str(Path(voiceflow.__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path), **(more or {})}
