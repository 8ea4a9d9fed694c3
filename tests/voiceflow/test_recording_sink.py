"""The loudspeaker that remembers: which words it reports, and when."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from voiceflow import (
    Heard,
    OutputAudioFrame,
    PlaybackStarted,
    PlaybackStopped,
    Processor,
    Session,
    UtteranceEnded,
    Word,
    WordsHeard,
    replace,
)
from voiceflow.testing import RecordingSink
from voiceflow.testing.scripts import VOICE_RATE


class Voice(Processor):
    """Yields a script of frames and pauses (seconds), and keeps the reports."""

    def __init__(self, *script):
        self.script = script
        self.reports: list[PlaybackStarted | WordsHeard | PlaybackStopped] = []

    def process(self, frame: PlaybackStarted | WordsHeard | PlaybackStopped) -> None:
        self.reports.append(replace(frame, epoch=0))

    async def run(self) -> AsyncIterator[OutputAudioFrame | UtteranceEnded]:
        for item in self.script:
            if isinstance(item, float):
                await asyncio.sleep(item)
            else:
                yield replace(item, epoch=self.session.epoch)


def say(*words, utterance=1):
    """A frame with a word every 100 ms."""
    placed = tuple(Word(w, i / 10, (i + 1) / 10) for i, w in enumerate(words))
    return OutputAudioFrame(b"\1\0" * (VOICE_RATE // 10 * len(words)), VOICE_RATE, words=placed, utterance=utterance)


async def test_words_are_reported_as_they_are_heard():
    """Start, each word 50 ms after it began, stop."""
    voice = Voice(say("a", "b"), UtteranceEnded(utterance=1))
    await Session(voice >> RecordingSink()).run()
    assert voice.reports == [
        PlaybackStarted(utterance=1, at=0.0, epoch=0),
        WordsHeard(text="a", utterance=1, at=pytest.approx(0.05), epoch=0),
        WordsHeard(text="b", utterance=1, at=pytest.approx(0.15), epoch=0),
        PlaybackStopped(heard=Heard(1, "a b", True), at=pytest.approx(0.2), epoch=0),
    ]


@pytest.mark.parametrize(("hold_at", "interrupted"), [(0.18, False), (0.18, True), (0.12, False), (0.12, True)])
async def test_a_word_said_again_counts_once(hold_at, interrupted):
    """Held in the second word, which was heard (180 ms) or not (120): it is told once, and is once in what was heard."""
    voice, sink = Voice(say("a", "b", "c"), UtteranceEnded(utterance=1), 2.0), RecordingSink()

    async def hold(session):
        await session.started()
        await asyncio.sleep(hold_at)
        session.hold()
        await asyncio.sleep(0.5)
        if not interrupted:
            session.resume()
            await asyncio.sleep(0.12)  # in the middle of "b" again, or behind it
            session.hold()
            session.resume()
        else:
            session.interrupt()

    session = Session(voice >> sink)
    await asyncio.gather(session.run(), hold(session))
    words = [w for r in voice.reports if isinstance(r, WordsHeard) for w in r.text.split()]
    if interrupted:
        assert sink.interruptions[0].heard[0].text == " ".join(words) == ("a b" if hold_at > 0.15 else "a")
    else:
        assert words == ["a", "b", "c"]
        assert voice.reports[-1].heard == Heard(1, "a b c", True)


async def test_a_number_that_comes_again_is_another_utterance():
    """Two sayings that both carry 0 have each their start, their words and their stop, at their own times."""
    voice = Voice(say("a", utterance=0), UtteranceEnded(utterance=0), 1.0, say("b", utterance=0), UtteranceEnded(utterance=0))
    await Session(voice >> RecordingSink()).run()
    assert [(type(r).__name__, pytest.approx(r.at)) for r in voice.reports] == [
        (kind, base + at) for base in (0.0, 1.0) for kind, at in (("PlaybackStarted", 0), ("WordsHeard", 0.05), ("PlaybackStopped", 0.1))
    ]
    assert [r.heard.text for r in voice.reports if isinstance(r, PlaybackStopped)] == ["a", "b"]


async def test_an_utterance_without_a_sound_is_over_at_once():
    """Nothing could be heard of it, and whoever waits for it is told so."""
    voice = Voice(UtteranceEnded(utterance=1), 0.5, say("a", utterance=2), UtteranceEnded(utterance=2))
    await Session(voice >> RecordingSink()).run()
    stops = [report for report in voice.reports if isinstance(report, PlaybackStopped)]
    assert [(stop.heard.utterance, stop.heard.text, stop.heard.complete) for stop in stops] == [(1, "", True), (2, "a", True)]
    assert [stop.at for stop in stops] == pytest.approx([0.0, 0.6])
