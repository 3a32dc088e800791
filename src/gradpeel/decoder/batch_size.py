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
from gradpeel.decoder.candidates import Candidates, Readings
from gradpeel.decoder.measuring import measure_v
from gradpeel.decoder.residual import Residual
from gradpeel.decoder.tolerances import SLACK
from gradpeel.decoder.wide import batches

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


def vote(readings: Readings, residual: Residual, backward: Backward, *, whole: bool) -> Vote | None:
    """Ask candidates for the share of one sample; None where no two agree.

    Args:
        readings: where candidates of the whole update can be read.
        residual: the update, before anything is subtracted.
        backward: the client's backward pass; its own share does not matter.
        whole: the share is one over a whole number, the batch size.
    """
    if not len(readings):
        return None
    clearest = torch.arange(len(readings), device=residual.bias.device) < _CLEAREST
    few = readings.pick(clearest).form(residual)
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
    found = [
        _along(activations[some], v[some], backward) for some in batches(len(v), backward.at_once)
    ]
    share, apart = (torch.cat(columns) for columns in zip(*found, strict=True))
    error = torch.maximum(off + candidates.error, apart) + residual.resolution
    # The nearer to the direction, the more it says.
    weight = torch.where(apart <= _PARALLEL, -error.log(), 0.0)
    return share, error, weight.clamp(min=0.0)


def _along(activations: Tensor, v: Tensor, backward: Backward) -> tuple[Tensor, Tensor]:
    """Share of each sample for the label whose direction is nearest, and how far off that is."""
    each = backward.one_of_each(activations)
    length = each.norm(dim=2).clamp(min=torch.finfo(v.dtype).tiny)
    along = (each @ v[:, :, None])[:, :, 0] / length
    label = along.argmax(1, keepdim=True)
    share = (along / length).gather(1, label)
    best = each.take_along_dim(label[:, :, None], 1)[:, 0]
    return share[:, 0], (v - share * best).norm(dim=1) / v.norm(dim=1)


def _by_bias(
    candidates: Candidates, residual: Residual, backward: Backward, activations: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Shares by the bias entry, for each label."""
    entries = backward.bias_entries(activations, candidates.neurons)
    share = (residual.bias[candidates.neurons, None] / entries).flatten()
    off = (candidates.error + residual.resolution)[:, None].expand_as(entries).flatten()
    return share, off, torch.ones_like(share)
