"""Real sockets on a virtual clock: server and client live in one loop, and time stands still while bytes are on their way."""

from __future__ import annotations

import functools
import selectors
from collections.abc import Callable, Coroutine
from typing import Any

from voiceflow.testing import VirtualClockLoop, no_leaks, run_virtual

GRACE_S = 0.004
"""Real seconds without a byte after which the clock may jump. On the loopback a byte takes microseconds."""


class SocketLoop(VirtualClockLoop):
    """A virtual clock that looks at the sockets once more before it jumps."""

    def __init__(self) -> None:
        super().__init__()
        self.waits_for_io = True
        selector: Any = self._selector  # type: ignore[attr-defined]  # asyncio's own
        jump = selector.select

        def select(timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
            if timeout is None or timeout > 0:
                ready = selectors.DefaultSelector.select(selector, GRACE_S)
                if ready:
                    return ready
            found: list[tuple[selectors.SelectorKey, int]] = jump(timeout)
            return found

        selector.select = select


def over_sockets(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Make an ``async def`` test run on such a clock, in debug mode; it may leave nothing behind."""

    @functools.wraps(test)
    def run(*arguments: Any, **named: Any) -> None:
        loop = SocketLoop()
        loop.set_debug(True)

        async def main() -> None:
            async with no_leaks():
                await test(*arguments, **named)
                await loop.shutdown_default_executor()  # some vendors' clients look at the machine in a thread of it

        run_virtual(main(), loop=loop)

    return run
