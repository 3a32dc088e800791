"""The comparison with the paper's table for a terminal of 80 columns and more."""

from __future__ import annotations

from typing import Literal

from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

from gradpeel.paper.table1 import Comparison, Line, Table1, Verdict

__all__ = ["table1_text"]

STYLES = {Verdict.EQUAL: "bold", Verdict.BETTER: "bold blue", Verdict.WORSE: "bold yellow"}


def table1_text(table: Table1) -> Group:
    """A block for each data set: ours, its interval, the paper's rate, the peeling bound."""
    parts: list[Table | Text] = []
    for title, lines in table.by_dataset():
        parts += [Text(f"\n{title}", style="bold"), _block(lines, table.batch_sizes)]
    parts += [Text(note) for note in ("", *table.footnotes())]
    if any(cell.verdict is not None for cell in table.cells):
        parts.append(
            Text(
                "from, to: 95 % interval of the mean; in colour: the paper's rate lies below it "
                "(blue) or above it (yellow)\n"
            )
        )
    parts += [Text(finding) for finding in table.findings()]
    return Group(*parts)


def _block(lines: list[Line], sizes: list[int]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=0, show_edge=False)
    table.add_column("B =", no_wrap=True)
    for size in sizes:
        table.add_column(str(size), justify="right", no_wrap=True)
    for line in lines:
        by_size = {cell.batch_size: cell for cell in line.cells}
        cells = [by_size.get(size) for size in sizes]
        table.add_row(Text(line.method, style="bold"), *map(_ours, cells))
        if any(cell is not None and cell.ours.reach for cell in cells):
            table.add_row("  from", *(_interval(cell, "low") for cell in cells))
            table.add_row("  to", *(_interval(cell, "high") for cell in cells))
        table.add_row("  paper", *map(_published, cells))
        table.add_row("  bound", *map(_bound, cells), end_section=True)
    return table


def _ours(cell: Comparison | None) -> Text:
    if cell is None:
        return Text()
    style = "bold" if cell.verdict is None else STYLES[cell.verdict]
    return Text(f"{cell.ours.mean:.3f}", style=style)


def _interval(cell: Comparison | None, end: Literal["low", "high"]) -> Text:
    """One end of the 95 % interval, which never leaves 0 to 1."""
    if cell is None or not cell.ours.reach:
        return Text()
    return Text(f"{getattr(cell.ours, end):.3f}", style="dim")


def _published(cell: Comparison | None) -> Text:
    return Text("" if cell is None or cell.published is None else f"{cell.published:.3f}")


def _bound(cell: Comparison | None) -> Text:
    return Text("" if cell is None else f"{cell.bound.mean:.3f}", style="dim")
