"""Two nodes for one place: whatever goes wrong with the first, the caller hears everything once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from voiceflow import (
    AudioFormat,
    ContextFrame,
    ErrorFrame,
    Frame,
    InputAudioFrame,
    LLMTextFrame,
    OutputAudioFrame,
    Pipeline,
    PipelineError,
    Processor,
    SentenceFrame,
    Session,
    SessionOptions,
    SpeechStarted,
    SpeechStopped,
    ToolCall,
    TranscriptFrame,
    TurnEnded,
    UtteranceEnded,
)
from voiceflow.frames import EndFrame, LLMEnded, LLMStarted, ToolCallFrame, Word
from voiceflow.processors.context import Context
from voiceflow.processors.fallback import Fallback, FallbackError, FallbackOptions
from voiceflow.processors.text import Sentences
from voiceflow.processors.turns import Turns
from voiceflow.testing import (
    Collector,
    Latency,
    Probe,
    RecordingSink,
    Said,
    ScriptedCaller,
    ScriptedLLM,
    ScriptedSTT,
    ScriptedTTS,
    ScriptedVAD,
    check_processor,
    interrupt_everywhere,
    no_leaks,
    run_virtual,
)

# ------------------------------------------------------------------------------------------------- a voice

WORD = bytes(2 * 800)


class Voice(Processor):
    """100 ms a word at 8 kHz, a word a frame; raises before frame number ``breaks`` (counted over its life), as often as ``times``.

    ``half``: the frame before the break lacks the second half of its word.
    """

    makes = AudioFormat(8000)

    def __init__(self, name: str, breaks: int | None = None, *, times: int = 1, half: bool = False) -> None:
        self.name = name
        self.breaks, self.times, self.half = breaks, times, half
        self.said: list[str] = []
        self.given: list[str] = []

    async def process(self, frame: SentenceFrame | LLMEnded) -> AsyncIterator[OutputAudioFrame | UtteranceEnded]:
        if isinstance(frame, LLMEnded):
            self._may_break()
            yield UtteranceEnded(utterance=frame.utterance)
            return
        self.given.append(frame.text)
        for word in frame.text.split():
            await asyncio.sleep(0.01)
            cut = self.half and self.breaks == len(self.said) + 1 and self.times > 0
            if not cut:
                self._may_break()
            self.said.append(word)
            sound = WORD[: len(WORD) // 2] if cut else WORD
            yield OutputAudioFrame(pcm=sound, sample_rate=8000, words=(Word(word, 0.0, 0.1),), utterance=frame.utterance)
            if cut:
                self._may_break(at=len(self.said))

    def _may_break(self, at: int | None = None) -> None:
        if self.times > 0 and self.breaks is not None and (len(self.said) if at is None else at) >= self.breaks:
            self.times -= 1
            raise RuntimeError(f"{self.name} broke")


class Errors(Processor):
    """Above: what went wrong."""

    def __init__(self) -> None:
        self.errors: list[str] = []

    def process(self, frame: ErrorFrame) -> None:
        self.errors.append(frame.error)


async def speak(node: Processor, texts: list[list[str]], between_s: float = 0.0) -> tuple[list[Frame], list[str]]:
    """What comes of these utterances, sentence by sentence."""
    errors, out = Errors(), Collector()
    session = Session(Pipeline(errors) >> node >> out, inputs=[SentenceFrame, LLMEnded])
    async with session, no_leaks():
        for number, sentences in enumerate(texts, 1):
            for sentence in sentences:
                await session.send(SentenceFrame(sentence, utterance=number))
            await session.send(LLMEnded(utterance=number))
            await asyncio.sleep(between_s)
    return [frame for frame in out.frames if isinstance(frame, OutputAudioFrame | UtteranceEnded)], errors.errors


def words_of(frames: list[Frame], number: int | None = None) -> list[str]:
    sound = [frame for frame in frames if isinstance(frame, OutputAudioFrame) and number in (None, frame.utterance)]
    return [word.text for frame in sound for word in frame.words]


REPLY = ["At nine,", "every day but Sunday.", "See you then."]
ALL = " ".join(REPLY).split()


@given(st.integers(0, len(ALL)), st.booleans())
def test_a_voice_that_breaks_is_taken_over_from_at_the_word(breaks: int, half: bool) -> None:
    """Wherever it breaks: each word once, in order, and one end; a word that was cut in half is said again."""
    first, second = Voice("first", breaks, half=half), Voice("second")
    frames, errors = run_virtual(speak(Fallback(first, second), [REPLY]))
    cut = half and breaks > 0
    expected = ALL[:breaks] + ALL[breaks - 1 :] if cut else ALL
    assert words_of(frames) == expected
    assert [type(frame) for frame in frames].count(UtteranceEnded) == 1
    assert isinstance(frames[-1], UtteranceEnded)
    assert errors == []
    assert second.said == (ALL[breaks - 1 :] if cut else ALL[breaks:])


def test_the_first_is_tried_again_when_a_reply_begins_and_never_within_one() -> None:
    """After its time; if it fails again it is left alone for twice as long."""
    first, second = Voice("first", 1, times=2), Voice("second")
    node = Fallback(first, second, FallbackOptions(again_s=10.0))
    frames, errors = run_virtual(speak(node, [["one two", "three"], ["four"], ["five"], ["six seven"], ["eight"], ["nine"]], between_s=6.0))
    # at 0 s it fails at its second word; 6 s is too early; 12 s: fails at once, closed until 32 s; 18 s, 24 s, 30 s too early
    assert words_of(frames) == ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
    assert first.said == ["one"]
    assert first.given == ["one two", "five"]
    assert errors == []
    assert [frame.utterance for frame in frames if isinstance(frame, UtteranceEnded)] == [1, 2, 3, 4, 5, 6]


def test_the_first_has_the_floor_again_once_it_works() -> None:
    """And its failures are forgiven."""
    first, second = Voice("first", 0), Voice("second")
    node = Fallback(first, second, FallbackOptions(again_s=5.0))
    frames, _ = run_virtual(speak(node, [["one"], ["two"], ["three"]], between_s=4.0))
    assert words_of(frames) == ["one", "two", "three"]
    assert (second.said, first.said) == (["one", "two"], ["three"])
    assert node.at_work == "first"


def test_both_failing_is_one_clear_error_and_the_utterance_is_closed() -> None:
    """What was said stands, the next reply is spoken."""
    first, second = Voice("first", 1), Voice("second", 1)
    frames, errors = run_virtual(speak(Fallback(first, second), [["one two three four"], ["five"]]))
    assert words_of(frames, 1) == ["one", "two"]
    assert words_of(frames, 2) == ["five"]
    assert [frame.utterance for frame in frames if isinstance(frame, UtteranceEnded)] == [1, 2]
    assert len(errors) == 1
    assert "both failed: second broke" in errors[0]


class Mute(Voice):
    """Never says anything."""

    async def process(self, frame: SentenceFrame | LLMEnded) -> AsyncIterator[OutputAudioFrame | UtteranceEnded]:
        if isinstance(frame, SentenceFrame):
            await asyncio.Event().wait()
        yield UtteranceEnded(utterance=frame.utterance)


def test_one_that_says_nothing_within_its_time_has_failed() -> None:
    """The caller does not wait for ever."""
    node = Fallback(Mute("first"), Voice("second"), FallbackOptions(first_s=2.0))
    frames, errors = run_virtual(speak(node, [REPLY]))
    assert (words_of(frames), errors) == (ALL, [])


class NoStart(Voice):
    async def start(self) -> None:
        raise RuntimeError("no licence")


def test_one_that_cannot_start_is_no_obstacle_and_two_are() -> None:
    """With one left the call goes on; with none it does not begin, and the error names both reasons."""
    frames, errors = run_virtual(speak(Fallback(NoStart("first"), Voice("second")), [REPLY]))
    assert (words_of(frames), errors) == (ALL, [])
    frames, errors = run_virtual(speak(Fallback(Voice("first"), NoStart("second")), [REPLY]))
    assert words_of(frames) == ALL
    with pytest.raises(ExceptionGroup) as group:
        run_virtual(speak(Fallback(NoStart("first"), NoStart("second")), [REPLY]))
    assert "neither can start: no licence; no licence" in str(group.value.exceptions[0])


class ByItself(Processor):
    """A voice whose sound comes from ``run``, as that of a socket does."""

    makes = AudioFormat(8000)

    def __init__(self, name: str, breaks: int | None = None) -> None:
        self.name = name
        self.breaks = breaks
        self.said: list[str] = []
        self.failure: Exception | None = None
        self._queue: asyncio.Queue[OutputAudioFrame | UtteranceEnded] = asyncio.Queue()

    async def process(self, frame: SentenceFrame | LLMEnded) -> None:
        if self.failure is not None:
            failure, self.failure = self.failure, None
            raise failure
        if isinstance(frame, LLMEnded):
            self._queue.put_nowait(UtteranceEnded(utterance=frame.utterance, epoch=frame.epoch))
            await self._queue.join()
            return
        for word in frame.text.split():
            if self.breaks is not None and len(self.said) >= self.breaks:
                self.breaks, self.failure = None, RuntimeError("the socket broke")
                return
            self.said.append(word)
            words = (Word(word, 0.0, 0.1),)
            self._queue.put_nowait(OutputAudioFrame(pcm=WORD, sample_rate=8000, words=words, utterance=frame.utterance, epoch=frame.epoch))

    async def run(self) -> AsyncIterator[OutputAudioFrame | UtteranceEnded]:
        while True:
            frame = await self._queue.get()
            yield frame
            self._queue.task_done()


@given(st.integers(0, len(ALL)))
def test_a_voice_that_speaks_by_itself_is_taken_over_from_too(breaks: int) -> None:
    """Its failure shows with a later piece of text; what it gave out until then counts."""
    first, second = ByItself("first", breaks), Voice("second")
    frames, errors = run_virtual(speak(Fallback(first, second), [REPLY, ["Goodbye."]], between_s=1.0))
    assert words_of(frames, 1) == ALL
    assert words_of(frames, 2) == ["Goodbye."]
    assert errors == []
    assert [frame.utterance for frame in frames if isinstance(frame, UtteranceEnded)] == [1, 2]


# ------------------------------------------------------------------------------------------------- a model


class Model(Processor):
    """Breaks before its ``breaks``-th frame: 0 the start, then texts, a call, and the end."""

    def __init__(self, name: str, breaks: int | None = None, *, ends_first: bool = False) -> None:
        self.name = name
        self.breaks, self.ends_first = breaks, ends_first
        self.asked = 0

    async def process(self, frame: ContextFrame) -> AsyncIterator[LLMStarted | LLMTextFrame | ToolCallFrame | LLMEnded]:
        self.asked += 1
        n = frame.utterance
        made = [LLMStarted(utterance=n), LLMTextFrame("At ", utterance=n), LLMTextFrame("nine.", utterance=n)]
        for number, one in enumerate([*made, ToolCallFrame(call=ToolCall("a", "book"), utterance=n), LLMEnded(utterance=n)]):
            await asyncio.sleep(0.01)
            if number == self.breaks:
                self.breaks = None
                if self.ends_first:
                    yield LLMEnded(utterance=n)
                raise RuntimeError(f"{self.name} broke")
            yield one


async def ask(node: Processor, times: int = 1) -> tuple[list[str], list[str]]:
    errors, out = Errors(), Collector()
    session = Session(Pipeline(errors) >> node >> out, inputs=[ContextFrame])
    async with session, no_leaks():
        for number in range(1, times + 1):
            await session.send(ContextFrame(utterance=number))
            await asyncio.sleep(1.0)
    wanted = (LLMStarted, LLMTextFrame, ToolCallFrame, LLMEnded)
    return [getattr(f, "text", type(f).__name__) for f in out.frames if isinstance(f, wanted)], errors.errors


WHOLE = ["LLMStarted", "At ", "nine.", "ToolCallFrame", "LLMEnded"]


@pytest.mark.parametrize("ends_first", [True, False])
@pytest.mark.parametrize("breaks", [0, 1])
def test_a_model_that_has_said_nothing_is_replaced(breaks: int, ends_first: bool) -> None:
    """One beginning, one reply, one end; nobody sees that there were two."""
    second = Model("second")
    assert run_virtual(ask(Fallback(Model("first", breaks, ends_first=ends_first), second), 2)) == (WHOLE * 2, [])
    assert second.asked == 2


@pytest.mark.parametrize("ends_first", [True, False])
@pytest.mark.parametrize("breaks", [2, 3, 4])
def test_a_model_that_has_said_something_ends_there_and_the_other_has_the_next(breaks: int, ends_first: bool) -> None:
    """Two halves of two replies would be no reply."""
    first, second = Model("first", breaks, ends_first=ends_first), Model("second")
    told, errors = run_virtual(ask(Fallback(first, second), 2))
    assert told == [*WHOLE[:breaks], "LLMEnded", *WHOLE]
    assert errors == ["RuntimeError: first broke"]
    assert (first.asked, second.asked) == (1, 1)


# -------------------------------------------------------------------------------------------- a recogniser


class BreakingSTT(ScriptedSTT):
    """Breaks at the ``breaks``-th frame of sound."""

    def __init__(self, texts: list[str], breaks: int, name: str) -> None:
        super().__init__(texts, Latency(0.1))
        self.name = name
        self.left = breaks

    def process(
        self, frame: InputAudioFrame | SpeechStarted | SpeechStopped | EndFrame
    ) -> Iterator[TranscriptFrame | SpeechStarted | SpeechStopped]:
        if isinstance(frame, InputAudioFrame):
            self.left -= 1
            if self.left == 0:
                raise RuntimeError("the recogniser broke")
        yield from super().process(frame)


def heard(breaks: int) -> tuple[list[str], str]:
    async def main() -> tuple[list[str], str]:
        caller = ScriptedCaller([Said(0.5, 1.0, "when do you open on sunday"), Said(3.0, 0.6, "and monday")], until=5.0)
        node = Fallback(BreakingSTT(caller.texts, breaks, "first"), ScriptedSTT(caller.texts, Latency(0.1)), FallbackOptions(again_s=0.5))
        out = Collector()
        async with no_leaks():
            await Session(caller >> ScriptedVAD() >> node >> out).run()
        return [frame.text for frame in out.frames if isinstance(frame, TranscriptFrame) and frame.final], node.at_work

    return run_virtual(main())


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 240))
@example(40)
def test_a_recogniser_that_breaks_loses_no_word(breaks: int) -> None:
    """The other one is given what was said since the last final transcript; each is heard once."""
    finals, _ = heard(breaks)
    assert finals == ["when do you open on sunday", "and monday"]


# ---------------------------------------------------------------------------------------------- both together


def call(breaks: int, options: SessionOptions) -> Callable[[Probe], Coroutine[Any, Any, None]]:
    """A question and "ping", with a model and a voice that each break once."""

    async def scenario(probe: Probe) -> None:
        context, sink = Context(), RecordingSink()
        llm = Fallback(
            Model("first", 1), ScriptedLLM(lambda messages: "pong it is." if messages[-1].text.endswith("ping") else " ".join(REPLY))
        )
        voice = Fallback(Voice("first", breaks), Voice("second"))
        session = Session(context >> llm >> Sentences() >> voice >> sink, inputs=[TurnEnded], options=options)
        probe.watch(session, sink)
        async with session:
            await session.send(TurnEnded(text="When?"))
            await asyncio.sleep(3.0)
            await session.send(TurnEnded(text="ping"))
            await asyncio.sleep(2.0)
            probe.finish()
        at = probe.interruption.at if probe.interruption else 0.0
        if at < 3.0 and sink.words()[-3:] != ["pong", "it", "is."]:
            probe.problems.append(f"the last question was not answered: {sink.words()}")
        said = [word for m in context.conversation.messages if m.role == "assistant" for word in m.text.split()]
        if said != sink.words():
            probe.problems.append(f"the context holds {said}, and {sink.words()} was heard")

    return scenario


@pytest.mark.parametrize("breaks", [2, 5])
def test_interrupted_at_every_await_while_one_takes_over(breaks: int) -> None:
    """Nothing stale is heard, the next question is answered, the context holds what was heard."""
    found = interrupt_everywhere(call(breaks, SessionOptions(cancel_timeout_s=0.3)))
    found.check()
    assert found.tried > 60


# ------------------------------------------------------------------------------------------------ two that fit


def test_the_node_conforms() -> None:
    """The conformance kit, with a voice that breaks now and then."""
    feed = [SentenceFrame("one two three", utterance=1), SentenceFrame("four", utterance=1), LLMEnded(utterance=1)]
    check_processor(lambda: Fallback(Voice("first", 2), Voice("second")), feed)


def test_two_that_do_not_fit_are_refused() -> None:
    """Before anything runs, and the error says why."""
    with pytest.raises(PipelineError, match="nothing in common"):
        Fallback(Voice("voice"), Model("model"))
    one, two = Voice("one"), Voice("two")
    one.takes, two.takes = (AudioFormat(16000),), (AudioFormat(8000),)
    with pytest.raises(PipelineError, match=r"16000 Hz.*8000 Hz.*no sound that both can take"):
        Fallback(one, two)
    for wrong in ({"again_s": 0}, {"longest_s": -1}, {"first_s": 0}, {"keep_s": 0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            FallbackOptions(**wrong)  # type: ignore[arg-type]
    assert issubclass(FallbackError, Exception)


def test_in_a_conversation_a_broken_voice_goes_unnoticed() -> None:
    """What the context holds is what was heard, and that is all of it."""

    async def main() -> None:
        caller = ScriptedCaller([Said(0.5, 0.8, "when do you open")], until=5.0)
        context, sink = Context(), RecordingSink()
        ears = caller >> ScriptedVAD() >> ScriptedSTT(caller.texts, Latency(0.1)) >> Turns() >> context
        voice = Fallback(Voice("first", 4), ScriptedTTS())
        await Session(ears >> ScriptedLLM(lambda messages: " ".join(REPLY)) >> Sentences() >> voice >> sink).run()
        assert sink.words() == ALL
        assert context.conversation.messages[-1].text == " ".join(ALL)

    run_virtual(main())
