"""Gaussian noise on an update: of one size everywhere, or relative to each gradient."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch

from gradpeel.checks import check_at_least_0
from gradpeel.defences.defence import Sending
from gradpeel.noise import with_noise
from gradpeel.update import Update

__all__ = ["Noise", "RelativeNoise"]


@dataclass(frozen=True)
class Noise:
    """Noise of one size on all gradients.

    Attributes:
        deviation: its standard deviation, in the units of the update.
    """

    deviation: float

    name: ClassVar[str] = "noise"

    def __post_init__(self) -> None:
        check_at_least_0("deviation", self.deviation)

    def __str__(self) -> str:
        return f"{self.name}:{self.deviation:g}"

    def apply(self, update: Update, sending: Sending) -> Update:
        """Drawn and added in float64, rounded once."""
        source = torch.Generator().manual_seed(sending.seed)
        noisy = dict(update.gradients)
        for name in sorted(noisy):
            given = noisy[name]
            drawn = torch.randn(given.shape, generator=source, dtype=torch.float64).to(given.device)
            noisy[name] = (given.double() + float(self.deviation) * drawn).to(given.dtype)
        return replace(update, gradients=noisy)


@dataclass(frozen=True)
class RelativeNoise:
    """Noise on each gradient, relative to the spread of its values; see `gradpeel.with_noise`.

    Attributes:
        sigma: its standard deviation, as a multiple of that of the values of the tensor.
    """

    sigma: float

    name: ClassVar[str] = "relative-noise"

    def __post_init__(self) -> None:
        check_at_least_0("sigma", self.sigma)

    def __str__(self) -> str:
        return f"{self.name}:{self.sigma:g}"

    def apply(self, update: Update, sending: Sending) -> Update:
        """The same noise as that of `Client.noise`."""
        return with_noise(update, self.sigma, seed=sending.seed)
