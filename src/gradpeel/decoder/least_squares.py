"""Least squares over many neurons, some of which are contaminated.

Every equation has its own error, over many decades, and some are contaminated by samples that are
still unknown. Among equations that hold to their last digits those stand out: they are weighted
down according to how far off they are.

Example:
    >>> matrix = torch.tensor([[1.0, 2.0, 1.0, 3.0]]).double()
    >>> known = torch.tensor([[2.0], [4.0], [2.0], [9.0]]).double()
    >>> everywhere, sigma = torch.ones(4, dtype=torch.bool), torch.full((4,), 1e-9).double()
    >>> fit = fit_equations(matrix, known, sigma, everywhere, doubt=known[:, 0] - 2 * matrix[0])
    >>> fit.solve(known), fit.outliers.tolist()
    (tensor([[2.0000]], dtype=torch.float64), [False, False, False, True])
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gradpeel.decoder.limits import LIMITS

__all__ = ["Fit", "fit_equations"]


@dataclass(frozen=True, eq=False)
class Fit:
    """A weighted least-squares problem, factored: matrix^T @ unknowns = known.

    Attributes:
        equations: (m,) the neurons that count.
        weights: (m, 1) the weight of each of them.
        q: (m, n) orthogonal factor.
        r: (n, n) triangular factor.
        size: (n,) norms of the weighted equations' columns.
        unit: how far equations are off in units of their stated errors, as the clean ones show.
        error: (n,) standard error of each unknown.
        outliers: (neurons,) equations that do not hold within their errors.
        gaps: (neurons,) how far outliers are off; 0 for equations that hold.
        surplus: (neurons,) equations that hold although the unknowns do not depend on them.
    """

    equations: Tensor
    weights: Tensor
    q: Tensor
    r: Tensor
    size: Tensor
    unit: float
    error: Tensor
    outliers: Tensor
    gaps: Tensor
    surplus: Tensor

    def solve(self, known: Tensor) -> Tensor:
        """The unknowns (n, width) from a right-hand side (neurons, width)."""
        weighted = known[self.equations].double() * self.weights
        solution: Tensor = torch.linalg.solve_triangular(self.r, self.q.T @ weighted, upper=True)
        return solution / self.size[:, None]

    def combinations(self, matrix: Tensor) -> Tensor:
        """(n, neurons) the unknowns as combinations of what was observed.

        Args:
            matrix: (n, neurons) what each unknown adds at each neuron.
        """
        weighted = (self.q * self.weights).T
        solution = torch.linalg.solve_triangular(self.r, weighted, upper=True)
        found = torch.zeros_like(matrix)
        found[:, self.equations] = solution / self.size[:, None]
        # Next to an unknown that is ten decades larger, a small one is lost in the rounding errors
        # of this inverse; its deviation from the identity gives the correction.
        for _ in range(LIMITS.inverse_corrections):
            found = found - (found @ matrix.T - _one(matrix)) @ found
        return found

    def error_of(self, combinations: Tensor) -> Tensor:
        """(m,) standard error of combinations (n, m) of the unknowns.

        Errors of the unknowns are correlated: their combinations are known better than each of them
        alone.
        """
        spread: Tensor = torch.linalg.solve_triangular(
            self.r.T, combinations / self.size[:, None], upper=False
        )
        error: Tensor = self.unit * spread.norm(dim=0)
        return error


def fit_equations(
    matrix: Tensor, known: Tensor, sigma: Tensor, explained: Tensor, *, doubt: Tensor
) -> Fit:
    """Fit the unknowns to the explained neurons, each by its own weight.

    Args:
        matrix: (n, neurons) what each unknown adds at each neuron.
        known: (neurons, width) what was observed; a few random combinations of columns are enough.
        sigma: (neurons,) error of an observed entry.
        explained: (neurons,) mask of the equations to use, at least n.
        doubt: (neurons,) how far off each equation may be at the start.
    """
    extra = doubt
    for _ in range(LIMITS.reweightings):
        before = extra
        weights = (sigma.square() + extra.square()).rsqrt()
        equations, q, r, size = _factor((matrix * weights).T, explained)
        solution = torch.linalg.solve_triangular(
            r, q.T @ (known[equations] * weights[equations, None]), upper=True
        )
        off = known - matrix.T @ (solution / size[:, None])
        gap = off.square().mean(1).sqrt()
        leverage = torch.zeros_like(gap)
        leverage[equations] = q.square().sum(1)
        free = 1.0 - leverage
        outliers = gap > LIMITS.outlier * sigma
        extra = torch.where(outliers, gap / free.clamp(min=LIMITS.least_free), 0.0)
        if torch.equal(extra[explained], before[explained]):
            break
    clean = explained & ~outliers & (free > LIMITS.least_free)
    count = int(clean.sum())
    unit = 1.0
    if count >= LIMITS.clean_equations:
        unit = float((gap[clean] / sigma[clean]).square().div(free[clean]).mean().sqrt())
    inverse = torch.linalg.solve_triangular(r, _one(r), upper=True)
    return Fit(
        equations,
        weights[equations, None],
        q,
        r,
        size,
        unit,
        unit * inverse.norm(dim=1) / size,
        outliers & explained,
        extra,
        explained & ~outliers & (free > LIMITS.surplus),
    )


def _factor(matrix: Tensor, explained: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Factor the weighted equations, (neurons, n), of the explained neurons."""
    # Weights range over many decades; orthogonalising keeps its accuracy if large rows come first.
    order = (matrix / matrix[explained].norm(dim=0)).norm(dim=1).argsort(descending=True)
    order = order[explained[order]]
    size = matrix[order].norm(dim=0)
    q, r = torch.linalg.qr(matrix[order] / size)
    return order, q, r, size


def _one(like: Tensor) -> Tensor:
    """The identity matrix with as many rows."""
    return torch.eye(len(like), dtype=like.dtype, device=like.device)
