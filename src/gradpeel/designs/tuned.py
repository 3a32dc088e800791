"""Tuned: degrees chosen for the geometry of the data, by peeling simulated batches.

The robust soliton is optimal where every neuron picks its samples uniformly at random. Half-spaces
of real data do not: outer samples fire nearly every neuron's sparse side, inner ones only dense
neurons, so that sparse neurons isolate the same outer samples again and again. This design keeps
the weights of Soliton-Data and searches another law of degrees, on the auxiliary batch
alone (`gradpeel.designs.rehearsal`). Rehearsals that took no part in the search decide whether it
replaces the soliton; if not, the layer is Soliton-Data's, bit by bit. So it is where the order of
the auxiliary samples shows that they come from few groups, such as persons.

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
from gradpeel.designs.rehearsal import Rehearsals, prudent
from gradpeel.designs.soliton_data import SolitonData
from gradpeel.designs.weights import Construction, check_construction, check_sigma

__all__ = ["Tuned"]

SEARCHED, HELD_OUT = 48, 48
"""Rehearsals to search on, and to decide by."""
TILT = 0.7
"""Without it some of MNIST's clients are unforeseen."""
WINS = 2
"""How many held-out rehearsals must gain by the law for each that loses."""
BLOCKS, REPEATED = 8, 4.0
"""Parts of the auxiliary batch, and how much more than by chance their means may differ."""
ENOUGH = 0.9995
"""Share of the batch beyond which Soliton-Data leaves nothing to gain."""
FEWEST = 24
"""Auxiliary samples to learn a law from, and samples in a batch that need one."""


@dataclass(frozen=True, eq=False, repr=False)
class Tuned:
    """Soliton-Data's weights, with degrees that a search finds best for the auxiliary data.

    Where rehearsals on held-out calibrations show no gain, or where the auxiliary samples come in
    groups (leave them in the order of their collection), the layer is that of `SolitonData` from
    the same seed. Rehearsals foresee sampling errors and moderate shifts; clients that are quite
    unlike shuffled auxiliary data can still lose against Soliton-Data (docs/tuned.md).

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
        if comes_in_groups(rows):
            return plain
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
        stage = Rehearsals(
            rng.permutation(values),
            batch_size=batch_size,
            tilts=[TILT] * (SEARCHED + HELD_OUT),
            rng=rng,
        )
        shares = (values > soliton_thresholds).mean(axis=0)
        soliton = stage.nearest(np.rint(shares * batch_size).astype(np.int64))
        plain = stage.reached(soliton, held_out)
        if plain.mean() > ENOUGH:
            return None
        law = find_law(
            stage, batch_size, rng=rng, rehearsals=SEARCHED, on_progress=self.on_progress
        )
        found = rng.permutation(spread_evenly(law, values.shape[1], rng))
        reached = stage.reached(found, held_out)
        wins, losses = int((reached > plain).sum()), int((reached < plain).sum())
        if prudent(reached) <= prudent(plain) or wins <= WINS * losses:
            return None
        degrees: NDArray[np.int64] = stage.degrees[found]
        return degrees


def comes_in_groups(rows: NDArray[np.float64]) -> bool:
    """Whether samples in a row resemble each other, as when one person's come after another's.

    Their order tells: means of contiguous blocks of independent samples vary as the samples do
    over the block's size, those of blocks from few groups much more. Such samples do not say how
    other groups, the client's, will differ. Shuffled, they look independent.

    Args:
        rows: (samples, features) in the order in which they were collected.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> persons = np.repeat(rng.normal(size=(10, 5)), 20, axis=0)
        >>> rows = persons + rng.normal(size=(200, 5))
        >>> comes_in_groups(rows), comes_in_groups(rng.permutation(rows))
        (True, False)
    """
    size = len(rows) // BLOCKS
    used = rows[: size * BLOCKS]
    means = used.reshape(BLOCKS, size, -1).mean(axis=1)
    by_chance = used.var(axis=0, ddof=1).sum() / size
    return bool(means.var(axis=0, ddof=1).sum() > REPEATED * by_chance)
