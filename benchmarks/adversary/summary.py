"""Totals by family, and everything that is wrong, cell by cell."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from benchmarks.adversary.families import FAMILIES
from benchmarks.adversary.measuring import Row
from benchmarks.cells import markdown_table

__all__ = ["TITLES", "faults", "findings", "markdown", "tabulate"]

TITLES = (
    "family",
    "rounds",
    "certified",
    "false",
    "inexact",
    "wrong labels",
    "wrong copies",
    "repeats",
    "beyond the batch",
    "wrong complete",
    "wrong size",
    "errors",
    "oracle",
    "recovered / oracle, float64",
    "float32",
    "single look / oracle",
    "seconds",
)

FAULTS = (
    "false",
    "wrong_labels",
    "wrong_copies",
    "repeats",
    "beyond",
    "wrong_complete",
    "wrong_size",
)
"""The columns of a row that must be 0."""


def faults(rows: Iterable[Row]) -> dict[str, int]:
    """What must not happen, counted; rounds that nobody can decide are left out."""
    return _counted([row for row in rows if not FAMILIES[row.family].undecidable])


def _counted(some: list[Row]) -> dict[str, int]:
    counts = {name: sum(int(getattr(row, name)) for row in some) for name in FAULTS}
    return counts | {"errors": sum(bool(row.error) for row in some)}


def tabulate(rows: list[Row]) -> Iterator[list[str]]:
    """Lines of the table, one per family, and the total."""
    for name in dict.fromkeys(row.family for row in rows):
        yield _line(name, [row for row in rows if row.family == name])
    yield _line("all", rows)


def _line(name: str, rows: list[Row]) -> list[str]:
    counts = faults(rows) if name == "all" else _counted(rows)
    return [
        name,
        f"{len(rows):,}",
        f"{sum(row.certified for row in rows):,}",
        str(counts["false"]),
        str(sum(row.inexact for row in rows)),
        *(str(counts[fault]) for fault in (*FAULTS[1:], "errors")),
        f"{sum(row.oracle for row in rows):,}",
        _share([row for row in rows if row.dtype == "float64"]),
        _share([row for row in rows if row.dtype == "float32"]),
        _share(rows, of="single_look"),
        f"{sum(row.seconds for row in rows):.0f}",
    ]


def _share(rows: list[Row], of: str = "recovered") -> str:
    """Samples found for each that the oracle reaches, no round counting beyond its own oracle."""
    oracle = sum(row.oracle for row in rows)
    found = sum(min(int(getattr(row, of)), row.oracle) for row in rows)
    return f"{found / oracle:.3f}" if oracle else "-"


def findings(rows: list[Row]) -> Iterator[str]:
    """The totals in words, then one line per round in which something is wrong."""
    certified = sum(row.certified for row in rows)
    yield f"rounds: {len(rows):,}, certificates: {certified:,}"
    yield from (f"{name.replace('_', ' ')}: {count:,}" for name, count in faults(rows).items())
    yield from (f"{row.cell}: {row.wrong}" for row in rows if row.wrong)


def markdown(rows: list[Row]) -> str:
    """The same for the documentation."""
    found = "\n".join(findings(rows))
    return (
        "# Adversary's table\n\nWritten by `python -m benchmarks.adversary --data-dir DATA "
        "--out docs/adversary.csv --markdown docs/adversary-table.md`.\n\n"
        f"{markdown_table(TITLES, tabulate(rows))}\n```text\n{found}\n```\n"
    )
