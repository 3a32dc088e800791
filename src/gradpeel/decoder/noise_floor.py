"""How much noise an update carries beyond its rounding errors, estimated from the update itself.

Where the activations enter a Linear directly, every neuron, singleton or mixture, obeys

    sum_i a_ij c_ij = W2[:, j] . dW2[:, j] = W1[j] . G[j] + b1[j] h[j],

for every batch, labels and loss. Rounding errors violate it slightly; noise on the gradients, and
weights that are not the client's, violate it more. The smallest singular values of G show how much
of that is noise on G, as long as the batch is small: beyond the samples there is only noise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from gradpeel.decoder.limits import LIMITS
from gradpeel.decoder.linalg import generator, mean_square, norms_of_products
from gradpeel.target import Target

__all__ = ["DifferenceRounding", "NoiseFloor", "noise_floor"]


@dataclass(frozen=True)
class NoiseFloor:
    """Standard deviations of noise on the entries of each gradient.

    Attributes:
        weight: of the target's weight gradient.
        bias: of its bias gradient.
        next_weight: of the next layer's weight gradient.
        relative: of the target's weight gradient, relative to the spread of its entries.
        broken: how far the law is violated, relative to its terms; 1 for an update of other
            weights.
    """

    weight: float = 0.0
    bias: float = 0.0
    next_weight: float = 0.0
    relative: float = 0.0
    broken: float = 0.0


@dataclass(frozen=True, eq=False)
class DifferenceRounding:
    """Roundings of an update that is a difference of weights, standard deviations of an entry.

    Attributes:
        weight: (neurons,) of the target's weight gradient.
        bias: (neurons,) of its bias gradient.
        next_weight: (neurons,) of the next layer's weight gradient.
        relative: of the target's weight gradient, relative to the spread of its entries.
    """

    weight: Tensor
    bias: Tensor
    next_weight: Tensor
    relative: float


def noise_floor(
    target: Target,
    weight: Tensor,
    bias: Tensor,
    next_rows: Tensor,
    own: Tensor,
    *,
    rounding: DifferenceRounding | None = None,
) -> NoiseFloor:
    """Estimate the noise on an update.

    Args:
        target: the target.
        weight: (neurons, features) its weight gradient as it was sent.
        bias: (neurons,) its bias gradient.
        next_rows: (neurons, next width) the next layer's weight gradient; without one, no columns,
            and then noise cannot be estimated.
        own: (neurons,) W1[j] . G[j].
        rounding: roundings that are known, if this is a difference of weights.

    Returns:
        The noise; 0 where rounding errors explain everything.
    """
    layer = target.tail.next_layer
    if layer is None or not next_rows.shape[1]:
        return NoiseFloor()
    resolution = float(torch.finfo(weight.dtype).eps)
    h, d = bias.double(), next_rows.double()
    ahead = layer.weight.double().T
    of_bias = target.bias.double() * h
    gap = (ahead * d).sum(1) - own - of_bias
    fired = (h != 0).nonzero()[:, 0]
    some = fired[:: max(1, len(fired) // LIMITS.noise_neurons)]
    # Rounding errors of the terms are independent: they add up in squares.
    parts = (ahead * d)[some].norm(dim=1), norms_of_products(target.weight, weight, some)
    terms = torch.stack([*parts, of_bias[some]]).norm(dim=0)
    if rounding is not None:
        # Such roundings break the law too, and by how much is known.
        of_weights = target.weight[some].double().norm(dim=1) * rounding.weight[some]
        of_ahead = ahead[some].norm(dim=1) * rounding.next_weight[some]
        off = torch.stack([of_weights, of_ahead, (target.bias * rounding.bias)[some]]).norm(dim=0)
        gap_by_error = gap[some].abs() / off.clamp(min=torch.finfo(off.dtype).tiny)
        if float(gap_by_error.median()) <= LIMITS.rounding:
            return NoiseFloor()
    live = terms > 0
    broken = float((gap[some][live].abs() / terms[live]).median()) if bool(live.any()) else 0.0
    if broken <= LIMITS.rounding * resolution:
        return NoiseFloor()
    total, of_next = float(gap.norm()) ** 2, float(ahead.norm()) ** 2
    of_weight = mean_square(target.weight) * target.weight.numel()
    sigma = min(_smallest_spread(weight), math.sqrt(total / of_weight) if of_weight else 0.0)
    left = max(0.0, total - sigma**2 * of_weight)
    relative = sigma / (math.sqrt(mean_square(weight, centred=True)) or 1.0)
    return NoiseFloor(
        weight=sigma,
        bias=relative * float(h.std(correction=0)),
        next_weight=math.sqrt(left / of_next) if of_next else 0.0,
        relative=relative,
        broken=broken,
    )


def _smallest_spread(gradient: Tensor) -> float:
    """Standard deviation of noise from the smallest singular values of some of the columns.

    A matrix of noise has none below sigma (sqrt(rows) - sqrt(columns)).
    """
    neurons, features = gradient.shape
    count = max(1, min(neurons, features) // 2)
    some = torch.randperm(features, generator=generator(), device="cpu")[:count]
    smallest = float(torch.linalg.svdvals(gradient[:, some.to(gradient.device)].double())[-1])
    if count == neurons:  # a single neuron shows no spread
        return 0.0
    return smallest / (math.sqrt(neurons) - math.sqrt(count))
