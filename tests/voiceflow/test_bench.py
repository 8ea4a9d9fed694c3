"""The benches at tiny sizes: what they print, and that what they find does not depend on luck. No time is asserted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from voiceflow.bench import main
from voiceflow.bench.figures import Contention, median, percentile
from voiceflow.bench.sessions import Search
from voiceflow.flow import Flow
from voiceflow.worker import Worker

ROOT = Path(__file__).resolve().parents[2]


def _bench(*arguments: str, cwd: Path) -> dict[str, Any]:
    """The JSON line of a bench, run by the command as a stranger runs it."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-P", "-m", "voiceflow", "bench", *arguments, "--json"]
    done = subprocess.run(command, env=environment, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()
    figures: dict[str, Any] = json.loads(line)
    return figures


def _numbers(figures: dict[str, Any], *names: str) -> None:
    for name in names:
        assert isinstance(figures[name], int | float), name
        assert figures[name] >= 0, name


def test_hop_prints_its_figures(tmp_path: Path) -> None:
    """A time for a hop, one for a bare call, and a ratio."""
    figures = _bench("hop", "--frames", "50", "--repeats", "3", cwd=tmp_path)
    _numbers(figures, "ns_per_hop", "ns_raw_call", "ratio")
    assert figures["ns_per_hop"] > 0


def test_interrupt_finds_nothing_stale(tmp_path: Path) -> None:
    """Interrupts of a graph that talks, at random points: nothing of before is seen after."""
    figures = _bench("interrupt", "--idle", "20", "--interrupts", "60", cwd=tmp_path)
    _numbers(figures, "us_median", "us_p99", "us_raw_calls")
    assert figures["interrupts"] == 60
    assert figures["stale_frames"] == 0
    assert figures["checked_frames"] > 60
    assert figures["interrupts_in_work"] > 30


def test_interrupt_notices_an_engine_that_breaks_its_promise(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Where work is not cancelled and no door is kept, stale frames are counted, and the exit code says so."""
    monkeypatch.setattr(Worker, "interrupt", lambda self: 1)
    monkeypatch.setattr(Flow, "admits", lambda self, frame: True)
    assert main(["interrupt", "--idle", "1", "--interrupts", "30", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["stale_frames"] > 0


def test_import_prints_its_figures(tmp_path: Path) -> None:
    """Milliseconds and megabytes over a bare interpreter."""
    figures = _bench("import", "--runs", "1", cwd=tmp_path)
    _numbers(figures, "rss_mb_over_bare", "ms_bare")
    assert isinstance(figures["ms_over_bare"], float)


def test_sessions_prints_its_figures(tmp_path: Path) -> None:
    """The search, with trials in processes of their own, for sessions and for bare calls."""
    figures = _bench("sessions", "--seconds", "0.2", "--start", "2", "--budget", "0", cwd=tmp_path)
    _numbers(figures, "sessions_per_core", "p99_ms", "cpu_percent", "raw_sessions_per_core")
    assert figures["ended_early"] == 1


@pytest.mark.parametrize("bare", [[], ["--bare"]])
def test_a_trial_delivers_every_frame(tmp_path: Path, bare: list[str]) -> None:
    """Each of the sessions gets one frame every 20 ms, and the last node of each has them all."""
    figures = _bench("sessions", "--k", "25", "--seconds", "0.4", *bare, cwd=tmp_path)
    _numbers(figures, "p50_ms", "p99_ms", "cpu_percent", "others_cpu_percent")
    assert figures["sessions"] == 25
    assert figures["delivered"] == figures["expected"] == 25 * 20
    assert figures["kept_up"] is True


def test_without_json_each_figure_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    """A line for each figure: its value, its name, and what it means."""
    assert main(["hop", "--frames", "10", "--repeats", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in lines] == ["ns_per_hop", "ns_raw_call", "ratio"]
    assert lines[2].endswith("times a bare method call")


@pytest.mark.parametrize("arguments", [[], ["no-such-bench"], ["hop", "--frames", "0"], ["hop", "--frames", "many"]])
def test_wrong_usage_is_refused(arguments: list[str]) -> None:
    """As everywhere: exit code 2."""
    with pytest.raises(SystemExit) as refused:
        main(arguments)
    assert refused.value.code == 2


# ------------------------------------------------------------------------------------------------ the search


class Machine:
    """Carries `limit` sessions, without a process; `noise` are the CPU percents of others, trial by trial."""

    def __init__(self, limit: int, noise: list[float] | None = None) -> None:
        self.limit = limit
        self.noise = noise or []
        self.tried: list[int] = []

    def __call__(self, count: int) -> dict[str, Any]:
        self.tried.append(count)
        others = self.noise.pop(0) if self.noise else 0.0
        good = count <= self.limit and others < 60
        cpu = min(100.0, 95.0 * count / max(self.limit, 1))
        return {
            "sessions": count,
            "kept_up": True,
            "p99_ms": 5.0 if good else 50.0,
            "cpu_percent": cpu,
            "others_cpu_percent": others,
        }


@pytest.mark.parametrize("start", [1, 100, 1000, 50_000])
@pytest.mark.parametrize("limit", [1, 7, 170, 5_000, 18_000])
def test_the_search_finds_the_limit(limit: int, start: int) -> None:
    """To within 5 %, from wherever it begins, in few trials, and never above."""
    machine = Machine(limit)
    best = Search(machine, deadline=1e9, clock=lambda: 0.0).run(start)
    assert best is not None
    assert limit * 0.95 - 1 <= best["sessions"] <= limit
    assert len(machine.tried) <= 45


def test_the_search_says_so_when_nothing_is_carried() -> None:
    """None, not a figure."""
    assert Search(Machine(0), deadline=1e9, clock=lambda: 0.0).run(4) is None


def test_a_failure_while_others_use_the_machine_does_not_count() -> None:
    """Twice it is repeated for nothing; then it fails like any other."""
    machine = Machine(10, noise=[90.0, 90.0])
    best = Search(machine, deadline=1e9, clock=lambda: 0.0).run(10)
    assert best is not None
    assert best["sessions"] == 10
    assert machine.tried[:3] == [10, 10, 10]


def test_the_search_ends_with_its_time() -> None:
    """After the deadline the best so far stands."""
    times = iter(range(100))
    machine = Machine(5_000)
    best = Search(machine, deadline=2.5, clock=lambda: float(next(times))).run(1000)
    assert best is not None
    assert 1000 <= best["sessions"] <= 5000
    assert len(machine.tried) <= 6


def test_percentiles_are_by_nearest_rank() -> None:
    """Of real values, in any order; none of none."""
    assert percentile([3.0, 1.0, 2.0], 0) == 1.0
    assert median([3.0, 1.0, 2.0]) == 2.0
    assert percentile(range(101), 99) == 99
    with pytest.raises(ValueError, match="nothing was measured"):
        median([])


def test_contention_is_a_share_of_one_core() -> None:
    """Never negative, whatever the clocks say."""
    assert Contention().percent() >= 0
