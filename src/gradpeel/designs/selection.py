"""Which neurons of a larger pool to keep: those that isolate a sample in most rehearsals.

Neurons that are drawn at random repeat each other. Some isolate samples that others have isolated
before, and some never come to a single sample. So twice as many as the layer has are drawn, and the
least useful are dropped a few at a time, because what a neuron is worth depends on who is left.

Example:
    >>> grid = np.array([[True, False, False], [True, True, False], [True, False, True]])
    >>> usage(np.concatenate([grid, grid[:1]])).tolist()  # two share the first sample
    [0.5, 1.0, 1.0, 0.5]
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from gradpeel.designs.rehearsal import Rehearsals
from gradpeel.exposure import peel_grid

__all__ = ["select", "usage"]

KEPT = 0.88
"""Share of the neurons that stay when the least useful are dropped."""


def select(
    stage: Rehearsals,
    places: NDArray[np.int64],
    *,
    wanted: int,
    rehearsals: Sequence[int],
    rng: np.random.Generator,
) -> NDArray[np.int64]:
    """Indices of the neurons to keep, rising.

    Args:
        stage: the pool of neurons, and rehearsals.
        places: (pool,) of the neurons' degrees in `stage.degrees`.
        wanted: how many to keep.
        rehearsals: which rehearsals to use.
        rng: breaks ties.
    """
    kept = np.arange(len(places))
    while len(kept) > wanted:
        uses = np.zeros(len(kept))
        for number in rehearsals:
            uses += usage(stage.grid(places, number, kept))
        best_first = np.lexsort((rng.random(len(kept)), -uses))
        kept = np.sort(kept[best_first[: max(wanted, int(KEPT * len(kept)))]])
    return kept


def usage(grid: NDArray[np.bool_]) -> NDArray[np.float64]:
    """(neurons,) the share of each neuron in a sample that it isolates while a grid is peeled.

    A neuron isolates a sample if that is the last of its samples to be recovered, and alone in its
    round; neurons that isolate the same one share it.

    Args:
        grid: (neurons, batch).
    """
    rounds = peel_grid(grid).numpy()
    never = np.iinfo(rounds.dtype).max
    when = np.where(grid, np.where(rounds == 0, never, rounds), 0)
    last = when.max(axis=1)
    alone = ((when == last[:, np.newaxis]).sum(axis=1) == 1) & (last > 0) & (last < never)
    who = when.argmax(axis=1)
    sharing = np.bincount(who[alone], minlength=grid.shape[1])
    return np.where(alone, 1.0 / np.maximum(sharing[who], 1), 0.0)
