"""Tuned: degrees chosen for the geometry of the data, by peeling simulated batches.

The robust soliton is optimal where every neuron picks its samples uniformly at random. Half-spaces
of real data do not: outer samples fire nearly every neuron's sparse side, inner ones only dense
neurons, so that sparse neurons isolate the same outer samples again and again. This design draws
weights as Soliton-Data does, twice as many, searches another law of degrees on the auxiliary batch
alone (`gradpeel.designs.rehearsal`), and keeps the neurons that rehearsals use most
(`gradpeel.designs.selection`). Rehearsals that took no part in either decide whether it
replaces the soliton; if not, the layer is Soliton-Data's, bit by bit. So it is where the order of
the auxiliary samples shows that they come from few groups, such as persons.

Example:
    >>> Tuned(torch.rand(64, 28, 28))
    Tuned(auxiliary=(64, 28, 28), construction='independent', sigma=0.5)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gradpeel.designs.auxiliary import auxiliary_rows, check_auxiliary, thresholds_between
from gradpeel.designs.degree_search import find_law, spread_evenly
from gradpeel.designs.layer import Layer, ToRows
from gradpeel.designs.rehearsal import Rehearsals
from gradpeel.designs.selection import select
from gradpeel.designs.soliton_data import SolitonData
from gradpeel.designs.weights import Construction, check_construction, check_sigma, draw_weights

__all__ = ["Tuned"]

SEARCHED, SELECTED, HELD_OUT = 48, 24, 24
"""Rehearsals to search degrees on, to select neurons on, and to decide by."""
POOL = 2
"""Neurons to select from, for each that the layer has."""
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
    """Degrees that a search finds best for the auxiliary data, on the neurons that serve them best.

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
        weight = plain.weight.numpy()
        if len(rows) >= batch_size:
            size = (POOL - 1) * layer.neurons, layer.features
            more = draw_weights(self.construction, *size, rng, sigma=self.sigma)
            weight = np.concatenate([weight, more])
        values = rows @ weight.T
        found = self._find(values, -plain.bias.numpy(), batch_size, rng)
        if found is None:
            return plain
        kept, degrees = found
        places = np.clip(np.rint(degrees * (len(rows) / batch_size)), 1, len(rows))
        spread = np.full(layer.neurons, values.std())
        thresholds = thresholds_between(values[:, kept], places.astype(np.int64), spread)
        return Layer(torch.from_numpy(weight[kept]), torch.from_numpy(-thresholds))

    def _find(
        self,
        values: NDArray[np.float64],
        soliton_thresholds: NDArray[np.float64],
        batch_size: int,
        rng: np.random.Generator,
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
        """Search degrees, and the neurons that make most of them.

        Args:
            values: (auxiliary, pool) pre-activations without biases; Soliton-Data's neurons first.
            soliton_thresholds: (neurons,) of these.
            batch_size: the client's batch size B.
            rng: the source of randomness.

        Returns:
            (neurons,) which of the pool to take, and their degrees of B; None where Soliton-Data's
            layer is to stay.
        """
        own = np.arange(len(soliton_thresholds))
        values = rng.permutation(values)
        draw = partial(Rehearsals, batch_size=batch_size, rng=rng)
        pool = draw(values, tilts=[TILT] * (SELECTED + HELD_OUT))
        held_out = range(SELECTED, SELECTED + HELD_OUT)
        shares = (values[:, own] > soliton_thresholds).mean(axis=0)
        soliton = pool.nearest(np.rint(shares * batch_size).astype(np.int64))
        plain = pool.reached(soliton, held_out, own)
        if plain.mean() > ENOUGH:
            return None
        stage = draw(values[:, own], tilts=[TILT] * SEARCHED)
        law = find_law(
            stage, batch_size, rng=rng, rehearsals=SEARCHED, on_progress=self.on_progress
        )
        places = rng.permutation(spread_evenly(law, values.shape[1], rng))
        kept = select(pool, places, wanted=len(own), rehearsals=range(SELECTED), rng=rng)
        reached = pool.reached(places, held_out, kept)
        wins, losses = int((reached > plain).sum()), int((reached < plain).sum())
        if reached.mean() <= plain.mean() or wins <= WINS * losses:
            return None
        return kept, pool.degrees[places[kept]]


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
