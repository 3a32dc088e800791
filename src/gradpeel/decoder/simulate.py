"""From samples to gradients: what the client computed behind the target, as far as it is known.

The server owns the network, so for a sample with a label it can compute what the client computed:
the loss gradient at the next layer and at every neuron (paper, section "Label Recovery"). Any
differentiable tail is supported; a two-layer network is not a special case. Copies of one sample,
with one label or several, add up to one gradient, so labels are counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property

import torch
from torch import Tensor
from torch.nn import functional

from gradpeel.decoder.linalg import batches
from gradpeel.losses import CrossEntropy
from gradpeel.target import Tail, pull, push

__all__ = ["Backward", "Simulated"]

_ENTRIES = 2**22
"""Numbers processed at once where every sample is combined with every label."""


@dataclass(frozen=True, eq=False)
class Simulated:
    """Loss gradients of samples, weighted as in the batch loss.

    Attributes:
        v: (n, next width) at the next layer's output; no columns where there is no next layer.
        c: (n, neurons) at the target's activations, not yet masked by the ReLU; no columns after a
            `glance` that ends at the next layer.
        response: (n,) relative change of the loss gradient when the pre-activations are off by one
            unit of relative error.
        gradient: (n, classes) the loss gradient at the logits, of one sample that weighs 1.
        counts: (n, classes) copies of the sample with each label.
    """

    v: Tensor
    c: Tensor
    response: Tensor
    gradient: Tensor
    counts: Tensor

    def pick(self, mask: Tensor) -> Simulated:
        """Some of the samples."""
        return Simulated(*(getattr(self, field.name)[mask] for field in fields(self)))

    @classmethod
    def joined(cls, parts: Sequence[Simulated]) -> Simulated:
        """The samples of all parts, in their order."""
        return cls(*(torch.cat([getattr(p, field.name) for p in parts]) for field in fields(cls)))

    @property
    def margin(self) -> Tensor:
        """(n,) size of the gradient at the logits, 1 for a sample that is classified wrongly."""
        return self.gradient.abs().amax(1)


@dataclass(frozen=True, eq=False)
class Backward:
    """The client's backward pass behind the target.

    Attributes:
        tail: the network behind the target, in float64.
        loss: what the client minimised.
        share: weight of one sample's loss in the update.
        share_error: its relative error.
        share_from: the neuron whose candidate alone determines the share, if there is no other.
        unit_error: (neurons,) one unit of relative error of the pre-activations, with random signs;
            along it the response of the loss gradient to errors is measured.
        classes: number of classes.
    """

    tail: Tail
    loss: CrossEntropy
    share: float
    share_error: float
    share_from: int | None
    unit_error: Tensor
    classes: int

    def error(self, simulated: Simulated, sample_error: Tensor, resolution: float) -> Tensor:
        """(n,) relative error of `v` and `c` for samples known up to `sample_error`.

        The client's own p - 1 is rounded at 1 however small it is.
        """
        rounding = resolution * (1.0 + 1.0 / simulated.margin)
        return simulated.response * sample_error + rounding + self.share_error

    def simulate(self, activations: Tensor, counts: Tensor) -> Simulated:
        """Backpropagate the loss of each sample to the target.

        Args:
            activations: (n, neurons) after the ReLU.
            counts: (n, classes) copies of the sample with each label.
        """
        return self.finish(self._simulate(self._enter(activations), activations > 0, counts))

    def glance(self, activations: Tensor, neurons: Tensor, bias: Tensor) -> Simulated:
        """Fit a label to each sample and simulate it as far as the next layer's output: no `c`.

        Args:
            activations: (n, neurons) after the ReLU.
            neurons: (n,) the neuron each was read from.
            bias: (neurons,) the residual bias.
        """
        entered = self._enter(activations)
        entries = self.share * self._bias_entries(entered, neurons)
        counts = self._closest(entries, bias[neurons])
        return self._simulate(entered, activations > 0, counts)

    def finish(self, glanced: Simulated) -> Simulated:
        """Simulate the rest of the way to the target."""
        layer = self.tail.next_layer
        return glanced if layer is None else replace(glanced, c=glanced.v @ layer.weight)

    def _simulate(self, entered: Tensor, fires: Tensor, counts: Tensor) -> Simulated:
        layer = self.tail.next_layer
        moves = fires * self.unit_error
        if layer is not None:
            moves = moves @ layer.weight.T
        logits, wobble = self._push(entered, moves)
        wanted = counts @ self.targets
        p = torch.softmax(logits, 1)
        mass = wanted.sum(1, keepdim=True)
        change = mass * p * (wobble - (p * wobble).sum(1, keepdim=True))
        gradient = _loss_gradient(p, wanted)
        pulled = self._pull(entered, gradient * self.share)
        response = change.abs().amax(1) / gradient.abs().amax(1)
        v, c = (pulled[:, :0], pulled) if layer is None else (pulled, pulled[:, :0])
        return Simulated(v, c, response, gradient / mass, counts)

    def bias_entries(self, activations: Tensor, neurons: Tensor) -> Tensor:
        """(n, classes) the bias entry at each sample's own neuron for every label at once.

        One forward-mode pass along each sample's own neuron predicts them all (paper, eq.
        labelfit); for a share of 1.
        """
        return self._bias_entries(self._enter(activations), neurons)

    def _bias_entries(self, entered: Tensor, neurons: Tensor) -> Tensor:
        layer = self.tail.next_layer
        if layer is None:
            own = functional.one_hot(neurons, entered.shape[1]).to(entered.dtype)
        else:
            own = layer.weight.T[neurons]
        logits, along = self._push(entered, own)
        targets = self.targets
        p = torch.softmax(logits, 1)
        entries: Tensor = (p * along).sum(1, keepdim=True) * targets.sum(1) - along @ targets.T
        return entries

    def _closest(self, entries: Tensor, observed: Tensor) -> Tensor:
        labels = (entries - observed[:, None]).abs().argmin(1)
        return functional.one_hot(labels, self.classes).to(entries.dtype)

    def one_of_each(self, activations: Tensor) -> Tensor:
        """(n, classes, next width) v of samples, (n, neurons), with every label in turn.

        For at most `at_once` samples, because the result is large.
        """
        entered = self._enter(activations)
        p = torch.softmax(self.tail.rest(entered), 1).repeat_interleave(self.classes, 0)
        return self.share * self._pull_each(
            entered, _loss_gradient(p, _tile(self.targets, entered))
        )

    def at_logits(self, activations: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """(n, classes) softmax, and gradient at the logits for a share of 1.

        Args:
            activations: (n, neurons) after the ReLU.
            v: (n, next width) gradient at the next layer's output.
        """
        entered = self._enter(activations)
        p = torch.softmax(self.tail.rest(entered), 1)
        gradient = v / self.share
        if self.tail.next_layer is None or self.ends_at_next_layer:
            return p, gradient
        every = torch.eye(self.classes, dtype=p.dtype, device=p.device)
        back = [
            _solve(self._pull_each(entered[some], _tile(every, entered[some])), gradient[some])
            for some in batches(len(v), self.at_once)
        ]
        return p, torch.cat([p[:0], *back])

    @property
    def at_once(self) -> int:
        """How many samples to take together where each is repeated for all classes."""
        layer = self.tail.next_layer
        width = len(self.unit_error) if layer is None else layer.out_features
        return max(1, _ENTRIES // (self.classes * width))

    @cached_property
    def ends_at_next_layer(self) -> bool:
        """Whether the next layer is the last."""
        return ends_at_next_layer(self.tail, self.classes)

    @cached_property
    def largest_response(self) -> float | None:
        """A bound on `Simulated.response`, where each sample has one label at the next layer.

        There the loss gradient of a sample is negative at its label and nowhere else, and a change
        of the logits by at most r changes it by at most 2 r of its size.
        """
        layer = self.tail.next_layer
        if layer is None or self.loss.label_smoothing or not self.ends_at_next_layer:
            return None
        return 2.0 * float((layer.weight.abs() @ self.unit_error.abs()).max())

    @cached_property
    def targets(self) -> Tensor:
        """(classes, classes) the target of the loss for each label."""
        return self.loss.targets(self.classes).to(self.unit_error)

    @cached_property
    def weights(self) -> Tensor:
        """(classes,) what a sample with each label adds to the denominator of a mean."""
        return self.unit_error.new_tensor(self.loss.class_weights or [1.0] * self.classes)

    def _enter(self, activations: Tensor) -> Tensor:
        """(n, next width) output of the next layer; the activations where there is none."""
        layer = self.tail.next_layer
        return activations if layer is None else layer(activations)

    def _push(self, entered: Tensor, tangents: Tensor) -> tuple[Tensor, Tensor]:
        """The logits, and how they change along tangents."""
        if self.ends_at_next_layer:
            return entered, tangents
        if not len(entered):  # some tails do not take an empty batch
            nobody = entered.new_zeros(0, self.classes)
            return nobody, nobody
        return push(self.tail.rest, entered, tangents)

    def _pull(self, entered: Tensor, cotangents: Tensor) -> Tensor:
        """Gradients where the samples entered, from those at the logits."""
        if self.ends_at_next_layer or not len(entered):
            return cotangents if self.ends_at_next_layer else entered
        return pull(self.tail.rest, entered, cotangents)

    def _pull_each(self, entered: Tensor, cotangents: Tensor) -> Tensor:
        """(n, m, next width) m cotangents (n m, classes) for each of n rows, in one pass."""
        each = len(cotangents) // max(len(entered), 1)
        repeated = entered.repeat_interleave(each, 0)
        pulled = self._pull(repeated, cotangents)
        return pulled.view(len(entered), each, entered.shape[1])


def ends_at_next_layer(tail: Tail, classes: int) -> bool:
    """Whether the layer after the target is the last, and its outputs are the logits."""
    layer = tail.next_layer
    if layer is None or layer.out_features != classes:
        return False
    # Clamping or saturating is not the identity: test numbers of all sizes.
    sizes = torch.logspace(-30, 30, 61, dtype=torch.float64, device="cpu")
    row = torch.linspace(-1.0, 1.0, classes, dtype=torch.float64, device="cpu")
    probe = (sizes[:, None] * row).to(layer.weight)
    return torch.equal(tail.rest(probe), probe)


def _tile(rows: Tensor, samples: Tensor) -> Tensor:
    """All rows once for every sample."""
    return rows.repeat(len(samples), 1)


def _solve(jacobians: Tensor, gradients: Tensor) -> Tensor:
    """(n, classes) what each Jacobian (n, classes, width), transposed, maps to a gradient."""
    # Classes that the network confounds make it singular: take the shortest solution.
    inverse: Tensor = torch.linalg.pinv(jacobians.mT)
    return (inverse @ gradients[:, :, None])[:, :, 0]


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
