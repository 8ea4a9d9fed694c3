"""The node that commits: by itself, and in graphs on the virtual clock."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field

import pytest

from voiceflow import (
    ContextFrame,
    ErrorFrame,
    Frame,
    Heard,
    Image,
    Interruption,
    LLMEnded,
    LLMStarted,
    LLMTextFrame,
    LLMUsage,
    Message,
    PlaybackStopped,
    Processor,
    SayFrame,
    Session,
    ToolCall,
    ToolCallFrame,
    ToolResultFrame,
    ToolsDone,
    ToolSpec,
    ToolStarted,
    TurnEnded,
    WordsHeard,
)
from voiceflow.processors.context import Context, ContextOptions
from voiceflow.processors.conversation import STILL_RUNNING, Conversation
from voiceflow.processors.text import Sentences
from voiceflow.processors.tokens import Spent
from voiceflow.testing import Latency, Probe, RecordingSink, ScriptedLLM, ScriptedTTS, check_processor, interrupt_everywhere, run_virtual

WhyInvalid = Callable[[Sequence[Message]], str]

LOOK = ToolCall("c1", "look_up", "{}")
ASK = ToolCall("c2", "ask", "{}")


def process(
    context: Context, frame: TurnEnded | PlaybackStopped | WordsHeard | ToolStarted | ToolResultFrame | ToolsDone | LLMUsage
) -> list[Frame]:
    return list(context.process(frame))


def heard(utterance: int, text: str, *, complete: bool = True) -> PlaybackStopped:
    return PlaybackStopped(heard=Heard(utterance, text, complete))


def cut(*parts: Heard) -> Interruption:
    return Interruption("test", 1, 0.0, heard=list(parts))


def test_a_turn_asks_for_a_reply() -> None:
    """The request holds the instructions and all that was said, and replies are counted from 1."""
    context = Context("Be brief.")
    system = Message("system", "Be brief.")
    assert process(context, TurnEnded(text="Hello")) == [ContextFrame(messages=(system, Message("user", "Hello")), utterance=1)]
    report = heard(1, "Hi there.")
    assert process(context, report) == [report]
    asked = process(context, TurnEnded(text="Bye"))
    assert asked == [
        ContextFrame(messages=(system, Message("user", "Hello"), Message("assistant", "Hi there."), Message("user", "Bye")), utterance=2)
    ]


def test_a_blank_turn_asks_for_nothing() -> None:
    """A turn without words makes no request."""
    assert process(Context(), TurnEnded(text=" ")) == []


def test_a_saved_conversation_goes_on() -> None:
    """A context can begin where another ended."""
    saved = Conversation().with_user("Hello").with_assistant_heard("Hi").to_json()
    asked = process(Context(conversation=Conversation.from_json(saved)), TurnEnded(text="Where were we"))
    assert isinstance(asked[0], ContextFrame)
    assert [m.text for m in asked[0].messages] == ["Hello", "Hi", "Where were we"]


def test_an_interrupted_reply_is_kept_as_far_as_it_was_heard() -> None:
    """What the interrupt says was heard is committed, marked as cut; what comes later about it is not."""
    context = Context()
    process(context, TurnEnded(text="Tell me"))
    context.on_interrupt(cut(Heard(1, "Once upon", complete=False)))
    process(context, heard(1, "Once upon a", complete=False))
    assert context.conversation.messages[1:] == (Message("assistant", "Once upon", True),)


def test_an_interrupt_before_the_first_word_commits_nothing() -> None:
    """A reply of which nothing was heard never was; the next turn joins the question it left open."""
    context = Context()
    process(context, TurnEnded(text="what time do you open"))
    context.on_interrupt(cut(Heard(1, "", complete=False)))
    asked = process(context, TurnEnded(text="on sunday"))
    assert asked == [ContextFrame(messages=(Message("user", "what time do you open on sunday"),), utterance=2)]


def test_only_one_reply_is_under_way() -> None:
    """A turn that ends while a reply is being made interrupts it before asking for another."""
    context = Context()
    process(context, TurnEnded(text="one"))
    kinds = [type(frame).__name__ for frame in process(context, TurnEnded(text="two"))]
    assert kinds == ["InterruptFrame", "ContextFrame"]
    process(context, heard(2, "Here you are."))
    assert [type(frame).__name__ for frame in process(context, TurnEnded(text="three"))] == ["ContextFrame"]


def test_two_sinks_that_report_the_same_reply_commit_it_once() -> None:
    """A report that comes again is not said again; a reply that was cut in two by a say is kept whole."""
    context = Context()
    process(context, TurnEnded(text="one"))
    process(context, heard(1, "First half."))
    process(context, heard(1, "First half."))
    process(context, heard(0, "One moment."))
    process(context, heard(1, "Second half."))
    assert context.conversation.messages[1].text == "First half. One moment. Second half."


def test_what_is_said_without_being_asked_for_is_kept_each_time() -> None:
    """Sayings have no number, and none is taken for another."""
    context = Context()
    process(context, heard(0, "Hello."))
    process(context, TurnEnded(text="hi"))
    process(context, heard(0, "Hello."))
    assert [m.text for m in context.conversation.messages] == ["Hello.", "hi", "Hello."]


def test_a_turn_taken_up_again_takes_the_place_of_its_first_text() -> None:
    """The frame says so; words are not compared."""
    context = Context()
    process(context, TurnEnded(text="a table for two"))
    context.on_interrupt(cut())
    process(context, TurnEnded(text="a cable for you", continues=True))
    assert context.conversation.messages == (Message("user", "a cable for you"),)


def test_reports_go_on_upstream() -> None:
    """Whoever stands before sees every report that the context takes, after it was taken."""
    context = Context()
    process(context, TurnEnded(text="hello"))
    reports = [
        WordsHeard(text="Let me", utterance=1, at=1.0),
        ToolStarted(call=LOOK, utterance=1),
        heard(1, "Let me see."),
        LLMUsage(utterance=1, prompt_tokens=10, completion_tokens=2),
        ToolResultFrame(call=LOOK, text="x", utterance=1),
    ]
    for report in reports:
        assert process(context, report) == [report]


def test_a_reply_with_calls_is_followed_by_one_more() -> None:
    """When all is done the next request holds calls and results, and the words heard of what announced them."""
    context = Context(tools=[ToolSpec("look_up")])
    process(context, TurnEnded(text="where is it"))
    process(context, ToolStarted(call=LOOK, utterance=1))
    process(context, WordsHeard(text="One moment,", utterance=1, at=1.0))
    process(context, ToolResultFrame(call=LOOK, text="here", utterance=1))
    done, asked = process(context, ToolsDone(utterance=1))
    assert isinstance(done, ToolsDone)
    assert asked == ContextFrame(
        messages=(
            Message("user", "where is it"),
            Message("assistant", "One moment,", True, calls=(LOOK,)),
            Message("tool", "here", call_id="c1"),
        ),
        utterance=2,
        tools=(ToolSpec("look_up"),),
    )
    process(context, heard(1, "One moment, please."))
    assert context.conversation.messages[1] == Message("assistant", "One moment, please.", calls=(LOOK,))
    assert len(process(context, ToolsDone(utterance=1))) == 1


def test_a_turn_while_tools_are_at_work_takes_the_place_of_their_reply() -> None:
    """It interrupts, and its request says that the call is still running; the result asks for nothing more."""
    context = Context()
    process(context, TurnEnded(text="book it"))
    process(context, heard(1, "One moment."))
    process(context, ToolStarted(call=LOOK, utterance=1))
    frames = process(context, TurnEnded(text="thanks"))
    assert [type(frame).__name__ for frame in frames] == ["InterruptFrame", "ContextFrame"]
    assert isinstance(frames[1], ContextFrame)
    assert frames[1].messages[2] == Message("tool", STILL_RUNNING, call_id="c1", pending=True)
    assert context.conversation.open_calls == (LOOK,)
    context.on_interrupt(cut())
    assert len(process(context, ToolResultFrame(call=LOOK, text="booked", utterance=1))) == 1
    assert len(process(context, ToolsDone(utterance=1))) == 1
    assert context.conversation.open_calls == ()
    assert context.conversation.messages[2].text == "booked"


def test_what_the_model_was_given_never_changes() -> None:
    """A request is a snapshot."""
    context = Context()
    (asked,) = process(context, TurnEnded(text="hello"))
    assert isinstance(asked, ContextFrame)
    process(context, heard(1, "Hi."))
    context.add_user("more")
    assert asked.messages == (Message("user", "hello"),)


def test_a_picture_the_caller_sent_is_in_the_next_request() -> None:
    """It asks for nothing by itself, and stays when the turn is taken up again."""
    context = Context()
    photo = Image("https://example.org/a.png", "a receipt")
    context.add_user(media=[photo])
    process(context, TurnEnded(text="what"))
    asked = process(context, TurnEnded(text="what is this", continues=True))
    assert asked[-1] == ContextFrame(messages=(Message("user", "what is this", media=(photo,)),), utterance=2)


# ------------------------------------------------------------------------------------------------------ length


def by_words(message: Message) -> int:
    return len(message.text.split())


def test_tokens_are_counted_as_the_model_counts() -> None:
    """The estimate follows what the model says, and what was spent adds up."""
    context = Context("one two", options=ContextOptions(count_tokens=by_words))
    process(context, TurnEnded(text="three four"))
    assert context.tokens == 4
    process(context, LLMUsage(utterance=1, prompt_tokens=8, completion_tokens=3))
    assert context.tokens == 8
    process(context, heard(1, "five"))
    assert context.tokens == 10
    assert context.spent == Spent(8, 3, 1)


def test_a_conversation_that_is_too_long_is_shortened_for_the_model_only() -> None:
    """The newest whole exchanges go out behind the instructions; the conversation stays whole."""
    context = Context("be brief", options=ContextOptions(max_tokens=8, count_tokens=by_words))
    for number in range(1, 5):
        frames = process(context, TurnEnded(text=f"question number {number}"))
        process(context, heard(number, "yes"))
    assert isinstance(frames[0], ContextFrame)
    assert [m.text for m in frames[0].messages] == ["be brief", "question number 4"]
    assert len(context.conversation.messages) == 8
    context = Context("be brief", options=ContextOptions(max_tokens=9, count_tokens=by_words))
    for number in range(1, 5):
        frames = process(context, TurnEnded(text=f"question number {number}"))
        process(context, heard(number, "yes"))
    assert isinstance(frames[0], ContextFrame)
    assert [m.text for m in frames[0].messages] == ["be brief", "question number 3", "yes", "question number 4"]


def test_another_way_of_shortening_can_be_given() -> None:
    """It gets the conversation, the limit and a count of the whole request; it is asked only when needed."""
    seen: list[tuple[int, int]] = []

    def shorten(conversation: Conversation, max_tokens: int, count: Callable[[Conversation], int]) -> Conversation:
        seen.append((max_tokens, count(conversation)))
        return Conversation().with_user("in short")

    context = Context("be brief", options=ContextOptions(max_tokens=4, count_tokens=by_words, shorten=shorten))
    assert process(context, TurnEnded(text="a b")) == [
        ContextFrame(messages=(Message("system", "be brief"), Message("user", "a b")), utterance=1)
    ]
    context.on_interrupt(cut())
    asked = process(context, TurnEnded(text="c"))
    assert asked == [ContextFrame(messages=(Message("system", "be brief"), Message("user", "in short")), utterance=2)]
    assert seen == [(4, 5)]
    assert context.conversation.messages == (Message("user", "a b c"),)


class Errors(Processor):
    def __init__(self) -> None:
        self.texts: list[str] = []

    def process(self, frame: ErrorFrame) -> None:
        self.texts.append(f"{frame.node}: {frame.error}")


@pytest.mark.parametrize("fault", ["raises", "gives something else", "count raises"])
async def test_a_failing_shortening_is_reported_and_the_whole_conversation_used(fault: str, caplog: pytest.LogCaptureFixture) -> None:
    """The caller gets an answer each time, and the session does not end."""

    def shorten(conversation: Conversation, max_tokens: int, count: Callable[[Conversation], int]) -> Conversation:
        if fault == "raises":
            raise RuntimeError("no summary today")
        return list(conversation.messages)  # type: ignore[return-value]  # on purpose

    def count(message: Message) -> int:
        if fault == "count raises":
            raise RuntimeError("no counting today")
        return 10

    context = Context("be brief", options=ContextOptions(max_tokens=5, count_tokens=count, shorten=shorten))
    llm, errors, sink = ScriptedLLM(lambda messages: "Fine."), Errors(), RecordingSink()
    async with Session(errors >> context >> llm >> Sentences() >> ScriptedTTS() >> sink, inputs=[TurnEnded]) as session:
        for number in range(1, 13):
            await session.send(TurnEnded(text=f"question {number}"))
            await asyncio.sleep(1.0)
    assert [len(request) for request in llm.requests] == list(range(2, 25, 2))
    assert len(errors.texts) == 12
    what = {
        "raises": "RuntimeError: no summary",
        "gives something else": "TypeError: shorten() gave list",
        "count raises": "RuntimeError: no counting",
    }
    assert errors.texts[0].startswith(f"Context: shortening the conversation failed, all of it is used: {what[fault]}")
    assert "all of it is used" in caplog.text


def test_options_that_cannot_work_are_refused() -> None:
    """The error names the option."""
    with pytest.raises(ValueError, match="max_tokens is 0"):
        ContextOptions(max_tokens=0)


# --------------------------------------------------------------------------------------------- heard, in a graph

STORY = "One two three four five six seven. " * 5


def conversation_after(interrupt_at: float | None, *, say: bool = False, end_at: float = 9.0) -> tuple[Conversation, list[str]]:
    """Run one reply and interrupt it so long after its first sound; the conversation, and the words the sink played."""
    context, sink = Context(), RecordingSink()
    llm = ScriptedLLM(lambda messages: STORY, Latency(0.05, 0.001))
    pipeline = context >> llm >> Sentences() >> ScriptedTTS() >> sink

    async def main() -> list[str]:
        session = Session(pipeline, inputs=[TurnEnded, SayFrame])
        async with session:
            await session.send(SayFrame(STORY) if say else TurnEnded(text="go"))
            while not sink.heard():
                await asyncio.sleep(0.01)
            first = sink.heard()[0].at
            if interrupt_at is None:
                await asyncio.sleep(end_at)
            else:
                await asyncio.sleep(first + interrupt_at - session.time())
                session.interrupt("test")
            return sink.words()

    words = run_virtual(main())
    return context.conversation, words


@pytest.mark.parametrize("say", [False, True])
def test_b14_b15_the_context_holds_the_words_that_were_heard(say: bool) -> None:
    """Interrupted after 1.25 s of 100 ms words the message has the words heard; unheard ones never enter it."""
    conversation, words = conversation_after(1.25, say=say)
    message = conversation.messages[-1]
    assert message.role == "assistant"
    assert message.interrupted
    assert message.text.split() == words
    assert 11 <= len(words) <= 13


def test_b14_an_interrupt_right_at_the_first_sound_leaves_no_message() -> None:
    """30 ms of the first word are not a word."""
    assert conversation_after(0.03)[0].messages == (Message("user", "go"),)


def test_a_reply_that_is_heard_out_is_kept_whole() -> None:
    """Without an interrupt the message is the reply."""
    conversation, _ = conversation_after(None)
    assert conversation.messages[-1] == Message("assistant", STORY.strip())


def test_context_passes_the_conformance_kit() -> None:
    """Strangers pass, interrupts leave nothing behind, slow and failing neighbours change nothing."""
    check_processor(Context, [TurnEnded(text="hello")])


@pytest.mark.parametrize("say", [False, True])
@pytest.mark.parametrize("end", ["cancel", "interrupt"])
def test_b14_a_call_that_ends_in_mid_speech_keeps_what_was_heard(say: bool, end: str) -> None:
    """Also without an interrupt the context holds the words heard, to a word, marked as cut."""
    context, sink = Context(), RecordingSink()
    pipeline = context >> ScriptedLLM(lambda messages: STORY, Latency(0.05, 0.001)) >> Sentences() >> ScriptedTTS() >> sink
    words: list[str] = []
    so_far = Conversation()

    async def main() -> None:
        nonlocal so_far
        session = Session(pipeline, inputs=[TurnEnded, SayFrame])
        async with session:
            await session.send(SayFrame(STORY) if say else TurnEnded(text="go"))
            while len(words) < 12:
                await asyncio.sleep(0.01)
                words[:] = sink.words()
            so_far = context.heard_so_far
            getattr(session, end)()
            if end == "interrupt":
                words[:] = sink.words()

    run_virtual(main())
    message = context.conversation.messages[-1]
    assert message.role == "assistant"
    assert message.interrupted
    assert abs(len(message.text.split()) - len(words)) <= 1
    assert STORY.startswith(message.text)
    assert abs(len(so_far.messages[-1].text.split()) - 12) <= 1


class Filler(Processor):
    def process(self, frame: LLMStarted) -> SayFrame:
        return SayFrame("Let me see.")


async def test_greetings_and_fillers_are_kept_once_and_in_order() -> None:
    """A greeting opens the call, a filler is heard while the reply is thought of, and the reply follows it."""
    context, sink = Context(), RecordingSink()
    llm = ScriptedLLM(lambda messages: "We open at nine.", Latency(1.5))
    async with Session(context >> llm >> Filler() >> Sentences() >> ScriptedTTS() >> sink, inputs=[TurnEnded, SayFrame]) as session:
        await session.send(SayFrame("Hello there."))
        await asyncio.sleep(1.0)
        await session.send(TurnEnded(text="when do you open"))
        await asyncio.sleep(1.0)
        assert context.conversation.messages[2:] == (Message("assistant", "Let me see."),)
        await asyncio.sleep(2.0)
        await session.send(TurnEnded(text="thanks"))
        await asyncio.sleep(0.1)
        assert [(m.role, m.text) for m in context.conversation.messages] == [
            ("assistant", "Hello there."),
            ("user", "when do you open"),
            ("assistant", "Let me see. We open at nine."),
            ("user", "thanks"),
        ]


# ------------------------------------------------------------------------------------------------- tools, in a graph


@dataclass
class Job:
    """What a tool does: how long its start takes to be told, how long it takes, and what it gives."""

    gives: str
    takes_s: float = 0.0
    told_after_s: float = 0.0
    keeps_running: bool = False


class ToolLLM(Processor):
    """Plays a list of replies: pieces of text, and calls. A history that is not valid is refused, as a provider would."""

    def __init__(self, replies: Sequence[Sequence[str | ToolCall]], why_invalid: WhyInvalid, *, first_s: float = 0.1) -> None:
        self.replies = list(replies)
        self.requests: list[tuple[Message, ...]] = []
        self.refused: list[str] = []
        self.first_s = first_s
        self.why_invalid = why_invalid

    async def process(self, frame: ContextFrame) -> AsyncIterator[LLMStarted | LLMTextFrame | ToolCallFrame | LLMUsage | LLMEnded]:
        self.requests.append(frame.messages)
        if why := self.why_invalid([m for m in frame.messages if m.role != "system"]):
            self.refused.append(why)
        yield LLMStarted(utterance=frame.utterance)
        await asyncio.sleep(self.first_s)
        for piece in self.replies[min(len(self.requests), len(self.replies)) - 1]:
            await asyncio.sleep(0.01)
            if isinstance(piece, str):
                yield LLMTextFrame(piece, utterance=frame.utterance)
            else:
                yield ToolCallFrame(call=piece, utterance=frame.utterance)
        yield LLMUsage(utterance=frame.utterance, prompt_tokens=20 * len(frame.messages), completion_tokens=5)
        yield LLMEnded(utterance=frame.utterance)


@dataclass(eq=False)
class _Running:
    call: ToolCall
    utterance: int
    is_done: bool = False


class Desk(Processor):
    """The least that a node for tools does: each call that began gets one result, and an interrupted one is cancelled."""

    def __init__(self, jobs: dict[str, Job]) -> None:
        self.jobs = jobs
        self.runs: list[str] = []
        self._running: dict[_Running, asyncio.Task[None]] = {}
        self._ended: set[int] = set()
        self._told: asyncio.Queue[ToolStarted | ToolResultFrame | ToolsDone] = asyncio.Queue(100)

    async def process(self, frame: ToolCallFrame | LLMEnded) -> AsyncIterator[LLMEnded]:
        if isinstance(frame, LLMEnded):
            self._ended.add(frame.utterance)
            yield frame
            self._check(frame.utterance)
            return
        entry = _Running(frame.call, frame.utterance)
        self._running[entry] = self.session.spawn(self._carry_out(entry), f"{self.name}/{frame.call.id}")

    def on_interrupt(self, interrupt: Interruption) -> None:
        for entry, task in self._running.items():
            if not self.jobs[entry.call.name].keeps_running:
                task.cancel()

    async def run(self) -> AsyncIterator[ToolStarted | ToolResultFrame | ToolsDone]:
        while True:
            yield await self._told.get()

    async def _carry_out(self, entry: _Running) -> None:
        job = self.jobs[entry.call.name]
        text = "cancelled"
        self.runs.append(entry.call.id)
        try:
            await asyncio.sleep(job.told_after_s)
            self._told.put_nowait(ToolStarted(call=entry.call, utterance=entry.utterance))
            await asyncio.sleep(job.takes_s)
            text = job.gives
        except asyncio.CancelledError:
            pass
        finally:
            del self._running[entry]
        self._told.put_nowait(ToolResultFrame(call=entry.call, text=text, utterance=entry.utterance))
        self._check(entry.utterance)

    def _check(self, utterance: int) -> None:
        waiting = any(entry.utterance == utterance for entry in self._running)
        if utterance in self._ended and not waiting and any(self.runs):
            self._told.put_nowait(ToolsDone(utterance=utterance))


@dataclass
class Call:
    """A call with an agent that has tools."""

    llm: ToolLLM
    jobs: dict[str, Job]
    conversation: Conversation = field(default_factory=Conversation)

    def __post_init__(self) -> None:
        self.context = Context("Be brief.", self.conversation)
        self.desk, self.sink = Desk(self.jobs), RecordingSink()
        pipeline = self.context >> self.llm >> self.desk >> Sentences() >> ScriptedTTS() >> self.sink
        self.session = Session(pipeline, inputs=[TurnEnded, SayFrame])

    def lines(self) -> list[str]:
        out = []
        for m in self.context.conversation.messages:
            calls = "".join(f" ->{call.id}" for call in m.calls)
            out.append(f"{m.role[0]}: {m.text}{' ...' if m.interrupted else ''}{calls}")
        return out


def both(fast: Job, slow: Job) -> dict[str, Job]:
    return {"look_up": fast, "ask": slow}


@pytest.mark.parametrize("spoken", [[], ["One moment, I will look ", "that up for you. "]])
@pytest.mark.parametrize("fast_s", [0.0, 0.005, 1.5])
async def test_b20_two_calls_of_one_reply_have_one_answer(spoken: list[str], fast_s: float, why_invalid: WhyInvalid) -> None:
    """One more request, after both results, however late the slow one is told; and what announced the calls stands before them."""
    call = Call(
        ToolLLM([[*spoken, LOOK, ASK], ["It comes ", "on Friday."]], why_invalid),
        both(Job("seven", fast_s), Job("Friday", 0.8, told_after_s=0.05)),
    )
    async with call.session as session:
        await session.send(TurnEnded(text="where is it and when does it come"))
        await asyncio.sleep(6.0)
    assert len(call.llm.requests) == 2
    assert call.llm.refused == []
    assert [(m.role, m.text) for m in call.llm.requests[1][3:]] == [("tool", "seven"), ("tool", "Friday")]
    announced = "".join(spoken).strip()
    assert call.lines() == [
        "u: where is it and when does it come",
        f"a: {announced} ->c1 ->c2",
        "t: seven",
        "t: Friday",
        "a: It comes on Friday.",
    ]
    assert call.context.spent == Spent(20 * (2 + 5), 10, 2)


async def test_b20_calls_told_in_another_order_of_start_still_have_one_answer(why_invalid: WhyInvalid) -> None:
    """The first call begins last; three calls of the same function are told apart by their ids."""
    calls = [ToolCall(f"k{n}", "ask", f'{{"n": {n}}}') for n in range(3)]
    call = Call(ToolLLM([calls, ["Done."]], why_invalid), both(Job("x"), Job("null", 0.2, told_after_s=0.1)))
    async with call.session as session:
        await session.send(TurnEnded(text="three things"))
        await asyncio.sleep(3.0)
    assert len(call.llm.requests) == 2
    assert call.llm.refused == []
    assert call.lines()[1:] == ["a:  ->k0 ->k1 ->k2", "t: null", "t: null", "t: null", "a: Done."]


@pytest.mark.parametrize("keeps_running", [False, True])
@pytest.mark.parametrize("spoken", [[], ["One moment, I will look that up for you. "]])
@pytest.mark.parametrize("after_s", [0.0, 0.001, 0.005, 0.05, 0.4])
async def test_b17_an_interrupt_leaves_no_call_open_for_ever(
    keeps_running: bool, spoken: list[str], after_s: float, why_invalid: WhyInvalid
) -> None:
    """A cancelled call has its result within 100 ms and the next request does not call it running; one that goes on has its own, once."""
    call = Call(
        ToolLLM([[*spoken, LOOK], ["You are welcome."]], why_invalid), both(Job("shipped", 5.0, keeps_running=keeps_running), Job(""))
    )
    async with call.session as session:
        await session.send(TurnEnded(text="where is my order"))
        while not call.desk.runs:
            await asyncio.sleep(0.0005)
        await asyncio.sleep(after_s)
        session.interrupt("the caller spoke")
        await asyncio.sleep(0.1)
        assert bool(call.context.conversation.open_calls) == keeps_running
        await session.send(TurnEnded(text="never mind"))
        await asyncio.sleep(2.0)
        asked = call.llm.requests[1]
        assert (STILL_RUNNING in [m.text for m in asked]) == keeps_running
        await asyncio.sleep(4.0)
    assert len(call.llm.requests) == 2
    assert call.llm.refused == []
    results = [m for m in call.context.conversation.messages if m.role == "tool"]
    assert [m.text for m in results] == ["shipped" if keeps_running else "cancelled"]
    assert [m.role for m in call.context.conversation.messages] == ["user", "assistant", "tool", "user", "assistant"]
    assert call.context.conversation.open_calls == ()


async def test_a_call_can_go_on_elsewhere(why_invalid: WhyInvalid) -> None:
    """Saved in the middle, with a tool at work and words in the air, and carried on in another session: one history."""
    replies: list[list[str | ToolCall]] = [["Hello, this is Ava. "], ["One moment, I will look that up. ", LOOK]]
    first = Call(ToolLLM(replies, why_invalid), both(Job("shipped", 60.0), Job("")))
    async with first.session as session:
        await session.send(TurnEnded(text="hello"))
        await asyncio.sleep(1.5)
        await session.send(TurnEnded(text="where is my order"))
        while len(first.sink.words()) < 7:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.001)
        saved = first.context.heard_so_far.to_json()
        session.cancel()
    assert first.context.conversation.to_json() == saved  # nothing came after it
    conversation = Conversation.from_json(saved)
    assert conversation.open_calls == (LOOK,)
    second = Call(
        ToolLLM([["Yes, ", "it was shipped."]], why_invalid), both(Job(""), Job("")), conversation.with_tool_result("c1", "shipped")
    )
    async with second.session as session:
        await session.send(TurnEnded(text="are you there"))
        await asyncio.sleep(2.0)
    assert [(m.role, m.text) for m in second.llm.requests[0]] == [
        ("system", "Be brief."),
        ("user", "hello"),
        ("assistant", "Hello, this is Ava."),
        ("user", "where is my order"),
        ("assistant", "One moment, I"),
        ("tool", "shipped"),
        ("user", "are you there"),
    ]
    assert second.llm.refused == []
    assert second.lines()[-1] == "a: Yes, it was shipped."


def test_interrupted_anywhere_the_history_is_valid_and_whole(why_invalid: WhyInvalid) -> None:
    """Wherever the interrupt falls, each call has one result, the agent's words are those heard, and the next turn is answered."""

    async def scenario(probe: Probe) -> None:
        llm = ToolLLM([["One moment. ", LOOK, ASK], ["It comes on Friday."]], why_invalid)
        call = Call(llm, both(Job("seven", 0.1, keeps_running=True), Job("Friday", 0.3)))
        probe.watch(call.session, call.sink)
        async with call.session as session:
            await session.send(TurnEnded(text="where is it"))
            await asyncio.sleep(2.5)
            llm.replies = [["pong it is."]]
            await session.send(TurnEnded(text="ping"))
            await asyncio.sleep(2.0)
            probe.finish()
        messages = call.context.conversation.messages
        if why := why_invalid(messages) or "; ".join(llm.refused):
            probe.problems.append(f"not valid: {why}")
        if [m for m in messages if m.pending]:
            probe.problems.append(f"open calls in {call.lines()}")
        if len([m for m in messages if m.role == "tool"]) != len(call.desk.runs):
            probe.problems.append(f"of {call.desk.runs} there is {call.lines()}")
        if " ".join(m.text for m in messages if m.role == "assistant").split() != call.sink.words():
            probe.problems.append(f"heard was {call.sink.words()}, kept is {call.lines()}")
        if len(llm.requests) > 3:
            probe.problems.append(f"{len(llm.requests)} requests")
        early = probe.interruption is None or probe.interruption.at < 2.5
        if early and call.sink.words()[-3:] != ["pong", "it", "is."]:
            probe.problems.append(f"the next turn was not answered: {call.lines()}")

    for at_deliveries in (False, True):
        found = interrupt_everywhere(scenario, at_deliveries=at_deliveries)
        found.check()
        assert found.tried > 50
