"""What the guard leaves of an update, on all data sets and designs.

    python -m benchmarks.guarding --data-dir DIR [--out docs/guarding.csv]
        [--markdown docs/guarding-table.md]

Each cell guards the gradient of one batch in a network of 1,000 neurons, float64, and decodes the
result with the row cascade at its full effort. Besides the decoder's reading, each row holds how
well a stronger test could tell members from records that did not take part: the test compares how
far records are from the span of what was sent, and its area under the ROC curve is 0.5 if that says
nothing. The exit code is 1 if anything is read, or certified wrongly.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean
from time import process_time

import numpy as np
import torch
from torch import Tensor, nn

import gradpeel as gp
from benchmarks.cells import load_cached, read_rows, run
from benchmarks.command import arguments, show
from gradpeel.datasets import draw_batch, load
from gradpeel.datasets.standard import STANDARD
from gradpeel.designs import PAPER_METHODS, DesignName, DesignOptions, InitName, Layer
from gradpeel.networks import mlp
from gradpeel.target import split, with_first_layer

METHODS = {**PAPER_METHODS, "Default": DesignOptions(DesignName.PASSIVE, init=InitName.TORCH)}
"""The paper's, and a passive server with PyTorch's default start."""
DESIGNS = ("Passive", "Default", "TW-Ind", "SF-Ind", "SD-Ind")
SIZES = (32, 64, 128, 256)
NEURONS = 1000
OTHERS = 500
"""Records that did not take part, for the stronger test of membership."""


@dataclass(frozen=True)
class Cell:
    """One update to guard."""

    dataset: str
    design: str
    batch_size: int
    seed: int


@dataclass(frozen=True)
class Row:
    """What was read before and after."""

    dataset: str
    design: str
    batch_size: int
    seed: int
    peeled_before: int
    members_before: int
    certified: int
    readable: int
    false: int
    members: int
    rank: int
    masked: int
    kept: float
    nearest: float
    area: float
    seconds_to_guard: float

    @property
    def cell(self) -> Cell:
        """What this is the measurement of."""
        return Cell(self.dataset, self.design, self.batch_size, self.seed)

    def __str__(self) -> str:
        return f"{self.cell}: {self.readable} readable, rank {self.rank}, {self.masked} masked"


def measure(cell: Cell, data_dir: Path) -> Row:
    """Guard one update."""
    model, x, y, others = prepare(
        cell.dataset, cell.design, cell.batch_size, cell.seed, data_dir=data_dir
    )
    update = gp.local_update(model, x, y)
    before = gp.peel(model, update, effort=0)
    started = process_time()
    gp.guard(model, x, y, update=update, check=False)
    seconds = process_time() - started
    guarded = gp.guard(model, x, y, update=update)
    after = guarded.after
    if after is None or after.members is None:
        raise AssertionError(f"{cell}: not decoded")
    return Row(
        *(cell.dataset, cell.design, cell.batch_size, cell.seed),
        peeled_before=int(before.multiplicities.clamp(min=1).sum()),
        members_before=gp.contains(model, update, x).count("in"),
        certified=after.certified,
        readable=after.readable,
        false=after.false,
        members=after.members,
        rank=guarded.rank,
        masked=guarded.masked,
        kept=guarded.kept,
        nearest=guarded.nearest,
        area=_area(guarded.update, x, others),
        seconds_to_guard=seconds,
    )


def plan(
    datasets: Sequence[str], designs: Sequence[str], sizes: Sequence[int], *, seeds: int
) -> list[Cell]:
    """All cells, in an order whose parts cover all data sets, designs and batch sizes."""
    return [
        Cell(dataset, designs[(place + shift) % len(designs)], size, seed)
        for seed in range(seeds)
        for shift in range(len(designs))
        for size in sizes
        for place, dataset in enumerate(datasets)
    ]


def prepare(
    name: str, design: str, size: int, seed: int, *, data_dir: Path, neurons: int = NEURONS
) -> tuple[nn.Module, Tensor, Tensor, Tensor]:
    """A network as a client receives it, its batch and labels, and records of others."""
    path = data_dir / f"{name}.npz"
    dataset = load_cached(path) if path.exists() else load(name, data_dir=data_dir)
    rng = np.random.default_rng([seed, 1])
    batch = draw_batch(dataset, size, shuffle=True, rng=rng)
    options = METHODS[design]
    plain = mlp(
        dataset.features,
        dataset.classes,
        (neurons,),
        rng=np.random.default_rng([seed, 0]),
        init=options.network_init.value,
        sample_shape=dataset.sample_shape,
    ).double()
    target = split(plain)
    layer = options.build(batch.auxiliary).shape(
        Layer(target.weight, target.bias),
        batch_size=size,
        rng=np.random.default_rng(seed),
        front=target.front,
    )
    model = with_first_layer(plain, target, layer.weight, layer.bias)
    return model, batch.x.double(), batch.y, torch.from_numpy(dataset.x_test[:OTHERS])


def _area(update: gp.Update, members: Tensor, others: Tensor) -> float:
    """How often a member is nearer to the span of the update than a record that is not in it."""
    weight, bias = (gradient.double() for gradient in list(update.gradients.values())[:2])
    scale = float(weight.norm() / (bias.norm() * math.sqrt(weight.shape[1]) or 1.0)) or 1.0
    _, values, right = torch.linalg.svd(torch.cat([weight, scale * bias[:, None]], 1), False)
    span = right[values > 1e-9 * values[0]] if float(values[0]) else right[:0]

    def distances(records: Tensor) -> Tensor:
        flat = records.double().flatten(1)
        whole = torch.cat([flat, flat.new_full((len(flat), 1), scale)], 1)
        apart: Tensor = (whole - whole @ span.T @ span).norm(dim=1) / whole.norm(dim=1)
        return apart

    ours, theirs = distances(members), distances(others)
    nearer = (ours[:, None] < theirs).double() + 0.5 * (ours[:, None] == theirs).double()
    return float(nearer.mean())


def tabulate(rows: list[Row]) -> Iterator[list[str]]:
    """One line for each design and batch size: means over the data sets."""
    for design in DESIGNS:
        for size in SIZES:
            some = [row for row in rows if (row.design, row.batch_size) == (design, size)]
            if not some:
                continue
            count = sum(row.batch_size for row in some)
            yield [
                design,
                str(size),
                str(len(some)),
                f"{sum(row.peeled_before for row in some):,} of {count:,}",
                f"{sum(row.members_before for row in some):,}",
                str(sum(row.readable for row in some)),
                str(sum(row.members for row in some)),
                str(sum(row.false for row in some)),
                f"{min(row.rank for row in some)} to {max(row.rank for row in some)}",
                f"{max(row.masked for row in some) / 10:.1f} %",
                f"{min(row.kept for row in some):.1%}",
                f"{min(row.nearest for row in some):.2f}",
                f"{fmean(row.area for row in some):.2f}",
                f"{fmean(row.seconds_to_guard for row in some):.2f}",
            ]


TITLES = (
    "design",
    "B",
    "data sets",
    "peeled before",
    "members before",
    "readable after",
    "members after",
    "false",
    "rank left",
    "most masked",
    "least kept",
    "nearest candidate",
    "area of a stronger test",
    "seconds",
)
HEAD = (
    "# Guard: table\n\nWritten by `python -m benchmarks.guarding --data-dir DATA --out "
    "docs/guarding.csv --markdown docs/guarding-table.md`. 1,000 neurons, float64, one gradient. "
    "Every guarded update was decoded with the row cascade at its full effort.\n\n"
)


def main() -> None:
    parser = arguments(__doc__, out="guarding.csv")
    parser.add_argument("--datasets", default=",".join(STANDARD))
    parser.add_argument("--designs", default=",".join(DESIGNS))
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)))
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--tables", action="store_true", help="only of what the file holds")
    given = parser.parse_args()
    cells = plan(
        given.datasets.split(","),
        given.designs.split(","),
        [int(size) for size in given.sizes.split(",")],
        seeds=given.seeds,
    )
    one = partial(measure, data_dir=given.data_dir)
    rows = (
        list(read_rows(given.out, Row))
        if given.tables
        else run(cells, one, given.out, Row, workers=given.workers)
    )
    wrong = sum(row.readable + row.false for row in rows)
    found = [
        f"readable after: {sum(r.readable for r in rows)}, false: {sum(r.false for r in rows)}"
    ]
    show(TITLES, tabulate(rows), found, markdown=given.markdown, before=HEAD)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
