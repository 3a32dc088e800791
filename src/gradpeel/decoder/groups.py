"""Groups: m times the weight of one sample, and how far apart its members may be.

What weighs as much as m samples is m copies of one, or m samples that share their label and fire
alike, whose mean this is. Where the tail is linear no update tells the two apart. Otherwise it does
so up to a *radius*: the largest distance of members from their mean that leaves the update as it
is, within its error. Two things bound it:

- Curvature. Members at a distance d on both sides of the mean change the next layer's gradient and
  the bias, after the weight has been fitted to them, by the tail's curvature times d^2. That is
  simulated, and compared with how well the equations hold.
- Structure. Members that lie on either side of a neuron's hinge do not fire alike, and then the
  mean's sensitivities do not lie in the column space of the update. So no group reaches farther
  than the nearest few neurons whose side the update can tell.

Assumptions, which the radius rests on: members lie on a line through their mean, either the one
through the origin (two exposures of one picture; without biases no neuron sees the difference) or
one that has nothing to do with the weights; and they share their label. A difference that the layer
does not see at all (a direction orthogonal to all its weights) leaves no trace in any update.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from gradpeel.decoder.backward import Backward
from gradpeel.decoder.candidates import Candidates
from gradpeel.decoder.residual import Residual, rms
from gradpeel.decoder.structure import Structure
from gradpeel.decoder.tolerances import ROUNDING

__all__ = ["Radius", "radius_of_groups"]

_TINY = torch.finfo(torch.float64).tiny

_STEP = 0.1
"""Distance at which the curvature is measured, relative to the size of a sample."""

_NEURONS = 8
"""So many hinges on a random line: that none of them lies between two members is excluded."""


@dataclass(frozen=True, eq=False)
class Radius:
    """How far members of a group may be from its mean, relative to the typical size of a sample.

    Attributes:
        along: (n,) on the line through the origin.
        across: (n,) on a random line.
        hinges: (n, neurons) where on such lines the structure tells members apart, in order;
            infinite where it does not.
    """

    along: Tensor
    across: Tensor
    hinges: Tensor

    def pick(self, index: Tensor) -> Radius:
        """Those of some of the groups."""
        return Radius(self.along[index], self.across[index], self.hinges[index])

    @property
    def each(self) -> Tensor:
        """(n,) on any of the lines."""
        return torch.maximum(self.along, self.across)

    @property
    def all(self) -> float:
        """If all of them are groups: infinite where nothing bounds it, or there is nobody."""
        if not len(self.along):
            return math.inf
        among_all = self.hinges.flatten().sort().values[_NEURONS - 1 :][:1]
        across = min([float(self.across.min()), *among_all.tolist()])
        return float(max(float(self.along.min()), across))


def radius_of_groups(
    candidates: Candidates,
    residual: Residual,
    backward: Backward,
    structure: Structure,
    *,
    counts: Tensor,
) -> Radius:
    """Find how far apart the members of groups may be.

    Args:
        candidates: the candidates; each may be one sample, or the mean of several.
        residual: the residual they were read from.
        backward: the client's backward pass; its share does not matter.
        structure: the column space of the update.
        counts: (n, classes) labels of each.
    """
    z = candidates.pre_activations
    if not len(z):
        return Radius(z[:, 0], z[:, 0], z)
    fires = z > 0
    simulated = backward.simulate(z * fires, counts)
    near = structure.contains(simulated.c * fires, candidates, residual)
    shows = structure.shows(simulated.c, fires)
    linear, random = residual.linear(z), backward.unit_error.expand_as(z)
    size = rms(linear) / residual.spread
    found = []
    for line in (linear, random):
        far, order = (z.abs() / line.abs().clamp(min=_TINY)).sort(dim=1)
        hinges = torch.where(shows.gather(1, order) & near[:, None], far, torch.inf)
        hinges = hinges.sort(dim=1).values
        found.append((_by_curvature(candidates, residual, backward, counts, line), hinges))
    (bent, first), (across, hinges) = found
    needed = min(_NEURONS, z.shape[1]) - 1
    return Radius(
        along=torch.minimum(bent, first[:, 0]) * size,
        across=torch.minimum(across, hinges[:, needed]),
        hinges=hinges,
    )


@dataclass(frozen=True, eq=False)
class _Seen:
    """What an update shows of candidates: at their own neurons and at all that isolate them.

    Attributes:
        next_row: (n, next width) the next layer's gradient at their own neurons.
        bias: (pairs,) the bias gradient at every neuron that isolates one.
    """

    next_row: Tensor
    bias: Tensor


def _by_curvature(
    candidates: Candidates, residual: Residual, backward: Backward, counts: Tensor, line: Tensor
) -> Tensor:
    """(n,) the distance along a line at which two members would break the equations.

    They hold up to what is observed, so that a group which breaks them by more is excluded.
    """
    z, (row, column) = candidates.pre_activations, candidates.pairs
    fires = (z > 0).to(z.dtype)

    def seen(change: Tensor) -> tuple[_Seen, Tensor]:
        activations = (z + change) * fires
        simulated = backward.simulate(activations, counts)
        own = activations.gather(1, candidates.neurons[:, None])
        c = simulated.c
        return _Seen(own * simulated.v, c[row, column]), c.gather(1, candidates.neurons[:, None])

    mean, _ = seen(torch.zeros_like(z))
    step = _STEP * line
    shift = torch.zeros_like(z[:, :1])
    for _ in range(2):
        # What was read is the mean by sensitivities; it must stay where it is.
        ahead, more = seen(step * (1 - shift))
        behind, less = seen(-step * (1 + shift))
        total = more + less
        shift = (more - less) / torch.where(total == 0, 1.0, total)
    together = _Seen(ahead.next_row + behind.next_row, ahead.bias + behind.bias)
    observed = _Seen(residual.next_rows[candidates.neurons], residual.bias[column])
    if not residual.has_next:
        none = mean.next_row[:, :0]
        mean, together = _Seen(none, mean.bias), _Seen(none, together.bias)
    bends = _mismatch(together, mean, row)
    holds = _mismatch(observed, mean, row) + _noise(candidates, residual)
    return _STEP * (holds / bends.clamp(min=_TINY)).sqrt()


def _mismatch(observed: _Seen, predicted: _Seen, row: Tensor) -> Tensor:
    """(n,) the worst relative mismatch that is left once the weight has been fitted."""
    n = len(predicted.next_row)
    zero = observed.bias.new_zeros(n)
    if predicted.next_row.shape[1]:
        top = (observed.next_row * predicted.next_row).sum(1)
        bottom = predicted.next_row.square().sum(1)
    else:
        top = zero.index_add(0, row, observed.bias * predicted.bias)
        bottom = zero.index_add(0, row, predicted.bias.square())
    mass = top / bottom.clamp(min=_TINY)
    gap = (observed.bias - mass[row] * predicted.bias).abs()
    size = zero.scatter_reduce(0, row, (mass[row] * predicted.bias).abs(), "amax")
    worst = zero.scatter_reduce(0, row, gap, "amax") / size.clamp(min=_TINY)
    if predicted.next_row.shape[1]:
        fitted = mass[:, None] * predicted.next_row
        off = (observed.next_row - fitted).abs().amax(1)
        worst = torch.maximum(worst, off / fitted.abs().amax(1).clamp(min=_TINY))
    return worst


def _noise(candidates: Candidates, residual: Residual) -> Tensor:
    """(n,) how far the equations of a sample are off by the update's own error."""
    neurons = candidates.neurons
    own = candidates.pre_activations.gather(1, neurons[:, None])[:, 0]
    error = candidates.error * (1 + residual.spread / own)
    if residual.has_next:
        size = residual.next_rows[neurons].abs().amax(1)
        error = error + residual.next_error[neurons] / size
    return error / ROUNDING + residual.resolution
