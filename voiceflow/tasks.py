"""The tasks of one session. The one rule: each is owned, named, and gone (or named in an error) at the end.

Not ``asyncio.TaskGroup``: a group waits for ever for a task that swallows its cancellation, and a session has to return.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

__all__ = ["RESOLUTION_S", "Tasks", "unless", "whatever_happens", "woken"]

T = TypeVar("T")

INSIST_S = 0.05
"""How long a cancelled task may take before it is cancelled again."""

RESOLUTION_S = 1e-6
"""A deadline nearer than this has come: rounding must not make an endless row of waits that are too short for the clock."""


class Tasks:
    """`on_error` is given the task's name and exception when one fails by itself."""

    def __init__(self, on_error: Callable[[str, BaseException], None]) -> None:
        self._on_error = on_error
        self._tasks: set[asyncio.Task[Any]] = set()
        self.in_hand: set[asyncio.Task[Any]] = set()
        """Those that the end waits for."""

    def __len__(self) -> int:
        return len(self._tasks)

    def spawn(self, coroutine: Coroutine[Any, Any, Any], name: str, *, in_hand: bool = False) -> asyncio.Task[Any]:
        """Start a task that this session owns."""
        task = asyncio.get_running_loop().create_task(coroutine, name=name)
        self._tasks.add(task)
        if in_hand:
            self.in_hand.add(task)
        task.add_done_callback(self._done)
        return task

    async def cancel(self, timeout_s: float) -> list[str]:
        """Cancel all and wait; the names of those that did not end in time. They are let go and not waited for again."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        me = asyncio.current_task()
        while waiting := {task for task in self._tasks if task is not me}:
            for task in waiting:
                task.cancel()
            left_s = deadline - loop.time()
            if left_s < RESOLUTION_S:
                self._tasks.clear()
                return sorted(task.get_name() for task in waiting)
            await asyncio.wait(waiting, timeout=min(INSIST_S, left_s))
        return []

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        self.in_hand.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._on_error(task.get_name(), error)


async def woken(event: asyncio.Event, deadline: float | None) -> None:
    """Wait until ``event`` is set or the loop's clock has come to ``deadline`` (None: never); it is clear afterwards."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout_at(deadline):
            await event.wait()
    event.clear()


async def unless(told: asyncio.Future[Any], work: Coroutine[Any, Any, None], name: str) -> None:
    """Do the work to its end, unless ``told`` is done before: then it is cancelled. Raises what the work raises."""
    task = asyncio.get_running_loop().create_task(work, name=name)
    try:
        await asyncio.wait([task, told], return_when=asyncio.FIRST_COMPLETED)
    finally:
        task.cancel()
        await asyncio.wait([task])
    if not task.cancelled():
        task.result()


async def whatever_happens(work: Coroutine[Any, Any, T]) -> T:
    """Await to the end, even when cancelled meanwhile; the cancellation is raised afterwards. The work's result."""
    task = asyncio.get_running_loop().create_task(work, name="to the end")
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
    result = task.result()
    if cancelled is not None:
        raise cancelled
    return result
