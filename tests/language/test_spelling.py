"""No common misspelling is in anything that people read (codespell's dictionary, offline)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from language import prose

KNOWN = "ans,nd,fo,te"
"""Names that happen to be misspellings of something."""


def _misspelt(folder: Path) -> str:
    command = [sys.executable, "-m", "codespell_lib", "--ignore-words-list", KNOWN, str(folder)]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def test_everything_that_people_read_is_spelt_right(tmp_path: Path) -> None:
    sources = (
        prose.pages,
        prose.command_help,
        prose.benchmarks,
        prose.templates,
        prose.docstrings,
        prose.messages,
    )
    for number, piece in enumerate(piece for source in sources for piece in source()):
        name = f"{number:04d} {piece.place.replace('/', ' ')}.txt"
        (tmp_path / name).write_text(piece.text, encoding="utf-8")
    assert _misspelt(tmp_path) == ""


def test_a_misspelling_is_found(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text("The sampels were recieved.\n", encoding="utf-8")
    found = _misspelt(tmp_path)
    assert "recieved ==> received" in found
    assert "page.md:1" in found
