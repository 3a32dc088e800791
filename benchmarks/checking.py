"""Is what the check predicts what the decoder reads, and what does it cost?

    python -m benchmarks.checking --data-dir DIR [--out docs/checking.csv]
        [--markdown docs/checking-table.md] [--workers 1]

For every design and batch size a perceptron of 1,000 neurons is checked on one batch: the
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
from gradpeel.designs import Construction, Design, Passive, SolitonData, SolitonFree, TrapWeights
from gradpeel.networks import mlp

NEURONS = 1000
REPEATS = 9
DATA = ("fashion_mnist", "harus")
BATCH_SIZES = (64, 128, 256, 512)
DESIGNS = (
    ("passive", "gaussian"),
    ("passive", "torch"),
    *(
        (name, weights)
        for name in ("trap weights 0.95", "trap weights 0.99", "soliton-free", "soliton-data")
        for weights in ("independent", "mirrored")
    ),
)
TITLES = (
    "data", "design", "weights", "batch", "predicted", "certified", "same records", "same rounds",
    "check / ms", "step / ms",
)  # fmt: skip

HEAD = """# Checks: table

Written by `python -m benchmarks.checking --data-dir DIR --out docs/checking.csv --markdown
docs/checking-table.md`; explained in
[Check before you send](check.md#predict-it-in-one-forward-pass).

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
    parser.add_argument("--data", nargs="+", default=DATA, choices=DATA)
    given = parser.parse_args()
    cells = [
        Cell(data, design, weights, size)
        for data in given.data
        for size in BATCH_SIZES
        for design, weights in DESIGNS
    ]
    one = partial(measure, data_dir=given.data_dir)
    rows = run(cells, one, given.out, Measured, workers=given.workers)
    show(TITLES, map(line, rows), findings(rows), markdown=given.markdown, before=HEAD)


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


def line(row: Measured) -> tuple[str, ...]:
    """A row of the table."""
    return (
        row.data,
        row.design,
        row.weights,
        f"{row.batch_size}",
        f"{row.predicted}",
        f"{row.certified}",
        "yes" if not row.other_records else f"all but {row.other_records}",
        "yes" if not row.other_rounds else f"all but {row.other_rounds}",
        f"{row.check_ms:.1f}",
        f"{row.step_ms:.1f}",
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
    match cell.design.split():
        case ["passive"]:
            return Passive("torch" if cell.weights == "torch" else "gaussian")
        case ["trap", "weights", scale]:
            return TrapWeights(float(scale), weights)
        case ["soliton-free"]:
            return SolitonFree(weights)
        case _:
            return SolitonData(auxiliary, weights)


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
