"""From a guess of where a sample fires to a vector that may be its row.

A row lies in two sets: in the column space of the update, and among the vectors that have the form
of a row, see `gradpeel.decoder.rows.row_sets`. The first is a linear space; the second is not even
convex, but the nearest point of it is easy to find. A point of both is looked for by averaged
reflections (Douglas-Rachford), damped far more than usual: undamped, they wander off.

All guesses are worked on at once, in float32: what comes out is a guess again, see
`gradpeel.decoder.rows.polish`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from torch import Tensor

from gradpeel.decoder.limits import LIMITS
from gradpeel.decoder.rows.row_sets import TINY, Guess, RowSet, State
from gradpeel.decoder.rows.space import RowSpace

__all__ = ["search"]


def search(
    space: RowSpace, rows: RowSet, fires: Tensor, directions: Tensor, known: Tensor | None = None
) -> Iterator[Guess]:
    """Look for a row near each guess; now and then, those that have come to one.

    Args:
        space: the column space.
        rows: the other set.
        fires: (n, live) where the samples are guessed to fire.
        directions: (n, several, next width) that their loss gradients may have there.
        known: (k, live) rows that are known, in the units of the search, and not to be found again;
            not all there are.
    """
    project = _Projection(space, known)
    x, state = rows.start(project.basis, fires, directions)
    x = x / x.norm(dim=1, keepdim=True).clamp(min=TINY) * math.sqrt(len(project.basis))
    for _ in range(LIMITS.row_turns):
        for _ in range(LIMITS.row_steps):
            near, _, state = rows.nearest(x, state)
            x = x + rows.damping * (project(2 * near - x) - near)
        guess, gap = _end(project, rows, x, state)
        there = gap <= rows.gap_there
        yield guess.pick(there)
        x, state = x[~there], tuple(part[~there] for part in state)
        if not len(x):
            break


class _Projection:
    """The nearest vectors of the space, if need be of those that are no sums of known rows.

    Modulo the known rows the space has as many dimensions as rows are missing. Vectors then keep a
    fixed length there, whatever they have of the known rows: so a search cannot end at one of them.
    """

    def __init__(self, space: RowSpace, known: Tensor | None) -> None:
        """Prepare.

        Args:
            space: the column space.
            known: (k, live) rows that are known; None for all vectors of the space.
        """
        self._known = None if known is None else len(known)
        self.basis = (space.basis if known is None else space.turned(known)).float()

    def __call__(self, vectors: Tensor) -> Tensor:
        inside = vectors @ self.basis
        if self._known is not None:
            rest = inside[:, self._known :]
            rest *= math.sqrt(len(self.basis)) / rest.norm(dim=1, keepdim=True).clamp(min=TINY)
        nearest: Tensor = inside @ self.basis.T
        return nearest


def _end(project: _Projection, rows: RowSet, x: Tensor, state: State) -> tuple[Guess, Tensor]:
    """Where plain projections lead from here, and (n,) how far apart the sets are there."""
    near = sent = x
    for _ in range(LIMITS.row_end_steps):
        near, sent, state = rows.nearest(x, state)
        x = project(near)
    gap = (near - x).norm(dim=1) / x.norm(dim=1).clamp(min=TINY)
    return Guess(x.double(), rows.silent(x, sent), near != 0), gap
