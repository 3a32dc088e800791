"""The weight of one sample in the batch loss, told from the update: with a mean, the batch size.

At a singleton the next layer's gradient is a_j share g(y): its direction does not depend on the
share, so it tells which candidates are samples, and their length tells the share. All samples have
the same, so they vote. Without a next layer the bias entry votes, for every label.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gradpeel.decoder.backward import Backward
from gradpeel.decoder.candidates import Candidates
from gradpeel.decoder.measuring import measure_v
from gradpeel.decoder.residual import Residual
from gradpeel.decoder.tolerances import SLACK

__all__ = ["Vote", "vote"]

_CLEAREST = 256
"""Candidates that are asked, the clearest first."""

_PARALLEL = 1e-2
"""Largest relative distance of a gradient from the direction of its label."""

_MOST = 10_000_000
"""No batch is larger than this."""


@dataclass(frozen=True)
class Vote:
    """What the candidates say of the share of a sample.

    Attributes:
        share: weight of one sample's loss in the batch loss.
        voters: how many candidates say so.
    """

    share: float
    voters: int


def vote(
    candidates: Candidates, residual: Residual, backward: Backward, *, whole: bool
) -> Vote | None:
    """Ask all candidates for the share of one sample; None where no two agree.

    Args:
        candidates: candidates of the whole update.
        residual: the update, before anything is subtracted.
        backward: the client's backward pass; its own share does not matter.
        whole: the share is one over a whole number, the batch size.
    """
    count = torch.arange(len(candidates)) < _CLEAREST
    few = candidates.pick(count)
    if not len(few):
        return None
    fires = few.pre_activations > 0
    activations = few.pre_activations * fires
    unit = replace(backward, share=1.0)
    if residual.has_next:
        share, off, weight = _by_direction(few, residual, unit, activations)
    else:
        share, off, weight = _by_bias(few, residual, unit, activations)
    counts = (share > 0) & share.isfinite() & (weight > 0)
    if whole:
        size = (1.0 / share).round()
        counts &= (size >= 1) & (size <= _MOST)
        counts &= (1.0 / share - size).abs() <= (SLACK * off * size).clamp(max=0.25)
        share = 1.0 / size
    share, off, weight = share[counts], off[counts], weight[counts]
    if not len(share):
        return None
    order = share.argsort()
    share, off, weight = share[order], off[order], weight[order]
    # Everybody's share within everybody's error: the window with the most weight wins.
    reach = share * (off if not whole else torch.full_like(off, 1e-9))
    low = torch.searchsorted(share, share - SLACK * reach)
    high = torch.searchsorted(share, share + SLACK * reach, right=True)
    summed = torch.cat([weight.new_zeros(1), weight.cumsum(0)])
    best = int((summed[high] - summed[low]).argmax())
    window = slice(int(low[best]), int(high[best]))
    exact = window.start + int(off[window].argmin())
    return Vote(float(share[exact]), window.stop - window.start)


def _by_direction(
    candidates: Candidates, residual: Residual, backward: Backward, activations: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Shares by the length of the next layer's gradient along its label's direction."""
    v, off = measure_v(candidates, residual, activations, candidates.error)
    votes = torch.zeros(len(v), 3, dtype=torch.float64)
    tiny = torch.finfo(v.dtype).tiny
    for i in range(len(v)):
        each = backward.one_of_each(activations[i])
        length = each.norm(dim=1, keepdim=True).clamp(min=tiny)
        along = (each / length) @ v[i]
        label = int(along.argmax())
        apart = (v[i] - along[label] * each[label] / length[label]).norm() / v[i].norm()
        error = torch.maximum(off[i] + candidates.error[i], apart) + residual.resolution
        # The nearer to the direction, the more it says.
        weight = -error.log() if apart <= _PARALLEL else torch.zeros_like(error)
        votes[i] = torch.stack([along[label] / length[label, 0], error, weight])
    share, error, weight = votes.T
    return share, error, weight.clamp(min=0.0)


def _by_bias(
    candidates: Candidates, residual: Residual, backward: Backward, activations: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Shares by the bias entry, for each label."""
    entries = backward.bias_entries(activations, candidates.neurons)
    share = (residual.bias[candidates.neurons, None] / entries).flatten()
    off = (candidates.error + residual.resolution)[:, None].expand_as(entries).flatten()
    return share, off, torch.ones_like(share)
