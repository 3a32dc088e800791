"""What each rescue of the decoder buys: the conditions of real clients, with one of them left out.

    python -m benchmarks.ablation --data-dir DIR --out ablation.csv --markdown ablation-table.md

When a cascade stalls the decoder looks harder, in several ways (see `gradpeel.decoder.cascade`).
Every cell of some conditions is run with all of them, and once without each. Rows are appended as
they come, so an interrupted run resumes where it stopped; give every version of the code a file of
its own. The exit status is 1 if anything that was certified is wrong.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass, fields
from functools import partial
from pathlib import Path
from statistics import fmean
from unittest.mock import PropertyMock, patch

from benchmarks import audits
from benchmarks.cells import run
from benchmarks.command import arguments, show
from benchmarks.conditions import chosen, plan
from gradpeel.datasets.standard import STANDARD
from gradpeel.decoder.cascade import Peeling
from gradpeel.decoder.judge import Judge
from gradpeel.decoder.recovery import Stage

CONDITIONS = "float32,float16,noise-1e-6,noise-1e-4,duplicates-20,unknown-tail,dropout,tail-*"
TITLES = ("left out", "condition", "cells", "recovered", "change", "bound", "seconds")


def _skip(stage: Stage) -> ExitStack:
    """Never look as hard as this, but go on to the next stage."""
    stack, after = ExitStack(), Peeling._after_a_stall  # noqa: SLF001

    def skipping(self: Peeling, current: Stage) -> Stage | None:
        found = after(self, current)
        return after(self, stage) if found is stage else found

    stack.enter_context(patch.object(Peeling, "_after_a_stall", skipping))
    return stack


def _without_trials() -> ExitStack:
    stack = ExitStack()
    last = PropertyMock(return_value=Stage.MEASURED)
    stack.enter_context(patch.object(Judge, "last_stage", last))
    return stack


def _without_kinks() -> ExitStack:
    stack = ExitStack()
    stack.enter_context(patch.object(Peeling, "_tell_kinks", lambda _: False))
    return stack


LEFT_OUT: dict[str, Callable[[], ExitStack]] = {
    "nothing": ExitStack,
    "measured": partial(_skip, Stage.MEASURED),
    "trial": _without_trials,
    "kinks": _without_kinks,
}


@dataclass(frozen=True)
class Cell(audits.Cell):
    """A cell of the conditions, with a rescue that is left out."""

    without: str = "nothing"

    def __str__(self) -> str:
        return f"without {self.without}: {super().__str__()}"


@dataclass(frozen=True, kw_only=True)
class Row(audits.Row):
    """What was measured of it."""

    without: str

    @property
    def cell(self) -> Cell:
        """The cell this is the measurement of."""
        return Cell(*(getattr(self, field.name) for field in fields(Cell)))


def measure(cell: Cell, data_dir: Path, neurons: int) -> Row:
    """Run one cell."""
    plain = audits.Cell(*(getattr(cell, field.name) for field in fields(audits.Cell)))
    with LEFT_OUT[cell.without]():
        row = audits.measure(plain, data_dir, neurons)
    return Row(**asdict(row), without=cell.without)


def tabulate(rows: list[Row]) -> Iterator[list[str]]:
    """Lines of the table: rates of a condition, and how much the rescue adds to them."""
    with_all = {row.cell: row for row in rows if row.without == "nothing"}
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.without, row.condition.split("-")[0]), []).append(row)
    for (without, condition), group in sorted(groups.items()):
        full = [with_all[_whole(row)] for row in group if _whole(row) in with_all]
        if len(full) != len(group):
            continue
        rate, best = fmean(row.rate for row in group), fmean(row.rate for row in full)
        yield [
            without,
            condition,
            str(len(group)),
            f"{rate:.4f}",
            f"{rate - best:+.4f}",
            f"{fmean(row.peeling_bound for row in group):.4f}",
            f"{fmean(row.seconds for row in group):.2f}",
        ]


def _whole(row: Row) -> Cell:
    return Cell(row.dataset, row.method, row.batch_size, row.seed, row.condition, "nothing")


def main() -> None:
    parser = arguments(__doc__, out="ablation.csv")
    parser.add_argument("--conditions", default=CONDITIONS, help="names or patterns, with commas")
    parser.add_argument("--largest", type=int, default=128, help="largest batch")
    parser.add_argument("--neurons", type=int, default=1000)
    given = parser.parse_args()
    cells = [
        Cell(**asdict(cell), without=without)
        for cell in plan(chosen(given.conditions), STANDARD, 1)
        if cell.batch_size <= given.largest
        for without in LEFT_OUT
    ]
    one = partial(measure, data_dir=given.data_dir, neurons=given.neurons)
    rows = run(cells, one, given.out, Row, workers=given.workers)
    show(TITLES, tabulate(rows), markdown=given.markdown)
    sys.exit(1 if any(audits.faults(list(rows)).values()) else 0)


if __name__ == "__main__":
    main()
