"""Split a network at a Linear -> ReLU into front, target and tail.

The target is the layer whose gradient is read (paper, section "Architectural Assumptions"); the
front leads from the input to it, the tail from its activations to the logits. By default it is the
first such layer of the network, wherever it stands, whose tail is understood. What stands before it
may be anything: where that can be undone, samples come back in input space, and otherwise features,
the inputs of the target (`gradpeel.target.features`).

Any module that torch.fx can trace is split as it is, in the mode it is in; one that cannot be
handled is refused with every reason at once. The tail may be one that cannot be simulated (active
dropout, batch norm in training mode) or be missing altogether: `Tail.unknown` says so.

Example:
    >>> import torch
    >>> model = nn.Sequential(nn.Flatten(), nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 3))
    >>> target, x = split(model), torch.rand(5, 3, 2, 2)
    >>> torch.allclose(target.tail(target.pre_activations(target.front(x)).relu()), model(x))
    True
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor, fx, nn
from torch.nn import functional

from gradpeel.checks import check_layer, check_module
from gradpeel.errors import InputError, ModelError, ModelRefusedError, UnsupportedModelError
from gradpeel.inputs import NetworkInput
from gradpeel.target.features import FeatureFront
from gradpeel.target.forward_pass import ForwardPass, is_linear
from gradpeel.target.front import Front
from gradpeel.target.front_reading import read_front
from gradpeel.target.gates import Fold, Gate, read_gate
from gradpeel.target.refusals import (
    is_followed_by_firing,
    reason_without_linear,
    reasons_at_target,
    reasons_hooked,
    reasons_in_modules,
    reasons_in_steps,
    reasons_not_finite,
    reasons_unreadable,
)
from gradpeel.target.tail import (
    Tail,
    UnknownTailError,
    read_next_layer,
    read_raised_tail,
    read_tail,
)
from gradpeel.target.tracing import UnseenModelError, trace
from gradpeel.target.trials import (
    reasons_not_reproduced,
    reasons_not_reproduced_on,
    try_tail,
)
from gradpeel.target.unseen import check_followed_by_relu, see_layer
from gradpeel.target.unsteady import unsteady

if TYPE_CHECKING:
    from gradpeel.update import Update

__all__ = ["Target", "split", "with_first_layer"]


@dataclass(frozen=True, eq=False, repr=False)
class Target:
    """The attacked layer, N neurons on F features, with what stands before and after it.

    Attributes:
        weight: (neurons, features), detached; a copy, unless it was asked to be shared.
        bias: (neurons,), the same; float64 where it holds the threshold of an activation.
        weight_name: name of the weight among the model's parameters.
        bias_name: name of the bias.
        front: rows = front(x), (n, features); x = front.invert(rows, sample_shape) where its
            `space` is "input", and the rows themselves where it is "features".
        tail: logits = tail(activations).
        fold: by how much something between the layer and its ReLU scales the layer's parameters;
            `weight` and `bias` are those that the ReLU sees. None if nothing does.
    """

    weight: Tensor
    bias: Tensor
    weight_name: str
    bias_name: str
    front: Front | FeatureFront
    tail: Tail
    fold: Fold | None = None

    @property
    def layer(self) -> str:
        """Name of the layer in the model, such as "classifier.0"."""
        return self.weight_name.rpartition(".")[0]

    @property
    def neurons(self) -> int:
        """Number N of neurons."""
        return self.weight.shape[0]

    @property
    def features(self) -> int:
        """Number F of features that enter each neuron."""
        return self.weight.shape[1]

    def rows(self, x: NetworkInput) -> Tensor:
        """Map a batch, (n, *sample_shape), to what enters the target, (n, features)."""
        return self.front(x.to(self.weight.device))

    def pre_activations(self, rows: Tensor) -> Tensor:
        """Map rows, (n, features), to what enters the ReLU, (n, neurons)."""
        if self.bias.dtype != self.weight.dtype:  # a threshold would drown what is small
            return functional.linear(rows.to(self.weight), self.weight) + self.bias
        return functional.linear(rows.to(self.weight), self.weight, self.bias)

    def logits(self, x: NetworkInput) -> Tensor:
        """Map a batch, (n, *sample_shape), to the output of the model, (n, classes).

        Where `tail.unknown` says so, the output differs each time, or depends on the batch.
        """
        return self._behind(self.rows(x))

    def check_on(self, x: NetworkInput) -> None:
        """Make sure that the parts make up the network on a batch, where `split` could not try it.

        Raises:
            ModelRefusedError: they do not, because of a hook or an overwritten value; or the
                forward pass is not known and ReLU does not follow the target.
        """
        if not isinstance(self.front, FeatureFront):
            return
        if self.tail.unknown == self.front.obstacle:
            check_followed_by_relu(self.front, x)
        elif self.tail.unknown is None:
            reasons = reasons_not_reproduced_on(x, self.front, self._behind)
            if reasons:
                raise ModelRefusedError(reasons)

    def seen_from_relu(self, update: Update) -> Update:
        """The update with the gradients that the weight and the bias of this target would have.

        They differ from those of the model's parameters where something scales between the layer
        and its ReLU.
        """
        if self.fold is None:
            return update
        factors = {self.weight_name: self.fold.weight[:, None], self.bias_name: self.fold.bias}
        scaled = {
            name: (update.gradients[name].double() / factor.to(update.gradients[name].device)).to(
                update.dtype
            )
            for name, factor in factors.items()
        }
        return replace(update, gradients={**update.gradients, **scaled})

    def _behind(self, rows: Tensor) -> Tensor:
        outputs: Tensor = self.tail(self.pre_activations(rows).relu())
        return outputs

    def for_decoding(self, device: torch.device) -> Target:
        """Return a copy on a device that computes in float64, except for the weight.

        The weight is large and is converted in blocks where it is needed; see
        `gradpeel.decoder.linalg`.
        """
        # Moved first: where it comes from there may be no float64.
        return replace(
            self,
            weight=self.weight.to(device),
            bias=self.bias.to(device).double(),
            front=self.front.to(torch.float64),
            tail=copy.deepcopy(self.tail).to(device).double(),
            fold=None if self.fold is None else self.fold.to(device),
        )

    def to(self, dtype: torch.dtype) -> Target:
        """Return a copy of everything in `dtype`."""
        return replace(
            self,
            weight=self.weight.to(dtype),
            bias=self.bias.to(dtype),
            front=self.front.to(dtype),
            tail=copy.deepcopy(self.tail).to(dtype),
        )

    def __repr__(self) -> str:
        layer = self.tail.next_layer
        after = "no next layer" if layer is None else f"next layer {layer.out_features} wide"
        return f"Target({self.neurons} neurons on {self.features} features, {after})"


def split(model: nn.Module, *, layer: str | None = None, share: bool = False) -> Target:
    """Split a network at its first Linear -> ReLU that can be read, or at one of your choice.

    Args:
        model: any module that torch.fx can trace; it is not changed. Parts of it that cannot be
            traced are kept whole.
        layer: name of the Linear to split at, such as "classifier.0"; by default the first one that
            can be read. A model that cannot be traced is split at a named layer without its tail.
        share: use the model's own parameters instead of copies, to save memory; later changes of
            them then affect the target too.

    Returns:
        The target with its front and tail, in the model's dtype; copies, unless they `share`.

    Raises:
        InputError: `model` is not a module, or it has no Linear of the given name.
        ModelRefusedError: the network cannot be handled; `reasons` lists every reason, each one
            as "this attack does not apply", "not supported yet" or "change this setting".

    Example:
        >>> split(nn.Sequential(nn.Linear(30, 100), nn.ReLU(), nn.Linear(100, 2)))
        Target(100 neurons on 30 features, next layer 2 wide)
        >>> cnn = nn.Sequential(
        ...     nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(),
        ...     nn.Linear(144, 50), nn.ReLU(), nn.Linear(50, 20), nn.ReLU(), nn.Linear(20, 3),
        ... )
        >>> split(cnn).layer, split(cnn).front.space, split(cnn, layer="5").features
        ('3', 'features', 50)
        >>> split(nn.Sequential(nn.Linear(30, 100), nn.ReLU(), nn.Dropout())).tail.unknown
        "Dropout '2' is active"
        >>> split(nn.Sequential(nn.Linear(30, 100), nn.Tanh(), nn.Linear(100, 2)))
        Traceback (most recent call last):
        gradpeel.errors.ModelRefusedError: the model cannot be audited: [this attack does not apply]
        Linear '0' is followed by Tanh '1', not by ReLU: every neuron fires on every sample, ...
    """
    check_module(model)
    check_layer(model, layer)
    reasons = reasons_in_modules(model)
    if unreadable := reasons_unreadable(model):
        raise ModelRefusedError([*reasons, *unreadable])
    try:
        steps = trace(model, share=share)
    except UnseenModelError as reason:
        if layer is None or reasons:
            raise ModelRefusedError([*reasons, reason]) from reason
        return _without_tail(*see_layer(model, layer, reason.what, share=share))
    except ModelError as reason:
        raise ModelRefusedError([*reasons, reason]) from reason
    reasons += reasons_in_steps(steps) + reasons_not_finite(steps)
    candidates = _candidates(steps, layer)
    if not candidates:
        why = reason_without_linear(steps, layer)
        if layer is None or reasons or not steps.is_inside(layer):
            raise ModelRefusedError([*reasons, why])
        return _without_tail(*see_layer(model, layer, str(why), share=share))
    steps.module.requires_grad_(requires_grad=False)
    return _split_at_first(steps, candidates, reasons)


def _split_at_first(
    steps: ForwardPass, candidates: list[tuple[fx.Node, nn.Linear]], reasons: list[ModelError]
) -> Target:
    """Split at the first Linear whose tail is understood, or else at the first that can be read.

    Args:
        steps: the network.
        candidates: Linears, in the order they run.
        reasons: what is wrong with the network already.

    Raises:
        ModelRefusedError: no Linear can be read; lists every reason.
    """
    refused: dict[str, ModelError] = {}
    without_tail: list[tuple[fx.Node, nn.Linear, str]] = []
    for node, linear in candidates:
        found = reasons_at_target(steps, node, linear)
        if not reasons and not found:
            try:
                return _split_at(steps, node, linear)
            except ModelError as reason:
                found = [reason]
        what = [reason.what for reason in found if isinstance(reason, UnknownTailError)]
        if not reasons and len(what) == len(found):
            without_tail.append((node, linear, what[0]))
        refused |= {str(reason): reason for reason in found}
    if without_tail:
        return _split_without_tail(steps, *without_tail[0])
    raise ModelRefusedError([*reasons, *refused.values()])


def _without_tail(linear: nn.Linear, front: FeatureFront) -> Target:
    """Split a network whose forward pass is not known."""
    names = {id(p): name for name, p in front.model.named_parameters()}
    return Target(
        weight=linear.weight.detach(),
        bias=linear.bias.detach(),
        weight_name=names[id(linear.weight)],
        bias_name=names[id(linear.bias)],
        front=front,
        tail=Tail(nn.Identity(), unknown=front.obstacle),
    )


def _candidates(steps: ForwardPass, layer: str | None) -> list[tuple[fx.Node, nn.Linear]]:
    """All Linears that ReLU follows, or that of a name.

    Where there is none: the first Linear, and the first that an activation such as GELU follows,
    whose reasons say most.
    """
    linears = [
        (node, linear)
        for node in steps.live
        if is_linear(linear := steps.layer(node))
        and node in steps.varying
        and steps.consumers(node)
    ]
    if layer is not None:
        named = steps.root.get_submodule(layer)
        return [found for found in linears if found[1] is named][:1]
    followed = [found for found in linears if _is_followed(steps, found[0])]
    firing = [found for found in linears if is_followed_by_firing(steps, found[0])]
    return followed or list(dict.fromkeys([*linears[:1], *firing[:1]]))


def _is_followed(steps: ForwardPass, node: fx.Node) -> bool:
    """Whether ReLU, or another activation that is silent below a threshold, follows a Linear."""
    by_relu = any(map(steps.is_relu, steps.consumers(node)))
    return by_relu or read_gate(steps, node) is not None


def _split_at(steps: ForwardPass, node: fx.Node, linear: nn.Linear) -> Target:
    """Split a network at a Linear that has no fault of its own.

    Raises:
        ModelError: the network behind it cannot be handled.
        ModelRefusedError: the recorded steps are not what the network does.
    """
    gate = _gate(steps, node)
    if gate.is_relu:
        tail = read_tail(steps, gate.activation, linear.out_features)
    else:
        tail = read_raised_tail(steps, gate.activation, gate.low)
    tail.unknown = try_tail(tail, linear.weight, str(node.target))
    target = _target(steps, linear, gate, _front(steps, node, linear), tail)
    front = target.front
    if isinstance(front, Front) and front.keeps_order and front.entry is None:
        reasons = reasons_not_reproduced(steps.root, front, target.logits)
    else:
        reasons = reasons_hooked(steps, node)
    if reasons:
        raise ModelRefusedError(reasons)
    return target


def _split_without_tail(steps: ForwardPass, node: fx.Node, linear: nn.Linear, what: str) -> Target:
    """Split a network at a Linear behind which it is no function of each row alone.

    Raises:
        ModelRefusedError: the recorded steps may not be what the network does.
    """
    if reasons := reasons_hooked(steps, node):
        raise ModelRefusedError(reasons)
    gate = _gate(steps, node)
    tail = Tail(nn.Identity(), unknown=what)
    if gate.is_relu:
        tail = read_next_layer(steps, gate.activation, linear.out_features, what)
    front = _feature_front(steps, node, linear, obstacle=what, tokenwise=True)
    return _target(steps, linear, gate, front, tail)


def _gate(steps: ForwardPass, node: fx.Node) -> Gate:
    """The activation of a Linear that was found to have one."""
    gate = read_gate(steps, node)
    if gate is None:
        message = f"Linear '{node.target}' is not followed by ReLU"
        raise UnsupportedModelError(message)
    return gate


def _target(
    steps: ForwardPass, linear: nn.Linear, gate: Gate, front: Front | FeatureFront, tail: Tail
) -> Target:
    weight, bias, fold = gate.fold(linear)
    return Target(
        weight=weight,
        bias=bias,
        weight_name=steps.parameter_names[id(linear.weight)],
        bias_name=steps.parameter_names[id(gate.bias_of(linear))],
        front=front,
        tail=tail,
        fold=fold,
    )


def _front(steps: ForwardPass, node: fx.Node, linear: nn.Linear) -> Front | FeatureFront:
    """The way to a Linear: one that can be undone, or else the whole network."""
    front_steps, obstacle = read_front(steps, node)
    if not obstacle and not _changing(steps, node):
        trained, dtype = steps.trained_before(node), linear.weight.dtype
        return Front(front_steps, linear.in_features, dtype, trained, steps.entry(node))
    return _feature_front(steps, node, linear, obstacle=obstacle or _changing(steps, node))


def _feature_front(
    steps: ForwardPass, node: fx.Node, linear: nn.Linear, *, obstacle: str, tokenwise: bool = False
) -> FeatureFront:
    return FeatureFront(
        steps.root,
        steps.parameter_names[id(linear.weight)].rpartition(".")[0],
        linear.in_features,
        linear.weight.dtype,
        obstacle=obstacle,
        unsteady=_changing(steps, node) or None,
        trained=steps.trained_before(node),
        tokenwise=tokenwise,
    )


def _changing(steps: ForwardPass, node: fx.Node) -> str:
    """What changes from run to run in front of a node, in a phrase."""
    return "; ".join(one.what for one in unsteady(steps, steps.nodes_before(node)))


def with_first_layer(model: nn.Module, target: Target, weight: Tensor, bias: Tensor) -> nn.Module:
    """Return a copy of the model whose target layer has another weight and bias.

    Args:
        model: the network `target` was split from; it is not changed.
        target: names the layer.
        weight: (neurons, features), cast to the model's dtype.
        bias: (neurons,), cast to the model's dtype.

    Raises:
        InputError: a shape that is not the target's.

    Example:
        >>> model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 2))
        >>> shaped = with_first_layer(model, split(model), torch.ones(3, 2), torch.zeros(3))
        >>> split(shaped).pre_activations(torch.ones(1, 2))
        tensor([[2., 2., 2.]])
    """
    shaped = copy.deepcopy(model)
    one, fold = torch.ones((), dtype=torch.float64, device="cpu"), target.fold
    factors = (one, one) if fold is None else (fold.weight[:, None], fold.bias)
    for key, name, value, now, factor in (
        ("weight", target.weight_name, weight, target.weight, factors[0]),
        ("bias", target.bias_name, bias, target.bias, factors[1]),
    ):
        parameter, wanted = shaped.get_parameter(name), value
        if value.shape != parameter.shape:
            raise InputError(
                f"{key} of shape {tuple(value.shape)}: "
                f"expected {tuple(parameter.shape)}, as '{name}' has"
            )
        if parameter.dtype != now.dtype or not torch.equal(parameter, now):
            # What the ReLU sees is not the parameter itself: change that by as much.
            change = (wanted.double().to(now.device) - now.double()) / factor.to(now.device)
            wanted = parameter.detach().double() + change
        with torch.no_grad():
            parameter.copy_(wanted)
    return shaped
