"""The conformance kit on the nodes that need no model; those that do run it in their own tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from voiceflow import (
    AudioFormat,
    ContextFrame,
    Frame,
    InputAudioFrame,
    LLMEnded,
    Message,
    OutputAudioFrame,
    Processor,
    SentenceFrame,
    SpeechStarted,
    SpeechStopped,
    UtteranceEnded,
    Word,
)
from voiceflow.convert import Converter
from voiceflow.testing import RecordingSink, ScriptedLLM, ScriptedSTT, ScriptedTTS, ScriptedVAD, check_processor
from voiceflow.transports.memory import MemoryOut
from voiceflow.transports.wav import WavOut


def speech(rate: int) -> list[Frame]:
    """Three words of 100 ms, and their end."""
    words = ("one", "two", "three")
    sound = [OutputAudioFrame(b"\x00\x10" * (rate // 10), rate, words=(Word(word, 0.0, 0.1),), utterance=1) for word in words]
    return [*sound, UtteranceEnded(utterance=1)]


def voice() -> list[Frame]:
    """Half a second of a caller's labelled voice between silences, 20 ms a frame."""
    return [InputAudioFrame((b"\x64\x00" if 10 <= n < 35 else b"\x00\x00") * 320, 16000, pts=n * 0.02) for n in range(50)]


SENTENCES: list[Frame] = [SentenceFrame("Hello there.", utterance=1), SentenceFrame("Good day.", utterance=1), LLMEnded(utterance=1)]
QUESTION: list[Frame] = [ContextFrame(messages=(Message("user", "hello"),), utterance=1)]
EDGES: list[Frame] = [*voice()[:40], SpeechStarted(at=0.2), SpeechStopped(at=0.7)]

CASES: dict[str, tuple[Callable[[Path], Processor], Sequence[Frame], int]] = {
    "converter": (lambda _: Converter(AudioFormat(16000)), speech(24000), 1),
    "wav-out": (lambda folder: WavOut(folder / "out.wav"), speech(24000), 5),
    "wav-out, as it comes": (lambda folder: WavOut(folder / "out.wav", realtime=False), speech(24000), 2),
    "memory-out": (lambda _: MemoryOut(AudioFormat(24000)), speech(24000), 5),
    "recording sink": (lambda _: RecordingSink(), speech(24000), 2),
    "scripted detector": (lambda _: ScriptedVAD(), voice(), 10),
    "scripted recogniser": (lambda _: ScriptedSTT(["hello"]), EDGES, 10),
    "scripted model": (lambda _: ScriptedLLM(lambda messages: "Hello to you too."), QUESTION, 1),
    "scripted voice": (lambda _: ScriptedTTS(), SENTENCES, 1),
}


@pytest.mark.parametrize("name", CASES)
def test_it_conforms(name: str, tmp_path: Path) -> None:
    """Strangers pass, interrupts leave it as good as new, neighbours do it no harm, nothing is left behind."""
    make, feed, every = CASES[name]
    check_processor(lambda: make(tmp_path), feed, every=every)
