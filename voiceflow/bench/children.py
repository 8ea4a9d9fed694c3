"""Interpreters started by the benches. One rule: they import the voiceflow that started them, wherever they are started."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import voiceflow

__all__ = ["python"]


def python(*arguments: str, environment: Mapping[str, str] | None = None) -> str:
    """Run this Python with ``arguments``, in this process's environment and ``environment``; what it printed.

    Raises RuntimeError with what it said on standard error if it failed.
    """
    path = [str(Path(voiceflow.__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(path), **(environment or {})}
    done = subprocess.run([sys.executable, "-P", *arguments], env=variables, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(arguments)} failed with exit code {done.returncode}: {done.stderr.strip()[-2000:]}")
    return done.stdout
