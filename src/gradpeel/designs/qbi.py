"""QBI: every bias at the quantile that one of B samples exceeds.

As described by Nowak and others (2024, arXiv 2406.18745).

For features of mean 0 and variance 1 a neuron with weights N(0, sigma^2) has pre-activations of
deviation sigma sqrt(F). The bias -sigma sqrt(F) Phi^-1(1 - 1/B) lets each neuron fire on one sample
of B on average. It needs no data; that inputs are standardised is its assumption, and without it
most neurons fire always or never.

Example:
    >>> QBI()
    QBI(sigma=0.5)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch

from gradpeel.designs.layer import Layer, ToRows
from gradpeel.designs.weights import check_sigma, draw_weights
from gradpeel.errors import InputError

__all__ = ["QBI", "quantile_bias"]


@dataclass(frozen=True)
class QBI:
    """Gaussian weights, and one bias for all neurons; made for standardised inputs.

    Attributes:
        sigma: Standard deviation of the weights, positive.
    """

    sigma: float = 0.5

    name: ClassVar[str] = "qbi"
    active: ClassVar[bool] = True
    weights: ClassVar[str] = "independent"
    adversary: ClassVar[str] = "a server that sets the first layer's weights and biases"

    def __post_init__(self) -> None:
        check_sigma(self.sigma)

    def shape(
        self, layer: Layer, *, batch_size: int, rng: np.random.Generator, front: ToRows
    ) -> Layer:
        """Draw weights and set the bias of all neurons; see `Design`.

        Raises:
            InputError: When `batch_size` is not positive.
        """
        del front
        size = layer.neurons, layer.features
        weight = draw_weights("independent", *size, rng, sigma=self.sigma)
        bias = np.full(layer.neurons, quantile_bias(batch_size, layer.features, self.sigma))
        return Layer(torch.from_numpy(weight), torch.from_numpy(bias))


def quantile_bias(batch_size: int, features: int, sigma: float) -> float:
    """The bias with which a neuron fires on one of B standardised samples on average.

    Example:
        >>> round(quantile_bias(100, features=25, sigma=0.2), 3)  # -Phi^-1(0.99)
        -2.326
        >>> quantile_bias(1, features=25, sigma=0.2)  # half of the single samples
        0.0
    """
    from scipy.special import ndtri  # noqa: PLC0415 -- slow to import, and few designs ask

    if batch_size < 1:
        raise InputError(f"batch_size={batch_size}: expected a positive integer")
    # The quantile of 1 would let a neuron fire always; one of a single sample needs no threshold.
    quantile = float(ndtri(1 / batch_size)) if batch_size > 1 else 0.0
    return quantile * sigma * math.sqrt(features)
