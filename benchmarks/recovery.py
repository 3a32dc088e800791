"""Recovery against the oracle and the paper's table, on the real data sets.

    python -m benchmarks.recovery --data-dir DIR --out recovery.csv

DIR holds `<name>.npz` files with x_train, y_train, x_test, y_test. Every cell (data set, method,
batch size, seed) is a pure function of its name. Rows are appended as they come, so an interrupted
run goes on where it stopped; delete the file to start over, and give every width and version of
the code its own.
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean

from rich.console import Console
from rich.table import Table

from benchmarks.audits import Cell, Row, faults, measure
from benchmarks.cells import markdown_table, run
from gradpeel.designs import PAPER_METHODS
from gradpeel.paper import DATASET_TITLES, published_rates

__all__ = ["Cell", "measure"]

METHODS = tuple(PAPER_METHODS)
BATCH_SIZES = (64, 128, 256, 512, 1024)


@dataclass(frozen=True)
class Line:
    """One data set and method of the table: rates by batch size, mean over seeds."""

    title: str
    method: str
    rates: dict[int, tuple[float, float, float | None]]

    @property
    def gap(self) -> float:
        """Mean over batch sizes of ours less the paper's."""
        gaps = [ours - paper for ours, _, paper in self.rates.values() if paper is not None]
        return fmean(gaps) if gaps else 0.0

    def cells(self, sizes: list[int]) -> list[str]:
        """The line as text: ours, oracle, paper for each batch size, and the mean gap."""
        return [
            self.title,
            self.method,
            *(" ".join(_rate(rate) for rate in self.rates[size]) for size in sizes),
            f"{self.gap:+.3f}",
        ]


def _rate(rate: float | None) -> str:
    return "-" if rate is None else f"{rate:.3f}"


def tabulate(rows: list[Row]) -> list[Line]:
    """Means over seeds beside the paper's values."""
    published = published_rates()
    grouped: dict[tuple[str, str], dict[int, list[Row]]] = {}
    for row in rows:
        grouped.setdefault((row.dataset, row.method), {}).setdefault(row.batch_size, []).append(row)
    return [
        Line(
            DATASET_TITLES[dataset],
            method,
            {
                size: (
                    fmean(row.rate for row in group),
                    fmean(row.oracle_rate for row in group),
                    published.get((DATASET_TITLES[dataset], method, size)),
                )
                for size, group in by_size.items()
            },
        )
        for (dataset, method), by_size in grouped.items()
    ]


def header(rows: list[Row]) -> tuple[list[int], list[str]]:
    """Batch sizes, and the titles of the table's columns."""
    sizes = sorted({row.batch_size for row in rows})
    return sizes, ["data set", "method", *(f"B={size}" for size in sizes), "ours - paper"]


def findings(rows: list[Row]) -> list[str]:
    """What the cells say together, a line each."""
    equal = sum(row.recovered == row.reachable and not row.beyond_oracle for row in rows)
    beyond = sum(row.beyond_oracle > 0 for row in rows)
    short = [row for row in rows if row.rate < row.oracle_rate - 0.01]
    slowest = max(rows, key=lambda row: row.seconds)
    behind = [line for line in tabulate(rows) if line.gap < -0.05]
    return [
        f"cells: {len(rows)}, samples certified: {sum(row.recovered for row in rows)}",
        *(f"{name}: {count}" for name, count in faults(rows).items()),
        f"certificates neither right nor false: {sum(row.rough for row in rows)}",
        f"samples without label: {sum(row.unlabelled for row in rows)}",
        f"equal to the oracle: {equal} of {len(rows)} cells ({equal / len(rows):.1%})",
        f"beyond it, because a sample without gradient hides nobody: {beyond} cells",
        f"more than 0.01 below it: {len(short)} cells",
        *(f"  {row}" for row in short),
        f"largest absolute error of a recovered sample: {max(r.max_abs_error for r in rows):.1e}",
        f"lines with a mean more than 0.05 below the paper's: {len(behind)}",
        *(f"  {line.title} {line.method}: {line.gap:+.3f}" for line in behind),
        f"seconds of a peel on one thread: mean {fmean(row.seconds for row in rows):.2f}",
        f"  worst {slowest.seconds:.2f}, {slowest.cell}",
    ]


def show(rows: list[Row], console: Console) -> None:
    """Print the comparison."""
    sizes, titles = header(rows)
    table = Table(*titles, title="recovery rate: ours, oracle, paper; mean over seeds")
    for line in tabulate(rows):
        table.add_row(*line.cells(sizes))
    console.print(table)
    for finding in findings(rows):
        console.print(finding, highlight=False)


def markdown(rows: list[Row]) -> str:
    """The comparison for the documentation."""
    sizes, titles = header(rows)
    table = markdown_table(titles, (line.cells(sizes) for line in tabulate(rows)))
    found = "\n".join(findings(rows))
    return f"```text\n{found}\n```\n\nEach cell: ours, oracle, paper.\n\n{table}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--markdown", type=Path, help="also write the comparison to this file")
    parser.add_argument("--out", type=Path, default=Path("recovery.csv"))
    parser.add_argument("--datasets", default=",".join(DATASET_TITLES))
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--batch-sizes", default=",".join(map(str, BATCH_SIZES)))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--neurons", type=int, default=1000)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    given = parser.parse_args()
    cells = sorted(
        Cell(dataset, method, int(size), seed)
        for dataset, method, size, seed in itertools.product(
            given.datasets.split(","),
            given.methods.split(","),
            given.batch_sizes.split(","),
            range(given.seeds),
        )
    )
    one = partial(measure, data_dir=given.data_dir, neurons=given.neurons)
    rows = run(cells, one, given.out, Row, workers=given.workers)
    # A table this wide would be cut at the 80 columns of a pipe.
    show(rows, Console() if sys.stdout.isatty() else Console(width=150))
    if given.markdown is not None:
        given.markdown.write_text(markdown(rows), encoding="utf-8")
    sys.exit(1 if any(faults(rows).values()) else 0)


if __name__ == "__main__":
    main()
