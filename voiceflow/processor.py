"""What a plugin author writes: a class with one method, ``process``, whose annotations are its contract.

    class Shout(Processor):
        def process(self, frame: SentenceFrame) -> SentenceFrame:
            return replace(frame, text=frame.text.upper())

* ``def process`` is instant: it runs inside the caller's own step. It returns a frame, a list of frames or None,
  or is a generator.
* ``async def process`` takes time: the node gets a worker task and a bounded inbox for each lane. It is a
  coroutine or an async generator. Back-pressure is that the generator is not resumed. An interrupt cancels it
  (Python's cancellation) when it works on an agent-lane frame, or when all it can yield is the agent's.
* The type of ``frame`` is what the node takes (a union for several); the return annotation is what it yields.
  Taking is consuming: a node that wants others to see the frame too yields it again. Every other type passes by.
* ``async def run(self)`` is an optional async generator for a node that speaks by itself: a microphone, a timer.

Trap: a ``yield`` is suspended while its frame is delivered, so never put one inside a task group or a timeout
block; keep the scope around the awaits.
"""

from __future__ import annotations

import collections.abc
import inspect
import sys
import types
import typing
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from voiceflow.errors import ContractError, SessionError
from voiceflow.frames import AudioFormat, Frame, InterruptFrame, Lane, StartFrame
from voiceflow.pipeline import Pipeline

if typing.TYPE_CHECKING:
    from voiceflow.interruption import Interruption
    from voiceflow.session import Session

__all__ = ["Contract", "Processor", "processor"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Contract:
    """What a node takes and yields, and how it works."""

    accepts: frozenset[type[Frame]] = frozenset()
    yields: frozenset[type[Frame]] = frozenset()
    process_yields: frozenset[type[Frame]] = frozenset()
    run_yields: frozenset[type[Frame]] = frozenset()
    waits: bool = False
    """``process`` is ``async def``."""
    streams: bool = False
    """``process`` is an async generator."""
    runs: bool = False
    """There is a ``run``."""

    def takes(self, frame_type: type[Frame]) -> bool:
        """Whether frames of this type are for the node."""
        return issubclass(frame_type, tuple(self.accepts))

    @property
    def replies(self) -> bool:
        """All that ``process`` yields is the agent's: its work is a reply, and an interrupt ends it."""
        return bool(self.process_yields) and all(t.lane is Lane.AGENT for t in self.process_yields)


class Processor:
    """A node of a pipeline. See the module's text for the contract."""

    contract: ClassVar[Contract] = Contract()

    takes: Sequence[AudioFormat] = ()
    """Audio formats this node can take, best first. Empty: any. The pipeline converts where it must."""
    makes: AudioFormat | None = None
    """Audio format of what this node makes. None: as it comes in, or unknown before it runs."""
    holds_ms: float = 0.0
    """Delay this node adds to what passes through it, by design. ``print(pipeline)`` adds these up."""

    name: str = ""
    """Unique in its pipeline; the class name (with ``#2`` and so on) unless set."""

    process: Callable[..., Any]
    run: Callable[[], AsyncIterator[Any]]

    _session: Session | None = None

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        cls.contract = _read_contract(cls, _scope_of_the_class())

    async def start(self) -> None:
        """Open what the node needs. Called once, before any frame; a raise here ends the session."""

    async def stop(self) -> None:
        """Close it again. Called once if ``start`` was entered, within the session's deadline."""

    def on_interrupt(self, interrupt: Interruption) -> Awaitable[object] | None:
        """Forget half-built output, at once, without waiting.

        A node with an ``async def process`` may return an awaitable: the far side's acknowledgement. Until it is
        done (or the session's deadline has passed) the node is given no new agent-lane frame.
        """
        return None

    @property
    def session(self) -> Session:
        """The running session this node belongs to: its clock, ``interrupt``, ``spawn``, ``settings``."""
        if self._session is None:
            raise SessionError(f"{self.name or type(self).__name__} is not in a running session yet; use self.session from start() on")
        return self._session

    async def run_blocking(self, function: Callable[..., T], *arguments: Any) -> T:
        """Run ``function(*arguments)`` in a thread of the session, for model inference and the like.

        When the work is cancelled the thread runs on to its end and its result is dropped.
        """
        return await self.session._run_blocking(self.name, function, arguments)

    def __rshift__(self, other: Processor | Pipeline | Sequence[Processor | Pipeline]) -> Pipeline:
        return Pipeline(self) >> other

    def __rrshift__(self, other: Sequence[Processor | Pipeline]) -> Pipeline:
        return Pipeline(other) >> self

    def __repr__(self) -> str:
        return f"<{self.name or type(self).__name__}>"


def processor(function: Callable[..., Any]) -> type[Processor]:
    """Make a processor class of a function of one frame, plain or async, with the same contract as ``process``.

    ``@processor`` above ``def shout(frame: SentenceFrame) -> SentenceFrame`` gives a class: use ``shout()``.
    """
    if isinstance(function, type) or not callable(function):
        raise ContractError(f"@processor goes above a function, not above {function!r}; a class subclasses Processor")
    namespace = {"process": staticmethod(function), "__module__": function.__module__, "__doc__": function.__doc__}
    return types.new_class(function.__name__, (Processor,), exec_body=lambda body: body.update(namespace))


# ------------------------------------------------------------------------------------- reading annotations


@dataclass(slots=True)
class _Reader:
    """Reads one class. ``scope``: the locals of the place where the class is made, for types defined there."""

    cls: type[Processor]
    scope: dict[str, Any]

    def fail(self, where: str, what: str, cure: str) -> ContractError:
        return ContractError(f"{self.cls.__module__}.{self.cls.__qualname__}.{where}: {what}; {cure}")

    def read_hints(self, function: Any, where: str) -> dict[str, Any]:
        scope = dict(self.scope)
        scope.setdefault(self.cls.__name__, self.cls)
        try:
            return typing.get_type_hints(function, localns=scope)
        except NameError as error:
            raise self.fail(
                where,
                f"the annotation names {error.name!r}, which is not defined here",
                "import it (not under TYPE_CHECKING) or define it above the class",
            ) from error
        except Exception as error:
            what = f"the annotation cannot be read ({type(error).__name__}: {error})"
            raise self.fail(where, what, "annotate with Frame types and unions of them") from error

    def frame_types(self, hint: Any, where: str, *, output: bool) -> frozenset[type[Frame]]:
        """The frame types in an annotation, unions and containers opened."""
        found: set[type[Frame]] = set()
        pending = [hint]
        while pending:
            item = pending.pop()
            origin = typing.get_origin(item)
            if item is None or item is type(None):
                if not output:
                    raise self.fail(where, "None is not a frame", "leave it out of the frame's annotation")
            elif origin is typing.Union or origin is types.UnionType:
                pending.extend(typing.get_args(item))
            elif output and origin in _CONTAINERS:
                pending.extend(a for a in typing.get_args(item)[: _CONTAINERS[origin]] if a is not Ellipsis)
            elif isinstance(item, type) and issubclass(item, Frame):
                found.add(item)
            else:
                raise self.fail(where, f"{item!r} is not a frame type", "annotate with Frame types and unions of them")
        if not output and InterruptFrame in found:
            raise self.fail(where, "an InterruptFrame is never queued and reaches no process()", "implement on_interrupt()")
        if output and StartFrame in found:
            raise self.fail(where, "StartFrame is the session's alone", "yield another type")
        return frozenset(found)


_CONTAINERS: dict[Any, int] = {
    list: 1,
    tuple: 99,
    collections.abc.Sequence: 1,
    collections.abc.Iterable: 1,
    collections.abc.Iterator: 1,
    collections.abc.Generator: 1,
    collections.abc.AsyncIterable: 1,
    collections.abc.AsyncIterator: 1,
    collections.abc.AsyncGenerator: 1,
}


def _scope_of_the_class() -> dict[str, Any]:
    """The locals of the place where a class is being made: whoever only helps to make it is passed over."""
    frame = sys._getframe(2)
    while frame.f_back is not None and (
        frame.f_code.co_name in ("__init_subclass__", "__new__") or frame.f_globals.get("__name__") in ("types", "dataclasses", __name__)
    ):
        frame = frame.f_back
    return frame.f_locals


def _read_contract(cls: type[Processor], scope: dict[str, Any]) -> Contract:
    """The contract, of what the class itself says and what its parents, each in its own place, said."""
    reader = _Reader(cls, scope)
    parent = _parent_with(cls, "process")
    if parent is not None:
        told = parent.contract
        accepts, process_yields, waits, streams = told.accepts, told.process_yields, told.waits, told.streams
    else:
        accepts, process_yields, waits, streams = _read_process(reader)
    parent = _parent_with(cls, "run")
    run_yields = parent.contract.run_yields if parent is not None else _read_run(reader)
    runs = inspect.getattr_static(cls, "run", None) is not None
    if inspect.iscoroutinefunction(cls.on_interrupt) and not waits:
        raise reader.fail(
            "on_interrupt", "may wait for an acknowledgement only where process() is `async def`", "write a plain `def on_interrupt`"
        )
    for method in (cls.start, cls.stop):
        if not inspect.iscoroutinefunction(method):
            raise reader.fail(method.__name__, "is not a coroutine", f"write `async def {method.__name__}(self) -> None`")
    return Contract(accepts, process_yields | run_yields, process_yields, run_yields, waits, streams, runs)


def _parent_with(cls: type[Processor], method: str) -> type[Processor] | None:
    """The processor that `cls` has the method from, if it is not its own."""
    owner = next((c for c in cls.__mro__ if method in c.__dict__), cls)
    return owner if owner is not cls and issubclass(owner, Processor) else None


def _read_run(reader: _Reader) -> frozenset[type[Frame]]:
    run = inspect.getattr_static(reader.cls, "run", None)
    if run is None:
        return frozenset()
    if not inspect.isasyncgenfunction(run):
        raise reader.fail(
            "run", "must be an async generator", "write `async def run(self) -> AsyncIterator[SomeFrame]:` with a yield in it"
        )
    arguments = list(inspect.signature(run).parameters)[1:]
    if arguments:
        raise reader.fail("run", f"takes arguments ({', '.join(map(repr, arguments))})", "it takes none: `async def run(self)`")
    hints = reader.read_hints(run, "run")
    if "return" not in hints:
        raise reader.fail("run", "has no return annotation", "write `-> AsyncIterator[SomeFrame]`")
    return reader.frame_types(hints["return"], "run", output=True)


def _read_process(reader: _Reader) -> tuple[frozenset[type[Frame]], frozenset[type[Frame]], bool, bool]:
    """What ``process`` accepts and yields, whether it waits, whether it streams."""
    process = inspect.getattr_static(reader.cls, "process", None)
    if process is None:
        return frozenset(), frozenset(), False, False
    function = process.__func__ if isinstance(process, staticmethod | classmethod) else process
    parameters = list(inspect.signature(function).parameters.values())[0 if isinstance(process, staticmethod) else 1 :]
    if len(parameters) != 1:
        raise reader.fail(
            "process", f"takes {len(parameters)} arguments", "it takes one frame: `def process(self, frame: SomeFrame) -> OtherFrame`"
        )
    hints = reader.read_hints(function, "process")
    parameter = parameters[0].name
    if parameter not in hints:
        raise reader.fail(
            "process", f"{parameter!r} has no annotation", f"write `{parameter}: SomeFrame`, the type this node takes (a union for several)"
        )
    if "return" not in hints:
        raise reader.fail("process", "has no return annotation", "write what it yields, `-> OtherFrame`, or `-> None` for a sink")
    accepts = reader.frame_types(hints[parameter], "process", output=False)
    yields = reader.frame_types(hints["return"], "process", output=True)
    streams = inspect.isasyncgenfunction(function)
    return accepts, yields, streams or inspect.iscoroutinefunction(function), streams
