"""Tests of loading once in a process."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from voiceflow.processors.once import once_per_process


def test_threads_that_ask_at_once_get_one_object():
    """Eight threads that want the same model at the same time load it once."""
    loads = []
    begin = threading.Barrier(8)

    @once_per_process
    def load(name: str) -> object:
        loads.append(name)
        return object()

    def ask(_: int) -> object:
        begin.wait()
        return load("a")

    with ThreadPoolExecutor(8) as pool:
        got = list(pool.map(ask, range(8)))

    assert len(set(map(id, got))) == 1
    assert loads == ["a"]


def test_other_arguments_are_another_object():
    """What is loaded is kept for each set of arguments."""

    @once_per_process
    def load(name: str, *, threads: int = 1) -> list[object]:
        return [name, threads]

    assert load("a") is load("a")
    assert load("a", threads=2) is load("a", threads=2)
    assert [load("b"), load("a", threads=2)] == [["b", 1], ["a", 2]]


def test_a_failed_load_is_tried_again():
    """An error reaches who asked, and the next one loads anew."""
    outcomes = [RuntimeError("no such file"), "loaded"]

    @once_per_process
    def load() -> object:
        outcome = outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    with pytest.raises(RuntimeError, match="no such file"):
        load()
    assert load() == "loaded"
    assert load() == "loaded"


def test_one_slow_load_does_not_hold_up_another():
    """While one model loads, another can be had."""
    may_end = threading.Event()

    @once_per_process
    def load(name: str) -> str:
        if name == "slow":
            assert may_end.wait(30)
        return name

    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(load, "slow")
        assert load("quick") == "quick"
        may_end.set()
        assert slow.result(30) == "slow"
