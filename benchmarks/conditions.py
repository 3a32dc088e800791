"""What peeling reaches under the conditions of real clients, against its bound, on real data.

    python -m benchmarks.conditions --data-dir DIR --out conditions.csv --conditions "noise-*,mse"

DIR holds `<name>.npz` files with x_train, y_train, x_test, y_test. The conditions, and what must be
reached in each, are in `benchmarks.clients`. Rows are appended as they come, small batches first,
so an interrupted run resumes where it stopped; delete the file to start over, and give every width
and version of the code its own. The exit code is 1 if anything that was certified is wrong.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from fnmatch import fnmatch
from functools import partial
from statistics import fmean

from rich.console import Console
from rich.table import Table

from benchmarks.audits import Cell, Row, faults, measure
from benchmarks.cells import markdown_table, run
from benchmarks.clients import CONDITIONS, Condition
from benchmarks.command import arguments
from gradpeel.datasets.standard import STANDARD

TITLES = (
    "condition",
    "design",
    "B",
    "cells",
    "ours",
    "bound",
    "least share of the bound",
    "goal",
    "largest distance",
    "seconds",
)


def chosen(patterns: str) -> list[Condition]:
    """The conditions that some pattern fits, with those that they are compared with."""
    wanted = patterns.split(",")
    for pattern in wanted:
        if not any(fnmatch(name, pattern) for name in CONDITIONS):
            sys.exit(f"conditions={pattern!r}: expected some of {', '.join(CONDITIONS)}")
    fitting = {name for name in CONDITIONS if any(fnmatch(name, pattern) for pattern in wanted)}
    fitting |= {CONDITIONS[name].as_good_as or name for name in fitting}
    return [condition for name, condition in CONDITIONS.items() if name in fitting]


def plan(conditions: Iterable[Condition], datasets: Iterable[str], seeds: int) -> list[Cell]:
    """All cells of some conditions, small batches first."""
    cells = [
        Cell(dataset, method, batch_size, seed, condition.name)
        for condition in conditions
        for dataset in datasets
        if dataset in condition.datasets
        for goal in condition.goals
        for method in goal.methods
        for batch_size in goal.batch_sizes
        for seed in range(seeds)
    ]
    return sorted(cells, key=lambda cell: cell.batch_size)


def misses(row: Row, others: Mapping[Cell, Row]) -> Iterator[str]:
    """In what a row falls short of its goals, in words.

    Args:
        row: the row.
        others: the rows it may be compared with.
    """
    condition = CONDITIONS[row.condition]
    goal = condition.goal(row.method, row.batch_size)
    if not goal.reached(row.recovered, row.reachable, row.batch_size):
        yield row.account
    compared = condition.as_good_as
    known = others.get(replace(row.cell, condition=compared)) if compared else None
    if known is not None and row.recovered < known.recovered:
        yield f"{row.recovered} recovered, {known.recovered} in the condition {known.condition}"
    expected = row.batch_size if condition.shows_size else 0
    if row.recovered >= 2 and row.batch_size_found != expected:
        yield f"batch size {row.batch_size_found or 'not'} found"
    if condition.copies and row.unlabelled:
        yield f"{row.unlabelled} samples without their number of copies"


def by_condition(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """Rows by condition, in the order in which the conditions are listed."""
    grouped: dict[str, list[Row]] = {name: [] for name in CONDITIONS}
    for row in rows:
        grouped[row.condition].append(row)
    return {name: group for name, group in grouped.items() if group}


def tabulate(rows: Iterable[Row]) -> Iterator[list[str]]:
    """Lines of the table: means over data sets and seeds."""
    for name, group in by_condition(rows).items():
        lines: dict[tuple[str, int], list[Row]] = {}
        for row in sorted(group, key=lambda row: (row.method, row.batch_size)):
            lines.setdefault((row.method, row.batch_size), []).append(row)
        for (method, batch_size), line in lines.items():
            yield [
                name,
                method,
                str(batch_size),
                str(len(line)),
                f"{fmean(row.rate for row in line):.3f}",
                f"{fmean(row.peeling_bound for row in line):.3f}",
                _least(line),
                CONDITIONS[name].goal(method, batch_size).words,
                f"{max(row.max_distance for row in line):.0e}",
                f"{fmean(row.seconds for row in line):.1f}",
            ]


def _least(rows: list[Row]) -> str:
    """The least share of the peeling bound, and where."""
    shares = [(row.recovered / row.reachable, row.dataset) for row in rows if row.reachable]
    if not shares:
        return "-"
    share, dataset = min(shares)
    return f"{share:.3f}" if share == max(shares)[0] else f"{share:.3f} {dataset}"


def findings(rows: list[Row]) -> Iterator[str]:
    """What the cells say together, a line each."""
    others = {row.cell: row for row in rows}
    yield f"cells: {len(rows)}, samples certified: {sum(row.recovered for row in rows)}"
    yield from (f"{name}: {count}" for name, count in faults(rows).items())
    yield f"certificates neither right nor false: {sum(row.rough for row in rows)}"
    yield f"right, but less exact than they say: {sum(row.wrong_estimates for row in rows)}"
    for name, group in by_condition(rows).items():
        found = [(row, list(misses(row, others))) for row in group]
        short = [(row, reasons) for row, reasons in found if reasons]
        wrong = ", ".join(f"{count} {what}" for what, count in faults(group).items() if count)
        reached = len(group) - len(short)
        yield f"{name}: {reached} of {len(group)} cells reach their goal{wrong and ', '}{wrong}"
        yield from (f"  {row.cell}: {'; '.join(reasons)}" for row, reasons in short)


def show(rows: list[Row], console: Console) -> None:
    """Print the table and the findings."""
    table = Table(*TITLES)
    for line in tabulate(rows):
        table.add_row(*line)
    console.print(table)
    for finding in findings(rows):
        console.print(finding, highlight=False, soft_wrap=True)


def markdown(rows: list[Row]) -> str:
    """The same for the documentation."""
    found = "\n".join(findings(rows))
    return (
        "# Conditions table\n\nWritten by `python -m benchmarks.conditions --data-dir DATA "
        "--out docs/conditions.csv --markdown docs/conditions-table.md`.\n\n"
        f"```text\n{found}\n```\n\n{markdown_table(TITLES, tabulate(rows))}"
    )


def main() -> None:
    parser = arguments(__doc__, out="conditions.csv")
    parser.add_argument("--conditions", default="*", help="names or patterns, with commas")
    parser.add_argument("--datasets", default=",".join(STANDARD))
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--neurons", type=int, default=1000)
    given = parser.parse_args()
    cells = plan(chosen(given.conditions), given.datasets.split(","), given.seeds)
    one = partial(measure, data_dir=given.data_dir, neurons=given.neurons)
    rows = run(cells, one, given.out, Row, workers=given.workers)
    show(rows, Console() if sys.stdout.isatty() else Console(width=150))
    if given.markdown is not None:
        given.markdown.write_text(markdown(rows), encoding="utf-8")
    sys.exit(1 if any(faults(rows).values()) else 0)


if __name__ == "__main__":
    main()
