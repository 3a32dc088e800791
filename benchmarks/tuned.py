"""What tuned degrees read beyond the paper's designs, and beyond those of others.

    python -m benchmarks.tuned --data-dir DIR --out tuned.csv --markdown tuned-table.md

Client and auxiliary batches of the same size are drawn by the seed, and do not overlap. Most cells
are peeling bounds: the activation grid of the layer that the design shapes, peeled, which takes the
time of the design alone. With `--decoder` the cells at B = 512, 700 and 900 go through the decoder
in float64 as well, effort 0. QBI and PAIRS get standardised features, for which they are made.
Rows are appended as they come, so that an interrupted run resumes where it stopped; `--datasets`,
`--batch-sizes`, `--methods` and `--seeds` run a part of it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from statistics import fmean

import numpy as np
import torch

from benchmarks.cells import read_rows, run
from benchmarks.command import arguments, show
from gradpeel.attacker import Attacker
from gradpeel.audit import audit
from gradpeel.datasets import Dataset, draw_batch, load, rescale
from gradpeel.datasets.standard import STANDARD
from gradpeel.designs import DesignName, DesignOptions, Layer
from gradpeel.exposure import Exposure, copies_of
from gradpeel.networks import mlp
from gradpeel.paper.table1 import BATCH_SIZES

METHODS = ("soliton-data", "tuned", "soliton-free", "tuned-free", "qbi", "pairs")
STANDARDISED = ("qbi", "pairs")
NAMED = (512, 700, 900)
NEURONS = 1000
FIRST = "harus"
"""The data set whose first samples are other persons' than the server's: measured on them too."""


@dataclass(frozen=True)
class Cell:
    """One design on one drawn pair of batches."""

    dataset: str
    method: str
    batch_size: int
    seed: int
    drawn: int
    decoded: int


@dataclass(frozen=True, kw_only=True)
class Row:
    """What was measured of it; without the decoder `recovered` repeats `reachable`."""

    dataset: str
    method: str
    batch_size: int
    seed: int
    drawn: int
    decoded: int
    reachable: int
    recovered: int
    false_certificates: int
    dead: int
    live_at_stall: int
    largest_degree: int
    seconds: float

    @property
    def cell(self) -> Cell:
        """The cell this is the measurement of."""
        return Cell(self.dataset, self.method, self.batch_size, self.seed, self.drawn, self.decoded)

    @property
    def rate(self) -> float:
        """Share of the batch that comes back."""
        return self.recovered / self.batch_size

    def __str__(self) -> str:
        how = "decoder" if self.decoded else "bound"
        where = f"{self.dataset} {self.method} B={self.batch_size} seed {self.seed}"
        return f"{where} {how}: {self.recovered} of {self.reachable}, {self.seconds:.1f} s"


@cache
def _data(name: str, data_dir: Path, *, standardised: bool) -> Dataset:
    found = load(name, data_dir=data_dir)
    return rescale(found, "standard") if standardised else found


def measure(cell: Cell, data_dir: Path) -> Row:
    """Shape a layer for one batch, peel its grid and, where asked, decode its gradient."""
    data = _data(cell.dataset, data_dir, standardised=cell.method in STANDARDISED)
    batch = draw_batch(
        data,
        cell.batch_size,
        shuffle=bool(cell.drawn),
        rng=np.random.default_rng([cell.seed, 1]),
    )
    design = DesignOptions(DesignName(cell.method)).build(batch.auxiliary)
    started = time.process_time()
    empty = torch.zeros(NEURONS, data.features, dtype=torch.float64)
    layer = design.shape(
        Layer(empty, empty[:, 0]),
        batch_size=cell.batch_size,
        rng=np.random.default_rng(cell.seed),
        front=torch.nn.Flatten(),
    )
    seconds = time.process_time() - started
    rows = batch.x.flatten(1)
    copies = copies_of(rows)
    exposed = Exposure.of((rows @ layer.weight.T + layer.bias > 0).T[:, copies], copies)
    left = exposed.grid[:, ~exposed.reached].sum(dim=1)
    recovered, false = int(exposed.reached.sum()), 0
    if cell.decoded:
        model = mlp(
            data.features,
            data.classes,
            (NEURONS,),
            rng=np.random.default_rng([cell.seed, 0]),
            sample_shape=data.sample_shape,
        )
        fixed = Attacker(_Shaped(layer, design.name), effort=0)
        found = audit(model, batch.x, batch.y, attacker=fixed, seed=cell.seed)
        recovered, false = found.score.recovered, found.score.false_certificates
    return Row(
        dataset=cell.dataset,
        method=cell.method,
        batch_size=cell.batch_size,
        seed=cell.seed,
        drawn=cell.drawn,
        decoded=cell.decoded,
        reachable=int(exposed.reached.sum()),
        recovered=recovered,
        false_certificates=false,
        dead=int((exposed.degrees == 0).sum()),
        live_at_stall=int((left > 0).sum()),
        largest_degree=int(exposed.degrees.max()),
        seconds=round(seconds, 2),
    )


@dataclass(frozen=True, eq=False)
class _Shaped:
    """A layer that was shaped before, so that the search does not run twice."""

    layer: Layer
    name: str
    weights: str = "independent"
    active: bool = True
    adversary: str = "a server that sets the first layer's weights and biases"

    def shape(self, *_: object, **__: object) -> Layer:
        return self.layer


def plan(
    datasets: Sequence[str],
    methods: Sequence[str],
    batch_sizes: Sequence[int],
    seeds: int,
    *,
    decoder: bool,
) -> Iterator[Cell]:
    """The cells of a run, seed by seed, so that a part of it already says something."""
    for seed in range(seeds):
        for dataset in datasets:
            for size in batch_sizes:
                for method in methods:
                    yield Cell(dataset, method, size, seed, 1, int(decoder and size in NAMED))
                    if dataset == FIRST and method not in STANDARDISED:
                        yield Cell(dataset, method, size, seed, 0, 0)


def tabulate(rows: Sequence[Row]) -> Iterator[list[str]]:
    """Lines of the table: mean rate of each method, over the seeds that all of them have."""
    groups: dict[tuple[str, int, int], dict[str, list[Row]]] = {}
    order = {name: place for place, name in enumerate(STANDARD)}
    for row in sorted(rows, key=lambda row: (order[row.dataset], -row.drawn, row.batch_size)):
        group = groups.setdefault((row.dataset, row.drawn, row.batch_size), {})
        group.setdefault(row.method, []).append(row)
    for (dataset, drawn, size), group in groups.items():
        title = STANDARD[dataset].title
        line = [title if drawn else f"{title}, first samples", str(size)]
        for method in METHODS:
            # A decoded cell replaces the same cell's bound.
            best = {row.seed: row for row in sorted(group.get(method, ()), key=_decoded)}
            line.append(_cell(list(best.values())))
        tuned = group.get("tuned", [])
        line += [f"{fmean(row.live_at_stall for row in tuned):.0f}"] if tuned else [""]
        yield line


def _decoded(row: Row) -> int:
    return row.decoded


def _cell(rows: Sequence[Row]) -> str:
    if not rows:
        return ""
    mark = "*" if all(row.decoded for row in rows) else ""
    return f"{fmean(row.rate for row in rows):.3f}{mark} ({len(rows)})"


def findings(rows: Sequence[Row]) -> Iterator[str]:
    """What holds over all cells."""
    decoded = [row for row in rows if row.decoded]
    if decoded:
        equal = sum(row.recovered == row.reachable for row in decoded)
        false = sum(row.false_certificates for row in decoded)
        yield f"decoder equals the peeling bound in {equal} of {len(decoded)} cells; {false} false"
    for better, plain in (("tuned", "soliton-data"), ("tuned-free", "soliton-free")):
        gains = list(_gains(rows, better, plain))
        if not gains:
            continue
        worst = min(gains)
        below = sum(gain < -0.01 for gain, _ in gains)
        middle = [gain for gain, where in gains if where[1] and 256 <= where[2] <= 512]
        yield (
            f"{better} against {plain}: {len(gains)} cells, worst {worst[0]:+.3f} at {worst[1]}, "
            f"{below} below by more than 0.01"
            + (f", mean gain at B = 256 to 512 {fmean(middle):+.3f}" if middle else "")
        )
    slowest = max((row for row in rows if row.method == "tuned"), key=_seconds, default=None)
    if slowest is not None:
        yield f"slowest search: {slowest.seconds:.1f} CPU seconds ({slowest})"


def _seconds(row: Row) -> float:
    return row.seconds


def _gains(
    rows: Sequence[Row], better: str, plain: str
) -> Iterator[tuple[float, tuple[str, int, int]]]:
    """By cell, the mean difference over the seeds that both methods have."""
    rates = {(row.dataset, row.drawn, row.batch_size, row.seed, row.method): row for row in rows}
    groups: dict[tuple[str, int, int], list[float]] = {}
    for (dataset, drawn, size, seed, method), row in rates.items():
        other = rates.get((dataset, drawn, size, seed, plain))
        if method == better and other is not None:
            groups.setdefault((dataset, drawn, size), []).append(row.rate - other.rate)
    for where, found in groups.items():
        yield fmean(found), where


def main() -> None:
    parser = arguments(__doc__, out="tuned.csv")
    parser.add_argument("--datasets", default=",".join(STANDARD), help="names, with commas")
    parser.add_argument("--methods", default=",".join(METHODS), help="designs, with commas")
    parser.add_argument("--batch-sizes", default=",".join(map(str, BATCH_SIZES)))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--decoder", action="store_true", help="decode the named cells")
    given = parser.parse_args()
    cells = plan(
        given.datasets.split(","),
        given.methods.split(","),
        [int(size) for size in given.batch_sizes.split(",")],
        given.seeds,
        decoder=given.decoder,
    )
    run(cells, partial(measure, data_dir=given.data_dir), given.out, Row, workers=given.workers)
    rows = list(read_rows(given.out, Row))
    titles = ("data set", "B", *METHODS, "live neurons left (tuned)")
    show(titles, tabulate(rows), findings(rows), markdown=given.markdown)


if __name__ == "__main__":
    main()
