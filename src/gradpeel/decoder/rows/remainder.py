"""The last rows: those that the search comes to least, in what the others leave of the space.

A search from a guess comes to whatever row is nearest, known or not. Once most rows are known it
hardly ever comes to the few that are missing. But modulo the known rows the column space has only
as many dimensions as rows are missing. So among the vectors of the space that are small where a
sample is guessed to be silent, the one is taken that is largest in those dimensions: it cannot be a
known row. Its part there makes the next mixture, which is nearer to the sample, and so on. Where
one row is missing, the first mixture is the sample itself.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gradpeel.decoder.limits import LIMITS
from gradpeel.decoder.linalg import gaussian
from gradpeel.decoder.rows.row_sets import Guess, RowSet
from gradpeel.decoder.rows.seeds import Seeds
from gradpeel.decoder.rows.space import RowSpace

__all__ = ["search_remainder"]


def search_remainder(space: RowSpace, seeds: Seeds, kind: RowSet, known: Tensor) -> Guess:
    """Look for rows that are missing, from several starts at once.

    Args:
        space: the column space.
        seeds: the mixtures of the update.
        kind: what rows look like.
        known: (n, live) rows that are known, in the units of the search; not all there are.
    """
    basis = space.turned(known)
    rest = basis[:, len(known) :]
    missing = rest.shape[1]
    # One neuron's mixture, or a random one.
    half = LIMITS.row_remainder_seeds
    parts = torch.cat(
        [rest[seeds.next_neurons(half)], gaussian(half, missing, like=rest, source=seeds.source)]
    )
    # All mixtures of one sample are that sample.
    parts = parts[:1] if missing == 1 else parts
    rows = fires = rest[:0]
    for _ in range(LIMITS.row_remainder_mixtures):
        z = seeds.mixed(parts @ rest.T)[:, space.live]
        rows, fires, parts = _fit(basis.float(), z, parts.float(), kind)
        parts = parts.to(rest)
    usual = rows.square().mean(1, keepdim=True).sqrt()
    return Guess(rows.to(rest), rows.abs() < 0.1 * usual, fires)


def _fit(basis: Tensor, z: Tensor, parts: Tensor, kind: RowSet) -> tuple[Tensor, Tensor, Tensor]:
    """Vectors that look like the rows of mixtures, but are large in the last dimensions.

    Args:
        basis: (live, rank) of the space.
        z: (n, live) pre-activations of the mixtures.
        parts: (n, missing) first guesses of their parts in the last dimensions.
        kind: what rows look like.

    Returns:
        (n, live) the vectors, (n, live) mask of neurons at which they are not zero, and (n,
        missing) their parts in the last dimensions, of length 1.
    """
    missing, rank = parts.shape[1], basis.shape[1]
    identity = torch.eye(rank, dtype=basis.dtype, device=basis.device)
    fires, silent = z > 0, z < 0
    # Those that are surely so, at first: the half of each that is farther from zero.
    weight = (silent & (z < _median(z, silent))) | (fires & (z > _median(z, fires)))
    weight = weight.to(basis)
    rows = parts @ basis[:, -missing:].T
    for turn in range(LIMITS.row_remainder_turns):
        equations = kind.gram(basis, weight, fires)
        equations += 1e-6 * weight.mean(1)[:, None, None] * identity
        factor, _ = torch.linalg.cholesky_ex(equations)
        # The last block of the inverse tells what costs least of all that is large there.
        whole = parts.new_zeros(len(parts), rank)
        for _ in range(LIMITS.row_remainder_steps):
            whole = torch.zeros_like(whole)
            whole[:, -missing:] = parts
            whole = torch.cholesky_solve(whole[:, :, None], factor)[:, :, 0]
            parts = torch.nn.functional.normalize(whole[:, -missing:], dim=1)
        rows = torch.nan_to_num(whole @ basis.T)
        off, now = kind.gap(rows, weight, fires)
        # Neurons that do not fit were guessed wrong; half-way all others are asked, too.
        if turn >= LIMITS.row_remainder_turns // 2:
            fires = now
            weight = torch.ones_like(weight)
        else:
            weight = (weight > 0).to(weight)
        usual = rows.square().mean(1, keepdim=True).sqrt().clamp(min=torch.finfo(rows.dtype).tiny)
        weight = weight / ((off / (max(0.3 * 0.5**turn, 3e-4) * usual)).square() + 1.0)
    return rows, fires, parts


def _median(z: Tensor, among: Tensor) -> Tensor:
    """(n, 1) the median of some entries of each row."""
    return torch.where(among, z, torch.nan).nanmedian(1, keepdim=True).values
