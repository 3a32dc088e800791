"""TunedFree: the best law found that needs no data of the server's own.

Soliton-Free takes features for independent and uniform on [0, 1]. Two things are wrong with that
for most data: the features of a sample have a level in common (bright and dark pictures), which
fires neurons whose weights do not sum to zero all together; and once the level is set aside, they
vary less than a uniform law does. This design takes half of each row's mean away from its weights
(some of the level helps to tell samples apart), assumes a smaller deviation, and while neurons are
plenty mixes 1/d into the soliton.

Example:
    >>> TunedFree()
    TunedFree(construction='independent', sigma=0.5)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from gradpeel.designs.degrees import RobustSoliton, harmonic
from gradpeel.designs.layer import Layer, ToRows
from gradpeel.designs.soliton_free import check_inputs, gaussian_bias
from gradpeel.designs.weights import Construction, check_construction, check_sigma, draw_weights

__all__ = ["TunedFree"]

MANY = 0.45
"""Beyond it there are no neurons to spare for degrees that the soliton does not have."""
LEVEL = 0.5
"""Share of a row's mean that is taken away."""
FEW = 0.32
"""Up to this many samples per neuron the smaller deviation is assumed."""
DEVIATION, DEVIATION_OF_FEW = 0.85, 0.8
"""Relative to that of independent uniform features."""
SOLITON = 0.7
"""Share of the soliton in the mixture with 1/d."""
CUT = 0.25
"""Largest degree of the 1/d part as a share of the batch."""


@dataclass(frozen=True)
class TunedFree:
    """Weights with half of their mean removed, and biases that aim at a mixture of degree laws.

    It assumes inputs in [0, 1] whose features share a level and otherwise have 0.8 to 0.85 times
    the deviation of uniform ones. Its constants were chosen on the benchmark data sets.

    Attributes:
        construction: "independent" or "mirrored", see `draw_weights` (at scale 1).
        sigma: Standard deviation of the Gaussian magnitudes, positive.
    """

    construction: Construction = "independent"
    sigma: float = 0.5

    name: ClassVar[str] = "tuned-free"
    active: ClassVar[bool] = True
    adversary: ClassVar[str] = "a server that sets the first layer's weights and biases"

    def __post_init__(self) -> None:
        check_construction(self.construction)
        check_sigma(self.sigma)

    @property
    def weights(self) -> str:
        """The weight construction."""
        return self.construction

    def shape(
        self, layer: Layer, *, batch_size: int, rng: np.random.Generator, front: ToRows
    ) -> Layer:
        """Draw weights and degrees; set each bias to its degree's Gaussian quantile; see `Design`.

        Raises:
            InputError: When `batch_size` is not positive, or when features, which are not known to
                lie in [0, 1], enter the layer.
        """
        check_inputs(self.name, front)
        load = batch_size / layer.neurons
        degrees = 1 + rng.choice(batch_size, size=layer.neurons, p=_law(batch_size, load))
        size = layer.neurons, layer.features
        weight = draw_weights(self.construction, *size, rng, sigma=self.sigma)
        deviation = DEVIATION_OF_FEW if load <= FEW else DEVIATION
        weight -= LEVEL * weight.mean(axis=1, keepdims=True)
        spread = deviation * np.linalg.norm(weight, axis=1) / math.sqrt(12)
        bias = gaussian_bias(weight.sum(axis=1) / 2, spread, degrees, batch_size)
        return Layer(torch.from_numpy(weight), torch.from_numpy(bias))


def _law(batch_size: int, load: float) -> NDArray[np.float64]:
    soliton = RobustSoliton().probabilities(batch_size)
    if load > MANY:
        return soliton
    return SOLITON * soliton + (1 - SOLITON) * harmonic(batch_size, CUT)
