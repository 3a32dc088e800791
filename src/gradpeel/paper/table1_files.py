"""The comparison with the paper's table as files: CSV, Markdown, and a page.

Each holds the same: per cell our mean with its interval, the published rate and the peeling bound.
"""

from __future__ import annotations

import csv
import io
from pathlib import Path

from gradpeel.files import write_files
from gradpeel.paper.table1 import Comparison, Table1
from gradpeel.paper.table1_page import to_html

__all__ = ["to_csv", "to_markdown", "write_table1"]

COLUMNS = (
    "dataset",
    "method",
    "batch_size",
    "seeds",
    "ours",
    "low",
    "high",
    "bound",
    "published",
    "ours_minus_published",
    "verdict",
    "note",
)


def write_table1(table: Table1, out: Path) -> list[Path]:
    """Write `table1.csv`, `table1.md` and `table1.html` into a directory.

    Raises:
        InputError: the directory cannot be written to.
    """
    contents = {
        "table1.csv": to_csv(table),
        "table1.md": to_markdown(table),
        "table1.html": to_html(table),
    }
    return write_files(out, {name: text.encode() for name, text in contents.items()})


def to_csv(table: Table1) -> str:
    """One line per cell, every number in full."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for line in table.lines:
        for cell in line.cells:
            writer.writerow(
                [
                    line.title,
                    cell.method,
                    cell.batch_size,
                    cell.ours.count,
                    *(f"{rate:.6f}" for rate in (cell.ours.mean, cell.ours.low, cell.ours.high)),
                    f"{cell.bound.mean:.6f}",
                    _or_empty(cell.published, ".3f"),
                    _or_empty(cell.gap, "+.6f"),
                    cell.verdict or "",
                    table.notes.get(cell.dataset, ""),
                ]
            )
    return text.getvalue()


def to_markdown(table: Table1) -> str:
    """A summary of all cells, and a table for each data set."""
    sizes = table.batch_sizes
    parts = ["```text", *table.findings(), "```", ""]
    parts.append("Each cell: ours (mean, 95 % interval where there is one), *paper*, bound.")
    for title, lines in table.by_dataset():
        parts += ["", f"### {title}", ""]
        parts.append(f"| method | {' | '.join(f'B={size}' for size in sizes)} | ours - paper |")
        parts.append("|" + " --- |" * (len(sizes) + 2))
        for line in lines:
            by_size = {cell.batch_size: cell for cell in line.cells}
            cells = [_markdown(by_size[size]) if size in by_size else "" for size in sizes]
            parts.append(f"| {line.method} | {' | '.join(cells)} | {_or_empty(line.gap, '+.3f')} |")
    parts += ["", *(f"- {note}" for note in table.footnotes())]
    return "\n".join(parts).rstrip() + "\n"


def _markdown(cell: Comparison) -> str:
    interval = f" [{cell.ours.low:.3f}, {cell.ours.high:.3f}]" if cell.ours.reach else ""
    paper = "-" if cell.published is None else f"{cell.published:.3f}"
    return f"**{cell.ours.mean:.3f}**{interval} *{paper}* {cell.bound.mean:.3f}"


def _or_empty(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)
