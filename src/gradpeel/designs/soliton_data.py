"""Soliton-Data: biases that shape degrees on auxiliary data (the paper's section "Soliton-Data").

The server holds a batch of data that resembles the client's. It sorts each neuron's pre-activations
on that batch and puts the threshold midway between the d-th and the (d+1)-th largest, so that
exactly d auxiliary samples fire the neuron.

Example:
    >>> SolitonData(torch.rand(8, 28, 28))
    SolitonData(auxiliary=(8, 28, 28), construction='independent',
                soliton=RobustSoliton(c=0.05, delta=0.4), sigma=0.5)
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from gradpeel.designs.auxiliary import (
    auxiliary_rows,
    check_auxiliary,
    thresholds_between,
)
from gradpeel.designs.degrees import RobustSoliton, check_soliton
from gradpeel.designs.layer import Layer, ToRows
from gradpeel.designs.weights import Construction, check_construction, check_sigma, draw_weights

__all__ = ["SolitonData"]


@dataclass(frozen=True, eq=False, repr=False)
class SolitonData:
    """Honest weights, and biases that give robust soliton degrees on the auxiliary batch.

    Attributes:
        auxiliary: (batch, *sample_shape), floating point, in input space. Where its size differs
            from the client's batch, a degree d of B becomes the nearest share of it, at least 1.
        construction: "independent" or "mirrored", see `draw_weights` (at scale 1).
        soliton: The distribution that degrees are drawn from.
        sigma: Standard deviation of the Gaussian magnitudes, positive.
    """

    auxiliary: Tensor
    construction: Construction = "independent"
    soliton: RobustSoliton = field(default_factory=RobustSoliton)
    sigma: float = 0.5

    name: ClassVar[str] = "soliton-data"
    active: ClassVar[bool] = True
    adversary: ClassVar[str] = (
        "a server that sets the first layer's weights and biases and holds similar data"
    )

    def __post_init__(self) -> None:
        check_construction(self.construction)
        check_sigma(self.sigma)
        check_soliton(self.soliton)
        check_auxiliary(self.auxiliary)

    def __repr__(self) -> str:
        return (
            f"SolitonData(auxiliary={tuple(self.auxiliary.shape)}, "
            f"construction={self.construction!r}, soliton={self.soliton!r}, sigma={self.sigma})"
        )

    @property
    def weights(self) -> str:
        """The weight construction."""
        return self.construction

    def shape(
        self, layer: Layer, *, batch_size: int, rng: np.random.Generator, front: ToRows
    ) -> Layer:
        """Draw weights and degrees; set each threshold between two auxiliary samples; see `Design`.

        Raises:
            InputError: When `batch_size` is not positive, or when `front` does not map the
                auxiliary samples to rows of the target's width.
        """
        rows = auxiliary_rows(self.auxiliary, layer.features, front)
        share = self.soliton.draw(batch_size, layer.neurons, rng) / batch_size
        degrees = np.clip(np.rint(share * len(rows)).astype(np.int64), 1, len(rows))
        size = layer.neurons, layer.features
        weight = draw_weights(self.construction, *size, rng, sigma=self.sigma)
        spread = np.linalg.norm(weight, axis=1) / math.sqrt(12)
        bias = -thresholds_between(rows @ weight.T, degrees, spread)
        return Layer(torch.from_numpy(weight), torch.from_numpy(bias))
