"""A processor's annotations are its contract, and every mistake in them is named where the class is made."""

from __future__ import annotations

import asyncio
import inspect
import textwrap
import typing
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterable, Iterator, Sequence
from typing import Annotated, Any, Optional, Union

import pytest

from voiceflow import (
    ContractError,
    EndFrame,
    ErrorFrame,
    Frame,
    InputAudioFrame,
    Interruption,
    LLMTextFrame,
    OutputAudioFrame,
    Processor,
    SayFrame,
    SentenceFrame,
    SessionError,
    StartFrame,
    TextFrame,
    TranscriptFrame,
    processor,
)
from voiceflow.processor import Contract

Speakable = SentenceFrame | SayFrame


# ------------------------------------------------------------------------------------------- what is read


def test_an_instant_node_says_what_it_takes_and_yields() -> None:
    """`def process` with two annotations is a whole contract."""

    class Shout(Processor):
        def process(self, frame: SentenceFrame) -> SayFrame:
            return SayFrame(frame.text.upper())

    assert Shout.contract == Contract(frozenset({SentenceFrame}), frozenset({SayFrame}), frozenset({SayFrame}))


def test_how_process_is_written_says_how_it_works() -> None:
    """Plain, generator, coroutine, async generator: only the async ones take time, only the last streams."""

    class Plain(Processor):
        def process(self, frame: TextFrame) -> None: ...

    class Generates(Processor):
        def process(self, frame: TextFrame) -> Iterator[SayFrame]:
            yield SayFrame("")

    class Waits(Processor):
        async def process(self, frame: TextFrame) -> SayFrame | None: ...

    class Streams(Processor):
        async def process(self, frame: TextFrame) -> AsyncIterator[SayFrame]:
            yield SayFrame("")

    assert [(n.contract.waits, n.contract.streams) for n in (Plain, Generates, Waits, Streams)] == [
        (False, False),
        (False, False),
        (True, False),
        (True, True),
    ]


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        (None, set()),
        (SayFrame, {SayFrame}),
        (Optional[SayFrame], {SayFrame}),  # noqa: UP045 - the old spelling must be understood
        (Union[SayFrame, SentenceFrame, None], {SayFrame, SentenceFrame}),  # noqa: UP007 - likewise
        (SayFrame | SentenceFrame, {SayFrame, SentenceFrame}),
        (Speakable, {SayFrame, SentenceFrame}),
        (list[SayFrame], {SayFrame}),
        (typing.List[SayFrame], {SayFrame}),  # noqa: UP006 - likewise
        (list[SayFrame | EndFrame] | None, {SayFrame, EndFrame}),
        (tuple[SayFrame, ...], {SayFrame}),
        (tuple[SayFrame, EndFrame], {SayFrame, EndFrame}),
        (Sequence[SayFrame], {SayFrame}),
        (Iterable[SayFrame], {SayFrame}),
        (Iterator[SayFrame | EndFrame], {SayFrame, EndFrame}),
        (Generator[SayFrame, int, EndFrame], {SayFrame}),
        (AsyncIterator[SayFrame], {SayFrame}),
        (AsyncGenerator[SayFrame, None], {SayFrame}),
        (Annotated[SayFrame, "spoken"], {SayFrame}),
    ],
)
def test_return_annotations_are_opened(annotation: Any, expected: set[type[Frame]]) -> None:
    """Unions, optionals, containers and generators of frames: the types inside count."""

    def process(self: Processor, frame: TextFrame) -> Any: ...

    process.__annotations__ = {"frame": TextFrame, "return": annotation}
    node = type("Node", (Processor,), {"process": process})
    assert node.contract.yields == expected


def test_a_union_of_accepted_types_takes_each_and_what_is_made_of_it() -> None:
    """A subclass of an accepted type is for the node too."""

    class Node(Processor):
        def process(self, frame: SentenceFrame | InputAudioFrame) -> None: ...

    class Special(SentenceFrame, frozen=True):
        pass

    takes = Node.contract.takes
    assert takes(SentenceFrame)
    assert takes(Special)
    assert takes(InputAudioFrame)
    assert not takes(TextFrame)
    assert not takes(OutputAudioFrame)


def test_run_and_process_add_up() -> None:
    """A node may speak by itself and answer; what it yields is both together, known apart."""

    class Both(Processor):
        def process(self, frame: TextFrame) -> SayFrame: ...

        async def run(self) -> AsyncIterator[InputAudioFrame]:
            yield InputAudioFrame(b"", 16000)

    contract = Both.contract
    assert contract.yields == {SayFrame, InputAudioFrame}
    assert (contract.process_yields, contract.run_yields, contract.runs) == ({SayFrame}, {InputAudioFrame}, True)


def test_a_reply_is_work_that_yields_only_the_agents_frames() -> None:
    """An interrupt ends such work whatever frame began it; a node that yields anything else works on."""

    class Llm(Processor):
        async def process(self, frame: TranscriptFrame) -> AsyncIterator[LLMTextFrame]:
            yield LLMTextFrame("")

    class Mixed(Processor):
        async def process(self, frame: TranscriptFrame) -> AsyncIterator[LLMTextFrame | TranscriptFrame]:
            yield LLMTextFrame("")

    class Sink(Processor):
        async def process(self, frame: TranscriptFrame) -> None: ...

    assert [n.contract.replies for n in (Llm, Mixed, Sink)] == [True, False, False]


# --------------------------------------------------------------------------------------------- functions


def test_functions_of_all_kinds_become_processors() -> None:
    """@processor gives a class with the function's name, text and contract."""

    @processor
    def shout(frame: SentenceFrame) -> SayFrame:
        """Louder."""
        return SayFrame(frame.text.upper())

    @processor
    async def think(frame: SentenceFrame) -> SayFrame | None:
        return None

    @processor
    async def spell(frame: SentenceFrame) -> AsyncIterator[SayFrame]:
        for letter in frame.text:
            yield SayFrame(letter)

    @processor
    def each(frame: SentenceFrame) -> Iterator[SayFrame]:
        yield SayFrame(frame.text)

    assert issubclass(shout, Processor)
    assert (shout.__name__, shout.__doc__, shout.__module__) == ("shout", "Louder.", __name__)
    assert shout().process(SentenceFrame("hi")) == SayFrame("HI")
    assert [(n.contract.waits, n.contract.streams) for n in (shout, think, spell, each)] == [
        (False, False),
        (True, False),
        (True, True),
        (False, False),
    ]
    assert all(n.contract.accepts == {SentenceFrame} and n.contract.yields == {SayFrame} for n in (shout, think, spell, each))


@pytest.mark.parametrize("thing", [Processor, 3, "f"])
def test_the_decorator_refuses_what_is_no_function(thing: Any) -> None:
    """A class or a value under @processor is told what goes there."""
    with pytest.raises(ContractError, match=r"@processor goes above a function, not above .*; a class subclasses Processor"):
        processor(thing)


# ------------------------------------------------------------------------------------- where types are found


def test_types_local_to_a_function_are_found() -> None:
    """Postponed annotations may name frame types and classes of the enclosing function."""

    class Note(TextFrame, frozen=True):
        pass

    class Node(Processor):
        def process(self, frame: Note) -> Note | None: ...

    @processor
    def plain(frame: Note) -> Note:
        return frame

    assert Node.contract.accepts == Node.contract.yields == {Note}
    assert plain.contract.accepts == plain.contract.yields == {Note}


def test_types_local_to_a_class_body_are_found() -> None:
    """A processor and its frames may stand together in a class used as a namespace."""

    class Plugin:
        class Note(TextFrame, frozen=True):
            pass

        class Node(Processor):
            def process(self, frame: Note) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    assert Plugin.Node.contract.accepts == {Plugin.Note}


def test_an_authors_own_init_subclass_does_not_hide_local_types() -> None:
    """A family of processors with a hook of its own still finds the types around the subclass."""

    class Family(Processor):
        def __init_subclass__(cls) -> None:
            super().__init_subclass__()

    class Note(TextFrame, frozen=True):
        pass

    class Node(Family):
        def process(self, frame: Note) -> None: ...

    assert Node.contract.accepts == {Note}


def test_a_method_keeps_the_types_of_the_place_where_it_was_written() -> None:
    """A subclass made elsewhere, which adds a method of its own, need not see the types its parent named."""

    def make_parent() -> type[Processor]:
        class Note(TextFrame, frozen=True):
            pass

        class Parent(Processor):
            def process(self, frame: Note) -> Note:
                return frame

        return Parent

    parent = make_parent()

    class Child(parent):  # type: ignore[misc,valid-type]
        def on_interrupt(self, interrupt: Interruption) -> None: ...

        async def run(self) -> AsyncIterator[SayFrame]:
            yield SayFrame("")

    class Grandchild(Child):
        pass

    for cls in (Child, Grandchild):
        assert cls.contract.accepts == parent.contract.accepts
        assert cls.contract.yields == parent.contract.yields | {SayFrame}


def test_inheritance_two_deep_overrides_and_keeps() -> None:
    """What a subclass writes replaces its parent's; what it does not write stays."""

    class Parent(Processor):
        def process(self, frame: TextFrame) -> SayFrame: ...

    class Child(Parent):
        pass

    class Grandchild(Child):
        async def process(self, frame: SentenceFrame) -> AsyncIterator[LLMTextFrame]:  # type: ignore[override]
            yield LLMTextFrame("")

    assert Child.contract == Parent.contract
    assert Grandchild.contract.accepts == {SentenceFrame}
    assert Grandchild.contract.streams


def test_a_process_from_a_class_that_is_no_processor_counts() -> None:
    """A shared `process` in a plain class beside Processor is read too."""

    class Passes:
        def process(self, frame: TextFrame) -> TextFrame:
            return frame

    class Node(Passes, Processor):  # type: ignore[misc]
        pass

    assert Node.contract.accepts == {TextFrame}


def test_a_module_without_postponed_annotations_is_read_alike() -> None:
    """Real types and strings in annotations mean the same."""
    source = textwrap.dedent(
        """
        from voiceflow import Processor, SayFrame, TextFrame
        class Real(Processor):
            def process(self, frame: TextFrame) -> SayFrame | None: ...
        class Quoted(Processor):
            def process(self, frame: "TextFrame") -> "SayFrame | None": ...
        """
    )
    names: dict[str, Any] = {"__name__": "elsewhere"}
    exec(compile(source, "elsewhere.py", "exec", dont_inherit=True), names)
    assert names["Real"].contract == names["Quoted"].contract
    assert names["Real"].contract.yields == {SayFrame}


# ------------------------------------------------------------------------------------------ authors' mistakes


def make(process: Callable[..., Any], **members: Any) -> type[Processor]:
    return type("Node", (Processor,), {"process": process, "__module__": "plugin", "__qualname__": "Node", **members})


def no_annotation() -> None:
    def process(self: Processor, frame) -> None: ...  # type: ignore[no-untyped-def]

    make(process)


def no_return_annotation() -> None:
    def process(self: Processor, frame: TextFrame): ...  # type: ignore[no-untyped-def]

    make(process)


def no_argument() -> None:
    def process(self: Processor) -> None: ...

    make(process)


def two_arguments() -> None:
    def process(self: Processor, frame: TextFrame, direction: str) -> None: ...

    make(process)


def not_a_frame_type() -> None:
    def process(self: Processor, frame: str) -> None: ...

    make(process)


def anything() -> None:
    def process(self: Processor, frame: Any) -> None: ...

    make(process)


def yields_no_frame_type() -> None:
    def process(self: Processor, frame: TextFrame) -> list[str]: ...

    make(process)


def yields_a_bare_list() -> None:
    def process(self: Processor, frame: TextFrame) -> list: ...  # type: ignore[type-arg]

    make(process)


def takes_none() -> None:
    def process(self: Processor, frame: TextFrame | None) -> None: ...

    make(process)


def takes_a_list() -> None:
    def process(self: Processor, frame: list[TextFrame]) -> None: ...

    make(process)


def undefined_name() -> None:
    def process(self: Processor, frame: TextFame) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    make(process)


def undefined_attribute() -> None:
    def process(self: Processor, frame: typing.TextFame) -> None: ...  # type: ignore[name-defined]

    make(process)


def takes_an_interrupt() -> None:
    from voiceflow import InterruptFrame  # noqa: PLC0415 - local on purpose

    def process(self: Processor, frame: InterruptFrame) -> None: ...

    process.__annotations__["frame"] = InterruptFrame
    make(process)


def yields_a_start() -> None:
    def process(self: Processor, frame: TextFrame) -> StartFrame: ...

    make(process)


def run_is_no_generator() -> None:
    async def run(self: Processor) -> None: ...

    type("Node", (Processor,), {"run": run, "__module__": "plugin", "__qualname__": "Node"})


def run_without_annotation() -> None:
    async def run(self: Processor):  # type: ignore[no-untyped-def]
        yield SayFrame("")

    type("Node", (Processor,), {"run": run, "__module__": "plugin", "__qualname__": "Node"})


def run_with_an_argument() -> None:
    async def run(self: Processor, rate: int) -> AsyncIterator[SayFrame]:
        yield SayFrame("")

    type("Node", (Processor,), {"run": run, "__module__": "plugin", "__qualname__": "Node"})


def instant_node_that_waits_for_an_acknowledgement() -> None:
    def process(self: Processor, frame: TextFrame) -> None: ...

    async def on_interrupt(self: Processor, interrupt: Interruption) -> None: ...

    make(process, on_interrupt=on_interrupt)


def start_that_cannot_wait() -> None:
    def process(self: Processor, frame: TextFrame) -> None: ...

    def start(self: Processor) -> None: ...

    make(process, start=start)


def stop_that_cannot_wait() -> None:
    def process(self: Processor, frame: TextFrame) -> None: ...

    def stop(self: Processor) -> None: ...

    make(process, stop=stop)


MISTAKES = {
    no_annotation: "plugin.Node.process: 'frame' has no annotation; write `frame: SomeFrame`, the type this node takes (a union for several)",
    no_return_annotation: "plugin.Node.process: has no return annotation; write what it yields, `-> OtherFrame`, or `-> None` for a sink",
    no_argument: "plugin.Node.process: takes 0 arguments; it takes one frame: `def process(self, frame: SomeFrame) -> OtherFrame`",
    two_arguments: "plugin.Node.process: takes 2 arguments; it takes one frame: `def process(self, frame: SomeFrame) -> OtherFrame`",
    not_a_frame_type: "plugin.Node.process: <class 'str'> is not a frame type; annotate with Frame types and unions of them",
    anything: "plugin.Node.process: typing.Any is not a frame type; annotate with Frame types and unions of them",
    yields_no_frame_type: "plugin.Node.process: <class 'str'> is not a frame type; annotate with Frame types and unions of them",
    yields_a_bare_list: "plugin.Node.process: <class 'list'> is not a frame type; annotate with Frame types and unions of them",
    takes_none: "plugin.Node.process: None is not a frame; leave it out of the frame's annotation",
    takes_a_list: "plugin.Node.process: list[voiceflow.frames.TextFrame] is not a frame type; annotate with Frame types and unions of them",
    undefined_name: (
        "plugin.Node.process: the annotation names 'TextFame', which is not defined here; "
        "import it (not under TYPE_CHECKING) or define it above the class"
    ),
    undefined_attribute: (
        "plugin.Node.process: the annotation cannot be read (AttributeError: module 'typing' has no attribute 'TextFame'); "
        "annotate with Frame types and unions of them"
    ),
    takes_an_interrupt: "plugin.Node.process: an InterruptFrame is never queued and reaches no process(); implement on_interrupt()",
    yields_a_start: "plugin.Node.process: StartFrame is the session's alone; yield another type",
    run_is_no_generator: (
        "plugin.Node.run: must be an async generator; write `async def run(self) -> AsyncIterator[SomeFrame]:` with a yield in it"
    ),
    run_without_annotation: "plugin.Node.run: has no return annotation; write `-> AsyncIterator[SomeFrame]`",
    run_with_an_argument: "plugin.Node.run: takes arguments ('rate'); it takes none: `async def run(self)`",
    instant_node_that_waits_for_an_acknowledgement: (
        "plugin.Node.on_interrupt: may wait for an acknowledgement only where process() is `async def`; write a plain `def on_interrupt`"
    ),
    start_that_cannot_wait: "plugin.Node.start: is not a coroutine; write `async def start(self) -> None`",
    stop_that_cannot_wait: "plugin.Node.stop: is not a coroutine; write `async def stop(self) -> None`",
}


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda f: f.__name__)
def test_a_mistake_is_named_with_its_place_and_its_cure(mistake: Callable[[], None]) -> None:
    """Making the class raises one error that says where, what, and what to write instead."""
    with pytest.raises(ContractError) as caught:
        mistake()
    assert str(caught.value) == MISTAKES[mistake]


def test_the_same_mistakes_in_a_function_are_named_alike() -> None:
    """A decorated function is told its own name."""
    with pytest.raises(ContractError, match=r"\.shout\.process: 'text' has no annotation; write `text: SomeFrame`"):

        @processor
        def shout(text) -> None: ...  # type: ignore[no-untyped-def]


def test_a_contract_error_is_a_type_error() -> None:
    """Tools that know nothing of voiceflow see an ordinary mistake in a class."""
    with pytest.raises(TypeError):
        two_arguments()


# ------------------------------------------------------------------------------------------------ the rest


def test_a_node_outside_a_session_says_when_there_is_one() -> None:
    """`self.session` in a constructor is a clear error."""

    class Early(Processor):
        def __init__(self) -> None:
            self.began = self.session.time()

        def process(self, frame: TextFrame) -> None: ...

    with pytest.raises(SessionError, match=r"Early is not in a running session yet; use self\.session from start\(\) on"):
        Early()


def test_a_node_is_shown_by_its_name() -> None:
    """The class name, unless it was given another."""

    class Tts(Processor):
        def process(self, frame: TextFrame) -> None: ...

    node = Tts()
    assert repr(node) == "<Tts>"
    node.name = "voice"
    assert repr(node) == "<voice>"


def test_start_stop_and_on_interrupt_are_optional() -> None:
    """A node without them starts, stops and is interrupted without a word."""

    class Node(Processor):
        def process(self, frame: ErrorFrame) -> None: ...

    assert inspect.iscoroutinefunction(Node.start)
    assert asyncio.run(Node().start()) is None  # type: ignore[func-returns-value]
    assert asyncio.run(Node().stop()) is None  # type: ignore[func-returns-value]
    assert Node().on_interrupt(Interruption("", 1, 0.0)) is None
