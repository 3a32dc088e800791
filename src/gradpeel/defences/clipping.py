"""Clipping a whole update to a norm, as servers ask for against outliers.

It changes the scale of an update and nothing else; the decoder does not need the scale.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

from gradpeel.checks import is_number
from gradpeel.defences.defence import Sending
from gradpeel.errors import InputError
from gradpeel.update import Update

__all__ = ["UpdateClipping"]


@dataclass(frozen=True)
class UpdateClipping:
    """Scale an update down to a norm.

    Attributes:
        norm: largest norm of all gradients together, above 0.

    Example:
        >>> import torch
        >>> update = Update({"w": torch.tensor([3.0, 4.0])})
        >>> UpdateClipping(1.0).apply(update, None).gradients["w"]
        tensor([0.6000, 0.8000])
    """

    norm: float = 1.0

    name: ClassVar[str] = "clip"

    def __post_init__(self) -> None:
        if not (is_number(self.norm) and 0 < self.norm < math.inf):
            raise InputError(f"norm={self.norm!r}: expected a number above 0")

    def __str__(self) -> str:
        return f"{self.name}:{self.norm:g}"

    def apply(self, update: Update, sending: Sending | None) -> Update:
        """The scaled update; one that is smaller stays as it is."""
        del sending
        given = update.gradients
        size = math.sqrt(sum(float(g.double().square().sum()) for g in given.values()))
        if size <= self.norm:
            return update
        factor = self.norm / size
        scaled = {name: (factor * g.double()).to(g.dtype) for name, g in given.items()}
        return replace(update, gradients=scaled)
