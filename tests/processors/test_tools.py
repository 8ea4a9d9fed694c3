"""Which calls begin when, and that each gets its one result, whatever happens around it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voiceflow import ToolCall
from voiceflow.processors.tool import Effect, Tool, ToolError, tool
from voiceflow.processors.tools import Calls, Tools


def make(name: str, effect: Effect = "pure", *, after_speech: bool | None = None) -> Tool:
    @tool(name=name, effect=effect, after_speech=after_speech)
    async def run() -> str:
        return name

    return run


class Desk:
    """``Calls`` with names for its calls."""

    def __init__(self, *, parallel: bool = True) -> None:
        self.calls = Calls(parallel=parallel)

    def called(self, known: Tool, utterance: int = 1, name: str = "") -> list[str]:
        self.calls.called(ToolCall(name or known.name, known.name), utterance, 0, known)
        return self.ready()

    def ready(self) -> list[str]:
        return [entry.call.id for entry in self.calls.ready()]

    def ended(self, utterance: int = 1) -> list[str]:
        self.calls.reply_ended(utterance)
        return self.ready()

    def heard(self, utterance: int = 1) -> list[str]:
        self.calls.reply_heard(utterance)
        return self.ready()

    def finished(self, name: str) -> list[int]:
        self.calls.finished(next(entry for entry in self.calls.entries if entry.call.id == name))
        return self.calls.done()


def test_a_pure_call_begins_at_once() -> None:
    """It changes nothing, so it may run for a reply that is thrown away."""
    assert Desk().called(make("look")) == ["look"]


def test_a_call_with_an_effect_waits_for_the_reply_to_be_complete() -> None:
    """Until then it may be cut off, or its calls taken back."""
    desk = Desk()
    assert (desk.called(make("set", "idempotent")), desk.ended()) == ([], ["set"])


def test_a_call_that_must_be_done_once_waits_until_the_words_before_it_were_heard() -> None:
    """A hang-up does not overtake the goodbye, and what was heard halfway is not heard."""
    desk = Desk()
    assert (desk.called(make("hang_up", "once")), desk.heard(), desk.ended(), desk.heard()) == ([], [], [], ["hang_up"])


def test_what_waits_for_speech_can_be_chosen() -> None:
    """A booking may begin before "one moment" is over; a pure call may wait."""
    desk = Desk()
    assert desk.called(make("book", "once", after_speech=False)) == []
    assert desk.called(make("show", after_speech=True)) == []
    assert (desk.ended(), desk.heard()) == (["book"], ["show"])


def test_one_after_the_other_in_the_order_of_the_model() -> None:
    """Without parallel runs the second call of a reply waits for the first one's result; another reply's does not."""
    desk = Desk(parallel=False)
    assert (desk.called(make("a")), desk.called(make("b")), desk.called(make("c"), 2)) == (["a"], [], ["c"])
    assert desk.ended() == []
    assert (desk.finished("a"), desk.ready(), desk.finished("b")) == ([], ["b"], [1])


def test_a_reply_is_done_once_it_is_complete_and_all_its_results_are_there() -> None:
    """Whichever comes last; told once. A reply without calls has nothing to be done."""
    desk = Desk()
    desk.called(make("a"))
    desk.called(make("b"))
    assert (desk.finished("b"), desk.finished("a")) == ([], [])
    assert (desk.ended(), desk.calls.done(), desk.calls.done()) == ([], [1], [])
    desk.called(make("c"), 2)
    desk.ended(2)
    desk.ended(3)
    assert (desk.calls.done(), desk.finished("c"), desk.calls.done()) == ([], [2], [])


def test_a_call_told_twice_runs_once() -> None:
    """Some providers repeat it; the same id in another reply is another call."""
    desk = Desk()
    assert (desk.called(make("a")), desk.called(make("a")), desk.called(make("a"), 2)) == (["a"], [], ["a"])


def test_an_interrupt_drops_what_has_not_begun_and_spares_what_must_be_done_once() -> None:
    """Running calls are told to stop, but for those."""
    desk = Desk()
    desk.called(make("look"))
    desk.called(make("book", "once", after_speech=False))
    desk.called(make("hang_up", "once"))
    desk.ended()
    assert [entry.call.id for entry in desk.calls.interrupted()] == ["look"]
    assert desk.heard() == []
    assert (desk.finished("look"), desk.finished("book")) == ([], []), "nobody waits for the answer to a reply that was dropped"
    assert desk.calls.entries == []


TOOLS = [make("pure"), make("idempotent", "idempotent"), make("once", "once"), make("early", "once", after_speech=False)]


@given(
    st.booleans(),
    st.lists(
        st.one_of(
            st.tuples(st.just("call"), st.integers(0, 3), st.integers(1, 3)),
            st.tuples(st.sampled_from(["ended", "heard"]), st.integers(1, 3)),
            st.just(("interrupted",)),
            st.just(("finished",)),
        ),
        max_size=40,
    ),
)
def test_whatever_the_order_a_call_begins_at_most_once_and_never_after_its_reply_was_dropped(
    parallel: bool, events: list[tuple[object, ...]]
) -> None:
    """Of each call: at most one beginning, none with an effect before its reply is complete, none after an interrupt."""
    calls, begun, ended, made = Calls(parallel=parallel), [], set(), 0
    dropped: set[str] = set()
    for event in events:
        match event:
            case ("call", int(which), int(utterance)):
                made += 1
                calls.called(ToolCall(str(made), TOOLS[which].name), utterance, 0, TOOLS[which])
            case ("ended", int(utterance)):
                calls.reply_ended(utterance)
                ended.add(utterance)
            case ("heard", int(utterance)):
                calls.reply_heard(utterance)
            case ("interrupted",):
                dropped |= {entry.call.id for entry in calls.entries if not entry.is_running}
                calls.interrupted()
            case _:
                for entry in [entry for entry in calls.entries if entry.is_running][:1]:
                    calls.finished(entry)
        for entry in calls.ready():
            begun.append(entry.call.id)
            assert entry.tool is not None
            assert entry.tool.effect == "pure" or entry.utterance in ended
    assert len(begun) == len(set(begun))
    assert not dropped & set(begun)


def test_two_tools_of_one_name_are_refused() -> None:
    """A model could not tell them apart."""
    with pytest.raises(ToolError, match="two tools are named look"):
        Tools([make("look"), make("look")])
