"""A lock file, so that two processes never fetch one model at the same time.

Owns the lock. One rule: the operating system holds it, so that it goes with the process however that ends.
The file itself stays: removing it would let a third process lock a name nobody else looks at.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

__all__ = ["locked"]

if sys.platform == "win32":
    import msvcrt

    def _acquire(file: BinaryIO, *, wait: bool) -> bool:
        while True:
            try:
                msvcrt.locking(file.fileno(), msvcrt.LK_LOCK if wait else msvcrt.LK_NBLCK, 1)
            except OSError:  # LK_LOCK gives up after ten seconds
                if not wait:
                    return False
            else:
                return True

else:
    import fcntl

    def _acquire(file: BinaryIO, *, wait: bool) -> bool:
        try:
            fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


@contextmanager
def locked(path: Path, waiting: Callable[[], None]) -> Iterator[None]:
    """Hold the lock file ``path`` (made if missing). If another process or thread has it, ``waiting`` is called and then it is waited for."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        if not _acquire(file, wait=False):
            waiting()
            _acquire(file, wait=True)
        yield  # closing the file lets go of it
