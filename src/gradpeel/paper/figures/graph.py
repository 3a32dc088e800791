"""The graph of a small run: which sample fires which neuron, and what peeling makes of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gradpeel.audit import Audit
from gradpeel.datasets import Dataset, draw_batch
from gradpeel.designs import Passive, draw_weights
from gradpeel.errors import InputError
from gradpeel.exposure import peel_grid
from gradpeel.paper.figures.runs import audited
from gradpeel.reporting.matching import rounds_of

__all__ = ["PeelingGraph", "small_cascade"]

TRIES = 10_000
EDGES_A_SAMPLE = 3


@dataclass(frozen=True, eq=False)
class PeelingGraph:
    """An activation grid as a graph, and when its edges are read or peeled.

    Attributes:
        grid: (neurons, batch) of bool: the edges.
        rounds: (batch,) the round in which each sample is recovered; 0 for never.
        reads: (neurons, batch) of bool: the edges that were the last ones of their neuron when the
            sample was recovered. The other edges of a recovered sample are peeled.
    """

    grid: NDArray[np.bool_]
    rounds: NDArray[np.int64]
    reads: NDArray[np.bool_]

    @classmethod
    def of(cls, audit: Audit) -> PeelingGraph:
        """The grid of an audit, and when its decoder recovered which sample."""
        grid, rounds = audit.exposure.grid.numpy(), rounds_of(audit)
        # Samples that are never recovered stay on their neurons.
        never = rounds.max() + 1
        falls = np.where(grid, np.where(rounds > 0, rounds, never), 0)
        last = falls.max(axis=1, keepdims=True)
        alone = (falls == last).sum(axis=1, keepdims=True) == 1
        return cls(grid, rounds, grid & (falls == last) & alone & (last < never))

    @property
    def read_rounds(self) -> NDArray[np.int64]:
        """(neurons,) the round in which each neuron is read; 0 for never."""
        rounds: NDArray[np.int64] = np.where(self.reads, self.rounds, 0).max(axis=1)
        return rounds


def small_cascade(
    dataset: Dataset, *, batch_size: int, neurons: int, rounds: int, seed: int
) -> Audit:
    """Find a small network whose cascade is long enough to be looked at, and few edges cross.

    It is the first from `seed` on where every neuron fires, all samples are recovered in so many
    rounds, there are at most three edges a sample, and the decoder recovers the whole batch.

    Args:
        dataset: where the batch comes from.
        batch_size: samples in the batch.
        neurons: width of the hidden layer.
        rounds: how many the cascade is to take.
        seed: the first seed tried; `Audit.seed` is the one taken.

    Raises:
        InputError: no seed among the first ten thousand gives such a network.
    """
    x = draw_batch(dataset, batch_size).x.flatten(1).numpy()
    for one in range(seed, seed + TRIES):
        # The weights that `Passive` draws for this seed: few networks are worth an audit.
        weights = draw_weights("independent", neurons, dataset.features, np.random.default_rng(one))
        grid = weights @ x.T > 0
        falls = peel_grid(grid).numpy()
        if (
            falls.min() == 0
            or falls.max() != rounds
            or grid.sum() > EDGES_A_SAMPLE * batch_size
            or not grid.any(axis=1).all()
        ):
            continue
        found = audited(
            dataset, Passive("gaussian"), batch_size=batch_size, neurons=neurons, seed=one
        )
        if found.score.recovered == batch_size and found.recovery.cascade_length == rounds:
            return found
    raise InputError(
        f"{dataset.name}: none of {TRIES} networks of {neurons} neurons peels {batch_size} samples "
        f"in {rounds} rounds: expected data that fires neurons in different ways"
    )
