"""One audit of the benchmarks: a data set, a design, a batch size, a seed and a condition.

The samples are the first of the file, the network and the designs are the paper's, unless the
condition says otherwise; see `benchmarks.clients`.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

import gradpeel as gp
from benchmarks.cells import load_cached
from benchmarks.clients import CONDITIONS, PLAIN
from gradpeel.datasets import draw_batch
from gradpeel.designs import PAPER_METHODS
from gradpeel.sweeps import Measurement

__all__ = ["Cell", "Row", "faults", "measure"]


@dataclass(frozen=True, order=True)
class Cell:
    """One audit."""

    dataset: str
    method: str
    batch_size: int
    seed: int
    condition: str = PLAIN

    def __str__(self) -> str:
        return f"{self.condition} {self.dataset} {self.method} B={self.batch_size} seed {self.seed}"


@dataclass(frozen=True, kw_only=True)
class Row(Measurement, Cell):
    """What one audit measured, and the seconds the decoder took."""

    seconds: float

    def __str__(self) -> str:
        return f"{self.cell}: {self.account}"

    @property
    def cell(self) -> Cell:
        """The cell this is the measurement of."""
        return Cell(self.dataset, self.method, self.batch_size, self.seed, self.condition)

    @property
    def rate(self) -> float:
        """Share of the batch recovered."""
        return self.recovered / self.batch_size

    @property
    def peeling_bound(self) -> float:
        """Share of the batch that peeling the activation grid reaches."""
        return self.reachable / self.batch_size


def measure(cell: Cell, data_dir: Path, neurons: int) -> Row:
    """Run one cell."""
    condition = CONDITIONS[cell.condition]
    dataset = load_cached(data_dir / f"{cell.dataset}.npz")
    batch = draw_batch(dataset, cell.batch_size)
    x, y = condition.samples(batch, dataset.classes, rng=np.random.default_rng([cell.seed, 1]))
    audit = gp.audit(
        condition.network(dataset, neurons, rng=np.random.default_rng([cell.seed, 0])),
        x,
        y,
        client=gp.Client(dtype=condition.dtype, loss=condition.loss, noise=condition.noise),
        attacker=gp.Attacker(
            PAPER_METHODS[cell.method].build(batch.auxiliary),
            knows_batch_size=condition.knows_batch_size,
            knows_tail=condition.knows_tail,
            effort=0.0,
        ),
        seed=cell.seed,
    )
    return Row(**asdict(cell), **asdict(Measurement.of(audit)), seconds=audit.seconds)


def faults(rows: list[Row]) -> dict[str, int]:
    """What must not happen, counted."""
    return {
        "false certificates": sum(row.false_certificates for row in rows),
        "repeats": sum(row.repeats for row in rows),
        "wrong numbers of copies": sum(row.wrong_copies for row in rows),
        "wrong labels": sum(row.wrong_labels for row in rows),
    }
