"""Run one cell, and what is kept of it.

Everything random follows from the cell's seed, through generators of its own: [seed, 0] draws the
network, [seed, 1] the samples, and the audit seeds design and noise. So a batch is the same for all
designs, and a network's start for all batches.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gradpeel.aggregation import Aggregation
from gradpeel.attacker import Attacker
from gradpeel.audit import Audit, audit
from gradpeel.datasets import Dataset, draw_batch
from gradpeel.networks import mlp
from gradpeel.scoring import Outcome
from gradpeel.sweeps.cell import Cell

__all__ = ["Measurement", "measure"]


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """What one audit measured.

    Samples of the batch are counted in `recovered`, `reachable`, `faint`, `coarse`, `inexact`,
    `hidden`, `missed` and `beyond_bound`, all copies of one; certificates in the others. `rough`
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
    beyond_bound: int
    false_certificates: int
    rough: int
    repeats: int
    wrong_copies: int
    wrong_labels: int
    unlabelled: int
    wrong_estimates: int
    batch_size_found: int
    rounds: int
    baseline_rate: float
    max_distance: float
    max_abs_error: float

    @classmethod
    def of(cls, audit: Audit) -> Measurement:
        """Count what came back, and what became of the rest."""
        score, reached = audit.score, audit.exposure.reached
        was_recovered = [outcome is Outcome.RECOVERED for outcome in score.outcomes]
        beyond = [was and not could for was, could in zip(was_recovered, reached, strict=True)]
        right = score.matches >= 0
        return cls(
            recovered=score.recovered,
            reachable=int(reached.sum()),
            faint=score.outcomes.count(Outcome.FAINT),
            coarse=score.outcomes.count(Outcome.COARSE),
            inexact=score.outcomes.count(Outcome.INEXACT),
            hidden=score.outcomes.count(Outcome.HIDDEN),
            missed=score.outcomes.count(Outcome.MISSED),
            beyond_bound=sum(beyond),
            false_certificates=score.false_certificates,
            rough=score.inexact_certificates,
            repeats=score.repeats,
            wrong_copies=score.wrong_multiplicities,
            wrong_labels=int((score.labels_judged & ~score.labels_right).sum()),
            unlabelled=score.unlabelled,
            wrong_estimates=int((right & ~score.estimates_hold).sum()),
            batch_size_found=audit.recovery.batch_size.value or 0,
            rounds=audit.recovery.cascade_length,
            baseline_rate=score.baseline_rate,
            max_distance=max(score.distances[right].tolist(), default=0.0),
            max_abs_error=score.max_abs_error or 0.0,
        )

    @property
    def account(self) -> str:
        """What came back, and what became of the rest, in a line."""
        rest = {
            "false": self.false_certificates,
            "rough": self.rough,
            "faint": self.faint,
            "coarse": self.coarse,
            "inexact": self.inexact,
            "hidden": self.hidden,
            "missed": self.missed,
        }
        named = "".join(f", {count} {why}" for why, count in rest.items() if count)
        return f"{self.recovered} of {self.reachable} reachable{named}"


def measure(cell: Cell, dataset: Dataset) -> tuple[Measurement, float]:
    """Run one audit.

    Args:
        cell: its settings.
        dataset: the data set the cell names.

    Returns:
        What it measured, and the seconds the decoder took, which are not a function of the cell.

    Raises:
        GradpeelError: the settings do not fit the data.

    Example:
        >>> from gradpeel.datasets import load
        >>> cell = Cell(dataset="digits", design="passive", batch_size=16, neurons=200)
        >>> measure(cell, load("digits"))[0].account
        '16 of 16 reachable'
    """
    batch = draw_batch(
        dataset,
        cell.samples,
        shuffle=cell.shuffle,
        rng=np.random.default_rng([cell.seed, 1]),
    )
    options = cell.options
    model = mlp(
        dataset.features,
        dataset.classes,
        (cell.neurons, *cell.tail),
        rng=np.random.default_rng([cell.seed, 0]),
        init=options.network_init.value,
        sample_shape=dataset.sample_shape,
    )
    found = audit(
        model,
        batch.x,
        batch.y,
        client=cell.client,
        attacker=Attacker(options.build(batch.auxiliary), effort=cell.effort),
        aggregation=Aggregation(cell.clients),
        seed=cell.seed,
    )
    return Measurement.of(found), found.seconds
