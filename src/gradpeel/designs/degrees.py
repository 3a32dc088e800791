"""Degree distributions of LT codes (the paper's section "Luby Transform Codes").

A peeling cascade needs a few neurons of degree 1 to start, many of degree 2 to continue, and some
of high degree so that no sample is left out. The ideal soliton distribution provides this on
average; the robust one tolerates deviations, by extra mass on low degrees and a spike near B/R.

Example:
    >>> import numpy as np
    >>> probabilities = RobustSoliton(c=0.1, delta=0.5).probabilities(100)
    >>> 1 + probabilities.argsort()[::-1][:3]  # the likeliest degrees; 18 is the spike
    array([ 2,  3, 18])
    >>> RobustSoliton().draw(100, size=6, rng=np.random.default_rng(0)).shape
    (6,)
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gradpeel.checks import is_number
from gradpeel.errors import InputError

__all__ = ["RobustSoliton", "check_soliton", "harmonic", "ideal_soliton"]


def ideal_soliton(batch_size: int) -> NDArray[np.float64]:
    """Probabilities of the degrees 1..B: 1/B for degree 1, then 1/(i(i-1)).

    Args:
        batch_size: The number of samples B, positive.

    Returns:
        (batch_size,) probabilities, which telescope to 1; entry i belongs to degree i + 1.

    Raises:
        InputError: When `batch_size` is not positive.

    Example:
        >>> ideal_soliton(4).round(4).tolist()
        [0.25, 0.5, 0.1667, 0.0833]
    """
    if batch_size < 1:
        raise InputError(f"batch_size={batch_size}: expected a positive integer")
    lower = np.arange(1, batch_size, dtype=np.float64)
    return np.concatenate([[1 / batch_size], 1 / (lower * (lower + 1))])


def harmonic(batch_size: int, cut: float) -> NDArray[np.float64]:
    """Probabilities of the degrees 1..B that are as 1/d up to a share of the batch, zero above.

    Args:
        batch_size: The number of samples B, positive.
        cut: The largest degree as a share of B, in (0, 1]; degree 1 always counts.

    Example:
        >>> harmonic(6, 0.5).round(4).tolist()
        [0.5455, 0.2727, 0.1818, 0.0, 0.0, 0.0]
    """
    degrees = np.arange(1, batch_size + 1)
    mass: NDArray[np.float64] = np.where(degrees <= max(1.0, cut * batch_size), 1 / degrees, 0.0)
    mass /= mass.sum()
    return mass


@dataclass(frozen=True)
class RobustSoliton:
    """The robust soliton distribution, by default with the paper's (c_s, delta) = (0.05, 0.4).

    Attributes:
        c: c_s > 0; larger values put more mass on degree 1 and the spike at a lower degree.
        delta: The failure probability that the bound for LT codes allows, in (0, 1).
    """

    c: float = 0.05
    delta: float = 0.4

    def __post_init__(self) -> None:
        if not (is_number(self.c) and self.c > 0):
            raise InputError(f"c={self.c!r}: expected a positive number")
        if not (is_number(self.delta) and 0 < self.delta < 1):
            raise InputError(f"delta={self.delta!r}: expected a number above 0 and below 1")

    def probabilities(self, batch_size: int) -> NDArray[np.float64]:
        """Probabilities of the degrees 1..B: the ideal soliton plus a perturbation, normalised.

        The paper is silent on three corners, met in tiny batches or with far-fetched parameters:

        - floor(B/R) > B (R < 1; with the default parameters B <= 22): the spike has no place
          among the degrees, and the R/(iB) part runs over all of them;
        - floor(B/R) < 1 (R > B): the perturbation has no place, and the ideal soliton remains;
        - R < delta: the formula of the spike turns negative; the spike is taken as zero.

        Args:
            batch_size: The number of samples B, positive.

        Returns:
            (batch_size,) probabilities; entry i belongs to degree i + 1.

        Raises:
            InputError: When `batch_size` is not positive.
        """
        mass = ideal_soliton(batch_size)
        ripple = self.c * math.log(batch_size / self.delta) * math.sqrt(batch_size)  # R
        # The paper floors B/R. Its published script rounds, which puts the spike one degree
        # higher half of the time (B=100, c=0.1, delta=0.5: 19 instead of 18).
        # Beyond B all places are alike, and a tiny c would need one that is not a number.
        spike = math.floor(min(batch_size / max(ripple, math.ulp(0.0)), batch_size + 1))
        below = np.arange(1, spike)
        mass[: below.size] += ripple / (below * batch_size)
        if 1 <= spike <= batch_size:
            mass[spike - 1] += max(0.0, ripple * math.log(ripple / self.delta) / batch_size)
        mass /= mass.sum()
        return mass

    def draw(self, batch_size: int, size: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Draw independent degrees.

        Args:
            batch_size: The number of samples B, positive.
            size: How many degrees, usually one for each neuron.
            rng: The source of randomness.

        Returns:
            (size,) degrees, each in 1..B.

        Raises:
            InputError: When `batch_size` is not positive.
        """
        return 1 + rng.choice(batch_size, size=size, p=self.probabilities(batch_size))


def check_soliton(soliton: object) -> None:
    """Raise `InputError` unless `soliton` is a distribution of degrees."""
    if not isinstance(soliton, RobustSoliton):
        raise InputError(f"soliton={soliton!r}: expected a gradpeel.designs.RobustSoliton")
