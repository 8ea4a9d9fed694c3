"""``python -m tests.network.report``: holds the trials, prints what was measured, and writes it into docs/network.md.

The one rule: the table on that page is written by this and by nobody else, between its two marks.
"""

from __future__ import annotations

import asyncio
import os
import platform
import sys
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

from tests.network import by_browser, by_webrtc, by_websocket
from tests.network.talk import Result, Trial

__all__ = ["hold_all", "machine", "table"]

PAGE = Path(__file__).parents[2] / "docs" / "network.md"
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"

HEAD = (
    "link (one way)",
    "answer, ms",
    "told of an interrupt, ms",
    "silent, ms",
    "gaps, %",
    "stale",
    "words wrong, of heard",
    "recovery, ms",
    "end",
)


async def hold_all(hold: Callable[[Trial], Coroutine[Any, Any, Result]], trials: Sequence[Trial], at_once: int = 12) -> list[Result]:
    """All of them, so many side by side: they mostly wait."""
    room = asyncio.Semaphore(at_once)

    async def one(trial: Trial) -> Result:
        async with room:
            return await hold(trial)

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(trial), name=trial.name) for trial in trials]
    await asyncio.get_running_loop().shutdown_default_executor()  # aiortc's peer codes there
    return [task.result() for task in tasks]


def table(results: Sequence[Result]) -> str:
    """As Markdown."""
    rows = [HEAD, ("---",) * len(HEAD), *map(_row, results)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n"


def _row(result: Result) -> tuple[str, ...]:
    end = "hung up by the caller, at the end" if result.finished else result.why
    times = {"after the cut": result.given_up_s, "until the page said so": result.noticed_s}
    if known := ", ".join(f"{seconds:.1f} s {what}" for what, seconds in times.items() if seconds is not None):
        end += f" ({known})"
    return (
        result.trial.name,
        _ms(result.latency_s),
        _ms(result.told_s),
        _ms(result.silence_s),
        f"{100 * result.underruns:.1f}",
        str(result.stale),
        f"{result.words_wrong} of {sum(words.heard for words in result.words.values())}" if result.words else "",
        f"{1000 * result.recovery_s:.0f}" if result.recovery_s is not None else "",
        end,
    )


def _ms(seconds: Sequence[float]) -> str:
    return " ".join(f"{1000 * max(one, 0.0):.0f}" for one in seconds)


def machine() -> str:
    """Where this was measured."""
    model = next(
        (line.partition(":")[2].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")),
        platform.machine(),
    )
    return f"{model}, {os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}"


def main() -> None:
    """Measure and write."""
    sections = []
    one, page = "caller and server in one process", "the pages in one Chromium, the server in another process"
    for title, holding, at_once, where in (
        ("Over a websocket", hold_all(by_websocket.hold, by_websocket.TRIALS, len(by_websocket.TRIALS)), len(by_websocket.TRIALS), one),
        ("Over WebRTC", hold_all(by_webrtc.hold, by_webrtc.TRIALS, by_webrtc.AT_ONCE), by_webrtc.AT_ONCE, one),
        ("The page, over a websocket", by_browser.hold_all(by_browser.TRIALS, webrtc=False), by_browser.AT_ONCE["websocket"], page),
        ("The page, over WebRTC", by_browser.hold_all(by_browser.TRIALS, webrtc=True), by_browser.AT_ONCE["webrtc"], page),
    ):
        results = asyncio.run(holding)
        late_ms = 1000 * max(result.late_s for result in results)
        sections.append(f"### {title}\n\n{table(results)}\n{at_once} at once, {where}; its timers were up to {late_ms:.0f} ms late.\n")
    text = f"{BEGIN}\n\nOn {machine()}.\n\n" + "\n".join(sections) + f"\n{END}"
    sys.stdout.write(text + "\n")
    page = PAGE.read_text()
    before, _, rest = page.partition(BEGIN)
    PAGE.write_text(before + text + rest.partition(END)[2])


if __name__ == "__main__":
    main()
