"""Blocking work of a session in threads: dropped when cancelled, waited for at the end, named if it stays."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from voiceflow import Pipeline, Processor, SayFrame, Session, SessionError, SessionOptions, TextFrame, TranscriptFrame
from voiceflow.testing import no_leaks


class Model(Processor):
    """Works in a thread until it is released."""

    def __init__(self, work: Callable[[str], str] = str.upper) -> None:
        self.work = work
        self.done: list[str] = []
        self.errors: list[str] = []

    async def process(self, frame: SayFrame | TranscriptFrame) -> None:
        try:
            self.done.append(await self.run_blocking(self.work, frame.text))
        except ValueError as error:
            self.errors.append(str(error))


async def test_the_result_comes_back_from_a_thread() -> None:
    """The loop stays free, the thread has the session's name, and is gone with it."""
    names: list[str] = []

    def work(text: str) -> str:
        names.append(threading.current_thread().name)
        return text.upper()

    model = Model(work)
    async with Session(Pipeline(model), inputs=[SayFrame]) as session:
        session.send_nowait(SayFrame("a"))
    assert model.done == ["A"]
    assert names[0].startswith("voiceflow")
    assert not [t for t in threading.enumerate() if t.name.startswith("voiceflow")]


async def test_a_raise_comes_back_too() -> None:
    """As if it had been called here."""

    def work(text: str) -> str:
        raise ValueError(text)

    model = Model(work)
    async with Session(Pipeline(model), inputs=[SayFrame]) as session:
        session.send_nowait(SayFrame("a"))
    assert model.errors == ["a"]


async def test_after_an_interrupt_the_result_is_dropped_and_the_callers_is_not() -> None:
    """The thread runs on to its end; nobody gets what the agent asked for, the caller's frame is answered."""
    entered, release = threading.Barrier(3), threading.Event()

    def work(text: str) -> str:
        entered.wait(timeout=10)
        release.wait(timeout=10)
        return text

    model = Model(work)
    async with Session(Pipeline(model), inputs=[SayFrame, TranscriptFrame]) as session:
        session.send_nowait(SayFrame("agent"))
        session.send_nowait(TranscriptFrame("caller"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        entered.wait(timeout=10)
        session.interrupt()
        release.set()
    assert model.done == ["caller"]
    assert session.refused == 0


async def test_what_is_queued_for_a_thread_is_not_begun_when_it_is_cancelled() -> None:
    """An interrupt spares the model the work that nobody wants."""
    entered, release = threading.Event(), threading.Event()
    begun: list[str] = []

    def work(text: str) -> str:
        begun.append(text)
        entered.set()
        release.wait(timeout=10)
        return text

    first, second = Model(work), Model(work)
    async with Session(Pipeline([first, second]), inputs=[SayFrame], options=SessionOptions(threads=1)) as session:
        session.send_nowait(SayFrame("a"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        entered.wait(timeout=10)
        session.interrupt()
        await asyncio.sleep(0)
        release.set()
    assert begun == ["a"]


async def test_stop_may_still_use_a_thread() -> None:
    """To close a model, say."""

    class Closes(Processor):
        closed = ""

        def process(self, frame: TextFrame) -> None: ...

        async def stop(self) -> None:
            self.closed = await self.run_blocking(str.upper, "closed")

    node = Closes()
    async with Session(Pipeline(node), inputs=[TextFrame]):
        pass
    assert node.closed == "CLOSED"
    with pytest.raises(SessionError, match="the session is ended: Closes can start no thread now"):
        await node.run_blocking(str.upper, "late")


def test_a_thread_that_stays_is_named() -> None:
    """On a real clock, as threads live in real time: the deadline holds, the node and the number of threads are told."""
    release = threading.Event()

    def work(text: str) -> str:
        release.wait(timeout=30)
        return text

    async def main() -> None:
        session = Session(Pipeline(Model(work)), inputs=[SayFrame], options=SessionOptions(stop_timeout_s=0.05))
        with pytest.raises(ExceptionGroup) as caught:  # noqa: PT012 - the block is the call
            async with session:
                session.send_nowait(SayFrame("a"))
                await asyncio.sleep(0)
                await asyncio.sleep(0)
                session.cancel()
        assert [str(e) for e in caught.value.exceptions] == [
            "Model: 1 of its run_blocking() threads were still at work 0.05 s after the end of the session"
        ]
        release.set()

    asyncio.run(main())


def test_a_session_without_blocking_work_makes_no_thread() -> None:
    """A pool costs nothing until it is used."""

    async def main() -> None:
        before = set(threading.enumerate())
        async with no_leaks(), Session(Pipeline(Model()), inputs=[SayFrame]):
            assert set(threading.enumerate()) == before

    asyncio.run(main())


async def test_nothing_of_a_past_session_is_kept_alive() -> None:
    """Sessions, nodes and frames can be collected: no list grows, no registry remembers."""
    kept: list[weakref.ref[Any]] = []
    for _ in range(3):
        model = Model()
        session = Session(Pipeline(model), inputs=[SayFrame])
        async with session:
            session.send_nowait(SayFrame("a"))
            session.interrupt()
        kept += [weakref.ref(session), weakref.ref(model)]
        del model, session
    await asyncio.sleep(5)
    gc.collect()
    assert [ref() for ref in kept] == [None] * 6
