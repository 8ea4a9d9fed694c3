"""Loading a model once in a process, whoever asks first and from whichever thread.

Its one rule: while one thread loads, others that want the same wait for it and get the same object. A load that fails
is not remembered, so the next one tries again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from functools import wraps
from typing import ParamSpec, TypeVar

__all__ = ["once_per_process"]

P = ParamSpec("P")
T = TypeVar("T")


def once_per_process(load: Callable[P, T]) -> Callable[P, T]:
    """Make a loader remember what it gave for the same (hashable) arguments, for the life of the process.

    Unlike `functools.cache` it never loads twice when two threads ask at the same time.
    """
    loaded: dict[Hashable, T] = {}
    locks: dict[Hashable, threading.Lock] = {}
    registry = threading.Lock()

    @wraps(load)
    def get(*arguments: P.args, **named: P.kwargs) -> T:
        key = (arguments, tuple(sorted(named.items())))
        with registry:
            if key in loaded:
                return loaded[key]
            lock = locks.setdefault(key, threading.Lock())
        with lock:
            if key not in loaded:
                loaded[key] = load(*arguments, **named)
            return loaded[key]

    return get
