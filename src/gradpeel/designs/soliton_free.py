"""Soliton-Free: biases that shape degrees without any data (the paper's section "Soliton-Free").

All the server knows of the client's features is that they lie in [0, 1]. Were they independent and
uniform there, a pre-activation would be nearly Gaussian, with mean sum(w) / 2 and variance
sum(w^2) / 12. The bias puts the threshold where such a neuron fires on d of B samples on average.

Example:
    >>> SolitonFree("mirrored")
    SolitonFree(construction='mirrored', soliton=RobustSoliton(c=0.05, delta=0.4), sigma=0.5)
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from gradpeel.designs.degrees import RobustSoliton, check_soliton
from gradpeel.designs.layer import Layer, ToRows
from gradpeel.designs.weights import Construction, check_construction, check_sigma, draw_weights
from gradpeel.errors import InputError

__all__ = ["SolitonFree", "check_inputs", "gaussian_bias"]


@dataclass(frozen=True)
class SolitonFree:
    """Honest weights, and biases that aim at robust soliton degrees.

    Attributes:
        construction: "independent" or "mirrored", see `draw_weights` (at scale 1).
        soliton: The distribution that degrees are drawn from.
        sigma: Standard deviation of the Gaussian magnitudes, positive.
    """

    construction: Construction = "independent"
    soliton: RobustSoliton = field(default_factory=RobustSoliton)
    sigma: float = 0.5

    name: ClassVar[str] = "soliton-free"
    active: ClassVar[bool] = True
    adversary: ClassVar[str] = "a server that sets the first layer's weights and biases"

    def __post_init__(self) -> None:
        check_construction(self.construction)
        check_sigma(self.sigma)
        check_soliton(self.soliton)

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
        degrees = self.soliton.draw(batch_size, layer.neurons, rng)
        size = layer.neurons, layer.features
        weight = draw_weights(self.construction, *size, rng, sigma=self.sigma)
        mean = weight.sum(axis=1) / 2
        deviation = np.linalg.norm(weight, axis=1) / math.sqrt(12)
        bias = gaussian_bias(mean, deviation, degrees, batch_size)
        return Layer(torch.from_numpy(weight), torch.from_numpy(bias))


def check_inputs(design: str, front: ToRows) -> None:
    """Raise `InputError` where features enter the layer, of which no data-free design knows."""
    if getattr(front, "space", "input") == "features":
        raise InputError(
            f"{design}: the layer receives features of other layers, and this design is "
            "made for inputs in [0, 1]: expected a design such as soliton-data, which measures "
            "features on auxiliary data"
        )


def gaussian_bias(
    mean: NDArray[np.float64],
    deviation: NDArray[np.float64],
    degrees: NDArray[np.int64],
    batch_size: int,
) -> NDArray[np.float64]:
    """(neurons,) biases with which Gaussian pre-activations exceed zero on d of B samples.

    Example:
        >>> half = gaussian_bias(np.array([3.0]), np.array([1.0]), np.array([5]), batch_size=10)
        >>> half.tolist()
        [-3.0]
    """
    from scipy.special import ndtri  # noqa: PLC0415 -- slow to import, and few designs ask

    # The paper's -Phi^-1(1 - d/B), written as Phi^-1(d/B). At d = B it is plus infinity: the
    # neuron fires always, so its bias is large and positive (the published script has the
    # sign of this case wrong). We take the largest quantile that float64 can tell from
    # infinity, 8.2 deviations, which a Gaussian misses once in 10^16 samples. The smallest
    # pre-activation that features in [0, 1] allow would be a hard bound, but a harmful one:
    # on 32 x 32 colour images it is over 70 deviations away, and one such neuron swamps the
    # logits (measured on CIFAR-10, B = 64: some samples' gradients fall from 1e-3 to 1e-13).
    quantile = ndtri(np.minimum(degrees / batch_size, np.nextafter(1.0, 0.0)))
    bias: NDArray[np.float64] = deviation * quantile - mean
    return bias
