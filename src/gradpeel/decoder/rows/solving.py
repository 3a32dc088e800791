"""From rows to samples: G = C^T X as a linear system for X.

The bias gradient, which is what a feature that is always 1 would have, is one more column of it and
gives the factor of each row. The system has far more equations than unknowns, so the samples are
known better than any single neuron shows them, and what is left of the equations measures the
errors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from gradpeel.decoder.limits import LIMITS
from gradpeel.decoder.residual import Residual, rms
from gradpeel.decoder.rows.finding import Rows

__all__ = ["Solution", "solve"]


@dataclass(frozen=True, eq=False)
class Solution:
    """Samples that rows determine.

    Attributes:
        rows: (n, live) their sensitivities.
        row_error: (n,) relative errors of these.
        samples: (n, width) in the residual's coordinates.
        sample_error: (n,) relative errors of these.
        combinations: (n, live) the samples as combinations of what is left of the gradient.
    """

    rows: Tensor
    row_error: Tensor
    samples: Tensor
    sample_error: Tensor
    combinations: Tensor


def solve(rows: Rows, residual: Residual) -> Solution | None:
    """Solve for the samples.

    Args:
        rows: the rows of all unknown samples but perhaps some that add next to nothing.
        residual: what is left of the update.

    Returns:
        The solution, or None where the rows do not determine one.
    """
    space = rows.space
    known = torch.cat([residual.rows / residual.scale, residual.bias[:, None]], 1)[space.live]
    c = rows.rows * space.error
    error = space.error
    orthogonal, upper = torch.linalg.qr((c / error).T)
    size = upper.diagonal().abs()
    if not len(c) or float(size.min()) <= torch.finfo(c.dtype).eps * len(error) * float(size.max()):
        return None
    inverse = torch.linalg.solve_triangular(upper, orthogonal.T, upper=True) / error
    solution = inverse @ known
    factor = solution[:, -1:]
    left = rms(known - c.T @ solution)
    # What is left may be samples without a row, and the errors of those that were peeled. These are
    # large, and rough estimates, where it is uncertain whether one of them fires.
    uncertain = error > LIMITS.row_error * rms(known)
    beyond = torch.where(uncertain, (left - LIMITS.nothing * error).clamp(min=0.0), left)
    most = LIMITS.row_left * float(rms(known).norm()) + float(error.norm())
    if float(beyond.norm()) > most or bool((factor == 0).any()):
        return None
    c, combinations = c * factor, inverse / factor
    # Who has no row is noise to the others. Noise at every neuron, and what the rows are off by.
    noise = _measured(error, left, spare=len(error) - len(c))
    of_rows = (rows.error * (c / error).norm(dim=1)).norm() / math.sqrt(len(error))
    noise = torch.hypot(noise, of_rows * error)
    return Solution(
        rows=c,
        row_error=rows.error,
        samples=solution[:, :-1] / factor * residual.scale,
        sample_error=(combinations * noise).norm(dim=1) + residual.resolution,
        combinations=combinations,
    )


def _measured(error: Tensor, left: Tensor, *, spare: int) -> Tensor:
    """(n,) the error of each neuron, as what a solution leaves there shows it.

    The tracked errors are upper bounds. What is left measures them: at each neuron by itself, and
    over all neurons in units of their bounds.

    Args:
        error: (n,) the tracked errors.
        left: (n,) what is left.
        spare: equations beyond the unknowns.
    """
    usual = float((left / error).norm()) / math.sqrt(spare)
    return torch.minimum(
        torch.hypot(error, left), LIMITS.row_measured * torch.hypot(usual * error, left)
    )
