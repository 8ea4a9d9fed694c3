"""Openings that are ready before they are needed: the same sound and words, sooner, and never out of order."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.processors.test_fallback import ByItself, NoStart, Voice
from voiceflow import Frame, OutputAudioFrame, PipelineError, Processor, SentenceFrame, Session, TurnEnded, UtteranceEnded
from voiceflow.frames import LLMEnded
from voiceflow.processors.context import Context
from voiceflow.processors.phrases import PhraseCache, Phrases
from voiceflow.processors.text import Sentences
from voiceflow.testing import (
    Collector,
    Latency,
    Probe,
    RecordingSink,
    ScriptedLLM,
    ScriptedTTS,
    check_processor,
    interrupt_everywhere,
    no_leaks,
    run_virtual,
)

SLOW = Latency(0.5, 0.005)


async def speak(node: Processor, texts: list[list[str]], wait_s: float = 3.0) -> tuple[list[Frame], list[float]]:
    """What comes of these utterances, begun ``wait_s`` apart, and how long after its text the first sound of each."""
    firsts: list[float] = []
    out = Collector()
    session = Session(node >> out, inputs=[SentenceFrame, LLMEnded])
    async with session, no_leaks():
        await asyncio.sleep(wait_s)
        for number, sentences in enumerate(texts, 1):
            asked_at, had = session.time(), len(out.frames)
            for sentence in sentences:
                await session.send(SentenceFrame(sentence, utterance=number))
            await session.send(LLMEnded(utterance=number))
            while not any(isinstance(frame, OutputAudioFrame) for frame in out.frames[had:]):
                await asyncio.sleep(0.001)
            firsts.append(session.time() - asked_at)
            await asyncio.sleep(wait_s)
    return [frame for frame in out.frames if isinstance(frame, OutputAudioFrame | UtteranceEnded)], firsts


def words_of(frames: list[Frame], number: int) -> list[str]:
    return [word.text for frame in frames if isinstance(frame, OutputAudioFrame) and frame.utterance == number for word in frame.words]


def test_a_phrase_is_spoken_at_once_with_its_words() -> None:
    """The rest follows behind it; one end for each utterance; another text waits for the voice."""
    node = Phrases(lambda: ScriptedTTS(SLOW), ["One moment."])
    frames, firsts = run_virtual(speak(node, [["One  moment.", "It is nine."], ["It is ten."]]))
    assert words_of(frames, 1) == ["One", "moment.", "It", "is", "nine."]
    assert words_of(frames, 2) == ["It", "is", "ten."]
    assert firsts[0] < 0.01 < 0.5 <= firsts[1]
    assert [frame.utterance for frame in frames if isinstance(frame, UtteranceEnded)] == [1, 2]


def test_a_phrase_in_the_middle_waits_for_its_turn() -> None:
    """What is still being made is not overtaken."""
    node = Phrases(lambda: ByItself("voice"), ["One moment."])
    frames, _ = run_virtual(speak(node, [["It is nine.", "One moment.", "Bye."]]))
    assert words_of(frames, 1) == ["It", "is", "nine.", "One", "moment.", "Bye."]


@given(
    st.lists(st.lists(st.sampled_from(["One moment.", "Hello!", "It is nine.", "Bye."]), min_size=1, max_size=4), min_size=1, max_size=3),
    st.booleans(),
)
def test_with_and_without_phrases_the_same_is_said(texts: list[list[str]], by_itself: bool) -> None:
    """Whatever is ready and whatever is not: the same words in the same order."""

    def make() -> Processor:
        return ByItself("voice") if by_itself else ScriptedTTS()

    one, _ = run_virtual(speak(Phrases(make, ["One moment.", "Hello!"]), texts))
    two, _ = run_virtual(speak(make(), texts))
    for number in range(1, len(texts) + 1):
        assert words_of(one, number) == words_of(two, number)
    assert sum(isinstance(f, UtteranceEnded) for f in one) == len(texts)


def test_sessions_share_what_one_of_them_has_made() -> None:
    """The second asks the voice for nothing."""
    made: list[ScriptedTTS] = []

    def make() -> Processor:
        made.append(ScriptedTTS(SLOW))
        return made[-1]

    cache = PhraseCache()

    async def main() -> list[float]:
        _, first = await speak(Phrases(make, ["One moment."], cache), [["One moment."]])
        _, second = await speak(Phrases(make, ["One moment."], cache), [["One moment."]], wait_s=0.0)
        return first + second

    assert max(run_virtual(main())) < 0.01
    assert [voice.sentences for voice in made] == [[], ["One moment."], []]


def test_two_sessions_at_once_make_a_phrase_once() -> None:
    """Who comes second leaves it to the first, and speaks live meanwhile."""
    cache = PhraseCache()
    assert cache.claim("v", ["a", "b"]) == ["a", "b"]
    assert cache.claim("v", ["b", "c"]) == ["c"]
    assert cache.claim("w", ["a"]) == ["a"]
    cache.release("v", ["a", "b"])
    assert cache.claim("v", ["a"]) == ["a"]


def test_before_it_is_ready_a_phrase_is_spoken_like_any_text() -> None:
    """Nobody waits for what is being made beside the talk."""
    frames, firsts = run_virtual(speak(Phrases(lambda: ScriptedTTS(SLOW), ["One moment."]), [["One moment."]], wait_s=0.1))
    assert words_of(frames, 1) == ["One", "moment."]
    assert 0.4 < firsts[0] < 0.6


def test_phrases_that_cannot_be_made_are_no_obstacle(caplog: pytest.LogCaptureFixture) -> None:
    """One line in the log, and the voice speaks."""
    voices = iter([Voice("live"), NoStart("maker")])
    frames, _ = run_virtual(speak(Phrases(lambda: next(voices), ["One moment."]), [["One moment."]]))
    assert words_of(frames, 1) == ["One", "moment."]
    assert "could not be made beforehand: no licence" in caplog.text


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 40)), max_size=30))
def test_the_cache_keeps_within_its_bound(steps: list[tuple[str, int]]) -> None:
    """What was used last stays."""
    cache = PhraseCache(limit_bytes=60)
    for text, samples in steps:
        cache.keep("v", text, [OutputAudioFrame(pcm=bytes(2 * samples), sample_rate=8000)] if samples else [])
        if samples and 2 * samples <= 60:
            assert cache.find("v", text)
        assert cache.bytes == sum(2 * len(f.pcm) // 2 for t in "abcdef" for f in cache.find("v", t)) <= 60


@pytest.mark.parametrize("kind", [ScriptedTTS, lambda: ByItself("voice")])
def test_interrupted_at_every_await_the_context_holds_what_was_heard(kind: Any) -> None:
    """Phrase or not: nothing stale, and the next question is answered."""

    def scene(probe: Probe) -> Any:
        async def scenario() -> None:
            context, sink = Context(), RecordingSink()
            llm = ScriptedLLM(
                lambda messages: "One moment. Pong it is." if messages[-1].text.endswith("ping") else "One moment. It is nine. Bye."
            )
            session = Session(context >> llm >> Sentences() >> Phrases(kind, ["One moment."]) >> sink, inputs=[TurnEnded])
            probe.watch(session, sink)
            async with session:
                await asyncio.sleep(1.0)
                for text in ("When?", "ping"):
                    await session.send(TurnEnded(text=text))
                    await asyncio.sleep(2.5)
                probe.finish()
            at = probe.interruption.at if probe.interruption else 0.0
            if at < 3.5 and sink.words()[-5:] != ["One", "moment.", "Pong", "it", "is."]:
                probe.problems.append(f"the last question was not answered: {sink.words()}")
            said = [word for m in context.conversation.messages if m.role == "assistant" for word in m.text.split()]
            if said != sink.words():
                probe.problems.append(f"the context holds {said}, and {sink.words()} was heard")

        return scenario()

    found = interrupt_everywhere(scene)
    found.check()
    assert found.tried > 40


def test_the_node_conforms() -> None:
    """The conformance kit."""
    feed = [SentenceFrame("One moment.", utterance=1), SentenceFrame("It is nine.", utterance=1), LLMEnded(utterance=1)]
    check_processor(lambda: Phrases(lambda: Voice("voice"), ["One moment."]), feed)


def test_what_is_no_voice_is_refused() -> None:
    """When the node is made."""
    with pytest.raises(PipelineError, match="Sentences is no voice"):
        Phrases(Sentences, ["One moment."])
    with pytest.raises(ValueError, match="limit_bytes"):
        PhraseCache(0)
