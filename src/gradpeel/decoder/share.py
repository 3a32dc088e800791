"""The weight of one sample in an update, estimated from the update itself.

A mean over the batch divides by its size; a learning rate, a client's weight and clipping multiply:
the scale of an update is not known, whatever it states. At a singleton the next layer's gradient is
a_j share g(y). Its direction does not depend on the share, so it shows which candidates are
samples, and its length gives the share, which is the same for all samples. Without a next layer the
bias entries give it, for every label.

A group of m samples that fire alike shows m times the share. So only candidates vote that cannot be
a group whose members are far apart, see `gradpeel.decoder.evidence.groups`: their weight is one
share, or several where a sample has copies.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from gradpeel.decoder.candidates import Candidates, Readings
from gradpeel.decoder.evidence.groups import Radius, radius_of_groups
from gradpeel.decoder.evidence.structure import Structure
from gradpeel.decoder.limits import LIMITS
from gradpeel.decoder.linalg import batches
from gradpeel.decoder.residual import Residual
from gradpeel.decoder.sensitivities import measure_v
from gradpeel.decoder.simulate import Backward

__all__ = ["LabelFit", "Share", "fit_labels", "learn_share"]

_TINY = torch.finfo(torch.float64).tiny


@dataclass(frozen=True)
class Share:
    """The weight of one sample's loss in the update.

    Attributes:
        value: the weight.
        error: its relative error.
        voters: number of candidates that agree on it.
        proven: they cannot all be groups whose members are far apart.
        only: the neuron that the only voter was read from; None where there are several. Its weight
            is not evidence for itself.
    """

    value: float
    error: float
    voters: int
    proven: bool
    only: int | None

    def agrees_with(self, hint: float) -> bool:
        """Whether another weight is the same, within the error of this one."""
        return abs(self.value / hint - 1.0) <= LIMITS.slack * self.error

    def weighs(self, stated: float | None) -> int:
        """How many samples of the stated weight weigh as much as one: 1 unless all may be groups.

        Learning rates multiply too, but hardly ever by a small whole number.
        """
        times = 1 if stated is None else _whole_times(self.value, stated)
        return times if 1 <= times <= LIMITS.copies_of_unit else 1

    @property
    def batch_size(self) -> int | None:
        """The batch size of a mean with this weight; None where that is not a whole number."""
        size = round(1.0 / self.value)
        off = LIMITS.slack * LIMITS.rounding * self.error * size
        near = abs(1.0 / self.value - size) <= min(off, 0.05)
        return size if near and 1 <= size <= LIMITS.largest_batch else None


def learn_share(
    readings: Readings,
    residual: Residual,
    backward: Backward,
    structure: Structure,
    *,
    between: float,
    hint: float | None,
) -> Share | None:
    """Derive the share of one sample from the candidates: by majority, if it cannot be proven.

    Args:
        readings: where candidates of the whole update can be read.
        residual: the update, before anything is subtracted.
        backward: the client's backward pass, with a share of 1.
        structure: the column space of the update.
        between: distance between samples, relative to the size of one.
        hint: the weight according to the update's own statement, if there is one: of the possible
            shares that cannot be proven, the nearest to it is the most likely.
    """
    if not len(readings):
        return None
    candidates = readings.form(residual)
    ask = _by_direction if residual.has_next else _by_bias
    votes = ask(candidates, residual, backward)
    clusters = _clusters(votes)
    if not clusters:
        return None
    limit = min(LIMITS.anchor, LIMITS.apart * between)
    is_faint = partial(_is_faint, votes, residual, backward)
    # Finding the structure takes time, and it is hardly ever needed.
    for space in (None, structure):
        ask_radius = partial(
            radius_of_groups,
            residual=residual,
            backward=backward,
            structure=space,
            between=between,
        )
        anchored = [
            near for near in clusters if _if_all(votes, near, backward.classes, ask_radius) <= limit
        ]
        share = _unit(votes, clusters, anchored, hint, is_faint, is_rounded=residual.is_rounded)
        if share is not None:
            return share
    if hint is not None:
        for near in clusters:
            if (share := _share(votes, near, proven=False)).agrees_with(hint):
                return share
    # Groups weigh several times as much as a sample: of the shares with many votes, take the least.
    several = [near for near in clusters if int(near.sum()) > 1] or clusters[:1]
    smallest = min(several, key=lambda near: float(votes.share[near].min()))
    return _share(votes, smallest, proven=False)


@dataclass(frozen=True, eq=False)
class _Votes:
    """The weights of candidates, each for the label that fits.

    Attributes:
        candidates: the candidates.
        label: (n,) the label.
        share: (n,) the weight.
        error: (n,) its relative error.
    """

    candidates: Candidates
    label: Tensor
    share: Tensor
    error: Tensor


def _unit(
    votes: _Votes,
    clusters: list[Tensor],
    anchored: list[Tensor],
    hint: float | None,
    is_faint: Callable[[Tensor, Share], bool],
    *,
    is_rounded: bool,
) -> Share | None:
    """The weight of one sample: the least weight of candidates that cannot be groups.

    Candidates that make up most of the update must weigh whole multiples of it: copies. But an
    outlier in the update, a thousandth as heavy as the batch, is not a sample of it, unless the
    batch is stated to be that large.
    """
    several = [near for near in clusters if int(near.sum()) >= LIMITS.fewest_agreeing]
    most = max([*anchored, *several], key=lambda near: float(votes.share[near].sum()), default=None)
    if most is None:
        return None
    heaviest = _share(votes, most, proven=False)
    heavy = heaviest.value
    # In a difference of weights, what is heavy may be known no better than by its own error.
    off = LIMITS.nothing * LIMITS.rounding * heaviest.error if is_rounded else 0.0
    shares = [_share(votes, near, proven=True) for near in anchored]
    stated = [hint is not None and share.agrees_with(hint) for share in shares]
    units = []
    for near, share, said in zip(anchored, shares, stated, strict=True):
        copies = _whole_times(heavy, share.value, off)
        few = 1 <= copies <= LIMITS.copies_of_unit and not is_faint(near, share)
        if few or (said and copies):
            units.append((share, said))
    if not units:
        return None
    unit, said = min(units, key=lambda found: found[0].value)
    # Or is the outlier the sample, and are the heavy ones hundreds of copies?
    lighter = [share for share in shares if share.value < unit.value]
    doubtful = any(
        1 <= _whole_times(unit.value, share.value) <= LIMITS.most_copies for share in lighter
    )
    return replace(unit, proven=said or not doubtful)


def _whole_times(heavy: float, unit: float, off: float = 0.0) -> int:
    """How many times a unit a weight is, within its error; 0 where that is not a whole number."""
    times = heavy / unit
    whole = round(times)
    allowed = LIMITS.whole_weight * times
    if off:
        allowed = max(allowed, min(0.1, off * times))
    return whole if abs(times - whole) <= allowed else 0


def _is_faint(
    votes: _Votes, residual: Residual, backward: Backward, near: Tensor, unit: Share
) -> bool:
    """Whether thousands of samples with this weight would have to fire one neuron.

    Args:
        votes: the weights of candidates.
        residual: the update.
        backward: the client's backward pass, with a share of 1.
        near: (n,) mask of those that weigh as much as the unit.
        unit: the weight.
    """
    if not residual.has_next:
        return False
    some = votes.candidates.pre_activations[near][
        : min(LIMITS.asked_if_faint, backward.at_once)
    ].relu()
    # The gradient with the least expected label: most samples have no larger one.
    most = backward.one_of_each(some).norm(dim=2).amax(1).median()
    size = residual.next_rows.norm(dim=1).max() / (residual.spread * most).clamp(min=_TINY)
    return float(size) > LIMITS.most_copies * unit.value


def _share(votes: _Votes, near: Tensor, *, proven: bool) -> Share:
    """The joint vote of some voters."""
    share, weight = votes.share[near], 1.0 / votes.error[near].square()
    neurons = votes.candidates.neurons[near]
    return Share(
        value=float((weight * share).sum() / weight.sum()),
        error=float(weight.sum().rsqrt()) / LIMITS.rounding,
        voters=len(share),
        proven=proven,
        only=int(neurons[0]) if len(neurons) == 1 else None,
    )


def _clusters(votes: _Votes) -> list[Tensor]:
    """Masks of voters that agree within their errors, the largest few."""
    share, error = votes.share, votes.error
    left = torch.ones_like(share, dtype=torch.bool)
    found = []
    for i in error.argsort(stable=True).tolist():  # a vague one agrees with anybody
        if bool(left[i]):
            near = left & ((share / share[i] - 1).abs() <= LIMITS.nothing * (error + error[i]))
            found.append(near)
            left &= ~near
    return sorted(found, key=lambda near: -int(near.sum()))[: LIMITS.clusters]


def _if_all(votes: _Votes, near: Tensor, classes: int, ask_radius: Callable[..., Radius]) -> float:
    """How far members may be apart if all voters that agree are groups."""
    share, error = votes.share, votes.error
    # The most exact of them, but not too few, show how well they agree.
    few = error[near].sort().values[: LIMITS.fewest_agreeing]
    clear = near & (error <= torch.maximum(LIMITS.clear_voter * few[0], few[-1]))
    clear &= clear.cumsum(0) <= LIMITS.voters
    middle = float(share[clear].median())
    agreement = float(
        (share[clear] / middle - 1).abs().max() + error[clear].max() / LIMITS.rounding
    )
    if _by_chance(len(share), clear, agreement):
        agreement = math.inf
    labels = functional.one_hot(votes.label[clear], classes).to(share)
    return ask_radius(votes.candidates.pick(clear), counts=labels).if_all(agreement)


def _by_chance(count: int, clear: Tensor, agreement: float) -> bool:
    """Whether so many of all would agree so well although they have nothing in common."""
    several = int(clear.sum()) - 1
    return several > 0 and count * min(1.0, count * agreement) ** several > LIMITS.agreement_chance


@dataclass(frozen=True, eq=False)
class LabelFit:
    """The label that fits candidates best, whatever the scale of the update.

    Attributes:
        label: (n,) the label whose gradient is nearest in direction to what is observed.
        share: (n,) their weight, if they are samples with that label.
        apart: (n,) relative distance from that direction.
        error: (n,) relative error of the two.
    """

    label: Tensor
    share: Tensor
    apart: Tensor
    error: Tensor


def fit_labels(candidates: Candidates, residual: Residual, backward: Backward) -> LabelFit:
    """Fit a label to each candidate by the direction of the next layer's gradient.

    Args:
        candidates: the candidates.
        residual: the residual they were read from; the next layer's gradient came with the update.
        backward: the client's backward pass, with a share of 1.
    """
    activations = candidates.pre_activations.relu()
    v, off = measure_v(candidates, residual, activations, candidates.error)
    label = _nearest_label(activations, v, backward)
    counts = functional.one_hot(label, backward.classes).to(v)
    expected = backward.simulate(activations, counts).v
    share = (v * expected).sum(1) / expected.square().sum(1).clamp(min=_TINY)
    apart = (v - share[:, None] * expected).norm(dim=1) / v.norm(dim=1).clamp(min=_TINY)
    return LabelFit(label, share, apart, off + candidates.error + residual.resolution)


def _by_direction(candidates: Candidates, residual: Residual, backward: Backward) -> _Votes:
    """Shares by the length of the next layer's gradient along its label's direction."""
    fit = fit_labels(candidates, residual, backward)
    fits = (fit.share > 0) & (fit.apart <= (LIMITS.slack * fit.error).clamp(max=LIMITS.parallel))
    error = torch.maximum(fit.error, fit.apart)
    return _Votes(candidates.pick(fits), fit.label[fits], fit.share[fits], error[fits])


def _nearest_label(activations: Tensor, v: Tensor, backward: Backward) -> Tensor:
    """(n,) the label whose gradient at the next layer is nearest to the direction of v."""
    if backward.ends_at_next_layer and not backward.loss.label_smoothing:
        # Before a softmax the gradient of one sample is negative at its label only.
        return v.argmin(1)
    found = [v.new_zeros(0, dtype=torch.long)]
    for some in batches(len(v), backward.at_once):
        each = backward.one_of_each(activations[some])
        along = (each @ v[some, :, None])[:, :, 0] / each.norm(dim=2).clamp(min=_TINY)
        found.append(along.argmax(1))
    return torch.cat(found)


def _by_bias(candidates: Candidates, residual: Residual, backward: Backward) -> _Votes:
    """Shares by the bias entries: those of the window with the most votes, for any label."""
    entries = backward.bias_entries(candidates.pre_activations.relu(), candidates.neurons)
    votes = residual.bias[candidates.neurons, None] / entries
    off = candidates.error + residual.resolution
    who, label = ((votes > 0) & votes.isfinite()).nonzero(as_tuple=True)
    share, order = votes[who, label].sort()
    who, label = who[order], label[order]
    low = torch.searchsorted(share, share * (1 - LIMITS.slack * off[who]))
    high = torch.searchsorted(share, share * (1 + LIMITS.slack * off[who]), right=True)
    some = slice(0, 0)
    if len(share):
        best = int((high - low).argmax())
        some = slice(int(low[best]), int(high[best]))
    chosen = torch.zeros_like(off, dtype=torch.bool)
    chosen[who[some]] = True
    labels, shares = torch.zeros_like(candidates.neurons), torch.zeros_like(off)
    labels[who[some]], shares[who[some]] = label[some], share[some]
    return _Votes(candidates.pick(chosen), labels[chosen], shares[chosen], off[chosen])
