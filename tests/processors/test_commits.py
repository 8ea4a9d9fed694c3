from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from voiceflow import Heard, Message, ToolCall
from voiceflow.processors.commits import Commits
from voiceflow.processors.conversation import STILL_RUNNING, Conversation

WhyInvalid = Callable[[Sequence[Message]], str]

LOOK = ToolCall("c1", "look_up", "{}")
ASK = ToolCall("c2", "ask", "{}")


def asked(*turns: str) -> Commits:
    commits = Commits()
    for turn in turns:
        commits.turn(turn)
        commits.ask()
    return commits


def told(commits: Commits) -> list[str]:
    """The conversation, a line a message."""
    lines = []
    for m in commits.conversation.messages:
        calls = "".join(f" ->{call.id}" for call in m.calls)
        lines.append(f"{m.role[0]}: {m.text}{' ...' if m.interrupted else ''}{calls}".replace(STILL_RUNNING, "?"))
    return lines


def test_text_of_a_reply_stands_before_its_call_whenever_it_is_heard() -> None:
    """The tool may be done before the words that announce it were heard; the next reply stands after the result."""
    commits = asked("where is it")
    commits.called(1, LOOK)
    commits.result(1, LOOK, "here")
    commits.done(1)
    assert commits.follow_up_due
    commits.ask()
    commits.heard(Heard(1, "Let me see.", True))
    commits.heard(Heard(2, "It is here.", True))
    assert told(commits) == ["u: where is it", "a: Let me see. ->c1", "t: here", "a: It is here."]


def test_a_saying_while_a_tool_is_at_work_stands_before_the_result() -> None:
    """A filler is heard before the answer is known, and the history put to the model does not end with it."""
    commits = asked("both please")
    commits.called(1, LOOK)
    commits.called(1, ASK)
    commits.result(1, ASK, "yes")
    commits.heard(Heard(0, "One moment.", True))
    assert told(commits) == ["u: both please", "a: One moment. ->c1 ->c2", "t: ?", "t: yes"]
    commits.result(1, LOOK, "seven")
    commits.heard(Heard(0, "Ah.", True))
    assert told(commits)[2:] == ["t: seven", "t: yes", "a: Ah."]


def test_a_result_is_kept_though_its_reply_was_interrupted() -> None:
    """It stands behind its call, before what the caller said meanwhile, and asks for nothing."""
    commits = asked("book it")
    commits.called(1, LOOK)
    commits.interrupted([Heard(1, "One", False)], 1.0)
    commits.turn("for four")
    commits.ask()
    assert told(commits) == ["u: book it", "a: One ... ->c1", "t: ?", "u: for four"]
    commits.result(1, LOOK, "booked")
    commits.done(1)
    assert not commits.follow_up_due
    assert told(commits) == ["u: book it", "a: One ... ->c1", "t: booked", "u: for four"]


def test_a_call_that_is_told_late_comes_to_its_place() -> None:
    """It began before the interrupt and is told after the caller's next words."""
    commits = asked("book it")
    commits.interrupted([Heard(1, "One moment", False)], 1.0)
    commits.turn("for four")
    commits.ask()
    commits.called(1, LOOK)
    commits.called(1, ASK)
    commits.result(1, LOOK, "booked")
    assert told(commits) == ["u: book it", "a: One moment ... ->c1 ->c2", "t: booked", "t: ?", "u: for four"]


def test_words_that_are_told_late_come_to_their_place() -> None:
    """A report of a reply that was heard out may arrive after the caller's next turn."""
    commits = asked("hello", "and then")
    commits.heard(Heard(2, "Then that.", True))
    commits.heard(Heard(1, "Hi.", True))
    assert told(commits) == ["u: hello and then", "a: Then that. Hi."]  # they had been taken for unanswered
    commits = asked("hello")
    commits.heard(Heard(0, "Hm.", True))
    commits.turn("and then")
    commits.ask()
    commits.heard(Heard(1, "Hi.", True))
    assert told(commits) == ["u: hello", "a: Hm. Hi.", "u: and then"]


def test_a_saying_that_is_told_late_comes_to_its_place() -> None:
    """It has no number: the time at which it was over tells; of one without a time it is the end."""
    commits = Commits()
    commits.turn("hello", 1.0)
    commits.add("[4]", [], 1.5)
    commits.ask()
    commits.heard(Heard(1, "Hi.", True), 2.0)
    commits.turn("and then", 3.0)
    commits.heard(Heard(0, "Welcome.", True), 0.9)
    commits.heard(Heard(0, "One moment.", True), 2.5)
    commits.heard(Heard(0, "Right.", True), 3.5)
    commits.heard(Heard(0, "So.", True))
    assert told(commits) == ["a: Welcome.", "u: hello [4]", "a: Hi. One moment.", "u: and then", "a: Right. So."]


def test_words_of_the_next_saying_outlast_the_report_of_the_first() -> None:
    """Sayings share the number 0, and a report may come after the words of the next."""
    commits = Commits()
    commits.words(0, "Good morning.", 0.2)
    commits.words(0, "How are", 0.6)
    commits.heard(Heard(0, "Good morning.", True), 0.4)
    assert commits.so_far().messages == (Message("assistant", "Good morning. How are", True),)
    commits.heard(Heard(0, "How are you?", True), 0.9)
    commits.finish()
    assert told(commits) == ["a: Good morning. How are you?"]


@pytest.mark.parametrize("late", ["Once upon a", "Once upon", "Once"])
def test_a_report_of_what_an_interrupt_committed_changes_nothing(late: str) -> None:
    """Also several replies later."""
    commits = asked("tell me")
    commits.interrupted([Heard(1, "Once upon", False), Heard(2, "", False)], 1.0)
    commits.heard(Heard(1, late, False))
    commits.turn("no")
    commits.ask()
    commits.heard(Heard(2, "Sorry.", True))
    commits.heard(Heard(1, late, True))
    commits.words(1, "time", 2.0)
    assert told(commits) == ["u: tell me", "a: Once upon ...", "u: no", "a: Sorry."]
    assert commits.so_far() == commits.conversation


def test_two_sinks_count_once() -> None:
    """In reports and in an interrupt, also if the other sink told nothing, and with other replies between."""
    commits = asked("one")
    commits.heard(Heard(1, "First.", True))
    commits.turn("two")
    commits.ask()
    commits.heard(Heard(1, "First.", True))
    commits.interrupted([Heard(2, "", False), Heard(2, "Sec", False), Heard(2, "Se", False)], 1.0)
    assert told(commits) == ["u: one", "a: First.", "u: two", "a: Sec ..."]


def test_a_reply_cut_by_a_saying_is_kept_in_its_parts() -> None:
    """Each part of a reply counts, in the order of hearing; the second may be cut."""
    commits = asked("tell me")
    commits.heard(Heard(1, "First half.", True))
    commits.heard(Heard(0, "One moment.", True))
    commits.interrupted([Heard(1, "Second", False)], 1.0)
    assert told(commits) == ["u: tell me", "a: First half. One moment. Second ..."]


def test_under_way_until_heard_and_done() -> None:
    """A reply is under way while it is thought of, heard, or worked for by tools; a saying does not end it."""
    commits = asked("hello")
    assert commits.under_way
    commits.heard(Heard(0, "Hm.", True))
    assert commits.under_way
    commits.heard(Heard(1, "Hi.", True))
    assert not commits.under_way
    commits.called(1, LOOK)
    assert commits.under_way
    commits.interrupted([], 1.0)
    assert not commits.under_way


@pytest.mark.parametrize("order", [["r1", "r2", "done"], ["r2", "r1", "done"], ["done", "r1", "r2"], ["r1", "done", "r2"]])
def test_b20_the_next_reply_is_due_when_all_calls_are_done(order: list[str]) -> None:
    """Whatever comes last: once, and with all results."""
    commits = asked("both")
    commits.called(1, LOOK)
    commits.called(1, ASK)
    acts: dict[str, Callable[[], None]] = {
        "r1": lambda: commits.result(1, LOOK, "one"),
        "r2": lambda: commits.result(1, ASK, "two"),
        "done": lambda: commits.done(1),
    }
    for number, act in enumerate(order):
        acts[act]()
        assert commits.follow_up_due == (number == 2)
    commits.ask()
    commits.done(1)
    assert not commits.follow_up_due
    assert told(commits) == ["u: both", "a:  ->c1 ->c2", "t: one", "t: two"]


def test_calls_are_made_fit_for_any_model() -> None:
    """A number given again gets one of its own, and a call that is no JSON is kept readable."""
    commits = asked("one")
    commits.called(1, ToolCall("0", "f"))
    commits.called(1, ToolCall("0", "f"))  # told twice
    commits.result(1, ToolCall("0", "f"), "a")
    commits.result(1, ToolCall("0", "f"), "b")
    commits.turn("two")
    commits.ask()
    commits.called(2, ToolCall("0", "", '{"a": '))
    commits.called(2, ToolCall("", "g"))
    commits.result(2, ToolCall("0", "", '{"a": '), "c")
    assert told(commits) == ["u: one", "a:  ->0", "t: a", "u: two", "a:  ->0-2 ->call-2", "t: c", "t: ?"]
    assert commits.conversation.messages[4].calls[0] == ToolCall("0-2", "unnamed", '{"not_json":"{\\"a\\": "}')


def test_a_result_may_come_before_its_start() -> None:
    """Whoever has a result was called: also of a reply that is gone, and a start told later changes nothing."""
    commits = asked("one")
    commits.result(1, LOOK, "no such tool")
    assert told(commits) == ["u: one", "a:  ->c1", "t: no such tool"]
    commits.interrupted([], 1.0)
    commits.turn("two")
    commits.ask()
    commits.result(1, ASK, "late")
    commits.called(1, ASK)
    assert told(commits) == ["u: one", "a:  ->c1 ->c2", "t: no such tool", "t: late", "u: two"]


def test_the_result_of_a_call_that_was_begun_elsewhere_finds_it() -> None:
    """A conversation carried on takes the results of its open calls, by their ids, once."""
    commits = Commits(Conversation().with_user("one").with_tool_calls(LOOK))
    commits.result(7, LOOK, "seven")
    commits.result(7, LOOK, "eight")
    assert told(commits) == ["u: one", "a:  ->c1", "t: seven"]


def test_the_call_may_end_in_the_middle_of_a_word() -> None:
    """What was heard of what was being said is committed at the end, as cut."""
    commits = asked("tell me")
    commits.words(1, "Once", 0.1)
    commits.words(1, "upon a", 0.3)
    assert told(commits) == ["u: tell me"]
    assert commits.so_far().messages[-1] == Message("assistant", "Once upon a", True)
    commits.finish()
    assert told(commits) == ["u: tell me", "a: Once upon a ..."]
    commits.finish()
    assert told(commits) == ["u: tell me", "a: Once upon a ..."]


def test_words_before_an_interrupt_that_come_after_it_are_of_the_past() -> None:
    """Of a saying, which has no number of its own, the time tells."""
    commits = Commits()
    commits.words(0, "Hello", 0.1)
    commits.interrupted([Heard(0, "Hello there", False)], 0.5)
    commits.words(0, "there", 0.3)
    commits.words(0, "Next", 0.9)
    commits.finish()
    assert told(commits) == ["a: Hello there Next ..."]


def test_what_the_caller_sent_outlasts_a_turn_taken_up_again() -> None:
    """Text that was sent is not part of what they say again."""
    commits = Commits()
    commits.add("[4]", [])
    commits.turn("is that")
    commits.add("[5]", [])
    commits.turn("is that right", continues=True)
    assert told(commits) == ["u: [4] is that [5] right"]
    commits.turn("was that right", continues=True)
    assert told(commits) == ["u: [4] [5] was that right"]
    commits.heard(Heard(0, "Yes.", True))
    commits.turn("good")
    commits.turn("very good", continues=True)
    assert told(commits)[2:] == ["u: very good"]


def test_a_turn_taken_up_again_after_something_was_said_adds_what_is_new() -> None:
    """Every word of the caller stands in one message only, also when a filler or a call came between."""
    commits = asked("a table")
    commits.heard(Heard(0, "One moment.", True))
    commits.turn("a table for four", continues=True)
    commits.called(1, LOOK)
    commits.turn("a table for four tonight", continues=True)
    commits.turn("a table for four tonight", continues=True)
    assert told(commits) == ["u: a table", "a: One moment. ->c1", "t: ?", "u: for four tonight"]


def test_another_conversation_can_take_its_place() -> None:
    """A summary put in while a reply with a call is under way: what comes goes on behind it."""
    commits = asked("one", "two")
    commits.called(2, LOOK)
    commits.begin_anew(Conversation().with_assistant_heard("Summary."))
    commits.heard(Heard(2, "Two.", True))
    commits.result(2, LOOK, "x")
    assert told(commits)[0] == "a: Summary. Two. ->c1"


# ------------------------------------------------------------------------------------------ any order of events

numbers = st.integers(0, 4)
event = st.one_of(
    st.tuples(st.just("turn")),
    st.tuples(st.just("add")),
    st.tuples(st.just("words"), numbers),
    st.tuples(st.just("heard"), numbers, st.booleans()),
    st.tuples(st.just("again"), numbers),
    st.tuples(st.just("interrupt"), st.lists(numbers, max_size=2, unique=True)),
    st.tuples(st.just("called"), st.integers(1, 4), st.integers(0, 3)),
    st.tuples(st.just("result"), st.integers(1, 4), st.integers(0, 3)),
    st.tuples(st.just("done"), numbers),
)


class Model:
    """Drives the commits as the node does, with words that each occur once, and keeps its own books."""

    def __init__(self) -> None:
        self.commits = Commits()
        self.word = 0
        self.user: list[str] = []
        self.unanswered: list[str] = []
        self.heard: dict[str, bool] = {}  # words reported, whether they count
        self.reports: list[Heard] = []
        self.closed: set[int] = set()
        self.started: set[tuple[int, str]] = set()
        self.results: dict[tuple[int, str], str] = {}
        self.follow_ups: list[int] = []

    def new(self) -> str:
        self.word += 1
        return f"w{self.word}"

    def utterance(self, choice: int) -> int:
        """0, or one of the last replies."""
        return max(0, self.commits.utterance + 1 - choice) if choice else 0

    def step(self, happened: Any) -> None:
        commits = self.commits
        match happened:
            case ("turn",):
                if commits.under_way:
                    commits.interrupted([], float(self.word))
                continues = bool(self.unanswered)
                self.user.append(self.new())
                self.unanswered.append(self.user[-1])
                commits.turn(" ".join(self.unanswered), continues=continues)
                commits.ask()
            case ("add",):
                text = self.new()
                self.user.append(text)
                commits.add(text, [])
            case "words", choice:
                commits.words(self.utterance(choice), self.new(), float(self.word))
            case "heard", choice, complete:
                self.report(Heard(self.utterance(choice), self.new(), complete))
                commits.heard(self.reports[-1])
            case "again", choice:
                old = [report for report in self.reports if report.utterance]
                if old:
                    commits.heard(old[-1 - choice % len(old)])
            case "interrupt", choices:
                parts = [Heard(self.utterance(choice), self.new(), False) for choice in choices]
                parts = [part for i, part in enumerate(parts) if part.utterance not in {p.utterance for p in parts[:i]}]
                for part in parts:
                    self.report(part)
                commits.interrupted(parts, float(self.word))
                self.closed |= {part.utterance for part in parts if part.utterance}
            case "called", choice, call if utterance := self.utterance(choice):
                self.started.add((utterance, str(call)))
                commits.called(utterance, ToolCall(str(call), "f"))
            case "result", choice, call if utterance := self.utterance(choice):
                text = self.new()
                self.started.add((utterance, str(call)))
                self.results.setdefault((utterance, str(call)), text)
                commits.result(utterance, ToolCall(str(call), "f"), text)
            case "done", choice:
                commits.done(self.utterance(choice))
        if commits.follow_up_due:
            self.follow_ups.append(commits.utterance)
            commits.ask()

    def report(self, heard: Heard) -> None:
        self.reports.append(heard)
        if heard.utterance:
            self.unanswered.clear()
        self.heard[heard.text] = heard.utterance not in self.closed


def words_of(messages: Sequence[Message], role: str) -> list[str]:
    return [word for message in messages if message.role == role for word in message.text.split()]


@given(events=st.lists(event, max_size=25))
@settings(deadline=None, max_examples=300)
def test_any_order_of_reports_gives_a_valid_and_whole_history(events: list[Any], why_invalid: WhyInvalid) -> None:
    """Valid at every step; each word heard and each word said once; each call that began has one result, the first that came."""
    model = Model()
    for happened in events:
        model.step(happened)
        messages = model.commits.conversation.messages
        assert why_invalid(messages) == ""
        assert why_invalid(model.commits.so_far().messages) == ""
        assert sorted(words_of(messages, "assistant")) == sorted(word for word, counts in model.heard.items() if counts)
        assert words_of(messages, "user") == model.user
    messages = model.commits.conversation.messages
    assert len([m for m in messages if m.role == "tool"]) == len(model.started)
    assert {m.text for m in messages if m.role == "tool" and not m.pending} == set(model.results.values())
    assert len(model.follow_ups) == len(set(model.follow_ups))


def test_a_long_call_keeps_few_books() -> None:
    """What is remembered of replies is bounded, except of those whose calls are open."""
    commits = Commits()
    for number in range(1, 1001):
        commits.turn(f"question {number}")
        assert commits.ask() == number
        if number in (2, 3):
            commits.called(number, LOOK)
            commits.result(2, LOOK, "at once")
        commits.heard(Heard(number, f"Answer {number}.", True))
    assert len(commits._replies) <= 20
    assert [call.id for call in commits.conversation.open_calls] == ["c1-2"]
    commits.result(3, LOOK, "at last")
    assert commits.conversation.open_calls == ()
    assert [m.text for m in commits.conversation.messages if m.role == "tool"] == ["at once", "at last"]
