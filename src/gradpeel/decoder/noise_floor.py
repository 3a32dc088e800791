"""How much noise an update carries beyond its roundings, told from the update itself.

Where the activations enter a Linear directly, every neuron, singleton or mixture, obeys

    sum_i a_ij c_ij = W2[:, j] . dW2[:, j] = W1[j] . G[j] + b1[j] h[j],

whatever batch, labels and loss were. Roundings break it by little; noise on the gradients, and
weights that are not the client's, break it by more. How much of that is noise on G its smallest
singular values tell, as long as the batch is small: beyond the samples there is only noise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from gradpeel.decoder.tolerances import ROUNDING
from gradpeel.target import Target

__all__ = ["NoiseFloor", "noise_floor"]


@dataclass(frozen=True)
class NoiseFloor:
    """Standard deviations of noise on the entries of each gradient.

    Attributes:
        weight: of the target's weight gradient.
        bias: of its bias gradient.
        next_weight: of the next layer's weight gradient.
        relative: of the target's weight gradient, relative to the spread of its entries.
        broken: by how much the law is broken, relative to its terms; 1 for an update of other
            weights.
    """

    weight: float = 0.0
    bias: float = 0.0
    next_weight: float = 0.0
    relative: float = 0.0
    broken: float = 0.0


def noise_floor(target: Target, weight: Tensor, bias: Tensor, next_rows: Tensor) -> NoiseFloor:
    """Estimate the noise on an update.

    Args:
        target: the target, in float64.
        weight: (neurons, features) its weight gradient as it was sent.
        bias: (neurons,) its bias gradient.
        next_rows: (neurons, next width) the next layer's weight gradient; no columns without one,
            and then nothing is known of noise.

    Returns:
        The noise, 0 where roundings explain all there is.
    """
    layer = target.tail.next_layer
    if layer is None or not next_rows.shape[1]:
        return NoiseFloor()
    resolution = float(torch.finfo(weight.dtype).eps)
    g, h, d = weight.double(), bias.double(), next_rows.double()
    ahead, behind = layer.weight.double().T, target.weight
    parts = ahead * d, behind * g, (target.bias * h)[:, None]
    gap = parts[0].sum(1) - parts[1].sum(1) - parts[2].sum(1)
    # Roundings of the terms are independent: they add up in squares.
    terms = torch.stack([part.norm(dim=1) for part in parts]).norm(dim=0)
    rounding = ROUNDING * resolution * terms
    live = rounding > 0
    if not bool(live.any()) or float((gap[live].abs() / rounding[live]).median()) <= 1.0:
        return NoiseFloor()
    total, of_next, of_weight = (float(v.square().sum()) for v in (gap, ahead, behind))
    sigma = min(_smallest_spread(g), math.sqrt(total / of_weight) if of_weight else 0.0)
    left = max(0.0, total - sigma**2 * of_weight)
    relative = sigma / (float(g.std(correction=0)) or 1.0)
    return NoiseFloor(
        weight=sigma,
        bias=relative * float(h.std(correction=0)),
        next_weight=math.sqrt(left / of_next) if of_next else 0.0,
        relative=relative,
        broken=float((gap[live].abs() / terms[live]).median()),
    )


def _smallest_spread(gradient: Tensor) -> float:
    """Standard deviation of noise from the smallest singular values of some of the columns.

    A matrix of noise has none below sigma (sqrt(rows) - sqrt(columns)).
    """
    neurons, features = gradient.shape
    count = max(1, min(neurons, features) // 2)
    generator = torch.Generator().manual_seed(0)
    some = torch.randperm(features, generator=generator)[:count]
    smallest = float(torch.linalg.svdvals(gradient[:, some])[-1])
    return smallest / (math.sqrt(neurons) - math.sqrt(count))
