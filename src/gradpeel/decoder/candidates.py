"""Candidates G[j] / h[j], and the merging of those that are the same sample.

Merging (paper, "Deduplication") compares every candidate with its neighbours along one random
direction, so its cost is linear in their number, apart from a sort; the paper compares all pairs.
It needs only one number per candidate; most candidates are never formed, see
`gradpeel.decoder.prefilter`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from gradpeel.decoder.limits import LIMITS
from gradpeel.decoder.residual import Residual, rms

__all__ = ["Candidates", "Readings", "find"]

_PASSES = 8
"""Groups are found among rows that are adjacent along the direction; others stay unmerged."""


@dataclass(frozen=True, eq=False)
class Readings:
    """Where distinct candidates can be read, the most exact first.

    Attributes:
        neurons: (n,) the neuron each is read from, the one of its group with the least error.
        pairs: which neuron isolates which candidate: two index vectors, candidates (ascending) and
            neurons; each candidate's own neuron is among them.
        error: (n,) relative error of the candidates' coordinates.
    """

    neurons: Tensor
    pairs: tuple[Tensor, Tensor]
    error: Tensor

    def __len__(self) -> int:
        return len(self.neurons)

    def pick(self, mask: Tensor) -> Readings:
        """Some of them."""
        return Readings(self.neurons[mask], _pick_pairs(self.pairs, mask), self.error[mask])

    def form(self, residual: Residual) -> Candidates:
        """The candidates themselves, read from the residual in which they were found."""
        coordinates = residual.coordinates(self.neurons)
        z = residual.pre_activations(coordinates)
        return Candidates(self.neurons, self.pairs, self.error, coordinates, z)


@dataclass(frozen=True, eq=False)
class Candidates(Readings):
    """Distinct candidates, formed.

    Attributes:
        coordinates: (n, width) in the residual's coordinates.
        pre_activations: (n, neurons).
    """

    coordinates: Tensor
    pre_activations: Tensor

    def pick(self, mask: Tensor) -> Candidates:
        """Some of the candidates."""
        return Candidates(
            self.neurons[mask],
            _pick_pairs(self.pairs, mask),
            self.error[mask],
            self.coordinates[mask],
            self.pre_activations[mask],
        )

    def isolating(self, chosen: Tensor) -> list[tuple[int, ...]]:
        """For each of the chosen candidates, (n,), the neurons that isolate it."""
        row, column = self.pairs
        ends = torch.bincount(row, minlength=len(self)).cumsum(0).tolist()
        starts, neurons = [0, *ends], column.tolist()
        return [tuple(neurons[starts[i] : ends[i]]) for i in chosen.tolist()]


def find(residual: Residual, among: Tensor, direction: Tensor) -> Readings:
    """Find and merge the candidates of the neurons in the mask `among`.

    Only candidates that fire at their own neuron are kept: the sample of a singleton always does.

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

    def apart(first: Tensor, second: Tensor) -> Tensor:
        between = residual.coordinates(neurons[first]) - residual.coordinates(neurons[second])
        return rms(between)

    along = residual.along(neurons, direction)
    lead = _merge(along, error * residual.scale, apart)
    leads = lead == torch.arange(len(lead), device=lead.device)
    by_lead = torch.argsort(lead, stable=True)
    return Readings(
        neurons[leads],
        ((leads.cumsum(0) - 1)[lead[by_lead]], neurons[by_lead]),
        error[leads],
    )


def _pick_pairs(pairs: tuple[Tensor, Tensor], mask: Tensor) -> tuple[Tensor, Tensor]:
    row, column = pairs
    stays = mask[row]
    return (mask.cumsum(0) - 1)[row[stays]], column[stays]


def _merge(along: Tensor, error: Tensor, apart: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """For each candidate, the first one that equals it within their errors.

    Args:
        along: (n,) the candidates, most exact first, along a unit direction.
        error: (n,) of an entry of each.
        apart: root mean square of the difference between some candidates and others.
    """
    lead = torch.arange(len(along), device=along.device)
    rest = lead
    for _ in range(_PASSES):
        first = rest[_first_in_run(along[rest], error[rest])]
        follows = first != rest
        rest, first = rest[follows], first[follows]
        if not len(rest):
            break
        same = apart(rest, first) <= LIMITS.merge * (error[rest] + error[first])
        # An inexact candidate agrees with many; it must not be dropped for an exact one that is a
        # mixture.
        same &= error[rest] <= LIMITS.merge * error[first]
        lead = lead.index_copy(0, rest[same], first[same])
        # A candidate that shares the key with the first of a run but differs from it may equal
        # others.
        rest = rest[~same]
    return lead


def _first_in_run(along: Tensor, error: Tensor) -> Tensor:
    """For each row, the first of all rows that are adjacent to it along the direction."""
    count = torch.arange(len(along), device=along.device)
    by_key = torch.argsort(along, stable=True)
    # Errors of a row's entries are independent, so along a unit direction they count once.
    far = along[by_key].diff() > LIMITS.merge * (error[by_key][1:] + error[by_key][:-1])
    run = torch.zeros_like(count)
    run[by_key[1:]] = far.long().cumsum(0)
    return torch.full_like(count, len(count)).scatter_reduce(0, run, count, "amin")[run]
