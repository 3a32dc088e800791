"""How strong a trace a record would leave in an update if it took part.

A record that fires no neuron leaves none, and neither does one that the network already classifies
with certainty: its gradient is zero. Nobody can know that such a record is absent. While its label
is unknown, it has the one that would hide it best.

Example:
    >>> _ = torch.manual_seed(0)
    >>> target = split(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)))
    >>> [tuple(c.shape) for c in sensitivities([target], torch.ones(2, 4), None, CrossEntropy())]
    [(2, 8), (2, 8), (2, 8)]
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from gradpeel.losses import CrossEntropy, Loss
from gradpeel.target import Target, split
from gradpeel.update import Update

__all__ = ["path", "sensitivities", "strongest"]

_POINTS = 6
"""Points of the way at which a training is looked at, both ends included."""

_MOST_LABELS = 10


def path(model: nn.Module, target: Target, update: Update) -> list[Target]:
    """The target as the client received it and, after local training, along the way to its end.

    The way itself is unknown; the straight line stands for it. The last one is what was returned.
    """
    training = update.training
    if training is None or training.is_one_step:
        return [target]
    kept, lr = training.kept or 1.0, training.lr or 1.0
    found = [target]
    for step in range(1, _POINTS):
        share = step / (_POINTS - 1)
        there = copy.deepcopy(model)
        with torch.no_grad():
            for name, parameter in there.named_parameters():
                if name in update.gradients:
                    parameter.mul_(1 - share * (1 - kept))
                    parameter.sub_(update.gradients[name].to(parameter), alpha=share * lr)
        found.append(split(there, layer=target.layer, share=True))
    return found


def sensitivities(
    targets: Sequence[Target], rows: Tensor, labels: Tensor | None, loss: Loss | None
) -> Iterator[Tensor]:
    """The least gradient of one record's loss by the target's pre-activations, anywhere on the way.

    Args:
        targets: the target, along the way of a training.
        rows: (n, features) what enters the target.
        labels: (n,) labels, or (n, outputs) targets, if they are known.
        loss: what the client minimises, if it is known.

    Yields:
        (n, neurons) float64, one for every label that a record might have, the expected one first.
        Where the tail, the loss or its targets are unknown: 1 where the record fires.
    """
    for guess in range(1 if labels is not None else _labels(targets[0], rows, loss)):
        found = [_at(target, rows, labels, loss, guess) for target in targets]
        sizes = torch.stack([c.norm(dim=1) for c in found])
        yield torch.stack(found)[sizes.argmin(0), torch.arange(len(rows))]


def strongest(target: Target, rows: Tensor, loss: Loss | None) -> float:
    """The largest sensitivity of any of the records, with the label that the network least expects.

    It gives the scale of an update, which clipping and learning rates change.
    """
    return float(_at(target, rows, None, loss, -1).norm(dim=1).max())


def _labels(target: Target, rows: Tensor, loss: Loss | None) -> int:
    """How many labels to try: all, unless there are many, and then the most likely ones."""
    if not isinstance(loss, CrossEntropy) or target.tail.unknown is not None:
        return 1
    outputs: Tensor = target.tail(target.pre_activations(rows[:1]).relu())
    return min(_MOST_LABELS, outputs.shape[1])


def _at(
    target: Target, rows: Tensor, labels: Tensor | None, loss: Loss | None, guess: int
) -> Tensor:
    z = target.pre_activations(rows)
    if loss is None or target.tail.unknown is not None:
        return (z > 0).double()
    if labels is None and not isinstance(loss, CrossEntropy):
        return (z > 0).double()
    with torch.enable_grad():
        z.requires_grad_()
        outputs = target.tail(z.relu())
        y = outputs.argsort(1, descending=True)[:, guess] if labels is None else labels
        loss.check(outputs, y)
        found: Tensor = torch.autograd.grad(loss.total(outputs, y), z)[0]
    return found.double()
