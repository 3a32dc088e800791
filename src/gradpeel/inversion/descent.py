"""The first part of a reconstruction: from a start to the right linear piece of the front.

A front of convolutions, ReLU and pooling is piecewise linear. Far from the solution many of its
switches stand wrong, each of which spoils a few features thoroughly. So it is the sum of *absolute*
errors that is minimised: least squares would bend the whole picture to please those few. What is
left then is for `gradpeel.inversion.least_squares`.

Measured on the network of the FedAvg paper, 16 pictures of Fashion-MNIST, one start: absolute
errors 16 exact, squares 10 to 15 depending on the learning rate.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gradpeel.inversion.box import Box
from gradpeel.inversion.forward import TINY, FrontMap
from gradpeel.inversion.prior import Prior

__all__ = ["COARSE", "FINE", "Schedule", "descend"]


@dataclass(frozen=True)
class Schedule:
    """How steps shrink, and the prior with them.

    Attributes:
        steps: number of steps.
        rate: length of the first, as a share of the data's range; the last is none.
        prior: weight of the prior at the start and at the end, against relative errors of features.
    """

    steps: int
    rate: float
    prior: tuple[float, float]


COARSE = Schedule(300, 0.2, (0.2, 0.01))
"""From a start to the right piece."""
FINE = Schedule(150, 0.02, (0.05, 0.01))
"""Where features leave something open: what large steps left of noise there."""

MEMORY = (0.9, 0.99)
"""Of Adam, for slopes and for their squares."""
SMALL = 1e-8
"""Keeps Adam from dividing by zero where nothing depends on an input."""


def descend(
    front: FrontMap,
    features: Tensor,
    start: Tensor,
    *,
    box: Box,
    prior: Prior | None,
    schedule: Schedule,
) -> Tensor:
    """Reduce the absolute errors of features by Adam, from a start.

    Args:
        front: from inputs to features.
        features: (n, features) what to reach.
        start: (n, *sample_shape) in the range of the data.
        box: that range.
        prior: what pictures look like, where inputs are pictures.
        schedule: the steps.

    Returns:
        (n, *sample_shape) inputs in the range; no sample affects another.
    """
    size = features.abs().sum(1).clamp(min=TINY)
    x, (first, last) = start.clone(), schedule.prior
    mean, square = torch.zeros_like(x), torch.zeros_like(x)
    # By hand: torch.optim loads PyTorch's compiler with its first step, which takes seconds.
    for step in range(schedule.steps):
        done = step / schedule.steps
        with torch.enable_grad():
            x.requires_grad_()
            errors = (front(x) - features).abs().sum(1) / size
            if prior is not None:
                errors = errors + first * (last / first) ** done * prior(x / box.span)
            (slope,) = torch.autograd.grad(errors.sum(), x)
        mean.lerp_(slope, 1 - MEMORY[0])
        square.lerp_(slope.square(), 1 - MEMORY[1])
        fair = (1 - MEMORY[1] ** (step + 1)) ** 0.5 / (1 - MEMORY[0] ** (step + 1))
        length = schedule.rate * box.span * (1 - done) * fair
        x = box.clip(x.detach() - length * mean / (square.sqrt() + SMALL))
    return x
