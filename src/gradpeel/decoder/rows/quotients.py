"""Rows of samples that a neuron isolates, or nearly so, after several local steps.

A neuron that one unknown sample fires, or one sample and a trace of others, yields that sample, or
nearly so. Where it is silent at both ends of the training its row is zero, and that determines the
row, however few such neurons there are. Without the sample, other neurons are left with one.

A mixture can lead to the row of one of its samples. So nothing is certified here: a sample is
subtracted only to see what is behind it, and all rows are read once more in the space of the whole
update. Where samples are alike, this finds rows that a search from random mixtures does not.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gradpeel.decoder.candidates import Candidates, find
from gradpeel.decoder.limits import LIMITS
from gradpeel.decoder.linalg import gaussian, generator
from gradpeel.decoder.residual import Residual, rms
from gradpeel.decoder.rows.finding import Rows, sparsest
from gradpeel.decoder.rows.polish import polish_by_silence
from gradpeel.decoder.rows.space import RowSpace
from gradpeel.decoder.sample_block import SampleBlock, typical

__all__ = ["read_quotients"]


def read_quotients(residual: Residual, space: RowSpace) -> Rows:
    """Read the rows that neurons lead to, one after the other.

    Args:
        residual: what is left of the update.
        space: its column space.
    """
    left, here = residual.clone(), space
    direction = gaussian(left.rows.shape[1], like=left.bias, source=generator())
    direction /= direction.norm()
    rows = left.bias.new_zeros(0, len(left.bias))
    for _ in range(space.rank):
        candidates = find(left, ~left.quiet, direction).form(left)
        found, error = _lead_to(candidates, left, here)
        if not len(found):
            break
        rows = torch.cat([rows, found])
        block = _samples_of(found, error, candidates, left)
        if not len(block):
            break
        left.subtract(block)
        after = RowSpace.of(left)
        if after is None or after.rank >= here.rank:
            break
        here = after
    return _read_again(rows, space)


def _lead_to(candidates: Candidates, residual: Residual, space: RowSpace) -> tuple[Tensor, Tensor]:
    """(n, neurons) rows that vanish where candidates are silent, each once, and their errors."""
    z = candidates.pre_activations
    silent = ~residual.firing(candidates.coordinates, z, candidates.error).fires[:, space.live]
    good: list[tuple[Tensor, Tensor]] = []
    missed = 0
    # Neurons with a small gradient are those that few samples fire: the purest mixtures.
    for i in rms(residual.rows[candidates.neurons]).argsort().tolist():
        row, error = polish_by_silence(space, silent[i])
        missed += 1
        if float(error) <= LIMITS.row_error:
            good.append((row, error))
            missed = 0
        elif missed >= LIMITS.row_quotients:
            break
    rows, errors = _stacked(good, space)
    whole = residual.bias.new_zeros(len(rows), len(residual.bias))
    whole[:, space.live] = rows * space.error
    return whole, errors


def _samples_of(
    rows: Tensor, error: Tensor, candidates: Candidates, residual: Residual
) -> SampleBlock:
    """The samples of those rows that some candidate fires like, in the factor that fits it."""
    z = candidates.pre_activations
    firing = residual.firing(candidates.coordinates, z, candidates.error)
    nothing = LIMITS.least_part * typical(rows)
    unlike, certain, _ = firing.unlike(rows, nothing, ~residual.quiet)
    unlike /= certain[:, None]
    zero = rows.abs() <= nothing[:, None]
    # A neuron where the row is zero cannot have shown its sample.
    unlike = torch.where(zero[:, candidates.neurons].T, torch.inf, unlike)
    wrong, who = unlike.min(0)
    kept = wrong <= LIMITS.hidden_firing
    rows, error, who = rows[kept], error[kept], who[kept]
    own = candidates.neurons[who]
    factor = residual.bias[own] / rows.gather(1, own[:, None])[:, 0]
    none = rows[:, :0]
    off = error + residual.resolution
    return SampleBlock(
        coordinates=candidates.coordinates[who],
        activations=z[who].relu(),
        sensitivities=rows * factor[:, None],
        next_sensitivities=none,
        counts=none,
        sample_error=candidates.error[who],
        sensitivity_error=off,
        next_error=off,
        kink=torch.zeros_like(rows),
        told=torch.zeros_like(rows),
    )


def _stacked(good: list[tuple[Tensor, Tensor]], space: RowSpace) -> tuple[Tensor, Tensor]:
    """Rows that none of the others add up to, (n, live), and their errors."""
    if not good:
        return space.exact.new_zeros(0, len(space.unit)), space.exact.new_zeros(0)
    rows, errors = (torch.stack(part) for part in zip(*good, strict=True))
    kept = sparsest(rows, errors)
    return rows[kept], errors[kept]


def _read_again(rows: Tensor, space: RowSpace) -> Rows:
    """The rows as the space of the whole update has them; those that are none are dropped."""
    read = [polish_by_silence(space, row == 0) for row in rows[:, space.live]]
    good = [(row, error) for row, error in read if float(error) <= LIMITS.row_error]
    return Rows(space, *_stacked(good, space), tried=len(rows))
