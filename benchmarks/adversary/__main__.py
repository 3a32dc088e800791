"""Try to make the decoder certify what is not true.

    python -m benchmarks.adversary --data-dir DIR --out adversary.csv --markdown adversary-table.md

Without `--data-dir` the embedded data sets are used alone; DIR may hold `<name>.npz` files of the
standard ones with x_train, y_train, x_test, y_test. With all of them a full run takes about 50 CPU
minutes, one thread per worker. `--quick` decodes one small round per case in about two minutes.
Rows are appended as they come, so an interrupted run resumes where it stopped; delete the file to
start over, and give every version of the code its own. The exit status is 1 if anything that the
decoder claimed is not true.
"""

from __future__ import annotations

import argparse
import os
import sys
from fnmatch import fnmatch
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.table import Column, Table

from benchmarks.adversary.families import FAMILIES, plan
from benchmarks.adversary.measuring import Row, measure
from benchmarks.adversary.summary import TITLES, faults, findings, markdown, tabulate, tally
from benchmarks.cells import run
from gradpeel.datasets import EMBEDDED
from gradpeel.datasets.standard import STANDARD


def chosen(patterns: str) -> list[str]:
    """The families that some pattern fits."""
    wanted = patterns.split(",")
    for pattern in wanted:
        if not any(fnmatch(name, pattern) for name in FAMILIES):
            sys.exit(f"family={pattern!r}: expected some of {', '.join(FAMILIES)}")
    return [name for name in FAMILIES if any(fnmatch(name, pattern) for pattern in wanted)]


def available(data_dir: Path | None) -> tuple[str, ...]:
    """The embedded data sets, and the standard ones that a folder holds."""
    if data_dir is None:
        return EMBEDDED
    found = tuple(name for name in STANDARD if (data_dir / f"{name}.npz").exists())
    if not found:
        sys.exit(f"{data_dir}: expected some of {', '.join(f'{name}.npz' for name in STANDARD)}")
    return (*EMBEDDED, *found)


def show(rows: list[Row], console: Console) -> None:
    """Print the table and the findings."""
    table = Table(
        *(Column(title, justify="right" if at else "left") for at, title in enumerate(TITLES))
    )
    for line in tabulate(rows):
        table.add_row(*line)
    console.print(table)
    for finding in findings(rows):
        console.print(finding, highlight=False, soft_wrap=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--data-dir", type=Path, help="folder of the standard data sets")
    parser.add_argument("--markdown", type=Path, help="also write the table to this file")
    parser.add_argument("--out", type=Path, default=Path("adversary.csv"))
    parser.add_argument("--family", default="*", help="names or patterns, with commas")
    parser.add_argument("--seeds", type=float, default=1.0, help="multiplies the number of seeds")
    parser.add_argument("--effort", type=float, default=1.0, help="0 for peeling alone")
    parser.add_argument("--quick", action="store_true", help="one small round per case")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    given = parser.parse_args()
    seeds = 0.0 if given.quick else given.seeds
    cells = plan(chosen(given.family), available(given.data_dir), seeds=seeds, small=given.quick)
    one = partial(measure, data_dir=given.data_dir, effort=given.effort)
    rows = run(cells, one, given.out, Row, workers=given.workers, tally=tally)
    show(rows, Console() if sys.stdout.isatty() else Console(width=160))
    if given.markdown is not None:
        given.markdown.write_text(markdown(rows), encoding="utf-8")
    sys.exit(1 if any(faults(rows).values()) else 0)


if __name__ == "__main__":
    main()
