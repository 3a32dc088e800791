"""What Gaussian noise is worth in differential privacy: epsilon of one release and of a run.

One release: the analytic Gaussian mechanism (Balle and Wang, 2018), which is exact. A run: Rényi
differential privacy of the subsampled Gaussian mechanism at integer orders (Mironov, Talwar and
Zhang, 2019), converted as in Canonne, Kamath and Steinke (2020); an upper bound.

Neighbours differ by one sample that is added or removed. The noise is given as a multiple of the
largest norm of a sample's gradient.

Example:
    >>> f"{epsilon_of_release(1.0, 1e-5):.3f}"
    '4.377'
    >>> epsilon_of_release(0.0, 1e-5)
    inf
"""

from __future__ import annotations

import math

import numpy as np
from scipy.optimize import brentq
from scipy.special import gammaln, log_ndtr, logsumexp

from gradpeel.checks import check_at_least_0, check_positive_integer, is_number
from gradpeel.errors import InputError

__all__ = ["epsilon_of_release", "epsilon_of_run"]

ORDERS = (*range(2, 64), *range(64, 513, 16))
MOST = 1e6
"""A larger epsilon is reported as infinite: it promises nothing."""


def epsilon_of_release(noise: float, delta: float) -> float:
    """Epsilon of one Gaussian release.

    Args:
        noise: deviation of the noise over the largest norm of one sample.
        delta: above 0 and below 1.

    Raises:
        InputError: a number breaks its rule.
    """
    _check(noise, delta)
    if not noise:
        return math.inf

    def surplus(epsilon: float) -> float:
        half, shift = 0.5 / noise, epsilon * noise
        first = math.exp(log_ndtr(half - shift))
        return first - math.exp(epsilon + log_ndtr(-half - shift)) - delta

    if surplus(0.0) <= 0:
        return 0.0
    # The tail of a Gaussian bounds it; the exact value lies below.
    most = 0.5 / noise**2 + math.sqrt(2 * math.log(1 / delta)) / noise
    return float(brentq(surplus, 0.0, most)) if most < MOST else math.inf


def epsilon_of_run(noise: float, delta: float, *, steps: int, sample_rate: float) -> float:
    """Epsilon of many releases, each on a batch that is drawn at random.

    Args:
        noise: deviation of the noise over the largest norm of one sample.
        delta: above 0 and below 1.
        steps: number of releases.
        sample_rate: chance of each sample to be in a batch, above 0 and at most 1.

    Raises:
        InputError: a number breaks its rule.
    """
    _check(noise, delta)
    check_positive_integer("steps", steps)
    if not (is_number(sample_rate) and 0 < sample_rate <= 1):
        raise InputError(f"sample_rate={sample_rate!r}: expected a number above 0 and at most 1")
    if not noise:
        return math.inf
    found = [
        steps * _renyi(order, noise, sample_rate)
        + math.log1p(-1 / order)
        - math.log(delta * order) / (order - 1)
        for order in ORDERS
    ]
    least = max(0.0, min(found))
    return least if least < MOST else math.inf


def _renyi(order: int, noise: float, q: float) -> float:
    """Rényi divergence of the subsampled Gaussian mechanism at an integer order."""
    if q == 1.0:
        return order / (2 * noise**2)
    k = np.arange(order + 1)
    choose = gammaln(order + 1) - gammaln(k + 1) - gammaln(order - k + 1)
    terms = choose + k * math.log(q) + (order - k) * math.log1p(-q) + (k * k - k) / (2 * noise**2)
    return float(logsumexp(terms)) / (order - 1)


def _check(noise: float, delta: float) -> None:
    check_at_least_0("noise", noise)
    if not (is_number(delta) and 0 < delta < 1):
        raise InputError(f"delta={delta!r}: expected a number above 0 and below 1")
