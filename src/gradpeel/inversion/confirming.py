"""The front's own gradients as a check of reconstructions.

The update holds the gradients of the front's layers too, summed over the batch. Where the whole
batch is recovered, its reconstructions must reproduce them; these are equations that no
reconstruction was fitted to. As equations to solve they are of little use: they jump wherever a
maximum moves from one pixel to its neighbour.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from gradpeel.decoder import Recovery
from gradpeel.gradients import batch_gradients
from gradpeel.inputs import cast_inputs
from gradpeel.losses import CrossEntropy, Loss
from gradpeel.target import FeatureFront
from gradpeel.update import Update, norm

__all__ = ["gradient_mismatch"]


def gradient_mismatch(
    model: nn.Module,
    front: FeatureFront,
    recovery: Recovery,
    inputs: Tensor,
    *,
    update: Update,
    loss: Loss,
) -> float | None:
    """Relative distance between the front's gradients in an update and those of inputs.

    None where that says nothing: the batch is not recovered completely, labels are unknown, or the
    update is not one gradient of one client, or does not hold the gradients of the front.
    """
    names = [name for name in front.trained if name in update.gradients]
    is_one_gradient = update.training is None and update.clients == 1
    if not (recovery.complete and is_one_gradient and names and isinstance(loss, CrossEntropy)):
        return None
    labels = [
        (place, label, copies)
        for place, counts in enumerate(recovery.label_counts)
        for label, copies in counts.items()
    ]
    if sum(copies for *_, copies in labels) != recovery.batch_size.value:
        return None
    places, named, copies = (torch.tensor(column) for column in zip(*labels, strict=True))
    places, y = places.repeat_interleave(copies), named.repeat_interleave(copies)
    own = copy.deepcopy(model).cpu().to(update.dtype)
    x = cast_inputs(own, inputs[places], update.dtype)
    found = batch_gradients(own, x, y, loss, update.reduction)
    given = {name: update.gradients[name].cpu() for name in names}
    return norm({name: found[name] - given[name] for name in names}) / norm(given)
