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
from gradpeel.decoder.rows.search import Guess
from gradpeel.decoder.rows.seeds import Seeds
from gradpeel.decoder.rows.space import RowSpace

__all__ = ["search_remainder"]


def search_remainder(space: RowSpace, seeds: Seeds, known: Tensor) -> Guess:
    """Look for rows that are missing, from several starts at once.

    Args:
        space: the column space.
        seeds: the mixtures of the update.
        known: (n, live) rows that are known, in the units of the search; not all there are.
    """
    # The first columns span the known rows, the others what they leave.
    turned = torch.linalg.qr((known @ space.basis).T, mode="complete").Q
    basis = space.basis @ turned
    rest = basis[:, len(known) :]
    missing = rest.shape[1]
    # One neuron's mixture, or a random one.
    half = min(LIMITS.row_remainder_seeds, LIMITS.row_batch // 2)
    parts = torch.cat(
        [rest[seeds.next_neurons(half)], gaussian(half, missing, like=rest, source=seeds.source)]
    )
    # All mixtures of one sample are that sample.
    parts = parts[:1] if missing == 1 else parts
    rows = parts @ rest.T
    for _ in range(LIMITS.row_remainder_mixtures):
        z = seeds.mixed(parts @ rest.T)[:, space.live]
        rows, parts = _smallest_where_silent(basis.float(), z, parts.float())
        parts = parts.to(rest)
    usual = rows.square().mean(1, keepdim=True).sqrt()
    return Guess(rows.to(rest), rows.abs() < 0.1 * usual)


def _smallest_where_silent(basis: Tensor, z: Tensor, parts: Tensor) -> tuple[Tensor, Tensor]:
    """Vectors that are small where mixtures are silent, but large in the last dimensions.

    Args:
        basis: (live, rank) of the space.
        z: (n, live) pre-activations of the mixtures.
        parts: (n, missing) first guesses of their parts in the last dimensions.

    Returns:
        (n, live) the vectors, and (n, missing) their parts in the last dimensions, of length 1.
    """
    silent = z < 0
    # The median of those below zero.
    below = torch.where(silent, z, torch.nan).nanmedian(1, keepdim=True).values
    surely = z < below
    weight = surely.to(basis)
    rank, missing = basis.shape[1], parts.shape[1]
    shift = torch.eye(rank, dtype=basis.dtype, device=basis.device)
    rows = parts @ basis[:, -missing:].T
    for turn in range(LIMITS.row_remainder_turns):
        gram = (basis.T * weight[:, None, :]) @ basis
        gram += 1e-6 * weight.mean(1)[:, None, None] * shift
        factor, _ = torch.linalg.cholesky_ex(gram)
        # The last block of the inverse is what stands against being large there.
        whole = parts.new_zeros(len(parts), rank)
        for _ in range(LIMITS.row_remainder_steps):
            whole = torch.zeros_like(whole)
            whole[:, -missing:] = parts
            whole = torch.cholesky_solve(whole[:, :, None], factor)[:, :, 0]
            parts = torch.nn.functional.normalize(whole[:, -missing:], dim=1)
        rows = whole @ basis.T
        rows = torch.nan_to_num(rows)
        usual = rows.square().mean(1, keepdim=True).sqrt()
        # What is not zero there was guessed wrong; later on all that may be silent is asked.
        among = surely if turn < LIMITS.row_remainder_turns // 2 else silent
        small = max(0.3 * 0.5**turn, 3e-4) * usual
        weight = among / ((rows / small.clamp(min=torch.finfo(rows.dtype).tiny)).square() + 1.0)
    return rows, parts
