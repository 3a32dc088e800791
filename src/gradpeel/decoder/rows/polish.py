"""From a guess to the row itself, or to the finding that there is none.

If it is known at which neurons a sample is silent, its row is the one vector of the column space
that is zero at all of them. Where the next layer is known, its row is the one that is, besides,
what that layer sends back at all others: that takes fewer neurons, and holds where samples are so
much alike that hardly any neuron is silent for one of them alone. A guess names most neurons right;
those that are wrong stand out, and are put right next time.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gradpeel.decoder.evidence.structure import noise_of, vanishing
from gradpeel.decoder.limits import LIMITS
from gradpeel.decoder.rows.space import RowSpace

__all__ = ["polish_by_next_layer", "polish_by_silence"]

_Row = tuple[Tensor, Tensor]
"""A unit vector (live,) in units of the error, zero where the sample is silent; its relative error,
infinite where there is no such row."""


def polish_by_silence(space: RowSpace, silent: Tensor) -> _Row:
    """Find the row of a sample that is silent at nearly all of some neurons.

    Args:
        space: the column space.
        silent: (live,) mask of neurons at which it is guessed to be silent.
    """
    exact = space.exact
    vector, other, error, silent = vanishing(exact, space.strength, silent)
    row, none = exact @ vector, error.new_tensor(torch.inf)
    if not bool(error.isfinite()):
        return row, none
    # A difference of two that are alike is nearly zero at many neurons, but not as nearly as the
    # update is exact.
    if float(row.abs()[silent].median()) > LIMITS.row_zero * noise_of(vector, space.strength):
        error = none
    # A sum of two rows is zero where both are, and at one neuron more where they cancel: that one
    # alone would distinguish it from other sums of them. Many neurons distinguish a row.
    against = (exact[silent] @ other).square()
    if float(against.sum().square()) < LIMITS.row_spare * float(against.square().sum()):
        error = none
    # Neurons that were left out may be silent just as well.
    usual = max(float(row.abs()[silent].median()), noise_of(vector, space.strength))
    silent = row.abs() <= LIMITS.row_outlier * usual
    return _unit(torch.where(silent, 0.0, row)), error


def polish_by_next_layer(
    space: RowSpace, weight: Tensor, fires: Tensor, *, loose: bool = False
) -> _Row:
    """Find the row of a sample that fires at nearly all of some neurons, and at nearly no others.

    The vectors that the next layer may send back to these neurons are a space of their own; the row
    is what the two spaces have in common.

    Args:
        space: the column space.
        weight: (live, next width) of the next layer, in units of the error.
        fires: (live,) mask of neurons at which it is guessed to fire.
        loose: whether the fit may leave more than the roundings of the update explain.
    """
    exact = space.exact
    row = sent = exact[:, 0]
    none = row.new_tensor(torch.inf)
    vector, gap = space.strength, none
    width = weight.shape[1]
    if len(row) < space.rank + width + LIMITS.row_spare:
        return row, none
    for _ in range(LIMITS.row_polish_steps):
        if int(fires.sum()) < width + LIMITS.row_spare:
            return row, none
        # Neurons differ so much in their errors that a Gram matrix would lose digits.
        sent_back, upper = torch.linalg.qr(weight[fires])
        size = upper.diagonal().abs()
        if float(size.min()) <= torch.finfo(size.dtype).eps * float(size.max()):
            return row, none
        # Cosines of the angles between the two spaces: 1 where they meet.
        shared = sent_back.T @ exact[fires]
        square, direction = torch.linalg.eigh(shared @ shared.T)
        gap = (1.0 - square[-2:-1]).clamp(min=0.0).sum().sqrt() if width > 1 else square[-1]
        vector = torch.nn.functional.normalize(direction[:, -1] @ shared, dim=0)
        row = exact @ vector
        v = torch.linalg.solve_triangular(upper, (sent_back.T @ row[fires])[:, None], upper=True)
        sent = (weight @ v)[:, 0]
        now = (row - sent).abs() < row.abs()
        if torch.equal(now, fires):
            break
        fires = now
    off = torch.minimum((row - sent).abs(), row.abs())
    noise = noise_of(vector, space.strength) + space.resolution * float(row.square().mean().sqrt())
    if float(off.median()) > (LIMITS.row_sent_back if loose else LIMITS.row_zero) * noise:
        return row, none
    return _unit(torch.where(fires, row, 0.0)), off.norm() / (gap * row.norm())


def _unit(row: Tensor) -> Tensor:
    unit: Tensor = torch.nn.functional.normalize(row, dim=0, eps=torch.finfo(row.dtype).tiny)
    return unit
