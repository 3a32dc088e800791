"""A real browser, Debian's chromium, driven through Playwright."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks.browsing import CHROMIUM, OPTIONS, find_chromium
from gradpeel import Audit, Report, report
from gradpeel.datasets import Dataset
from opened_page import Opened

if TYPE_CHECKING:
    from playwright.sync_api import Browser


DRIVERS = ("playwright", "axe_playwright_python")


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Chromium without a window; required where $GRADPEEL_REQUIRE_CHROMIUM says so."""
    found = find_chromium()
    reason = None
    if any(importlib.util.find_spec(name) is None for name in DRIVERS):
        reason = f"no browser: {' and '.join(DRIVERS)} are not installed"
    elif found is None:
        reason = f"no browser: none of {', '.join(CHROMIUM)} is installed"
    if reason is not None:
        if os.environ.get("GRADPEEL_REQUIRE_CHROMIUM"):
            pytest.fail(reason)
        pytest.skip(reason)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=found, args=list(OPTIONS))
        yield started
        started.close()


@pytest.fixture
def opened(browser: Browser, tmp_path: Path) -> Iterator[Callable[..., Opened]]:
    """Save a report and open it; keyword arguments are those of Playwright's `new_context`."""
    contexts = []

    def open_(page: Report, **settings: Any) -> Opened:
        file = page.save(tmp_path / "page of 'quotes' & more.html")
        context = browser.new_context(**settings)
        contexts.append(context)
        return Opened(context.new_page(), file)

    yield open_
    for context in contexts:
        context.close()


@pytest.fixture(scope="session")
def pages(
    *,
    whole: Audit,
    part: Audit,
    nothing: Audit,
    by_rows: Audit,
    doubled: Audit,
    unlabelled: Audit,
    records: Audit,
    digits: Dataset,
    patients: Dataset,
) -> dict[str, Report]:
    """Reports of all kinds of audits."""
    return {
        "whole": report(whole, digits),
        "part": report(part, digits),
        "nothing": report(nothing, digits),
        "rows": report(by_rows, digits, command="gradpeel audit --data digits"),
        "doubled": report(doubled, digits),
        "unlabelled": report(unlabelled, digits),
        "records": report(records, patients),
        "unnamed": report(records),
        "without": report(part, digits, samples=False),
    }
