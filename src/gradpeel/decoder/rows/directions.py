"""Directions that the loss gradient of an unknown sample may have at the next layer."""

from __future__ import annotations

import torch
from torch import Tensor

from gradpeel.decoder.limits import LIMITS
from gradpeel.decoder.linalg import batches
from gradpeel.decoder.residual import Residual
from gradpeel.decoder.simulate import Backward

__all__ = ["directions"]


def directions(
    activations: Tensor, residual: Residual, *, width: int, backward: Backward | None
) -> Tensor:
    """For samples that resemble some mixtures, one direction for every label there may be.

    Args:
        activations: (n, neurons) of the mixtures.
        residual: what is left of the update.
        width: of the next layer, 0 where there is none.
        backward: the client's backward pass, where it can be simulated.

    Returns:
        (n, labels, width).
    """
    if not width:
        return activations.new_zeros(len(activations), 0, 0)
    labels = _present(residual, width, backward)
    # Up to a common term, the gradient of a softmax is minus the unit vector of the label.
    every = torch.eye(width, dtype=activations.dtype, device=activations.device)[labels]
    plain = (1.0 / width - every).expand(len(activations), -1, -1)
    if backward is None:
        return plain
    # A mixture may be of any size; samples are not.
    size = activations.square().mean(1, keepdim=True).sqrt()
    usual = activations * (residual.spread / size.clamp(min=torch.finfo(size.dtype).tiny))
    found = torch.cat(
        [backward.one_of_each(usual[some]) for some in batches(len(usual), backward.at_once)]
    )
    return torch.cat([plain, found[:, labels]], 1) if backward.ends_at_next_layer else found


def _present(residual: Residual, width: int, backward: Backward | None) -> Tensor:
    """Indices of labels that some unknown sample may have.

    Before a softmax the gradient of a label that nobody has is positive at every neuron.
    """
    everybody = torch.arange(width, device=residual.bias.device)
    if backward is None or not (backward.ends_at_next_layer and residual.has_next):
        return everybody
    error = LIMITS.nothing * residual.next_error[:, None]
    present = everybody[(residual.next_rows < -error).any(0)]
    return present if len(present) else everybody
