"""Is what the check predicts what the decoder reads, and what does it cost?

    python -m benchmarks.checking --data-dir DIR [--out docs/checking.csv]
        [--markdown docs/checking-table.md] [--workers 1]

For every data set, design and batch size a perceptron of 1,000 neurons is checked on one batch: the
prediction (one forward pass, no labels) is compared with what peeling certifies in float64, record
for record and round for round. Then the prediction is timed in float32 next to one SGD step on the
same batch, forward and backward pass included; processor time, one thread, the median of several.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import nn

import gradpeel as gp
from benchmarks.cells import load_cached, run
from benchmarks.command import arguments, show
from gradpeel.checking.predictor import Predictor
from gradpeel.datasets import draw_batch
from gradpeel.datasets.standard import STANDARD
from gradpeel.designs import (
    QBI,
    Construction,
    Design,
    Pairs,
    Passive,
    SolitonData,
    SolitonFree,
    TrapWeights,
    Tuned,
    TunedFree,
)
from gradpeel.networks import mlp

NEURONS = 1000
REPEATS = 9
BATCH_SIZES = (64, 128, 256, 512)
DESIGNS = (
    ("passive", "gaussian"),
    ("passive", "torch"),
    *(
        (name, weights)
        for name in ("trap weights 0.95", "trap weights 0.99", "soliton-free", "soliton-data")
        for weights in ("independent", "mirrored")
    ),
    *((name, "independent") for name in ("tuned-free", "tuned", "qbi", "pairs")),
)
TITLES = (
    "design", "weights", "batches", "records",
    *(f"certified, B={size}" for size in BATCH_SIZES),
    "other records", "other rounds", "check / step",
)  # fmt: skip

HEAD = """# Checks: table

Written by `python -m benchmarks.checking --data-dir DIR --out docs/checking.csv --markdown
docs/checking-table.md`; explained in
[Check before you send](check.md#predict-it-in-one-forward-pass). Means over the data sets. Other
records are predicted and not certified or the other way round, other rounds those of records that
are both; the last column is processor time, the median over all batches.

"""


@dataclass(frozen=True)
class Cell:
    """One network and one batch."""

    data: str
    design: str
    weights: str
    batch_size: int


@dataclass(frozen=True)
class Measured:
    """What was predicted and what was read."""

    data: str
    design: str
    weights: str
    batch_size: int
    predicted: int
    certified: int
    other_records: int
    other_rounds: int
    rounds: int
    check_ms: float
    step_ms: float

    @property
    def cell(self) -> Cell:
        """The cell that this is the measurement of."""
        return Cell(self.data, self.design, self.weights, self.batch_size)

    def __str__(self) -> str:
        return (
            f"{self.data} {self.design} {self.weights} B={self.batch_size}: {self.predicted} "
            f"predicted, {self.certified} certified, {self.check_ms:.1f} of {self.step_ms:.1f} ms"
        )


def main() -> None:
    parser = arguments(__doc__, out="docs/checking.csv")
    parser.add_argument("--data", nargs="+", default=list(STANDARD), choices=STANDARD)
    given = parser.parse_args()
    cells = [
        Cell(data, design, weights, size)
        for size in BATCH_SIZES
        for design, weights in DESIGNS
        for data in given.data
    ]
    one = partial(measure, data_dir=given.data_dir)
    rows = run(cells, one, given.out, Measured, workers=given.workers)
    show(TITLES, lines(rows), findings(rows), markdown=given.markdown, before=HEAD)


def measure(cell: Cell, data_dir: Path) -> Measured:
    """Predict, decode, and take the time."""
    data = load_cached(data_dir / f"{cell.data}.npz")
    batch = draw_batch(data, cell.batch_size)
    model = mlp(
        data.features,
        data.classes,
        (NEURONS,),
        rng=np.random.default_rng(0),
        sample_shape=data.sample_shape,
    )
    attacker = gp.Attacker(_design(cell, batch.auxiliary), effort=0)
    predicted = gp.check(model, batch.x, decode=False, attacker=attacker)
    decoded = gp.check(model, batch.x, batch.y, attacker=attacker).audit
    if decoded is None:  # pragma: no cover - a decoded check always has one
        raise RuntimeError("not decoded")
    by_decoder = torch.zeros(cell.batch_size, dtype=torch.int64)
    matches, rounds = decoded.score.matches, decoded.recovery.rounds
    by_decoder[matches[matches >= 0]] = rounds[matches >= 0]
    by_decoder = by_decoder[predicted.exposure.copies]  # one certificate reads all copies
    other = (by_decoder > 0) != (predicted.rounds > 0)
    return Measured(
        cell.data,
        cell.design,
        cell.weights,
        cell.batch_size,
        predicted=predicted.readable,
        certified=int((by_decoder > 0).sum()),
        other_records=int(other.sum()),
        other_rounds=int(((by_decoder != predicted.rounds) & ~other).sum()),
        rounds=int(predicted.rounds.max()),
        **_times(decoded.model.float(), batch.x.float(), batch.y),
    )


def lines(rows: Sequence[Measured]) -> Iterator[tuple[str, ...]]:
    """One line of the table for each design."""
    for design, weights in DESIGNS:
        some = [row for row in rows if (row.design, row.weights) == (design, weights)]
        if not some:
            continue
        shares = []
        for size in BATCH_SIZES:
            certified = [row.certified / size for row in some if row.batch_size == size]
            shares.append(f"{statistics.mean(certified):.2f}" if certified else "-")
        yield (
            design,
            weights,
            f"{len(some)}",
            f"{sum(row.batch_size for row in some):,}",
            *shares,
            f"{sum(row.other_records for row in some)}",
            f"{sum(row.other_rounds for row in some)}",
            f"{statistics.median(row.check_ms / row.step_ms for row in some):.0%}",
        )


def findings(rows: Sequence[Measured]) -> Iterator[str]:
    """What the table says as a whole."""
    records = sum(row.batch_size for row in rows)
    wrong = sum(row.other_records for row in rows), sum(row.other_rounds for row in rows)
    yield (
        f"{len(rows)} batches, {records:,} records: {wrong[0]} of them are predicted and not "
        f"certified or the other way round, {wrong[1]} are certified in another round"
    )
    shares = [row.check_ms / row.step_ms for row in rows]
    yield (
        f"the check takes {statistics.median(shares):.0%} of the time of the training step in the "
        f"median, {max(shares):.0%} at most"
    )


def _design(cell: Cell, auxiliary: torch.Tensor) -> Design:
    weights: Construction = "mirrored" if cell.weights == "mirrored" else "independent"
    name, _, scale = cell.design.rpartition(" ")
    if name == "trap weights":
        return TrapWeights(float(scale), weights)
    designs: dict[str, Design] = {
        "passive": Passive("torch" if cell.weights == "torch" else "gaussian"),
        "soliton-free": SolitonFree(weights),
        "soliton-data": SolitonData(auxiliary, weights),
        "tuned-free": TunedFree(weights),
        "tuned": Tuned(auxiliary, weights),
        "qbi": QBI(),
        "pairs": Pairs(auxiliary),
    }
    return designs[cell.design]


def _times(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> dict[str, float]:
    predict = Predictor(model)
    model.requires_grad_(requires_grad=True)
    optimiser = torch.optim.SGD(model.parameters(), lr=1e-9)

    def step() -> None:
        optimiser.zero_grad()
        torch.autograd.backward(nn.functional.cross_entropy(model(x), y))
        optimiser.step()

    return {"check_ms": _median(lambda: predict(x)), "step_ms": _median(step)}


def _median(act: Callable[[], object]) -> float:
    act()
    found = []
    for _ in range(REPEATS):
        started = time.process_time()
        act()
        found.append(1e3 * (time.process_time() - started))
    return statistics.median(found)


if __name__ == "__main__":
    main()
