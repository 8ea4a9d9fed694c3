"""Nothing is left behind: tasks, threads and file descriptors, before and after."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import threading
from collections.abc import AsyncIterator

__all__ = ["no_leaks"]


def _descriptors() -> dict[str, str]:
    folder = "/proc/self/fd"
    if not os.path.isdir(folder):
        return {}  # not Linux: tasks and threads are still checked
    found = {}
    for number in os.listdir(folder):
        with contextlib.suppress(FileNotFoundError):  # the descriptor of the listing itself
            found[number] = os.readlink(f"{folder}/{number}")
    return found


@contextlib.asynccontextmanager
async def no_leaks(*, threads: bool = True, descriptors: bool = True) -> AsyncIterator[None]:
    """Fail with the names of the tasks, threads and descriptors that the block made and did not end.

    Use it around whole sessions. Raises AssertionError.
    """
    tasks_before = asyncio.all_tasks()
    threads_before = set(threading.enumerate())
    descriptors_before = set(_descriptors().items())
    yield
    await asyncio.sleep(0)  # let done tasks be forgotten

    def left_behind() -> list[str]:
        left = [f"task {task.get_name()!r}" for task in asyncio.all_tasks() - tasks_before]
        if threads:
            left += [f"thread {thread.name!r}" for thread in set(threading.enumerate()) - threads_before]
        if descriptors:
            opened = set(_descriptors().items()) - descriptors_before
            left += [f"descriptor {number} ({what})" for number, what in opened if "pipe" in what or "socket" in what]
        return left

    if left_behind():
        gc.collect()  # what only a cycle of references keeps is no leak; collecting each time would cost more than most tests
        if left := left_behind():
            raise AssertionError(f"left behind: {', '.join(sorted(left))}")
