"""The scorecard: the figures of all scenes added up, as JSON and for people.

The one rule: nothing is in it but what the scenes gave, so that the same calls give the same bytes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

from voiceflow.score.measures import Figures
from voiceflow.score.scenes import Scene

__all__ = ["as_json", "percentile", "scorecard", "table"]

_COUNTS = (
    "false_yields",
    "missed_barge_ins",
    "clipped_first_words",
    "unheard_words_in_context",
    "heard_words_missing",
    "stale_ms",
    "repeated_words",
    "false_replies",
    "talked_over",
    "unanswered",
    "barge_ins",
    "distractions",
    "caller_words",
    "caller_word_errors",
)


def scorecard(results: Sequence[tuple[Scene, Figures]], *, app: str, mode: str, turns: str | None) -> dict[str, Any]:
    """One object: what ``voiceflow score --json`` prints. Milliseconds are None where nothing was measured."""
    figures = [figure for _, figure in results]
    response, yielding, holds, gaps = (_together(figures, name) for name in ("response_ms", "yield_ms", "hold_ms", "gaps_ms"))
    sums = {name: sum(getattr(figure, name) for figure in figures) for name in _COUNTS}
    return {
        "app": app,
        "mode": mode,
        "turns": turns,
        "scenes": len(results),
        "response_ms_p50": percentile(response, 50),
        "response_ms_p95": percentile(response, 95),
        "yield_ms_p50": percentile(yielding, 50),
        "yield_ms_p95": percentile(yielding, 95),
        "false_yields": sums["false_yields"],
        "holds_resumed": len(holds),
        "hold_ms_p50": percentile(holds, 50),
        "hold_ms_max": max(holds, default=None),
        **{name: sums[name] for name in _COUNTS[1:]},
        "gaps": len(gaps),
        "gap_ms_max": max(gaps, default=None),
        "kinds": _kinds(results),
        "failed": [{"scene": scene.name, "kind": scene.kind, "problems": figure.problems} for scene, figure in results if figure.problems],
    }


def _together(figures: Sequence[Figures], name: str) -> list[int]:
    return [ms for figure in figures for ms in getattr(figure, name)]


def _kinds(results: Sequence[tuple[Scene, Figures]]) -> dict[str, dict[str, Any]]:
    kinds: dict[str, list[Figures]] = {}
    for scene, figure in results:
        kinds.setdefault(scene.kind, []).append(figure)
    return {
        kind: {
            "scenes": len(figures),
            "failed": sum(bool(figure.problems) for figure in figures),
            "false_yields": sum(figure.false_yields for figure in figures),
            "missed_barge_ins": sum(figure.missed_barge_ins for figure in figures),
            "holds_resumed": len(_together(figures, "hold_ms")),
            "response_ms_p50": percentile(_together(figures, "response_ms"), 50),
            "yield_ms_p50": percentile(_together(figures, "yield_ms"), 50),
        }
        for kind, figures in kinds.items()
    }


def percentile(values: Sequence[int], percent: float) -> int | None:
    """The smallest value that at least so many percent of the values do not exceed (nearest rank); None of none."""
    return sorted(values)[max(0, math.ceil(percent / 100 * len(values)) - 1)] if values else None


def as_json(card: dict[str, Any]) -> str:
    """The card on one line."""
    return json.dumps(card, ensure_ascii=False)


def table(card: dict[str, Any]) -> str:
    """The card for people."""
    settings = f", turns: {card['turns']}" if card["turns"] else ""
    lines = [f"{card['app']}, {card['mode']}{settings}: {card['scenes']} scenes, {len(card['failed'])} failed", ""]
    lines.append(f"  {'kind':<14}{'scenes':>7}{'failed':>7}{'false yields':>14}{'missed':>8}{'holds':>7}{'response':>10}{'yield':>8}")
    for kind, row in card["kinds"].items():
        cells = f"{row['scenes']:>7}{row['failed']:>7}{row['false_yields']:>14}{row['missed_barge_ins']:>8}{row['holds_resumed']:>7}"
        lines.append(f"  {kind:<14}{cells}{_ms(row['response_ms_p50']):>10}{_ms(row['yield_ms_p50']):>8}")
    lines += [
        "",
        f"  response  {_ms(card['response_ms_p50'])} (p95 {_ms(card['response_ms_p95'])})",
        f"  yield     {_ms(card['yield_ms_p50'])} (p95 {_ms(card['yield_ms_p95'])}), {card['missed_barge_ins']} of {card['barge_ins']} barge-ins missed",
        f"  kept      {card['false_yields']} false yields and {card['false_replies']} replies nobody asked for, of {card['distractions']} distractions; "
        f"{card['holds_resumed']} holds of {_ms(card['hold_ms_p50'])} (longest {_ms(card['hold_ms_max'])})",
        f"  words     {card['clipped_first_words']} first words clipped, {card['unheard_words_in_context']} in the context not heard, "
        f"{card['heard_words_missing']} heard and not in it, {card['repeated_words']} said again",
        f"  stale     {card['stale_ms']} ms",
    ]
    for failed in card["failed"]:
        lines.append(f"FAILED {failed['scene']}: {'; '.join(failed['problems'])}")
    return "\n".join(lines)


def _ms(value: int | None) -> str:
    return "-" if value is None else f"{value} ms"
