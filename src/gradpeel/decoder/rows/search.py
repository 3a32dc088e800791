"""From a guess of where a sample fires to a vector that may be its row.

A row lies in two sets: in the column space of the update, and among the vectors that are zero where
the sample is silent and elsewhere what the next layer sends back, W2^T v for some v. The first is a
linear space; the second is not even convex, but the nearest point of it is easy to find. Such a
point in both is looked for by averaged reflections (Douglas-Rachford), damped far more than usual:
undamped, they wander off. Where nothing is known of the next layer, the second set is that of
vectors with as many entries as neurons are guessed to fire.

All guesses are worked on at once, in float32: what comes out is a guess again, see
`gradpeel.decoder.rows.polish`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from gradpeel.decoder.linalg import gaussian
from gradpeel.decoder.limits import LIMITS
from gradpeel.decoder.rows.space import RowSpace

__all__ = ["ByNextLayer", "BySilence", "Guess", "search"]

_TINY = 1e-30


@dataclass(frozen=True, eq=False)
class Guess:
    """Vectors that may be rows, (n, live), in the units of the search.

    Attributes:
        rows: the vectors, in the space.
        silent: mask of neurons at which each is nearly zero although it need not be.
        gap: (n,) how far each is from the other set, relative.
    """

    rows: Tensor
    silent: Tensor
    gap: Tensor


class ByNextLayer:
    """Rows that are zero or what the next layer sends back."""

    damping = 0.2

    def __init__(self, space: RowSpace, weight: Tensor) -> None:
        """Prepare.

        Args:
            space: the column space.
            weight: (next width, neurons) of the next layer.
        """
        there = (weight[:, space.live] / space.unit).T
        there = there / there.norm(dim=1).median().clamp(min=torch.finfo(there.dtype).tiny)
        self._weight = there.float().contiguous()
        self._inverse = torch.linalg.pinv(there.T @ there).float()
        self._v = self._weight[:0]
        self._fires = self._weight[:0] > 0

    def start(self, space: Tensor, fires: Tensor, directions: Tensor) -> Tensor:
        """For each guess the direction v that puts most of the row into the space.

        Args:
            space: (live, rank) basis.
            fires: (n, live) where the samples are guessed to fire.
            directions: (n, several, next width) that v may have.

        Returns:
            (n, live) the rows, in the space.
        """
        best = fires.new_zeros(fires.shape, dtype=torch.float32)
        most = best.new_full((len(fires), 1), -1.0)
        for v in directions.float().unbind(1):
            row = (v @ self._weight.T) * fires
            inside = row @ space
            share = inside.norm(dim=1, keepdim=True) / row.norm(dim=1, keepdim=True).clamp(_TINY)
            best = torch.where(share > most, inside @ space.T, best)
            most = torch.maximum(most, share)
        self._fires = fires
        self._v = best.new_zeros(len(fires), self._weight.shape[1])
        return best

    def nearest(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """The nearest vectors of this set, and those that would be sent back to all neurons."""
        fires = self._fires.float()
        self._v = self._fit(fires, (rows * fires) @ self._weight, self._v)
        sent = self._v @ self._weight.T
        self._fires = (rows - sent).abs() < rows.abs()
        return sent * self._fires, sent

    def _fit(self, fires: Tensor, wanted: Tensor, v: Tensor) -> Tensor:
        """Least squares over the neurons that fire, by conjugate gradients from the last v."""

        def apply(v: Tensor) -> Tensor:
            return (fires * (v @ self._weight.T)) @ self._weight

        left = wanted - apply(v)
        better = left @ self._inverse
        step, size = better, (left * better).sum(1, keepdim=True)
        for _ in range(LIMITS.row_fit_steps):
            moved = apply(step)
            length = size / (step * moved).sum(1, keepdim=True).clamp(min=_TINY)
            v, left = v + length * step, left - length * moved
            better = left @ self._inverse
            before, size = size, (left * better).sum(1, keepdim=True)
            step = better + size / before.clamp(min=_TINY) * step
        return v

    def silent(self, rows: Tensor, sent: Tensor) -> Tensor:
        """Mask of neurons that would be sent something, but have next to nothing."""
        usual = rows.square().mean(1, keepdim=True).sqrt()
        return (rows.abs() < 0.3 * sent.abs()) & (sent.abs() > 0.1 * usual)


class BySilence:
    """Rows that are zero wherever a sample is silent, and anything elsewhere."""

    damping = 0.6

    def __init__(self, space: RowSpace) -> None:
        self._neurons = len(space.unit)
        self._count = torch.zeros(0, 1, dtype=torch.long)

    def start(self, space: Tensor, fires: Tensor, _directions: Tensor) -> Tensor:
        """Vectors of the space that are small where the samples are guessed to be silent."""
        self._count = fires.sum(1, keepdim=True).clamp(1, self._neurons - 1)
        rows = gaussian(len(fires), space.shape[1], like=space) @ space.T
        for _ in range(LIMITS.row_start_steps):
            rows = ((rows * fires) @ space) @ space.T
            rows = rows / rows.norm(dim=1, keepdim=True).clamp(min=_TINY)
        return rows

    def nearest(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """As many of the largest entries as neurons fire; the others are zero."""
        sizes = rows.abs()
        least = sizes.sort(dim=1, descending=True).values.gather(1, self._count)
        return rows * (sizes > least), rows

    def silent(self, rows: Tensor, _sent: Tensor) -> Tensor:
        """Mask of neurons that have next to nothing."""
        return rows.abs() < 0.1 * rows.square().mean(1, keepdim=True).sqrt()


def search(
    space: RowSpace,
    rows: ByNextLayer | BySilence,
    fires: Tensor,
    directions: Tensor,
    *,
    steps: int,
    slower: float = 1.0,
) -> Guess:
    """Look for a row near each guess.

    Args:
        space: the column space.
        rows: the other set.
        fires: (n, live) where the samples are guessed to fire.
        directions: (n, several, next width) that their loss gradients may have there.
        steps: reflections.
        slower: by how much to damp them more.
    """
    basis = space.basis.float()
    x = rows.start(basis, fires, directions)
    x = x / x.norm(dim=1, keepdim=True).clamp(min=_TINY) * math.sqrt(len(basis))
    damping = rows.damping / slower
    for _ in range(steps):
        near, _ = rows.nearest(x)
        x = x + damping * (((2 * near - x) @ basis) @ basis.T - near)
    near, sent = x, x
    for _ in range(LIMITS.row_end_steps):
        near, sent = rows.nearest(x)
        x = (near @ basis) @ basis.T
    gap = (near - x).norm(dim=1) / x.norm(dim=1).clamp(min=_TINY)
    return Guess(x, rows.silent(x, sent), gap)
