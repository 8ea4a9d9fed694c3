"""Writes ``docs/services.md`` when it is asked to: see ``tests/conformance/services.py``."""

from __future__ import annotations

import os
from collections import defaultdict
from pathlib import Path

import pytest

from tests.conformance.services import PAGE, VENDORS, has_passed, recorded, render, versions_here

IS_WRITING = os.environ.get("VOICEFLOW_WRITE_SERVICES") == "1"
collect_ignore = ["test_services_page.py"] if IS_WRITING else []
_outcomes: dict[tuple[str, str], set[str]] = defaultdict(set)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call" or not report.passed:
        path, _, name = report.nodeid.partition("::")
        _outcomes[Path(path).stem, name.partition("[")[0]].add(report.outcome)


def pytest_sessionfinish() -> None:
    """Vendors of which all tests have run and passed get their versions anew; those of which none has run keep theirs."""
    if not IS_WRITING:
        return
    versions = recorded(PAGE.read_text(encoding="utf-8")) if PAGE.exists() else {}
    for vendor in VENDORS:
        has = has_passed(vendor, _outcomes)
        if has:
            versions[vendor.name] = versions_here(vendor)
        elif has is False:
            versions.pop(vendor.name, None)
    PAGE.write_text(render(versions), encoding="utf-8")
