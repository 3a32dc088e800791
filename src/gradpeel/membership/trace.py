"""How strong a trace a record would leave in an update if it took part.

A record that fires no neuron leaves none, and neither does one that the network already classifies
with certainty: its gradient is zero. That such a record is absent cannot be told. With its label
unknown it is assumed to be the one that the network predicts, which leaves the faintest trace.

Example:
    >>> _ = torch.manual_seed(0)
    >>> target = split(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)))
    >>> sensitivities([target], torch.ones(2, 4), None, CrossEntropy()).shape
    torch.Size([2, 8])
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from gradpeel.losses import CrossEntropy, Loss
from gradpeel.target import Target, split
from gradpeel.update import Update

__all__ = ["ends", "sensitivities"]


def ends(model: nn.Module, target: Target, update: Update) -> list[Target]:
    """The target as the client received it and, after local training, as it returned it."""
    training = update.training
    if training is None or training.is_one_step:
        return [target]
    after = copy.deepcopy(model)
    kept, lr = training.kept or 1.0, training.lr or 1.0
    with torch.no_grad():
        for name, parameter in after.named_parameters():
            if name in update.gradients:
                parameter.mul_(kept).sub_(update.gradients[name].to(parameter), alpha=lr)
    return [target, split(after, share=True)]


def sensitivities(
    targets: Sequence[Target], rows: Tensor, labels: Tensor | None, loss: Loss | None
) -> Tensor:
    """The least gradient of one record's loss by the target's pre-activations, at any of the ends.

    Args:
        targets: the target, at both ends of a training.
        rows: (n, features) what enters the target.
        labels: (n,) labels, or (n, outputs) targets, if they are known.
        loss: what the client minimises, if it is known.

    Returns:
        (n, neurons) float64. Where the tail, the loss or its targets are unknown: 1 where the
        record fires.
    """
    found = [_at(target, rows, labels, loss) for target in targets]
    sizes = torch.stack([c.norm(dim=1) for c in found])
    return torch.stack(found)[sizes.argmin(0), torch.arange(len(rows))]


def _at(target: Target, rows: Tensor, labels: Tensor | None, loss: Loss | None) -> Tensor:
    z = target.pre_activations(rows)
    if loss is None or target.tail.unknown is not None:
        return (z > 0).double()
    if labels is None and not isinstance(loss, CrossEntropy):
        return (z > 0).double()
    with torch.enable_grad():
        z.requires_grad_()
        outputs = target.tail(z.relu())
        y = outputs.argmax(1) if labels is None else labels
        loss.check(outputs, y)
        found: Tensor = torch.autograd.grad(loss.total(outputs, y), z)[0]
    return found.double()
