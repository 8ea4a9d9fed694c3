"""A clock that jumps: when every task waits, the time of the next timer is now.

A call of a minute runs in milliseconds, the same way every time. Work in threads (``run_blocking``) is waited for in
real time, during which the virtual clock stands still.
"""

from __future__ import annotations

import asyncio
import contextvars
import selectors
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from typing import Any, TypeVar, TypeVarTuple

__all__ = ["DeadlockError", "VirtualClockLoop", "run_virtual"]

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

PATIENCE_S = 30.0
"""Real seconds that a thread or a socket may keep a virtual loop waiting when nothing else is left to do."""


class DeadlockError(RuntimeError):
    """Every task waits for something, and nothing is left that could happen."""


class _JumpingSelector(selectors.DefaultSelector):
    """Instead of sleeping until the next timer, moves the loop's clock there."""

    loop: VirtualClockLoop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready: list[tuple[selectors.SelectorKey, int]] = super().select(0)
        if ready or (timeout is not None and timeout <= 0):
            return ready
        if self.loop.threads_at_work:
            return super().select(PATIENCE_S)
        if timeout is None:
            ready = super().select(PATIENCE_S if self.loop.waits_for_io else 0)
            if not ready:
                raise DeadlockError("every task waits and no timer is set: nothing can happen any more")
            return ready
        self.loop.now += timeout
        return ready


class VirtualClockLoop(asyncio.SelectorEventLoop):
    """An event loop on virtual time. ``steps`` counts the callbacks run, which are the points where the program can wait.

    ``waits_for_io``: set it when a real socket is part of the test, so that silence on it is not taken for a deadlock.
    """

    def __init__(self) -> None:
        selector = _JumpingSelector()
        selector.loop = self
        self.now = 0.0
        self.steps = 0
        self.threads_at_work = 0
        self.waits_for_io = False
        self.before_step: Callable[[int], None] | None = None
        """Called with the step's number before each callback: the hook of ``interrupt_everywhere``."""
        super().__init__(selector)

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self.now

    def call_soon(self, callback: Callable[[*Ts], object], *args: *Ts, context: contextvars.Context | None = None) -> asyncio.Handle:
        """As in asyncio; each callback is one step."""

        def step() -> None:
            self.steps += 1
            if self.before_step is not None:
                self.before_step(self.steps)
            callback(*args)

        return super().call_soon(step, context=context)

    def run_in_executor(self, executor: Executor | None, func: Callable[[*Ts], T], *args: *Ts) -> asyncio.Future[T]:
        """As in asyncio; the clock stands still until the thread is done."""
        self.threads_at_work += 1
        future = super().run_in_executor(executor, func, *args)
        future.add_done_callback(self._thread_done)
        return future

    def _thread_done(self, _: object) -> None:
        self.threads_at_work -= 1


def run_virtual(main: Coroutine[Any, Any, T], *, loop: VirtualClockLoop | None = None) -> T:
    """Like ``asyncio.run``, on a virtual clock that starts at 0. Raises DeadlockError where a real loop would hang."""
    with asyncio.Runner(loop_factory=lambda: loop or VirtualClockLoop()) as runner:
        return runner.run(main)
