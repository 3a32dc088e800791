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

from gradpeel.decoder.candidates import Candidates
from gradpeel.decoder.evidence.structure import Structure
from gradpeel.decoder.limits import LIMITS
from gradpeel.decoder.residual import Residual, rms
from gradpeel.decoder.simulate import Backward

__all__ = ["Radius", "distance_between", "radius_of_groups"]

_TINY = torch.finfo(torch.float64).tiny


@dataclass(frozen=True, eq=False)
class _Bend:
    """What the curvature of the tail says of groups, on one line.

    Attributes:
        apart: (n,) how far members may be from the mean; infinite where the tail is straight.
        square: (n,) how far they are, squared, as the mismatch along the predicted one shows it.
        sharp: (n,) how exactly: one over the variance.
        weight: (n,) by how much two members weigh more than two copies at a distance of 1.
    """

    apart: Tensor
    square: Tensor
    sharp: Tensor
    weight: Tensor

    def scaled(self, size: Tensor) -> _Bend:
        """In another unit of length, (n,); at the origin there is no line through it."""
        known = size > 0
        return _Bend(
            torch.where(known, self.apart * size, 0.0),
            torch.where(known, self.square * size**2, 0.0),
            torch.where(known, self.sharp / size**4, 0.0),
            torch.where(known, self.weight / size**2, 0.0),
        )

    def if_all(self, agreement: float) -> list[float]:
        """How far members may be from the mean if every one of these is a group.

        Args:
            agreement: largest relative difference between what they weigh.
        """
        found = []
        if (
            len(self.weight) >= LIMITS.fewest_agreeing
            and (scatter := float(self.weight.std())) > LIMITS.least_bend
        ):
            found.append(math.sqrt(agreement / scatter))
        known = self.sharp > 0
        if int(known.sum()) >= LIMITS.fewest_pooled:
            sharp = self.sharp[known] / self.sharp[known].sum()
            mean = float((sharp * self.square[known]).sum())
            off = float((sharp.square() * (self.square[known] - mean).square()).sum().sqrt())
            found.append(math.sqrt(max(mean, 0.0) + LIMITS.pooled_slack * off))
        return found


@dataclass(frozen=True, eq=False)
class Radius:
    """How far members of a group may be from its mean, relative to the typical size of a sample.

    Attributes:
        along: (n,) on the line through the origin.
        across: (n,) on a random line.
        hinges: (n, neurons) where on such lines the structure tells members apart, in order;
            infinite where it does not.
        bend_along: what the tail's bend says on the line through the origin.
        bend_across: the same on a random line.
    """

    along: Tensor
    across: Tensor
    hinges: Tensor
    bend_along: _Bend
    bend_across: _Bend

    @property
    def each(self) -> Tensor:
        """(n,) on any of the lines."""
        return torch.maximum(self.along, self.across)

    def if_all(self, agreement: float) -> float:
        """How far members may be apart if every one of these is a group.

        Then none of a few hinges, counted over all of them, lies between members; and what the
        groups weigh differs from one to the next, because the tail bends differently at each.

        Args:
            agreement: largest relative difference between what they weigh.
        """
        if not len(self.along):
            return math.inf
        shared = self.hinges.flatten().sort().values[LIMITS.hinges - 1 :][:1].tolist()
        along = min([math.inf, *self.bend_along.if_all(agreement)])
        across = min([math.inf, *self.bend_across.if_all(agreement), *shared])
        # One of them that is no group is enough.
        return float(
            torch.maximum(self.along.clamp(max=along), self.across.clamp(max=across)).min()
        )


def distance_between(candidates: Candidates, residual: Residual) -> float:
    """How far candidates typically are apart, relative to the typical size of a sample.

    Samples are farther apart than mixtures of them.
    """
    some = candidates.pre_activations[:: max(1, len(candidates) // LIMITS.compared)]
    if len(some) < 2:
        return 1.0
    between = torch.pdist(some) / math.sqrt(some.shape[1]) / residual.spread
    return float(between.median())


def radius_of_groups(
    candidates: Candidates,
    residual: Residual,
    backward: Backward,
    structure: Structure | None,
    *,
    counts: Tensor,
) -> Radius:
    """Find how far apart the members of groups may be.

    Args:
        candidates: the candidates; each may be one sample, or the mean of several.
        residual: the residual they were read from.
        backward: the client's backward pass; its share does not matter.
        structure: the column space of the update; None to do without.
        counts: (n, classes) labels of each.
    """
    z = candidates.pre_activations
    if not len(z):
        none = z[:, 0]
        bend = _Bend(none, none, none, none)
        return Radius(none, none, z, bend, bend)
    shows = torch.zeros_like(z, dtype=torch.bool)
    if structure is not None:
        fires = z > 0
        c = backward.simulate(z * fires, counts).c
        near = structure.contains(c * fires, candidates, residual)
        shows = structure.shows(c, fires) & near[:, None]
    linear, random = residual.linear(z), backward.unit_error.expand_as(z)
    size = rms(linear) / residual.spread
    found = []
    for line in (linear, random):
        hinges = torch.where(shows, z.abs() / line.abs().clamp(min=_TINY), torch.inf)
        hinges = hinges.sort(dim=1).values
        found.append((hinges, _by_curvature(candidates, residual, backward, counts, line)))
    (first, along), (hinges, across) = found
    along = along.scaled(size)
    needed = min(LIMITS.hinges, z.shape[1]) - 1
    return Radius(
        along=torch.minimum(along.apart, torch.where(size > 0, first[:, 0] * size, 0.0)),
        across=torch.minimum(across.apart, hinges[:, needed]),
        hinges=hinges,
        bend_along=along,
        bend_across=across,
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
) -> _Bend:
    """The distance along a line at which two members would break the equations.

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

    step = LIMITS.bend_step * line
    (ahead, more), (behind, less) = seen(step), seen(-step)
    # What is read of the two is their mean by sensitivities.
    total = more + less
    mean, _ = seen(step * (more - less) / torch.where(total == 0, 1.0, total))
    candidate, _ = seen(torch.zeros_like(z))
    together = _Seen(ahead.next_row + behind.next_row, ahead.bias + behind.bias)
    observed = _Seen(residual.next_rows[candidates.neurons], residual.bias[column])
    if not residual.has_next:
        none = mean.next_row[:, :0]
        mean, together, candidate = (_Seen(none, part.bias) for part in (mean, together, candidate))
    noise = _noise(candidates, residual)
    bends, bend, weight = _mismatch(together, mean, row)
    holds, gap, _ = _mismatch(observed, candidate, row)
    apart = LIMITS.bend_step * ((holds + noise) / bends.clamp(min=_TINY)).sqrt()
    curved, square = bends > LIMITS.least_bend, bend.square().sum(1)
    return _Bend(
        apart=torch.where(curved, apart, torch.inf),
        square=LIMITS.bend_step**2 * (gap * bend).sum(1) / square.clamp(min=_TINY),
        sharp=torch.where(curved, square / noise.square(), 0.0),
        weight=(weight / 2 - 1) / LIMITS.bend_step**2,
    )


def _mismatch(observed: _Seen, predicted: _Seen, row: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """What is left once the weight of candidates has been fitted.

    Returns (n,) the worst relative mismatch, (n, next width) all of those at the next layer, and
    (n,) the weight.
    """
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
    off = observed.next_row[:, : predicted.next_row.shape[1]] - mass[:, None] * predicted.next_row
    if off.shape[1]:
        largest = (mass[:, None] * predicted.next_row).abs().amax(1, keepdim=True)
        off = off / largest.clamp(min=_TINY)
        worst = torch.maximum(worst, off.abs().amax(1))
    return worst, off, mass


def _noise(candidates: Candidates, residual: Residual) -> Tensor:
    """(n,) how far the equations of a sample are off by the update's own error."""
    neurons = candidates.neurons
    own = candidates.pre_activations.gather(1, neurons[:, None])[:, 0]
    error = candidates.error * (1 + residual.spread / own)
    if residual.has_next:
        size = residual.next_rows[neurons].abs().amax(1)
        error = error + residual.next_error[neurons] / size
    return error / LIMITS.rounding + residual.resolution
