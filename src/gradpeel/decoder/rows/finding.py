"""The cascade itself: rows that are found make the search for the others easier."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from gradpeel.decoder.limits import LIMITS
from gradpeel.decoder.recovery import RowCount
from gradpeel.decoder.residual import Residual
from gradpeel.decoder.rows.remainder import search_remainder
from gradpeel.decoder.rows.search import ByNextLayer, BySilence, Guess, RowSet, search
from gradpeel.decoder.rows.seeds import Seeds
from gradpeel.decoder.rows.space import RowSpace

__all__ = ["Rows", "can_help", "find_rows"]

Directions = Callable[[Tensor], Tensor]
"""From the activations (n, neurons) of mixtures to directions (n, several, next width) that the
loss gradients of such samples may have."""


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of the sensitivities that were found, each up to a factor.

    Attributes:
        space: the space that they were found in.
        rows: (n, live) unit vectors, in units of the error; zero where a sample is silent.
        error: (n,) their relative errors.
        tried: number of seeds.
    """

    space: RowSpace
    rows: Tensor
    error: Tensor
    tried: int

    def __len__(self) -> int:
        return len(self.rows)


def can_help(space: RowSpace) -> bool:
    """Whether so few samples are unknown that their rows can stand out."""
    return space.rank <= LIMITS.row_most_rank * len(space.unit)


def find_rows(
    residual: Residual,
    space: RowSpace,
    *,
    weight: Tensor | None,
    directions: Directions,
    effort: float,
    on_rows: Callable[[RowCount], None] | None = None,
) -> Rows:
    """Search for the rows of all unknown samples.

    Args:
        residual: what is left of the update.
        space: its column space.
        weight: (next width, neurons) of the next layer, if the activations enter one directly.
        directions: that loss gradients may have there.
        effort: how long to search; 1 is enough as a rule.
        on_rows: called after every batch of seeds with how far it has come.
    """
    seeds = Seeds(residual, space)
    kind: RowSet = BySilence(space)
    # A next layer that is about as wide as neurons fire can send back anything.
    if weight is not None and len(weight) <= LIMITS.row_widest_next * len(space.unit):
        kind = ByNextLayer(space, weight)
    scale = space.error / space.unit  # from units of the error to those of the search
    rows = space.exact.new_zeros(0, len(space.unit))
    error, tried, stale = rows.sum(1), 0, 0
    most = effort * LIMITS.row_seeds * space.rank
    while len(rows) < space.rank and tried < most:
        patience = LIMITS.row_patience if len(rows) else LIMITS.row_patience_at_first
        if stale >= effort * patience:
            break
        found, off = rows[:0], error[:0]
        for guess, count in _guesses(space, seeds, kind, _normalised(rows * scale), directions):
            tried += count
            found, off = _new_rows(space, kind, guess, rows)
            if len(found):
                break
        rows, error = torch.cat([rows, found]), torch.cat([error, off])
        stale = 0 if len(found) else stale + 1
        if on_rows is not None:
            on_rows(RowCount(len(rows), space.rank))
    return Rows(space, rows, error, tried)


def _guesses(
    space: RowSpace, seeds: Seeds, kind: RowSet, known: Tensor, directions: Directions
) -> Iterator[tuple[Guess, int]]:
    """Guesses of rows that are not known, and the number of new seeds behind each of them.

    Most seeds come to a row soon, or to one that is known: only if nobody comes to a new one it is
    worth while to go on with those that are still on their way.
    """
    few = space.rank - len(known) <= LIMITS.row_few_missing
    if few:
        yield search_remainder(space, seeds, kind, known), LIMITS.row_remainder_seeds
    z = seeds.draw(LIMITS.row_batch, known)
    count = len(z)
    for guess in search(space, kind, (z > 0)[:, space.live], directions(z.relu())):
        yield guess, count
        count = 0
    if not few:
        yield search_remainder(space, seeds, kind, known), LIMITS.row_remainder_seeds


def _new_rows(space: RowSpace, kind: RowSet, guess: Guess, known: Tensor) -> tuple[Tensor, Tensor]:
    """Rows that some guesses lead to and that are not known, with their errors."""
    # In units of the error, where rows are compared.
    vectors = _normalised(guess.rows * (space.unit / space.error))
    fresh = _distinct(vectors, known, LIMITS.row_same_guess)
    polished = kind.polish(guess.pick(fresh))
    good = [(row, error) for row, error in polished if float(error) <= kind.most_error]
    rows = torch.stack([row for row, _ in good]) if good else known[:0]
    error = torch.stack([error for _, error in good]) if good else known[:0].sum(1)
    # Two readings of a row differ by what they are off.
    off = LIMITS.nothing * float(error.max()) if len(error) else 0.0
    new = _distinct(rows, known, max(LIMITS.row_same, off**2))
    return rows[new], error[new]


def _distinct(vectors: Tensor, known: Tensor, same: float) -> Tensor:
    """Indices of unit vectors that are none of the known ones, nor an earlier one of them."""
    limit = 1.0 - same
    new = ~((vectors @ known.T).abs() > limit).any(1)
    alike = (vectors @ vectors.T).abs() > limit
    chosen: list[int] = []
    for i in new.nonzero()[:, 0].tolist():
        if not bool(alike[i, chosen].any()):
            chosen.append(i)
    return torch.tensor(chosen, dtype=torch.long, device=vectors.device)


def _normalised(vectors: Tensor) -> Tensor:
    unit: Tensor = torch.nn.functional.normalize(
        vectors, dim=1, eps=torch.finfo(vectors.dtype).tiny
    )
    return unit
