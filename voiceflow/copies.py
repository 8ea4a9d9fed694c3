"""Several processes of one program, kept running side by side: ``voiceflow serve --workers``.

Its one rule: none outlives the others' keeper. A copy that dies is started again, unless it never came to life; when the
keeper is told to stop, or is killed itself, all copies stop.

A copy is any program that writes the line ``ready`` when it is, ends on SIGTERM, and ends when its standard input does.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable, Sequence
from typing import Any

from voiceflow.errors import VoiceflowError
from voiceflow.tasks import whatever_happens

__all__ = ["READY", "Copies", "CopyError"]

log = logging.getLogger("voiceflow")

READY = b"ready\n"

AGAIN_S = 1.0
"""A copy that died is started again after this long: one that dies at once must not take the machine with it."""

PIPE_S = 1.0


class CopyError(VoiceflowError):
    """A copy did not come to life."""


class Copies:
    """Keeps ``count`` copies of a command. ``deadline_s``: how long a copy may take to end before it is killed."""

    def __init__(self, command: Sequence[str], count: int, deadline_s: float) -> None:
        self._command = tuple(command)
        self._count = count
        self._deadline_s = deadline_s
        self._running: dict[int, asyncio.subprocess.Process] = {}
        self._stopping = asyncio.Event()
        self._stopped_by = signal.SIGTERM

    @property
    def pids(self) -> list[int]:
        """Of the copies that run, in order."""
        return [process.pid for _, process in sorted(self._running.items())]

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """End all copies: this signal goes to each. Again: it goes to them again."""
        self._stopped_by = how
        self._stopping.set()
        for process in self._running.values():
            if process.returncode is None:
                process.send_signal(how)

    async def run(self, ready: Callable[[], object]) -> None:
        """Keep them until ``stop``. ``ready`` is called when all have come to life.

        Cancelling kills them. Raises CopyError, after ending the others, when one ends before it was ready.
        """
        alive = [asyncio.get_running_loop().create_future() for _ in range(self._count)]
        everyone = asyncio.create_task(_all_over(alive), name="copies")
        keepers = [asyncio.create_task(self._keep(i, alive[i]), name=f"copy {i + 1}") for i in range(self._count)]
        try:
            await asyncio.wait([everyone, *keepers], return_when=asyncio.FIRST_COMPLETED)
            if everyone.done() and not self._stopping.is_set():
                ready()
            await asyncio.wait(keepers, return_when=asyncio.FIRST_EXCEPTION)
            self.stop(self._stopped_by)
            await asyncio.wait(keepers)
        finally:
            everyone.cancel()
            for keeper in keepers:
                keeper.cancel()
            await whatever_happens(_all_over([everyone, *keepers]))
        for keeper in keepers:
            keeper.result()

    async def _keep(self, number: int, alive: asyncio.Future[None]) -> None:
        while not self._stopping.is_set():
            code = await self._run_one(number, alive)
            if self._stopping.is_set():
                return
            if not alive.done():
                raise CopyError(f"worker {number + 1} of {self._count} ended with {code} before it was ready; what it said is above")
            log.error("worker %d of %d ended with %s; it is started again", number + 1, self._count, code)
            try:
                async with asyncio.timeout(AGAIN_S):
                    await self._stopping.wait()
            except TimeoutError:
                continue

    async def _run_one(self, number: int, alive: asyncio.Future[None]) -> int:
        process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=asyncio.subprocess.PIPE,  # never written: its end says that the keeper is gone
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,  # Ctrl-C in a terminal goes to the keeper alone, which hands it on
        )
        self._running[number] = process
        if self._stopping.is_set():
            process.send_signal(self._stopped_by)
        listening = asyncio.create_task(_listen(process, alive))
        try:
            stopping, ended = asyncio.create_task(self._stopping.wait()), asyncio.create_task(process.wait())
            await asyncio.wait([ended, stopping], return_when=asyncio.FIRST_COMPLETED)
            stopping.cancel()
            await asyncio.wait([ended], timeout=self._deadline_s)
            if not ended.done():
                log.error("worker %d of %d did not end within %g s and is killed", number + 1, self._count, self._deadline_s)
        finally:
            if process.returncode is None:
                process.kill()
            await whatever_happens(_close(process, listening))
            del self._running[number]
        return process.returncode or 0


async def _all_over(futures: Sequence[asyncio.Future[Any]]) -> None:
    await asyncio.wait(futures)


async def _close(process: asyncio.subprocess.Process, listening: asyncio.Task[None]) -> None:
    await process.wait()
    assert process.stdin is not None
    process.stdin.close()
    await asyncio.wait([listening], timeout=PIPE_S)  # a process of the copy's own may hold the pipe open
    listening.cancel()


async def _listen(process: asyncio.subprocess.Process, alive: asyncio.Future[None]) -> None:
    assert process.stdout is not None
    async for line in process.stdout:
        if line == READY and not alive.done():
            alive.set_result(None)
