"""Parallel loss gradients: all samples have the same direction at the next layer.

With one output, or two classes, the sensitivities of every sample are the same numbers wherever it
fires, up to a factor. Then a mixture that happens to fire as its largest member does has that
member's sensitivities, up to a factor, and lies in the column space of the update; and all neurons
that these samples share yield the same mixture. So the structure is evidence about firing patterns
alone, and a candidate is known only as far as its own pattern determines it: when there are enough
hinges near it that a mixture would have crossed one.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gradpeel.decoder.evidence.structure import Structure
from gradpeel.decoder.limits import LIMITS
from gradpeel.decoder.residual import Residual

__all__ = ["are_parallel", "is_pinned"]

_TINY = torch.finfo(torch.float64).tiny


def are_parallel(rows: Tensor) -> bool:
    """Whether all rows, (n, width), are multiples of one vector wherever they are not zero.

    A single row proves nothing, so the answer is yes.
    """
    rows = rows / rows.norm(dim=1, keepdim=True).clamp(min=_TINY)
    first = rows[:1]
    shared = (rows != 0) & (first != 0)
    mine, other = rows * shared, first * shared
    along = (mine * other).sum(1) / other.square().sum(1).clamp(min=_TINY)
    off = (mine - along[:, None] * other).norm(dim=1)
    return bool((off <= LIMITS.parallel_rows * mine.norm(dim=1)).all())


def is_pinned(z: Tensor, residual: Residual, structure: Structure) -> Tensor:
    """(n,) mask of candidates that could not deviate by `exact` and still fire as they do.

    Args:
        z: (n, neurons) their pre-activations.
        residual: the residual they were read from.
        structure: the column space of the update; neurons it does not determine are not counted.
    """
    near = (z.abs() <= LIMITS.exact * residual.spread) * structure.free
    return near.sum(1) >= LIMITS.hinges
