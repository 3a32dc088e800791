"""What the command lines of benchmarks share: their options, and how they show what they found."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.cells import markdown_table

__all__ = ["arguments", "show"]

WIDTH = 160
"""Of a table that goes to a file, in characters."""


def arguments(description: str | None, *, out: str) -> argparse.ArgumentParser:
    """The options that all benchmarks on the standard data sets have.

    Args:
        description: the module's own documentation.
        out: name of the file of rows.
    """
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path(out), help="a file that is resumed")
    parser.add_argument("--markdown", type=Path, help="also write the tables to this file")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    return parser


def show(
    titles: Sequence[str],
    lines: Iterable[Sequence[str]],
    findings: Iterable[str] = (),
    *,
    markdown: Path | None,
    before: str = "",
) -> None:
    """Print a table and what matters in it, and write the table.

    Args:
        titles: of the columns.
        lines: of the table.
        findings: one line each.
        markdown: the file to write the table to, if any.
        before: what stands before it in that file.
    """
    written = list(lines)
    table = Table(*titles)
    for line in written:
        table.add_row(*line)
    console = Console()
    console = console if console.is_terminal else Console(width=WIDTH)
    console.print(table)
    for finding in findings:
        console.print(finding, highlight=False, markup=False, soft_wrap=True)
    if markdown is not None:
        markdown.write_text(before + markdown_table(titles, written), encoding="utf-8")
