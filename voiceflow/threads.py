"""The threads of one session, for model inference and the like.

The one rule: threads cannot be cancelled, so they are waited for at the end, and whoever is still in one is named.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Thread
from time import perf_counter
from typing import Any, TypeVar

from voiceflow.errors import NodeError, SessionError

__all__ = ["Threads"]

T = TypeVar("T")


class Threads:
    """At most ``count`` threads, made when they are first needed."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._pool: ThreadPoolExecutor | None = None
        self._at_work: list[str] = []  # a node's name for each thread it keeps busy; written in the threads themselves
        self._is_closed = False

    async def run(self, name: str, function: Callable[..., T], arguments: tuple[Any, ...]) -> T:
        """``function(*arguments)`` in a thread, for the node of that name. Cancelling drops the result."""
        if self._is_closed:
            raise SessionError(f"the session is ended: {name} can start no thread now")
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._count, thread_name_prefix="voiceflow")

        def work() -> T:
            self._at_work.append(name)
            try:
                return function(*arguments)
            finally:
                self._at_work.remove(name)

        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    async def close(self, timeout_s: float) -> list[NodeError]:
        """Wait for all threads to end; those that do not are named and left."""
        self._is_closed = True
        if self._pool is None:
            return []
        self._pool.shutdown(wait=False, cancel_futures=True)
        threads = list(self._pool._threads)
        if self._at_work:
            # In a thread too: so the deadline is one of real time, in which threads live, whatever clock the loop has.
            with ThreadPoolExecutor(1, thread_name_prefix="voiceflow-join") as joiner:
                await asyncio.get_running_loop().run_in_executor(joiner, _join, threads, timeout_s)
        else:
            _join(threads, timeout_s)  # they have nothing to do, and are as good as gone
        if not any(thread.is_alive() for thread in threads):
            return []
        what = f"of its run_blocking() threads were still at work {timeout_s:g} s after the end of the session"
        return [NodeError(name, f"{count} {what}") for name, count in sorted(Counter(self._at_work).items())]


def _join(threads: Sequence[Thread], timeout_s: float) -> None:
    deadline = perf_counter() + timeout_s
    for thread in threads:
        thread.join(max(0.0, deadline - perf_counter()))
