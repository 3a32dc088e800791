"""The second part of a reconstruction: least squares on the features, to rounding.

On one linear piece of the front a Gauss-Newton step is exact, so a start on the right piece ends at
the rounding of the features after a few steps. Each step is solved by conjugate gradients, without
the matrix of derivatives.

The same equations show what features do *not* determine: a random direction of the inputs is pushed
forward and read back; what does not come back, features do not see.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from gradpeel.inversion.box import Box
from gradpeel.inversion.forward import FrontMap, Linearised, norms

__all__ = ["hidden_shares", "refine"]

OUTER, INNER, LONG = 24, 20, 160
"""Gauss-Newton steps, and conjugate gradients in each; more of these once they are too few."""
LENGTHS = (1.0, 0.5, 0.25, 0.06)
"""Shares of a step that are tried; kinks of the front may make the whole one too long."""
DAMPING = (1e-12, 1e-3, 10.0)
"""Least, first and largest damping of a step."""
WORTHWHILE = (0.3, 0.8)
"""Shares of the distance that a step may leave, with few conjugate gradients and with many."""
PROBES, PROBE_STEPS = 2, 80
"""Random directions to read back, and conjugate gradients for each."""


def refine(
    front: FrontMap, features: Tensor, x: Tensor, box: Box, *, floor: float
) -> tuple[Tensor, Tensor]:
    """Reduce the squared errors of features by damped Gauss-Newton steps.

    Args:
        front: from inputs to features.
        features: (n, features) what to reach.
        x: (n, *sample_shape) inputs to start from.
        box: the range of the data.
        floor: relative distance that is rounding alone; samples that reach it are done.

    Returns:
        Inputs and the relative distance of their features, (n,); never farther than at the start.
    """
    x, best = x.clone(), front.distances(x, features)
    damping = torch.full_like(best, DAMPING[1])
    needs_long, done = (torch.zeros_like(best, dtype=torch.bool) for _ in range(2))
    live = torch.arange(len(x))
    for _ in range(OUTER):
        live = live[(best[live] > floor) & ~done[live]]
        if not len(live):
            break
        here, wanted, before = x[live], features[live], best[live]
        slope = Linearised(front, here)
        is_long = bool(needs_long[live].all())
        steps = LONG if is_long else INNER
        step = _solve(slope, slope.pull(wanted - slope.features), damping[live], steps)
        taken = torch.zeros_like(before)
        for length in LENGTHS:
            tried = box.clip(here + length * step)
            distances = front.distances(tried, wanted)
            is_better = distances < best[live]
            x[live[is_better]] = tried[is_better]
            best[live[is_better]] = distances[is_better]
            taken[is_better] = length
        less = damping[live] * torch.where(taken >= 0.5, 0.1, 3.0)
        damping[live] = less.clamp(DAMPING[0], DAMPING[2])
        slow = best[live] > WORTHWHILE[is_long] * before
        # Where few conjugate gradients are not enough once, they never are.
        done[live] = slow & is_long
        needs_long[live] |= slow
    return x, best


def hidden_shares(front: FrontMap, x: Tensor, generator: torch.Generator) -> Tensor:
    """(n, probes) share of a random direction's energy that cannot be read back from features.

    Near 0 where features determine the input around x; otherwise on average the number of free
    dimensions over the number of all. Directions that are hard to read back count as hidden.
    """
    slope, shares = Linearised(front, x), []
    for _ in range(PROBES):
        # The same for every sample, so that none depends on the others.
        draw = torch.randn(x.shape[1:], generator=generator, dtype=torch.float64)
        direction = draw.to(x).expand_as(x)
        none = torch.zeros(len(x), dtype=x.dtype)
        seen = _solve(slope, slope.pull(slope.push(direction)), none, PROBE_STEPS)
        shares.append((norms(direction - seen) / norms(direction)).square())
    return torch.stack(shares, 1)


def _solve(slope: Linearised, right: Tensor, damping: Tensor, steps: int) -> Tensor:
    """Solve (J^T J + damping) z = right for each sample by conjugate gradients from zero."""
    spread = _broadcast(right)
    found, residual, direction = torch.zeros_like(right), right.clone(), right.clone()
    left = _squares(residual)
    # Rounding leaves nothing to gain below this.
    enough = left * torch.finfo(right.dtype).eps ** 1.5
    tiny = torch.finfo(right.dtype).tiny
    for _ in range(steps):
        pushed = slope.push(direction)
        curvature = _squares(pushed) + damping * _squares(direction)
        length = torch.where(left > enough, left / curvature.clamp(min=tiny), 0.0)
        found = found + spread(length) * direction
        residual = residual - spread(length) * (slope.pull(pushed) + spread(damping) * direction)
        after = _squares(residual)
        if bool((after <= enough).all()):
            break
        direction = residual + spread(after / left.clamp(min=tiny)) * direction
        left = after
    return found


def _squares(x: Tensor) -> Tensor:
    return x.flatten(1).square().sum(1)


def _broadcast(x: Tensor) -> Callable[[Tensor], Tensor]:
    """A function that gives numbers of samples, (n,), the shape to multiply x with."""
    ones = [1] * (x.ndim - 1)
    return lambda numbers: numbers.reshape(-1, *ones)
