"""Passive: the server sends an untouched model and only reads (paper, section "Threat Model").

Example:
    >>> Passive(init="torch")
    Passive(init='torch', sigma=0.5)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias, get_args

import numpy as np
import torch

from gradpeel.designs.layer import Layer, ToRows
from gradpeel.designs.weights import check_sigma, draw_torch_default, draw_weights
from gradpeel.errors import InputError

__all__ = ["Passive"]

Init: TypeAlias = Literal["keep", "gaussian", "torch"]


@dataclass(frozen=True)
class Passive:
    """No tampering: the layer as it is, or as an honest server would initialise it.

    Attributes:
        init: "keep" leaves the layer as it is (a user's own model); "gaussian" is the paper's
            initialisation, weights from N(0, sigma^2) and zero biases; "torch" is PyTorch's default
            for `nn.Linear`, biases included.
        sigma: Standard deviation with "gaussian", positive; the others do not use it.
    """

    init: Init = "keep"
    sigma: float = 0.5

    name: ClassVar[str] = "passive"
    active: ClassVar[bool] = False
    adversary: ClassVar[str] = "a server that follows the protocol and only watches"

    def __post_init__(self) -> None:
        if self.init not in get_args(Init):
            raise InputError(f"init={self.init!r}: expected 'keep', 'gaussian' or 'torch'")
        check_sigma(self.sigma)

    @property
    def weights(self) -> str:
        """The kind of initialisation."""
        return self.init

    def shape(
        self, layer: Layer, *, batch_size: int, rng: np.random.Generator, front: ToRows
    ) -> Layer:
        """Return the layer itself, or an honest initialisation of its shape; see `Design`."""
        del batch_size, front  # an honest server looks at neither
        if self.init == "keep":
            return layer
        if self.init == "torch":
            weight, bias = draw_torch_default(layer.neurons, layer.features, rng)
        else:
            weight = draw_weights(
                "independent", layer.neurons, layer.features, rng, sigma=self.sigma
            )
            bias = np.zeros(layer.neurons)
        return Layer(torch.from_numpy(weight), torch.from_numpy(bias))
