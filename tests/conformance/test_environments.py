"""Environments for conformance tests: pinned, made once, and a plain line where they cannot be made."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance import environments
from tests.conformance.environments import python_of


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("VOICEFLOW_TEST_ENVIRONMENTS", str(tmp_path))
    return tmp_path


def test_requirements_must_be_pinned() -> None:
    """What was new once is not what is new now."""
    with pytest.raises(ValueError, match="pin the requirements"):
        python_of("x", ["some-package"])


def test_what_cannot_be_fetched_skips_the_test_and_leaves_nothing(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The line names the requirement; the next run tries again."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(pytest.skip.Exception, match=r"the environment 'x' needs a package index that has no-such-package==1\.0"):
        python_of("x", ["no-such-package==1.0"])
    assert [path for path in cache.iterdir() if path.is_dir()] == []


def test_an_environment_is_made_once(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Again only for other requirements, or when it was left half made."""
    built: list[Path] = []

    def build(name: str, folder: Path, requirements: list[str]) -> None:
        built.append(folder)
        folder.mkdir(exist_ok=True)
        (folder / "ready").touch()

    monkeypatch.setattr(environments, "_build", build)
    first = python_of("x", ["a==1", "b==2"])
    assert first == python_of("x", ["b==2", "a==1"])
    assert len(built) == 1
    assert python_of("x", ["a==1"]) != first
    (built[0] / "ready").unlink()
    assert python_of("x", ["a==1", "b==2"]) == first
    assert built == [built[0], built[1], built[0]]
