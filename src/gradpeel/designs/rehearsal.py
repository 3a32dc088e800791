"""Rehearsals: what degrees will do to a client's batch, foreseen on the auxiliary batch.

Degrees that are exact on the auxiliary batch are not those of the client's batch. There a threshold
that d samples were to exceed is exceeded by d plus or minus the square root of 2 d, together for
all neurons that the same few outer samples fire, and if clients differ from the server's data, by
more samples or fewer throughout. At low degrees, on which a cascade depends, this is all the
difference; a search that does not see it praises laws that fail.

A rehearsal lets the auxiliary batch be the client's, and weights its samples at random to stand for
the data the server calibrates on. The weights have mean 1 and variance 3 (the sampling errors of
both batches, and half as much again: outer samples that nobody has seen cannot be rehearsed), and a
random tilt along the leading directions of the data: a shift between them.

Example:
    >>> rng = np.random.default_rng(0)
    >>> stage = Rehearsals(rng.normal(size=(64, 100)), batch_size=64, tilts=[0.0] * 4, rng=rng)
    >>> places = stage.nearest(np.full(100, 8))
    >>> float(stage.felt(1)[places, np.arange(100)].mean().round())  # eight were aimed at
    8.0
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from gradpeel.exposure import peel_grid

__all__ = ["Rehearsals", "prudent"]

HIGHEST = 0.7
"""Largest degree as a share of the batch: denser neurons are spent before any cascade ends."""
GRID = 96
"""How many degrees to tell apart, evenly spaced in the logarithm."""
VARIANCE = 3.0
DIRECTIONS = 10


class Rehearsals:
    """Simulated pairs of a calibration and a client, for neurons with given pre-activations.

    Attributes:
        degrees: the degrees of B that can be rehearsed, rising.
        neurons: how many neurons take part: all, or where there are fewer auxiliary samples than
            the client has, so many that neurons and samples keep their proportion.
    """

    def __init__(
        self,
        values: NDArray[np.float64],
        *,
        batch_size: int,
        tilts: Sequence[float],
        rng: np.random.Generator,
    ) -> None:
        """Draw the rehearsals.

        Args:
            values: (auxiliary, neurons) pre-activations without biases, in random order.
            batch_size: the client's batch size B.
            tilts: of each rehearsal, the most that the logarithm of a weight may change for a
                sample one deviation out.
            rng: the source of randomness.
        """
        rows = values[:batch_size].astype(np.float32)
        samples = len(rows)
        self.neurons = max(1, values.shape[1] * samples // batch_size)
        rows = rows[:, : self.neurons]
        self.degrees: NDArray[np.int64] = np.unique(
            np.rint(np.geomspace(1, max(1.0, HIGHEST * batch_size), GRID)).astype(np.int64)
        )
        order = np.argsort(-rows, axis=0, kind="stable")
        falling = np.take_along_axis(rows, order, axis=0)
        # Place d lies midway between the d-th and (d+1)-th largest; none is above place 0.
        ends = np.full((1, self.neurons), np.inf, np.float32)
        midway = (falling[:-1] + falling[1:]) / 2
        self._thresholds = np.concatenate([ends, midway, -ends])
        self._rows = rows
        wanted = self.degrees.astype(np.float64) * (samples / batch_size)
        leading = _leading_directions(rows)
        self._felt = [
            _exceeding(_draw_weights(leading, tilt, rng)[order].cumsum(axis=0), wanted)
            for tilt in tilts
        ]

    def __len__(self) -> int:
        return len(self._felt)

    def felt(self, which: int) -> NDArray[np.int32]:
        """(degrees, neurons) how many of the client's samples fire a neuron set for a degree."""
        return self._felt[which]

    def nearest(self, degrees: NDArray[np.int64]) -> NDArray[np.int64]:
        """The places in `degrees` that come nearest to some degrees of B."""
        middles = (self.degrees[1:] + self.degrees[:-1]) / 2
        return np.searchsorted(middles, degrees).astype(np.int64)

    def reached(self, places: NDArray[np.int64], which: Iterable[int]) -> NDArray[np.float64]:
        """Share of the batch that peeling reaches, in some of the rehearsals.

        Args:
            places: (neurons,) of the neurons' degrees in `degrees`.
            which: rehearsals, from 0.
        """
        columns, shares = np.arange(self.neurons), []
        for number in which:
            counts = self._felt[number][places[: self.neurons], columns]
            grid = self._rows > self._thresholds[counts, columns]
            shares.append(float((peel_grid(grid.T) > 0).double().mean()))
        return np.array(shares)


def prudent(shares: NDArray[np.float64]) -> float:
    """What to expect of some rehearsals: midway between their mean and that of the worse half.

    A cascade that never gets going costs more than many others gain.

    Example:
        >>> prudent(np.array([1.0, 0.25, 1.0, 0.75]))
        0.625
    """
    worse = np.sort(shares)[: (len(shares) + 1) // 2]
    return float(shares.mean() + worse.mean()) / 2


def _leading_directions(rows: NDArray[np.float32]) -> NDArray[np.float64]:
    """(samples, directions) each sample's place along the directions of largest variance."""
    centred = rows.astype(np.float64) - rows.mean(axis=0)
    vectors: NDArray[np.float64] = np.linalg.eigh(centred @ centred.T)[1]
    leading: NDArray[np.float64] = vectors[:, ::-1][:, :DIRECTIONS] * math.sqrt(len(rows))
    return leading


def _draw_weights(
    leading: NDArray[np.float64], tilt: float, rng: np.random.Generator
) -> NDArray[np.float64]:
    samples, directions = leading.shape
    towards = rng.uniform(0, tilt) * rng.normal(size=directions) / np.sqrt(directions)
    drawn = rng.gamma(1 / VARIANCE, VARIANCE, size=samples) * np.exp(leading @ towards)
    weights: NDArray[np.float64] = drawn * (samples / drawn.sum())
    return weights


def _exceeding(cumulative: NDArray[np.float64], wanted: NDArray[np.float64]) -> NDArray[np.int32]:
    """(degrees, neurons) samples before the cumulative weight reaches what is wanted."""
    found = [np.searchsorted(column, wanted) for column in cumulative.T]
    return np.stack(found, axis=1).astype(np.int32)
