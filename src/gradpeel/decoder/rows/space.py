"""The column space of an update over neurons, in which the row of every sample lies."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gradpeel.decoder.evidence.structure import Structure
from gradpeel.decoder.residual import Residual

__all__ = ["RowSpace"]


@dataclass(frozen=True, eq=False)
class RowSpace:
    """The space that the rows of all unknown samples span, over neurons that carry anything.

    Attributes:
        live: (neurons,) mask of those neurons.
        unit: (live,) what an entry of a row is divided by in the search. The square root of the
            size of a neuron's gradient is half-way between no weights, where a few neurons that
            everybody fires outweigh the others, and equal sizes, where those that hardly anybody
            fires do.
        basis: (live, rank) orthonormal columns that span the space in those units.
        error: (live,) error of each neuron's gradient.
        exact: (live, rank) orthonormal columns in units of the error, where noise is the same
            everywhere.
        strength: (rank,) how far each of these stands above the noise.
        resolution: relative error of a number in the update.
    """

    live: Tensor
    unit: Tensor
    basis: Tensor
    error: Tensor
    exact: Tensor
    strength: Tensor
    resolution: float

    @property
    def rank(self) -> int:
        """Number of samples that are unknown, copies counted once."""
        return self.basis.shape[1]

    def turned(self, known: Tensor) -> Tensor:
        """(live, rank) a basis whose first columns span known rows, (n, live), as in `basis`."""
        turn: Tensor = torch.linalg.qr((known @ self.basis).T, mode="complete").Q
        return self.basis @ turn

    @classmethod
    def of(cls, residual: Residual) -> RowSpace | None:
        """The space of what is left of an update; None where it is all there is, or nothing."""
        left = residual.left
        # Where nothing is left every row is zero.
        structure = Structure(
            replace(left, row_error=torch.where(residual.quiet, 0.0, left.row_error))
        )
        exact, strength = structure.signal(), structure.strength()
        if exact is None or strength is None or not exact.shape[1]:
            return None
        live = structure.live
        error = residual.row_error[live]
        size = left.rows[live].norm(dim=1) / left.scale + left.bias[live].abs()
        unit = torch.maximum(size, error).sqrt()
        basis = torch.linalg.qr(exact * (error / unit)[:, None]).Q
        return cls(live, unit, basis, error, exact, strength, residual.resolution)
