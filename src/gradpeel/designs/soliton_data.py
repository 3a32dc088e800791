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
from numpy.typing import NDArray
from torch import Tensor

from gradpeel.checks import check_dense
from gradpeel.designs.degrees import RobustSoliton, check_soliton
from gradpeel.designs.layer import Layer, ToRows
from gradpeel.designs.weights import Construction, check_construction, check_sigma, draw_weights
from gradpeel.errors import InputError

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
        check_dense("auxiliary", self.auxiliary)
        shape = tuple(self.auxiliary.shape)
        if len(shape) < 2 or 0 in shape:
            raise InputError(
                f"auxiliary of shape {shape}: expected (batch, *sample_shape), not empty"
            )
        if not self.auxiliary.is_floating_point():
            # Raw bytes would pass for features of 0 to 255 and give useless thresholds.
            raise InputError(
                f"auxiliary of dtype {self.auxiliary.dtype}: "
                "expected floating point, scaled like the batch"
            )
        if not bool(self.auxiliary.isfinite().all()):
            raise InputError("auxiliary with NaN or infinite values: expected finite values")

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
        rows = self._rows(layer.features, front)
        share = self.soliton.draw(batch_size, layer.neurons, rng) / batch_size
        degrees = np.clip(np.rint(share * len(rows)).astype(np.int64), 1, len(rows))
        size = layer.neurons, layer.features
        weight = draw_weights(self.construction, *size, rng, sigma=self.sigma)
        spread = np.linalg.norm(weight, axis=1) / math.sqrt(12)
        bias = -_thresholds(rows @ weight.T, degrees, spread)
        return Layer(torch.from_numpy(weight), torch.from_numpy(bias))

    def _rows(self, features: int, front: ToRows) -> NDArray[np.float64]:
        """The auxiliary batch as the target sees it, (batch, features)."""
        try:
            with torch.no_grad():
                rows = front(self.auxiliary.double())
        except InputError as error:
            raise InputError(f"auxiliary: {error}") from error
        if rows.shape != (len(self.auxiliary), features):
            raise InputError(
                f"auxiliary of shape {tuple(self.auxiliary.shape)} gives rows of "
                f"{tuple(rows.shape)}: expected ({len(self.auxiliary)}, {features}) for the target"
            )
        return np.asarray(rows.cpu().numpy(), dtype=np.float64)


def _thresholds(
    preactivations: NDArray[np.float64],
    degrees: NDArray[np.int64],
    spread: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Thresholds (neurons,) that `degrees` of the `preactivations` (batch, neurons) exceed.

    No threshold parts equal values: where the d-th and (d+1)-th largest coincide, it falls on them.
    """
    rising = np.sort(preactivations, axis=0)
    # Degree B_aux has no (d+1)-th value. Give it one, as far below the last as the last is below
    # the one before; where that is not a distance at all (twins, or a single sample), take the
    # deviation that Soliton-Free assumes, given here as `spread`.
    gap = rising[1] - rising[0] if len(rising) > 1 else np.zeros_like(spread)
    beyond = rising[0] - np.where(gap > 0, gap, spread)
    rising = np.concatenate([beyond[np.newaxis], rising])
    place, neurons = len(preactivations) - degrees, np.arange(len(degrees))
    thresholds: NDArray[np.float64] = (rising[place, neurons] + rising[place + 1, neurons]) / 2
    return thresholds
