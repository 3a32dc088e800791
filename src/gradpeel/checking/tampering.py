"""Is the received layer what honest training or initialisation gives?

Four marks distinguish a tampered layer from an honest one, because each contradicts something that
training does:

- *twins*: in mirrored rows every positive weight is a negative one times the same factor. Nothing
  that trains ties weights together;
- *lean*: trap weights have larger negative weights than positive ones, but as many of each. A layer
  that training has pushed towards negative weights has more of them, too;
- *bias spread*: biases that place the threshold of every neuron, as the soliton designs do, vary
  about as much as the pre-activations themselves. Initialised biases do not, and training moves
  them slowly;
- *bias level*: one bias for all neurons, so low that only the largest pre-activations exceed it,
  makes every neuron rare without any spread, as in QBI. Initialised biases lie around zero.

What such designs are for is visible in the degrees: neurons that few samples fire. That is no
proof, because honest training makes neurons rare as well, but it is what a client would like to
know, so it is reported beside the verdict.

The limits were measured on honest networks that they were not chosen on (`benchmarks.tampering`).
They find the designs that gradpeel knows. A server that knows the limits can stay below them.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

import torch
from torch import Tensor, nn

from gradpeel.coercion import Samples, as_samples
from gradpeel.exposure import exposure_at
from gradpeel.target import split

__all__ = ["LIMITS", "Limits", "Tampering", "inspect_layer", "tampering"]

ROWS = 64
"""Rows that are searched for twins."""
NEAR = 1e-5
"""Relative difference up to which two weights are twins; float32 keeps them to 1e-7."""
OTHER = 1.0625
"""Another factor than that of the twins; pairs that it makes are chance."""
HEAVIEST = 4.0
"""Of a uniform law that is shifted, the log ratio of the sizes relative to the excess of negative
weights; of a normal law 2.3."""


@dataclass(frozen=True)
class Limits:
    """How much of each mark honest layers show at most; see `benchmarks.tampering`."""

    twins: float = 0.5
    lean: float = 5.0
    bias_spread: float = 0.25
    bias_level: float = 0.25


LIMITS = Limits()


@dataclass(frozen=True)
class Tampering:
    """The marks of tampering that a layer shows on a batch.

    Attributes:
        twins: share of the positive weights that are a negative weight of their row times one
            factor, beyond chance.
        lean: by how much the sizes of negative weights exceed those of positive ones, beyond what
            the numbers of both explain, in standard errors of independent weights; negative where
            positive ones are larger, as in some trained networks.
        bias_spread: standard deviation of the biases, beyond that of PyTorch's initialisation,
            relative to that of the pre-activations without them.
        bias_level: how far the mean of the biases lies below zero, in the same unit; negative
            above zero.
        degree_lean: by how many standard errors more neurons fire on less than half of the batch
            than on more; 0 for a layer whose weights and biases are as likely as their negatives.
        rare: share of the neurons that fire on some samples of the batch, but on at most a
            twentieth of them.
        singletons: number of neurons that exactly one sample fires.
        neurons: number of neurons.
        layer: name of the layer.
    """

    twins: float
    lean: float
    bias_spread: float
    bias_level: float
    degree_lean: float
    rare: float
    singletons: int
    neurons: int
    layer: str

    @property
    def suspicious(self) -> bool:
        """Whether the layer shows a mark that honest training does not leave."""
        return bool(self.reasons)

    @property
    def reasons(self) -> tuple[str, ...]:
        """The marks beyond their limits, one sentence each."""
        found = []
        if self.twins > LIMITS.twins:
            share = f"{self.twins:.0%} of the positive weights"
            found.append(f"{share} are a negative weight of their row times one factor")
        if self.lean > LIMITS.lean:
            found.append(
                "negative weights are larger than positive ones, but not more numerous "
                f"({self.lean:.1f} standard errors)"
            )
        if self.bias_spread > LIMITS.bias_spread:
            found.append(
                f"biases vary {self.bias_spread:.2f} times as much as the pre-activations "
                "that they shift"
            )
        if self.bias_level > LIMITS.bias_level:
            found.append(
                f"biases lie {self.bias_level:.2f} standard deviations of the pre-activations "
                "below zero"
            )
        return tuple(found)

    def as_dict(self) -> dict[str, object]:
        """The numbers as plain values for JSON."""
        return {**asdict(self), "suspicious": self.suspicious, "reasons": list(self.reasons)}


def tampering(model: nn.Module, x: Samples, *, layer: str | None = None) -> Tampering:
    """Look for marks of tampering in the layer of a received model that can be read.

    It takes one forward pass, and neither labels nor a gradient.

    Args:
        model: the network as received.
        x: the client's batch, in any form that `gradpeel.exposure` takes.
        layer: name of the layer; by default the first one that can be read.

    Returns:
        The marks, and whether one of them is beyond what honest networks show. No mark does not
        mean that the layer was not tampered with.

    Raises:
        ModelRefusedError: the network has no such layer.
        InputError: the batch does not fit.

    Example:
        >>> import numpy as np
        >>> from gradpeel.designs import Layer, TrapWeights
        >>> _ = torch.manual_seed(0)
        >>> x, model = torch.rand(16, 40), nn.Sequential(nn.Linear(40, 500), nn.ReLU())
        >>> _ = model.append(nn.Linear(500, 2)).double()
        >>> tampering(model, x).suspicious
        False
        >>> traps = TrapWeights(0.8).shape(
        ...     Layer(model[0].weight.data, model[0].bias.data),
        ...     batch_size=16, rng=np.random.default_rng(0), front=nn.Flatten())
        >>> _ = model[0].weight.data.copy_(traps.weight)
        >>> tampering(model, x).reasons
        ('negative weights are larger than positive ones, but not more numerous (...)',)
    """
    target = split(model, layer=layer)
    taken = as_samples(model, x, None, target.weight.dtype).x
    target.check_on(taken)
    with torch.no_grad():
        return inspect_layer(
            target.weight,
            target.bias,
            target.rows(taken),
            exposure_at(target, taken).degrees,
            layer=target.layer,
        )


def inspect_layer(
    weight: Tensor, bias: Tensor, rows: Tensor, degrees: Tensor, *, layer: str = ""
) -> Tampering:
    """The same as `tampering`, for the parameters of a layer and what enters it.

    Args:
        weight: (neurons, features).
        bias: (neurons,).
        rows: (batch, features) what enters the layer.
        degrees: (neurons,) the number of rows that fire each neuron.
        layer: its name.
    """
    pre_activations = rows.to(weight) @ weight.T
    weight, bias, batch = weight.double(), bias.double(), len(rows)
    neurons, features = weight.shape
    # PyTorch draws weights and biases from the same law.
    initial = float(weight.norm(dim=1).median()) ** 2 / features
    beyond = math.sqrt(max(0.0, float(bias.var(correction=0)) - initial))
    unit = float(pre_activations.double().std(correction=0)) or 1.0
    few, many = int((degrees < batch / 2).sum()), int((degrees > batch / 2).sum())
    return Tampering(
        twins=_twins(weight),
        lean=_lean(weight),
        bias_spread=beyond / unit,
        bias_level=-float(bias.mean()) / unit,
        degree_lean=(few - many) / math.sqrt(neurons),
        rare=int(((degrees > 0) & (degrees <= max(1, batch / 20))).sum()) / neurons,
        singletons=int((degrees == 1).sum()),
        neurons=neurons,
        layer=layer,
    )


def _lean(weight: Tensor) -> float:
    """How much larger weights of one sign are, beyond what their numbers explain."""
    negative, positive = -weight[weight < 0], weight[weight > 0]
    total = len(negative) + len(positive)
    if not len(negative) or not len(positive):
        return 0.0
    ratio = math.log(float(negative.mean() / positive.mean()))
    excess = len(negative) / total - 0.5
    # A law that is shifted to one side has more weights there, and they are larger. Whatever its
    # shape, that explains at most this much.
    explained = min(HEAVIEST * max(0.0, excess if ratio > 0 else -excess), abs(ratio))
    sizes = torch.cat([negative, positive])
    varies = float(sizes.std(correction=0) / sizes.mean())
    error = math.sqrt((4 * varies**2 + HEAVIEST**2 / 4) / total)
    return math.copysign(abs(ratio) - explained, ratio) / error


def _twins(weight: Tensor) -> float:
    """Share of positive weights that have a twin, beyond chance."""
    some = weight[:: max(1, math.ceil(len(weight) / ROWS))]
    smallest = some.amin(1)
    usable = some[(smallest < 0) & (some.amax(1) > 0)]
    if not len(usable):
        return 0.0
    # The largest weights of most rows are twins.
    factor = float((usable.amax(1) / -usable.amin(1)).median())
    found = [_paired(row, factor) - _paired(row, OTHER * factor) for row in usable]
    return max(0.0, sum(found) / len(found))


def _paired(row: Tensor, factor: float) -> float:
    """Share of the positive entries of a row that are a negative one times a factor."""
    positive, others = row[row > 0], (-factor * row[row < 0]).sort().values
    above = torch.searchsorted(others, positive).clamp(max=len(others) - 1)
    below = (above - 1).clamp(min=0)
    gaps = torch.minimum((others[above] - positive).abs(), (others[below] - positive).abs())
    return float((gaps <= NEAR * positive).double().mean())
