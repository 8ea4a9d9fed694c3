"""A long call is summarised beside the talk: the newest exchanges and open calls stay, and what was summarised can be shown."""

from __future__ import annotations

import asyncio

import pytest

from voiceflow import Message, Session, ToolCall, TurnEnded
from voiceflow.processors.context import Context, ContextOptions
from voiceflow.processors.conversation import Conversation
from voiceflow.processors.summary import Summary, part_to_summarise
from voiceflow.processors.text import Sentences
from voiceflow.processors.tool import tool
from voiceflow.processors.tools import Tools
from voiceflow.testing import Latency, RecordingSink, ScriptedTTS

from .rig import StrictLLM


def talk(exchanges: int) -> Conversation:
    conversation = Conversation()
    for number in range(1, exchanges + 1):
        conversation = conversation.with_user(f"question {number}").with_assistant_heard(f"answer {number}")
    return conversation


@pytest.mark.parametrize(("exchanges", "keep", "part"), [(5, 2, 6), (5, 4, 2), (5, 5, 0), (5, 6, 0), (1, 1, 0), (0, 1, 0)])
def test_the_newest_exchanges_are_kept(exchanges: int, keep: int, part: int) -> None:
    """Whole exchanges, from the front."""
    assert part_to_summarise(talk(exchanges), keep) == part


def test_nothing_from_an_open_call_on_is_summarised() -> None:
    """Its result will come, and must find it."""
    conversation = talk(2).with_user("look it up").with_tool_calls(ToolCall("a", "look"))
    for number in range(4):
        conversation = conversation.with_user(f"and {number}").with_assistant_heard("yes")
    assert part_to_summarise(conversation, 1) == 4
    assert part_to_summarise(conversation.with_tool_result("a", "found"), 1) == len(conversation.messages) - 2


def test_a_summary_alone_is_not_summarised_again() -> None:
    """There must be something new behind it."""
    conversation = talk(5).summarised(6, "they talked")
    assert part_to_summarise(conversation, 2) == 0
    assert part_to_summarise(conversation, 1) == 3


def test_a_summary_stands_in_front_and_is_saved() -> None:
    """And cannot take the place of half an exchange."""
    conversation = talk(3).summarised(4, "they talked")
    assert [m.role for m in conversation.messages] == ["system", "user", "assistant"]
    assert Conversation.from_json(conversation.to_json()) == conversation
    for count in (0, 3, 6, 7):
        with pytest.raises(ValueError, match="cannot be summarised"):
            talk(3).summarised(count, "x")


class Desk:
    """A call whose context is summarised by ``summarise``."""

    def __init__(self, summarise: object, *tools: object, keep: int = 2, timeout_s: float = 30.0) -> None:
        options = ContextOptions(max_tokens=60, summarise=summarise, summarise_at=0.5, keep_exchanges=keep, summarise_timeout_s=timeout_s)  # type: ignore[arg-type]  # a test's own function
        self.context, self.sink = Context("Be brief.", options=options), RecordingSink()
        self.model = StrictLLM(self._reply, Latency(0.05, 0.005))
        pipeline = self.context >> self.model >> Tools(tools) >> Sentences() >> ScriptedTTS() >> self.sink  # type: ignore[arg-type]
        self.session = Session(pipeline, inputs=[TurnEnded])

    @staticmethod
    def _reply(messages: tuple[Message, ...]) -> str | tuple[str | ToolCall, ...]:
        if "order" in messages[-1].text:
            return ("One moment.", ToolCall("o", "order"))
        return "This is a long enough answer to your question."

    async def ask(self, *texts: str, every_s: float = 2.0) -> None:
        for text in texts:
            await self.session.send(TurnEnded(text=text))
            await asyncio.sleep(every_s)


QUESTIONS = [f"a question of some length, number {n}" for n in range(1, 9)]


async def test_it_runs_beside_the_talk_and_takes_its_place_when_it_is_there() -> None:
    """No answer waits for it; until then requests are shortened; then the summary stands in the instructions."""

    async def summarise(part: Conversation) -> str:
        await asyncio.sleep(5.0)
        return f"{sum(m.role == 'user' for m in part.messages)} questions{f', before: {part.summary}' if part.summary else ''}"

    desk = Desk(summarise)
    async with desk.session:
        await desk.ask(*QUESTIONS)
    assert len(desk.model.requests) == len(QUESTIONS)
    assert desk.sink.words() == ["This", "is", "a", "long", "enough", "answer", "to", "your", "question."] * len(QUESTIONS)
    first = desk.context.summaries[0]
    assert desk.model.requests[-1][0].text.startswith("Be brief.\n\nThe conversation so far: ")
    assert [m.text for m in first.messages if m.role == "user"] == QUESTIONS[: int(first.text.split()[0])]
    shown = [m for summary in desk.context.summaries for m in summary.messages if m.role != "system"]
    left = [m for m in desk.context.conversation.messages if m.role != "system"]
    assert [m.text for m in [*shown, *left] if m.role == "user"] == QUESTIONS, "nothing is lost, and nothing is there twice"
    assert all(isinstance(summary, Summary) for summary in desk.context.summaries)


@pytest.mark.parametrize("fault", ["raises", "is empty", "hangs"])
async def test_a_summary_that_fails_changes_nothing(fault: str, caplog: pytest.LogCaptureFixture) -> None:
    """It is logged, the call goes on with the newest exchanges, and the next request tries again."""
    tries: list[int] = []

    async def summarise(part: Conversation) -> str:
        tries.append(len(part.messages))
        if fault == "raises":
            raise ConnectionError("no model")
        if fault == "hangs":
            await asyncio.Event().wait()
        return " "

    desk = Desk(summarise, timeout_s=1.0)
    async with desk.session:
        await desk.ask(*QUESTIONS)
    assert len(tries) > 1
    assert desk.context.summaries == ()
    assert [m.text for m in desk.context.conversation.messages if m.role == "user"] == QUESTIONS
    assert len(desk.model.requests) == len(QUESTIONS)
    assert "Context: no summary" in caplog.text


async def test_a_call_that_runs_meanwhile_keeps_its_place_and_gets_its_result() -> None:
    """The part before it is summarised, it is not."""

    @tool(effect="once", after_speech=False)
    async def order() -> str:
        """Order."""
        await asyncio.sleep(20.0)
        return "ordered"

    async def summarise(part: Conversation) -> str:
        await asyncio.sleep(0.5)
        return "they talked"

    desk = Desk(summarise, order)
    async with desk.session:
        await desk.ask(*QUESTIONS[:3], "order one", *QUESTIONS[3:])
        await asyncio.sleep(10.0)
        assert desk.context.summaries
        messages = desk.context.conversation.messages
        assert [m.text for m in messages if m.role == "tool"] == ["ordered"]
        assert messages[[m.role for m in messages].index("tool") - 1].calls[0].name == "order"
    assert desk.model.refused == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"summarise": len}, "summarise needs max_tokens"),
        ({"max_tokens": 9, "summarise_at": 0}, r"summarise_at 0 must lie in \(0, 1\]"),
        ({"max_tokens": 9, "keep_exchanges": 0}, "keep_exchanges 0 be 1 or more"),
        ({"max_tokens": 9, "summarise_timeout_s": 0}, "summarise_timeout_s 0 more than 0"),
    ],
)
def test_wrong_options_are_named(options: dict[str, object], message: str) -> None:
    """Where they are written."""
    with pytest.raises(ValueError, match=message):
        ContextOptions(**options)  # type: ignore[arg-type]
