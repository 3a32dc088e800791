"""What one-step differences of float32 weights give away, beside the gradient itself.

    python -m benchmarks.differences --data-dir DIR --out differences.csv --markdown table.md

DIR holds `<name>.npz` files with x_train, y_train, x_test, y_test. A client takes one step of SGD
on an untouched network of 1,000 neurons with PyTorch's start and returns its weights; the update is
made of the weights before and after, with the learning rate declared and weight decay either
declared or left to be found. Peeling alone; with the row cascade where that reads little.

Rows are appended as they come, so an interrupted run resumes; give every version of the code a file
of its own. The exit code is 1 if anything that was certified is false.
"""

from __future__ import annotations

import copy
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import nn

import gradpeel as gp
from benchmarks.cells import load_cached, run
from benchmarks.command import arguments, show
from gradpeel.datasets import draw_batch
from gradpeel.exposure import exposure
from gradpeel.networks import mlp
from gradpeel.scoring import score

DATASETS = ("mnist", "fashion_mnist", "cifar10", "harus")
RATES = (1.0, 0.1, 0.01, 0.001)
TITLES = (
    "data",
    "B",
    "lr",
    "weight decay",
    "row cascade",
    "recovered",
    "readable",
    "by the gradient",
    "inexact",
    "false",
)


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One step of one client.

    Attributes:
        dataset: name of the data set.
        batch_size: samples of the step.
        lr: learning rate; 0 for the gradient itself.
        weight_decay: of the step.
        declared: whether it is declared.
        seed: draws network and batch.
        effort: of the row cascade.
    """

    dataset: str
    batch_size: int = 32
    lr: float = 0.0
    weight_decay: float = 0.0
    declared: int = 1
    seed: int = 0
    effort: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Row(Cell):
    """What was decoded.

    Attributes:
        recovered: samples that were certified, and are right.
        readable: samples that can be read, with or without a proof.
        inexact: certified, but farther from a sample than its error says.
        false: certified, and none of the samples.
        found: the weight decay behind the update, declared or found.
        seconds: of the decoder, on one thread.
    """

    recovered: int
    readable: int
    inexact: int
    false: int
    found: float
    seconds: float

    @property
    def cell(self) -> Cell:
        """The cell this is the measurement of."""
        names = Cell.__dataclass_fields__
        return Cell(**{name: value for name, value in asdict(self).items() if name in names})

    def __str__(self) -> str:
        return (
            f"{self.dataset} B={self.batch_size} lr={self.lr:g} decay {self.weight_decay:g}: "
            f"{self.recovered} recovered, {self.false} false, {self.seconds:.1f} s"
        )


def cells() -> Iterator[Cell]:
    """The gradient, and all rates with and without weight decay."""
    for dataset in DATASETS:
        yield Cell(dataset=dataset)
        for lr in RATES:
            yield Cell(dataset=dataset, lr=lr)
            yield Cell(dataset=dataset, lr=lr, weight_decay=1e-4, declared=0)
            yield Cell(dataset=dataset, lr=lr, weight_decay=1e-2)
            yield Cell(dataset=dataset, lr=lr, weight_decay=1e-2, declared=0)
    for decay, declared in ((0.0, 1), (1e-4, 0), (1e-2, 1), (1e-2, 0)):
        yield Cell(dataset="harus", lr=0.001, weight_decay=decay, declared=declared, effort=1.0)


def measure(cell: Cell, data_dir: Path) -> Row:
    """Take the step and decode it."""
    dataset = load_cached(data_dir / f"{cell.dataset}.npz")
    batch = draw_batch(dataset, cell.batch_size)
    x, y = batch.x.flatten(1).float(), batch.y
    rng = np.random.default_rng([cell.seed, 0])
    model = mlp(x.shape[1], dataset.classes, (1000,), rng=rng, init="torch").float()
    after = copy.deepcopy(model)
    optimiser = torch.optim.SGD(
        after.parameters(), lr=cell.lr or 1.0, weight_decay=cell.weight_decay
    )
    torch.autograd.backward(nn.functional.cross_entropy(after(x), y))
    update = gp.Update.from_gradients(after, batch_size=len(x))
    if cell.lr:
        optimiser.step()
        update = gp.Update.from_weights(
            model,
            after,
            lr=cell.lr,
            steps=1,
            weight_decay=cell.weight_decay if cell.declared else None,
            batch_size=len(x),
        )
    started = time.perf_counter()
    recovery = gp.peel(model, update, effort=cell.effort)
    seconds = time.perf_counter() - started
    seen = exposure(model, x)
    scored = score(recovery, x, y, exposure=seen, signals=torch.ones(len(x)), needed=0.0)
    return Row(
        **asdict(cell),
        recovered=scored.recovered,
        readable=scored.read,
        inexact=scored.inexact_certificates,
        false=scored.false_certificates,
        found=0.0 if update.training is None else update.training.weight_decay,
        seconds=seconds,
    )


def tabulate(rows: list[Row]) -> Iterator[list[str]]:
    """Lines of the table."""
    whole = {row.dataset: row.recovered for row in rows if not row.lr}
    for row in rows:
        if row.lr:
            how = f"{row.weight_decay:g}" + ("" if row.declared else f", found: {row.found:.3g}")
            yield [
                row.dataset, str(row.batch_size), f"{row.lr:g}", how,
                "yes" if row.effort else "no", str(row.recovered),
                str(row.readable), str(whole.get(row.dataset, "")), str(row.inexact),
                str(row.false),
            ]  # fmt: skip


def main() -> None:
    given = arguments(__doc__, out="differences.csv").parse_args()
    one = partial(measure, data_dir=given.data_dir)
    rows = run(cells(), one, given.out, Row, workers=given.workers)
    show(TITLES, tabulate(rows), markdown=given.markdown)
    sys.exit(1 if any(row.false for row in rows) else 0)


if __name__ == "__main__":
    main()
