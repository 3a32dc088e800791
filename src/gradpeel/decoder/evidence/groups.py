"""Groups: m times the weight of one sample, and how far apart its members may be.

Something that weighs as much as m samples is m copies of one, or the mean of m samples that share
their label and fire alike. Where the tail is linear no update distinguishes the two. Otherwise it
does so up to a *radius*: the largest distance of members from their mean that leaves the update
unchanged, within its error. Two things bound it:

- Structure. Members on either side of a neuron's hinge do not fire alike, and then the mean's
  sensitivities do not lie in the column space of the update. Where they do, no group reaches
  farther than the nearest few neurons for which the update shows the side.
- Curvature. Members at a distance d on both sides of the mean change the next layer's gradient and
  the bias, after the weight has been fitted to them, by the tail's curvature times d^2. That is
  simulated on a few lines, and compared with how well the equations hold. Members may lie on
  another line, where the tail has less curvature, so the bound is looser unless the structure
  confirms the candidate.

Something that weighs several times as much as a sample and fires only a few neurons is seen by
these alone, and samples that differ in everything else leave the same there: nothing bounds it.

Assumptions, which the radius rests on: members lie on a line through their mean, one of a few that
are tried (two exposures of one picture, which differ by a factor, invisible to all neurons without
biases, or by an offset; a random line; one towards another candidate); and they share their label.
A difference that the layer does not see at all (a direction orthogonal to all its weights) leaves
no trace in any update.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from gradpeel.decoder.candidates import Candidates, Readings
from gradpeel.decoder.evidence.structure import Structure
from gradpeel.decoder.limits import LIMITS
from gradpeel.decoder.residual import Residual, rms
from gradpeel.decoder.simulate import Backward

__all__ = ["Radius", "distance_between", "radius_of_groups"]

_TINY = torch.finfo(torch.float64).tiny

_NEARER = 10.0
"""Factor by which members are brought nearer in a second trial."""


@dataclass(frozen=True, eq=False)
class _Bend:
    """What the curvature of the tail shows about groups, on one line.

    Attributes:
        apart: (n,) how far members may be from the mean; infinite where the tail is linear.
        square: (n,) their squared distance, as the mismatch along the predicted one shows it.
        sharp: (n,) how exactly: one over the variance.
        weight: (n,) by how much two members at a distance of 1 weigh more than two copies.
    """

    apart: Tensor
    square: Tensor
    sharp: Tensor
    weight: Tensor

    def scaled(self, size: Tensor) -> _Bend:
        """In another unit of length, (n,); there is no line through the origin."""
        known = size > 0
        return _Bend(
            torch.where(known, self.apart * size, 0.0),
            torch.where(known, self.square * size**2, 0.0),
            torch.where(known, self.sharp / size**4, 0.0),
            torch.where(known, self.weight / size**2, 0.0),
        )

    def pick(self, mask: Tensor) -> _Bend:
        """The same for some of the groups."""
        return _Bend(self.apart[mask], self.square[mask], self.sharp[mask], self.weight[mask])

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
class _Line:
    """One line that members of groups may lie on, on both sides of their means.

    Attributes:
        apart: (n,) how far they may be from the mean.
        bend: what the curvature of the tail shows.
        hinges: (n, neurons) where the structure distinguishes members, in order; infinite where it
            does not.
        needed: this many hinges exclude that none of them lies between two members.
        size: (n,) the unit of length on it.
    """

    apart: Tensor
    bend: _Bend
    hinges: Tensor
    needed: int
    size: Tensor

    def if_all(self, agreement: float, confirmed: Tensor, looser: float) -> Tensor:
        """(n,) the same, if every one of these is a group, see `Radius.if_all`."""
        shared = self.hinges.flatten().sort().values[self.needed - 1 :][:1].tolist()
        sure = min([math.inf, *self.bend.pick(confirmed).if_all(agreement), *shared])
        together = looser * min([math.inf, *self.bend.if_all(agreement)])
        pooled = torch.where(confirmed, min(sure, together), together)
        apart = torch.minimum(self.apart, pooled)
        # A dark picture and a brighter copy of it are near each other; bright ones that differ by
        # the same factor are not.
        shorter = torch.where(self.size > 0, self.size.median() / self.size, 1.0)
        return apart * shorter.clamp(min=1.0)


@dataclass(frozen=True, eq=False)
class Radius:
    """How far members of a group may be from its mean, relative to the typical size of a sample.

    Attributes:
        lines: the result on each of several lines.
        confirmed: (n,) mask of candidates that lie in the column space of the update.
        bounded: (n,) mask of candidates that fire enough neurons to be bounded individually.
        distinct: number of the candidates that are not readings of the same samples.
    """

    lines: tuple[_Line, ...]
    confirmed: Tensor
    bounded: Tensor
    distinct: int

    @property
    def each(self) -> Tensor:
        """(n,) on any of the lines."""
        apart = torch.stack([line.apart for line in self.lines]).amax(0)
        return torch.where(self.bounded, apart, torch.inf)

    def if_all(self, agreement: float) -> float:
        """How far members may be apart if every one of these is a group.

        Then none of a few hinges, counted over all of them, lies between members; and the weights
        of the groups differ, because the tail has another curvature at each. One of them that is
        not a group is enough. The tail may be linear where the members of one group lie, or of a
        few, but not for many of them.

        Args:
            agreement: largest relative difference between what they weigh.
        """
        looser = LIMITS.other_lines if self.distinct < LIMITS.many_groups else 1.0
        lines = [line.if_all(agreement, self.confirmed, looser) for line in self.lines]
        return float(torch.stack(lines).amax(0).min())


def distance_between(readings: Readings, residual: Residual) -> float:
    """Typical distance between samples, relative to the typical size of one.

    Samples are farther apart than mixtures of them. Two readings of one sample do not count as a
    distance; 1 where there is no other sample.

    Args:
        readings: the candidates of the whole update.
        residual: the update, before anything is subtracted.
    """
    every = max(1, len(readings) // LIMITS.compared)
    some, error = readings.neurons[::every], readings.error[::every]
    z = residual.pre_activations(residual.coordinates(some))
    between = torch.pdist(z) / math.sqrt(z.shape[1]) / residual.spread
    first, second = torch.triu_indices(len(some), len(some), 1, device=error.device)
    same = LIMITS.slack * (error[first] + error[second])
    between = between[between > same.clamp(min=LIMITS.same)]
    return float(between.median()) if len(between) else 1.0


def radius_of_groups(
    candidates: Candidates,
    residual: Residual,
    backward: Backward,
    structure: Structure | None,
    *,
    between: float,
    counts: Tensor,
) -> Radius:
    """Determine how far apart the members of groups may be.

    Args:
        candidates: the candidates; each may be one sample, or the mean of several.
        residual: the residual they were read from.
        backward: the client's backward pass; its share does not matter.
        structure: the column space of the update; None to do without.
        between: distance between samples, relative to the size of one.
        counts: (n, classes) labels of each.
    """
    z = candidates.pre_activations
    shows = torch.zeros_like(z, dtype=torch.bool)
    confirmed = torch.zeros_like(candidates.error, dtype=torch.bool)
    if structure is not None:
        simulated = backward.simulate(z.relu(), counts)
        error, resolution = candidates.error + residual.resolution, residual.resolution
        off = backward.error(simulated, error, resolution)
        confirmed, shows = structure.confirm(simulated.c, off, candidates, residual)
    looser = torch.where(confirmed, 1.0, LIMITS.other_lines)
    found = []
    for line, needed in _lines(residual, backward, z):
        size = rms(line) / residual.spread
        hinges = torch.where(shows, z.abs() / line.abs().clamp(min=_TINY), torch.inf)
        hinges = torch.where(size > 0, hinges.sort(dim=1).values.T * size, 0.0).T
        bend = _by_curvature(candidates, residual, backward, counts, line).scaled(size)
        last = hinges[:, min(needed, z.shape[1]) - 1]
        apart = torch.minimum(looser * bend.apart, last)
        found.append(_Line(apart, bend, hinges, needed, size))
    return Radius(
        lines=tuple(found),
        confirmed=confirmed,
        bounded=(z > 0).sum(1) >= LIMITS.fewest_firing,
        distinct=_count_distinct(z, LIMITS.distinct * between * residual.spread),
    )


def _count_distinct(z: Tensor, apart: float) -> int:
    """Number of rows without an earlier row that is nearer than this, entry by entry."""
    near = torch.cdist(z, z) <= apart * math.sqrt(z.shape[1])
    return int((near.tril(-1).sum(1) == 0).sum())


def _lines(residual: Residual, backward: Backward, z: Tensor) -> list[tuple[Tensor, int]]:
    """Lines through candidates, (n, neurons) each, and how many hinges on them are enough.

    Two of them are those of a picture that is made brighter: by a factor, or by an offset. One is
    independent of the weights, and one leads to another candidate, as far as a sample is large.
    """
    linear = residual.linear(z)
    offset = residual.row_sums.expand_as(z)
    other = linear.roll(1, 0) - linear
    if len(z) < 2:
        other = backward.unit_error.roll(1).expand_as(z)
    lines = [(linear, 1), (_sized(offset, residual), 1)]
    across = (backward.unit_error.expand_as(z), _sized(other, residual))
    return lines + [(line, LIMITS.hinges) for line in across]


def _sized(line: Tensor, residual: Residual) -> Tensor:
    """A line with the size of a sample as its unit."""
    return line * (residual.spread / rms(line).clamp(min=_TINY))[:, None]


@dataclass(frozen=True, eq=False)
class _Seen:
    """What an update shows about candidates: at their own neurons and at all that isolate them.

    Attributes:
        next_row: (n, next width) the next layer's gradient at their own neurons.
        bias: (pairs,) the bias gradient at every neuron that isolates one.
    """

    next_row: Tensor
    bias: Tensor


def _by_curvature(
    candidates: Candidates, residual: Residual, backward: Backward, counts: Tensor, line: Tensor
) -> _Bend:
    """The distance along a line at which two members would violate the equations.

    They hold as well as observed, so a group that violates them by more is excluded.
    """
    z, (row, column) = candidates.pre_activations, candidates.pairs
    fires = (z > 0).to(z.dtype)

    def seen(change: Tensor) -> tuple[_Seen, Tensor]:
        activations = (z + change) * fires
        simulated = backward.simulate(activations, counts)
        own = activations.gather(1, candidates.neurons[:, None])
        c = simulated.c
        return _Seen(own * simulated.v, c[row, column]), c.gather(1, candidates.neurons[:, None])

    def bent(step: float) -> tuple[Tensor, Tensor, Tensor]:
        """What two members at this distance would leave."""
        (ahead, more), (behind, less) = seen(step * line), seen(-step * line)
        # What is read of the two is their mean, weighted by sensitivities.
        total = more + less
        mean, _ = seen(step * line * (more - less) / torch.where(total == 0, 1.0, total))
        together = _Seen(ahead.next_row + behind.next_row, ahead.bias + behind.bias)
        return _mismatch(together, mean, row, has_next=residual.has_next)

    far, bend, weight = bent(LIMITS.bend_step)
    near, _, weight_near = bent(LIMITS.bend_step / _NEARER)
    # Behind a kink the tail may have curvature although it is linear in between.
    curvature = torch.minimum(far, near * _NEARER**2) / LIMITS.bend_step**2
    curved = (far > LIMITS.least_bend) & (near * _NEARER**2 > LIMITS.least_bend)
    noise, square = _noise(candidates, residual), bend.square().sum(1)
    observed = _Seen(residual.next_rows[candidates.neurons], residual.bias[column])
    candidate, _ = seen(torch.zeros_like(z))
    holds, gap, _ = _mismatch(observed, candidate, row, has_next=residual.has_next)
    apart = ((holds + noise) / curvature.clamp(min=_TINY)).sqrt()
    return _Bend(
        apart=torch.where(curved, apart, torch.inf),
        square=LIMITS.bend_step**2 * (gap * bend).sum(1) / square.clamp(min=_TINY),
        sharp=torch.where(curved, square / noise.square(), 0.0),
        weight=_smaller(weight / 2 - 1, (weight_near / 2 - 1) * _NEARER**2) / LIMITS.bend_step**2,
    )


def _smaller(these: Tensor, those: Tensor) -> Tensor:
    """The smaller of two numbers in absolute value."""
    return torch.where(these.abs() < those.abs(), these, those)


def _mismatch(
    observed: _Seen, predicted: _Seen, row: Tensor, *, has_next: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """What is left after the weight of candidates has been fitted.

    Returns (n,) the worst relative mismatch, (n, next width) all of those at the next layer, and
    (n,) the weight.
    """
    n = len(predicted.next_row)
    zero = observed.bias.new_zeros(n)
    if has_next:
        top = (observed.next_row * predicted.next_row).sum(1)
        bottom = predicted.next_row.square().sum(1)
    else:
        top = zero.index_add(0, row, observed.bias * predicted.bias)
        bottom = zero.index_add(0, row, predicted.bias.square())
    mass = top / bottom.clamp(min=_TINY)
    gap = (observed.bias - mass[row] * predicted.bias).abs()
    size = zero.scatter_reduce(0, row, (mass[row] * predicted.bias).abs(), "amax")
    worst = zero.scatter_reduce(0, row, gap, "amax") / size.clamp(min=_TINY)
    off = torch.zeros_like(predicted.next_row[:, :1])
    if has_next:
        off = observed.next_row - mass[:, None] * predicted.next_row
        largest = (mass[:, None] * predicted.next_row).abs().amax(1, keepdim=True)
        off = off / largest.clamp(min=_TINY)
        worst = torch.maximum(worst, off.abs().amax(1))
    return worst, off, mass


def _noise(candidates: Candidates, residual: Residual) -> Tensor:
    """(n,) how far the equations of a sample are off because of the update's own error."""
    neurons = candidates.neurons
    own = candidates.pre_activations.gather(1, neurons[:, None])[:, 0]
    error = candidates.error * (1 + residual.spread / own)
    if residual.has_next:
        size = residual.next_rows[neurons].abs().amax(1)
        error = error + residual.next_error[neurons] / size
    return error / LIMITS.rounding + residual.resolution
