"""``voiceflow score [APP]``: hold scripted calls with an agent and print its scorecard."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import fnmatch
import logging
import sys
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

from voiceflow import models
from voiceflow.apps import App, load_app
from voiceflow.errors import VoiceflowError
from voiceflow.score import live
from voiceflow.score.call import Call, MakeAir, hold_call, voice_format
from voiceflow.score.caller import Patience
from voiceflow.score.card import as_json, scorecard, table
from voiceflow.score.labelled import LabelledAir
from voiceflow.score.measures import Figures, measure
from voiceflow.score.presets import preset_names, read_turns, with_turns
from voiceflow.score.scenes import Scene, SceneError, default_scenes, read_scenes
from voiceflow.testing import run_virtual

__all__ = ["REAL_TIME", "VIRTUAL", "Mode", "main", "play_all"]

SCRIPTED = "voiceflow.score.scripted:agent"
LOCAL = "voiceflow.demo.agent:agent"

Run = Callable[[Coroutine[Any, Any, Call]], Call]


@dataclass(frozen=True, slots=True)
class Mode:
    """How the calls are run. ``patience``: of the callers."""

    name: str
    run: Run
    air: MakeAir
    patience: Patience


VIRTUAL = Mode("virtual", run_virtual, LabelledAir, Patience(6.0))
REAL_TIME = Mode("real-time", asyncio.run, live.LiveAir, Patience(12.0))


def main(arguments: Sequence[str]) -> int:
    """Print the card. 0 if no scene failed, 1 if some did, 2 if there was nothing to play or nobody to play it to."""
    options = _parser().parse_args(arguments)
    is_virtual = options.virtual or (options.app is None and not options.real_time)
    mode, name = (VIRTUAL, options.app or SCRIPTED) if is_virtual else (REAL_TIME, options.app or LOCAL)
    try:
        scenes = _chosen(default_scenes() if options.set is None else read_scenes(options.set), options.only)
        turns = None if options.turns is None else read_turns(options.turns)
        app = load_app(name)
        changes = [] if turns is None else [partial(with_turns, options=turns)]
        if not is_virtual:
            models.fetch_default()
            live.prepare(scenes)
        watch = _Watch(options.trace, tells_each=options.trace or not is_virtual)
        started = perf_counter()
        results = play_all(app, scenes, mode, changes, watch)
    except (VoiceflowError, ValueError) as error:
        _tell(f"voiceflow score: {error}")
        return 2
    card = scorecard(results, app=name, mode=mode.name, turns=options.turns)
    sys.stdout.write((as_json(card) if options.json else table(card)) + "\n")
    if not options.json or not is_virtual:
        seconds = perf_counter() - started
        _tell(f"{watch.call_s:.0f} s of calls in {seconds:.1f} s")
    return 1 if card["failed"] else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="voiceflow score",
        description="Hold scripted calls with an agent, and measure how it takes turns and what it believes was heard.",
    )
    parser.add_argument(
        "app",
        nargs="?",
        metavar="APP",
        help="FILE.py[:function] or package.module:function (default: a scripted agent, or with --real-time the demo's)",
    )
    parser.add_argument("--set", type=Path, metavar="FILE", help="the scenes, as TOML (default: the set that comes along)")
    parser.add_argument("--json", action="store_true", help="print one JSON object on stdout")
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument(
        "--virtual", action="store_true", help="virtual clock and labelled sound, for an agent of scripted services (default without APP)"
    )
    mode.add_argument(
        "--real-time", action="store_true", help="real clock and synthetic voices, for an agent of real models (default with APP)"
    )
    parser.add_argument(
        "--turns", metavar="NAME|FILE", help=f"put these settings into the agent's Turns: {', '.join(preset_names())}, or a JSON file"
    )
    parser.add_argument("--only", metavar="PATTERN", help="only scenes whose name or kind matches, like 'barge-in*'")
    parser.add_argument("--trace", action="store_true", help="print on stderr what happened in each call")
    return parser


def _chosen(scenes: Sequence[Scene], pattern: str | None) -> list[Scene]:
    chosen = [scene for scene in scenes if pattern is None or any(fnmatch.fnmatchcase(text, pattern) for text in (scene.name, scene.kind))]
    if not chosen:
        raise SceneError(f"no scene has a name or a kind like {pattern!r}; kinds: {', '.join(sorted({scene.kind for scene in scenes}))}")
    return chosen


def _tell(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


class _Watch:
    """Tells on stderr how it goes."""

    def __init__(self, trace: bool, *, tells_each: bool) -> None:
        self.trace = trace
        self.tells_each = tells_each
        self.call_s = 0.0

    def __call__(self, call: Call, figures: Figures) -> None:
        """A scene is over."""
        origin = call.recording.origin
        self.call_s += call.hung_up_at - origin
        if self.tells_each:
            _tell(f"{'FAIL' if figures.problems else 'ok  '} {call.scene.name}")
        if self.trace:
            for done in call.play.done:
                words = done.action.say or done.action.sound
                _tell(f"    caller {done.begin - origin:.2f} to {done.end - origin:.2f}: {words!r}")
            for at, text in call.log:
                _tell(f"    {at - origin:7.2f} {text}")
            for problem in figures.problems:
                _tell(f"    PROBLEM {problem}")


def play_all(
    app: App,
    scenes: Sequence[Scene],
    mode: Mode = VIRTUAL,
    changes: Sequence[Callable[..., Any]] = (),
    watch: Callable[[Call, Figures], None] | None = None,
) -> list[tuple[Scene, Figures]]:
    """Hold the calls one after the other, and judge each. Raises VoiceflowError if the agent's pipeline cannot be built."""
    format, results = voice_format(app), []
    with _calm() if mode is VIRTUAL else contextlib.nullcontext():
        for scene in scenes:
            call = mode.run(hold_call(app, scene, mode.air, format, patience=mode.patience, changes=changes))
            figures = measure(call)
            results.append((scene, figures))
            if watch is not None:
                watch(call, figures)
    return results


@contextlib.contextmanager
def _calm() -> Iterator[None]:
    """On a virtual clock it does not matter that a step took long, and the log need not say so."""
    log = logging.getLogger("voiceflow")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(level)
