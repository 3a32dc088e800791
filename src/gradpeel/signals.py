"""How much of each true sample is in an update: what a decoder could see of it at best.

Part of the audit, which knows the batch; the decoder never imports this module.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gradpeel.exposure import Exposure
from gradpeel.losses import CrossEntropy, Loss
from gradpeel.target import Target

__all__ = ["distinct_marks", "sensitivities", "signals"]

_TINY = torch.finfo(torch.float64).tiny


def signals(
    target: Target,
    x: Tensor,
    y: Tensor,
    exposure: Exposure,
    loss: Loss = CrossEntropy(),  # noqa: B008 - immutable
) -> Tensor:
    """How strongly each sample stands out where peeling would read it.

    A sample is read from a neuron that it shares only with samples peeled before it. Its share of
    what was summed up there, |c_i| / sum |c|, is all that arithmetic leaves of it: below the
    resolution of the update's dtype the sample is not in the update, whatever the grid says. The
    same goes for 1 - p_y of a certain prediction, which the client computes by subtracting from 1.
    The copies of a sample are read as one, from the sum of their c.

    Args:
        target: the target, in float64.
        x: (batch, *sample_shape) the true samples.
        y: what the loss compares with: (batch,) labels for the cross-entropy.
        exposure: the batch's activation grid, peeled.
        loss: what the client minimises.

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
        >>> strength = signals(gp.split(model), x, y, gp.exposure(model, x))
        >>> bool((strength > 0.01).all())
        True
    """
    c, margin = _simulated(target, x, y, exposure, loss)
    share = _summed(c, exposure).abs() / c.abs().sum(1, keepdim=True).clamp(min=_TINY)
    # A neuron comes to isolate the last unrecovered sample that fires it, if there is a single one.
    never = len(x) + 1
    order = torch.where(exposure.reached, exposure.rounds, never) * exposure.grid
    last = order.amax(1, keepdim=True)
    isolates = exposure.grid & (order == last) & (last < never)
    isolates &= distinct_marks(isolates, exposure) == 1
    strongest: Tensor = (share * isolates).amax(0)
    return torch.minimum(strongest, margin)


def sensitivities(
    target: Target,
    x: Tensor,
    y: Tensor,
    exposure: Exposure,
    loss: Loss = CrossEntropy(),  # noqa: B008 - immutable
) -> tuple[Tensor, Tensor]:
    """How much each sample, with its copies, adds at each neuron, for a loss summed over the batch.

    Args:
        target: the target, in float64.
        x: (batch, *sample_shape) the true samples.
        y: what the loss compares with: (batch,) labels for the cross-entropy.
        exposure: the batch's activation grid.
        loss: what the client minimises.

    Returns:
        (neurons, batch) |c|, and (batch,) the size of the loss gradient at the outputs, relative to
        the size at which the client rounds it. All of it NaN if the tail cannot be simulated.
    """
    c, margin = _simulated(target, x, y, exposure, loss)
    return _summed(c, exposure).abs(), margin


def _simulated(
    target: Target, x: Tensor, y: Tensor, exposure: Exposure, loss: Loss
) -> tuple[Tensor, Tensor]:
    """(neurons, batch) c of every single sample, and (batch,) margins, copies taken together."""
    if target.tail.unknown is not None:
        nowhere = torch.full(exposure.grid.shape, torch.nan, dtype=torch.float64)
        return nowhere, nowhere.new_full((len(x),), torch.nan)
    activations = target.pre_activations(target.front(x.double())).relu()
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
    left, taken = (_summed(part.T, exposure).abs().amax(0) for part in (gradient, asked))
    c = torch.zeros_like(activations)
    if traced.requires_grad:  # else the outputs do not depend on the activations
        with torch.enable_grad():
            pulled = (traced * gradient).sum()
        (c,) = torch.autograd.grad(pulled, activations, materialize_grads=True)
    return c.T * exposure.grid, left / taken.clamp(min=_TINY)


def _gradient(loss: Loss, outputs: Tensor, y: Tensor) -> Tensor:
    """(n, outputs) gradient of each sample's loss at its outputs."""
    with torch.enable_grad():
        free = outputs.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(loss.total(free, y), free)
    return gradient


def _summed(columns: Tensor, exposure: Exposure) -> Tensor:
    """Give each sample's column, (anything, batch), the sum over all copies of the sample."""
    sums = torch.zeros_like(columns).index_add_(1, exposure.copies, columns)
    return sums[:, exposure.copies]


def distinct_marks(marks: Tensor, exposure: Exposure) -> Tensor:
    """(neurons, 1) how many distinct samples are marked, from (neurons, batch) of bool."""
    return marks.T[exposure.distinct].sum(0)[:, None]
