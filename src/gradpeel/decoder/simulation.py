"""Simulate samples behind the target: forward, backward, and how errors pass through.

The server owns the network, so for a sample with a label it can compute what the client computed:
the loss gradient at the next layer and at every neuron (paper, section "Label Recovery"). Any
differentiable tail will do; a two-layer network is no special case.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gradpeel.target import Tail

__all__ = ["Probe", "Simulated", "loss_gradient", "simulate"]


@dataclass(frozen=True, eq=False)
class Probe:
    """What simulating a sample needs beside the network.

    Attributes:
        share: weight of one sample in the batch loss.
        unit_error: (neurons,) one unit of relative error of the pre-activations, with random signs;
            along it the response of the loss gradient to errors is measured.
    """

    share: float
    unit_error: Tensor


@dataclass(frozen=True, eq=False)
class Simulated:
    """Loss gradients of samples, weighted as in the batch loss.

    Attributes:
        v: (n, next width) at the next layer's output; no columns where there is no next layer.
        c: (n, neurons) at the target's activations, not yet masked by the ReLU.
        response: (n,) relative change of the loss gradient when the pre-activations are off by one
            unit of relative error.
        margin: (n,) size of the loss gradient at the logits, 1 for a sample that is plainly wrong.
        classes: number of classes.
    """

    v: Tensor
    c: Tensor
    response: Tensor
    margin: Tensor
    classes: int

    def error(self, sample_error: Tensor, resolution: float) -> Tensor:
        """(n,) relative error of `v` and `c` for samples known up to `sample_error`.

        The client's own p - 1 is rounded at 1 however small it is.
        """
        return self.response * sample_error + resolution * (1.0 + 1.0 / self.margin)


def simulate(tail: Tail, activations: Tensor, labels: Tensor, probe: Probe) -> Simulated:
    """Backpropagate the cross-entropy of each sample to the target.

    Args:
        tail: the network behind the target, in float64 and evaluation mode.
        activations: (n, neurons) after the ReLU.
        labels: (n,).
        probe: the samples' weight in the loss, and how errors are probed.
    """
    moves = (activations > 0) * probe.unit_error
    logits, wobble = torch.func.jvp(tail, (activations,), (moves,))[:2]
    p = torch.softmax(logits, 1)
    change = p * (wobble - (p * wobble).sum(1, keepdim=True))
    gradient = loss_gradient(logits, labels)
    margin = gradient.abs().amax(1)
    v, c = _pull_back(tail, activations, gradient * probe.share)
    return Simulated(v, c, change.abs().amax(1) / margin, margin, logits.shape[1])


def loss_gradient(logits: Tensor, labels: Tensor) -> Tensor:
    """The cross-entropy's gradient at the logits, p - e_y, (n, classes).

    1 - p_y is summed from the other classes, so that it keeps its digits.
    """
    others = torch.softmax(logits, 1).scatter(1, labels[:, None], 0.0)
    return others.scatter(1, labels[:, None], -others.sum(1, keepdim=True))


def _pull_back(tail: Tail, activations: Tensor, cotangent: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients at the next layer's output and at the activations, from those at the logits."""
    if tail.next_layer is None:
        pull = torch.func.vjp(tail, activations)[1]
        return cotangent[:, :0], pull(cotangent)[0]
    pull = torch.func.vjp(tail.rest, tail.next_layer(activations))[1]
    v = pull(cotangent)[0]
    return v, v @ tail.next_layer.weight
