"""How close to the span a record comes by chance if it did not take part.

The distances of records that were not in are the null distribution. Its lower tail is what matters,
and there are never enough records to see it, so it is continued as a power: the chance of a
distance below t is (t / u)^k of the chance of one below u. Natural data has k well above 1, since
it would have to agree with the span in many directions at once; where too few records are there to
estimate it, k = 1, a density that does not vanish towards the span.

Example:
    >>> null = Null.of(torch.linspace(0.1, 0.5, 41))
    >>> [f"{null.chance(distance):.0e}" for distance in (0.3, 0.05, 1e-6)]
    ['5e-01', '3e-03', '1e-06']
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["LEAST", "Null"]

_ENOUGH = 20
"""With fewer records nothing is known of the shape of the tail."""

_TAIL = 0.1
"""The tail is fitted to this share of the records, the closest ones."""

_STEEPEST = 16.0

LEAST = 1e-6
"""No chance is called smaller: nobody has looked at more records than that."""


@dataclass(frozen=True, eq=False)
class Null:
    """Distances of records that were not in.

    Attributes:
        distances: (n,) in ascending order.
        start: where the tail starts.
        power: how steeply it falls.
    """

    distances: Tensor
    start: float
    power: float

    @classmethod
    def of(cls, distances: Tensor) -> Null:
        """Fit the tail to the distances of at least one record."""
        distances = distances.sort().values.double()
        if len(distances) < _ENOUGH:
            return cls(distances, float(distances[0]), 1.0)
        tail = distances[: max(5, round(_TAIL * len(distances)))]
        start = float(tail[-1])
        tiny = torch.finfo(tail.dtype).tiny
        logs = float((start / tail[:-1].clamp(min=tiny)).log().sum())
        # One less than there are, and no more than a few: the estimate errs on the safe side.
        power = (len(tail) - 2) / logs if logs > 0 else _STEEPEST
        return cls(distances, start, min(power, _STEEPEST))

    def chance(self, distance: float) -> float:
        """Chance that a record that was not in lies no farther from the span than this."""
        count = len(self.distances)
        if distance >= self.start:
            closer = int((self.distances <= distance).sum())
            return (closer + 1) / (count + 1)
        at_start = (int((self.distances <= self.start).sum()) + 1) / (count + 1)
        if distance <= 0 or self.start <= 0:
            return LEAST if self.start > 0 else at_start
        return max(LEAST, at_start * math.exp(self.power * math.log(distance / self.start)))
