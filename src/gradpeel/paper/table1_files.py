"""The comparison with the paper's table as files: CSV, Markdown, and an HTML heat map.

Each tells the same: per cell our mean with its interval, the published rate and the peeling bound.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from gradpeel.files import write_files
from gradpeel.paper.colours import diverging, sequential
from gradpeel.paper.table1 import Comparison, Line, Table1, Verdict

__all__ = ["to_csv", "to_html", "to_markdown", "write_table1"]

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
STRONGEST = 0.3
"""A difference that gets the full colour."""
SIGNS: dict[Verdict | None, str] = {Verdict.BETTER: "▲ ", Verdict.WORSE: "▼ "}
LEGEND = (-0.3, -0.2, -0.1, 0.0, 0.1, 0.2, 0.3)


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
    """What the cells say together, and a table for each data set."""
    sizes = table.batch_sizes
    parts = ["```text", *table.findings(), "```", ""]
    parts.append("Each cell: ours (mean, 95 % interval where there is one), *paper*, bound.")
    for title, lines in _by_dataset(table):
        parts += ["", f"### {title}", ""]
        parts.append(f"| method | {' | '.join(f'B={size}' for size in sizes)} | ours - paper |")
        parts.append("|" + " --- |" * (len(sizes) + 2))
        for line in lines:
            by_size = {cell.batch_size: cell for cell in line.cells}
            cells = [_markdown(by_size[size]) if size in by_size else "" for size in sizes]
            parts.append(f"| {line.method} | {' | '.join(cells)} | {_or_empty(line.gap, '+.3f')} |")
    parts += ["", *(f"- {note}" for note in table.footnotes())]
    return "\n".join(parts).rstrip() + "\n"


def to_html(table: Table1) -> str:
    """A page of its own: the table as a heat map, nothing loaded from anywhere."""
    environment = Environment(
        loader=PackageLoader("gradpeel.paper"), autoescape=True, undefined=StrictUndefined
    )
    return environment.get_template("table1.html.j2").render(
        sizes=table.batch_sizes,
        blocks=[
            (title, [(line, _heat_line(line, table.batch_sizes)) for line in lines])
            for title, lines in _by_dataset(table)
        ],
        findings=table.findings(),
        footnotes=table.footnotes(),
        differences=[(f"{gap:+.1f}", diverging(gap / STRONGEST)) for gap in LEGEND],
        rates=[(f"{step / 5:.1f}", sequential(step / 5)) for step in range(6)],
    )


def _heat_line(line: Line, sizes: list[int]) -> list[dict[str, Any] | None]:
    by_size = {cell.batch_size: cell for cell in line.cells}
    return [_heat(by_size[size]) if size in by_size else None for size in sizes]


def _heat(cell: Comparison) -> dict[str, Any]:
    return {
        "cell": cell,
        "told": str(cell),
        "sign": SIGNS.get(cell.verdict, ""),
        "difference": diverging((cell.gap or 0.0) / STRONGEST),
        "rate": sequential(cell.ours.mean),
        "missed": diverging((cell.ours.mean - cell.bound.mean) / STRONGEST),
    }


def _by_dataset(table: Table1) -> Iterator[tuple[str, list[Line]]]:
    for dataset in dict.fromkeys(line.dataset for line in table.lines):
        lines = [line for line in table.lines if line.dataset == dataset]
        mark = table.marks.get(dataset)
        yield lines[0].title + (f" [{mark}]" if mark else ""), lines


def _markdown(cell: Comparison) -> str:
    interval = f" [{cell.ours.low:.3f}, {cell.ours.high:.3f}]" if cell.ours.reach else ""
    paper = "-" if cell.published is None else f"{cell.published:.3f}"
    return f"**{cell.ours.mean:.3f}**{interval} *{paper}* {cell.bound.mean:.3f}"


def _or_empty(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)
