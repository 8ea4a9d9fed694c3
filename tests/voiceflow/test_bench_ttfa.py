"""The bench of the first sound, at a tiny size: what it prints and draws. No time is asserted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

pytest.importorskip("aiohttp", reason="pip install -e '.[services]'")
pytest.importorskip("websockets", reason="pip install -e '.[services]'")

from voiceflow.bench import main
from voiceflow.bench.ttfa import REPLY, SHORT, WAYS, svg, table
from voiceflow.processors.text import Splitter, SplitterOptions

ROOT = Path(__file__).resolve().parents[2]


def _bench(*more: str) -> str:
    command = [sys.executable, "-P", "-m", "voiceflow", "bench", "ttfa", "--turns", "1", "--runs", "1", "--links", "2", *more]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_it_measures_each_way_over_a_line(tmp_path: Path) -> None:
    """One JSON line with the overhead and the comparison, and the same as a picture."""
    (line,) = _bench("--json", "--plot", str(tmp_path / "plot.svg")).splitlines()
    figures = json.loads(line)
    assert figures["bench"] == "ttfa"
    for name in ("overhead_ms_median", "overhead_ms_p90", "by_hand_ms_median", "half_words_ms_median", "ideal_ms"):
        assert isinstance(figures[name], float)
    assert figures["ideal_ms"] == 255.0  # seven tokens of 20 ms, 40 ms of line, 75 ms of voice
    assert all(figures[f"{way}_2_ms"] > 0 for way in WAYS)
    assert figures["times_2"] == pytest.approx(figures["batch_2_ms"] / figures["socket_2_ms"], abs=0.01)
    ElementTree.parse(tmp_path / "plot.svg")


FIGURES = {f"{way}_{link}_ms": 100.0 * number + link for number, way in enumerate(WAYS) for link in (5, 250)} | {
    "times_5": 2.5,
    "times_250": 1.5,
}


def test_the_table_and_the_picture_show_each_figure() -> None:
    """A row for each way, a column for each line, a bar for each figure, as long as it says."""
    rows = table(FIGURES, (5, 250)).splitlines()
    assert len(rows) == 3 + len(WAYS)
    assert rows[2].endswith("| 5 | 250 |")
    assert rows[-1].endswith("| 2.5 | 1.5 |")
    root = ElementTree.fromstring(svg(FIGURES, (5, 250)))
    bars = [float(bar.get("width", "")) for bar in root.iter("{http://www.w3.org/2000/svg}rect") if bar.get("width") != "100%"]
    assert len(bars) == 2 * len(WAYS)
    assert bars[-1] / bars[len(WAYS)] == pytest.approx(650 / 250, rel=0.01)


def test_its_replies_can_be_streamed() -> None:
    """More than one sentence: else all ways would be the same."""
    for text in (SHORT, REPLY):
        splitter = Splitter(SplitterOptions(mode="sentence"))
        assert len(splitter.push(text) + splitter.flush()) > 1


def test_without_the_web_libraries_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """And the other benches run."""
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    for name in [name for name in sys.modules if name.startswith(("voiceflow.bench.ttfa", "voiceflow.testing.stand_ins"))]:
        monkeypatch.delitem(sys.modules, name)
    assert main(["ttfa"]) == 1
    assert "aiohttp" in (said := capsys.readouterr().err)
    assert "[services]" in said
    assert main(["hop", "--frames", "10", "--repeats", "1"]) == 0
