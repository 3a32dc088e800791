"""The README's Python runs as printed, and what the first pages link to exists."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
LARGEST_PICTURE = 1_000_000


@pytest.mark.slow
def test_the_python_runs_as_it_stands(tmp_path: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    (printed,) = re.findall(r"```text\n(.*?)```", README, re.DOTALL)
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == printed
    assert done.stderr == ""
    assert (tmp_path / "report.html").stat().st_size > 10_000


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"])
def test_what_it_links_to_exists(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    targets = re.findall(r"\]\(([^)]+)\)|(?:src|srcset)=\"([^\"]+)\"", text)
    paths = [one or other for one, other in targets if not (one or other).startswith("https:")]
    assert len(paths) > 20 or name != "README.md"
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_pictures_are_small() -> None:
    pictures = re.findall(r"(?:src|srcset)=\"([^\"]+)\"", README)
    assert any(name.endswith(".webp") for name in pictures)
    for name in pictures:
        assert (ROOT / name).stat().st_size < LARGEST_PICTURE


def test_the_two_commands_are_where_ci_looks_for_them() -> None:
    lines = [line for line in README.splitlines() if line.startswith("python3 -m venv .venv && ")]
    demo, tests = lines
    assert demo.endswith("gradpeel demo")
    assert tests.endswith("pytest -n auto")


def test_the_citation_names_this_version() -> None:
    version = (ROOT / "src/gradpeel/_version.py").read_text(encoding="utf-8")
    (number,) = re.findall(r'__version__ = "(.*)"', version)
    assert f"\nversion: {number}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
