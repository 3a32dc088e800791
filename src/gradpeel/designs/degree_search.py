"""A law of degrees for given data: cross-entropy search over a histogram, judged by rehearsals.

Twelve bins, evenly spaced in the logarithm of the degree, each with a weight; inside a bin degrees
follow p(d) ~ 1/d. The search draws laws around a centre, rehearses each, and moves the centre to
the mean of the best, as the cross-entropy method does. It starts from the best of a few mixtures of
the robust soliton and 1/d.

Example:
    >>> from gradpeel.designs.rehearsal import Rehearsals, prudent
    >>> rng = np.random.default_rng(0)
    >>> stage = Rehearsals(rng.normal(size=(32, 60)), batch_size=32, tilts=[0.7] * 4, rng=rng)
    >>> law = find_law(stage, 32, rng=rng, rehearsals=4, generations=1)
    >>> law.shape == stage.degrees.shape, bool(np.isclose(law.sum(), 1))
    (True, True)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from gradpeel.designs.degrees import RobustSoliton, harmonic
from gradpeel.designs.rehearsal import Rehearsals, prudent

__all__ = ["GENERATIONS", "find_law", "spread_evenly"]

BINS = 12
GENERATIONS = 20
LAWS = 16
"""Per generation."""
BEST = 4
"""Of them, those that the centre moves to."""
REHEARSED = 12
"""Rehearsals of each law; every generation has other ones."""
STARTS = ((1.0, 0.5), (0.4, 0.25), (0.2, 0.25), (0.6, 0.5), (0.7, 0.1))
"""Share of the robust soliton, and where 1/d is cut off as a share of the batch."""
LEAST = 3e-3
"""Weight that every bin starts from."""


def find_law(
    stage: Rehearsals,
    batch_size: int,
    *,
    rng: np.random.Generator,
    rehearsals: int,
    generations: int = GENERATIONS,
    on_progress: Callable[[int, int], None] | None = None,
) -> NDArray[np.float64]:
    """Search a law of degrees for which peeling reaches most in rehearsals, see `prudent`.

    Args:
        stage: the neurons and rehearsals.
        batch_size: the client's batch size B.
        rng: the source of randomness.
        rehearsals: how many of them to use, from the first.
        generations: how often to move the centre.
        on_progress: called with the generations that are done, and of all.

    Returns:
        Probabilities of `stage.degrees`.
    """
    bins = _Bins(stage.degrees)

    def judge(log_weights: NDArray[np.float64], which: Sequence[int]) -> float:
        places = rng.permutation(spread_evenly(bins.law(log_weights), stage.neurons, rng))
        return prudent(stage.reached(places, which))

    starts = [bins.log_weights(stage, _mixture(batch_size, *start)) for start in STARTS]
    every = range(rehearsals)
    centre = max(starts, key=lambda start: judge(start, every))
    centres = [centre]
    deviation = np.full(len(centre), 0.7)
    for generation in range(generations):
        which = [(REHEARSED * generation + i) % rehearsals for i in range(REHEARSED)]
        drawn = centre + deviation * rng.normal(size=(LAWS, len(centre)))
        if generation:
            drawn[0] = centre
        judged = [judge(law, which) for law in drawn]
        best = drawn[np.argsort(judged, kind="stable")[-BEST:]]
        centre = best.mean(axis=0)
        centre -= centre.max()
        centres.append(centre)
        # Never quite still: the judgement rests on few rehearsals.
        deviation = 0.9 * best.std(axis=0) + 0.08
        if on_progress is not None:
            on_progress(generation + 1, generations)
    # Each was the mean of what did well in a few rehearsals; all of them decide which is best.
    return bins.law(max(centres, key=lambda law: judge(law, every)))


def spread_evenly(
    law: NDArray[np.float64], neurons: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Places in a law for all neurons, rising: its quantiles, with less spread than drawn ones.

    Example:
        >>> spread_evenly(np.array([0.25, 0.75]), 4, np.random.default_rng(0)).tolist()
        [0, 1, 1, 1]
    """
    quantiles = (np.arange(neurons) + rng.random()) / neurons
    places = np.searchsorted(np.cumsum(law), quantiles, side="right")
    return np.minimum(places, len(law) - 1).astype(np.int64)


def _mixture(batch_size: int, share: float, cut: float) -> NDArray[np.float64]:
    soliton = RobustSoliton().probabilities(batch_size)
    return share * soliton + (1 - share) * harmonic(batch_size, cut)


class _Bins:
    """Laws of degrees as logarithms of the bins' weights."""

    def __init__(self, degrees: NDArray[np.int64]) -> None:
        edges = np.geomspace(1, degrees[-1] + 1, BINS + 1)[1:-1]
        # Without the bins that hold no degree, as in small batches.
        _, self._bin = np.unique(np.searchsorted(edges, degrees, side="right"), return_inverse=True)
        # 1/d, where a degree stands for all those around it.
        logs = np.log(degrees + 0.5)
        density = np.diff(logs, prepend=np.log(0.5))
        self._inside = density / np.bincount(self._bin, density)[self._bin]

    def law(self, log_weights: NDArray[np.float64]) -> NDArray[np.float64]:
        weights = np.exp(log_weights - log_weights.max())
        law: NDArray[np.float64] = weights[self._bin] * self._inside
        law /= law.sum()
        return law

    def log_weights(
        self, stage: Rehearsals, probabilities: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """The bins' weights in a distribution over the degrees 1..B."""
        places = stage.nearest(np.arange(1, len(probabilities) + 1))
        weights = np.bincount(self._bin[places], probabilities, minlength=self._bin.max() + 1)
        logs: NDArray[np.float64] = np.log(np.maximum(weights, LEAST))
        return logs
