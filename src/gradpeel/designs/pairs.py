"""PAIRS: neurons redrawn on auxiliary data until each isolates one sample (from the paper of QBI).

Starting from QBI's weights and bias, every neuron that does not fire on exactly one sample of
each auxiliary batch is drawn again, up to a number of tries; the best stays. As QBI, it
assumes standardised inputs; on others the bias is so far off that redrawing finds little.

Example:
    >>> Pairs(torch.randn(64, 28, 28))
    Pairs(auxiliary=(64, 28, 28), tries=20, sigma=0.5)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gradpeel.checks import check_positive_integer
from gradpeel.designs.auxiliary import auxiliary_rows, check_auxiliary
from gradpeel.designs.layer import Layer, ToRows
from gradpeel.designs.qbi import quantile_bias
from gradpeel.designs.weights import check_sigma, draw_weights

__all__ = ["Pairs"]


@dataclass(frozen=True, eq=False, repr=False)
class Pairs:
    """QBI's bias, and weights searched on auxiliary data; made for standardised inputs.

    Attributes:
        auxiliary: (batch, *sample_shape), floating point, in input space; it is divided into
            batches of the client's size, or is a single one where it is smaller.
        tries: How often a neuron is drawn at most, positive.
        sigma: Standard deviation of the weights, positive.
    """

    auxiliary: Tensor
    tries: int = 20
    sigma: float = 0.5

    name: ClassVar[str] = "pairs"
    active: ClassVar[bool] = True
    weights: ClassVar[str] = "independent"
    adversary: ClassVar[str] = (
        "a server that sets the first layer's weights and biases and holds similar data"
    )

    def __post_init__(self) -> None:
        check_positive_integer("tries", self.tries)
        check_sigma(self.sigma)
        check_auxiliary(self.auxiliary)

    def __repr__(self) -> str:
        return (
            f"Pairs(auxiliary={tuple(self.auxiliary.shape)}, tries={self.tries}, "
            f"sigma={self.sigma})"
        )

    def shape(
        self, layer: Layer, *, batch_size: int, rng: np.random.Generator, front: ToRows
    ) -> Layer:
        """Draw every neuron until it isolates one sample per auxiliary batch; see `Design`.

        Raises:
            InputError: When `batch_size` is not positive, or when `front` does not map the
                auxiliary samples to rows of the target's width.
        """
        bias = quantile_bias(batch_size, layer.features, self.sigma)
        rows = auxiliary_rows(self.auxiliary, layer.features, front)
        batches = max(1, len(rows) // batch_size)
        batch = min(batch_size, len(rows))
        weight = np.empty((layer.neurons, layer.features))
        isolates = np.full(layer.neurons, -1)
        for _ in range(self.tries):
            open_ = np.flatnonzero(isolates < batches)
            if not open_.size:
                break
            size = open_.size, layer.features
            drawn = draw_weights("independent", *size, rng, sigma=self.sigma)
            found = _count_isolated(rows[: batches * batch] @ drawn.T + bias > 0, batches)
            better = found > isolates[open_]
            weight[open_[better]] = drawn[better]
            isolates[open_[better]] = found[better]
        biases = torch.full((layer.neurons,), bias, dtype=torch.float64)
        return Layer(torch.from_numpy(weight), biases)


def _count_isolated(fires: NDArray[np.bool_], batches: int) -> NDArray[np.int64]:
    """(neurons,) in how many batches exactly one sample fires; `fires` is (samples, neurons)."""
    counts = fires.reshape(batches, -1, fires.shape[1]).sum(axis=1)
    isolated: NDArray[np.int64] = (counts == 1).sum(axis=0)
    return isolated
