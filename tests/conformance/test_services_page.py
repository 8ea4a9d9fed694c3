"""``docs/services.md`` says what the tests say."""

from __future__ import annotations

import pytest

from tests.conformance.services import HERE, PAGE, VENDORS, Vendor, claims_of, has_passed, recorded, render

AGAIN = "run VOICEFLOW_WRITE_SERVICES=1 pytest tests/conformance"


def test_the_page_is_up_to_date() -> None:
    """Each vendor is on it, with the tests there are; if not, it is written anew by a run of them all."""
    page = PAGE.read_text(encoding="utf-8")
    versions = recorded(page)
    assert versions.keys() == {vendor.name for vendor in VENDORS}, AGAIN
    assert page == render(versions), AGAIN


@pytest.mark.parametrize("vendor", VENDORS, ids=lambda vendor: vendor.name)
def test_a_pinned_package_is_the_one_that_passed(vendor: Vendor) -> None:
    """The pin here is the one in the tests, and on the page."""
    passed = recorded(PAGE.read_text(encoding="utf-8"))[vendor.name]
    tests = "".join((HERE / f"{module}.py").read_text(encoding="utf-8") for module in vendor.modules)
    for client in vendor.clients:
        assert client.partition("==")[0] in passed, AGAIN
        if "==" in client:
            assert f'"{client}"' in tests
            assert client.replace("==", " ") in passed, AGAIN


def test_every_module_with_a_vendors_package_is_on_the_page() -> None:
    """What is tested here is told; the rest are tests of the tests and of our own nodes."""
    told = {f"{module}.py" for vendor in VENDORS for module in vendor.modules}
    assert {path.name for path in HERE.glob("test_*.py")} - told == {"test_builtins.py", "test_environments.py", "test_services_page.py"}


@pytest.mark.parametrize("vendor", VENDORS, ids=lambda vendor: vendor.name)
def test_each_test_says_what_it_shows(vendor: Vendor) -> None:
    """So that the page has something to say."""
    assert [name for _, name, said in claims_of(vendor) if not said] == []


def test_a_vendor_is_on_the_page_only_if_all_its_tests_have_passed() -> None:
    """One that failed, was skipped or has not run takes it off; if none has run, nothing is known."""
    vendor = VENDORS[0]
    all_of_them = {(module, name): {"passed"} for module, name, _ in claims_of(vendor)}
    assert has_passed(vendor, all_of_them) is True
    assert has_passed(vendor, {}) is None
    for outcome in ({"failed"}, {"passed", "failed"}, {"skipped"}, set[str]()):
        for one in all_of_them:
            assert has_passed(vendor, {**all_of_them, one: outcome}) is False


def test_what_is_written_is_read_again() -> None:
    """The versions on a page are those it was made of."""
    versions = {vendor.name: f"package {number}.0" for number, vendor in enumerate(VENDORS)}
    assert recorded(render(versions)) == versions
    assert recorded(render({})) == {}
