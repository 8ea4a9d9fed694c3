from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from voiceflow.processors import turn_policies

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "turns.md").read_text(encoding="utf-8")
SNIPPETS = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)


@pytest.mark.parametrize("number", range(len(SNIPPETS)))
def test_what_the_page_shows_runs(number: int) -> None:
    """Each piece of code in docs/turns.md runs by itself."""
    done = subprocess.run([sys.executable, "-W", "error", "-c", SNIPPETS[number]], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    if "FloorTaken" in SNIPPETS[number]:
        assert done.stdout.splitlines() == ["assistant: This call is recorded.", "user: when do you open"]


def test_the_page_names_every_policy() -> None:
    """A policy that is not on the page is not to be found."""
    assert len(SNIPPETS) >= 4

    named = [name for name in turn_policies.__all__ if name[0].isupper() and name not in ("BACKCHANNELS", "StartPolicy", "EndPolicy")]
    assert [name for name in named if f"`{name}" not in TEXT] == []
