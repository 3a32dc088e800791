"""The target's parameters, and the contract of a design that sets them.

A *design* is how the server sets the attacked layer before it sends the model out (the paper's
sections "Threat Model" and "Parameter Manipulation"). It is a small immutable value made of its
settings, and `shape` is pure: the same layer, batch size and random state give the same layer.

Example:
    >>> import numpy as np, torch
    >>> from gradpeel.designs import TrapWeights
    >>> layer = Layer(torch.zeros(5, 8).double(), torch.zeros(5).double())
    >>> rng = np.random.default_rng(0)
    >>> shaped = TrapWeights().shape(layer, batch_size=4, rng=rng, front=torch.nn.Flatten())
    >>> shaped.neurons, shaped.features
    (5, 8)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
import torch
from torch import Tensor

from gradpeel.errors import InputError

__all__ = ["Design", "Layer", "ToRows"]

ToRows: TypeAlias = Callable[[Tensor], Tensor]
"""Maps inputs (batch, *sample_shape) to the target's rows (batch, features)."""


@dataclass(frozen=True, eq=False)
class Layer:
    """The target's parameters; designs work in float64 and the caller casts to the model's dtype.

    Attributes:
        weight: (neurons, features), float64.
        bias: (neurons,), float64.
    """

    weight: Tensor
    bias: Tensor

    def __post_init__(self) -> None:
        weight_shape, bias_shape = tuple(self.weight.shape), tuple(self.bias.shape)
        if len(weight_shape) != 2 or 0 in weight_shape:
            raise InputError(
                f"weight of shape {weight_shape}: expected (neurons, features), not empty"
            )
        if bias_shape != weight_shape[:1]:
            raise InputError(f"bias of shape {bias_shape}: expected {weight_shape[:1]}")
        for name, tensor in (("weight", self.weight), ("bias", self.bias)):
            if tensor.dtype != torch.float64:
                raise InputError(f"{name} of dtype {tensor.dtype}: expected torch.float64")

    @property
    def neurons(self) -> int:
        """Number of neurons N."""
        return self.weight.shape[0]

    @property
    def features(self) -> int:
        """Number of inputs F of each neuron."""
        return self.weight.shape[1]


class Design(Protocol):
    """How the server sets the target: settings, words for reports, and `shape`."""

    @property
    def name(self) -> str:
        """The design's name on the command line and in reports, such as "trap-weights"."""

    @property
    def weights(self) -> str:
        """Where the weights come from: the construction, or `Passive`'s kind of initialisation."""

    @property
    def active(self) -> bool:
        """Whether the server departs from the protocol; only `Passive` does not."""

    @property
    def adversary(self) -> str:
        """Who can do this: the threat model in a few plain words."""

    def shape(
        self, layer: Layer, *, batch_size: int, rng: np.random.Generator, front: ToRows
    ) -> Layer:
        """Set the layer for clients that are expected to send batches of `batch_size`.

        Args:
            layer: The target as the model holds it; never changed in place.
            batch_size: The client's batch size B, positive.
            rng: The only source of randomness.
            front: Maps inputs (batch, *sample_shape) to the target's rows (batch, features).

        Returns:
            The layer that the server sends out, of the same shape.
        """
