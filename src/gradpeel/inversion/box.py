"""The range of the data, and starts in it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

__all__ = ["Box"]


@dataclass(frozen=True)
class Box:
    """The range that inputs lie in; an end may be open.

    Attributes:
        low: the smallest value, or minus infinity.
        high: the largest value, or infinity.

    Example:
        >>> box = Box(0.0, 1.0)
        >>> box.clip(torch.tensor([-0.5, 0.5, 2.0])), box.span
        (tensor([0.0000, 0.5000, 1.0000]), 1.0)
        >>> Box(-math.inf, math.inf).start(0, (1, 2), seed=0)
        tensor([[0., 0.]])
    """

    low: float
    high: float

    @property
    def span(self) -> float:
        """Its width; 1 where an end is open."""
        width = self.high - self.low
        return width if math.isfinite(width) else 1.0

    @property
    def middle(self) -> float:
        """Its middle; the value closest to 0 where an end is open."""
        if math.isfinite(self.high - self.low):
            return self.low + self.span / 2
        return min(max(0.0, self.low), self.high)

    def clip(self, x: Tensor) -> Tensor:
        """The closest values in the range."""
        return x.clamp(self.low, self.high)

    def start(self, number: int, shape: tuple[int, ...], seed: int) -> Tensor:
        """Inputs, (n, *sample_shape), to start from: first the middle, then random ones.

        Random starts are the same for every sample, so that none depends on the others.
        """
        if number == 0:
            return torch.full(shape, self.middle)
        generator = torch.Generator().manual_seed(seed + number)
        noise = torch.rand((1, *shape[1:]), generator=generator) - 0.5
        # Coarse patterns and fine ones end in different places.
        if number % 2 and len(shape) == 4:
            noise = functional.interpolate(
                functional.avg_pool2d(noise, 4, ceil_mode=True), shape[2:]
            )
        start = self.middle + self.span * noise / noise.abs().max() / 2
        return self.clip(start).expand(shape).clone()
