"""Text on its way to the voice: the node."""

from __future__ import annotations

from voiceflow import EndFrame, Frame, LLMEnded, LLMTextFrame, Processor, SayFrame, SentenceFrame, Session
from voiceflow.processors.text import Markdown, Reasoning, Sentences, SplitterOptions
from voiceflow.testing import check_processor, run_virtual


class Keep(Processor):
    def __init__(self) -> None:
        self.frames: list[Frame] = []

    def process(self, frame: SentenceFrame | LLMEnded) -> None:
        self.frames.append(frame)


def talk(*steps: Frame | str, ends: bool = True, node: Sentences | None = None) -> list[str]:
    """Send frames (or, at a string, interrupt) through Sentences; what comes out, as text or `<utterance` for LLMEnded."""

    async def main() -> list[str]:
        out = Keep()
        session = Session((node or Sentences()) >> out, inputs=[LLMTextFrame, LLMEnded, SayFrame])
        async with session:
            for step in steps:
                session.interrupt(step) if isinstance(step, str) else await session.send(step)
            if not ends:
                return shown(out.frames)
        return shown(out.frames)

    return run_virtual(main())


def shown(frames: list[Frame]) -> list[str]:
    return [f.text if isinstance(f, SentenceFrame) else f"<{f.utterance}" for f in frames if isinstance(f, SentenceFrame | LLMEnded)]


def token(text: str, utterance: int) -> LLMTextFrame:
    return LLMTextFrame(text, utterance=utterance)


def test_b28_the_tail_is_spoken_when_the_reply_ends() -> None:
    """A reply without a full stop is spoken whole, and closed behind its last words."""
    assert talk(token("Your order is on its way", 1), LLMEnded(utterance=1), ends=False) == ["Your order is on its way", "<1"]


def test_b28_the_tail_of_an_interrupted_reply_is_never_spoken() -> None:
    """What an interrupt left behind comes neither in a later turn nor at the end."""
    said = talk(
        token("First part done. Second half unfin", 2),
        "the caller",
        token("Sure.", 3),
        LLMEnded(utterance=3),
        SayFrame("That is all, farewell."),
    )
    assert said == ["First part done.", "Sure.", "<3", "That is all,", "farewell.", "<0"]


def test_b28_the_tail_of_a_failed_reply_is_dropped_and_its_utterance_closed() -> None:
    """A reply that stops without an end is closed when the next one begins, and not spoken in it."""
    said = talk(token("First part done. Second half unfin", 2), token("Sure.", 3), LLMEnded(utterance=3), LLMEnded(utterance=2))
    assert said == ["First part done.", "<2", "Sure.", "<3"]


def test_b28_a_stale_tail_does_not_follow_the_goodbye() -> None:
    """The last words of the call are the goodbye, not a fragment of a reply that failed before."""
    said = talk(token("First part done. Second half unfin", 2), SayFrame("That is all, farewell."))
    assert said == ["First part done.", "That is all,", "farewell.", "<0", "<2"]


def test_a_reply_goes_on_behind_a_say() -> None:
    """Something said in between takes nothing from a reply that is still being written."""
    said = talk(token("Let me see what I", 1), SayFrame("One moment."), token(" can find.", 1), LLMEnded(utterance=1))
    assert said == ["One moment.", "<0", "Let me see what I can find.", "<1"]


def test_the_end_of_the_call_drops_a_tail_that_no_model_completed() -> None:
    """A reply that has no end by then has failed: it is closed, and its tail is not the last word of the call."""
    assert talk(token("Good night. Sleep we", 4)) == ["Good night.", "<4"]


def test_a_failed_reply_is_closed_when_another_ends_without_a_word() -> None:
    """A reply of tool calls alone has an end and no text."""
    said = talk(token("First part done. Second half unfin", 2), LLMEnded(utterance=3), LLMEnded(utterance=2))
    assert said == ["First part done.", "<2", "<3"]


def test_filters_stand_before_the_splitter() -> None:
    """Reasoning, Markdown and emoji are taken out unless told otherwise, from what is said without the model, too."""
    text = "<think>Hm. No.</think>**Hello** there! 😊 *Bye.*"
    assert talk(token(text, 1), LLMEnded(utterance=1), SayFrame(text)) == ["Hello there!", "Bye.", "<1", "Hello there!", "Bye.", "<0"]
    bare = talk(token(text, 1), LLMEnded(utterance=1), node=Sentences(filters=()))
    assert bare[0].startswith("<think>Hm.")
    chosen = talk(token(text, 1), LLMEnded(utterance=1), node=Sentences(filters=(lambda: Reasoning(("hm",)), Markdown)))
    assert chosen[0].startswith("<think>Hm.")
    assert "Hello there!" in chosen[-3]


def test_an_interrupt_inside_a_block_or_a_mark_leaves_nothing_open() -> None:
    """The next reply begins outside of whatever the last one had begun."""
    for begun in ("<think>I wonder", "See [the li", "```\nx = 1", "**so", "| a |"):
        assert talk(token(begun, 1), "the caller", token("Sure. Go *on*.", 2), LLMEnded(utterance=2)) == ["Sure.", "Go on.", "<2"]


def test_the_mode_is_an_option() -> None:
    """In token mode each word is a frame of its own."""
    said = talk(token("Hello the", 1), token("re. Bye", 1), LLMEnded(utterance=1), node=Sentences(SplitterOptions(mode="token")))
    assert said == ["Hello ", "there. ", "Bye", "<1"]


def test_an_empty_reply_is_still_closed() -> None:
    """A reply with nothing to say makes no sentence, and the voice learns that it is over."""
    assert talk(token(" ... ", 1), LLMEnded(utterance=1), LLMEnded(utterance=2)) == ["<1", "<2"]
    assert talk(SayFrame("😊", utterance=7)) == ["<7"]


def test_sentences_pass_the_conformance_kit() -> None:
    """Strangers pass, interrupts leave nothing behind, slow and failing neighbours change nothing."""
    feed = [token("Hello there. How are", 1), token(" you? I am", 1), LLMEnded(utterance=1), SayFrame("Well then.")]
    check_processor(Sentences, feed)


def test_the_end_frame_belongs_to_the_contract() -> None:
    """The node asks for EndFrame, so that it can yield its tail."""
    assert EndFrame in Sentences.contract.accepts
