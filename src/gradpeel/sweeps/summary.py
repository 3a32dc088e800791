"""Means over seeds, and how sure they are.

Example:
    >>> print(estimate([0.5, 0.6, 0.7]))
    0.600 [0.352, 0.848]
    >>> print(estimate([1.0]))
    1.000
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev

from gradpeel.sweeps.cell import Cell
from gradpeel.sweeps.store import Finished

__all__ = ["Estimate", "Group", "estimate", "over_seeds"]

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Estimate:
    """A mean rate and the interval that holds the true one in 95 of 100 such experiments.

    Attributes:
        mean: the mean over seeds.
        reach: half the interval; 0 with a single seed, which has none.
        count: number of seeds.
    """

    mean: float
    reach: float
    count: int

    @property
    def low(self) -> float:
        """Lower end of the interval; no rate is below 0."""
        return max(0.0, self.mean - self.reach)

    @property
    def high(self) -> float:
        """Upper end of the interval; no rate is above 1."""
        return min(1.0, self.mean + self.reach)

    def __str__(self) -> str:
        if self.count == 1:
            return f"{self.mean:.3f}"
        return f"{self.mean:.3f} [{self.low:.3f}, {self.high:.3f}]"


def estimate(rates: Sequence[float]) -> Estimate:
    """Student's interval around the mean of some rates."""
    mean = fmean(rates)
    if len(rates) == 1:
        return Estimate(mean, 0.0, 1)
    # The quantile of Student's t distribution; scipy.stats gives the same but loads half of SciPy.
    from scipy.special import stdtrit  # noqa: PLC0415

    factor = float(stdtrit(len(rates) - 1, (1 + CONFIDENCE) / 2))
    return Estimate(mean, factor * stdev(rates) / math.sqrt(len(rates)), len(rates))


@dataclass(frozen=True)
class Group:
    """The same audit over several seeds.

    Attributes:
        cell: its settings; the seed in it means nothing.
        ours: share of the batch recovered.
        bound: share of the batch that peeling the activation grid reaches.
        baseline: share that a single pass recovers, without peeling.
        rates: share of the batch recovered, by seed.
    """

    cell: Cell
    ours: Estimate
    bound: Estimate
    baseline: Estimate
    rates: tuple[float, ...]


def over_seeds(rows: Iterable[Finished]) -> list[Group]:
    """Put the seeds of each audit together, in the order in which they first come."""
    grouped: dict[Cell, list[tuple[float, float, float]]] = {}
    for row in rows:
        if row.measurement is not None:
            size, found = row.cell.samples, row.measurement
            rates = (found.recovered / size, found.reachable / size, found.baseline_rate)
            grouped.setdefault(replace(row.cell, seed=0), []).append(rates)
    groups = []
    for cell, by_seed in grouped.items():
        ours, bound, baseline = zip(*by_seed, strict=True)
        groups.append(Group(cell, estimate(ours), estimate(bound), estimate(baseline), ours))
    return groups
