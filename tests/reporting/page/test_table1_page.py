"""The page of the paper's table in a browser."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pytest

from gradpeel.paper.table1 import Table1
from gradpeel.paper.table1_page import to_html
from gradpeel.sweeps import Results
from opened_page import Opened
from sweep_rows import CELL, measured

if TYPE_CHECKING:
    from playwright.sync_api import Browser

SOLITON = replace(CELL, design="soliton-data", weights="mirrored", soliton=(0.05, 0.4))
ROWS = [
    measured(
        replace(cell, batch_size=size), seed, recovered=round(share * size) - seed, reachable=size
    )
    for cell, share in ((CELL, 0.4), (SOLITON, 1.0), (replace(CELL, effort=1.0), 0.9))
    for size in (64, 512, 1024)
    for seed in range(3)
]
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")


@pytest.mark.parametrize("width", [360, 1440])
def test_it_is_sound_in_a_browser(browser: Browser, tmp_path: Path, width: int) -> None:
    path = tmp_path / "table1.html"
    table = Table1.of(Results(ROWS, [], {"mnist": "other samples"}, []))
    path.write_text(to_html(table), encoding="utf-8")
    context = browser.new_context(viewport={"width": width, "height": 800}, bypass_csp=True)
    shown = Opened(context.new_page(), path)
    assert shown.page.inner_text("h1").startswith("Of 6 published rates, ")
    assert "Soliton-Data, mirrored" in shown.page.inner_text("main")
    assert "passive server with the row cascade" in shown.page.inner_text("main")
    shown.open_details()
    assert shown.page.evaluate("document.documentElement.scrollWidth") <= width
    shades = set()
    for scheme in SCHEMES:
        shown.page.emulate_media(color_scheme=scheme)
        for choice in ("#by-difference", "#by-rate", "#by-bound"):
            shown.page.click(choice)
            cell = "getComputedStyle(document.querySelector('.shade')).backgroundColor"
            shades.add(shown.page.evaluate(cell))
            assert shown.violations(only="color-contrast") == []
    # Each choice colours the same cell in its own way, in light and in dark.
    assert len(shades) >= 4
    assert shown.violations() == []
    assert shown.complaints == []
    assert shown.elsewhere == []
    context.close()


def test_its_policy_does_not_stop_its_own_style(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "table1.html"
    path.write_text(to_html(Table1.of(Results(ROWS, [], {}, []))), encoding="utf-8")
    context = browser.new_context()
    shown = Opened(context.new_page(), path)
    tone = "getComputedStyle(document.querySelector('.shade')).backgroundColor"
    assert shown.page.evaluate(tone) != "rgb(255, 255, 255)"
    assert shown.complaints == []
    context.close()
