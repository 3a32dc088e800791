"""The page about FedAvg rounds: its code prints what it says, and its plan is one."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

from gradpeel.sweeps import Plan

PAGE = Path(__file__).resolve().parents[1] / "docs" / "local-training.md"


def _blocks(language: str) -> list[str]:
    text = PAGE.read_text(encoding="utf-8")
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def test_the_code_prints_what_the_page_says() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "".join(_blocks("python"))],
        env={"PYTHONPATH": str(PAGE.parents[1] / "src"), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "".join(_blocks("text"))
    assert done.stderr == ""


def test_the_plan_is_one() -> None:
    (text,) = _blocks("toml")
    cells = Plan(**tomllib.loads(text)).cells()
    assert len(cells) == 2 * 2 * (1 + 2 * 2)
