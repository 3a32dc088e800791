"""From a guess to the row itself, or to the finding that there is none.

If it is known at which neurons a sample is silent, its row is the one vector of the column space
that is zero at all of them. A guess names most of them, and a few that are wrong; those stand out,
because there the vector is not zero, and are left out next time.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gradpeel.decoder.evidence.structure import null_vector
from gradpeel.decoder.limits import LIMITS
from gradpeel.decoder.rows.space import RowSpace

__all__ = ["polish"]


def polish(space: RowSpace, silent: Tensor, *, sums: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Find the rows of samples that are silent at nearly all of some neurons.

    Args:
        space: the column space.
        silent: (n, live) mask of neurons at which each is guessed to be silent.
        sums: whether to reject sums of rows, too.

    Returns:
        (n, live) unit vectors in units of the error, (n, live) mask of neurons at which they are
        zero, and (n,) their relative errors; infinite where there is no such row.
    """
    rows = [_polish(space, one, sums=sums) for one in silent]
    if not rows:
        none = space.exact.new_zeros(0, len(space.exact))
        return none, silent, none.sum(1)
    return (
        torch.stack([row for row, _, _ in rows]),
        torch.stack([zero for _, zero, _ in rows]),
        torch.stack([error for _, _, error in rows]),
    )


def _polish(space: RowSpace, silent: Tensor, *, sums: bool) -> tuple[Tensor, Tensor, Tensor]:
    exact = space.exact
    row = other = exact[:, 0]
    error = row.new_tensor(torch.inf)
    for _ in range(LIMITS.row_polish_steps):
        if int(silent.sum()) < space.rank + LIMITS.row_spare:
            return row, silent, error.new_tensor(torch.inf)
        vector, other, error = null_vector(exact, ~silent)
        row = exact @ vector
        size = row.abs()
        usual = size[silent].median()
        stays = silent & (size <= LIMITS.row_outlier * usual)
        if torch.equal(stays, silent):
            break
        silent = stays
    # A sum of two rows is zero where both are, and at one neuron more where they cancel: that one
    # alone would tell it from other sums of them. A row is told from others by many.
    against = (exact[silent] @ other).square()
    if sums and float(against.sum().square()) < LIMITS.row_spare * float(against.square().sum()):
        error = error.new_tensor(torch.inf)
    # Neurons that were left out may be silent just as well.
    silent = row.abs() <= LIMITS.row_outlier * row.abs()[silent].median()
    return row / row.norm(), silent, error
