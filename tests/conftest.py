"""Every ``async def test_...`` runs on a virtual clock, in asyncio's debug mode, and may leave nothing behind.

With ``VOICEFLOW_NO_SKIPS=1`` in the environment, as in ``.ci/run``, a test that would be skipped fails and says why.
"""

from __future__ import annotations

import inspect
import os
import signal
from collections.abc import Generator

import pytest

from voiceflow.testing import VirtualClockLoop, no_leaks, run_virtual

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell's background job ignores Ctrl-C and hands that down; some tests press it in programs of their own.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    test = pyfuncitem.obj
    if not inspect.iscoroutinefunction(test):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    loop = VirtualClockLoop()
    loop.set_debug(True)

    async def main() -> None:
        async with no_leaks():
            await test(**arguments)

    run_virtual(main(), loop=loop)
    return True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if not hasattr(report, "wasxfail"):
        _fail_if_skipped(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    _fail_if_skipped(report)
    return report


def _fail_if_skipped(report: pytest.TestReport | pytest.CollectReport) -> None:
    if report.outcome == "skipped" and os.environ.get("VOICEFLOW_NO_SKIPS") == "1":
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"skipped, and VOICEFLOW_NO_SKIPS is set: {reason}"
