"""Copies of a program, kept side by side: real processes, real signals."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from voiceflow.copies import Copies, CopyError

GOOD = """
import signal, sys, os
print("warming up", flush=True)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
open(sys.argv[1], "a").write(f"{os.getpid()}\\n")
print("ready", flush=True)
sys.stdin.read()
open(sys.argv[1], "a").write("alone\\n")
"""
DEAF = GOOD.replace("lambda *_: sys.exit(0)", "signal.SIG_IGN").replace("sys.stdin.read()", "signal.pause()")
DEADLINE_S = 20


def command(script: str, *arguments: object) -> list[str]:
    return [sys.executable, "-c", script, *map(str, arguments)]


def started(book: Path) -> list[int]:
    return [int(line) for line in book.read_text().split() if line != "alone"] if book.exists() else []


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_all_come_to_life_and_end_when_told(tmp_path: Path) -> None:
    """``ready`` is called once, when each has said that it is; after ``stop`` none is left."""
    book, said = tmp_path / "book", []

    async def main() -> None:
        copies = Copies(command(GOOD, book), 3, DEADLINE_S)

        def ready() -> None:
            said.append(sorted(copies.pids))
            copies.stop()

        async with asyncio.timeout(DEADLINE_S):
            await copies.run(ready)
        assert copies.pids == []

    asyncio.run(main())
    assert said == [sorted(started(book))]
    assert len(said[0]) == 3
    assert not any(map(is_alive, said[0]))


def test_one_that_dies_is_started_again(tmp_path: Path) -> None:
    """The others go on meanwhile."""
    book = tmp_path / "book"

    async def main() -> None:
        copies, again = Copies(command(GOOD, book), 2, DEADLINE_S), asyncio.Event()

        async def kill_one() -> None:
            first = copies.pids
            os.kill(first[0], signal.SIGKILL)
            try:
                async with asyncio.timeout(DEADLINE_S):
                    while len(started(book)) < 3 or first[0] in copies.pids or len(copies.pids) < 2:
                        await asyncio.sleep(0.02)
                assert first[1] in copies.pids
                again.set()
            finally:
                copies.stop()

        tasks: list[asyncio.Task[None]] = []
        await copies.run(lambda: tasks.append(asyncio.create_task(kill_one())))
        await tasks[0]
        assert again.is_set()

    asyncio.run(main())
    assert not any(map(is_alive, started(book)))


def test_one_that_never_comes_to_life_ends_all(tmp_path: Path) -> None:
    """The error says which and how it ended; nobody is told that all is ready."""
    book = tmp_path / "book"
    script = f"""
import os, sys
try:
    os.close(os.open(sys.argv[1] + ".first", os.O_CREAT | os.O_EXCL))
except FileExistsError:
    exec({GOOD!r})
else:
    sys.exit(3)
"""

    async def main() -> None:
        copies = Copies(command(script, book), 2, DEADLINE_S)
        async with asyncio.timeout(DEADLINE_S):
            with pytest.raises(CopyError, match=r"worker [12] of 2 ended with 3 before it was ready"):
                await copies.run(lambda: pytest.fail("not all are"))

    asyncio.run(main())
    assert not any(map(is_alive, started(book)))


def test_one_that_does_not_hear_is_killed(tmp_path: Path) -> None:
    """After the deadline, so that the keeper always returns."""
    book = tmp_path / "book"

    async def main() -> None:
        copies = Copies(command(DEAF, book), 1, 0.2)
        async with asyncio.timeout(DEADLINE_S):
            await copies.run(copies.stop)

    asyncio.run(main())
    assert len(started(book)) == 1
    assert not any(map(is_alive, started(book)))


def test_cancelling_leaves_nothing(tmp_path: Path) -> None:
    """Whoever cancels the keeper gets rid of the copies too."""
    book = tmp_path / "book"

    async def main() -> None:
        copies, alive = Copies(command(GOOD, book), 2, DEADLINE_S), asyncio.Event()
        keeping = asyncio.create_task(copies.run(alive.set))
        await asyncio.wait_for(alive.wait(), DEADLINE_S)
        keeping.cancel()
        with pytest.raises(asyncio.CancelledError):
            await keeping

    asyncio.run(main())
    assert not any(map(is_alive, started(book)))


def test_copies_see_the_end_of_a_keeper_that_was_killed(tmp_path: Path) -> None:
    """Their standard input ends with it."""
    book = tmp_path / "book"
    keeper = f"""
import asyncio, os, signal, sys
from voiceflow.copies import Copies
asyncio.run(Copies({command(GOOD, book)!r}, 2, 5).run(lambda: os.kill(os.getpid(), signal.SIGKILL)))
"""

    async def main() -> None:
        process = await asyncio.create_subprocess_exec(*command(keeper), env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])})
        assert await asyncio.wait_for(process.wait(), DEADLINE_S) == -signal.SIGKILL
        async with asyncio.timeout(DEADLINE_S):
            while book.read_text().count("alone") < 2:
                await asyncio.sleep(0.02)

    asyncio.run(main())
