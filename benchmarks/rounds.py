"""What rounds of local training (FedAvg) give away, against how much the network changes meanwhile.

    python -m benchmarks.rounds --data-dir DIR --out rounds.csv --markdown rounds-table.md

DIR holds `<name>.npz` files with x_train, y_train, x_test, y_test. Untouched networks of 1,000
neurons; clients take 5 or 20 steps on all of their samples, or one epoch or five in minibatches of
16, at learning rates of 0.01 and 0.1. `COMBINATIONS` lists the networks, inputs, dtypes and batch
sizes; after them come the same trainings where the server shaped the layer (`DESIGNED`). The cells
come in an order in which every part of the list covers all data sets and spreads over the
combinations, so a run may be stopped at any time (`--most` counts cells); rows are appended as they
come, and the next run resumes. The exit code is 1 if anything that was certified
is wrong.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from statistics import fmean
from types import MappingProxyType

import gradpeel as gp
from benchmarks import rows
from benchmarks.cells import markdown_table, run
from benchmarks.command import arguments, show
from benchmarks.row_suites import Cell, Setting
from gradpeel.datasets.standard import STANDARD

EFFORT = 0.5
"""Of the row cascade: half of the usual patience, since it is in vain where too much changes."""

SAMPLES = 5000
"""Of each data set to draw batches from; standardising all of them takes longer than an audit."""

EDGES = (0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 1.0)
"""Shares of activations that flip, between which the summary takes means."""

TRAININGS: Mapping[str, Setting] = MappingProxyType(
    {
        f"lr {lr}, {name}": Setting(client=replace(client, lr=lr))
        for lr in (0.01, 0.1)
        for name, client in (
            ("5 steps", gp.Client(lr=1.0, local_steps=5)),
            ("20 steps", gp.Client(lr=1.0, local_steps=20)),
            ("1 epoch of 16", gp.Client(lr=1.0, local_epochs=1, local_batch_size=16)),
            ("5 epochs of 16", gp.Client(lr=1.0, local_epochs=5, local_batch_size=16)),
        )
    }
)

COMBINATIONS = (
    *(
        Cell(dataset="", scaling=scaling, start=start, batch_size=64, setting=setting)
        for setting in TRAININGS
        for scaling, start in (("standardised", "torch"), ("unit", "torch"), ("unit", "paper"))
    ),
    *(
        Cell(
            dataset="",
            scaling="standardised",
            start="torch",
            batch_size=size,
            dtype=dtype,
            setting=setting,
        )
        for size, dtype, setting in (
            (64, "float32", "lr 0.01, 5 steps"),
            (64, "float32", "lr 0.01, 5 epochs of 16"),
            (64, "float32", "lr 0.1, 5 steps"),
            (64, "float32", "lr 0.1, 1 epoch of 16"),
            (128, "float64", "lr 0.01, 5 steps"),
            (128, "float64", "lr 0.1, 5 steps"),
        )
    ),
)

DESIGNED = tuple(
    Cell(dataset="", scaling="unit", start=design, batch_size=64, setting=setting)
    for setting in TRAININGS
    for design in ("trap-weights", "soliton-free", "soliton-data")
)

TITLES = (
    "data",
    "inputs",
    "start",
    "training",
    "dtype",
    "B",
    "flips",
    "hidden",
    "peeling bound",
    "readable",
    "recovered",
    "seconds",
)
SUMMARY_TITLES = ("activations that flip", "dtype", "rounds", "readable", "recovered", "whole")


@dataclass(frozen=True, kw_only=True)
class Row(rows.Row):
    """What came back.

    Attributes:
        flips: share of neurons and samples that fire at one end of the training only.
        hidden: share that fired in between, and at neither end.
    """

    flips: float
    hidden: float


def cells() -> Iterator[Cell]:
    """All data sets in turn, each time in other combinations."""
    for combinations in (COMBINATIONS, DESIGNED):
        count = len(combinations)
        # In steps of 7 a data set meets some of the combinations, and then others.
        circle = count // math.gcd(7 * len(STANDARD), count)
        for turn in range(count):
            for place, dataset in enumerate(STANDARD):
                step = 7 * (len(STANDARD) * turn + place) + turn // circle
                yield replace(combinations[step % count], dataset=dataset)


def measure(cell: Cell, data_dir: Path) -> Row:
    """Run one audit."""
    audit = rows.decode(cell, TRAININGS[cell.setting], data_dir, effort=EFFORT, most=SAMPLES)
    flips, hidden = changes(audit)
    return Row(**asdict(rows.row_of(cell, audit)), flips=flips, hidden=hidden)


def changes(audit: gp.Audit) -> tuple[float, float]:
    """The share of activations that flip from one end of a training to the other, and of others."""
    target, update = gp.split(audit.model), audit.update
    lr = 1.0 if update.training is None else update.training.lr or 1.0
    x = audit.truth.flatten(1).double()
    weight, bias = (
        part.double() - lr * update.gradients[name].double()
        for part, name in (
            (target.weight, target.weight_name),
            (target.bias, target.bias_name),
        )
    )
    before = x @ target.weight.double().T + target.bias.double() > 0
    after = x @ weight.T + bias > 0
    hidden = audit.exposure.grid.T & ~before & ~after
    return float((before != after).double().mean()), float(hidden.double().mean())


def tabulate(found: Iterable[Row]) -> Iterator[list[str]]:
    """Lines of the table, by the share of activations that flip."""
    for row in sorted(found, key=lambda row: (row.dtype, row.batch_size, row.flips)):
        yield [
            row.dataset,
            row.scaling,
            row.start,
            row.setting,
            row.dtype,
            str(row.batch_size),
            f"{row.flips:.3f}",
            f"{row.hidden:.4f}",
            *(f"{count / row.batch_size:.3f}" for count in (row.bound, row.readable)),
            f"{row.recovered / row.batch_size:.3f}",
            f"{row.seconds:.0f}",
        ]


def summarise(found: list[Row]) -> Iterator[list[str]]:
    """Means over rounds in which about as many activations flip."""
    for dtype in ("float64", "float32"):
        for low, high in zip((0.0, *EDGES), EDGES, strict=False):
            some = [row for row in found if row.dtype == dtype and low <= row.flips < high]
            if some:
                yield [
                    f"{low:.0%} to {high:.0%}",
                    dtype,
                    str(len(some)),
                    f"{fmean(row.readable / row.batch_size for row in some):.3f}",
                    f"{fmean(row.recovered / row.batch_size for row in some):.3f}",
                    str(sum(row.recovered == row.batch_size for row in some)),
                ]


def main() -> None:
    parser = arguments(__doc__, out="rounds.csv")
    parser.add_argument("--most", type=int, help="cells to measure, the first ones of the list")
    parser.add_argument("--training", default="", help="only these, for example 'lr 0.01'")
    given = parser.parse_args()
    some = [cell for cell in cells() if given.training in cell.setting][: given.most]
    found = run(
        some, partial(measure, data_dir=given.data_dir), given.out, Row, workers=given.workers
    )
    show(
        TITLES,
        tabulate(found),
        rows.findings([*found]),
        markdown=given.markdown,
        before=markdown_table(SUMMARY_TITLES, summarise(found)) + "\n",
    )
    sys.exit(1 if any(row.false for row in found) else 0)


if __name__ == "__main__":
    main()
