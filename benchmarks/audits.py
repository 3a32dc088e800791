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
from gradpeel.scoring import Outcome

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
class Row(Cell):
    """What one audit measured.

    Samples of the batch are counted in `recovered`, `reachable`, `faint`, `coarse`, `inexact`,
    `hidden`, `missed` and `beyond_oracle`, all copies of one; certificates in the others. `rough`
    ones are neither right nor false. A `batch_size_found` of 0 is none. `wrong_estimates` are
    right certificates whose own estimate of their error does not hold. Distances are root mean
    squares over the features in units of their range.
    """

    recovered: int
    reachable: int
    faint: int
    coarse: int
    inexact: int
    hidden: int
    missed: int
    beyond_oracle: int
    false_certificates: int
    rough: int
    repeats: int
    wrong_copies: int
    wrong_labels: int
    unlabelled: int
    wrong_estimates: int
    batch_size_found: int
    baseline_rate: float
    max_distance: float
    max_abs_error: float
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
    def oracle_rate(self) -> float:
        """Share of the batch that peeling the activation grid reaches."""
        return self.reachable / self.batch_size

    @property
    def account(self) -> str:
        """What came back, and what became of the rest."""
        rest = {
            "rough": self.rough,
            "faint": self.faint,
            "coarse": self.coarse,
            "inexact": self.inexact,
            "hidden": self.hidden,
            "missed": self.missed,
        }
        named = "".join(f", {count} {why}" for why, count in rest.items() if count)
        return f"{self.recovered} of {self.reachable} reachable{named}"


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
        design=PAPER_METHODS[cell.method].build(batch.auxiliary),
        seed=cell.seed,
        dtype=condition.dtype,
        loss=condition.loss,
        noise=condition.noise,
        state_batch_size=condition.state_batch_size,
        know_tail=condition.know_tail,
    )
    return _row(cell, audit)


def _row(cell: Cell, audit: gp.Audit) -> Row:
    score, reached = audit.score, audit.exposure.reached
    recovered = [outcome is Outcome.RECOVERED for outcome in score.outcomes]
    right = score.matches >= 0
    return Row(
        **asdict(cell),
        recovered=score.recovered,
        reachable=int(reached.sum()),
        faint=score.outcomes.count(Outcome.FAINT),
        coarse=score.outcomes.count(Outcome.COARSE),
        inexact=score.outcomes.count(Outcome.INEXACT),
        hidden=score.outcomes.count(Outcome.HIDDEN),
        missed=score.outcomes.count(Outcome.MISSED),
        beyond_oracle=sum(was and not could for was, could in zip(recovered, reached, strict=True)),
        false_certificates=score.false_certificates,
        rough=score.inexact_certificates,
        repeats=score.repeats,
        wrong_copies=score.wrong_multiplicities,
        wrong_labels=int((score.labels_judged & ~score.labels_right).sum()),
        unlabelled=score.unlabelled,
        wrong_estimates=int((right & ~score.estimates_hold).sum()),
        batch_size_found=audit.recovery.batch_size or 0,
        baseline_rate=score.baseline_rate,
        max_distance=max(score.distances[right].tolist(), default=0.0),
        max_abs_error=score.max_abs_error or 0.0,
        seconds=audit.seconds,
    )


def faults(rows: list[Row]) -> dict[str, int]:
    """What must not happen, counted."""
    return {
        "false certificates": sum(row.false_certificates for row in rows),
        "repeats": sum(row.repeats for row in rows),
        "wrong numbers of copies": sum(row.wrong_copies for row in rows),
        "wrong labels": sum(row.wrong_labels for row in rows),
    }
