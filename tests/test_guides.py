"""Guides with code: it prints what they say, and their plans are plans."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from gradpeel.sweeps import Plan, read_plan

DOCS = Path(__file__).resolve().parents[1] / "docs"


def _blocks(page: str, language: str) -> list[str]:
    text = (DOCS / page).read_text(encoding="utf-8")
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


PAGES = [
    "check.md",
    "defences.md",
    "guard.md",
    "local-training.md",
    "own-model.md",
    "secure-aggregation.md",
    "tampering.md",
]


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.slow
def test_the_code_prints_what_the_page_says(page: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "".join(_blocks(page, "python"))],
        env={"PYTHONPATH": str(DOCS.parent / "src"), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "".join(_blocks(page, "text"))
    assert done.stderr == ""


def test_the_plan_is_one() -> None:
    (text,) = _blocks("local-training.md", "toml")
    cells = Plan(**tomllib.loads(text)).cells()
    assert len(cells) == 2 * 2 * (1 + 2 * 2)


def test_the_plan_of_secure_aggregation() -> None:
    cells = read_plan(DOCS / "secure-aggregation.toml").cells()
    assert len(cells) == 3 * 7 * 6 * 2
    assert {cell.clients for cell in cells} == {1, 2, 4, 8, 16, 32}
