"""How much of each true sample is in an update: what a decoder could see of it at best.

Part of the audit, which knows the batch; the decoder never imports this module.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gradpeel.exposure import Exposure
from gradpeel.losses import CrossEntropy, Loss
from gradpeel.target import Target

__all__ = ["Contributions", "contributions", "distinct_marks", "sensitivities", "signals"]

_TINY = torch.finfo(torch.float64).tiny


@dataclass(frozen=True, eq=False)
class Contributions:
    """What every single sample of a batch adds to the update.

    Attributes:
        c: (neurons, batch) what it adds to the bias gradient of each neuron, in the
            update's own scale. All of it NaN if the tail cannot be simulated.
        margins: (batch,) the size of the loss gradient at the outputs, copies taken together,
            relative to the size at which the client rounds it; NaN likewise.
    """

    c: Tensor
    margins: Tensor


def signals(found: Contributions, exposure: Exposure) -> Tensor:
    """How strongly each sample stands out where peeling would read it.

    A sample is read from a neuron that it shares only with samples peeled before it. Its share of
    what was summed up there, |c_i| / sum |c|, is all that arithmetic leaves of it: below the
    resolution of the update's dtype the sample is not in the update, whatever the grid says. The
    same goes for 1 - p_y of a certain prediction, which the client computes by subtracting from 1.
    The copies of a sample are read as one, from the sum of their c.

    Args:
        found: what the samples add.
        exposure: the batch's activation grid, peeled.

    Returns:
        (batch,) the largest such share over the neurons that come to isolate the sample, or 1 - p_y
        if that is smaller; 0 for samples that peeling does not reach; NaN for all samples if the
        tail cannot be simulated.

    Example:
        >>> import gradpeel as gp
        >>> _ = torch.manual_seed(0)
        >>> model = torch.nn.Sequential(
        ...     torch.nn.Linear(6, 40), torch.nn.ReLU(), torch.nn.Linear(40, 2)
        ... ).double()
        >>> x, y = torch.rand(4, 6), torch.tensor([0, 1, 1, 0])
        >>> exposure = gp.exposure(model, x)
        >>> strength = signals(contributions(gp.split(model), x, y, exposure.copies), exposure)
        >>> bool((strength > 0.01).all())
        True
    """
    c = found.c * exposure.grid
    share = _summed(c, exposure.copies).abs() / c.abs().sum(1, keepdim=True).clamp(min=_TINY)
    isolates = exposure.sources[:, None] == exposure.copies
    strongest: Tensor = (share * isolates).amax(0)
    return torch.minimum(strongest, found.margins)


def sensitivities(found: Contributions, exposure: Exposure) -> Tensor:
    """(neurons, batch) |c|: how much each sample, with its copies, adds at each neuron."""
    return _summed(found.c * exposure.grid, exposure.copies).abs()


def contributions(
    target: Target,
    rows: Tensor,
    y: Tensor,
    copies: Tensor,
    loss: Loss = CrossEntropy(),  # noqa: B008 - immutable
) -> Contributions:
    """Simulate what each sample of a batch adds to its gradient, for the sum of their losses.

    Args:
        target: the target, in float64.
        rows: (batch, features) what enters the target of the true samples, float64.
        y: what the loss compares with: (batch,) labels for the cross-entropy.
        copies: (batch,) int64, for each sample the index of the first identical one.
        loss: what the client minimises.
    """
    if target.tail.unknown is not None:
        nowhere = torch.full((target.neurons, len(rows)), torch.nan, dtype=torch.float64)
        return Contributions(nowhere, nowhere.new_full((len(rows),), torch.nan))
    activations = target.pre_activations(rows).relu()
    # Not by torch.func.vjp: it loads torch's compiler first, which takes more than a second.
    with torch.enable_grad():
        traced = target.tail(activations.requires_grad_())
    outputs = traced.detach()
    if isinstance(loss, CrossEntropy):
        # Keeps the digits of 1 - p_y, which autograd loses.
        gradient = loss.gradient(outputs, y.long())
        asked = loss.targets(outputs.shape[1])[y.long()].sum(1, keepdim=True)
    else:
        gradient = _gradient(loss, outputs, y)
        asked = gradient - _gradient(loss, outputs, torch.zeros_like(y))
    # The client subtracts what is asked of the outputs, so it rounds at that size, however little
    # is left.
    left, taken = (_summed(part.T, copies).abs().amax(0) for part in (gradient, asked))
    c = torch.zeros_like(activations)
    if traced.requires_grad:  # else the outputs do not depend on the activations
        with torch.enable_grad():
            pulled = (traced * gradient).sum()
        (c,) = torch.autograd.grad(pulled, activations, materialize_grads=True)
    return Contributions(c.T, left / taken.clamp(min=_TINY))


def _gradient(loss: Loss, outputs: Tensor, y: Tensor) -> Tensor:
    """(n, outputs) gradient of each sample's loss at its outputs."""
    with torch.enable_grad():
        free = outputs.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(loss.total(free, y), free)
    return gradient


def _summed(columns: Tensor, copies: Tensor) -> Tensor:
    """Give each sample's column, (anything, batch), the sum over all copies of the sample."""
    sums = torch.zeros_like(columns).index_add_(1, copies, columns)
    return sums[:, copies]


def distinct_marks(marks: Tensor, exposure: Exposure) -> Tensor:
    """(neurons, 1) how many distinct samples are marked, from (neurons, batch) of bool."""
    return marks.T[exposure.distinct].sum(0)[:, None]
