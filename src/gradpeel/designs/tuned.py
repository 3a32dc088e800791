"""Tuned: degrees chosen for the geometry of the data, by peeling simulated batches.

The robust soliton is optimal where every neuron picks its samples uniformly at random. Half-spaces
of real data do not: outer samples fire nearly every neuron's sparse side, inner ones only dense
neurons, so that sparse neurons isolate the same outer samples again and again. This design keeps
the weights of Soliton-Data and searches another law of degrees, on the auxiliary batch
alone (`gradpeel.designs.rehearsal`). Rehearsals that took no part in the search decide whether it
replaces the soliton; if not, the layer is Soliton-Data's, bit by bit.

Example:
    >>> Tuned(torch.rand(64, 28, 28))
    Tuned(auxiliary=(64, 28, 28), construction='independent', sigma=0.5)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gradpeel.designs.auxiliary import auxiliary_rows, check_auxiliary, thresholds_between
from gradpeel.designs.degree_search import find_law, spread_evenly
from gradpeel.designs.layer import Layer, ToRows
from gradpeel.designs.rehearsal import Rehearsals
from gradpeel.designs.soliton_data import SolitonData
from gradpeel.designs.weights import Construction, check_construction, check_sigma

__all__ = ["Tuned"]

SEARCHED, HELD_OUT, SHIFTED = 24, 12, 16
"""Rehearsals to search on, to decide by, and to decide by of clients far from the server's data."""
TILT, SHIFT = 0.7, 2.5
"""Without the first MNIST's clients are unforeseen; without the second, other people in HARUS."""
MARGIN = 0.02
"""By which the law must beat the soliton on rehearsals it has not seen."""
CAUTION = 3.0
"""How many times a loss under a shift counts against the gain expected."""
ENOUGH = 0.9995
"""Share of the batch beyond which Soliton-Data leaves nothing to gain."""
FEWEST = 24
"""Auxiliary samples to learn a law from, and samples in a batch that need one."""


@dataclass(frozen=True, eq=False, repr=False)
class Tuned:
    """Soliton-Data's weights, with degrees that a search finds best for the auxiliary data.

    Where rehearsals on held-out calibrations show no gain, the layer is that of `SolitonData` from
    the same seed. They foresee sampling errors and moderate shifts; clients that are quite
    unlike the auxiliary data can still get less than Soliton-Data would read (docs/tuned.md).

    Attributes:
        auxiliary: (batch, *sample_shape), floating point, in input space.
        construction: "independent" or "mirrored", see `draw_weights` (at scale 1).
        sigma: Standard deviation of the Gaussian magnitudes, positive.
        on_progress: Called during the search with the generations that are done, and of all.
    """

    auxiliary: Tensor
    construction: Construction = "independent"
    sigma: float = 0.5
    on_progress: Callable[[int, int], None] | None = field(default=None, kw_only=True)

    name: ClassVar[str] = "tuned"
    active: ClassVar[bool] = True
    adversary: ClassVar[str] = (
        "a server that sets the first layer's weights and biases, holds similar data and "
        "rehearses the attack on it"
    )

    def __post_init__(self) -> None:
        check_construction(self.construction)
        check_sigma(self.sigma)
        check_auxiliary(self.auxiliary)

    def __repr__(self) -> str:
        return (
            f"Tuned(auxiliary={tuple(self.auxiliary.shape)}, "
            f"construction={self.construction!r}, sigma={self.sigma})"
        )

    @property
    def weights(self) -> str:
        """The weight construction."""
        return self.construction

    def shape(
        self, layer: Layer, *, batch_size: int, rng: np.random.Generator, front: ToRows
    ) -> Layer:
        """Search degrees on the auxiliary data, in some seconds; see `Design`.

        Raises:
            InputError: When `batch_size` is not positive, or when `front` does not map the
                auxiliary samples to rows of the target's width.
        """
        plain = SolitonData(self.auxiliary, self.construction, sigma=self.sigma).shape(
            layer, batch_size=batch_size, rng=rng, front=front
        )
        if min(batch_size, len(self.auxiliary)) < FEWEST:
            return plain
        rows = auxiliary_rows(self.auxiliary, layer.features, front)
        values = rows @ plain.weight.numpy().T
        degrees = self._degrees(values, -plain.bias.numpy(), batch_size, rng)
        if degrees is None:
            return plain
        places = np.clip(np.rint(degrees * (len(rows) / batch_size)), 1, len(rows))
        spread = np.full(layer.neurons, values.std())
        thresholds = thresholds_between(values, places.astype(np.int64), spread)
        return Layer(plain.weight, torch.from_numpy(-thresholds))

    def _degrees(
        self,
        values: NDArray[np.float64],
        soliton_thresholds: NDArray[np.float64],
        batch_size: int,
        rng: np.random.Generator,
    ) -> NDArray[np.int64] | None:
        """(neurons,) degrees of B; None where the soliton's are to stay."""
        held_out = range(SEARCHED, SEARCHED + HELD_OUT)
        shifted = range(SEARCHED + HELD_OUT, SEARCHED + HELD_OUT + SHIFTED)
        stage = Rehearsals(
            rng.permutation(values),
            batch_size=batch_size,
            tilts=[TILT] * (SEARCHED + HELD_OUT) + [SHIFT] * SHIFTED,
            rng=rng,
        )
        shares = (values > soliton_thresholds).mean(axis=0)
        soliton = stage.nearest(np.rint(shares * batch_size).astype(np.int64))
        likely = stage.reached(soliton, held_out).mean()
        if likely > ENOUGH:
            return None
        at_worst = stage.reached(soliton, shifted).mean()
        law = find_law(
            stage, batch_size, rng=rng, rehearsals=SEARCHED, on_progress=self.on_progress
        )
        found = rng.permutation(spread_evenly(law, values.shape[1], rng))
        # Where the law does not stand a shift, half of it may.
        half = np.where(rng.random(len(found)) < 0.5, found, soliton)
        best, least = None, MARGIN
        for places in (found, half):
            gain = stage.reached(places, held_out).mean() - likely
            loss = max(0.0, at_worst - stage.reached(places, shifted).mean())
            if gain - CAUTION * loss > least:
                best, least = stage.degrees[places], gain - CAUTION * loss
        return best
