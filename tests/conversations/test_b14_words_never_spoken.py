"""Case B14: the context holds words that were never spoken."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from voiceflow import SayFrame, Session
from voiceflow.testing import Latency

from .rig import Call, TokenVoice, Voice

SENTENCES = (
    "One day a small grey dog came home.",
    "Two cats sat still upon the old wall.",
    "Three birds sang above them in the tree.",
    "Four mice ran quickly over the wet grass.",
    "Five fish swam round and round the pond.",
)
STORY = " ".join(SENTENCES)
WORDS = STORY.split()
VOICES: dict[str, Callable[[], Voice]] = {
    "sentences": lambda: Voice(Latency(0.05, 0.0)),
    "tokens": lambda: TokenVoice(Latency(0.05, 0.0)),
    "slow": lambda: Voice(Latency(0.05, 0.09)),
    "no timings": lambda: Voice(Latency(0.05, 0.0), timed=False),
    "tokens without timings": lambda: TokenVoice(Latency(0.05, 0.0), timed=False),
}


def story(voice: str) -> Call:
    """Forty words of text within 100 ms, four seconds of sound."""
    return Call(STORY, voice=VOICES[voice](), thinks=Latency(0.0, 0.0025), turns=None)


def check(this: Call, voice: str) -> None:
    """R7: the context holds what was heard, to the word with timings."""
    told, heard = this.said(), this.heard()
    assert told == WORDS[: len(told)]
    assert heard == WORDS[: len(heard)]
    if "timings" in voice:
        assert abs(len(told) - len(heard)) <= 1
        assert len(told) <= _end_of_sentence(this)
    else:
        assert told == heard
    assert all(m.text.strip() for m in this.messages)


def _end_of_sentence(this: Call) -> int:
    """How many words there are up to the end of the text that was being heard."""
    last = max([run.label for run in this.ear.runs()], default=0)
    return sum(sentence <= this.voice.sentences[last - 1] for sentence in this.voice.sentences) if last else 0


async def cut_after(this: Call, seconds: float, cut: Callable[[Session], object], *, say: bool = False) -> None:
    """Ask; so long after the first sound, cut; wait until all is over."""
    await this.session.__aenter__()
    if say:
        this.send(SayFrame(STORY))
    else:
        this.asks("tell me a story")
    first = await this.first_sound()
    await this.until(first + seconds)
    cut(this.session)
    await asyncio.sleep(0.5)
    await this.session.__aexit__(None, None, None)


@pytest.mark.parametrize("voice", VOICES)
@pytest.mark.parametrize("ms", [*range(3, 120, 10), *range(128, 4100, 205)])
async def test_b14_interrupted_at_any_moment_the_context_holds_what_was_heard(ms: int, voice: str) -> None:
    """With timings to the word, without them to one word: nothing that was made, queued or sent counts."""
    this = story(voice)
    await cut_after(this, ms / 1000, Session.interrupt)
    check(this, voice)
    if voice in ("sentences", "tokens"):
        assert abs(len(this.said()) - ms / 100) <= 1
    if ms == 30:
        assert len(this.said()) <= (1 if "timings" in voice else 0)
    assert all(m.interrupted for m in this.messages if m.role == "assistant") or len(this.said()) == len(WORDS)


@pytest.mark.parametrize("voice", VOICES)
@pytest.mark.parametrize("ms", [33, 347, 1247, 2613])
async def test_b14_cancelled_the_context_holds_what_was_heard(ms: int, voice: str) -> None:
    """A call that is cut off leaves the words that were heard until then, marked as interrupted."""
    this = story(voice)
    await cut_after(this, ms / 1000, Session.cancel)
    cut_at = this.ear.runs()[0].at + ms / 1000
    this.ear.cuts = lambda: [cut_at]
    check(this, voice)
    if voice in ("sentences", "tokens"):
        assert abs(len(this.said()) - ms / 100) <= 1
    assert all(m.interrupted for m in this.messages if m.role == "assistant")


@pytest.mark.parametrize("voice", VOICES)
@pytest.mark.parametrize("ms", [30, 1250])
async def test_b14_ended_the_story_is_heard_out_and_kept_whole(ms: int, voice: str) -> None:
    """An end drains: all forty words are heard, and they are what the context holds."""
    this = story(voice)
    await cut_after(this, ms / 1000, Session.end)
    check(this, voice)
    assert this.said() == this.heard() == WORDS


@pytest.mark.parametrize("ms", [0, 30, 70, 340, 1250, 3990])
async def test_b14_a_greeting_is_kept_as_far_as_it_was_heard(ms: int) -> None:
    """What is said without the model follows the same rule."""
    this = story("sentences")
    await cut_after(this, ms / 1000, Session.interrupt, say=True)
    check(this, "sentences")


@pytest.mark.parametrize("voice", VOICES)
async def test_b14_interrupted_on_hold_and_after_a_resume(voice: str) -> None:
    """A hold, a resume from the cut word and a second hold that becomes an interrupt: each word counts once."""
    this = story(voice)

    def cut(session: Session) -> None:
        loop = asyncio.get_running_loop()
        session.hold("cough")
        loop.call_later(0.4, session.resume)
        loop.call_later(1.02, session.hold)
        loop.call_later(1.7, session.interrupt)

    await this.session.__aenter__()
    this.asks("tell me a story")
    first = await this.first_sound()
    await this.until(first + 0.93)
    cut(this.session)
    await asyncio.sleep(2.5)
    await this.session.__aexit__(None, None, None)
    check(this, voice)
    assert len(this.heard()) in range(12, 18)
    assert sum(run.label == max(this.ear.labels()) for run in this.ear.runs()) >= 1
