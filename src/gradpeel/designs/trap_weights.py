"""Trap weights: rows that lean negative, so that neurons fire rarely (section "Trap Weights").

Example:
    >>> TrapWeights(construction="mirrored")
    TrapWeights(scale=0.99, construction='mirrored', sigma=0.5)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch

from gradpeel.designs.layer import Layer, ToRows
from gradpeel.designs.weights import (
    Construction,
    check_construction,
    check_scale,
    check_sigma,
    draw_weights,
)

__all__ = ["TrapWeights"]


@dataclass(frozen=True)
class TrapWeights:
    """Positive weights shrunk by `scale`, zero biases: a generic input stays below the ReLU.

    Attributes:
        scale: The factor s on positive weights, in (0, 1]; at 1 the independent construction is
            an honest initialisation.
        construction: "independent" or "mirrored", see `draw_weights`.
        sigma: Standard deviation of the Gaussian magnitudes, positive.
    """

    scale: float = 0.99
    construction: Construction = "independent"
    sigma: float = 0.5

    name: ClassVar[str] = "trap-weights"
    active: ClassVar[bool] = True
    adversary: ClassVar[str] = "a server that sets the first layer's weights"

    def __post_init__(self) -> None:
        check_scale(self.scale)
        check_construction(self.construction)
        check_sigma(self.sigma)

    @property
    def weights(self) -> str:
        """The weight construction."""
        return self.construction

    def shape(
        self, layer: Layer, *, batch_size: int, rng: np.random.Generator, front: ToRows
    ) -> Layer:
        """Draw new weights and set all biases to zero; see `Design`."""
        del batch_size, front  # trap weights are the same for every batch and every data set
        size = layer.neurons, layer.features
        weight = draw_weights(self.construction, *size, rng, scale=self.scale, sigma=self.sigma)
        return Layer(torch.from_numpy(weight), torch.zeros(layer.neurons, dtype=torch.float64))
