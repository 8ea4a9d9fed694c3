"""The tasks of a session: owned, named, and gone or named at the end."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from voiceflow.tasks import INSIST_S, Tasks, unless


def make() -> tuple[Tasks, list[tuple[str, BaseException]]]:
    errors: list[tuple[str, BaseException]] = []
    return Tasks(lambda name, error: errors.append((name, error))), errors


async def test_a_task_is_owned_until_it_is_done() -> None:
    """It has its name, gives its result, and is forgotten when it ends."""
    tasks, errors = make()

    async def work() -> int:
        await asyncio.sleep(1)
        return 3

    task = tasks.spawn(work(), "node/work")
    assert (task.get_name(), len(tasks)) == ("node/work", 1)
    assert await task == 3
    await asyncio.sleep(0)
    assert (len(tasks), errors) == (0, [])


async def test_a_failure_is_reported_with_the_tasks_name() -> None:
    """Once, with the exception itself."""
    tasks, errors = make()

    async def fail() -> None:
        raise ValueError("no")

    task = tasks.spawn(fail(), "node/work")
    await asyncio.wait([task])
    await asyncio.sleep(0)
    assert [(name, repr(error)) for name, error in errors] == [("node/work", "ValueError('no')")]


async def test_cancel_ends_all_and_names_none() -> None:
    """Well-behaved tasks end at once, their cleanup done."""
    tasks, errors = make()
    cleaned: list[int] = []

    async def work(number: int) -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            await asyncio.sleep(0.01)
            cleaned.append(number)

    for number in range(3):
        tasks.spawn(work(number), f"node/{number}")
    await asyncio.sleep(0)
    assert await tasks.cancel(1.0) == []
    assert (sorted(cleaned), len(tasks), errors) == ([0, 1, 2], 0, [])


async def test_a_task_that_swallows_one_cancellation_is_cancelled_again() -> None:
    """A client library that catches everything once gets a second chance well before the deadline."""
    tasks, _ = make()

    async def stubborn() -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(3600)
        await asyncio.sleep(3600)

    tasks.spawn(stubborn(), "node/stubborn")
    await asyncio.sleep(0)
    began = asyncio.get_running_loop().time()
    assert await tasks.cancel(5.0) == []
    assert asyncio.get_running_loop().time() - began == pytest.approx(INSIST_S)


async def test_a_task_that_never_ends_is_named_and_let_go() -> None:
    """The deadline holds whatever the task does."""
    tasks, _ = make()
    release = asyncio.Event()

    async def immortal() -> None:
        while not release.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await release.wait()

    kept = [tasks.spawn(immortal(), f"node/{name}") for name in ("b", "a")]
    await asyncio.sleep(0)
    began = asyncio.get_running_loop().time()
    assert await tasks.cancel(1.0) == ["node/a", "node/b"]
    assert asyncio.get_running_loop().time() - began == pytest.approx(1.0)
    assert await tasks.cancel(1.0) == []
    release.set()
    await asyncio.wait(kept)


async def test_tasks_made_while_cancelling_are_cancelled_too() -> None:
    """A cleanup that spawns leaves nothing behind."""
    tasks, _ = make()

    async def parent() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            tasks.spawn(asyncio.sleep(3600), "node/late")

    tasks.spawn(parent(), "node/parent")
    await asyncio.sleep(0)
    assert await tasks.cancel(1.0) == []
    assert len(tasks) == 0


async def test_whoever_cancels_is_not_cancelled() -> None:
    """An owned task may end all the others."""
    tasks, _ = make()
    other = tasks.spawn(asyncio.sleep(3600), "node/other")

    async def closing() -> list[str]:
        return await tasks.cancel(1.0)

    assert await tasks.spawn(closing(), "close") == []
    assert other.cancelled()


async def test_a_raise_in_a_cleanup_is_reported() -> None:
    """Being cancelled hides no error."""
    tasks, errors = make()

    async def work() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            raise ValueError("in the cleanup")

    tasks.spawn(work(), "node/work")
    await asyncio.sleep(0)
    assert await tasks.cancel(1.0) == []
    assert [name for name, _ in errors] == ["node/work"]


async def test_work_is_done_unless_it_is_told_to_stop() -> None:
    """To its end; or it is cancelled, and its cleanup waited for; an error of its own is raised either way."""
    loop = asyncio.get_running_loop()
    done: list[str] = []

    async def work(seconds: float, error: Exception | None = None) -> None:
        try:
            await asyncio.sleep(seconds)
            done.append("work")
        finally:
            await asyncio.sleep(1)
            done.append("cleanup")
            if error is not None:
                raise error

    await unless(loop.create_future(), work(1), "work")
    assert done == ["work", "cleanup"]
    for told_after_s, name in ((3600, "before"), (1, "in the cleanup")):
        told = loop.create_future()
        timer = loop.call_later(told_after_s, told.set_result, None)
        with pytest.raises(ValueError, match=name):
            await unless(told, work(60, ValueError(name)), "work")
        timer.cancel()
    done.clear()
    told = loop.create_future()
    loop.call_later(1, told.set_result, None)
    await unless(told, work(3600), "work")
    assert (done, loop.time()) == (["cleanup"], pytest.approx(2 + 61 + 2 + 2))
