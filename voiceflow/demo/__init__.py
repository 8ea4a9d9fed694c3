"""``voiceflow demo``: a spoken conversation with a barge-in, on real models, all on this machine, measured."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from voiceflow import models
from voiceflow.demo.call import Call, hold_call
from voiceflow.demo.journal import Journal
from voiceflow.demo.report import make_report, save
from voiceflow.demo.script import SCRIPT, Caller, Line, load_line, read_wav
from voiceflow.errors import ModelError
from voiceflow.frames import Frame, LLMTextFrame, TranscriptFrame, TurnEnded

__all__ = ["main"]


def main(arguments: Sequence[str]) -> int:
    """Run the demo. 0 only if every turn was heard and answered and the barge-in stopped the speech; 1 if not."""
    parser = argparse.ArgumentParser(prog="voiceflow demo", description="A spoken conversation on this machine's own models.")
    parser.add_argument(
        "--out", type=Path, default=Path("voiceflow-demo"), metavar="DIR", help="where to write the recording (default: %(default)s)"
    )
    parser.add_argument("--wav", type=Path, metavar="FILE", help="let this 16-bit WAV file be the caller instead of the script")
    parser.add_argument("--json", action="store_true", help="print one JSON object last on stdout, and everything else on stderr")
    options = parser.parse_args(arguments)
    out = sys.stderr if options.json else sys.stdout
    try:
        lines = [(Line(None), read_wav(options.wav))] if options.wav else [(line, load_line(line)) for line in SCRIPT]
        models.fetch_default()
    except (OSError, EOFError, ValueError, ModelError) as error:
        print(f"voiceflow demo: {error}", file=sys.stderr)
        return 1
    live = _Live(out.isatty())
    print("The caller is a recording, the agent is made of local models; this is real time.", file=out)
    call: Call = asyncio.run(
        hold_call(Caller(lines), Journal(on_frame=lambda frame, _: print(live.line(frame), end="", file=out, flush=True)))
    )
    report = make_report(call)
    paths = save(call, report, options.out)
    print(f"\n{report.table()}\n\nwritten: {', '.join(map(str, paths))}", file=out)
    if options.json:
        print(json.dumps(report.as_dict(), ensure_ascii=False))
    return 1 if report.problems else 0


class _Live:
    """The conversation as it goes: partials while the caller speaks (overwritten on a terminal), then the answer."""

    def __init__(self, is_terminal: bool) -> None:
        self._over = "\r\x1b[K" if is_terminal else "\n"
        self._in_answer = False

    def line(self, frame: Frame) -> str:
        """What to print for a frame."""
        if isinstance(frame, LLMTextFrame):
            begin = "" if self._in_answer else "\n  agent:  "
            self._in_answer = True
            return begin + frame.text.replace("\n", " ")
        if isinstance(frame, TranscriptFrame) and not frame.final:
            self._in_answer = False
            return f"{self._over}  caller: {frame.text} ..."
        if isinstance(frame, TurnEnded):
            self._in_answer = False
            return f"{self._over}  caller: {frame.text}"
        return ""
