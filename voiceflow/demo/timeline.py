"""The call as a picture: two tracks of sound, the words, the turns, the interrupt. Plain SVG, no library."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import numpy as np
import numpy.typing as npt

from voiceflow.demo.journal import Turn
from voiceflow.interruption import Interruption
from voiceflow.score.recording import Recording, Track

__all__ = ["svg"]

PIXELS_PER_S = 60
HEIGHT = 80
LEFT = 70
TRACK_Y = {"caller": 115, "agent": 250}
COLOURS = {"caller": "#2563eb", "agent": "#d97706", "interrupt": "#dc2626", "grid": "#e5e7eb", "text": "#111827", "faint": "#6b7280"}


def svg(recording: Recording, turns: Sequence[Turn], interruptions: Sequence[Interruption]) -> str:
    """The picture of a recorded call. Times on the axis are seconds from the start of the recording."""
    origin = recording.origin
    length_s = max(len(t.samples()) / t.rate for t in (recording.caller, recording.agent))
    width = round(LEFT + length_s * PIXELS_PER_S + 40)
    parts = [_axis(length_s), _track("caller", recording.caller), _track("agent", recording.agent)]
    for number, turn in enumerate(turns, 1):
        begin, end = _x(turn.begin - origin), _x(turn.end - origin)
        parts.append(_line(end, "faint", f"turn {number}", y=16, dash=True))
        parts.append(_words(begin, TRACK_Y["caller"] - HEIGHT / 2 - 6, turn.heard, "caller"))
        reply = turn.reply
        if reply is not None and reply.heard_at is not None:
            at = _x(reply.heard_at - origin)
            parts.append(_gap(end, at, f"{(reply.heard_at - turn.end) * 1000:.0f} ms"))
            parts.append(_words(at, TRACK_Y["agent"] + HEIGHT / 2 + 14, reply.heard + (" ..." if reply.interrupted else ""), "agent"))
    for interruption in interruptions:
        if interruption.heard:
            parts.append(_line(_x(interruption.at - origin), "interrupt", "interrupt", y=30))
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="370" viewBox="0 0 {width} 370" '
        f'font-family="sans-serif" font-size="11">\n<rect width="100%" height="100%" fill="white"/>\n{body}\n</svg>\n'
    )


def _x(second: float) -> float:
    return round(LEFT + second * PIXELS_PER_S, 1)


def _axis(length_s: float) -> str:
    marks = []
    for second in range(int(length_s) + 1):
        x = _x(second)
        marks.append(f'<line x1="{x}" y1="65" x2="{x}" y2="345" stroke="{COLOURS["grid"]}"/>')
        if second % 5 == 0:
            marks.append(f'<text x="{x}" y="360" text-anchor="middle" fill="{COLOURS["faint"]}">{second} s</text>')
    return "\n".join(marks)


def _track(name: str, track: Track) -> str:
    """The sound's envelope: the loudest sample up and down in each pixel."""
    y, samples = TRACK_Y[name], track.samples()
    size = track.rate // PIXELS_PER_S
    peaks = _envelope(samples, size)
    above = [f"{_x(i / PIXELS_PER_S)},{y - HEIGHT / 2 * high:.1f}" for i, (_, high) in enumerate(peaks)]
    below = [f"{_x(i / PIXELS_PER_S)},{y - HEIGHT / 2 * low:.1f}" for i, (low, _) in reversed(list(enumerate(peaks)))]
    label = f'<text x="8" y="{y + 4}" fill="{COLOURS[name]}" font-weight="bold">{name}</text>'
    return f'{label}\n<polygon points="{" ".join([*above, *below])}" fill="{COLOURS[name]}" stroke="{COLOURS[name]}" stroke-width="0.5"/>'


def _envelope(samples: npt.NDArray[np.int16], size: int) -> list[tuple[float, float]]:
    whole = samples[: len(samples) // size * size].reshape(-1, size).astype(float) / 32768
    if not whole.size:
        return [(0.0, 0.0)]
    return list(zip(whole.min(axis=1).tolist(), whole.max(axis=1).tolist(), strict=True))


def _line(x: float, colour: str, label: str, *, y: float, dash: bool = False) -> str:
    style = ' stroke-dasharray="3 3"' if dash else ' stroke-width="2"'
    return (
        f'<line x1="{x}" y1="{y + 4}" x2="{x}" y2="345" stroke="{COLOURS[colour]}"{style}/>'
        f'<text x="{x}" y="{y}" text-anchor="middle" fill="{COLOURS[colour]}">{escape(label)}</text>'
    )


def _words(x: float, y: float, text: str, colour: str) -> str:
    """Wrapped to lines of about 40 characters; four lines at most."""
    lines, line = [], ""
    for word in text.split():
        if len(line) + len(word) > 40:
            lines.append(line)
            line = ""
        line = f"{line} {word}".strip()
    lines.append(line)
    if len(lines) > 4:
        lines = [*lines[:3], lines[3] + " ..."]
    up = colour == "caller"
    first = y - 12 * (len(lines) - 1) if up else y
    spans = "".join(f'<tspan x="{x}" y="{first + 12 * i}">{escape(part)}</tspan>' for i, part in enumerate(lines))
    return f'<text fill="{COLOURS["text"]}" font-size="10">{spans}</text>'


def _gap(begin: float, end: float, label: str) -> str:
    y = (TRACK_Y["caller"] + TRACK_Y["agent"]) / 2
    return (
        f'<line x1="{begin}" y1="{y}" x2="{end}" y2="{y}" stroke="{COLOURS["text"]}" stroke-width="1.5"/>'
        f'<text x="{(begin + end) / 2}" y="{y - 4}" text-anchor="middle" fill="{COLOURS["text"]}">{label}</text>'
    )
