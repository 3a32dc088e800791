r"""Sums of embeddings: which tokens, how often, and a proof that no others do.

The counts n of tokens solve A n = b with n >= 0 and whole: one equation for each feature and one
for the number of tokens. Far more tokens than equations are no obstacle, since few of them occur:
non-negative least squares finds the counts.

*Proof that they are the only ones.* Let S be the tokens found. A linear program looks for y with
A_v . y = 0 for v in S and A_v . y >= t > 0 for all others. Any other non-negative n' with the same
b, to within e, has t (sum of n' outside S) <= y . A (n' - n) <= 2 e |y|: below t, no whole token
lies outside S. Inside S, whole numbers that differ move A n by at least the smallest singular value
of A_S: above 2 e, they do not differ.

Example:
    >>> _ = torch.manual_seed(0)
    >>> rows = torch.randn(40, 8, dtype=torch.float64)
    >>> counts, is_unique = read_bag(rows, rows[3] + 2 * rows[7], 3, 1e-9)
    >>> {int(v): int(counts[v]) for v in torch.nonzero(counts)}, is_unique
    ({3: 1, 7: 2}, True)
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

__all__ = ["read_bag"]


def read_bag(rows: Tensor, total: Tensor, length: int, error: float) -> tuple[Tensor, bool]:
    """Find how often each token occurs in a sum.

    Args:
        rows: (tokens, features) what one occurrence of each token adds.
        total: (features,) the sum.
        length: number of tokens in it.
        error: distance within which sums are the same.

    Returns:
        (tokens,) whole numbers that add up to `length`, the closest that were found; and whether
        it is proven that no other whole numbers come within twice the error.
    """
    from scipy.optimize import nnls  # noqa: PLC0415 -- slow to import, and only sums of tokens ask

    # The equation for the number of tokens weighs as much as a typical row.
    weight = float(rows.norm(dim=1).mean()) or 1.0
    matrix = np.vstack([rows.double().numpy().T, np.full(len(rows), weight)])
    right = np.append(total.double().numpy(), weight * length)
    try:
        solution, _ = nnls(matrix, right)
    except RuntimeError:  # too many iterations
        solution = np.zeros(len(rows))
    counts = _whole(solution, length)
    found = np.flatnonzero(counts)
    is_close = bool(np.linalg.norm(matrix @ counts - right) <= error)
    is_unique = is_close and _is_unique(matrix, found, error)
    return torch.from_numpy(counts.astype(np.int64)), is_unique


def _whole(solution: NDArray[np.float64], length: int) -> NDArray[np.float64]:
    """Whole numbers close to a solution that add up to a length."""
    counts = np.floor(solution + 0.5)
    while counts.sum() != length:
        step = 1.0 if counts.sum() < length else -1.0
        gain = step * (solution - counts)
        gain[(counts == 0) & (step < 0)] = -np.inf
        counts[int(np.argmax(gain))] += step
    return counts


def _is_unique(matrix: NDArray[np.float64], found: NDArray[np.int64], error: float) -> bool:
    inside = matrix[:, found]
    if len(found) > len(matrix) or np.linalg.svd(inside, compute_uv=False)[-1] <= 2 * error:
        return False
    outside = np.delete(matrix, found, axis=1)
    if not outside.shape[1]:
        return True
    from scipy.optimize import linprog  # noqa: PLC0415

    # Variables: y, and t last; t is as large as it can be while y stays in a box.
    equations = len(matrix)
    answer = linprog(
        np.append(np.zeros(equations), -1.0),
        A_ub=np.hstack([-outside.T, np.ones((outside.shape[1], 1))]),
        b_ub=np.zeros(outside.shape[1]),
        A_eq=np.hstack([inside.T, np.zeros((len(found), 1))]),
        b_eq=np.zeros(len(found)),
        bounds=[(-1.0, 1.0)] * equations + [(None, None)],
        method="highs",
    )
    if answer.x is None:
        return False
    # The solver works to a tolerance of its own: what it found is measured again.
    y = answer.x[:-1]
    y = y - inside @ np.linalg.lstsq(inside, y, rcond=None)[0]
    return bool((outside.T @ y).min() > 2 * error * np.linalg.norm(y))
