"""How exact a difference of weights is: an ulp of the weight, divided by the learning rate.

A client that returns weights rounds them after every step, to the spacing of floating-point numbers
at the size of the *weight*. What it learned is the difference, often a thousandth of that size, so
the error of the difference is absolute: it does not shrink with the gradient, as the rounding of a
gradient does.

Example:
    >>> ulps(torch.tensor([1.0, 0.75, 0.0]), torch.float32).tolist()
    [1.1920928955078125e-07, 5.960464477539063e-08, 1.401298464324817e-45]
    >>> training = LocalTraining(lr=0.01, steps=4)
    >>> f"{float(rounding_of(torch.tensor([1.0]), torch.float32, training)):.1e}"
    '6.9e-06'
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from gradpeel.training import LocalTraining

__all__ = ["rounding_of", "row_rounding", "ulps"]


def ulps(weights: Tensor, dtype: torch.dtype) -> Tensor:
    """Spacing of the numbers of a dtype at the size of each weight, float64."""
    limits = torch.finfo(dtype)
    _, exponents = torch.frexp(weights.double())  # |w| = m 2^e with m from 0.5 to below 1
    spacing = torch.ldexp(
        torch.full_like(exponents, limits.eps, dtype=torch.float64), exponents - 1
    )
    return torch.where(weights == 0, 0.0, spacing).clamp(min=limits.smallest_normal * limits.eps)


def rounding_of(weights: Tensor, dtype: torch.dtype, training: LocalTraining) -> Tensor:
    """Standard deviation of the rounding of each entry of a summed gradient, float64.

    Args:
        weights: the weights the client received, of any shape.
        dtype: the dtype it keeps them in.
        training: how it trained. One step is assumed where their number is unknown, and where the
            learning rate is unknown the update is the difference itself.
    """
    # Every step rounds to the nearest number: evenly spread over one ulp, independent of the last.
    per_step = math.sqrt(1 / 12) * math.sqrt(training.steps or 1)
    return ulps(weights, dtype) * (per_step / (training.lr or 1.0))


def row_rounding(rows: Tensor, dtype: torch.dtype, training: LocalTraining) -> Tensor:
    """(n,) root mean square of `rounding_of` over each row of a matrix, which may be large."""
    parts = torch.split(rows.detach(), 64)
    return torch.cat([rounding_of(some, dtype, training).square().mean(1).sqrt() for some in parts])
