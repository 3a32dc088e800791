"""The search for inputs that have given features: descent, then least squares, from several starts.

Example:
    >>> from torch import nn
    >>> from gradpeel.target import split
    >>> _ = torch.manual_seed(0)
    >>> model = nn.Sequential(nn.Conv2d(1, 9, 3), nn.Flatten(), nn.Linear(36, 5), nn.ReLU())
    >>> front, x = split(model).front, torch.rand(2, 1, 4, 4)
    >>> maps = (FrontMap(front, torch.float64), FrontMap(front, torch.float32))
    >>> search = Search(maps, "2", (1, 4, 4), data_range=(0, 1), starts=1, seed=0)
    >>> found = search.run(front(x).double(), torch.tensor([1e-5, 1e-5]))
    >>> bool((found.inputs - x).abs().max() < 1e-4)
    True
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from gradpeel.inversion.box import Box
from gradpeel.inversion.descent import COARSE, FINE, Schedule, descend
from gradpeel.inversion.forward import FrontMap
from gradpeel.inversion.inversion import Inversion
from gradpeel.inversion.least_squares import hidden_shares, refine
from gradpeel.inversion.prior import picture_prior

__all__ = ["Search", "closest"]

CHUNK = 16
"""Samples that are reconstructed together; more of them do not fit a processor's cache."""
FLOOR = 4.0
"""Units of rounding below which nothing is gained."""
STUCK = 1e-2
"""Relative distance from which on another start is worth trying."""
HIDDEN = 1e-3
"""Share of one free dimension that would be seen in what random directions do not give back."""


class Search:
    """Reconstruct continuous inputs.

    Args:
        maps: from inputs to features: in the dtype of the features, and in float32 for the rough
            part of the search.
        layer: name of the target.
        shape: shape of one input.
        data_range: smallest and largest value of inputs; None if it is not known.
        starts: how many starts to try at most.
        seed: of random starts, and of the test of what features determine.
    """

    def __init__(
        self,
        maps: tuple[FrontMap, FrontMap],
        layer: str,
        shape: tuple[int, ...],
        *,
        data_range: tuple[float, float] | None,
        starts: int,
        seed: int,
    ) -> None:
        self.front, self.coarse = maps
        self.layer, self.shape, self.starts, self.seed = layer, shape, starts, seed
        self.box = Box(*(data_range or (-math.inf, math.inf)))
        self.prior = picture_prior(shape)
        self.floor = FLOOR * torch.finfo(self.front.dtype).eps

    def run(
        self,
        features: Tensor,
        reached: Tensor,
        values: Tensor | None = None,
        on_progress: Callable[[int, int], None] | None = None,
    ) -> Inversion:
        """Reconstruct the inputs of features, (n, features); see `gradpeel.invert`."""
        parts = []
        for first in range(0, len(features), CHUNK):
            part = slice(first, first + CHUNK)
            parts.append(self._run(features[part], reached[part], values))
            if on_progress is not None:
                on_progress(min(first + CHUNK, len(features)), len(features))
        return Inversion.joined(parts, self.layer, self.shape)

    def _run(self, features: Tensor, reached: Tensor, values: Tensor | None) -> Inversion:
        x = torch.zeros((len(features), *self.shape), dtype=self.front.dtype)
        best = torch.full((len(features),), math.inf, dtype=self.front.dtype)
        won = torch.zeros(len(features), dtype=torch.int64)
        for number in range(self.starts):
            open_ = torch.nonzero(best > STUCK).flatten()
            if not len(open_):
                break
            start = self.box.start(number, (len(open_), *self.shape), self.seed)
            tried, distances = self._solve(features[open_], start, COARSE)
            is_better = distances < best[open_]
            chosen = open_[is_better]
            x[chosen], best[chosen], won[chosen] = tried[is_better], distances[is_better], number
        rough = torch.nonzero((best > reached) & (best <= STUCK)).flatten()
        if self.prior is not None and len(rough):
            x[rough], _ = self._solve(features[rough], x[rough], FINE)
        if values is not None:
            snapped = closest(x, values)
            fits = self.front.distances(snapped, features) <= reached
            x[fits] = snapped[fits]
        residuals = self.front.distances(x, features).double()
        generator = torch.Generator().manual_seed(self.seed)
        hidden = hidden_shares(self.front, x, generator).double()
        one = HIDDEN / math.prod(self.shape)
        return Inversion(
            layer=self.layer,
            inputs=x,
            residuals=residuals,
            starts=won,
            determined=(residuals <= reached) & (hidden.amax(1) <= one),
            hidden=hidden.mean(1),
        )

    def _solve(self, features: Tensor, start: Tensor, schedule: Schedule) -> tuple[Tensor, Tensor]:
        """Inputs near the right piece of the front, solved there; with their distances, (n,)."""
        near = descend(
            self.coarse,
            features.float(),
            start.float(),
            box=self.box,
            prior=self.prior,
            schedule=schedule,
        )
        return refine(self.front, features, near.to(self.front.dtype), self.box, floor=self.floor)


def closest(x: Tensor, values: Tensor) -> Tensor:
    """Each number of x moved to the closest of some values.

    Example:
        >>> closest(torch.tensor([0.2, 0.9]), torch.tensor([0.0, 1.0]))
        tensor([0., 1.])
    """
    values = values.to(x)
    above = torch.searchsorted(values, x.contiguous()).clamp(1, len(values) - 1)
    low, high = values[above - 1], values[above]
    return torch.where(x - low <= high - x, low, high)
