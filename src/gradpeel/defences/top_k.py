"""Top-k sparsification: only the largest entries of an update are sent."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import torch

from gradpeel.checks import is_number
from gradpeel.defences.defence import Sending
from gradpeel.errors import InputError
from gradpeel.update import Update

__all__ = ["TopK"]


@dataclass(frozen=True)
class TopK:
    """Send a share of the entries, the largest of the whole update; the others become zero.

    Attributes:
        share: of the entries that are sent, above 0 and at most 1.

    Example:
        >>> update = Update({"w": torch.tensor([3.0, -4.0, 1.0]), "b": torch.tensor([0.5])})
        >>> TopK(0.5).apply(update, None).gradients["w"]
        tensor([ 3., -4.,  0.])
    """

    share: float

    name: ClassVar[str] = "top-k"

    def __post_init__(self) -> None:
        if not (is_number(self.share) and 0 < self.share <= 1):
            raise InputError(f"share={self.share!r}: expected a number above 0 and at most 1")

    def __str__(self) -> str:
        return f"{self.name}:{self.share:g}"

    def apply(self, update: Update, sending: Sending | None) -> Update:
        """The sparse update; of entries that are equally large, all or none are sent."""
        del sending
        sizes = torch.cat([g.double().abs().flatten() for g in update.gradients.values()])
        kept = max(1, math.ceil(self.share * len(sizes)))
        least = sizes.kthvalue(len(sizes) - kept + 1).values
        sparse = {
            name: torch.where(g.double().abs() >= least, g, torch.zeros_like(g))
            for name, g in update.gradients.items()
        }
        return replace(update, gradients=sparse)
