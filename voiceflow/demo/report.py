"""What the demo says of a call: figures, a table, JSON, and whether it went as it should."""

from __future__ import annotations

import json
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from voiceflow.demo.call import Call
from voiceflow.demo.journal import Turn, word_error_rate
from voiceflow.demo.script import Spoken
from voiceflow.demo.timeline import svg
from voiceflow.interruption import Interruption
from voiceflow.score.trace import covered, heard_words, trace
from voiceflow.score.words import edits

__all__ = ["Report", "make_report", "save"]

AFTER_S = 3.0
"""How long after an interrupt stale sound is looked for, at most up to the next reply's first sound."""


@dataclass(frozen=True, slots=True)
class Report:
    """The figures of a call. Milliseconds are None where there is nothing to measure."""

    turns: list[Turn]
    scripted: bool
    wer: float | None
    stale_ms: int | None
    silence_ms: int | None
    voice_to_voice_ms_p50: int | None
    context_error_words: int | None
    problems: list[str]

    def as_dict(self) -> dict[str, Any]:
        """The object that ``demo --json`` prints."""
        turns = [
            {
                "said": turn.said,
                "heard": turn.heard,
                "answer": turn.reply.text.strip() if turn.reply else "",
                "heard_answer": turn.reply.heard if turn.reply else "",
                "interrupted": bool(turn.reply and turn.reply.interrupted),
                "waterfall": turn.waterfall(),
            }
            for turn in self.turns
        ]
        figures = {name: getattr(self, name) for name in ("stale_ms", "silence_ms", "voice_to_voice_ms_p50", "context_error_words")}
        return {"turns": turns, "wer": None if self.wer is None else round(self.wer, 4), **figures, "problems": self.problems}

    def table(self) -> str:
        """The call for people: each turn, its waterfall, and the figures."""
        columns = ("endpointing", "of_it_stt", "llm_first_token", "first_clause", "tts_first_audio", "playout", "voice_to_voice")
        heads = ("endpoint", "(stt)", "llm", "clause", "tts", "playout", "voice-to-voice")
        lines = [f"{'ms':>6} " + "".join(f"{head:>10}" if head != heads[-1] else f"{head:>16}" for head in heads)]
        for number, turn in enumerate(self.turns, 1):
            steps = turn.waterfall()
            cells = ["-" if steps[column] is None else str(steps[column]) for column in columns]
            lines.append(f"turn {number:<2}" + "".join(f"{cell:>10}" for cell in cells[:-1]) + f"{cells[-1]:>16}")
        lines += ["", *(line for number, turn in enumerate(self.turns, 1) for line in _told(number, turn)), ""]
        if self.wer is not None:
            lines.append(f"word error rate {self.wer * 100:.1f} %, voice-to-voice median {self.voice_to_voice_ms_p50} ms")
        if self.silence_ms is not None:
            lines.append(
                f"barge-in: silent {self.silence_ms} ms after the caller's voice began, {self.stale_ms} ms of stale sound after the interrupt, "
                f"{self.context_error_words} words wrong in the context"
            )
        lines += [f"PROBLEM: {problem}" for problem in self.problems]
        return "\n".join(lines)


def _told(number: int, turn: Turn) -> list[str]:
    lines = [] if turn.said is None else [f"turn {number}  said    {turn.said}"]
    lines.append(f"        heard   {turn.heard or '(nothing)'}")
    if turn.reply is not None:
        lines.append(f"        answer  {' '.join(turn.reply.text.split())}")
        if turn.reply.interrupted:
            lines.append(f"        cut at  {turn.reply.heard or '(before the first word)'} ...")
    return lines


def make_report(call: Call) -> Report:
    """Measure a call."""
    spoken = call.caller.spoken
    turns = call.journal.turns(spoken)
    scripted = any(s.line.text for s in spoken)
    cut_in = next((s for s in spoken if s.line.cuts_in_s is not None), None)
    cut = next((i for i in call.interruptions if i.heard and cut_in and i.at >= cut_in.begin), None)
    silence_ms = stale_ms = wrong = None
    if cut is not None and cut_in is not None:
        silence_ms, stale_ms = _silence(call, cut_in, cut), _stale(call, cut)
        wrong = _context_errors(call, cut)
    heard_after = [ms for turn in turns if (ms := turn.waterfall()["voice_to_voice"]) is not None]
    median = round(statistics.median(heard_after)) if heard_after else None
    report = Report(turns, scripted, word_error_rate(turns), stale_ms, silence_ms, median, wrong, [])
    report.problems.extend(_problems(report, cut_in))
    return report


def _silence(call: Call, cut_in: Spoken, cut: Interruption) -> int:
    """From the onset of the caller's voice to the last audible sample of the agent's before the next reply."""
    last = call.recording.agent.last_sound(cut_in.begin, _next_sound(call, cut))
    return 0 if last is None else round((last - cut_in.begin) * 1000)


def _stale(call: Call, cut: Interruption) -> int:
    """Audible sound of the agent's after the interrupt and before the next reply."""
    last = call.recording.agent.last_sound(cut.at, _next_sound(call, cut))
    return 0 if last is None else round((last - cut.at) * 1000)


def _next_sound(call: Call, cut: Interruption) -> float:
    """When the reply after the interrupt was first heard; the block it came in may have begun 20 ms earlier."""
    begins = [reply.heard_at for reply in call.journal.replies.values() if reply.heard_at is not None and reply.heard_at > cut.at]
    return min([*(begin - 0.02 for begin in begins), cut.at + AFTER_S])


def _context_errors(call: Call, cut: Interruption) -> int | None:
    """Words by which the saved message differs from the words that are in the recording; None if it cannot be told.

    The recorded sound is looked for in the sound that was made, so this owes nothing to the playout's own book-keeping.
    """
    made, number = call.journal.made(call.recording.agent.rate), cut.heard[0].utterance
    index = next((index for index, utterance in enumerate(made.utterances) if utterance.number == number), None)
    traced = trace(call.recording.agent, made)
    if index is None or not any(stretch.utterance == index for stretch in traced.stretches):
        return None
    heard = heard_words(made, index, covered(made, traced.stretches, call.recording.agent, [cut.at]))
    saved = next((m.text for m in call.messages if m.role == "assistant" and m.interrupted), "")
    return edits([word.text for word in heard], saved.split())


def _problems(report: Report, cut_in: Spoken | None) -> list[str]:
    found = []
    if not report.turns:
        found.append("nothing was heard of the caller")
    for number, turn in enumerate(report.turns, 1):
        if not turn.heard:
            found.append(f"turn {number} was not heard")
        elif turn.reply is None or turn.reply.heard_at is None:
            found.append(f"turn {number} was not answered")
    if cut_in is not None:
        if report.silence_ms is None:
            found.append("the barge-in did not stop the agent's speech")
        elif report.stale_ms:
            found.append(f"{report.stale_ms} ms of stale sound were heard after the interrupt")
    return found


def save(call: Call, report: Report, folder: Path) -> list[Path]:
    """Write conversation.wav, transcript.json and timeline.svg; the paths."""
    folder.mkdir(parents=True, exist_ok=True)
    sound, transcript, picture = folder / "conversation.wav", folder / "transcript.json", folder / "timeline.svg"
    call.recording.save(sound)
    context = [{"role": m.role, "text": m.text, "interrupted": m.interrupted} for m in call.messages]
    transcript.write_text(json.dumps({**report.as_dict(), "context": context}, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    picture.write_text(svg(call.recording, report.turns, call.interruptions), encoding="utf-8")
    return [sound, transcript, picture]
