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
from gradpeel.decoder.rows.row_sets import ByNextLayer, BySilence, Guess, NearNextLayer, RowSet
from gradpeel.decoder.rows.search import search
from gradpeel.decoder.rows.seeds import Seeds
from gradpeel.decoder.rows.space import RowSpace

__all__ = ["Rows", "can_help", "find_rows", "nearness", "sparsest"]

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
    change: Tensor | None,
    directions: Directions,
    effort: float,
    known: Rows | None = None,
    on_rows: Callable[[RowCount], None] | None = None,
) -> Rows:
    """Search for the rows of all unknown samples.

    Args:
        residual: what is left of the update.
        space: its column space.
        weight: (next width, neurons) of the next layer, if the activations enter one directly.
        change: (next width, neurons) what it changed by over several steps, up to a factor, if
            that is known.
        directions: that loss gradients may have there.
        effort: how long to search; 1 is enough as a rule.
        known: rows that an earlier search has found, to be kept.
        on_rows: called after every batch of seeds with how far it has come.
    """
    seeds = Seeds(residual, space)
    kinds = _kinds(residual, space, weight, change)
    scale = space.error / space.unit  # from units of the error to those of the search
    rows = space.exact.new_zeros(0, len(space.unit)) if known is None else known.rows
    error = rows.sum(1) if known is None else known.error
    tried, stale = 0, 0
    most = effort * LIMITS.row_seeds * space.rank
    while len(rows) < space.rank and tried < most:
        patience = LIMITS.row_patience if len(rows) else LIMITS.row_patience_at_first
        patience *= len(kinds)
        if stale >= effort * patience:
            break
        is_last = stale + 1 >= effort * patience
        kind, turns = kinds[stale % len(kinds)], stale // len(kinds)
        found, off = rows[:0], error[:0]
        here = _normalised(rows * scale)
        again = turns % 2 == 0
        guesses = _guesses(space, seeds, kind, kinds[-1], directions, known=here, again=again)
        for guess, count in guesses:
            tried += count
            known_rows = Rows(space, rows, error, tried)
            found, off = _new_rows(space, kind, guess, known_rows, last=is_last)
            if len(found):
                break
        before = len(rows)
        rows, error = torch.cat([rows, found]), torch.cat([error, off])
        kept = sparsest(rows, error)
        rows, error = rows[kept], error[kept]
        stale = 0 if len(rows) > before else stale + 1
        if on_rows is not None:
            on_rows(RowCount(len(rows), space.rank))
    return Rows(space, rows, error, tried)


def _kinds(
    residual: Residual, space: RowSpace, weight: Tensor | None, change: Tensor | None
) -> list[RowSet]:
    """What rows look like; they are searched for by the first, and by the next one if in vain."""
    silence = BySilence(space)
    # A next layer that is about as wide as neurons fire can send back anything.
    if weight is None or len(weight) > LIMITS.row_widest_next * len(space.unit):
        return [silence]
    if not residual.of_several_steps:
        return [ByNextLayer(space, weight)]
    # Where the next layer changed much, it says less than silence alone.
    return [NearNextLayer(space, weight, weight[:0] if change is None else change), silence]


def _guesses(
    space: RowSpace,
    seeds: Seeds,
    kind: RowSet,
    remainder: RowSet,
    directions: Directions,
    *,
    known: Tensor,
    again: bool,
) -> Iterator[tuple[Guess, int]]:
    """Guesses of rows that are not known, and the number of new seeds behind each of them.

    Most seeds reach a row soon, or one that is known. Only if none of them reaches a new one is it
    worthwhile to continue with those that have not reached any.

    Args:
        space: the column space.
        seeds: the mixtures of the update.
        kind: what rows look like.
        remainder: the same for the search in what known rows leave.
        directions: that loss gradients may have at the next layer.
        known: (n, live) rows that are known, in the units of the search.
        again: whether known rows may be found again. Kept from that, the search comes to fewer rows
            at first, and to those that are missing in the end.
    """
    if space.rank - len(known) <= LIMITS.row_few_missing:
        yield search_remainder(space, seeds, remainder, known), LIMITS.row_remainder_seeds
    z = seeds.draw(LIMITS.row_batch, known)
    fires, count = (z > 0)[:, space.live], len(z)
    for guess in search(space, kind, fires, directions(z.relu()), None if again else known):
        yield guess, count
        count = 0


def _new_rows(
    space: RowSpace, kind: RowSet, guess: Guess, known: Rows, *, last: bool
) -> tuple[Tensor, Tensor]:
    """Rows that some guesses lead to and that are not known, with their errors.

    Args:
        space: the column space.
        kind: what rows look like.
        guess: the guesses.
        known: the rows that are known.
        last: whether the search gives up unless this finds something. Then rows may be less exact
            than the update, and a guess may be another row although it lies within the error of a
            faint one; as a rule it is that one again.
    """
    # In units of the error, where rows are compared.
    vectors = _normalised(guess.rows * (space.unit / space.error))
    near = vectors.new_tensor(LIMITS.row_same_guess)
    fresh = _distinct(vectors, near.expand(len(vectors)), known.rows, near.expand(len(known)))
    polished = kind.polish(guess.pick(fresh), loose=last)
    good = [(row, error) for row, error in polished if float(error) <= kind.most_error]
    rows = torch.stack([row for row, _ in good]) if good else known.rows[:0]
    error = torch.stack([error for _, error in good]) if good else known.error[:0]
    known_near = nearness(known.error)
    if last:
        known_near = torch.where(known.error > LIMITS.row_error, 0.0, known_near)
    new = _distinct(rows, nearness(error), known.rows, known_near)
    return rows[new], error[new]


def sparsest(rows: Tensor, error: Tensor) -> Tensor:
    """Indices, in their order, of the sparsest rows that none of the others add up to.

    A sum of two rows is zero where both are, and may pass for a row. It is less sparse than either,
    and once both are found it is nothing new. Faint rows come last, because within their errors
    they may be sums of others.
    """
    faint = (error > LIMITS.row_error) * rows.shape[1]
    sparsest_first = ((rows != 0).sum(1) + faint).argsort(stable=True).tolist()
    basis = rows.new_zeros(len(rows), rows.shape[1])
    chosen: list[int] = []
    for i in sparsest_first:
        known = basis[: len(chosen)]
        left = rows[i]
        for _ in range(2):
            left = left - (left @ known.T) @ known
        if float(left.norm()) > max(LIMITS.nothing * float(error[i]), LIMITS.row_dependent):
            basis[len(chosen)] = left / left.norm()
            chosen.append(i)
    return torch.tensor(sorted(chosen), dtype=torch.long, device=rows.device)


def nearness(error: Tensor) -> Tensor:
    """(n,) how far from 1 the cosine of two readings of a row may be, by its relative error."""
    off = (LIMITS.nothing * error).square()
    return off.clamp(min=LIMITS.row_same, max=LIMITS.row_same_at_most)


def _distinct(vectors: Tensor, near: Tensor, known: Tensor, known_near: Tensor) -> Tensor:
    """Indices of unit vectors that are none of the known ones, nor an earlier one of them.

    Args:
        vectors: (n, live) the vectors.
        near: (n,) how far from 1 the cosine with another reading of each may be.
        known: (k, live) known ones.
        known_near: (k,) the same for these.
    """

    def are_same(others: Tensor, others_near: Tensor) -> Tensor:
        return (vectors @ others.T).abs() > 1.0 - torch.maximum(near[:, None], others_near)

    new, alike = ~are_same(known, known_near).any(1), are_same(vectors, near)
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
