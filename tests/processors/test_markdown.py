"""Markdown's marks taken out. What they look like in a call is in tests/conversations."""

from __future__ import annotations

import pytest

from voiceflow.processors.markdown import LONGEST_HELD, Markdown


def run(text: str, *, code: bool = True, size: int = 0) -> str:
    markdown = Markdown(code=code)
    return "".join(markdown.push(text[i : i + (size or len(text))]) for i in range(0, len(text), size or len(text))) + markdown.flush()


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("***both***", "both"),
        ("**a *b* c**", "a b c"),
        ("**bold**text", "boldtext"),
        ("2*3*4 and 2 * 3 and 5 *6", "2*3*4 and 2 * 3 and 5 *6"),
        ("__init__ a_b_c _d_", "init a_b_c d"),
        ("**kwargs are", "kwargs are"),
        ("price* is", "price* is"),
        (r"\*not\* C:\dir", r"*not* C:\dir"),
        ("``a`b`` `c*d*`", "ab c*d*"),
        ("[a](u) [b][r] ![c](u) [d] [^1] [e]", "a b c [d]  [e]"),
        ("[**a** _b_](u)", "a b"),
        ("[a](u", "[a](u"),
        ("<https://a.example/x_y_z> <me@x.org> <b>x</b>", "https://a.example/x_y_z me@x.org <b>x</b>"),
        ('<a title="*b*">', '<a title="*b*">'),
        ("#1 fan", "#1 fan"),
        ("####### seven", "####### seven"),
        ("5 - 3\n- 5", "5 - 3\n\n5"),
        ("a\n* * *\nb", "a\n\n\nb"),
        ("> > deep", "deep"),
        ("wait! [no", "wait! [no"),
    ],
)
def test_marks_go_and_text_stays(text: str, rest: str) -> None:
    """Judged by what stands beside them; the same one character at a time."""
    assert run(text) == rest
    assert run(text, size=1) == rest


def test_code_may_be_left_unsaid() -> None:
    """A fenced block is spoken or skipped as told; its fences and its language never are."""
    text = "Run:\n```sh\nls *.py\n~~~\n```\nDone."
    assert run(text) == "Run:\n\nls *.py\n~~~\n\nDone."
    assert run(text, code=False) == run(text, code=False, size=1) == "Run:\n\nDone."
    assert run("~~~\nnever closed", code=False) == ""


@pytest.mark.parametrize("mark", ["[", "*", "`", "#", "<", "|", "![", "[^", " ", "- ", "_", "\\", "[x](", "~", "=", "<a ", "> "])
@pytest.mark.parametrize("before", ["", "x", "# "])
def test_no_text_is_held_back_for_long(mark: str, before: str) -> None:
    """Endless marks are decided within a bound, and the same for every chunking."""
    text = before + mark * LONGEST_HELD * 3 + " tail *end* | x\nmore"
    assert run(text, size=1) == run(text, size=7) == run(text, size=LONGEST_HELD + 1) == run(text)
    markdown = Markdown()
    held = 0
    for character in before + mark * LONGEST_HELD * 3:
        markdown.push(character)
        held = max(held, len(markdown._text))
    assert held <= 2 * LONGEST_HELD
