"""From samples to gradients: what the client computed behind the target, as far as it can be known.

The server owns the network, so for a sample with a label it can compute what the client computed:
the loss gradient at the next layer and at every neuron (paper, section "Label Recovery"). Any
differentiable tail will do; a two-layer network is no special case. Copies of one sample, with one
label or several, add up to one gradient, so labels are counts.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from gradpeel.losses import CrossEntropy
from gradpeel.target import Tail

__all__ = ["Backward", "Simulated"]


@dataclass(frozen=True, eq=False)
class Simulated:
    """Loss gradients of samples, weighted as in the batch loss.

    Attributes:
        v: (n, next width) at the next layer's output; no columns where there is no next layer.
        c: (n, neurons) at the target's activations, not yet masked by the ReLU.
        response: (n,) relative change of the loss gradient when the pre-activations are off by one
            unit of relative error.
        gradient: (n, classes) the loss gradient at the logits, of one sample that weighs 1.
    """

    v: Tensor
    c: Tensor
    response: Tensor
    gradient: Tensor

    @property
    def margin(self) -> Tensor:
        """(n,) size of the gradient at the logits, 1 for a sample that is plainly wrong."""
        return self.gradient.abs().amax(1)

    def error(self, sample_error: Tensor, resolution: float) -> Tensor:
        """(n,) relative error of `v` and `c` for samples known up to `sample_error`.

        The client's own p - 1 is rounded at 1 however small it is.
        """
        return self.response * sample_error + resolution * (1.0 + 1.0 / self.margin)


@dataclass(frozen=True, eq=False)
class Backward:
    """The client's backward pass behind the target.

    Attributes:
        tail: the network behind the target, in float64.
        loss: what the client minimised.
        share: weight of one sample's loss in the batch loss.
        unit_error: (neurons,) one unit of relative error of the pre-activations, with random signs;
            along it the response of the loss gradient to errors is measured.
        classes: number of classes.
    """

    tail: Tail
    loss: CrossEntropy
    share: float
    unit_error: Tensor
    classes: int

    def simulate(self, activations: Tensor, counts: Tensor) -> Simulated:
        """Backpropagate the loss of each sample to the target.

        Args:
            activations: (n, neurons) after the ReLU.
            counts: (n, classes) copies of the sample with each label.
        """
        moves = (activations > 0) * self.unit_error
        logits, wobble = torch.func.jvp(self.tail, (activations,), (moves,))[:2]
        wanted = counts @ self.loss.targets(self.classes)
        p = torch.softmax(logits, 1)
        mass = wanted.sum(1, keepdim=True)
        change = mass * p * (wobble - (p * wobble).sum(1, keepdim=True))
        gradient = _loss_gradient(p, wanted)
        v, c = self._pull_back(activations, gradient * self.share)
        response = change.abs().amax(1) / gradient.abs().amax(1)
        return Simulated(v, c, response, gradient / mass)

    def fit_labels(self, activations: Tensor, neurons: Tensor, bias: Tensor) -> Tensor:
        """(n, classes) one label for each sample, the one that predicts its bias entry best.

        Args:
            activations: (n, neurons) after the ReLU.
            neurons: (n,) the neuron each was read from.
            bias: (neurons,) the residual bias.
        """
        entries = self.share * self.bias_entries(activations, neurons)
        labels = (entries - bias[neurons, None]).abs().argmin(1)
        return functional.one_hot(labels, self.classes).to(activations.dtype)

    def bias_entries(self, activations: Tensor, neurons: Tensor) -> Tensor:
        """(n, classes) the bias entry at each sample's own neuron for every label at once.

        One forward-mode pass along each sample's own neuron predicts them all (paper, eq.
        labelfit); for a share of 1.
        """
        own = torch.zeros_like(activations)
        own[torch.arange(len(neurons)), neurons] = 1.0
        logits, along = torch.func.jvp(self.tail, (activations,), (own,))[:2]
        targets = self.loss.targets(self.classes)
        p = torch.softmax(logits, 1)
        entries: Tensor = (p * along).sum(1, keepdim=True) * targets.sum(1) - along @ targets.T
        return entries

    def one_of_each(self, activations: Tensor) -> Tensor:
        """(classes, next width) v of one sample, (neurons,), with every label in turn."""
        repeated = activations.repeat(self.classes, 1)
        return self.simulate(repeated, torch.eye(self.classes, dtype=activations.dtype)).v

    def at_logits(self, activations: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """(n, classes) softmax, and gradient at the logits for a share of 1.

        Args:
            activations: (n, neurons) after the ReLU.
            v: (n, next width) gradient at the next layer's output.
        """
        p = torch.softmax(self.tail(activations), 1)
        gradient = v / self.share
        layer = self.tail.next_layer
        if layer is None or self.ends_at_next_layer:
            return p, gradient
        back = torch.zeros_like(p)
        every = torch.eye(self.classes, dtype=p.dtype)
        for i in range(len(v)):
            entered = layer(activations[i]).repeat(self.classes, 1)
            jacobian = torch.func.vjp(self.tail.rest, entered)[1](every)[0]
            solved = torch.linalg.lstsq(jacobian.T, gradient[i, :, None], driver="gelsd")
            back[i] = solved.solution[:, 0]
        return p, back

    @property
    def ends_at_next_layer(self) -> bool:
        """Whether the next layer is the last."""
        probe = torch.linspace(-1.0, 1.0, self.classes, dtype=torch.float64)[None]
        layer = self.tail.next_layer
        return (
            layer is not None
            and layer.out_features == self.classes
            and torch.equal(self.tail.rest(probe), probe)
        )

    def _pull_back(self, activations: Tensor, cotangent: Tensor) -> tuple[Tensor, Tensor]:
        """Gradients at the next layer's output and at the activations, from those at the logits."""
        tail = self.tail
        if tail.next_layer is None:
            pull = torch.func.vjp(tail, activations)[1]
            return cotangent[:, :0], pull(cotangent)[0]
        pull = torch.func.vjp(tail.rest, tail.next_layer(activations))[1]
        v = pull(cotangent)[0]
        return v, v @ tail.next_layer.weight


def _loss_gradient(p: Tensor, wanted: Tensor) -> Tensor:
    """The loss gradient at the logits, mass p - wanted, (n, classes).

    At the most wanted class it is summed from the others, so that 1 - p keeps its digits.
    """
    top = wanted.argmax(1, keepdim=True)
    mass = wanted.sum(1, keepdim=True)
    others = p.scatter(1, top, 0.0)
    gradient = mass * others - wanted.scatter(1, top, 0.0)
    return gradient.scatter(
        1, top, mass - wanted.gather(1, top) - mass * others.sum(1, keepdim=True)
    )
