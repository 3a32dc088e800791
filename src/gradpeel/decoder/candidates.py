"""Candidates G[j] / h[j] and the merging of those that are the same sample (paper, "Deduplication").

Merging compares every candidate with its neighbours along one random direction, so it is linear in their
number up to a sort; the paper compares all pairs.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gradpeel.decoder.residual import SLACK, Residual

__all__ = ["Candidates", "gather"]


@dataclass(frozen=True)
class Candidates:
    """Distinct candidates, the clearest first.

    Attributes:
        neurons: (n,) the neuron each was read from, the one of its group with the least error.
        groups: for each, all neurons whose candidate is the same vector, its own among them.
        coordinates: (n, width) in the residual's coordinates.
        pre_activations: (n, neurons).
        error: (n,) relative error of the coordinates.
    """

    neurons: Tensor
    groups: tuple[Tensor, ...]
    coordinates: Tensor
    pre_activations: Tensor
    error: Tensor

    def __len__(self) -> int:
        return len(self.neurons)


def gather(residual: Residual, among: Tensor, direction: Tensor) -> Candidates:
    """Form and merge the candidates of the neurons in the mask `among`.

    Only those that fire at their own neuron are kept (certificate rule 1): a singleton's sample fires
    there by definition.

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
    leaders, groups = _merge(coordinates, error * residual.scale, direction)
    kept = coordinates[leaders]
    return Candidates(
        neurons[leaders],
        tuple(neurons[group] for group in groups),
        kept,
        residual.pre_activations(kept),
        error[leaders],
    )


def _merge(
    coordinates: Tensor, error: Tensor, direction: Tensor
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Group rows that agree within their errors; rows come clearest first.

    Returns the first row of each group, ascending, and each group's rows.
    """
    count = len(coordinates)
    key = coordinates @ direction
    by_key = torch.argsort(key, stable=True)
    gap = key[by_key].diff()
    # Along a unit direction the difference of two rows is at most their distance; rows' errors are per
    # entry and independent, so along the direction they count once.
    near = gap <= SLACK * (error[by_key][1:] + error[by_key][:-1])
    run = torch.zeros(count, dtype=torch.long)
    run[1:] = (~near).long().cumsum(0)
    run_of = torch.empty(count, dtype=torch.long)
    run_of[by_key] = run
    # The clearest row of a run leads it; a row that shares the key but not the vector leads itself.
    leader = torch.full((int(run.max()) + 1 if count else 0,), count).scatter_reduce(
        0, run_of, torch.arange(count), "amin"
    )
    lead = leader[run_of]
    apart = (coordinates - coordinates[lead]).norm(dim=1) / max(coordinates.shape[1], 1) ** 0.5
    lead = torch.where(apart <= SLACK * (error + error[lead]), lead, torch.arange(count))
    leaders = lead.unique()
    member = torch.argsort(lead, stable=True)
    sizes = torch.bincount(lead, minlength=count)[leaders] if count else lead
    return leaders, torch.split(member, sizes.tolist())
