"""``voiceflow bench hop | interrupt | sessions | import | ttfa [--json]``.

Owns that command's words. One rule: figures go to standard output, one JSON line with ``--json``, everything else to standard error.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from voiceflow.bench import hop, imports, interrupt, sessions, trial

__all__ = ["main"]

MEANING = {
    "ns_per_hop": "nanoseconds to take a frame from one node to the next",
    "ns_raw_call": "nanoseconds of one bare method call",
    "ratio": "times a bare method call",
    "us_median": "microseconds of an interrupt over ten idle nodes, median",
    "us_p99": "the same, 99th percentile",
    "us_raw_calls": "microseconds of ten bare method calls",
    "interrupts": "interrupts of a talking graph",
    "stale_frames": "frames of before an interrupt seen by any node after it",
    "checked_frames": "frames that were looked at",
    "interrupts_in_work": "interrupts that found something under way",
    "sessions_per_core": "ten-node sessions on one core",
    "p99_ms": "milliseconds of delay, 99th percentile",
    "cpu_percent": "of one core used meanwhile",
    "raw_sessions_per_core": "the same with ten bare calls in place of a session",
    "ended_early": "1 if the time for the search was over before it was exact",
    "ms_over_bare": "milliseconds of `import voiceflow` over a bare interpreter",
    "rss_mb_over_bare": "megabytes of memory, the same way",
    "ms_bare": "milliseconds of the bare interpreter",
    "p50_ms": "the same, median",
    "others_cpu_percent": "of one core used by everybody else meanwhile",
    "overhead_ms_median": "milliseconds to the first sound over what cannot be helped, median",
    "overhead_ms_p90": "the same, 90th percentile",
    "by_hand_ms_median": "the same of a client written by hand",
    "half_words_ms_median": "the same of voiceflow, where the service cuts its messages within words",
    "ideal_ms": "milliseconds that cannot be helped",
}


def main(arguments: Sequence[str]) -> int:
    """Run one bench. 0, or 1 if the promise of the interrupt was broken or nothing could be measured."""
    options = _parser().parse_args(arguments)
    figures: Mapping[str, float] = {}

    def report(found: Mapping[str, float]) -> None:
        nonlocal figures
        figures = found
        line = json.dumps({"bench": options.bench, **found, "python": platform.python_version()})
        table = "\n".join(f"{value:>12}  {name:<22} {MEANING.get(name, '')}".rstrip() for name, value in found.items())
        sys.stdout.write((line if options.json else table) + "\n")
        sys.stdout.flush()

    try:
        _ttfa(options, report) if options.bench == "ttfa" else _measure(options, report)
    except (RuntimeError, OSError) as error:
        sys.stderr.write(f"voiceflow bench {options.bench}: {error}\n")
        return 1
    return 1 if figures.get("stale_frames") else 0


def _measure(options: argparse.Namespace, report: Callable[[Mapping[str, float]], None]) -> None:
    if options.bench == "hop":
        report(hop.measure(frames=options.frames, repeats=options.repeats))
    elif options.bench == "interrupt":
        report(interrupt.measure(idle=options.idle, interrupts=options.interrupts, seed=options.seed))
    elif options.bench == "import":
        report(imports.measure(runs=options.runs))
    elif options.k is not None:
        trial.run_trial(options.k, report, seconds=options.seconds, bare=options.bare)
    else:
        report(sessions.measure(seconds=options.seconds, budget_s=options.budget, start=options.start))


def _ttfa(options: argparse.Namespace, report: Callable[[Mapping[str, float]], None]) -> None:
    try:
        from voiceflow.bench.ttfa import measure, svg, table  # noqa: PLC0415  # the other benches run without the web libraries
    except ModuleNotFoundError as error:
        raise RuntimeError(f"it needs the package {error.name!r}: pip install -e '.[services]' in the project's folder") from error
    figures = measure(turns=options.turns, runs=options.runs, links_ms=options.links)
    if options.plot is not None:
        Path(options.plot).write_text(svg(figures, options.links), encoding="utf-8")
    report(figures)
    if not options.json:
        sys.stdout.write(f"\n{table(figures, options.links)}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="voiceflow bench", description="How fast the engine is on this machine.")
    verbs = parser.add_subparsers(dest="bench", required=True)
    verb = verbs.add_parser("hop", help="what it costs to take a frame from one node to the next, against a bare method call")
    verb.add_argument("--frames", type=_positive, default=4000, metavar="N", help="frames a repeat (default: %(default)s)")
    verb.add_argument("--repeats", type=_positive, default=51, metavar="N", help="default: %(default)s")
    verb = verbs.add_parser("interrupt", help="how long an interrupt takes, and whether anything stale is left after it")
    verb.add_argument("--idle", type=_positive, default=3000, metavar="N", help="interrupts of idle nodes (default: %(default)s)")
    verb.add_argument("--interrupts", type=_positive, default=600, metavar="N", help="of a talking graph (default: %(default)s)")
    verb.add_argument("--seed", type=int, default=1, help="of the random points (default: %(default)s)")
    verb = verbs.add_parser("sessions", help="how many ten-node sessions one core carries in real time (takes up to three minutes)")
    verb.add_argument("--k", type=_positive, metavar="N", help="one trial with so many sessions in this process, instead of the search")
    verb.add_argument("--bare", action="store_true", help="with --k: ten bare calls in place of each session")
    verb.add_argument("--seconds", type=float, default=3.0, metavar="S", help="of each trial (default: %(default)s)")
    verb.add_argument("--budget", type=float, default=170.0, metavar="S", help="for the whole search (default: %(default)s)")
    verb.add_argument("--start", type=_positive, default=2000, metavar="N", help="where the search begins (default: %(default)s)")
    verb = verbs.add_parser("import", help="what `import voiceflow` costs over a bare interpreter")
    verb.add_argument("--runs", type=_positive, default=21, metavar="N", help="pairs of interpreters (default: %(default)s)")
    verb = verbs.add_parser(
        "ttfa", help="from a model's first token to the first sound over the network, streamed and in batch (two minutes)"
    )
    verb.add_argument("--turns", type=_positive, default=25, metavar="N", help="replies for the overhead (default: %(default)s)")
    verb.add_argument("--runs", type=_positive, default=3, metavar="N", help="replies of each way over each line (default: %(default)s)")
    verb.add_argument("--links", type=_positive, nargs="+", default=[5, 100, 250], metavar="MS", help="round trips (default: 5 100 250)")
    verb.add_argument("--plot", metavar="FILE", help="write the comparison as SVG")
    for verb in verbs.choices.values():
        verb.add_argument("--json", action="store_true", help="one JSON line, for programs")
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not at least 1")
    return number
