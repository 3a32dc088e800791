"""Candidates G[j] / h[j], and the merging of those that are the same sample.

Merging (paper, "Deduplication") compares every candidate with its neighbours along one random
direction, so it is linear in their number up to a sort; the paper compares all pairs.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gradpeel.decoder.residual import Residual
from gradpeel.decoder.tolerances import MERGE

__all__ = ["Candidates", "gather"]

_PASSES = 8
"""Groups found among rows that lie next to each other along the direction; others stay unmerged."""


@dataclass(frozen=True, eq=False)
class Candidates:
    """Distinct candidates, the clearest first.

    Attributes:
        neurons: (n,) the neuron each was read from, the one of its group with the least error.
        pairs: which neuron isolates which candidate: two index vectors, candidates (ascending) and
            neurons; each candidate's own neuron is among them.
        coordinates: (n, width) in the residual's coordinates.
        pre_activations: (n, neurons).
        error: (n,) relative error of the coordinates.
    """

    neurons: Tensor
    pairs: tuple[Tensor, Tensor]
    coordinates: Tensor
    pre_activations: Tensor
    error: Tensor

    def __len__(self) -> int:
        return len(self.neurons)

    def pick(self, mask: Tensor) -> Candidates:
        """Some of the candidates."""
        row, column = self.pairs
        stays = mask[row]
        return Candidates(
            self.neurons[mask],
            ((mask.cumsum(0) - 1)[row[stays]], column[stays]),
            self.coordinates[mask],
            self.pre_activations[mask],
            self.error[mask],
        )

    def isolating(self, candidate: int) -> tuple[int, ...]:
        """The neurons that isolate one candidate."""
        row, column = self.pairs
        return tuple(column[row == candidate].tolist())


def gather(residual: Residual, among: Tensor, direction: Tensor) -> Candidates:
    """Form and merge the candidates of the neurons in the mask `among`.

    Only those that fire at their own neuron are kept: a singleton's sample does so by definition.

    Args:
        residual: the current residual.
        among: (neurons,) mask of the neurons to look at.
        direction: (width,) random unit vector along which candidates are compared.
    """
    neurons = residual.live(among)
    neurons = neurons[residual.own_pre_activations(neurons) > 0]
    error = residual.relative_error(neurons)
    order = torch.argsort(error, stable=True)
    neurons, error = neurons[order], error[order]
    coordinates = residual.coordinates(neurons)
    lead = _merge(coordinates, error * residual.scale, direction)
    leads = lead == torch.arange(len(lead))
    kept = coordinates[leads]
    by_lead = torch.argsort(lead, stable=True)
    return Candidates(
        neurons[leads],
        ((leads.cumsum(0) - 1)[lead[by_lead]], neurons[by_lead]),
        kept,
        residual.pre_activations(kept),
        error[leads],
    )


def _merge(coordinates: Tensor, error: Tensor, direction: Tensor) -> Tensor:
    """For each row, the first that agrees with it within their errors; rows come clearest first."""
    along = coordinates @ direction
    lead = torch.arange(len(coordinates))
    rest = lead
    for _ in range(_PASSES):
        first = _first_in_run(along[rest], error[rest])
        off = error[rest] + error[rest][first]
        apart = (coordinates[rest] - coordinates[rest][first]).norm(dim=1)
        same = apart <= MERGE * off * max(coordinates.shape[1], 1) ** 0.5
        # A vague one agrees with many; it must not stand back for a clear one that is a mixture.
        same &= error[rest] <= MERGE * error[rest][first]
        lead = lead.index_copy(0, rest[same], rest[first[same]])
        # Who shares the key with the first of a run, but is another vector, may be one with others.
        rest = rest[~same]
        if not len(rest):
            break
    return lead


def _first_in_run(along: Tensor, error: Tensor) -> Tensor:
    """For each row, the first of all that lie next to each other along the direction."""
    count = torch.arange(len(along))
    by_key = torch.argsort(along, stable=True)
    # Errors of a row's entries are independent, so along a unit direction they count once.
    far = along[by_key].diff() > MERGE * (error[by_key][1:] + error[by_key][:-1])
    run = torch.zeros_like(count)
    run[by_key[1:]] = far.long().cumsum(0)
    return torch.full_like(count, len(count)).scatter_reduce(0, run, count, "amin")[run]
