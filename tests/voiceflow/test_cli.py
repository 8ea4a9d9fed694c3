"""The command `voiceflow`: its table, what it loads, and what it says to broken input."""

from __future__ import annotations

import os
import subprocess
import sys
import types
from pathlib import Path

import pytest

import voiceflow
from voiceflow import cli
from voiceflow.errors import ModelError

ROOT = Path(__file__).resolve().parents[2]


def _voiceflow(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-P", "-m", "voiceflow", *arguments]
    return subprocess.run(command, env=environment, cwd=cwd, capture_output=True, text=True, check=False)


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """A subcommand `try`, whose `main` a test gives."""
    module = types.ModuleType("voiceflow_try")
    monkeypatch.setitem(sys.modules, "voiceflow_try", module)
    monkeypatch.setitem(cli.COMMANDS, "try", cli.Command("voiceflow_try", "for a test", "extra"))
    return module


def test_the_version_is_printed() -> None:
    """`voiceflow --version` names the version on standard output."""
    done = _voiceflow("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"voiceflow {voiceflow.__version__}\n", "")


def test_help_lists_every_command() -> None:
    """`voiceflow --help` has a line for each command."""
    done = _voiceflow("--help")
    assert done.returncode == 0
    assert [name for name in cli.COMMANDS if f"  {name} " not in done.stdout] == []


@pytest.mark.parametrize("arguments", [[], ["no-such-command"], ["--no-such-option"]])
def test_wrong_usage_exits_with_2(arguments: list[str]) -> None:
    """What is not a command is refused on standard error, with the commands there are."""
    done = _voiceflow(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "usage: voiceflow" in done.stderr
    assert "Traceback" not in done.stderr
    if arguments and not arguments[0].startswith("-"):
        assert "no-such-command" in done.stderr
        assert "'models'" in done.stderr


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_each_command_explains_itself(name: str) -> None:
    """The table names modules that are there, and each answers --help."""
    done = _voiceflow(name, "--help")
    if done.returncode == 2 and "comes with the extra" in done.stderr:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    assert f"usage: voiceflow {name}" in done.stdout


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_wrong_usage_of_a_command_exits_with_2(name: str) -> None:
    """An unknown option of a command is refused by that command."""
    done = _voiceflow(name, "--no-such-option")
    if "comes with the extra" in done.stderr:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 2
    assert f"usage: voiceflow {name}" in done.stderr


def test_a_command_gets_its_arguments_and_gives_the_exit_code(command: types.ModuleType) -> None:
    """All that follows the command's name is the command's, options too."""
    seen = []

    def main(arguments: list[str]) -> int:
        seen.append(arguments)
        return 7

    command.main = main  # type: ignore[attr-defined]
    assert cli.main(["try", "--json", "a b", "--", "-x"]) == 7
    assert seen == [["--json", "a b", "--", "-x"]]


def test_an_error_of_voiceflow_is_a_line_and_not_a_traceback(command: types.ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    """What voiceflow raises on purpose ends a command with its text and exit code 1."""

    def main(arguments: list[str]) -> int:
        raise ModelError("there is no model 'x'")

    command.main = main  # type: ignore[attr-defined]
    assert cli.main(["try"]) == 1
    assert capsys.readouterr().err == "voiceflow try: there is no model 'x'\n"


def test_a_missing_package_is_named_with_the_extra_that_brings_it(command: types.ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    """A command that needs a package which is not installed says what to install."""

    def main(arguments: list[str]) -> int:
        raise ModuleNotFoundError("No module named 'onnxruntime'", name="onnxruntime")

    command.main = main  # type: ignore[attr-defined]
    assert cli.main(["try"]) == 2
    said = capsys.readouterr().err
    assert "'onnxruntime'" in said
    assert ".[extra]" in said


def test_a_missing_package_is_named_when_the_command_itself_cannot_be_imported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same where the command's module imports it at its top."""
    (tmp_path / "needs_much.py").write_text("import no_such_package_here\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(cli.COMMANDS, "try", cli.Command("needs_much", "for a test"))
    assert cli.main(["try"]) == 2
    assert "no_such_package_here" in capsys.readouterr().err


def test_a_bug_of_voiceflow_is_not_taken_for_a_missing_package(command: types.ModuleType) -> None:
    """A module of voiceflow's own that is missing is raised as it is."""

    def main(arguments: list[str]) -> int:
        raise ModuleNotFoundError("No module named 'voiceflow.gone'", name="voiceflow.gone")

    command.main = main  # type: ignore[attr-defined]
    with pytest.raises(ModuleNotFoundError, match="gone"):
        cli.main(["try"])


def test_ctrl_c_gives_130(command: types.ModuleType) -> None:
    """As shells do."""

    def main(arguments: list[str]) -> int:
        raise KeyboardInterrupt

    command.main = main  # type: ignore[attr-defined]
    assert cli.main(["try"]) == 130


def test_the_command_line_itself_loads_no_subcommand() -> None:
    """Only the engine is imported before a command is known."""
    code = "import sys, voiceflow.cli as c; print(*[m for m in sys.modules if m in {x.module for x in c.COMMANDS.values()}])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "\n"


def test_the_graph_of_an_application_is_drawn_without_running_it(tmp_path: Path) -> None:
    """`voiceflow graph APP` prints the checked pipeline in each form, with ends that stand for the transport."""
    app = tmp_path / "app.py"
    app.write_text(
        "from voiceflow import InputAudioFrame, OutputAudioFrame, Processor\n"
        "class Echo(Processor):\n"
        "    def process(self, frame: InputAudioFrame) -> OutputAudioFrame:\n"
        "        return OutputAudioFrame(frame.pcm, frame.sample_rate)\n"
        "def agent(source, sink):\n"
        "    return source >> Echo() >> sink\n"
        "def broken(source, sink):\n"
        "    return sink\n",
        encoding="utf-8",
    )
    for form, expected in (("text", "Echo"), ("mermaid", "flowchart"), ("dot", "digraph")):
        done = _voiceflow("graph", str(app), "--as", form)
        assert done.returncode == 0, done.stderr
        assert expected in done.stdout
    for reference, expected in ((f"{app}:broken", "not a Pipeline"), (f"{app}:other", "no 'other'"), ("no/such.py", "no file")):
        done = _voiceflow("graph", reference)
        assert (done.returncode, done.stdout) == (1, "")
        assert expected in done.stderr
